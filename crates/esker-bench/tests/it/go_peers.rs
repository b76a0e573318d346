//! The Go side of the lab against the Rust side: the same bytes of every workload, rows of the same names at scale quick, and in each row of
//! scale test the same work: operations of each kind, commits, bytes handed over and bytes alive.
//!
//! Runs where `go` is found; the part of the Go program that it needs has no engine in it and builds in seconds.

#![expect(clippy::unwrap_used, reason = "helpers of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use esker_bench_api::generate::accounts::{self, Account, Accounts, Transfers};
use esker_bench_api::generate::badger::BadgerItems;
use esker_bench_api::generate::checksum::{checksum, probe};
use esker_bench_api::generate::distribution::{Distribution, Zipf};
use esker_bench_api::generate::int::Ints;
use esker_bench_api::generate::items::Items;
use esker_bench_api::generate::keyspaces::KeyspaceItems;
use esker_bench_api::generate::obigstore;
use esker_bench_api::generate::order::Order;
use esker_bench_api::generate::pool::Pool;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::generate::shapes::Shape;
use esker_bench_api::generate::storage::StorageItems;
use esker_bench_api::generate::ycsb::{VALUE_BYTES, YcsbRecords};
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

fn sum(pairs: impl Iterator<Item = u64>) -> u64 {
    pairs.fold(0, |sum: u64, pair| sum.rotate_left(1) ^ pair)
}

/// The checksums that `streams` of the Go side has, in its order.
fn streams() -> Vec<(&'static str, u64)> {
    let (items, ints, pool, ycsb) = (Items::new(3), Ints::new(3), Pool::new(3), YcsbRecords::new(3));
    let badger = BadgerItems::new(3, 128);
    let (mut draws, mut ranks, zipf) = (badger.draws(), Rng::new(1), Zipf::new(0.99));
    let (mut scattered, zipfian) =
        (Rng::new(1), Distribution::Zipfian { ranks: zipf.clone(), numbers_max: 1250 });
    let last = items.value(999);
    let storage = |sequential| {
        let (items, mut value) = (StorageItems::new(3, sequential), [0; 512]);
        sum((0..1000).map(|i| {
            items.value(i, i % 3, &mut value);
            checksum(&items.key(i), &value)
        }))
    };
    let keyspaces = || {
        let (items, mut value) = (KeyspaceItems::new(3, 1000), [0; 128]);
        sum((0..1000).map(|i| {
            items.value(i, i % 3, &mut value);
            checksum(&[&items.keyspace(i).to_be_bytes()[..], &items.key(i)].concat(), &value)
        }))
    };
    let mut hotspots = obigstore::Hotspots::new(3, 0.99, 4);
    let pair = |key: obigstore::Key| {
        let mut value = [0; 33];
        obigstore::value(&key, &mut value);
        checksum(&key, &value)
    };
    let accounts = Accounts::new(3);
    let account_of = |i: u64| {
        let mut value = [0; accounts::VALUE_BYTES];
        accounts.value(i, Account { balance: 7 - i as i64, changes: i }, &mut value);
        checksum(&accounts.key(i), &value)
    };
    let mut transfers = Transfers::new(accounts, 2, 100);
    let mut transfer = || {
        let mut drawn = [0; 4];
        let amount = transfers.draw(&mut drawn) as u64;
        drawn.iter().fold(amount, |sum: u64, i| sum.rotate_left(7) ^ i)
    };
    let shapes = || {
        let mut key = Vec::new();
        sum(Shape::ALL.into_iter().flat_map(|shape| (0..100).map(move |i| (shape, i))).map(|(shape, i)| {
            let mut value = vec![0; shape.value_bytes()];
            shape.key(3, i, &mut key);
            shape.value(3, i, &mut value);
            checksum(&key, &value)
        }))
    };
    vec![
        ("redb", sum((0..1000).map(|i| checksum(&items.key(i), &items.value(i))))),
        ("int", sum((0..1000).map(|i| checksum(&ints.key(i), &ints.value(i))))),
        ("large", sum((0..3).map(|i| checksum(&[], pool.value(i, 2_000_000))))),
        (
            "badger",
            sum((0..1000).map(|_| draws.below(1000)).map(|k| checksum(&badger.key(k), badger.value(k)))),
        ),
        (
            "ycsb",
            sum((0..1000).map(|i| {
                let mut value = [0; VALUE_BYTES];
                ycsb.value(i, i % 3, &mut value);
                checksum(&ycsb.key(i), &value)
            })),
        ),
        ("storage-bench random", storage(false)),
        ("storage-bench sequential", storage(true)),
        ("keyspaces", keyspaces()),
        ("obigstore sequential", sum((0..1000).map(|i| pair(obigstore::sequential_key(i))))),
        ("obigstore random", sum((0..1000).map(|i| pair(obigstore::random_key(3, i))))),
        ("obigstore hotspots", sum((0..1000).map(|_| pair(hotspots.next_key().0)))),
        ("accounts", sum((0..1000).map(account_of))),
        ("transfers", sum((0..1000).map(|_| transfer()))),
        ("shapes", shapes()),
        ("zipfian", sum((1000..1100).map(|n| zipfian.draw(&mut scattered, n)))),
        ("zipf", sum((0..1000).map(|_| zipf.rank(&mut ranks, 1_000_000)))),
        ("order", sum(Order::new(351_000, 7).skip_to(1000).take(1000))),
        ("probe", sum((0..20).map(|n| probe(&last[..n])))),
        ("probe of large values", sum((0..100).map(|n| probe(pool.value(n, 1000 + n as usize))))),
    ]
}

#[test]
fn the_streams_are_byte_for_byte_the_same() {
    let Some(described) = describe(&["streams"]) else { return };
    let theirs: Vec<(&str, u64)> = described
        .as_array()
        .unwrap()
        .iter()
        .map(|stream| (stream["name"].as_str().unwrap(), stream["sum"].as_u64().unwrap()))
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
