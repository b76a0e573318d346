//! Skip ranges: ranges without live keys, found by an iterator, that later iterators can skip.
//!
//! ```text
//!   keys:    live | dead dead dead dead dead | live    an iterator at 70 steps over them, adds a range
//!                 [--- skip range, since 70 --)        later iterators, in either direction, seek past it
//!                     ^ a put splits it
//! ```
//!
//! skip_ranges.1. A reader at the sequence number of a skip range or later finds no live key in it.
//! skip_ranges.2. A commit splits the skip ranges that it puts a key into before it becomes visible. An
//!     iterator may add a skip range only if no commit that it does not see has put a key into it. The keys
//!     of recent commits are therefore remembered.
//!
//! A skip range found by a reader at a pinned sequence number holds for that number, whatever
//! is committed.
//!
//! Commits record their puts only once an iterator has added a skip range. There are at most [`RANGES_MAX`]
//! skip ranges, and as many for each of [`PINS_MAX`] pinned numbers. The ones with the fewest dead keys are
//! dropped first.

use std::collections::VecDeque;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::types::SeqNo;

/// Number of consecutive dead keys that an iterator turns into a skip range. Stepping over fewer costs about
/// as much as looking for a skip range.
pub(crate) const DEAD_MIN: u64 = 32;
const RANGES_MAX: usize = 64;
const PINS_MAX: usize = 8;
/// Number of commits whose puts are remembered.
const REMEMBERED_MAX: usize = 256;

/// The skip ranges of a database. Keys are encoded.
#[derive(Debug, Default)]
pub(crate) struct SkipRanges {
    /// Whether commits must record their puts. SeqCst, like `entered`: either a commit sees this flag and
    /// records its puts, or the reader that sets it sees the sequence number of the commit.
    is_known: AtomicBool,
    /// Sequence number of the last commit that started.
    entered: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In key order, without overlaps.
    skip_ranges: Vec<SkipRange>,
    /// Skip ranges of pinned sequence numbers, oldest first.
    pinned: VecDeque<(SeqNo, Vec<SkipRange>)>,
    /// First and last keys put by recent commits, in commit order.
    puts: VecDeque<(SeqNo, Vec<u8>, Vec<u8>)>,
    /// Puts of commits up to this one may be missing from `puts`.
    forgotten: SeqNo,
    /// The last commit that was adopted as tables.
    adopted: SeqNo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SkipRange {
    start: Vec<u8>,
    /// The first key after the range.
    end: Vec<u8>,
    since: SeqNo,
    dead: u64,
}

/// What a reader sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Sequence number of the reader.
    pub at: SeqNo,
    /// The sources of the reader contain all commits up to this one.
    pub held: SeqNo,
    /// Largest sequence number in the tables of the reader.
    pub in_tables: SeqNo,
    /// Whether `at` is pinned.
    pub is_pinned: bool,
}

impl SkipRanges {
    /// Creates the skip ranges of a database whose last commit is `last`. Earlier puts are unknown, because
    /// readers of the past may be below `last`.
    pub(crate) fn of_database_at(last: SeqNo) -> Self {
        SkipRanges { entered: AtomicU64::new(last.get()), ..SkipRanges::default() }
    }

    /// Registers a commit that is not visible yet. Returns whether it must record its puts.
    #[inline]
    pub(crate) fn enter(&self, seq: SeqNo) -> bool {
        self.entered.store(seq.get(), Ordering::SeqCst);
        self.is_known.load(Ordering::SeqCst)
    }

    /// Records the keys that a commit puts, in ascending order (skip_ranges.2).
    pub(crate) fn note_puts<'k>(&self, seq: SeqNo, mut keys: impl Iterator<Item = &'k [u8]>) {
        let Some(first) = keys.next() else { return };
        let mut state = self.state.lock();
        state.cut(first);
        let mut last = first;
        for key in keys {
            state.cut(key);
            last = key;
        }
        state.puts.push_back((seq, first.to_vec(), last.to_vec()));
        if state.puts.len() > REMEMBERED_MAX
            && let Some((oldest, ..)) = state.puts.pop_front()
        {
            state.forgotten = state.forgotten.max(oldest);
        }
    }

    /// Registers a commit that is adopted as tables, whose keys are not enumerated.
    pub(crate) fn note_adopted(&self, seq: SeqNo) {
        self.entered.store(seq.get(), Ordering::SeqCst);
        let mut state = self.state.lock();
        state.skip_ranges.clear();
        state.forgotten = state.forgotten.max(seq);
        state.adopted = seq;
    }

    /// Number of skip ranges.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.state.lock().skip_ranges.len()
    }

    /// Returns the end of the skip range that contains a key, for a reader at `at`.
    pub(crate) fn end_after(&self, key: &[u8], at: SeqNo) -> Option<Vec<u8>> {
        self.find(key, at, |range| range.end.clone())
    }

    /// Returns the start of that skip range.
    pub(crate) fn start_before(&self, key: &[u8], at: SeqNo) -> Option<Vec<u8>> {
        self.find(key, at, |range| range.start.clone())
    }

    fn find(&self, key: &[u8], at: SeqNo, edge: impl Fn(&SkipRange) -> Vec<u8>) -> Option<Vec<u8>> {
        if !self.is_known.load(Ordering::SeqCst) {
            return None;
        }
        let state = self.state.lock();
        let in_list = |skip_ranges: &[SkipRange]| {
            let after = skip_ranges.partition_point(|range| range.start.as_slice() <= key);
            skip_ranges[..after]
                .last()
                .filter(|range| key < range.end.as_slice() && range.since <= at)
                .map(&edge)
        };
        let of_pin = || state.pinned.iter().find(|pin| pin.0 == at).and_then(|pin| in_list(&pin.1));
        in_list(&state.skip_ranges).or_else(of_pin)
    }

    /// Adds a skip range: an iterator found `dead` dead keys and no live key in `start..end`.
    pub(crate) fn note(&self, seen: Seen, start: &[u8], end: &[u8], dead: u64) {
        let Seen { at, held, in_tables, is_pinned } = seen;
        if start >= end || at == SeqNo::MAX {
            return;
        }
        let range = SkipRange { start: start.to_vec(), end: end.to_vec(), since: at, dead };
        let mut state = self.state.lock();
        if !self.is_known.swap(true, Ordering::SeqCst) {
            state.forgotten = state.forgotten.max(SeqNo::new(self.entered.load(Ordering::SeqCst)));
        }
        // Data that reached the sources after the view was created is not in them, although its sequence
        // number may be visible.
        let held = held.min(at);
        let is_put = |(seq, first, last): &(SeqNo, Vec<u8>, Vec<u8>)| {
            *seq > held && first < &range.end && last >= &range.start
        };
        let is_older = state.skip_ranges.iter().any(|other| other.since > at && other.meets(&range));
        let holds = held >= state.forgotten && in_tables >= state.adopted && !state.puts.iter().any(is_put);
        if holds && !is_older {
            add(&mut state.skip_ranges, range);
        } else if is_pinned && held >= at && (in_tables >= state.adopted || state.adopted > at) {
            match state.pinned.iter_mut().find(|pin| pin.0 == at) {
                Some(pin) => add(&mut pin.1, range),
                None => {
                    state.pinned.push_back((at, vec![range]));
                    if state.pinned.len() > PINS_MAX {
                        state.pinned.pop_front();
                    }
                }
            }
        }
    }
}

impl State {
    /// Splits the skip range that contains a key that is put.
    fn cut(&mut self, key: &[u8]) {
        let after = self.skip_ranges.partition_point(|range| range.start.as_slice() <= key);
        let Some(at) = after.checked_sub(1).filter(|at| key < self.skip_ranges[*at].end.as_slice()) else {
            return;
        };
        let range = self.skip_ranges.remove(at);
        let dead = range.dead / 2;
        let rest = SkipRange { start: [key, &[0]].concat(), dead, ..range.clone() };
        let pieces = [SkipRange { end: key.to_vec(), dead, ..range }, rest];
        let pieces = pieces.into_iter().filter(|piece| piece.start < piece.end && piece.dead > 0);
        self.skip_ranges.splice(at..at, pieces);
        trim(&mut self.skip_ranges);
    }
}

impl SkipRange {
    /// Returns whether two ranges overlap or touch.
    fn meets(&self, other: &SkipRange) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// Adds a range and merges it with the ranges that it overlaps or touches.
fn add(skip_ranges: &mut Vec<SkipRange>, mut range: SkipRange) {
    let first = skip_ranges.partition_point(|other| other.end < range.start);
    let after = skip_ranges.partition_point(|other| other.start <= range.end);
    for other in skip_ranges.drain(first..after.max(first)) {
        range.start = range.start.min(other.start);
        range.end = range.end.max(other.end);
        range.since = range.since.max(other.since);
        range.dead += other.dead;
    }
    skip_ranges.insert(first, range);
    trim(skip_ranges);
}

/// Drops the ranges with the fewest dead keys when there are too many.
fn trim(skip_ranges: &mut Vec<SkipRange>) {
    while skip_ranges.len() > RANGES_MAX {
        let least = (0..skip_ranges.len()).min_by_key(|at| skip_ranges[*at].dead);
        least.map(|at| skip_ranges.remove(at));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn seen(at: u64) -> Seen {
        let at = SeqNo::new(at);
        Seen { at, held: at, in_tables: at, is_pinned: false }
    }

    /// Random puts, removals and walks, at the last commit or an older pinned one. No skip range may contain
    /// a live key.
    #[test]
    fn skip_ranges_1_gaps_2_gaps_4_no_live_key_is_in_a_gap() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut found, mut of_pins) = (0, 0);
        for round in 0..200 {
            let skip_ranges = SkipRanges::default();
            let mut live: BTreeSet<u8> = (0..=255).filter(|_| rng.bool()).collect();
            let mut states = vec![(1_u64, live.clone())];
            for seq in 2..60 {
                let puts: BTreeSet<u8> = (0..rng.u8(..3)).map(|_| rng.u8(..)).collect();
                for _ in 0..rng.u8(..40) {
                    let from = rng.u8(..);
                    live.retain(|key| !(from..=from.saturating_add(20)).contains(key));
                }
                if skip_ranges.enter(SeqNo::new(seq)) {
                    let keys: Vec<_> = puts.iter().map(|key| [*key]).collect();
                    skip_ranges.note_puts(SeqNo::new(seq), keys.iter().map(|key| &key[..]));
                }
                live.extend(&puts);
                states.push((seq, live.clone()));
                for _ in 0..5 {
                    let is_pinned = rng.bool();
                    let place = if is_pinned { rng.usize(..states.len()) } else { states.len() - 1 };
                    let (at, state) = &states[place];
                    let key = rng.u8(..);
                    let end = state.range(key..).next().copied().unwrap_or(255);
                    skip_ranges.note(
                        Seen { is_pinned, ..seen(*at) },
                        &[key],
                        &[end],
                        u64::from(end.saturating_sub(key)),
                    );
                    for (at, state) in &states[states.len().saturating_sub(20)..] {
                        let key = rng.u8(..);
                        let at = SeqNo::new(*at);
                        let (Some(start), Some(end)) =
                            (skip_ranges.start_before(&[key], at), skip_ranges.end_after(&[key], at))
                        else {
                            continue;
                        };
                        let inside =
                            state.iter().find(|key| [**key][..] >= start[..] && [**key][..] < end[..]);
                        assert_eq!(
                            inside, None,
                            "skip_ranges.1: round {round}, {start:?} to {end:?} at {at}"
                        );
                        found += 1;
                        of_pins += u32::from(at.get() != seq);
                    }
                }
            }
        }
        assert!(found > 5000 && of_pins > 1000, "{found} {of_pins}");
    }

    #[test]
    fn skip_ranges_2_what_a_reader_does_not_hold_keeps_it_from_noting() {
        let skip_ranges = SkipRanges::default();
        let end_of = |at| skip_ranges.end_after(b"c", SeqNo::new(at));
        skip_ranges.enter(SeqNo::new(9));
        skip_ranges.note(seen(5), b"b", b"f", 100);
        assert_eq!(end_of(9), None, "the puts of 6 to 9 were not recorded");
        assert!(skip_ranges.enter(SeqNo::new(10)));
        skip_ranges.note_puts(SeqNo::new(10), [&b"d"[..]].into_iter());
        skip_ranges.note(seen(9), b"b", b"f", 100);
        skip_ranges.note(Seen { held: SeqNo::new(9), ..seen(12) }, b"b", b"f", 100);
        assert_eq!(end_of(12), None);
        skip_ranges.note(seen(10), b"b", b"d", 100);
        assert_eq!((end_of(9), end_of(10)), (None, Some(b"d".to_vec())), "skip_ranges.1");
        skip_ranges.note_adopted(SeqNo::new(13));
        assert_eq!(end_of(13), None);
        skip_ranges.note(Seen { in_tables: SeqNo::new(10), ..seen(14) }, b"b", b"d", 100);
        assert_eq!(end_of(14), None, "the tables of 13 are not in the view");
        skip_ranges.note(seen(14), b"b", b"d", 100);
        assert_eq!(end_of(14), Some(b"d".to_vec()));
    }

    #[test]
    fn skip_ranges_2_what_was_put_before_the_opening_is_not_remembered() {
        let skip_ranges = SkipRanges::of_database_at(SeqNo::new(9));
        skip_ranges.note(Seen { held: SeqNo::new(9), ..seen(5) }, b"b", b"f", 100);
        assert_eq!(skip_ranges.end_after(b"c", SeqNo::new(9)), None, "6 to 9 may have put something");
        skip_ranges.note(seen(9), b"b", b"f", 100);
        assert_eq!(skip_ranges.end_after(b"c", SeqNo::new(9)), Some(b"f".to_vec()));
    }

    #[test]
    fn skip_ranges_5_the_smallest_go_first() {
        let skip_ranges = SkipRanges::default();
        for n in 0..200_u8 {
            skip_ranges.note(seen(1), &[n, 0], &[n, 9], 1000 - u64::from(n));
        }
        let kept = (0..200_u8).filter(|n| skip_ranges.end_after(&[*n, 1], SeqNo::new(1)).is_some());
        assert!(kept.eq(0..RANGES_MAX as u8));
    }
}
