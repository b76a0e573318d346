//! Suite `transactions`: writers that read what they write, all at once, over many accounts or few.
//!
//! Each engine has its own kind of transactions, and some have two. So there are two families of rows:
//! `optimistic`, where conflicts appear at the commit, and `waiting`, where writers wait for a lock or for
//! each other. An engine that lacks one kind uses the other, and a note on each row says so. Accounts of a
//! transfer are read in the order of their keys, so that locks cannot deadlock.

use esker_bench_api::generate::accounts::VALUE_BYTES;
use esker_bench_api::results::Unit;
use esker_bench_api::{Durability, OpenOptions, TransactionKind};

use crate::row::{Commits, Row};
use crate::scale::Scale;
use crate::suites::items::{Kind, Source};
use crate::suites::plan::{Budget, Group, Measure, Part, Step, Work};
use crate::suites::{Stream, Suite};

/// Commits of a row at scale `test`, of all its writers together.
const TEST_COMMITS: u64 = 96;
const SEED: u64 = 41;
/// Number of accounts from which a contended row draws.
const HOT: u64 = 32;
const WRITERS: [u64; 3] = [1, 4, 16];
const CACHE_BYTES: u64 = 512 << 20;

pub(crate) static SUITE: Suite = Suite {
    name: "transactions",
    summary: "transfers between 4 accounts, 1 to 16 writers at once: each reads and writes 4 keys of 16 bytes with values of 100, drawn from all or from 32; commits a second",
    memory_bytes_max: |_| Some(4 << 30),
    // A sync serves at most all writers.
    syncs_per_commit_min: |_| 1.0 / WRITERS[WRITERS.len() - 1] as f64,
    streams: || {
        vec![
            Stream::new("accounts", format!("accounts::Accounts, seed {SEED}")),
            Stream::new("transfers", "accounts::Transfers of each writer"),
        ]
    },
    parts: |scale| {
        vec![
            part(scale, "optimistic", TransactionKind::Optimistic, Durability::Sync),
            part(scale, "optimistic", TransactionKind::Optimistic, Durability::Async),
            part(scale, "waiting", TransactionKind::Locks, Durability::Sync),
            part(scale, "waiting", TransactionKind::Locks, Durability::Async),
        ]
    },
    ..Suite::EMPTY
};

fn part(scale: Scale, family: &str, kind: TransactionKind, durability: Durability) -> Part {
    let (accounts, budget) = match scale {
        Scale::Quick => (100_000, Budget::of_seconds(1)),
        Scale::Seed => (1_000_000, Budget::of_seconds(10)),
        Scale::Full => (10_000_000, Budget::of_seconds(60)),
        Scale::Test => (60, Budget::test(TEST_COMMITS)),
    };
    let seconds = budget.time.as_secs();
    let (mode, commits) = match durability {
        Durability::Sync => ("sync", Commits::Sync(0)),
        _ => ("async", Commits::Async(0)),
    };
    let transfers = |contention: &str, writers: u64, below: u64| {
        let s = if writers == 1 { "" } else { "s" };
        let name = format!("{family}, {contention}, {writers} writer{s}, {mode}");
        let work = format!(
            "transfers between 4 of {below} accounts, {accounts} in all, {mode}; {seconds} s; commits a second"
        );
        let weight = seconds + accounts / 500_000;
        let row = Row { weight, commits, ..Row::rate(Unit::OpsPerSecond, name, work) };
        [Step::row(Measure::new(row, Work::Transfer { writers, below, budget })), Step::Drain, Step::Check]
    };
    let mut steps = Vec::new();
    for writers in WRITERS {
        let options = OpenOptions {
            value_bytes: VALUE_BYTES as u64,
            concurrent_writes: writers,
            durability,
            ..OpenOptions::with_cache(CACHE_BYTES)
        };
        steps.push(Step::Open(options, &[]));
        if writers == WRITERS[0] {
            steps.extend([Step::Load("accounts", Work::LoadAccounts { count: accounts }), Step::Drain]);
        }
        steps.extend(transfers("uncontended", writers, accounts));
        // A single writer has no conflicts.
        if writers > 1 {
            steps.extend(transfers("contended", writers, HOT));
        }
    }
    Part::Steps(Group {
        needs: vec![durability.feature()],
        source: Source::new(Kind::Accounts, SEED, VALUE_BYTES),
        transactions: Some(kind),
        steps,
    })
}
