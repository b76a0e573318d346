//! Tests of summaries, with made-up records.

use super::*;
use esker_bench_api::results::{Counts, Latency, Setting, Usage};

/// A record with a value, or with an error if `value` is `None`.
pub(crate) fn record(engine: &str, row: &str, run: u32, value: Option<f64>) -> Record {
    Record {
        suite: "redb".to_owned(),
        row: row.to_owned(),
        engine: engine.to_owned(),
        scale: "test".to_owned(),
        run,
        setting: Setting { version: "1.0".to_owned(), commit: "c".to_owned(), ..Setting::default() },
        value,
        unit: Unit::Seconds,
        better: Better::Lower,
        counts: counts(),
        passes: Vec::new(),
        usage: Usage { cpu_s: 1.0, ..Usage::default() },
        detail: None,
        note: String::new(),
        error: value.is_none().then(|| "it broke <here>".to_owned()),
    }
}

/// The counts of [`record`].
pub(crate) fn counts() -> Counts {
    Counts { ops: 10, syncs_per_commit: Some(1.0), ..Counts::default() }
}

/// A record of a row with a rate, latencies and series.
pub(crate) fn record_over_time(engine: &str, row: &str, run: u32) -> Record {
    let latency = Latency { count: 30, mean: 1e-3, p50: 1e-3, p99: 2e-3, max: 5e-3, ..Latency::default() };
    let series = [
        ("ops/s", [900.0, 1100.0, 1000.0]),
        ("read p99 s", [1e-3, 2e-3, 1e-3]),
        ("disk bytes", [1e6, 2e6, 3e6]),
    ];
    Record {
        detail: Some(Box::new(Detail {
            load: "closed".to_owned(),
            latency: [("read".to_owned(), latency)].into(),
            period_s: 1.0,
            series: series.map(|(name, values)| (name.to_owned(), values.to_vec())).into(),
            longest_stall_s: 0.1,
            ..Detail::default()
        })),
        unit: Unit::OpsPerSecond,
        better: Better::Higher,
        ..record(engine, row, run, Some(1000.0))
    }
}

#[test]
fn medians_best_and_ratio() {
    let mut records = Vec::new();
    for (run, times) in [(1, [4.0, 2.0, 9.0]), (2, [1.0, 3.0, 9.0]), (3, [1.5, 8.0, 9.0])] {
        for (engine, time) in ["esker", "lmdb", "redb"].iter().zip(times) {
            records.push(record(engine, "bulk load", run, Some(time)));
        }
    }
    let summary = Summary::new(&records);
    let row = &summary.rows[0];
    assert_eq!((summary.runs, summary.rows.len(), summary.engines.len()), (3, 1, 3));
    assert_eq!(row.cells[0].value().map(|value| value.median), Some(1.5));
    assert_eq!(row.cells[0].value().and_then(Value::spread), Some(2.0));
    assert_eq!((row.best, row.ratio), (Some(0), Some(0.5)));
    assert!((summary.totals[0].cpu_s - 1.0).abs() < 1e-9);
}

#[test]
fn a_ratio_below_one_is_ahead_whatever_the_unit() {
    let ratio = |better| {
        let of = |engine, value| Record { better, ..record(engine, "r", 1, Some(value)) };
        let summary = Summary::new(&[of("lmdb", 4.0), of("esker", 2.0), of("bbolt", 1.0)]);
        let engines: Vec<_> = summary.engines.iter().map(|(engine, _)| engine.clone()).collect();
        assert_eq!(engines, ["esker", "bbolt", "lmdb"], "Esker, then the others by name");
        summary.rows[0].ratio
    };
    assert_eq!((ratio(Better::Lower), ratio(Better::Higher)), (Some(2.0), Some(2.0)));
}

#[test]
fn what_the_spread_covers_is_neither_lost_nor_won() {
    let verdict = |better, ours: &[f64], peer: &[f64]| {
        let of = |engine: &'static str, values: &[f64]| -> Vec<Record> {
            let runs = (1..).zip(values.iter().copied());
            runs.map(|(run, value)| Record { better, ..record(engine, "r", run, Some(value)) }).collect()
        };
        let summary = Summary::new(&[of("esker", ours), of("lmdb", peer)].concat());
        (summary.rows[0].verdict, summary.rows[0].runs)
    };
    for (ours, lower, higher) in [
        (&[1.49][..], Verdict::Neither, Verdict::Neither),
        (&[1.51], Verdict::Lost, Verdict::Won),
        (&[0.67], Verdict::Neither, Verdict::Neither),
        (&[0.66], Verdict::Won, Verdict::Lost),
        (&[1.09, 1.1], Verdict::Neither, Verdict::Neither),
        (&[0.66, 0.65], Verdict::Won, Verdict::Lost),
        (&[1.0, 2.9], Verdict::Neither, Verdict::Neither),
        (&[0.9, 1.1, 1.4], Verdict::Neither, Verdict::Neither),
        (&[1.09, 1.1, 1.11], Verdict::Lost, Verdict::Won),
    ] {
        let peer = vec![1.0; ours.len()];
        assert_eq!(verdict(Better::Lower, ours, &peer), (lower, ours.len()), "{ours:?}");
        assert_eq!(verdict(Better::Higher, ours, &peer), (higher, ours.len()), "{ours:?}");
    }
    let alone = Summary::new(&[record("esker", "r", 1, Some(1.0))]);
    assert_eq!(alone.rows[0].verdict, Verdict::Unknown);
    let none = Summary::new(&[record("esker", "r", 1, None), record("lmdb", "r", 1, Some(1.0))]);
    assert_eq!(none.rows[0].verdict, Verdict::Lost);
}

#[test]
fn details_are_of_valid_cells_and_numbers_are_medians() {
    let run = |run, cpu_s| {
        let mut record = record_over_time("esker", "H rand", run);
        record.usage.cpu_s = cpu_s;
        record
    };
    let mut records = vec![run(1, 2.0), run(2, 1.0), run(3, 5.0)];
    records[2].detail = None;
    let summary = Summary::new(&records);
    let value = summary.rows[0].cells[0].value().unwrap();
    assert_eq!(value.detail().map(|(run, _)| run), Some(2), "the last that has one");
    assert_eq!(value.median_of(|record| Some(record.usage.cpu_s)), Some(2.0));
    assert_eq!(value.median_of(|record| record.detail.as_ref()?.drain_s), None);
    records[0].error = Some("wrong answer".to_owned());
    assert!(Summary::new(&records).rows[0].cells[0].value().is_none());
}

#[test]
fn a_single_run_has_no_spread() {
    let summary = Summary::new(&[record("esker", "len()", 1, Some(1.0))]);
    let value = summary.rows[0].cells[0].value().unwrap();
    assert_eq!((value.spread(), value.spread_text().as_str()), (None, "-"));
}

#[test]
fn counts_of_a_row_are_of_one_record_with_a_value() {
    let with = |run, value: Option<f64>, ops, commits| Record {
        counts: Counts { ops, commits, user_written_bytes: 100 * commits, ..counts() },
        ..record("esker", "G sync", run, value)
    };
    let records = [with(1, Some(1.0), 1000, 950), with(2, None, 7, 3)];
    let row = &Summary::new(&records).rows[0];
    assert_eq!((row.ops, row.commits, row.user_written_bytes), (1000, 950, 95_000));
}

#[test]
fn an_error_in_one_run_fails_the_row() {
    let records = [record("esker", "len()", 1, Some(1.0)), record("esker", "len()", 2, None)];
    let summary = Summary::new(&records);
    assert!(matches!(&summary.rows[0].cells[0], Cell::Error(error) if error.contains("broke")));
    assert_eq!((summary.rows[0].best, summary.rows[0].ratio), (None, None));
}
