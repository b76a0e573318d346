//! What a call costs in a guest and in the host: medians of rounds that take turns.
//!
//! `cargo run --release -p esker-shared --example guest_costs -- DIRECTORY`

#![expect(clippy::disallowed_methods, reason = "a program around the engine")]

use std::process::Command;
use std::time::{Duration, Instant};

use esker::{Db, Durability};
use esker_shared::{Result, Shared, SharedKeyspace};

const KEYS: u64 = 100_000;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(400);

fn engine() -> esker::Builder {
    Db::builder().durability(Durability::Buffered)
}

/// Calls in a loop for one round. Returns the nanoseconds of a call.
fn round<T>(mut call: impl FnMut(u64) -> T) -> u64 {
    let (began, mut calls) = (Instant::now(), 0_u64);
    while began.elapsed() < ROUND {
        for _ in 0..32 {
            std::hint::black_box(call(calls.wrapping_mul(7919) % KEYS));
            calls += 1;
        }
    }
    began.elapsed().as_nanos() as u64 / calls
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// The nanoseconds of each call, by its name.
fn calls(ks: &SharedKeyspace, shared: &Shared) -> Vec<(&'static str, u64)> {
    let get = round(|n| ks.get(n.to_be_bytes()).expect("get"));
    let put = round(|n| ks.put(n.to_be_bytes(), [7; 100]).expect("put"));
    let add = round(|n| ks.fetch_add([&b"n"[..], &n.to_be_bytes()].concat(), 1).expect("fetch_add"));
    let scan =
        round(|n| ks.range(n.to_be_bytes()..).take(100).map(|e| e.expect("range").1.len()).sum::<usize>());
    let two = round(|n| {
        let moved = shared.transact(|t| -> Result<()> {
            t.put(ks, n.to_be_bytes(), [7; 100])?;
            t.put(ks, (n + KEYS).to_be_bytes(), [7; 100])
        });
        moved.expect("transact");
    });
    vec![
        ("get", get),
        ("put", put),
        ("fetch_add", add),
        ("range of 100", scan),
        ("transaction of 2 puts", two),
    ]
}

fn worker(dir: &str) -> Result<()> {
    let shared = Shared::builder().engine(engine()).open(dir)?;
    let ks = shared.keyspace("k")?;
    assert!(!shared.is_host());
    for (name, nanos) in calls(&ks, &shared) {
        println!("{name}\t{nanos}");
    }
    shared.close()
}

/// Runs guests at the same time, and returns the lines of all.
fn guests(dir: &str, count: usize) -> Vec<(String, u64)> {
    let program = std::env::current_exe().expect("its name");
    let start = |_| {
        let mut command = Command::new(&program);
        command.args([dir, "guest"]).stdout(std::process::Stdio::piped()).spawn().expect("a process")
    };
    let children: Vec<_> = (0..count).map(start).collect();
    let mut lines = Vec::new();
    for child in children {
        let output = child.wait_with_output().expect("its output");
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let (name, nanos) = line.split_once('\t').expect("two fields");
            lines.push((name.to_owned(), nanos.parse().expect("a number")));
        }
    }
    lines
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let dir = args.get(1).expect("a directory");
    if args.len() > 2 {
        return worker(dir);
    }
    // The engine alone.
    let db = engine().open(dir)?;
    let ks = db.keyspace("k")?;
    for n in 0..KEYS {
        ks.put(n.to_be_bytes(), [7; 100])?;
    }
    db.close()?;
    let mut found: Vec<(String, Vec<u64>)> = Vec::new();
    let mut note = |name: String, nanos: u64| match found.iter_mut().find(|(known, _)| *known == name) {
        Some((_, all)) => all.push(nanos),
        None => found.push((name, vec![nanos])),
    };
    for _ in 0..ROUNDS {
        let db = engine().open(dir)?;
        let ks = db.keyspace("k")?;
        note("engine alone: get".to_owned(), round(|n| ks.get(n.to_be_bytes()).expect("get")));
        note("engine alone: put".to_owned(), round(|n| ks.put(n.to_be_bytes(), [7; 100]).expect("put")));
        db.close()?;
        let shared = Shared::builder().engine(engine()).open(dir)?;
        let ks = shared.keyspace("k")?;
        let native = shared.db().expect("the host").keyspace("k")?;
        note("host by Shared::db: get".to_owned(), round(|n| native.get(n.to_be_bytes()).expect("get")));
        calls(&ks, &shared).into_iter().for_each(|(name, nanos)| note(format!("host: {name}"), nanos));
        guests(dir, 1).into_iter().for_each(|(name, nanos)| note(format!("1 guest: {name}"), nanos));
        guests(dir, 4).into_iter().for_each(|(name, nanos)| note(format!("4 guests, each: {name}"), nanos));
        shared.close()?;
    }
    for (name, nanos) in found {
        println!("{:>9} ns  {name}", median(nanos));
    }
    Ok(())
}
