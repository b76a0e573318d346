//! Operations that read and write: in a transaction, or on a keyspace as a transaction of their own.

use std::io::Read;
use std::time::Duration;

use super::Db;
use super::bounds::{encode_bounds, prefix_bounds};
use super::handles::{Gather, write_methods};
use super::key_handle::Key;
use super::keyspace::Keyspace;
use super::reads::Reads;
use super::transaction::{Entry, Transaction};
use crate::txn::commit::Isolation;
use crate::types::canary::{self, Canary};
use crate::types::expiry::Lifetime;
use crate::types::{Error, KeyBounds, Result, Value};

/// One keyspace of a [`Transaction`], for reading (see [`Reads`]) and writing. Made by
/// [`Transaction::keyspace_mut`].
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
    /// Those of [`Reads::get`].
    pub fn pop_first(&mut self) -> Result<Option<(Key, Value)>> {
        let first = self.first()?;
        self.take_out(first)
    }

    /// Removes and returns the last entry.
    ///
    /// # Errors
    /// Those of [`Reads::get`].
    pub fn pop_last(&mut self) -> Result<Option<(Key, Value)>> {
        let last = self.last()?;
        self.take_out(last)
    }

    fn take_out(&mut self, entry: Option<(Key, Value)>) -> Result<Option<(Key, Value)>> {
        if let Some((key, _)) = &entry {
            self.remove(key)?;
        }
        Ok(entry)
    }

    /// Removes a key and returns its old value.
    ///
    /// # Errors
    /// Those of [`Reads::get`].
    pub fn take(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        let old = self.get(key)?;
        if old.is_some() {
            self.remove(key)?;
        }
        Ok(old)
    }

    /// Sets a key to `new` if its value is `expected`. For `expected`, `None` means an absent key; for `new`,
    /// `None` removes the key. Returns whether the value was `expected`. The new value keeps the expiry of
    /// the old one. A new key gets its keyspace's [default lifetime](Keyspace::set_default_ttl).
    ///
    /// # Errors
    /// Those of [`Reads::get`] and [`put`](Self::put).
    pub fn compare_and_swap(
        &mut self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let key = key.as_ref();
        let old = self.transaction.entry(self.keyspace, key)?;
        if old.as_ref().map(|(value, _)| &**value) != expected {
            return Ok(false);
        }
        self.replace(old.as_ref(), key, new)?;
        Ok(true)
    }

    fn replace(&mut self, old: Option<&Entry>, key: &[u8], new: Option<&[u8]>) -> Result<()> {
        match new {
            Some(new) => self.transaction.put_in_place_of(old, self.keyspace, key, new),
            None => self.remove(key),
        }
    }

    /// Replaces the value of a key by the result of `change`, and returns the new value. `None` means an
    /// absent key. The new value keeps the expiry of the old one. A new key gets its keyspace's [default
    /// lifetime](Keyspace::set_default_ttl).
    ///
    /// # Errors
    /// Those of [`Reads::get`] and [`put`](Self::put).
    pub fn update<V: Into<Value>>(
        &mut self,
        key: impl AsRef<[u8]>,
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Value>> {
        let key = key.as_ref();
        let old = self.transaction.entry(self.keyspace, key)?;
        let new = change(old.as_ref().map(|(value, _)| &**value)).map(Into::into);
        if old.is_some() || new.is_some() {
            self.replace(old.as_ref(), key, new.as_deref())?;
        }
        Ok(new)
    }

    /// Adds to a number and returns the number before. The value is an `i64` of 8 bytes in little-endian
    /// order. An absent key counts as 0. The sum keeps the expiry of the old value. A new key gets its
    /// keyspace's [default lifetime](Keyspace::set_default_ttl).
    ///
    /// # Errors
    /// Those of [`Reads::get`] and [`put`](Self::put); [`Error::Invalid`] if the value has another length, or
    /// if the sum overflows.
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

/// Returns the number of a key, 0 if absent, and its sum with `add`.
fn sum(key: &[u8], entry: Option<&Entry>, add: i64) -> Result<(i64, i64)> {
    let shown = || format!("\"{}\"", key.escape_ascii());
    let old = match entry {
        None => 0,
        Some((value, _)) => {
            let bytes = <[u8; 8]>::try_from(&**value).map_err(|_| {
                let len = value.len();
                Error::Invalid(format!("the value of {} has {len} bytes: a number has 8", shown()))
            })?;
            i64::from_le_bytes(bytes)
        }
    };
    let sum = old.checked_add(add);
    let sum =
        sum.ok_or_else(|| Error::Invalid(format!("{}: the sum of {old} and {add} overflows", shown())))?;
    Ok((old, sum))
}

/// Each call is a transaction of its own that is repeated until it meets no conflict; see [`Db::transact`].
impl Keyspace {
    pub(super) fn alone<T>(&self, body: impl FnMut(&mut ViewMut<'_>) -> Result<T>) -> Result<T> {
        self.alone_as(self.core().options.isolation(), body)
    }

    fn alone_as<T>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&mut ViewMut<'_>) -> Result<T>,
    ) -> Result<T> {
        let db = Db::new(self.handle.clone());
        let durability = self.core().options.durability();
        let done = db.transact_as(isolation, durability, |t| body(&mut t.keyspace_mut(self)));
        done.map(|done| done.value)
    }

    /// Removes and returns the first entry at the time it was looked up. This does not scan over entries that
    /// were popped before.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`remove`](Self::remove).
    pub fn pop_first(&self) -> Result<Option<(Key, Value)>> {
        self.alone_as(Isolation::Snapshot, |view| view.pop_first())
    }

    /// Removes and returns the last entry.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`remove`](Self::remove).
    pub fn pop_last(&self) -> Result<Option<(Key, Value)>> {
        self.alone(|view| view.pop_last())
    }

    /// Removes a key and returns its old value.
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`remove`](Self::remove).
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.alone(|view| view.take(key))
    }

    /// Sets a key to `new` if its value is `expected`. For `expected`, `None` means an absent key; for `new`,
    /// `None` removes the key. Returns whether the value was `expected`. The new value keeps the expiry of
    /// the old one. A new key gets its keyspace's [default lifetime](Keyspace::set_default_ttl).
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let locks = esker::Db::in_memory()?.default_keyspace();
    /// assert!(locks.compare_and_swap("printer", None, Some(b"ann"))?);
    /// assert!(!locks.compare_and_swap("printer", None, Some(b"bob"))?);
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
    ) -> Result<bool> {
        let key = key.as_ref();
        self.alone(|view| view.compare_and_swap(key, expected, new))
    }

    /// Replaces the value of a key by the result of `change`, and returns the new value. `None` means an
    /// absent key. The new value keeps the expiry of the old one. A new key gets its keyspace's [default
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
    ) -> Result<Option<Value>> {
        let key = key.as_ref();
        self.alone(|view| view.update(key, &mut change))
    }

    /// Adds to a number and returns the number before. The value is an `i64` of 8 bytes in little-endian
    /// order. An absent key counts as 0. The sum keeps the expiry of the old value. A new key gets its
    /// keyspace's [default lifetime](Keyspace::set_default_ttl).
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`put`](Self::put); [`Error::Invalid`] if the value has another
    /// length, or if the sum overflows.
    pub fn fetch_add(&self, key: impl AsRef<[u8]>, add: i64) -> Result<i64> {
        let key = key.as_ref();
        self.alone(|view| view.fetch_add(key, add))
    }
}
