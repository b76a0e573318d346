//! How a reader walks one sorted source (a memtable, a table, a run of tables), or several merged.

use super::op::Kind;
use super::{Result, SeqNo, Value};

/// A position in a sorted source, as seen by a reader at one sequence number.
///
/// A cursor stands on distinct keys: for each key, on its newest version not newer than the reader's sequence
/// number; keys without such a version are passed over. Tombstones are shown (`kind`): the merging cursor above
/// needs them. A new cursor is not valid; seek it first. `next` and `prev` need a valid position.
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
    /// Whether the cursor stands on a key.
    fn valid(&self) -> bool;
    /// The key. Panics if not valid.
    fn key(&self) -> &[u8];
    /// The version's sequence number. Panics if not valid.
    fn seq(&self) -> SeqNo;
    /// Put or tombstone. Panics if not valid.
    fn kind(&self) -> Kind;
    /// The value, empty for a tombstone. Panics if not valid.
    fn value(&self) -> &[u8];
    /// The value as a handle that outlives the cursor. Panics if not valid.
    fn value_handle(&self) -> Value;
}
