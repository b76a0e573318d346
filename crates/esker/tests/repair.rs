//! Repairs of damaged databases.
//!
//! ```text
//!   golden database --damage--> esker::repair --> sound? explained by the report? original untouched?
//! ```
//!
//! Q1. A repair never panics, and what it makes is a sound database, or it makes nothing and says why.
//! Q2. Every key that differs from the undamaged database is among those that the report names as lost; its value is
//!     one that the key had earlier, or it is missing.
//! Q3. No byte, name or time of the original changes.
//! Q4. The report names no more than may be lost: nothing if a file without data is damaged, keys of its range if a
//!     table is, the damaged commit if the log is.
//! Q5. What a repair has made survives a power loss at once, and goes right under writes, a merge and another power loss.
//! Q6. A file, or a stretch of one, that cannot be read costs what it holds and ends nothing; it is asked for a few times.
//!
//! `ESKER_SWEEP=full` damages every byte instead of a sample.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests, also on real files")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use common::contents::{Contents, Map, difference, dump_sound};
use common::damage::{
    Golden, LOGGED, blocks, cut, overwrite, path, places, read, records, replace, table_range,
};
use common::{dir, simulated};
use esker::{Builder, Db, Durability, Error, KeyspaceId, LostKeys, RepairReport, TableCompression};
use esker_env::{FaultAction, FaultFs, FaultRule, Fs, FsRef, MemFs, OpKind};

fn target() -> &'static Path {
    Path::new("repaired")
}

fn builder(fs: &MemFs) -> Builder {
    simulated(Arc::new(fs.clone()))
}

/// All files of the damaged database.
fn files(fs: &MemFs) -> Vec<(String, Vec<u8>)> {
    let mut names = fs.list_dir(dir()).unwrap();
    names.sort();
    names.into_iter().map(|name| (name.clone(), read(fs, &name))).collect()
}

/// Repairs, and checks Q1, Q3 and Q5.
fn repair(fs: &MemFs) -> Result<(RepairReport, Contents), Error> {
    let before = files(fs);
    let outcome = builder(fs).repair(dir(), target());
    assert!(files(fs) == before, "Q3: the original has changed");
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            let left = fs.list_dir(target()).unwrap_or_default();
            assert!(left.is_empty(), "Q1: {left:?} is left of a repair that failed: {error}");
            return Err(error);
        }
    };
    // Before anything else makes it durable.
    let survivor = fs.crash_strict();
    let db = builder(fs).create_if_missing(false).open(target())?;
    let contents = dump_sound(&db)?;
    assert_lasts(&survivor, &contents);
    let said: Vec<_> = report.keyspaces.iter().map(|k| (k.name.clone(), k.keys)).collect();
    let found: Vec<_> = contents.iter().map(|(name, map)| (name.clone(), map.len() as u64)).collect();
    assert_eq!(said, found, "the report counts what is there");
    Ok((report, contents))
}

/// Q5, of what a power loss has left of a repaired database of these contents.
fn assert_lasts(left: &MemFs, contents: &Contents) {
    let assert_holds = |fs: &MemFs, expected: &Contents, when: &str| {
        let db = builder(fs).create_if_missing(false).open(target());
        let db = db.unwrap_or_else(|error| panic!("Q5: {when}: {error}"));
        let found = dump_sound(&db).unwrap_or_else(|error| panic!("Q5: {when}: {error}"));
        assert!(found == *expected, "Q5: {when}: {}", difference(&found, expected));
        db
    };
    let mut expected = contents.clone();
    let db = assert_holds(left, &expected, "after a power loss");
    for (name, map) in &mut expected {
        let keyspace = db.open_keyspace(name).unwrap();
        let (mut batch, keys) = (db.batch(), map.keys().cloned().collect::<Vec<_>>());
        for (n, key) in keys.into_iter().enumerate() {
            match n % 4 {
                0 | 1 => {
                    batch.put(&keyspace, &key, b"written since").unwrap();
                    map.insert(key, b"written since".to_vec());
                }
                2 => {
                    batch.remove(&keyspace, &key).unwrap();
                    map.remove(&key);
                }
                _ => {}
            }
        }
        batch.commit().unwrap();
    }
    if let Some((name, map)) = expected.iter_mut().find(|(name, _)| *name != "default") {
        db.open_keyspace(name).unwrap().clear().unwrap();
        map.clear();
    }
    db.create_keyspace("added since").unwrap().put("key", "value").unwrap();
    expected.insert("added since".to_owned(), Map::from([(b"key".to_vec(), b"value".to_vec())]));
    db.compact().unwrap();
    assert_holds(&left.crash_strict(), &expected, "after writes, a merge and a power loss");
}

/// The number and the name of each keyspace of the golden databases; they never get a new one.
const IDS: [(&str, u32); 2] = [("default", 1), ("people", 2)];

/// Q2: the first difference that the report does not explain.
fn unexplained(golden: &Golden, report: &RepairReport, found: &Contents) -> Option<String> {
    for (name, id) in IDS {
        let id = KeyspaceId::new(id);
        let renamed = report.keyspaces.iter().find(|k| k.id == id).map(|k| k.name.as_str());
        let names_lost = report.losses.iter().any(|l| matches!(l.keys, LostKeys::Names | LostKeys::Any));
        if renamed != Some(name) && !names_lost && renamed.is_some() {
            return Some(format!("{name} is called {renamed:?}"));
        }
        let empty = Default::default();
        // Not all of them have both.
        let Some(expected) = golden.newest.get(name) else { continue };
        let map = renamed.and_then(|n| found.get(n)).unwrap_or(&empty);
        for key in expected.keys().chain(map.keys()) {
            let (had, has) = (expected.get(key), map.get(key));
            if had == has {
                continue;
            }
            let shown = key.escape_ascii();
            if !report.losses.iter().any(|loss| loss.keys.may_hold(id, key)) {
                return Some(format!("{name}/{shown} is not in the report"));
            }
            // The keyspace had another name before.
            let old = |state: &Contents| {
                let names = if name == "people" { ["people", "users"] } else { [name, name] };
                names.iter().any(|n| state.get(*n).is_some_and(|map| map.get(key) == has))
            };
            if has.is_some() && !golden.history.iter().any(old) {
                return Some(format!("{name}/{shown} has a value that it never had"));
            }
        }
    }
    let known = |name: &String| report.keyspaces.iter().any(|k| k.name == *name);
    found.keys().find(|name| !known(name)).map(|name| format!("keyspace {name} comes from nowhere"))
}

/// Damages a copy, repairs it, and judges. Returns what was reported.
fn judge(golden: &Golden, what: &str, damage: impl FnOnce(&MemFs)) -> RepairReport {
    let fs = golden.copy();
    damage(&fs);
    let outcome = catch_unwind(AssertUnwindSafe(|| repair(&fs)));
    let outcome = outcome.unwrap_or_else(|_| panic!("Q1: {what}: panic"));
    let (report, found) = outcome.unwrap_or_else(|error| panic!("Q1: {what}: {error}"));
    if let Some(problem) = unexplained(golden, &report, &found) {
        panic!("Q2: {what}: {problem}\n{report:#?}");
    }
    report
}

/// The bytes of a segment's header.
const SEGMENT_HEADER_BYTES: usize = 32;

/// Keyspace and key of a stored key. The databases have few keyspaces, whose numbers take one byte.
fn place(stored: &[u8]) -> (KeyspaceId, Vec<u8>) {
    (KeyspaceId::new(u32::from(stored[0])), stored[1..].to_vec())
}

/// Q4: what the report says beyond what damage of this one file may cost.
fn overreported(golden: &Golden, name: &str, report: &RepairReport) -> Option<String> {
    let is_about = |loss: &&esker::Loss| loss.path == path(name);
    let unfit = |fits: &dyn Fn(&&esker::Loss) -> bool| report.losses.iter().find(|loss| !fits(loss));
    let found = match name {
        "CURRENT" | "OPTIONS" | "LOCK" => unfit(&|_| false),
        _ if name.ends_with(".sst") => {
            let (first, last) = table_range(&golden.fs, name);
            let names_in_it = first[0] == 0;
            let (first, last) = (place(&first), place(&last));
            unfit(&|loss| match &loss.keys {
                LostKeys::Between(Some(low), Some(high)) => is_about(loss) && first <= *low && *high <= last,
                // Both bounds have to be told, and a table says what keys it may hold.
                LostKeys::Between(..) | LostKeys::Any => false,
                LostKeys::Names => names_in_it,
            })
        }
        // Which keys a commit wrote stands in its record and nowhere else: what is lost with it may be any.
        _ if name.ends_with(".wal") => unfit(&|loss| is_about(loss) && loss.keys == LostKeys::Any),
        // Which tables counted stood in the manifest: older values of any key may be back, which is told once. Tables that
        // an edit had removed may be missed, if that edit is lost.
        _ => {
            let any = report.losses.iter().filter(|loss| loss.keys == LostKeys::Any).count();
            unfit(&|loss| match &loss.keys {
                LostKeys::Any => any == 1 && (loss.path == path("CURRENT") || is_about(loss)),
                LostKeys::Between(..) => any == 1 && !golden.fs.exists(&loss.path).unwrap(),
                LostKeys::Names => true,
            })
        }
    };
    found.map(|loss| format!("{name}: {loss}"))
}

/// Asserts Q4.
fn assert_not_overreported(golden: &Golden, what: &str, name: &str, report: &RepairReport) {
    if let Some(problem) = overreported(golden, name, report) {
        panic!("Q4: {what}: {problem}\n{report:#?}");
    }
}

#[test]
fn an_undamaged_database_comes_out_whole() {
    for golden in
        [Golden::merged(), Golden::layered(), Golden::twins(), Golden::killed(), Golden::segmented()]
    {
        let (report, found) = repair(&golden.copy()).unwrap();
        assert!(found == golden.newest);
        assert!(report.losses.is_empty(), "{:#?}", report.losses);
        assert!(report.tables > 0 && report.commits >= LOGGED as u64 && report.entries > 0, "{report:?}");
    }
}

#[test]
fn q2_q4_a_flipped_bit_anywhere() {
    let golden = Golden::layered();
    let mut repairs = 0;
    for name in &golden.files {
        let bytes = golden.read(name);
        for at in places(bytes.len(), 48) {
            let what = format!("bit {} of byte {at} of {name}", at % 8);
            let report = judge(&golden, &what, |fs| {
                overwrite(fs, name, at, &[bytes[at] ^ 1 << (at % 8)]);
            });
            assert_not_overreported(&golden, &what, name, &report);
            repairs += 1;
        }
    }
    println!("{repairs} repairs after a flipped bit");
}

#[test]
fn q2_q4_cut_at_any_length() {
    let golden = Golden::layered();
    let mut repairs = 0;
    for name in &golden.files {
        let bytes = golden.read(name);
        for len in places(bytes.len(), 24) {
            let what = format!("{name} cut to {len} of {}", bytes.len());
            let report = judge(&golden, &what, |fs| cut(fs, name, len));
            // A manifest that is cut between edits is an earlier one: the tables that it names are missed.
            if !name.starts_with("MANIFEST-") {
                assert_not_overreported(&golden, &what, name, &report);
            }
            if name == golden.last_segment() {
                let lost = report.losses.iter().filter_map(|loss| loss.commits);
                let lost: u64 = lost.map(|(first, last)| last + 1 - first).sum();
                assert_eq!(lost, golden.commits_behind(name, len) as u64, "Q4: {what}: {report:#?}");
                assert!(!report.losses.is_empty(), "Q4: {what}");
            }
            repairs += 1;
        }
    }
    println!("{repairs} repairs after a cut");
}

#[test]
fn q2_q4_each_file_lost_or_foreign() {
    for golden in [Golden::merged(), Golden::layered(), Golden::twins()] {
        for name in &golden.files {
            let what = format!("loss of {name}");
            let report = judge(&golden, &what, |fs| fs.remove_file(&path(name)).unwrap());
            assert_not_overreported(&golden, &what, name, &report);
            for bytes in [Vec::new(), vec![0; 300], b"some text\n".repeat(40)] {
                let what = format!("{} strange bytes as {name}", bytes.len());
                let report = judge(&golden, &what, |fs| replace(fs, name, &bytes));
                assert_not_overreported(&golden, &what, name, &report);
            }
        }
    }
}

#[test]
fn q2_any_two_files_swapped() {
    for golden in [Golden::layered(), Golden::twins(), Golden::segmented()] {
        for (i, a) in golden.files.iter().enumerate() {
            for b in &golden.files[i + 1..] {
                judge(&golden, &format!("{a} and {b} swapped"), |fs| {
                    replace(fs, a, &golden.read(b));
                    replace(fs, b, &golden.read(a));
                });
            }
        }
    }
}

#[test]
fn everything_but_the_data_lost_at_once() {
    let golden = Golden::layered();
    judge(&golden, "CURRENT, manifest, OPTIONS and LOCK lost", |fs| {
        for name in golden.files.iter().filter(|n| !n.ends_with(".sst") && !n.ends_with(".wal")) {
            fs.remove_file(&path(name)).unwrap();
        }
    });
}

#[test]
fn q2_a_foreign_table_that_does_not_say_what_it_is_costs_the_range_of_the_one_in_its_place() {
    // Other keys, too, so that they lie beside the range.
    let (golden, other) = (Golden::merged(), Golden::double(1));
    let theirs = other.read(other.named(".sst").next().unwrap());
    for name in golden.named(".sst") {
        for lost in [80, 81, 120, theirs.len() / 2] {
            let what = format!("a foreign table without its last {lost} bytes as {name}");
            let report = judge(&golden, &what, |fs| replace(fs, name, &theirs[..theirs.len() - lost]));
            let (first, last) = table_range(&golden.fs, name);
            for key in [first, last] {
                let (id, key) = place(&key);
                assert!(report.losses.iter().any(|loss| loss.keys.may_hold(id, &key)), "{what}: {report:#?}");
            }
        }
    }
}

#[test]
fn q2_a_manifest_that_lost_its_end_costs_no_table() {
    for golden in [Golden::flushed(), Golden::flushed_once()] {
        let name = golden.named("").find(|name| name.starts_with("MANIFEST-")).unwrap();
        let (bytes, mut told) = (golden.read(name), 0);
        for at in 0..bytes.len() {
            let report = judge(&golden, &format!("{name} cut to {at}"), |fs| cut(fs, name, at));
            let keys = golden.newest["default"].len() as u64;
            assert_eq!(report.live_keys(), keys, "{at}: {report:#?}");
            told += usize::from(report.losses.iter().any(|loss| loss.detail.contains("lost its end")));
        }
        assert!(told > 0, "an end behind a record is one that only tables prove");
    }
}

#[test]
fn q2_a_manifest_from_before_a_merge_or_a_flush_costs_no_key() {
    let golden = Golden::merged();
    let name = golden.named("").find(|name| name.starts_with("MANIFEST-")).unwrap();
    let (bytes, mut told) = (golden.read(name), 0);
    for len in places(bytes.len(), 128) {
        for is_older in [false, true] {
            let what = format!("{name} cut to {len}, under an earlier name: {is_older}");
            let fs = golden.copy();
            if is_older {
                // The one in force is lost, and one from before is still there.
                fs.remove_file(&path(name)).unwrap();
                replace(&fs, "MANIFEST-000000", &bytes[..len]);
            } else {
                cut(&fs, name, len);
            }
            let (report, found) = repair(&fs).unwrap();
            assert_eq!(unexplained(&golden, &report, &found), None, "{what}: {report:#?}");
            for (keyspace, map) in &golden.newest {
                let missing = map.keys().find(|key| !found[keyspace].contains_key(*key));
                assert!(missing.is_none(), "{what}: {missing:?} of {keyspace}: {report:#?}");
            }
            told += usize::from(report.losses.iter().any(|loss| loss.detail.contains("an earlier manifest")));
        }
    }
    assert!(told > 0, "only what it names tells that it is an earlier one");
}

/// A builder of databases whose commits stay in the log.
fn roomy(fs: FsRef) -> Builder {
    simulated(fs).memory(64 << 20).memtable_bytes(32 << 20).block_bytes(8 << 10).table_bytes(64 << 20)
}

/// A rule that fails these calls on a file of the damaged database.
fn failing(ops: &[OpKind], name: &str) -> FaultRule {
    let text = format!("{}/{name}", common::DIR);
    FaultRule::new(ops, FaultAction::Fail(std::io::ErrorKind::Other)).on_path(&text).forever()
}

#[test]
fn q2_no_commit_is_put_together_over_a_segment_that_is_missing_or_cannot_be_read() {
    let running = MemFs::new();
    let db = roomy(Arc::new(running.clone())).open(dir()).unwrap();
    let (keyspace, mut batch) = (db.default_keyspace(), db.batch());
    // Each takes 16 bytes of the log, and what fits a segment is a multiple of that: without the middle one the others fit together.
    for n in 0..60_000u32 {
        batch.put(&keyspace, u64::from(n).to_be_bytes(), n.to_be_bytes()).unwrap();
    }
    batch.commit().unwrap();
    let left = running.kill();
    assert_eq!(left.list_dir(dir()).unwrap().iter().filter(|name| name.ends_with(".wal")).count(), 3);
    let middle = "000002.wal";
    let faults = [
        None,
        Some(failing(&[OpKind::Open], middle)),
        Some(failing(&[OpKind::Read], middle)),
        Some(failing(&[OpKind::Read], middle).on_bytes(300_000..300_001)),
    ];
    for fault in faults {
        let what = format!("{fault:?}");
        let fs = left.crash_keep_all();
        let faulty = FaultFs::new(Arc::new(fs.clone()));
        match fault {
            None => fs.remove_file(&path(middle)).unwrap(),
            Some(rule) => faulty.add(rule),
        }
        let report = roomy(Arc::new(faulty)).repair(dir(), target()).unwrap();
        assert_eq!((report.commits, report.live_keys()), (0, 0), "{what}: {report:#?}");
        let is_told = |loss: &esker::Loss| loss.detail.contains("is incomplete");
        assert!(report.losses.iter().any(is_told), "{what}: {report:#?}");
    }
    let report = roomy(Arc::new(left)).repair(dir(), target()).unwrap();
    assert_eq!((report.commits, report.live_keys(), report.losses.len()), (1, 60_000, 0), "{report:#?}");
}

#[test]
fn q6_a_sector_of_the_log_that_cannot_be_read_costs_its_commits_alone() {
    let running = MemFs::new();
    let db = roomy(Arc::new(running.clone())).open(dir()).unwrap();
    let keyspace = db.default_keyspace();
    (0..40u8).for_each(|n| keyspace.put([n], [n; 1000]).unwrap());
    let left = running.kill();
    // Among the commits; and behind them, where there may have been more.
    for (sector, most) in [(9_000..9_001, 6), (200_000..200_001, 0)] {
        let fs = FaultFs::new(Arc::new(left.crash_keep_all()));
        fs.add(failing(&[OpKind::Read], "000001.wal").on_bytes(sector.clone()));
        let report = roomy(Arc::new(fs.clone())).repair(dir(), target()).unwrap();
        assert!(fs.fired() <= 10, "{} reads failed", fs.fired());
        let missing = 40 - report.live_keys();
        assert!(missing <= most && (missing > 0) == (most > 0), "{sector:?}: {report:#?}");
        assert!(report.losses.iter().any(|loss| loss.detail.contains("cannot be read")), "{report:#?}");
        let told = report.losses.iter().filter_map(|loss| loss.commits);
        assert_eq!(told.map(|(first, last)| last + 1 - first).sum::<u64>(), missing, "{report:#?}");
        fs.clear();
        let found = dump_sound(&roomy(Arc::new(fs)).open(target()).unwrap()).unwrap();
        assert!(found["default"].iter().all(|(key, value)| value[..] == [key[0]; 1000]));
    }
}

#[test]
fn q6_sectors_of_a_table_that_cannot_be_read_cost_little_and_are_asked_for_a_few_times() {
    let fs = MemFs::new();
    let options = |fs: FsRef| {
        let options = simulated(fs).memtable_bytes(1 << 20).table_bytes(1 << 20);
        options.compression(TableCompression::None)
    };
    let db = options(Arc::new(fs.clone())).open(dir()).unwrap();
    let all = db.default_keyspace();
    let key = |n: usize| format!("key/{n:06}").into_bytes();
    for n in 0..800 {
        all.put(key(n), format!("value {n} ").repeat(n % 7)).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let (table, bytes) = files(&fs).into_iter().find(|(name, _)| name.ends_with(".sst")).unwrap();
    let len = bytes.len() as u64;
    assert!((30 << 10..64 << 10).contains(&len), "one chunk of the search: {len}");
    let faulty = FaultFs::new(Arc::new(fs));
    // That of the footer, and one among the blocks.
    faulty.add(failing(&[OpKind::Read], &table).on_bytes(len - 1..len));
    faulty.add(failing(&[OpKind::Read], &table).on_bytes(10_000..10_001));
    let report = options(Arc::new(faulty.clone())).repair(dir(), target()).unwrap();
    assert!(faulty.fired() <= 50, "{} reads failed", faulty.fired());
    faulty.clear();
    let found = dump_sound(&options(Arc::new(faulty)).open(target()).unwrap()).unwrap();
    let (map, id) = (&found["default"], KeyspaceId::DEFAULT);
    assert!(map.len() > 600, "{}", map.len());
    for n in 0..800 {
        let told = report.losses.iter().any(|loss| loss.keys.may_hold(id, &key(n)));
        assert!(map.contains_key(&key(n)) || told, "{n}: {report:#?}");
    }
}

#[test]
fn q6_a_stray_file_that_cannot_be_read_costs_nothing() {
    let golden = Golden::merged();
    let stray = golden.read(golden.named(".sst").next().unwrap());
    let faults =
        [None, Some(failing(&[OpKind::Open], "000099.sst")), Some(failing(&[OpKind::Read], "000099.sst"))];
    for fault in faults {
        let what = format!("{fault:?}");
        let fs = golden.copy();
        let faulty = FaultFs::new(Arc::new(fs.clone()));
        match fault {
            None => fs.create_dir_all(&path("000099.sst")).unwrap(),
            Some(rule) => {
                replace(&fs, "000099.sst", &stray);
                faulty.add(rule);
            }
        }
        let report = simulated(Arc::new(faulty)).repair(dir(), target()).unwrap();
        assert!(report.losses.is_empty(), "{what}: {report:#?}");
        assert!(report.notes.iter().any(|note| note.contains("000099.sst")), "{what}: {report:#?}");
        let found = dump_sound(&builder(&fs).open(target()).unwrap()).unwrap();
        assert!(found == golden.newest, "{what}: {}", difference(&found, &golden.newest));
    }
}

#[test]
fn q6_a_table_that_cannot_be_opened_costs_its_keys_whenever_that_is() {
    let golden = Golden::twins();
    let table = golden.twin_tables()[1];
    // Looked at, and then read.
    for nth in [1, 2] {
        let fs = golden.copy();
        let faulty = FaultFs::new(Arc::new(fs.clone()));
        faulty.add(failing(&[OpKind::Open], table).nth(nth));
        let report = simulated(Arc::new(faulty.clone())).repair(dir(), target()).unwrap();
        assert!(faulty.fired() > 0 && !report.losses.is_empty(), "{nth}: {report:#?}");
        let found = dump_sound(&builder(&fs).open(target()).unwrap()).unwrap();
        assert_eq!(unexplained(&golden, &report, &found), None, "{nth}: {report:#?}");
    }
}

#[test]
fn q4_a_damaged_record_costs_its_commit_alone() {
    let golden = Golden::merged();
    let log = golden.last_segment();
    let all = records(&golden.fs, log);
    assert_eq!(all.len(), LOGGED);
    for (n, record) in all.iter().enumerate() {
        for at in [record.start, record.start + 13, record.end - 1] {
            let fs = golden.copy();
            overwrite(&fs, log, at, &[golden.read(log)[at] ^ 1]);
            let error = builder(&fs).open(dir()).map(drop).unwrap_err();
            assert!(error.is_corrupt() && error.to_string().contains("esker repair"), "{error}");
            let (report, found) = repair(&fs).unwrap();
            let mut expected = golden.newest.clone();
            expected.get_mut("default").unwrap().remove(format!("logged/{n}").as_bytes());
            assert!(found == expected, "{n}: {report:#?}");
            assert_not_overreported(&golden, &format!("record {n}"), log, &report);
            let told: Vec<u64> = report.losses.iter().map(|loss| loss.offset).collect();
            let lost: Vec<_> = report.losses.iter().filter_map(|loss| loss.commits).collect();
            match all.get(n + 1) {
                // The place, and the gap that the next commit shows.
                Some(next) => {
                    assert_eq!(told, [record.start as u64, next.start as u64]);
                    assert_eq!(lost, [(record.seq, record.seq)]);
                }
                // The place, and where the log ends now, before a commit that the manifest knows.
                None => {
                    assert_eq!(told, [record.start as u64, all[n - 1].start as u64]);
                    assert_eq!(lost, [(record.seq, record.seq)]);
                }
            }
        }
    }
}

#[test]
fn lg3_what_lies_behind_an_unfinished_commit_never_counted() {
    let running = MemFs::new();
    let db = builder(&running).open(dir()).unwrap();
    let keyspace = db.default_keyspace();
    keyspace.put("1", [1; 30]).unwrap();
    for n in 2..5u8 {
        let mut batch = db.batch();
        batch.put(&keyspace, [b'0' + n], [n; 30]).unwrap();
        batch.commit_with(Durability::Buffered).unwrap();
    }
    // A power loss takes one record that was not synced, and leaves those behind it.
    let fs = running.kill();
    let log = fs.list_dir(dir()).unwrap().into_iter().find(|name| name.ends_with(".wal")).unwrap();
    let at = read(&fs, &log).windows(30).position(|w| w == [2; 30]).unwrap();
    overwrite(&fs, &log, at, &[0; 30]);

    let checked = builder(&fs).check_offline(dir()).unwrap();
    assert!(checked.problems.is_empty() && checked.commits == 1, "{checked:#?}");
    let (report, repaired) = repair(&fs).unwrap();
    assert!(report.losses.is_empty() && report.commits == 1, "{report:#?}");
    let db = builder(&fs).open(dir()).unwrap();
    let opened = dump_sound(&db).unwrap();
    assert!(repaired == opened && opened["default"].len() == 1, "{opened:?}");
}

/// The files by which opening finds the tables and the log.
fn lose_the_manifest(fs: &MemFs) {
    let names = fs.list_dir(dir()).unwrap().into_iter();
    names
        .filter(|name| name == "CURRENT" || name.starts_with("MANIFEST"))
        .for_each(|name| fs.remove_file(&path(&name)).unwrap());
}

/// Names of tables.
fn tables(fs: &MemFs) -> Vec<String> {
    let mut names = fs.list_dir(dir()).unwrap();
    names.retain(|name| name.ends_with(".sst"));
    names.sort();
    names
}

#[test]
fn lg1_old_segments_bring_nothing_back_over_tables_that_forgot_their_numbers() {
    for is_manifest_lost in [false, true] {
        let running = MemFs::new();
        let db = builder(&running).open(dir()).unwrap();
        let keyspace = db.default_keyspace();
        keyspace.put("a", "old").unwrap();
        keyspace.put("b", "old").unwrap();
        // Manifest and log as they were, under the tables of later.
        let fs = running.kill();
        keyspace.put("a", "new").unwrap();
        keyspace.remove("b").unwrap();
        db.compact().unwrap();
        tables(&running).iter().for_each(|name| replace(&fs, name, &read(&running, name)));
        if is_manifest_lost {
            lose_the_manifest(&fs);
        }
        let (report, found) = repair(&fs).unwrap();
        let map = &found["default"];
        assert_eq!((map.len(), &*map[&b"a"[..]]), (1, &b"new"[..]), "{is_manifest_lost}: {report:#?}");
    }
}

#[test]
fn lg1_a_flush_that_never_ended_costs_no_commit_of_the_log() {
    let running = MemFs::new();
    let db =
        builder(&running).memtable_bytes(64 << 10).compression(TableCompression::None).open(dir()).unwrap();
    let keyspace = db.default_keyspace();
    keyspace.put("base", "").unwrap();
    db.flush().unwrap();
    // The newest commits are in the first table.
    (0..25u8).rev().for_each(|n| keyspace.put([n], [n; 100]).unwrap());
    let fs = running.kill();
    let earlier = tables(&fs);
    db.flush().unwrap();
    let flushed: Vec<_> = tables(&running).into_iter().filter(|name| !earlier.contains(name)).collect();
    assert!(flushed.len() > 1, "{flushed:?}");
    replace(&fs, &flushed[0], &read(&running, &flushed[0]));
    lose_the_manifest(&fs);
    let (report, found) = repair(&fs).unwrap();
    assert_eq!((report.commits, found["default"].len()), (25, 26), "{report:#?}");
}

#[test]
fn a_segment_without_header_is_read_with_what_another_says() {
    let golden = Golden::segmented();
    let fs = golden.copy();
    lose_the_manifest(&fs);
    let first = golden.named(".wal").next().unwrap();
    overwrite(&fs, first, 0, &[0; SEGMENT_HEADER_BYTES]);
    let (report, found) = repair(&fs).unwrap();
    assert!(found == golden.newest, "{report:#?}");
}

#[test]
fn q4_damage_of_the_log_that_costs_nothing_is_told_apart() {
    let golden = Golden::merged();
    let log = golden.last_segment();
    let (bytes, last) = (golden.read(log), *records(&golden.fs, log).last().unwrap());
    let flip = |at: usize| judge(&golden, &format!("byte {at}"), |fs| overwrite(fs, log, at, &[!bytes[at]]));
    // What fills up the last commit, and the end record: without it nobody knows that nothing followed in a file that is
    // shorter than it was made.
    let end = last.end.next_multiple_of(8);
    for at in last.end..bytes.len() {
        let report = flip(at);
        let told: Vec<_> = report.losses.iter().map(|loss| (loss.offset, loss.commits)).collect();
        assert_eq!(told, if at < end { vec![] } else { vec![(end as u64, None)] }, "{at}");
        assert_eq!(report.commits, LOGGED as u64);
    }
    // The header says nothing that the records do not say, but without it nobody knows that this is all of them.
    for at in 0..SEGMENT_HEADER_BYTES {
        let report = flip(at);
        let told: Vec<_> = report.losses.iter().map(|loss| (loss.offset, loss.bytes)).collect();
        assert_eq!((told, report.commits), (vec![(0, SEGMENT_HEADER_BYTES as u64)], LOGGED as u64), "{at}");
    }
}

#[test]
fn q4_a_damaged_block_costs_its_keys_alone() {
    let golden = Golden::layered();
    let mut damaged = 0;
    for table in golden.named(".sst") {
        let blocks = blocks(&golden.fs, table);
        for (n, block) in blocks.iter().enumerate() {
            let what = format!("block {n} of {table}");
            let at = (block.start + block.end) / 2;
            let byte = golden.read(table)[at];
            let report = judge(&golden, &what, |fs| overwrite(fs, table, at, &[!byte]));
            assert_not_overreported(&golden, &what, table, &report);
            let holds = |key: &&Vec<u8>| {
                let (id, key) = place(key);
                report.losses.iter().any(|loss| loss.keys.may_hold(id, &key))
            };
            // A table that the manifest does not name any more is not looked at.
            if report.losses.is_empty() {
                continue;
            }
            assert!(block.keys.iter().all(|key| holds(&key)), "{what}: {report:#?}");
            // The bounds are those of the index: a key of each neighbour may be one.
            let named = blocks.iter().flat_map(|block| &block.keys).filter(holds).count();
            assert!(named <= block.keys.len() + 2, "{what}: {named} keys named: {report:#?}");
            damaged += 1;
        }
    }
    assert!(damaged > 20, "{damaged}");
}

#[test]
fn q4_lost_range_tombstones_cost_keys_of_their_table_alone() {
    let fs = MemFs::new();
    let db = builder(&fs).open(dir()).unwrap();
    let all = db.default_keyspace();
    (0..90u8).for_each(|n| all.put([n], [n; 9]).unwrap());
    db.flush().unwrap();
    all.remove_range([20]..[40]).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let table = fs.list_dir(dir()).unwrap().into_iter().filter(|name| name.ends_with(".sst")).max().unwrap();
    assert!(blocks(&fs, &table).is_empty(), "range tombstones alone");
    // They come first in a table without blocks.
    overwrite(&fs, &table, 2, b"?");
    let (report, found) = repair(&fs).unwrap();
    assert_eq!(found["default"].len(), 90, "keys are back");
    assert_eq!(report.losses.len(), 1, "{report:#?}");
    let may_hold = |n: u8| report.losses[0].keys.may_hold(KeyspaceId::DEFAULT, &[n]);
    assert!((20..40).all(may_hold) && !(0..20).chain(41..90).any(may_hold), "{report:#?}");
}

#[test]
fn a_table_without_index_is_searched_for_its_blocks() {
    for compression in [TableCompression::None, TableCompression::Lz4] {
        let fs = MemFs::new();
        let options = || builder(&fs).memtable_bytes(1 << 20).table_bytes(1 << 20).compression(compression);
        let db = options().open(dir()).unwrap();
        let all = db.default_keyspace();
        for n in 0..3000 {
            all.put(format!("key/{n:06}"), format!("value {n} ").repeat(n % 7)).unwrap();
        }
        all.remove_range("key/000100".."key/000200").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let (table, bytes) = files(&fs).into_iter().find(|(name, _)| name.ends_with(".sst")).unwrap();
        // The footer is gone, and one place among the blocks.
        cut(&fs, &table, bytes.len() - 1);
        overwrite(&fs, &table, bytes.len() / 3, b"damage");
        let report = options().repair(dir(), target()).unwrap();
        let db = options().open(target()).unwrap();
        let found = dump_sound(&db).unwrap();
        let (map, id) = (&found["default"], KeyspaceId::DEFAULT);
        assert!(map.len() > 2850 && map.len() < 2900, "{}", map.len());
        for n in (0..100).chain(200..3000) {
            let key = format!("key/{n:06}").into_bytes();
            assert!(map.contains_key(&key) || report.losses.iter().any(|loss| loss.keys.may_hold(id, &key)));
        }
        // Range tombstones were found, too, and the loss is a small one.
        assert!(!map.contains_key(&b"key/000150"[..]));
        let lost_ranges = report.losses.iter().filter(|loss| matches!(loss.keys, LostKeys::Between(..)));
        assert!(
            lost_ranges.count() >= 1 && !report.losses.iter().any(|l| l.keys == LostKeys::Any),
            "{report:#?}"
        );
        db.close().unwrap();
    }
}

#[test]
fn a_catalog_that_is_lost_leaves_numbers() {
    let fs = MemFs::new();
    let options = || builder(&fs).block_bytes(64);
    let db = options().open(dir()).unwrap();
    for name in ["apples", "pears"] {
        db.keyspace(name).unwrap().put("key", name).unwrap();
    }
    db.compact().unwrap();
    db.close().unwrap();
    // The first blocks are those of keyspace 0.
    let (table, bytes) = files(&fs).into_iter().find(|(name, _)| name.ends_with(".sst")).unwrap();
    let last = bytes.windows(5).position(|w| w == b"pears").unwrap();
    for at in (0..last + 5).step_by(8) {
        overwrite(&fs, &table, at, b"?");
    }
    let (report, found) = repair(&fs).unwrap();
    assert_eq!(found["keyspace-2"][&b"key"[..]], b"apples");
    assert_eq!(found["keyspace-3"][&b"key"[..]], b"pears");
    assert!(report.losses.iter().any(|loss| loss.keys == LostKeys::Names), "{report:#?}");
    // Numbers are not given again.
    let db = options().open(target()).unwrap();
    db.create_keyspace("plums").unwrap().put("key", "plums").unwrap();
    assert_eq!(dump_sound(&db).unwrap()["keyspace-3"].len(), 1);
}

#[test]
fn the_target_must_be_new_and_the_source_closed() {
    let golden = Golden::merged();
    let fs = golden.copy();
    assert!(matches!(builder(&fs).repair(dir(), dir()), Err(Error::Invalid(_))));
    assert!(matches!(builder(&fs).repair("nothing", target()), Err(Error::NotFound(_))));
    let db = builder(&fs).open(dir()).unwrap();
    assert!(matches!(builder(&fs).repair(dir(), target()), Err(Error::Locked { .. })));
    db.close().unwrap();
    builder(&fs).repair(dir(), target()).unwrap();
    assert!(matches!(builder(&fs).repair(dir(), target()), Err(Error::Invalid(_))));
}

#[test]
fn q3_a_target_in_the_source_is_refused() {
    let golden = Golden::merged();
    let fs = golden.copy();
    let names = || fs.list_dir(dir()).unwrap();
    let before = names();
    for target in ["db", "db/new", "./db/new", "db/new/newer", "db/../db/new", "gone/../db/new"] {
        let refused = builder(&fs).repair(dir(), target).map(drop).unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{target}: {refused}");
        assert_eq!(names(), before, "{target}");
    }
    // Nor may it hold the source: it is not empty.
    assert!(matches!(builder(&fs).repair(dir(), ".").map(drop), Err(Error::Invalid(_))));
    for target in ["db-new", "database", "elsewhere/db"] {
        assert!(builder(&fs).repair(dir(), target).unwrap().losses.is_empty(), "{target}");
    }
}

/// Names and bytes of everything in a directory of the real file system.
fn real_files(dir: &Path) -> Vec<(std::path::PathBuf, Option<Vec<u8>>)> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries.map(|path| (path.clone(), std::fs::read(path).ok())).collect();
    all.sort();
    all
}

#[test]
fn q3_a_target_in_the_source_is_refused_by_whatever_name() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let db = Db::open(at("db")).unwrap();
    db.default_keyspace().put("key", "value").unwrap();
    db.close().unwrap();
    for name in ["other", "elsewhere", "db/empty"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let mut inside =
        vec!["db", "db/new", "db/./new", "other/../db/new", "db/../db/new/er", "db/empty", "db/empty/new"];
    let mut outside = vec!["db/../beside", "db-new", "other/db", "elsewhere"];
    #[cfg(unix)]
    {
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(at(to), at(name)).unwrap();
        link("db", "link");
        link("db/empty", "into");
        link("other", "out");
        inside.extend(["link", "link/new", "into", "into/new", "into/../new", "link/../link/new/er"]);
        outside.push("out/new");
    }
    let before = real_files(&at("db"));
    for source in ["db", "other/../db"].map(at).into_iter().chain(cfg!(unix).then(|| at("link"))) {
        for target in &inside {
            let refused = Db::builder().repair(&source, at(target)).map(drop).unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "{target}: {refused}");
            assert!(real_files(&at("db")) == before, "{target}");
        }
    }
    assert!(matches!(Db::builder().repair(at("db"), root.path()), Err(Error::Invalid(_))));
    for target in outside {
        assert_eq!(Db::builder().repair(at("db"), at(target)).unwrap().live_keys(), 1, "{target}");
        assert!(real_files(&at("db")) == before, "{target}");
    }
}

#[test]
fn q1_a_repair_that_fails_leaves_no_file() {
    let golden = Golden::merged();
    let newer = |name: &str, at: usize, covered: std::ops::Range<usize>| {
        let fs = golden.copy();
        let mut bytes = golden.read(name);
        bytes[at] = 99;
        let crc = crc32c::crc32c(&bytes[covered.clone()]).to_le_bytes();
        bytes[covered.end..covered.end + 4].copy_from_slice(&crc);
        replace(&fs, name, &bytes);
        let refused = repair(&fs).map(drop).unwrap_err();
        assert!(matches!(refused, Error::UnsupportedVersion { .. }), "{refused}");
        fs
    };
    // All tables are looked at before anything is made.
    let table = golden.named(".sst").last().unwrap();
    let footer = golden.read(table).len() - 80;
    let fs = newer(table, footer + 64, footer..footer + 68);
    assert!(!fs.exists(target()).unwrap());
    // The log is read when the tables are in the target already.
    let fs = newer(golden.last_segment(), 8, 0..28);
    assert_eq!(fs.list_dir(target()).unwrap_or_default(), Vec::<String>::new());
}

#[test]
fn canary_an_unexplained_difference_is_noticed() {
    let golden = Golden::merged();
    let (report, mut found) = repair(&golden.copy()).unwrap();
    assert_eq!(unexplained(&golden, &report, &found), None);
    found.get_mut("default").unwrap().remove(&b"logged/3"[..]);
    assert!(unexplained(&golden, &report, &found).is_some());
}

#[test]
fn canary_a_loss_that_is_none_is_noticed() {
    let golden = Golden::merged();
    let table = golden.named(".sst").last().unwrap();
    let damage = |fs: &MemFs| overwrite(fs, table, 0, b"?");
    let mut report = judge(&golden, "a damaged block", damage);
    assert!(report.losses.len() == 1 && overreported(&golden, table, &report).is_none(), "{report:#?}");
    for name in ["CURRENT", "OPTIONS", "LOCK", golden.last_segment()] {
        assert!(overreported(&golden, name, &report).is_some(), "{name}");
    }
    for keys in [LostKeys::Any, LostKeys::Between(None, None)] {
        report.losses[0].keys = keys;
        assert!(overreported(&golden, table, &report).is_some());
    }
}
