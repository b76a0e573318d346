//! Suite `ycsb`: the mix of go-sstables' page and YCSB's A to F, on records of 1,000 bytes, with an async log and with a sync one.
//!
//! ```text
//! async database: load -> mix -> read-only -> A -> B -> C -> F -> D -> E        sync database: the same, fewer records
//! ```
//!
//! bench_ycsb.1. At scale `seed` a mix takes its time, no less: what reads alone would be over in a fraction of a second by count.
//!
//! bench_ycsb.2. A zipfian mix scatters its ranks over the records that are there when it begins, and over a quarter more if it inserts (bench_details.2 of
//!      `distribution.rs`).
//!
//! One thread. A key-value engine has no fields: an update replaces the record. The memtable is limited to 128 MB, as in the source.

use std::time::Duration;

use esker_bench_api::generate::distribution::{Distribution, Zipf};
use esker_bench_api::generate::ycsb::{KEY_BYTES, VALUE_BYTES, YcsbRecords};
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Failure, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::budget::Budget;
use crate::suites::mixed::{INSERT, Mix, Mixed, Records};
use crate::suites::{Stream, Suite, Turn, needs};

const SEED: u64 = 11;
const CACHE_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 30;
const WRITE_BUFFER_BYTES: u64 = 128_000_000;
/// YCSB's exponent.
const ZIPF: f64 = 0.99;
/// Operations of a mix at scale `test`.
const TEST_OPS: u64 = 100;
/// bench_ycsb.1.
const SEED_TIME: Duration = Duration::from_secs(10);
/// Records that the mixes of one database write for each that is loaded, for the disk that is kept free: at scale `seed` a guess.
const WRITES_PER_RECORD_MAX: u64 = 6;
const PERIOD: Duration = Duration::from_millis(250);
const DURABILITIES: [(Durability, &str); 2] = [(Durability::Async, "async"), (Durability::Sync, "sync")];

pub(crate) struct YcsbSuite;

#[derive(Clone, Copy)]
enum Ask {
    Uniform,
    Zipfian,
    Latest,
}

impl Ask {
    /// The distribution of a mix with these percentages, in a database that has `records` records when the mix begins.
    fn distribution(self, percent: [u32; 5], records: u64) -> Distribution {
        let inserts_max = if percent[INSERT] > 0 { records / 4 } else { 0 };
        match self {
            Self::Uniform => Distribution::Uniform,
            // bench_ycsb.2
            Self::Zipfian => {
                Distribution::Zipfian { ranks: Zipf::new(ZIPF), numbers_max: records + inserts_max }
            }
            Self::Latest => Distribution::Latest(Zipf::new(ZIPF)),
        }
    }
}

/// Name, per cent of read, scan, update, insert, read-modify-write, which records, and the words for it. In YCSB's order, which
/// puts the workloads that insert last.
const MIXES: [(&str, [u32; 5], Ask, &str); 8] = [
    ("mix", [30, 0, 50, 20, 0], Ask::Uniform, "20 % insert, 30 % read, 50 % update, uniform"),
    ("read-only", [100, 0, 0, 0, 0], Ask::Uniform, "reads, uniform"),
    ("A", [50, 0, 50, 0, 0], Ask::Zipfian, "50 % read, 50 % update, zipfian"),
    ("B", [95, 0, 5, 0, 0], Ask::Zipfian, "95 % read, 5 % update, zipfian"),
    ("C", [100, 0, 0, 0, 0], Ask::Zipfian, "reads, zipfian"),
    ("F", [50, 0, 0, 0, 50], Ask::Zipfian, "50 % read, 50 % read-modify-write, zipfian"),
    ("D", [95, 0, 0, 5, 0], Ask::Latest, "95 % read, 5 % insert, latest"),
    ("E", [0, 95, 0, 5, 0], Ask::Zipfian, "95 % scan of 1 to 100 records, 5 % insert, zipfian"),
];

/// Records of the load.
fn records(scale: Scale, durability: Durability) -> u64 {
    let is_sync = durability == Durability::Sync;
    match scale {
        Scale::Quick if is_sync => 500,
        Scale::Quick => 20_000,
        Scale::Seed if is_sync => 50_000,
        Scale::Seed | Scale::Full => 1_000_000,
        Scale::Test => 60,
    }
}

/// When a mix ends (bench_ycsb.1).
fn budget(scale: Scale, durability: Durability) -> Budget {
    match scale {
        Scale::Seed => Budget { time: SEED_TIME, ops: u64::MAX },
        Scale::Quick | Scale::Full => Budget::of_ops(records(scale, durability)),
        Scale::Test => Budget::of_ops(TEST_OPS),
    }
}

fn budget_text(budget: Budget) -> String {
    if budget.ops == u64::MAX {
        format!("{} s", budget.time.as_secs())
    } else {
        format!("{} operations", budget.ops)
    }
}

fn commits(durability: Durability) -> Commits {
    if durability == Durability::Sync { Commits::Sync(0) } else { Commits::Async(0) }
}

impl Records for YcsbRecords {
    fn key(&self, i: u64) -> Vec<u8> {
        YcsbRecords::key(*self, i).to_vec()
    }

    fn item(&self, key: &[u8]) -> Option<u64> {
        YcsbRecords::item(*self, key)
    }

    fn value(&self, i: u64, version: u64, value: &mut [u8]) {
        YcsbRecords::value(*self, i, version, value);
    }

    fn value_bytes(&self) -> usize {
        VALUE_BYTES
    }
}

impl Suite for YcsbSuite {
    fn name(&self) -> &'static str {
        "ycsb"
    }

    fn summary(&self) -> &'static str {
        "records of 10 fields x 100 B, one thread, 512 MiB of cache, memtable limited to 128 MB (go-sstables' mix, YCSB A to F)"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(MEMORY_BYTES_MAX)
    }

    fn streams(&self) -> Vec<Stream> {
        vec![
            Stream::new("records", format!("ycsb::YcsbRecords, seed {SEED}")),
            Stream::new(
                "kinds of operations and records",
                format!(
                    "rng::Rng, seed {SEED}; distribution::Zipf, s = {ZIPF}, where a mix is zipfian or latest"
                ),
            ),
        ]
    }

    fn disk_bytes_max(&self, scale: Scale, _group: usize) -> u64 {
        records(scale, Durability::Async) * (1 + WRITES_PER_RECORD_MAX) * (KEY_BYTES + VALUE_BYTES) as u64 * 3
            + (1 << 30)
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let mut rows = Vec::new();
        for (group, (durability, name)) in DURABILITIES.into_iter().enumerate() {
            let records = records(scale, durability);
            let budget = budget(scale, durability);
            let weight =
                if durability == Durability::Sync { 1 + records / 500 } else { 1 + records / 20_000 };
            rows.push(Row {
                commits: commits(durability),
                weight,
                group,
                ..Row::rate(
                    Unit::OpsPerSecond,
                    format!("load ({name})"),
                    format!("{records} records, one transaction each"),
                )
            });
            let ends = budget_text(budget);
            for (mix, percent, _, work) in MIXES {
                let writes = percent[2] + percent[3] + percent[4] > 0;
                rows.push(Row {
                    commits: if writes { commits(durability) } else { Commits::None },
                    weight: if writes || scale == Scale::Seed { weight.min(10) } else { 1 },
                    group,
                    ..Row::rate(Unit::OpsPerSecond, format!("{mix} ({name})"), format!("{ends}: {work}"))
                });
            }
        }
        rows
    }

    fn run(&self, turn: Turn<'_>) -> Result<(), Failure> {
        let Turn { engine, scale, group, recorder } = turn;
        let (durability, name) = DURABILITIES[group];
        needs(engine, durability.feature())?;
        let options = OpenOptions {
            write_buffer_bytes: Some(WRITE_BUFFER_BYTES),
            value_bytes: VALUE_BYTES as u64,
            durability,
            ..OpenOptions::with_cache(CACHE_BYTES)
        };
        let records = records(scale, durability);
        let dir = recorder.dir().to_path_buf();
        let store = engine.open(&dir, &options)?;
        let mut mixed = Mixed::new(YcsbRecords::new(SEED), &*store, SEED);
        let mut how_far = recorder.how_far("records", records);
        let mut load = || mixed.insert_all(records, PERIOD, &dir, &mut how_far);
        if !recorder.groundwork(&format!("load ({name})"), &mut load)? {
            return Ok(());
        }
        recorder.drain(mixed.store)?;
        for (mix, percent, ask, _) in MIXES {
            let mix_of = Mix { percent, scan_items: 100, scan_is_uniform: true };
            let distribution = ask.distribution(percent, mixed.items());
            recorder.row(&format!("{mix} ({name})"), || {
                mixed.run(mix_of, &distribution, budget(scale, durability), PERIOD, &dir)
            })?;
            recorder.drain(mixed.store)?;
        }
        recorder.check(|| mixed.full_check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_ycsb_2_ranks_are_scattered_over_what_is_there_and_what_will_be_inserted() {
        for (mix, percent, ask, _) in MIXES {
            if let Distribution::Zipfian { numbers_max, .. } = ask.distribution(percent, 1000) {
                assert_eq!(numbers_max, if mix == "E" { 1250 } else { 1000 }, "bench_ycsb.2: {mix}");
            }
        }
    }

    #[test]
    fn bench_ycsb_1_at_seed_a_mix_takes_its_time_and_elsewhere_has_a_count() {
        for (durability, _) in DURABILITIES {
            let seed = budget(Scale::Seed, durability);
            assert_eq!((seed.time.as_secs(), seed.ops), (10, u64::MAX));
            for scale in [Scale::Quick, Scale::Full, Scale::Test] {
                let counted = budget(scale, durability);
                assert!(counted.time == Duration::MAX && counted.ops < u64::MAX, "{counted:?}");
            }
        }
        let work = |scale| YcsbSuite.rows(scale).into_iter().find(|row| row.name == "C (sync)").unwrap().work;
        assert_eq!(work(Scale::Seed), "10 s: reads, zipfian");
        assert_eq!(work(Scale::Quick), "500 operations: reads, zipfian");
    }
}
