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
use super::writes::Writes;
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
use crate::types::{Error, KeyBounds, KeyspaceId, Result, SeqNo, Value};

/// A named, ordered map of byte strings. A handle: cloning is cheap, and it keeps the database open.
///
/// Single writes commit on their own with the database's default durability; several at once, atomically, go through
/// [`Db::batch`](crate::Db::batch) or a transaction.
#[derive(Clone)]
pub struct Keyspace {
    pub(super) handle: Arc<Handle>,
    pub(crate) state: Arc<KeyspaceState>,
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keyspace({:?})", self.name())
    }
}

impl Keyspace {
    pub(crate) fn new(handle: Arc<Handle>, state: Arc<KeyspaceState>) -> Self {
        Keyspace { handle, state }
    }

    pub(super) fn core(&self) -> &Core {
        &self.handle.core
    }

    /// Its state, for those of one opening of a database: in another database, or in the same one opened anew, its id may be another's.
    #[inline]
    pub(super) fn state_in(&self, handle: &Arc<Handle>) -> Result<&KeyspaceState> {
        if Arc::ptr_eq(&self.handle, handle) { Ok(&self.state) } else { Err(self.foreign()) }
    }

    #[cold]
    fn foreign(&self) -> Error {
        Error::Invalid(format!(
            "the handle of keyspace {:?} is of another database, or of this one before it was closed: get one from the `Db` in use",
            self.name()
        ))
    }

    /// Its number, which it keeps whatever its name: that by which the [change feed](crate::Db::feed) speaks of it.
    pub fn id(&self) -> KeyspaceId {
        self.state.id
    }

    /// The name it goes by now.
    pub fn name(&self) -> String {
        self.state.name().to_string()
    }

    /// Sets a key to a value. The number is that of the commit.
    ///
    /// # Errors
    /// [`KeyTooLong`](crate::Error::KeyTooLong), [`ValueTooLong`](crate::Error::ValueTooLong),
    /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if it was dropped, and those of
    /// [`WriteBatch::commit`](crate::WriteBatch::commit).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.put_with(key, value, self.core().options.durability())
    }

    /// [`put`](Self::put) with a durability of its own.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<SeqNo> {
        self.write(durability, |core, writes| writes.put(core, &self.state, key.as_ref(), value.as_ref()))
    }

    /// Sets a key to a value that expires: from `ttl` on after now no read finds it, in snapshots and transactions neither. The number is that of the
    /// commit. It is removed a while later, by a commit of the background (see [`Db::sweep`](crate::Db::sweep)), which [watches](Self::watch) tell as
    /// [`Change::Expired`](crate::Change::Expired).
    ///
    /// The rules of expiry:
    /// - A put sets the key's expiry: by the lifetime given, by the keyspace's [default](Self::set_default_ttl) at the call, or to none.
    ///   Lifetimes are rounded up to whole milliseconds. With a lifetime of zero the key expires at once, and no read finds it.
    /// - A [merge](Self::merge) applies to what the key has at the time of the call, and keeps its expiry. If the key is absent at that time, or has expired,
    ///   the operand begins a new value, which lasts as long as the default at the call.
    /// - [`fetch_add`](Self::fetch_add), [`update`](Self::update) and [`compare_and_swap`](Self::compare_and_swap) keep the expiry of the
    ///   value that they replace; a new key gets the default.
    /// - [`len`](Self::len) counts a key until a sweep has removed it. A transaction that merges into a key conflicts with a sweep that has removed
    ///   the key since it began. A batch, which conflicts with nothing, begins a new value then.
    ///
    /// Time is that of the system's clock, in milliseconds, but it does not go back when that does: what has expired stays so. It does not go
    /// back over a restart either. Exception: if the process or the machine dies, or commits nothing, and the clock is set back before the next opening, time
    /// resumes where the last sweep, or clean close after a commit, was.
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
        self.write(self.core().options.durability(), |core, writes| {
            writes.put_for(core, &self.state, key.as_ref(), value.as_ref(), Lifetime::For(ttl))
        })
    }

    /// How long puts last from now on that do not say so themselves ([`put`](Self::put) and its kin, batches, transactions, ingests); none: for
    /// ever. This is kept in the database. What is there lasts as long as it was put for.
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
    /// Those of [`remove`](Self::remove).
    pub fn set_default_ttl(&self, ttl: Option<Duration>) -> Result<()> {
        self.core().change_options(&self.state, |options| options.default_ttl = ttl)
    }

    /// How long puts last that do not say so themselves; none: for ever.
    pub fn default_ttl(&self) -> Option<Duration> {
        self.options().default_ttl
    }

    /// Sets a key to a value of `len` bytes that comes from a reader: see [`WriteBatch::put_from`](crate::WriteBatch::put_from). The number is that of
    /// the commit.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), and [`Io`](crate::Error::Io) if the reader fails or ends early.
    pub fn put_from(&self, key: impl AsRef<[u8]>, value: &mut impl Read, len: u64) -> Result<SeqNo> {
        self.write(self.core().options.durability(), |core, writes| {
            writes.put_from(core, &self.state, key.as_ref(), value, len)
        })
    }

    /// Merges an operand into a key by the keyspace's merge operator (see [`set_merge_operator`](Self::set_merge_operator)), without reading it. The
    /// operand is stored as it is; who reads the key finds the value that all its operands make. A key that is not there becomes what its operands
    /// alone come to. The number is that of the commit.
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
    /// Those of [`put`](Self::put); [`Invalid`](crate::Error::Invalid) if the keyspace has no merge operator,
    /// [`Merge`](crate::Error::Merge) if the operand is none for that operator.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.merge_with(key, operand, self.core().options.durability())
    }

    /// [`merge`](Self::merge) with a durability of its own.
    ///
    /// # Errors
    /// Those of [`merge`](Self::merge).
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<SeqNo> {
        self.write(durability, |core, writes| writes.merge(core, &self.state, key.as_ref(), operand.as_ref()))
    }

    /// [`merge`](Self::merge) without a thread that waits: see [`put_async`](Self::put_async).
    ///
    /// # Errors
    /// The future's are those of [`merge`](Self::merge).
    pub fn merge_async(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Committing {
        self.write_async(|core, writes| writes.merge(core, &self.state, key.as_ref(), operand.as_ref()))
    }

    /// [`put`](Self::put) without a thread that waits: one thread commits for all who ask it to, in their order, and many at once.
    /// While commits of 64 MiB wait, the caller waits until they are under way. Exception: a thread that has an exclusive transaction open makes its
    /// commit itself, before those that wait.
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
        self.write_async(|core, writes| writes.put(core, &self.state, key.as_ref(), value.as_ref()))
    }

    /// [`remove`](Self::remove) without a thread that waits: see [`put_async`](Self::put_async).
    ///
    /// # Errors
    /// The future's are those of [`remove`](Self::remove).
    pub fn remove_async(&self, key: impl AsRef<[u8]>) -> Committing {
        self.write_async(|_, writes| writes.remove(&self.state, key.as_ref()))
    }

    fn write_async(&self, write: impl FnOnce(&Core, &mut Writes) -> Result<()>) -> Committing {
        match self.request(self.core().options.durability(), write) {
            Ok(request) => self.handle.commit_async(request),
            Err(error) => Committing::done(Err(error)),
        }
    }

    /// Commits what `write` writes.
    #[inline]
    fn write(
        &self,
        durability: Durability,
        write: impl FnOnce(&Core, &mut Writes) -> Result<()>,
    ) -> Result<SeqNo> {
        self.core().submit(self.request(durability, write)?)
    }

    #[inline]
    fn request(
        &self,
        durability: Durability,
        write: impl FnOnce(&Core, &mut Writes) -> Result<()>,
    ) -> Result<CommitRequest> {
        let mut writes = Writes::default();
        write(self.core(), &mut writes)?;
        writes.into_request(self.core(), durability)
    }

    /// The value of a key, if memory alone knows it: `None` if a file would have to be read.
    ///
    /// ```
    /// # let map = esker::Db::in_memory()?.default_keyspace();
    /// map.put("key", "value")?;
    /// assert_eq!(map.get_if_cached("key")?, Some(Some("value".into())));
    /// assert_eq!(map.get_if_cached("other")?, Some(None)); // memory knows that there is none
    /// # Ok::<(), esker::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get), but for those of files.
    pub fn get_if_cached(&self, key: impl AsRef<[u8]>) -> Result<Option<Option<Value>>> {
        self.core().find_cached(&self.state, key.as_ref())
    }

    /// Removes a key. A key that is not there is no error. The number is that of the commit.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), except for the value's.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.remove_with(key, self.core().options.durability())
    }

    /// [`remove`](Self::remove) with a durability of its own.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    pub fn remove_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<SeqNo> {
        self.write(durability, |_, writes| writes.remove(&self.state, key.as_ref()))
    }

    /// Removes all keys of a range, in one commit. What is stored is one range tombstone; the live keys are walked
    /// once to keep [`len`](Self::len) exact, while others commit.
    ///
    /// # Errors
    /// Those of [`put`](Self::put), except for the value's; the bounds are keys.
    pub fn remove_range(&self, range: impl KeyBounds) -> Result<SeqNo> {
        self.remove_between(encode_bounds(self.state.id, &range))
    }

    /// Removes all keys that start with `prefix`, like [`remove_range`](Self::remove_range).
    ///
    /// # Errors
    /// Those of [`remove_range`](Self::remove_range).
    pub fn remove_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<SeqNo> {
        self.remove_between(prefix_bounds(self.state.id, prefix.as_ref()))
    }

    /// Removes all keys, in the same time however many there are. Looks up first what [`len`](Self::len) would look up.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn clear(&self) -> Result<SeqNo> {
        self.remove_range(..)
    }

    fn remove_between(&self, bounds: Bounds) -> Result<SeqNo> {
        self.write(self.core().options.durability(), |_, writes| writes.remove_range(&self.state, bounds))
    }

    /// The smallest value, in bytes, that this keyspace stores in a blob file from now on, in place of
    /// [`Builder::blobs_over`](crate::Builder::blobs_over); 0: it keeps all values in tables. This is kept in the database. Values that are there
    /// stay where they are.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    pub fn set_blobs_over(&self, bytes: usize) -> Result<()> {
        self.core().change_options(&self.state, |options| options.blobs_over = Some(bytes))
    }

    /// The operator by which [`merge`](Self::merge) changes keys of this keyspace. This is kept in the database, and for good: operands that are
    /// there mean nothing to another operator. Built in are
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
    /// Others are registered by [`Builder::merge_operator`](crate::Builder::merge_operator) whenever the database is opened.
    ///
    /// # Errors
    /// [`MergeOperatorMissing`](crate::Error::MergeOperatorMissing) if there is none of this name; [`Invalid`](crate::Error::Invalid) if the
    /// keyspace has another one; and those of [`remove`](Self::remove).
    pub fn set_merge_operator(&self, name: &str) -> Result<()> {
        self.core().change_options(&self.state, |options| options.merge_operator = Some(name.to_owned()))
    }

    /// The name of the keyspace's merge operator, if it has one.
    pub fn merge_operator(&self) -> Option<String> {
        self.options().merge_operator
    }

    /// All of its options. [`WriteBatch::set_options`](crate::WriteBatch::set_options) gives it others, together with what else a batch does.
    pub fn options(&self) -> KeyspaceOptions {
        self.core().catalog.options_of(self.state.id).given
    }

    /// How commits count the keys of this keyspace.
    pub fn counting(&self) -> Counting {
        self.options().counting
    }

    /// How commits count the keys of this keyspace from now on. This is kept in the database. If it is so already this is no commit. A keyspace can be made so:
    /// [`WriteBatch::create_keyspace_counting`](crate::WriteBatch::create_keyspace_counting).
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
    /// Those of [`remove`](Self::remove).
    pub fn set_counting(&self, counting: Counting) -> Result<()> {
        self.core().change_options(&self.state, |options| options.counting = counting)
    }

    /// Takes sorted pairs and finished tables, and puts them all in one commit. The fastest way to load much.
    pub fn ingest(&self) -> Ingest {
        Ingest::new(self.clone())
    }

    /// These keys are about to be looked up or put: the processor fetches side by side what memory holds of them. A hint, which reads no disk; of
    /// use from some ten thousand keys on that are not yet in tables.
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
                // Nobody has told that he needs the last version: it is not in the table that this makes.
                others.1.put("k", "2").unwrap();
                others.0.flush().unwrap();
            });
            assert_eq!(read(&map).as_deref(), Some(&b"1"[..]));
            assert_eq!(read(&map).as_deref(), Some(&b"2"[..]));
        }
    }
}
