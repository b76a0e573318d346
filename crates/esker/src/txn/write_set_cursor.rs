//! A cursor over the writes of a transaction, above all other data.

use std::sync::Arc;

use super::write_set::WriteSet;
use crate::types::cursor::SourceCursor;
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// A cursor over a write set. Its entries are newer than any commit.
pub struct WriteSetCursor {
    set: Arc<WriteSet>,
    /// Index of the op in key order; past the end if not valid.
    at: usize,
    /// Number of that op.
    op: Option<u32>,
    /// Whether the cursor is on the entry that the operands of that op follow.
    is_below: bool,
}

impl WriteSetCursor {
    /// Creates a cursor over the current writes.
    pub fn new(set: Arc<WriteSet>) -> Self {
        WriteSetCursor { set, at: usize::MAX, op: None, is_below: false }
    }

    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.op = at.and_then(|at| self.set.nth(at));
        (self.at, self.is_below) = (at.unwrap_or(usize::MAX), false);
        Ok(())
    }

    fn entry(&self) -> EntryRef<'_> {
        let op = self.op.expect("the cursor is valid");
        let below = if self.is_below { self.set.base_of(op, SeqNo::MAX) } else { None };
        below.unwrap_or_else(|| self.set.entry_at(op, SeqNo::MAX))
    }
}

impl SourceCursor for WriteSetCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.go(Some(self.set.rank(key)))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.go(self.set.rank(key).checked_sub(1))
    }
    fn seek_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }
    fn seek_last(&mut self) -> Result<()> {
        self.go(self.set.key_count().checked_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        self.go(self.at.checked_add(1))
    }
    fn prev(&mut self) -> Result<()> {
        self.go(self.at.checked_sub(1))
    }
    fn valid(&self) -> bool {
        self.op.is_some()
    }
    fn key(&self) -> &[u8] {
        self.entry().key
    }
    fn seq(&self) -> SeqNo {
        SeqNo::MAX
    }
    fn kind(&self) -> Kind {
        self.entry().kind
    }
    fn stored(&self) -> Stored<&[u8]> {
        let entry = self.entry();
        Stored::of(entry.kind, entry.value)
    }
    fn expiry(&self) -> Option<Expiry> {
        let entry = self.entry();
        Expiry::of_version(entry.kind, entry.value)
    }
    fn share(&self) -> Stored<Value> {
        self.stored().to_value()
    }
    fn older(&mut self) -> Result<bool> {
        // A key has one op, and possibly an entry that its operands follow.
        let has_below =
            !self.is_below && self.op.is_some_and(|op| self.set.base_of(op, SeqNo::MAX).is_some());
        self.is_below |= has_below;
        Ok(has_below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_in_key_order_both_ways() {
        let mut set = WriteSet::new();
        for key in [b"\x01c", b"\x01a", b"\x01b"] {
            set.put(key, &key[1..]);
        }
        set.remove(b"\x01b");
        let mut cursor = WriteSetCursor::new(Arc::new(set));
        let mut seen = Vec::new();
        cursor.seek_first().unwrap();
        while cursor.valid() {
            seen.push((cursor.key()[1], cursor.kind()));
            cursor.next().unwrap();
        }
        assert_eq!(seen, [(b'a', Kind::PUT), (b'b', Kind::REMOVE), (b'c', Kind::PUT)]);
        cursor.seek_before(b"\x01b").unwrap();
        assert_eq!((cursor.key(), cursor.share().beside()), (&b"\x01a"[..], Value::copy_of(b"a")));
        cursor.prev().unwrap();
        assert!(!cursor.valid());
    }
}
