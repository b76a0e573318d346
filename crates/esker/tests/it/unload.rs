//! Unloading and loading: everything comes back, even if both are stopped repeatedly.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker::unload::{Load, Unload};
use esker::{Blobs, Counting, Db, Error, History, Ttl};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions};

use crate::common::contents::{Contents, difference, dump, dump_sound};
use crate::common::{DIR, dir, simulated};

const FILE: &str = "file";

fn env(fs: &MemFs) -> Env {
    Env::simulated(Arc::new(fs.clone()), 7)
}

fn filled(fs: &MemFs) -> Db {
    let db = simulated(Arc::new(fs.clone())).open(dir()).unwrap();
    let (map, other) = (db.default_keyspace(), db.keyspace("other").unwrap());
    for n in 0..2_000_u32 {
        map.put(n.to_be_bytes(), vec![n as u8; n as usize % 700]).unwrap();
    }
    other.put("", "").unwrap();
    other.put("large", vec![5; 600_000]).unwrap();
    db.create_keyspace("empty").unwrap();
    db
}

fn assert_same(found: &Contents, expected: &Contents, what: &str) {
    assert!(found == expected, "{what}: {}", difference(found, expected));
}

#[test]
fn all_of_a_database_comes_back_or_some_of_it() {
    let fs = MemFs::new();
    let db = filled(&fs);
    let expected = dump(&db).unwrap();
    let done = Unload::new().env(env(&fs)).write(&db, FILE).unwrap();
    assert_eq!((done.keyspaces, done.entries, done.entries_total), (3, 2_002, 2_002));
    assert_eq!((done.resumed_entries, fs.file_size(FILE.as_ref()).unwrap()), (0, done.bytes));
    assert!(!fs.exists("file.partial".as_ref()).unwrap());
    let again = Unload::new().env(env(&fs)).write(&db, FILE);
    assert!(matches!(again, Err(Error::AlreadyExists(_))));

    let copy = simulated(Arc::new(fs.clone())).open("copy").unwrap();
    let done = Load::new().env(env(&fs)).read(&copy, FILE).unwrap();
    assert_eq!((done.keyspaces, done.entries), (3, 2_002));
    assert_same(&dump_sound(&copy).unwrap(), &expected, "the copy");
    let twice = Load::new().env(env(&fs)).read(&copy, FILE);
    assert!(matches!(twice, Err(Error::KeyspaceExists(name)) if name == "default"));

    let some = simulated(Arc::new(fs.clone())).open("some").unwrap();
    let missing = Load::new().env(env(&fs)).keyspaces(["none"]).read(&some, FILE);
    assert!(matches!(missing, Err(Error::KeyspaceNotFound(_))));
    Load::new().env(env(&fs)).keyspaces(["other"]).read(&some, FILE).unwrap();
    assert_eq!(some.keyspaces().unwrap(), ["default", "other"]);
    assert_eq!(dump(&some).unwrap()["other"], expected["other"]);
    let part = Unload::new().env(env(&fs)).keyspaces(["other", "empty"]).write(&db, "part").unwrap();
    assert_eq!((part.keyspaces, part.entries), (2, 2));
}

#[test]
fn lives_and_rules_come_back() {
    let fs = MemFs::new();
    let db = simulated(Arc::new(fs.clone())).open(dir()).unwrap();
    let map = db.keyspace("map").unwrap();
    map.put_with_ttl("brief", "1", Duration::from_millis(1)).unwrap();
    map.put_with_ttl("long", "2", Duration::from_secs(1_000)).unwrap();
    map.put("for ever", "3").unwrap();
    map.set_default_ttl(Some(Duration::from_secs(60))).unwrap();
    map.set_counting(Counting::Lazy).unwrap();
    map.set_history(History::Versions(4)).unwrap();
    let sums = db.keyspace("sums").unwrap();
    sums.set_merge_operator("add-u64").unwrap();
    for _ in 0..3 {
        sums.merge("sum", 5_u64.to_le_bytes()).unwrap();
    }
    Unload::new().env(env(&fs)).write(&db, FILE).unwrap();
    let later = env(&fs);
    later.clock.sleep(Duration::from_millis(500));
    let copy = simulated(Arc::new(fs.clone())).env(later.clone()).open("copy").unwrap();
    Load::new().env(later).read(&copy, FILE).unwrap();
    let copied = copy.open_keyspace("map").unwrap();
    assert_eq!((copied.len().unwrap(), copied.contains("brief").unwrap()), (2, false));
    assert_eq!(copied.ttl("for ever").unwrap(), Some(Ttl::Unlimited));
    let left = copied.ttl("long").unwrap();
    let expected = Duration::from_secs(900)..=Duration::from_secs(1_000);
    assert!(matches!(left, Some(Ttl::Left(left)) if expected.contains(&left)), "{left:?}");
    assert_eq!(copied.default_ttl(), Some(Duration::from_secs(60)));
    assert_eq!(copied.history(), History::Versions(4));
    let sums = copy.open_keyspace("sums").unwrap();
    assert_eq!(sums.merge_operator().as_deref(), Some("add-u64"));
    assert_eq!(sums.get("sum").unwrap().as_deref(), Some(&15_u64.to_le_bytes()[..]));
}

#[test]
fn a_load_overwrites_nothing_that_others_put_before_it_comes_to_their_keyspace() {
    let fs = MemFs::new();
    let db = filled(&fs);
    Unload::new().env(env(&fs)).write(&db, FILE).unwrap();
    let copy = simulated(Arc::new(fs.clone())).open("copy").unwrap();
    let others = copy.clone();
    let put = move |_: &_| {
        others.keyspace("other").unwrap().put("large", "of others").unwrap();
    };
    let loaded = Load::new().env(env(&fs)).on_progress(put).read(&copy, FILE);
    assert!(matches!(loaded, Err(Error::KeyspaceExists(name)) if name == "other"));
    let other = copy.open_keyspace("other").unwrap();
    assert_eq!(other.get("large").unwrap().as_deref(), Some(&b"of others"[..]));
    // A later call continues, and is refused as well.
    let again = Load::new().env(env(&fs)).read(&copy, FILE);
    assert!(matches!(again, Err(Error::KeyspaceExists(name)) if name == "other"));
    other.clear().unwrap();
    assert_eq!(Load::new().env(env(&fs)).read(&copy, FILE).unwrap().keyspaces, 3);
    assert_same(&dump_sound(&copy).unwrap(), &dump(&db).unwrap(), "the copy");
}

#[test]
fn unload_1_options_and_names_are_those_of_the_commit() {
    let fs = MemFs::new();
    let db = filled(&fs);
    let other = db.open_keyspace("other").unwrap();
    other.set_history(History::Versions(3)).unwrap();
    let (late, changing) = (other.clone(), Db::clone(&db));
    let mut calls = 0;
    // While the first keyspace is written, the other one gets other options and another name.
    let change = move |_: &_| {
        calls += 1;
        if calls == 1 {
            late.set_default_ttl(Some(Duration::from_secs(60))).unwrap();
            late.set_history(History::None).unwrap();
            changing.rename_keyspace("other", "renamed").unwrap();
        }
    };
    Unload::new().env(env(&fs)).on_progress(change).write(&db, FILE).unwrap();
    assert_eq!(other.default_ttl(), Some(Duration::from_secs(60)), "it was changed meanwhile");
    let copy = simulated(Arc::new(fs.clone())).open("copy").unwrap();
    Load::new().env(env(&fs)).read(&copy, FILE).unwrap();
    let options = copy.open_keyspace("other").unwrap().options();
    assert_eq!((options.default_ttl, options.history), (None, History::Versions(3)), "unload.1");
}

#[test]
fn unload_1_a_stopped_unload_goes_on_if_nothing_was_committed_since() {
    let fs = MemFs::new();
    let db = filled(&fs);
    let expected = dump(&db).unwrap();
    let resumed = Arc::new(AtomicU64::new(0));
    let mut stops = 0;
    while !fs.exists(FILE.as_ref()).unwrap() {
        let faults = FaultFs::new(Arc::new(fs.clone()));
        faults.add(FaultRule::new(&OpKind::CHANGES, FaultAction::Freeze { keep: 1_000 }).nth(2 + stops));
        let seen = resumed.clone();
        let unload = Unload::new().env(Env::simulated(Arc::new(faults), 8));
        let unload = unload.on_progress(move |done| {
            seen.fetch_max(done.resumed_entries, Ordering::Relaxed);
        });
        let _ = unload.write(&db, FILE);
        stops += 1;
        assert!(stops < 50, "it never ends");
    }
    let resumed = resumed.load(Ordering::Relaxed);
    assert!(resumed > 300 && stops > 2, "{resumed} entries, {stops} stops");
    let copy = simulated(Arc::new(fs.clone())).open("copy").unwrap();
    Load::new().env(env(&fs)).read(&copy, FILE).unwrap();
    assert_same(&dump_sound(&copy).unwrap(), &expected, "the copy");

    // A partial file of another commit is not continued.
    fs.rename(FILE.as_ref(), "file.partial".as_ref()).unwrap();
    db.default_keyspace().put("new", "1").unwrap();
    let done = Unload::new().env(env(&fs)).write(&db, FILE).unwrap();
    assert_eq!((done.resumed_entries, done.entries), (0, 2_003));
}

#[test]
fn unload_2_a_stopped_load_goes_on_and_loads_nothing_twice() {
    let fs = MemFs::new();
    let db = filled(&fs);
    let expected = dump(&db).unwrap();
    Unload::new().env(env(&fs)).write(&db, FILE).unwrap();
    let mut disk = fs.kill();
    let mut stops = 0;
    for nth in (5..).step_by(40) {
        let faults = FaultFs::new(Arc::new(disk.clone()));
        let copy = simulated(Arc::new(faults.clone())).open("copy").unwrap();
        faults.add(FaultRule::new(&OpKind::CHANGES, FaultAction::Freeze { keep: 100 }).nth(nth));
        let done = Load::new().env(env(&disk)).read(&copy, FILE);
        let left = disk.crash(nth);
        drop(copy);
        disk = left;
        if let Ok(done) = done {
            assert!(stops > 3 && done.entries == 2_002, "{stops} {done:?}");
            break;
        }
        stops += 1;
        let other = Load::new().env(env(&disk));
        let copy = simulated(Arc::new(disk.clone())).open("copy").unwrap();
        if copy.open_keyspace("esker.load").is_ok_and(|place| !place.is_empty().unwrap()) && stops == 3 {
            Unload::new().env(env(&disk)).write(&db, "another").unwrap();
            assert!(matches!(other.read(&copy, "another"), Err(Error::UnfinishedLoad(_))));
        }
    }
    let copy = simulated(Arc::new(disk)).open("copy").unwrap();
    assert_same(&dump_sound(&copy).unwrap(), &expected, "the copy");
}

#[test]
fn what_is_no_such_file_or_a_part_of_one_is_reported() {
    let fs = MemFs::new();
    let db = filled(&fs);
    Unload::new().env(env(&fs)).keyspaces(["other"]).write(&db, FILE).unwrap();
    let copy = simulated(Arc::new(fs.clone())).open("copy").unwrap();
    let file = fs.open(Path::new(FILE), OpenOptions::write()).unwrap();
    let len = file.len().unwrap();
    file.set_len(len - 1).unwrap();
    assert!(Load::new().env(env(&fs)).read(&copy, FILE).is_err_and(|e| e.is_corrupt()));
    file.set_len(len - 200).unwrap();
    assert!(Load::new().env(env(&fs)).read(&copy, FILE).is_err_and(|e| e.is_corrupt()));
    let manifest = format!("{DIR}/CURRENT");
    assert!(Load::new().env(env(&fs)).read(&copy, manifest).is_err());
}

#[test]
fn what_a_server_notes_of_its_replication_stays_behind() {
    let fs = MemFs::new();
    let db = filled(&fs);
    db.keyspace("es.repl").unwrap().put("r", "role").unwrap();
    let all = Unload::new().env(env(&fs)).write(&db, FILE).unwrap();
    let asked_for = Unload::new().env(env(&fs)).keyspaces(["es.repl"]).write(&db, "other file");
    assert!(matches!(asked_for, Err(esker::Error::Invalid(_))), "{asked_for:?}");
    let copy = simulated(Arc::new(fs.clone())).open("copy").unwrap();
    assert!(Load::new().env(env(&fs)).keyspaces(["es.repl"]).read(&copy, FILE).is_err());
    let loaded = Load::new().env(env(&fs)).read(&copy, FILE).unwrap();
    assert_eq!(loaded.entries, all.entries);
    assert!(copy.open_keyspace("es.repl").is_err());
}

#[test]
fn unload_2_a_load_that_is_killed_anywhere_ends_with_all_options() {
    let fs = MemFs::new();
    let db = simulated(Arc::new(fs.clone())).open(dir()).unwrap();
    for name in ["a", "b", "c"] {
        let map = db.keyspace(name).unwrap();
        map.set_default_ttl(Some(Duration::from_secs(60))).unwrap();
        map.set_history(History::Versions(3)).unwrap();
        map.set_blobs(Blobs::From(100)).unwrap();
        map.put("key", name).unwrap();
    }
    let expected: Vec<_> = ["a", "b", "c"].map(|name| db.open_keyspace(name).unwrap().options()).into();
    Unload::new().env(env(&fs)).write(&db, FILE).unwrap();
    for nth in 1.. {
        let faults = FaultFs::new(Arc::new(fs.kill()));
        let copy = simulated(Arc::new(faults.clone())).open("copy").unwrap();
        faults.add(FaultRule::new(&OpKind::CHANGES, FaultAction::Freeze { keep: 0 }).nth(nth));
        let was_whole = Load::new().env(env(&fs)).read(&copy, FILE).is_ok();
        faults.clear();
        let left = copy.clone();
        drop((copy, left));
        let disk = simulated(Arc::new(faults.clone())).open("copy");
        let Ok(copy) = disk else { continue };
        match Load::new().env(env(&fs)).read(&copy, FILE) {
            Ok(_) => {}
            Err(Error::KeyspaceExists(_)) if was_whole => {}
            Err(error) => panic!("change {nth}: {error}"),
        }
        let found: Vec<_> = ["a", "b", "c"].map(|name| copy.open_keyspace(name).unwrap().options()).into();
        assert_eq!(found, expected, "unload.2, change {nth}");
        if was_whole {
            assert!(nth > 3);
            break;
        }
    }
}

#[test]
fn a_load_gives_entries_their_own_lives_and_leaves_nothing_where_it_is_refused() {
    let fs = MemFs::new();
    let db = simulated(Arc::new(fs.clone())).open(dir()).unwrap();
    let map = db.keyspace("map").unwrap();
    map.put("for ever", "1").unwrap();
    map.put_with_ttl("an hour", "2", Duration::from_secs(3_600)).unwrap();
    map.put_with_ttl("longest", "3", Duration::MAX).unwrap();
    Unload::new().env(env(&fs)).write(&db, FILE).unwrap();
    let copy = simulated(Arc::new(fs.clone())).open("copy").unwrap();
    copy.keyspace("map").unwrap().set_default_ttl(Some(Duration::from_secs(60))).unwrap();
    Load::new().env(env(&fs)).read(&copy, FILE).unwrap();
    let copied = copy.open_keyspace("map").unwrap();
    assert_eq!(copied.ttl("for ever").unwrap(), Some(Ttl::Unlimited));
    assert_eq!(copied.default_ttl(), None, "as in the file");
    let left = |key| match copied.ttl(key).unwrap() {
        Some(Ttl::Left(left)) => copy.time_ms() + left.as_millis() as u64,
        other => panic!("{other:?}"),
    };
    assert_eq!(left("longest"), u64::MAX);
    let again = Load::new().env(env(&fs)).read(&copy, FILE);
    assert!(matches!(again, Err(Error::KeyspaceExists(name)) if name == "map"));
    assert_eq!(copy.keyspaces().unwrap(), ["default", "map"], "a refused load leaves nothing");
}

#[test]
fn unload_3_a_call_goes_on_with_the_same_job_alone() {
    let fs = MemFs::new();
    let open = |name: &str, value: &str| {
        let db = simulated(Arc::new(fs.clone())).open(name).unwrap();
        let map = db.keyspace("map").unwrap();
        for n in 0..3_000_u32 {
            map.put(n.to_be_bytes(), value.repeat(100)).unwrap();
        }
        db
    };
    // Two databases with the same names, numbers and commits.
    let (one, two) = (open("one", "1"), open("two", "2"));
    Unload::new().env(env(&fs)).write(&one, FILE).unwrap();
    fs.rename(FILE.as_ref(), "file.partial".as_ref()).unwrap();
    let done = Unload::new().env(env(&fs)).write(&two, FILE).unwrap();
    assert_eq!(done.resumed_entries, 0, "unload.3");
    let copy = simulated(Arc::new(fs.clone())).open("copy").unwrap();
    Load::new().env(env(&fs)).read(&copy, FILE).unwrap();
    assert_same(&dump_sound(&copy).unwrap(), &dump(&two).unwrap(), "unload.3");

    // A load of all keyspaces does not continue a load of some.
    two.keyspace("z").unwrap().put("key", "value").unwrap();
    Unload::new().env(env(&fs)).write(&two, "all").unwrap();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let part = simulated(Arc::new(faults.clone())).open("part").unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let seen = calls.clone();
    let load = Load::new().env(env(&fs)).keyspaces(["map"]).on_progress(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        faults.freeze();
    });
    assert!(load.read(&part, "all").is_err());
    drop(part);
    let part = simulated(Arc::new(fs.clone())).open("part").unwrap();
    {
        let all = Load::new().env(env(&fs)).read(&part, "all");
        assert!(matches!(&all, Err(Error::UnfinishedLoad(text)) if text.contains("unfinished")), "{all:?}");
        part.drop_keyspace("map").unwrap();
        let again = Load::new().env(env(&fs)).keyspaces(["map"]).read(&part, "all");
        assert!(matches!(&again, Err(Error::UnfinishedLoad(text)) if text.contains("dropped")), "{again:?}");
    }
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn a_file_that_lacks_a_record_is_damaged() {
    let fs = MemFs::new();
    let db = filled(&fs);
    Unload::new().env(env(&fs)).write(&db, FILE).unwrap();
    let mut reader = esker::recordio::Reader::options().env(&env(&fs)).open(FILE).unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        records.push(record.to_vec());
    }
    for without in 1..records.len() {
        let name = format!("without {without}");
        let mut writer = esker::recordio::Writer::options().env(&env(&fs)).create(&name).unwrap();
        for (n, record) in records.iter().enumerate().filter(|(n, _)| *n != without) {
            assert!(writer.append(record).is_ok(), "{n}");
        }
        writer.finish().unwrap();
        let copy = simulated(Arc::new(fs.clone())).open(format!("copy {without}")).unwrap();
        let found = Load::new().env(env(&fs)).read(&copy, &name);
        assert!(found.as_ref().is_err_and(|error| error.is_corrupt()), "{without}: {found:?}");
    }
}
