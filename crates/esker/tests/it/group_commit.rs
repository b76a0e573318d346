//! Groups of several commits, formed on purpose. What the leader does counts for each of them.
//!
//! ```text
//!   first: commit, its sync takes long          --> Ok
//!     others, meanwhile: commit, one by one     --> one group: one write, one sync, an outcome for each
//! ```
//!
//! - A failed sync fails every commit of its group. None of them becomes visible, and a crash loses nothing
//!   acknowledged.
//! - Live counts are exact for any group: keys put and removed by a `clear` in one group, and commits that
//!   conflict.
//! - A commit that finds no space, or cannot read the old value of its key, fails alone. Its neighbours exist
//!   entirely after any crash, and nothing of it does.
//!
//! A machine that stalls may split a group. Then the test tries again.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::disallowed_methods, reason = "the test waits while threads queue up")]

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use crate::common::contents::dump_sound;
use crate::common::dir;
use esker::{Blobs, Builder, Db, Error, Result};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, FsRef, MemFs, OpKind};

/// Part of the names of log files in use.
const LOG: &str = ".wal";
/// How long the first sync takes.
const FIRST_SYNC: Duration = Duration::from_millis(400);
/// Time between the other commits.
const STEP: Duration = Duration::from_millis(20);
/// Attempts to form a group.
const ATTEMPTS: u32 = 20;
const SEEDS: u64 = 16;

/// A builder with sizes so large that only commits sync the log.
fn builder(fs: FsRef) -> Builder {
    Db::builder().memory(8 << 20).background(false).blobs(Blobs::Never).env(Env::with_fs(fs))
}

/// A database with a log segment in use.
fn database() -> (MemFs, FaultFs, Db) {
    let mem = MemFs::new();
    let faults = FaultFs::new(Arc::new(mem.clone()));
    let db = builder(Arc::new(faults.clone())).open(dir()).unwrap();
    db.default_keyspace().put("before", "").unwrap();
    (mem, faults, db)
}

type Commit<'a> = &'a (dyn Fn() -> Result<()> + Sync);

/// Starts the first commit, and the others in order while its sync takes long. Returns all outcomes.
fn as_a_group(faults: &FaultFs, first: Commit<'_>, others: &[Commit<'_>]) -> Vec<Result<()>> {
    faults.add(FaultRule::new(&[OpKind::SyncData], FaultAction::Delay(FIRST_SYNC)).on_path(LOG));
    let fired = faults.fired();
    std::thread::scope(|scope| {
        let mut threads = vec![scope.spawn(first)];
        while faults.fired() == fired && !threads[0].is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for other in others {
            threads.push(scope.spawn(*other));
            std::thread::sleep(STEP);
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_sync_that_fails_fails_every_commit_of_its_group() {
    for _ in 0..ATTEMPTS {
        let (mem, faults, db) = database();
        let keyspace = db.default_keyspace();
        let put = |key: &'static str| {
            let keyspace = keyspace.clone();
            move || keyspace.put(key, "").map(drop)
        };
        // The sync after the one that takes long.
        let fail = FaultAction::Fail(ErrorKind::Other);
        faults.add(FaultRule::new(&[OpKind::SyncData], fail).on_path(LOG).nth(2));
        let outcomes = as_a_group(&faults, &put("first"), &[&put("a"), &put("b"), &put("c"), &put("d")]);
        assert!(outcomes[0].is_ok(), "{outcomes:?}");
        for outcome in &outcomes[1..] {
            assert!(matches!(outcome, Err(Error::Poisoned(_))), "{outcomes:?}");
        }
        let seen: Vec<_> = keyspace.iter().keys().map(|key| key.unwrap().to_vec()).collect();
        assert_eq!(seen, [&b"before"[..], b"first"]);
        assert_eq!(keyspace.len().unwrap(), 2);
        let reopened = |mem: MemFs| {
            let db = builder(Arc::new(mem)).open(dir()).unwrap();
            let found = dump_sound(&db).unwrap().remove("default").unwrap();
            assert!(["before", "first"].iter().all(|key| found.contains_key(key.as_bytes())));
            found.len()
        };
        for seed in 0..SEEDS {
            reopened(mem.crash(seed));
        }
        // The number of commits written shows the size of the group.
        if reopened(mem.kill()) >= 2 + 2 {
            return;
        }
    }
    panic!("no group of several commits in {ATTEMPTS} attempts");
}

#[test]
fn counts_are_exact_after_a_group_that_clears_and_conflicts() {
    for _ in 0..ATTEMPTS {
        let (_, faults, db) = database();
        let (default, cleared) = (db.default_keyspace(), db.keyspace("cleared").unwrap());
        for n in 0..10u8 {
            cleared.put([n], "").unwrap();
        }
        let syncs = faults.count(OpKind::SyncData);
        // It reads before the group is visible, so it conflicts with the group's first commit.
        let conflicts = || -> Result<()> {
            let mut transaction = db.begin();
            for n in 100..105u8 {
                transaction.put(&cleared, [n], "")?;
            }
            transaction.put(&cleared, "in the group", "")?;
            Ok(transaction.commit().map(drop)?)
        };
        let outcomes = as_a_group(
            &faults,
            &|| default.put("first", "").map(drop),
            &[
                &|| cleared.put("in the group", "").map(drop),
                &|| cleared.clear().map(drop),
                &conflicts,
                &|| cleared.put("behind the clear", "").map(drop),
            ],
        );
        let is_conflict = |outcome: &Result<()>| matches!(outcome, Err(Error::Conflict { .. }));
        let is_expected = |(i, o): (usize, &Result<()>)| if i == 3 { is_conflict(o) } else { o.is_ok() };
        let is_expected = outcomes.iter().enumerate().all(is_expected);
        let is_one_group = faults.count(OpKind::SyncData) == syncs + 2;
        let counted = cleared.iter().keys().collect::<Result<Vec<_>>>().unwrap().len() as u64;
        assert_eq!(cleared.len().unwrap(), counted, "{outcomes:?}");
        dump_sound(&db).unwrap();
        if is_expected && is_one_group {
            assert_eq!(counted, 1, "what came behind the clear");
            return;
        }
    }
    panic!("no such group in {ATTEMPTS} attempts");
}

#[test]
fn a_commit_that_fails_alone_leaves_its_neighbours_as_they_are() {
    for _ in 0..ATTEMPTS {
        let (mem, faults, db) = database();
        db.default_keyspace().put("old", "in a table").unwrap();
        db.flush().unwrap();
        // No block is in the cache.
        db.close().unwrap();
        let db = builder(Arc::new(faults.clone())).open(dir()).unwrap();
        let keyspace = db.default_keyspace();
        // The log has a segment again.
        keyspace.put("behind", "").unwrap();
        let unreadable = FaultAction::Fail(ErrorKind::Other);
        faults.add(FaultRule::new(&[OpKind::Read], unreadable).on_path(".sst").forever());
        mem.set_capacity(Some(mem.used_bytes() + 1000));
        let syncs = faults.count(OpKind::SyncData);
        let put = |key: &'static str, len: usize| {
            let keyspace = keyspace.clone();
            move || keyspace.put(key, vec![7; len]).map(drop)
        };
        // It counts what it removes.
        let remove_old = || keyspace.delete_range("old"..="old").map(drop);
        let outcomes = as_a_group(
            &faults,
            &put("first", 1),
            &[&put("a", 1), &put("too large", 2 << 20), &put("b", 300), &remove_old, &put("c", 1)],
        );
        let is_one_group = faults.count(OpKind::SyncData) == syncs + 2;
        let is_expected = |n: usize, outcome: &Result<()>| match n {
            2 => matches!(outcome, Err(Error::NoSpace { .. })),
            4 => {
                matches!(outcome, Err(Error::Io { path, .. }) if path.extension().is_some_and(|e| e == "sst"))
            }
            _ => outcome.is_ok(),
        };
        assert!(outcomes.iter().enumerate().all(|(n, o)| is_expected(n, o)), "{outcomes:?}");
        // Also without a crash: the writer continues.
        let (killed, crashed) = (mem.kill(), (0..SEEDS).map(|seed| mem.crash(seed)));
        let left: Vec<_> = crashed.chain([killed, mem.crash_strict()]).collect();
        faults.clear();
        mem.set_capacity(None);
        let expected =
            [("a", 1), ("b", 300), ("before", 0), ("behind", 0), ("c", 1), ("first", 1), ("old", 10)];
        let check = |db: &Db| {
            let found = dump_sound(db).unwrap().remove("default").unwrap();
            let found: Vec<_> = found.iter().map(|(k, v)| (str::from_utf8(k).unwrap(), v.len())).collect();
            assert_eq!(found, expected);
        };
        check(&db);
        for left in left {
            left.set_capacity(None);
            check(&builder(Arc::new(left)).open(dir()).unwrap());
        }
        keyspace.put("old", "again").unwrap();
        keyspace.put("too large", vec![7; 2 << 20]).unwrap();
        if is_one_group {
            return;
        }
    }
    panic!("no such group in {ATTEMPTS} attempts");
}
