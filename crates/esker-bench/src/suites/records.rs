//! Suite `records`: building blocks of go-sstables: record files, tables, memtable flushes, and single gets
//! and puts.
//!
//! ```text
//! group 0      record write
//! groups 1, 2  table read, memtable flush
//! group 3..    get and put latency, every engine
//! ```
//!
//! Record files and tables are internals of Esker. Other engines offer no common interface to theirs, so only
//! Esker has these rows. `esker-bench seed-tables` shows the published figures of go-sstables beside them.

use std::path::Path;
use std::time::{Duration, Instant};

use esker::Compression;
use esker::{recordio, sstable};
use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::pool::Pool;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Failure, Feature, OpenOptions, Result};

use crate::machine;
use crate::recorder::{Outcome, Recorder};
use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Budget, Draw, Measure, Mix, Part, Step, Value, Work};
use crate::suites::verify::check_scan;
use crate::suites::works::expect;
use crate::suites::{Stream, Suite, Turn};

const SEED: u64 = 19;
const HOME: &str = "esker";
const NOT_HOME: &str = "a building block of Esker alone; the published figures are in `seed-tables`";
const RECORD_SIZES: [(usize, &str); 4] =
    [(1_000, "1 KB"), (10_000, "10 KB"), (100_000, "100 KB"), (1_000_000, "1 MB")];
const CODECS: [(Compression, &str); 5] = [
    (Compression::None, "plain"),
    (Compression::Gzip, "gzip"),
    (Compression::Snappy, "snappy"),
    (Compression::Lz4, "lz4"),
    (Compression::Zstd, "zstd"),
];
const SYNC: &str = "plain + sync per record";
const LATENCY_RECORDS: [u64; 4] = [100, 1_000, 10_000, 100_000];
const CACHE_BYTES: u64 = 4 << 30;
const PERIOD: Duration = Duration::from_millis(250);
const LATENCY_GROUP: usize = 3;

struct Sizes {
    /// Bytes of records for each codec.
    record_bytes: u64,
    sync_records: u64,
    table_bytes: u64,
    memtables_mib: &'static [u64],
    /// Most records in a latency row.
    latency_records: u64,
    latency: Budget,
}

fn sizes(scale: Scale) -> Sizes {
    match scale {
        Scale::Quick => Sizes {
            record_bytes: 16 << 20,
            sync_records: 200,
            table_bytes: 100 << 20,
            memtables_mib: &[32, 64],
            latency_records: 100_000,
            latency: Budget { time: Duration::from_secs(5), ops: 100_000 },
        },
        Scale::Seed | Scale::Full => Sizes {
            record_bytes: 1 << 30,
            sync_records: 1_000,
            table_bytes: 1 << 30,
            memtables_mib: &[32, 64, 128, 256, 512, 1024, 2048],
            latency_records: 100_000,
            latency: Budget { time: Duration::from_secs(20), ops: 1_000_000 },
        },
        Scale::Test => Sizes {
            record_bytes: 100_000,
            sync_records: 3,
            table_bytes: 100_000,
            memtables_mib: &[1],
            latency_records: 100,
            latency: Budget::of_ops(100),
        },
    }
}

/// Returns the number of records. Gzip has fewer: its speed is 1 % of that of the others.
fn record_count(sizes: &Sizes, codec: Option<Compression>, bytes: usize) -> u64 {
    match codec {
        None => sizes.sync_records,
        Some(Compression::Gzip) => (sizes.record_bytes / 20 / bytes as u64).max(1),
        Some(_) => (sizes.record_bytes / bytes as u64).max(1),
    }
}

/// Returns the rows of record writes: the codec, or `None` for a sync after each record.
fn record_rows() -> impl Iterator<Item = (Option<Compression>, String, usize)> {
    RECORD_SIZES.into_iter().flat_map(|(bytes, size)| {
        let codecs = CODECS.into_iter().map(|(codec, name)| (Some(codec), name)).chain([(None, SYNC)]);
        codecs.map(move |(codec, name)| (codec, format!("record write ({size}, {name})"), bytes))
    })
}

pub(crate) static SUITE: Suite = Suite {
    name: "records",
    summary: "record files, tables, memtable flushes; get and put on small databases (go-sstables)",
    // A memtable of 2 GB gets as much memory as it asks for.
    memory_bytes_max: |group| (group >= LATENCY_GROUP).then_some(2 * CACHE_BYTES),
    disk_bytes_max: |scale, _| {
        4 * sizes(scale).table_bytes + if scale == Scale::Test { 1 << 30 } else { 8 << 30 }
    },
    streams: || {
        vec![
            Stream::new("records, values of tables and memtables", format!("pool::Pool, seed {SEED}")),
            Stream::new("keys of memtables", format!("rng::Rng, seed {SEED}")),
            Stream::new("records of get and put latency", format!("ycsb::YcsbRecords, seed {SEED}")),
            Stream::new("draws of them", format!("rng::Rng, seed {SEED}; uniform")),
        ]
    },
    parts,
    ..Suite::EMPTY
};

fn parts(scale: Scale) -> Vec<Part> {
    let sizes = sizes(scale);
    let rate = |name: String, work: String| Row::rate(Unit::BytesPerSecond, name, work);
    let records = record_rows().map(|(codec, name, bytes)| {
        let count = record_count(&sizes, codec, bytes);
        let commits = if codec.is_none() { Commits::Sync(count) } else { Commits::None };
        let work = format!("{count} random records of {bytes} B, the last bytes written included");
        Row { ops: count, commits, ..rate(name, work) }
    });
    let table = rate(
        "table read".to_owned(),
        format!("{} MB of 1 KB values, opening included, page cache dropped", sizes.table_bytes / 1_000_000),
    );
    let flushes = sizes.memtables_mib.iter().map(|mib| {
        let work = "a memtable of 1 KB values, written into tables and synced";
        rate(format!("memtable flush ({mib} MB)"), work.to_owned())
    });
    let mut parts = vec![
        Part::Program(records.collect(), |turn| at_home(turn, record_files)),
        Part::Program(vec![table], |turn| at_home(turn, table_read)),
        Part::Program(flushes.collect(), |turn| at_home(turn, flush_all)),
    ];
    parts.extend(LATENCY_RECORDS.map(|shown| latencies(&sizes, shown)));
    parts
}

/// Runs the building blocks of Esker.
fn at_home(turn: Turn<'_>, run: fn(&Path, &Pool, &Sizes, &mut Recorder) -> Result<()>) -> Result<()> {
    if turn.engine.name() != HOME {
        return Err(Failure::Unsupported(NOT_HOME.to_owned()));
    }
    let dir = turn.recorder.dir().to_path_buf();
    run(&dir, &Pool::new(SEED), &sizes(turn.scale), turn.recorder)
}

fn record_files(dir: &Path, pool: &Pool, sizes: &Sizes, recorder: &mut Recorder) -> Result<()> {
    let path = dir.join("records");
    record_rows().try_for_each(|(codec, name, bytes)| {
        let count = record_count(sizes, codec, bytes);
        recorder.row(&name, || write_records(&path, pool, codec, bytes, count))?;
        recorder.check(|| check_records(&path, pool, bytes, count))?;
        std::fs::remove_file(&path).map_err(Failure::engine)
    })
}

fn flush_all(dir: &Path, pool: &Pool, sizes: &Sizes, recorder: &mut Recorder) -> Result<()> {
    sizes.memtables_mib.iter().try_for_each(|mib| flush(dir, pool, *mib, recorder))
}

fn write_records(
    path: &Path,
    pool: &Pool,
    codec: Option<Compression>,
    bytes: usize,
    count: u64,
) -> Result<Outcome> {
    let options = recordio::Writer::options().compression(codec.unwrap_or(Compression::None));
    let start = Instant::now();
    let mut writer = options.create(path)?;
    for i in 0..count {
        let record = pool.value(i, bytes);
        let appended = if codec.is_none() { writer.append_sync(record) } else { writer.append(record) };
        appended?;
    }
    writer.flush()?;
    let seconds = start.elapsed().as_secs_f64();
    writer.finish()?;
    Ok(Outcome { seconds: Some(seconds), user_written_bytes: count * bytes as u64, ..Outcome::default() })
}

fn check_records(path: &Path, pool: &Pool, bytes: usize, count: u64) -> Result<()> {
    let mut reader = recordio::Reader::open(path)?;
    let mut i = 0;
    while let Some(record) = reader.next()? {
        if record != pool.value(i, bytes) {
            return Err(Failure::Wrong(format!("record {i} is not as it was written")));
        }
        i += 1;
    }
    expect("records in the file", i, count)
}

fn table_key(i: u64) -> [u8; 8] {
    i.to_be_bytes()
}

const VALUE_BYTES: usize = 1_000;

fn table_read(dir: &Path, pool: &Pool, sizes: &Sizes, recorder: &mut Recorder) -> Result<()> {
    let (path, count) = (dir.join("table"), sizes.table_bytes / VALUE_BYTES as u64);
    let mut writer = sstable::Writer::create(&path)?;
    for i in 0..count {
        writer.put(&table_key(i), pool.value(i, VALUE_BYTES))?;
    }
    writer.finish()?;
    let is_cold = machine::drop_page_cache();
    recorder.row("table read", || {
        let (mut seen, mut sum, start) = (0, 0_u64, Instant::now());
        let table = sstable::Reader::open(&path)?;
        for entry in table.iter() {
            let (_, value) = entry?;
            sum = sum.wrapping_add(probe(&value));
            seen += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        let expected = (0..count).fold(0, |sum: u64, i| sum.wrapping_add(probe(pool.value(i, VALUE_BYTES))));
        expect("records in the table", seen, count)?;
        expect("sum of the values", sum, expected)?;
        let note = if is_cold { "" } else { "the page cache could not be dropped" };
        let value = Some((count * (8 + VALUE_BYTES as u64)) as f64 / seconds);
        Ok(Outcome { value, ops: Some(count), note: note.to_owned(), ..Outcome::default() })
    })?;
    recorder.check(|| check_table(&path, pool, count))
}

fn check_table(path: &Path, pool: &Pool, count: u64) -> Result<()> {
    let all = (0..count).map(|i| checksum(&table_key(i), pool.value(i, VALUE_BYTES)));
    check_scan(count, all.fold(0, u64::wrapping_add), |visit| {
        let mut seen = 0;
        for entry in sstable::Reader::open(path)?.iter() {
            let (key, value) = entry?;
            visit(&key, &value);
            seen += 1;
        }
        Ok(seen)
    })
}

fn flush(dir: &Path, pool: &Pool, mib: u64, recorder: &mut Recorder) -> Result<()> {
    let dir = dir.join(format!("{mib}"));
    let memtable_bytes = usize::try_from(mib << 21)?;
    let db = esker::Db::builder()
        .memory((mib << 22) + (1 << 30))
        .tuning(|t| t.memtable_bytes(memtable_bytes))
        .open(&dir)?;
    let map = db.default_keyspace();
    let (count, mut rng) = ((mib << 20) / VALUE_BYTES as u64, Rng::new(SEED));
    for i in 0..count {
        let mut batch = db.batch();
        let value = pool.value(i, VALUE_BYTES);
        batch.put(&map, rng.next_u64().to_be_bytes(), value)?;
        batch.commit_with(esker::Durability::None)?;
    }
    let flushes_before = db.stats().flushes;
    recorder.row(&format!("memtable flush ({mib} MB)"), || {
        let start = Instant::now();
        db.flush()?;
        let seconds = start.elapsed().as_secs_f64();
        let note = match db.stats().flushes - flushes_before {
            1 => String::new(),
            flushes => format!("{flushes} flushes"),
        };
        let bytes = count * (8 + VALUE_BYTES as u64);
        Ok(Outcome {
            seconds: Some(seconds),
            user_written_bytes: bytes,
            ops: Some(count),
            note,
            ..Outcome::default()
        })
    })?;
    recorder.check(|| check_flushed(&map, pool, count))?;
    db.close()?;
    std::fs::remove_dir_all(&dir).map_err(Failure::engine)
}

fn check_flushed(map: &esker::Keyspace, pool: &Pool, count: u64) -> Result<()> {
    let mut rng = Rng::new(SEED);
    let all = (0..count).map(|i| checksum(&rng.next_u64().to_be_bytes(), pool.value(i, VALUE_BYTES)));
    let expected = all.fold(0, u64::wrapping_add);
    expect("items by len()", map.len()?, count)?;
    check_scan(count, expected, |visit| {
        let mut cursor = map.cursor()?;
        cursor.seek_first()?;
        let mut seen = 0;
        while cursor.valid() {
            visit(cursor.key(), cursor.value()?);
            seen += 1;
            cursor.next()?;
        }
        Ok(seen)
    })
}

/// Gets and puts on a small database. The values are mean latencies of single operations.
fn latencies(sizes: &Sizes, shown: u64) -> Part {
    let (records, budget) = (shown.min(sizes.latency_records), sizes.latency);
    let (ops, seconds) = (budget.ops, budget.time.as_secs());
    let row = |kind: &str, what: &str| {
        let work = format!("one {what} on {records} records of 1 KB, of {ops} or of {seconds} s");
        Row::time(format!("{kind} latency ({shown} records)"), work)
    };
    let mean = |row, percent, kind| {
        let mix = Mix::new(percent, Draw::Uniform, budget, PERIOD);
        Measure { value: Value::Mean(kind), ..Measure::new(row, Work::Mix(mix)) }
    };
    let put = Row { commits: Commits::Async(0), ..row("put", "async overwrite") };
    let load = Work::put(records, 1000);
    let modes = &[Durability::Async, Durability::Sync, Durability::NoSync];
    let steps = vec![
        Step::Open(OpenOptions::with_cache(CACHE_BYTES), modes),
        Step::Load("records", load),
        Step::Drain,
        Step::row(mean(row("get", "get"), [100, 0, 0, 0, 0], "read")),
        Step::row(Measure { needs: Some(Feature::AsyncCommits), ..mean(put, [0, 0, 100, 0, 0], "update") }),
        Step::Drain,
        Step::Check,
    ];
    let source = Source::new(Kind::Ycsb, SEED, VALUE_BYTES);
    Part::steps(&[], source, steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::tests::Rehearsed;

    /// Returns the value of item `i`. The middle byte of item `wrong` is flipped.
    fn value(pool: &Pool, i: u64, wrong: Option<u64>) -> Vec<u8> {
        let mut value = pool.value(i, VALUE_BYTES).to_vec();
        value[VALUE_BYTES / 2] ^= u8::from(Some(i) == wrong);
        value
    }

    #[test]
    fn every_byte_of_records_tables_and_memtables_is_compared() {
        const COUNT: u64 = 20;
        let (dir, pool) = (tempfile::tempdir().unwrap(), Pool::new(SEED));
        for wrong in [None, Some(0), Some(COUNT - 1)] {
            let is_found = |check: Result<()>| {
                assert_eq!(check.is_err(), wrong.is_some(), "{check:?}");
                assert!(!matches!(check, Err(Failure::Engine(_))), "{check:?}");
            };
            let dir = dir.path().join(format!("{wrong:?}"));
            std::fs::create_dir(&dir).unwrap();
            let path = dir.join("records");
            let mut writer = recordio::Writer::create(&path).unwrap();
            for i in 0..COUNT {
                writer.append(&value(&pool, i, wrong)).unwrap();
            }
            writer.finish().unwrap();
            is_found(check_records(&path, &pool, VALUE_BYTES, COUNT));

            let path = dir.join("table");
            let mut writer = sstable::Writer::create(&path).unwrap();
            (0..COUNT).for_each(|i| writer.put(&table_key(i), &value(&pool, i, wrong)).unwrap());
            writer.finish().unwrap();
            is_found(check_table(&path, &pool, COUNT));

            let db = esker::Db::builder().open(dir.join("db")).unwrap();
            let (map, mut rng) = (db.default_keyspace(), Rng::new(SEED));
            for i in 0..COUNT {
                let mut batch = db.batch();
                batch.put(&map, rng.next_u64().to_be_bytes(), value(&pool, i, wrong)).unwrap();
                batch.commit_with(esker::Durability::None).unwrap();
            }
            is_found(check_flushed(&map, &pool, COUNT));
            db.close().unwrap();
        }
    }

    #[test]
    fn puts_are_drained_as_the_load_is() {
        let engine = Rehearsed::default();
        let records = engine.run(&SUITE, LATENCY_GROUP);
        assert!(records.iter().all(|record| record.error.is_none()), "{records:?}");
        assert_eq!((records.len(), *engine.drained.lock().unwrap()), (2, 2));
    }
}
