//! Prefetches values in blob files for a walk that reads them in sequence.
//!
//! ```text
//!   current entry | next entries ........ | further entries .......
//!                 | value: first lines,   | slot of the cache
//!                 | or pages of the file  |
//! ```
//!
//! A value is found through its slot in the cache, so the slot is prefetched first, and the value once the
//! slot has arrived. The distances grow with the number of values that were read in sequence, and are longer
//! where values are not cached.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::blob::BlobSet;
use crate::types::stored::Stored;

/// Number of the next values that are prefetched: at first, of cached ones, and of others.
const VALUES_MIN: usize = 2;
const CACHED_MAX: usize = 4;
const VALUES_MAX: usize = 32;
/// Number of further entries whose slots are prefetched.
const SLOTS_MORE: usize = 6;
/// After this number of cached values, the walk expects further ones.
const CACHED_AGAIN: usize = 64;
/// A number of moves after which the next value does not follow the last one read.
const ELSEWHERE: usize = 2;
/// Stands for a move backward. Values are not prefetched in this direction.
const BACKWARD: usize = 1 << 32;

/// How far a walk has prefetched. Relaxed: the numbers are hints.
#[derive(Default)]
pub(super) struct ValuesAhead {
    /// Number of moves to a next entry since the last value was read.
    moves: AtomicUsize,
    /// Number of values read in sequence.
    streak: AtomicUsize,
    /// Number of entries after the current one whose slots and values have been prefetched.
    slots: AtomicUsize,
    values: AtomicUsize,
    /// Zero, or the number of cached values until the walk expects only cached ones.
    not_cached: AtomicUsize,
}

impl ValuesAhead {
    /// The walk moves to the next entry.
    #[inline(always)]
    pub(super) fn next(&mut self) {
        *self.moves.get_mut() += 1;
    }

    /// The walk moves to any entry.
    #[inline(always)]
    pub(super) fn seek(&mut self) {
        *self.moves.get_mut() = ELSEWHERE;
    }

    /// The walk moves backward.
    #[inline(always)]
    pub(super) fn back(&mut self) {
        *self.moves.get_mut() = BACKWARD;
    }

    /// Prefetches when the value of the current entry is read. `stored` returns the value that is a number of
    /// entries ahead, or `None` beyond the block or leaf.
    #[cold]
    pub(super) fn read<'a>(&self, blobs: &BlobSet, stored: impl Fn(usize) -> Option<Stored<&'a [u8]>>) {
        let [moves, streak, slots, values] = [&self.moves, &self.streak, &self.slots, &self.values];
        let moved = moves.swap_relaxed(0);
        match moved {
            0 => {}
            1 => {
                streak.set(streak.get() + 1);
                slots.set(slots.get().saturating_sub(1));
                values.set(values.get().saturating_sub(1));
            }
            _ => [streak, slots, values].iter().for_each(|number| number.set(0)),
        }
        if moved >= BACKWARD {
            return;
        }
        let is_sequence = streak.get() > 0;
        let max = if self.not_cached.get() > 0 { VALUES_MAX } else { CACHED_MAX };
        let values_wanted = streak.get().clamp(VALUES_MIN, max);
        while slots.get() < values_wanted + SLOTS_MORE {
            let Some(next) = stored(slots.get() + 1) else { break };
            if let Stored::Blob(pointer) = next {
                blobs.prefetch_slot(pointer);
            }
            slots.set(slots.get() + 1);
        }
        while values.get() < values_wanted {
            let Some(next) = stored(values.get() + 1) else { break };
            if let Stored::Blob(pointer) = next {
                let is_cached = blobs.prefetch(pointer, is_sequence);
                let left = self.not_cached.get().saturating_sub(1);
                self.not_cached.set(if is_cached { left } else { CACHED_AGAIN });
                if !is_cached && !is_sequence {
                    break;
                }
            }
            values.set(values.get() + 1);
        }
    }
}

/// Relaxed access without a locked instruction.
trait Hint {
    fn get(&self) -> usize;
    fn set(&self, number: usize);
    fn swap_relaxed(&self, number: usize) -> usize {
        let before = self.get();
        self.set(number);
        before
    }
}

impl Hint for AtomicUsize {
    #[inline(always)]
    fn get(&self) -> usize {
        self.load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn set(&self, number: usize) {
        self.store(number, Ordering::Relaxed);
    }
}
