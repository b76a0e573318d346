//! A state with expiry, and the part of it that readers see.
//!
//! ```text
//!   commits --> whole: includes expired entries       seen: what readers see
//!                 `--a merge--> uses `whole`, like the engine, which may not have swept yet
//! ```
//!
//! `seen` is `whole` without entries that have expired. An operand merged before its entry expired is applied
//! to the entry in `whole`, and expires with it.

use super::state::{Commit, Id, State};
use crate::op::Write;

/// A state with expiry.
#[derive(Clone, Debug)]
pub struct Timed {
    whole: State,
    seen: State,
    now_ms: u64,
}

impl Timed {
    /// Creates a state at a time.
    pub fn new(whole: State, now_ms: u64) -> Self {
        let mut timed = Timed { seen: whole.clone(), whole, now_ms };
        timed.set_now(now_ms);
        timed
    }

    /// Creates a state from both parts.
    pub fn with_seen(whole: State, seen: State, now_ms: u64) -> Self {
        Timed { whole, seen, now_ms }
    }

    /// Returns the part that readers see.
    pub fn seen(&self) -> &State {
        &self.seen
    }

    /// Returns the state including expired entries.
    pub fn whole(&self) -> &State {
        &self.whole
    }

    /// Sets the engine's time. Returns whether something has expired.
    pub fn set_now(&mut self, now_ms: u64) -> bool {
        self.now_ms = now_ms;
        self.seen.expire(now_ms)
    }

    /// Sets the default lifetime of a keyspace; 0 means none.
    pub fn set_lifetime_ms(&mut self, id: Id, ms: u64) {
        self.whole.set_lifetime_ms(id, ms);
        self.seen.set_lifetime_ms(id, ms);
    }

    /// Applies a write.
    pub fn write(&mut self, id: Id, write: &Write) {
        self.apply(&Commit::Writes(vec![(id, *write)]));
    }

    /// Applies a commit.
    pub fn apply(&mut self, commit: &Commit) {
        self.whole.apply(commit);
        let is_timed = commit.writes().any(|write| matches!(write, Write::MergeAt(..)));
        if is_timed && self.whole.expires() {
            self.seen = self.whole.clone();
            self.seen.expire(self.now_ms);
        } else {
            self.seen.apply(commit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::keys::KeyNo;
    use crate::model::values::ValueNo;
    use crate::op::Merged;

    #[test]
    fn an_operand_merged_before_its_value_expired_expires_with_it() {
        let (key, value) = (KeyNo(1), ValueNo::new(4, 7));
        let mut timed = Timed::new(State::new(), 0);
        timed.write(Id(0), &Write::PutUntil(key, value, 10));
        timed.set_now(20);
        let merged = |at_ms| Write::MergeAt(key, value, Merged { at_ms, lifetime_ms: 15 });
        timed.write(Id(0), &merged(9));
        assert!(timed.seen().map(Id(0)).entries().is_empty());
        timed.write(Id(0), &merged(10));
        assert_eq!(timed.seen().map(Id(0)).until().get(&key), Some(&25), "it begins a value of its own");
        assert_eq!(timed.seen().map(Id(0)).entries()[&key], value);
    }
}
