//! A short kill campaign, and its canaries.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use esker_torture::Budget;
use esker_torture::kill::{Canary, KillCampaign};

/// Longer than any campaign takes.
const TIME_MAX: Duration = Duration::from_secs(1800);

fn campaign(dir: &Path, seed: u64, rounds: u64) -> KillCampaign {
    KillCampaign {
        program: env!("CARGO_BIN_EXE_esker-torture").into(),
        dir: dir.to_owned(),
        seed,
        budget: Budget { rounds: Some(rounds), time: Some(TIME_MAX) },
        canary: None,
    }
}

/// The machine decides how much a child does until it is killed, so campaigns run until it was enough.
#[test]
fn killed_processes_lose_nothing_that_was_promised() {
    let mut acknowledged = 0;
    for seed in 1..9 {
        let dir = tempfile::tempdir().unwrap();
        let summary = campaign(dir.path(), seed, 12).run().unwrap();
        assert_eq!(summary.rounds, 12, "{summary}");
        acknowledged += summary.acknowledged;
        if acknowledged > 10 {
            return;
        }
    }
    panic!("{acknowledged} operations were acknowledged in all");
}

/// Runs until the canary is detected, which it must be.
fn caught(canary: Canary) -> String {
    let dir = tempfile::tempdir().unwrap();
    let campaign = KillCampaign { canary: Some(canary), ..campaign(dir.path(), 2, 200) };
    campaign.run().expect_err("the canary must be caught").to_string()
}

#[test]
fn a_child_that_acknowledges_too_early_is_caught() {
    let error = caught(Canary::AckEarly);
    assert!(error.contains("operations are left") && error.contains("esker-torture kill --seed"), "{error}");
}

#[test]
fn a_child_that_leaves_operations_out_is_caught() {
    let error = caught(Canary::Drop);
    assert!(error.contains("round"), "{error}");
}

#[test]
fn a_child_that_commits_halves_is_caught() {
    let error = caught(Canary::Halves);
    assert!(error.contains("match no state"), "{error}");
}

#[test]
fn a_child_whose_background_threads_panic_is_caught() {
    let error = caught(Canary::Panic);
    assert!(
        error.contains("a thread of the child panicked") && error.contains("a canary at the start"),
        "{error}"
    );
}

#[test]
fn a_child_of_which_a_writer_hangs_is_caught() {
    let error = caught(Canary::Hang);
    assert!(error.contains("a writer hangs"), "{error}");
}
