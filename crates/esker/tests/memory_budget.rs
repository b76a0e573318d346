//! The memory of the process keeps to what the database was given, whichever threads read and write: alone in its process, which it measures.
//!
//! Not with sanitizers, which have a memory of their own.
#![cfg(all(target_os = "linux", not(esker_plain_pages)))]
#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use esker::{Db, Durability, Keyspace};

const BUDGET: u64 = 64 << 20;
/// For evicted blocks that readers may still look at, free pages that are kept, the log's buffers, merges, the allocator and the test: about
/// 50 MiB. A reader that stands still while it reads keeps what is evicted meanwhile, so the highest samples say nothing.
const BESIDE: u64 = 80 << 20;
const VALUE_BYTES: usize = 4000;
const ITEMS: u64 = 4 * BUDGET / VALUE_BYTES as u64;
const THREADS: u64 = 4;

#[test]
fn reading_and_writing_threads_keep_to_the_budget() {
    let dir = tempfile::tempdir().unwrap();
    let before = anonymous_bytes();
    let open = || {
        let builder = Db::builder().memory(BUDGET).durability(Durability::None);
        let db = builder.open(dir.path()).unwrap();
        let map = db.keyspace("map").unwrap();
        (db, map)
    };
    let (db, map) = open();
    let mut samples = write(&db, &map);
    db.close().unwrap();
    drop(map);
    assert!(anonymous_bytes() < before + BESIDE, "closed: {} MiB more", (anonymous_bytes() - before) >> 20);
    let (db, map) = open();
    std::thread::scope(|scope| {
        let map = &map;
        let readers: Vec<_> = (1..THREADS).map(|thread| scope.spawn(move || read(map, thread))).collect();
        samples.extend(write(&db, map));
        readers.into_iter().for_each(|reader| samples.extend(reader.join().unwrap()));
    });
    samples.sort_unstable();
    let taken = samples[samples.len() * 9 / 10].saturating_sub(before);
    assert!(taken > BUDGET / 2, "the work is to fill the budget: {} MiB", taken >> 20);
    assert!(taken < BUDGET + BESIDE, "{} MiB of memory, {} MiB given", taken >> 20, BUDGET >> 20);
}

/// Samples of the memory.
fn write(db: &Db, map: &Keyspace) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut samples = Vec::new();
    let mut value = vec![0; VALUE_BYTES];
    for n in 0..ITEMS / 10 {
        let mut batch = db.batch();
        for _ in 0..10 {
            rng.fill(&mut value);
            batch.put(map, rng.u64(..ITEMS).to_be_bytes(), &value).unwrap();
        }
        batch.commit().unwrap();
        if n % 50 == 0 {
            samples.push(anonymous_bytes());
        }
    }
    samples
}

/// The same for reads.
fn read(map: &Keyspace, seed: u64) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut samples = Vec::new();
    for n in 0..ITEMS {
        map.get(rng.u64(..ITEMS).to_be_bytes()).unwrap();
        if n % 500 == 0 {
            samples.push(anonymous_bytes());
        }
    }
    samples
}

/// Memory of the process that no file is behind.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}
