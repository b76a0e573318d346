//! Outcomes of work that is retried: whether it fails now, since when, and how often.

use std::time::Duration;

use parking_lot::Mutex;

use super::Error;

/// Work whose last attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failures {
    /// Time of the first failure after the last success.
    pub since: Duration,
    /// Failures since then.
    pub times: u64,
    /// Whether the last failure was for want of space.
    pub is_no_space: bool,
    /// Message of the last failure.
    pub error: String,
}

/// Outcome of one kind of work.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Mutex<Option<Failures>>);

impl Outcomes {
    /// Records a failure.
    pub(crate) fn failed(&self, error: &Error, now: Duration) {
        let mut failures = self.0.lock();
        let (since, times) = failures.as_ref().map_or((now, 0), |before| (before.since, before.times));
        let is_no_space = matches!(error, Error::NoSpace { .. });
        *failures = Some(Failures { since, times: times + 1, is_no_space, error: error.to_string() });
    }

    /// Records a success, or that nothing is left to do.
    pub(crate) fn succeeded(&self) {
        *self.0.lock() = None;
    }

    /// Records an outcome.
    pub(crate) fn note<T>(&self, outcome: &Result<T, Error>, now: Duration) {
        match outcome {
            Ok(_) => self.succeeded(),
            Err(error) => self.failed(error, now),
        }
    }

    /// The failures since the last success, if any.
    pub(crate) fn failures(&self) -> Option<Failures> {
        self.0.lock().clone()
    }
}
