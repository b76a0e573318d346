//! What was refused, for operators.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::check::Reason;

/// The same again within this time is counted, not noted anew.
const SAME_MS: u64 = 60_000;

/// Something that was refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// How often.
    pub count: u64,
    /// Why.
    pub reason: Reason,
    /// Where the command ran: `toplevel`, `multi` or `lua`.
    pub context: &'static str,
    /// The command, key, channel or name.
    pub object: Vec<u8>,
    /// Who asked for it.
    pub user: String,
    /// The last time, in milliseconds since 1970.
    pub at: u64,
    /// The connection, as `CLIENT INFO` shows it.
    pub client: String,
}

/// The newest refusals.
#[derive(Default)]
pub struct AclLog(Mutex<VecDeque<Refusal>>);

impl AclLog {
    /// Adds one. The oldest go beyond the number that is kept.
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

    /// The newest `n` of those that are kept.
    pub fn newest(&self, n: usize, kept: usize) -> Vec<Refusal> {
        let mut log = self.0.lock();
        log.truncate(kept);
        log.iter().take(n).cloned().collect()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}
