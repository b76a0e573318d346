//! Health: what fails now, and that it clears by itself.
//!
//! ```text
//!   Db, stepped, on a file system that fails on demand, with a clock that moves on demand --> Db::health
//! ```
//!
//! - Health reports failing work until it succeeds, even where the statistics keep the error.
//! - After a failed sync or a panic it reports poison until the database is closed.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{dir, tiny};
use esker::{BackgroundStep, Blobs, Db, Error, FailingWork, Health, Work};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};

struct World {
    db: Db,
    env: Env,
    fs: MemFs,
    faults: FaultFs,
}

fn world() -> World {
    world_with(Blobs::Never)
}

/// A world in which these values go to blob files.
fn world_with(blobs: Blobs) -> World {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let db =
        tiny(env.clone()).stepped().tuning(|t| t.memtable_bytes(1 << 20)).blobs(blobs).open(dir()).unwrap();
    World { db, env, fs, faults }
}

impl World {
    fn put(&self, key: &str, bytes: usize) -> esker::Result<()> {
        self.db.default_keyspace().put(key, vec![7; bytes]).map(drop)
    }

    fn fail(&self, op: OpKind, path: &str, action: FaultAction) {
        self.faults.add(FaultRule::new(&[op], action).on_path(path).forever());
    }

    /// The failing work, and whether it fails for want of space.
    fn failing(&self) -> (FailingWork, bool) {
        match self.db.health() {
            Health::NoSpace(failing) => (failing, true),
            Health::Retrying(failing) => (failing, false),
            other => panic!("{other:?}"),
        }
    }
}

const OTHER: FaultAction = FaultAction::Fail(io::ErrorKind::Other);

#[test]
fn flushes_that_fail_and_succeed() {
    for (action, expected) in [(OTHER, false), (FaultAction::NoSpace, true)] {
        let world = world();
        world.put("a", 10).unwrap();
        assert_eq!(world.db.health(), Health::Ok);
        world.fail(OpKind::Create, ".sst", action);
        let error = world.db.flush().unwrap_err();
        world.env.clock.sleep(Duration::from_secs(5));
        world.db.flush().unwrap_err();
        let (failing, is_no_space) = world.failing();
        let FailingWork { work, since, times, error: text, .. } = failing;
        assert_eq!((work, since, times), (Work::Flush, Duration::from_secs(5), 2));
        assert_eq!((is_no_space, matches!(error, Error::NoSpace { .. })), (expected, expected));
        assert_eq!(world.db.stats().background_error.as_ref(), Some(&text));
        world.faults.clear();
        world.db.flush().unwrap();
        assert_eq!(world.db.health(), Health::Ok);
        assert_eq!(world.db.stats().background_error, Some(text), "it stays");
    }
}

#[test]
fn a_log_without_space() {
    let world = world();
    world.put("a", 10).unwrap();
    world.fs.set_capacity(Some(world.fs.used_bytes()));
    for times in 1..=2 {
        let refused = world.put("large", 400_000);
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
        let (failing, is_no_space) = world.failing();
        assert_eq!((failing.work, failing.times, is_no_space), (Work::Log, times, true));
    }
    world.put("small", 10).unwrap();
    assert_eq!(world.failing().0.work, Work::Log, "a commit that needs no file proves nothing");
    world.fs.set_capacity(None);
    world.put("large", 400_000).unwrap();
    assert_eq!(world.db.health(), Health::Ok);
}

#[test]
fn large_values_without_space() {
    let world = world_with(Blobs::From(4096));
    world.put("a", 5000).unwrap();
    world.fs.set_capacity(Some(world.fs.used_bytes()));
    // Incompressible.
    let large: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(40_000).collect();
    let put = || world.db.default_keyspace().put("large", &large).map(drop);
    assert!(matches!(put(), Err(Error::NoSpace { .. })));
    let (failing, is_no_space) = world.failing();
    assert_eq!((failing.work, is_no_space), (Work::Blobs, true));
    world.fs.set_capacity(None);
    put().unwrap();
    assert_eq!(world.db.health(), Health::Ok);
}

#[test]
fn compactions_that_fail_and_succeed() {
    let world = world();
    for round in 0..3 {
        ["a", "b"].iter().for_each(|key| world.put(key, 100 + round).unwrap());
        world.db.flush().unwrap();
    }
    world.fail(OpKind::Create, ".sst", OTHER);
    world.db.compact().unwrap_err();
    let (failing, _) = world.failing();
    assert_eq!((failing.work, failing.times), (Work::Compaction, 1));
    // A flush without memtables succeeds, and does not change the state of compactions.
    world.db.flush().unwrap();
    assert_eq!(world.failing().0.work, Work::Compaction);
    world.faults.clear();
    world.env.clock.sleep(Duration::from_secs(10));
    while world.db.step(BackgroundStep::Compact { idle: true }).unwrap() {}
    assert_eq!(world.db.health(), Health::Ok, "merged, or no longer wanted");
}

#[test]
fn a_table_that_cannot_be_read_is_trouble_until_it_can() {
    let world = world();
    for round in 0..3 {
        ["a", "b"].iter().for_each(|key| world.put(key, 300 + round).unwrap());
        world.db.flush().unwrap();
    }
    world.db.clone().close().unwrap();
    let db = tiny(world.env.clone()).stepped().open(dir()).unwrap();
    let world = World { db, ..world };
    world.fail(OpKind::Read, ".sst", OTHER);
    world.db.compact().unwrap_err();
    assert_eq!(world.failing().0.work, Work::Compaction);
    // A table that is skipped still counts as failing.
    while world.db.step(BackgroundStep::Compact { idle: true }).is_ok_and(|done| done) {}
    assert_eq!(world.failing().0.work, Work::Compaction);
    world.faults.clear();
    world.db.compact().unwrap();
    assert_eq!(world.db.health(), Health::Ok);
}

#[test]
fn a_failed_sync() {
    let world = world();
    world.fail(OpKind::SyncData, ".wal", OTHER);
    let error = world.put("a", 10).unwrap_err();
    let Error::Poisoned(cause) = error else { panic!("{error:?}") };
    let poisoned = Health::Poisoned { cause: cause.to_string() };
    world.faults.clear();
    assert_eq!(world.db.health(), poisoned);
    world.put("b", 10).unwrap_err();
    assert_eq!(world.db.health(), poisoned);
    let other = world.db.clone();
    other.close().unwrap_err();
    assert_eq!(world.db.health(), Health::Closed);
}

#[test]
fn a_panic_in_a_commit() {
    let world = world();
    world.fail(OpKind::Write, ".wal", FaultAction::Panic);
    catch_unwind(AssertUnwindSafe(|| world.put("a", 10))).unwrap_err();
    world.faults.clear();
    let health = world.db.health();
    assert!(matches!(&health, Health::Poisoned { cause } if cause.contains("panicked")), "{health:?}");
    assert_eq!(world.db.default_keyspace().len().unwrap(), 0);
}
