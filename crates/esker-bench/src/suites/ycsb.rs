//! Suite `ycsb`: the mix of go-sstables' page and YCSB's A to F, on records of 1,000 bytes, with an async log and with a sync one.
//!
//! ```text
//! async database: load -> mix -> read-only -> A -> B -> C -> F -> D -> E        sync database: the same, fewer operations
//! ```
//!
//! One thread. A key-value engine has no fields: an update replaces the record. The memtable is limited to 128 MB, as in the source.

use std::time::Duration;

use esker_bench_api::generate::distribution::{Distribution, Zipf};
use esker_bench_api::generate::ycsb::{KEY_BYTES, VALUE_BYTES, YcsbRecords};
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Engine, Failure, OpenOptions};

use crate::recorder::Recorder;
use crate::scale::Scale;
use crate::suites::budget::Budget;
use crate::suites::mixed::{Mix, Mixed, Records};
use crate::suites::{Commits, Row, Suite};

const SEED: u64 = 11;
const CACHE_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 30;
const WRITE_BUFFER_BYTES: u64 = 128_000_000;
/// YCSB's exponent.
const ZIPF: f64 = 0.99;
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
    fn distribution(self) -> Distribution {
        match self {
            Self::Uniform => Distribution::Uniform,
            Self::Zipfian => Distribution::Zipfian(Zipf::new(ZIPF)),
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

/// Records and operations.
fn counts(scale: Scale, durability: Durability) -> (u64, u64) {
    let is_sync = durability == Durability::Sync;
    match scale {
        Scale::Quick if is_sync => (500, 500),
        Scale::Quick => (20_000, 20_000),
        Scale::Seed if is_sync => (50_000, 50_000),
        Scale::Seed | Scale::Full => (1_000_000, 1_000_000),
        Scale::Test => (60, 100),
    }
}

/// When a mix ends, although not all operations are done: its value is a rate.
fn time(scale: Scale) -> Duration {
    match scale {
        Scale::Seed => Duration::from_secs(10),
        Scale::Quick | Scale::Full | Scale::Test => Duration::MAX,
    }
}

fn commits(durability: Durability) -> Commits {
    if durability == Durability::Sync { Commits::Sync(0) } else { Commits::NoSync(0) }
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

    fn disk_bytes_max(&self, scale: Scale) -> u64 {
        let (records, ops) = counts(scale, Durability::Async);
        (records + 4 * ops) * (KEY_BYTES + VALUE_BYTES) as u64 * 3 + (1 << 30)
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let mut rows = Vec::new();
        for (group, (durability, name)) in DURABILITIES.into_iter().enumerate() {
            let (records, ops) = counts(scale, durability);
            let weight = if durability == Durability::Sync { 1 + ops / 500 } else { 1 + ops / 20_000 };
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
            let ends = match scale {
                Scale::Seed => format!(", or {} s", time(scale).as_secs()),
                Scale::Quick | Scale::Full | Scale::Test => String::new(),
            };
            for (mix, percent, _, work) in MIXES {
                let writes = percent[2] + percent[3] + percent[4] > 0;
                rows.push(Row {
                    commits: if writes { commits(durability) } else { Commits::None },
                    weight: if writes { weight.min(10) } else { 1 },
                    group,
                    ..Row::rate(
                        Unit::OpsPerSecond,
                        format!("{mix} ({name})"),
                        format!("{ops} operations{ends}: {work}"),
                    )
                });
            }
        }
        rows
    }

    fn run(
        &self,
        engine: &dyn Engine,
        scale: Scale,
        group: usize,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        let (durability, name) = DURABILITIES[group];
        if let Some(why) = engine.cannot(durability.feature()) {
            let rows = self.rows(scale).into_iter().filter(|row| row.group == group);
            return rows.into_iter().try_for_each(|row| recorder.cannot(&row.name, why));
        }
        let options = OpenOptions {
            write_buffer_bytes: Some(WRITE_BUFFER_BYTES),
            value_bytes: VALUE_BYTES as u64,
            durability,
            ..OpenOptions::with_cache(CACHE_BYTES)
        };
        let (records, ops) = counts(scale, durability);
        let dir = recorder.dir().to_path_buf();
        let store = engine.open(&dir, &options)?;
        let mut mixed = Mixed::new(YcsbRecords::new(SEED), &*store, SEED);
        if !recorder.groundwork(&format!("load ({name})"), || mixed.insert_all(records, PERIOD, &dir))? {
            return Ok(());
        }
        recorder.drain(mixed.store)?;
        for (mix, percent, ask, _) in MIXES {
            let mix_of = Mix { percent, scan_items: 100, scan_is_uniform: true };
            let budget = Budget { time: time(scale), ops };
            recorder.row(&format!("{mix} ({name})"), || {
                mixed.run(mix_of, &ask.distribution(), budget, PERIOD, &dir)
            })?;
            recorder.drain(mixed.store)?;
        }
        recorder.check(|| mixed.full_check())
    }
}
