//! Cursors of typed tables.

use std::marker::PhantomData;

use esker_tuple::{PrefixOf, TypedKey};

use super::bounds::{KeyRange, encoded};
use super::codec::{Codec, Postcard};
use super::table::{Table, Types, key_of, value_of};
use crate::{Cursor, Reads, Result};

/// A position in a [`Table`] that moves both ways and seeks: see [`Cursor`].
pub struct TypedCursor<K, V, C = Postcard> {
    cursor: Cursor,
    types: Types<K, V, C>,
}

impl<K: TypedKey, V, C: Codec<V>, S: Reads> Table<K, V, C, S> {
    /// Creates a cursor over a range, before its first key.
    ///
    /// # Errors
    /// Those of [`Reads::cursor_in`]; [`Invalid`](crate::Error::Invalid) for a key that cannot be stored.
    pub fn cursor(&self, range: impl KeyRange<K>) -> Result<TypedCursor<K, V, C>> {
        let cursor = self.state.cursor_in(range.to_bytes()?)?;
        Ok(TypedCursor { cursor, types: PhantomData })
    }
}

impl<K: TypedKey, V, C: Codec<V>> TypedCursor<K, V, C> {
    /// Moves to the first key at or after this one, or after these leading fields: `(7,)` for the first key
    /// `(7, _)`. Returns whether there is one, as all moves do.
    ///
    /// # Errors
    /// Those of [`Cursor::seek`]; [`Invalid`](crate::Error::Invalid) for a key that cannot be stored.
    pub fn seek<Q: PrefixOf<K> + ?Sized>(&mut self, key: &Q) -> Result<bool> {
        self.cursor.seek(encoded(key)?)
    }

    /// Moves to the last key before this one, or before all keys with these leading fields.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn seek_before<Q: PrefixOf<K> + ?Sized>(&mut self, key: &Q) -> Result<bool> {
        self.cursor.seek_before(encoded(key)?)
    }

    /// Moves to the first key.
    ///
    /// # Errors
    /// Those of [`Cursor::seek`].
    pub fn seek_first(&mut self) -> Result<bool> {
        self.cursor.seek_first()
    }

    /// Moves to the last key.
    ///
    /// # Errors
    /// Those of [`Cursor::seek`].
    pub fn seek_last(&mut self) -> Result<bool> {
        self.cursor.seek_last()
    }

    /// Moves to the next key: see [`Cursor::next`].
    ///
    /// # Errors
    /// Those of [`Cursor::seek`].
    #[expect(clippy::should_implement_trait, reason = "the same name as of `Cursor`")]
    pub fn next(&mut self) -> Result<bool> {
        self.cursor.next()
    }

    /// Moves to the key before: see [`Cursor::prev`].
    ///
    /// # Errors
    /// Those of [`Cursor::seek`].
    pub fn prev(&mut self) -> Result<bool> {
        self.cursor.prev()
    }

    /// Returns the key at the cursor. `None`: it stands on none.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) if the key is of another type.
    pub fn key(&self) -> Result<Option<K>> {
        if self.cursor.valid() { key_of(self.cursor.key()).map(Some) } else { Ok(None) }
    }

    /// Returns the key and the value at the cursor. `None`: it stands on none.
    ///
    /// # Errors
    /// Those of [`Cursor::value`]; [`Invalid`](crate::Error::Invalid) if the key or the value is of another
    /// type.
    pub fn entry(&self) -> Result<Option<(K, V)>> {
        let Some((key, value)) = self.cursor.peek()? else { return Ok(None) };
        Ok(Some((key_of(key)?, value_of::<V, C>(key, value)?)))
    }
}
