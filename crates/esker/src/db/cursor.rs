//! `Cursor`: a position among live keys that moves in both directions and lends out keys and values.

use std::sync::OnceLock;

use super::range::{Walk, ends, note_first, user_key, walk};
use crate::engine::state::reads::ReadSource;
use crate::types::bounds::Bounds;
use crate::types::key::{encode_key, prefix_len};
use crate::types::key_range::End;
use crate::types::{KeyspaceId, Result, Value};

/// A position among the live keys of a keyspace, or of a range of it. The cursor reads the state at the
/// moment it was made. A new cursor stands before the first key and after the last one: `next` moves it to
/// the first key, `prev` to the last. After an error it is not valid until a seek succeeds. Each move returns
/// whether the cursor is valid: `while cursor.next()? { ... }`.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = esker::Db::open(dir.path())?;
/// let users = db.keyspace("users")?;
/// for name in ["ann", "bob", "cid"] {
///     users.put(name, "1")?;
/// }
/// let mut cursor = users.cursor()?;
/// while cursor.next()? {
///     println!("{:?}", cursor.key());
/// }
/// assert!(cursor.seek("b")?);
/// assert_eq!(cursor.key(), b"bob");
/// cursor.prev()?;
/// assert_eq!(cursor.peek()?, Some((&b"ann"[..], &b"1"[..])));
/// assert!(!cursor.prev()?);
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    walk: Walk,
    keyspace: KeyspaceId,
    /// Whether it has not moved yet.
    is_new: bool,
    /// The current value, if it has been read from a blob file.
    fetched: OnceLock<Value>,
    bounds: Bounds,
    source: ReadSource,
}

/// Direction and start of a move: a key, or an end of the bounds.
enum Move {
    /// To the first key `>=` this one. `None`: from the lower bound.
    Up(Option<Vec<u8>>),
    /// To the last key `<` this one. `None`: from the upper bound.
    Down(Option<Vec<u8>>),
}

impl Cursor {
    pub(crate) fn new(source: ReadSource, keyspace: KeyspaceId, bounds: Bounds) -> Self {
        Cursor {
            walk: Walk::new(&source, bounds.clone()),
            bounds,
            keyspace,
            is_new: true,
            fetched: OnceLock::new(),
            source,
        }
    }

    /// Returns the current key, encoded, if the transaction records what it reads.
    fn read_key(&self) -> Option<Vec<u8>> {
        let is_wanted = self.source.reads.is_some() && self.walk.valid();
        is_wanted.then(|| self.walk.encoded_key(&self.bounds))
    }

    /// Records what a move has read in the read set of the transaction.
    fn note(&self, went: Move) {
        let Some(reads) = &self.source.reads else { return };
        let (lower, upper) = ends(&self.bounds);
        let key = self.read_key();
        match went {
            Move::Up(from) => {
                let from = from.unwrap_or_default().max(lower);
                reads.note_range(&from, key.map_or(upper, End::Included));
            }
            Move::Down(from) => {
                let from = from.map_or(upper.clone(), End::Included).min(upper);
                reads.note_range(&key.unwrap_or(lower), from);
            }
        }
    }

    /// Completes a move. Returns whether the cursor stands on a key.
    #[inline]
    fn moved(&mut self, moved: Result<()>, went: Move) -> Result<bool> {
        if self.source.reads.is_some() {
            self.note(went);
        }
        self.is_new = false;
        self.fetched.take();
        moved?;
        self.source.view.check_open()?;
        let is_valid = self.walk.valid();
        if is_valid && let Walk::Run(walk) = &mut self.walk {
            walk.load_key();
        }
        Ok(is_valid)
    }

    /// Moves to the first key `>= key`.
    ///
    /// # Errors
    /// [`Corrupt`](crate::Error::Corrupt) and [`Io`](crate::Error::Io) if a table cannot be read. The cursor
    /// is not valid then.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = crate::types::key::KeyBuf::new(self.keyspace, key.as_ref());
        let moved = match self
            .source
            .first_possible()
            .filter(|first| **first > *key && self.bounds.begin_keyspace())
        {
            Some(first) => self.seek_front(&first),
            None if prefix_len(&key) == key.len() && self.bounds.begin_keyspace() => self.seek_front(&key),
            None => walk!(&mut self.walk, c => c.seek(&key)),
        };
        let from = self.source.reads.as_ref().map(|_| key.to_vec());
        self.moved(moved, Move::Up(from))
    }

    /// Moves to the first key of the keyspace. No key of it is below `from`.
    fn seek_front(&mut self, from: &[u8]) -> Result<()> {
        walk!(&mut self.walk, c => c.seek(from))?;
        note_first(&self.source, &self.walk, &self.bounds);
        Ok(())
    }

    /// Moves to the last key `< key`.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn seek_before(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = encode_key(self.keyspace, key.as_ref());
        let moved = walk!(&mut self.walk, c => c.seek_before(&key));
        self.moved(moved, Move::Down(Some(key)))
    }

    /// Moves to the first key.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn seek_first(&mut self) -> Result<bool> {
        let moved = match self.source.first_possible().filter(|_| self.bounds.begin_keyspace()) {
            Some(first) => self.seek_front(&first),
            None => walk!(&mut self.walk, c => c.seek_first()),
        };
        self.moved(moved, Move::Up(None))
    }

    /// Moves to the last key.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn seek_last(&mut self) -> Result<bool> {
        let moved = walk!(&mut self.walk, c => c.seek_last());
        self.moved(moved, Move::Down(None))
    }

    /// Moves to the next key. After the last key the cursor is not valid. A new cursor moves to the first
    /// key. A cursor that is not valid stays so.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    #[expect(
        clippy::should_implement_trait,
        reason = "the field's name for it; an iterator is made by range()"
    )]
    pub fn next(&mut self) -> Result<bool> {
        if self.is_new {
            return self.seek_first();
        }
        if !self.valid() {
            return Ok(false);
        }
        let from = self.read_key();
        let moved = walk!(&mut self.walk, c => c.next());
        self.moved(moved, Move::Up(from))
    }

    /// Moves to the previous key. Before the first key the cursor is not valid. A new cursor moves to the
    /// last key. A cursor that is not valid stays so.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek).
    pub fn prev(&mut self) -> Result<bool> {
        if self.is_new {
            return self.seek_last();
        }
        if !self.valid() {
            return Ok(false);
        }
        let from = self.read_key();
        let moved = walk!(&mut self.walk, c => c.prev());
        self.moved(moved, Move::Down(from))
    }

    /// Returns whether the cursor stands on a key.
    pub fn valid(&self) -> bool {
        self.walk.valid()
    }

    /// Returns the current key and value without moving. `None` if the cursor is not valid.
    ///
    /// # Errors
    /// Those of [`value`](Self::value).
    pub fn peek(&self) -> Result<Option<(&[u8], &[u8])>> {
        if !self.valid() {
            return Ok(None);
        }
        Ok(Some((self.key(), self.value()?)))
    }

    /// Returns the current key.
    ///
    /// # Panics
    /// If the cursor is not valid.
    pub fn key(&self) -> &[u8] {
        match &self.walk {
            Walk::Run(walk) => walk.key(),
            Walk::Plain(walk) => user_key(walk.key()),
            Walk::Own(walk) => user_key(walk.key()),
        }
    }

    /// Returns the current value.
    ///
    /// # Errors
    /// Those of [`seek`](Self::seek), if the value is not stored next to its key.
    ///
    /// # Panics
    /// If the cursor is not valid.
    pub fn value(&self) -> Result<&[u8]> {
        if let Some(value) = walk!(&self.walk, c => c.value_bytes()) {
            return Ok(value);
        }
        match self.fetched.get() {
            Some(value) => Ok(value),
            None => {
                let value = self.value_handle()?;
                Ok(self.fetched.get_or_init(|| value))
            }
        }
    }

    /// Returns the current value as a handle that outlives the cursor.
    ///
    /// # Errors
    /// Those of [`value`](Self::value).
    ///
    /// # Panics
    /// If the cursor is not valid.
    pub fn value_handle(&self) -> Result<Value> {
        walk!(&self.walk, c => c.value())
    }
}
