//! The states after each commit since the database was last known to be durable as a whole.

use std::rc::Rc;

use esker::Durability;

use super::state::{Footprint, State};
use crate::common::contents::{Contents, Map, difference};

struct Commit {
    state: State,
    footprint: Footprint,
}

/// All commits, oldest first; the first stands for everything before.
pub struct History {
    commits: Vec<Commit>,
    /// No crash undoes this commit.
    synced: usize,
    /// No death of the process undoes this commit.
    buffered: usize,
}

impl History {
    /// Starts with a durable state.
    pub fn new(state: State) -> Self {
        History { commits: vec![Commit { state, footprint: Footprint::default() }], synced: 0, buffered: 0 }
    }

    /// How many commits there are.
    pub fn len(&self) -> usize {
        self.commits.len()
    }

    /// The state that readers see.
    pub fn newest(&self) -> &State {
        &self.commits.last().expect("there is a first").state
    }

    /// Corrects the newest state.
    pub fn amend(&mut self, change: impl FnOnce(&mut State)) {
        change(&mut self.commits.last_mut().expect("there is a first").state);
    }

    /// A commit was acknowledged.
    pub fn push(&mut self, state: State, footprint: Footprint, durability: Durability) {
        self.commits.push(Commit { state, footprint });
        let last = self.commits.len() - 1;
        // Logs are written in order: whatever is durable makes all before it durable.
        match durability {
            Durability::Sync => (self.synced, self.buffered) = (last, last),
            Durability::Buffered => self.buffered = last,
            Durability::None => {}
        }
    }

    /// All commits are durable now.
    pub fn all_durable(&mut self) {
        let last = self.commits.len() - 1;
        (self.synced, self.buffered) = (last, last);
    }

    /// Whether a commit after the first `since` touched the same keys.
    pub fn touched_since(&self, since: usize, footprint: &Footprint) -> bool {
        self.commits[since..].iter().any(|commit| commit.footprint.conflicts(footprint))
    }

    /// The database shows the newest state.
    pub fn assert_newest(&self, found: &Contents) {
        let expected = contents(self.newest());
        assert!(*found == expected, "{}", difference(found, &expected));
    }

    /// A crash left this: finds the commit it shows, and goes on from there.
    pub fn crashed(&mut self, found: &Contents, process_only: bool) {
        let oldest = if process_only { self.buffered } else { self.synced };
        let shown =
            (oldest..self.commits.len()).rev().find(|&at| contents(&self.commits[at].state) == *found);
        let Some(at) = shown else {
            let before = (0..oldest).rev().find(|&at| contents(&self.commits[at].state) == *found);
            let newest = difference(found, &contents(self.newest()));
            panic!(
                "W3: after the crash the state is that of no commit in {oldest}..{}{}; against the newest: {newest}",
                self.commits.len(),
                before.map_or(String::new(), |at| format!(" but that of commit {at}, which is too old")),
            );
        };
        let state = self.commits.swap_remove(at).state;
        *self = History::new(state);
    }
}

fn contents(state: &State) -> Contents {
    let plain =
        |map: Rc<super::state::Map>| map.iter().map(|(k, v)| (k.clone(), v.to_vec())).collect::<Map>();
    state.named().into_iter().map(|(name, map)| (name.to_owned(), plain(map))).collect()
}
