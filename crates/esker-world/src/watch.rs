//! Notices work that has come to a stand.
//!
//! ```text
//!   a count that grows as long as work goes on --Watch--> it stands still
//!   a thread's outcome --wait--> it, or the failure of a thread that gets nowhere
//! ```
//!
//! watch.1. Work that does not end, and whose count does not grow for as long as there is patience, is a failure. Work that goes
//!      on is waited for as long as it takes.
#![expect(clippy::disallowed_methods, reason = "it watches real threads, in real time")]

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};

/// Nothing that is waited for takes as long, on any machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The patience with a canary that hangs for certain.
pub const PATIENCE_WITH_CANARY: Duration = Duration::from_secs(2);

/// Watches a count that grows as long as work goes on.
#[derive(Debug)]
pub struct Watch {
    patience: Duration,
    count: u64,
    since: Instant,
}

impl Watch {
    /// Begins with a count of 0.
    pub fn new(patience: Duration) -> Self {
        Watch { patience, count: 0, since: Instant::now() }
    }

    /// Whether the count has stood still for longer than there is patience (watch.1).
    pub fn stands_still(&mut self, count: u64) -> bool {
        if count != self.count {
            (self.count, self.since) = (count, Instant::now());
        }
        self.since.elapsed() > self.patience
    }
}

/// Waits for what a thread sends when it has ended. `progress`: the operations that it has begun.
///
/// # Errors
/// It gets nowhere (watch.1), or has ended without a word.
pub fn wait<T>(
    name: &str,
    outcome: &Receiver<T>,
    progress: impl Fn() -> u64,
    patience: Duration,
) -> Result<T> {
    let mut watch = Watch::new(patience);
    loop {
        match outcome.recv_timeout(patience / 4) {
            Ok(outcome) => return Ok(outcome),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(format!("{name} has ended without an outcome")));
            }
            Err(RecvTimeoutError::Timeout) => {
                let ops = progress();
                if watch.stands_still(ops) {
                    let cause = format!(
                        "{name} gets nowhere: it has begun {ops} operations, and nothing more in {patience:?}"
                    );
                    return Err(Failure { cause, ops });
                }
            }
        }
    }
}

/// Whether a process has said that one of its threads panicked.
pub fn tells_of_panic(stderr: &str) -> bool {
    stderr.contains("panicked at")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn watch_1_a_count_that_grows_is_no_hang() {
        // The time is moved, not waited for: a test that is held up between two lines must not see a hang.
        let mut watch = Watch::new(PATIENCE);
        let later = |watch: &mut Watch| watch.since -= 2 * PATIENCE;
        later(&mut watch);
        assert!(!watch.stands_still(1) && !watch.stands_still(1));
        later(&mut watch);
        assert!(watch.stands_still(1));
        assert!(!watch.stands_still(2));
    }

    #[test]
    fn watch_1_a_thread_that_never_ends_is_told() {
        let (never, outcome) = channel::<()>();
        let failure = wait("seed 17", &outcome, || 3, Duration::from_millis(4)).unwrap_err();
        let told = "seed 17 gets nowhere: it has begun 3 operations, and nothing more in 4ms";
        assert_eq!(failure.cause, told);
        never.send(()).unwrap();
        assert_eq!(wait("seed 17", &outcome, || 3, PATIENCE), Ok(()));
    }
}
