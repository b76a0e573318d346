//! Checkpoints: a copy is complete, of one commit, durable, and shares no file that either database changes.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker::{BackgroundStep, Blobs, Db, Durability, Error, Result};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, FsRef, JobFile, MemFs, OpKind};

use crate::common::contents::{Contents, difference, dump, dump_sound};
use crate::common::{DIR, dir, simulated};

const COPY: &str = "copies/one";

fn builder(fs: FsRef) -> esker::Builder {
    simulated(fs).blobs(Blobs::From(200)).tuning(|t| t.transaction_memory(1 << 10))
}

fn open(fs: &MemFs, dir: &str) -> Db {
    builder(Arc::new(fs.clone())).open(dir).unwrap()
}

/// Writes of all kinds: small and large values, tables, an adopted commit, a queue, removals, several
/// keyspaces.
fn fill(db: &Db, round: u8) {
    let (map, other) = (db.default_keyspace(), db.keyspace("other").unwrap());
    for n in 0..40_u8 {
        map.put([round, n], vec![n; usize::from(n) * 3]).unwrap();
        other.with(Durability::Buffered).put([n], vec![round; 250 + usize::from(n)]).unwrap();
    }
    let mut large = db.begin();
    for n in 0..60_u8 {
        large.put(&map, [b'l', round, n], [n; 100]).unwrap();
    }
    large.commit().unwrap();
    map.delete_range([round, 5]..[round, 9]).unwrap();
    other.delete([round]).unwrap();
    other.with(Durability::None).put("last", [round]).unwrap();
}

fn assert_same(found: &Contents, expected: &Contents, what: &str) {
    assert!(found == expected, "{what}: {}", difference(found, expected));
}

fn workplaces(fs: &dyn Fs) -> Vec<String> {
    let names = fs.list_dir("copies".as_ref()).unwrap_or_default().into_iter();
    // A crash may leave the start of a workplace, without contents and without proof.
    let is_begun = |name: &str| {
        name.ends_with(".esker-new") && !fs.exists(&Path::new("copies").join(name).join("db")).unwrap()
    };
    names.filter(|name| name != "one" && !is_begun(name)).collect()
}

#[test]
fn a_copy_is_what_the_database_was_and_goes_its_own_way() {
    for plain in [false, true] {
        let fs = MemFs::new();
        if plain {
            fs.be_plain();
        }
        let db = open(&fs, DIR);
        fill(&db, 1);
        db.compact().unwrap();
        fill(&db, 2);
        let before = dump(&db).unwrap();
        let snapshot = db.snapshot();
        let made = db.checkpoint(COPY).unwrap();
        assert_eq!(made.seqno, snapshot.seqno());
        assert_eq!((made.linked_files == 0, made.copied_bytes > 0), (plain, true), "{made:?}");
        assert_eq!(workplaces(&fs), Vec::<String>::new());
        drop(snapshot);
        // The original removes its names of the linked files.
        fill(&db, 3);
        db.compact().unwrap();
        let after = dump_sound(&db).unwrap();

        let copy = open(&fs, COPY);
        assert_same(&dump_sound(&copy).unwrap(), &before, "the copy");
        assert_eq!(copy.snapshot().seqno(), made.seqno);
        fill(&copy, 4);
        copy.compact().unwrap();
        let copied = dump_sound(&copy).unwrap();
        assert_same(&dump_sound(&db).unwrap(), &after, "the database");
        let again = copy.checkpoint("copies/two").unwrap();
        assert!(again.seqno > made.seqno);
        for db in [db, copy] {
            db.close().unwrap();
        }
        assert_same(&dump_sound(&open(&fs, DIR)).unwrap(), &after, "the database, opened again");
        for path in [COPY, "copies/two"] {
            assert_same(&dump_sound(&open(&fs, path)).unwrap(), &copied, path);
        }
    }
}

#[test]
fn an_empty_database_and_a_database_of_adopted_tables_are_copied() {
    let fs = MemFs::new();
    let db = open(&fs, DIR);
    db.checkpoint("copies/empty").unwrap();
    let mut large = db.begin();
    for n in 0..200_u8 {
        large.put(&db.default_keyspace(), [n], [n; 100]).unwrap();
    }
    let seqno = large.commit().unwrap();
    assert_eq!(db.checkpoint(COPY).unwrap().seqno, seqno);
    assert_eq!(open(&fs, COPY).default_keyspace().len().unwrap(), 200);
    let empty = dump_sound(&open(&fs, "copies/empty")).unwrap();
    assert!(empty.values().all(|map| map.is_empty()));
}

#[test]
fn workplace_1_checkpoint_2_whatever_crash_a_checkpoint_is_whole_or_not_there() {
    let (mut whole, mut none) = (0, 0);
    for nth in (1..400).step_by(3) {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db = builder(Arc::new(faults.clone())).open(dir()).unwrap();
        fill(&db, 1);
        let expected = dump(&db).unwrap();
        db.sync().unwrap();
        faults.add(FaultRule::new(&OpKind::CHANGES, FaultAction::Freeze { keep: 100 }).nth(nth));
        let made = db.checkpoint(COPY);
        assert!(made.is_ok() || faults.is_frozen(), "{made:?}");
        for left in [fs.crash(nth), fs.crash_strict(), fs.crash_keep_all()] {
            let is_there = left.exists(COPY.as_ref()).unwrap();
            assert!(is_there || made.is_err(), "workplace.1: what was made is durable");
            (whole, none) = (whole + u32::from(is_there), none + u32::from(!is_there));
            if is_there {
                let copy = open(&left, COPY);
                assert_same(&dump_sound(&copy).unwrap(), &expected, &format!("call {nth}"));
            }
            let db = open(&left, DIR);
            assert_same(&dump_sound(&db).unwrap(), &expected, &format!("the database, call {nth}"));
            db.checkpoint("copies/two").unwrap();
            let others = workplaces(&left);
            assert_eq!(others, ["two"], "call {nth}");
        }
        if !faults.is_frozen() {
            break;
        }
    }
    assert!(whole > 3 && none > 40, "{whole} {none}");
}

#[test]
fn what_a_failed_checkpoint_has_removed_is_in_no_ones_way_after_a_power_loss() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let db = builder(Arc::new(faults.clone())).open(dir()).unwrap();
    fill(&db, 1);
    db.checkpoint("copies/before").unwrap();
    faults.add(
        FaultRule::new(&[OpKind::Rename], FaultAction::Fail(io::ErrorKind::Other)).on_path("copies").nth(1),
    );
    db.checkpoint(COPY).unwrap_err();
    for seed in 0..100 {
        let left = fs.crash(seed);
        open(&left, DIR).checkpoint(COPY).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn whatever_call_fails_nothing_is_harmed_and_the_next_checkpoint_succeeds() {
    let late = FaultAction::DoneThenFail(io::ErrorKind::Other);
    for action in [FaultAction::Fail(io::ErrorKind::Other), late] {
        for kind in
            [OpKind::Link, OpKind::Rename, OpKind::Create, OpKind::SyncDir, OpKind::Read, OpKind::Remove]
        {
            for nth in 1..6 {
                let fs = MemFs::new();
                let faults = FaultFs::new(Arc::new(fs.clone()));
                let db = builder(Arc::new(faults.clone())).open(dir()).unwrap();
                fill(&db, 1);
                db.flush().unwrap();
                let expected = dump(&db).unwrap();
                faults.add(FaultRule::new(&[kind], action).on_path("copies").nth(nth));
                let made = db.checkpoint(COPY);
                let what = format!("{kind:?} {nth} {action:?}");
                assert!(made.is_ok() || faults.fired() > 0, "{what}: {made:?}");
                if kind == OpKind::Link {
                    assert!(made.unwrap().copied_files > 0, "{what}: copied instead");
                }
                faults.clear();
                if !fs.exists(COPY.as_ref()).unwrap() {
                    db.checkpoint(COPY).unwrap();
                }
                assert_same(&dump_sound(&open(&fs, COPY)).unwrap(), &expected, &what);
                db.close().unwrap();
                assert_same(&dump_sound(&open(&fs, DIR)).unwrap(), &expected, &what);
            }
        }
    }
}

#[test]
fn what_is_there_is_not_touched_and_two_do_not_make_the_same() {
    let fs = MemFs::new();
    let db = open(&fs, DIR);
    db.default_keyspace().put("a", "1").unwrap();
    for there in [DIR, "a directory"] {
        fs.create_dir_all(there.as_ref()).unwrap();
        assert!(matches!(db.checkpoint(there), Err(Error::AlreadyExists(path)) if path.ends_with(there)));
    }
    assert!(matches!(db.checkpoint(""), Err(Error::Invalid(_))));
    fs.create_dir_all("copies/one.esker-new".as_ref()).unwrap();
    let lock = fs.lock("copies/one.esker-new/LOCK".as_ref()).unwrap();
    assert!(matches!(db.checkpoint(COPY), Err(Error::Locked { .. })));
    // Another copy does not remove it either.
    db.checkpoint("copies/two").unwrap();
    assert!(fs.exists("copies/one.esker-new".as_ref()).unwrap());
    drop(lock);
    db.checkpoint(COPY).unwrap();
    let closed = db.clone();
    db.close().unwrap();
    assert!(matches!(closed.checkpoint("copies/three"), Err(Error::Closed)));
    assert!(!fs.exists("copies/three".as_ref()).unwrap());
}

/// The proof is read before the workplace is locked, and again after.
#[test]
fn leftovers_whose_proof_is_misread_are_kept_and_named() {
    for nth in 1..=2 {
        let fs = MemFs::new();
        let faults = FaultFs::new(Arc::new(fs.clone()));
        let db = builder(Arc::new(faults.clone())).open(DIR).unwrap();
        fill(&db, 1);
        fs.create_dir_all("copies/one.esker-new/db".as_ref()).unwrap();
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        JobFile::begin(&env, "copies/one.esker-new".as_ref(), "workplace").unwrap();
        let misread = FaultAction::CorruptRead { xor: 4, at: 60 };
        faults.add(FaultRule::new(&[OpKind::Read], misread).on_path("ESKER-JOB").nth(nth));
        let refused = db.checkpoint(COPY);
        assert!(
            matches!(&refused, Err(Error::Invalid(text)) if text.contains("move it away")),
            "{refused:?}"
        );
        faults.clear();
        db.checkpoint(COPY).unwrap();
        assert_same(&dump_sound(&open(&fs, COPY)).unwrap(), &dump(&db).unwrap(), "the copy");
    }
}

#[test]
fn merges_and_collections_meanwhile_take_nothing_that_is_to_be_linked() {
    // Each link waits while another thread compacts.
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let db = builder(Arc::new(faults.clone())).open(dir()).unwrap();
    for round in 1..4 {
        fill(&db, round);
        db.flush().unwrap();
    }
    let expected = dump(&db).unwrap();
    faults.add(
        FaultRule::new(&[OpKind::Link], FaultAction::Delay(std::time::Duration::from_millis(20))).forever(),
    );
    std::thread::scope(|threads| {
        let made = threads.spawn(|| db.checkpoint(COPY).unwrap());
        while faults.count(OpKind::Link) == 0 {
            std::thread::yield_now();
        }
        db.compact().unwrap();
        let made = made.join().unwrap();
        assert!(made.linked_files > 3, "{made:?}");
    });
    assert_same(&dump_sound(&open(&fs, COPY)).unwrap(), &expected, "the copy");
    dump_sound(&db).unwrap();
    db.settle();
}

/// Removes files that are no longer used.
trait Settle {
    fn settle(&self);
}

impl Settle for Db {
    fn settle(&self) {
        while self.step(BackgroundStep::Compact { idle: true }).unwrap() {}
    }
}

/// The keyspaces `left` and `right` are equal, whenever the copy was taken.
fn both_sides(db: &Db) -> Result<(u64, u64, Option<Vec<u8>>)> {
    let (left, right) = (db.keyspace("left")?, db.keyspace("right")?);
    let last = left.iter().next_back().transpose()?.map(|(key, _)| key.to_vec());
    Ok((left.len()?, right.len()?, last))
}

/// Sets a flag when it is dropped.
struct Ends<'f>(&'f AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn capture_2_under_load_each_copy_is_of_one_commit_and_no_older_than_its_call() {
    let temp = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .memory(8 << 20)
        .blobs(Blobs::From(2000))
        .tuning(|t| t.memtable_bytes(64 << 10).transaction_memory(8 << 10));
    let db = db.open(temp.path().join("db")).unwrap();
    let (left, right) = (db.keyspace("left").unwrap(), db.keyspace("right").unwrap());
    let ends = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            for n in 0_u32.. {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                // Some of the commits are adopted.
                let len = if n % 17 == 0 { 300 } else { 3 };
                let mut batch = db.batch();
                for i in 0..len {
                    let key = [n.to_be_bytes(), u32::to_be_bytes(i)].concat();
                    let value = vec![n as u8; if i == 1 { 2500 } else { 100 }];
                    batch.put(&left, &key, &value).unwrap();
                    batch.put(&right, &key, &value).unwrap();
                }
                batch.commit_with(Durability::Buffered).unwrap();
            }
        });
        // Also when an assertion fails: the scope waits for the writer.
        let guard = Ends(&ends);
        for n in 0..12 {
            let at_least = db.snapshot();
            let least = at_least.len(&left).unwrap();
            drop(at_least);
            let path = temp.path().join(format!("copy {n}"));
            let made = db.checkpoint(&path).unwrap();
            let copy = Db::open(&path).unwrap();
            let (left, right, last) = both_sides(&copy).unwrap();
            assert!(left == right && left >= least, "copy {n}: {left} {right} {least}");
            assert!(left == 0 || last.is_some());
            assert_eq!(copy.snapshot().seqno(), made.seqno);
            assert!(copy.check().unwrap().problems.is_empty());
            copy.close().unwrap();
            #[expect(clippy::disallowed_methods, reason = "the test's own directory")]
            let removed = std::fs::remove_dir_all(&path);
            // Wine keeps the name of a file of which another link is open.
            assert!(removed.is_ok() || cfg!(windows), "{removed:?}");
        }
        drop(guard);
        writer.join().unwrap();
    });
    assert!(db.check().unwrap().problems.is_empty());
    assert!(!temp.path().join("copy 1.esker-new").exists());
}

#[test]
fn a_copy_keeps_history_expiries_and_rules_and_starts_a_new_feed() {
    use std::time::Duration;
    let fs = MemFs::new();
    let env = Env::simulated(Arc::new(fs.clone()), 3);
    let open = |path: &str| {
        let builder = crate::common::tiny(env.clone()).feed_retention(1 << 20, Duration::from_secs(60));
        builder.open(Path::new(path)).unwrap()
    };
    let db = open(DIR);
    let map = db.keyspace("kept").unwrap();
    map.set_history(esker::History::Versions(3)).unwrap();
    let first = map.put("a", "1").unwrap();
    map.put("a", "2").unwrap();
    map.put_with_ttl("brief", "x", Duration::from_secs(50)).unwrap();
    let made = db.checkpoint(COPY).unwrap();
    let copy = open(COPY);
    let copied = copy.open_keyspace("kept").unwrap();
    assert_eq!(copied.get_at("a", first).unwrap().as_deref(), Some(&b"1"[..]));
    assert!(copied.contains("brief").unwrap());
    assert!(
        matches!(copy.feed_after(first.prev()), Err(Error::FeedTruncated { oldest }) if oldest == made.seqno.next())
    );
    copied.put("b", "1").unwrap();
    let mut feed = copy.feed_after(made.seqno).unwrap();
    assert_eq!(feed.try_next().unwrap().unwrap().seqno(), made.seqno.next());
}
