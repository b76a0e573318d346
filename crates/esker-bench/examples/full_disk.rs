//! Fills a disk, removes nine keys of ten, and waits for space: what a full disk gives back, and how soon.
//!
//! ```text
//!   mount -t tmpfs -o size=60m none /mnt/small
//!   cargo run --release -p esker-bench --no-default-features --example full_disk -- \
//!       /mnt/small/db 1000 range 16
//! ```
//!
//! Arguments: the directory of the database, which is new, bytes of a value, the removal (`each`, `range`,
//! `clear`, `drop`, `random`: each key with nine chances of ten), and MiB of memory (1024 if left out). It
//! ends with 1 if puts are refused for longer than [`PATIENCE`].
#![expect(clippy::disallowed_methods, reason = "it measures real time on a real disk")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use esker::{Db, Error, Keyspace};

/// Puts are to succeed within so long after the removal.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().ok_or("full_disk DIR VALUE_BYTES REMOVAL [MEMORY_MIB]");
    let (dir, value_bytes, removal) = (next()?, next()?.parse()?, next()?);
    let memory: u64 = next().map_or(Ok(1024), |mib| mib.parse())?;
    let db = Db::builder().memory(memory << 20).open(&dir)?;
    let map = db.create_keyspace("full")?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut count = 0;
    let refusal = loop {
        match put(&map, count, &mut rng, value_bytes) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    println!("{count} values until: {refusal}");
    show(&db);
    let removed = remove(&db, &map, &removal, count);
    println!("removal: {removed:?}");
    drop(map);
    let map = db.keyspace("full")?;
    let mut rng = fastrand::Rng::with_seed(2);
    let started = Instant::now();
    // Enough that it could not be what was free before.
    let mut left = count / 4;
    let mut refused = 0;
    while left > 0 && started.elapsed() < PATIENCE {
        match put(&map, left, &mut rng, value_bytes) {
            Ok(()) => left -= 1,
            Err(Error::NoSpace { .. }) => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(other) => return Err(other.into()),
        }
    }
    println!("{} puts of {} after {:?}, {refused} refused", count / 4 - left, count / 4, started.elapsed());
    show(&db);
    println!("compact: {:?}", db.compact());
    show(&db);
    let problems = db.check()?.problems;
    println!("{}: {problems:?}", if left == 0 && removed.is_ok() { "PASSED" } else { "FAILED" });
    Ok(ExitCode::from(u8::from(left > 0 || removed.is_err() || !problems.is_empty())))
}

fn put(map: &Keyspace, n: u32, rng: &mut fastrand::Rng, value_bytes: usize) -> esker::Result<()> {
    let mut value = vec![0; value_bytes];
    rng.fill(&mut value);
    map.put(n.to_be_bytes(), value).map(drop)
}

/// Nine keys of ten.
fn remove(db: &Db, map: &Keyspace, removal: &str, count: u32) -> esker::Result<()> {
    let nine_tenths = count / 10 * 9;
    match removal {
        "each" => (0..nine_tenths).try_for_each(|n| map.delete(n.to_be_bytes()).map(drop)),
        "random" => {
            let mut rng = fastrand::Rng::with_seed(3);
            (0..count).filter(|_| rng.u8(0..10) > 0).try_for_each(|n| map.delete(n.to_be_bytes()).map(drop))
        }
        "range" => map.delete_range(..nine_tenths.to_be_bytes()).map(drop),
        "clear" => map.clear().map(drop),
        "drop" => db.drop_keyspace("full"),
        other => Err(Error::Invalid(format!("no removal is called {other}"))),
    }
}

fn show(db: &Db) {
    let stats = db.stats();
    println!(
        "  tables {} of {} KiB, memtables {} KiB, {} sealed, flushes failed {}, merges failed {}, tables dropped {}",
        stats.tables,
        stats.table_bytes >> 10,
        stats.memtable_bytes >> 10,
        stats.memtables_sealed,
        stats.flushes_failed,
        stats.compactions_failed,
        stats.tables_dropped
    );
}
