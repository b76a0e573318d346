//! Makes the operations of a seed.

use std::ops::Bound;

use esker::Durability;
use fastrand::Rng;

use super::keys::KEYS;
use super::op::{
    CrashKind, KeyBounds, KeyNo, KeyspaceNo, Move, NAMES, Op, Opening, Read, Reader, SLOTS, ValueNo, Write,
};

/// The sequence of a seed: how the database is first opened, and what follows.
pub fn generate(seed: u64, ops: usize) -> (Opening, Vec<Op>) {
    let mut generator = Generator { rng: Rng::with_seed(seed), hot: KEYS };
    // Some sequences use few keys, so that versions pile up.
    generator.hot = [KEYS, KEYS, 30, 8][generator.rng.usize(0..4)];
    let first = generator.opening();
    (first, (0..ops).map(|_| generator.op()).collect())
}

struct Generator {
    rng: Rng,
    /// Keys are mostly taken from the first so many.
    hot: u16,
}

impl Generator {
    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    fn key(&mut self) -> KeyNo {
        let limit = if self.one_in(8) { KEYS } else { self.hot };
        let key = self.rng.u16(0..limit);
        // The longest keys cost time: they come up now and then.
        let long = key >= KEYS - 3 && !self.one_in(4);
        KeyNo(if long { key - 3 } else { key })
    }

    fn value(&mut self) -> ValueNo {
        let len = match self.rng.u8(0..100) {
            0..10 => 0,
            10..65 => self.rng.u32(1..20),
            65..92 => self.rng.u32(20..300),
            92..99 => self.rng.u32(1000..5000),
            _ => self.rng.u32(5_000..100_000),
        };
        ValueNo { len, fill: self.rng.u8(..) }
    }

    fn keyspace(&mut self) -> KeyspaceNo {
        // Half of the work goes to one keyspace, so that it grows.
        KeyspaceNo(if self.rng.bool() { 0 } else { self.rng.u8(..) })
    }

    fn bounds(&mut self) -> KeyBounds {
        let bound = |generator: &mut Self| match generator.rng.u8(0..10) {
            0 => Bound::Unbounded,
            1..6 => Bound::Included(generator.key()),
            _ => Bound::Excluded(generator.key()),
        };
        (bound(self), bound(self))
    }

    fn write(&mut self) -> Write {
        match self.rng.u8(0..40) {
            0..28 => Write::Put(self.key(), self.value()),
            28..37 => Write::Remove(self.key()),
            37 if self.one_in(4) => Write::Clear,
            _ => Write::RemoveRange(self.bounds()),
        }
    }

    /// So much that the log treats it apart.
    fn bulk(&mut self) -> Vec<(KeyspaceNo, Write)> {
        let value = |g: &mut Self| ValueNo { len: g.rng.u32(80_000..100_000), fill: g.rng.u8(..) };
        (0..14).map(|_| (self.keyspace(), Write::Put(self.key(), value(self)))).collect()
    }

    fn durability(&mut self) -> Durability {
        [Durability::Sync, Durability::Buffered, Durability::None][self.rng.usize(0..3)]
    }

    fn opening(&mut self) -> Opening {
        Opening { durability: self.durability(), tiny: !self.one_in(5) }
    }

    fn slot(&mut self) -> usize {
        self.rng.usize(0..SLOTS)
    }

    fn reader(&mut self) -> Reader {
        match self.rng.u8(0..5) {
            0..2 => Reader::Latest,
            2..4 => Reader::Snapshot(self.slot()),
            _ => Reader::Transaction(self.slot()),
        }
    }

    fn takes(&mut self, max: usize) -> Vec<bool> {
        let kind = self.rng.u8(0..3);
        let n = self.rng.usize(0..max);
        (0..n).map(|_| if kind == 2 { self.rng.bool() } else { kind == 1 }).collect()
    }

    fn moves(&mut self) -> Vec<Move> {
        let n = self.rng.usize(1..30);
        let one = |g: &mut Self| match g.rng.u8(0..16) {
            0 => Move::First,
            1 => Move::Last,
            2..4 => Move::Seek(g.key()),
            4..6 => Move::SeekBefore(g.key()),
            6..11 => Move::Next,
            _ => Move::Prev,
        };
        (0..n).map(|_| one(self)).collect()
    }

    fn read(&mut self) -> Read {
        match self.rng.u8(0..16) {
            0..4 => Read::Get(self.key()),
            4 => Read::Contains(self.key()),
            5 => Read::MultiGet((0..self.rng.usize(0..6)).map(|_| self.key()).collect()),
            6 => Read::First,
            7 => Read::Last,
            8 => Read::Len,
            9..12 => Read::Range { bounds: self.bounds(), takes: self.takes(20), keys_only: self.one_in(3) },
            12..14 => Read::Prefix { key: self.key(), len: self.rng.u16(0..100), backwards: self.rng.bool() },
            _ => Read::Cursor(self.moves()),
        }
    }

    fn op(&mut self) -> Op {
        match self.rng.u8(0..100) {
            0..26 => Op::Write(self.keyspace(), self.write()),
            26..36 => {
                let n = if self.one_in(10) { self.rng.usize(20..60) } else { self.rng.usize(0..8) };
                let writes = (0..n).map(|_| (self.keyspace(), self.write())).collect();
                Op::Batch(writes, self.durability())
            }
            36 if self.one_in(40) => Op::Batch(self.bulk(), self.durability()),
            36..38 => Op::Create(self.rng.u8(0..NAMES.len() as u8)),
            38 => Op::Rename(self.keyspace(), self.rng.u8(0..NAMES.len() as u8)),
            39 => Op::Drop(self.keyspace()),
            40..43 => Op::Begin(self.slot()),
            43..50 => Op::TransactionWrite(self.slot(), self.keyspace(), self.write()),
            50..53 => Op::Commit(self.slot(), self.durability()),
            53 => Op::Rollback(self.slot()),
            54..57 => Op::Snapshot(self.slot()),
            57 => Op::ReleaseSnapshot(self.slot()),
            58..78 => Op::Read(self.reader(), self.keyspace(), self.read()),
            78 => Op::Iterate(self.slot(), self.reader(), self.keyspace(), self.bounds()),
            79..82 => Op::IterateOn(self.slot(), self.takes(8)),
            82..85 => Op::Flush,
            85..87 => Op::Compact,
            87..92 => Op::Step(self.rng.bool()),
            92 => Op::Sync,
            93 => Op::Check,
            94..96 => Op::Reopen(self.opening()),
            _ if self.one_in(2) => Op::Check,
            _ => {
                let kind = match self.rng.u8(0..4) {
                    0 => CrashKind::Strict,
                    1 => CrashKind::KeepAll,
                    _ => CrashKind::Seed(self.rng.u64(..)),
                };
                Op::Crash(kind, self.opening())
            }
        }
    }
}
