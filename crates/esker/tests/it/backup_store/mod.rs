//! Backups in object storage: the same as in a directory, whatever call fails, whichever process is killed or
//! paused while another one takes over.

#![expect(clippy::unwrap_used, reason = "tests")]

mod memory;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker::backup::{Backup, Point};
use esker::{Blobs, Db, Error, Ttl};
use esker_env::{Env, MemFs};

use self::memory::{Fault, MemoryStore, Other};
use crate::common::contents::{Contents, difference, dump, dump_sound};
use crate::common::{DIR, simulated};

const LEASE: Duration = Duration::from_secs(60);

fn builder(fs: &MemFs) -> esker::Builder {
    let builder = simulated(Arc::new(fs.clone())).stepped().blobs(Blobs::From(200));
    builder.feed_retention(1 << 30, Duration::MAX)
}

fn env(fs: &MemFs) -> Env {
    // Processes draw different numbers.
    static SEEDS: Mutex<u64> = Mutex::new(100);
    let mut seeds = SEEDS.lock().unwrap();
    *seeds += 1;
    Env::simulated(Arc::new(fs.clone()), *seeds)
}

fn backups(fs: &MemFs, store: &MemoryStore) -> Backup {
    Backup::open_store(env(fs), store.clone()).unwrap()
}

/// Writes with merges, lifetimes, blobs and removals.
fn fill(db: &Db, round: u8) {
    let (map, merged) = (db.default_keyspace(), db.keyspace("merged").unwrap());
    merged.set_merge_operator("append").unwrap();
    for n in 0..30_u8 {
        map.put([round, n], vec![n; usize::from(n) * 12]).unwrap();
        map.put_with_ttl([b't', n], [round], Duration::from_secs(3600)).unwrap();
        merged.merge([n], [round]).unwrap();
    }
    map.delete_range([round, 5]..[round, 9]).unwrap();
}

/// Writes a value that is longer than a part of an upload, in a file and in a segment.
fn fill_long(db: &Db) {
    let mut rng = fastrand::Rng::with_seed(1);
    let value: Vec<u8> = (0..(9 << 20)).map(|_| rng.u8(..)).collect();
    db.default_keyspace().put("long", value).unwrap();
}

fn assert_same(found: &Contents, expected: &Contents, what: &str) {
    assert!(found == expected, "{what}: {}", difference(found, expected));
}

/// Asserts that everything is sound, and that the newest backup holds `expected`.
fn assert_sound(fs: &MemFs, store: &MemoryStore, expected: Option<&Contents>, what: &str) {
    let fs = fs.kill();
    let mut backup = backups(&fs, &store.other());
    let found = backup.verify().unwrap();
    assert!(found.is_sound(), "{what}: {:?}", found.problems);
    backup.restore("found").run().unwrap();
    let contents = dump_sound(&builder(&fs).open("found").unwrap()).unwrap();
    if let Some(expected) = expected {
        assert_same(&contents, expected, what);
    }
}

#[test]
fn a_store_holds_what_a_directory_does() {
    for is_encrypted in [false, true] {
        let (fs, store) = (MemFs::new(), MemoryStore::new(LEASE));
        let keyed = |env: Env| -> Env {
            #[cfg(feature = "encryption")]
            if is_encrypted {
                let keys = esker::encryption::MasterKeys::new("m", &[7; 32]).unwrap();
                return esker::encryption::with_keys(&env, Arc::new(keys));
            }
            env
        };
        let env = || keyed(env(&fs));
        let opened = |dir: &str| builder(&fs).memory(64 << 20).env(env()).open(dir).unwrap();
        let db = opened(DIR);
        let mut backup = Backup::open_store(env(), store.clone()).unwrap();
        assert!(matches!(backup.list(), Err(Error::NoBackup(_))) && store.names().is_empty());
        let mut states = Vec::new();
        for round in 0..4 {
            fill(&db, round);
            if round == 1 {
                fill_long(&db);
            }
            if round % 2 == 0 {
                backup.create(&db).unwrap();
            } else {
                let made = backup.archive(&db).unwrap().unwrap();
                assert_eq!(made.last, db.snapshot().seqno());
            }
            states.push((db.snapshot().seqno(), dump(&db).unwrap()));
        }
        assert!(store.uploads_begun() > 0 && store.uploads() == 0);
        assert!(backup.create(&db).unwrap().new_files > 0);
        assert_eq!(backup.create(&db).unwrap().new_files, 0, "nothing is new");
        assert_eq!((backup.list().unwrap().len(), backup.segments().unwrap().len()), (4, 2));
        assert!(backup.verify().unwrap().is_sound());
        for (n, (seqno, expected)) in states.iter().enumerate() {
            let to = format!("restored {n}");
            let options = builder(&fs).memory(64 << 20).env(env());
            let restore = backup.restore(&to).point(Point::Commit(*seqno)).builder(options);
            assert_eq!(restore.run().unwrap().seqno, *seqno);
            let copy = opened(&to);
            assert_same(&dump_sound(&copy).unwrap(), expected, &to);
            let left = copy.default_keyspace().ttl([b't', 1]).unwrap();
            assert!(matches!(left, Some(Ttl::Left(left)) if !left.is_zero()), "{left:?}");
        }
        db.compact().unwrap();
        let last = backup.create(&db).unwrap();
        let pruned = backup.prune(1).unwrap();
        assert_eq!((pruned.backups, pruned.segments), (4, 2));
        let files = store.names().iter().filter(|name| name.starts_with("files/")).count();
        assert_eq!((files as u64, backup.verify().unwrap().files), (last.files, last.files));
        let bare = Backup::open_store(Env::simulated(Arc::new(fs.clone()), 5), store.clone()).unwrap();
        assert_eq!(bare.list().is_err(), is_encrypted && cfg!(feature = "encryption"));
    }
}

/// A database with two backups, and commits after them.
fn two_backups() -> (MemFs, MemoryStore, Db) {
    let (fs, store) = (MemFs::new(), MemoryStore::new(LEASE));
    let db = builder(&fs).open(DIR).unwrap();
    for round in 1..3 {
        fill(&db, round);
        backups(&fs, &store).create(&db).unwrap();
    }
    db.compact().unwrap();
    (fs, store, db)
}

type Work = fn(&Db, &mut Backup) -> esker::Result<()>;

fn create(db: &Db, backup: &mut Backup) -> esker::Result<()> {
    backup.create(db).map(drop)
}

fn create_and_archive(db: &Db, backup: &mut Backup) -> esker::Result<()> {
    backup.create(db)?;
    fill(db, 9);
    backup.archive(db).map(drop)
}

fn create_and_prune(db: &Db, backup: &mut Backup) -> esker::Result<()> {
    backup.create(db)?;
    backup.prune(1).map(drop)
}

fn prune(_: &Db, backup: &mut Backup) -> esker::Result<()> {
    backup.prune(1).map(drop)
}

#[test]
fn backup_store_2_whatever_call_fails_nothing_is_lost_and_nothing_stays() {
    let works: [Work; 3] = [create_and_archive, create_and_prune, prune];
    for (work, fault) in works.iter().flat_map(|work| {
        [Fault::Dead, Fault::Refused, Fault::Unanswered].into_iter().map(move |fault| (work, fault))
    }) {
        for nth in 1.. {
            let (fs, store, db) = two_backups();
            let faulty = store.other().with_fault(nth, fault);
            let mut backup = backups(&fs, &faulty);
            let done = work(&db, &mut backup);
            let is_over = faulty.is_over();
            let what = format!("{fault:?} at {nth}: {done:?}");
            drop(backup);
            assert!(!store.other().names().is_empty());
            assert_sound(&fs, &store, None, &what);
            let after = store.other();
            backups(&fs, &after).create(&db).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_sound(&fs, &store, Some(&dump(&db).unwrap()), &what);
            backups(&fs, &after).prune(1).unwrap();
            let names = store.names();
            let needed = backups(&fs, &after).list().unwrap()[0].files as usize;
            let files = names.iter().filter(|name| name.starts_with("files/")).count();
            assert_eq!((files, store.uploads()), (needed, 0), "{what}: {names:?}");
            assert_eq!(names.iter().filter(|name| name.starts_with("LOCK")).count(), 1, "{what}");
            if !is_over {
                assert!(done.is_ok() && nth > 5, "{what}");
                break;
            }
        }
    }
}

#[test]
fn lease_2_the_parts_that_a_killed_process_has_sent_are_removed() {
    let mut left = 0;
    for nth in 4.. {
        let (fs, store) = (MemFs::new(), MemoryStore::new(LEASE));
        let db = builder(&fs).memory(64 << 20).open(DIR).unwrap();
        fill_long(&db);
        let faulty = store.other().with_fault(nth, Fault::Dead);
        let is_made = backups(&fs, &faulty).create(&db).is_ok();
        left += store.parts_bytes();
        backups(&fs, &store.other()).create(&db).unwrap();
        assert_eq!(store.parts_bytes(), 0, "killed at {nth}");
        if is_made {
            assert!(left > 0);
            return;
        }
    }
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let fs = MemFs::new();
    let db = builder(&fs).open(DIR).unwrap();
    let store = MemoryStore::new(LEASE).ignoring_conditions();
    let refused = backups(&fs, &store).create(&db);
    let is_why = |error: &Error| error.to_string().contains("If-None-Match");
    assert!(refused.as_ref().is_err_and(is_why), "{refused:?}");
    assert!(store.names().iter().all(|name| name.starts_with("LOCK")), "{:?}", store.names());
}

#[test]
fn backup_store_1_a_paused_process_that_goes_on_after_its_successor_harms_nothing() {
    let works: [Work; 3] = [create, prune, create_and_prune];
    let others: [Work; 4] = [create, prune, create_and_prune, create_and_archive];
    for (work, other) in works.into_iter().flat_map(|work| others.map(|other| (work, other))) {
        for nth in 1.. {
            let (fs, store, db) = two_backups();
            let db = Arc::new(db);
            let run: Other = {
                let (fs, store, db) = (fs.clone(), store.other(), db.clone());
                Box::new(move || other(&db, &mut backups(&fs, &store)).unwrap())
            };
            let paused = store.other().with_other(nth, run);
            let done = work(&db, &mut backups(&fs, &paused));
            let what = format!("paused at {nth}: {done:?}");
            assert_sound(&fs, &store, None, &what);
            backups(&fs, &store.other()).create(&db).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_sound(&fs, &store, Some(&dump(&db).unwrap()), &what);
            if !paused.is_over() {
                assert!(done.is_ok() && nth > 5, "{what}");
                break;
            }
        }
    }
}

#[test]
fn backup_store_1_a_paused_prune_takes_nothing_from_a_backup_of_an_older_state() {
    for nth in 1.. {
        let (fs, store) = (MemFs::new(), MemoryStore::new(LEASE));
        let db = builder(&fs).open(DIR).unwrap();
        fill(&db, 1);
        backups(&fs, &store).create(&db).unwrap();
        // Like a user who copies the directory, and puts it back.
        let older = fs.kill();
        fill(&db, 2);
        db.compact().unwrap();
        backups(&fs, &store).create(&db).unwrap();
        let put_back = builder(&older).open(DIR).unwrap();
        let expected = dump(&put_back).unwrap();
        let run: Other = {
            let (older, store) = (older.clone(), store.other());
            Box::new(move || create(&put_back, &mut backups(&older, &store)).unwrap())
        };
        let paused = store.other().with_other(nth, run);
        let done = prune(&db, &mut backups(&fs, &paused));
        let is_over = !paused.is_over();
        assert_sound(&fs, &store, (!is_over).then_some(&expected), &format!("paused at {nth}: {done:?}"));
        if is_over {
            assert!(done.is_ok() && nth > 5);
            return;
        }
    }
}

#[test]
fn a_live_holder_keeps_its_lease_and_a_killed_one_is_replaced() {
    let fs = MemFs::new();
    let store = MemoryStore::new(Duration::from_millis(1200));
    let db = builder(&fs).open(DIR).unwrap();
    fill(&db, 1);
    let real = |store: MemoryStore| Backup::open_store(Env::with_fs(Arc::new(fs.clone())), store).unwrap();
    let seen = Arc::new(Mutex::new(None));
    let run: Other = {
        let (seen, mut backup) = (seen.clone(), real(store.other()));
        let db = builder(&fs.kill()).open(DIR).unwrap();
        Box::new(move || *seen.lock().unwrap() = Some(backup.create(&db).map(drop)))
    };
    // The files follow the lease, so that the thread which renews it is not held up.
    let slow = store.other();
    let mut run = Some(run);
    let mut backup = real(slow).on_progress(move |_| {
        if let Some(run) = run.take() {
            run();
        }
    });
    backup.create(&db).unwrap();
    let refused = seen.lock().unwrap().take().unwrap();
    assert!(matches!(&refused, Err(Error::Locked { .. })), "{refused:?}");
    // A killed process renews nothing.
    let dead = store.other().with_fault(4, Fault::Dead);
    assert!(real(dead.clone()).create(&db).is_err() && dead.is_over());
    real(store.other()).create(&db).unwrap();
    assert_sound(&fs, &store, Some(&dump(&db).unwrap()), "after the killed one");
}

#[test]
fn damage_is_reported_with_the_object_and_foreign_objects_are_left_alone() {
    let (fs, store, db) = two_backups();
    let file = store.names().into_iter().find(|name| name.starts_with("files/")).unwrap();
    let record = "backups/000001.backup".to_owned();
    for name in [file, record] {
        for harm in [|bytes: &mut Vec<u8>| bytes[9] ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(40)] {
            let mut before = Vec::new();
            store.edit(&name, |bytes| {
                before.clone_from(bytes);
                harm(bytes);
            });
            let found = backups(&fs, &store).verify().unwrap();
            let file = name.split(".g").next().unwrap();
            let names = |error: &Error| matches!(error, Error::Corrupt { path, .. } if path.to_str().unwrap() == format!("memory://backups/{file}"));
            assert!(found.problems.iter().all(names) && !found.problems.is_empty(), "{:?}", found.problems);
            store.edit(&name, |bytes| *bytes = before);
        }
    }
    assert!(backups(&fs, &store).verify().unwrap().is_sound());
    let foreign = MemoryStore::new(LEASE);
    esker::backup::BackupStore::put(&foreign, "photos/1.jpg", vec![1]).unwrap();
    let refused = Backup::open_store(env(&fs), foreign.clone());
    assert!(matches!(&refused, Err(Error::Invalid(why)) if why.contains("photos")), "{refused:?}");
    drop(db);
}
