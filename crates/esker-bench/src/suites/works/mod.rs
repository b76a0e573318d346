//! The work of rows on engines in Rust. Each file has some of the variants of
//! [`Work`].
//!
//! Only calls of the engine are between two looks at the clock; drawing, making values and verifying are not.
//! If a loop is timed as a whole, the expected answer is computed before it. The answers are summed up, and
//! compared after the clock has stopped.

mod expiring;
mod keyspaces;
pub(crate) mod mix;
mod native;
mod puts;
pub(crate) mod reads;
mod requests;
mod state;
mod transfers;
mod window;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use esker_bench_api::results::Detail;
use esker_bench_api::{Failure, OpenOptions, Result};
use serde::Deserialize;

use crate::suites::plan::Work;

pub(crate) use native::Native;
pub(crate) use window::Calls;

/// The outcome of work.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Done {
    /// The measured time.
    pub(crate) seconds: f64,
    /// Number of operations; 0 if it was known before.
    pub(crate) ops: u64,
    pub(crate) commits: u64,
    /// Bytes of written keys and values.
    pub(crate) written_bytes: u64,
    /// Bytes of live keys and values at the end.
    pub(crate) live_bytes: u64,
    /// Sum of what gets or ranges found.
    pub(crate) sum: u64,
    /// Number of items at the start, if earlier rows may have been cut off by time.
    pub(crate) began_on: Option<u64>,
    pub(crate) figures: BTreeMap<String, f64>,
    pub(crate) detail: Option<Box<Detail>>,
    pub(crate) note: String,
    /// Why the work does not count although it was done.
    pub(crate) void: Option<String>,
}

/// Receives the number of finished items, and the time.
pub(crate) type OnProgress<'a> = &'a mut dyn FnMut(u64, Instant) -> Result<()>;

/// Compares a held snapshot with the expected content.
pub(crate) type Checked<'a> = &'a mut dyn FnMut() -> Result<()>;

/// Runs the work of a group: an engine in this process, or a program in another language.
pub(crate) trait Executor {
    fn open(&mut self, options: &OpenOptions) -> Result<()>;

    /// Closes the store. The next work opens it with these options.
    fn open_within(&mut self, options: &OpenOptions) -> Result<()>;

    fn close(&mut self) -> Result<()>;

    fn set_durability(&mut self, durability: esker_bench_api::Durability) -> Result<()>;

    fn work(&mut self, work: &Work, on_progress: OnProgress<'_>) -> Result<Done>;

    /// Runs the engine's own compaction, and returns its seconds.
    fn compact(&mut self) -> Result<f64>;

    fn drain(&self, deadline: Instant) -> Result<()>;

    /// Returns the number of items put so far.
    fn items(&self) -> u64;

    /// Returns the bytes of live keys and values.
    fn live_bytes(&self) -> u64;

    /// Runs `then` while a snapshot is held.
    fn under_snapshot(
        &mut self,
        then: &mut dyn FnMut(&mut dyn Executor, Checked<'_>) -> Result<()>,
    ) -> Result<()>;

    /// Lets a runtime with a garbage collector finish its work before a row.
    fn collect_garbage(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Fails unless both are equal.
pub(crate) fn expect(what: &str, got: u64, expected: u64) -> Result<()> {
    if got == expected { Ok(()) } else { Err(Failure::Wrong(format!("{what}: {got}, not {expected}"))) }
}

/// Measures work that has no clock of its own.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Ends a loop of calls. Its rate is that of the calls; the details have the rate on the wall clock.
fn of_calls(detail: Box<Detail>, ops: u64, busy: Duration, wall: Duration) -> Done {
    let mut detail = detail;
    detail.figures.insert("wall ops/s".to_owned(), ops as f64 / wall.as_secs_f64());
    Done { seconds: busy.as_secs_f64(), ops, detail: Some(detail), ..Done::default() }
}
