//! Generates groups of related operations: large transactions, and work interleaved with other operations.

use esker::BackgroundStep;

use super::Generator;
use crate::op::{DRAWN_NAMES, Op, Point, Read, Reader, SLOTS, Write};

/// Lifetime of entries that expire after a large transaction is written, but before its commit.
const OVERTAKEN_MS: u32 = 60_000;

impl Generator<'_> {
    /// Returns the operations of a transaction with many writes, last one first.
    pub(super) fn large_transaction(&mut self) -> Vec<Op> {
        if self.features.expiry && !self.one_in(4) {
            return self.overtaken_transaction();
        }
        let slot = self.slot();
        let end = if self.one_in(5) { Op::Rollback(slot) } else { Op::Commit(slot, self.durability()) };
        let mut ops = vec![end];
        if self.one_in(2) {
            ops.push(self.other_work());
        }
        for _ in 0..self.choices.usize(20..100) {
            ops.push(Op::TransactionWrite(slot, self.keyspace(), self.write()));
            if self.one_in(20) {
                ops.push(Op::Read(Reader::Transaction(slot), self.keyspace(), self.read()));
            }
        }
        ops.push(Op::Begin(slot));
        ops
    }

    /// Returns the operations of a serializable transaction whose reads other commits invalidate, last one
    /// first.
    pub(super) fn overtaken_reader(&mut self) -> Vec<Op> {
        // Even slots are serializable.
        let slot = 2 * self.choices.usize(0..SLOTS.div_ceil(2));
        let (no, key, value) = (self.keyspace(), self.key(), self.value());
        let mut ops = vec![Op::Commit(slot, self.durability())];
        ops.push(Op::TransactionWrite(slot, self.keyspace(), Write::Put(self.key(), self.value())));
        if self.one_in(3) {
            let name = self.choices.u8(0..DRAWN_NAMES);
            ops.extend([Op::Create(name), Op::TransactionOpen(slot, name)]);
        } else {
            let other = if self.choices.bool() { Write::Remove(key) } else { Write::Put(key, value) };
            ops.push(Op::Write(no, other));
            ops.push(Op::Point(slot, Point::Back(0)));
            ops.push(Op::Read(Reader::Transaction(slot), no, Read::Len));
            ops.push(Op::TransactionWrite(slot, no, Write::Put(key, value)));
            ops.push(Op::Point(slot, Point::Set));
        }
        ops.push(Op::Begin(slot));
        ops
    }

    /// Returns operations that overwrite the same keys in a keyspace with lazy counting and history, last one
    /// first. Flushes and compactions in between leave tombstones of uncounted versions.
    pub(super) fn pile_of_versions(&mut self) -> Vec<Op> {
        let no = self.keyspace();
        let keys: Vec<_> = (0..self.choices.usize(3..12)).map(|_| self.key()).collect();
        let mut ops = Vec::new();
        let rounds = self.choices.usize(4..10);
        for round in 0..rounds {
            ops.push(Op::Versions(no, keys[0]));
            if round + 1 == rounds {
                ops.push(Op::Compact);
            } else if self.choices.bool() {
                ops.push(Op::Step(BackgroundStep::Compact { idle: self.one_in(3) }));
            }
            ops.push(Op::Step(BackgroundStep::Flush));
            let again = keys.iter().map(|key| match self.one_in(6) {
                true => (no, Write::Remove(*key)),
                false => (no, Write::Put(*key, self.value())),
            });
            ops.push(Op::Batch(again.collect(), self.durability()));
        }
        ops.push(Op::SetLazyCounting(no, true));
        // Keep two versions, or one.
        ops.push(Op::SetHistory(no, [0, 2][self.choices.usize(0..2)]));
        ops
    }

    /// Returns the operations of a transaction whose replaced entries expire before its commit and are swept
    /// between the steps of the commit, last one first.
    fn overtaken_transaction(&mut self) -> Vec<Op> {
        let (slot, no) = (self.slot(), self.keyspace());
        let keys: Vec<_> = (0..14).map(|_| self.key()).collect();
        let sweep = || Op::Step(BackgroundStep::Sweep);
        let mut ops = vec![
            Op::Commit(slot, self.durability()),
            Op::Between(vec![sweep(), sweep()]),
            Op::Clock(OVERTAKEN_MS),
        ];
        for key in &keys {
            ops.push(Op::TransactionWrite(slot, no, Write::Put(*key, self.stamped(800))));
        }
        let dated = keys.iter().map(|key| (no, Write::PutFor(*key, self.stamped(20), OVERTAKEN_MS)));
        let dated = dated.collect();
        ops.extend([Op::Begin(slot), Op::Batch(dated, self.durability())]);
        ops
    }

    /// Returns the operations of a transaction that merges into entries swept before its commit, last one
    /// first.
    pub(super) fn overtaken_merges(&mut self) -> Vec<Op> {
        let (slot, no) = (self.slot(), self.keyspace());
        let keys: Vec<_> = (0..self.choices.usize(1..6)).map(|_| self.key()).collect();
        let sweep = || Op::Step(BackgroundStep::Sweep);
        let mut ops = vec![Op::Commit(slot, self.durability()), sweep(), sweep(), Op::Clock(OVERTAKEN_MS)];
        for key in &keys {
            ops.push(Op::TransactionWrite(slot, no, Write::Merge(*key, self.stamped(20))));
        }
        ops.push(Op::Begin(slot));
        if self.choices.bool() {
            ops.push(Op::Flush);
        }
        let dated = keys.iter().map(|key| (no, Write::PutFor(*key, self.stamped(20), OVERTAKEN_MS)));
        let dated = dated.collect();
        ops.push(Op::Batch(dated, self.durability()));
        ops
    }

    /// Returns an operation in steps, interleaved with other work.
    pub(super) fn with_other_work(&mut self) -> Op {
        let op = match self.choices.u8(0..6) {
            0..4 if self.features.copies => [Op::Checkpoint, Op::Backup][self.choices.usize(0..2)].clone(),
            0 if self.features.expiry => Op::Step(BackgroundStep::Sweep),
            _ => Op::Write(self.keyspace(), Write::RemoveRange(self.bounds())),
        };
        self.pending.push(op);
        self.other_work()
    }

    /// Returns the work of another thread.
    fn other_work(&mut self) -> Op {
        let compact = || Op::Step(BackgroundStep::Compact { idle: false });
        let work = match self.choices.u8(0..6) {
            // Compactions drop tables covered by a range tombstone without reading them.
            0..2 => {
                let (no, range) = (self.keyspace(), self.bounds());
                let write = if self.choices.bool() { Write::Clear } else { Write::RemoveRange(range) };
                vec![Op::Write(no, write), compact(), compact()]
            }
            2 => vec![Op::Write(self.keyspace(), self.write()), Op::Flush],
            3 if self.one_in(3) => vec![Op::CompactRange(self.keyspace(), self.bounds())],
            3 => vec![Op::Step(self.step()), Op::Write(self.keyspace(), self.write())],
            _ => {
                let n = self.choices.usize(1..6);
                let writes = (0..n).map(|_| (self.keyspace(), self.write())).collect();
                vec![Op::Batch(writes, self.durability()), compact()]
            }
        };
        Op::Between(work)
    }
}
