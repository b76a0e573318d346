//! Operations that read and write: in a transaction, or on a keyspace as a transaction of their own.

use std::io::Read;
use std::time::Duration;

use super::Db;
use super::bounds::{encode_bounds, prefix_bounds};
use super::handles::{Gather, write_methods};
use super::key_handle::Key;
use super::keyspace::Keyspace;
use super::transaction::{Entry, Transaction};
use super::writes::ValueSource;
use crate::txn::commit::Isolation;
use crate::types::canary::{self, Canary};
use crate::types::expiry::Lifetime;
use crate::types::{Error, KeyBounds, Result, Value};

/// One keyspace of a [`Transaction`], for reading and writing. Made by
/// [`Transaction::keyspace_mut`]. The transaction has the same calls with the keyspace as first argument, as
/// shorthands.
///
/// ```
/// use esker::Reads;
/// # fn main() -> esker::Result<()> {
/// # let db = esker::Db::in_memory()?;
/// let (todo, done) = (db.keyspace("todo")?, db.keyspace("done")?);
/// todo.put("1", "write it down")?;
/// db.transact(|t| -> esker::Result<()> {
///     if let Some((key, task)) = t.keyspace_mut(&todo).pop_first()? {
///         t.keyspace_mut(&done).put(key, task)?;
///     }
///     Ok(())
/// })?;
/// assert_eq!((todo.len()?, done.len()?), (0, 1));
/// # Ok(())
/// # }
/// ```
pub struct ViewMut<'a> {
    pub(super) transaction: &'a mut Transaction,
    pub(super) keyspace: &'a Keyspace,
}

/// The result of a `compare_and_swap`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Swap<V = Value> {
    /// Whether the value was the expected one, and was replaced.
    pub swapped: bool,
    /// The value before the call. `None`: there was none.
    pub old: Option<V>,
}

/// The result of an `update`. `None`: there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update<V = Value> {
    /// The value before.
    pub old: Option<V>,
    /// The value that replaces it.
    pub new: Option<V>,
}

impl<V> Swap<V> {
    /// For clients that compare by themselves.
    pub fn new(swapped: bool, old: Option<V>) -> Self {
        Swap { swapped, old }
    }
}

impl<V> Update<V> {
    /// For clients that update by themselves.
    pub fn new(old: Option<V>, new: Option<V>) -> Self {
        Update { old, new }
    }
}

impl Transaction {
    /// A view of one keyspace for reading and writing.
    pub fn keyspace_mut<'a>(&'a mut self, keyspace: &'a Keyspace) -> ViewMut<'a> {
        ViewMut { transaction: self, keyspace }
    }
}

write_methods!(ViewMut<'_>, |self| (self.transaction, self.keyspace));

impl ViewMut<'_> {
    /// Removes and returns the first entry.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn pop_first(&mut self) -> Result<Option<(Key, Value)>> {
        let first = self.first()?;
        self.take_out(first)
    }

    /// Removes and returns the last entry.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn pop_last(&mut self) -> Result<Option<(Key, Value)>> {
        let last = self.last()?;
        self.take_out(last)
    }

    fn take_out(&mut self, entry: Option<(Key, Value)>) -> Result<Option<(Key, Value)>> {
        if let Some((key, _)) = &entry {
            self.delete(key)?;
        }
        Ok(entry)
    }

    /// Removes a key and returns its old value.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        let old = self.get(key)?;
        if old.is_some() {
            self.delete(key)?;
        }
        Ok(old)
    }

    /// Sets a key to `new` if its value is `expected`. For `expected`, `None` means an absent key; for `new`,
    /// `None` removes the key. Returns the value that was there. The new value keeps the expiry of the old
    /// one. A new key gets its keyspace's [default lifetime](Keyspace::set_default_ttl).
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn compare_and_swap(
        &mut self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        let key = key.as_ref();
        let old = self.transaction.entry(self.keyspace, key)?;
        let swapped = old.as_ref().map(|(value, _)| &**value) == expected;
        if swapped {
            self.replace(old.as_ref(), key, new)?;
        }
        Ok(Swap { swapped, old: old.map(|(value, _)| value) })
    }

    fn replace(&mut self, old: Option<&Entry>, key: &[u8], new: Option<&[u8]>) -> Result<()> {
        match new {
            Some(new) => self.transaction.put_in_place_of(old, self.keyspace, key, new),
            None => self.delete(key),
        }
    }

    /// Replaces the value of a key by the result of `change`, and returns both values. `None` means an absent
    /// key. The new value keeps the expiry of the old one. A new key gets its keyspace's [default
    /// lifetime](Keyspace::set_default_ttl).
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn update<V: Into<Value>>(
        &mut self,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<Update> {
        self.try_update(key, |old| Ok(change(old)))
    }

    /// Same as [`update`](Self::update), with a `change` that may fail. Then nothing is written.
    ///
    /// # Errors
    /// That of `change`, and those of [`update`](Self::update).
    pub fn try_update<V: Into<Value>, E: From<Error>>(
        &mut self,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Result<Option<V>, E>,
    ) -> Result<Update, E> {
        let key = key.as_ref();
        let old = self.transaction.entry(self.keyspace, key)?;
        let new = change(old.as_ref().map(|(value, _)| &**value))?.map(Into::into);
        if old.is_some() || new.is_some() {
            self.replace(old.as_ref(), key, new.as_deref())?;
        }
        Ok(Update { old: old.map(|(value, _)| value), new })
    }

    /// Adds to a number and returns the number before. The value is an `i64` of 8 bytes in little-endian
    /// order. An absent key counts as 0. The sum wraps around, like that of the merge operator `add-i64`. It
    /// keeps the expiry of the old value. A new key gets its keyspace's [default
    /// lifetime](Keyspace::set_default_ttl).
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put); [`Error::Invalid`] if the value has another
    /// length.
    pub fn fetch_add(&mut self, key: impl AsRef<[u8]>, add: i64) -> Result<i64> {
        let key = key.as_ref();
        let entry = self.transaction.entry(self.keyspace, key)?;
        let (old, sum) = sum(key, entry.as_ref(), add)?;
        self.replace(entry.as_ref(), key, Some(&sum.to_le_bytes()))?;
        Ok(old)
    }

    /// Same as `fetch_add`, for a counter that never expires, whatever the default of its keyspace.
    pub(super) fn fetch_add_unlimited(&mut self, key: &[u8], add: i64) -> Result<i64> {
        let entry = self.transaction.entry(self.keyspace, key)?;
        let (old, sum) = sum(key, entry.as_ref(), add)?;
        let lifetime = match canary::is_set(Canary::SequenceExpires) {
            true => Lifetime::AsKeyspace,
            false => Lifetime::Unlimited,
        };
        self.transaction.put_for(self.keyspace, key, &sum.to_le_bytes(), lifetime)?;
        Ok(old)
    }
}

/// Shorthands for the calls of [`ViewMut`]: `t.remove(&ks, key)` is `t.keyspace_mut(&ks).remove(key)`.
impl Transaction {
    /// Removes and returns the first entry: see [`ViewMut::pop_first`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn pop_first(&mut self, keyspace: &Keyspace) -> Result<Option<(Key, Value)>> {
        self.keyspace_mut(keyspace).pop_first()
    }

    /// Removes and returns the last entry: see [`ViewMut::pop_last`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn pop_last(&mut self, keyspace: &Keyspace) -> Result<Option<(Key, Value)>> {
        self.keyspace_mut(keyspace).pop_last()
    }

    /// Removes a key and returns its old value: see [`ViewMut::remove`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.keyspace_mut(keyspace).remove(key)
    }

    /// Sets a key to `new` if its value is `expected`: see [`ViewMut::compare_and_swap`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn compare_and_swap(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        self.keyspace_mut(keyspace).compare_and_swap(key, expected, new)
    }

    /// Replaces the value of a key by the result of `change`: see [`ViewMut::update`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn update<V: Into<Value>>(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<Update> {
        self.keyspace_mut(keyspace).update(key, change)
    }

    /// Same as [`update`](Self::update), with a `change` that may fail. Then nothing is written.
    ///
    /// # Errors
    /// That of `change`, and those of [`update`](Self::update).
    pub fn try_update<V: Into<Value>, E: From<Error>>(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Result<Option<V>, E>,
    ) -> Result<Update, E> {
        self.keyspace_mut(keyspace).try_update(key, change)
    }

    /// Adds to a number and returns the number before: see [`ViewMut::fetch_add`].
    ///
    /// # Errors
    /// Those of [`ViewMut::fetch_add`].
    pub fn fetch_add(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, add: i64) -> Result<i64> {
        self.keyspace_mut(keyspace).fetch_add(key, add)
    }

    /// Lets a key expire after this time: see [`ViewMut::expire`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn expire(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, ttl: Duration) -> Result<bool> {
        self.keyspace_mut(keyspace).expire(key, ttl)
    }

    /// Removes the expiry of a key: see [`ViewMut::persist`].
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn persist(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        self.keyspace_mut(keyspace).persist(key)
    }
}

/// Returns the number of a key, 0 if absent, and its sum with `add`.
fn sum(key: &[u8], entry: Option<&Entry>, add: i64) -> Result<(i64, i64)> {
    let old = match entry {
        None => 0,
        Some((value, _)) => {
            let bytes = <[u8; 8]>::try_from(&**value).map_err(|_| {
                let (shown, len) = (key.escape_ascii(), value.len());
                Error::Invalid(format!("the value of \"{shown}\" has {len} bytes: a number has 8"))
            })?;
            i64::from_le_bytes(bytes)
        }
    };
    Ok((old, old.wrapping_add(add)))
}

/// Each call is a transaction of its own that is repeated until it meets no conflict; see [`Db::transact`].
impl Keyspace {
    pub(super) fn alone<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut ViewMut<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.alone_as(self.core().options.isolation(), body)
    }

    fn alone_as<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&mut ViewMut<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let db = Db::new(self.handle.clone());
        let options = db.transaction().isolation(isolation).durability(self.durability());
        options.run(|t| body(&mut t.keyspace_mut(self))).map(|done| done.value)
    }

    /// Removes and returns the first entry at the time it was looked up. This does not scan over entries that
    /// were popped before.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`delete`](Self::delete).
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.alone_as(Isolation::Snapshot, |view| view.pop_first())
    }

    /// Removes and returns the last entry.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`delete`](Self::delete).
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.alone(|view| view.pop_last())
    }

    /// Removes a key and returns its old value.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`delete`](Self::delete).
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.alone(|view| view.remove(key))
    }

    /// Sets a key to `new` if its value is `expected`. For `expected`, `None` means an absent key; for `new`,
    /// `None` removes the key. Returns the value that was there. The new value keeps the expiry of the old
    /// one. A new key gets its keyspace's [default lifetime](Keyspace::set_default_ttl).
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let locks = esker::Db::in_memory()?.default_keyspace();
    /// assert!(locks.compare_and_swap("printer", None, Some(b"ann"))?.swapped);
    /// let second = locks.compare_and_swap("printer", None, Some(b"bob"))?;
    /// assert_eq!((second.swapped, second.old.as_deref()), (false, Some(&b"ann"[..])));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        let key = key.as_ref();
        self.alone(|view| view.compare_and_swap(key, expected, new))
    }

    /// Replaces the value of a key by the result of `change`, and returns both values. `None` means an absent
    /// key. The new value keeps the expiry of the old one. A new key gets its keyspace's [default
    /// lifetime](Keyspace::set_default_ttl).
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let words = esker::Db::in_memory()?.default_keyspace();
    /// words.update("list", |old| Some([old.unwrap_or_default(), b"one,"].concat()))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put).
    pub fn update<V: Into<Value>>(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Update> {
        let key = key.as_ref();
        self.alone(|view| view.update(key, &mut change))
    }

    /// Same as [`update`](Self::update), with a `change` that may fail. Then nothing is written.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let stock = esker::Db::in_memory()?.default_keyspace();
    /// stock.put("pears", "7")?;
    /// let sold = stock.try_update("pears", |old| -> Result<_, Box<dyn std::error::Error>> {
    ///     let count: u32 = std::str::from_utf8(old.unwrap_or(b"0"))?.parse()?;
    ///     Ok(Some(count.checked_sub(1).ok_or("sold out")?.to_string().into_bytes()))
    /// })?;
    /// assert_eq!(sold.new.as_deref(), Some(&b"6"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// That of `change`, and those of [`update`](Self::update).
    pub fn try_update<V: Into<Value>, E: From<Error>>(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>) -> Result<Option<V>, E>,
    ) -> Result<Update, E> {
        let key = key.as_ref();
        self.alone(|view| view.try_update(key, &mut change))
    }

    /// Adds to a number and returns the number before. The value is an `i64` of 8 bytes in little-endian
    /// order. An absent key counts as 0. The sum wraps around, like that of the merge operator `add-i64`. It
    /// keeps the expiry of the old value. A new key gets its keyspace's [default
    /// lifetime](Keyspace::set_default_ttl).
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put); [`Error::Invalid`] if the value has another
    /// length.
    pub fn fetch_add(&self, key: impl AsRef<[u8]>, add: i64) -> Result<i64> {
        let key = key.as_ref();
        self.alone(|view| view.fetch_add(key, add))
    }
}
