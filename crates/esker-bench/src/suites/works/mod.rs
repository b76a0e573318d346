//! The work of rows on engines in Rust. Each file has some of the variants of
//! [`Work`](crate::suites::plan::Work).
//!
//! Only calls of the engine are between two looks at the clock; drawing, making values and verifying are not.
//! Where a loop is timed as a whole, what a read must give is computed before, and the answers are summed up
//! and compared afterwards.

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
use esker_bench_api::{Failure, OpenOptions};
use serde::Deserialize;

use crate::suites::plan::Work;

pub(crate) use native::Native;
pub(crate) use window::Calls;

/// What work says about itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Done {
    /// The time that counts.
    pub(crate) seconds: f64,
    /// Operations; 0 where their number was known before.
    pub(crate) ops: u64,
    pub(crate) commits: u64,
    /// Bytes of keys and values that were written.
    pub(crate) written_bytes: u64,
    /// Bytes of keys and values that are there at the end.
    pub(crate) live_bytes: u64,
    /// The sum of what gets or ranges found.
    pub(crate) sum: u64,
    /// Items that were there when it began, where rows before it may have been cut by time.
    pub(crate) began_on: Option<u64>,
    pub(crate) figures: BTreeMap<String, f64>,
    pub(crate) detail: Option<Box<Detail>>,
    pub(crate) note: String,
    /// Why it does not count, although it was done.
    pub(crate) void: Option<String>,
}

/// Receives the number of items that are done, and the time.
pub(crate) type OnProgress<'a> = &'a mut dyn FnMut(u64, Instant) -> Result<(), Failure>;

/// What runs a group on an open database: `Checked` compares a held snapshot.
pub(crate) type Checked<'a> = &'a mut dyn FnMut() -> Result<(), Failure>;

/// What runs the work of a group: an engine in this process, or a program in another language.
pub(crate) trait Executor {
    fn open(&mut self, options: &OpenOptions) -> Result<(), Failure>;

    /// Closes what is open; the next work opens with these options.
    fn open_within(&mut self, options: &OpenOptions) -> Result<(), Failure>;

    fn close(&mut self) -> Result<(), Failure>;

    fn set_durability(&mut self, durability: esker_bench_api::Durability) -> Result<(), Failure>;

    fn work(&mut self, work: &Work, on_progress: OnProgress<'_>) -> Result<Done, Failure>;

    /// The engine's own compaction; returns its seconds.
    fn compact(&mut self) -> Result<f64, Failure>;

    fn drain(&self, deadline: Instant) -> Result<(), Failure>;

    /// Items that were put so far.
    fn items(&self) -> u64;

    /// Bytes of the keys and values that are there.
    fn live_bytes(&self) -> u64;

    /// Holds a snapshot while `then` runs.
    fn under_snapshot(
        &mut self,
        then: &mut dyn FnMut(&mut dyn Executor, Checked<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure>;

    /// Lets a runtime with a garbage collector finish its work before a row.
    fn collect_garbage(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Fails if both are not equal.
pub(crate) fn expect(what: &str, got: u64, expected: u64) -> Result<(), Failure> {
    if got == expected { Ok(()) } else { Err(Failure::Wrong(format!("{what}: {got}, not {expected}"))) }
}

/// Seconds of work that has no clock of its own.
fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// The end of a loop of calls: its rate is that of the calls; what the clock on the wall says stands beside
/// it.
fn of_calls(detail: Box<Detail>, ops: u64, busy: Duration, wall: Duration) -> Done {
    let mut detail = detail;
    detail.figures.insert("wall ops/s".to_owned(), ops as f64 / wall.as_secs_f64());
    Done { seconds: busy.as_secs_f64(), ops, detail: Some(detail), ..Done::default() }
}
