//! The process stays within the memory budget of its database, whatever threads read and write, and however
//! much one call does. Each test measures a process of its own.
//!
//! Not run under sanitizers, which use memory themselves.
#![cfg(all(target_os = "linux", not(esker_plain_pages)))]
#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use esker::{Blobs, Db, Durability, Keyspace, Value};

use crate::own_process;

const BUDGET: u64 = 64 << 20;
/// Allowance for evicted blocks that readers still use, kept free pages, log buffers, compactions, the
/// allocator and the test: about 50 MiB. A reader that is stopped while it reads keeps what is evicted
/// meanwhile, so peaks mean nothing.
const BESIDE: u64 = 80 << 20;
const VALUE_BYTES: usize = 4000;
const ITEMS: u64 = 4 * BUDGET / VALUE_BYTES as u64;
const THREADS: u64 = 4;
/// Together with a small key, it fills a block.
const BLOCK_VALUE_BYTES: usize = 8000;
const BLOCKS: u64 = 4 * BUDGET / BLOCK_VALUE_BYTES as u64;

#[test]
fn reading_and_writing_threads_keep_to_the_budget() {
    if own_process::ran(reading_and_writing_threads_keep_to_the_budget) {
        return;
    }
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

#[test]
fn point_2_calls_that_look_up_a_key_in_every_block_keep_to_the_budget() {
    if own_process::ran(point_2_calls_that_look_up_a_key_in_every_block_keep_to_the_budget) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let before = anonymous_bytes();
    let builder =
        Db::builder().background(false).memory(BUDGET).blobs(Blobs::Never).durability(Durability::None);
    let db = builder.open(dir.path()).unwrap();
    let map = db.keyspace("map").unwrap();
    let value = vec![0_u8; BLOCK_VALUE_BYTES];
    let marks: Vec<Vec<u8>> = (0..BLOCKS).map(|n| [&n.to_be_bytes()[..], b"mark"].concat()).collect();
    for marks in marks.chunks(10) {
        let mut batch = db.batch();
        for mark in marks {
            batch.put(&map, &mark[..8], &value).unwrap();
            batch.put(&map, mark, "mark").unwrap();
        }
        batch.commit().unwrap();
    }
    db.flush().unwrap();
    // The values of marks are small, so they keep no block in memory.
    let is_mark = |value: &Option<Value>| value.as_deref() == Some(&b"mark"[..]);
    let look_up = || assert!(map.multi_get(&marks).unwrap().iter().all(is_mark));
    let looking_up = most_memory_during(look_up).saturating_sub(before);
    assert!(db.stats().cache_bytes.total() > BUDGET / 2, "it is to fill the cache: {:?}", db.stats());
    assert!(looking_up < BUDGET + BESIDE, "multi_get: {} MiB, {} MiB given", looking_up >> 20, BUDGET >> 20);
    let mut batch = db.batch();
    for mark in &marks {
        batch.delete(&map, mark).unwrap();
    }
    let removing = most_memory_during(|| batch.commit().map(drop).unwrap()).saturating_sub(before);
    assert_eq!(map.len().unwrap(), BLOCKS, "the marks are gone");
    assert!(removing < BUDGET + BESIDE, "commit: {} MiB, {} MiB given", removing >> 20, BUDGET >> 20);
}

/// Runs `work` in a thread and samples the memory meanwhile.
fn most_memory_during(work: impl FnOnce() + Send) -> u64 {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        let mut most = 0;
        while !working.is_finished() {
            most = most.max(anonymous_bytes());
        }
        most.max(anonymous_bytes())
    })
}

/// Samples of the memory during writes.
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

/// Samples of the memory during reads.
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

/// Anonymous memory of the process.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}
