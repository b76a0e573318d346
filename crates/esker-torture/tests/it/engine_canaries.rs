//! Tests that each harness with threads detects faults of the engine itself, not only of children and disks.
//!
//! ```text
//!   esker-torture kill | power | history, with a fault in the engine --> the campaign must fail
//! ```
//!
//! The fault is selected by the environment (`crates/esker/src/types/canary.rs`), for the campaign and its
//! children.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

/// Runs a campaign until it detects the fault, which it must. The duration depends on scheduling, so the
/// limits are generous.
fn caught(canary: &str, campaign: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker-torture"));
    command.args(campaign).args(["--seed", "2", "--seconds", "1800", "--dir"]).arg(dir.path());
    let output = command.env("ESKER_CANARY", canary).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{canary} is not detected by {campaign:?}");
    assert!(error.contains(&format!("esker-torture {} --seed 2", campaign[0])), "{canary}: {error}");
    println!("{canary}: {error}");
}

#[test]
fn kill_finds_faults_of_the_engine() {
    for canary in ["CountNotUpdated", "SeqNoReused", "ConflictCheckSkipped"] {
        caught(canary, &["kill", "--rounds", "2000"]);
    }
}

#[test]
fn power_finds_faults_of_the_engine() {
    for canary in ["WalSyncSkipped", "CurrentNotSynced"] {
        caught(canary, &["power", "--runs", "1000", "--moments", "8"]);
    }
}

#[test]
fn power_finds_a_timed_sync_that_does_nothing() {
    caught("TimedSyncSkipped", &["power", "--runs", "0"]);
}

#[test]
fn history_finds_faults_of_the_engine() {
    for canary in ["ConflictCheckSkipped", "ReadCheckSkipped", "WalSyncSkipped"] {
        caught(canary, &["history", "--histories", "1000"]);
    }
}

/// The loss requires a failed directory sync, a table that counts nevertheless, and a power loss right after
/// it.
#[test]
fn history_finds_tables_whose_names_are_not_durable() {
    caught("TableNameFailureIgnored", &["history", "--histories", "20000"]);
}
