//! A piece: an immutable, sorted and packed part of the writes of a large transaction.
//!
//! ```text
//!   full write set --sorted--> [key value][key value]...   in key order, read sequentially
//!                              op op op ...                start offset of each entry
//! ```
//!
//! A piece holds at most one op per key. Its range removals precede its ops: they hide only entries of older
//! pieces.

use std::sync::Arc;

use esker_env::PageBuf;

use crate::types::cursor::SourceCursor;
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::key::head8;
use crate::types::key_range::{End, KeyRange};
use crate::types::op::Kind;
use crate::types::stored::Stored;
use crate::types::{Result, SeqNo, Value};

/// Immutable sorted writes.
pub(crate) struct Piece {
    bytes: PageBuf,
    /// Bytes used at the start of `bytes`.
    byte_len: usize,
    ops: Vec<Op>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A write of one key. The value is stored after the key.
#[derive(Clone, Copy)]
struct Op {
    start: usize,
    key_len: u32,
    kind: Kind,
}

impl Piece {
    /// Builds a piece from at most `count` sorted entries, whose keys and values take at most `byte_len`
    /// bytes, and from range removals.
    pub(crate) fn new<'e>(
        entries: impl Iterator<Item = EntryRef<'e>>,
        (count, byte_len): (usize, usize),
        ranges: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Self {
        let (mut bytes, mut ops) = (PageBuf::new(byte_len), Vec::with_capacity(count));
        let mut at = 0;
        for entry in entries {
            ops.push(Op { start: at, key_len: entry.key.len() as u32, kind: entry.kind });
            for part in [entry.key, entry.value] {
                bytes[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
        }
        Piece { bytes, byte_len: at, ops, ranges }
    }

    /// Bytes of memory used by a piece of `count` ops with `byte_len` bytes of keys and values.
    pub(crate) fn memory_bytes_of(count: usize, byte_len: usize) -> u64 {
        (byte_len + count * size_of::<Op>()) as u64
    }

    /// Number of ops, one per key.
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// Range removals, as pairs of encoded keys: start (included) and end (excluded).
    pub(crate) fn ranges(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.ranges
    }

    /// Returns the smallest range that covers all keys and removed ranges. `None` if the piece is empty.
    pub(crate) fn range(&self) -> Option<KeyRange> {
        let last = self.len().checked_sub(1);
        let keys = last.map(|last| KeyRange {
            start: self.key(0).to_vec(),
            end: End::Included(self.key(last).to_vec()),
        });
        let removed = self
            .ranges
            .iter()
            .map(|(start, end)| KeyRange { start: start.clone(), end: End::Excluded(end.clone()) });
        keys.into_iter().chain(removed).reduce(|mut all, range| {
            all.extend(&range);
            all
        })
    }

    #[inline]
    fn key(&self, i: usize) -> &[u8] {
        let op = &self.ops[i];
        &self.bytes[op.start..][..op.key_len as usize]
    }

    #[inline]
    fn entry(&self, i: usize, seq: SeqNo) -> EntryRef<'_> {
        let op = &self.ops[i];
        let end = self.ops.get(i + 1).map_or(self.byte_len, |next| next.start);
        let (key, value) = self.bytes[op.start..end].split_at(op.key_len as usize);
        EntryRef { key, seq, kind: op.kind, value }
    }

    /// Returns the number of ops with a key below `key`.
    fn rank(&self, key: &[u8]) -> usize {
        let head = head8(key);
        let before = |i: usize| head8(self.key(i)).cmp(&head).then_with(|| self.key(i).cmp(key)).is_lt();
        let (mut low, mut high) = (0, self.ops.len());
        while low < high {
            let middle = low.midpoint(high);
            if before(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Returns the keys that divide the piece into `parts` parts with equal numbers of ops.
    pub(crate) fn cuts(&self, parts: usize) -> impl Iterator<Item = &[u8]> {
        let at = move |part: usize| (self.len() * part / parts).min(self.len().saturating_sub(1));
        let parts = if self.len() == 0 { 0 } else { parts };
        (1..parts).map(move |part| self.key(at(part)))
    }

    /// Returns the op for a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let at = self.rank(key);
        (at < self.len() && self.key(at) == key).then(|| self.entry(at, SeqNo::ZERO))
    }
}

/// Iterates over the ops of a piece in key order.
pub(crate) struct PieceScan {
    piece: Arc<Piece>,
    seq: SeqNo,
    /// Index of the op after the current one.
    next: usize,
    end: usize,
}

impl PieceScan {
    /// Creates a scan of the keys in `start..end`, positioned before its first op. Entries are returned with
    /// sequence number `seq`.
    pub(crate) fn new(piece: Arc<Piece>, seq: SeqNo, start: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        let next = start.map_or(0, |start| piece.rank(start));
        let end = end.map_or(piece.len(), |end| piece.rank(end));
        PieceScan { piece, seq, next, end }
    }

    /// Moves to the next op. Returns false at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> bool {
        self.next += 1;
        self.next <= self.end
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.piece.key(self.next - 1)
    }

    #[inline]
    pub(crate) fn current(&self) -> EntryRef<'_> {
        self.piece.entry(self.next - 1, self.seq)
    }
}

/// A cursor over the ops of a piece.
pub(crate) struct PieceCursor {
    piece: Arc<Piece>,
    seq: SeqNo,
    /// Index of the current op; past the end if the cursor is not valid.
    at: usize,
}

impl PieceCursor {
    /// Creates a cursor without a position. Entries are returned with sequence number `seq`.
    pub(crate) fn new(piece: Arc<Piece>, seq: SeqNo) -> Self {
        PieceCursor { piece, seq, at: usize::MAX }
    }

    fn go(&mut self, at: Option<usize>) -> Result<()> {
        self.at = at.unwrap_or(usize::MAX);
        Ok(())
    }

    fn entry(&self) -> EntryRef<'_> {
        self.piece.entry(self.at, self.seq)
    }
}

impl SourceCursor for PieceCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.go(Some(self.piece.rank(key)))
    }
    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.go(self.piece.rank(key).checked_sub(1))
    }
    fn seek_first(&mut self) -> Result<()> {
        self.go(Some(0))
    }
    fn seek_last(&mut self) -> Result<()> {
        self.go(self.piece.len().checked_sub(1))
    }
    fn next(&mut self) -> Result<()> {
        self.go(Some(self.at + 1))
    }
    fn prev(&mut self) -> Result<()> {
        self.go(self.at.checked_sub(1))
    }
    fn valid(&self) -> bool {
        self.at < self.piece.len()
    }
    fn key(&self) -> &[u8] {
        self.piece.key(self.at)
    }
    fn seq(&self) -> SeqNo {
        self.seq
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
        // A piece holds one version per key.
        Ok(false)
    }
}
