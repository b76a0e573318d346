//! Blocks, indexes and filters of tables keep to the memory whatever reads and writes, and no answer changes.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use esker::backup::Backup;
use esker::{Blobs, Builder, Db, Keyspace, Reads};
use esker_env::{Env, MemFs};

const MEMORY: u64 = 1 << 20;
const KEYS: u32 = 10_000;

type Model = BTreeMap<[u8; 8], Vec<u8>>;

/// Small blocks, so that indexes and filters exceed their memory.
fn builder(env: &Env) -> Builder {
    let small = |t: esker::Tuning| t.block_bytes(64).table_bytes(32 << 10).memtable_bytes(64 << 10);
    Db::builder().background(false).memory(MEMORY).blobs(Blobs::From(60)).env(env.clone()).tuning(small)
}

fn key(n: u32) -> [u8; 8] {
    u64::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn check_memory(db: &Db) {
    let stats = db.stats();
    assert!(stats.cache_bytes.total() <= MEMORY, "{stats:?}");
}

/// Compares all keys, from both ends and one by one.
fn check(db: &Db, reads: &impl Reads, model: &Model) {
    let entries =
        || reads.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap());
    let expected = || model.iter().map(|(key, value)| (key.to_vec(), value.clone()));
    assert!(entries().eq(expected()));
    check_memory(db);
    assert!(entries().rev().eq(expected().rev()));
    for n in (0..KEYS + 100).step_by(23) {
        let found = reads.get(key(n)).unwrap();
        assert_eq!(found.as_deref(), model.get(&key(n)).map(Vec::as_slice), "{n}");
        check_memory(db);
    }
    assert_eq!(reads.len().unwrap(), model.len() as u64);
}

/// Adds to the keyspace what every kind of write adds.
fn write(db: &Db, map: &Keyspace, model: &mut Model, round: u8) {
    let mut rng = fastrand::Rng::with_seed(u64::from(round));
    let mut batch = db.batch();
    for n in (0..KEYS).filter(|n| round == 0 || n % 5 == u32::from(round)) {
        let value = vec![round; rng.usize(10..80)];
        batch.put(map, key(n), &value).unwrap();
        model.insert(key(n), value);
    }
    batch.commit().unwrap();
    let (start, end) = ([round * 16; 8], [round * 16 + 4; 8]);
    map.delete_range(start..end).unwrap();
    model.retain(|key, _| !(start..end).contains(key));
    let mut ingest = map.ingest();
    for last in 0..200 {
        ingest.put([round, 1, 2, 3, 4, 5, 6, last], "ingested").unwrap();
        model.insert([round, 1, 2, 3, 4, 5, 6, last], b"ingested".to_vec());
    }
    ingest.commit().unwrap();
    db.flush().unwrap();
}

#[test]
fn indexes_and_filters_stay_within_the_memory_and_no_answer_changes() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let db = builder(&env).open("db").unwrap();
    let (map, mut model) = (db.default_keyspace(), Model::new());
    write(&db, &map, &mut model, 0);
    let (snapshot, before, first) = (db.snapshot(), model.clone(), map.clone());
    let old = snapshot.get(&map, key(3)).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (snapshot, first, before, done) = (&snapshot, &first, &before, &done);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                while !done.load(Ordering::Relaxed) {
                    let key = key(rng.u32(..KEYS));
                    let found = snapshot.get(first, key).unwrap();
                    assert_eq!(found.as_deref(), before.get(&key).map(Vec::as_slice));
                }
            });
        }
        for round in 1..4 {
            write(&db, &map, &mut model, round);
            check_memory(&db);
            if round == 2 {
                db.compact().unwrap();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(snapshot.get(&map, key(3)).unwrap(), old);
    drop((snapshot, first));
    check(&db, &map, &model);
    db.checkpoint("copy").unwrap();
    Backup::open_in(env.clone(), "backups").unwrap().create(&db).unwrap();
    drop(map);
    db.close().unwrap();
    let copy = builder(&env).open_read_only("copy").unwrap();
    check(&copy, &copy.default_keyspace(), &model);
    Backup::open_in(env.clone(), "backups").unwrap().restore("restored").backup(1).run().unwrap();
    let restored = builder(&env).open("restored").unwrap();
    check(&restored, &restored.default_keyspace(), &model);
    assert!(restored.check().unwrap().problems.is_empty());
}

#[cfg(feature = "encryption")]
#[test]
fn encrypted_pages_of_an_index_are_read_in_a_small_memory() {
    let env = Env::simulated(Arc::new(MemFs::new()), 1);
    let open = || {
        let keys = esker::encryption::MasterKeys::new("m", &[1; 32]).unwrap();
        builder(&env)
            .blobs(Blobs::Never)
            .tuning(|t| t.table_bytes(1 << 20))
            .encryption(keys)
            .open("db")
            .unwrap()
    };
    let db = open();
    let (map, mut model) = (db.default_keyspace(), Model::new());
    write(&db, &map, &mut model, 0);
    db.compact().unwrap();
    drop(map);
    db.close().unwrap();
    let db = open();
    let map = db.default_keyspace();
    for n in 0..200 {
        let expected = model.get(&key(n)).map(Vec::as_slice);
        assert_eq!(map.get(key(n)).unwrap().as_deref(), expected);
        let cached = map.get_if_cached(key(n)).unwrap();
        assert!(cached.is_known(), "it was just read");
        assert_eq!(cached.value().as_deref(), expected);
    }
    check(&db, &map, &model);
    assert!(db.check().unwrap().problems.is_empty());
}
