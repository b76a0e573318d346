//! The low-water key of a keyspace: no key below it exists, so iterators skip the dead keys before it.
//!
//! ```text
//!   queue:  dead dead dead dead | live live live    an iterator at 70 finds the first live key
//!                               ^ low-water key     a put below it lowers the low-water key
//! ```
//!
//! low_water_key.1. A reader at `since` or later finds no key whose head is below the head of the low-water
//!     key.
//! low_water_key.2. A commit lowers the low-water key before it becomes visible. A reader raises it only if
//!     no commit that it does not see has put a key below. The puts of recent commits are therefore
//!     remembered.
//!
//! Commits record their puts only for keyspaces in which a reader has raised the low-water key. The head of a
//! key is its first 8 bytes.

use std::collections::VecDeque;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::types::SeqNo;
use crate::types::key::head8;

/// Number of commits whose puts are remembered.
const REMEMBERED_MAX: usize = 256;

/// The low-water key of a keyspace.
#[derive(Debug, Default)]
pub(crate) struct LowWaterKey {
    /// Whether commits must record their puts. SeqCst, like the sequence number of the last commit that
    /// started. Either the commit sees this flag and records its puts, or the reader that sets it sees the
    /// commit.
    is_known: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    head: u64,
    since: SeqNo,
    /// Lowest heads put by recent commits, in commit order.
    puts: VecDeque<(SeqNo, u64)>,
    /// Puts of commits up to this one may be missing from `puts`.
    forgotten: SeqNo,
}

impl LowWaterKey {
    /// Returns whether commits must record their puts.
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::SeqCst)
    }

    /// Records that a commit puts keys, the lowest with this head (low_water_key.2).
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

    /// Returns the head below which a reader at `at` finds nothing (low_water_key.1).
    pub(crate) fn head_at(&self, at: SeqNo) -> u64 {
        if !self.is_known() {
            return 0;
        }
        let state = self.state.lock();
        if state.since <= at { state.head } else { 0 }
    }

    /// Raises the low-water key: a reader at `at` found no key with a lower head. `entered` returns the last
    /// commit that started.
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

/// Returns the first user key with this head.
pub(crate) fn first_key(head: u64) -> Vec<u8> {
    let bytes = head.to_be_bytes();
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes[..len].to_vec()
}

/// Returns the head of a user key.
pub(crate) fn head_of(user_key: &[u8]) -> u64 {
    head8(user_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_water_key_1_low_water_key_2_it_goes_up_only_past_what_its_reader_sees() {
        let low_water_key = LowWaterKey::default();
        let seq = SeqNo::new;
        let raise = |at, head| low_water_key.raise(seq(at), head, || seq(12));
        raise(10, 100);
        assert_eq!(low_water_key.head_at(SeqNo::MAX), 0, "commits 11 and 12 may have recorded nothing");
        low_water_key.note_put(seq(13), 50);
        raise(12, 100);
        assert_eq!(low_water_key.head_at(SeqNo::MAX), 0, "low_water_key.2: the reader does not see 50");
        raise(12, 50);
        assert_eq!([11, 12].map(|at| low_water_key.head_at(seq(at))), [0, 50], "low_water_key.1");
        raise(13, 200);
        assert_eq!([12, 13].map(|at| low_water_key.head_at(seq(at))), [0, 200], "low_water_key.1");
        low_water_key.note_put(seq(14), 150);
        assert_eq!(low_water_key.head_at(seq(13)), 150, "low_water_key.2");
        raise(12, 180);
        assert_eq!(low_water_key.head_at(seq(14)), 150, "an older reader changes nothing");
        for n in 0..2 * REMEMBERED_MAX as u64 {
            low_water_key.note_put(seq(15 + n), 1000);
        }
        raise(15, 900);
        assert_eq!(
            low_water_key.head_at(SeqNo::MAX),
            150,
            "low_water_key.2: not all puts since then are remembered"
        );
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
