//! The commits since the database was opened, and which of them a crash may take.
//!
//! ```text
//!   base | commit commit commit | commit commit | commit ...  [doubt]
//!                        synced ^      buffered ^     newest ^
//! ```
//!
//! model_history.1. A power loss may take all commits after `synced`; the death of the process all after `buffered`. What is left
//!     is the state after some commit: a prefix of the order of commits, each whole.
//! model_history.2. A commit in doubt (it failed because the log did, or a call of its own panicked) is there or not once the database is opened again. If a
//!     later one is acknowledged it is not.
//! model_history.3. What an opening has found is durable: the log is synced before anybody can see it.
//! model_history.4. What has expired by the engine's time is not there, whatever the commit. After an opening that is the time that it begins with: what
//!     an earlier process took for expired may be back after a crash, if the clock was set back. Nobody knows which of it was swept or never written.
//! model_history.5. States of several commits that differ only in what has expired look the same to an opening. It may have found each of them.

use super::footprint::Footprint;
use super::state::{Commit, Contents, Id, State, contents_digest};
use super::timed::Timed;

#[derive(Clone, Debug)]
struct Entry {
    commit: Commit,
    footprint: Footprint,
    /// Of the state after it.
    digest: u64,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub struct History {
    base: State,
    /// What the opening may have found as well (model_history.5).
    twins: Vec<State>,
    entries: Vec<Entry>,
    newest: Timed,
    synced: usize,
    buffered: usize,
    doubt: Option<Commit>,
    /// The engine's time, in milliseconds.
    now_ms: u64,
    /// The latest that it has been, in all processes.
    latest_ms: u64,
}

/// How much of the history an event can undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Power loss: everything that was not synced.
    Unsynced,
    /// The end of the process: what the operating system does not have.
    Unwritten,
}

impl History {
    /// Starts with a durable state.
    pub fn new(state: State) -> Self {
        History {
            base: state.clone(),
            twins: Vec::new(),
            entries: Vec::new(),
            newest: Timed::new(state, 0),
            synced: 0,
            buffered: 0,
            doubt: None,
            now_ms: 0,
            latest_ms: 0,
        }
    }

    /// The engine's time (model_history.4); whether something has expired.
    pub fn set_now(&mut self, now_ms: u64) -> bool {
        self.now_ms = now_ms;
        self.latest_ms = self.latest_ms.max(now_ms);
        self.newest.set_now(now_ms)
    }

    /// The state that readers see.
    pub fn newest(&self) -> &State {
        self.newest.seen()
    }

    /// The state that readers see, with what has expired.
    pub fn newest_whole(&self) -> &State {
        self.newest.whole()
    }

    /// Gives a keyspace a default lifetime; 0: none. It is durable, and no commit that a crash may take.
    pub fn set_lifetime_ms(&mut self, id: Id, ms: u64) {
        self.newest.set_lifetime_ms(id, ms);
    }

    /// The states that it went through, oldest first.
    pub fn states(&self) -> Vec<State> {
        states_from(&self.base, &self.entries)
    }

    /// How many commits there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no commits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A commit was acknowledged.
    pub fn push(&mut self, commit: Commit, footprint: Footprint, durability: esker::Durability) {
        self.doubt = None;
        self.newest.apply(&commit);
        let digest = self.newest.whole().digest();
        self.entries.push(Entry { commit, footprint, digest });
        // Logs are written in order: whatever is durable makes all before it durable.
        match durability {
            esker::Durability::Sync => self.all_durable(),
            esker::Durability::Buffered => self.buffered = self.entries.len(),
            esker::Durability::None => {}
        }
    }

    /// A commit failed because the log did, or panicked (model_history.2). Only the first one can have reached the log.
    pub fn doubt(&mut self, commit: Commit) {
        self.doubt.get_or_insert(commit);
    }

    /// All commits are durable now.
    pub fn all_durable(&mut self) {
        (self.synced, self.buffered) = (self.entries.len(), self.entries.len());
    }

    /// Marks the first `commits` commits as durable.
    pub fn durable_up_to(&mut self, commits: usize) {
        (self.synced, self.buffered) = (self.synced.max(commits), self.buffered.max(commits));
    }

    /// Whether all commits are durable for certain.
    pub fn is_durable(&self) -> bool {
        self.synced == self.entries.len()
    }

    /// The latest that the engine's time has been, in all processes, in milliseconds.
    pub fn latest_ms(&self) -> u64 {
        self.latest_ms
    }

    /// Whether the engine's time is before what it was in an earlier process: what had expired by then may be back, or not.
    pub fn is_behind(&self) -> bool {
        self.now_ms < self.latest_ms
    }

    /// Whether a reader that is shown durable commits alone, and all of them, may have made contents of this digest, without what had expired at
    /// the latest time: files may have lost that.
    pub fn may_be_shown(&self, digest: u64) -> bool {
        if self.expires() {
            let mut states = self.states();
            return states[self.synced..].iter_mut().any(|state| {
                state.expire(self.latest_ms);
                state.digest() == digest
            });
        }
        let digest_at = |at: usize| match at {
            0 => self.base.digest(),
            at => self.entries[at - 1].digest,
        };
        (self.synced..=self.entries.len()).any(|at| digest_at(at) == digest)
    }

    /// Whether a commit after the first `since` touched the same keys.
    pub fn touched_since(&self, since: usize, footprint: &Footprint) -> bool {
        self.entries[since..].iter().any(|entry| entry.footprint.conflicts(footprint))
    }

    /// Opening found this: decides which commit it shows (model_history.1, model_history.2), and goes on from there (model_history.3).
    ///
    /// # Errors
    /// It is that of no commit that may be the last.
    pub fn recovered(&mut self, found: &Contents, reach: Option<Reach>) -> Result<(), String> {
        let oldest = match reach {
            Some(Reach::Unsynced) => self.synced,
            Some(Reach::Unwritten) => self.buffered,
            None => self.entries.len(),
        };
        let digest = contents_digest(found.iter().map(|(name, map)| (name.as_str(), map)));
        let mut shown = self.shown(digest, found, oldest);
        if shown.is_empty() || self.expires() {
            let mut state = self.state_at(self.entries.len());
            let is_there = self.doubt.as_ref().is_some_and(|doubt| {
                state.apply(doubt);
                self.as_found(&state, found).digest() == digest
            });
            shown.extend(is_there.then_some(state));
        }
        let mut shown = shown.into_iter();
        let Some(state) = shown.next() else {
            let is_too_old = !self.shown(digest, found, 0).is_empty();
            return Err(self.complaint(found, oldest, is_too_old));
        };
        let seen = self.as_found(&state, found);
        let (now_ms, latest_ms) = (self.now_ms, self.latest_ms);
        // What would be there, and is not, was swept (model_history.4).
        let without_swept = |mut state: State| {
            state.lose(now_ms.saturating_add(1)..=latest_ms, found);
            state
        };
        let (state, twins) = (without_swept(state), shown.map(without_swept).collect());
        let newest = Timed::with_seen(state.clone(), seen, now_ms);
        *self = History { newest, now_ms, latest_ms, twins, ..History::new(state) };
        match self.newest().difference(found) {
            Some(difference) => Err(format!("two states of one digest: {difference}")),
            None => Ok(()),
        }
    }

    /// The states from the commit `oldest` on that look like what was found, the newest first: one, if nothing expires (model_history.5).
    fn shown(&self, digest: u64, found: &Contents, oldest: usize) -> Vec<State> {
        if !self.expires() {
            let digest_at =
                |at: usize| at.checked_sub(1).map_or(self.base.digest(), |last| self.entries[last].digest);
            let found = (oldest..=self.entries.len()).rev().find(|&at| digest_at(at) == digest);
            return found.map(|at| self.state_at(at)).into_iter().collect();
        }
        let mut shown: Vec<State> = Vec::new();
        for base in std::iter::once(&self.base).chain(&self.twins) {
            for state in states_from(base, &self.entries)[oldest..].iter().rev() {
                let is_new = shown.iter().all(|other| other.digest() != state.digest());
                if is_new && self.as_found(state, found).digest() == digest {
                    shown.push(state.clone());
                }
            }
        }
        shown
    }

    /// A state at this time, without what had expired before and is not there (model_history.4).
    fn as_found(&self, state: &State, found: &Contents) -> State {
        self.as_found_at(state, found, self.now_ms)
    }

    /// The same by another time, which is that of a copy.
    pub fn as_found_at(&self, state: &State, found: &Contents, now_ms: u64) -> State {
        let mut state = state.clone();
        state.expire(now_ms);
        state.lose(0..=self.latest_ms, found);
        state
    }

    /// Whether something in it expires.
    fn expires(&self) -> bool {
        std::iter::once(&self.base).chain(&self.twins).any(State::expires)
            || self.entries.iter().any(|entry| entry.commit.expires())
    }

    /// The state after so many commits, with what has expired.
    fn state_at(&self, commits: usize) -> State {
        let mut state = self.base.clone();
        self.entries[..commits].iter().for_each(|entry| state.apply(&entry.commit));
        state
    }

    fn complaint(&self, found: &Contents, oldest: usize, is_too_old: bool) -> String {
        format!(
            "model_history.1: what was found is the state of no commit in {oldest}..={}{}; against the newest: {}",
            self.entries.len(),
            if is_too_old { ", but that of a commit that is too old" } else { "" },
            self.newest().difference(found).unwrap_or_else(|| "no difference".to_owned()),
        )
    }
}

/// The states that commits lead to, from this one on, which is the first.
fn states_from(base: &State, entries: &[Entry]) -> Vec<State> {
    let mut states = vec![base.clone()];
    for entry in entries {
        let mut state = states[states.len() - 1].clone();
        state.apply(&entry.commit);
        states.push(state);
    }
    states
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use esker::Durability::{Buffered, None as NotSoon, Sync};

    use super::*;
    use crate::model::keys::KeyNo;
    use crate::model::state::{Id, Map};
    use crate::model::values::ValueNo;
    use crate::op::Write;

    fn put(n: u16) -> Commit {
        Commit::Writes(vec![(Id(0), Write::Put(KeyNo(n), ValueNo::new(4, u32::from(n))))])
    }

    fn holding(n: u16) -> Contents {
        let mut map = Map::default();
        (0..n).for_each(|n| map.put(KeyNo(n), ValueNo::new(4, u32::from(n))));
        BTreeMap::from([("default".to_owned(), map)])
    }

    #[test]
    fn model_history_1_model_history_2_prefixes_from_the_last_durable_commit_on_are_allowed() {
        let mut history = History::new(State::new());
        for (n, durability) in [(0, NotSoon), (1, Sync), (2, Buffered), (3, NotSoon)] {
            history.push(put(n), Footprint::default(), durability);
        }
        history.doubt(put(4));
        let allowed = |reach| -> Vec<u16> {
            (0..=6).filter(|n| history.clone().recovered(&holding(*n), reach).is_ok()).collect()
        };
        assert_eq!(allowed(Some(Reach::Unsynced)), [2, 3, 4, 5]);
        assert_eq!(allowed(Some(Reach::Unwritten)), [3, 4, 5]);
        assert_eq!(allowed(None), [4, 5]);
        let complaint = history.clone().recovered(&holding(1), Some(Reach::Unsynced)).unwrap_err();
        assert!(complaint.contains("of a commit that is too old"), "{complaint}");
    }

    #[test]
    fn model_history_4_what_had_expired_may_be_back_or_not() {
        let until = |n: u16| Write::PutUntil(KeyNo(n), ValueNo::new(4, u32::from(n)), u64::from(n) * 10 + 5);
        let mut history = History::new(State::new());
        history.push(Commit::Writes((0..3).map(|n| (Id(0), until(n))).collect()), Footprint::default(), Sync);
        history.set_now(20);
        let allowed = |now_ms| -> Vec<Vec<u16>> {
            let may_be = |numbers: &Vec<u16>| {
                let (mut history, mut map) = (history.clone(), Map::default());
                for n in numbers {
                    map.put(KeyNo(*n), ValueNo::new(4, u32::from(*n)));
                    map.set_until(KeyNo(*n), u64::from(*n) * 10 + 5);
                }
                history.set_now(now_ms);
                history
                    .recovered(&BTreeMap::from([("default".to_owned(), map)]), Some(Reach::Unsynced))
                    .is_ok()
            };
            let subsets = (0..8_u16).map(|bits| (0..3).filter(|n| bits >> n & 1 == 1).collect());
            subsets.filter(may_be).collect()
        };
        assert_eq!(allowed(20), [vec![2]]);
        assert_eq!(allowed(10), [vec![2], vec![1, 2]], "the first has expired again");
        assert_eq!(allowed(0), [vec![2], vec![0, 2], vec![1, 2], vec![0, 1, 2]]);
    }

    #[test]
    fn model_history_5_what_had_expired_may_be_back_as_any_commit_left_it_that_looked_the_same() {
        let until =
            |n: u32, ms| Commit::Writes(vec![(Id(0), Write::PutUntil(KeyNo(1), ValueNo::new(4, n), ms))]);
        let found = |n: u32, ms| {
            let mut map = Map::default();
            map.put(KeyNo(1), ValueNo::new(4, n));
            map.set_until(KeyNo(1), ms);
            BTreeMap::from([("default".to_owned(), map)])
        };
        let mut history = History::new(State::new());
        history.push(until(1, 30), Footprint::default(), Sync);
        history.push(until(2, 20), Footprint::default(), NotSoon);
        history.set_now(40);
        history.recovered(&holding(0), Some(Reach::Unsynced)).unwrap();
        history.set_now(10);
        let allowed = |n, ms| history.clone().recovered(&found(n, ms), Some(Reach::Unsynced)).is_ok();
        assert_eq!(
            [allowed(1, 30), allowed(2, 20), allowed(1, 20), allowed(3, 30)],
            [true, true, false, false]
        );
    }

    #[test]
    fn model_history_3_what_was_found_is_durable() {
        let mut history = History::new(State::new());
        history.push(put(0), Footprint::default(), NotSoon);
        history.recovered(&holding(1), Some(Reach::Unwritten)).unwrap();
        assert!(history.clone().recovered(&holding(0), Some(Reach::Unsynced)).is_err());
        assert!(history.recovered(&holding(1), Some(Reach::Unsynced)).is_ok());
    }
}
