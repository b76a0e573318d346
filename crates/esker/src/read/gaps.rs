//! Gaps: ranges in which a walk has found nothing live, so that no other has to step over what was removed there.
//!
//! ```text
//!   keys:    live | dead dead dead dead dead | live        a walk at number 70 steps over them, and notes the gap
//!                 [------- gap, since 70 ----)             later walks, either way, seek past it
//!                     ^ a put cuts it in two
//! ```
//!
//! gaps.1. A reader at a gap's number or later finds no live key in it.
//! gaps.2. A commit cuts the gaps that it puts a key into, before it is visible. A walk may note a gap only if no commit that it does not see has
//!      put a key into it: which keys the last commits have put into is remembered.
//! gaps.3. Commits note what they put only once a walk has noted a gap.
//! gaps.4. A gap found by a reader at a pinned number holds for that number, whatever is committed.
//! gaps.5. There are at most [`GAPS_MAX`], and as many for each of [`PINS_MAX`] numbers: those with the fewest dead keys go first.

use std::collections::VecDeque;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::types::SeqNo;

/// A walk that steps over so many dead keys in a row notes a gap. Stepping over fewer costs about as much as looking for gaps.
pub(crate) const DEAD_MIN: u64 = 32;
const GAPS_MAX: usize = 64;
const PINS_MAX: usize = 8;
/// The puts of so many commits are remembered.
const REMEMBERED_MAX: usize = 256;

/// See the module's text. Keys are encoded.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// gaps.3. SeqCst, as is `entered`: either the commit sees this and notes what it puts, or the reader who sets it sees the commit's number.
    is_known: AtomicBool,
    /// The commit that was entered last.
    entered: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In order, without overlaps.
    gaps: Vec<Gap>,
    /// gaps.4, oldest first.
    pinned: VecDeque<(SeqNo, Vec<Gap>)>,
    /// The first and last keys that commits have put, by commit, ascending.
    puts: VecDeque<(SeqNo, Vec<u8>, Vec<u8>)>,
    /// Puts of commits up to this one may not be among them.
    forgotten: SeqNo,
    /// The last commit that was adopted as tables.
    adopted: SeqNo,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Gap {
    start: Vec<u8>,
    /// The first key that is not in it.
    end: Vec<u8>,
    since: SeqNo,
    dead: u64,
}

/// What a reader sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The number that it reads at.
    pub at: SeqNo,
    /// Its sources are known to hold the commits up to this one.
    pub held: SeqNo,
    /// No table of its is newer.
    pub in_tables: SeqNo,
    /// Whether the number is pinned.
    pub is_pinned: bool,
}

impl Gaps {
    /// Of a database whose last commit is this one, of whose puts nothing is remembered: readers of the past may stand below it.
    pub(crate) fn behind(last: SeqNo) -> Self {
        Gaps { entered: AtomicU64::new(last.get()), ..Gaps::default() }
    }

    /// A commit begins that is not visible yet; whether it has to note what it puts.
    #[inline]
    pub(crate) fn enter(&self, seq: SeqNo) -> bool {
        self.entered.store(seq.get(), Ordering::SeqCst);
        self.is_known.load(Ordering::SeqCst)
    }

    /// The commit puts these keys, ascending (gaps.2).
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

    /// The commit puts keys that nobody looks through: it is adopted as tables.
    pub(crate) fn note_adopted(&self, seq: SeqNo) {
        self.entered.store(seq.get(), Ordering::SeqCst);
        let mut state = self.state.lock();
        state.gaps.clear();
        state.forgotten = state.forgotten.max(seq);
        state.adopted = seq;
    }

    /// The number of gaps.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.state.lock().gaps.len()
    }

    /// Where the gap ends that a key is in, for a reader at this number.
    pub(crate) fn end_after(&self, key: &[u8], at: SeqNo) -> Option<Vec<u8>> {
        self.find(key, at, |gap| gap.end.clone())
    }

    /// Where it begins.
    pub(crate) fn start_before(&self, key: &[u8], at: SeqNo) -> Option<Vec<u8>> {
        self.find(key, at, |gap| gap.start.clone())
    }

    fn find(&self, key: &[u8], at: SeqNo, edge: impl Fn(&Gap) -> Vec<u8>) -> Option<Vec<u8>> {
        if !self.is_known.load(Ordering::SeqCst) {
            return None;
        }
        let state = self.state.lock();
        let in_list = |gaps: &[Gap]| {
            let behind = gaps.partition_point(|gap| gap.start.as_slice() <= key);
            gaps[..behind].last().filter(|gap| key < gap.end.as_slice() && gap.since <= at).map(&edge)
        };
        let of_pin = || state.pinned.iter().find(|pin| pin.0 == at).and_then(|pin| in_list(&pin.1));
        in_list(&state.gaps).or_else(of_pin)
    }

    /// A walk has found nothing live from `start` on and before `end`, but this many dead keys.
    pub(crate) fn note(&self, seen: Seen, start: &[u8], end: &[u8], dead: u64) {
        let Seen { at, held, in_tables, is_pinned } = seen;
        if start >= end || at == SeqNo::MAX {
            return;
        }
        let gap = Gap { start: start.to_vec(), end: end.to_vec(), since: at, dead };
        let mut state = self.state.lock();
        if !self.is_known.swap(true, Ordering::SeqCst) {
            state.forgotten = state.forgotten.max(SeqNo::new(self.entered.load(Ordering::SeqCst)));
        }
        // What has come to the view's sources after the view was made is not in them, though its number may be seen.
        let held = held.min(at);
        let is_put = |(seq, first, last): &(SeqNo, Vec<u8>, Vec<u8>)| {
            *seq > held && first < &gap.end && last >= &gap.start
        };
        let is_older = state.gaps.iter().any(|other| other.since > at && other.meets(&gap));
        let holds = held >= state.forgotten && in_tables >= state.adopted && !state.puts.iter().any(is_put);
        if holds && !is_older {
            add(&mut state.gaps, gap);
        } else if is_pinned && held >= at && (in_tables >= state.adopted || state.adopted > at) {
            match state.pinned.iter_mut().find(|pin| pin.0 == at) {
                Some(pin) => add(&mut pin.1, gap),
                None => {
                    state.pinned.push_back((at, vec![gap]));
                    if state.pinned.len() > PINS_MAX {
                        state.pinned.pop_front();
                    }
                }
            }
        }
    }
}

impl State {
    /// A key is put.
    fn cut(&mut self, key: &[u8]) {
        let behind = self.gaps.partition_point(|gap| gap.start.as_slice() <= key);
        let Some(at) = behind.checked_sub(1).filter(|at| key < self.gaps[*at].end.as_slice()) else { return };
        let gap = self.gaps.remove(at);
        let dead = gap.dead / 2;
        let rest = Gap { start: [key, &[0]].concat(), dead, ..gap.clone() };
        let pieces = [Gap { end: key.to_vec(), dead, ..gap }, rest];
        let pieces = pieces.into_iter().filter(|piece| piece.start < piece.end && piece.dead > 0);
        self.gaps.splice(at..at, pieces);
        trim(&mut self.gaps);
    }
}

impl Gap {
    /// Whether they overlap or touch.
    fn meets(&self, other: &Gap) -> bool {
        self.start <= other.end && other.start <= self.end
    }
}

/// Adds a gap, and makes one of it and those that it meets.
fn add(gaps: &mut Vec<Gap>, mut gap: Gap) {
    let first = gaps.partition_point(|other| other.end < gap.start);
    let behind = gaps.partition_point(|other| other.start <= gap.end);
    for other in gaps.drain(first..behind.max(first)) {
        gap.start = gap.start.min(other.start);
        gap.end = gap.end.max(other.end);
        gap.since = gap.since.max(other.since);
        gap.dead += other.dead;
    }
    gaps.insert(first, gap);
    trim(gaps);
}

/// gaps.5
fn trim(gaps: &mut Vec<Gap>) {
    while gaps.len() > GAPS_MAX {
        let least = (0..gaps.len()).min_by_key(|at| gaps[*at].dead);
        least.map(|at| gaps.remove(at));
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

    /// Keys are put and removed at random, walks at the last commit or an older pinned one note what they find dead: nobody is ever told to
    /// pass over a live key.
    #[test]
    fn gaps_1_gaps_2_gaps_4_no_live_key_is_in_a_gap() {
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut found, mut of_pins) = (0, 0);
        for round in 0..200 {
            let gaps = Gaps::default();
            let mut live: BTreeSet<u8> = (0..=255).filter(|_| rng.bool()).collect();
            let mut states = vec![(1_u64, live.clone())];
            for seq in 2..60 {
                let puts: BTreeSet<u8> = (0..rng.u8(..3)).map(|_| rng.u8(..)).collect();
                for _ in 0..rng.u8(..40) {
                    let from = rng.u8(..);
                    live.retain(|key| !(from..=from.saturating_add(20)).contains(key));
                }
                if gaps.enter(SeqNo::new(seq)) {
                    let keys: Vec<_> = puts.iter().map(|key| [*key]).collect();
                    gaps.note_puts(SeqNo::new(seq), keys.iter().map(|key| &key[..]));
                }
                live.extend(&puts);
                states.push((seq, live.clone()));
                for _ in 0..5 {
                    let is_pinned = rng.bool();
                    let place = if is_pinned { rng.usize(..states.len()) } else { states.len() - 1 };
                    let (at, state) = &states[place];
                    let key = rng.u8(..);
                    let end = state.range(key..).next().copied().unwrap_or(255);
                    gaps.note(
                        Seen { is_pinned, ..seen(*at) },
                        &[key],
                        &[end],
                        u64::from(end.saturating_sub(key)),
                    );
                    for (at, state) in &states[states.len().saturating_sub(20)..] {
                        let key = rng.u8(..);
                        let at = SeqNo::new(*at);
                        let (Some(start), Some(end)) =
                            (gaps.start_before(&[key], at), gaps.end_after(&[key], at))
                        else {
                            continue;
                        };
                        let inside =
                            state.iter().find(|key| [**key][..] >= start[..] && [**key][..] < end[..]);
                        assert_eq!(inside, None, "gaps.1: round {round}, {start:?} to {end:?} at {at}");
                        found += 1;
                        of_pins += u32::from(at.get() != seq);
                    }
                }
            }
        }
        assert!(found > 5000 && of_pins > 1000, "{found} {of_pins}");
    }

    #[test]
    fn gaps_2_what_a_reader_does_not_hold_keeps_it_from_noting() {
        let gaps = Gaps::default();
        let end_of = |at| gaps.end_after(b"c", SeqNo::new(at));
        gaps.enter(SeqNo::new(9));
        gaps.note(seen(5), b"b", b"f", 100);
        assert_eq!(end_of(9), None, "gaps.3: what 6 to 9 have put nobody knows");
        assert!(gaps.enter(SeqNo::new(10)));
        gaps.note_puts(SeqNo::new(10), [&b"d"[..]].into_iter());
        gaps.note(seen(9), b"b", b"f", 100);
        gaps.note(Seen { held: SeqNo::new(9), ..seen(12) }, b"b", b"f", 100);
        assert_eq!(end_of(12), None);
        gaps.note(seen(10), b"b", b"d", 100);
        assert_eq!((end_of(9), end_of(10)), (None, Some(b"d".to_vec())), "gaps.1");
        gaps.note_adopted(SeqNo::new(13));
        assert_eq!(end_of(13), None);
        gaps.note(Seen { in_tables: SeqNo::new(10), ..seen(14) }, b"b", b"d", 100);
        assert_eq!(end_of(14), None, "the tables of 13 are not in its view");
        gaps.note(seen(14), b"b", b"d", 100);
        assert_eq!(end_of(14), Some(b"d".to_vec()));
    }

    #[test]
    fn gaps_2_what_was_put_before_the_opening_is_not_remembered() {
        let gaps = Gaps::behind(SeqNo::new(9));
        gaps.note(Seen { held: SeqNo::new(9), ..seen(5) }, b"b", b"f", 100);
        assert_eq!(gaps.end_after(b"c", SeqNo::new(9)), None, "6 to 9 may have put something");
        gaps.note(seen(9), b"b", b"f", 100);
        assert_eq!(gaps.end_after(b"c", SeqNo::new(9)), Some(b"f".to_vec()));
    }

    #[test]
    fn gaps_5_the_smallest_go_first() {
        let gaps = Gaps::default();
        for n in 0..200_u8 {
            gaps.note(seen(1), &[n, 0], &[n, 9], 1000 - u64::from(n));
        }
        let kept = (0..200_u8).filter(|n| gaps.end_after(&[*n, 1], SeqNo::new(1)).is_some());
        assert!(kept.eq(0..GAPS_MAX as u8), "gaps.5");
    }
}
