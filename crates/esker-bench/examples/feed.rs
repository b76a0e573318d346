//! How fast the change feed is read, beside the log's files: with their checksums, and not looked into. By
//! turns.
//!
//! ```text
//! cargo run --release -p esker-bench --no-default-features --example feed [-- DIRECTORY]
//! ```
#![expect(clippy::disallowed_methods, reason = "a program that measures time, and reads files by itself")]

use std::time::{Duration, Instant};

use esker::{Db, Durability, FeedChange, SeqNo};

const ITEMS: u64 = 2_000_000;

fn main() -> esker::Result<()> {
    let root = match std::env::args().nth(1) {
        Some(root) => tempfile::tempdir_in(root),
        None => tempfile::tempdir(),
    };
    let root = root.map_err(|e| esker::Error::io("create", "a directory", e))?;
    let hour = Duration::from_secs(3600);
    for (name, per_commit) in [("commits of one item", 1), ("commits of 100 items", 100)] {
        let dir = root.path().join(name);
        let db = Db::builder().durability(Durability::None).feed_retention(u64::MAX, hour).open(&dir)?;
        let map = db.default_keyspace();
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..ITEMS / per_commit {
            let mut batch = db.batch();
            for _ in 0..per_commit {
                let mut value = [0; 100];
                rng.fill(&mut value);
                batch.put(&map, rng.u128(..).to_be_bytes(), value)?;
            }
            batch.commit()?;
        }
        db.sync()?;
        // Merges would run beside what is measured.
        db.compact()?;
        for _ in 0..3 {
            let (bytes, raw) = read_files(&dir);
            let start = Instant::now();
            let (mut feed, mut items, mut payload) = (db.feed_after(SeqNo::ZERO)?, 0_u64, 0);
            while let Some(mut commit) = feed.try_next()? {
                while let Some(change) = commit.next_change()? {
                    if let FeedChange::Put { key, value, .. } = change {
                        items += 1;
                        payload += key.len() + value.bytes().map_or(0, <[u8]>::len);
                    }
                }
            }
            let took = start.elapsed();
            assert_eq!((items, payload as u64), (ITEMS, ITEMS * 116));
            let ns = |took: Duration| took.as_nanos() as u64 / ITEMS;
            println!("{name}: {} MB of log; files {} ns an item, feed {}", bytes >> 20, ns(raw), ns(took));
        }
    }
    Ok(())
}

/// Reads the log's files as they are: their bytes, and how long that takes.
fn read_files(dir: &std::path::Path) -> (u64, Duration) {
    let start = Instant::now();
    let (mut bytes, mut crc) = (0, 0);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().ends_with(".wal") {
            let segment = std::fs::read(entry.path()).unwrap_or_default();
            bytes += segment.len() as u64;
            crc ^= crc32c::crc32c(&segment);
        }
    }
    std::hint::black_box(crc);
    (bytes, start.elapsed())
}
