//! A batch: several writes as one commit, without reading.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use super::bounds::{encode_bounds, prefix_bounds};
use super::commit_error::{CommitError, CommittingAll};
use super::handles::{Gather, catalog_methods, write_methods};
use super::keyspace::Keyspace;
use super::writes::{CommitConditions, ValueSource, Writes};
use crate::encoding::operand::Operand;
use crate::engine::life::handle::Handle;
use crate::engine::state::keyspace_options::KeyspaceOptions;
use crate::txn::commit::Durability;
use crate::types::expiry::{Expiry, Lifetime};
use crate::types::{KeyBounds, KeyspaceId, Result, SeqNo};

/// Writes to any keyspaces that are committed together. Later writes to a key replace earlier
/// ones. Unlike a transaction, a batch does not check for conflicts.
pub struct WriteBatch {
    handle: Arc<Handle>,
    writes: Writes,
}

impl Gather for WriteBatch {
    fn begin(&mut self, _names: &[&str]) -> Result<(&mut Writes, &Arc<Handle>)> {
        Ok((&mut self.writes, &self.handle))
    }
}

write_methods!(WriteBatch, |self, keyspace| (self, keyspace));
catalog_methods!(WriteBatch);

impl WriteBatch {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        WriteBatch { handle, writes: Writes::default() }
    }

    pub(crate) fn put_until_expiry(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<()> {
        let (writes, core, state) = self.room_in(keyspace)?;
        writes.put_until(core, state, key, value, expiry)
    }

    /// Merges an operand that was merged into this key in another database.
    pub(crate) fn merge_of(&mut self, keyspace: &Keyspace, key: &[u8], operand: Operand<'_>) -> Result<()> {
        let (writes, core, state) = self.room_in(keyspace)?;
        writes.merge_of(core, state, key, operand)
    }

    /// Creates a keyspace with this number: see `Changes::create_numbered`.
    pub(crate) fn create_numbered_keyspace(&mut self, name: &str, id: KeyspaceId) -> Result<Keyspace> {
        let (changes, set) = self.writes.changes_mut();
        let state = changes.create_numbered(&self.handle.core.catalog, set, name, id)?;
        Ok(Keyspace::new(self.handle.clone(), state))
    }

    /// Number of puts and removals, including repeated ones, without those that a later range removal
    /// cancelled. For a large batch (see
    /// [`Tuning::transaction_memory`](crate::Tuning::transaction_memory)), as far as it can still tell.
    pub fn len(&self) -> usize {
        self.writes.op_count()
    }

    /// Returns whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Size of its writes: keys, values, and a few bytes for each. The commit logs them, unless the batch is
    /// large.
    pub fn byte_len(&self) -> usize {
        self.writes.byte_len()
    }

    /// Commits the writes, all or none, and makes them visible. The durability is that of the database:
    /// [`Builder::durability`](crate::Builder::durability). Returns the number of the commit.
    ///
    /// # Errors
    /// [`Poisoned`](crate::Error::Poisoned): the log cannot be written or synced, now or since an earlier
    /// failure. If now, the next opening of the database shows whether the writes exist. Until then they are
    /// not visible.
    ///
    /// After any other error none of the writes exists: [`NoSpace`](crate::Error::NoSpace);
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if a keyspace was dropped meanwhile;
    /// [`Closed`](crate::Error::Closed); [`Corrupt`](crate::Error::Corrupt) and [`Io`](crate::Error::Io) if
    /// old values of the keys cannot be looked up, if no memtable can be flushed to make room, or if the log
    /// gets no further file; [`Merge`](crate::Error::Merge) if operands cannot be merged into a value of the
    /// same batch.
    ///
    /// The error returns the batch.
    pub fn commit(self) -> Result<SeqNo, CommitError<WriteBatch>> {
        let durability = self.handle.core.options.durability();
        self.commit_with(durability)
    }

    /// Same as [`commit`](Self::commit), without a waiting thread: see [`Keyspace::put_async`]. A batch that
    /// creates, drops or renames keyspaces, or sets their options, is committed at once by the caller.
    ///
    /// ```
    /// # fn wait<T>(future: impl Future<Output = T>) -> T {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// #     loop {
    /// #         if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) { return done; }
    /// #         std::thread::yield_now();
    /// #     }
    /// # }
    /// # let db = esker::Db::in_memory()?;
    /// # let map = db.default_keyspace();
    /// let mut batch = db.batch();
    /// batch.put(&map, "a", "1")?;
    /// batch.put(&map, "b", "2")?;
    /// let commit = batch.commit_async(); // waits for nothing
    /// assert_eq!(wait(commit)?, db.snapshot().seqno()); // `commit.await?` in async code
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future's are those of [`commit`](Self::commit).
    pub fn commit_async(self) -> CommittingAll<WriteBatch> {
        let durability = self.handle.core.options.durability();
        self.commit_async_with(durability)
    }

    /// Same as [`commit_async`](Self::commit_async), with this durability.
    ///
    /// # Errors
    /// The future's are those of [`commit`](Self::commit).
    pub fn commit_async_with(self, durability: Durability) -> CommittingAll<WriteBatch> {
        if !self.writes.changes_nothing() {
            return CommittingAll::done(self.commit_with(durability));
        }
        let request = self.writes.request(&self.handle.core, durability, CommitConditions::default());
        let handle = self.handle.clone();
        CommittingAll::new(request.map(|request| handle.commit_async(request)), self)
    }

    /// Same as [`commit`](Self::commit), with this durability.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_with(self, durability: Durability) -> Result<SeqNo, CommitError<WriteBatch>> {
        let done = self.writes.commit(&self.handle.core, durability, CommitConditions::default());
        done.map_err(|error| CommitError::new(error, self))
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBatch({} writes)", self.len())
    }
}
