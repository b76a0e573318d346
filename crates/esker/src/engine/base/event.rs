//! Events: what the engine does and when, for the program's callback (events.rs).

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::health::Health;
use super::slow_operation::SlowOperation;
use crate::types::{Error, SeqNo};

/// Something that the engine has done or noticed: see [`Builder::on_event`](crate::Builder::on_event). Its
/// text is a line for people.
///
/// Work that takes a while has an event when it begins and one when it ends, with the time it took and its
/// error if it failed. One flush runs at a time. Compactions may run at the same time
/// ([`Tuning::compactions`](crate::Tuning::compactions)), so events of one may come between those of another.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An opening replays the log. Reported every 100 ms, so a short opening does not report it.
    #[non_exhaustive]
    Opening {
        /// Bytes of the log that were replayed.
        done_bytes: u64,
        /// Bytes of the log's files, which may end before they are full.
        total_bytes: u64,
        /// Commits that were replayed.
        commits: u64,
        /// Time since the opening began.
        time: Duration,
    },
    /// The database is open.
    #[non_exhaustive]
    Opened {
        /// Commits that were replayed.
        commits: u64,
        /// Bytes of a torn log tail that was dropped.
        torn_bytes: u64,
        /// Duration of the opening.
        time: Duration,
    },
    /// A flush begins to write memtables to tables.
    #[non_exhaustive]
    FlushBegun {
        /// Number of memtables.
        memtables: usize,
        /// Bytes of the memtables.
        bytes: u64,
    },
    /// A flush has ended.
    #[non_exhaustive]
    FlushEnded {
        /// Number of new tables.
        tables: usize,
        /// Bytes of the new tables.
        bytes_written: u64,
        /// Duration of the flush.
        time: Duration,
        /// The error if it failed. It is tried again.
        error: Option<Error>,
    },
    /// A compaction begins. Several may run at the same time
    /// ([`Tuning::compactions`](crate::Tuning::compactions)).
    #[non_exhaustive]
    CompactionBegun {
        /// Number of tables to compact.
        tables: usize,
        /// Their bytes.
        bytes: u64,
        /// Whether the tables only move to a lower run.
        is_move: bool,
    },
    /// A compaction has ended.
    #[non_exhaustive]
    CompactionEnded {
        /// Number of new tables.
        tables: usize,
        /// Bytes that were read.
        bytes_read: u64,
        /// Bytes that were written.
        bytes_written: u64,
        /// Duration of the compaction.
        time: Duration,
        /// The error if it failed. It is tried again.
        error: Option<Error>,
    },
    /// Tables were removed unread, because range tombstones hide all of their entries.
    #[non_exhaustive]
    TablesDropped {
        /// Number of tables.
        tables: usize,
    },
    /// A garbage collection of blob files begins.
    #[non_exhaustive]
    CollectionBegun {
        /// Number of files.
        files: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// A garbage collection of blob files has ended.
    #[non_exhaustive]
    CollectionEnded {
        /// Number of files that were removed or replaced.
        files: usize,
        /// Bytes of live values that were copied.
        bytes_written: u64,
        /// Duration of the collection.
        time: Duration,
        /// The error if it failed. It is tried again.
        error: Option<Error>,
    },
    /// A [checkpoint](crate::Db::checkpoint) begins.
    #[non_exhaustive]
    CheckpointBegun {
        /// Its directory.
        path: PathBuf,
    },
    /// A checkpoint has ended.
    #[non_exhaustive]
    CheckpointEnded {
        /// Its directory.
        path: PathBuf,
        /// The last commit of the copy.
        seqno: SeqNo,
        /// Bytes of files that it shares with the database.
        linked_bytes: u64,
        /// Bytes of files that were copied.
        copied_bytes: u64,
        /// Duration of the checkpoint.
        time: Duration,
        /// The error if it failed.
        error: Option<Error>,
    },
    /// Writers begin to wait. Reported for the first of them.
    #[non_exhaustive]
    StallBegun {
        /// What they wait for.
        cause: StallCause,
    },
    /// No writer waits for this cause any longer.
    #[non_exhaustive]
    StallEnded {
        /// What they waited for.
        cause: StallCause,
        /// Time since the first of them began to wait.
        time: Duration,
    },
    /// The [health](crate::Db::health) has changed. Noticed within 20 ms.
    Health(Health),
    /// An operation was slow: see [`Builder::slow_after`](crate::Builder::slow_after).
    Slow(SlowOperation),
    /// Events were dropped, because the callback is slower than the engine.
    #[non_exhaustive]
    Missed {
        /// Their number.
        events: u64,
    },
}

/// What writers wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StallCause {
    /// All memtables are full: writers wait for a flush.
    Memtables,
    /// Compaction is behind: each write is delayed.
    Compaction,
}

impl Event {
    /// The name of the event, for logs: `flush ended`.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Opening { .. } => "opening",
            Event::Opened { .. } => "opened",
            Event::FlushBegun { .. } => "flush begun",
            Event::FlushEnded { .. } => "flush ended",
            Event::CompactionBegun { .. } => "compaction begun",
            Event::CompactionEnded { .. } => "compaction ended",
            Event::TablesDropped { .. } => "tables dropped",
            Event::CollectionBegun { .. } => "collection begun",
            Event::CollectionEnded { .. } => "collection ended",
            Event::CheckpointBegun { .. } => "checkpoint begun",
            Event::CheckpointEnded { .. } => "checkpoint ended",
            Event::StallBegun { .. } => "stall begun",
            Event::StallEnded { .. } => "stall ended",
            Event::Health(_) => "health",
            Event::Slow(_) => "slow",
            Event::Missed { .. } => "events missed",
        }
    }

    /// How long the work took, if this is its end.
    pub fn time(&self) -> Option<Duration> {
        match self {
            Event::Opened { time, .. }
            | Event::FlushEnded { time, .. }
            | Event::CompactionEnded { time, .. }
            | Event::CollectionEnded { time, .. }
            | Event::CheckpointEnded { time, .. }
            | Event::StallEnded { time, .. } => Some(*time),
            Event::Slow(slow) => Some(slow.time),
            _ => None,
        }
    }

    /// The error of the work, if this is its end and it failed.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Event::FlushEnded { error, .. }
            | Event::CompactionEnded { error, .. }
            | Event::CollectionEnded { error, .. }
            | Event::CheckpointEnded { error, .. } => error.as_ref(),
            _ => None,
        }
    }
}

impl fmt::Display for StallCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StallCause::Memtables => "memtables",
            StallCause::Compaction => "compaction",
        })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Event::Opening { done_bytes, total_bytes, commits, .. } => {
                write!(f, ": {commits} commits, {done_bytes} of {total_bytes} bytes of the log")
            }
            Event::Opened { commits, torn_bytes, .. } => {
                write!(f, ": {commits} commits replayed, {torn_bytes} torn bytes dropped")
            }
            Event::FlushBegun { memtables, bytes } => write!(f, ": {memtables} memtables, {bytes} bytes"),
            Event::FlushEnded { tables, bytes_written, .. } => {
                write!(f, ": {tables} tables, {bytes_written} bytes written")
            }
            Event::CompactionBegun { tables, bytes, is_move } => {
                write!(f, ": {tables} tables, {bytes} bytes{}", if *is_move { ", a move" } else { "" })
            }
            Event::CompactionEnded { tables, bytes_read, bytes_written, .. } => {
                write!(f, ": {tables} tables, {bytes_read} bytes read, {bytes_written} bytes written")
            }
            Event::TablesDropped { tables } => write!(f, ": {tables}"),
            Event::CollectionBegun { files, bytes } => write!(f, ": {files} blob files, {bytes} bytes"),
            Event::CollectionEnded { files, bytes_written, .. } => {
                write!(f, ": {files} blob files, {bytes_written} bytes written")
            }
            Event::CheckpointBegun { path } => write!(f, ": {}", path.display()),
            Event::CheckpointEnded { path, seqno, linked_bytes, copied_bytes, .. } => {
                let path = path.display();
                write!(f, ": {path}, commit {seqno}, {linked_bytes} bytes linked, {copied_bytes} copied")
            }
            Event::StallBegun { cause } | Event::StallEnded { cause, .. } => write!(f, ": {cause}"),
            Event::Health(health) => write!(f, ": {health}"),
            Event::Slow(slow) => return write!(f, ": {slow}"),
            Event::Missed { events } => write!(f, ": {events}"),
        }?;
        if let Some(time) = self.time() {
            write!(f, ", {:.1} ms", time.as_secs_f64() * 1e3)?;
        }
        self.error().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}
