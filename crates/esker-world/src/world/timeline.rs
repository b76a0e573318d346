//! The states that the database has gone through, by the numbers of its commits.
//!
//! ```text
//!   operation --number of the newest commit, state--> Timeline --a number--> the states that a copy may hold which ends with it
//! ```
//!
//! timeline.1. An operation makes at most one commit that changes what keyspaces hold. Others beside it (options, sweeps) have
//!     numbers of their own: a commit between two that are known has the state of one or the other.
//! timeline.2. Nothing is known of numbers that were given out while it was in doubt what had been committed, or in which order.

use super::World;
use crate::model::state::State;
use crate::setting;

/// See the module's text.
#[derive(Default)]
pub(super) struct Timeline {
    /// The oldest first.
    moments: Vec<Moment>,
    /// Commits since the last moment may have been made that are not known (timeline.2).
    is_in_doubt: bool,
}

struct Moment {
    /// The newest commit.
    seqno: u64,
    /// The state, with what has expired.
    state: State,
    /// Whether all states between the moment before and this one are known.
    is_continued: bool,
}

impl Timeline {
    /// The newest commit has this number, and has made this state.
    fn note(&mut self, seqno: u64, state: &State) {
        if self.moments.last().is_some_and(|last| last.seqno >= seqno) {
            return;
        }
        let is_continued = !std::mem::take(&mut self.is_in_doubt);
        self.moments.push(Moment { seqno, state: state.clone(), is_continued });
    }

    /// Commits are made that are not known one by one (timeline.2).
    pub(super) fn be_in_doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// An opening has found this commit as the last: those behind it have never been.
    fn forget_after(&mut self, seqno: u64) {
        self.moments.retain(|moment| moment.seqno <= seqno);
    }

    /// The states that this commit may have made; none if it is not known.
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
    /// Takes note of the newest state.
    pub(super) fn note_moment(&mut self) {
        self.note_moment_at(self.seqno());
    }

    /// The same, where the number of the newest commit was this.
    pub(super) fn note_moment_at(&mut self, seqno: u64) {
        if !setting::has_numbered_states(self.seed) {
            return;
        }
        if self.poisoned || self.panicked || self.is_dead() || self.db.is_none() {
            self.copies.timeline.be_in_doubt();
        } else {
            self.copies.timeline.note(seqno, self.history.newest_whole());
        }
    }

    /// An opening has found the database with this commit as the last.
    pub(super) fn forget_moments_after(&mut self, seqno: u64) {
        self.copies.timeline.forget_after(seqno);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::state::{Commit, Named};

    #[test]
    fn timeline_1_timeline_2_numbers_stand_for_the_states_that_are_known() {
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
    }
}
