//! `Tree`: one keyspace. Each call is a commit of its own, which does not wait for the disk.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Weak};

use esker::Keyspace;
use parking_lot::RwLock;

use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::transaction::{
    ConflictableTransactionResult, TransactionResult, Transactional, TransactionalTree,
};
use crate::{Batch, IVec, Iter, Subscriber, names};

/// Computes the new value of a key from the key, the old value and the merged bytes. `None` removes the key.
pub trait MergeOperator: Fn(&[u8], Option<&[u8]>, &[u8]) -> Option<Vec<u8>> + Send + Sync {}

impl<F: Fn(&[u8], Option<&[u8]>, &[u8]) -> Option<Vec<u8>> + Send + Sync> MergeOperator for F {}

/// A map of keys to values. Clones share it.
#[derive(Clone)]
pub struct Tree(Arc<Inner>);

pub(crate) struct Inner {
    name: IVec,
    keyspace: Keyspace,
    merge_operator: RwLock<Option<Box<dyn MergeOperator>>>,
    /// Last, because a temporary directory goes with it.
    shared: Arc<Shared>,
}

/// What a failed [`Tree::compare_and_swap`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompareAndSwapError {
    /// The value that the key has.
    pub current: Option<IVec>,
    /// The value that it was to get.
    pub proposed: Option<IVec>,
}

impl fmt::Display for CompareAndSwapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value is not the expected one")
    }
}

impl std::error::Error for CompareAndSwapError {}

/// The result of [`Tree::compare_and_swap`].
pub type CompareAndSwapResult = Result<std::result::Result<(), CompareAndSwapError>>;

impl From<Arc<Inner>> for Tree {
    fn from(inner: Arc<Inner>) -> Self {
        Tree(inner)
    }
}

impl Tree {
    pub(crate) fn open(shared: &Arc<Shared>, name: &[u8]) -> Result<Self> {
        let inner = Inner {
            name: IVec::from(name),
            keyspace: shared.db.keyspace(&names::encode(name))?,
            merge_operator: RwLock::new(None),
            shared: shared.clone(),
        };
        Ok(Tree(Arc::new(inner)))
    }

    pub(crate) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    pub(crate) fn keyspace(&self) -> &Keyspace {
        &self.0.keyspace
    }

    /// Converts an error of the engine.
    pub(crate) fn failed(&self, error: esker::Error) -> Error {
        Error::of(error, &self.0.name)
    }

    /// Converts the result of a call that needs no new key. A key too long for the engine does not exist.
    fn found<T: Default>(&self, found: esker::Result<T>) -> Result<T> {
        match found {
            Err(esker::Error::KeyTooLong { .. }) => Ok(T::default()),
            found => found.map_err(|error| self.failed(error)),
        }
    }

    /// Sets a key. Returns the old value.
    ///
    /// # Errors
    /// Those of [`Keyspace::update`], as [`Error`]: [`Error::Unsupported`] for a key of more than 65,535
    /// bytes.
    pub fn insert<K: AsRef<[u8]>, V: Into<IVec>>(&self, key: K, value: V) -> Result<Option<IVec>> {
        let value = value.into();
        let update = self.0.keyspace.update(key, |_| Some(value.clone()));
        Ok(update.map_err(|e| self.failed(e))?.old.map(IVec::from))
    }

    /// Removes a key. Returns the old value.
    ///
    /// # Errors
    /// Those of [`Keyspace::remove`].
    pub fn remove<K: AsRef<[u8]>>(&self, key: K) -> Result<Option<IVec>> {
        Ok(self.found(self.0.keyspace.remove(key))?.map(IVec::from))
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`].
    pub fn get<K: AsRef<[u8]>>(&self, key: K) -> Result<Option<IVec>> {
        Ok(self.found(self.0.keyspace.get(key))?.map(IVec::from))
    }

    /// Returns whether a key exists.
    ///
    /// # Errors
    /// Those of [`Keyspace::contains`].
    pub fn contains_key<K: AsRef<[u8]>>(&self, key: K) -> Result<bool> {
        self.found(self.0.keyspace.contains(key))
    }

    /// Sets or removes a key if its value is the expected one; `None` stands for no key.
    ///
    /// # Errors
    /// Those of [`Keyspace::compare_and_swap`].
    pub fn compare_and_swap<K, OV, NV>(
        &self,
        key: K,
        old: Option<OV>,
        new: Option<NV>,
    ) -> CompareAndSwapResult
    where
        K: AsRef<[u8]>,
        OV: AsRef<[u8]>,
        NV: Into<IVec>,
    {
        let (old, new) = (old.as_ref().map(AsRef::as_ref), new.map(Into::into));
        let swap = self.0.keyspace.compare_and_swap(key, old, new.as_deref()).map_err(|e| self.failed(e))?;
        if swap.swapped {
            return Ok(Ok(()));
        }
        Ok(Err(CompareAndSwapError { current: swap.old.map(IVec::from), proposed: new }))
    }

    /// Replaces a value by what `f` makes of it. Returns the new value. `f` may run several times.
    ///
    /// # Errors
    /// Those of [`Keyspace::update`].
    pub fn update_and_fetch<K, V, F>(&self, key: K, mut f: F) -> Result<Option<IVec>>
    where
        K: AsRef<[u8]>,
        F: FnMut(Option<&[u8]>) -> Option<V>,
        V: Into<IVec>,
    {
        let update = self.0.keyspace.update(key, |old| f(old).map(Into::into));
        Ok(update.map_err(|e| self.failed(e))?.new.map(IVec::from))
    }

    /// Replaces a value by what `f` makes of it. Returns the old value. `f` may run several times.
    ///
    /// # Errors
    /// Those of [`Keyspace::update`].
    pub fn fetch_and_update<K, V, F>(&self, key: K, mut f: F) -> Result<Option<IVec>>
    where
        K: AsRef<[u8]>,
        F: FnMut(Option<&[u8]>) -> Option<V>,
        V: Into<IVec>,
    {
        let update = self.0.keyspace.update(key, |old| f(old).map(Into::into));
        Ok(update.map_err(|e| self.failed(e))?.old.map(IVec::from))
    }

    /// Sets the operator of [`merge`](Self::merge). It is not stored.
    pub fn set_merge_operator(&self, merge_operator: impl MergeOperator + 'static) {
        *self.0.merge_operator.write() = Some(Box::new(merge_operator));
    }

    /// Replaces a value by what the merge operator makes of it and `value`. Returns the new value.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without an operator, and those of [`Keyspace::update`].
    pub fn merge<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, key: K, value: V) -> Result<Option<IVec>> {
        let operator = self.0.merge_operator.read();
        let Some(operator) = &*operator else {
            return Err(Error::Unsupported("call `set_merge_operator` before `merge`".to_owned()));
        };
        let (key, value) = (key.as_ref(), value.as_ref());
        self.update_and_fetch(key, |old| operator(key, old, value))
    }

    /// Applies the writes of a batch together.
    ///
    /// # Errors
    /// Those of [`esker::WriteBatch::commit`].
    pub fn apply_batch(&self, batch: Batch) -> Result<()> {
        let mut writes = self.0.shared.db.batch();
        let keyspace = &self.0.keyspace;
        for (key, value) in &batch.writes {
            let done = match value {
                Some(value) => writes.put(keyspace, key, value),
                None => writes.delete(keyspace, key),
            };
            done.map_err(|e| self.failed(e))?;
        }
        writes.commit().map_err(|failed| self.failed(failed.error))?;
        Ok(())
    }

    /// Runs `f` in a transaction. It may run several times; if it returns an error nothing is written.
    ///
    /// # Errors
    /// What `f` aborts with, or the error of the storage.
    pub fn transaction<F, A, E>(&self, f: F) -> TransactionResult<A, E>
    where
        F: Fn(&TransactionalTree) -> ConflictableTransactionResult<A, E>,
    {
        Transactional::transaction(&self, f)
    }

    /// Subscribes to the changes of keys with a prefix from now on.
    pub fn watch_prefix<P: AsRef<[u8]>>(&self, prefix: P) -> Subscriber {
        let watch = self.0.keyspace.watch_prefix(prefix);
        // A dropped tree has no further changes.
        Subscriber::new(watch.ok().map(esker::Watch::into_stream), self)
    }

    /// Waits until all earlier writes are on the disk. Returns 0: the engine does not count the bytes.
    ///
    /// # Errors
    /// Those of [`esker::Db::sync`].
    pub fn flush(&self) -> Result<usize> {
        self.0.shared.db.sync()?;
        Ok(0)
    }

    /// Same as [`flush`](Self::flush), on another thread.
    ///
    /// # Errors
    /// Those of [`esker::Db::sync`].
    pub async fn flush_async(&self) -> Result<usize> {
        // An empty commit with a sync makes all earlier ones durable, and no thread waits for it.
        let batch = self.0.shared.db.batch();
        batch.commit_async_with(esker::Durability::Sync).await.map_err(|failed| failed.error)?;
        Ok(0)
    }

    /// Returns the entry with the greatest key below `key`.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`].
    pub fn get_lt<K: AsRef<[u8]>>(&self, key: K) -> Result<Option<(IVec, IVec)>> {
        self.range(..key).next_back().transpose()
    }

    /// Returns the entry with the least key above `key`.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`].
    pub fn get_gt<K: AsRef<[u8]>>(&self, key: K) -> Result<Option<(IVec, IVec)>> {
        self.range((Bound::Excluded(key), Bound::Unbounded)).next().transpose()
    }

    fn walk(&self, range: esker::Range) -> Iter {
        Iter::new(range, &self.0.name, &self.0.shared)
    }

    /// Returns all entries.
    pub fn iter(&self) -> Iter {
        self.walk(self.0.keyspace.iter())
    }

    /// Returns the entries of a range of keys.
    pub fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, range: R) -> Iter {
        let bounds = (range.start_bound().map(AsRef::as_ref), range.end_bound().map(AsRef::as_ref));
        self.walk(self.0.keyspace.range(bounds))
    }

    /// Returns the entries whose keys have a prefix.
    pub fn scan_prefix<P: AsRef<[u8]>>(&self, prefix: P) -> Iter {
        self.walk(self.0.keyspace.prefix(prefix))
    }

    /// Returns the entry with the least key.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`].
    pub fn first(&self) -> Result<Option<(IVec, IVec)>> {
        self.iter().next().transpose()
    }

    /// Returns the entry with the greatest key.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`].
    pub fn last(&self) -> Result<Option<(IVec, IVec)>> {
        self.iter().next_back().transpose()
    }

    /// Removes and returns the entry with the greatest key.
    ///
    /// # Errors
    /// Those of [`Keyspace::pop_last`].
    pub fn pop_max(&self) -> Result<Option<(IVec, IVec)>> {
        let popped = self.0.keyspace.pop_last().map_err(|e| self.failed(e))?;
        Ok(popped.map(|(key, value)| (key.into(), value.into())))
    }

    /// Removes and returns the entry with the least key.
    ///
    /// # Errors
    /// Those of [`Keyspace::pop_first`].
    pub fn pop_min(&self) -> Result<Option<(IVec, IVec)>> {
        let popped = self.0.keyspace.pop_first().map_err(|e| self.failed(e))?;
        Ok(popped.map(|(key, value)| (key.into(), value.into())))
    }

    /// Returns the number of keys, without reading them. 0 if it cannot be read: [`esker::Keyspace::len`]
    /// reports the error.
    pub fn len(&self) -> usize {
        self.0.keyspace.len().map_or(0, |len| usize::try_from(len).unwrap_or(usize::MAX))
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Removes all keys at once. Subscribers get an event for each.
    ///
    /// # Errors
    /// Those of [`esker::Transaction::commit`].
    pub fn clear(&self) -> Result<()> {
        let keyspace = &self.0.keyspace;
        let cleared = self.0.shared.db.transact(|t| {
            for key in t.keyspace(keyspace).range(..).keys() {
                t.delete(keyspace, key?)?;
            }
            Ok(())
        });
        cleared.map_err(|e| self.failed(e))
    }

    /// Returns the name of the tree.
    pub fn name(&self) -> IVec {
        self.0.name.clone()
    }

    /// Returns the CRC-32 of all keys and values as of one commit.
    ///
    /// # Errors
    /// Those of reading.
    pub fn checksum(&self) -> Result<u32> {
        let mut sum = Crc32::default();
        self.add_to(&mut sum)?;
        Ok(sum.finish())
    }

    pub(crate) fn add_to(&self, sum: &mut Crc32) -> Result<()> {
        for entry in self.iter() {
            let (key, value) = entry?;
            sum.update(&key);
            sum.update(&value);
        }
        Ok(())
    }

    /// Returns the engine's handle.
    pub fn esker(&self) -> &Keyspace {
        &self.0.keyspace
    }
}

impl IntoIterator for &Tree {
    type Item = Result<(IVec, IVec)>;
    type IntoIter = Iter;

    fn into_iter(self) -> Iter {
        self.iter()
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().filter_map(Result::ok)).finish()
    }
}

/// CRC-32 as in Ethernet and zlib, bit by bit: checksums are for tests and migrations.
pub(crate) struct Crc32(u32);

impl Default for Crc32 {
    fn default() -> Self {
        Crc32(u32::MAX)
    }
}

impl Crc32 {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 ^= u32::from(*byte);
            for _ in 0..8 {
                let carry = if self.0 & 1 == 1 { 0xedb8_8320 } else { 0 };
                self.0 = (self.0 >> 1) ^ carry;
            }
        }
    }

    pub(crate) fn finish(self) -> u32 {
        !self.0
    }
}
