//! Calls of an engine, each between two looks at the clock (bench_mixed.1 of `mixed.rs`): what suites are made of that are no mix.
//!
//!   call(kind, closure) -> clock -> one or two calls of the engine -> clock -> Track;  finish -> Outcome

use std::path::Path;
use std::time::{Duration, Instant};

use esker_bench_api::Failure;

use crate::recorder::Outcome;
use crate::suites::budget::Budget;
use crate::track::Track;

pub(crate) struct Calls {
    track: Track,
    busy: Duration,
    budget: Budget,
}

impl Calls {
    /// Begins now; `kinds` are names of operations as they stand in results.
    pub(crate) fn new(kinds: &[&'static str], budget: Budget, dir: &Path) -> Result<Self, Failure> {
        let period = budget.period();
        Ok(Self { track: Track::new(kinds, period, dir)?, busy: Duration::ZERO, budget })
    }

    /// Whether the budget has not been used up.
    pub(crate) fn are_left(&self) -> bool {
        self.track.ops() < self.budget.ops && self.track.elapsed() < self.budget.time
    }

    /// One operation.
    pub(crate) fn call<T>(
        &mut self,
        kind: usize,
        call: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.call_for(kind, 1, call)
    }

    /// One call that does `ops` operations.
    pub(crate) fn call_for<T>(
        &mut self,
        kind: usize,
        ops: u64,
        call: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let from = Instant::now();
        let answer = call()?;
        let to = Instant::now();
        self.busy += to - from;
        self.track.record(kind, from, to, ops);
        Ok(answer)
    }

    /// The outcome of the row. Its `commits` commits wrote `user_written_bytes` bytes of keys and values; `live_bytes` bytes of them are alive at the end.
    pub(crate) fn finish(self, commits: u64, user_written_bytes: u64, live_bytes: u64) -> Outcome {
        let (ops, wall) = (self.track.ops(), self.track.elapsed());
        let mut detail = self.track.finish("closed");
        detail.figures.insert("wall ops/s".to_owned(), ops as f64 / wall.as_secs_f64());
        Outcome {
            seconds: Some(self.busy.as_secs_f64()),
            ops: Some(ops),
            commits: Some(commits),
            user_written_bytes,
            live_bytes,
            detail: Some(detail),
            ..Outcome::default()
        }
    }
}
