//! Suite `keyspaces`: many keyspaces in one database with few items in each, like a service with a keyspace
//! for each user.
//!
//! ```text
//! create all -> load, at random -> commits over several -> reads -> close, open -> check every byte
//!            -> remove half -> check every byte -> size
//! ```
//!
//! One thread, 8-byte keys, 128-byte values that compress to a half; 512 MiB of cache and 4 GiB of memory in
//! all.
//!
//! An engine with one order gets a prefix of 4 bytes before each key, as its users do it. The notes of its
//! rows and its options say so. Creating and removing keyspaces is synced; the load and the commits are
//! async. An engine without async commits still has the rows that read.

use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, Feature, OpenOptions};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Budget, Measure, Part, Step, Value, Work};
use crate::suites::{Stream, Suite};

/// Operations of a row at scale `test`.
const TEST_OPS: u64 = 200;
const SEED: u64 = 37;
const VALUE_BYTES: usize = 128;
const CACHE_BYTES: u64 = 512 << 20;
const FAST: &[Durability] = &[Durability::Async, Durability::NoSync, Durability::Sync];

pub(crate) static SUITE: Suite = Suite {
    name: "keyspaces",
    summary: "many keyspaces (prefixes of keys where an engine has one order): 8-byte keys, 128-byte values of which half repeats, one thread, async",
    memory_bytes_max: |_| Some(4 << 30),
    streams: || {
        vec![
            Stream::new("items", format!("keyspaces::KeyspaceItems, seed {SEED}")),
            Stream::new("draws", format!("rng::Rng, seed {SEED}; uniform")),
        ]
    },
    parts,
    ..Suite::EMPTY
};

fn parts(scale: Scale) -> Vec<Part> {
    let (keyspaces, in_each) = match scale {
        Scale::Quick => (200, 200),
        Scale::Seed => (1_000, 2_000),
        Scale::Full => (10_000, 2_000),
        Scale::Test => (5, 10),
    };
    let (items, budget) = (keyspaces * in_each, Budget::of(scale, TEST_OPS));
    let seconds = budget.time.as_secs();
    let options = OpenOptions { value_bytes: VALUE_BYTES as u64, ..OpenOptions::with_cache(CACHE_BYTES) };
    let [create, load_row, commits, reads, open, drop, size] = rows(keyspaces, items, seconds);
    let load = Work::LoadKeyspaces { count: items };
    let (no_sync, no_async) = (Some(Feature::SyncCommits), Some(Feature::AsyncCommits));
    let ground = |measure| Measure { is_groundwork: true, ..measure };
    let steps = vec![
        Step::OpenWithin(options, &[Durability::Sync]),
        Step::row(Measure { needs: no_sync, ..Measure::new(create, Work::CreateKeyspaces) }),
        Step::Drain,
        Step::Open(options, FAST),
        Step::row(ground(Measure {
            needs: no_async,
            instead: Some(load.clone()),
            ..Measure::new(load_row, load)
        })),
        Step::Drain,
        Step::row(Measure { needs: no_async, ..Measure::new(commits, Work::CommitToKeyspaces { budget }) }),
        Step::Drain,
        Step::row(Measure::new(reads, Work::ReadKeyspaces { budget })),
        Step::OpenWithin(options, FAST),
        Step::row(ground(Measure::new(open, Work::OpenKeyspaces))),
        Step::Check,
        Step::row(Measure {
            needs: no_sync,
            value: Value::PerOperation,
            ..Measure::new(drop, Work::DropKeyspaces)
        }),
        Step::Drain,
        Step::Check,
        Step::Open(options, FAST),
        Step::Drain,
        Step::Size(size, no_sync),
    ];
    vec![Part::steps(
        &[],
        Source { number: keyspaces, ..Source::new(Kind::Keyspaces, SEED, VALUE_BYTES) },
        steps,
    )]
}

/// Returns the rows in their order.
fn rows(keyspaces: u64, items: u64, seconds: u64) -> [Row; 7] {
    let rate = |name: &str, weight, work: String| Row { weight, ..Row::rate(Unit::OpsPerSecond, name, work) };
    let create = Row {
        commits: Commits::Sync(1),
        weight: 1 + keyspaces / 100,
        ..Row::time("create", format!("a database with {keyspaces} keyspaces and one item, synced"))
    };
    let load = Row {
        ops: items,
        commits: Commits::Async(0),
        ..rate(
            "load",
            1 + items / 50_000,
            format!("{items} items, each in a random keyspace, transactions of 1,000, async; items a second"),
        )
    };
    let commits = Row {
        commits: Commits::Async(0),
        ..rate(
            "random commits",
            seconds,
            format!("one overwrite in each of 5 random keyspaces a transaction, async; {seconds} s"),
        )
    };
    let reads =
        rate("random read", seconds, format!("gets of random items in random keyspaces; {seconds} s"));
    let open = Row::time("open", format!("all of {keyspaces} keyspaces, closed before, and the first get"));
    let drop = Row {
        commits: Commits::Sync(1),
        weight: 1 + items / 100_000,
        ..Row::time("drop", format!("{} keyspaces with their items, synced; time of one", keyspaces / 2))
    };
    let size = Row::size("size", "bytes that the files occupy after it, closed and opened");
    [create, load, commits, reads, open, drop, size]
}
