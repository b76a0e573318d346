//! The Go side of the lab against the Rust side: the same bytes of every workload, rows of the same names at scale quick, and in each row of
//! scale test the same work: operations of each kind, commits, bytes handed over and bytes alive.
//!
//! Runs where `go` is found; the part of the Go program that it needs has no engine in it and builds in seconds.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::distribution::{Distribution, Zipf};
use esker_bench_api::generate::items::Items;
use esker_bench_api::generate::order::Order;
use esker_bench_api::generate::pool::Pool;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::generate::streams::{self, sum};
use serde_json::Value;

/// What `describe` of the Go side prints, or nothing where there is no Go.
fn describe(arguments: &[&str]) -> Option<Value> {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/go");
    let output =
        Command::new("go").args(["run", "./describe"]).args(arguments).current_dir(sources).output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// The records that `describe` prints as messages, or nothing where there is no Go.
fn rehearsed() -> Option<Vec<Value>> {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/go");
    let output =
        Command::new("go").args(["run", "./describe", "records"]).current_dir(sources).output().ok()?;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let messages = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    Some(messages.filter_map(|mut message| message.get_mut("row").map(Value::take)).collect())
}

/// What the lab itself records of the same suites.
fn recorded(suites: &BTreeSet<&str>) -> Vec<Value> {
    let out = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_esker-bench"))
        .arg("run")
        .args(suites)
        .args(["--scale", "test", "--runs", "1", "--no-trace", "--engine", "esker", "--out"])
        .arg(out.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(out.path().join("results.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a record says about the work of its row, whatever engine did it.
fn work(record: &Value) -> Vec<(&str, Value)> {
    let counts = ["unit", "better", "ops", "commits", "user_written_bytes", "live_bytes"];
    let mut work: Vec<_> = counts.map(|name| (name, record[name].clone())).into();
    work.push(("load", record["detail"]["load"].as_str().unwrap_or_default().into()));
    for (kind, latency) in record["detail"]["latency"].as_object().into_iter().flatten() {
        work.push((kind, latency["count"].clone()));
    }
    work
}

/// The checksums that `streams` of the Go side has, in order of their names.
fn streams() -> BTreeMap<String, u64> {
    let (items, pool) = (Items::new(3), Pool::new(3));
    let (mut ranks, zipf) = (Rng::new(1), Zipf::new(0.99));
    let (mut scattered, zipfian) =
        (Rng::new(1), Distribution::Zipfian { ranks: zipf.clone(), numbers_max: 1250 });
    let last = items.value(999);
    let others = [
        ("redb", sum((0..1000).map(|i| checksum(&items.key(i), &items.value(i))))),
        ("zipfian", sum((1000..1100).map(|n| zipfian.draw(&mut scattered, n)))),
        ("zipf", sum((0..1000).map(|_| zipf.rank(&mut ranks, 1_000_000)))),
        ("order", sum(Order::new(351_000, 7).skip_to(1000).take(1000))),
        ("probe", sum((0..20).map(|n| probe(&last[..n])))),
        ("probe of large values", sum((0..100).map(|n| probe(pool.value(n, 1000 + n as usize))))),
    ];
    streams::streams(33).into_iter().chain(others).map(|(name, sum)| (name.to_owned(), sum)).collect()
}

#[test]
fn the_streams_are_byte_for_byte_the_same() {
    let Some(described) = describe(&["streams"]) else { return };
    let theirs: BTreeMap<String, u64> = described
        .as_array()
        .unwrap()
        .iter()
        .map(|stream| (stream["name"].as_str().unwrap().to_owned(), stream["sum"].as_u64().unwrap()))
        .collect();
    assert_eq!(theirs, streams());
}

#[test]
fn each_row_does_the_same_work() {
    let Some(theirs) = rehearsed() else { return };
    let key = |record: &Value| ["suite", "row"].map(|name| record[name].as_str().unwrap().to_owned());
    let suites = theirs.iter().map(|record| record["suite"].as_str().unwrap()).collect();
    let ours: BTreeMap<_, _> = recorded(&suites).into_iter().map(|record| (key(&record), record)).collect();
    let mut compared = 0;
    for record in theirs.iter().filter(|record| record["error"].is_null()) {
        let ours = ours.get(&key(record)).unwrap_or_else(|| panic!("only Go has {record}"));
        // A page cache that cannot be dropped, for one.
        if ours["error"].is_null() {
            assert_eq!(work(record), work(ours), "{record}");
            compared += 1;
        }
    }
    assert!(compared > 70, "{compared}");
}

#[test]
fn the_rows_have_the_same_names() {
    let Some(rows) = describe(&["rows", "quick"]) else { return };
    let list = Command::new(env!("CARGO_BIN_EXE_esker-bench")).arg("list").output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    // `list` shows "  suite: ..." and below it "    row   work", with the counts of scale quick in the words.
    let mut shown: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut suite = "";
    for line in list.lines().take_while(|line| !line.starts_with("Engines")) {
        if let Some(row) = line.strip_prefix("    ").filter(|row| !row.starts_with(' ')) {
            shown.entry(suite).or_default().push(row);
        } else if let Some((name, _)) = line.strip_prefix("  ").and_then(|line| line.split_once(": ")) {
            suite = name;
        }
    }
    for (suite, rows) in rows.as_object().unwrap() {
        // A suite that the lab does not have yet cannot differ from it.
        let Some(ours) = shown.get(suite.as_str()) else { continue };
        let names: Vec<&str> =
            rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names.len(), ours.len(), "{suite}");
        for (name, ours) in names.iter().zip(ours) {
            let rest =
                ours.strip_prefix(name).unwrap_or_else(|| panic!("{suite}: {name} in Go, {ours} in Rust"));
            assert!(rest.starts_with(' '), "{suite}: {name} in Go, {ours} in Rust");
        }
    }
}
