//! The log of refused requests, for operators.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::check::Reason;

/// A refusal that is repeated within this time only increments a count.
const SAME_MS: u64 = 60_000;

/// A refused request.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Number of times.
    pub count: u64,
    /// The reason.
    pub reason: Reason,
    /// Where the command ran: `toplevel`, `multi` or `lua`.
    pub context: &'static str,
    /// The command, key, channel or name.
    pub object: Vec<u8>,
    /// Name of the user.
    pub user: String,
    /// Time of the last refusal, in Unix milliseconds.
    pub at: u64,
    /// The connection, as `CLIENT INFO` shows it.
    pub client: String,
}

/// The newest refusals.
#[derive(Default)]
pub struct AclLog(Mutex<VecDeque<Refusal>>);

impl AclLog {
    /// Adds a refusal. Drops the oldest ones beyond `kept`.
    pub fn add(&self, mut refusal: Refusal, kept: usize) {
        let mut log = self.0.lock();
        let is_same = |old: &Refusal| {
            old.reason == refusal.reason
                && old.context == refusal.context
                && old.object == refusal.object
                && old.user == refusal.user
                && refusal.at.saturating_sub(old.at) < SAME_MS
        };
        if let Some(old) = log.iter().position(is_same).and_then(|at| log.remove(at)) {
            refusal.count += old.count;
        }
        log.push_front(refusal);
        log.truncate(kept);
    }

    /// Returns the newest `n` refusals.
    pub fn newest(&self, n: usize, kept: usize) -> Vec<Refusal> {
        let mut log = self.0.lock();
        log.truncate(kept);
        log.iter().take(n).cloned().collect()
    }

    /// Removes all refusals.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}
