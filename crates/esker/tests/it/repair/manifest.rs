//! Manifests that are lost, cut or old: what tables and log prove without them.

use esker::{Loss, LostKeys, TableCompression};
use esker_env::{Fs, MemFs};

use super::judge::{SEGMENT_HEADER_BYTES, builder, judge, repair, unexplained};
use crate::common::damage::{Golden, cut, overwrite, path, places, read, records, replace};
use crate::common::dir;

#[test]
fn a_manifest_that_lost_its_end_costs_no_table() {
    for golden in [Golden::flushed(), Golden::flushed_once()] {
        let name = golden.named("").find(|name| name.starts_with("MANIFEST-")).unwrap();
        let (bytes, mut reported) = (golden.read(name), 0);
        for at in 0..bytes.len() {
            let report = judge(&golden, &format!("{name} cut to {at}"), |fs| cut(fs, name, at));
            let keys = golden.newest["default"].len() as u64;
            assert_eq!(report.live_keys(), keys, "{at}: {report:#?}");
            reported += usize::from(
                report.losses.iter().any(|loss| loss.detail.contains("The end of the manifest is lost")),
            );
        }
        assert!(reported > 0, "only tables prove a cut after a record");
    }
}

#[test]
fn a_manifest_from_before_a_merge_or_a_flush_costs_no_key() {
    let golden = Golden::merged();
    let name = golden.named("").find(|name| name.starts_with("MANIFEST-")).unwrap();
    let (bytes, mut reported) = (golden.read(name), 0);
    for len in places(bytes.len(), 128) {
        for is_older in [false, true] {
            let what = format!("{name} cut to {len}, under an earlier name: {is_older}");
            let fs = golden.copy();
            if is_older {
                // The current manifest is lost, and an older one still exists.
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
            reported +=
                usize::from(report.losses.iter().any(|loss| loss.detail.contains("an earlier manifest")));
        }
    }
    assert!(reported > 0, "only the files it names show that it is an earlier one");
}

/// Removes the files through which opening finds the tables and the log.
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
fn old_segments_bring_nothing_back_over_tables_that_forgot_their_numbers() {
    for is_manifest_lost in [false, true] {
        let running = MemFs::new();
        let db = builder(&running).open(dir()).unwrap();
        let keyspace = db.default_keyspace();
        keyspace.put("a", "old").unwrap();
        keyspace.put("b", "old").unwrap();
        // The old manifest and log with later tables.
        let fs = running.kill();
        keyspace.put("a", "new").unwrap();
        keyspace.delete("b").unwrap();
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
fn a_flush_that_never_ended_costs_no_commit_of_the_log() {
    let running = MemFs::new();
    let db = builder(&running)
        .tuning(|t| t.memtable_bytes(64 << 10))
        .compression(TableCompression::None)
        .open(dir())
        .unwrap();
    let keyspace = db.default_keyspace();
    keyspace.put("base", "").unwrap();
    db.flush().unwrap();
    // The newest commits are in the first table.
    (0..25u8).rev().for_each(|n| keyspace.put([n], [n; 100]).map(drop).unwrap());
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
fn a_foreign_table_in_a_named_place_costs_no_commit_of_the_log() {
    let left = |keys: u8, commits: u8| {
        let fs = MemFs::new();
        let db = builder(&fs).open(dir()).unwrap();
        let keyspace = db.default_keyspace();
        (0..keys).for_each(|n| keyspace.put([n], [n; 100]).map(drop).unwrap());
        db.flush().unwrap();
        (0..commits).for_each(|n| keyspace.put([100 + n], "in the log").map(drop).unwrap());
        fs.kill()
    };
    // It states that far newer commits went into it, and nothing else.
    let (fs, other) = (left(1, 10), left(90, 0));
    let mut theirs = read(&other, &tables(&other)[0]);
    let properties_end = theirs.len() - 80;
    theirs[properties_end - 1] ^= 1;
    replace(&fs, &tables(&fs)[0], &theirs);
    let (report, found) = repair(&fs).unwrap();
    let in_log = found["default"].values().filter(|value| value[..] == b"in the log"[..]).count();
    assert_eq!((report.commits, in_log), (10, 10), "{report:#?}");
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
fn an_earlier_manifest_in_the_place_of_the_one_in_force_is_reported() {
    let running = MemFs::new();
    let names = |fs: &MemFs| fs.list_dir(dir()).unwrap();
    let manifest = |fs: &MemFs| names(fs).into_iter().find(|name| name.starts_with("MANIFEST-")).unwrap();
    let run = |key: &str| {
        let db = builder(&running).open(dir()).unwrap();
        db.default_keyspace().put(key, "value").unwrap();
        db.close().unwrap();
    };
    run("a");
    let earlier = running.kill();
    // Without its last marker it is not continued.
    let file = running.open(&path(&manifest(&running)), esker_env::OpenOptions::write()).unwrap();
    file.set_len(file.len().unwrap() - 20).unwrap();
    run("b");
    let (old, in_force) = (manifest(&earlier), manifest(&running));
    assert_ne!(old, in_force);
    // Without CURRENT nothing shows that there was another manifest.
    for is_requested in [true, false] {
        // The current manifest is gone, and with it the log segments that only it names.
        let fs = running.kill();
        fs.remove_file(&path(&in_force)).unwrap();
        let of_log = names(&fs).into_iter().filter(|name| name.ends_with(".wal"));
        for name in of_log.filter(|name| !earlier.exists(&path(name)).unwrap()) {
            fs.remove_file(&path(&name)).unwrap();
        }
        replace(&fs, &old, &read(&earlier, &old));
        if !is_requested {
            fs.remove_file(&path("CURRENT")).unwrap();
        }
        let (report, found) = repair(&fs).unwrap();
        assert_eq!((found["default"].len(), report.commits), (1, 1), "{report:#?}");
        let is_it = |loss: &Loss| loss.path == path(&in_force) && loss.keys == LostKeys::Any;
        assert_eq!(report.losses.len(), usize::from(is_requested), "{report:#?}");
        assert!(report.losses.iter().all(is_it), "{report:#?}");
    }
}

#[test]
fn commits_behind_a_torn_one_do_not_stand_for_those_of_a_table() {
    let golden = Golden::grouped();
    let flushed = golden.copy();
    builder(&flushed).tuning(|t| t.memtable_bytes(64 << 10)).open(dir()).unwrap().flush().unwrap();
    // Tables of all commits, which no edit names.
    let fs = golden.copy();
    let earlier = tables(&fs);
    let made: Vec<_> = tables(&flushed).into_iter().filter(|name| !earlier.contains(name)).collect();
    made.iter().for_each(|name| replace(&fs, name, &read(&flushed, name)));
    // The first of the last three commits, which one sync covered. Without the tables it would look like a
    // torn write.
    let segment = golden.last_segment();
    let of_log = records(&fs, segment);
    let at = of_log[of_log.len() - 3].start;
    overwrite(&fs, segment, at, &[golden.read(segment)[at] ^ 1]);
    let (report, found) = repair(&fs).unwrap();
    assert!(found == golden.newest, "{report:#?}");
    let is_requested = |name: &String| report.losses.iter().any(|loss| loss.path == path(name));
    assert!(!made.is_empty() && made.iter().all(is_requested), "{report:#?}");
}

#[test]
fn a_log_that_has_lost_its_beginning_is_reported_where_no_segment_is_named() {
    let running = MemFs::new();
    let db = builder(&running).open(dir()).unwrap();
    let first = running.kill();
    db.default_keyspace().put("flushed", "value").unwrap();
    db.flush().unwrap();
    db.default_keyspace().put("logged", "value").unwrap();
    let fs = running.kill();
    // The first state of the manifest. The table is gone, and the only commit that is left of the log.
    let mut names = fs.list_dir(dir()).unwrap().into_iter();
    let manifest = names.find(|name| name.starts_with("MANIFEST-")).unwrap();
    replace(&fs, &manifest, &read(&first, &manifest));
    tables(&fs).iter().for_each(|name| fs.remove_file(&path(name)).unwrap());
    let (gone, left) = ("000001.wal", "000002.wal");
    assert!(!fs.exists(&path(gone)).unwrap());
    let at = records(&fs, left)[0].start;
    overwrite(&fs, left, at, &[!read(&fs, left)[at]]);
    assert!(builder(&fs).open(dir()).is_err());
    let (report, found) = repair(&fs).unwrap();
    assert!(found["default"].is_empty() && report.commits == 0, "{report:#?}");
    assert_eq!(report.losses.len(), 1, "{report:#?}");
    let loss = &report.losses[0];
    assert!(loss.path == path(gone) && loss.keys == LostKeys::Any, "{report:#?}");
}
