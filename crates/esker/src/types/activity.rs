//! Per-thread counters: no cache line is written by two threads.
//!
//! ```text
//!   thread --index, its own while it lives--> line of a database: gets, cache hits and misses, commits
//!   stats  --sums all lines
//! ```
//!
//! An index below `SHARED` belongs to one living thread. It passes from one thread to the next under a lock.
//! So its owner adds with a load and a store, and no count is lost.
//!
//! Further threads share the last line and add atomically.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Index of the shared line. Below it are as many lines as a word has bits.
const SHARED: usize = 64;
const LINES: usize = SHARED + 1;
const UNKNOWN: usize = usize::MAX;

/// One in this many gets is measured, on average.
const GETS_PER_SAMPLE: u64 = 64;
/// One in this many commits that do not wait for the disk is measured, on average.
pub(crate) const COMMITS_PER_SAMPLE: u64 = 8;

/// The free indices as bits.
static FREE: Mutex<u64> = Mutex::new(u64::MAX);

thread_local! {
    static INDEX: Cell<usize> = const { Cell::new(UNKNOWN) };
    static OWNED: Owned = Owned::claim();
}

/// An index, owned until the thread ends.
struct Owned(usize);

impl Owned {
    fn claim() -> Owned {
        let mut free = FREE.lock();
        // If no bit is set, this is `SHARED`.
        let index = free.trailing_zeros() as usize;
        *free &= free.wrapping_sub(1);
        Owned(index)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // For calls that the thread still makes while it ends.
        INDEX.set(SHARED);
        if self.0 < SHARED {
            *FREE.lock() |= 1 << self.0;
        }
    }
}

#[inline(always)]
fn index() -> usize {
    match INDEX.get() {
        UNKNOWN => find_index(),
        index => index,
    }
}

#[cold]
fn find_index() -> usize {
    let index = OWNED.try_with(|owned| owned.0).unwrap_or(SHARED);
    INDEX.set(index);
    index
}

/// The counters of one database. Relaxed throughout: they order nothing.
pub(crate) struct Activity {
    lines: Box<[Line; LINES]>,
    /// One in this many gets is measured, on average.
    gets_per_sample: AtomicU64,
}

/// The counters of one thread. Aligned to two cache lines, which processors fetch together.
#[derive(Default)]
#[repr(align(128))]
struct Line {
    gets: AtomicU64,
    /// The value of `gets` at which the next get is measured.
    next_get: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    commits: AtomicU64,
    /// The value of `commits` at which the next commit is measured.
    next_commit: AtomicU64,
    committed_bytes: AtomicU64,
}

/// Sums over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Keys looked up one at a time.
    pub gets: u64,
    /// Blocks found in the cache.
    pub hits: u64,
    /// Blocks read from files, for readers.
    pub misses: u64,
    /// Successful commits with at least one write.
    pub commits: u64,
    /// Bytes that they wrote.
    pub committed_bytes: u64,
}

impl Default for Activity {
    fn default() -> Self {
        // Never on the stack: the threads of a model checker have small ones.
        let lines: Box<[Line]> = (0..LINES).map(|_| Line::default()).collect();
        let lines = lines.try_into().unwrap_or_else(|_| unreachable!("there are `LINES`"));
        Activity { lines, gets_per_sample: GETS_PER_SAMPLE.into() }
    }
}

/// Adds to a counter and returns the sum.
#[inline(always)]
fn bump(counter: &AtomicU64, n: u64, index: usize) -> u64 {
    if index < SHARED {
        let sum = counter.load(Ordering::Relaxed) + n;
        counter.store(sum, Ordering::Relaxed);
        sum
    } else {
        counter.fetch_add(n, Ordering::Relaxed) + n
    }
}

/// Returns whether operation `count` is measured. If so, chooses the next one at a pseudo-random distance, so
/// that patterns in the caller's operations do not bias the sample.
#[inline(always)]
fn is_due(next: &AtomicU64, count: u64, per_sample: impl FnOnce() -> u64) -> bool {
    let due = count >= next.load(Ordering::Relaxed);
    if due {
        let random = count.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        next.store(count + 1 + random % (2 * per_sample() - 1), Ordering::Relaxed);
    }
    due
}

impl Activity {
    /// Has all gets measured. Called before the first one.
    pub(crate) fn measure_all_gets(&self) {
        self.gets_per_sample.store(1, Ordering::Relaxed);
    }

    /// Counts a get. Returns whether to measure it.
    #[inline(always)]
    pub(crate) fn get_begins(&self) -> bool {
        let index = index();
        let line = &self.lines[index];
        let count = bump(&line.gets, 1, index);
        is_due(&line.next_get, count, || self.gets_per_sample.load(Ordering::Relaxed))
    }

    /// Counts a block found in the cache.
    #[inline(always)]
    pub(crate) fn hit(&self) {
        let index = index();
        bump(&self.lines[index].hits, 1, index);
    }

    /// Counts a block read from its file.
    pub(crate) fn miss(&self) {
        let index = index();
        bump(&self.lines[index].misses, 1, index);
    }

    /// Called before a commit that does not wait for the disk. Returns whether to measure it.
    pub(crate) fn commit_begins(&self) -> bool {
        let line = &self.lines[index()];
        is_due(&line.next_commit, line.commits.load(Ordering::Relaxed) + 1, || COMMITS_PER_SAMPLE)
    }

    /// Counts a successful commit of this many bytes.
    pub(crate) fn committed(&self, bytes: u64) {
        let index = index();
        let line = &self.lines[index];
        bump(&line.commits, 1, index);
        bump(&line.committed_bytes, bytes, index);
    }

    /// Sums the counters of all threads.
    pub(crate) fn sums(&self) -> Sums {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.lines.iter().fold(Sums::default(), |sums, line| Sums {
            gets: sums.gets + get(&line.gets),
            hits: sums.hits + get(&line.hits),
            misses: sums.misses + get(&line.misses),
            commits: sums.commits + get(&line.commits),
            committed_bytes: sums.committed_bytes + get(&line.committed_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_2_no_count_is_lost_with_more_threads_than_lines() {
        let (activity, threads, each) = (Activity::default(), 3 * SHARED as u64, 500);
        // Two rounds, so that indices pass from ended threads to new ones.
        for _ in 0..2 {
            let barrier = std::sync::Barrier::new(threads as usize);
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        barrier.wait();
                        for _ in 0..each {
                            activity.get_begins();
                            activity.hit();
                            activity.committed(3);
                        }
                    });
                }
            });
        }
        let n = 2 * threads * each;
        let expected = Sums { gets: n, hits: n, misses: 0, commits: n, committed_bytes: 3 * n };
        assert_eq!(activity.sums(), expected);
    }

    #[test]
    fn the_measured_share_is_close_to_the_chosen_one() {
        let next = AtomicU64::new(0);
        let samples = (1..=64_000).filter(|count| is_due(&next, *count, || 64)).count();
        assert!((900..1100).contains(&samples), "{samples}");
        assert!((1..=64_000).all(|_| !is_due(&next, 1, || 64)), "the first only once");
        let activity = Activity::default();
        activity.measure_all_gets();
        assert!((0..1000).all(|_| activity.get_begins()));
    }
}
