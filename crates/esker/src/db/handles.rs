//! The reads and writes that several handles offer. Each is written once.
//!
//! ```text
//!   Core (newest state), Snapshot, Transaction, Past --ReadState--> read_methods!, Reads (of views)
//!   WriteBatch, Transaction ----------------------------Gather----> write_methods!, catalog_methods!
//! ```

use std::sync::Arc;

use super::bounds::{encode_bounds, prefix_bounds};
use super::cursor::Cursor;
use super::keyspace::Keyspace;
use super::range::Range;
use super::ttl::Ttl;
use super::writes::Writes;
use crate::engine::base::slow_operation::Operation;
use crate::engine::core::Core;
use crate::engine::life::handle::Handle;
use crate::engine::state::catalog::KeyspaceState;
use crate::engine::state::reads::ReadSource;
use crate::read::point::{ExpiryOf, PointQuery};
use crate::types::bounds::Bounds;
use crate::types::{KeyBounds, Result, Value};

/// The values of several keys.
type Values = Result<Vec<Option<Value>>>;

/// A state of the database.
pub(super) trait ReadState {
    /// Looks up a key.
    fn find<W: PointQuery>(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<W::Out>>;

    /// What a walk between these bounds reads; without bounds, what lookups of many keys read.
    fn source(&self, keyspace: &Keyspace, bounds: Option<&Bounds>) -> Result<ReadSource>;

    /// The exact number of keys.
    fn count(&self, keyspace: &Keyspace) -> Result<u64>;

    /// The values of the first keys, until those read exceed `bytes_max` bytes.
    fn find_many<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K], bytes_max: usize) -> Values {
        let threads = keyspace.core().options.has_threads();
        self.source(keyspace, None)?.find_many(&keyspace.state, keys, threads, bytes_max)
    }

    /// Same as `find_many`, watched if the user wants to know slow operations.
    fn find_many_watched<K: AsRef<[u8]>>(&self, keyspace: &Keyspace, keys: &[K], bytes_max: usize) -> Values {
        let find = || self.find_many(keyspace, keys, bytes_max);
        let Some(slow) = &keyspace.core().slow else { return find() };
        slow.watch(Operation::MultiGet, Some(&|| keyspace.name()), find, |_| keys.len() as u64)
    }

    fn has_no_keys(&self, keyspace: &Keyspace) -> Result<bool> {
        Ok(self.walk(keyspace, ..).next().transpose()?.is_none())
    }

    fn ttl_of(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Ttl>> {
        let found = self.find::<ExpiryOf>(keyspace, key)?;
        Ok(found.map(|expiry| Ttl::until(expiry, &keyspace.core().time)))
    }

    #[inline]
    fn walk(&self, keyspace: &Keyspace, range: impl KeyBounds) -> Range {
        self.walk_within(keyspace, encode_bounds(keyspace.state.id, &range))
    }

    #[inline]
    fn walk_within(&self, keyspace: &Keyspace, bounds: Bounds) -> Range {
        let range = Range::from_result(self.source(keyspace, Some(&bounds)), bounds);
        match &keyspace.core().slow {
            Some(slow) => range.watched(slow.scan(keyspace.name())),
            None => range,
        }
    }

    fn walk_prefix(&self, keyspace: &Keyspace, prefix: &[u8]) -> Range {
        self.walk_within(keyspace, prefix_bounds(keyspace.state.id, prefix))
    }

    fn cursor_over(&self, keyspace: &Keyspace, range: impl KeyBounds) -> Result<Cursor> {
        let id = keyspace.state.id;
        let bounds = encode_bounds(id, &range);
        Ok(Cursor::new(self.source(keyspace, Some(&bounds))?, id, bounds))
    }
}

/// The newest state.
impl ReadState for Core {
    #[inline]
    fn find<W: PointQuery>(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<W::Out>> {
        self.find_now::<W>(&keyspace.state, key)
    }

    #[inline]
    fn source(&self, keyspace: &Keyspace, bounds: Option<&Bounds>) -> Result<ReadSource> {
        self.source_now(&keyspace.state, bounds)
    }

    #[inline]
    fn count(&self, keyspace: &Keyspace) -> Result<u64> {
        let len = self.len_now(&keyspace.state)?;
        self.check_there(&keyspace.state)?;
        Ok(len)
    }

    fn has_no_keys(&self, keyspace: &Keyspace) -> Result<bool> {
        let has_none = self.count(keyspace)? == 0;
        Ok(has_none || self.may_have_expired() && keyspace.first()?.is_none())
    }
}

/// Implements the public reads of a handle. `$state`: the [`ReadState`] that it reads, and its keyspace.
macro_rules! read_methods {
    ($handle:ty, |$self:ident $(, $keyspace:ident)?| ($state:expr, $of:expr)) => {
        impl $handle {
            /// The value of a key.
            ///
            /// # Errors
            /// [`Corrupt`](crate::Error::Corrupt) with file and offset, if the bytes on disk are damaged;
            /// [`Io`](crate::Error::Io) if they cannot be read; [`KeyTooLong`](crate::Error::KeyTooLong);
            /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped.
            #[inline]
            pub fn get(&$self $(, $keyspace: &Keyspace)?, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
                $state.find::<ValueOf>($of, key.as_ref())
            }

            /// The value of a key, to be read in parts: see [`Reads::reader`](crate::Reads::reader).
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn reader(
                &$self $(, $keyspace: &Keyspace)?,
                key: impl AsRef<[u8]>,
            ) -> Result<Option<ValueReader>> {
                $state.find::<ReaderOf>($of, key.as_ref())
            }

            /// Returns whether a key exists.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            #[inline]
            pub fn contains(&$self $(, $keyspace: &Keyspace)?, key: impl AsRef<[u8]>) -> Result<bool> {
                Ok($state.find::<Presence>($of, key.as_ref())?.is_some())
            }

            /// The remaining lifetime of a key. `None`: the key does not exist.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn ttl(&$self $(, $keyspace: &Keyspace)?, key: impl AsRef<[u8]>) -> Result<Option<Ttl>> {
                ReadState::ttl_of($state, $of, key.as_ref())
            }

            /// The values of several keys, all as of the same commit.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn multi_get<K: AsRef<[u8]>>(
                &$self $(, $keyspace: &Keyspace)?,
                keys: &[K],
            ) -> Result<Vec<Option<Value>>> {
                $state.find_many_watched($of, keys, usize::MAX)
            }

            /// The values of the first keys, until those read exceed `bytes_max` bytes; at least one. Call it
            /// again with the remaining keys.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn multi_get_within<K: AsRef<[u8]>>(
                &$self $(, $keyspace: &Keyspace)?,
                keys: &[K],
                bytes_max: usize,
            ) -> Result<Vec<Option<Value>>> {
                $state.find_many_watched($of, keys, bytes_max)
            }

            /// The first entry.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn first(&$self $(, $keyspace: &Keyspace)?) -> Result<Option<(Key, Value)>> {
                $state.walk($of, ..).next().transpose()
            }

            /// The last entry.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn last(&$self $(, $keyspace: &Keyspace)?) -> Result<Option<(Key, Value)>> {
                $state.walk($of, ..).next_back().transpose()
            }

            /// The entries of a range, from either end.
            #[inline]
            pub fn range(&$self $(, $keyspace: &Keyspace)?, range: impl KeyBounds) -> Range {
                $state.walk($of, range)
            }

            /// The entries with this prefix, from either end.
            pub fn prefix(&$self $(, $keyspace: &Keyspace)?, prefix: impl AsRef<[u8]>) -> Range {
                $state.walk_prefix($of, prefix.as_ref())
            }

            /// All entries, from either end.
            pub fn iter(&$self $(, $keyspace: &Keyspace)?) -> Range {
                $state.walk($of, ..)
            }

            /// The keys of a range, from either end.
            pub fn keys(&$self $(, $keyspace: &Keyspace)?, range: impl KeyBounds) -> Keys {
                $state.walk($of, range).keys()
            }

            /// A cursor over all entries.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn cursor(&$self $(, $keyspace: &Keyspace)?) -> Result<Cursor> {
                $state.cursor_over($of, ..)
            }

            /// A cursor over the entries of a range.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn cursor_in(&$self $(, $keyspace: &Keyspace)?, range: impl KeyBounds) -> Result<Cursor> {
                $state.cursor_over($of, range)
            }

            /// The exact number of keys, without counting them. In a transaction, each key that it has
            /// written is looked up for this, and the keys of each range that it has removed are walked.
            ///
            /// An expired key counts until it is swept, within a second in the background, or at once by
            /// [`Db::sweep`](crate::Db::sweep). A commit that would have to read a file does not check
            /// whether its key exists. This call then checks, once: see
            /// [`Keyspace::set_counting`](crate::Keyspace::set_counting).
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            #[inline]
            pub fn len(&$self $(, $keyspace: &Keyspace)?) -> Result<u64> {
                ReadState::count($state, $of)
            }

            /// Returns whether there are no keys. Expired keys do not count, swept or not.
            ///
            /// # Errors
            /// Those of [`get`](Self::get).
            pub fn is_empty(&$self $(, $keyspace: &Keyspace)?) -> Result<bool> {
                ReadState::has_no_keys($state, $of)
            }
        }
    };
}
pub(super) use read_methods;

/// A handle that collects writes for a commit.
pub(super) trait Gather {
    /// Begins an operation. `names`: the names of keyspaces that it depends on.
    fn begin(&mut self, names: &[&str]) -> Result<(&mut Writes, &Arc<Handle>)>;

    /// Begins an operation that writes to a keyspace.
    fn writes_to<'a>(
        &'a mut self,
        keyspace: &'a Keyspace,
    ) -> Result<(&'a mut Writes, &'a Core, &'a KeyspaceState)> {
        let (writes, handle) = self.begin(&[])?;
        Ok((writes, &handle.core, keyspace.state_in(handle)?))
    }

    /// Same as `writes_to`, for a write of a single key: makes room for it.
    fn room_in<'a>(
        &'a mut self,
        keyspace: &'a Keyspace,
    ) -> Result<(&'a mut Writes, &'a Core, &'a KeyspaceState)> {
        let (writes, core, state) = self.writes_to(keyspace)?;
        writes.make_room(core)?;
        Ok((writes, core, state))
    }
}

/// Implements the public writes of a handle. `$gather`: the [`Gather`] that it writes to, and the keyspace.
macro_rules! write_methods {
    ($handle:ty, |$self:ident $(, $keyspace:ident)?| ($gather:expr, $of:expr)) => {
        impl $handle {
            /// Sets a key to a value.
            ///
            /// # Errors
            /// [`KeyTooLong`](crate::Error::KeyTooLong), [`ValueTooLong`](crate::Error::ValueTooLong),
            /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped,
            /// [`ForeignHandle`](crate::Error::ForeignHandle) if it is one of another database. Nothing is
            /// written then.
            pub fn put(
                &mut $self $(, $keyspace: &Keyspace)?,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> Result<()> {
                let lifetime = $of.write.lifetime;
                let (writes, core, state) = $gather.room_in($of)?;
                writes.put_for(core, state, key.as_ref(), value.as_ref(), lifetime)
            }

            /// Sets a key to a value that expires after this time: see [`Keyspace::put_with_ttl`]. The time
            /// starts now, not with the commit.
            ///
            /// # Errors
            /// Those of [`put`](Self::put).
            pub fn put_with_ttl(
                &mut $self $(, $keyspace: &Keyspace)?,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                ttl: Duration,
            ) -> Result<()> {
                let (writes, core, state) = $gather.room_in($of)?;
                writes.put_for(core, state, key.as_ref(), value.as_ref(), Lifetime::For(ttl))
            }

            /// Sets a key to a value of `len` bytes from a reader. A value for a blob file
            /// ([`Builder::blobs`](crate::Builder::blobs)) is written as it arrives, in little
            /// memory. Other values are collected in memory.
            ///
            /// # Errors
            /// Those of [`put`](Self::put); [`Io`](crate::Error::Io) if the reader fails or ends early, or
            /// [`NoSpace`](crate::Error::NoSpace) and `Io` if the value cannot be written.
            pub fn put_from(
                &mut $self $(, $keyspace: &Keyspace)?,
                key: impl AsRef<[u8]>,
                value: &mut impl Read,
                len: u64,
            ) -> Result<()> {
                let (source, lifetime) = (ValueSource { reader: value, len }, $of.write.lifetime);
                let (writes, core, state) = $gather.room_in($of)?;
                writes.put_from(core, state, key.as_ref(), source, lifetime)
            }

            /// Merges an operand into a key, without reading it: see [`Keyspace::merge`]. The operand applies
            /// to the value at the time of this call, not of the commit. All operands that a commit merges
            /// into one key are one write. If they follow a put or a removal of the key in the same commit,
            /// the operator runs at the commit, which fails if the operator does.
            ///
            /// In a transaction a merge conflicts like a [`put`](Self::put): with every later commit that has
            /// written the key, even by another merge. Outside of transactions merges never conflict.
            ///
            /// # Errors
            /// Those of [`put`](Self::put); [`NoMergeOperator`](crate::Error::NoMergeOperator);
            /// [`Merge`](crate::Error::Merge) if the operator refuses the operand.
            pub fn merge(
                &mut $self $(, $keyspace: &Keyspace)?,
                key: impl AsRef<[u8]>,
                operand: impl AsRef<[u8]>,
            ) -> Result<()> {
                let lifetime = $of.write.lifetime;
                let (writes, core, state) = $gather.room_in($of)?;
                writes.merge(core, state, key.as_ref(), operand.as_ref(), lifetime)
            }

            /// Removes a key.
            ///
            /// # Errors
            /// Those of [`put`](Self::put), except for the value's.
            pub fn delete(&mut $self $(, $keyspace: &Keyspace)?, key: impl AsRef<[u8]>) -> Result<()> {
                let (writes, _, state) = $gather.room_in($of)?;
                writes.delete(state, key.as_ref())
            }

            /// Removes all keys of a range, except those put later. In a transaction it conflicts with every
            /// later commit that has written into the range, even by another removal.
            ///
            /// # Errors
            /// Those of [`put`](Self::put), except for the value's; the bounds are keys.
            pub fn delete_range(&mut $self $(, $keyspace: &Keyspace)?, range: impl KeyBounds) -> Result<()> {
                let (writes, _, state) = $gather.writes_to($of)?;
                writes.delete_range(state, encode_bounds(state.id, &range))
            }

            /// Removes all keys with this prefix, except those put later.
            ///
            /// # Errors
            /// Those of [`delete_range`](Self::delete_range).
            pub fn delete_prefix(&mut $self $(, $keyspace: &Keyspace)?, prefix: impl AsRef<[u8]>) -> Result<()> {
                let (writes, _, state) = $gather.writes_to($of)?;
                writes.delete_range(state, prefix_bounds(state.id, prefix.as_ref()))
            }

            /// Removes all keys of a keyspace, except those put later.
            ///
            /// # Errors
            /// Those of [`delete_range`](Self::delete_range).
            pub fn clear(&mut $self $(, $keyspace: &Keyspace)?) -> Result<()> {
                let (writes, _, state) = $gather.writes_to($of)?;
                writes.delete_range(state, encode_bounds(state.id, &..))
            }
        }
    };
}
pub(super) use write_methods;

/// Implements the public changes of keyspaces for a [`Gather`].
macro_rules! catalog_methods {
    ($handle:ty) => {
        impl $handle {
            /// Creates a keyspace, which others find after the commit. Until then only this handle can use
            /// it.
            ///
            /// # Errors
            /// [`KeyspaceExists`](crate::Error::KeyspaceExists); [`Invalid`](crate::Error::Invalid) for an
            /// empty name or one of more than 1024 bytes. If another commit creates a keyspace of this name
            /// meanwhile, the commit fails: that of a batch with `KeyspaceExists`, that of a transaction with
            /// [`Conflict`](crate::Error::Conflict).
            pub fn create_keyspace(&mut self, name: &str) -> Result<Keyspace> {
                let (writes, handle) = self.begin(&[name])?;
                let (changes, set) = writes.changes_mut();
                let state = changes.create(&handle.core.catalog, set, name)?;
                Ok(Keyspace::new(handle.clone(), state))
            }

            /// Creates a keyspace with these options, which others find after the commit. The options are in
            /// force for the writes of this handle as well, except [`blobs`](crate::KeyspaceOptions::blobs).
            ///
            /// ```
            /// # let db = esker::Db::in_memory()?;
            /// use esker::{Counting, KeyspaceOptions};
            ///
            /// let mut batch = db.batch();
            /// let options = KeyspaceOptions::new().counting(Counting::Lazy).merge_operator("add-u64");
            /// let views = batch.create_keyspace_with("views", options.clone())?;
            /// batch.merge(&views, "page", 1_u64.to_le_bytes())?;
            /// batch.commit()?;
            /// assert_eq!(views.options(), options);
            /// # Ok::<(), esker::Error>(())
            /// ```
            ///
            /// # Errors
            /// Those of [`create_keyspace`](Self::create_keyspace). [`commit`](Self::commit) fails with those
            /// of the calls that change one option, for example [`Keyspace::set_history`].
            pub fn create_keyspace_with(&mut self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
                let created = self.create_keyspace(name)?;
                created.state.take(&options);
                self.set_options(&created, options)?;
                Ok(created)
            }

            /// Drops a keyspace and all entries in it at the commit. Earlier writes to it are dropped. In a
            /// transaction it conflicts with every later commit that has written to the keyspace.
            ///
            /// # Errors
            /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound), also from the commit of a batch if
            /// another commit drops or renames it meanwhile; [`Invalid`](crate::Error::Invalid) for
            /// `default`, which can only be cleared.
            pub fn drop_keyspace(&mut self, name: &str) -> Result<()> {
                let (writes, handle) = self.begin(&[name])?;
                writes.drop_keyspace(&handle.core.catalog, name)
            }

            /// Renames a keyspace at the commit.
            ///
            /// # Errors
            /// Those of [`create_keyspace`](Self::create_keyspace) for the new name, and of
            /// [`drop_keyspace`](Self::drop_keyspace) for the old one.
            pub fn rename_keyspace(&mut self, from: &str, to: &str) -> Result<()> {
                let (writes, handle) = self.begin(&[from, to])?;
                let (changes, set) = writes.changes_mut();
                changes.rename(&handle.core.catalog, set, from, to)
            }

            /// Gives a keyspace all of these options at the commit, in place of those that it has.
            /// `Keyspace`'s own calls change one at a time, for example
            /// [`set_history`](Keyspace::set_history), but not of a keyspace that this handle creates, which
            /// is not there yet. Such a keyspace has its merge operator at once, for merges of the same
            /// commit. The other options are for later writes.
            ///
            /// ```
            /// # let db = esker::Db::in_memory()?;
            /// let mut transaction = db.begin();
            /// let views = transaction.create_keyspace("views")?;
            /// let mut options = views.options();
            /// options.merge_operator = Some("add-u64".to_owned());
            /// transaction.set_options(&views, options.clone())?;
            /// transaction.merge(&views, "page", 1_u64.to_le_bytes())?;
            /// transaction.commit()?;
            /// assert_eq!(views.options(), options);
            /// # Ok::<(), esker::Error>(())
            /// ```
            ///
            /// # Errors
            /// [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound). [`commit`](Self::commit) fails with
            /// those of the calls that change one option.
            pub fn set_options(&mut self, keyspace: &Keyspace, options: KeyspaceOptions) -> Result<()> {
                let (writes, core, _) = self.writes_to(keyspace)?;
                writes.set_options(core, &keyspace.state, options)
            }
        }
    };
}
pub(super) use catalog_methods;
