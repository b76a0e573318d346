//! The program in Go does the same work as the lab in Rust. This compares both at the smallest scale of every
//! suite with engines of both. If Go or the modules of its engines are missing, nothing is compared. Tests of
//! both sides pin the generators by the same figures (`generate/tests.rs`, `generate_test.go`).

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

const SUITES: [&str; 15] = [
    "redb",
    "int",
    "large",
    "storage-bench",
    "obigstore",
    "records",
    "ycsb",
    "badger",
    "sizes",
    "churn",
    "keyspaces",
    "open",
    "transactions",
    "shapes",
    "time",
];
const OURS: &str = "esker";
const THEIRS: [&str; 2] = ["badger", "bbolt"];

/// Returns the records of the suites.
fn recorded() -> Vec<Value> {
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker-bench"));
    command.arg("run").args(SUITES).args(["--scale", "test", "--runs", "1", "--no-trace", "--engine", OURS]);
    command.args(THEIRS.iter().flat_map(|engine| ["--engine", engine]));
    let output = command.arg("--out").arg(out.path()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(out.path().join("results.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the fields of a record that describe the work of its row and do not depend on the engine.
fn work(record: &Value) -> Vec<(&str, Value)> {
    let counts = ["unit", "better", "ops", "commits", "user_written_bytes", "live_bytes"];
    let mut work: Vec<_> = counts.map(|name| (name, record[name].clone())).into();
    work.push(("load", record["detail"]["load"].as_str().unwrap_or_default().into()));
    for (kind, latency) in record["detail"]["latency"].as_object().into_iter().flatten() {
        work.push((kind, latency["count"].clone()));
    }
    work
}

#[test]
fn each_row_does_the_same_work() {
    if Command::new("go").arg("version").output().is_err() {
        return;
    }
    let records = recorded();
    let key = |record: &Value| ["suite", "row"].map(|name| record[name].as_str().unwrap().to_owned());
    let (ours, theirs): (Vec<_>, Vec<_>) = records.iter().partition(|record| record["engine"] == OURS);
    let ours: BTreeMap<_, _> = ours.into_iter().map(|record| (key(record), record)).collect();
    if theirs.iter().all(|record| record["error"].as_str().is_some_and(|error| error.contains("go build"))) {
        return;
    }
    let mut compared = 0;
    for record in theirs {
        if let Some(error) = record["error"].as_str() {
            // Not every process may drop the page cache.
            let is_known = error.starts_with("not run");
            assert!(is_known, "{record}");
            continue;
        }
        let ours = ours[&key(record)];
        // For example, if the page cache cannot be dropped.
        if ours["error"].is_null() {
            assert_eq!(work(record), work(ours), "{record}");
            compared += 1;
        }
    }
    assert!(compared > 120, "{compared}");
}
