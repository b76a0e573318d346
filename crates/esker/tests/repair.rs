//! Repairs of damaged databases.
//!
//! ```text
//!   golden database --damage--> esker::repair --> sound? explained by the report? original untouched?
//! ```
//!
//! Q1. A repair never panics, and what it makes is a sound database, or it makes nothing and says why.
//! Q2. Every key that differs from the undamaged database is among those that the report names as lost; its value is
//!     one that the key had earlier, or it is missing. The exception is a commit at the end of the log that looks torn.
//! Q3. No byte, name or time of the original changes.
//!
//! `ESKER_SWEEP=full` damages every byte instead of a sample.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use common::contents::{Contents, dump_sound};
use common::damage::{Golden, LOGGED, cut, overwrite, path, places, read, replace};
use common::{dir, simulated};
use esker::{Builder, Durability, Error, KeyspaceId, LostKeys, RepairReport, TableCompression};
use esker_env::{Fs, MemFs};

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

/// Repairs, and checks Q1 and Q3.
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
    let db = builder(fs).create_if_missing(false).open(target())?;
    let contents = dump_sound(&db)?;
    let said: Vec<_> = report.keyspaces.iter().map(|k| (k.name.clone(), k.keys)).collect();
    let found: Vec<_> = contents.iter().map(|(name, map)| (name.clone(), map.len() as u64)).collect();
    assert_eq!(said, found, "the report counts what is there");
    Ok((report, contents))
}

/// The number and the name of each keyspace of the golden database; it never gets a new one.
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
        let (expected, map) = (&golden.newest[name], renamed.and_then(|n| found.get(n)).unwrap_or(&empty));
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

/// Damages a copy, repairs it, and judges. Returns the losses reported.
fn judge(golden: &Golden, what: &str, tail_at_stake: usize, damage: impl FnOnce(&MemFs)) -> RepairReport {
    let fs = golden.copy();
    damage(&fs);
    let outcome = catch_unwind(AssertUnwindSafe(|| repair(&fs)));
    let outcome = outcome.unwrap_or_else(|_| panic!("Q1: {what}: panic"));
    let (report, found) = outcome.unwrap_or_else(|error| panic!("Q1: {what}: {error}"));
    if !golden.earlier[..tail_at_stake].contains(&found)
        && let Some(problem) = unexplained(golden, &report, &found)
    {
        panic!("Q2: {what}: {problem}\n{report:#?}");
    }
    report
}

/// How many commits at the log's end may be missing without a word: they look torn.
fn at_stake(name: &str, cut: bool) -> usize {
    match name.ends_with(".wal") {
        true if cut => LOGGED,
        true => 1,
        false => 0,
    }
}

#[test]
fn an_undamaged_database_comes_out_whole() {
    for golden in [Golden::merged(), Golden::layered()] {
        let (report, found) = repair(&golden.copy()).unwrap();
        assert!(found == golden.newest);
        assert!(report.losses.is_empty(), "{:#?}", report.losses);
        assert!(report.tables > 0 && report.commits >= LOGGED as u64 && report.entries > 0, "{report:?}");
    }
}

#[test]
fn q2_a_flipped_bit_anywhere() {
    let golden = Golden::layered();
    let mut repairs = 0;
    for name in &golden.files {
        let bytes = golden.read(name);
        for at in places(bytes.len(), 48) {
            judge(&golden, &format!("bit {} of byte {at} of {name}", at % 8), at_stake(name, false), |fs| {
                overwrite(fs, name, at, &[bytes[at] ^ 1 << (at % 8)]);
            });
            repairs += 1;
        }
    }
    println!("{repairs} repairs after a flipped bit");
}

#[test]
fn q2_cut_at_any_length() {
    let golden = Golden::layered();
    let mut repairs = 0;
    for name in &golden.files {
        let bytes = golden.read(name);
        for len in places(bytes.len(), 24) {
            judge(&golden, &format!("{name} cut to {len} of {}", bytes.len()), at_stake(name, true), |fs| {
                cut(fs, name, len);
            });
            repairs += 1;
        }
    }
    println!("{repairs} repairs after a cut");
}

#[test]
fn q2_each_file_lost_or_foreign() {
    for golden in [Golden::merged(), Golden::layered()] {
        for name in &golden.files {
            let lost = |fs: &MemFs| fs.remove_file(&path(name)).unwrap();
            judge(&golden, &format!("loss of {name}"), 0, lost);
            for bytes in [Vec::new(), vec![0; 300], b"some text\n".repeat(40)] {
                let foreign = |fs: &MemFs| replace(fs, name, &bytes);
                judge(
                    &golden,
                    &format!("{} strange bytes as {name}", bytes.len()),
                    at_stake(name, true),
                    foreign,
                );
            }
        }
    }
}

#[test]
fn q2_any_two_files_swapped() {
    let golden = Golden::layered();
    for (i, a) in golden.files.iter().enumerate() {
        for b in &golden.files[i + 1..] {
            let stake = at_stake(a, true).max(at_stake(b, true));
            judge(&golden, &format!("{a} and {b} swapped"), stake, |fs| {
                replace(fs, a, &golden.read(b));
                replace(fs, b, &golden.read(a));
            });
        }
    }
}

#[test]
fn everything_but_the_data_lost_at_once() {
    let golden = Golden::layered();
    judge(&golden, "CURRENT, manifest, OPTIONS and LOCK lost", 0, |fs| {
        for name in golden.files.iter().filter(|n| !n.ends_with(".sst") && !n.ends_with(".wal")) {
            fs.remove_file(&path(name)).unwrap();
        }
    });
}

#[test]
fn a_damaged_record_costs_its_commit_alone() {
    let golden = Golden::merged();
    let log = golden.files.iter().rfind(|name| name.ends_with(".wal")).unwrap();
    let bytes = golden.read(log);
    // The value of `logged/3`: thirty bytes of 3.
    let at = bytes.windows(30).position(|w| w == [3; 30]).unwrap();
    let fs = golden.copy();
    overwrite(&fs, log, at, b"!");
    let error = builder(&fs).open(dir()).unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("esker repair"), "{error}");
    let (report, found) = repair(&fs).unwrap();
    let mut expected = golden.newest.clone();
    expected.get_mut("default").unwrap().remove(&b"logged/3"[..]);
    assert!(found == expected);
    let lost: Vec<_> = report.losses.iter().filter_map(|loss| loss.commits).collect();
    assert!(lost.len() == 1 && lost[0].0 == lost[0].1, "{:#?}", report.losses);
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

#[test]
fn a_damaged_block_costs_its_keys_alone() {
    let golden = Golden::layered();
    // The newest: an older one may be a replaced one, on its way out.
    let table = golden.files.iter().rfind(|name| name.ends_with(".sst")).unwrap();
    let report = judge(&golden, "the first byte of a table", 0, |fs| overwrite(fs, table, 0, b"?"));
    assert!(!report.losses.is_empty());
    assert!(report.losses.iter().all(|loss| matches!(loss.keys, LostKeys::Between(..))), "{report:#?}");
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
fn canary_an_unexplained_difference_is_noticed() {
    let golden = Golden::merged();
    let (report, mut found) = repair(&golden.copy()).unwrap();
    assert_eq!(unexplained(&golden, &report, &found), None);
    found.get_mut("default").unwrap().remove(&b"logged/3"[..]);
    assert!(unexplained(&golden, &report, &found).is_some());
}
