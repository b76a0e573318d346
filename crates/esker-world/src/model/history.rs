//! The commits since the database was opened, and which of them a crash may lose.
//!
//! ```text
//!   base | commit commit commit | commit commit | commit ...  [doubt]
//!                        synced ^      buffered ^     newest ^
//! ```
//!
//! model_history.1. A power loss may lose the commits after `synced`, the death of the process those after
//!     `buffered`. The remaining state is that after some commit.
//!
//! - A commit is in doubt if the log failed or a call panicked. It may or may not exist after
//!   the next opening, and does not exist if a later one was acknowledged.
//! - Expired entries are invisible, according to the engine's time. An opening begins with the
//!   current wall clock, so after the clock was set back, entries may be visible again unless they were
//!   swept.
//!
//! The state found by an opening is durable, because the log is synced before readers see it. Several commits
//! may look the same to an opening if they differ only in expired entries; the opening may then have found
//! any of them.

use std::collections::BTreeMap;

use super::footprint::Footprint;
use super::keys::KeyNo;
use super::state::{Commit, Contents, Id, State, contents_digest};
use super::timed::Timed;

#[derive(Clone, Debug)]
struct Entry {
    commit: Commit,
    footprint: Footprint,
    /// Digest of the state after the commit.
    digest: u64,
}

/// The history of commits.
#[derive(Clone, Debug)]
pub struct History {
    base: State,
    /// Other states that the opening may have found.
    twins: Vec<State>,
    entries: Vec<Entry>,
    newest: Timed,
    synced: usize,
    buffered: usize,
    doubt: Option<Commit>,
    /// Whether the last opening found the commit in doubt; `None` if the states do not tell.
    found_doubt: Option<bool>,
    /// The engine's time in milliseconds.
    now_ms: u64,
    /// The maximum of the engine's time in all processes.
    latest_ms: u64,
    /// The number of writes at which keyspaces got a maximum size.
    limited_since: BTreeMap<Id, u64>,
}

/// How much of the history an event can undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// A power loss undoes everything that was not synced.
    Unsynced,
    /// The end of the process undoes what was not written.
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
            found_doubt: None,
            now_ms: 0,
            latest_ms: 0,
            limited_since: BTreeMap::new(),
        }
    }

    /// Notes that a keyspace without a maximum size gets one. Its entries count as equally old.
    pub fn limit(&mut self, id: Id) {
        self.limited_since.insert(id, self.newest.whole().map(id).writes());
    }

    /// Returns a number that orders the entries of a keyspace with a maximum size by age; 0 for those that
    /// are older than the limit.
    pub fn age_order(&self, id: Id, key: KeyNo) -> u64 {
        let since = self.limited_since.get(&id).copied().unwrap_or(0);
        let written = self.newest.whole().map(id).written(key);
        if written > since { written } else { 0 }
    }

    /// Sets the engine's time. Returns whether something has expired.
    pub fn set_now(&mut self, now_ms: u64) -> bool {
        self.now_ms = now_ms;
        self.latest_ms = self.latest_ms.max(now_ms);
        self.newest.set_now(now_ms)
    }

    /// Returns the state that readers see.
    pub fn newest(&self) -> &State {
        self.newest.seen()
    }

    /// Returns the newest state, including expired entries.
    pub fn newest_whole(&self) -> &State {
        self.newest.whole()
    }

    /// Sets the default lifetime of a keyspace; 0 means none. It is durable and not a commit that a crash may
    /// lose.
    pub fn set_lifetime_ms(&mut self, id: Id, ms: u64) {
        self.newest.set_lifetime_ms(id, ms);
    }

    /// Returns all states since the opening, oldest first.
    pub fn states(&self) -> Vec<State> {
        states_from(&self.base, &self.entries)
    }

    /// Returns the number of commits.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no commits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an acknowledged commit.
    pub fn push(&mut self, commit: Commit, footprint: Footprint, durability: esker::Durability) {
        self.doubt = None;
        self.newest.apply(&commit);
        let digest = self.newest.whole().digest();
        self.entries.push(Entry { commit, footprint, digest });
        // The log is written in order, so a durable commit makes earlier ones durable.
        match durability {
            esker::Durability::Sync => self.all_durable(),
            esker::Durability::Buffered => self.buffered = self.entries.len(),
            esker::Durability::None => {}
        }
    }

    /// Notes a commit in doubt. Only the first one can have reached the log.
    pub fn doubt(&mut self, commit: Commit) {
        self.doubt.get_or_insert(commit);
    }

    /// Returns whether the last opening found the commit that was in doubt; `None` if the states do not tell.
    pub fn found_doubt(&self) -> Option<bool> {
        self.found_doubt
    }

    /// Returns whether a commit is in doubt.
    pub fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Marks all commits as durable.
    pub fn all_durable(&mut self) {
        (self.synced, self.buffered) = (self.entries.len(), self.entries.len());
    }

    /// Marks the first `commits` commits as durable.
    pub fn durable_up_to(&mut self, commits: usize) {
        (self.synced, self.buffered) = (self.synced.max(commits), self.buffered.max(commits));
    }

    /// Returns whether all commits are certainly durable.
    pub fn is_durable(&self) -> bool {
        self.synced == self.entries.len()
    }

    /// Returns the maximum of the engine's time in all processes, in milliseconds.
    pub fn latest_ms(&self) -> u64 {
        self.latest_ms
    }

    /// Returns whether the engine's time is behind that of an earlier process, so that expired entries may be
    /// visible again.
    pub fn is_behind(&self) -> bool {
        self.now_ms < self.latest_ms
    }

    /// Returns whether a reader of all durable commits may have contents of this digest. Entries that had
    /// expired at the latest time are ignored, because they may have been swept.
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

    /// Returns whether a commit after the first `since` touched these keys.
    pub fn touched_since(&self, since: usize, footprint: &Footprint) -> bool {
        self.entries[since..].iter().any(|entry| entry.footprint.conflicts(footprint))
    }

    /// Determines the commit whose state an opening found (model_history.1), and continues
    /// from it.
    ///
    /// # Errors
    /// The state found belongs to no allowed commit.
    pub fn recovered(&mut self, found: &Contents, reach: Option<Reach>) -> Result<(), String> {
        let oldest = match reach {
            Some(Reach::Unsynced) => self.synced,
            Some(Reach::Unwritten) => self.buffered,
            None => self.entries.len(),
        };
        let digest = contents_digest(found.iter().map(|(name, map)| (name.as_str(), map)));
        let mut shown = self.shown(digest, found, oldest);
        let mut found_doubt = None;
        if let Some(doubt) = &self.doubt {
            let mut state = self.state_at(self.entries.len());
            state.apply(doubt);
            let is_there = self.as_found(&state, found).digest() == digest;
            found_doubt = Some(is_there).filter(|_| is_there == shown.is_empty());
            if shown.is_empty() || self.expires() {
                shown.extend(is_there.then_some(state));
            }
        }
        let mut shown = shown.into_iter();
        let Some(state) = shown.next() else {
            let is_too_old = !self.shown(digest, found, 0).is_empty();
            return Err(self.complaint(found, oldest, is_too_old));
        };
        let seen = self.as_found(&state, found);
        let (now_ms, latest_ms) = (self.now_ms, self.latest_ms);
        // A missing entry that should be visible was swept.
        let without_swept = |mut state: State| {
            state.lose(now_ms.saturating_add(1)..=latest_ms, found);
            state
        };
        let (state, twins) = (without_swept(state), shown.map(without_swept).collect());
        let newest = Timed::with_seen(state.clone(), seen, now_ms);
        let limited_since = std::mem::take(&mut self.limited_since);
        let fresh = History::new(state);
        *self = History { newest, now_ms, latest_ms, twins, limited_since, found_doubt, ..fresh };
        match self.newest().difference(found) {
            Some(difference) => Err(format!("two states of one digest: {difference}")),
            None => Ok(()),
        }
    }

    /// Returns the states from commit `oldest` on that match what was found, newest first. Without expiry
    /// there is at most one.
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

    /// Returns a state at the current time, without entries that may have been swept and are missing.
    fn as_found(&self, state: &State, found: &Contents) -> State {
        self.as_found_at(state, found, self.now_ms)
    }

    /// Does the same with the time of a copy.
    pub fn as_found_at(&self, state: &State, found: &Contents, now_ms: u64) -> State {
        let mut state = state.clone();
        state.expire(now_ms);
        state.lose(0..=self.latest_ms, found);
        state
    }

    /// Returns whether anything in the history expires.
    fn expires(&self) -> bool {
        std::iter::once(&self.base).chain(&self.twins).any(State::expires)
            || self.entries.iter().any(|entry| entry.commit.expires())
    }

    /// Returns the state after `commits` commits, including expired entries.
    fn state_at(&self, commits: usize) -> State {
        let mut state = self.base.clone();
        self.entries[..commits].iter().for_each(|entry| state.apply(&entry.commit));
        state
    }

    fn complaint(&self, found: &Contents, oldest: usize, is_too_old: bool) -> String {
        format!(
            "model_history.1: the state found is that of no commit in {oldest}..={}{}; compared with the newest: {}",
            self.entries.len(),
            if is_too_old { ", but of an older commit" } else { "" },
            self.newest().difference(found).unwrap_or_else(|| "no difference".to_owned()),
        )
    }
}

/// Returns the states after each commit, starting with `base`.
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
    use esker::Durability::{Buffered, None as NotSoon, Sync};

    use super::*;
    use crate::model::map::Map;
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
    fn model_history_1_prefixes_from_the_last_durable_commit_on_are_allowed() {
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
        assert!(complaint.contains("but of an older commit"), "{complaint}");
    }

    #[test]
    fn what_had_expired_may_be_back_or_not() {
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
    fn what_had_expired_may_be_back_as_any_commit_left_it_that_looked_the_same() {
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
    fn what_was_found_is_durable() {
        let mut history = History::new(State::new());
        history.push(put(0), Footprint::default(), NotSoon);
        history.recovered(&holding(1), Some(Reach::Unwritten)).unwrap();
        assert!(history.clone().recovered(&holding(0), Some(Reach::Unsynced)).is_err());
        assert!(history.recovered(&holding(1), Some(Reach::Unsynced)).is_ok());
    }
}
