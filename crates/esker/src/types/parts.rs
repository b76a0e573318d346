//! Where the time of an operation goes, for operations that are traced because they may be slow.
//!
//! ```text
//!   traced(get, scan or commit) --timed(Part, work)--> parts of this thread --> Parts
//! ```
//!
//! - Parts are disjoint: the time of a part that begins inside another one counts for the inner one only.
//! - Without a trace, `timed` costs a look at a variable of the thread. It wraps work that waits or
//!   reads a file.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use esker_env::Clock;

/// A part of an operation: what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Part {
    /// Waiting for a flush, for compaction that is behind, or for the
    /// [write rate](crate::Tuning::write_rate).
    Stall,
    /// Waiting for other commits. One of them writes and syncs the log for all.
    Wait,
    /// Making files for the log.
    LogFiles,
    /// Writing to the log.
    LogWrite,
    /// Syncing the log.
    LogSync,
    /// Inserting into the memtable.
    Memtable,
    /// Writing the tables of a large transaction.
    TableWrite,
    /// Reading tables from their files.
    TableRead,
    /// Writing large values to blob files.
    BlobWrite,
    /// Reading large values from blob files.
    BlobRead,
}

const PARTS: [Part; 10] = [
    Part::Stall,
    Part::Wait,
    Part::LogFiles,
    Part::LogWrite,
    Part::LogSync,
    Part::Memtable,
    Part::TableWrite,
    Part::TableRead,
    Part::BlobWrite,
    Part::BlobRead,
];

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Stall => "stall",
            Part::Wait => "wait for other commits",
            Part::LogFiles => "log files made",
            Part::LogWrite => "log written",
            Part::LogSync => "log synced",
            Part::Memtable => "memtable",
            Part::TableWrite => "tables written",
            Part::TableRead => "tables read",
            Part::BlobWrite => "blobs written",
            Part::BlobRead => "blobs read",
        })
    }
}

/// Time spent in a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    time: Duration,
    times: u64,
}

/// The parts of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts([Spent; PARTS.len()]);

impl Parts {
    /// Adds the parts of another operation.
    pub(crate) fn add(&mut self, other: &Parts) {
        for (sum, spent) in self.0.iter_mut().zip(other.0) {
            (sum.time, sum.times) = (sum.time + spent.time, sum.times + spent.times);
        }
    }

    /// The parts that took at least `min`: time, and number of times.
    pub(crate) fn at_least(&self, min: Duration) -> impl Iterator<Item = (Part, Duration, u64)> {
        let spent = PARTS.into_iter().zip(self.0);
        spent
            .filter(move |(_, spent)| spent.times > 0 && spent.time >= min)
            .map(|(part, spent)| (part, spent.time, spent.times))
    }
}

/// The trace of the operation that this thread runs.
struct Trace {
    clock: Arc<dyn Clock>,
    parts: Parts,
    /// Time of the parts that have ended inside the current one.
    inside: Duration,
}

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) };
}

/// Ends a trace, even in a panic. The operation around it goes on with its own.
struct Restore(Option<Trace>);

impl Drop for Restore {
    fn drop(&mut self) {
        IS_ON.set(self.0.is_some());
        TRACE.replace(self.0.take());
    }
}

/// Runs an operation. Returns its duration and parts, too.
pub(crate) fn traced<T>(clock: &Arc<dyn Clock>, operation: impl FnOnce() -> T) -> (T, Duration, Parts) {
    let trace = Trace { clock: clock.clone(), parts: Parts::default(), inside: Duration::ZERO };
    let outer = Restore(TRACE.replace(Some(trace)));
    IS_ON.set(true);
    let start = clock.monotonic();
    let done = operation();
    let time = clock.monotonic().saturating_sub(start);
    let parts = TRACE.with_borrow(|trace| trace.as_ref().map_or_else(Parts::default, |trace| trace.parts));
    drop(outer);
    (done, time, parts)
}

/// Does work that is a part of an operation.
#[inline]
pub(crate) fn timed<T>(part: Part, work: impl FnOnce() -> T) -> T {
    if IS_ON.get() { timed_in_trace(part, work) } else { work() }
}

#[cold]
fn timed_in_trace<T>(part: Part, work: impl FnOnce() -> T) -> T {
    let begin = |trace: &mut Trace| (trace.clock.clone(), std::mem::take(&mut trace.inside));
    let Some((clock, beside)) = TRACE.with_borrow_mut(|trace| trace.as_mut().map(begin)) else {
        return work();
    };
    let start = clock.monotonic();
    let done = work();
    let time = clock.monotonic().saturating_sub(start);
    TRACE.with_borrow_mut(|trace| {
        let Some(trace) = trace else { return };
        let spent = &mut trace.parts.0[part as usize];
        spent.time += time.saturating_sub(trace.inside);
        spent.times += 1;
        trace.inside = beside + time;
    });
    done
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use esker_env::ManualClock;

    use super::*;

    #[test]
    fn parts_are_disjoint_and_traces_nest_and_end_in_a_panic() {
        let clock = Arc::new(ManualClock::new());
        let of: Arc<dyn Clock> = clock.clone();
        let pass = |ms| clock.advance(Duration::from_millis(ms));
        assert_eq!(PARTS.map(|part| part as usize), std::array::from_fn(|n| n));
        let ((), time, parts) = traced(&of, || {
            pass(1);
            timed(Part::LogSync, || {
                pass(10);
                timed(Part::LogWrite, || pass(100));
                timed(Part::LogWrite, || pass(200));
                pass(20);
            });
            let ((), inner, own) = traced(&of, || timed(Part::TableRead, || pass(1000)));
            assert_eq!((inner.as_millis(), own.at_least(Duration::ZERO).count()), (1000, 1));
            let panics = || timed(Part::BlobRead, || panic!("canary"));
            let caught = catch_unwind(AssertUnwindSafe(|| traced(&of, panics).1));
            assert!(caught.is_err());
            timed(Part::Wait, || pass(5));
        });
        let parts: Vec<_> =
            parts.at_least(Duration::ZERO).map(|(part, time, n)| (part, time.as_millis(), n)).collect();
        assert_eq!(parts, [(Part::Wait, 5, 1), (Part::LogWrite, 300, 2), (Part::LogSync, 30, 1)]);
        assert_eq!(time.as_millis(), 1336);
        assert!(!IS_ON.get() && TRACE.with_borrow(Option::is_none));
    }
}
