//! The states of the database by commit number.
//!
//! ```text
//!   operation --newest commit number, state--> Timeline --a number--> possible states of a copy
//! ```
//!
//! An operation makes at most one commit that changes entries. Other commits (options, sweeps) have their own
//! numbers, so a commit between two known ones has the state of either. Nothing is known of commits made
//! while their success or order was in doubt.

use super::World;
use crate::model::state::State;
use crate::setting;

/// States by commit number.
#[derive(Default)]
pub(super) struct Timeline {
    /// Known states, oldest first.
    moments: Vec<Moment>,
    /// Whether commits since the last known state are in doubt.
    is_in_doubt: bool,
}

struct Moment {
    /// Number of the newest commit.
    seqno: u64,
    /// The state, including expired entries.
    state: State,
    /// Whether all states since the previous one are known.
    is_continued: bool,
}

impl Timeline {
    /// Adds the state of the newest commit.
    fn note(&mut self, seqno: u64, state: &State) {
        if self.moments.last().is_some_and(|last| last.seqno >= seqno) {
            return;
        }
        let is_continued = !std::mem::take(&mut self.is_in_doubt);
        self.moments.push(Moment { seqno, state: state.clone(), is_continued });
    }

    /// Notes that following commits are in doubt.
    pub(super) fn be_in_doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// Forgets commits after the last one found by an opening. If they followed commits in doubt, some of
    /// those may be left.
    fn forget_after(&mut self, seqno: u64) {
        let kept = self.moments.partition_point(|moment| moment.seqno <= seqno);
        self.is_in_doubt |= self.moments.drain(kept..).any(|lost| !lost.is_continued);
    }

    /// Returns the possible states after a commit; empty if unknown.
    pub(super) fn at(&self, seqno: u64) -> Vec<&State> {
        let behind = self.moments.partition_point(|moment| moment.seqno <= seqno);
        let Some(before) = behind.checked_sub(1).map(|at| &self.moments[at]) else { return Vec::new() };
        match self.moments.get(behind) {
            _ if before.seqno == seqno => vec![&before.state],
            Some(after) if after.is_continued => vec![&before.state, &after.state],
            _ => Vec::new(),
        }
    }
}

impl World {
    /// Notes the newest state.
    pub(super) fn note_moment(&mut self) {
        self.note_moment_at(self.seqno());
    }

    /// Notes the newest state with the number of its commit.
    pub(super) fn note_moment_at(&mut self, seqno: u64) {
        if !setting::has_numbered_states(self.seed) {
            return;
        }
        if self.process.poisoned || self.process.panicked || self.is_dead() || self.db.is_none() {
            self.copies.timeline.be_in_doubt();
        } else {
            self.copies.timeline.note(seqno, self.history.newest_whole());
        }
    }

    /// Forgets commits after the last one found by an opening.
    pub(super) fn forget_moments_after(&mut self, seqno: u64) {
        self.copies.timeline.forget_after(seqno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::state::{Commit, Named};

    #[test]
    fn numbers_stand_for_the_states_that_are_known() {
        let named = |n: u8| {
            let mut state = State::new();
            state.apply(&Commit::Names(vec![Named::Create(format!("{n}"))]));
            state
        };
        let mut timeline = Timeline::default();
        for (seqno, n) in [(3, 1), (4, 2), (7, 3), (7, 4)] {
            timeline.note(seqno, &named(n));
        }
        timeline.is_in_doubt = true;
        timeline.note(9, &named(5));
        let names = |timeline: &Timeline, seqno| -> String {
            let names = timeline.at(seqno).into_iter().flat_map(|state| state.names().keys().cloned());
            names.filter(|name| name != "default").collect()
        };
        let found = (2..11).map(|seqno| names(&timeline, seqno)).collect::<Vec<_>>();
        assert_eq!(found, ["", "1", "2", "23", "23", "3", "", "5", ""]);
        timeline.forget_after(6);
        assert_eq!([names(&timeline, 4), names(&timeline, 7)], ["2", ""]);
        // A part of the commits in doubt between 4 and 9 may be what the opening found.
        timeline.note(8, &named(6));
        assert_eq!([5, 7, 8].map(|seqno| names(&timeline, seqno)), ["", "", "6"]);
    }
}
