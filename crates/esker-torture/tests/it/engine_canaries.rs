//! Each harness with threads finds bugs of the engine itself, not only lies of children and disks.
//!
//! ```text
//!   esker-torture kill | power | history, the engine broken in all its threads --> the campaign must fail
//! ```
//!
//! The engine is broken by the environment (`crates/esker/src/types/canary.rs`), for the campaign and for its children.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

/// Runs a campaign until it finds the fault; it must. How long that takes is up to the scheduler and to the machine, so the limits are far off.
fn caught(canary: &str, campaign: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker-torture"));
    command.args(campaign).args(["--seed", "2", "--seconds", "1800", "--dir"]).arg(dir.path());
    let output = command.env("ESKER_CANARY", canary).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{canary} goes unnoticed by {campaign:?}");
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
fn power_4_power_finds_a_timed_sync_that_does_nothing() {
    caught("TimedSyncSkipped", &["power", "--runs", "0"]);
}

#[test]
fn history_finds_faults_of_the_engine() {
    for canary in ["ConflictCheckSkipped", "ReadCheckSkipped", "WalSyncSkipped"] {
        caught(canary, &["history", "--histories", "1000"]);
    }
}

/// The loss takes a sync of the directory that fails, a table that counts all the same, and a power loss right behind it.
#[test]
fn history_finds_tables_whose_names_are_not_durable() {
    caught("TableNameFailureIgnored", &["history", "--histories", "20000"]);
}
