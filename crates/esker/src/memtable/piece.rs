//! A piece of a large transaction's writes: sorted, packed, and never changed again.
//!
//! ```text
//!   write set, full --sorted--> [key value][key value]...   in key order, so that walks and merges read memory from front to back
//!                               op op op ...                where each begins
//! ```
//!
//! piece.1. One op a key, in key order. The piece's range removals come before its ops: they hide only what is in older pieces.

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

/// Sorted writes.
pub(crate) struct Piece {
    bytes: PageBuf,
    /// Those in use.
    byte_len: usize,
    ops: Vec<Op>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Where a key begins, behind which its value stands.
#[derive(Clone, Copy)]
struct Op {
    start: usize,
    key_len: u32,
    kind: Kind,
}

impl Piece {
    /// A piece of these entries, which are at most `count` and take at most `byte_len` bytes, keys and values; and of range removals (piece.1).
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

    /// Bytes of memory that a piece takes with so many ops of so many bytes.
    pub(crate) fn memory_bytes_of(count: usize, byte_len: usize) -> u64 {
        (byte_len + count * size_of::<Op>()) as u64
    }

    /// The number of keys that it has ops for.
    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    /// The range removals, as encoded keys (first removed, first not removed).
    pub(crate) fn ranges(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.ranges
    }

    /// From the first key to the last one, removed ranges included; none if it is empty.
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

    /// The number of ops with a key below `key`.
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

    /// The keys that cut it into so many parts of equal length.
    pub(crate) fn cuts(&self, parts: usize) -> impl Iterator<Item = &[u8]> {
        let at = move |part: usize| (self.len() * part / parts).min(self.len().saturating_sub(1));
        let parts = if self.len() == 0 { 0 } else { parts };
        (1..parts).map(move |part| self.key(at(part)))
    }

    /// The op of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let at = self.rank(key);
        (at < self.len() && self.key(at) == key).then(|| self.entry(at, SeqNo::ZERO))
    }
}

/// Ops in order.
pub(crate) struct PieceScan {
    piece: Arc<Piece>,
    seq: SeqNo,
    /// The op behind the one at hand.
    next: usize,
    end: usize,
}

impl PieceScan {
    /// Before the first op whose key is not below `start`, if there is one; up to the last one below `end`. Entries have this number.
    pub(crate) fn new(piece: Arc<Piece>, seq: SeqNo, start: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        let next = start.map_or(0, |start| piece.rank(start));
        let end = end.map_or(piece.len(), |end| piece.rank(end));
        PieceScan { piece, seq, next, end }
    }

    /// Moves on; false after the last.
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

/// A position in a piece.
pub(crate) struct PieceCursor {
    piece: Arc<Piece>,
    seq: SeqNo,
    /// Past the end if not valid.
    at: usize,
}

impl PieceCursor {
    /// Nowhere yet. Entries have this number.
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
        // piece.1
        Ok(false)
    }
}
