//! The short form of the power loss campaign, and its canaries.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use esker_torture::Budget;
use esker_torture::power::{Canary, PowerCampaign};

fn campaign(dir: &Path, seed: u64, runs: u64) -> PowerCampaign {
    let budget = Budget { rounds: Some(runs), time: Some(Duration::from_secs(120)) };
    PowerCampaign { dir: dir.to_owned(), seed, budget, moments: 4, canary: None }
}

#[test]
fn p1_p2_p3_p4_power_losses_take_nothing_that_was_promised() {
    let dir = tempfile::tempdir().unwrap();
    let summary = campaign(dir.path(), 1, 4).run().unwrap();
    assert!(summary.losses > 20 && summary.after_kill > 0 && summary.lost > 0, "{summary}");
    assert!(!summary.timed_sync.is_zero(), "P4: {summary}");
    assert!(summary.merges > 0 && summary.tiered > 0 && summary.recycled > 0, "{summary}");
}

/// Runs until the canary is caught; it must be.
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
