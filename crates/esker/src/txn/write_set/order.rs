//! The op of each key, in key order: what a commit writes.

use std::collections::{BTreeMap, BTreeSet};

use super::WriteSet;
use super::codec::op_of;
use crate::encoding::bytes::ByteReader;
use crate::types::entry::EntryRef;
use crate::types::expiry::Expiry;
use crate::types::op::Kind;
use crate::types::{Result, SeqNo, Value};

/// The op that counts for each key.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// Ops in key order.
    pub(super) ops: Vec<u32>,
    /// Joined lists of operands from several ops, by the last of these ops.
    joined: BTreeMap<u32, Vec<u8>>,
    /// For operands after a put or removal: the ops before the last one, down to the put or removal, by the
    /// last op.
    superseded: BTreeMap<u32, Vec<u32>>,
}

impl WriteSet {
    /// Returns whether the operands of an op directly follow those of an earlier op of the same key.
    fn follows(&self, later: u32, earlier: u32) -> bool {
        let [later, earlier] = [later, earlier].map(|at| &self.ops[at as usize]);
        later.kind.is_operand() && earlier.kind.is_operand() && earlier.live
    }

    /// Returns the ops that count, in key order.
    pub(super) fn order(&self) -> &Order {
        self.sorted.get_or_init(|| {
            if let [op] = &*self.ops {
                let ops = if op.live { vec![0] } else { Vec::new() };
                return Order { ops, ..Order::default() };
            }
            let mut order: Vec<(u64, u32)> = Vec::with_capacity(self.live);
            let live = self.ops.iter().enumerate().filter(|(_, op)| op.live);
            order.extend(live.map(|(i, op)| (op.head, i as u32)));
            // The last op of a key comes first, so that deduplication keeps it.
            order.sort_unstable_by(|a, b| {
                a.0.cmp(&b.0).then_with(|| self.key_at(a.1).cmp(self.key_at(b.1))).then(b.1.cmp(&a.1))
            });
            let is_same = |a: &(u64, u32), b: &(u64, u32)| a.0 == b.0 && self.key_at(a.1) == self.key_at(b.1);
            let (mut joined, mut superseded) = (BTreeMap::new(), BTreeMap::new());
            if self.has_operands {
                for ops in order.chunk_by(is_same).filter(|ops| ops.len() > 1) {
                    let follows = |pair: &&[(u64, u32)]| self.follows(pair[0].1, pair[1].1);
                    let count = 1 + ops.windows(2).take_while(follows).count();
                    let lists = ops[..count].iter().rev().map(|(_, i)| self.value_of(&self.ops[*i as usize]));
                    if count > 1 {
                        joined.insert(ops[0].1, lists.collect::<Vec<_>>().concat());
                    }
                    if self.ops[ops[0].1 as usize].kind.is_operand() && count < ops.len() {
                        superseded.insert(ops[0].1, ops[1..=count].iter().map(|(_, i)| *i).collect());
                    }
                }
            }
            order.dedup_by(|later, kept| is_same(later, kept));
            Order { ops: order.into_iter().map(|(_, i)| i).collect(), joined, superseded }
        })
    }

    /// Returns an op of the order as an entry of commit `seq`.
    #[inline]
    fn entry<'s>(&'s self, order: &'s Order, i: u32, seq: SeqNo) -> EntryRef<'s> {
        let op = &self.ops[i as usize];
        let joined = if op.kind.is_operand() { order.joined.get(&i) } else { None };
        let value = joined.map_or_else(|| self.value_of(op), |list| &**list);
        EntryRef { key: self.key_of(op), seq, kind: op.kind, value }
    }

    /// Returns live op `n` in key order as an entry of commit `seq`.
    pub fn nth(&self, n: usize, seq: SeqNo) -> EntryRef<'_> {
        let order = self.order();
        self.entry(order, order.ops[n], seq)
    }

    /// Returns the put or removal that the operands of live op `n` follow, if any.
    pub(in crate::txn) fn base_of(&self, n: usize, seq: SeqNo) -> Option<EntryRef<'_>> {
        let order = self.order();
        let base = order.superseded.get(&order.ops[n])?.last()?;
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
            if let Some(base) = order.superseded.get(&at).and_then(|ops| ops.last()) {
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
        self.order().ops.partition_point(|&i| self.key_of(&self.ops[i as usize]) < key)
    }

    /// Iterates over the live ops in key order, as entries of commit `seq`.
    pub fn entries(&self, seq: SeqNo) -> impl Iterator<Item = EntryRef<'_>> + Clone {
        let order = self.order();
        order.ops.iter().map(move |&i| self.entry(order, i, seq))
    }

    /// Like `entries`, from a key on.
    pub(crate) fn entries_from(&self, key: &[u8], seq: SeqNo) -> impl Iterator<Item = EntryRef<'_>> {
        let first = self.rank(key);
        self.entries(seq).skip(first)
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
