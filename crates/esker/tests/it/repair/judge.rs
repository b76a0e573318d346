//! Repairs databases and judges the result: the new database, and the report.
//!
//! The canaries show that the judges notice an unreported difference and a wrongly reported loss.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use esker::{Builder, Error, KeyspaceId, LostKeys, RepairReport};
use esker_env::{FaultAction, FaultRule, Fs, FsRef, MemFs, OpKind};

use crate::common::contents::{Contents, Map, difference, dump_sound};
use crate::common::damage::{Golden, logged_key, overwrite, path, read, table_range};
use crate::common::{DIR, dir, simulated};

pub fn target() -> &'static Path {
    Path::new("repaired")
}

pub fn builder(fs: &MemFs) -> Builder {
    simulated(Arc::new(fs.clone()))
}

/// A builder of databases whose commits stay in the log.
pub fn roomy(fs: FsRef) -> Builder {
    simulated(fs)
        .memory(64 << 20)
        .tuning(|t| t.memtable_bytes(32 << 20).block_bytes(8 << 10).table_bytes(64 << 20))
}

/// A rule that fails these calls on a file of the damaged database.
pub fn failing(ops: &[OpKind], name: &str) -> FaultRule {
    let text = format!("{}/{name}", DIR);
    FaultRule::new(ops, FaultAction::Fail(std::io::ErrorKind::Other)).on_path(&text).forever()
}

/// All files of the damaged database.
pub fn files(fs: &MemFs) -> Vec<(String, Vec<u8>)> {
    let mut names = fs.list_dir(dir()).unwrap();
    names.sort();
    names.into_iter().map(|name| (name.clone(), read(fs, &name))).collect()
}

/// Repairs, and checks the contents, the report and a second repair.
pub fn repair(fs: &MemFs) -> Result<(RepairReport, Contents), Error> {
    let before = files(fs);
    let outcome = builder(fs).repair(dir(), target());
    assert!(files(fs) == before, "the original has changed");
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            let left = fs.list_dir(target()).unwrap_or_default();
            assert!(left.is_empty(), "{left:?} is left of a repair that failed: {error}");
            return Err(error);
        }
    };
    // Before a later call makes it durable.
    let survivor = fs.crash_strict();
    let db = builder(fs).create_if_missing(false).open(target())?;
    let contents = dump_sound(&db)?;
    assert_lasts(&survivor, &contents);
    let said: Vec<_> = report.keyspaces.iter().map(|k| (k.name.clone(), k.keys)).collect();
    let found: Vec<_> = contents.iter().map(|(name, map)| (name.clone(), map.len() as u64)).collect();
    assert_eq!(said, found, "the report counts what is there");
    Ok((report, contents))
}

/// Checks what a power loss has left of a repaired database with these contents.
pub fn assert_lasts(left: &MemFs, contents: &Contents) {
    let assert_holds = |fs: &MemFs, expected: &Contents, when: &str| {
        let db = builder(fs).create_if_missing(false).open(target());
        let db = db.unwrap_or_else(|error| panic!("{when}: {error}"));
        let found = dump_sound(&db).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(found == *expected, "{when}: {}", difference(&found, expected));
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
                    batch.delete(&keyspace, &key).unwrap();
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

/// Id and name of each keyspace of the golden databases. The ids never change.
pub const IDS: [(&str, u32); 2] = [("default", 1), ("a", 2)];

/// Returns the first difference that the report does not explain.
pub fn unexplained(golden: &Golden, report: &RepairReport, found: &Contents) -> Option<String> {
    for (name, id) in IDS {
        let id = KeyspaceId::new(id);
        let renamed = report.keyspaces.iter().find(|k| k.id == id).map(|k| k.name.as_str());
        let names_lost = report.losses.iter().any(|l| matches!(l.keys, LostKeys::Names | LostKeys::Any));
        if renamed != Some(name) && !names_lost && renamed.is_some() {
            return Some(format!("{name} is called {renamed:?}"));
        }
        let empty = Default::default();
        // Not all databases have both.
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
                let names = if name == "a" { ["a", "users"] } else { [name, name] };
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

/// Damages a copy, repairs it, and judges. Returns the report.
pub fn judge(golden: &Golden, what: &str, damage: impl FnOnce(&MemFs)) -> RepairReport {
    let fs = golden.copy();
    damage(&fs);
    let outcome = catch_unwind(AssertUnwindSafe(|| repair(&fs)));
    let outcome = outcome.unwrap_or_else(|_| panic!("{what}: panic"));
    let (report, found) = outcome.unwrap_or_else(|error| panic!("{what}: {error}"));
    if let Some(problem) = unexplained(golden, &report, &found) {
        panic!("{what}: {problem}\n{report:#?}");
    }
    report
}

/// Size of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 32;

/// Keyspace and user key of an encoded key. The databases have few keyspaces, so ids take one byte.
pub fn place(stored: &[u8]) -> (KeyspaceId, Vec<u8>) {
    (KeyspaceId::new(u32::from(stored[0])), stored[1..].to_vec())
}

/// Returns what the report names beyond the possible cost of damage to this one file.
pub fn overreported(golden: &Golden, name: &str, report: &RepairReport) -> Option<String> {
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
                // Both bounds have to be reported, since a table states which keys it may hold.
                LostKeys::Between(..) | LostKeys::Any => false,
                LostKeys::Names => names_in_it,
            })
        }
        // Only a commit's record says which keys it wrote. If it is lost, they may be any.
        _ if name.ends_with(".wal") => unfit(&|loss| is_about(loss) && loss.keys == LostKeys::Any),
        // Only the manifest says which tables are in use. Without it, older values of any key may return,
        // which is reported once. Tables that a lost edit had removed may be missed. Only the manifest knows
        // the commit of an adopted table.
        _ => {
            let any = report.losses.iter().filter(|loss| loss.keys == LostKeys::Any).count();
            unfit(&|loss| match &loss.keys {
                LostKeys::Any => any == 1 && (loss.path == path("CURRENT") || is_about(loss)),
                LostKeys::Between(..) => {
                    let is_adopted =
                        loss.detail.contains("a large transaction or an ingest may have made it");
                    any == 1 && (is_adopted || !golden.fs.exists(&loss.path).unwrap())
                }
                LostKeys::Names => true,
            })
        }
    };
    found.map(|loss| format!("{name}: {loss}"))
}

/// Checks that the source directory is unchanged.
pub fn assert_not_overreported(golden: &Golden, what: &str, name: &str, report: &RepairReport) {
    if let Some(problem) = overreported(golden, name, report) {
        panic!("{what}: {problem}\n{report:#?}");
    }
}

#[test]
fn canary_an_unexplained_difference_is_noticed() {
    let golden = Golden::merged();
    let (report, mut found) = repair(&golden.copy()).unwrap();
    assert_eq!(unexplained(&golden, &report, &found), None);
    found.get_mut("default").unwrap().remove(logged_key(3));
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
