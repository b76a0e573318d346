//! The named locks that each connection holds, and until when.
//!
//! ```text
//!   acquire --> the store's locks --free----> held
//!                                 `-taken--> queue --released--> waker: the command runs again
//! ```
//!
//! A lock taken in a transaction is released when the transaction ends. Other locks are released by the
//! connection, or when it closes.

use std::collections::{BTreeMap, HashMap};
use std::task::Waker;

use parking_lot::Mutex;

use crate::resp::fail::{Done, Fail};
use crate::store::{Error, LockMode, Store};

/// For how long a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until the transaction ends.
    TransactionEnd,
    /// Until the connection releases it.
    Unlock,
}

/// The name of a place, and the name of the lock in it.
pub type Name = (String, Vec<u8>);
/// A lock as listed to users: its name and mode.
pub type Listed = (Vec<u8>, LockMode);

/// Reply to a connection that would wait for itself.
const DEADLOCK: &str = "DEADLOCK the holder of this lock waits for a lock of this connection: release your locks with a \
     rollback or with ES.UNLOCK, and begin again";
/// Reply to a connection that asks for too many locks.
const TOO_MANY: &str = "ERR the connection holds too many locks: release some";
/// Maximum number of locks per connection.
const LOCKS_MAX: usize = 1000;

/// The locks of a connection.
struct Owner {
    locks: Box<dyn crate::store::Locks>,
    held: BTreeMap<Name, (LockMode, Until)>,
    wanted: Option<(Name, LockMode)>,
}

/// The locks of all connections, by connection number.
#[derive(Default)]
pub struct Locks {
    owners: Mutex<HashMap<u64, Owner>>,
}

impl Locks {
    /// Takes locks in this order. Returns false if one of them is taken. The connection then waits in its
    /// queue, and `waker` is called once it is worth asking again. Without a waker it does not wait.
    ///
    /// # Errors
    /// A deadlock; too many locks; errors of the store.
    pub fn acquire(
        &self,
        store: &dyn Store,
        client: u64,
        names: &[Name],
        (mode, until): (LockMode, Until),
        waker: Option<&Waker>,
    ) -> Done<bool> {
        let mut owners = self.owners.lock();
        let owner = owners.entry(client).or_insert_with(|| Owner::new(store));
        owner.wanted = None;
        for name in names {
            let held = owner.held.get(name).copied();
            if held.is_none() && owner.held.len() >= LOCKS_MAX {
                return Err(TOO_MANY.into());
            }
            if held.is_some_and(|(held, _)| held == mode || held == LockMode::Exclusive) {
                continue;
            }
            match owner.locks.try_lock(&name.0, &name.1, mode, waker) {
                Ok(true) => {
                    owner.held.insert(name.clone(), (mode, held.map_or(until, |held| held.1)));
                }
                Ok(false) => {
                    owner.wanted = waker.map(|_| (name.clone(), mode));
                    return Ok(false);
                }
                Err(Error::Deadlock(_)) => return Err(DEADLOCK.into()),
                Err(other) => return Err(other.into()),
            }
        }
        Ok(true)
    }

    /// Ends the wait of a connection.
    pub fn stop_waiting(&self, client: u64) {
        if let Some(owner) = self.owners.lock().get_mut(&client) {
            owner.stop_waiting();
        }
    }

    /// Releases a lock of a connection. Returns false if the connection does not hold it.
    ///
    /// # Errors
    /// The connection's transaction holds the lock.
    pub fn unlock(&self, client: u64, name: &Name) -> Done<bool> {
        let mut owners = self.owners.lock();
        let Some(owner) = owners.get_mut(&client) else { return Ok(false) };
        match owner.held.get(name).map(|(_, until)| *until) {
            None => Ok(false),
            Some(Until::Unlock) => {
                owner.release(name);
                Ok(true)
            }
            Some(Until::TransactionEnd) => {
                Err(Fail::from("ERR the transaction holds this lock until it ends"))
            }
        }
    }

    /// Releases the locks of a connection's transaction, which has ended.
    pub fn end_transaction(&self, client: u64) {
        let mut owners = self.owners.lock();
        let Some(owner) = owners.get_mut(&client) else { return };
        owner.stop_waiting();
        let of_transaction = owner.held.iter().filter(|(_, (_, until))| *until == Until::TransactionEnd);
        let names: Vec<Name> = of_transaction.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| owner.release(name));
    }

    /// Releases all locks of a closed connection.
    pub fn leave(&self, client: u64) {
        self.owners.lock().remove(&client);
    }

    /// Returns whether a connection waits for a lock.
    pub fn is_waiting(&self, client: u64) -> bool {
        self.owners.lock().get(&client).is_some_and(|owner| owner.wanted.is_some())
    }

    /// Returns the locks that a connection holds, and the lock for which it waits.
    pub fn of(&self, client: u64) -> (Vec<Listed>, Option<Listed>) {
        let owners = self.owners.lock();
        let Some(owner) = owners.get(&client) else { return (Vec::new(), None) };
        let held = owner.held.iter().map(|(name, (mode, _))| (name.1.clone(), *mode)).collect();
        (held, owner.wanted.as_ref().map(|(name, mode)| (name.1.clone(), *mode)))
    }
}

impl Owner {
    fn new(store: &dyn Store) -> Self {
        Owner { locks: store.locks(), held: BTreeMap::new(), wanted: None }
    }

    fn stop_waiting(&mut self) {
        self.wanted = None;
        self.locks.stop_waiting();
    }

    fn release(&mut self, name: &Name) {
        self.held.remove(name);
        self.locks.unlock(&name.0, &name.1);
    }
}
