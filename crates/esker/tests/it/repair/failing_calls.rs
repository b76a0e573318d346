//! Calls that fail during a repair. Repair reads the same files several times, and a later read may fail.

use std::sync::Arc;

use esker_env::{FaultAction, FaultFs, FaultRule, MemFs, OpKind};

use super::judge::{builder, target, unexplained};
use crate::common::contents::dump_sound;
use crate::common::damage::Golden;
use crate::common::{DIR, dir, simulated};

/// Counts of repairs that reported no loss, that reported losses, and that failed.
#[derive(Debug, Default, PartialEq)]
struct Outcomes([u64; 3]);

/// Repairs repeatedly, with each of these calls failing in turn this many times.
fn repair_with_failing(golden: &Golden, op: OpKind, times: u64) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let rule =
        FaultRule::new(&[op], FaultAction::Fail(std::io::ErrorKind::Other)).on_path(&format!("{DIR}/"));
    for nth in 1.. {
        let fs: MemFs = golden.copy();
        let faulty = FaultFs::new(Arc::new(fs.clone()));
        faulty.add(FaultRule { times, ..rule.clone() }.nth(nth));
        let repaired = simulated(Arc::new(faulty.clone())).repair(dir(), target());
        if faulty.fired() == 0 {
            break;
        }
        let what = format!("{op:?} {nth}, {times} times");
        let Ok(report) = repaired else {
            outcomes.0[2] += 1;
            continue;
        };
        let found = dump_sound(&builder(&fs).open(target()).unwrap()).unwrap();
        assert_eq!(unexplained(golden, &report, &found), None, "{what}: {report:#?}");
        outcomes.0[usize::from(!report.losses.is_empty())] += 1;
    }
    outcomes
}

fn judge_all(golden: &Golden) {
    for op in [OpKind::Read, OpKind::Open] {
        for times in [1, 3, u64::MAX] {
            let Outcomes([quiet, reported, _]) = repair_with_failing(golden, op, times);
            assert!(
                reported > 0 && quiet + reported > 5,
                "{op:?}, {times} times: {quiet} quiet, {reported} reported"
            );
        }
    }
}

#[test]
fn a_call_that_fails_at_any_moment_loses_nothing_of_tables_unreported() {
    judge_all(&Golden::layered());
    judge_all(&Golden::twins());
}

#[test]
fn a_call_that_fails_at_any_moment_loses_nothing_of_the_log_unreported() {
    judge_all(&Golden::killed());
    judge_all(&Golden::segmented());
}
