//! `SharedTransaction`: reads and writes of a shared database that are committed together.

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker::{Durability, Key, KeyBounds, LockMode, SeqNo, Swap, Ttl, Update, Value};

use crate::commit_id::Outcome;
use crate::error::{Error, Result, unexpected};
use crate::guest::CallError;
use crate::held::{HeldLink, held_reads};
use crate::inner::{Opened, wire_durability};
use crate::keyspace::{SharedKeyspace, check_of, prefix_range};
use crate::protocol::{At, Bytes, Op, Reply, Request, WireIsolation, WireLifetime};
use crate::range::{SharedRange, multi_get};

/// A transaction: see [`esker::Transaction`]. It runs in the host, and each call of a guest is a request. It
/// ends with the host, and when its guest sends nothing for [a
/// while](crate::SharedBuilder::transaction_idle): then its calls fail with [`Error::HostGone`], and nothing
/// was written. Dropping it rolls it back.
pub struct SharedTransaction {
    inner: Arc<Opened>,
    link: Arc<HeldLink>,
    durability: Option<Durability>,
}

impl SharedTransaction {
    pub(crate) fn begin(
        inner: &Arc<Opened>,
        isolation: WireIsolation,
        durability: Option<Durability>,
    ) -> Result<Self> {
        let (_, link) = inner.read_with(&Request::Begin(isolation))?;
        Ok(SharedTransaction { inner: inner.clone(), link: HeldLink::new(link), durability })
    }

    /// Returns whether the last call failed in a way after which it can run again.
    pub(crate) fn can_restart(&self) -> bool {
        self.link.can_restart()
    }

    fn ask(&self, request: &Request<'_>) -> Result<Reply> {
        self.link.ask(request, &self.inner)
    }

    fn write(&mut self, keyspace: &SharedKeyspace, op: Op<'_>) -> Result<()> {
        check_of(&self.inner, keyspace)?;
        self.ask(&Request::Write(keyspace.id, op)).map(drop)
    }

    /// Sets a key to a value.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn put(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put_for(keyspace, key.as_ref(), value.as_ref(), WireLifetime::Default)
    }

    /// Sets a key to a value that expires after this time, which begins at this call.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn put_with_ttl(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        self.put_for(keyspace, key.as_ref(), value.as_ref(), WireLifetime::For(ttl))
    }

    /// Sets a key to a value that expires at this moment: see [`esker::Transaction::put_until`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn put_until(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        end: Option<SystemTime>,
    ) -> Result<()> {
        self.put_for(keyspace, key.as_ref(), value.as_ref(), WireLifetime::until(end))
    }

    fn put_for(
        &mut self,
        keyspace: &SharedKeyspace,
        key: &[u8],
        value: &[u8],
        lifetime: WireLifetime,
    ) -> Result<()> {
        self.write(keyspace, Op::Put { key: Bytes(key), value: Bytes(value), lifetime })
    }

    /// Lets a key expire after this time, which begins at this call. Returns whether the key exists.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn expire(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<bool> {
        check_of(&self.inner, keyspace)?;
        self.ask(&Request::Expire(keyspace.id, Bytes(key.as_ref()), Some(ttl)))?.into_bool()
    }

    /// Removes the expiry of a key. Returns whether the key exists.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn persist(&mut self, keyspace: &SharedKeyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        check_of(&self.inner, keyspace)?;
        self.ask(&Request::Expire(keyspace.id, Bytes(key.as_ref()), None))?.into_bool()
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn delete(&mut self, keyspace: &SharedKeyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(keyspace, Op::Delete(Bytes(key.as_ref())))
    }

    /// Removes all keys of a range.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn delete_range(&mut self, keyspace: &SharedKeyspace, range: impl KeyBounds) -> Result<()> {
        let bounds: (Bound<_>, Bound<_>) = (range.lower().map(Bytes), range.upper().map(Bytes));
        self.write(keyspace, Op::DeleteRange(bounds.0, bounds.1))
    }

    /// Merges an operand into a key: see [`esker::Keyspace::merge`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn merge(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write(keyspace, Op::Merge(Bytes(key.as_ref()), Bytes(operand.as_ref())))
    }

    /// Adds to a number and returns the number before: see [`esker::Keyspace::fetch_add`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn fetch_add(&mut self, keyspace: &SharedKeyspace, key: impl AsRef<[u8]>, add: i64) -> Result<i64> {
        check_of(&self.inner, keyspace)?;
        self.ask(&Request::FetchAdd(keyspace.id, Bytes(key.as_ref()), add))?.into_number()
    }

    /// Replaces what was found under a key.
    fn replace(
        &mut self,
        old: Option<&Value>,
        keyspace: &SharedKeyspace,
        key: &[u8],
        new: Option<&[u8]>,
    ) -> Result<()> {
        match (old, new) {
            (None, None) => Ok(()),
            (None, Some(new)) => self.put(keyspace, key, new),
            (Some(_), new) => self.ask(&Request::Replace(keyspace.id, Bytes(key), new.map(Bytes))).map(drop),
        }
    }

    /// Removes a key and returns its old value.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn remove(&mut self, keyspace: &SharedKeyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let old = self.get(keyspace, &key)?;
        if old.is_some() {
            self.delete(keyspace, key)?;
        }
        Ok(old)
    }

    /// Removes and returns the first entry.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn pop_first(&mut self, keyspace: &SharedKeyspace) -> Result<Option<(Key, Value)>> {
        let entry = self.first(keyspace)?;
        self.take_out(keyspace, entry)
    }

    /// Removes and returns the last entry.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn pop_last(&mut self, keyspace: &SharedKeyspace) -> Result<Option<(Key, Value)>> {
        let entry = self.last(keyspace)?;
        self.take_out(keyspace, entry)
    }

    fn take_out(
        &mut self,
        keyspace: &SharedKeyspace,
        entry: Option<(Key, Value)>,
    ) -> Result<Option<(Key, Value)>> {
        if let Some((key, _)) = &entry {
            self.delete(keyspace, key)?;
        }
        Ok(entry)
    }

    /// Sets a key to `new` if its value is `expected`: see [`esker::Keyspace::compare_and_swap`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn compare_and_swap(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        let old = self.get(keyspace, &key)?;
        let swapped = old.as_deref() == expected;
        if swapped {
            self.replace(old.as_ref(), keyspace, key.as_ref(), new)?;
        }
        Ok(Swap::new(swapped, old))
    }

    /// Replaces the value of a key by the result of `change`: see [`esker::Keyspace::update`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn update<V: Into<Value>>(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<Update> {
        let old = self.get(keyspace, &key)?;
        let new = change(old.as_deref()).map(Into::into);
        self.replace(old.as_ref(), keyspace, key.as_ref(), new.as_deref())?;
        Ok(Update::new(old, new))
    }

    /// Locks a key until the transaction ends: see [`esker::Transaction::lock`]. The host releases
    /// the locks of a killed guest at once, and those of a stopped guest after the idle time.
    ///
    /// # Errors
    /// Those of [`get`](Self::get), among them the engine's `LockTimeout` and `Deadlock`.
    pub fn lock(&mut self, keyspace: &SharedKeyspace, key: impl AsRef<[u8]>, mode: LockMode) -> Result<()> {
        check_of(&self.inner, keyspace)?;
        let is_alone = mode == LockMode::Exclusive;
        self.ask(&Request::Lock(keyspace.id, Bytes(key.as_ref()), is_alone)).map(drop)
    }

    /// Locks a name until the transaction ends: see [`esker::Transaction::lock_name`]. The lock is released
    /// like that of a [key](Self::lock). If the host goes, the lock goes with it, and the transaction cannot
    /// commit any more.
    ///
    /// # Errors
    /// Those of [`lock`](Self::lock).
    pub fn lock_name(&mut self, name: &str, mode: LockMode) -> Result<()> {
        self.ask(&Request::LockName(name, mode == LockMode::Exclusive)).map(drop)
    }

    /// Runs a request that does not change whether the transaction has to run again, unless the host goes.
    pub(crate) fn ask_aside(&self, request: &Request<'_>) -> Result<()> {
        self.link.ask_aside(request, &self.inner)
    }

    /// Makes the writes durable and visible, all or none.
    ///
    /// # Errors
    /// The engine's `Conflict` and [`Error::HostGone`]: nothing was written, run the transaction again.
    /// [`Error::OutcomeUnknown`]. The transaction is over in any case.
    pub fn commit(self) -> Result<SeqNo> {
        self.inner.check()?;
        let Some(mut link) = self.link.take() else { return Err(unexpected()) };
        let id = self.inner.next_commit(&mut link, self.durability);
        let request = Request::CommitTransaction(id.number, wire_durability(self.durability));
        match link.call(&request, &self.inner.dir) {
            Ok(reply) => {
                self.inner.give_back(link);
                reply.into_seqno()
            }
            Err(CallError::Refused(error)) => {
                self.inner.release(link);
                Err(error.into())
            }
            Err(_) => {
                drop(link);
                match self.inner.outcome(&id)? {
                    Outcome::Applied(seqno) => Ok(seqno),
                    Outcome::NotApplied => Err(Error::HostGone),
                }
            }
        }
    }

    /// Drops the writes.
    pub fn rollback(self) {}
}

held_reads!(SharedTransaction);

impl Drop for SharedTransaction {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            self.inner.release(link);
        }
    }
}
