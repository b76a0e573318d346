//! Contradictions between sound files: a manifest that describes them wrongly, an impossible catalog. The
//! tests cover each message of `tables.rs` and `content.rs`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, FaultFs, Fs, MemFs, OpenOptions};

use super::{CheckReport, log, tables};
use crate::Builder;
use crate::db::Db;
use crate::engine::state::catalog;
use crate::manifest::edit::VersionEdit;
use crate::manifest::file_name::table_path;
use crate::manifest::level::{Level, RunId};
use crate::manifest::log::ManifestLog;
use crate::read::view::ReadView;
use crate::sstable::{Fingerprint, SalvageTable};
use crate::txn::commit::Durability;
use crate::txn::write_set::WriteSet;
use crate::types::key::encode_key;
use crate::types::key_range::End;
use crate::types::{FileId, KeyspaceId, SeqNo};
use crate::wal::LogExtent;
use crate::wal::file_name::segment_path;

fn dir() -> &'static Path {
    Path::new("db")
}

fn builder(fs: &MemFs) -> Builder {
    Builder::default()
        .env(Env::simulated(Arc::new(fs.clone()), 1))
        .stepped()
        .memory(1 << 20)
        .tuning(|t| t.block_bytes(128))
}

fn key(n: u8) -> String {
    format!("key/{n:02}")
}

/// Makes a closed database: the runs of [`RUNS`], each with one table, two keyspaces and a log.
fn sample() -> MemFs {
    let fs = MemFs::new();
    let db = builder(&fs).open(dir()).unwrap();
    let all = db.default_keyspace();
    let people = db.keyspace("people").unwrap();
    let put = |keys: std::ops::Range<u8>, value: &str| {
        keys.for_each(|n| all.put(key(n), value).map(drop).unwrap());
    };
    people.put("ann", "1").unwrap();
    put(0..20, "oldest");
    db.flush().unwrap();
    put(0..15, "older");
    db.flush().unwrap();
    put(0..15, "newer");
    db.flush().unwrap();
    all.delete_range(key(16)..key(18)).unwrap();
    db.flush().unwrap();
    all.delete_range(key(17)..key(19)).unwrap();
    db.flush().unwrap();
    put(16..17, "back");
    db.flush().unwrap();
    put(19..20, "logged");
    db.close().unwrap();
    fs
}

/// Positions of the runs by age among the tables sorted by run number.
mod runs {
    pub(super) const OLDEST: usize = 0;
    pub(super) const OLDER: usize = 1;
    pub(super) const NEWER: usize = 2;
    pub(super) const REMOVED: usize = 3;
    pub(super) const REMOVED_TOO: usize = 4;
    pub(super) const BACK: usize = 5;
    pub(super) const COUNT: usize = 6;
}

/// Changes the manifest.
fn alter(fs: &MemFs, change: impl FnOnce(&mut VersionEdit)) {
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let (_, mut state) = ManifestLog::recover(&env, dir()).unwrap().unwrap();
    state.added.sort_by_key(|added| added.run);
    assert_eq!(state.added.len(), runs::COUNT);
    change(&mut state);
    ManifestLog::create(&env, dir(), FileId::new(900), state).unwrap();
}

fn check_offline(fs: &MemFs) -> CheckReport {
    builder(fs).check_offline(dir()).unwrap()
}

fn reports(report: &CheckReport, message: &str) -> bool {
    report.problems.iter().any(|problem| problem.contains(message))
}

fn assert_found(report: &CheckReport, message: &str) {
    assert!(reports(report, message), "{message}: {report:#?}");
}

/// Swaps the runs of two tables.
fn swap_runs(state: &mut VersionEdit, a: usize, b: usize) {
    let [one, other] = state.added.get_disjoint_mut([a, b]).unwrap();
    std::mem::swap(&mut one.run, &mut other.run);
    std::mem::swap(&mut one.level, &mut other.level);
}

#[test]
fn what_is_sound_is_sound() {
    let fs = sample();
    assert_eq!(check_offline(&fs).problems, Vec::<String>::new());
    // Rewriting the manifest changes nothing.
    alter(&fs, |_| {});
    assert_eq!(check_offline(&fs).problems, Vec::<String>::new());
    assert_eq!(builder(&fs).open(dir()).unwrap().check().unwrap().problems, Vec::<String>::new());
}

/// A change of the manifest.
type Change = fn(&mut VersionEdit);

/// Asserts that a check reports each change with this message.
fn assert_each_found(cases: &[(&str, Change)]) {
    let sound = sample();
    let overlooked: Vec<_> = cases
        .iter()
        .enumerate()
        .filter(|(_, (message, change))| {
            let fs = sound.kill();
            alter(&fs, change);
            let found = reports(&check_offline(&fs), message);
            // Opening checks less: it succeeds, or refuses with the right error.
            if let Err(error) = builder(&fs).open(dir()) {
                assert!(error.is_corrupt(), "{message}: {error}");
            }
            !found
        })
        .map(|(n, (message, _))| (n, message))
        .collect();
    assert!(overlooked.is_empty(), "{overlooked:?}");
}

#[test]
fn each_thing_that_a_manifest_may_say_wrongly_is_found() {
    use runs::*;
    let cases: &[(&str, Change)] = &[
        ("the manifest names it twice", |s| s.added.push(s.added[NEWER].clone())),
        ("its number has not been allocated yet", |s| s.next_file = Some(s.added[BACK].file)),
        ("the number of its run has not been allocated yet", |s| s.next_run = Some(s.added[BACK].run)),
        ("it holds commits that were not flushed yet", |s| {
            s.flushed_seq = Some(SeqNo::new(s.added[BACK].meta.counts.max_seq.get() - 1));
        }),
        ("it holds commits that were not flushed yet", |s| s.flushed_seq = None),
        // The oldest run was compacted with nothing below it: its tables have dropped the commit numbers.
        ("went into it, and only those up to 1 were flushed", |s| {
            assert_eq!(s.added[OLDEST].meta.counts.max_seq, SeqNo::ZERO);
            s.added.truncate(OLDEST + 1);
            s.flushed_seq = Some(SeqNo::new(1));
        }),
        ("its smallest sequence number is above its largest", |s| {
            let meta = &mut s.added[NEWER].meta;
            std::mem::swap(&mut meta.counts.min_seq, &mut meta.counts.max_seq);
        }),
        ("its keys belong to no keyspace", |s| {
            let range = &mut s.added[NEWER].meta.range;
            (range.start, range.end) = (vec![0xF0], End::Included(vec![0xF1]));
        }),
        (" of its run", |s| s.added[NEWER].run = s.added[OLDER].run),
        ("more than one base run", |s| {
            s.added[OLDEST].level = Level::BASE;
            s.added[OLDER].level = Level::BASE;
        }),
        ("but it is missing", |s| s.added[NEWER].file = FileId::new(s.added[NEWER].file.get() + 100)),
        // Runs in another order: only the combination is wrong.
        ("older than what run", |s| swap_runs(s, OLDER, NEWER)),
        ("15 versions stand above newer ones", |s| swap_runs(s, OLDER, NEWER)),
        ("and its range tombstone in run", |s| swap_runs(s, OLDEST, REMOVED)),
        ("and its range tombstone in run", |s| swap_runs(s, REMOVED, BACK)),
        ("holds range tombstone", |s| swap_runs(s, REMOVED, REMOVED_TOO)),
        ("\"default\" holds 18 keys; its count is 19", |s| {
            let counts = s.counts.all.as_mut().unwrap();
            counts.iter_mut().find(|(id, _)| *id == KeyspaceId::DEFAULT).unwrap().1 += 1;
        }),
        ("keyspace 77, which does not exist and holds none", |s| {
            s.counts.all.as_mut().unwrap().push((KeyspaceId::new(77), 3));
        }),
        // The log: missing segments and commits.
        ("is missing", |s| s.wal_named = s.wal_named.map(|named| named + 1)),
        ("its end is lost", |s| s.durable_seq = s.durable_seq.map(SeqNo::next)),
        ("of another database", |s| s.database_id = s.database_id.map(|id| id ^ 2)),
        ("follows commit", |s| {
            // As if the newest run had not been flushed, and its part of the log were missing.
            let last = s.added.pop().unwrap();
            s.flushed_seq = Some(SeqNo::new(last.meta.counts.min_seq.get() - 1));
        }),
    ];
    assert_each_found(cases);
}

#[test]
fn each_number_of_a_table_is_compared_with_the_manifest() {
    use runs::*;
    let changes: &[Change] = &[
        |s| s.added[NEWER].meta.file_bytes += 1,
        |s| s.added[NEWER].meta.counts.value_bytes += 1,
        |s| s.added[NEWER].meta.counts.entries += 1,
        |s| s.added[NEWER].meta.counts.tombstones += 1,
        |s| s.added[NEWER].meta.counts.range_tombstones += 1,
        |s| s.added[NEWER].meta.counts.min_seq = SeqNo::ZERO,
        |s| {
            let meta = &mut s.added[NEWER].meta;
            meta.counts.max_seq = meta.counts.max_seq.next();
        },
        |s| {
            let print = &mut s.added[NEWER].meta.fingerprint;
            *print = Fingerprint::new(print.get() ^ 1);
        },
        |s| s.added[NEWER].meta.range.start.push(b'!'),
        |s| {
            let end = s.added[NEWER].meta.range.end.key().to_vec();
            s.added[NEWER].meta.range.end = End::Included([&end[..], b"!"].concat());
        },
        |s| {
            let (a, b) = (s.added[OLDER].file, s.added[NEWER].file);
            (s.added[OLDER].file, s.added[NEWER].file) = (b, a);
        },
    ];
    let cases: Vec<_> =
        changes.iter().map(|change| ("is not the table that the manifest describes", *change)).collect();
    assert_each_found(&cases);
}

/// The number of keys is right, but the keys are older.
#[test]
fn view_1_a_memtable_that_hides_newer_versions_is_found() {
    type Write = fn(&Db, u8);
    let put: Write = |db, n| db.default_keyspace().put(key(1), [n]).map(drop).unwrap();
    let remove: Write = |db, n| db.default_keyspace().delete_range(key(n)..key(9)).map(drop).unwrap();
    let cases = [
        ("immutable memtable 1 holds version 2, older than what run", put, put),
        ("in run 2 of level 0 and its range tombstone in immutable memtable 1", remove, put),
        ("version 2 in immutable memtable 1 and its range tombstone in run", put, remove),
        ("immutable memtable 1 holds range tombstone 2, older than what run", remove, remove),
    ];
    for (message, first, second) in cases {
        let db = builder(&MemFs::new()).open(dir()).unwrap();
        let core = &db.handle.core;
        db.default_keyspace().put("other", "1").unwrap();
        first(&db, 1);
        core.pipeline.seal().unwrap();
        let [stays] = &core.view.get().immutables[..] else { panic!("one was sealed") };
        db.flush().unwrap();
        second(&db, 0);
        // Newer versions in memory are fine.
        assert_eq!(db.check().unwrap().problems, Vec::<String>::new(), "{message}");
        db.flush().unwrap();
        assert_eq!(db.check().unwrap().problems, Vec::<String>::new(), "{message}");
        core.view.update(|view| ReadView { immutables: vec![stays.clone()], ..view.clone() });
        assert_found(&db.check().unwrap(), message);
    }
}

#[test]
fn readers_of_other_tables_than_the_manifest_names_are_found() {
    let fs = sample();
    let mut known = BTreeSet::new();
    let mut report = CheckReport::default();
    alter(&fs, |state| {
        known.extend(state.added.iter().map(|added| (added.file, added.level, added.run)));
        tables::check_state(state, Some(known.clone()), dir(), &mut report);
        assert_eq!(report.problems, Vec::<String>::new());
        known.pop_last();
        known.insert((FileId::new(1), Level::L0, RunId(1)));
        tables::check_state(state, Some(known), dir(), &mut report);
    });
    assert_found(&report, "readers use other tables than the manifest names");
}

#[test]
fn each_thing_that_a_catalog_may_say_wrongly_is_found() {
    let catalog_key = |key: &[u8]| encode_key(KeyspaceId::CATALOG, key);
    let cases = [
        (
            "has two names, \"other\" and \"people\"",
            crate::encoding::catalog_key::name_key("other"),
            catalog::varint(2),
        ),
        ("catalog: \"zzz\"", catalog_key(b"zzz"), b"?".to_vec()),
        ("catalog: \"i\"", catalog_key(catalog::NEXT_ID_KEY), vec![0xFF; 11]),
        (
            "1 keys belong to keyspace 77, which does not exist",
            encode_key(KeyspaceId::new(77), b"k"),
            Vec::new(),
        ),
        (
            "the number of keyspace \"people\", 2, has not been allocated yet",
            catalog_key(catalog::NEXT_ID_KEY),
            catalog::varint(2),
        ),
    ];
    let sound = sample();
    for (message, key, value) in cases {
        let fs = sound.kill();
        let db = builder(&fs).open(dir()).unwrap();
        let mut set = WriteSet::new();
        set.put(&key, &value);
        db.handle.core.commit_encoded(set, Durability::Sync).unwrap();
        assert_found(&db.check().unwrap(), message);
        db.close().unwrap();
        assert_found(&check_offline(&fs), message);
    }
}

#[test]
fn an_impossible_count_is_reported() {
    let fs = sample();
    let mut file = None;
    alter(&fs, |state| file = Some(state.added[runs::OLDEST].file));
    let path = table_path(dir(), file.unwrap());
    let db: Db = builder(&fs).open(dir()).unwrap();
    // Not the first block: opening has read that.
    let layout = SalvageTable::open(&Env::simulated(Arc::new(fs.clone()), 1), &path).unwrap();
    let last = layout.extent(layout.blocks() - 1).start;
    fs.open(&path, OpenOptions::write()).unwrap().write_all_at(b"?", last + 3).unwrap();
    let report = db.check().unwrap();
    assert_found(&report, "corrupt block");
    assert_found(&report, "counting: corrupt block");
}

#[test]
fn one_run_is_read_no_more_often_because_something_is_in_memory() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let db = Builder::default()
        .env(env)
        .stepped()
        .memory(1 << 20)
        .tuning(|t| t.block_bytes(512))
        .open(dir())
        .unwrap();
    let all = db.default_keyspace();
    // More than the cache holds.
    let mut bytes = fastrand::Rng::with_seed(1);
    for n in 0..8000_u32 {
        all.put(n.to_be_bytes(), std::array::from_fn::<u8, 400, _>(|_| bytes.u8(..))).unwrap();
    }
    db.compact().unwrap();
    let read_by_check = || {
        let before = faults.read_bytes();
        let report = db.check().unwrap();
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
        (report.bytes, faults.read_bytes() - before)
    };
    let (bytes, without) = read_by_check();
    assert!(without > bytes * 3 / 2 && bytes > 2 << 20, "{without} bytes read of {bytes}");
    all.put("in memory", "1").unwrap();
    all.delete_range(..1_u32.to_be_bytes()).unwrap();
    let (_, with) = read_by_check();
    assert!(with < without + bytes / 2, "{with} bytes read, {without} with nothing in memory");
}

#[test]
fn a_segment_whose_file_is_made_again_while_it_is_looked_for_is_not_missing() {
    let problems = |made_at: u32| {
        let fs = MemFs::new();
        fs.create_dir_all(dir()).unwrap();
        let asked = Cell::new(0);
        let extent = || {
            asked.set(asked.get() + 1);
            if asked.get() == made_at {
                fs.open(&segment_path(dir(), 1), OpenOptions::create_new()).unwrap();
            }
            LogExtent { from: 1, named_to: Some(1), ..LogExtent::default() }
        };
        let mut report = CheckReport::default();
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        log::check_named(&env, dir(), extent, &mut report).unwrap();
        report.problems.len()
    };
    // Before the first look; once the manifest was read after the first look; never.
    assert_eq!([1, 2, 9].map(problems), [0, 0, 1]);
}
