//! What to say about a failure: the seed, the command that replays it, the shortest failing part found.

use crate::generate::{from_bytes, generate};
use crate::op::{Op, Opening};
use crate::runner::{BYTES_SEED, Failure, Sabotage, run_ops};
use crate::shrink::shrink;

/// Runs that shrinking may take.
const TRIES: usize = 400;

/// Makes the failure of a seed short, and describes it.
pub fn describe(seed: u64, ops: usize, failure: &Failure) -> String {
    let (first, all) = generate(seed, ops);
    let replay = format!("esker-sim replay {seed} --ops {ops}");
    let head = format!(
        "seed {seed} fails after {} operations: {}\nreplay: {replay}\n    (cargo run --release -p esker-sim -- replay {seed} --ops {ops})\n",
        failure.ops, failure.cause
    );
    head + &shortest(seed, first, &all, failure)
}

/// Makes the failure of a byte string short, and describes it.
pub fn describe_bytes(bytes: &[u8], failure: &Failure) -> String {
    let (first, all) = from_bytes(bytes);
    let head = format!("fails after {} of {} operations: {}\n", failure.ops, all.len(), failure.cause);
    head + &shortest(BYTES_SEED, first, &all, failure)
}

fn shortest(seed: u64, first: Opening, all: &[Op], failure: &Failure) -> String {
    let fails = |ops: &[_]| run_ops(seed, first, ops.to_vec(), Sabotage::default()).is_err();
    let all = &all[..all.len().min(failure.ops as usize)];
    if !fails(all) {
        return "the operations up to the failure do not fail alone: something is not deterministic\n"
            .to_owned();
    }
    let short = shrink(all, TRIES, fails);
    let cause = run_ops(seed, first, short.clone(), Sabotage::default());
    let cause = cause.err().map_or("(it fails only sometimes)".to_owned(), |failure| failure.cause);
    let listing: Vec<_> = short.iter().map(|op| format!("  {op:?}\n")).collect();
    format!(
        "opened with {first:?}\nthe shortest failing part found, {} operations:\n{}{cause}\n",
        short.len(),
        listing.concat()
    )
}
