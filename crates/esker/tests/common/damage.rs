//! Databases with entries of all kinds, whose files the tests then damage.
//!
//! ```text
//!   operations of esker-world --> database --copy, damage--> open, check, repair, dump
//! ```

use std::collections::BTreeSet;
use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::sync::Arc;

use esker::{BackgroundStep, Builder, DumpItem, DumpOptions, DumpValue, Durability, TableCompression};
use esker_env::{Env, Fs, FsRef, MemFs, OpenOptions};
use esker_world::model::keys::{KeyNo, key};
use esker_world::model::state::State;
use esker_world::model::values::ValueNo;
use esker_world::op::{KeyspaceNo, Op, Write};
use esker_world::perform::Part;
use esker_world::workload::{Variant, opening, small};

use super::contents::Contents;
use super::goldens::{EXPECTED, LEFT_BY_A_CRASH, decode, make};
use super::{dir, simulated};

/// A database and what it should hold. It is closed, except where a constructor says otherwise.
pub struct Golden {
    pub fs: MemFs,
    pub files: Vec<String>,
    /// Its contents.
    pub newest: Contents,
    /// Its earlier contents, newest first: commits that only the log has.
    pub earlier: Vec<Contents>,
    /// Its contents after each operation, oldest first.
    pub history: Vec<Contents>,
    /// Every key that a keyspace ever had.
    pub keys: BTreeSet<Vec<u8>>,
    /// Whether it was closed, so that its log has an end record.
    pub closed: bool,
}

/// Number of commits after the last flush. Only the log has them.
pub const LOGGED: usize = 8;

/// What a check reports about a file that nothing needs, after its name.
const LEFTOVER: &str = " is not needed: the next open removes it";

/// Removes replaced tables. A thread of another test may keep them in the original; in this copy they are
/// removed.
pub fn remove_replaced(builder: Builder, fs: &MemFs) {
    let report = builder.check_offline(dir()).expect("it can be checked");
    let leftovers = report.notes.iter().filter_map(|note| note.strip_suffix(LEFTOVER));
    for name in leftovers.filter(|name| name.ends_with(".sst")) {
        fs.remove_file(&path(name)).expect("it is there");
    }
}

impl Golden {
    /// One run of compacted tables, and a log.
    pub fn merged() -> Golden {
        Self::of(simulated, workload(), logged(), true)
    }

    /// Same as `merged`, left by a killed process: its log has no end record.
    pub fn killed() -> Golden {
        Self::of(simulated, workload(), logged(), false)
    }

    /// Several runs with tombstones and range tombstones of several keyspaces, and a log.
    pub fn layered() -> Golden {
        let mut flushed = workload();
        for n in 0..4 {
            let put = |keyspace, i| (KeyspaceNo(keyspace), write(600 + i, 20 + n, n));
            let mut writes: Vec<_> = (n * 5..n * 5 + 12).map(|i| put(0, i)).collect();
            writes.extend((0..6).map(|i| put(1, i * n)));
            writes.push((KeyspaceNo(0), Write::Remove(KeyNo(600 + n * 5 + 1))));
            flushed.push(Op::Batch(writes, Durability::Sync));
            let (from, to) = (KeyNo(600 + n * 4), KeyNo(600 + n * 4 + 2));
            let range = Write::RemoveRange((Bound::Included(from), Bound::Excluded(to)));
            flushed.extend([Op::Batch(vec![(KeyspaceNo(1), range)], Durability::Sync), Op::Flush]);
        }
        Self::of(simulated, flushed, logged(), true)
    }

    /// Two runs of the same shape above a small one: the same keys, other values of the same lengths. The
    /// tables differ only in the sequence numbers of their commits.
    pub fn twins() -> Golden {
        let run = |keys: Range<u16>, tag| [batch(keys.map(|n| write(n, 20, tag))), Op::Flush];
        // The lowest run keeps no sequence numbers.
        let flushed = [run(600..601, 0), run(600..612, 1), run(600..612, 2)].concat();
        let builder = |fs| simulated(fs).compression(TableCompression::None);
        let golden = Self::of(builder, flushed, logged(), true);
        let sizes: Vec<_> = golden.twin_tables().iter().map(|name| golden.read(name).len()).collect();
        assert!(golden.named(".sst").count() == 3 && sizes[0] == sizes[1], "{sizes:?}");
        golden
    }

    /// The two tables of the same shape.
    pub fn twin_tables(&self) -> [&str; 2] {
        let tables: Vec<&String> = self.named(".sst").collect();
        [tables[tables.len() - 2], tables[tables.len() - 1]]
    }

    /// One of several databases of the same shape: the same keys, other values of the same lengths.
    pub fn double(number: u16) -> Golden {
        let commit = |keys: Range<u16>| batch(keys.map(|n| write(600 + n, 20, number)));
        let builder = |fs: FsRef| {
            let env = Env::simulated(fs.clone(), u64::from(number));
            simulated(fs).env(env).compression(TableCompression::None)
        };
        let logged = (30..30 + LOGGED as u16).map(|n| commit(n..n + 1)).collect();
        Self::of(builder, vec![commit(0..30)], logged, true)
    }

    /// A log of several segments with commits that span them.
    pub fn segmented() -> Golden {
        let put = |n: u16| batch([write(400 + n, 1500, n)]);
        let flushed = (0..4).map(put).collect();
        let golden = Self::of(
            |fs| simulated(fs).tuning(|t| t.memtable_bytes(64 << 10)),
            flushed,
            (4..34).map(put).collect(),
            true,
        );
        assert!(golden.named(".wal").count() >= 3, "{:?}", golden.files);
        golden
    }

    /// A log left by a killed process, with several records for each sync. Of each three commits, one waits
    /// for nothing, one for the operating system and one for the disk.
    pub fn grouped() -> Golden {
        const GROUP: [Durability; 3] = [Durability::None, Durability::Buffered, Durability::Sync];
        let logged = (0..12).map(|n| put_with(n, GROUP[usize::from(n % 3)])).collect();
        Self::of(|fs| simulated(fs).tuning(|t| t.memtable_bytes(64 << 10)), vec![put(100)], logged, false)
    }

    /// Everything in tables, and no log.
    pub fn flushed() -> Golden {
        Self::tables(vec![put(1), put(2), Op::Flush, put(3)])
    }

    /// Everything in one table, and the first flush has dropped the sequence numbers of all commits.
    pub fn flushed_once() -> Golden {
        Self::tables(vec![put(1), put(2)])
    }

    /// Same as `flushed_once`, after a compaction.
    pub fn compacted() -> Golden {
        Self::tables(vec![put(1), put(2), Op::Flush, put(3), Op::Compact])
    }

    /// Same as `compacted`, but the compaction left an earlier process's table alone.
    pub fn compacted_later() -> Golden {
        let golden = Self::tables(vec![put(1), Op::Compact, reopen(), put(200), Op::Compact]);
        assert!(golden.named(".sst").count() > 1, "{:?}", golden.files);
        golden
    }

    /// Tables, and no log.
    fn tables(ops: Vec<Op>) -> Golden {
        Self::of(simulated, ops, Vec::new(), true)
    }

    /// One of the golden directories, as this version writes it. Its earlier contents are not known.
    pub fn kind(name: &str) -> Golden {
        let fs = MemFs::new();
        fs.create_dir_all(dir()).expect("memory does not fail");
        let mut made = make(name).expect("no faults");
        let expected = made.remove(EXPECTED).expect("it says what it holds");
        made.iter().for_each(|(name, bytes)| replace(&fs, name, bytes));
        let newest = decode(std::str::from_utf8(&expected).expect("text"));
        Golden {
            fs,
            files: made.into_keys().collect(),
            keys: keys_of([&newest]),
            newest,
            earlier: Vec::new(),
            history: Vec::new(),
            closed: !LEFT_BY_A_CRASH.contains(&name),
        }
    }

    /// Runs some operations, flushes, and runs the others.
    fn of(builder: impl Fn(FsRef) -> Builder, flushed: Vec<Op>, logged: Vec<Op>, close: bool) -> Golden {
        let fs = MemFs::new();
        let open = || builder(Arc::new(fs.clone())).open(dir()).expect("no faults");
        let mut part = Part { prefix: String::new(), state: State::new() };
        let (mut db, mut history) = (open(), vec![bytes_of(&part.state)]);
        let ops = [&flushed[..], &[Op::Flush], &logged].concat();
        let mut in_tables = 0;
        for (n, op) in ops.iter().enumerate() {
            if let Op::Restart(_) = op {
                db.close().expect("no faults");
                db = open();
                continue;
            }
            part.perform(&db, op).expect("no faults");
            part.state.perform(op);
            history.push(bytes_of(&part.state));
            if n == flushed.len() {
                in_tables = history.len();
            }
        }
        if close {
            db.close().expect("no faults");
        }
        let fs = fs.crash_keep_all();
        remove_replaced(builder(Arc::new(fs.clone())), &fs);
        let mut earlier = history[in_tables - 1..].to_vec();
        let newest = earlier.pop().expect("there is a last");
        earlier.reverse();
        let mut files = fs.list_dir(dir()).expect("it is there");
        files.sort();
        let kinds = [".sst", "MANIFEST", "CURRENT", "OPTIONS", "LOCK", ".wal"];
        // A log without commits has no file.
        let kinds = &kinds[..kinds.len() - usize::from(earlier.is_empty())];
        assert!(kinds.iter().all(|kind| files.iter().any(|f| f.contains(kind))), "{files:?}");
        let keys = keys_of(&history);
        Golden { fs, files, newest, earlier, history, keys, closed: close }
    }

    /// The files with this suffix, sorted.
    pub fn named(&self, suffix: &str) -> impl Iterator<Item = &String> {
        self.files.iter().filter(move |name| name.ends_with(suffix))
    }

    /// The last segment of the log.
    pub fn last_segment(&self) -> &str {
        self.named(".wal").last().expect("there is a log")
    }

    /// The contents without this number of newest commits.
    pub fn without(&self, commits: usize) -> &Contents {
        commits.checked_sub(1).map_or(&self.newest, |n| &self.earlier[n])
    }

    /// Number of commits that end after the first `len` bytes of a segment.
    pub fn commits_behind(&self, segment: &str, len: usize) -> usize {
        records(&self.fs, segment).iter().filter(|record| record.ends_commit && record.end > len).count()
    }

    /// A copy to damage.
    pub fn copy(&self) -> MemFs {
        self.fs.crash_keep_all()
    }

    /// The bytes of a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        read(&self.fs, name)
    }
}

/// Encodes a state as bytes.
fn bytes_of(state: &State) -> Contents {
    let map = |name: &String| {
        let map = state.named(name).expect("it is there");
        (name.clone(), map.entries().iter().map(|(no, value)| (key(*no).to_vec(), value.bytes())).collect())
    };
    state.names().keys().map(map).collect()
}

fn write(key: u16, len: u16, stamp: u16) -> Write {
    Write::Put(KeyNo(key), ValueNo::new(len.into(), stamp.into()))
}

/// A commit in the default keyspace.
fn batch(writes: impl IntoIterator<Item = Write>) -> Op {
    Op::Batch(writes.into_iter().map(|write| (KeyspaceNo(0), write)).collect(), Durability::Sync)
}

/// A commit of one key.
fn put(n: u16) -> Op {
    put_with(n, Durability::Sync)
}

fn put_with(n: u16, durability: Durability) -> Op {
    Op::Batch(vec![(KeyspaceNo(0), write(400 + n, 30, n))], durability)
}

/// The fixed workload, without large commits and without operations that need a simulated world.
fn workload() -> Vec<Op> {
    let is_done = |op: &Op| {
        let is_step = matches!(op, Op::Step(BackgroundStep::Flush | BackgroundStep::Compact { .. }));
        op.is_a_writers() || is_step || matches!(op, Op::Restart(_))
    };
    small(opening(Variant::Plain)).into_iter().filter(is_done).collect()
}

fn reopen() -> Op {
    workload().into_iter().find(|op| matches!(op, Op::Restart(_))).expect("it reopens")
}

/// The keys of some states.
fn keys_of<'a>(states: impl IntoIterator<Item = &'a Contents>) -> BTreeSet<Vec<u8>> {
    states.into_iter().flat_map(|state| state.values()).flat_map(|map| map.keys().cloned()).collect()
}

/// The key of each of the last commits.
pub fn logged_key(n: usize) -> &'static [u8] {
    key(KeyNo(500 + n as u16))
}

/// The value of that key.
pub fn logged_value(n: usize) -> Vec<u8> {
    ValueNo::new(30, n as u32).bytes()
}

/// Commits that stay in the log.
fn logged() -> Vec<Op> {
    (0..LOGGED as u16).map(|n| batch([write(500 + n, 30, n)])).collect()
}

/// A record of a log segment.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// Start of its header, and end of its payload.
    pub start: usize,
    pub end: usize,
    /// Its commit's number.
    pub seq: u64,
    /// Bytes of the segment that were durable when it was made.
    pub synced_to: usize,
    /// Whether it is a whole commit or the last part of one.
    pub ends_commit: bool,
}

/// The records of a sound segment, as `dump` shows them.
pub fn records(fs: &MemFs, segment: &str) -> Vec<Record> {
    const HEADER_BYTES: usize = 24;
    let mut records = Vec::new();
    dump_file(fs, segment, |item| {
        if item.kind == "record" {
            let (start, bytes) = (item.offset as usize, number(&item, "bytes") as usize);
            let ends_commit = ["full", "last"].contains(&&*text(&item, "kind"));
            let end = start + HEADER_BYTES + bytes;
            let (seq, synced_to) = (number(&item, "seq"), number(&item, "synced_to") as usize);
            records.push(Record { start, end, seq, synced_to, ends_commit });
        }
    });
    records
}

/// The first and the last encoded key that a table states.
pub fn table_range(fs: &MemFs, table: &str) -> (Vec<u8>, Vec<u8>) {
    let mut range = None;
    dump_file(fs, table, |item| {
        if item.kind == "properties" {
            range = Some((bytes(&item, "first"), bytes(&item, "last")));
        }
    });
    range.expect("a sound table")
}

/// A block of a table.
#[derive(Clone, Debug)]
pub struct Block {
    /// Its position.
    pub start: usize,
    pub end: usize,
    /// Its encoded keys.
    pub keys: Vec<Vec<u8>>,
}

/// The blocks of a sound table.
pub fn blocks(fs: &MemFs, table: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    dump_file(fs, table, |item| match item.kind {
        "block" => {
            let start = item.offset as usize;
            blocks.push(Block { start, end: start + number(&item, "bytes") as usize, keys: Vec::new() });
        }
        "put" | "tombstone" => blocks.last_mut().expect("a block").keys.push(bytes(&item, "key")),
        _ => {}
    });
    blocks
}

/// The parts of a table or log segment with checksums of their own. An error about a byte names an offset in
/// its part. Bytes outside all parts are never read.
pub fn parts(fs: &MemFs, name: &str) -> Vec<Range<usize>> {
    const SEGMENT_HEADER_BYTES: usize = 32;
    const RECORD_HEADER_BYTES: usize = 24;
    if name.ends_with(".wal") {
        let mut parts: Vec<_> = records(fs, name).iter().map(|record| record.start..record.end).collect();
        parts.push(0..SEGMENT_HEADER_BYTES);
        dump_file(fs, name, |item| {
            if item.kind == "end" {
                let start = item.offset as usize;
                parts.push(start..start + RECORD_HEADER_BYTES);
            }
        });
        return parts;
    }
    let mut parts: Vec<_> = blocks(fs, name).iter().map(|block| block.start..block.end).collect();
    dump_file(fs, name, |item| {
        if item.kind == "part" {
            let start = item.offset as usize;
            parts.push(start..start + number(&item, "bytes") as usize);
        }
    });
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    assert_eq!(bytes, read(fs, name).len(), "a table has no other bytes: {parts:?}");
    parts
}

fn dump_file(fs: &MemFs, name: &str, each: impl FnMut(DumpItem)) {
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    DumpOptions::default().env(env).dump(path(name), each).expect("memory does not fail");
}

fn field<'a>(item: &'a DumpItem, name: &str) -> &'a DumpValue {
    let field = item.fields.iter().find(|(key, _)| *key == name);
    &field.unwrap_or_else(|| panic!("{name} of {item:?}")).1
}

fn number(item: &DumpItem, name: &str) -> u64 {
    if let DumpValue::Number(n) = field(item, name) { *n } else { panic!("{name} of {item:?}") }
}

fn text(item: &DumpItem, name: &str) -> String {
    if let DumpValue::Text(text) = field(item, name) { text.clone() } else { panic!("{name} of {item:?}") }
}

fn bytes(item: &DumpItem, name: &str) -> Vec<u8> {
    if let DumpValue::Bytes(bytes) = field(item, name) { bytes.clone() } else { panic!("{name} of {item:?}") }
}

/// The path of a file of the database.
pub fn path(name: &str) -> PathBuf {
    dir().join(name)
}

/// The bytes of a file.
pub fn read(fs: &MemFs, name: &str) -> Vec<u8> {
    let file = fs.open(&path(name), OpenOptions::read()).expect("it is there");
    let mut bytes = vec![0; file.len().expect("it has one") as usize];
    file.read_exact_at(&mut bytes, 0).expect("it is that long");
    bytes
}

/// Replaces the content of a file.
pub fn replace(fs: &MemFs, name: &str, bytes: &[u8]) {
    let file = fs.open(&path(name), OpenOptions::create()).expect("memory does not fail");
    file.write_all_at(bytes, 0).expect("memory does not fail");
}

/// Changes some bytes of a file.
pub fn overwrite(fs: &MemFs, name: &str, at: usize, bytes: &[u8]) {
    let file = fs.open(&path(name), OpenOptions::write()).expect("it is there");
    file.write_all_at(bytes, at as u64).expect("memory does not fail");
}

/// Cuts a file.
pub fn cut(fs: &MemFs, name: &str, len: usize) {
    fs.open(&path(name), OpenOptions::write()).expect("it is there").set_len(len as u64).expect("memory");
}

/// Whether the long forms of the tests are requested.
pub fn full() -> bool {
    std::env::var("ESKER_SWEEP").is_ok_and(|v| v == "full")
}

/// One in `n` of these items, other ones for each commit that `.ci/run` tests; all of them in the long form.
pub fn one_in<T>(n: usize, items: impl Iterator<Item = T>) -> impl Iterator<Item = T> {
    let n = if full() { 1 } else { n };
    let row =
        std::env::var("ESKER_SEED_ROW").map_or(0, |row| row.parse().expect("ESKER_SEED_ROW is a number"));
    items.skip(row % n).step_by(n)
}

/// Offsets in a file of `len` bytes: all of them for small files and in the long form, otherwise a sample
/// with both ends.
pub fn places(len: usize, sample: usize) -> Vec<usize> {
    if full() || len <= sample {
        return (0..len).collect();
    }
    let edge = sample / 4;
    let inner = (0..2 * edge).map(|i| edge + i * (len - 2 * edge) / (2 * edge));
    (0..edge).chain(inner).chain(len - edge..len).collect()
}
