//! Counts of commits that do not read the disk: lengths are exact after any compaction, removal, drop or
//! power loss.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use esker::env::{Env, MemFs};
use esker::{BackgroundStep, Blobs, Counting, Db, Durability, Keyspace, KeyspaceOptions};

const KEYS: u32 = 20_000;

fn open(fs: &MemFs) -> Db {
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let builder = Db::builder()
        .stepped()
        .memory(1 << 20)
        .tuning(|t| t.memtable_bytes(128 << 10).table_bytes(256 << 10));
    builder.env(env).open(Path::new("db")).unwrap()
}

fn key(n: u32) -> [u8; 4] {
    n.wrapping_mul(2_654_435_761).to_be_bytes()
}

/// A database much larger than its cache, so that commits cannot know what they overwrite.
fn filled(fs: &MemFs) -> (Db, BTreeSet<[u8; 4]>) {
    let db = open(fs);
    let map = db.default_keyspace();
    for n in 0..KEYS {
        map.put(key(n), [7; 200]).unwrap();
    }
    db.compact().unwrap();
    assert_eq!(db.stats().unresolved, 0);
    (db, (0..KEYS).map(key).collect())
}

fn change(map: &Keyspace, model: &mut BTreeSet<[u8; 4]>, rng: &mut fastrand::Rng) {
    let key = key(rng.u32(0..2 * KEYS));
    if rng.u8(0..3) == 0 {
        map.delete(key).unwrap();
        model.remove(&key);
    } else {
        map.put(key, [8; 100]).unwrap();
        model.insert(key);
    }
}

#[test]
fn counts_3_a_length_is_exact_though_commits_read_nothing() {
    let fs = MemFs::new();
    let (mut db, mut model) = filled(&fs);
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut most, mut snapshots) = (0, Vec::new());
    for round in 0..60 {
        let map = db.default_keyspace();
        for _ in 0..500 {
            change(&map, &mut model, &mut rng);
        }
        most = most.max(db.stats().unresolved);
        match round % 6 {
            0 => snapshots.push((db.snapshot(), model.len() as u64)),
            1 => db.flush().unwrap(),
            2 => while db.step(BackgroundStep::Compact { idle: false }).unwrap() {},
            3 if round > 30 => db.compact().unwrap(),
            4 => {
                let (low, high) = (rng.u32(..), rng.u32(..));
                let range = low.min(high).to_be_bytes()..low.max(high).saturating_add(1).to_be_bytes();
                if range.end[0] - range.start[0] < 40 {
                    map.delete_range(&range.start[..]..&range.end[..]).unwrap();
                    model.retain(|key| !range.contains(key));
                }
            }
            5 if round % 12 == 5 => {
                snapshots.clear();
                db.close().unwrap();
                db = open(&fs);
            }
            _ => {}
        }
        let map = db.default_keyspace();
        assert_eq!(map.len().unwrap(), model.len() as u64, "counts.1, round {round}");
        for (snapshot, len) in &snapshots {
            assert_eq!(snapshot.len(&map).unwrap(), *len, "counts.1, round {round}, snapshot");
        }
        let mut transaction = db.begin();
        transaction.delete(&map, key(1)).unwrap();
        let left = model.len() as u64 - u64::from(model.contains(&key(1)));
        assert_eq!(transaction.len(&map).unwrap(), left, "counts.1, round {round}, transaction");
        if round % 10 == 9 {
            assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
        }
    }
    assert!(most > 500, "commits left much unresolved: {most}");
    drop(snapshots);
    db.compact().unwrap();
    assert_eq!((db.stats().unresolved, db.stats().items), (0, model.len() as u64), "counts.3");
    db.default_keyspace().clear().unwrap();
    assert_eq!(db.default_keyspace().len().unwrap(), 0);
    db.close().unwrap();
}

#[test]
fn counts_3_clearing_what_is_unresolved_leaves_nothing_behind() {
    let fs = MemFs::new();
    let (db, mut model) = filled(&fs);
    let map = db.default_keyspace();
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..4 {
        for _ in 0..3000 {
            change(&map, &mut model, &mut rng);
        }
        if round % 2 == 0 {
            db.flush().unwrap();
        }
        assert!(db.stats().unresolved > 0);
        map.clear().unwrap();
        map.put("one", "1").unwrap();
        assert_eq!(map.len().unwrap(), 1);
        while db.step(BackgroundStep::Compact { idle: true }).unwrap() {}
        assert_eq!(map.len().unwrap(), 1);
        for n in 0..KEYS {
            map.put(key(n), [7; 200]).unwrap();
        }
        assert_eq!(map.len().unwrap(), u64::from(KEYS) + 1);
        db.compact().unwrap();
        assert_eq!(map.len().unwrap(), u64::from(KEYS) + 1);
        map.delete("one").unwrap();
    }
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_keyspace_that_counts_lazily_looks_nothing_up_and_has_the_same_length() {
    let fs = MemFs::new();
    let db = open(&fs);
    let (lazy, exact) = (db.create_keyspace("lazy").unwrap(), db.create_keyspace("exact").unwrap());
    lazy.set_counting(Counting::Lazy).unwrap();
    lazy.set_blobs(Blobs::From(1 << 20)).unwrap();
    let mut both = db.batch();
    for n in 0..1000 {
        both.put(&lazy, key(n % 300), [1; 10]).unwrap();
        both.put(&exact, key(n % 300), [1; 10]).unwrap();
    }
    both.commit_with(Durability::Sync).unwrap();
    let mut more = db.batch();
    for n in 200..400 {
        more.put(&lazy, key(n), [1; 10]).unwrap();
        more.put(&exact, key(n), [1; 10]).unwrap();
    }
    more.commit_with(Durability::Sync).unwrap();
    let left = db.stats().unresolved;
    assert!((100..120).contains(&left), "of those whose filter says that they may be there: {left}");
    assert_eq!((lazy.len().unwrap(), exact.len().unwrap()), (400, 400));
    lazy.delete_range(&key(0)[..]..=&key(0)[..]).unwrap();
    assert_eq!(lazy.len().unwrap(), 399);
    db.close().unwrap();
    let db = open(&fs);
    let lazy = db.keyspace("lazy").unwrap();
    assert_eq!(db.stats().unresolved, left, "the log knows of them");
    assert_eq!(lazy.len().unwrap(), 399);
    lazy.put(key(1), "again").unwrap();
    assert_eq!((db.stats().unresolved, lazy.len().unwrap()), (left + 1, 399), "the option stays");
    lazy.set_counting(Counting::Exact).unwrap();
    lazy.put(key(1), "again").unwrap();
    assert_eq!(db.stats().unresolved, left + 1);
}

#[test]
fn a_keyspace_counts_lazily_from_the_commit_on_that_makes_it() {
    let fs = MemFs::new();
    let db = open(&fs);
    let mut batch = db.batch();
    let lazy = batch.create_keyspace_with("lazy", KeyspaceOptions::new().counting(Counting::Lazy)).unwrap();
    batch.put(&lazy, "a", "1").unwrap();
    // Nothing is left of a keyspace that is dropped again.
    batch.create_keyspace_with("gone", KeyspaceOptions::new().counting(Counting::Lazy)).unwrap();
    batch.drop_keyspace("gone").unwrap();
    let exact = batch.create_keyspace("exact").unwrap();
    batch.commit().unwrap();
    lazy.put("a", "2").unwrap();
    assert!(db.stats().unresolved > 0, "it is not looked up");
    assert_eq!(
        (lazy.counting(), exact.counting(), lazy.len().unwrap()),
        (Counting::Lazy, Counting::Exact, 1)
    );
    let before = db.stats().seqno;
    lazy.set_counting(Counting::Lazy).unwrap();
    assert_eq!(db.stats().seqno, before, "it is so already: no commit");
    db.close().unwrap();
    let db = open(&fs);
    let lazy = db.open_keyspace("lazy").unwrap();
    assert_eq!((lazy.counting(), lazy.len().unwrap()), (Counting::Lazy, 1));
    assert_eq!(db.keyspace("gone").unwrap().counting(), Counting::Exact);
}
