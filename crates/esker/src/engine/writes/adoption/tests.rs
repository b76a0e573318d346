//! Work that comes between the look and the commit of what becomes tables.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker_env::{Env, ManualClock, MemFs};

use crate::types::interleave::{self, Point};
use crate::{Db, Keyspace};

const KEYS: u32 = 400;
const TTL: Duration = Duration::from_millis(10);

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// A database in which half of the keys have expired, some in tables and some in the memtable, and nothing is
/// swept.
fn with_expired_keys() -> (Db, Keyspace) {
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(MemFs::new()), 1) };
    let db = Db::builder()
        .background(false)
        .tuning(|t| t.memtable_bytes(1 << 20))
        .env(env)
        .open(Path::new("db"))
        .unwrap();
    let map = db.default_keyspace();
    // No table is swept as a whole.
    map.put(key(KEYS), "stays").unwrap();
    for n in 0..KEYS / 2 {
        map.put_with_ttl(key(n), "old", TTL).unwrap();
        if n == KEYS / 4 {
            db.flush().unwrap();
        }
    }
    map.put(key(KEYS), "stays").unwrap();
    clock.advance(2 * TTL);
    (db, map)
}

/// Sweeps at the first of these points that is reached while `work` runs.
fn sweeping_at(point: Point, db: &Db, work: impl FnOnce()) {
    let (db, mut is_done) = (db.clone(), false);
    let before = interleave::set(Some(Box::new(move |reached| {
        if reached == point && !std::mem::replace(&mut is_done, true) {
            assert!(db.sweep().unwrap() > 0);
        }
    })));
    work();
    interleave::set(before);
}

fn assert_all_there(db: &Db, map: &Keyspace, keys: u64) {
    for round in ["at once", "flushed", "compacted"] {
        let missing = (0..KEYS).filter(|n| !map.contains(key(*n)).unwrap()).count();
        assert_eq!((missing, map.len().unwrap()), (0, keys), "adoption.1, {round}");
        assert!(db.check().unwrap().is_sound(), "{round}");
        if round == "at once" { db.flush().unwrap() } else { db.compact().unwrap() }
    }
}

#[test]
fn adoption_1_adoption_2_a_sweep_before_the_commit_hides_nothing_of_it() {
    for removes_range in [false, true] {
        let (db, map) = with_expired_keys();
        sweeping_at(Point::AdoptionCounted, &db, || {
            db.transact(|t| -> crate::Result<()> {
                if removes_range {
                    t.delete_range(&map, key(0)..key(KEYS / 3))?;
                }
                (0..KEYS).try_for_each(|n| t.put(&map, key(n), [7; 1500]))
            })
            .unwrap();
        });
        assert!(db.stats().adoptions > 0, "the transaction became tables");
        assert_all_there(&db, &map, u64::from(KEYS) + 1);
    }
}

#[test]
fn adoption_1_a_sweep_before_the_commit_of_an_ingest_hides_nothing_of_it() {
    let (db, map) = with_expired_keys();
    sweeping_at(Point::AdoptionCounted, &db, || {
        let mut ingest = map.ingest();
        for n in 0..KEYS {
            ingest.put(key(n), [7; 1500]).unwrap();
        }
        ingest.commit().unwrap();
    });
    assert_all_there(&db, &map, u64::from(KEYS) + 1);
}

#[test]
fn a_sweep_before_the_commit_of_a_range_removal_keeps_the_count_exact() {
    let (db, map) = with_expired_keys();
    sweeping_at(Point::RangeCounted, &db, || map.delete_range(key(10)..key(KEYS / 3)).map(drop).unwrap());
    assert_eq!(map.len().unwrap(), 1);
    db.compact().unwrap();
    assert_eq!(map.len().unwrap(), 1);
    assert!(db.check().unwrap().is_sound());
}
