//! The writes of typed tables: as commits of their own, in a transaction, and in a batch.
//!
//! ```text
//!   Keyspace             write_methods! (&self, number of the commit)   update_methods!
//!   ViewMut              write_methods! (&mut self)                     update_methods!
//!   BatchView            write_methods! (&mut self)
//! ```

use std::time::{Duration, SystemTime};

use esker_tuple::{KeyOf, PrefixOf, TypedKey};

use super::bounds::{ByteRange, KeyRange, encoded, prefix_of};
use super::codec::{Codec, Plain};
use super::reads::entry;
use super::table::{BatchView, Table, bytes_of, value_of};
use crate::{Cached, Committing, Error, Keyspace, Reads, Result, SeqNo, Swap, Update, ViewMut};

impl BatchView<'_> {
    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.batch.put(self.keyspace, key, value)
    }

    fn put_with_ttl(&mut self, key: Vec<u8>, value: Vec<u8>, ttl: Duration) -> Result<()> {
        self.batch.put_with_ttl(self.keyspace, key, value, ttl)
    }

    fn put_until(&mut self, key: Vec<u8>, value: Vec<u8>, end: Option<SystemTime>) -> Result<()> {
        self.batch.put_until(self.keyspace, key, value, end)
    }

    fn merge(&mut self, key: Vec<u8>, operand: Vec<u8>) -> Result<()> {
        self.batch.merge(self.keyspace, key, operand)
    }

    fn delete(&mut self, key: Vec<u8>) -> Result<()> {
        self.batch.delete(self.keyspace, key)
    }

    fn delete_range(&mut self, range: ByteRange) -> Result<()> {
        self.batch.delete_range(self.keyspace, range)
    }

    fn clear(&mut self) -> Result<()> {
        self.batch.clear(self.keyspace)
    }
}

/// Implements writes that need no read. `$out`: what they return.
macro_rules! write_methods {
    ($handle:ty, ($($ref:tt)*) $self:ident, $out:ty) => {
        impl<K: TypedKey, V, C: Codec<V>> Table<K, V, C, $handle> {
            /// Sets the value of a key.
            ///
            /// # Errors
            /// Those of [`Keyspace::put`]; [`Invalid`](Error::Invalid) if the codec cannot encode the value.
            pub fn put<Q: KeyOf<K> + ?Sized>($($ref)* $self, key: &Q, value: &V) -> Result<$out> {
                $self.state.put(encoded(key)?, bytes_of::<V, C>(value)?)
            }

            /// Sets a key to a value that expires after this time: see [`Keyspace::put_with_ttl`].
            ///
            /// # Errors
            /// Those of [`put`](Self::put).
            pub fn put_with_ttl<Q: KeyOf<K> + ?Sized>(
                $($ref)* $self,
                key: &Q,
                value: &V,
                ttl: Duration,
            ) -> Result<$out> {
                $self.state.put_with_ttl(encoded(key)?, bytes_of::<V, C>(value)?, ttl)
            }

            /// Sets a key to a value that expires at this moment: see [`Keyspace::put_until`].
            ///
            /// # Errors
            /// Those of [`put`](Self::put).
            pub fn put_until<Q: KeyOf<K> + ?Sized>(
                $($ref)* $self,
                key: &Q,
                value: &V,
                end: Option<SystemTime>,
            ) -> Result<$out> {
                $self.state.put_until(encoded(key)?, bytes_of::<V, C>(value)?, end)
            }

            /// Merges an operand into a key with the keyspace's merge operator: see [`Keyspace::merge`]. The
            /// codec encodes the operand. With the built-in operators use the codec [`Plain`].
            ///
            /// # Errors
            /// Those of [`Keyspace::merge`]; [`Invalid`](Error::Invalid) if the codec cannot encode the
            /// operand.
            pub fn merge<Q: KeyOf<K> + ?Sized>($($ref)* $self, key: &Q, operand: &V) -> Result<$out> {
                $self.state.merge(encoded(key)?, bytes_of::<V, C>(operand)?)
            }

            /// Same as [`merge`](Self::merge), with an operand that is no value of the table.
            ///
            /// # Errors
            /// Those of [`Keyspace::merge`].
            pub fn merge_bytes<Q: KeyOf<K> + ?Sized>($($ref)* $self, key: &Q, operand: &[u8]) -> Result<$out> {
                $self.state.merge(encoded(key)?, operand.to_vec())
            }

            /// Removes a key, if it exists.
            ///
            /// # Errors
            /// Those of [`Keyspace::delete`].
            pub fn delete<Q: KeyOf<K> + ?Sized>($($ref)* $self, key: &Q) -> Result<$out> {
                $self.state.delete(encoded(key)?)
            }

            /// Removes all keys of a range: see [`Keyspace::delete_range`].
            ///
            /// # Errors
            /// Those of [`Keyspace::delete_range`].
            pub fn delete_range($($ref)* $self, range: impl KeyRange<K>) -> Result<$out> {
                $self.delete_between(range.to_bytes()?)
            }

            /// Removes all keys that begin with these fields, as a tuple.
            ///
            /// # Errors
            /// Those of [`Keyspace::delete_range`].
            pub fn delete_prefix<Q: PrefixOf<K> + ?Sized>($($ref)* $self, fields: &Q) -> Result<$out> {
                $self.delete_between(prefix_of(fields)?)
            }

            pub(super) fn delete_between($($ref)* $self, range: ByteRange) -> Result<$out> {
                $self.state.delete_range(range)
            }

            /// Removes all keys.
            ///
            /// # Errors
            /// Those of [`Keyspace::clear`].
            pub fn clear($($ref)* $self) -> Result<$out> {
                $self.state.clear()
            }
        }
    };
}

write_methods!(Keyspace, (&) self, SeqNo);
write_methods!(ViewMut<'_>, (&mut) self, ());
write_methods!(BatchView<'_>, (&mut) self, ());

/// Implements writes that read.
macro_rules! update_methods {
    ($handle:ty, ($($ref:tt)*) $self:ident) => {
        impl<K: TypedKey, V, C: Codec<V>> Table<K, V, C, $handle> {
            /// Removes a key and returns its old value.
            ///
            /// # Errors
            /// Those of [`get`](Self::get) and [`put`](Self::put).
            pub fn remove<Q: KeyOf<K> + ?Sized>($($ref)* $self, key: &Q) -> Result<Option<V>> {
                let key = encoded(key)?;
                let old = $self.state.remove(&key)?;
                old.map(|old| value_of::<V, C>(&key, &old)).transpose()
            }

            /// Replaces the value of a key by the result of `change`, and returns both values: see
            /// [`Keyspace::update`].
            ///
            /// # Errors
            /// Those of [`get`](Self::get) and [`put`](Self::put).
            pub fn update<Q: KeyOf<K> + ?Sized>(
                $($ref)* $self,
                key: &Q,
                mut change: impl FnMut(Option<V>) -> Option<V>,
            ) -> Result<Update<V>> {
                $self.try_update::<Q, Error>(key, |old| Ok(change(old)))
            }

            /// Same as [`update`](Self::update), with a `change` that may fail. Then nothing is written.
            ///
            /// # Errors
            /// That of `change`, and those of [`update`](Self::update).
            pub fn try_update<Q: KeyOf<K> + ?Sized, E: From<Error>>(
                $($ref)* $self,
                key: &Q,
                mut change: impl FnMut(Option<V>) -> Result<Option<V>, E>,
            ) -> Result<Update<V>, E> {
                let key = encoded(key)?;
                let done = $self.state.try_update(&key, |old| -> Result<Option<Vec<u8>>, E> {
                    let old = old.map(|old| value_of::<V, C>(&key, old)).transpose()?;
                    Ok(change(old)?.map(|new| bytes_of::<V, C>(&new)).transpose()?)
                })?;
                let decode = |value: Option<crate::Value>| {
                    value.map(|value| value_of::<V, C>(&key, &value)).transpose()
                };
                Ok(Update { old: decode(done.old)?, new: decode(done.new)? })
            }

            /// Sets a key to `new` if its value equals `expected`: see [`Keyspace::compare_and_swap`].
            ///
            /// # Errors
            /// Those of [`get`](Self::get) and [`put`](Self::put).
            pub fn compare_and_swap<Q: KeyOf<K> + ?Sized>(
                $($ref)* $self,
                key: &Q,
                expected: Option<&V>,
                new: Option<&V>,
            ) -> Result<Swap<V>>
            where
                V: PartialEq,
            {
                let key = encoded(key)?;
                let new = new.map(bytes_of::<V, C>).transpose()?;
                loop {
                    let stored = Reads::get(&$self.state, &key)?;
                    let old = stored.as_deref().map(|old| value_of::<V, C>(&key, old)).transpose()?;
                    if old.as_ref() != expected {
                        return Ok(Swap { swapped: false, old });
                    }
                    // Another commit may have changed it meanwhile.
                    if $self.state.compare_and_swap(&key, stored.as_deref(), new.as_deref())?.swapped {
                        return Ok(Swap { swapped: true, old });
                    }
                }
            }

            /// Removes and returns the first entry.
            ///
            /// # Errors
            /// Those of [`get`](Self::get) and [`put`](Self::put).
            pub fn pop_first($($ref)* $self) -> Result<Option<(K, V)>> {
                $self.state.pop_first()?.map(entry::<K, V, C>).transpose()
            }

            /// Removes and returns the last entry.
            ///
            /// # Errors
            /// Those of [`get`](Self::get) and [`put`](Self::put).
            pub fn pop_last($($ref)* $self) -> Result<Option<(K, V)>> {
                $self.state.pop_last()?.map(entry::<K, V, C>).transpose()
            }

            /// Lets a key expire after this time. Returns whether the key exists.
            ///
            /// # Errors
            /// Those of [`get`](Self::get) and [`put`](Self::put).
            pub fn expire<Q: KeyOf<K> + ?Sized>($($ref)* $self, key: &Q, ttl: Duration) -> Result<bool> {
                $self.state.expire(encoded(key)?, ttl)
            }

            /// Removes the expiry of a key. Returns whether the key exists.
            ///
            /// # Errors
            /// Those of [`get`](Self::get) and [`put`](Self::put).
            pub fn persist<Q: KeyOf<K> + ?Sized>($($ref)* $self, key: &Q) -> Result<bool> {
                $self.state.persist(encoded(key)?)
            }
        }

        impl<K: TypedKey> Table<K, i64, Plain, $handle> {
            /// Adds to a number and returns the number before: see [`Keyspace::fetch_add`].
            ///
            /// # Errors
            /// Those of [`Keyspace::fetch_add`].
            pub fn fetch_add<Q: KeyOf<K> + ?Sized>($($ref)* $self, key: &Q, add: i64) -> Result<i64> {
                $self.state.fetch_add(encoded(key)?, add)
            }
        }
    };
}

update_methods!(Keyspace, (&) self);
update_methods!(ViewMut<'_>, (&mut) self);

impl<K: TypedKey, V, C: Codec<V>> Table<K, V, C> {
    /// Same as [`put`](Self::put), without a waiting thread: see [`Keyspace::put_async`].
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if the key or the value cannot be encoded. The future's are those of
    /// [`put`](Self::put).
    pub fn put_async<Q: KeyOf<K> + ?Sized>(&self, key: &Q, value: &V) -> Result<Committing> {
        Ok(self.state.put_async(encoded(key)?, bytes_of::<V, C>(value)?))
    }

    /// Same as [`delete`](Self::delete), without a waiting thread: see [`Keyspace::put_async`].
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if the key cannot be encoded. The future's are those of
    /// [`delete`](Self::delete).
    pub fn delete_async<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Committing> {
        Ok(self.state.delete_async(encoded(key)?))
    }

    /// Same as [`merge`](Self::merge), without a waiting thread: see [`Keyspace::merge_async`].
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) if the key or the operand cannot be encoded. The future's are those of
    /// [`merge`](Self::merge).
    pub fn merge_async<Q: KeyOf<K> + ?Sized>(&self, key: &Q, operand: &V) -> Result<Committing> {
        Ok(self.state.merge_async(encoded(key)?, bytes_of::<V, C>(operand)?))
    }

    /// Returns the value of a key, or that it is absent, if memory alone determines it: see
    /// [`Keyspace::get_if_cached`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_if_cached<Q: KeyOf<K> + ?Sized>(&self, key: &Q) -> Result<Cached<V>> {
        let key = encoded(key)?;
        Ok(match self.state.get_if_cached(&key)? {
            Cached::Value(value) => Cached::Value(value_of::<V, C>(&key, &value)?),
            Cached::Absent => Cached::Absent,
            Cached::NotCached => Cached::NotCached,
        })
    }
}
