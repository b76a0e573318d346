//! How a reader walks one sorted source (a memtable, a table, a run of tables), or several merged.

use super::op::Kind;
use super::stored::Stored;
use super::{Result, SeqNo, Value};

/// A position in a sorted source, as seen by a reader at one sequence number.
///
/// A cursor stands on distinct keys: for each key, on its newest version not newer than the reader's sequence
/// number, until `older` is called; keys without such a version are passed over. Removals are shown (`kind`): the resolver above
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
    /// What the version says about the key. Panics if not valid.
    fn kind(&self) -> Kind;
    /// The value as it is stored, empty if the kind has none. Panics if not valid.
    fn stored(&self) -> Stored<&[u8]>;
    /// The same as a handle that outlives the cursor. Panics if not valid.
    fn share(&self) -> Stored<Value>;
    /// Moves to the next older version of the same key; false if there is none, and then the cursor stands where it stood. `next` and
    /// `prev` go on to other keys from any version. Panics if not valid.
    fn older(&mut self) -> Result<bool>;
}
