//! `SharedKeyspace`: one keyspace of a shared database.

use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use esker::{
    Durability, Error as DbError, Key, KeyBounds, Keyspace, KeyspaceId, SeqNo, Swap, Ttl, Update, Value,
};

use crate::error::{Error, Result};
use crate::inner::Opened;
use crate::protocol::{At, Bytes, Op, Request, WireLifetime};
use crate::range::{KEYS_MAX, SharedRange, multi_get};
use crate::transact::TransactionOptions;
use crate::transaction::SharedTransaction;

/// A keyspace of a [`Shared`](crate::Shared) database: a cheap handle, valid whichever process is the host.
/// Calls that return what was there are transactions of their own.
///
/// In the host each call is that of the engine. In a guest it is one request, or a few.
#[derive(Clone)]
pub struct SharedKeyspace {
    pub(crate) inner: Arc<Opened>,
    pub(crate) id: u32,
    /// The host's own handle, once this process is the host.
    native: OnceLock<Keyspace>,
    durability: Option<Durability>,
}

impl SharedKeyspace {
    pub(crate) fn new(inner: &Arc<Opened>, id: u32) -> Self {
        SharedKeyspace { inner: inner.clone(), id, native: OnceLock::new(), durability: None }
    }

    /// Its number, which does not change with its name.
    pub fn id(&self) -> KeyspaceId {
        KeyspaceId::new(self.id)
    }

    /// Returns a handle of the same keyspace whose commits have this durability. [`None`](Durability::None)
    /// counts as [`Buffered`](Durability::Buffered): a kill of the host loses no commit.
    #[must_use]
    pub fn with(&self, durability: Durability) -> Self {
        let durability = match durability {
            Durability::None => Durability::Buffered,
            more => more,
        };
        let (inner, native) = (self.inner.clone(), OnceLock::new());
        SharedKeyspace { inner, id: self.id, native, durability: Some(durability) }
    }

    /// Returns the engine's handle, if this process is the host.
    fn native(&self) -> Result<Option<&Keyspace>> {
        if let Some(native) = self.native.get() {
            return Ok(Some(native));
        }
        let Some(host) = self.inner.host() else { return Ok(None) };
        let found = host.db.keyspace_by_id(self.id())?;
        let mut found = found.ok_or_else(|| DbError::KeyspaceNotFound(format!("number {}", self.id)))?;
        match self.durability {
            Some(durability) => found = found.with(durability),
            None if host.db.info().durability == Durability::None => found = found.with(Durability::Buffered),
            None => {}
        }
        Ok(Some(self.native.get_or_init(|| found)))
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`Error::Db`], [`Error::NoHost`]. All reads have these.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        if let Some(native) = self.native()? {
            return Ok(native.get(key)?);
        }
        self.inner.read(&Request::Get(At::Now, self.id, Bytes(key.as_ref())))?.into_value()
    }

    /// Whether a key exists.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        if let Some(native) = self.native()? {
            return Ok(native.contains(key)?);
        }
        self.inner.read(&Request::Contains(At::Now, self.id, Bytes(key.as_ref())))?.into_bool()
    }

    /// The remaining lifetime of a key. `None`: the key does not exist.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn ttl(&self, key: impl AsRef<[u8]>) -> Result<Option<Ttl>> {
        if let Some(native) = self.native()? {
            return Ok(native.ttl(key)?);
        }
        self.inner.read(&Request::Ttl(At::Now, self.id, Bytes(key.as_ref())))?.into_ttl()
    }

    /// The values of several keys, all as of the same commit.
    ///
    /// # Errors
    /// Those of [`get`](Self::get); [`Error::HostGone`] in a guest, if the host goes between two pages of 4
    /// MiB.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        if let Some(native) = self.native()? {
            return Ok(native.multi_get(keys)?);
        }
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let mut link = None;
        if keys.len() > KEYS_MAX {
            link = Some(self.inner.read_with(&Request::Hold)?.1);
        }
        let values = multi_get(&keys, |keys| match &mut link {
            None => {
                let (reply, used) = self.inner.read_with(&Request::MultiGet(At::Now, self.id, keys))?;
                link = Some(used);
                Ok(reply)
            }
            Some(link) => self.inner.ask(link, &Request::MultiGet(At::Held, self.id, keys)),
        });
        if let Some(link) = link {
            self.inner.release(link);
        }
        values
    }

    /// The entries of a range, from either end. In a guest they come in pages, and the host holds a snapshot
    /// until the last one was read or the iterator is dropped.
    pub fn range(&self, range: impl KeyBounds) -> SharedRange {
        match self.native() {
            Ok(Some(native)) => SharedRange::native(native.range(range)),
            Ok(None) => SharedRange::now(&self.inner, self.id, &range),
            Err(error) => SharedRange::failed(error),
        }
    }

    /// The entries whose keys have this prefix, from either end.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> SharedRange {
        self.range(prefix_range(prefix.as_ref()))
    }

    /// All entries, from either end.
    pub fn iter(&self) -> SharedRange {
        self.range(..)
    }

    /// The first entry.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first(&self) -> Result<Option<(Key, Value)>> {
        self.iter().of_one().next().transpose()
    }

    /// The last entry.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last(&self) -> Result<Option<(Key, Value)>> {
        self.iter().of_one().next_back().transpose()
    }

    /// The exact number of keys.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn len(&self) -> Result<u64> {
        if let Some(native) = self.native()? {
            return Ok(native.len()?);
        }
        self.inner.read(&Request::Len(At::Now, self.id))?.into_count()
    }

    /// Whether there are no keys.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
    }

    /// Commits one write. `native`: the engine's call.
    fn write(&self, op: Op<'_>, native: impl FnOnce(&Keyspace) -> esker::Result<SeqNo>) -> Result<SeqNo> {
        if let Some(keyspace) = self.native()? {
            return Ok(native(keyspace)?);
        }
        self.inner.commit(self.durability, |link, number, durability| {
            link.call(&Request::Commit(number, durability, vec![(self.id, op.clone())]), &self.inner.dir)
        })
    }

    /// Sets a key to a value. Returns the number of the commit; if its reply was lost, that of a later one.
    ///
    /// # Errors
    /// [`Error::Db`]; [`Error::NoHost`]: nothing was written; [`Error::OutcomeUnknown`]. All writes have
    /// these.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SeqNo> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let op = Op::Put { key: Bytes(key), value: Bytes(value), lifetime: WireLifetime::Default };
        self.write(op, |native| native.put(key, value))
    }

    /// Sets a key to a value that expires after this time.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<SeqNo> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let op = Op::Put { key: Bytes(key), value: Bytes(value), lifetime: WireLifetime::For(ttl) };
        self.write(op, |native| native.put_with_ttl(key, value, ttl))
    }

    /// Sets a key to a value that expires at this moment: see [`esker::Keyspace::put_until`].
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_until(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        end: Option<SystemTime>,
    ) -> Result<SeqNo> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let op = Op::Put { key: Bytes(key), value: Bytes(value), lifetime: WireLifetime::until(end) };
        self.write(op, |native| native.put_until(key, value, end))
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        let key = key.as_ref();
        self.write(Op::Delete(Bytes(key)), |native| native.delete(key))
    }

    /// Removes all keys of a range.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<SeqNo> {
        let op = Op::DeleteRange(range.lower().map(Bytes), range.upper().map(Bytes));
        self.write(op, |native| native.delete_range(&range))
    }

    /// Removes all keys with this prefix.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.delete_range(prefix_range(prefix.as_ref()))
    }

    /// Removes all keys.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn clear(&self) -> Result<SeqNo> {
        self.delete_range(..)
    }

    /// Merges an operand into a key, without reading it: see [`esker::Keyspace::merge`]. Every process that
    /// may become the host has to register the operator.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<SeqNo> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.write(Op::Merge(Bytes(key), Bytes(operand)), |native| native.merge(key, operand))
    }

    /// Runs `body` as a transaction of its own.
    fn alone<T>(&self, body: impl FnMut(&mut SharedTransaction) -> Result<T>) -> Result<T> {
        let mut options = TransactionOptions::new(&self.inner);
        if let Some(durability) = self.durability {
            options = options.durability(durability);
        }
        options.run(body)
    }

    /// Removes a key and returns its old value.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.alone(|t| t.remove(self, key))
    }

    /// Removes and returns the first entry.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.alone(|t| t.pop_first(self))
    }

    /// Removes and returns the last entry.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.alone(|t| t.pop_last(self))
    }

    /// Sets a key to `new` if its value is `expected`: see [`esker::Keyspace::compare_and_swap`].
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        let key = key.as_ref();
        self.alone(|t| t.compare_and_swap(self, key, expected, new))
    }

    /// Replaces the value of a key by the result of `change`: see [`esker::Keyspace::update`].
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn update<V: Into<Value>>(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Update> {
        let key = key.as_ref();
        self.alone(|t| t.update(self, key, &mut change))
    }

    /// Adds to a number and returns the number before: see [`esker::Keyspace::fetch_add`].
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn fetch_add(&self, key: impl AsRef<[u8]>, add: i64) -> Result<i64> {
        let key = key.as_ref();
        self.alone(|t| t.fetch_add(self, key, add))
    }

    /// Lets a key expire after this time. Returns whether the key exists.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn expire(&self, key: impl AsRef<[u8]>, ttl: Duration) -> Result<bool> {
        let key = key.as_ref();
        self.alone(|t| t.expire(self, key, ttl))
    }

    /// Removes the expiry of a key. Returns whether the key exists.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.alone(|t| t.persist(self, key))
    }
}

impl std::fmt::Debug for SharedKeyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedKeyspace({})", self.id)
    }
}

/// Returns the range of the keys with a prefix.
pub(crate) fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return (Bound::Included(prefix.to_vec()), Bound::Excluded(end));
        }
    }
    (Bound::Included(prefix.to_vec()), Bound::Unbounded)
}

/// Refuses a handle of another database.
pub(crate) fn check_of(inner: &Arc<Opened>, keyspace: &SharedKeyspace) -> Result<()> {
    match Arc::ptr_eq(inner, &keyspace.inner) {
        true => Ok(()),
        false => Err(Error::Db(DbError::ForeignHandle { keyspace: format!("number {}", keyspace.id) })),
    }
}
