//! Suite `ycsb`: the mix of go-sstables' page and the workloads A to F of YCSB, on records of 1,000 bytes,
//! with an async log and with a sync log.
//!
//! ```text
//! async database: load -> mix -> read-only -> A -> B -> C -> F -> D -> E
//! sync database:  the same, fewer records
//! ```
//!
//! At scale `seed` a mix has a fixed time. With a fixed count, a mix of reads would end in a fraction of a
//! second.
//!
//! One thread. Key-value engines have no fields, so an update replaces the record. The memtable is limited to
//! 128 MB, as in the source.

use std::time::Duration;

use esker_bench_api::generate::ycsb::{KEY_BYTES, VALUE_BYTES};
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Budget, Draw, Measure, Mix, Part, Step, Work};
use crate::suites::{Stream, Suite};

const SEED: u64 = 11;
const CACHE_BYTES: u64 = 512 << 20;
const WRITE_BUFFER_BYTES: u64 = 128_000_000;
/// Exponent of YCSB.
const ZIPF: f64 = 0.99;
const SCAN_ITEMS_MAX: u64 = 100;
/// Operations of a mix at scale `test`.
const TEST_OPS: u64 = 100;
/// Seconds of a mix at scale `seed`.
const SEED_SECONDS: u64 = 10;
/// Records that the mixes of one database write per loaded record, for the disk limit. At scale `seed` this
/// is a guess.
const WRITES_PER_RECORD_MAX: u64 = 6;
const PERIOD: Duration = Duration::from_millis(250);

pub(crate) static SUITE: Suite = Suite {
    name: "ycsb",
    summary: "records of 10 fields x 100 B, one thread, 512 MiB of cache, memtable limited to 128 MB (go-sstables' mix, YCSB A to F)",
    memory_bytes_max: |_| Some(4 << 30),
    disk_bytes_max: |scale, _| {
        let records = records(scale, Durability::Async) * (1 + WRITES_PER_RECORD_MAX);
        records * (KEY_BYTES + VALUE_BYTES) as u64 * 3 + (1 << 30)
    },
    streams: || {
        vec![
            Stream::new("records", format!("ycsb::YcsbRecords, seed {SEED}")),
            Stream::new(
                "kinds of operations and records",
                format!(
                    "rng::Rng, seed {SEED}; distribution::Zipf, s = {ZIPF}, where a mix is zipfian or latest"
                ),
            ),
        ]
    },
    parts: |scale| vec![part(scale, Durability::Async, "async"), part(scale, Durability::Sync, "sync")],
    ..Suite::EMPTY
};

/// Name, per cent of read, scan, update, insert and read-modify-write, drawn records, and their description.
/// In the order of YCSB, where workloads that insert are last.
const MIXES: [(&str, [u32; 5], Draw, &str); 8] = [
    ("mix", [30, 0, 50, 20, 0], Draw::Uniform, "20 % insert, 30 % read, 50 % update, uniform"),
    ("read-only", [100, 0, 0, 0, 0], Draw::Uniform, "reads, uniform"),
    ("A", [50, 0, 50, 0, 0], Draw::Zipfian(ZIPF), "50 % read, 50 % update, zipfian"),
    ("B", [95, 0, 5, 0, 0], Draw::Zipfian(ZIPF), "95 % read, 5 % update, zipfian"),
    ("C", [100, 0, 0, 0, 0], Draw::Zipfian(ZIPF), "reads, zipfian"),
    ("F", [50, 0, 0, 0, 50], Draw::Zipfian(ZIPF), "50 % read, 50 % read-modify-write, zipfian"),
    ("D", [95, 0, 0, 5, 0], Draw::Latest(ZIPF), "95 % read, 5 % insert, latest"),
    ("E", [0, 95, 0, 5, 0], Draw::Zipfian(ZIPF), "95 % scan of 1 to 100 records, 5 % insert, zipfian"),
];

/// Number of records of the load.
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

fn part(scale: Scale, durability: Durability, name: &str) -> Part {
    let is_sync = durability == Durability::Sync;
    let records = records(scale, durability);
    let (budget, ends) = match scale {
        Scale::Seed => (Budget::of_seconds(SEED_SECONDS), format!("{SEED_SECONDS} s")),
        Scale::Test => (Budget::of_ops(TEST_OPS), format!("{TEST_OPS} operations")),
        Scale::Quick | Scale::Full => (Budget::of_ops(records), format!("{records} operations")),
    };
    let commits = if is_sync { Commits::Sync(0) } else { Commits::Async(0) };
    let weight = 1 + records / if is_sync { 500 } else { 20_000 };
    let row = |mix: &str, work| Row::rate(Unit::OpsPerSecond, format!("{mix} ({name})"), work);
    let options = OpenOptions {
        write_buffer_bytes: Some(WRITE_BUFFER_BYTES),
        value_bytes: VALUE_BYTES as u64,
        durability,
        ..OpenOptions::with_cache(CACHE_BYTES)
    };
    let load = Mix::new([0, 0, 0, 100, 0], Draw::Uniform, Budget::of_ops(records), PERIOD);
    let load_row = row("load", format!("{records} records, one transaction each"));
    let mut steps = vec![
        Step::Open(options, &[]),
        Step::row(Measure {
            is_groundwork: true,
            progress: "records",
            ..Measure::new(Row { commits, weight, ..load_row }, Work::Mix(load))
        }),
        Step::Drain,
    ];
    for (mix, percent, draw, work) in MIXES {
        let writes = percent[2] + percent[3] + percent[4] > 0;
        let row = Row {
            commits: if writes { commits } else { Commits::None },
            weight: if writes || scale == Scale::Seed { weight.min(10) } else { 1 },
            ..row(mix, format!("{ends}: {work}"))
        };
        let mix = Mix {
            scan_items: SCAN_ITEMS_MAX,
            scan_is_uniform: true,
            ..Mix::new(percent, draw, budget, PERIOD)
        };
        steps.extend([Step::row(Measure::new(row, Work::Mix(mix))), Step::Drain]);
    }
    steps.push(Step::Check);
    let source = Source::new(Kind::Ycsb, SEED, VALUE_BYTES);
    Part::steps(&[durability.feature()], source, steps)
}
