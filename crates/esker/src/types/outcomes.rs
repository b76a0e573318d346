//! How work that is tried again and again has ended: whether it fails now, since when, and how often.

use std::time::Duration;

use parking_lot::Mutex;

use super::Error;

/// Work that failed the last time it was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failures {
    /// When it failed first, by the clock, without success since.
    pub since: Duration,
    /// How often since then.
    pub times: u64,
    /// Whether the last time was for want of space.
    pub is_no_space: bool,
    /// What the last failure was.
    pub error: String,
}

/// The end of each try of one kind of work.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(Mutex<Option<Failures>>);

impl Outcomes {
    /// It has failed.
    pub(crate) fn failed(&self, error: &Error, now: Duration) {
        let mut failures = self.0.lock();
        let (since, times) = failures.as_ref().map_or((now, 0), |before| (before.since, before.times));
        let is_no_space = matches!(error, Error::NoSpace { .. });
        *failures = Some(Failures { since, times: times + 1, is_no_space, error: error.to_string() });
    }

    /// It has succeeded, or there is nothing left of it to do.
    pub(crate) fn succeeded(&self) {
        *self.0.lock() = None;
    }

    /// It has ended so.
    pub(crate) fn note<T>(&self, outcome: &Result<T, Error>, now: Duration) {
        match outcome {
            Ok(_) => self.succeeded(),
            Err(error) => self.failed(error, now),
        }
    }

    /// The failures since it last succeeded.
    pub(crate) fn failures(&self) -> Option<Failures> {
        self.0.lock().clone()
    }
}
