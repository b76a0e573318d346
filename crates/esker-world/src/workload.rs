//! A fixed workload that covers all kinds of files, operations, reads, writes and durabilities. It fills
//! several memtables, compacts, commits more than a log segment holds, and keeps readers open across
//! compactions.

use std::ops::{Bound, Range};

use esker::{BackgroundStep, Blobs, Durability, FileSizes, TableCompression};

use crate::judge::read::everything;
use crate::model::keys::{KeyBounds, KeyNo};
use crate::model::values::ValueNo;
use crate::op::{End, KeyspaceNo, Move, Op, Opening, Read, Reader, Restart, Write};

/// Variants of the workload's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The defaults.
    Plain,
    /// With compression.
    Compressed,
    /// Data larger than the cache, so that compactions use tiers. Log segments grow, commits fill several,
    /// and manifests are replaced.
    Beyond,
    /// Longer values are in blob files.
    Blobs,
}

impl Variant {
    /// All variants.
    pub const ALL: [Variant; 4] = [Variant::Plain, Variant::Compressed, Variant::Beyond, Variant::Blobs];
}

/// Returns the options of a variant.
pub fn opening(variant: Variant) -> Opening {
    let beyond = variant == Variant::Beyond;
    let small = FileSizes { first_segment: 1024, bulk_segment: 300_000, manifest_min: 2048 };
    Opening {
        durability: Durability::Sync,
        memory: 1 << 20,
        miniature: beyond.then_some(0),
        file_sizes: if beyond { small } else { FileSizes::default() },
        memtable_bytes: 4096,
        transaction_memory: Some(1024),
        adoption_bytes: None,
        blobs: if variant == Variant::Blobs { Blobs::From(40) } else { Blobs::Never },
        feed_bytes: None,
        block_bytes: if variant == Variant::Compressed { 512 } else { 128 },
        table_bytes: 1024,
        compression: if variant == Variant::Compressed {
            TableCompression::Auto
        } else {
            TableCompression::None
        },
        stepped: true,
    }
}

/// Returns a plain key of the pool.
fn key(n: usize) -> KeyNo {
    KeyNo(300 + n as u16)
}

fn value(n: usize, tag: u32) -> ValueNo {
    ValueNo::new(10 + (n * 7 % 60) as u32, tag << 16 | n as u32)
}

fn puts(keyspace: u8, keys: Range<usize>, tag: u32) -> Vec<(KeyspaceNo, Write)> {
    keys.map(|n| (KeyspaceNo(keyspace), Write::Put(key(n), value(n, tag)))).collect()
}

fn between(from: usize, to: usize) -> KeyBounds {
    (Bound::Included(key(from)), Bound::Excluded(key(to)))
}

/// Numbers of the keyspaces; the first is the default one.
const DEFAULT: u8 = 0;
const OTHER: u8 = 1;
const THIRD: u8 = 2;

fn read(reader: Reader, keyspace: u8, read: Read) -> Op {
    Op::Read(reader, KeyspaceNo(keyspace), read)
}

/// Returns all kinds of reads.
fn reads(reader: Reader, keyspace: u8) -> Vec<Op> {
    let moves = vec![
        Move::First,
        Move::Next,
        Move::Seek(key(17)),
        Move::Prev,
        Move::Prev,
        Move::SeekBefore(key(9)),
        Move::Next,
        Move::Last,
        Move::Prev,
    ];
    let ways = [
        Read::Get(key(3)),
        Read::Get(key(19)),
        Read::Contains(key(9)),
        Read::MultiGet(vec![key(2), key(30), key(7), key(90)]),
        Read::Ends,
        Read::Len,
        Read::Range { bounds: between(4, 25), takes: vec![true, false, true], keys_only: true },
        Read::Prefix { key: key(12), len: 6, backwards: true },
        Read::Cursor(moves),
        everything(),
    ];
    ways.map(|way| read(reader, keyspace, way)).into()
}

/// Returns the operations for these options.
pub fn script(opening: Opening) -> Vec<Op> {
    [small(opening), bulk(opening)].concat()
}

/// Returns the operations without large commits.
pub fn small(opening: Opening) -> Vec<Op> {
    let reopen = || Op::Restart(Restart { end: End::Close, mishaps: Vec::new(), opening });
    [beginning(), vec![reopen()], small_commits(), changes_of_keyspaces(), vec![reopen()], ending()].concat()
}

fn delete_range(keyspace: u8, from: usize, to: usize) -> Op {
    Op::Batch(vec![(KeyspaceNo(keyspace), Write::RemoveRange(between(from, to)))], Durability::Sync)
}

fn merge(idle: bool) -> Op {
    Op::Step(BackgroundStep::Compact { idle })
}

fn flush() -> Op {
    Op::Step(BackgroundStep::Flush)
}

/// Two keyspaces, single writes, transactions; a snapshot and an iterator held across a compaction.
fn beginning() -> Vec<Op> {
    use Durability::{Buffered, None as NotSoon, Sync};
    let write = |keyspace, write| Op::Write(KeyspaceNo(keyspace), write);
    let remove = |keyspace, n| (KeyspaceNo(keyspace), Write::Remove(key(n)));
    let within = |slot, keyspace, write| Op::TransactionWrite(slot, KeyspaceNo(keyspace), write);
    let mut ops = vec![
        Op::Batch(puts(DEFAULT, 0..1, 1), Sync),
        Op::Create(0),
        Op::Batch(puts(OTHER, 0..30, 2), Sync),
        Op::Batch(puts(DEFAULT, 0..40, 3), Buffered),
        Op::Flush,
        Op::Snapshot(0),
        Op::Batch(vec![remove(OTHER, 3), remove(DEFAULT, 4)], Sync),
        delete_range(OTHER, 5, 12),
        Op::Batch(puts(OTHER, 8..10, 4), NotSoon),
        write(DEFAULT, Write::Put(key(41), value(41, 4))),
        write(DEFAULT, Write::Remove(key(2))),
        write(OTHER, Write::RemoveRange(between(25, 27))),
        Op::Create(4),
        Op::Batch(puts(THIRD, 0..10, 5), Sync),
        Op::Begin(0),
        within(0, DEFAULT, Write::Put(key(50), value(50, 6))),
        within(0, OTHER, Write::Remove(key(9))),
        Op::Begin(1),
        within(1, OTHER, Write::Put(key(9), value(9, 7))),
        within(1, DEFAULT, Write::RemoveRange(between(0, 20))),
    ];
    ops.extend(reads(Reader::Transaction(1), DEFAULT));
    ops.extend([
        Op::Commit(0, Sync),
        Op::Rollback(1),
        Op::Iterate(0, Reader::Latest, KeyspaceNo(DEFAULT), between(0, 60)),
        Op::IterateOn(0, vec![false, true]),
        Op::HoldCursor(0, Reader::Latest, KeyspaceNo(DEFAULT)),
        Op::MoveCursor(0, vec![Move::Seek(key(21)), Move::Next]),
        write(DEFAULT, Write::Put(key(42), value(42, 8))),
        Op::MoveCursor(0, vec![Move::Prev, Move::Prev]),
        Op::Flush,
        merge(true),
        Op::MoveCursor(0, vec![Move::Next, Move::Last]),
    ]);
    ops.extend(reads(Reader::Snapshot(0), OTHER));
    ops.extend([
        read(Reader::Snapshot(0), DEFAULT, everything()),
        Op::IterateOn(0, vec![true, false, false, true]),
        Op::MoveCursor(0, vec![Move::Prev, Move::First, Move::Next]),
        Op::ReleaseSnapshot(0),
        merge(true),
        Op::Check,
    ]);
    ops
}

/// Small commits until memtables fill up, while background work lags behind.
fn small_commits() -> Vec<Op> {
    let mut ops = Vec::new();
    for n in 0..24 {
        let durability = [Durability::Sync, Durability::Buffered, Durability::None][n % 3];
        ops.push(Op::Batch(puts(DEFAULT, n * 3..n * 3 + 6, 10 + n as u32), durability));
        match n % 6 {
            1 => ops.push(Op::Step(BackgroundStep::PrepareLog)),
            3 => ops.push(flush()),
            4 => ops.extend([Op::Clock(200), Op::Step(BackgroundStep::SyncLog)]),
            5 => ops.push(merge(false)),
            _ => {}
        }
        match n {
            8 => ops.push(Op::Snapshot(1)),
            20 => ops.push(read(Reader::Snapshot(1), DEFAULT, everything())),
            _ => {}
        }
    }
    ops.extend([Op::Sync, flush(), merge(true)]);
    ops.extend(reads(Reader::Latest, DEFAULT));
    ops.extend([read(Reader::Snapshot(1), DEFAULT, everything()), Op::ReleaseSnapshot(1)]);
    ops
}

/// Keyspaces renamed, dropped and cleared under a snapshot.
fn changes_of_keyspaces() -> Vec<Op> {
    use Durability::{Buffered, None as NotSoon, Sync};
    let hole = (Bound::Excluded(key(13)), Bound::Excluded(key(40)));
    let mut both = puts(DEFAULT, 10..20, 40);
    both.push((KeyspaceNo(DEFAULT), Write::RemoveRange(hole)));
    both.extend(puts(OTHER, 10..20, 41));
    both.extend(puts(DEFAULT, 16..18, 42));
    let mut ops = vec![
        Op::Snapshot(2),
        Op::Iterate(1, Reader::Snapshot(2), KeyspaceNo(OTHER), between(0, 30)),
        Op::Batch(both, Sync),
        Op::Rename(KeyspaceNo(OTHER), 1),
        Op::Drop(KeyspaceNo(THIRD)),
        Op::Compact,
        Op::IterateOn(1, vec![false, true, true]),
    ];
    ops.extend(reads(Reader::Snapshot(2), DEFAULT));
    ops.extend([
        Op::Batch(puts(OTHER, 20..22, 43), NotSoon),
        Op::Write(KeyspaceNo(OTHER), Write::Clear),
        Op::Batch(puts(OTHER, 2..5, 44), Buffered),
    ]);
    ops
}

/// A range removed from compacted tables.
fn ending() -> Vec<Op> {
    vec![
        Op::Batch(puts(DEFAULT, 60..75, 45), Durability::Sync),
        Op::Flush,
        // One step moves tables that overlap nothing; another one compacts.
        merge(true),
        merge(true),
        delete_range(DEFAULT, 0, 9),
        Op::Compact,
    ]
}

/// A commit of large values that becomes tables. Then, in a process that logs all commits, commits that need
/// several segments.
fn bulk(opening: Opening) -> Vec<Op> {
    use Durability::{Buffered, Sync};
    let large = |keys: Range<usize>, tag: u32| {
        let value = |n: usize| ValueNo::new(60_000, tag << 16 | n as u32);
        keys.map(|n| (KeyspaceNo(DEFAULT), Write::Put(key(n), value(n)))).collect()
    };
    let bulk = |tag| large(0..20, tag);
    let logged = Opening { adoption_bytes: Some(u64::MAX), ..opening };
    vec![
        Op::Batch(large(8..12, 51), Buffered),
        Op::Restart(Restart { end: End::Close, mishaps: Vec::new(), opening: logged }),
        Op::Batch(bulk(46), Sync),
        Op::Batch(puts(DEFAULT, 7..8, 47), Buffered),
        flush(),
        Op::Batch(bulk(48), Buffered),
        Op::Batch(puts(DEFAULT, 3..9, 49), Sync),
        Op::Compact,
        Op::Batch(puts(DEFAULT, 1..3, 50), Sync),
        read(Reader::Latest, DEFAULT, Read::Len),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    use super::*;

    /// Returns the names of variants as one line.
    fn names<T: Debug>(items: impl IntoIterator<Item = T>) -> String {
        let name = |item: T| {
            let text = format!("{item:?}");
            text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
        };
        items.into_iter().map(name).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_script_touches_every_kind_of_operation() {
        let ops = script(opening(Variant::Plain));
        // Fault, DiskFull, Mend and RestartIn are missing, because the sweep chooses them.
        let all = "Batch Begin Check Clock Commit Compact Create Drop Flush HoldCursor Iterate IterateOn MoveCursor Read ReleaseSnapshot Rename \
                   Restart Rollback Snapshot Step Sync TransactionWrite Write";
        assert_eq!(names(&ops), all);
        let singles =
            ops.iter().filter_map(|op| if let Op::Write(_, write) = op { Some(write) } else { None });
        assert_eq!(names(singles), "Clear Put Remove RemoveRange");
        let steps = ops.iter().filter_map(|op| if let Op::Step(step) = op { Some(step) } else { None });
        assert_eq!(names(steps), "Compact Flush PrepareLog SyncLog");
        let ends = ops.iter().filter_map(|op| if let Op::Restart(r) = op { Some(r.end) } else { None });
        assert_eq!(names(ends), "Close", "the sweep chooses losses");
    }
}
