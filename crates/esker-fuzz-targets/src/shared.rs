//! Fuzzes what the processes of a shared database send to each other. On systems without them the targets do
//! nothing.

#[cfg(unix)]
pub use esker_shared::fuzzing::{shared_replies, shared_requests};

/// Runs bytes as the requests of a guest. It opens a database, which would disturb a simulation in the same
/// process, so they take turns.
///
/// # Panics
/// If the requests break the database, or the host.
#[cfg(unix)]
pub fn shared_session(bytes: &[u8]) {
    let bytes = bytes.to_vec();
    let run = move |_: &_| esker_shared::fuzzing::shared_session(&bytes);
    if let Err(failure) = esker_sim::runner::alone("shared_session", run) {
        panic!("{}", failure.cause);
    }
}

#[cfg(not(unix))]
pub fn shared_requests(_: &[u8]) {}
#[cfg(not(unix))]
pub fn shared_replies(_: &[u8]) {}
#[cfg(not(unix))]
pub fn shared_session(_: &[u8]) {}
