//! Generates operations from a seed or from the bytes of a fuzzer: first the parameters of the sequence
//! (sizes, keys, faults), then the operations.
//!
//! ```text
//!   seed, bytes --choices.rs--> Generator --> options of the first opening, operations
//! ```
//!
//! The number of operations and the size of values and long keys are bounded for byte strings.

mod copies;
mod openings;
mod reads;
mod sharing;
mod together;
mod writes;

use std::ops::Range;

use esker::BackgroundStep;
use fastrand::Rng;

use crate::choices::Choices;
use crate::model::keys::{self, KeyNo};
use crate::op::{CommitsAgo, DRAWN_NAMES, KeyspaceNo, NAMES, Op, Opening, Reader, Restart, Write};
use crate::setting;

/// Generates the sequence of a seed: the first opening and the operations. A longer sequence starts with the
/// shorter one.
pub fn generate(seed: u64, ops: usize) -> (Opening, Vec<Op>) {
    let mut generator = Generator::new(Choices::Seed(Rng::with_seed(seed)), seed, u64::MAX);
    let first = generator.opening();
    let drawn = std::iter::repeat_with(|| generator.next_op());
    (first, beginning(seed).into_iter().chain(drawn).take(ops).collect())
}

/// Generates an endless sequence for a writer among others: only operations that change something, and more
/// large commits.
pub fn writer(seed: u64) -> impl Iterator<Item = Op> {
    let mut generator = Generator::new(Choices::Seed(Rng::with_seed(seed)), 0, u64::MAX);
    // Values identify their writer.
    generator.stamp = seed as u32 >> 1;
    // The model of these writers has no time.
    generator.features.expiry = false;
    let next = move || match generator.one_in(BULK_ONE_IN) {
        true => Op::Batch(generator.bulk(), generator.durability()),
        false => generator.op(),
    };
    std::iter::repeat_with(next).filter(Op::is_a_writers)
}

/// Returns the operations before the generated ones: in some seeds they create many keyspaces.
fn beginning(seed: u64) -> Vec<Op> {
    let names = if setting::has_many_keyspaces(seed) { DRAWN_NAMES..NAMES.len() as u8 } else { 0..0 };
    names.map(Op::Create).collect()
}

/// Limit on the bytes of a byte string that are used.
pub const INPUT_BYTES_MAX: usize = 4096;
/// Limit on the operations of a byte string.
const OPS_MAX: usize = 500;
/// Limit on the bytes of values and long keys of a byte string. Short keys are not limited.
const PAYLOAD_BYTES_MAX: u64 = 4 << 20;

/// Sizes of large values in seeds that have them. They are removed soon, because reading them repeatedly is
/// slow.
pub(crate) const LARGE_VALUE_BYTES: Range<u32> = 1_000_000..3_000_000;
/// Operations between two time-related ones, in seeds with expiry.
const TIME_STRIDE: usize = 8;
/// One operation of a writer in this many is a large commit.
const BULK_ONE_IN: u32 = 500;
/// Operations between two large transactions, in seeds that have them.
const LARGE_TRANSACTIONS_STRIDE: usize = 150;
/// Operations between two transactions whose reads are invalidated by other commits.
const OVERTAKEN_READERS_STRIDE: usize = 130;
/// Operations between two changes of history settings, and between two reads of history, in seeds that have
/// them.
const HISTORIES_STRIDE: usize = 60;
const PAST_STRIDE: usize = 9;
/// Operations between two changes of maximum sizes, and between two sweeps, in seeds that have them.
const LIMITS_STRIDE: usize = 40;
const SWEEPS_STRIDE: usize = 11;
/// Operations between two that are interleaved with others, in seeds with copies.
const BETWEEN_STRIDE: usize = 45;
/// Operations between two large values, in seeds that have them.
const LARGE_VALUES_STRIDE: usize = 200;
/// Positions, within each stride, of the operations that put and remove a large value.
const LARGE_VALUE_COMES_AT: usize = 60;
const LARGE_VALUE_GOES_AT: usize = 100;

/// Generates the sequence of a byte string. Every byte string has one; longer strings have longer sequences.
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

/// Memory and file sizes of the databases of a seed.
#[derive(Clone, Copy)]
enum Size {
    Tiny,
    Small,
    Normal,
}

/// What a seed includes, by its setting.
struct Features {
    /// Whether there are large values.
    large_values: bool,
    /// Whether there are large transactions that keep little in memory.
    large_transactions: bool,
    /// Whether all commits go through the log.
    logs_all: bool,
    /// Whether there are blob files.
    blobs: bool,
    /// Whether there is a change feed.
    feed: bool,
    /// Whether entries expire.
    expiry: bool,
    /// Whether keyspaces keep history.
    history: bool,
    /// Whether keyspaces have a maximum size.
    limits: bool,
    /// Whether there are checkpoints and backups.
    copies: bool,
    /// Whether the feed is archived.
    archives: bool,
    /// Whether the database is unloaded.
    unloads: bool,
    /// Whether there is a replica.
    replica: bool,
    /// Whether there are guests.
    guests: bool,
    /// Whether there are exclusive transactions.
    exclusive: bool,
    /// Whether large commits fill the disk.
    crowds: bool,
}

impl Features {
    fn of(seed: u64) -> Self {
        Features {
            large_values: setting::has_large_values(seed),
            large_transactions: setting::has_large_transactions(seed),
            logs_all: setting::logs_all_commits(seed),
            blobs: setting::has_blobs(seed),
            feed: setting::has_feed(seed) || setting::has_numbered_states(seed),
            expiry: setting::has_expiry(seed),
            history: setting::has_history(seed),
            limits: setting::has_limits(seed),
            copies: setting::has_copies(seed),
            archives: setting::has_archives(seed),
            unloads: setting::has_unloads(seed),
            replica: setting::has_replica(seed),
            guests: setting::has_guests(seed),
            exclusive: setting::has_exclusive(seed),
            crowds: setting::has_crowds(seed),
        }
    }
}

struct Generator<'a> {
    choices: Choices<'a>,
    size: Size,
    /// The keys in use. Earlier ones are used more often.
    hot: Vec<KeyNo>,
    /// Whether there are I/O errors and full disks.
    faults: bool,
    /// Whether processes end inside calls.
    deaths: bool,
    /// Whether background work runs only in explicit steps.
    stepped: bool,
    /// The stamp of the next value.
    stamp: u32,
    /// Remaining bytes of values and long keys.
    room: u64,
    features: Features,
    /// Queued operations, last one first.
    pending: Vec<Op>,
    /// Number of generated operations.
    made: usize,
}

impl<'a> Generator<'a> {
    fn new(mut choices: Choices<'a>, seed: u64, room: u64) -> Self {
        let mut keys: Vec<_> = (0..keys::count()).map(KeyNo).collect();
        choices.shuffle(&mut keys);
        // With few keys, versions pile up.
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
            features: Features::of(seed),
            pending: Vec::new(),
            made: 0,
            choices,
        }
    }

    /// Returns the next operation.
    fn next_op(&mut self) -> Op {
        self.made += 1;
        if let Some(op) = self.copy_that_is_due().or_else(|| self.sharing_that_is_due()) {
            return op;
        }
        let key = self.hot[0];
        match self.made % LARGE_VALUES_STRIDE {
            LARGE_VALUE_COMES_AT if self.features.large_values => {
                let span = LARGE_VALUE_BYTES.end - LARGE_VALUE_BYTES.start;
                let len = LARGE_VALUE_BYTES.start + self.stamp.wrapping_mul(700_001) % span;
                Op::Write(KeyspaceNo(0), Write::Put(key, self.stamped(len)))
            }
            LARGE_VALUE_GOES_AT if self.features.large_values => Op::Write(KeyspaceNo(0), Write::Remove(key)),
            at if self.features.expiry && at.is_multiple_of(TIME_STRIDE) => self.time(),
            _ if self.made % BETWEEN_STRIDE == 7 => self.with_other_work(),
            _ if self.features.limits && self.made % LIMITS_STRIDE == 3 => {
                // Mostly a maximum. With a small one, single commits exceed it.
                let bytes = [0, 400, 3000, 3000, 10_000, 10_000, 40_000, 200_000][self.choices.usize(0..8)];
                Op::SetBytesMax(self.keyspace(), bytes)
            }
            _ if self.features.limits && self.made % SWEEPS_STRIDE == 5 => Op::Step(BackgroundStep::Sweep),
            _ if self.features.history && self.made % HISTORIES_STRIDE == 1 => {
                // Mostly a setting that keeps something.
                let which = [0, 1, 2, 3, 4, 0, 0, 1, 2][self.choices.usize(0..9)];
                Op::SetHistory(self.keyspace(), which)
            }
            // With lazy counting, compactions leave tombstones of uncounted versions.
            _ if self.features.history && self.made % HISTORIES_STRIDE == 2 => {
                Op::SetLazyCounting(self.keyspace(), !self.one_in(4))
            }
            _ if self.features.history && self.made.is_multiple_of(PAST_STRIDE) => {
                let (commits_ago, no) = (CommitsAgo(self.choices.u8(0..40)), self.keyspace());
                match self.choices.u8(0..6) {
                    0 | 1 => Op::Since(commits_ago, no),
                    2 | 3 => Op::Versions(no, self.key()),
                    _ => Op::Past(commits_ago, no, self.read()),
                }
            }
            _ => self.op(),
        }
    }

    /// Returns a time-related operation.
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
        if self.features.large_transactions && self.made.is_multiple_of(LARGE_TRANSACTIONS_STRIDE) {
            self.pending = self.large_transaction();
        } else if self.features.expiry && self.made % OVERTAKEN_READERS_STRIDE == 75 {
            self.pending = self.overtaken_merges();
        } else if self.features.history && self.made % HISTORIES_STRIDE == 20 {
            self.pending = self.pile_of_versions();
        } else if self.made % OVERTAKEN_READERS_STRIDE == 37 {
            self.pending = self.overtaken_reader();
        }
        self.pending.pop().unwrap_or_else(|| self.drawn())
    }

    fn drawn(&mut self) -> Op {
        match self.choices.u16(0..1000) {
            0..280 => Op::Write(self.keyspace(), self.write()),
            280..304 => Op::Update(self.keyspace(), self.update()),
            304..380 => {
                let n = if self.one_in(10) { self.choices.usize(20..60) } else { self.choices.usize(0..8) };
                let writes = (0..n).map(|_| (self.keyspace(), self.write())).collect();
                Op::Batch(writes, self.durability())
            }
            380 if self.one_in(3) => Op::Batch(self.bulk(), self.durability()),
            380..384 => self.ingest(),
            384..386 => Op::SetLazyCounting(self.keyspace(), self.choices.bool()),
            386..392 => Op::Create(self.choices.u8(0..DRAWN_NAMES)),
            392..398 => Op::Rename(self.keyspace(), self.choices.u8(0..DRAWN_NAMES)),
            398..401 => Op::Drop(self.keyspace()),
            401..403 => Op::Names(self.name_changes(), self.durability()),
            403..433 => Op::Begin(self.slot()),
            433..482 => Op::TransactionWrite(self.slot(), self.keyspace(), self.write()),
            482..490 => Op::TransactionUpdate(self.slot(), self.keyspace(), self.update_within()),
            490..501 => Op::Point(self.slot(), self.point()),
            501..503 => Op::TransactionOpen(self.slot(), self.choices.u8(0..DRAWN_NAMES)),
            503..533 => Op::Commit(self.slot(), self.durability()),
            533..540 => Op::Rollback(self.slot()),
            540..570 => Op::Snapshot(self.slot()),
            570..580 => Op::ReleaseSnapshot(self.slot()),
            580..730 => Op::Read(self.reader(), self.keyspace(), self.read()),
            730..736 => Op::HoldCursor(self.slot(), self.reader(), self.keyspace()),
            // Often the same slot, so that the cursor already has a position.
            736..770 => Op::MoveCursor(self.choices.usize(0..2), self.moves(6)),
            770..780 => Op::Iterate(self.slot(), self.reader(), self.keyspace(), self.bounds()),
            780..810 => Op::IterateOn(self.slot(), self.takes(8)),
            810..820 => Op::Flush,
            820..823 => Op::Compact,
            823..826 => Op::CompactRange(self.keyspace(), self.bounds()),
            826..900 => Op::Step(self.step()),
            900..906 => Op::Sync,
            906..908 => Op::Check,
            908..910 => Op::Beside,
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
        assert_eq!(kinds.len(), 53, "a kind of operation is missing");
    }

    #[test]
    fn what_bytes_make_is_bounded() {
        // The second length has large values.
        for (byte, len) in (0..=255).flat_map(|byte| [(byte, 3 * INPUT_BYTES_MAX), (byte, 1986)]) {
            let ops = from_bytes(&vec![byte; len]).1;
            let bytes = |write: &Write| match write {
                Write::Put(key, value)
                | Write::PutFor(key, value, _)
                | Write::Merge(key, value)
                | Write::MergeFor(key, value, _) => keys::key(*key).len() + value.len as usize,
                _ => 0,
            };
            let payload = |op: &Op| match op {
                Op::Write(_, write) | Op::TransactionWrite(_, _, write) => bytes(write),
                Op::Batch(writes, _) => writes.iter().map(|(_, write)| bytes(write)).sum(),
                _ => 0,
            };
            assert!(ops.len() <= OPS_MAX);
            // Short keys are not limited.
            assert!(ops.iter().map(payload).sum::<usize>() < PAYLOAD_BYTES_MAX as usize + 500_000, "{byte}");
        }
    }
}
