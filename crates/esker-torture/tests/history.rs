//! The short form of the history campaign, and its canaries.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use esker_torture::Budget;
use esker_torture::history::{Canary, HistoryCampaign};

fn campaign(dir: &Path, seed: u64, histories: u64) -> HistoryCampaign {
    let budget = Budget { rounds: Some(histories), time: Some(Duration::from_secs(120)) };
    let program = env!("CARGO_BIN_EXE_esker-torture").into();
    HistoryCampaign { program, dir: dir.to_owned(), seed, budget, threads: 4, canary: None }
}

#[test]
fn h1_h2_h3_histories_are_linearizable_and_snapshot_isolated() {
    let dir = tempfile::tempdir().unwrap();
    let summary = campaign(dir.path(), 4, 14).run().unwrap();
    assert!(summary.committed > 100 && summary.aborted > 0, "{summary}");
    assert!(summary.power_losses > 0 && summary.kills > 0 && summary.unknown > 0, "{summary}");
    assert!(summary.processes_killed > 0, "{summary}");
}

/// Runs until the canary is caught; it must be.
fn caught(canary: Canary, seed: u64) -> String {
    let dir = tempfile::tempdir().unwrap();
    let campaign = HistoryCampaign { canary: Some(canary), ..campaign(dir.path(), seed, 60) };
    let error = campaign.run().expect_err("the canary must be caught").to_string();
    assert!(error.contains("esker-torture history --seed"), "{error}");
    error
}

#[test]
fn transactions_without_conflict_checks_are_caught_by_each_checker() {
    // A list that loses an element contradicts what others have read.
    let mut unseen = vec!["IncompatibleOrder", "a snapshot of the bank holds", "the counter is"];
    for seed in 2..62 {
        let error = caught(Canary::NoConflictCheck, seed);
        unseen.retain(|anomaly| !error.contains(anomaly));
        if unseen.is_empty() {
            return;
        }
    }
    panic!("never seen: {unseen:?}");
}

#[test]
fn writes_that_a_process_acknowledges_before_it_makes_them_are_caught() {
    let error = caught(Canary::EarlyReply, 2);
    assert!(error.contains("not linearizable") && error.contains("what its clients wrote down"), "{error}");
}

#[test]
fn transactions_without_a_snapshot_are_caught() {
    caught(Canary::NoSnapshot, 2);
}

#[test]
fn stale_reads_are_caught() {
    let error = caught(Canary::StaleReads, 2);
    assert!(error.contains("not linearizable"), "{error}");
}

#[test]
fn a_crash_that_forgets_is_caught() {
    caught(Canary::ForgetfulCrash, 2);
}
