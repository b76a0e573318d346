//! What suites are made of: groups of steps, as data. `interpret.rs` goes through the steps and records the
//! rows; `works/` in Rust and bench/go/lab do the work, which the program in Go reads as JSON.
//!
//! ```text
//! suite --parts(scale)--> Group: open, load, drain, row, check, ...      Step::Row: a Row and its Work
//!                         Program: what no plan can say, with its rows
//! ```

use std::time::Duration;

use esker_bench_api::{Durability, Failure, Feature, OpenOptions, TransactionKind};
use serde::{Serialize, Serializer};

use crate::row::Row;
use crate::scale::Scale;
use crate::suites::Turn;
use crate::suites::items::Source;

/// One group of a suite's rows.
pub(crate) enum Part {
    Steps(Group),
    Program(Vec<Row>, fn(Turn<'_>) -> Result<(), Failure>),
}

impl Part {
    /// The rows in the order in which they run.
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
    /// The kind of transactions that the rows ask for, if they do.
    pub(crate) transactions: Option<TransactionKind>,
    pub(crate) steps: Vec<Step>,
}

/// One step of a group.
pub(crate) enum Step {
    /// Closes what is open, and opens with these options in the first of these modes that the engine has.
    Open(OpenOptions, &'static [Durability]),
    /// Closes what is open; the next work opens with these options, within its time.
    OpenWithin(OpenOptions, &'static [Durability]),
    /// Closes what is open and drops the page cache.
    DropPageCache,
    /// Sets the durability, if the engine has it.
    SetDurability(Durability),
    /// Work that is no row; what it takes stands beside the next one. The words say what it makes.
    Load(&'static str, Work),
    /// Work that no row reports.
    Unmeasured(Work),
    Row(Box<Measure>),
    /// The bytes of the files.
    Size(Row, Option<Feature>),
    /// The engine's compaction: a row, or untimed. An engine without one has notes on the rows that follow.
    Compact(Option<Row>),
    Drain,
    /// A drain that belongs to no row.
    Settle,
    /// Compares every byte with what must be there.
    Check,
    /// Holds a snapshot meanwhile.
    UnderSnapshot(Vec<Step>),
    /// Compares every byte of the held snapshot with the items as they were loaded.
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
    /// What the engine must have for it.
    pub(crate) needs: Option<Feature>,
    /// Work in its place for an engine that lacks it, so that later rows find the same data.
    pub(crate) instead: Option<Work>,
    /// Whether it makes what all later rows work on.
    pub(crate) is_groundwork: bool,
    /// What it needs of the page cache.
    pub(crate) cache: PageCache,
    /// Reads before it that are no part of it.
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

/// What a row's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Time or rate, as the row's unit has it.
    Unit,
    /// The time of one operation.
    PerOperation,
    /// The mean latency of this kind of operation.
    Mean(&'static str),
    /// The 99th percentile of the writes.
    P99,
}

/// What a row needs of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageCache {
    Any,
    /// A note says if it was not dropped before.
    Noted,
    /// There is no value if it was not.
    Cold,
}

/// When work ends: when either is reached.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Budget {
    #[serde(rename = "ns", serialize_with = "as_nanoseconds")]
    pub(crate) time: Duration,
    pub(crate) ops: u64,
}

/// Shortest and longest time over which a curve takes a mean.
const PERIODS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Points of a curve, as far as `PERIODS` allow.
const POINTS: u32 = 60;

impl Budget {
    /// The time that a row of this scale takes. A test does `test_ops` and no more, so that a traced run and
    /// an untraced one do the same.
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

    /// This number of operations within an hour.
    pub(crate) fn test(ops: u64) -> Self {
        Self { time: Duration::from_secs(3600), ops }
    }

    /// This number of operations, however long they take.
    pub(crate) fn of_ops(ops: u64) -> Self {
        Self { time: Duration::MAX, ops }
    }

    /// The time over which a point of the row's curves is a mean.
    pub(crate) fn period(&self) -> Duration {
        (self.time / POINTS).clamp(PERIODS.0, PERIODS.1)
    }
}

/// Go has as many nanoseconds in an `int64`.
fn as_nanoseconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).cast_unsigned())
}

/// How a mix draws items.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Draw {
    Uniform,
    /// Scattered over the items that are there when the mix begins, and over a quarter more if it inserts.
    Zipfian(f64),
    /// The newest most often.
    Latest(f64),
}

/// A mix of operations.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mix {
    /// Per cent of each of `mix::KINDS`.
    pub(crate) percent: [u32; 5],
    pub(crate) draw: Draw,
    /// Items of a scan; the most where their number is drawn.
    pub(crate) scan_items: u64,
    /// Whether the number of items of each scan is drawn, uniform from 1 to `scan_items`.
    pub(crate) scan_is_uniform: bool,
    pub(crate) budget: Budget,
    #[serde(rename = "period_ns", serialize_with = "as_nanoseconds")]
    pub(crate) period: Duration,
    /// Reads alone, drawn by a sequence of this seed; items may be missing.
    pub(crate) reads_seed: Option<u64>,
    /// Whether nothing is tracked.
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

    /// Reads drawn by a sequence of their own.
    pub(crate) fn reads(seed: u64, budget: Budget, period: Duration) -> Self {
        Self { reads_seed: Some(seed), ..Self::new([100, 0, 0, 0, 0], Draw::Uniform, budget, period) }
    }
}

/// Requests of many threads at once.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Drive {
    pub(crate) pairs: u64,
    /// Requests in flight, and pairs in a request.
    pub(crate) concurrency: u64,
    pub(crate) multi: u64,
    /// Pairs a second; 0 is a closed loop.
    pub(crate) rate: f64,
    pub(crate) budget: Budget,
    #[serde(rename = "period_ns", serialize_with = "as_nanoseconds")]
    pub(crate) period: Duration,
}

/// What an engine does in one go.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Work {
    /// Puts the next `count` items in transactions of `size`. With `below` they are drawn below it, and
    /// tracked.
    Put {
        count: u64,
        size: u64,
        below: u64,
        /// Zero: only the whole is timed.
        #[serde(rename = "period_ns", serialize_with = "as_nanoseconds")]
        period: Duration,
    },
    /// Removes half of the items in one transaction.
    Remove,
    /// The number of items.
    Len,
    /// Gets of one snapshot in `order::Order`, on several threads.
    Gets {
        count: u64,
        threads: u64,
        keys_ahead: bool,
    },
    /// Ranges of one snapshot, one for every `every` items of the order.
    Ranges {
        count: u64,
        every: u64,
        limit: u64,
        keys_ahead: bool,
    },
    /// A walk from the start.
    Scan {
        limit: u64,
        keys_only: bool,
    },
    Mix(Mix),
    Drive(Drive),
    /// Ranges of `keys` items on one thread, or as many look-ups below `set` on several.
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
    /// Writes an item and removes the oldest in one transaction; reads a live and a removed one.
    Replace {
        budget: Budget,
    },
    /// Opens keyspaces that are not there yet, and puts one item.
    CreateKeyspaces,
    /// Puts each item into its keyspace, in transactions of 1,000.
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
    /// Removes the first half of the keyspaces; the value is the time of one.
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
    /// Waits until so long after the first put; with `swept` until all has expired and been looked for.
    WaitExpiring {
        ms: u64,
        swept: bool,
    },
    ReadExpiring {
        budget: Budget,
    },
    /// Compares every byte with what must be there.
    Check,
}
