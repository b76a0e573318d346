//! Reports a failure: the harms, the violated requirement, the command that replays it, and the harms and
//! operations that it needs. Shrinking preserves the failure, as in the report of a simulation.

use super::harm::Harm;
use super::subject::Plan;
use super::{RunOptions, harms, try_plan};
use crate::report::{gist, replay};
use crate::shrink::shrink;
use esker_world::Failure;
use esker_world::op::Op;

/// Maximum number of runs for shrinking the harms and the operations, each.
const TRIES: usize = 200;

/// Shrinks and describes the failure of a seed.
pub fn describe(seed: u64, ops: usize, failure: &Failure) -> String {
    let head = format!("seed {seed} fails: {}\n", failure.cause);
    let replay = replay(&format!("damage {seed} --ops {ops}"));
    // A failure before the damage belongs to the simulation.
    let all = harms(seed, ops).unwrap_or_default();
    format!("{head}{}{replay}{}", listed("the harms", &all), shortest(seed, ops, &all, failure))
}

fn listed<T: std::fmt::Display>(what: &str, items: &[T]) -> String {
    let lines: Vec<_> = items.iter().map(|item| format!("  {item}\n")).collect();
    format!("{what}:\n{}", lines.concat())
}

fn shortest(seed: u64, ops: usize, all: &[Harm], failure: &Failure) -> String {
    let plan = Plan::of(seed, ops);
    let gist_of_all = gist(&failure.cause);
    let run = |left: &[Op], harms: &[Harm]| {
        try_plan(plan.with_ops(left), ops, RunOptions::default(), Some(harms.to_vec()))
    };
    let fails = |left: &[Op], harms: &[Harm]| {
        run(left, harms).is_err_and(|failure| gist(&failure.cause) == gist_of_all)
    };
    if !fails(&plan.ops, all) {
        return "these harms do not make it fail like this again: something is not deterministic\n"
            .to_owned();
    }
    let needed = shrink(all, TRIES, |harms| fails(&plan.ops, harms));
    let short = shrink(&plan.ops, TRIES, |left| fails(left, &needed));
    let cause = run(&short, &needed).err().map(|failure| failure.cause);
    let cause = cause.unwrap_or_else(|| "(it fails only sometimes)".to_owned());
    let shown: Vec<_> = short.iter().map(|op| format!("{op:?}")).collect();
    let what = format!("opened with {:?}; the operations needed, {}", plan.opening, short.len());
    format!("{}{}{cause}\n", listed("the harms needed", &needed), listed(&what, &shown))
}
