//! The front of a keyspace: keys below it are not there, so a walk from the first key on need not step over what was removed before it.
//!
//! ```text
//!   queue:  dead dead dead dead | live live live        a walk that found the first live key at number 70: front = its head, since 70
//!                               ^ front                 a put below it: the front goes down to that key
//! ```
//!
//! front.1. A reader at `since` or later finds no key whose head is below the front's.
//! front.2. A commit takes the front down before it is visible. A reader takes it up only if no commit that it does not see has put a key
//!      between: the puts of the last commits are remembered.
//! front.3. Commits note their puts only once a reader has come to know the keyspace as one with a front.
//!
//! The head is the first 8 bytes of a user's key.

use std::collections::VecDeque;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::types::SeqNo;
use crate::types::key::head8;

/// The puts of so many commits are remembered.
const REMEMBERED_MAX: usize = 256;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// front.3. SeqCst, as is the number of the commit that is entered last: either the commit sees this and notes what it puts, or the reader
    /// who sets it sees the commit's number.
    is_known: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    head: u64,
    since: SeqNo,
    /// The lowest heads that commits have put, by commit, ascending.
    puts: VecDeque<(SeqNo, u64)>,
    /// Puts of commits up to this one may not be among them.
    forgotten: SeqNo,
}

impl Front {
    /// Whether commits have to note their puts (front.3).
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::SeqCst)
    }

    /// A commit puts a key of this head, and none of a lower one (front.2).
    pub(super) fn note_put(&self, seq: SeqNo, head: u64) {
        let mut state = self.state.lock();
        state.head = state.head.min(head);
        state.puts.push_back((seq, head));
        if state.puts.len() > REMEMBERED_MAX
            && let Some((oldest, _)) = state.puts.pop_front()
        {
            state.forgotten = state.forgotten.max(oldest);
        }
    }

    /// The head below which a reader at this number finds nothing (front.1).
    pub(crate) fn head_at(&self, at: SeqNo) -> u64 {
        if !self.is_known() {
            return 0;
        }
        let state = self.state.lock();
        if state.since <= at { state.head } else { 0 }
    }

    /// A reader at this number has found no key of a lower head. `entered` is the commit that was entered last.
    pub(crate) fn raise(&self, at: SeqNo, head: u64, entered: impl FnOnce() -> SeqNo) {
        let mut state = self.state.lock();
        if !self.is_known() {
            self.is_known.store(true, Ordering::SeqCst);
            state.forgotten = entered();
        }
        let is_hidden = state.puts.iter().any(|&(seq, put)| seq > at && put < head);
        if at >= state.forgotten && at >= state.since && head > state.head && !is_hidden {
            (state.head, state.since) = (head, at);
            while state.puts.front().is_some_and(|put| put.0 <= at) {
                state.puts.pop_front();
            }
        }
    }
}

/// The first user key of this head.
pub(crate) fn first_key(head: u64) -> Vec<u8> {
    let bytes = head.to_be_bytes();
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes[..len].to_vec()
}

/// The head of a user key.
pub(crate) fn head_of(user_key: &[u8]) -> u64 {
    head8(user_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_1_front_2_it_goes_up_only_past_what_its_reader_sees() {
        let front = Front::default();
        let seq = SeqNo::new;
        let raise = |at, head| front.raise(seq(at), head, || seq(12));
        raise(10, 100);
        assert_eq!(front.head_at(SeqNo::MAX), 0, "front.3: commits 11 and 12 may have noted nothing");
        front.note_put(seq(13), 50);
        raise(12, 100);
        assert_eq!(front.head_at(SeqNo::MAX), 0, "front.2: the reader does not see 50");
        raise(12, 50);
        assert_eq!([11, 12].map(|at| front.head_at(seq(at))), [0, 50], "front.1");
        raise(13, 200);
        assert_eq!([12, 13].map(|at| front.head_at(seq(at))), [0, 200], "front.1");
        front.note_put(seq(14), 150);
        assert_eq!(front.head_at(seq(13)), 150, "front.2");
        raise(12, 180);
        assert_eq!(front.head_at(seq(14)), 150, "an older reader says nothing new");
        for n in 0..2 * REMEMBERED_MAX as u64 {
            front.note_put(seq(15 + n), 1000);
        }
        raise(15, 900);
        assert_eq!(front.head_at(SeqNo::MAX), 150, "front.2: the puts since then are not all remembered");
    }

    #[test]
    fn the_first_key_of_a_head_is_not_above_any_other() {
        let keys: [&[u8]; 8] = [
            b"",
            b"\0",
            b"a",
            b"a\0",
            b"a\0b",
            b"abcdefgh",
            b"abcdefghi",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ];
        for key in keys {
            let first = first_key(head_of(key));
            assert!(&first[..] <= key && head_of(&first) == head_of(key), "{key:?}");
        }
    }
}
