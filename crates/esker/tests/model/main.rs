//! Seeded sequences of operations, run on the database and on a model that must agree.
//!
//! ```text
//!   seed --generate.rs--> ops --world.rs--> Db on MemFs  |  history.rs, state.rs: the model
//!     on a mismatch: shrink.rs --> the seed, the command that replays it, the shortest failing part found
//! ```
//!
//! - `cargo test -p esker --test model`: a quick round.
//! - `ESKER_MODEL_SEEDS=20000 cargo test -p esker --test model agree`: more seeds.
//! - `ESKER_MODEL_SEED=7 cargo test -p esker --test model agree`: one seed.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod generate;
mod history;
mod iterate;
mod keys;
mod op;
mod read;
mod shrink;
mod state;
mod world;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::lying_fs::Lie;
use op::{Op, Opening};
use world::Sabotage;

/// Operations of a sequence.
const OPS: usize = 250;
/// Seeds of a quick round.
const SEEDS: u64 = 120;
/// Runs that shrinking may take.
const SHRINK_TRIES: usize = 600;

thread_local! {
    /// Whether panics of this thread are expected and not worth a message.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Why a run failed; `None` if it did not.
fn failure(seed: u64, first: Opening, ops: &[Op], sabotage: Option<Sabotage>) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| world::run(seed, first, ops, sabotage)));
    outcome.err().map(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
    })
}

/// Panics of the calling thread print nothing while `work` runs.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    QUIET.set(true);
    let out = work();
    QUIET.set(false);
    out
}

/// Runs a seed; if it fails, says how to see it again and what is the shortest sequence that fails.
fn run_seed(seed: u64) {
    let (first, ops) = generate::generate(seed, OPS);
    if failure(seed, first, &ops, None).is_none() {
        return;
    }
    let (short, cause) = quietly(|| {
        let short = shrink::shrink(&ops, SHRINK_TRIES, |ops| failure(seed, first, ops, None).is_some());
        let cause = failure(seed, first, &short, None);
        (short, cause)
    });
    let listing: Vec<_> = short.iter().map(|op| format!("  {op:?}\n")).collect();
    panic!(
        "seed {seed} fails; replay: ESKER_MODEL_SEED={seed} cargo test -p esker --test model agree\n\
         opened with {first:?}; the shortest failing part found:\n{}{}",
        listing.concat(),
        cause.unwrap_or_else(|| "(it fails only sometimes)".to_owned())
    );
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Runs every `parts`-th seed, so that the test runner spreads them over the cores.
fn run_part(part: u64, parts: u64) {
    match number("ESKER_MODEL_SEED") {
        Some(seed) if seed % parts == part => run_seed(seed),
        Some(_) => {}
        None => {
            (part..number("ESKER_MODEL_SEEDS").unwrap_or(SEEDS)).step_by(parts as usize).for_each(run_seed)
        }
    }
}

#[test]
fn sequences_agree_with_the_model_even_seeds() {
    run_part(0, 2);
}

#[test]
fn sequences_agree_with_the_model_odd_seeds() {
    run_part(1, 2);
}

/// Something wrong on purpose must show within a few seeds.
fn assert_noticed(sabotage: Sabotage) {
    let noticed = (0..60).any(|seed| {
        let (first, ops) = generate::generate(seed, OPS);
        quietly(|| failure(seed, first, &ops, Some(sabotage)).is_some())
    });
    assert!(noticed, "{sabotage:?} goes unnoticed");
}

#[test]
fn canary_a_model_without_removals_is_noticed() {
    assert_noticed(Sabotage::RemovalsIgnored);
}

#[test]
fn canary_a_model_without_conflicts_is_noticed() {
    assert_noticed(Sabotage::ConflictsIgnored);
}

#[test]
fn canary_syncs_that_do_nothing_are_noticed() {
    assert_noticed(Sabotage::SyncsIgnored(Lie::SyncData));
    assert_noticed(Sabotage::SyncsIgnored(Lie::SyncDir));
}
