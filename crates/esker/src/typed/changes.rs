//! Changes of typed tables, and their past.

use std::marker::PhantomData;
use std::time::Duration;

use esker_tuple::{KeyOf, PrefixOf, TypedKey};

use super::bounds::{KeyRange, encoded, prefix_of};
use super::codec::{Codec, Postcard};
use super::table::{Table, Types, key_of, value_of};
use crate::{Change, Changes, FeedChange, Result, SeqNo, Value, Version, Versions, Watch};

impl<K: TypedKey, V, C: Codec<V>> Table<K, V, C> {
    /// Watches a range of keys for changes committed from now on: see
    /// [`Keyspace::watch`](crate::Keyspace::watch).
    ///
    /// # Errors
    /// Those of [`Keyspace::watch`](crate::Keyspace::watch).
    pub fn watch(&self, range: impl KeyRange<K>) -> Result<TypedWatch<K, V, C>> {
        let watch = self.state.watch(range.to_bytes()?)?;
        Ok(TypedWatch { watch, types: PhantomData })
    }

    /// Watches all keys that begin with these fields, as a tuple.
    ///
    /// # Errors
    /// Those of [`watch`](Self::watch).
    pub fn watch_prefix<Q: PrefixOf<K> + ?Sized>(&self, fields: &Q) -> Result<TypedWatch<K, V, C>> {
        let watch = self.state.watch(prefix_of(fields)?)?;
        Ok(TypedWatch { watch, types: PhantomData })
    }

    /// Same as [`watch`](Self::watch), but keeps only the newest queued change of each key.
    ///
    /// # Errors
    /// Those of [`watch`](Self::watch).
    pub fn watch_newest(&self, range: impl KeyRange<K>) -> Result<TypedWatch<K, V, C>> {
        let watch = self.state.watch_newest(range.to_bytes()?)?;
        Ok(TypedWatch { watch, types: PhantomData })
    }

    /// Decodes a change of the [feed](crate::Db::feed_after). `None`: it is no change of keys of this table.
    /// A merge is a put without a value, as in [`Change::Put`].
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) if the key or the value is of another type; those of
    /// [`FeedValue::read`](crate::FeedValue::read).
    pub fn change_of(&self, change: &FeedChange<'_>) -> Result<Option<Change<K, V>>> {
        if change.key().is_none_or(|(keyspace, _)| keyspace != self.state.id()) {
            return Ok(None);
        }
        let start_of = |key: &[u8]| crate::Key::new(key);
        Ok(Some(match change {
            FeedChange::Put { key, value, .. } => {
                let value = Some(value_of::<V, C>(key, &value.read()?)?);
                Change::Put { key: key_of(key)?, value }
            }
            FeedChange::Merge { key, .. } => Change::Put { key: key_of(key)?, value: None },
            FeedChange::Delete { key, .. } => Change::Delete { key: key_of(key)? },
            FeedChange::Expire { key, .. } => Change::Expire { key: key_of(key)? },
            FeedChange::DeleteRange { start, end, .. } => {
                Change::DeleteRange { start: start_of(start), end: end.map(start_of) }
            }
            _ => return Ok(None),
        }))
    }

    /// Returns what has changed after a commit: see [`Keyspace::since`](crate::Keyspace::since).
    ///
    /// # Errors
    /// Those of [`Keyspace::since`](crate::Keyspace::since).
    pub fn since(&self, seqno: SeqNo) -> Result<TypedChanges<K, V, C>> {
        Ok(TypedChanges { changes: self.state.since(seqno)?, types: PhantomData })
    }

    /// Returns the value of a key at a commit: see [`Keyspace::get_at`](crate::Keyspace::get_at).
    ///
    /// # Errors
    /// Those of [`Keyspace::at`](crate::Keyspace::at) and of [`get`](Self::get).
    pub fn get_at<Q: KeyOf<K> + ?Sized>(&self, key: &Q, seqno: SeqNo) -> Result<Option<V>> {
        let key = encoded(key)?;
        let value = self.state.get_at(&key, seqno)?;
        value.map(|value| value_of::<V, C>(&key, &value)).transpose()
    }

    /// Returns the kept versions of a key, newest first: see
    /// [`Keyspace::versions`](crate::Keyspace::versions).
    ///
    /// # Errors
    /// Those of [`Keyspace::versions`](crate::Keyspace::versions). An item is an error if its value is of
    /// another type.
    pub fn versions<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<TypedVersions<V, C>> {
        let key = encoded(key)?;
        let versions = self.state.versions(&key)?;
        Ok(TypedVersions { versions, key, types: PhantomData })
    }
}

/// The kept versions of a key, newest first: made by [`Table::versions`].
pub struct TypedVersions<V, C = Postcard> {
    pub(super) versions: Versions,
    pub(super) key: Vec<u8>,
    types: PhantomData<fn() -> (V, C)>,
}

impl<V, C: Codec<V>> Iterator for TypedVersions<V, C> {
    type Item = Result<Version<V>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.versions.next().map(|version| typed_version::<V, C>(&self.key, version?))
    }
}

/// Decodes a version of a key.
pub(super) fn typed_version<V, C: Codec<V>>(key: &[u8], version: Version) -> Result<Version<V>> {
    let Version { seqno, value, is_merge } = version;
    let value = value.map(|value| value_of::<V, C>(key, &value)).transpose()?;
    Ok(Version { seqno, value, is_merge })
}

/// The newest change of each key after a commit: made by [`Table::since`]. A change of another type is an
/// error, and the iterator goes on.
pub struct TypedChanges<K, V, C = Postcard> {
    pub(super) changes: Changes,
    types: Types<K, V, C>,
}

impl<K, V, C> TypedChanges<K, V, C> {
    /// The newest commit whose changes are included.
    pub fn seqno(&self) -> SeqNo {
        self.changes.seqno()
    }
}

impl<K: TypedKey, V, C: Codec<V>> Iterator for TypedChanges<K, V, C> {
    type Item = Result<(SeqNo, Change<K, V>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.changes.next().map(|change| change.and_then(typed::<K, V, C>))
    }
}

/// Changes of the keys of a table, in commit order: made by [`Table::watch`]. As an iterator it waits for the
/// next change, and ends when the database is closed. A change of another type is an error, and the watch
/// goes on.
pub struct TypedWatch<K, V, C = Postcard> {
    pub(super) watch: Watch,
    types: Types<K, V, C>,
}

impl<K: TypedKey, V, C: Codec<V>> TypedWatch<K, V, C> {
    /// Returns the next change and its commit, if one is queued.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) if the key or the value is of another type.
    pub fn try_next(&mut self) -> Result<Option<(SeqNo, Change<K, V>)>> {
        self.next_within(Duration::ZERO)
    }

    /// Returns the next change and its commit, waiting up to `patience` for it.
    ///
    /// # Errors
    /// Those of [`try_next`](Self::try_next).
    pub fn next_within(&mut self, patience: Duration) -> Result<Option<(SeqNo, Change<K, V>)>> {
        self.watch.next_within(patience).map(typed::<K, V, C>).transpose()
    }

    /// Returns whether the database is closed. Then only queued changes remain.
    pub fn is_ended(&self) -> bool {
        self.watch.is_ended()
    }
}

/// Decodes a change.
pub(super) fn typed<K: TypedKey, V, C: Codec<V>>(
    (seqno, change): (SeqNo, Change),
) -> Result<(SeqNo, Change<K, V>)> {
    let change = match change {
        Change::Put { key, value } => {
            let value = value.map(|value: Value| value_of::<V, C>(&key, &value)).transpose()?;
            Change::Put { key: key_of(&key)?, value }
        }
        Change::Delete { key } => Change::Delete { key: key_of(&key)? },
        Change::Expire { key } => Change::Expire { key: key_of(&key)? },
        Change::DeleteRange { start, end } => Change::DeleteRange { start, end },
        Change::Missed => Change::Missed,
    };
    Ok((seqno, change))
}

impl<K: TypedKey, V, C: Codec<V>> Iterator for TypedWatch<K, V, C> {
    type Item = Result<(SeqNo, Change<K, V>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.watch.next().map(typed::<K, V, C>)
    }
}
