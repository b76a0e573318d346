//! What nobody reports: work that has come to a stand, and threads that have panicked in a process that goes on.

use std::time::{Duration, Instant};

/// Nothing that is waited for takes as long, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The patience with a canary that hangs for certain.
pub(crate) const PATIENCE_WITH_CANARY: Duration = Duration::from_secs(2);

/// Watches a count that grows as long as work goes on.
#[derive(Debug)]
pub(crate) struct Watch {
    patience: Duration,
    count: u64,
    since: Instant,
}

impl Watch {
    pub(crate) fn new(patience: Duration) -> Self {
        Watch { patience, count: 0, since: Instant::now() }
    }

    /// Whether the count has stood still for longer than there is patience.
    pub(crate) fn stands_still(&mut self, count: u64) -> bool {
        if count != self.count {
            (self.count, self.since) = (count, Instant::now());
        }
        self.since.elapsed() > self.patience
    }
}

/// Whether a process has said that one of its threads panicked.
pub(crate) fn tells_of_panic(stderr: &str) -> bool {
    stderr.contains("panicked at")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_grows_is_no_hang() {
        // The time is moved, not waited for: a test that is held up between two lines must not see a hang.
        let mut watch = Watch::new(PATIENCE);
        let later = |watch: &mut Watch| watch.since -= 2 * PATIENCE;
        later(&mut watch);
        assert!(!watch.stands_still(1) && !watch.stands_still(1));
        later(&mut watch);
        assert!(watch.stands_still(1));
        assert!(!watch.stands_still(2));
    }
}
