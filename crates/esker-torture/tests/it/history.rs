//! A short history campaign, and its canaries.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use esker_torture::Budget;
use esker_torture::history::{Canary, HistoryCampaign};

/// Longer than any campaign takes.
const TIME_MAX: Duration = Duration::from_secs(1800);

fn campaign(dir: &Path, seed: u64, histories: u64) -> HistoryCampaign {
    let budget = Budget { rounds: Some(histories), time: Some(TIME_MAX) };
    let program = env!("CARGO_BIN_EXE_esker-torture").into();
    HistoryCampaign { program, dir: dir.to_owned(), seed, budget, threads: 4, canary: None }
}

/// Thread scheduling decides what happens, so campaigns run until everything was covered.
#[test]
fn torture_history_3_histories_are_linearizable_snapshot_isolated_and_serializable() {
    let mut seen = BTreeSet::new();
    let mut unseen = Vec::new();
    for seed in 4..36 {
        let dir = tempfile::tempdir().unwrap();
        let s = campaign(dir.path(), seed, 14).run().unwrap();
        assert!(s.committed > 100, "{s}");
        let happened = [
            ("conflicts", s.aborted),
            ("serializable transactions", s.serializable),
            ("power losses", s.power_losses),
            ("kills", s.kills),
            ("unknown outcomes", s.unknown),
            ("processes killed", s.processes_killed),
            ("a log that failed", s.log_failures),
            ("merges", s.merges),
            ("merges beside others", s.beside),
            ("tier runs", s.tiered),
            ("a full disk", s.full_lives),
            ("a full disk of a process", s.full_processes),
            ("calls that fail", s.faulty_lives),
            ("commits that were not made for it", s.not_made),
        ];
        seen.extend(happened.iter().filter(|(_, times)| *times > 0).map(|(what, _)| *what));
        unseen = happened.iter().map(|(what, _)| *what).filter(|what| !seen.contains(what)).collect();
        if unseen.is_empty() {
            return;
        }
    }
    panic!("never happened: {unseen:?}");
}

/// Runs until the canary is detected, which it must be.
fn caught(canary: Canary, seed: u64) -> String {
    let dir = tempfile::tempdir().unwrap();
    let campaign = HistoryCampaign { canary: Some(canary), ..campaign(dir.path(), seed, 600) };
    let error = campaign.run().expect_err("the canary must be caught").to_string();
    assert!(error.contains("esker-torture history --seed"), "{error}");
    error
}

/// Runs with different seeds until the canary was detected in all of these ways.
fn caught_as_each(canary: Canary, ways: &[&str]) {
    let mut unseen = ways.to_vec();
    for seed in 2..62 {
        let error = caught(canary, seed);
        unseen.retain(|way| !error.contains(way));
        if unseen.is_empty() {
            return;
        }
    }
    panic!("never seen: {unseen:?}");
}

#[test]
fn transactions_without_conflict_checks_are_caught_by_each_checker() {
    // A list that lost an element contradicts earlier reads.
    let ways = ["IncompatibleOrder", "a snapshot of the bank holds", "the counter is"];
    caught_as_each(Canary::NoConflictCheck, &ways);
}

#[test]
fn ranges_removed_without_conflict_checks_are_caught() {
    // Either another element follows the mark of a removal that did not see it, or it is lost.
    let ways = ["LostUpdate: ", "GSingle: ", "IncompatibleOrder: "];
    let is_named = |error: String| ways.iter().any(|way| error.contains(way));
    assert!((2..12).any(|seed| is_named(caught(Canary::NoRangeCheck, seed))), "caught, as something else");
}

#[test]
fn serializable_transactions_whose_ranges_are_not_looked_at_are_caught() {
    let ways = ["WriteSkew: ", "G2: "];
    let is_named = |error: String| ways.iter().any(|way| error.contains(way));
    assert!((2..12).any(|seed| is_named(caught(Canary::NoPhantomCheck, seed))), "caught, as something else");
}

#[test]
fn commits_that_are_made_although_there_was_no_space_for_them_are_caught() {
    // The first such history may only show a lost element or a register.
    let ways = ["G1a: ", "a snapshot of the bank", "the counter is"];
    let is_named = |error: String| ways.iter().any(|way| error.contains(way));
    assert!((2..12).any(|seed| is_named(caught(Canary::LateCommit, seed))), "caught, as something else");
}

#[test]
fn keyspaces_that_are_said_to_be_dropped_and_are_not_are_caught() {
    let error = caught(Canary::GhostKeyspace, 2);
    assert!(error.contains("not linearizable"), "{error}");
}

#[test]
fn keys_of_dropped_keyspaces_that_come_back_are_caught() {
    let error = caught(Canary::GhostKeys, 2);
    assert!(error.contains("not linearizable"), "{error}");
}

#[test]
fn writes_that_a_process_acknowledges_before_it_makes_them_are_caught() {
    let error = caught(Canary::EarlyReply, 2);
    assert!(error.contains("not linearizable") && error.contains("the notes of its clients"), "{error}");
}

#[test]
fn transactions_without_a_snapshot_are_caught_by_each_checker() {
    let ways = ["GSingle: ", "a snapshot of the bank holds", "long fork over the two keys"];
    caught_as_each(Canary::NoSnapshot, &ways);
}

#[test]
fn panics_of_background_threads_are_caught_whatever_ends_a_life() {
    let ways = ["a background thread panicked: a canary at the end", "a thread of the child panicked"];
    caught_as_each(Canary::Panic, &ways);
}

#[test]
fn a_client_that_hangs_is_caught() {
    let error = caught(Canary::Hang, 2);
    assert!(error.contains("the child has written no notes"), "{error}");
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
