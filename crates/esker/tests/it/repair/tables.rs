//! Damage to tables costs the damaged keys, and no others.

use std::sync::Arc;

use esker::{KeyspaceId, LostKeys, TableCompression};
use esker_env::{FaultFs, Fs, FsRef, MemFs, OpKind};

use super::judge::{
    assert_not_overreported, builder, failing, files, judge, place, repair, target, unexplained,
};
use crate::common::contents::{difference, dump_sound};
use crate::common::damage::{Golden, blocks, overwrite, parts, path, replace, table_range};
use crate::common::{dir, simulated};

#[test]
fn a_foreign_table_that_does_not_say_what_it_is_costs_the_range_of_the_one_in_its_place() {
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
fn sectors_of_a_table_that_cannot_be_read_cost_little_and_are_asked_for_a_few_times() {
    let fs = MemFs::new();
    let options = |fs: FsRef| {
        let options = simulated(fs).tuning(|t| t.memtable_bytes(1 << 20).table_bytes(1 << 20));
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
    assert!((30 << 10..64 << 10).contains(&len), "{len}");
    let faulty = FaultFs::new(Arc::new(fs));
    faulty.add(failing(&[OpKind::Read], &table).on_bytes(10_000..10_001));
    let report = options(Arc::new(faulty.clone())).repair(dir(), target()).unwrap();
    assert!(faulty.fired() <= 50, "{} reads failed", faulty.fired());
    faulty.clear();
    let found = dump_sound(&options(Arc::new(faulty)).open(target()).unwrap()).unwrap();
    let (map, id) = (&found["default"], KeyspaceId::DEFAULT);
    assert!(map.len() > 600, "{}", map.len());
    for n in 0..800 {
        let reported = report.losses.iter().any(|loss| loss.keys.may_hold(id, &key(n)));
        assert!(map.contains_key(&key(n)) || reported, "{n}: {report:#?}");
    }
}

#[test]
fn a_stray_file_that_cannot_be_read_costs_nothing() {
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
fn a_table_that_cannot_be_opened_costs_its_keys_whenever_that_is() {
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
fn a_damaged_block_costs_its_keys_alone() {
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
            let of_table = report.losses.iter().filter(|loss| loss.path == path(table));
            let lost: Vec<_> = of_table.map(|loss| (loss.offset, loss.offset + loss.bytes)).collect();
            let (start, end) = (block.start as u64, block.end as u64);
            assert_eq!(lost, [(start, end)], "{what}: the block, and nothing else: {report:#?}");
            // The bounds are those of the index: a key of each neighbour may be one.
            let named = blocks.iter().flat_map(|block| &block.keys).filter(holds).count();
            assert!(named <= block.keys.len() + 2, "{what}: {named} keys named: {report:#?}");
            damaged += 1;
        }
    }
    assert!(damaged > 20, "{damaged}");
}

#[test]
fn lost_range_tombstones_cost_keys_of_their_table_alone() {
    let fs = MemFs::new();
    let db = builder(&fs).open(dir()).unwrap();
    let all = db.default_keyspace();
    (0..90u8).for_each(|n| all.put([n], [n; 9]).map(drop).unwrap());
    db.flush().unwrap();
    all.delete_range([20]..[40]).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let table = fs.list_dir(dir()).unwrap().into_iter().filter(|name| name.ends_with(".sst")).max().unwrap();
    assert!(blocks(&fs, &table).is_empty(), "range tombstones alone");
    // They come first in a table without blocks.
    let part = parts(&fs, &table)[0].clone();
    assert!(part.contains(&2), "{part:?}");
    overwrite(&fs, &table, 2, b"?");
    let (report, found) = repair(&fs).unwrap();
    assert_eq!(found["default"].len(), 90, "keys are back");
    assert_eq!(report.losses.len(), 1, "{report:#?}");
    let loss = &report.losses[0];
    let lost = loss.offset as usize..(loss.offset + loss.bytes) as usize;
    assert_eq!(lost, part, "the part, not from its checksum on: {report:#?}");
    let may_hold = |n: u8| report.losses[0].keys.may_hold(KeyspaceId::DEFAULT, &[n]);
    assert!((20..40).all(may_hold) && !(0..20).chain(41..90).any(may_hold), "{report:#?}");
}

#[test]
fn a_table_without_footer_or_index_is_reported_as_a_loss_of_its_range() {
    let golden = Golden::layered();
    for name in golden.named(".sst") {
        let parts = parts(&golden.fs, name);
        let [.., index, _, footer] = &parts[..] else { panic!("{parts:?}") };
        for at in [footer.end - 1, index.end - 1] {
            let what = format!("byte {at} of {name}");
            let byte = golden.read(name)[at];
            let report = judge(&golden, &what, |fs| overwrite(fs, name, at, &[!byte]));
            assert_not_overreported(&golden, &what, name, &report);
        }
    }
}

#[test]
fn a_catalog_that_is_lost_leaves_numbers() {
    let fs = MemFs::new();
    let options = || builder(&fs).tuning(|t| t.block_bytes(64));
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
fn a_block_of_another_databases_table_of_the_same_name_is_reported() {
    let (one, other) = (Golden::double(1), Golden::double(2));
    let name = one.named(".sst").next().unwrap();
    let own = blocks(&one.fs, name);
    let block = &own[own.len() / 2];
    let is_there = blocks(&other.fs, name).iter().any(|b| (b.start, b.end) == (block.start, block.end));
    assert!(is_there, "{own:?}");
    let fs = one.copy();
    overwrite(&fs, name, block.start, &other.read(name)[block.start..block.end]);
    let (report, found) = repair(&fs).unwrap();
    assert!(found != one.newest, "its checksum fits");
    assert_eq!(report.losses.len(), 1, "{report:#?}");
    let loss = &report.losses[0];
    assert!(loss.path == path(name) && loss.keys != LostKeys::Any, "{report:#?}");
    for key in &block.keys {
        let (id, key) = place(key);
        assert!(loss.keys.may_hold(id, &key), "{key:?}: {report:#?}");
    }
}

/// A database with an old value of each key in tables and in the log, and a new one in tables that a large
/// batch became.
fn with_adopted(fs: &MemFs) {
    let db = adopting(fs).open(dir()).unwrap();
    let map = db.default_keyspace();
    for n in 0..200_u16 {
        map.put(n.to_be_bytes(), "old").unwrap();
    }
    map.put("removed", "old").unwrap();
    let mut batch = db.batch();
    (0..200_u16).for_each(|n| batch.put(&map, n.to_be_bytes(), [b'n'; 40]).unwrap());
    batch.delete_range(&map, "r".."s").unwrap();
    batch.commit().unwrap();
    map.put("later", "1").unwrap();
    assert_eq!(db.stats().adoptions, 1);
    db.close().unwrap();
}

fn adopting(fs: &MemFs) -> esker::Builder {
    simulated(Arc::new(fs.clone())).stepped().tuning(|t| t.memtable_bytes(8 << 10).table_bytes(3 << 10))
}

#[test]
fn tables_6_what_an_adopted_table_holds_is_of_the_commit_that_the_manifest_names() {
    let fs = MemFs::new();
    with_adopted(&fs);
    let report = adopting(&fs).repair(dir(), target()).unwrap();
    assert!(report.losses.is_empty(), "{report:#?}");
    let found = dump_sound(&adopting(&fs).open(target()).unwrap()).unwrap();
    let map = &found["default"];
    assert_eq!(map.len(), 201);
    for n in 0..200_u16 {
        assert_eq!(map[&n.to_be_bytes()[..]], [b'n'; 40], "tables.6: {n}");
    }
}

#[test]
fn tables_6_without_a_manifest_an_older_value_does_not_pass_for_the_newest() {
    let fs = MemFs::new();
    with_adopted(&fs);
    let names = fs.list_dir(dir()).unwrap().into_iter();
    names
        .filter(|name| name == "CURRENT" || name.starts_with("MANIFEST"))
        .for_each(|name| fs.remove_file(&path(&name)).unwrap());
    let report = adopting(&fs).repair(dir(), target()).unwrap();
    let found = dump_sound(&adopting(&fs).open(target()).unwrap()).unwrap();
    let of_tables = |key: &[u8]| {
        let is_named = |loss: &esker::Loss| {
            loss.detail.contains("a large transaction or an ingest")
                && loss.keys.may_hold(KeyspaceId::DEFAULT, key)
        };
        report.losses.iter().any(is_named)
    };
    for n in 0..200_u16 {
        let key = n.to_be_bytes();
        let is_new = found["default"].get(&key[..]).is_some_and(|value| value == &[b'n'; 40]);
        assert!(is_new || of_tables(&key), "tables.6: {n}: {report:#?}");
    }
    assert!(of_tables(b"removed"), "the range removal, too: {report:#?}");
    let is_of_log = |loss: &esker::Loss| loss.detail.contains("the manifest that names them is lost");
    assert!(report.losses.iter().any(is_of_log) || report.losses.len() > 1, "{report:#?}");
}

#[test]
fn tables_6_what_may_never_have_been_committed_is_kept_and_reported() {
    let fs = MemFs::new();
    let db = adopting(&fs).tuning(|t| t.transaction_memory(0)).open(dir()).unwrap();
    let mut transaction = db.begin();
    let map = db.default_keyspace();
    (0..200_u16).for_each(|n| transaction.put(&map, n.to_be_bytes(), [b'n'; 40]).unwrap());
    let left = fs.kill();
    let names = left.list_dir(dir()).unwrap();
    assert!(names.iter().any(|name| name.ends_with(".sst")), "it has private tables");
    for name in &names {
        if name == "CURRENT" || name.starts_with("MANIFEST") {
            left.remove_file(&path(name)).unwrap();
        }
    }
    let report = adopting(&left).repair(dir(), target()).unwrap();
    let found = dump_sound(&adopting(&left).open(target()).unwrap()).unwrap();
    assert!(!found["default"].is_empty(), "tables.6");
    for key in found["default"].keys() {
        let is_requested = |loss: &esker::Loss| {
            loss.detail.contains("never have been committed") && loss.keys.may_hold(KeyspaceId::DEFAULT, key)
        };
        assert!(report.losses.iter().any(is_requested), "tables.6: {report:#?}");
    }
}
