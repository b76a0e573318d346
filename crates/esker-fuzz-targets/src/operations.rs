//! The API as a whole: the bytes choose options, operations, crashes and faults, and the simulator compares what the
//! database does with its model.

use esker_sim::runner::{Sabotage, run_bytes};

/// Runs the operations that the bytes stand for.
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

/// Turns on the deliberate fault that the environment names, to see a fuzzer find it.
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
