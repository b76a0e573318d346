//! Reports a failure: the seed or position, the command that replays it, and the shortest failing part.
//! Shrinking preserves the failure: its location and its first words.

use esker_world::Failure;
use esker_world::generate::{from_bytes, generate};
use esker_world::op::{Op, Opening};

use crate::runner::{Sabotage, run_ops};
use crate::shrink::shrink;
use crate::sweep::Kind;
use esker_world::setting;

/// Maximum number of runs for shrinking.
const TRIES: usize = 400;
/// Number of words that identify a failure.
const GIST_WORDS: usize = 5;

/// Shrinks and describes the failure of a seed.
pub fn describe(seed: u64, ops: usize, failure: &Failure) -> String {
    let (first, all) = generate(seed, ops);
    let head = format!("seed {seed} fails after {} operations: {}\n", failure.ops, failure.cause);
    head + &replay(&format!("replay {seed} --ops {ops}")) + &shortest(seed, first, &all, failure)
}

/// Shrinks and describes the failure of a byte string.
pub fn describe_bytes(bytes: &[u8], failure: &Failure) -> String {
    let (first, all) = from_bytes(bytes);
    let head = format!("fails after {} of {} operations: {}\n", failure.ops, all.len(), failure.cause);
    head + &shortest(setting::seed_of_bytes(bytes), first, &all, failure)
}

/// Describes the failure of a position of a sweep.
pub fn describe_position(kind: Kind, at: u64, failure: &Failure) -> String {
    let name = kind.name();
    let head = format!("{name} at {at} fails after {} operations: {}\n", failure.ops, failure.cause);
    head + &replay(&format!("sweep {name} --at {at}"))
}

pub(crate) fn replay(arguments: &str) -> String {
    format!(
        "replay: esker-sim {arguments}\n    (cargo run --release -p esker-sim --features canaries -- {arguments})\n"
    )
}

fn shortest(seed: u64, first: Opening, all: &[Op], failure: &Failure) -> String {
    let gist = gist(&failure.cause);
    // Earlier openings decide which ones are inspected. To reproduce the failure of an inspection, all are.
    let inspects_all = gist.contains(": world_offline.");
    let name = format!("a part of what fails, in the world of seed {seed},");
    let run = |ops: &[Op]| run_ops(&name, seed, first, ops.to_vec(), Sabotage::default(), inspects_all);
    let fails = |ops: &[Op]| run(ops).is_err_and(|failure| self::gist(&failure.cause) == gist);
    let all = &all[..all.len().min(failure.ops as usize)];
    if !fails(all) {
        return "the operations up to the failure do not fail like this alone: the run is not deterministic\n"
            .to_owned();
    }
    let short = shrink(all, TRIES, fails);
    let cause = run(&short).err().map_or("(not reproducible)".to_owned(), |failure| failure.cause);
    let listing: Vec<_> = short.iter().map(|op| format!("  {op:?}\n")).collect();
    format!(
        "opened with {first:?}\nthe shortest failing part found, {} operations:\n{}{cause}\n",
        short.len(),
        listing.concat()
    )
}

/// Returns the identity of a failure: its location and the first words of its text, up to one with a number,
/// which may differ in a shorter run. Tags of invariants, as in `world.3:`, belong to the words.
pub(crate) fn gist(cause: &str) -> String {
    let (place, text) = cause.split_once(": ").unwrap_or(("", cause));
    let text = text.strip_prefix("assertion `left == right` failed: ").unwrap_or(text);
    let is_tag = |word: &str| {
        let numbered = word.strip_suffix(':').and_then(|tag| tag.split_once('.'));
        numbered.is_some_and(|(name, number)| !name.is_empty() && number.parse::<u32>().is_ok())
    };
    let names = |word: &&str| is_tag(word) || !word.contains(|c: char| c.is_ascii_digit());
    let words: Vec<_> = text.split_whitespace().take(GIST_WORDS).take_while(names).collect();
    format!("{place}: {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_failure_has_the_same_gist_and_another_one_another() {
        let same = [
            [
                "read.rs:1: world.1: get KeyNo(3): None, expected Some(4)",
                "read.rs:1: world.1: get KeyNo(7): Some(1), expected None",
            ],
            [
                "a.rs:7: world.3: model_history.1: what was found is the state of no commit in 3..=4",
                "a.rs:7: world.3: model_history.1: what was found is that",
            ],
            [
                "read.rs:5: assertion `left == right` failed: world.1: len\n  left: 1\n right: 2",
                "read.rs:5: assertion `left == right` failed: world.1: len\n  left: 3\n right: 4",
            ],
        ];
        for [a, b] in same {
            assert_eq!(gist(a), gist(b));
        }
        let other = [
            [
                "t.rs:1: world.4: without a reason: corrupt block in x",
                "t.rs:1: world.4: without a reason: no space left",
            ],
            ["t.rs:1: world.1: get KeyNo(3): None", "u.rs:1: world.1: get KeyNo(3): None"],
            ["t.rs:1: check_offline finds [", "t.rs:1: repair loses ["],
        ];
        for [a, b] in other {
            assert_ne!(gist(a), gist(b));
        }
    }
}
