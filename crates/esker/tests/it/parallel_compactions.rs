//! Several compactions at the same time, with all that reads and writes beside them.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::contents::dump_sound;
use crate::common::dir;
use esker::{Blobs, Builder, Db, Durability, Event};
use esker_env::{Env, FsRef, MemFs};

type Model = BTreeMap<[u8; 2], Vec<u8>>;

/// Settings of a database that notes in `most` how many compactions ran at the same time.
fn builder(fs: &FsRef, cache_bytes: u64, most: &Arc<AtomicUsize>) -> Builder {
    // Closing cancels compactions, which is not counted.
    let (most, running) = (most.clone(), AtomicUsize::new(0));
    let small = Db::builder().memory(4 << 20).miniature(cache_bytes).blobs(Blobs::From(900));
    let small = small.tuning(|t| t.memtable_bytes(32 << 10).block_bytes(512).table_bytes(16 << 10));
    small.tuning(|t| t.compactions(4)).durability(Durability::None).env(Env::with_fs(fs.clone())).on_event(
        move |event| match event {
            Event::CompactionBegun { is_move: false, .. } => {
                let now = running.fetch_add(1, Ordering::Relaxed) + 1;
                most.fetch_max(now, Ordering::Relaxed);
            }
            Event::CompactionEnded { bytes_read: 1.., .. } => {
                running.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        },
    )
}

/// Writes to a keyspace of its own. Returns what it holds then. Ends early when the database closes.
fn write(db: &Db, id: u64, rounds: u32) -> Model {
    let mut rng = fastrand::Rng::with_seed(id);
    let (map, sums) = (db.keyspace(&format!("map-{id}")).unwrap(), db.keyspace("sums").unwrap());
    let mut model: Model = map
        .iter()
        .map(|e| e.map(|(k, v)| (k[..].try_into().unwrap(), v.to_vec())))
        .collect::<Result<_, _>>()
        .unwrap();
    let mut kept = Vec::new();
    for round in 0..rounds {
        let key = rng.u16(0..2000).to_be_bytes();
        let value = vec![rng.u8(..); rng.usize(0..400) + 800 * usize::from(rng.u8(0..20) == 0)];
        let done = match rng.u8(0..100) {
            0..70 => map.put(key, &value).map(|_| drop(model.insert(key, value))),
            70..75 => map
                .put_with_ttl(key, &value, Duration::from_secs(3600))
                .map(|_| drop(model.insert(key, value))),
            75..90 => map.delete(key).map(|_| drop(model.remove(&key))),
            90..95 => sums.merge(id.to_be_bytes(), 1_i64.to_le_bytes()).map(drop),
            95..97 => {
                let end = (u16::from_be_bytes(key) + rng.u16(0..100)).to_be_bytes();
                map.delete_range(key..end).map(|_| model.retain(|k, _| !(key..end).contains(k)))
            }
            _ => map.put_with_ttl([9, 9, 9], "soon gone", Duration::from_millis(1)).map(drop),
        };
        if done.is_err() {
            break;
        }
        if round % 500 == 0 {
            kept.push((db.snapshot(), model.clone()));
        }
        if kept.len() > 2 {
            let (snapshot, then) = kept.remove(0);
            for (key, value) in &then {
                assert_eq!(snapshot.get(&map, key).unwrap().as_deref(), Some(&value[..]), "map-{id} {key:?}");
            }
        }
    }
    model
}

fn check(db: &Db, models: &[Model]) {
    std::thread::sleep(Duration::from_millis(5));
    db.sweep().unwrap();
    for (id, model) in models.iter().enumerate() {
        let map = db.keyspace(&format!("map-{id}")).unwrap();
        let found: Vec<_> = map.iter().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
        let expected: Vec<_> = model.iter().map(|(k, v)| (k.to_vec(), v.clone())).collect();
        assert!(found == expected, "map-{id}");
        assert_eq!(map.len().unwrap(), model.len() as u64, "map-{id}");
    }
    dump_sound(db).unwrap();
}

/// Writers, and a checkpoint and a manual compaction among them. Closes while compactions are due.
fn run(cache_bytes: u64) -> usize {
    let (fs, most): (FsRef, _) = (Arc::new(MemFs::new()), Arc::<AtomicUsize>::default());
    let mut models = Vec::new();
    for round in 0..2 {
        let db = builder(&fs, cache_bytes, &most).open(dir()).unwrap();
        db.keyspace("sums").unwrap().set_merge_operator("add-i64").unwrap();
        if round > 0 {
            check(&db, &models);
        }
        let copy = format!("copy-{round}");
        models = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4)
                .map(|id| {
                    scope.spawn({
                        let db = &db;
                        move || write(db, id, 6000)
                    })
                })
                .collect();
            std::thread::sleep(Duration::from_millis(50));
            db.checkpoint(&copy).unwrap();
            db.compact().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        if round > 0 {
            check(&db, &models);
        }
        db.close().unwrap();
        let copy = builder(&fs, cache_bytes, &most).open(Path::new(&copy)).unwrap();
        // `len` counts expired keys until a sweep.
        copy.sweep().unwrap();
        dump_sound(&copy).unwrap();
    }
    most.load(Ordering::Relaxed)
}

#[test]
fn compactions_at_the_same_time_lose_nothing_in_the_cache_and_beyond() {
    let most = run(1 << 20).max(run(100 << 10));
    assert!((2..=4).contains(&most), "{most}");
}
