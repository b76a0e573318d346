//! A short power loss campaign, and its canaries.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use esker_torture::Budget;
use esker_torture::power::{Canary, PowerCampaign};

/// Longer than any campaign takes.
const TIME_MAX: Duration = Duration::from_secs(1800);

fn campaign(dir: &Path, seed: u64, runs: u64) -> PowerCampaign {
    let budget = Budget { rounds: Some(runs), time: Some(TIME_MAX) };
    PowerCampaign { dir: dir.to_owned(), seed, budget, moments: 4, canary: None }
}

/// Thread scheduling decides what happens, so campaigns run until everything was covered.
#[test]
fn power_losses_take_nothing_that_was_promised() {
    let mut seen = BTreeSet::new();
    let mut unseen = Vec::new();
    for seed in 1..9 {
        let dir = tempfile::tempdir().unwrap();
        let s = campaign(dir.path(), seed, 4).run().unwrap();
        assert!(s.runs == 4 && s.losses >= 20, "{s}");
        assert!(s.timed_sync_ms > 0, "timed sync: {s}");
        let met = [
            ("more than 20 losses", s.losses - 20),
            ("lives after a kill", s.after_kill),
            ("commits that may be lost", s.lost),
            ("merges", s.merges),
            ("merges beside others", s.beside),
            ("tier runs", s.tiered),
            ("segments used again", s.recycled),
        ];
        seen.extend(met.iter().filter(|(_, times)| *times > 0).map(|(what, _)| *what));
        unseen = met.iter().map(|(what, _)| *what).filter(|what| !seen.contains(what)).collect();
        if unseen.is_empty() {
            return;
        }
    }
    panic!("never met: {unseen:?}");
}

/// Runs until the canary is detected, which it must be.
fn caught(canary: Canary) -> String {
    let dir = tempfile::tempdir().unwrap();
    let campaign = PowerCampaign { canary: Some(canary), ..campaign(dir.path(), 2, 100) };
    campaign.run().expect_err("the canary must be caught").to_string()
}

#[test]
fn a_disk_that_does_not_sync_files_is_caught() {
    let error = caught(Canary::SyncFile);
    assert!(error.contains("esker-torture power --seed"), "{error}");
}

#[test]
fn a_disk_that_does_not_sync_directories_is_caught() {
    let error = caught(Canary::SyncDir);
    assert!(error.contains("esker-torture power --seed"), "{error}");
}
