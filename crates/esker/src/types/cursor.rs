//! The interface of cursors over a sorted source (a memtable, a table, a run of tables) or several merged
//! ones.

use std::ops::Bound;

use super::bounds::BoundKey;
use super::expiry::Expiry;
use super::op::Kind;
use super::stored::Stored;
use super::{Result, SeqNo, Value};

/// A position in a sorted source, as seen by a reader at one sequence number.
///
/// A cursor stands on distinct keys. It shows the newest version of each key that is not newer than the
/// reader's sequence number, until `older` is called. Keys without such a version are skipped. Removals are
/// shown (`kind`), because the resolver above needs them. A new cursor is not valid; seek it first. `next`
/// and `prev` need a valid position.
pub trait SourceCursor {
    /// Moves to the first key `>= key`.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the last key `< key`.
    fn seek_before(&mut self, key: &[u8]) -> Result<()>;
    /// Moves to the first key.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the last key.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves to the next key; not valid after the last.
    fn next(&mut self) -> Result<()>;
    /// Moves to the previous key; not valid before the first.
    fn prev(&mut self) -> Result<()>;
    /// Returns whether the cursor stands on a key.
    fn valid(&self) -> bool;
    /// The key. Panics if not valid.
    fn key(&self) -> &[u8];
    /// The version's sequence number. Panics if not valid.
    fn seq(&self) -> SeqNo;
    /// What the version says about the key. Panics if not valid.
    fn kind(&self) -> Kind;
    /// When the version expires, if it does. Panics if not valid.
    fn expiry(&self) -> Option<Expiry>;
    /// The stored value; empty if the kind has none. Panics if not valid.
    fn stored(&self) -> Stored<&[u8]>;
    /// The stored value as a handle that outlives the cursor. Panics if not valid.
    fn share(&self) -> Stored<Value>;
    /// The stored value that is a number of keys ahead in the same block or leaf. It is a hint: the walk may
    /// show another one there.
    fn stored_ahead(&self, _keys: usize) -> Option<Stored<&[u8]>> {
        None
    }
    /// Moves to the next older version of the same key. Returns false, without moving, if there is none.
    /// `next` and `prev` move to other keys from any version. Panics if not valid.
    fn older(&mut self) -> Result<bool>;
    /// Returns how many next keys a merging cursor can return without checking other sources. For these keys:
    ///
    /// - The block has only plain values, visible to the reader.
    /// - The keys lie below `rival`, the next key of other sources.
    /// - The keys lie inside `upper`.
    ///
    /// Zero if the source cannot tell. Panics if not valid.
    fn plain_before(&self, _rival: Option<&[u8]>, _upper: &Bound<BoundKey>) -> usize {
        0
    }
    /// Moves to the next key, which `plain_before` has counted.
    fn step(&mut self) {
        unreachable!("plain_before has counted no key");
    }
}

/// Implements `SourceCursor` for an enum of cursors by delegating to the variant.
macro_rules! delegate_cursor {
    ([$($generics:tt)*] $type:ty { $($variant:path),* }) => {
        impl<$($generics)*> $crate::types::cursor::SourceCursor for $type {
            #[inline]
            fn seek(&mut self, key: &[u8]) -> $crate::types::Result<()> {
                match self { $($variant(cursor) => cursor.seek(key)),* }
            }
            #[inline]
            fn seek_before(&mut self, key: &[u8]) -> $crate::types::Result<()> {
                match self { $($variant(cursor) => cursor.seek_before(key)),* }
            }
            fn seek_first(&mut self) -> $crate::types::Result<()> {
                match self { $($variant(cursor) => cursor.seek_first()),* }
            }
            fn seek_last(&mut self) -> $crate::types::Result<()> {
                match self { $($variant(cursor) => cursor.seek_last()),* }
            }
            #[inline]
            fn next(&mut self) -> $crate::types::Result<()> {
                match self { $($variant(cursor) => cursor.next()),* }
            }
            #[inline]
            fn prev(&mut self) -> $crate::types::Result<()> {
                match self { $($variant(cursor) => cursor.prev()),* }
            }
            #[inline]
            fn valid(&self) -> bool {
                match self { $($variant(cursor) => cursor.valid()),* }
            }
            #[inline]
            fn key(&self) -> &[u8] {
                match self { $($variant(cursor) => cursor.key()),* }
            }
            #[inline]
            fn seq(&self) -> $crate::types::SeqNo {
                match self { $($variant(cursor) => cursor.seq()),* }
            }
            #[inline]
            fn kind(&self) -> $crate::types::op::Kind {
                match self { $($variant(cursor) => cursor.kind()),* }
            }
            #[inline]
            fn stored(&self) -> $crate::types::stored::Stored<&[u8]> {
                match self { $($variant(cursor) => cursor.stored()),* }
            }
            #[inline]
            fn expiry(&self) -> Option<$crate::types::expiry::Expiry> {
                match self { $($variant(cursor) => cursor.expiry()),* }
            }
            #[inline]
            fn share(&self) -> $crate::types::stored::Stored<$crate::types::Value> {
                match self { $($variant(cursor) => cursor.share()),* }
            }
            fn stored_ahead(&self, keys: usize) -> Option<$crate::types::stored::Stored<&[u8]>> {
                match self { $($variant(cursor) => cursor.stored_ahead(keys)),* }
            }
            fn older(&mut self) -> $crate::types::Result<bool> {
                match self { $($variant(cursor) => cursor.older()),* }
            }
            fn plain_before(
                &self,
                rival: Option<&[u8]>,
                upper: &std::ops::Bound<$crate::types::bounds::BoundKey>,
            ) -> usize {
                match self { $($variant(cursor) => cursor.plain_before(rival, upper)),* }
            }
            #[inline]
            fn step(&mut self) {
                match self { $($variant(cursor) => cursor.step()),* }
            }
        }
    };
}
pub(crate) use delegate_cursor;
