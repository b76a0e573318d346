//! What to say about a failure: the seed, the command that replays it, the shortest failing part found.

use crate::generate::generate;
use crate::runner::{Failure, Sabotage, run_ops};
use crate::shrink::shrink;

/// Runs that shrinking may take.
const TRIES: usize = 400;

/// Makes the failure of a seed short, and describes it.
pub fn describe(seed: u64, ops: usize, failure: &Failure) -> String {
    let (first, all) = generate(seed, ops);
    let fails = |ops: &[_]| run_ops(seed, first, ops.to_vec(), Sabotage::default()).is_err();
    let replay = format!("esker-sim replay {seed} --ops {ops}");
    let head = format!(
        "seed {seed} fails after {} operations: {}\nreplay: {replay}\n    (cargo run --release -p esker-sim -- replay {seed} --ops {ops})\n",
        failure.ops, failure.cause
    );
    let all = &all[..all.len().min(failure.ops as usize)];
    if !fails(all) {
        return format!(
            "{head}the operations up to the failure do not fail alone: something is not deterministic\n"
        );
    }
    let short = shrink(all, TRIES, fails);
    let cause = run_ops(seed, first, short.clone(), Sabotage::default());
    let cause = cause.err().map_or("(it fails only sometimes)".to_owned(), |failure| failure.cause);
    let listing: Vec<_> = short.iter().map(|op| format!("  {op:?}\n")).collect();
    format!(
        "{head}opened with {first:?}\nthe shortest failing part found, {} operations:\n{}{cause}\n",
        short.len(),
        listing.concat()
    )
}
