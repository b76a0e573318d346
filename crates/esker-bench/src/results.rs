//! The form of a result: one JSON object a line for each measured row and run, in `results.jsonl`.
//!
//!   child --Message lines on stdout--> runner --Record lines--> results.jsonl --> reports
//!
//! R1. A row of the suite always gives a record: with a value, or with an `error` that says why there is none.

use serde::{Deserialize, Serialize};

/// One row of one run of one engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) suite: String,
    pub(crate) row: String,
    pub(crate) engine: String,
    pub(crate) version: String,
    pub(crate) scale: String,
    /// Counts from 1.
    pub(crate) run: u32,
    /// What was measured, in `unit`; none when `error` says why.
    pub(crate) value: Option<f64>,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
    /// Operations that `value` stands for, to get the time of one.
    pub(crate) ops: u64,
    /// The times of the single passes, where the row has several; `value` is their median.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) passes: Vec<f64>,
    #[serde(flatten)]
    pub(crate) usage: Usage,
    /// Syncs per commit as counted by tracing this row once, or none when it was not traced.
    pub(crate) syncs_per_commit: Option<f64>,
    /// Why there is no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Commit of this repository.
    pub(crate) commit: String,
}

/// What a row used beside its time. Zero where the machine does not tell.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Highest resident memory while the row ran, mapped files included.
    pub(crate) peak_rss_bytes: u64,
    /// Resident anonymous memory when the row ended.
    pub(crate) rss_anon_bytes: u64,
    /// Resident file pages (memory maps) when the row ended.
    pub(crate) rss_file_bytes: u64,
    /// Sum of the lengths of the database's files when the row ended.
    pub(crate) disk_bytes: u64,
    /// What those files occupy on the device.
    pub(crate) disk_allocated_bytes: u64,
    /// Bytes that the process sent towards the device.
    pub(crate) written_bytes: u64,
    /// Bytes that the process fetched from the device.
    pub(crate) read_bytes: u64,
    /// Processor time of all threads.
    pub(crate) cpu_s: f64,
}

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "bytes")]
    Bytes,
}

/// Which direction is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// What a child process tells its runner, one JSON object a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Message {
    /// The row named here begins.
    Begin(String),
    /// A row ended.
    Row(Box<Record>),
    /// Every row of the suite has been told.
    Done,
}
