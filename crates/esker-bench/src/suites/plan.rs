//! Suites as data: groups of steps. `interpret.rs` executes the steps and records the rows. `works/` in Rust
//! and bench/go/lab do the work. The program in Go reads the work as JSON.
//!
//! ```text
//! suite --parts(scale)--> Group: open, load, drain, row, check, ...      Step::Row: a Row and its Work
//!                         Program: what no plan can say, with its rows
//! ```

use std::time::Duration;

use esker_bench_api::{Durability, Feature, OpenOptions, Result, TransactionKind};
use serde::{Serialize, Serializer};

use crate::row::Row;
use crate::scale::Scale;
use crate::suites::Turn;
use crate::suites::items::Source;

/// One group of rows of a suite.
pub(crate) enum Part {
    Steps(Group),
    Program(Vec<Row>, fn(Turn<'_>) -> Result<()>),
}

impl Part {
    /// Returns a group without transactions that read what they write.
    pub(crate) fn steps(needs: &[Feature], source: Source, steps: Vec<Step>) -> Self {
        Self::Steps(Group { needs: needs.to_vec(), source, transactions: None, steps })
    }

    /// Returns the rows in the order in which they run.
    pub(crate) fn rows(&self) -> Vec<Row> {
        fn add(steps: &[Step], rows: &mut Vec<Row>) {
            for step in steps {
                match step {
                    Step::Row(measure) => rows.push(measure.row.clone()),
                    Step::Size(row, _) | Step::Compact(Some(row)) => rows.push(row.clone()),
                    Step::UnderSnapshot(steps) => add(steps, rows),
                    _ => {}
                }
            }
        }
        match self {
            Self::Program(rows, _) => rows.clone(),
            Self::Steps(group) => {
                let mut rows = Vec::new();
                add(&group.steps, &mut rows);
                rows
            }
        }
    }
}

/// A group that is data.
pub(crate) struct Group {
    /// What an engine must have for any of the rows.
    pub(crate) needs: Vec<Feature>,
    pub(crate) source: Source,
    /// The kind of transactions of the rows, if they use any.
    pub(crate) transactions: Option<TransactionKind>,
    pub(crate) steps: Vec<Step>,
}

/// One step of a group.
pub(crate) enum Step {
    /// Closes the store, and opens it with these options in the first of these modes that the engine has.
    Open(OpenOptions, &'static [Durability]),
    /// Closes the store. The next work opens it with these options, within its measured time.
    OpenWithin(OpenOptions, &'static [Durability]),
    /// Closes the store and drops the page cache.
    DropPageCache,
    /// Sets the durability, if the engine has it.
    SetDurability(Durability),
    /// Work that is not a row. Its time is reported in the details of the next row. The text says what it
    /// makes.
    Load(&'static str, Work),
    /// Work that is not reported.
    Unmeasured(Work),
    Row(Box<Measure>),
    /// A row with the size of the files.
    Size(Row, Option<Feature>),
    /// Compaction by the engine, as a row or untimed. If the engine has none, the following rows have a note.
    Compact(Option<Row>),
    Drain,
    /// A drain that counts to no row.
    Settle,
    /// Compares every byte with the expected content.
    Check,
    /// Executes steps while a snapshot is held.
    UnderSnapshot(Vec<Step>),
    /// Compares every byte of the held snapshot with the loaded items.
    CheckSnapshot,
}

impl Step {
    pub(crate) fn row(measure: Measure) -> Self {
        Self::Row(Box::new(measure))
    }
}

/// A row that does work.
pub(crate) struct Measure {
    pub(crate) row: Row,
    pub(crate) work: Work,
    pub(crate) passes: usize,
    pub(crate) value: Value,
    /// What the engine must have for the row.
    pub(crate) needs: Option<Feature>,
    /// Replacement for an engine that lacks it, so that later rows find the same data.
    pub(crate) instead: Option<Work>,
    /// Whether all later rows depend on it.
    pub(crate) is_groundwork: bool,
    /// What it requires of the page cache.
    pub(crate) cache: PageCache,
    /// Reads before the row that do not count.
    pub(crate) warm_up: Option<Work>,
    /// What progress counts.
    pub(crate) progress: &'static str,
}

impl Measure {
    pub(crate) fn new(row: Row, work: Work) -> Self {
        Self {
            row,
            work,
            passes: 1,
            value: Value::Unit,
            needs: None,
            instead: None,
            is_groundwork: false,
            cache: PageCache::Any,
            warm_up: None,
            progress: "items",
        }
    }
}

/// What the value of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Time or rate, according to the unit of the row.
    Unit,
    /// The time of one operation.
    PerOperation,
    /// The mean latency of this kind of operation.
    Mean(&'static str),
    /// The 99th percentile of the writes.
    P99,
}

/// What a row requires of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageCache {
    Any,
    /// A note says if the cache was not dropped before.
    Noted,
    /// The row has no value if the cache was not dropped before.
    Cold,
}

/// Limits of work. It ends when either is reached.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Budget {
    #[serde(rename = "ns", serialize_with = "as_nanoseconds")]
    pub(crate) time: Duration,
    pub(crate) ops: u64,
}

/// Shortest and longest period of a curve.
const PERIODS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Number of points of a curve, as far as `PERIODS` allow.
const POINTS: u32 = 60;

impl Budget {
    /// Returns the time of a row at this scale. A test does exactly `test_ops` operations, so that a traced
    /// run and an untraced run do the same.
    pub(crate) fn of(scale: Scale, test_ops: u64) -> Self {
        match scale {
            Scale::Quick => Self::of_seconds(2),
            Scale::Seed => Self::of_seconds(20),
            Scale::Full => Self::of_seconds(300),
            Scale::Test => Self::test(test_ops),
        }
    }

    pub(crate) fn of_seconds(seconds: u64) -> Self {
        Self { time: Duration::from_secs(seconds), ops: u64::MAX }
    }

    /// Returns a limit of `ops` operations and an hour.
    pub(crate) fn test(ops: u64) -> Self {
        Self { time: Duration::from_secs(3600), ops }
    }

    /// Returns a limit of `ops` operations, however long they take.
    pub(crate) fn of_ops(ops: u64) -> Self {
        Self { time: Duration::MAX, ops }
    }

    /// Returns the period for which a point of the curves is a mean.
    pub(crate) fn period(&self) -> Duration {
        (self.time / POINTS).clamp(PERIODS.0, PERIODS.1)
    }
}

/// Durations are nanoseconds in an `int64` in Go.
fn as_nanoseconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).cast_unsigned())
}

/// How a mix draws items.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Draw {
    Uniform,
    /// Scattered over the items at the start of the mix, and over a quarter more if it inserts.
    Zipfian(f64),
    /// Newer items more often.
    Latest(f64),
}

/// A mix of operations.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mix {
    /// Per cent of each of `mix::KINDS`.
    pub(crate) percent: [u32; 5],
    pub(crate) draw: Draw,
    /// Number of items of a scan, or the largest number if it is drawn.
    pub(crate) scan_items: u64,
    /// Whether the number of items of each scan is drawn uniformly from 1 to `scan_items`.
    pub(crate) scan_is_uniform: bool,
    pub(crate) budget: Budget,
    #[serde(rename = "period_ns", serialize_with = "as_nanoseconds")]
    pub(crate) period: Duration,
    /// Only reads, drawn by a sequence of this seed; items may be missing.
    pub(crate) reads_seed: Option<u64>,
    /// Whether latencies are not tracked.
    pub(crate) is_warm_up: bool,
}

impl Mix {
    pub(crate) fn new(percent: [u32; 5], draw: Draw, budget: Budget, period: Duration) -> Self {
        Self {
            percent,
            draw,
            scan_items: 0,
            scan_is_uniform: false,
            budget,
            period,
            reads_seed: None,
            is_warm_up: false,
        }
    }

    /// Returns a mix of reads only, drawn by a sequence of their own.
    pub(crate) fn reads(seed: u64, budget: Budget, period: Duration) -> Self {
        Self { reads_seed: Some(seed), ..Self::new([100, 0, 0, 0, 0], Draw::Uniform, budget, period) }
    }
}

/// Write requests of many threads at once.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Drive {
    pub(crate) pairs: u64,
    /// Number of requests in flight, and of pairs in a request.
    pub(crate) concurrency: u64,
    pub(crate) multi: u64,
    /// Pairs per second; 0 is a closed loop.
    pub(crate) rate: f64,
    pub(crate) budget: Budget,
    #[serde(rename = "period_ns", serialize_with = "as_nanoseconds")]
    pub(crate) period: Duration,
}

/// One piece of work on an engine.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Work {
    /// Puts the next `count` items in transactions of `size` items. With `below`, item numbers are drawn
    /// below it, and latencies are tracked.
    Put {
        count: u64,
        size: u64,
        below: u64,
        /// Zero if only the whole is timed.
        #[serde(rename = "period_ns", serialize_with = "as_nanoseconds")]
        period: Duration,
    },
    /// Removes half of the items in one transaction.
    Remove,
    /// The number of items.
    Len,
    /// Gets from one snapshot in `order::Order`, on several threads.
    Gets {
        count: u64,
        threads: u64,
        keys_ahead: bool,
    },
    /// Ranges of one snapshot. Each starts at the first of `every` items of the order.
    Ranges {
        count: u64,
        every: u64,
        limit: u64,
        keys_ahead: bool,
    },
    /// A scan from the first key.
    Scan {
        limit: u64,
        keys_only: bool,
    },
    Mix(Mix),
    Drive(Drive),
    /// Ranges of `keys` items on one thread, or look-ups of `keys` keys below `set` on several threads.
    Requests {
        threads: u64,
        keys: u64,
        set: u64,
        budget: Budget,
        #[serde(rename = "period_ns", serialize_with = "as_nanoseconds")]
        period: Duration,
    },
    /// Pushes an item and pops the oldest.
    Queue {
        budget: Budget,
    },
    /// Writes an item and removes the oldest in one transaction, then reads a live item and a removed one.
    Replace {
        budget: Budget,
    },
    /// Creates all keyspaces, and puts one item.
    CreateKeyspaces,
    /// Puts each item into its keyspace, in transactions of 1,000 items.
    LoadKeyspaces {
        count: u64,
    },
    /// Overwrites one item in each of 5 random keyspaces.
    CommitToKeyspaces {
        budget: Budget,
    },
    ReadKeyspaces {
        budget: Budget,
    },
    /// Opens all keyspaces and gets one item.
    OpenKeyspaces,
    /// Removes the first half of the keyspaces. The value is the time of one removal.
    DropKeyspaces,
    /// Puts the first `count` accounts.
    LoadAccounts {
        count: u64,
    },
    /// Transfers between the first `below` accounts.
    Transfer {
        writers: u64,
        below: u64,
        budget: Budget,
    },
    /// Puts `count` entries. Nine in ten expire between `hold_ms` and `hold_ms + spread_ms` after
    /// the first put.
    PutExpiring {
        count: u64,
        hold_ms: u64,
        spread_ms: u64,
    },
    /// Waits until `ms` after the first put. With `swept`, also until all has expired and the engine has
    /// looked for expired entries.
    WaitExpiring {
        ms: u64,
        swept: bool,
    },
    ReadExpiring {
        budget: Budget,
    },
    /// Compares every byte with the expected content.
    Check,
}

impl Work {
    /// Puts the next `count` items in transactions of `size`, timed as a whole.
    pub(crate) fn put(count: u64, size: u64) -> Self {
        Self::Put { count, size, below: 0, period: Duration::ZERO }
    }
}
