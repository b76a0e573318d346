//! Tests of limits, with made-up figures.

use super::*;
use crate::context::tests::context;
use crate::report::summary::tests::{counts, record};
use esker_bench_api::results::{Better, Counts, Record};

fn of_machine(row: &str, unit: Unit, value: f64) -> Record {
    Record { suite: "limits".to_owned(), unit, ..record("machine", row, 1, Some(value)) }
}

fn limits() -> Limits {
    let records = [
        of_machine("fdatasync, append 200 B, preallocated file", Unit::Seconds, 1e-3),
        of_machine("fdatasync, append 4 KiB, preallocated file", Unit::Seconds, 2e-3),
        of_machine("sequential write, O_DIRECT", Unit::BytesPerSecond, 1e8),
        of_machine("sequential write, buffered", Unit::BytesPerSecond, 5e7),
        of_machine("sequential read, buffered", Unit::BytesPerSecond, 3e8),
        of_machine("sequential read, O_DIRECT", Unit::BytesPerSecond, 2e8),
        of_machine("memcpy", Unit::BytesPerSecond, 1e10),
        of_machine("dependent cache miss", Unit::Seconds, 1e-7),
    ];
    with_suites(&records, &["redb", "records", "storage-bench", "badger", "ycsb", "large"])
}

/// Limits from these records, for suites of the same machine with two cores.
fn with_suites(records: &[Record], suites: &[&str]) -> Limits {
    let others =
        suites.iter().map(|suite| Record { suite: (*suite).to_owned(), ..record("esker", "r", 1, None) });
    let records: Vec<Record> = records.iter().cloned().chain(others).collect();
    let mut context = context("", Vec::new());
    context.machine.cores = 2;
    context.note_suites(&records);
    Limits::find(&Summary::all(&records), &Runs::new(vec![context]))
}

fn limit(limits: &Limits, record: Record) -> Option<(f64, &'static str)> {
    let summary = Summary::new(&[record]);
    limits.of(&summary.suite, &summary.rows[0])
}

fn close(found: Option<(f64, &'static str)>, value: f64, what: &str) {
    let (found, found_what) = found.unwrap();
    assert!((found / value - 1.0).abs() < 1e-9 && found_what == what, "{found} {found_what}");
}

#[test]
fn a_row_has_the_limit_of_what_it_does() {
    let limits = limits();
    assert!(limits.are_known() && !Limits::default().are_known());
    let synced = |commits, user_written_bytes, name: &str| Record {
        counts: Counts { commits, user_written_bytes, ..counts() },
        ..record("esker", name, 1, Some(9.0))
    };
    close(limit(&limits, synced(1000, 174_000, "individual writes")), 1.0, "median fdatasync");
    close(limit(&limits, synced(100, 17_400_000, "batch writes")), 0.2, "median fdatasync");
    close(limit(&limits, synced(1, 174_000_000, "bulk load")), 1.74, "writing the bytes once");
    assert_eq!(limit(&limits, synced(1, 100, "bulk load")), None, "a single sync says nothing");
    let reads = |name: &str| Record {
        counts: Counts { ops: 1000, ..counts() },
        ..record("esker", name, 1, Some(9.0))
    };
    close(limit(&limits, reads("random reads")), 1e-4, "one cache miss each");
    close(limit(&limits, reads("random reads (32 threads)")), 5e-5, "one cache miss each");
    let rate = |name: &str| Record {
        suite: "records".to_owned(),
        unit: Unit::BytesPerSecond,
        better: Better::Higher,
        ..record("esker", name, 1, Some(1e6))
    };
    close(limit(&limits, rate("table read")), 3e8, "the device");
    close(limit(&limits, rate("record write (1 KB, plain)")), 1e10, "memcpy");
    close(limit(&limits, rate("record write (1 KB, plain + sync per record)")), 1e8, "the device");
    assert_eq!(limit(&limits, rate("record write (1 KB, zstd)")), None);
    let warm = Record { note: "the page cache could not be dropped".to_owned(), ..rate("table read") };
    assert_eq!(limit(&limits, warm), None);
}

#[test]
fn values_are_read_and_written_once_and_even_reads_miss_a_cache() {
    let of = |suite: &str, name: &str| Record {
        suite: suite.to_owned(),
        counts: Counts { ops: 1000, syncs_per_commit: None, ..counts() },
        ..record("esker", name, 1, Some(9.0))
    };
    let walk = of("badger", "iterate with values (16 KB)");
    close(limit(&limits(), walk.clone()), 1.6e7 / 3e8, "reading the values once");
    close(
        limit(&limits(), of("badger", "iterate with values (128 B)")),
        1.28e5 / 3e8,
        "reading the values once",
    );
    let warm = Record { note: "the page cache could not be dropped".to_owned(), ..walk };
    assert_eq!(limit(&limits(), warm), None);
    assert_eq!(limit(&limits(), of("badger", "iterate keys only, cold (16 KB)")), None);
    let of_load = Counts { ops: 1000, commits: 1, user_written_bytes: 8_000_000, ..counts() };
    let load = Record { counts: of_load, ..of("large", "bulk load") };
    close(limit(&limits(), load), 0.08, "writing the bytes once");
    let rate = |name: &str| {
        let unit = Unit::OpsPerSecond;
        limit(&limits(), Record { unit, better: Better::Higher, ..of("ycsb", name) })
    };
    close(rate("read-only (async)"), 1e7, "one cache miss each");
    assert_eq!(rate("C (async)"), None);
}

#[test]
fn each_suite_of_engines_says_which_rows_have_no_line() {
    for suite in crate::suites::SUITES.iter().filter(|suite| suite.own_engine.is_none()) {
        assert!(!without(suite.name).is_empty(), "{}", suite.name);
    }
    assert!(without("limits").is_empty());
}

#[test]
fn another_machine_has_no_limit() {
    let records = [
        of_machine("dependent cache miss", Unit::Seconds, 1e-7),
        record("esker", "random reads", 1, Some(9.0)),
    ];
    let limit_on = |cpu: &str| {
        let [mut here, mut there] = [context("", Vec::new()), context("", Vec::new())];
        here.note_suites(&records[..1]);
        there.note_suites(&records[1..]);
        there.machine.cpu = cpu.to_owned();
        let cpu = here.machine.cpu.clone();
        let limits = Limits::find(&Summary::all(&records), &Runs::new(vec![here, there]));
        (limit(&limits, records[1].clone()), cpu)
    };
    let (elsewhere, here) = limit_on("another");
    assert_eq!(elsewhere, None);
    close(limit_on(&here).0, 1e-6, "one cache miss each");
}

#[test]
fn commits_that_share_syncs_have_no_limit() {
    let shared = Counts { commits: 1000, syncs_per_commit: Some(0.2), ..counts() };
    let shared = Record { counts: shared, ..record("esker", "w", 1, Some(1.0)) };
    assert_eq!(limit(&limits(), shared), None);
}

#[test]
fn a_rate_is_limited_by_counts_of_one_record() {
    let with = |engine: &str, value: Option<f64>, ops, commits| Record {
        suite: "storage-bench".to_owned(),
        unit: Unit::OpsPerSecond,
        better: Better::Higher,
        counts: Counts { ops, commits, user_written_bytes: 520 * commits, ..counts() },
        ..record(engine, "G sync", 1, value)
    };
    let summary = Summary::new(&[with("esker", Some(1.0), 1000, 950), with("lmdb", None, 1, 1)]);
    close(limits().of(&summary.suite, &summary.rows[0]), 1000.0 / (950.0 * 2e-3), "median fdatasync");
}
