//! When a transaction is repeated after a conflict, and when not.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// Longest pause after the first conflict. It doubles with each further one.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// How often and how long `transact` repeats a transaction. Between two attempts it pauses for a random time,
/// whose limit grows from 2 to 250 ms, so that clients that conflict do not meet again at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    attempts: u32,
    deadline: Duration,
}

impl Default for Retry {
    /// Up to 100 attempts within 10 seconds.
    fn default() -> Self {
        Retry { attempts: 100, deadline: Duration::from_secs(10) }
    }
}

impl Retry {
    /// The default: see [`Retry::default`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of attempts. The first one is always made.
    #[must_use]
    pub fn attempts(self, attempts: u32) -> Self {
        Retry { attempts, ..self }
    }

    /// Sets the time after which no further attempt begins. An attempt under way is not interrupted.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Retry { deadline, ..self }
    }
}

/// The attempts of one call.
pub(crate) struct Attempts {
    retry: Retry,
    begun: Instant,
    made: u32,
}

impl Attempts {
    #[expect(clippy::disallowed_methods, reason = "the client has no simulated clock")]
    pub(crate) fn new(retry: Retry) -> Self {
        Attempts { retry, begun: Instant::now(), made: 0 }
    }

    /// Returns the pause before the next attempt. `None`: there is none.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        self.made = self.made.saturating_add(1);
        let longest = (PAUSE_MIN * (1 << (self.made - 1).min(16))).min(PAUSE_MAX);
        let random = RandomState::new().build_hasher().finish();
        let pause = Duration::from_nanos(random % longest.as_nanos() as u64);
        let is_last = self.made >= self.retry.attempts || self.begun.elapsed() + pause >= self.retry.deadline;
        (!is_last).then_some(pause)
    }
}
