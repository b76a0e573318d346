//! Locks on keys and names, taken by transactions and guards.

use std::time::Duration;

use super::Db;
use super::keyspace::Keyspace;
use super::snapshot::Snapshot;
use super::transaction::Transaction;
use super::updates::ViewMut;
use crate::engine::life::owner::LockOwner;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::writes::locks::{LockMode, LockName};
use crate::types::key::encode_key;
use crate::types::limits::check_key;
use crate::types::{Contended, Error, Result, Value};

/// A guard that holds a lock on a name until it drops: see [`Db::lock`].
pub struct NamedLock {
    _owner: LockOwner,
}

impl Db {
    /// Returns an owner of named locks that waits without blocking a thread.
    pub fn lock_owner(&self) -> LockOwner {
        LockOwner::new(self.handle.clone())
    }

    /// Locks a name, whose meaning is up to the program. Waits for it up to
    /// [`Builder::lock_patience`](crate::Builder::lock_patience). Dropping the guard releases the lock.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// use esker::LockMode;
    /// let guard = db.lock("nightly report", LockMode::Exclusive)?;
    /// // No other holder of the lock writes the report now.
    /// drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A thread that takes the same lock twice waits for itself until its patience ends, unless both are
    /// shared. Deadlock detection covers transactions and guards, not threads: it does not see that a thread
    /// holds a guard while it waits for another lock in a transaction.
    ///
    /// # Errors
    /// [`Error::LockTimeout`], [`Error::Deadlock`], [`Error::Closed`].
    pub fn lock(&self, name: &str, mode: LockMode) -> Result<NamedLock> {
        self.lock_for(name, mode, self.handle.core.options.lock_patience())
    }

    /// Same as [`lock`](Self::lock), with this patience.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub fn lock_for(&self, name: &str, mode: LockMode, patience: Duration) -> Result<NamedLock> {
        let mut owner = LockOwner::new(self.handle.clone());
        owner.acquire(LockName::of_user(name), mode, patience)?;
        Ok(NamedLock { _owner: owner })
    }
}

impl ViewMut<'_> {
    /// Locks a key until the transaction ends: see [`Transaction::lock`].
    ///
    /// # Errors
    /// Those of [`Transaction::lock`].
    pub fn lock(&mut self, key: impl AsRef<[u8]>, mode: LockMode) -> Result<()> {
        self.transaction.lock(self.keyspace, key, mode)
    }

    /// Same as [`lock`](Self::lock), with this patience.
    ///
    /// # Errors
    /// Those of [`Transaction::lock`].
    pub fn lock_for(&mut self, key: impl AsRef<[u8]>, mode: LockMode, patience: Duration) -> Result<()> {
        self.transaction.lock_for(self.keyspace, key, mode, patience)
    }

    /// Locks a key exclusively and returns its value: see [`Transaction::get_for_update`].
    ///
    /// # Errors
    /// Those of [`Transaction::get_for_update`].
    pub fn get_for_update(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.transaction.get_for_update(self.keyspace, key)
    }
}

impl Transaction {
    /// Locks a key, which may be absent, until the transaction ends. Other transactions that lock it wait up
    /// to [`Builder::lock_patience`](crate::Builder::lock_patience). Locks are advisory: a transaction that
    /// writes the key without a lock does not wait, and one of the two conflicts.
    ///
    /// A transaction that has neither read nor written yet reads the state at the moment it got the lock. So
    /// transactions that first lock what they will write do not conflict with each other.
    ///
    /// A lock stays until the transaction ends, even if it was taken in a part that was
    /// [rolled back](Self::rollback_to): later operations may depend on what that part has read.
    ///
    /// An [exclusive](crate::Isolation::Exclusive) transaction needs no locks. While it holds the exclusive
    /// turn, other commits wait for it. If it waits for a lock whose holder is about to commit, that is a
    /// deadlock, and the exclusive transaction fails.
    ///
    /// # Errors
    /// [`Error::LockTimeout`]; [`Error::Deadlock`] if transactions wait for each other and this one began
    /// last: drop it, and begin a new one; [`Error::Conflict`] if another commit has written the key since
    /// this transaction began to read. After the last two, [`Db::transact`] runs the transaction again.
    pub fn lock(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, mode: LockMode) -> Result<()> {
        let patience = self.handle.core.options.lock_patience();
        self.lock_for(keyspace, key, mode, patience)
    }

    /// Same as [`lock`](Self::lock), with this patience.
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
        if self.move_to_newest() {
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
    pub fn lock_name(&mut self, name: &str, mode: LockMode) -> Result<()> {
        let patience = self.handle.core.options.lock_patience();
        self.lock_name_for(name, mode, patience)
    }

    /// Same as [`lock_name`](Self::lock_name), with this patience.
    ///
    /// # Errors
    /// Those of [`Db::lock`].
    pub fn lock_name_for(&mut self, name: &str, mode: LockMode, patience: Duration) -> Result<()> {
        self.begin_operation()?;
        let done = self.owner().acquire(LockName::of_user(name), mode, patience);
        self.note_failure(done)?;
        self.move_to_newest();
        Ok(())
    }

    /// Locks a key exclusively and returns its value.
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
    /// transaction.commit()?; // no other holder of the lock came between
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

    /// Begins an operation and returns the state of its keyspace.
    pub(super) fn state_of<'a>(&self, keyspace: &'a Keyspace) -> Result<&'a KeyspaceState> {
        self.begin_operation()?;
        keyspace.state_in(&self.handle)
    }

    /// Begins an operation. Fails if the transaction is exclusive and did not get the exclusive turn.
    pub(super) fn begin_operation(&self) -> Result<()> {
        self.restart.forget();
        match &self.turn {
            None => Ok(()),
            Some(Ok(turn)) => {
                turn.note_thread();
                Ok(())
            }
            Some(Err(why)) => Err(why.clone()),
        }
    }

    /// Records whether an operation has failed such that the transaction has to run again.
    pub(super) fn note_failure<T>(&self, done: Result<T>) -> Result<T> {
        self.restart.note(&done);
        done
    }

    fn owner(&mut self) -> &mut LockOwner {
        let handle = &self.handle;
        self.owner.get_or_insert_with(|| LockOwner::new(handle.clone()))
    }

    /// Moves the transaction to the newest state if it has neither read nor written. Returns whether it did.
    pub(super) fn move_to_newest(&mut self) -> bool {
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

    /// Counts conflicts and lost increments when two threads increment one number, each under its lock.
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
    fn they_are_held_until_the_commit_is_visible() {
        assert_eq!(faults_of_increments(None), 0);
        let found = (0..20).any(|_| faults_of_increments(Some(Canary::LockReleasedEarly)) > 0);
        assert!(found, "a lock that is released before the commit is noticed");
    }
}
