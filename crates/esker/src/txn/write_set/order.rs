//! The op of each key, in key order: what a commit writes, and what walks of a transaction read.
//!
//! ```text
//!   first use       --> all ops are sorted
//!   few ops later   --> each is inserted
//!   many ops later  --> they are sorted and merged with the earlier ones
//! ```
//!
//! A change of the set keeps the order of the ops before it, so that the next use costs time only for what
//! changed. Walks that are open read a copy of the set, with its order.
//!
//! order.1. An order covers the first ops of its set. Of these, it has the last live op of each key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::WriteSet;
use super::codec::op_of;
use super::index::Index;
use super::op_list::OpList;
use crate::encoding::bytes::ByteReader;
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::op::Kind;
use crate::types::{Result, SeqNo, Value};

/// More changes than these and an eighth of the ops are not made one by one.
const SINGLE_CHANGES_MAX: usize = 8;

/// The op that counts for each key.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// Ops in key order.
    pub(super) ops: OpList,
    /// Number of ops covered (order.1).
    covered: usize,
    /// Joined lists of operands from several ops, by the last of these ops.
    joined: BTreeMap<u32, Vec<u8>>,
    /// For operands after a put or removal: the put or removal and the ops after it, without the last one, by
    /// the last op.
    superseded: BTreeMap<u32, Vec<u32>>,
}

/// The order of a set, if it was needed.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    /// Covers all ops.
    current: OnceLock<Order>,
    /// Covers the ops before the last changes.
    earlier: Mutex<Option<Order>>,
}

impl Clone for Sorted {
    fn clone(&self) -> Self {
        Sorted { current: self.current.clone(), earlier: Mutex::new(self.earlier.lock().clone()) }
    }
}

impl Sorted {
    /// Records that ops are added.
    #[inline]
    pub(super) fn note_change(&mut self) {
        if let Some(order) = self.current.take() {
            *self.earlier.get_mut() = Some(order);
        }
    }

    /// Removes the order to change it.
    fn take(&mut self) -> Option<Order> {
        let earlier = self.earlier.get_mut().take();
        self.current.take().or(earlier)
    }

    /// Gives a changed order back.
    fn give(&mut self, order: Order) {
        *self.earlier.get_mut() = Some(order);
    }

    /// Forgets the order.
    pub(super) fn clear(&mut self) {
        self.current.take();
        self.earlier.get_mut().take();
    }
}

impl Order {
    /// Returns whether this number of changes is made one by one.
    fn takes_singly(&self, changes: usize) -> bool {
        changes <= SINGLE_CHANGES_MAX + self.ops.len() / 8
    }

    /// Forgets the operands that end with an op.
    fn forget(&mut self, op: u32) {
        self.joined.remove(&op);
        self.superseded.remove(&op);
    }
}

impl WriteSet {
    /// Returns the ops that count, in key order.
    pub(super) fn order(&self) -> &Order {
        self.sorted.current.get_or_init(|| {
            if let [op] = &*self.ops {
                let ops = OpList::new(if op.live { vec![0] } else { Vec::new() });
                return Order { ops, covered: 1, ..Order::default() };
            }
            let mut order = self.sorted.earlier.lock().take().unwrap_or_default();
            let new = order.covered..self.ops.len();
            match order.covered > 0 && order.takes_singly(new.len()) {
                true => new.filter(|at| self.ops[*at].live).for_each(|at| self.insert(&mut order, at as u32)),
                false => self.merge_into(&mut order),
            }
            order.covered = self.ops.len();
            order
        })
    }

    /// Sorts the ops that an order does not cover and merges them with its ops.
    fn merge_into(&self, order: &mut Order) {
        let mut all: Vec<(u64, u32)> = Vec::with_capacity(self.live);
        all.extend(order.ops.iter_from(0).map(|i| (self.ops[i as usize].head, i)));
        let sorted = all.len();
        let live = self.ops.iter().enumerate().skip(order.covered).filter(|(_, op)| op.live);
        all.extend(live.map(|(i, op)| (op.head, i as u32)));
        // The last op of a key comes first, so that deduplication keeps it.
        let compare = |a: &(u64, u32), b: &(u64, u32)| {
            a.0.cmp(&b.0).then_with(|| self.key_at(a.1).cmp(self.key_at(b.1))).then(b.1.cmp(&a.1))
        };
        all[sorted..].sort_unstable_by(compare);
        if sorted > 0 {
            // A stable sort finds that there are two sorted parts, and merges them.
            all.sort_by(compare);
        }
        let is_same = |a: &(u64, u32), b: &(u64, u32)| a.0 == b.0 && self.key_at(a.1) == self.key_at(b.1);
        if self.has_operands {
            for ops in all.chunk_by(is_same) {
                ops.windows(2).rev().for_each(|pair| self.join(order, pair[1].1, pair[0].1));
            }
        }
        all.dedup_by(|later, kept| is_same(later, kept));
        order.ops = OpList::new(all.into_iter().map(|(_, i)| i).collect());
    }

    /// Inserts an op into an order that covers the ones before it.
    fn insert(&self, order: &mut Order, op: u32) {
        let place = self.place(order, op);
        match order.ops.get(place).filter(|old| self.key_at(*old) == self.key_at(op)) {
            Some(old) => {
                order.ops.set(place, op);
                self.join(order, old, op);
            }
            None => order.ops.insert(place, op),
        }
    }

    /// Returns the number of ops of an order with keys below that of an op.
    fn place(&self, order: &Order, op: u32) -> usize {
        let (head, key) = (self.ops[op as usize].head, self.key_at(op));
        order.ops.partition_point(|i| {
            self.ops[i as usize].head.cmp(&head).then_with(|| self.key_at(i).cmp(key)).is_lt()
        })
    }

    /// Records what the operands of an op follow: the last op of the key before it.
    fn join(&self, order: &mut Order, earlier: u32, op: u32) {
        if !self.has_operands {
            return;
        }
        let (list, ops) = (order.joined.remove(&earlier), order.superseded.remove(&earlier));
        if !self.ops[op as usize].kind.is_operand() {
            return;
        }
        let before = &self.ops[earlier as usize];
        let is_operand = before.kind.is_operand();
        if is_operand {
            let mut list = list.unwrap_or_else(|| self.value_of(before).to_vec());
            list.extend_from_slice(self.value_of(&self.ops[op as usize]));
            order.joined.insert(op, list);
        }
        let mut ops = ops.unwrap_or_default();
        if !is_operand || !ops.is_empty() {
            ops.push(earlier);
            order.superseded.insert(op, ops);
        }
    }

    /// Notes that the operands of the last op of a key were changed in place. Their length stays.
    pub(super) fn note_changed(&mut self, op: usize) {
        self.found.note_live(&self.bytes[self.ops[op].key_start..][..self.ops[op].key_len as usize]);
        self.sorted.note_change();
        let Some(order) = self.sorted.earlier.get_mut() else { return };
        if let Some(list) = order.joined.get_mut(&(op as u32)) {
            let op = &self.ops[op];
            let value = &self.bytes[op.value_start..][..op.value_len as usize];
            let start = list.len() - value.len();
            list[start..].copy_from_slice(value);
        }
    }

    /// Removes the keys of a range from the order. Its ops are cancelled.
    pub(super) fn note_cancelled(&mut self, start: &[u8], end: &[u8]) {
        let Some(mut order) = self.sorted.take() else { return };
        let below = |border: &[u8]| order.ops.partition_point(|i| self.key_at(i) < border);
        let (from, to) = (below(start), below(end));
        for op in order.ops.remove(from, to) {
            order.forget(op);
        }
        self.sorted.give(order);
    }

    /// Goes back with the order to the first `ops` ops, whose keys and those of later ops are still there.
    /// `index` knows these first ops. `restored` are ops that a range removal had cancelled.
    pub(super) fn undo_order(&mut self, ops: usize, restored: &[u32], index: &mut Index) {
        let Some(mut order) = self.sorted.take() else { return };
        let covered = order.covered.min(ops);
        let undone = covered as u32..order.covered as u32;
        if !order.takes_singly(undone.len() + restored.len()) {
            return;
        }
        if !undone.is_empty() || !restored.is_empty() {
            index.grow(ops, |at| self.key_at(at));
        }
        let index = &*index;
        for op in undone.chain(restored.iter().copied().filter(|op| (*op as usize) < covered)) {
            self.restore(&mut order, self.key_at(op), (covered, index));
        }
        order.covered = covered;
        self.sorted.give(order);
    }

    /// Makes the last live op of a key before op `covered` the one of the order.
    fn restore(&self, order: &mut Order, key: &[u8], (covered, index): (usize, &Index)) {
        let mut last = index.last(key, |at| self.key_at(at));
        while last.is_some_and(|at| at >= covered) {
            last = last.and_then(|at| index.before(at));
        }
        let live = |at: &usize| self.ops[*at].live;
        let last = last.filter(live);
        let place = order.ops.partition_point(|i| self.key_at(i) < key);
        let old = order.ops.get(place).filter(|old| self.key_at(*old) == key);
        if old == last.map(|last| last as u32) {
            return;
        }
        if let Some(old) = old {
            order.forget(old);
        }
        match (old, last) {
            (Some(_), Some(last)) => order.ops.set(place, last as u32),
            (None, Some(last)) => order.ops.insert(place, last as u32),
            (_, None) => drop(order.ops.remove(place, place + 1)),
        }
        // The operands before the last op, and what they follow, newest first.
        let mut chain: Vec<usize> = last.into_iter().collect();
        while let Some(op) = chain.last().filter(|op| self.ops[**op].kind.is_operand())
            && let Some(before) = index.before(*op).filter(live)
        {
            chain.push(before);
        }
        chain.windows(2).rev().for_each(|pair| self.join(order, pair[1] as u32, pair[0] as u32));
    }

    /// Returns an op of the order as an entry of commit `seq`.
    #[inline]
    fn entry<'s>(&'s self, order: &'s Order, i: u32, seq: SeqNo) -> EntryRef<'s> {
        let op = &self.ops[i as usize];
        let joined = if op.kind.is_operand() { order.joined.get(&i) } else { None };
        let value = joined.map_or_else(|| self.value_of(op), |list| &**list);
        EntryRef { key: self.key_of(op), seq, kind: op.kind, value }
    }

    /// Returns the number of live op `n` in key order.
    pub(in crate::txn) fn nth(&self, n: usize) -> Option<u32> {
        self.order().ops.get(n)
    }

    /// Returns an op of the order, by its number, as an entry of commit `seq`.
    pub(in crate::txn) fn entry_at(&self, op: u32, seq: SeqNo) -> EntryRef<'_> {
        self.entry(self.order(), op, seq)
    }

    /// Returns the put or removal that the operands of an op of the order follow, if any.
    pub(in crate::txn) fn base_of(&self, op: u32, seq: SeqNo) -> Option<EntryRef<'_>> {
        let base = self.order().superseded.get(&op)?.first()?;
        Some(self.entry_of(&self.ops[*base as usize], seq))
    }

    /// Returns the set with puts instead of operands that follow a put or removal. `None` if
    /// there are no such operands. `fold` computes a value from operands and the entry that they follow.
    pub(crate) fn settled(
        &self,
        fold: impl Fn(EntryRef<'_>, EntryRef<'_>) -> Result<(Value, Option<Expiry>)>,
    ) -> Result<Option<WriteSet>> {
        if !self.has_operands || self.order().superseded.is_empty() {
            return Ok(None);
        }
        let order = self.order();
        let left_out: BTreeSet<u32> = order.superseded.values().flatten().copied().collect();
        let (mut out, mut at) = (WriteSet::new(), 0);
        let mut reader = ByteReader::new(self.payload());
        while !reader.is_empty() {
            let (kind, first, second) = op_of(&mut reader).expect("the set holds valid ops");
            if !kind.is_point() {
                out.delete_range(first, second);
                continue;
            }
            if let Some(base) = order.superseded.get(&at).and_then(|ops| ops.first()) {
                let base = self.entry_of(&self.ops[*base as usize], SeqNo::MAX);
                let (value, expiry) = fold(self.entry(order, at, SeqNo::MAX), base)?;
                out.put_until(Kind::PUT, first, expiry, &value);
            } else if !left_out.contains(&at) {
                out.push(kind, first, second);
            }
            at += 1;
        }
        Ok(Some(out))
    }

    /// Returns the number of live ops with a key below `key`.
    pub fn rank(&self, key: &[u8]) -> usize {
        self.order().ops.partition_point(|i| self.key_at(i) < key)
    }

    /// Iterates over the live ops in key order, as entries of commit `seq`.
    pub fn entries(&self, seq: SeqNo) -> impl Iterator<Item = EntryRef<'_>> + Clone {
        self.entries_after(0, seq)
    }

    /// Like `entries`, from a key on.
    pub(crate) fn entries_from(&self, key: &[u8], seq: SeqNo) -> impl Iterator<Item = EntryRef<'_>> {
        self.entries_after(self.rank(key), seq)
    }

    /// Like `entries`, without the first ones.
    fn entries_after(&self, skipped: usize, seq: SeqNo) -> impl Iterator<Item = EntryRef<'_>> + Clone {
        let order = self.order();
        order.ops.iter_from(skipped).map(move |i| self.entry(order, i, seq))
    }

    /// Like `entries`, with the entries at the ascending indexes `unresolved` marked as unresolved.
    pub fn entries_with<'s>(
        &'s self,
        seq: SeqNo,
        unresolved: &'s [u32],
    ) -> impl Iterator<Item = EntryRef<'s>> + Clone {
        let mut left = unresolved.iter().copied().peekable();
        self.entries(seq).zip(0_u32..).map(move |(entry, place)| match left.next_if_eq(&place) {
            Some(_) => EntryRef { kind: entry.kind.unresolved(), ..entry },
            None => entry,
        })
    }
}

#[cfg(test)]
mod tests;
