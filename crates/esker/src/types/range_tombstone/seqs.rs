//! The sequence numbers of a fragment: a list that grows at one end and that many sets share.
//!
//! ```text
//!   at commit 7   newest 7, then the first 2 of [3 5 . .]
//!   at commit 9   newest 9, then the first 3 of [3 5 7 .]      the same buffer, one more number in it
//! ```
//!
//! seqs.1. The numbers of a list are distinct, and `push` takes none older than the newest.
//! seqs.2. A place of a buffer is written once, by the list that claimed it. A list reads only places that it
//!     claimed, or had when it was cloned. So a list never changes under the holders of a clone.

use std::sync::Arc;

use super::SeqNo;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::fault::{self, Fault};

/// Places in the first buffer.
const PLACES_MIN: usize = 4;

/// One or more sequence numbers. A clone copies none of them.
#[derive(Clone)]
pub struct Seqs {
    newest: SeqNo,
    /// Number of places in `older` that belong to this list.
    older_len: usize,
    older: Option<Arc<Buffer>>,
}

/// Numbers, oldest first.
struct Buffer {
    /// Number of claimed places. Relaxed: it only separates the claims.
    claimed: AtomicUsize,
    /// Relaxed: a list reaches another thread through a lock or a join, which orders the stores to its places
    /// before the loads.
    places: Box<[AtomicU64]>,
}

impl Seqs {
    /// A list of one number.
    pub fn one(seq: SeqNo) -> Self {
        Seqs { newest: seq, older_len: 0, older: None }
    }

    /// A list of these numbers.
    ///
    /// # Panics
    /// If it is empty, or not strictly descending (seqs.1).
    pub fn from_falling(falling: &[SeqNo]) -> Self {
        let (&newest, older) = falling.split_first().expect("seqs.1: a list has a number");
        assert!(falling.is_sorted_by(|a, b| a > b), "seqs.1");
        let buffer = || Arc::new(Buffer::new(older.iter().rev().map(|seq| seq.get()), older.len()));
        Seqs { newest, older_len: older.len(), older: (!older.is_empty()).then(buffer) }
    }

    /// The numbers of all these lists.
    ///
    /// # Panics
    /// If there is no list (seqs.1).
    pub fn union(lists: &[&Seqs]) -> Self {
        if let [only] = lists {
            return Seqs::clone(only);
        }
        let mut all: Vec<_> = lists.iter().flat_map(|list| list.iter()).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.dedup();
        Seqs::from_falling(&all)
    }

    /// Adds a number. Does nothing if it is the newest already.
    ///
    /// # Panics
    /// If the list has a newer number (seqs.1).
    pub fn push(&mut self, seq: SeqNo) {
        if seq == self.newest {
            return;
        }
        assert!(seq > self.newest, "seqs.1");
        let place = self.older_len;
        if !self.older.as_ref().is_some_and(|buffer| buffer.claim(place, self.newest)) {
            let numbers = self.older().iter().map(|n| n.load(Ordering::Relaxed)).chain([self.newest.get()]);
            self.older = Some(Arc::new(Buffer::new(numbers, (2 * place).max(PLACES_MIN))));
        }
        self.older_len += 1;
        self.newest = seq;
    }

    /// The newest number.
    #[inline]
    pub fn newest(&self) -> SeqNo {
        self.newest
    }

    /// The oldest number.
    pub fn oldest(&self) -> SeqNo {
        self.older().first().map_or(self.newest, read)
    }

    /// The newest number not newer than `at`; zero if there is none.
    #[inline]
    pub fn newest_at(&self, at: SeqNo) -> SeqNo {
        if self.newest <= at {
            return self.newest;
        }
        let older = self.older();
        let after = older.partition_point(|n| n.load(Ordering::Relaxed) <= at.get());
        older[..after].last().map_or(SeqNo::ZERO, read)
    }

    /// The length of the list.
    pub fn len(&self) -> usize {
        self.older_len + 1
    }

    /// All numbers, newest first.
    pub fn iter(&self) -> impl Iterator<Item = SeqNo> + '_ {
        std::iter::once(self.newest).chain(self.older().iter().rev().map(read))
    }

    /// Bytes of memory shared with its clones.
    pub fn shared_bytes(&self) -> usize {
        self.older.as_ref().map_or(0, |buffer| size_of::<Buffer>() + size_of_val(&*buffer.places))
    }

    fn older(&self) -> &[AtomicU64] {
        self.older.as_ref().map_or(&[], |buffer| &buffer.places[..self.older_len])
    }
}

fn read(place: &AtomicU64) -> SeqNo {
    SeqNo::new(place.load(Ordering::Relaxed))
}

impl Buffer {
    /// A buffer that starts with these numbers.
    fn new(numbers: impl Iterator<Item = u64>, places: usize) -> Self {
        let mut places: Box<[AtomicU64]> = (0..places).map(|_| AtomicU64::new(0)).collect();
        let mut claimed = 0;
        for number in numbers {
            places[claimed] = AtomicU64::new(number);
            claimed += 1;
        }
        Buffer { claimed: AtomicUsize::new(claimed), places }
    }

    /// Writes `seq` to a place, unless it is claimed already (seqs.2).
    fn claim(&self, place: usize, seq: SeqNo) -> bool {
        let Some(slot) = self.places.get(place) else { return false };
        let claimed = if fault::is_on(Fault::PlaceClaimedTwice) {
            let is_free = self.claimed.load(Ordering::Relaxed) == place;
            if is_free {
                self.claimed.store(place + 1, Ordering::Relaxed);
            }
            is_free
        } else {
            self.claimed.compare_exchange(place, place + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if claimed {
            slot.store(seq.get(), Ordering::Relaxed);
        }
        claimed
    }
}

impl PartialEq for Seqs {
    fn eq(&self, other: &Self) -> bool {
        // Lists that differ mostly differ at an end.
        let ends = |list: &Seqs| (list.len(), list.newest, list.oldest());
        ends(self) == ends(other) && self.iter().eq(other.iter())
    }
}

impl Eq for Seqs {}

impl std::fmt::Debug for Seqs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seqs(falling: &[u64]) -> Seqs {
        Seqs::from_falling(&falling.iter().map(|&n| SeqNo::new(n)).collect::<Vec<_>>())
    }

    #[test]
    fn seqs_1_numbers_come_back_newest_first() {
        let mut list = Seqs::one(SeqNo::new(3));
        for n in [3, 5, 5, 8] {
            list.push(SeqNo::new(n));
        }
        assert_eq!(list, seqs(&[8, 5, 3]));
        assert_eq!((list.len(), list.newest().get(), list.oldest().get()), (3, 8, 3));
        let at = |n| list.newest_at(SeqNo::new(n)).get();
        assert_eq!([at(9), at(8), at(7), at(5), at(4), at(3), at(2)], [8, 8, 5, 5, 3, 3, 0]);
        let union = Seqs::union(&[&list, &seqs(&[9, 5]), &seqs(&[1])]);
        assert_eq!(union, seqs(&[9, 8, 5, 3, 1]));
    }

    #[test]
    #[should_panic(expected = "seqs.1")]
    fn seqs_1_an_older_number_is_refused() {
        seqs(&[8, 5]).push(SeqNo::new(7));
    }

    #[test]
    fn seqs_2_clones_that_grow_apart_do_not_see_each_other() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut lists = vec![(Seqs::one(SeqNo::new(1)), vec![SeqNo::new(1)])];
        for n in 2..2000 {
            let (mut list, mut numbers) =
                lists[rng.usize(lists.len().saturating_sub(9)..lists.len())].clone();
            list.push(SeqNo::new(n));
            numbers.insert(0, SeqNo::new(n));
            lists.push((list, numbers));
        }
        for (list, numbers) in lists {
            assert_eq!(list.iter().collect::<Vec<_>>(), numbers);
        }
    }

    #[test]
    fn seqs_2_a_list_that_only_grows_keeps_one_buffer() {
        let mut list = seqs(&[2, 1]);
        let mut buffers = 0;
        for n in 3..10_000 {
            let before = list.clone();
            list.push(SeqNo::new(n));
            buffers += usize::from(before.shared_bytes() != list.shared_bytes());
        }
        assert!(buffers < 20, "{buffers}");
    }
}
