//! Several compactions at the same time, in threads, with all that reads and writes beside them: against a
//! model, with failing writes of tables, closed or killed while compactions run.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::contents::dump_sound;
use crate::common::dir;
use esker::{Blobs, Builder, Db, Durability, Event, History, Keyspace, Result, SeqNo, Snapshot};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, ManualClock, MemFs, OpKind};

const WRITERS: u64 = 4;
const ROUNDS: u32 = 1200;
/// A key that expires at once, and is in no model.
const BRIEF: [u8; 3] = [9, 9, 9];

/// A writer, and what its keyspaces must hold.
#[derive(Clone, Default)]
struct Writer {
    id: u64,
    map: BTreeMap<[u8; 2], Vec<u8>>,
    /// Number of its operands in `sums`. Each commit with one also puts their number into `counts`.
    merged: u64,
}

/// A past state: a snapshot of it, or its commit in a keyspace with history.
enum Kept {
    Snapshot(Snapshot, Writer),
    Commit(SeqNo, Writer),
}

/// The threads' settings. Notes in `most` how many compactions ran at the same time.
fn builder(env: &Env, cache_bytes: u64, most: &Arc<AtomicUsize>) -> Builder {
    let (most, running) = (most.clone(), AtomicUsize::new(0));
    let small = Db::builder().memory(4 << 20).miniature(cache_bytes).blobs(Blobs::From(900));
    let small = small.tuning(|t| t.memtable_bytes(32 << 10).block_bytes(512).table_bytes(16 << 10));
    let small = small.tuning(|t| t.compactions(4)).durability(Durability::Buffered).adoption_bytes(8 << 10);
    small.env(env.clone()).on_event(move |event| match event {
        // Moves are counted while they run, too: their end does not say that it is the end of a move.
        Event::CompactionBegun { is_move, .. } => {
            let now = running.fetch_add(1, Ordering::Relaxed) + 1;
            most.fetch_max(if *is_move { 0 } else { now }, Ordering::Relaxed);
        }
        Event::CompactionEnded { .. } => {
            let one_less = |now: usize| Some(now.saturating_sub(1));
            let _ = running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
        // Ends may be among them.
        Event::Missed { .. } => running.store(0, Ordering::Relaxed),
        _ => {}
    })
}

/// Asserts that each operand counts once: commits put their number beside them.
fn assert_sums(counted: impl Fn(&str, &[u8]) -> Option<Vec<u8>>, what: &str) {
    for id in 0..WRITERS {
        let of = |name: &str| counted(name, &id.to_be_bytes());
        assert_eq!(of("sums"), of("counts"), "{what}: merges of writer {id}");
    }
}

fn assert_sums_of(db: &Db, what: &str) {
    let (sums, counts) = (db.keyspace("sums").unwrap(), db.keyspace("counts").unwrap());
    let snapshot = db.snapshot();
    let keyspace = |name: &str| if name == "sums" { &sums } else { &counts };
    assert_sums(|name, key| snapshot.get(keyspace(name), key).unwrap().map(|v| v.to_vec()), what);
}

impl Writer {
    fn keyspace(&self, db: &Db) -> Keyspace {
        db.keyspace(&format!("map-{}", self.id)).unwrap()
    }

    /// Writes for some rounds. Calls fail because of faults, and then have no effect.
    fn write(&mut self, db: &Db) {
        let mut rng = fastrand::Rng::with_seed(self.id);
        let map = self.keyspace(db);
        if self.id < 2 {
            map.set_history(History::For(Duration::from_secs(3600))).unwrap();
        }
        let mut kept = Vec::new();
        for round in 0..ROUNDS {
            let _ = self.change(db, &map, &mut rng);
            if round % 200 == 0 {
                kept.push(match self.id {
                    0 | 1 => Kept::Commit(db.snapshot().seqno(), self.clone()),
                    _ => Kept::Snapshot(db.snapshot(), self.clone()),
                });
            }
            if kept.len() > 2 {
                kept.remove(0).check(&map);
                assert_sums_of(db, "while writing");
            }
        }
    }

    fn change(&mut self, db: &Db, map: &Keyspace, rng: &mut fastrand::Rng) -> Result<()> {
        let key = rng.u16(0..2000).to_be_bytes();
        let value = vec![rng.u8(..); rng.usize(0..300) + 800 * usize::from(rng.u8(0..20) == 0)];
        match rng.u16(0..1000) {
            0..600 => {
                let merged = (self.merged + 1).to_le_bytes();
                let mut batch = db.batch();
                batch.put(map, key, &value)?;
                batch.merge(&db.keyspace("sums")?, self.id.to_be_bytes(), 1_i64.to_le_bytes())?;
                batch.put(&db.keyspace("counts")?, self.id.to_be_bytes(), merged)?;
                batch.commit()?;
                self.merged += 1;
                self.map.insert(key, value);
            }
            600..650 => {
                map.put_with_ttl(key, &value, Duration::from_secs(3600))?;
                self.map.insert(key, value);
            }
            650..800 => {
                map.delete(key)?;
                self.map.remove(&key);
            }
            800..820 => {
                let end = (u16::from_be_bytes(key) + rng.u16(0..100)).to_be_bytes();
                map.delete_range(key..end)?;
                self.map.retain(|other, _| !(key..end).contains(other));
            }
            820..850 => drop(map.put_with_ttl(BRIEF, "soon gone", Duration::from_millis(1))?),
            850..860 => {
                let keys: Vec<_> = (u16::from_be_bytes(key)..).take(20).map(u16::to_be_bytes).collect();
                let mut ingest = map.ingest();
                keys.iter().try_for_each(|key| ingest.put(key, &value))?;
                ingest.commit()?;
                self.map.extend(keys.into_iter().map(|key| (key, value.clone())));
            }
            860..870 => {
                let (name, other) = (format!("brief-{}", self.id), format!("other-{}", self.id));
                let brief = db.keyspace(&name)?;
                (0..20_u8).try_for_each(|n| brief.put([n], &value).map(drop))?;
                db.rename_keyspace(&name, &other)?;
                db.drop_keyspace(&other)?;
            }
            870..873 => map.compact_range(key..(u16::from_be_bytes(key) + 300).to_be_bytes())?,
            _ => drop(db.keyspace("limited")?.put(rng.u32(..).to_be_bytes(), &value)?),
        }
        Ok(())
    }

    fn check(&self, db: &Db) {
        let map = self.keyspace(db);
        let found: Vec<_> = map.iter().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
        let expected: Vec<_> = self.map.iter().map(|(k, v)| (k.to_vec(), v.clone())).collect();
        assert!(found == expected, "map-{}", self.id);
        let sum = db.keyspace("sums").unwrap().get(self.id.to_be_bytes()).unwrap();
        assert_eq!(sum.as_deref(), Some(&self.merged.to_le_bytes()[..]), "merges of writer {}", self.id);
    }
}

impl Kept {
    fn check(self, map: &Keyspace) {
        let (Kept::Snapshot(_, then) | Kept::Commit(_, then)) = &self;
        for key in (0..2000_u16).map(u16::to_be_bytes) {
            let found = match &self {
                Kept::Snapshot(snapshot, _) => snapshot.get(map, key),
                Kept::Commit(seqno, _) => map.get_at(key, *seqno),
            };
            assert_eq!(
                found.unwrap().as_deref(),
                then.map.get(&key).map(|v| &v[..]),
                "map-{} {key:?}",
                then.id
            );
        }
    }
}

/// Sweeps, and asserts that lengths differed from the entries by the expired ones only.
fn check_sound(db: &Db) {
    std::thread::sleep(Duration::from_millis(3));
    let names = db.keyspaces().unwrap();
    let maps: Vec<_> = names.iter().map(|name| db.open_keyspace(name).unwrap()).collect();
    maps.iter().for_each(|map| map.set_bytes_max(None).unwrap());
    let shown = || maps.iter().map(|map| map.iter().count() as u64).sum::<u64>();
    let counted: u64 = maps.iter().map(|map| map.len().unwrap()).sum();
    // The sweep thread may have been first.
    assert!(counted - shown() <= WRITERS, "{counted} are counted");
    db.sweep().unwrap();
    dump_sound(db).unwrap();
    assert_sums_of(db, "at the end");
}

/// Writers among failing writes, a checkpoint and a manual compaction.
fn write_all(db: &Db, writers: &mut [Writer], faults: &FaultFs, copy: &str) -> bool {
    db.keyspace("limited").unwrap().set_bytes_max(100 << 10).unwrap();
    std::thread::scope(|scope| {
        let running: Vec<_> = writers.iter_mut().map(|writer| scope.spawn(|| writer.write(db))).collect();
        let mut is_copied = false;
        for round in 0.. {
            if running.iter().all(|writer| writer.is_finished()) {
                break;
            }
            let failure = FaultAction::Fail(std::io::ErrorKind::Other);
            let kinds = [OpKind::Write, OpKind::Create, OpKind::SyncData];
            faults.add(
                FaultRule::new(&kinds[round % 3..][..1], failure)
                    .on_path(".sst")
                    .nth(round as u64 * 7 % 20 + 5),
            );
            std::thread::sleep(Duration::from_millis(20));
            is_copied |= !is_copied && db.checkpoint(copy).is_ok();
            let _ = if round % 16 == 8 { db.compact() } else { Ok(()) };
        }
        is_copied
    })
}

/// Writes, closes while compactions are due, writes again, and is killed. Returns how many compactions ran at
/// the same time.
fn run(cache_bytes: u64, keys: impl Fn(Env) -> Env) -> usize {
    let disk = MemFs::new();
    let faults = FaultFs::new(Arc::new(disk.clone()));
    let most = Arc::<AtomicUsize>::default();
    let env = keys(Env::with_fs(Arc::new(faults.clone())));
    let open = |env: &Env, dir: &Path| builder(env, cache_bytes, &most).open(dir).unwrap();
    let mut writers: Vec<_> = (0..WRITERS).map(|id| Writer { id, ..Writer::default() }).collect();
    for copy in ["copy-0", "copy-1"] {
        let db = open(&env, dir());
        db.keyspace("sums").unwrap().set_merge_operator("add-i64").unwrap();
        writers.iter().filter(|writer| writer.merged > 0).for_each(|writer| writer.check(&db));
        let is_copied = write_all(&db, &mut writers, &faults, copy);
        faults.clear();
        let killed = keys(Env::with_fs(Arc::new(disk.kill())));
        db.close().unwrap();
        let after = open(&killed, dir());
        check_sound(&after);
        writers.iter().for_each(|writer| writer.check(&after));
        if is_copied {
            check_sound(&open(&env, Path::new(copy)));
        }
    }
    most.load(Ordering::Relaxed)
}

#[test]
fn compactions_at_the_same_time_lose_nothing_in_the_cache_and_beyond() {
    let most = run(1 << 20, |env| env).max(run(100 << 10, encrypted));
    assert!((2..=4).contains(&most), "{most}");
}

#[cfg(feature = "encryption")]
fn encrypted(env: Env) -> Env {
    let keys = esker::encryption::MasterKeys::new("a key", &[7; 32]).unwrap();
    esker::encryption::with_keys(&env, Arc::new(keys))
}

#[cfg(not(feature = "encryption"))]
fn encrypted(env: Env) -> Env {
    env
}

/// The cause of a difference of one between `len` and the entries of a checkpoint.
#[test]
fn len_of_a_checkpoint_counts_what_has_expired_since_until_a_sweep() {
    let clock = Arc::new(ManualClock::new());
    let mut env = Env::simulated(Arc::new(MemFs::new()), 1);
    env.clock = clock.clone();
    let open = |dir: &str| Db::builder().stepped().env(env.clone()).open(dir).unwrap();
    let db = open("db");
    db.default_keyspace().put("lasts", "").unwrap();
    db.default_keyspace().put_with_ttl(BRIEF, "", Duration::from_millis(1)).unwrap();
    db.checkpoint("copy").unwrap();
    clock.advance(Duration::from_secs(1));
    let copy = open("copy");
    let map = copy.default_keyspace();
    assert_eq!((map.len().unwrap(), map.iter().count()), (2, 1));
    assert_eq!(copy.sweep().unwrap(), 1);
    assert_eq!(map.len().unwrap(), 1);
    dump_sound(&copy).unwrap();
}
