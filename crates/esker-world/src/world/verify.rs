//! Checks of everything, and what they need: the same time in the model and in the engine.

use super::World;
use super::faults::attempt;
use crate::judge::read::{self, Source, check_read};

impl World {
    /// Removes expired entries from the model.
    pub(super) fn expire(&mut self) {
        if !self.expires {
            return;
        }
        let now_ms = self.now_ms();
        if self.history.set_now(now_ms) {
            self.tally.expired = 1;
        }
        self.held.snapshots.iter_mut().flatten().for_each(|(_, state)| {
            state.expire(now_ms);
        });
        self.held.transactions.iter_mut().flatten().for_each(|held| held.expire(now_ms));
        self.expire_in_guest(now_ms);
        self.held.iterators.iter_mut().flatten().for_each(|held| held.expire(now_ms));
        for held in &mut self.held.cursors {
            // A cursor on an expired entry has no defined position.
            if held.as_mut().is_some_and(|cursor| !cursor.expire(now_ms)) {
                *held = None;
            }
        }
    }

    /// Sweeps expired entries, so that lengths equal those of the model. Returns whether this succeeded.
    pub(super) fn sweep(&mut self) -> bool {
        let swept = if self.expires { attempt(|| self.db().sweep().map(drop)) } else { Ok(()) };
        self.excused(swept).is_some()
    }

    /// Checks all reads (world.1) and the files.
    pub fn verify_all(&mut self) {
        self.expire();
        let is_swept = self.sweep();
        self.note_oldest();
        let now_ms = self.expires.then(|| self.now_ms());
        let found = attempt(|| read::contents_with(self.db(), true, is_swept, now_ms));
        let Some(found) = self.read(found) else { return };
        if let Some(difference) = self.history.newest().difference(&found) {
            panic!("world.1: {difference}");
        }
        self.follow();
        let checked = attempt(|| self.db().check());
        if let Some(report) = self.excused(checked) {
            assert!(self.are_explained(&report.problems), "check: {:#?}", report.problems);
        }
        let held: Vec<_> = self.held.snapshots.iter().flatten().cloned().collect();
        for (snapshot, state) in held {
            for (id, keyspace) in self.keyspaces.clone() {
                let source = Source::Snapshot(&snapshot, &keyspace);
                self.read(attempt(|| check_read(&source, &state.map(id), &read::everything(), true)));
            }
        }
    }
}
