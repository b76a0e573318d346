//! Detects hangs.
//!
//! ```text
//!   a count of work done --Watch--> hang if it stands still
//!   a thread's outcome --wait--> outcome, or failure if the thread hangs
//! ```
//!
//! Work fails if its count does not grow for the timeout. Work that makes progress is never stopped.
#![expect(clippy::disallowed_methods, reason = "it watches real threads, in real time")]

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};

/// Steps that take longer count as hung.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(120);
/// The timeout for a canary that certainly hangs.
pub const HANG_TIMEOUT_OF_CANARY: Duration = Duration::from_secs(2);

/// Watches a count that grows while work makes progress.
#[derive(Debug)]
pub struct Watch {
    timeout: Duration,
    count: u64,
    since: Instant,
}

impl Watch {
    /// Starts with a count of 0.
    pub fn new(timeout: Duration) -> Self {
        Watch { timeout, count: 0, since: Instant::now() }
    }

    /// Returns whether `count` has been the same for longer than the timeout.
    pub fn stands_still(&mut self, count: u64) -> bool {
        if count != self.count {
            (self.count, self.since) = (count, Instant::now());
        }
        self.since.elapsed() > self.timeout
    }
}

/// Waits for the outcome of a thread. `progress` returns the number of operations that it has started.
///
/// # Errors
/// The thread hangs, or ended without an outcome.
pub fn wait<T>(
    name: &str,
    outcome: &Receiver<T>,
    progress: impl Fn() -> u64,
    timeout: Duration,
) -> Result<T> {
    let mut watch = Watch::new(timeout);
    loop {
        match outcome.recv_timeout(timeout / 4) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(format!("{name} has ended without an outcome")));
            }
            Err(RecvTimeoutError::Timeout) => {
                let ops = progress();
                if watch.stands_still(ops) {
                    let cause = format!(
                        "{name} hangs: it has started {ops} operations, and nothing more in {timeout:?}"
                    );
                    return Err(Failure { cause, ops });
                }
            }
        }
    }
}

/// Returns whether the output of a process reports a panic.
pub fn tells_of_panic(stderr: &str) -> bool {
    stderr.contains("panicked at")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_count_that_grows_is_no_hang() {
        // Time is simulated, so that a slow machine does not look like a hang.
        let mut watch = Watch::new(HANG_TIMEOUT);
        let later = |watch: &mut Watch| watch.since -= 2 * HANG_TIMEOUT;
        later(&mut watch);
        assert!(!watch.stands_still(1) && !watch.stands_still(1));
        later(&mut watch);
        assert!(watch.stands_still(1));
        assert!(!watch.stands_still(2));
    }

    #[test]
    fn a_thread_that_never_ends_is_reported() {
        let (never, outcome) = channel::<()>();
        let failure = wait("seed 17", &outcome, || 3, Duration::from_millis(4)).unwrap_err();
        let expected = "seed 17 hangs: it has started 3 operations, and nothing more in 4ms";
        assert_eq!(failure.cause, expected);
        never.send(()).unwrap();
        assert_eq!(wait("seed 17", &outcome, || 3, HANG_TIMEOUT), Ok(()));
    }
}
