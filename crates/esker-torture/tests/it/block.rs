//! A short campaign below the file system, and its canary. Requires root, FUSE and loop devices. Without them
//! the tests are skipped with a message, or fail if `ESKER_REQUIRE` names `block`.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use esker_torture::Budget;
use esker_torture::block::{BlockCampaign, Canary};

fn campaign(dir: &Path, seed: u64, runs: u64) -> BlockCampaign {
    let budget = Budget { rounds: Some(runs), time: Some(Duration::from_secs(1800)) };
    BlockCampaign { dir: dir.to_owned(), seed, budget, moments: 4, canary: None }
}

/// Returns whether the test must be skipped. Fails if the environment requires it.
fn is_kept_from(campaign: &BlockCampaign) -> bool {
    let Some(obstacle) = campaign.obstacle() else { return false };
    let required = std::env::var("ESKER_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == "block"), "ESKER_REQUIRE={required}: {obstacle}");
    // Written directly, because the output of a passing test is not shown.
    let _ = writeln!(std::io::stderr(), "block: SKIPPED, nothing was tested: {obstacle}");
    true
}

#[test]
fn what_ext4_makes_of_a_power_loss_keeps_every_promise() {
    let dir = tempfile::tempdir().unwrap();
    let campaign = campaign(dir.path(), 1, 3);
    if is_kept_from(&campaign) {
        return;
    }
    let summary = campaign.run().unwrap();
    assert!(summary.losses > 10 && summary.flushes > 0 && summary.acknowledged > 0, "{summary}");
}

#[test]
fn a_drive_that_does_not_flush_is_caught() {
    let dir = tempfile::tempdir().unwrap();
    let campaign = BlockCampaign { canary: Some(Canary::Flush), ..campaign(dir.path(), 2, 50) };
    if is_kept_from(&campaign) {
        return;
    }
    let error = campaign.run().expect_err("the canary must be caught").to_string();
    assert!(error.contains("esker-torture block --seed"), "{error}");
}
