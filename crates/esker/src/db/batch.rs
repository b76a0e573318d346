//! A batch: several writes as one commit, without reading.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::commit_error::CommitError;
use super::keyspace::Keyspace;
use super::writes::{Basis, Writes, encode_bounds, prefix_bounds};
use crate::encoding::operand::Operand;
use crate::engine::life::handle::Handle;
use crate::engine::state::keyspace_options::{Counting, KeyspaceOptions};
use crate::engine::writes::committer::Committing;
use crate::txn::commit::Durability;
use crate::types::expiry::{Expiry, Lifetime};
use crate::types::{Error, KeyBounds, KeyspaceId, Result, SeqNo};

/// Writes that become durable and visible together, over any keyspaces. Later ones win over earlier ones of the same
/// key. Unlike a transaction it checks for no conflicts.
pub struct WriteBatch {
    handle: Arc<Handle>,
    writes: Writes,
}

impl WriteBatch {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        WriteBatch { handle, writes: Writes::default() }
    }

    /// Sets a key to a value.
    ///
    /// # Errors
    /// [`KeyTooLong`](crate::Error::KeyTooLong), [`ValueTooLong`](crate::Error::ValueTooLong),
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped, [`Invalid`](crate::Error::Invalid) if it is one
    /// of another database. The batch stays as it was then.
    pub fn put(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let state = keyspace.state_in(&self.handle)?;
        self.writes.make_room(&self.handle.core)?;
        self.writes.put(&self.handle.core, state, key.as_ref(), value.as_ref())
    }

    /// Sets a key to a value that expires after this time: see [`Keyspace::put_with_ttl`]. The time begins now, not with the commit.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let state = keyspace.state_in(&self.handle)?;
        self.writes.make_room(&self.handle.core)?;
        self.writes.put_for(&self.handle.core, state, key.as_ref(), value.as_ref(), Lifetime::For(ttl))
    }

    /// Sets a key to a value that expires at this moment, to the millisecond; none: never, whatever the keyspace has for a default. One that has passed
    /// already is as good as any: what is put has expired.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_until(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        end: Option<SystemTime>,
    ) -> Result<()> {
        let since = |end: SystemTime| end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let expiry = end.map(|end| Expiry::after(0, since(end)));
        self.put_until_expiry(keyspace, key.as_ref(), value.as_ref(), expiry)
    }

    pub(crate) fn put_until_expiry(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        expiry: Option<Expiry>,
    ) -> Result<()> {
        let state = keyspace.state_in(&self.handle)?;
        self.writes.make_room(&self.handle.core)?;
        self.writes.put_until(&self.handle.core, state, key, value, expiry)
    }

    /// Sets a key to a value of `len` bytes that comes from a reader. If it goes to a blob file ([`Builder::blobs_over`](crate::Builder::blobs_over)),
    /// it is written as it comes, in little memory; otherwise it is gathered in memory.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); [`Io`](crate::Error::Io) if the reader fails or ends early, or
    /// [`NoSpace`](crate::Error::NoSpace) and `Io` if the value cannot be written. The batch stays as it was then.
    pub fn put_from(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: &mut impl Read,
        len: u64,
    ) -> Result<()> {
        let state = keyspace.state_in(&self.handle)?;
        self.writes.make_room(&self.handle.core)?;
        self.writes.put_from(&self.handle.core, state, key.as_ref(), value, len)
    }

    /// Merges an operand into a key, without reading it: see [`Keyspace::merge`]. The operand applies to what the key has at the time of
    /// this call, not of the commit. The operands that a batch merges into one key are one write of it. If they follow a put or a
    /// removal of the key in the batch, the operator runs when the batch is committed, which fails if the operator does.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); [`Invalid`](crate::Error::Invalid) if the keyspace has no merge operator,
    /// [`Merge`](crate::Error::Merge) if the operator refuses the operand.
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let state = keyspace.state_in(&self.handle)?;
        self.writes.make_room(&self.handle.core)?;
        self.writes.merge(&self.handle.core, state, key.as_ref(), operand.as_ref())
    }

    /// Merges an operand that was merged into this key of another database.
    pub(crate) fn merge_of(&mut self, keyspace: &Keyspace, key: &[u8], operand: Operand<'_>) -> Result<()> {
        let state = keyspace.state_in(&self.handle)?;
        self.writes.make_room(&self.handle.core)?;
        self.writes.merge_of(&self.handle.core, state, key, operand)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), except for the value's.
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        let state = keyspace.state_in(&self.handle)?;
        self.writes.make_room(&self.handle.core)?;
        self.writes.remove(state, key.as_ref())
    }

    /// Removes all keys of a range, except those that the batch puts later.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), except for the value's; the bounds are keys.
    pub fn remove_range(&mut self, keyspace: &Keyspace, range: impl KeyBounds) -> Result<()> {
        let state = keyspace.state_in(&self.handle)?;
        self.writes.remove_range(state, encode_bounds(state.id, &range))
    }

    /// Removes all keys that start with `prefix`, except those that the batch puts later.
    ///
    /// # Errors
    /// Those of [`remove_range`](Self::remove_range).
    pub fn remove_prefix(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<()> {
        let state = keyspace.state_in(&self.handle)?;
        self.writes.remove_range(state, prefix_bounds(state.id, prefix.as_ref()))
    }

    /// Removes all keys of a keyspace, except those that the batch puts later.
    ///
    /// # Errors
    /// Those of [`remove_range`](Self::remove_range).
    pub fn clear(&mut self, keyspace: &Keyspace) -> Result<()> {
        self.remove_range(keyspace, ..)
    }

    /// A new keyspace, which is there once the batch is committed. Until then it can be written by this batch alone, and holds nothing.
    ///
    /// # Errors
    /// [`KeyspaceExists`](crate::Error::KeyspaceExists); [`Invalid`](crate::Error::Invalid) for an empty name or one of more than 1024
    /// bytes. [`commit`](Self::commit) fails with `KeyspaceExists`, too, if somebody else creates one of the name meanwhile.
    pub fn create_keyspace(&mut self, name: &str) -> Result<Keyspace> {
        let state = self.writes.create_keyspace(&self.handle.core.catalog, name)?;
        Ok(Keyspace::new(self.handle.clone(), state))
    }

    /// The same, with this number: see `Changes::create_numbered`.
    pub(crate) fn create_numbered_keyspace(&mut self, name: &str, id: KeyspaceId) -> Result<Keyspace> {
        let state = self.writes.create_numbered_keyspace(&self.handle.core.catalog, name, id)?;
        Ok(Keyspace::new(self.handle.clone(), state))
    }

    /// The same, and the keyspace counts in this way from its first key on: see [`Keyspace::set_counting`].
    ///
    /// ```
    /// # let db = esker::Db::in_memory()?;
    /// let mut batch = db.batch();
    /// let fields = batch.create_keyspace_counting("fields", esker::Counting::Lazy)?;
    /// batch.put(&fields, "ann/age", "40")?;
    /// batch.commit()?;
    /// assert_eq!((fields.counting(), fields.len()?), (esker::Counting::Lazy, 1));
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`create_keyspace`](Self::create_keyspace).
    pub fn create_keyspace_counting(&mut self, name: &str, counting: Counting) -> Result<Keyspace> {
        let catalog = &self.handle.core.catalog;
        let state = match counting {
            Counting::Exact => self.writes.create_keyspace(catalog, name)?,
            Counting::Lazy => self.writes.create_lazy_keyspace(catalog, name)?,
        };
        Ok(Keyspace::new(self.handle.clone(), state))
    }

    /// Gives a keyspace all of these options when the batch is committed, in place of those that it has. `Keyspace`'s own calls change one at a time:
    /// [`set_history`](Keyspace::set_history) and its kin. They are not for a keyspace that the batch creates, which is not there yet. Such a keyspace
    /// has its merge operator at once: what the batch merges into it counts. The other options are for later writes.
    ///
    /// ```
    /// # let db = esker::Db::in_memory()?;
    /// let views = db.keyspace("views")?;
    /// let mut options = views.options();
    /// options.merge_operator = Some("add-u64".to_owned());
    /// let mut batch = db.batch();
    /// batch.set_options(&views, options.clone())?;
    /// batch.commit()?;
    /// assert_eq!(views.options(), options);
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound). [`commit`](Self::commit) fails with those of the calls that change one option.
    pub fn set_options(&mut self, keyspace: &Keyspace, options: KeyspaceOptions) -> Result<()> {
        keyspace.state_in(&self.handle)?;
        self.writes.set_options(&self.handle.core, &keyspace.state, options)
    }

    /// Drops a keyspace with all it holds when the batch is committed. What the batch wrote to it before is forgotten.
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound), also from [`commit`](Self::commit) if somebody else drops or renames it
    /// meanwhile; [`Invalid`](crate::Error::Invalid) for `default`, which can only be cleared.
    pub fn drop_keyspace(&mut self, name: &str) -> Result<()> {
        self.writes.drop_keyspace(&self.handle.core.catalog, name)
    }

    /// Gives a keyspace another name when the batch is committed.
    ///
    /// # Errors
    /// Those of [`create_keyspace`](Self::create_keyspace) for the new name, and of [`drop_keyspace`](Self::drop_keyspace) for the old one.
    pub fn rename_keyspace(&mut self, from: &str, to: &str) -> Result<()> {
        self.writes.rename_keyspace(&self.handle.core.catalog, from, to)
    }

    /// The number of puts and removals made, repeated ones included, apart from those that a later range removal
    /// cancelled. Of a large batch (see [`Builder::transaction_memory`](crate::Builder::transaction_memory)), as far as it still tells them apart.
    pub fn len(&self) -> usize {
        self.writes.op_count()
    }

    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The bytes of its writes: keys, values, and a few for each. The commit logs them, unless they are many.
    pub fn byte_len(&self) -> usize {
        self.writes.byte_len()
    }

    /// Makes the writes durable and visible, all or none. The number is that of the commit.
    ///
    /// # Errors
    /// [`Poisoned`](crate::Error::Poisoned): the log cannot be written or synced, now or since an earlier failure. If now, the next opening
    /// of the database shows whether the writes are there; until then nobody sees them.
    ///
    /// After any other error none of them is there: [`NoSpace`](crate::Error::NoSpace);
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if one was dropped meanwhile; [`Closed`](crate::Error::Closed);
    /// [`Corrupt`](crate::Error::Corrupt) and [`Io`](crate::Error::Io) if old values of the keys cannot be looked up, no memtable can be
    /// flushed to make room, or the log gets no further file.
    ///
    /// The batch comes back with the error.
    pub fn commit(self) -> Result<SeqNo, CommitError<WriteBatch>> {
        let durability = self.handle.core.options.durability();
        self.commit_with(durability)
    }

    /// [`commit_with`](Self::commit_with) without a thread that waits: see [`Keyspace::put_async`]. A batch that creates, drops or renames keyspaces, or
    /// sets their options, is committed at once, by the caller.
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
    /// let commit = batch.commit_async(esker::Durability::Sync); // waits for nothing
    /// assert_eq!(wait(commit)?, db.snapshot().seqno()); // `commit.await?` in async code
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future's are those of [`commit`](Self::commit).
    pub fn commit_async(self, durability: Durability) -> Committing {
        if !self.writes.changes_nothing() {
            return Committing::done(self.commit_with(durability).map_err(Error::from));
        }
        match self.writes.into_request(&self.handle.core, durability) {
            Ok(request) => self.handle.commit_async(request),
            Err(error) => Committing::done(Err(error)),
        }
    }

    /// [`commit`](Self::commit) with a durability of its own.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_with(self, durability: Durability) -> Result<SeqNo, CommitError<WriteBatch>> {
        let done = self.writes.commit(&self.handle.core, durability, Basis::default());
        done.map_err(|error| CommitError::new(error, self))
    }
}

impl std::fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WriteBatch({} writes)", self.len())
    }
}
