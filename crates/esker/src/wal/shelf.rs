//! The shelf: what of the log stays for those who read it, and how far it is durable.
//!
//! ```text
//!   WalWriter --begins, first record, durable to, finished--> Shelf <--where? how far?-- Follower (follow.rs)
//!                        retention (engine/state/feed.rs) --drop_below--^
//! ```
//!
//! shelf.1. What lies before the durable end was synced, with what it points to. A follower reads nothing behind it.
//! shelf.2. Segments leave from the oldest on. The file of one that is on the shelf is neither removed nor put to another use.
//! shelf.3. Whoever waits is told after each change, and finds it.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::format::SEGMENT_HEADER_BYTES;
use crate::types::SeqNo;

/// A segment on the shelf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shelved {
    /// The first commit whose record begins in it, once there is one.
    pub first: Option<SeqNo>,
    /// Bytes in use. Zero while it is being written.
    pub bytes: u64,
}

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    segment: u64,
    offset: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Shelf {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug)]
struct State {
    /// No segment below is on the shelf.
    first: u64,
    segments: BTreeMap<u64, Shelved>,
    /// shelf.1
    durable: Place,
    /// The last commit of the segments that are finished.
    last: SeqNo,
    /// Older commits are not to be read, wherever their records are.
    oldest_min: SeqNo,
    /// Counts changes (shelf.3).
    moves: u64,
    is_ended: bool,
    /// Tasks that wait for the next change.
    wakers: Vec<Waker>,
}

impl State {
    /// The first commit whose record begins in a segment from this one on, as far as one does; else the one after all that there are.
    fn oldest_from(&self, segment: u64) -> SeqNo {
        let first = self.segments.range(segment..).find_map(|(_, shelved)| shelved.first);
        first.unwrap_or_else(|| self.last.next()).max(self.oldest_min)
    }
}

/// Where a segment can be read to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To its end record.
    End,
    /// To this offset, for now.
    To(u64),
    /// It is not on the shelf any more.
    Gone,
}

impl Shelf {
    /// What an opening finds: the segments, the number of the next one, and the last commit. Commits before `oldest_min` are not to be read.
    pub(crate) fn new(
        segments: BTreeMap<u64, Shelved>,
        next_segment: u64,
        last: SeqNo,
        oldest_min: SeqNo,
    ) -> Shelf {
        let first = segments.keys().next().copied().unwrap_or(next_segment);
        let durable = Place { segment: next_segment, offset: 0 };
        let state = State {
            first,
            segments,
            durable,
            last,
            oldest_min,
            moves: 0,
            is_ended: false,
            wakers: Vec::new(),
        };
        Shelf { state: Mutex::new(state), moved: Condvar::new() }
    }

    /// A segment is put to use. All before it is durable.
    pub(super) fn begin(&self, segment: u64) {
        let mut state = self.state.lock();
        state.segments.insert(segment, Shelved::default());
        state.durable = Place { segment, offset: SEGMENT_HEADER_BYTES as u64 };
    }

    /// The first record that begins in a segment is of this commit.
    pub(super) fn note_first(&self, segment: u64, seq: SeqNo) {
        let mut state = self.state.lock();
        if let Some(shelved) = state.segments.get_mut(&segment) {
            shelved.first.get_or_insert(seq);
        }
    }

    /// A segment is durable up to this offset.
    pub(super) fn note_durable(&self, segment: u64, offset: u64) {
        let mut state = self.state.lock();
        if state.durable.segment == segment && state.durable.offset < offset {
            state.durable.offset = offset;
            drop(state);
            self.tell();
        }
    }

    /// A segment is finished: so many bytes, and this was the last commit that began before its end.
    pub(super) fn finish(&self, segment: u64, bytes: u64, last: SeqNo) {
        let mut state = self.state.lock();
        state.last = last;
        if let Some(shelved) = state.segments.get_mut(&segment) {
            shelved.bytes = bytes;
        }
    }

    /// Something may be there to read that was not before: commits became visible.
    pub(crate) fn tell(&self) {
        let mut state = self.state.lock();
        state.moves += 1;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.moved.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Has a task woken at the next change; false if there have been more than these, or nothing more comes.
    #[cfg(feature = "tokio")]
    pub(crate) fn wake_after(&self, seen: u64, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        let waits = state.moves == seen && !state.is_ended;
        if waits && !state.wakers.iter().any(|other| other.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        waits
    }

    /// Nothing more comes.
    pub(crate) fn end(&self) {
        self.state.lock().is_ended = true;
        self.tell();
    }

    /// No segment below is on the shelf.
    pub(crate) fn first(&self) -> u64 {
        self.state.lock().first
    }

    /// The oldest commit that can be read, or the next one if there is none.
    pub(crate) fn oldest(&self) -> SeqNo {
        let state = self.state.lock();
        state.oldest_from(state.first)
    }

    /// What [`oldest`](Self::oldest) will be once the segments below are gone.
    pub(crate) fn oldest_from(&self, segment: u64) -> SeqNo {
        self.state.lock().oldest_from(segment)
    }

    /// The segments, oldest first.
    pub(crate) fn segments(&self) -> Vec<(u64, Shelved)> {
        self.state.lock().segments.iter().map(|(number, shelved)| (*number, *shelved)).collect()
    }

    /// Takes the segments below from the shelf (shelf.2).
    pub(crate) fn drop_below(&self, segment: u64) {
        let mut state = self.state.lock();
        // So that what is left begins where it did.
        state.oldest_min = state.oldest_from(segment);
        state.first = state.first.max(segment);
        state.segments = state.segments.split_off(&segment);
        drop(state);
        self.tell();
    }

    /// The segment to begin in for this commit; none if it is not there yet.
    pub(crate) fn find(&self, seq: SeqNo) -> Option<u64> {
        let state = self.state.lock();
        let begins_by = |(_, shelved): &(&u64, &Shelved)| shelved.first.is_some_and(|first| first <= seq);
        state.segments.iter().rev().find(begins_by).map(|(number, _)| *number)
    }

    /// How far a segment can be read.
    pub(super) fn reach(&self, segment: u64) -> Reach {
        let state = self.state.lock();
        match segment.cmp(&state.durable.segment) {
            _ if segment < state.first => Reach::Gone,
            std::cmp::Ordering::Less => Reach::End,
            std::cmp::Ordering::Equal => Reach::To(state.durable.offset),
            std::cmp::Ordering::Greater => Reach::To(0),
        }
    }

    /// Counts changes: for [`wait`](Self::wait).
    pub(crate) fn moves(&self) -> u64 {
        self.state.lock().moves
    }

    /// Waits until there have been more changes than these, this long at the most; false if nothing more comes.
    pub(crate) fn wait(&self, seen: u64, patience: Duration) -> bool {
        let mut state = self.state.lock();
        self.moved.wait_while_for(&mut state, |state| state.moves == seen && !state.is_ended, patience);
        !state.is_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shelf_2_the_oldest_commit_is_the_first_that_is_whole() {
        let seq = SeqNo::new;
        let shelved = |first: u64| Shelved { first: Some(seq(first)), bytes: 100 };
        let spanned = Shelved { first: None, bytes: 100 };
        let segments = BTreeMap::from([(5, shelved(20)), (6, spanned), (7, shelved(31))]);
        let shelf = Shelf::new(segments, 8, seq(40), seq(22));
        assert_eq!((shelf.first(), shelf.oldest()), (5, seq(22)));
        assert_eq!((shelf.find(seq(30)), shelf.find(seq(31)), shelf.find(seq(19))), (Some(5), Some(7), None));
        assert_eq!((shelf.reach(7), shelf.reach(8)), (Reach::End, Reach::To(0)));
        shelf.drop_below(6);
        assert_eq!((shelf.first(), shelf.oldest(), shelf.reach(5)), (6, seq(31), Reach::Gone));
        shelf.drop_below(8);
        assert_eq!((shelf.oldest(), shelf.find(seq(41))), (seq(41), None));
        shelf.begin(8);
        shelf.note_first(8, seq(41));
        assert_eq!((shelf.oldest(), shelf.find(seq(41))), (seq(41), Some(8)));
        assert_eq!(shelf.reach(8), Reach::To(SEGMENT_HEADER_BYTES as u64), "shelf.1");
        let seen = shelf.moves();
        shelf.note_durable(8, 100);
        assert!(shelf.moves() > seen && shelf.reach(8) == Reach::To(100), "shelf.3");
    }
}
