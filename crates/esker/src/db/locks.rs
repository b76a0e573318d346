//! Locks on keys and names.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::Db;
use super::keyspace::Keyspace;
use super::snapshot::Snapshot;
use super::transaction::Transaction;
use crate::engine::life::owner::Owner;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::writes::locks::{LockMode, LockName};
use crate::types::key::encode_key;
use crate::types::limits::check_key;
use crate::types::{Contended, Error, Result, Value};

/// So long a lock is waited for where nothing else is said.
const PATIENCE: Duration = Duration::from_secs(10);

/// A lock under a name, until it drops: see [`Db::lock`].
pub struct NamedLock {
    _owner: Owner,
}

impl Db {
    /// Takes a lock under a name, of the user's own meaning, and waits for it as long as said. It is given back when the guard drops.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// use esker::LockMode;
    /// let patience = std::time::Duration::from_secs(1);
    /// let guard = db.lock("nightly report", LockMode::Exclusive, patience)?;
    /// // Nobody else writes the report now.
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A thread that takes the same lock twice waits for itself until its patience ends, unless both times are shared. Deadlocks are looked for between
    /// transactions and guards, not threads: if a thread holds a guard, and waits for another lock in a transaction, that is not followed.
    ///
    /// # Errors
    /// [`Error::LockTimeout`], [`Error::Deadlock`], [`Error::Closed`].
    pub fn lock(&self, name: &str, mode: LockMode, patience: Duration) -> Result<NamedLock> {
        let mut owner = Owner::new(self.handle.clone());
        owner.acquire(LockName::Name(name.to_owned()), mode, patience)?;
        Ok(NamedLock { _owner: owner })
    }
}

/// Whether the last operation of a transaction failed with a conflict or deadlock. Relaxed: it orders nothing.
#[derive(Debug, Default)]
pub(super) struct Restart(AtomicU8);

impl Restart {
    const NONE: u8 = 0;
    const CONFLICT: u8 = 1;
    const DEADLOCK: u8 = 2;

    /// Whether it has to run again.
    pub(super) fn is_due(&self) -> bool {
        self.0.load(Ordering::Relaxed) != Self::NONE
    }

    /// Whether that is because of a deadlock.
    pub(super) fn is_after_deadlock(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::DEADLOCK
    }
}

impl Transaction {
    /// Locks a key, which need not be there, until the transaction ends: others that lock it wait, 10 s at the most. Locks are advice: a transaction that
    /// writes the key without a lock does not wait, and one of the two conflicts.
    ///
    /// One that has neither read nor written yet reads from the moment on at which it got the lock. So who locks first what it will write does not
    /// conflict with others that do the same.
    ///
    /// A lock stays until the transaction ends, also one taken in a part that was [rolled back](Self::rollback_to): what the transaction does after
    /// that part may depend on what it saw there.
    ///
    /// An [exclusive](crate::Isolation::Exclusive) transaction needs no locks. While it has its turn, the commits of others wait for it. So if it waits
    /// for a lock whose holder is about to commit, that is a deadlock, and the exclusive one fails.
    ///
    /// # Errors
    /// [`Error::LockTimeout`]; [`Error::Deadlock`] if it waits for others that wait for it, and began last: drop it, and begin again;
    /// [`Error::Conflict`] if another commit has written the key since the transaction began to read. After the last two,
    /// [`Db::transact`] runs the transaction again.
    pub fn lock(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, mode: LockMode) -> Result<()> {
        self.lock_for(keyspace, key, mode, PATIENCE)
    }

    /// [`lock`](Self::lock) with a patience of its own.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub fn lock_for(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        mode: LockMode,
        patience: Duration,
    ) -> Result<()> {
        let done = self.lock_key(keyspace, key.as_ref(), mode, patience);
        self.note_failure(done)
    }

    fn lock_key(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        mode: LockMode,
        patience: Duration,
    ) -> Result<()> {
        check_key(key)?;
        let encoded = encode_key(self.state_of(keyspace)?.id, key);
        self.owner().acquire(LockName::Key(keyspace.name(), encoded.clone()), mode, patience)?;
        if self.begin_anew() {
            return Ok(());
        }
        let since = self.snapshot().seqno();
        if self.handle.core.view.get().newest_write(&encoded, since)?.is_some() {
            let contended = Contended::Key(key.to_vec());
            return Err(Error::Conflict { keyspace: keyspace.name(), contended });
        }
        Ok(())
    }

    /// Locks a name until the transaction ends: see [`Db::lock`].
    ///
    /// # Errors
    /// Those of [`Db::lock`].
    pub fn lock_name(&mut self, name: &str, mode: LockMode, patience: Duration) -> Result<()> {
        self.begin_operation()?;
        let done = self.owner().acquire(LockName::Name(name.to_owned()), mode, patience);
        self.note_failure(done)?;
        self.begin_anew();
        Ok(())
    }

    /// The value of a key, which is locked exclusively.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// # let stock = db.keyspace("stock")?;
    /// # stock.put("apples", "7")?;
    /// let mut transaction = db.begin();
    /// let apples = transaction.get_for_update(&stock, "apples")?;
    /// assert_eq!(apples.as_deref(), Some(&b"7"[..]));
    /// transaction.put(&stock, "apples", "6")?;
    /// transaction.commit()?; // nobody who asked for the lock came between
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock) and [`Reads::get`](crate::Reads::get).
    pub fn get_for_update(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.lock(keyspace, key, LockMode::Exclusive)?;
        self.get(keyspace, key)
    }

    /// The state of a keyspace that an operation begins with.
    pub(super) fn state_of<'a>(&self, keyspace: &'a Keyspace) -> Result<&'a KeyspaceState> {
        self.begin_operation()?;
        keyspace.state_in(&self.handle)
    }

    /// Begins an operation. Fails if the transaction is exclusive and did not get its turn.
    pub(super) fn begin_operation(&self) -> Result<()> {
        self.restart.0.store(Restart::NONE, Ordering::Relaxed);
        match &self.turn {
            None => Ok(()),
            Some(Ok(turn)) => {
                turn.note_thread();
                Ok(())
            }
            Some(Err(why)) => Err(why.duplicate()),
        }
    }

    /// Notes whether an operation has failed so that the transaction has to run again.
    fn note_failure<T>(&self, done: Result<T>) -> Result<T> {
        let restart = match done {
            Err(Error::Conflict { .. }) => Restart::CONFLICT,
            Err(Error::Deadlock(_)) => Restart::DEADLOCK,
            _ => Restart::NONE,
        };
        self.restart.0.store(restart, Ordering::Relaxed);
        done
    }

    fn owner(&mut self) -> &mut Owner {
        let handle = &self.handle;
        self.owner.get_or_insert_with(|| Owner::new(handle.clone()))
    }

    /// Reads the newest state from now on, if it has neither read nor written anything; whether it does.
    fn begin_anew(&mut self) -> bool {
        let is_new = !self.has_read() && self.writes.is_empty();
        if is_new {
            self.renew(Snapshot::new(self.handle.clone()));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_env::{Env, MemFs};

    use super::*;
    use crate::types::canary::{self, Canary};

    /// How often increments of one number by two threads, each under its lock, conflict, or are lost.
    fn faults_of_increments(canary: Option<Canary>) -> u64 {
        let db = Db::builder().env(Env::simulated(Arc::new(MemFs::new()), 1)).open("db").unwrap();
        let map = db.default_keyspace();
        let increments = || {
            canary::set(canary);
            let mut failed = 0;
            for _ in 0..300 {
                let mut transaction = db.begin();
                let old = transaction.get_for_update(&map, "n").unwrap();
                let old = old.map_or(0, |old| u64::from_le_bytes((*old).try_into().unwrap()));
                std::thread::yield_now();
                transaction.put(&map, "n", (old + 1).to_le_bytes()).unwrap();
                failed += u64::from(transaction.commit().is_err());
            }
            canary::set(None);
            failed
        };
        let failed: u64 = std::thread::scope(|scope| {
            let threads = [0, 1].map(|_| scope.spawn(increments));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        let last = map.get("n").unwrap().map_or(0, |n| u64::from_le_bytes((*n).try_into().unwrap()));
        failed + (600 - failed - last)
    }

    #[test]
    fn locks_1_they_are_held_until_the_commit_is_visible() {
        assert_eq!(faults_of_increments(None), 0, "locks.1");
        let found = (0..20).any(|_| faults_of_increments(Some(Canary::LockReleasedEarly)) > 0);
        assert!(found, "a lock that is given back before the commit shows");
    }
}
