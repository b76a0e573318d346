//! Fuzzes the API as a whole: the bytes select options, operations, crashes and faults, and the simulator
//! compares the database with its model.

use esker_sim::runner::{Sabotage, run_bytes};

/// Runs the operations of a byte string.
///
/// # Panics
/// If the database disagrees with the model.
pub fn operations(bytes: &[u8]) {
    if let Err(failure) = run_bytes(bytes, sabotage()) {
        panic!("after {} operations: {}", failure.ops, failure.cause);
    }
}

#[cfg(not(feature = "canaries"))]
fn sabotage() -> Sabotage {
    Sabotage::default()
}

/// Turns on the injected fault named by the environment, to check that a fuzzer finds it.
#[cfg(feature = "canaries")]
fn sabotage() -> Sabotage {
    use esker::canary::{Canary, set};
    let turn_on = || {
        let Ok(name) = std::env::var("ESKER_CANARY") else { return };
        let canary = Canary::ALL.into_iter().find(|canary| format!("{canary:?}") == name);
        set(Some(canary.unwrap_or_else(|| panic!("{name} is none of {:?}", Canary::ALL))));
    };
    Sabotage { engine: Some(turn_on), ..Sabotage::default() }
}
