//! The shelf: which segments are kept for readers of the log, and how far the log is durable.
//!
//! ```text
//!   WalWriter --begin, note_first, note_durable, finish--> Shelf <--find, reach-- Follower (follow.rs)
//!                  retention (engine/state/feed.rs) --drop_below--^
//! ```
//!
//! shelf.1. All bytes before the durable end were synced, and so was the data they point to. A follower reads
//!     nothing after it.
//! shelf.2. Segments leave the shelf oldest first. The file of a segment on the shelf is neither removed nor
//!     reused.
//! - Each change wakes all waiting readers, which then see the change.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::format::SEGMENT_HEADER_BYTES;
use crate::types::SeqNo;

/// A segment on the shelf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shelved {
    /// The first commit whose record starts in this segment, if there is one.
    pub first: Option<SeqNo>,
    /// Bytes used; 0 while the segment is active.
    pub bytes: u64,
}

/// A position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LogPosition {
    segment: u64,
    offset: u64,
}

/// Tracks the segments kept for readers, and wakes the readers.
#[derive(Debug)]
pub(crate) struct Shelf {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug)]
struct State {
    /// Segments with smaller numbers are not on the shelf.
    first: u64,
    segments: BTreeMap<u64, Shelved>,
    /// The durable end (shelf.1).
    durable: LogPosition,
    /// The last commit of the finished segments.
    last: SeqNo,
    /// Older commits must not be read, even if their records are on the shelf.
    oldest_min: SeqNo,
    /// Number of changes.
    moves: u64,
    is_ended: bool,
    /// Tasks that wait for the next change.
    wakers: Vec<Waker>,
}

impl State {
    /// Returns the first commit whose record starts in `segment` or a later one, or the next commit if there
    /// is none.
    fn oldest_from(&self, segment: u64) -> SeqNo {
        let first = self.segments.range(segment..).find_map(|(_, shelved)| shelved.first);
        first.unwrap_or_else(|| self.last.next()).max(self.oldest_min)
    }
}

/// How far a segment can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To its end record.
    End,
    /// To this offset, so far.
    To(u64),
    /// Not at all: it has left the shelf.
    Gone,
}

impl Shelf {
    /// Returns the shelf for an opened database: its segments, the number of the next one, and the last
    /// commit. Commits before `oldest_min` must not be read.
    pub(crate) fn new(
        segments: BTreeMap<u64, Shelved>,
        next_segment: u64,
        last: SeqNo,
        oldest_min: SeqNo,
    ) -> Shelf {
        let first = segments.keys().next().copied().unwrap_or(next_segment);
        let durable = LogPosition { segment: next_segment, offset: 0 };
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

    /// Records that a segment is put to use. All earlier segments are durable.
    pub(super) fn begin(&self, segment: u64) {
        let mut state = self.state.lock();
        state.segments.insert(segment, Shelved::default());
        state.durable = LogPosition { segment, offset: SEGMENT_HEADER_BYTES as u64 };
    }

    /// Records the commit of the first record that starts in a segment.
    pub(super) fn note_first(&self, segment: u64, seq: SeqNo) {
        let mut state = self.state.lock();
        if let Some(shelved) = state.segments.get_mut(&segment) {
            shelved.first.get_or_insert(seq);
        }
    }

    /// Records that a segment is durable up to `offset`.
    pub(super) fn note_durable(&self, segment: u64, offset: u64) {
        let mut state = self.state.lock();
        if state.durable.segment == segment && state.durable.offset < offset {
            state.durable.offset = offset;
            drop(state);
            self.notify();
        }
    }

    /// Records that a segment is finished with `bytes` used; `last` is the last commit that starts in it or
    /// earlier.
    pub(super) fn finish(&self, segment: u64, bytes: u64, last: SeqNo) {
        let mut state = self.state.lock();
        state.last = last;
        if let Some(shelved) = state.segments.get_mut(&segment) {
            shelved.bytes = bytes;
        }
    }

    /// Wakes all readers because commits may have become readable.
    pub(crate) fn notify(&self) {
        let mut state = self.state.lock();
        state.moves += 1;
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.moved.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Registers a task to wake at the next change. Returns false if there were more changes than `seen`, or
    /// nothing more comes.
    #[cfg(feature = "tokio")]
    pub(crate) fn wake_after(&self, seen: u64, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        let waits = state.moves == seen && !state.is_ended;
        if waits && !state.wakers.iter().any(|other| other.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        waits
    }

    /// Records that nothing more comes.
    pub(crate) fn end(&self) {
        self.state.lock().is_ended = true;
        self.notify();
    }

    /// Returns the smallest segment number that may be on the shelf.
    pub(crate) fn first(&self) -> u64 {
        self.state.lock().first
    }

    /// Returns the oldest commit that can be read, or the next commit if there is none.
    pub(crate) fn oldest(&self) -> SeqNo {
        let state = self.state.lock();
        state.oldest_from(state.first)
    }

    /// Returns what [`oldest`](Self::oldest) will be once the segments below `segment` are dropped.
    pub(crate) fn oldest_from(&self, segment: u64) -> SeqNo {
        self.state.lock().oldest_from(segment)
    }

    /// Returns the segments, oldest first.
    pub(crate) fn segments(&self) -> Vec<(u64, Shelved)> {
        self.state.lock().segments.iter().map(|(number, shelved)| (*number, *shelved)).collect()
    }

    /// Drops the segments below `segment` from the shelf (shelf.2).
    pub(crate) fn drop_below(&self, segment: u64) {
        let mut state = self.state.lock();
        // Keeps the first readable commit of what is left.
        state.oldest_min = state.oldest_from(segment);
        state.first = state.first.max(segment);
        state.segments = state.segments.split_off(&segment);
        drop(state);
        self.notify();
    }

    /// Returns the segment in which to start reading for commit `seq`; `None` if it has none yet.
    pub(crate) fn find(&self, seq: SeqNo) -> Option<u64> {
        let state = self.state.lock();
        let begins_by = |(_, shelved): &(&u64, &Shelved)| shelved.first.is_some_and(|first| first <= seq);
        state.segments.iter().rev().find(begins_by).map(|(number, _)| *number)
    }

    /// Returns how far a segment can be read.
    pub(super) fn reach(&self, segment: u64) -> Reach {
        let state = self.state.lock();
        match segment.cmp(&state.durable.segment) {
            _ if segment < state.first => Reach::Gone,
            std::cmp::Ordering::Less => Reach::End,
            std::cmp::Ordering::Equal => Reach::To(state.durable.offset),
            std::cmp::Ordering::Greater => Reach::To(0),
        }
    }

    /// Returns the number of changes, for [`wait`](Self::wait).
    pub(crate) fn moves(&self) -> u64 {
        self.state.lock().moves
    }

    /// Waits for more changes than `seen`, at most for `patience`. Returns false if nothing more comes.
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
        assert!(shelf.moves() > seen && shelf.reach(8) == Reach::To(100));
    }
}
