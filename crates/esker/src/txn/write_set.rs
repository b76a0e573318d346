//! The writes of one commit, encoded as in their WAL record.
//!
//! ```text
//!   put, remove, delete_range --> ops: [op][op][op]...      appended in call order; stored in the WAL
//!   first read of own writes  --> index: key -> last op     extended by later reads
//!   commit, first iteration   --> sorted: the op of each key, by key    extended by later iterations
//! ```
//!
//! Bytes of an op: docs/formats/wal.md, "Commit payload".
//!
//! write_set.1. Only the last op of each key counts; a range removal cancels earlier ops inside it. Within a
//!     commit, the range removals therefore logically precede one op for each key.
//!
//! Decoding a payload replays its ops in order and yields the same state.
//!
//! write_set.5. A set knows whether decoding would refuse one of its ops. Committing such a set would make
//!     the database unopenable.
//!
//! - Operands are written without checking what the set holds for their key. Lists of consecutive
//!   operands are joined. If operands follow a put or a removal, readers of the set fold them with it.
//!   Before the set is committed or becomes a layer, a put replaces both (db/writes.rs). A commit therefore
//!   has either operands or another op for a key. So has a large one, whose layers are merged where it is
//!   needed (`Layers::merges_across`).
//!
//! Writing needs no lookups: a bulk load sorts once, when it commits. Decoding an owned log record does not
//! copy it, so replaying a commit needs no more memory than the commit did.

use parking_lot::Mutex;

use self::codec::{RANGE_END_BYTES_MAX, RANGE_START_BYTES_MAX, is_key};
use self::extent::KeyExtent;
use self::found::Found;
use self::index::Index;
use self::order::Sorted;
use crate::encoding::bytes::{put_string, put_varint};
use crate::encoding::operand::{Elements, Operand};
use crate::read::fold;
use crate::read::operators::Operator;
use crate::read::resolve::{Answer, Resolver};
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::key::head8;
use crate::types::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::types::op::Kind;
use crate::types::{KeyspaceId, SeqNo, key};

/// Ops are numbered with 32 bits.
const OPS_MAX: usize = u32::MAX as usize;

/// Up to this many ops, the last op of a key is found by a backward scan; above, by hash.
const LINEAR_OPS_MAX: usize = 8;

/// Memory that the first op reserves, so that a set does not grow with each of its first ops.
const FIRST_OPS: usize = 16;
const FIRST_BYTES: usize = 1000;

#[derive(Clone, Copy, Debug)]
struct Op {
    /// `head8` of the key.
    head: u64,
    key_start: usize,
    value_start: usize,
    key_len: u32,
    value_len: u32,
    kind: Kind,
    /// False if cancelled by a range removal (write_set.1).
    live: bool,
}

/// A set of writes; see the module documentation.
#[derive(Debug, Default)]
pub struct WriteSet {
    /// The encoded ops, after the header of the record from which they were decoded.
    bytes: Vec<u8>,
    header_len: usize,
    ops: Vec<Op>,
    live: usize,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// Ops cancelled by range removals, in the order of cancellation.
    cancelled: Vec<u32>,
    /// Up to the last range removal.
    extent: KeyExtent,
    /// Whether decoding would refuse an op (write_set.5).
    has_refused: bool,
    has_puts: bool,
    /// Length of the longest value put.
    largest_value: usize,
    /// Whether an op has operands.
    has_operands: bool,
    sorted: Sorted,
    index: Mutex<Index>,
    found: Found,
}

/// A point in time of a write set, for rolling back.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    bytes: usize,
    ops: usize,
    live: usize,
    ranges: usize,
    cancelled: usize,
    has_refused: bool,
    has_puts: bool,
    largest_value: usize,
}

/// What a write set knows about a key.
#[derive(Debug, PartialEq, Eq)]
pub enum Own<'a> {
    /// The key has the value of this entry, if it has not expired.
    Put(EntryRef<'a>),
    /// The key is removed, singly or in a range.
    Removed,
    /// These lists of operands, newest first, apply to what is below them.
    Operands(Vec<&'a [u8]>, Below<'a>),
    /// Nothing.
    Untouched,
}

/// What a write set knows about a key below its operands.
#[derive(Debug, PartialEq, Eq)]
pub enum Below<'a> {
    /// The key has the value of this entry.
    Put(EntryRef<'a>),
    /// The key is removed, singly or in a range.
    Removed,
    /// Nothing: the committed state counts.
    Untouched,
}

impl Mark {
    /// Number of ops at that point.
    pub fn op_count(&self) -> usize {
        self.ops
    }
}

impl Clone for WriteSet {
    fn clone(&self) -> Self {
        WriteSet {
            bytes: self.bytes.clone(),
            header_len: self.header_len,
            ops: self.ops.clone(),
            live: self.live,
            ranges: self.ranges.clone(),
            cancelled: self.cancelled.clone(),
            extent: self.extent.clone(),
            has_refused: self.has_refused,
            has_puts: self.has_puts,
            largest_value: self.largest_value,
            has_operands: self.has_operands,
            sorted: self.sorted.clone(),
            index: Mutex::new(self.index.lock().clone()),
            found: self.found.clone(),
        }
    }
}

impl WriteSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.live == 0 && self.ranges.is_empty()
    }

    /// Number of puts and removals, including repeated ones, without those cancelled by a range removal.
    pub fn op_count(&self) -> usize {
        self.live
    }

    /// Returns whether another put or removal fits.
    pub fn has_room(&self) -> bool {
        self.ops.len() < OPS_MAX
    }

    /// Returns whether decoding accepts every op (write_set.5).
    pub fn is_decodable(&self) -> bool {
        !self.has_refused
    }

    /// Returns whether the set may contain operands, so that applying it twice differs from applying it once.
    pub fn has_operands(&self) -> bool {
        self.has_operands
    }

    /// Returns whether the set never contained a put.
    pub fn removes_only(&self) -> bool {
        !self.has_puts
    }

    /// Sorts the ops now instead of at the first use of their order.
    pub fn sort(&self) {
        self.order();
    }

    /// Number of keys put or removed, without range removals. Sorts the ops.
    pub fn key_count(&self) -> usize {
        self.order().ops.len()
    }

    /// Bytes of memory used by the ops.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.ops.len() * size_of::<Op>() + self.found.memory_bytes()
    }

    /// Removes all writes and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.header_len = 0;
        self.ops.clear();
        self.live = 0;
        self.ranges.clear();
        self.cancelled.clear();
        self.extent = KeyExtent::default();
        self.has_refused = false;
        self.has_puts = false;
        self.largest_value = 0;
        self.has_operands = false;
        self.sorted.clear();
        self.index.get_mut().clear();
        self.found.clear();
    }

    /// Returns the current point, for [`go_back`](Self::go_back).
    pub fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            ops: self.ops.len(),
            live: self.live,
            ranges: self.ranges.len(),
            cancelled: self.cancelled.len(),
            has_refused: self.has_refused,
            has_puts: self.has_puts,
            largest_value: self.largest_value,
        }
    }

    /// Undoes all writes since a point. The cost depends only on those writes.
    pub fn go_back(&mut self, mark: &Mark) {
        let mut index = std::mem::take(self.index.get_mut());
        index.go_back(mark.ops, |at| self.key_at(at));
        self.found.go_back(mark.ops);
        let restored = self.cancelled.split_off(mark.cancelled);
        restored.iter().for_each(|at| self.ops[*at as usize].live = true);
        self.undo_order(mark.ops, &restored, &mut index);
        *self.index.get_mut() = index;
        self.bytes.truncate(mark.bytes);
        self.ops.truncate(mark.ops);
        self.extent.go_back(mark.ops);
        self.ranges.truncate(mark.ranges);
        self.live = mark.live;
        (self.has_refused, self.has_puts) = (mark.has_refused, mark.has_puts);
        self.largest_value = mark.largest_value;
    }

    /// Iterates over the keys put or removed since a point.
    pub(crate) fn keys_since(&self, mark: &Mark) -> impl Iterator<Item = &[u8]> {
        self.ops[mark.ops..].iter().map(|op| self.key_of(op))
    }

    /// Returns the ranges removed since a point.
    pub(crate) fn ranges_since(&self, mark: &Mark) -> &[(Vec<u8>, Vec<u8>)] {
        &self.ranges[mark.ranges..]
    }

    /// Bytes of the encoded ops.
    pub fn byte_len(&self) -> usize {
        self.bytes.len() - self.header_len
    }

    /// Returns the encoded ops.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.header_len..]
    }

    /// Length of the longest value put.
    pub fn largest_value(&self) -> usize {
        self.largest_value
    }

    /// Puts an encoded key with an optional expiry. With `Kind::PUT_BLOB`, `value` is a pointer.
    pub(crate) fn put_until(&mut self, kind: Kind, key: &[u8], expiry: Option<Expiry>, value: &[u8]) {
        match expiry {
            Some(expiry) => self.push_behind(kind.expiring(), key, &expiry.to_bytes(), value),
            None => self.push(kind, key, value),
        }
    }

    /// Puts an encoded key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.push(Kind::PUT, key, value);
    }

    /// Merges an operand into an encoded key. May change an op after the first `kept` ones
    /// instead of adding one.
    pub(crate) fn merge(&mut self, key: &[u8], operand: Operand<'_>, operator: &Operator, kept: usize) {
        let last = self.find(key).filter(|at| *at >= kept).map(|at| (at, self.ops[at]));
        if let Some((at, op)) = last.filter(|(_, op)| op.live && op.kind.is_operand())
            && let Some(list) = combined(self.value_of(&op), operand, key, operator)
            && list.len() == op.value_len as usize
        {
            self.bytes[op.value_start..][..list.len()].copy_from_slice(&list);
            self.note_changed(at);
            return;
        }
        self.push(Kind::MERGE, key, &operand.to_list());
    }

    /// Adds an op of any kind for an encoded key.
    pub(crate) fn write(&mut self, kind: Kind, key: &[u8], value: &[u8]) {
        self.push(kind, key, value);
    }

    /// Removes an encoded key.
    pub fn remove(&mut self, key: &[u8]) {
        self.push(Kind::REMOVE, key, &[]);
    }

    /// Removes all encoded keys from `start` (included) to `end` (excluded). Visits all earlier ops.
    pub fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        if start >= end {
            return;
        }
        self.has_refused |= !is_key(start, RANGE_START_BYTES_MAX) || end.len() > RANGE_END_BYTES_MAX;
        self.bytes.push(Kind::REMOVE_RANGE.to_u8());
        put_string(&mut self.bytes, start);
        put_string(&mut self.bytes, end);
        let bytes = std::mem::take(&mut self.bytes);
        let cancelled = self.cancelled.len();
        self.note_range(&bytes, start, end);
        self.bytes = bytes;
        if self.cancelled.len() > cancelled {
            self.note_cancelled(start, end);
        }
    }

    /// Records a range removal and cancels earlier ops inside it, whose keys are in `bytes` (write_set.1).
    fn note_range(&mut self, bytes: &[u8], start: &[u8], end: &[u8]) {
        let ops =
            if self.extent.may_hold(&self.ops, bytes, start, end) { &mut self.ops[..] } else { &mut [] };
        for (at, op) in ops.iter_mut().enumerate() {
            let key = &bytes[op.key_start..][..op.key_len as usize];
            if op.live && start <= key && key < end {
                op.live = false;
                self.live -= 1;
                self.cancelled.push(at as u32);
            }
        }
        self.ranges.push((start.to_vec(), end.to_vec()));
    }

    /// Adds an op for an encoded key: a put with its value, or a removal.
    pub(super) fn push(&mut self, kind: Kind, key: &[u8], value: &[u8]) {
        self.push_behind(kind, key, &[], value);
    }

    /// Like `push`, with the value in two parts.
    fn push_behind(&mut self, kind: Kind, key: &[u8], front: &[u8], value: &[u8]) {
        let value_len = front.len() + value.len();
        self.has_refused |= !is_key(key, KEY_BYTES_MAX) || value_len > VALUE_BYTES_MAX;
        if !kind.needs_fetch() {
            self.largest_value = self.largest_value.max(value_len);
        }
        if self.ops.capacity() == 0 {
            self.ops.reserve(FIRST_OPS);
            self.bytes.reserve(FIRST_BYTES);
        }
        self.bytes.reserve(key.len() + value_len + 12);
        self.bytes.push(kind.to_u8());
        put_varint(&mut self.bytes, key.len() as u64);
        let key_start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        if kind.has_value() {
            put_varint(&mut self.bytes, value_len as u64);
        }
        let value_start = self.bytes.len();
        self.bytes.extend_from_slice(front);
        self.bytes.extend_from_slice(value);
        self.note(kind, (key_start, key), (value_start, value_len));
    }

    /// Records an op whose key and value start at these offsets of the encoded bytes.
    fn note(
        &mut self,
        kind: Kind,
        (key_start, key): (usize, &[u8]),
        (value_start, value_len): (usize, usize),
    ) {
        debug_assert!(kind.is_point(), "write_set.1");
        let (key_len, value_len) = (key.len() as u32, value_len as u32);
        self.found.add(self.ops.len(), kind, key);
        self.ops.push(Op { head: head8(key), key_start, value_start, key_len, value_len, kind, live: true });
        self.live += 1;
        self.has_puts |= kind.is_live();
        self.has_operands |= kind.is_operand();
        self.sorted.note_change();
    }

    fn key_of(&self, op: &Op) -> &[u8] {
        &self.bytes[op.key_start..][..op.key_len as usize]
    }

    fn key_at(&self, i: u32) -> &[u8] {
        self.key_of(&self.ops[i as usize])
    }

    fn value_of(&self, op: &Op) -> &[u8] {
        &self.bytes[op.value_start..][..op.value_len as usize]
    }

    fn entry_of(&self, op: &Op, seq: SeqNo) -> EntryRef<'_> {
        EntryRef { key: self.key_of(op), seq, kind: op.kind, value: self.value_of(op) }
    }

    /// Returns the last op of a key, cancelled or not.
    fn find(&self, key: &[u8]) -> Option<usize> {
        if self.ops.len() <= LINEAR_OPS_MAX {
            return self.ops.iter().rposition(|op| self.key_of(op) == key);
        }
        let mut index = self.index.lock();
        index.grow(self.ops.len(), |at| self.key_at(at));
        index.last(key, |at| self.key_at(at))
    }

    /// Collects the operands of a key from its last op backward, and what they apply to.
    fn operands(&self, key: &[u8], last: usize) -> Own<'_> {
        let is_linear = self.ops.len() <= LINEAR_OPS_MAX;
        let index = self.index.lock();
        let before = |at: usize| match is_linear {
            true => self.ops[..at].iter().rposition(|op| self.key_of(op) == key),
            false => index.before(at),
        };
        let mut lists = vec![self.value_of(&self.ops[last])];
        let mut at = last;
        while let Some(earlier) = before(at).filter(|earlier| self.ops[*earlier].live) {
            let op = &self.ops[earlier];
            if !op.kind.is_operand() {
                let put = op.kind.is_live().then(|| Below::Put(self.entry_of(op, SeqNo::MAX)));
                return Own::Operands(lists, put.unwrap_or(Below::Removed));
            }
            lists.push(self.value_of(op));
            at = earlier;
        }
        let is_removed = self.in_removed_range(key);
        Own::Operands(lists, if is_removed { Below::Removed } else { Below::Untouched })
    }

    /// Returns what the set knows about an encoded key.
    pub fn get(&self, key: &[u8]) -> Own<'_> {
        let found = self.find(key).map(|at| (at, &self.ops[at])).filter(|(_, op)| op.live);
        match found.map(|(at, op)| (Resolver::default().feed(SeqNo::MAX, op.kind), at, op)) {
            Some((Answer::Live, _, op)) => Own::Put(self.entry_of(op, SeqNo::MAX)),
            Some((Answer::Gone, ..)) => Own::Removed,
            Some((Answer::Operand, at, _)) => self.operands(key, at),
            Some((Answer::Older, ..)) => unreachable!("write_set.1: each op answers for its key alone"),
            None if self.in_removed_range(key) => Own::Removed,
            None => Own::Untouched,
        }
    }

    /// Returns whether a range removal covers the key.
    pub fn in_removed_range(&self, key: &[u8]) -> bool {
        self.ranges.iter().any(|(start, end)| start.as_slice() <= key && key < end.as_slice())
    }

    /// Returns the range removals, as pairs of encoded keys: start (included) and end (excluded).
    pub fn ranges(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.ranges
    }
}

/// Combines an operand with a list of one operand, if both can be combined (fold.4).
fn combined(list: &[u8], operand: Operand<'_>, key: &[u8], operator: &Operator) -> Option<Vec<u8>> {
    let first = Elements::of(list).next()?.ok()?;
    if first.at_ms != operand.at_ms || first.to_list().len() != list.len() {
        return None;
    }
    let (_, user_key) = key::decode_key(key)?;
    let combined = fold::combine(operator, user_key, &[first, operand])?;
    Some(Operand { bytes: &combined, ..first }.to_list())
}

/// Changes of live counts by a commit, per keyspace.
pub type CountDeltas = Vec<(KeyspaceId, i64)>;

mod codec;
mod extent;
mod found;
mod index;
mod op_list;
mod order;
#[cfg(test)]
mod tests;
