//! The form of a result: one JSON object a line for each measured row and run, in `results.jsonl`.
//!
//!   child --Message lines on stdout--> runner --Record lines--> results.jsonl --> reports
//!
//! A program that runs the suites of an engine in another language prints the same messages.
//!
//! A row of the suite always gives a record: with a value, or with an `error` that says why there is none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One row of one run of one engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// The suite.
    pub suite: String,
    /// The row, as the suite lists it.
    pub row: String,
    /// The engine.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// The scale.
    pub scale: String,
    /// Counts from 1.
    pub run: u32,
    /// When the row began, in milliseconds since 1970, UTC; 0 in results that were made before this was
    /// noted.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// What was measured, in `unit`; none when `error` says why.
    pub value: Option<f64>,
    /// Unit of `value`.
    pub unit: Unit,
    /// Whether less or more is better.
    pub better: Better,
    /// Operations that `value` stands for, to get the time of one.
    pub ops: u64,
    /// The times of the single passes, where the row has several; `value` is their median.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passes: Vec<f64>,
    /// What the row used.
    #[serde(flatten)]
    pub usage: Usage,
    /// What the row's operations took and how that went over time, where the row looks at single operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Box<Detail>>,
    /// Bytes of keys and values that the row handed to the engine: what write amplification is relative to.
    #[serde(default)]
    pub user_written_bytes: u64,
    /// Bytes of keys and values alive when the row ended: what space amplification is relative to.
    #[serde(default)]
    pub live_bytes: u64,
    /// Commits within the row.
    #[serde(default)]
    pub commits: u64,
    /// Syncs per commit as counted by tracing this row once, or none when it was not traced.
    pub syncs_per_commit: Option<f64>,
    /// How memory was limited.
    #[serde(default)]
    pub memory_limit: String,
    /// Something that a reader has to know about this row of this engine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Commit of this repository.
    pub commit: String,
}

/// What a row used beside its time, the wait for background work after it included. Zero where the machine
/// does not tell.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Highest resident memory while the row ran, mapped files included.
    pub peak_rss_bytes: u64,
    /// Highest resident anonymous memory that was seen while the row ran, by sampling.
    #[serde(default)]
    pub peak_anon_bytes: u64,
    /// Most resident file pages (memory maps) that were seen while the row ran, by sampling; 0 in results
    /// that were made before this was noted.
    #[serde(default)]
    pub peak_file_bytes: u64,
    /// Resident anonymous memory when the row ended.
    pub rss_anon_bytes: u64,
    /// Resident file pages (memory maps) when the row ended.
    pub rss_file_bytes: u64,
    /// Sum of the lengths of the database's files when the row ended.
    pub disk_bytes: u64,
    /// What those files occupy on the device.
    pub disk_allocated_bytes: u64,
    /// The most that they were seen to occupy while the row ran, by sampling.
    #[serde(default)]
    pub peak_disk_bytes: u64,
    /// Bytes that the process sent towards the device.
    pub written_bytes: u64,
    /// Bytes that the process fetched from the device.
    pub read_bytes: u64,
    /// Bytes that the device of the database wrote meanwhile, for any process.
    #[serde(default)]
    pub device_written_bytes: u64,
    /// Bytes that the device of the database read meanwhile, for any process.
    #[serde(default)]
    pub device_read_bytes: u64,
    /// Processor time of all threads.
    pub cpu_s: f64,
}

/// Single operations of a row.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Detail {
    /// `closed`: a thread starts an operation when its last one has ended. `open`: operations start when they
    /// are due, and their latency counts from then, so that waiting behind a stall counts too.
    pub load: String,
    /// For each kind of operation (`read`, `insert`, ...), in seconds.
    pub latency: BTreeMap<String, Latency>,
    /// Length of a sample in seconds.
    pub period_s: f64,
    /// For each name (`ops/s`, `read p99 s`, `written bytes`, ...) one figure per period.
    pub series: BTreeMap<String, Vec<f64>>,
    /// Longest time between two operations that ended one after the other, over all threads.
    pub longest_stall_s: f64,
    /// Time after the row until the engine owed no background work, where the row waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_s: Option<f64>,
    /// Other figures by name, such as `hit rate`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// Percentiles of one kind of operation, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Operations.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// 99.99th percentile.
    pub p9999: f64,
    /// The slowest.
    pub max: f64,
}

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Bytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// Operations in a second.
    #[serde(rename = "ops/s")]
    OpsPerSecond,
    /// Bytes in a second.
    #[serde(rename = "bytes/s")]
    BytesPerSecond,
}

/// Which direction is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

/// A message of a child process to its runner, one JSON object per line: `{"begin":"bulk load"}`,
/// `{"measured":{...}}`, `{"row":{...}}`, `"done"`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Message {
    /// The row named here begins.
    Begin(String),
    /// Progress of the current step, as text for the reason of a time-out. It does not extend the time.
    Progress(String),
    /// A row was measured. The wait for its background work and its untimed check follow. Without this
    /// message the row is lost if those do not end.
    Measured(Box<Record>),
    /// A row and its check have ended. A later check that finds its data wrong sends the row again: the last
    /// message counts.
    Row(Box<Record>),
    /// All rows of the suite have been sent.
    Done,
}
