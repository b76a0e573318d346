//! Makes operations from a seed, or from the bytes of a fuzzer: first their character (sizes, keys, troubles), then one
//! operation after the other.
//!
//! ```text
//!   seed, bytes --choices.rs--> Generator --> how the database is opened, operations
//! ```
//!
//! generate.1. What bytes make is bounded: in operations, and in bytes of long keys and values.

mod together;

use std::ops::{Bound, Range};

use esker::{BackgroundStep, Durability, FileSizes, TableCompression};
use fastrand::Rng;

use crate::choices::Choices;
use crate::model::keys::{self, KeyBounds, KeyNo};
use crate::model::values::ValueNo;
use crate::op::{
    Age, Calls, DRAWN_NAMES, End, Failure, Fault, HISTORIES, KeyspaceNo, Loss, Mishap, Move, NAMES, Op,
    Opening, Read, Reader, Restart, SLOTS, Write,
};
use crate::setting;

/// The sequence of a seed: how the database is first opened, and what follows. A longer sequence begins with the
/// shorter one.
pub fn generate(seed: u64, ops: usize) -> (Opening, Vec<Op>) {
    let mut generator = Generator::new(Choices::Seed(Rng::with_seed(seed)), seed, u64::MAX);
    let first = generator.opening();
    let drawn = std::iter::repeat_with(|| generator.next_op());
    (first, beginning(seed).into_iter().chain(drawn).take(ops).collect())
}

/// The operations of a writer beside others, without end: those that change something, and commits that the log treats
/// apart more often.
pub fn writer(seed: u64) -> impl Iterator<Item = Op> {
    let mut generator = Generator::new(Choices::Seed(Rng::with_seed(seed)), 0, u64::MAX);
    // Values tell writers apart.
    generator.stamp = seed as u32 >> 1;
    // Their model knows no time.
    generator.expiry = false;
    let next = move || match generator.one_in(BULK_ONE_IN) {
        true => Op::Batch(generator.bulk(), generator.durability()),
        false => generator.op(),
    };
    std::iter::repeat_with(next).filter(Op::is_a_writers)
}

/// What comes before the operations that are drawn: in some seeds many keyspaces.
fn beginning(seed: u64) -> Vec<Op> {
    let names = if setting::has_many_keyspaces(seed) { DRAWN_NAMES..NAMES.len() as u8 } else { 0..0 };
    names.map(Op::Create).collect()
}

/// Of a byte string no more than this counts.
pub const INPUT_BYTES_MAX: usize = 4096;
/// Operations that a byte string makes at most.
const OPS_MAX: usize = 500;
/// Bytes of values and of long keys that a byte string makes at most. What remains are short ones.
const PAYLOAD_BYTES_MAX: u64 = 4 << 20;

/// Bytes of large values, which come and go, in seeds that have them: reading them all the time would cost too much.
pub(crate) const LARGE_VALUE_BYTES: Range<u32> = 1_000_000..3_000_000;
/// Operations from one that is about time to the next, in seeds in which entries expire.
const TIME_STRIDE: usize = 8;
/// The codec that makes tables smallest.
#[cfg(feature = "zstd")]
const DENSEST: TableCompression = TableCompression::Zstd;
#[cfg(not(feature = "zstd"))]
const DENSEST: TableCompression = TableCompression::Auto;
/// Of so many draws for a writer one is a commit that the log treats apart.
const BULK_ONE_IN: u32 = 500;
/// Operations from one large transaction to the next, in seeds that have them.
const LARGE_TRANSACTIONS_STRIDE: usize = 150;
/// Operations from one change of a history to the next, and from one look at the past to the next, in seeds that have them.
const HISTORIES_STRIDE: usize = 90;
const PAST_STRIDE: usize = 9;
/// Operations from one that has others done between its steps to the next: in seeds with copies that makes one.
const BETWEEN_STRIDE: usize = 45;
/// Operations from one to the next.
const LARGE_VALUES_STRIDE: usize = 200;
/// Of these the one that puts it, and the one that removes it.
const LARGE_VALUE_COMES_AT: usize = 60;
const LARGE_VALUE_GOES_AT: usize = 100;

/// The sequence that these bytes stand for (generate.1). Any bytes stand for one; more bytes, for a longer one.
pub fn from_bytes(bytes: &[u8]) -> (Opening, Vec<Op>) {
    let seed = setting::seed_of_bytes(bytes);
    let bytes = &bytes[..bytes.len().min(INPUT_BYTES_MAX)];
    let mut generator = Generator::new(Choices::Bytes(bytes), seed, PAYLOAD_BYTES_MAX);
    let first = generator.opening();
    let mut ops = beginning(seed);
    while !generator.choices.are_used_up() && ops.len() < OPS_MAX {
        ops.push(generator.next_op());
    }
    (first, ops)
}

/// How much memory and how large files a seed's databases have.
#[derive(Clone, Copy)]
enum Size {
    Tiny,
    Small,
    Normal,
}

struct Generator<'a> {
    choices: Choices<'a>,
    size: Size,
    /// The keys that are used; the first ones more often.
    hot: Vec<KeyNo>,
    /// Whether calls fail and disks are full.
    faults: bool,
    /// Whether processes end inside calls.
    deaths: bool,
    /// Whether background work waits for its steps.
    stepped: bool,
    /// The stamp of the next value.
    stamp: u32,
    /// Bytes of values and long keys that may still be made.
    room: u64,
    /// Whether some values are large.
    large_values: bool,
    /// Whether some transactions are large, and little of them stays in memory.
    large_transactions: bool,
    /// What comes next, the last one first.
    pending: Vec<Op>,
    /// Whether no commit becomes tables.
    logs_all: bool,
    /// Whether values go to blob files.
    blobs: bool,
    /// Whether there is a change feed.
    feed: bool,
    /// Whether some entries expire.
    expiry: bool,
    /// Whether keyspaces keep history.
    history: bool,
    /// Whether checkpoints are made.
    copies: bool,
    /// Operations made.
    made: usize,
}

impl<'a> Generator<'a> {
    fn new(mut choices: Choices<'a>, seed: u64, room: u64) -> Self {
        let mut keys: Vec<_> = (0..keys::count()).map(KeyNo).collect();
        choices.shuffle(&mut keys);
        // Some sequences use few keys, so that versions pile up.
        let hot = [8, 30, 30, 100, 100, 400, 1000][choices.usize(0..7)];
        keys.truncate(hot);
        if choices.u8(0..4) > 0 {
            keys.retain(|key| !keys::is_long(*key));
        }
        Generator {
            size: [Size::Tiny, Size::Tiny, Size::Small, Size::Normal][choices.usize(0..4)],
            hot: keys,
            faults: choices.u8(0..3) == 0,
            deaths: choices.u8(0..3) > 0,
            stepped: choices.u8(0..4) > 0,
            stamp: 0,
            room,
            large_values: setting::has_large_values(seed),
            large_transactions: setting::has_large_transactions(seed),
            pending: Vec::new(),
            blobs: setting::has_blobs(seed),
            feed: setting::has_feed(seed) && !setting::has_expiry(seed),
            // What a past state shows of entries that have expired since is not modelled.
            history: setting::has_history(seed) && !setting::has_expiry(seed),
            copies: setting::has_copies(seed),
            logs_all: setting::logs_all_commits(seed),
            expiry: setting::has_expiry(seed),
            made: 0,
            choices,
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.choices.u32(0..n) == 0
    }

    fn key(&mut self) -> KeyNo {
        let n = self.hot.len();
        let at =
            if self.choices.bool() { self.choices.usize(0..n) } else { self.choices.usize(0..n.div_ceil(4)) };
        let key = self.hot[at];
        // The longest keys cost time: they come up now and then.
        let key = if keys::is_long(key) && !self.one_in(10) { self.hot[0] } else { key };
        if !keys::is_long(key) {
            return key;
        }
        let Some(room) = self.room.checked_sub(keys::key(key).len() as u64) else { return KeyNo(0) };
        self.room = room;
        key
    }

    fn value(&mut self) -> ValueNo {
        let len = match self.choices.u16(0..1000) {
            0..100 => 0,
            100..700 => self.choices.u32(1..20),
            700..970 => self.choices.u32(20..300),
            970..997 => self.choices.u32(1000..5000),
            _ => self.choices.u32(5_000..100_000),
        };
        self.stamped(len)
    }

    fn stamped(&mut self, len: u32) -> ValueNo {
        let len = self.room.min(u64::from(len));
        self.room -= len;
        self.stamp += 1;
        ValueNo::new(len as u32, self.stamp)
    }

    fn keyspace(&mut self) -> KeyspaceNo {
        // Half of the work goes to one keyspace, so that it grows.
        KeyspaceNo(if self.choices.bool() { 0 } else { self.choices.any_u8() })
    }

    fn bounds(&mut self) -> KeyBounds {
        let bound = |generator: &mut Self| match generator.choices.u8(0..10) {
            0 => Bound::Unbounded,
            1..6 => Bound::Included(generator.key()),
            _ => Bound::Excluded(generator.key()),
        };
        let (a, b) = (bound(self), bound(self));
        let rank = |bound: &Bound<KeyNo>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(*key),
            Bound::Unbounded => None,
        };
        // Mostly in order: few things happen in an empty range.
        let reversed = matches!((rank(&a), rank(&b)), (Some(a), Some(b)) if a > b);
        if reversed && !self.one_in(8) { (b, a) } else { (a, b) }
    }

    fn write(&mut self) -> Write {
        match self.choices.u8(0..40) {
            0..28 if self.expiry && self.one_in(2) => {
                Write::PutFor(self.key(), self.value(), [0, 1, 300, 2000, 10_000][self.choices.usize(0..5)])
            }
            20..28 => Write::Merge(self.key(), self.value()),
            0..28 => Write::Put(self.key(), self.value()),
            28..37 => Write::Remove(self.key()),
            37 if self.one_in(4) => Write::Clear,
            _ => Write::RemoveRange(self.bounds()),
        }
    }

    /// So much that the log treats it apart.
    fn bulk(&mut self) -> Vec<(KeyspaceNo, Write)> {
        let one = |g: &mut Self| {
            let len = g.choices.u32(80_000..100_000);
            (g.keyspace(), Write::Put(g.key(), g.stamped(len)))
        };
        (0..14).map(|_| one(self)).collect()
    }

    fn durability(&mut self) -> Durability {
        [Durability::Sync, Durability::Buffered, Durability::None][self.choices.usize(0..3)]
    }

    fn opening(&mut self) -> Opening {
        let pick = |g: &mut Self, sizes: [usize; 3]| sizes[g.choices.usize(0..3)];
        let (memtable_bytes, block_bytes, table_bytes) = match self.size {
            Size::Tiny => {
                (pick(self, [700, 4096, 4096]), pick(self, [64, 128, 300]), pick(self, [512, 1024, 4096]))
            }
            Size::Small => (
                pick(self, [8 << 10, 20 << 10, 40 << 10]),
                pick(self, [256, 1024, 4096]),
                pick(self, [8 << 10, 16 << 10, 64 << 10]),
            ),
            Size::Normal => (pick(self, [64 << 10, 256 << 10, 1 << 20]), 8 << 10, 1 << 20),
        };
        let durability = self.durability();
        let small = Some(2 * table_bytes as u64);
        let memories = [(1 << 20, Some(0)), (1 << 20, None), (16 << 20, small), (16 << 20, None)];
        let (memory, miniature) = memories[self.choices.usize(0..4)];
        Opening {
            durability,
            memory,
            // In every other opening the data is soon beyond the cache, or always.
            miniature,
            file_sizes: self.file_sizes(),
            memtable_bytes,
            transaction_memory: self.large_transactions.then_some(memtable_bytes as u64 / 8),
            adoption_bytes: self.logs_all.then_some(u64::MAX),
            blobs_over: self.blobs_over(),
            feed_bytes: self.feed_bytes(),
            block_bytes,
            table_bytes: table_bytes.max(block_bytes) as u64,
            compression: self.compression(),
            stepped: self.stepped,
        }
    }

    /// What most values are below, or above; in one opening of four no more go to blob files, and those that are there are read.
    fn blobs_over(&self) -> usize {
        if self.blobs { [64, 200, 0, 12][self.stamp as usize % 4] } else { 0 }
    }

    /// Mostly all of it is kept, in one opening of four little, in one none.
    fn feed_bytes(&self) -> Option<u64> {
        let bytes = [Some(u64::MAX), Some(u64::MAX), Some(20_000), None][self.stamp as usize / 4 % 4];
        bytes.filter(|_| self.feed)
    }

    fn compression(&mut self) -> TableCompression {
        let codecs = [TableCompression::Auto, TableCompression::Lz4, DENSEST];
        if self.one_in(4) { codecs[self.choices.usize(0..3)] } else { TableCompression::None }
    }

    /// As they are for users, or so small that logs grow, commits take several segments of their own, and manifests are replaced.
    fn file_sizes(&mut self) -> FileSizes {
        let usual = FileSizes::default();
        FileSizes {
            first_segment: [usual.first_segment, 512, 1024, 4096][self.choices.usize(0..4)],
            bulk_segment: [usual.bulk_segment, 2000, 9000, 60_000][self.choices.usize(0..4)],
            manifest_min: [usual.manifest_min, 1024][self.choices.usize(0..2)],
        }
    }

    fn loss(&mut self) -> Loss {
        match self.choices.u8(0..6) {
            0 => Loss::All,
            1 => Loss::Nothing,
            _ => Loss::Seed(self.choices.any_u64()),
        }
    }

    /// An end that nobody wanted.
    fn crash(&mut self) -> End {
        match self.choices.u8(0..8) {
            1 | 3 => End::Kill,
            n @ (5 | 7) => End::KillUnheard { seed: self.stamp.into(), evicted: n == 7 },
            _ => End::Power(self.loss()),
        }
    }

    fn mishaps(&mut self) -> Vec<Mishap> {
        if !self.one_in(3) {
            return Vec::new();
        }
        let one = |g: &mut Self| match g.choices.u8(0..8) {
            0 if g.faults => Mishap::Full(g.choices.u32(0..20_000)),
            0..3 if g.faults => {
                let mut fault = g.fault(40);
                // The log of a process that did not close it: its end would be taken for a torn one.
                if matches!(fault.failure, Failure::Misread) {
                    fault.failure = Failure::Error;
                }
                Mishap::Fault(fault)
            }
            _ => Mishap::End { after: g.choices.u32(0..25), keep: g.keep(), end: g.crash() },
        };
        (0..self.choices.usize(1..3)).map(|_| one(self)).collect()
    }

    fn restart(&mut self) -> Restart {
        let end = match self.choices.u8(0..10) {
            0..2 => End::Close,
            2 => End::Drop,
            _ => self.crash(),
        };
        Restart { end, mishaps: self.mishaps(), opening: self.opening() }
    }

    /// How much of its last write a process gets done.
    fn keep(&mut self) -> u32 {
        [0, 7, 600, 5000, u32::MAX][self.choices.usize(0..5)]
    }

    fn fault(&mut self, within: u32) -> Fault {
        let calls =
            [Calls::All, Calls::Changes, Calls::Writes, Calls::Syncs, Calls::Reads][self.choices.usize(0..5)];
        Fault {
            calls,
            nth: self.choices.u32(1..within),
            times: [1, 1, 2, 5, 0][self.choices.usize(0..5)],
            failure: match self.choices.u8(0..4) {
                0 if calls != Calls::Reads => Failure::NoSpace,
                1 | 2 if calls == Calls::Syncs => Failure::LostSync,
                1 if calls == Calls::Writes => Failure::Short(self.choices.u16(0..2000)),
                2 | 3 if calls == Calls::Reads => Failure::Misread,
                _ => Failure::Error,
            },
        }
    }

    fn slot(&mut self) -> usize {
        self.choices.usize(0..SLOTS)
    }

    fn reader(&mut self) -> Reader {
        match self.choices.u8(0..5) {
            0..2 => Reader::Latest,
            2..4 => Reader::Snapshot(self.slot()),
            _ => Reader::Transaction(self.slot()),
        }
    }

    fn takes(&mut self, max: usize) -> Vec<bool> {
        let kind = self.choices.u8(0..3);
        let n = self.choices.usize(0..max);
        (0..n).map(|_| if kind == 2 { self.choices.bool() } else { kind == 1 }).collect()
    }

    fn moves(&mut self, most: usize) -> Vec<Move> {
        let n = self.choices.usize(1..most);
        let one = |g: &mut Self| match g.choices.u8(0..16) {
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
        match self.choices.u8(0..20) {
            0..8 => Read::Get(self.key()),
            8 => Read::Contains(self.key()),
            9 => Read::MultiGet((0..self.choices.usize(0..6)).map(|_| self.key()).collect()),
            10..12 => Read::Ends,
            12..14 => Read::Len,
            14..17 => Read::Range { bounds: self.bounds(), takes: self.takes(20), keys_only: self.one_in(3) },
            17 => Read::Prefix {
                key: self.key(),
                len: self.choices.u16(0..100),
                backwards: self.choices.bool(),
            },
            _ => Read::Cursor(self.moves(30)),
        }
    }

    fn step(&mut self) -> BackgroundStep {
        match self.choices.u8(0..8) {
            0..3 => BackgroundStep::Flush,
            3..6 => BackgroundStep::Compact { idle: self.choices.bool() },
            6 => BackgroundStep::PrepareLog,
            _ => BackgroundStep::SyncLog,
        }
    }

    /// The next one: drawn, or one with a large value.
    fn next_op(&mut self) -> Op {
        self.made += 1;
        let key = self.hot[0];
        match self.made % LARGE_VALUES_STRIDE {
            LARGE_VALUE_COMES_AT if self.large_values => {
                let span = LARGE_VALUE_BYTES.end - LARGE_VALUE_BYTES.start;
                let len = LARGE_VALUE_BYTES.start + self.stamp.wrapping_mul(700_001) % span;
                Op::Write(KeyspaceNo(0), Write::Put(key, self.stamped(len)))
            }
            LARGE_VALUE_GOES_AT if self.large_values => Op::Write(KeyspaceNo(0), Write::Remove(key)),
            at if self.expiry && at.is_multiple_of(TIME_STRIDE) => self.time(),
            _ if self.made % BETWEEN_STRIDE == 7 => self.with_other_work(),
            _ if self.history && self.made % HISTORIES_STRIDE == 1 => {
                let which = self.choices.usize(0..HISTORIES.len() + 5);
                // Mostly one that keeps something.
                Op::SetHistory(self.keyspace(), if which < HISTORIES.len() { which } else { which % 2 } as u8)
            }
            _ if self.history && self.made.is_multiple_of(PAST_STRIDE) => {
                let (age, no) = (Age(self.choices.u8(0..40)), self.keyspace());
                if self.one_in(3) { Op::Since(age, no) } else { Op::Past(age, no, self.read()) }
            }
            _ => self.op(),
        }
    }

    /// Something about time.
    fn time(&mut self) -> Op {
        match self.choices.u8(0..8) {
            0 => Op::SetClock([-3_600_000, -1000, 500, 7_200_000][self.choices.usize(0..4)]),
            1..3 => Op::Step(BackgroundStep::Sweep),
            3 if self.one_in(3) => {
                let ms = [0, 1, 700, 4000, 60_000][self.choices.usize(0..5)];
                Op::SetLifetime(self.keyspace(), ms)
            }
            _ => Op::Clock(self.choices.u32(0..3000)),
        }
    }

    fn op(&mut self) -> Op {
        if self.large_transactions && self.made.is_multiple_of(LARGE_TRANSACTIONS_STRIDE) {
            self.pending = self.large_transaction();
        }
        self.pending.pop().unwrap_or_else(|| self.drawn())
    }

    fn drawn(&mut self) -> Op {
        match self.choices.u16(0..1000) {
            0..280 => Op::Write(self.keyspace(), self.write()),
            280..380 => {
                let n = if self.one_in(10) { self.choices.usize(20..60) } else { self.choices.usize(0..8) };
                let writes = (0..n).map(|_| (self.keyspace(), self.write())).collect();
                Op::Batch(writes, self.durability())
            }
            380 if self.one_in(3) => Op::Batch(self.bulk(), self.durability()),
            380..392 => Op::Create(self.choices.u8(0..DRAWN_NAMES)),
            392..398 => Op::Rename(self.keyspace(), self.choices.u8(0..DRAWN_NAMES)),
            398..401 => Op::Drop(self.keyspace()),
            401..403 => {
                let (no, n) = (self.keyspace(), self.choices.usize(0..8));
                let writes = (0..n).map(|_| self.write()).collect();
                Op::Replace(no, writes, self.durability())
            }
            403..433 => Op::Begin(self.slot()),
            433..503 => Op::TransactionWrite(self.slot(), self.keyspace(), self.write()),
            503..533 => Op::Commit(self.slot(), self.durability()),
            533..540 => Op::Rollback(self.slot()),
            540..570 => Op::Snapshot(self.slot()),
            570..580 => Op::ReleaseSnapshot(self.slot()),
            580..730 => Op::Read(self.reader(), self.keyspace(), self.read()),
            730..736 => Op::HoldCursor(self.slot(), self.reader(), self.keyspace()),
            // Often the same, so that it has stood somewhere before.
            736..770 => Op::MoveCursor(self.choices.usize(0..2), self.moves(6)),
            770..780 => Op::Iterate(self.slot(), self.reader(), self.keyspace(), self.bounds()),
            780..810 => Op::IterateOn(self.slot(), self.takes(8)),
            810..820 => Op::Flush,
            820..826 => Op::Compact,
            826..900 => Op::Step(self.step()),
            900..906 => Op::Sync,
            906..910 => Op::Check,
            910..915 => Op::Clock(self.choices.u32(0..2_000_000)),
            915..930 => Op::Restart(self.restart()),
            930..960 if self.deaths => {
                let most = [3, 20, 80][self.choices.usize(0..3)];
                let (after, keep) = (self.choices.u32(0..most), self.keep());
                Op::RestartIn { after, keep, restart: Restart { end: self.crash(), ..self.restart() } }
            }
            960..972 if self.faults => Op::Fault(self.fault(60)),
            972..976 if self.faults => Op::DiskFull(self.choices.u32(0..60_000)),
            960..1000 if self.faults => Op::Mend(self.restart()),
            _ => Op::Read(Reader::Latest, self.keyspace(), self.read()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_operations_again_and_more_of_them() {
        let text = |ops: &[Op]| format!("{ops:?}");
        let (short, long) = (generate(7, 300).1, generate(7, 400).1);
        assert_eq!(text(&short), text(&long[..300]));
        assert_ne!(text(&short), text(&generate(8, 300).1));
    }

    #[test]
    fn some_seeds_and_byte_strings_begin_with_more_keyspaces_than_are_drawn() {
        let creates = |ops: Vec<Op>| ops.iter().take_while(|op| matches!(op, Op::Create(5..))).count();
        assert_eq!([3, 4].map(|seed| creates(generate(seed, 50).1)), [0, 8]);
        assert_eq!([3, 4].map(|len| creates(from_bytes(&vec![1; len]).1)), [0, 8]);
    }

    #[test]
    fn some_seeds_and_byte_strings_have_large_values() {
        let is_large = |op: &&Op| match op {
            Op::Write(_, Write::Put(_, value)) => LARGE_VALUE_BYTES.contains(&value.len),
            _ => false,
        };
        let large = |ops: Vec<Op>| ops.iter().filter(is_large).count();
        assert_eq!([34, 35].map(|seed| large(generate(seed, 400).1)), [0, 2]);
        assert_eq!([1985, 1986].map(|len| large(from_bytes(&vec![0; len]).1)), [0, 1]);
    }

    #[test]
    fn bytes_make_the_same_operations_again_and_all_kinds_of_them() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut rng = Rng::with_seed(seed);
            let bytes: Vec<u8> = (0..rng.usize(0..INPUT_BYTES_MAX)).map(|_| rng.u8(..)).collect();
            let ops = from_bytes(&bytes).1;
            assert_eq!(format!("{ops:?}"), format!("{:?}", from_bytes(&bytes).1));
            kinds.extend(ops.iter().map(std::mem::discriminant).map(|kind| format!("{kind:?}")));
        }
        assert_eq!(kinds.len(), 36, "a kind of operation is never made");
    }

    #[test]
    fn generate_1_what_bytes_make_is_bounded() {
        // The second has large values.
        for (byte, len) in (0..=255).flat_map(|byte| [(byte, 3 * INPUT_BYTES_MAX), (byte, 1986)]) {
            let ops = from_bytes(&vec![byte; len]).1;
            let bytes = |write: &Write| match write {
                Write::Put(key, value) | Write::PutFor(key, value, _) | Write::Merge(key, value) => {
                    keys::key(*key).len() + value.len as usize
                }
                _ => 0,
            };
            let payload = |op: &Op| match op {
                Op::Write(_, write) | Op::TransactionWrite(_, _, write) => bytes(write),
                Op::Batch(writes, _) => writes.iter().map(|(_, write)| bytes(write)).sum(),
                _ => 0,
            };
            assert!(ops.len() <= OPS_MAX);
            // Short keys come on top.
            assert!(ops.iter().map(payload).sum::<usize>() < PAYLOAD_BYTES_MAX as usize + 500_000, "{byte}");
        }
    }
}
