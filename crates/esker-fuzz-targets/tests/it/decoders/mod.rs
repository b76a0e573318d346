//! Runs all decoders on thousands of damaged inputs: a short form of the fuzz targets.
//!
//! ```text
//!   seeds.rs: valid inputs --mutate.rs--> damaged input --> decoder: no panic, bounded time and memory
//! ```
//!
//! No input makes a decoder panic, allocate more than [`MEMORY_BYTES_MAX`], or repeatedly take longer than
//! [`TIME_MAX`]. Targets also check that decoded values are encoded to the same bytes. The long form:
//! docs/testing.md
#![expect(clippy::disallowed_methods, reason = "it measures time")]

mod mutate;

use std::time::{Duration, Instant};

use esker_fuzz_targets::{TARGETS, seeds::seeds};
use fastrand::Rng;

use crate::memory;

/// Number of damaged inputs per decoder.
const ROUNDS: u64 = 10_000;
/// Inputs are a few KiB. The limit allows for the best compression ratio.
const MEMORY_BYTES_MAX: usize = 128 << 20;
/// Generous, because machines under load stall: detects unbounded work.
const TIME_MAX: Duration = Duration::from_secs(10);

/// A decoder and its valid inputs.
struct Target {
    name: &'static str,
    run: fn(&[u8]),
    seeds: Vec<Vec<u8>>,
}

/// Defines a test for each decoder.
macro_rules! test_decoders {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            hammer(&find(stringify!($name)));
        })*

        #[test]
        fn every_target_is_tested_and_fuzzed() {
            let names: Vec<_> = TARGETS.iter().map(|t| t.name).collect();
            assert_eq!(names, [$(stringify!($name),)* "operations"]);
            let manifest = include_str!("../../../../../fuzz/Cargo.toml");
            for name in names {
                assert!(manifest.contains(&format!("\"fuzz_targets/{name}.rs\"")), "{name} is no fuzz target");
            }
        }
    };
}

test_decoders! {
    numbers
    compression
    filter
    record_file
    table_block
    table_index
    table_footer
    table_parts
    table_stored
    table
    salvage_table
    wal_segment
    salvage_log
    commit_payload
    version_edit
    manifest_file
    current
    catalog
    backup_record
    backup_stream
    key_file
    unload_record
    shared_requests
    shared_replies
    shared_session
    tuple_key
}

fn find(name: &str) -> Target {
    let target = esker_fuzz_targets::find(name).expect("a target of this name");
    Target { name: target.name, run: target.run, seeds: seeds(name).expect("valid inputs") }
}

fn hammer(target: &Target) {
    for seed in &target.seeds {
        check(target, seed, "a valid input");
    }
    for round in 0..ROUNDS {
        let mut rng = Rng::with_seed(round);
        check(target, &mutate::damaged(&mut rng, &target.seeds), &format!("round {round}"));
    }
}

fn check(target: &Target, input: &[u8], what: &str) {
    let report = Report { target: target.name, what, input };
    let start = Instant::now();
    let peak = memory::peak_of(|| (target.run)(input));
    assert!(peak <= MEMORY_BYTES_MAX, "{peak} bytes allocated");
    let took = start.elapsed();
    assert!(took <= TIME_MAX || is_in_time(target, input), "{took:?}");
    std::mem::forget(report);
}

/// Returns whether one of three attempts is fast enough, because a machine may stall once.
fn is_in_time(target: &Target, input: &[u8]) -> bool {
    (0..3).any(|_| {
        let start = Instant::now();
        (target.run)(input);
        start.elapsed() <= TIME_MAX
    })
}

/// Names the input if the test panics.
struct Report<'a> {
    target: &'a str,
    what: &'a str,
    input: &'a [u8],
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        let hex: String = self.input.iter().map(|b| format!("{b:02x}")).collect();
        eprintln!("decoder {} failed on {}: {hex}", self.target, self.what);
    }
}

/// A range tombstone of 100 KB with long keys and many sequence numbers. Copying the keys for each number
/// would take 800 MB.
#[test]
fn keys_of_range_tombstones_are_not_copied_for_each_number() {
    const KEY_BYTES: u32 = 20_000;
    const SEQS: u32 = 20_000;
    // The shortest encoding in three bytes.
    let varint3 = |n: u32| [n as u8 | 0x80, (n >> 7) as u8 | 0x80, (n >> 14) as u8];
    let key = |byte: u8| [&varint3(KEY_BYTES)[..], &vec![byte; KEY_BYTES as usize]].concat();
    let mut input = [&[1][..], &key(b'a'), &key(b'b'), &varint3(SEQS)].concat();
    (0..SEQS).rev().for_each(|n| input.extend(varint3(n + (1 << 14))));
    check(&find("table_parts"), &input, "long keys and many numbers");
}

fn canary(run: fn(&[u8])) {
    hammer(&Target { name: "canary", run, seeds: vec![vec![7, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]] });
}

#[test]
#[should_panic(expected = "range end index")]
fn canary_d1_an_unchecked_length_is_found() {
    canary(|bytes| {
        let len = bytes.first().copied().unwrap_or(0);
        let _ = &bytes[..usize::from(len)];
    });
}

#[test]
#[should_panic(expected = "bytes allocated")]
fn canary_d2_an_unchecked_allocation_is_found() {
    canary(|bytes| {
        let Some(len) = bytes.first_chunk::<4>() else { return };
        let len = u32::from_le_bytes(*len).min(1 << 30);
        std::hint::black_box(Vec::<u8>::with_capacity(len as usize));
    });
}
