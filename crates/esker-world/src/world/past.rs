//! History: past states by commit number, and reads of keyspaces at past commits.
//!
//! ```text
//!   operation --a new commit--> past: (number, state)      Past, Since --> Db --compare--> state (world.9)
//! ```

use esker::{Change, Changes, Error, Keyspace, SeqNo, Version};

use super::World;
use super::faults::attempt;
use crate::judge::read::{Source, check_read};
use crate::model::keys::{self, KeyNo, key};
use crate::model::map::Map;
use crate::model::state::{Id, State};
use crate::model::values::ValueNo;
use crate::op::{CommitsAgo, KeyspaceNo, Read};

/// Number of remembered states.
const REMEMBERED: usize = 160;
/// Maximum number of further keys whose versions are read.
const VERSIONS_OF: usize = 40;

impl World {
    /// Remembers the newest state.
    pub(super) fn remember(&mut self) {
        let seqno = self.seqno();
        if self.history.is_behind() {
            self.past.clear();
        }
        if self.process.poisoned || self.process.panicked || self.db.is_none() {
            return;
        }
        self.past.retain(|(number, _)| *number < seqno);
        self.past.push((seqno, self.history.newest_whole().clone()));
        if self.past.len() > REMEMBERED {
            self.past.remove(0);
        }
    }

    fn remembered(&self, commits_ago: CommitsAgo) -> Option<(SeqNo, State)> {
        let at = self.past.len().checked_sub(1 + usize::from(commits_ago.0) % self.past.len().max(1))?;
        let (number, state) = &self.past[at];
        // Expired entries are invisible in past states, too.
        let mut state = state.clone();
        state.expire(self.now_ms());
        Some((SeqNo::new(*number), state))
    }

    /// Accepts a refusal of a commit that is no longer kept.
    fn kept<T>(&mut self, outcome: esker::Result<T>, at: SeqNo) -> Option<T> {
        if let Err(Error::HistoryGone { oldest, .. }) = &outcome {
            assert!(*oldest > at, "world.9: commit {at} is refused, though {oldest} is kept");
            self.tally.past_refused += 1;
            return None;
        }
        self.read(outcome)
    }

    pub(super) fn read_past(&mut self, commits_ago: CommitsAgo, no: KeyspaceNo, read: &Read) {
        let Some((at, state)) = self.remembered(commits_ago) else { return };
        let (id, keyspace) = self.pick(no);
        let map = state.map(id);
        if let Read::Get(no) = read {
            let found = attempt(|| keyspace.get_at(key(*no), at));
            let Some(found) = self.kept(found, at) else { return };
            let found =
                found.map(|value| ValueNo::parse(&value).expect("world.9: a value that was never put"));
            assert_eq!(found, map.entries().get(no).copied(), "world.9: get_at {at}");
        } else {
            let Some(past) = self.kept(attempt(|| keyspace.at(at)), at) else { return };
            let found = attempt(|| check_read(&Source::Past(&past), &map, read, self.expires));
            if self.read(found).is_none() {
                return;
            }
        }
        self.tally.past += 1;
    }

    /// Reads the versions of a key and of some that follow it.
    pub(super) fn read_versions(&mut self, no: KeyspaceNo, first: KeyNo) {
        let (id, keyspace) = self.pick(no);
        let map = self.history.newest().map(id);
        let others = map.entries().range(first..).map(|(key, _)| *key).filter(|key| *key != first);
        for key in std::iter::once(first).chain(others.take(VERSIONS_OF)) {
            self.read_versions_of(id, &keyspace, key);
        }
    }

    /// Checks that each version is the value from its commit until the next one.
    fn read_versions_of(&mut self, id: Id, keyspace: &Keyspace, key_no: KeyNo) {
        let found = attempt(|| keyspace.versions(key(key_no))?.collect::<esker::Result<Vec<_>>>());
        let Some(found) = self.read(found) else { return };
        let shown = |version: &Version| {
            let value = version.value.as_deref();
            value.map(|value| ValueNo::parse(value).expect("world.9: a value that was never put"))
        };
        let (mut newer, now_ms) = (u64::MAX, self.now_ms());
        // Commit 0 denotes an unknown commit before the history.
        for version in found.iter().filter(|version| version.seqno.get() > 0) {
            let from = version.seqno.get();
            assert!(from < newer, "world.9: versions {from} and {newer} of {key_no:?}");
            for (at, state) in self.past.iter().filter(|(at, _)| (from..newer).contains(at)) {
                let map = state.map(id);
                let was = map.entries().get(&key_no).copied();
                // A sweep removes expired entries.
                let is_over = map.until().get(&key_no).is_some_and(|until| *until <= now_ms);
                let shown = shown(version);
                let if_swept = shown.is_none_or(|shown| map.if_swept(key_no).contains(&shown));
                let agrees = shown == was || is_over && if_swept;
                assert!(agrees, "world.9: version {from} of {key_no:?} is {shown:?}; at {at} it was {was:?}");
                self.tally.versions += 1;
            }
            newer = from;
        }
    }

    pub(super) fn catch_up(&mut self, commits_ago: CommitsAgo, no: KeyspaceNo) {
        let Some((at, state)) = self.remembered(commits_ago) else { return };
        let (id, keyspace) = self.pick(no);
        let Some(changes) = self.kept(attempt(|| keyspace.since(at)), at) else { return };
        let Some(map) = self.read(attempt(|| applied(changes, at, &state.map(id)))) else { return };
        let newest = self.history.newest().map(id);
        assert_eq!(map.entries(), newest.entries(), "world.9: what has changed since {at}");
        self.tally.caught_up += 1;
    }
}

/// Applies changes to a state.
fn applied(changes: Changes, since: SeqNo, from: &Map) -> esker::Result<Map> {
    let mut entries = from.entries().clone();
    for change in changes {
        let (seqno, change) = change?;
        assert!(seqno > since, "world.9");
        let find = |key: &[u8]| keys::find(key).expect("world.9: unknown key");
        match change {
            Change::DeleteRange { start, end, .. } => {
                let is_before = |k: &[u8]| end.as_ref().is_none_or(|end| *k < **end);
                entries.retain(|no, _| *key(*no) < *start || !is_before(key(*no)));
            }
            Change::Put { key, value, .. } => {
                let value = value.as_deref().and_then(ValueNo::parse);
                entries.insert(find(&key), value.expect("world.9: a value that was never put"));
            }
            Change::Delete { key, .. } => drop(entries.remove(&find(&key))),
            other => panic!("world.9: {other:?}"),
        }
    }
    let mut map = Map::default();
    entries.into_iter().for_each(|(no, value)| map.put(no, value));
    Ok(map)
}
