//! A keyspace: a named, ordered map.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use super::bounds::{encode_bounds, prefix_bounds};
use super::cursor::Cursor;
use super::handles::{ReadState, read_methods};
use super::ingest::Ingest;
use super::key_handle::Key;
use super::range::{Keys, Range};
use super::ttl::Ttl;
use super::write_options::WriteOptions;
use super::writes::{ValueSource, Writes};
use crate::blob::Blobs;
use crate::engine::core::Core;
use crate::engine::life::handle::Handle;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::state::keyspace_options::{Counting, KeyspaceOptions};
use crate::engine::writes::committer::Committing;
use crate::read::point::{Presence, ValueOf};
use crate::read::value_reader::{ReaderOf, ValueReader};
use crate::txn::commit::{CommitRequest, Durability};
use crate::types::bounds::Bounds;
use crate::types::expiry::Lifetime;
use crate::types::{Cached, Error, KeyBounds, KeyspaceId, Result, SeqNo, Value};

/// A named, ordered map of byte strings. A handle: cloning is cheap, and it keeps the database open.
///
/// Each write is a commit of its own, with the database's durability or the one set by [`with`](Self::with).
/// Several writes in one commit go through [`Db::batch`](crate::Db::batch) or a transaction.
#[derive(Clone)]
pub struct Keyspace {
    pub(super) handle: Arc<Handle>,
    pub(crate) state: Arc<KeyspaceState>,
    pub(super) write: WriteOptions,
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({:?})", self.name())
    }
}

impl Keyspace {
    pub(crate) fn new(handle: Arc<Handle>, state: Arc<KeyspaceState>) -> Self {
        Keyspace { handle, state, write: WriteOptions::default() }
    }

    pub(super) fn core(&self) -> &Core {
        &self.handle.core
    }

    /// Returns its state if it belongs to this opening. In another database, or in the same one opened again,
    /// its id may be another's.
    #[inline]
    pub(super) fn state_in(&self, handle: &Arc<Handle>) -> Result<&KeyspaceState> {
        if Arc::ptr_eq(&self.handle, handle) { Ok(&self.state) } else { Err(self.foreign()) }
    }

    #[cold]
    fn foreign(&self) -> Error {
        Error::ForeignHandle { keyspace: self.name() }
    }

    /// Its number, which does not change with its name. The [change feed](crate::Db::feed_after) refers to
    /// it.
    pub fn id(&self) -> KeyspaceId {
        self.state.id
    }

    /// Its current name.
    pub fn name(&self) -> String {
        self.state.name().to_string()
    }

    /// Returns a handle of the same keyspace that writes with these options. They replace those of this
    /// handle.
    ///
    /// - The durability is that of each commit that the handle makes. A batch or a transaction is committed
    ///   with its own durability.
    /// - The lifetime is that of each put, and of each value that begins with a merge, a
    ///   [`fetch_add`](Self::fetch_add), an [`update`](Self::update) or a
    ///   [`compare_and_swap`](Self::compare_and_swap). It also applies if the handle is passed to a batch or
    ///   a transaction, but not to an [ingest](Self::ingest).
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// use esker::{Durability, WriteOptions};
    /// use std::time::Duration;
    ///
    /// let pages = db.keyspace("pages")?;
    /// let cache = pages.with(WriteOptions::new().durability(Durability::None).ttl(Duration::from_secs(60)));
    /// cache.put("/", "<html>")?;
    /// cache.fetch_add("hits", 1)?;
    /// pages.with(Durability::Buffered).delete("/old")?;
    /// assert!(matches!(pages.ttl("hits")?, Some(esker::Ttl::Left(_))));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with(&self, options: impl Into<WriteOptions>) -> Keyspace {
        Keyspace { write: options.into(), ..self.clone() }
    }

    /// The durability of the commits that this handle makes.
    pub(super) fn durability(&self) -> Durability {
        self.write.durability.unwrap_or_else(|| self.core().options.durability())
    }

    /// Sets a key to a value. Returns the number of the commit.
    ///
    /// # Errors
    /// [`KeyTooLong`](crate::Error::KeyTooLong), [`ValueTooLong`](crate::Error::ValueTooLong),
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if it was dropped, and those of
    /// [`WriteBatch::commit`](crate::WriteBatch::commit).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.write(|core, writes| {
            writes.put_for(core, &self.state, key.as_ref(), value.as_ref(), self.write.lifetime)
        })
    }

    /// Sets a key to a value that expires. From `ttl` after now on no read finds it, not even in snapshots
    /// and transactions. Returns the number of the commit. The background removes it a while later by a
    /// commit of its own (see [`Db::sweep`](crate::Db::sweep)), which [watches](Self::watch) report as
    /// [`Change::Expire`](crate::Change::Expire).
    ///
    /// The rules of expiry:
    /// - A put sets the key's expiry: by the given lifetime, by the keyspace's
    ///   [default](Self::set_default_ttl) at the call, or to none. Lifetimes are rounded up to whole
    ///   milliseconds. With a lifetime of zero the key expires at once, and no read finds it.
    /// - A [merge](Self::merge) applies to the value of the key at the time of the call, and keeps its
    ///   expiry. If the key is absent or expired at that time, the operand begins a new value with the
    ///   default lifetime at the call.
    /// - [`fetch_add`](Self::fetch_add), [`update`](Self::update) and
    ///   [`compare_and_swap`](Self::compare_and_swap) keep the expiry of the value that they replace. A new
    ///   key gets the default.
    /// - A call that reads several entries, such as [`multi_get`](Self::multi_get), compares each with the
    ///   time when it reads the entry. Of entries that expire together it can find some.
    /// - [`len`](Self::len) counts a key until a sweep has removed it. A transaction that merges into a key
    ///   conflicts with a sweep that has removed the key since the transaction began. A batch conflicts with
    ///   nothing; it begins a new value then.
    ///
    /// Time is that of the system's clock in milliseconds, but does not go back when the clock does, not even
    /// over a restart. So expired entries stay expired. Exception: the clock is set back while the
    /// database is closed, after a crash or without commits. Then time restarts at the last sweep, or at the
    /// last clean close after a commit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use esker::Ttl;
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let sessions = db.keyspace("sessions")?;
    /// sessions.put_with_ttl("ann", "token", Duration::from_secs(3600))?;
    /// assert!(matches!(sessions.ttl("ann")?, Some(Ttl::Left(left)) if left <= Duration::from_secs(3600)));
    /// assert!(sessions.persist("ann")?); // for ever
    /// assert_eq!(sessions.ttl("ann")?, Some(Ttl::Unlimited));
    /// assert!(sessions.expire("ann", Duration::ZERO)?); // now
    /// assert_eq!(sessions.get("ann")?, None);
    /// assert!(!sessions.expire("ann", Duration::from_secs(1))?); // it is not there
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<SeqNo> {
        self.write(|core, writes| {
            writes.put_for(core, &self.state, key.as_ref(), value.as_ref(), Lifetime::For(ttl))
        })
    }

    /// Sets the default lifetime of puts that name none: [`put`](Self::put) and the like, batches,
    /// transactions, ingests. `None`: unlimited. The database stores this. Existing entries keep their
    /// lifetimes.
    ///
    /// ```
    /// use std::time::Duration;
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let cache = db.keyspace("cache")?;
    /// cache.set_default_ttl(Some(Duration::from_secs(60)))?;
    /// cache.put("page", "<html>")?;
    /// assert!(matches!(cache.ttl("page")?, Some(esker::Ttl::Left(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`delete`](Self::delete).
    pub fn set_default_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        self.core().change_options(&self.state, |options| options.default_ttl = ttl)
    }

    /// The default lifetime of puts. `None`: unlimited.
    pub fn default_ttl(&self) -> Option<Duration> {
        self.options().default_ttl
    }

    /// Sets a key to a value of `len` bytes from a reader: see
    /// [`WriteBatch::put_from`](crate::WriteBatch::put_from). Returns the number of the commit.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), and [`Io`](crate::Error::Io) if the reader fails or ends early.
    pub fn put_from(&self, key: impl AsRef<[u8]>, value: &mut impl Read, len: u64) -> Result<SeqNo> {
        let source = ValueSource { reader: value, len };
        self.write(|core, writes| {
            writes.put_from(core, &self.state, key.as_ref(), source, self.write.lifetime)
        })
    }

    /// Merges an operand into a key with the keyspace's merge operator (see
    /// [`set_merge_operator`](Self::set_merge_operator)), without reading the key. The operand is stored as
    /// it is; a read of the key applies all operands. The value of a key without a put is the result of its
    /// operands alone. Returns the number of the commit.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let views = db.keyspace("views")?;
    /// views.set_merge_operator("add-u64")?;
    /// for page in ["home", "news", "home"] {
    ///     views.merge(page, 1_u64.to_le_bytes())?;
    /// }
    /// assert_eq!(views.get("home")?.as_deref(), Some(&2_u64.to_le_bytes()[..]));
    /// assert_eq!(views.len()?, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`put`](Self::put); [`NoMergeOperator`](crate::Error::NoMergeOperator);
    /// [`Merge`](crate::Error::Merge) if the operator refuses the operand.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.write(|core, writes| {
            writes.merge(core, &self.state, key.as_ref(), operand.as_ref(), self.write.lifetime)
        })
    }

    /// Same as [`merge`](Self::merge), without a waiting thread: see [`put_async`](Self::put_async).
    ///
    /// # Errors
    /// The future's are those of [`merge`](Self::merge).
    pub fn merge_async(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Committing {
        self.write_async(|core, writes| {
            writes.merge(core, &self.state, key.as_ref(), operand.as_ref(), self.write.lifetime)
        })
    }

    /// Same as [`put`](Self::put), without a waiting thread: one thread commits for all callers, in their
    /// order, and many commits at once. While 64 MiB of commits are queued, the caller waits. The caller
    /// makes a small commit itself if it waits for nothing: its durability is not
    /// [`Sync`](crate::Durability::Sync), no commit is queued, and no write stalls. Exception: a thread with
    /// an open exclusive transaction makes its commit itself, before the queued ones.
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
    /// let seqno = wait(async { map.put_async("key", "value").await })?; // durable, in any runtime
    /// assert_eq!(seqno, db.snapshot().seqno());
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// The future's are those of [`put`](Self::put).
    pub fn put_async(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Committing {
        self.write_async(|core, writes| {
            writes.put_for(core, &self.state, key.as_ref(), value.as_ref(), self.write.lifetime)
        })
    }

    /// Same as [`delete`](Self::delete), without a waiting thread: see [`put_async`](Self::put_async).
    ///
    /// # Errors
    /// The future's are those of [`delete`](Self::delete).
    pub fn delete_async(&self, key: impl AsRef<[u8]>) -> Committing {
        self.write_async(|_, writes| writes.delete(&self.state, key.as_ref()))
    }

    fn write_async(&self, write: impl FnOnce(&Core, &mut Writes) -> Result<()>) -> Committing {
        match self.request(write) {
            Ok(request) => self.handle.commit_async(request),
            Err(error) => Committing::done(Err(error)),
        }
    }

    /// Commits the writes of `write`.
    #[inline]
    pub(super) fn write(&self, write: impl FnOnce(&Core, &mut Writes) -> Result<()>) -> Result<SeqNo> {
        self.core().submit(self.request(write)?)
    }

    #[inline]
    fn request(&self, write: impl FnOnce(&Core, &mut Writes) -> Result<()>) -> Result<CommitRequest> {
        let mut writes = Writes::default();
        write(self.core(), &mut writes)?;
        writes.into_request(self.core(), self.durability())
    }

    /// Returns the value of a key, or that it is absent, if memory alone determines it.
    ///
    /// ```
    /// use esker::Cached;
    /// # let map = esker::Db::in_memory()?.default_keyspace();
    /// map.put("key", "value")?;
    /// assert_eq!(map.get_if_cached("key")?, Cached::Value("value".into()));
    /// assert_eq!(map.get_if_cached("other")?, Cached::Absent);
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get), except those of files.
    pub fn get_if_cached(&self, key: impl AsRef<[u8]>) -> Result<Cached> {
        self.core().find_cached(&self.state, key.as_ref())
    }

    /// Removes a key, if it exists. Returns the number of the commit.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), except for the value's.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.write(|_, writes| writes.delete(&self.state, key.as_ref()))
    }

    /// Removes all keys of a range in one commit, by one range tombstone. The live keys are walked once to
    /// keep [`len`](Self::len) exact, while others commit.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), except for the value's; the bounds are keys.
    pub fn delete_range(&self, range: impl KeyBounds) -> Result<SeqNo> {
        self.remove_between(encode_bounds(self.state.id, &range))
    }

    /// Removes all keys with this prefix, like [`delete_range`](Self::delete_range).
    ///
    /// # Errors
    /// Those of [`delete_range`](Self::delete_range).
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.remove_between(prefix_bounds(self.state.id, prefix.as_ref()))
    }

    /// Removes all keys, in a time that does not depend on their number. First resolves what
    /// [`len`](Self::len) would resolve.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn clear(&self) -> Result<SeqNo> {
        self.delete_range(..)
    }

    fn remove_between(&self, bounds: Bounds) -> Result<SeqNo> {
        self.write(|_, writes| writes.delete_range(&self.state, bounds))
    }

    /// Sets which values this keyspace stores in blob files. `None`: those of
    /// [`Builder::blobs`](crate::Builder::blobs). The database stores this. Existing values stay where they
    /// are.
    ///
    /// # Errors
    /// Those of [`delete`](Self::delete).
    pub fn set_blobs(&self, blobs: impl Into<Option<Blobs>>) -> Result<()> {
        let blobs = blobs.into();
        self.core().change_options(&self.state, |options| options.blobs = blobs)
    }

    /// Sets the operator with which [`merge`](Self::merge) changes keys of this keyspace. The database stores
    /// this for good: existing operands mean nothing to another operator. Built in are
    ///
    /// | name | value and operands | merged |
    /// |---|---|---|
    /// | `add-i64`, `add-u64` | 8 bytes, little-endian | the sum, which wraps around |
    /// | `add-f64` | 8 bytes, little-endian | the sum, in the order of the merges |
    /// | `append` | any bytes | one behind the other |
    /// | `min`, `max` | any bytes | the smallest, the largest, in the order of keys |
    /// | `bit-or` | any bytes | the bits of all; missing bytes count as zeros |
    /// | `bit-and` | any bytes | the common bits; missing bytes count as ones |
    /// | `set-union` | [sets](crate::merge_set) | the elements of all |
    ///
    /// Others are registered with [`Builder::merge_operator`](crate::Builder::merge_operator) at each
    /// opening.
    ///
    /// # Errors
    /// [`MergeOperatorMissing`](crate::Error::MergeOperatorMissing) if there is no operator with this name;
    /// [`Invalid`](crate::Error::Invalid) if the keyspace has another one; those of [`delete`](Self::delete).
    pub fn set_merge_operator(&self, name: &str) -> Result<()> {
        self.core().change_options(&self.state, |options| options.merge_operator = Some(name.to_owned()))
    }

    /// The name of the keyspace's merge operator, if it has one.
    pub fn merge_operator(&self) -> Option<String> {
        self.options().merge_operator
    }

    /// All of its options. [`WriteBatch::set_options`](crate::WriteBatch::set_options) sets them together
    /// with other writes.
    pub fn options(&self) -> KeyspaceOptions {
        self.core().catalog.options_of(self.state.id).given
    }

    /// How commits count the keys of this keyspace.
    pub fn counting(&self) -> Counting {
        self.options().counting
    }

    /// Sets how commits count the keys of this keyspace. The database stores this. Does not commit if nothing
    /// changes. [`Db::create_keyspace_with`](crate::Db::create_keyspace_with) creates a keyspace that counts
    /// this way.
    ///
    /// ```
    /// # let db = esker::Db::in_memory()?;
    /// let fields = db.keyspace("fields")?;
    /// fields.set_counting(esker::Counting::Lazy)?; // commits look up nothing to count
    /// fields.put("ann/age", "40")?;
    /// fields.put("ann/age", "41")?;
    /// assert_eq!(fields.len()?, 1); // and this does
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`delete`](Self::delete).
    pub fn set_counting(&self, counting: Counting) -> Result<()> {
        self.core().change_options(&self.state, |options| options.counting = counting)
    }

    /// Begins an ingest: takes sorted pairs and finished tables, and adds them in one commit. The fastest way
    /// to load much data.
    pub fn ingest(&self) -> Ingest {
        Ingest::new(self.clone())
    }

    /// Prefetches what memory holds of these keys, which are about to be looked up or put. A hint that reads
    /// no disk. It helps from some ten thousand keys on that are not in tables yet.
    pub fn prefetch<K: AsRef<[u8]>>(&self, keys: &[K]) {
        self.core().prefetch(&self.state, keys);
    }
}

read_methods!(Keyspace, |self| (self.core(), self));

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_env::{Env, MemFs};

    use super::*;
    use crate::Db;
    use crate::txn::snapshots::after_visible;

    #[test]
    fn a_reader_has_its_view_before_it_learns_what_is_visible() {
        let read: [fn(&Keyspace) -> Option<Value>; 2] =
            [|map| map.get("k").unwrap(), |map| map.iter().next().map(|item| item.unwrap().1)];
        for read in read {
            let env = Env::simulated(Arc::new(MemFs::new()), 1);
            let db = Db::builder().background(false).env(env).open(Path::new("db")).unwrap();
            let map = db.default_keyspace();
            map.put("k", "0").unwrap();
            db.compact().unwrap();
            map.put("k", "1").unwrap();
            let others = (db.clone(), map.clone());
            after_visible::once(move || {
                // No reader has announced that it needs the last version, so this table does not have it.
                others.1.put("k", "2").unwrap();
                others.0.flush().unwrap();
            });
            assert_eq!(read(&map).as_deref(), Some(&b"1"[..]));
            assert_eq!(read(&map).as_deref(), Some(&b"2"[..]));
        }
    }
}
