//! The format of results: one JSON object per line in `results.jsonl`, for each row of each run.
//!
//!   child --Message lines on stdout--> runner --Record lines--> results.jsonl --> reports
//!
//! A program that runs the suites of an engine in another language prints the same messages.
//!
//! Every row of a suite has a record, with a value or with an `error` that states why there is none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One row of one run of one engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Name of the suite.
    pub suite: String,
    /// Name of the row, as the suite lists it.
    pub row: String,
    /// Name of the engine.
    pub engine: String,
    /// Name of the scale.
    pub scale: String,
    /// Number of the run, from 1.
    pub run: u32,
    /// Where and when it ran.
    #[serde(flatten)]
    pub setting: Setting,
    /// The measured value, in `unit`; `None` if there is an `error`.
    pub value: Option<f64>,
    /// Unit of `value`.
    pub unit: Unit,
    /// Whether less or more is better.
    pub better: Better,
    /// Counts of its work.
    #[serde(flatten)]
    pub counts: Counts,
    /// Values of the passes, if the row has several. `value` is their median.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passes: Vec<f64>,
    /// Resources that the row used.
    #[serde(flatten)]
    pub usage: Usage,
    /// Latencies of the row's operations and their course over time, if the row measures single operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Box<Detail>>,
    /// What a reader must know about this row of this engine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Where and when a row ran.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Setting {
    /// Version of the engine.
    pub version: String,
    /// Commit of this repository.
    pub commit: String,
    /// How memory was limited.
    #[serde(default)]
    pub memory_limit: String,
    /// Start of the row, in milliseconds since 1970, UTC; 0 in results from before this was recorded.
    #[serde(default)]
    pub started_unix_ms: u64,
}

/// Counts of the work of a row.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Number of operations in the value, from which the time of one follows.
    pub ops: u64,
    /// Number of commits.
    #[serde(default)]
    pub commits: u64,
    /// Syncs per commit, counted by tracing the row once; `None` if it was not traced.
    pub syncs_per_commit: Option<f64>,
    /// Bytes of keys and values that were passed to the engine, for write amplification.
    #[serde(default)]
    pub user_written_bytes: u64,
    /// Bytes of live keys and values at the end, for space amplification.
    #[serde(default)]
    pub live_bytes: u64,
}

/// Resources that a row used, including those of the wait for background work after it. Zero if the machine
/// does not report them.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Highest resident memory during the row, including mapped files.
    pub peak_rss_bytes: u64,
    /// Highest sampled resident anonymous memory during the row.
    #[serde(default)]
    pub peak_anon_bytes: u64,
    /// Highest sampled resident file pages (memory maps) during the row; 0 in results from before this was
    /// recorded.
    #[serde(default)]
    pub peak_file_bytes: u64,
    /// Resident anonymous memory at the end of the row.
    pub rss_anon_bytes: u64,
    /// Resident file pages (memory maps) at the end of the row.
    pub rss_file_bytes: u64,
    /// Sum of the lengths of the database's files at the end of the row.
    pub disk_bytes: u64,
    /// Bytes that those files occupy on the device.
    pub disk_allocated_bytes: u64,
    /// Highest sampled number of bytes that they occupied during the row.
    #[serde(default)]
    pub peak_disk_bytes: u64,
    /// Bytes that the process sent to the device.
    pub written_bytes: u64,
    /// Bytes that the process read from the device.
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
    /// Longest time between the ends of two successive operations, over all threads.
    pub longest_stall_s: f64,
    /// Time after the row until the engine had no pending background work, if the row waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_s: Option<f64>,
    /// Other figures by name, such as `hit rate`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// Percentiles of one kind of operation, in seconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    /// Number of operations.
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
    /// Maximum.
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
    /// Operations per second.
    #[serde(rename = "ops/s")]
    OpsPerSecond,
    /// Bytes per second.
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
