//! Health: whether the database works now. If not: what fails, since when, and what helps.
//!
//! ```text
//!   outcomes of work (log files, manifest, flush, compaction), poison, closed --Observed--> judge --> Health
//! ```
//!
//! - Health clears by itself. For each kind of work the last attempt counts. For compactions the tables count
//!   on which an attempt failed, until another compaction has rewritten them.
//! - The worst condition is reported: closed, then poisoned, then out of space, then other failures. Among
//!   failures, the one that delays commits first.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

use crate::types::outcomes::{Failures, Outcomes};
use crate::types::{Error, FileId};

/// Whether the database works now. Returned by [`Db::health`](crate::Db::health).
///
/// A failure clears when the same work succeeds. A full disk is reported until the work that met it is tried
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// All work succeeds.
    #[default]
    Ok,
    /// The disk or a quota is full: free some space. Acknowledged data is safe, and reads continue. The work
    /// is retried. Commits fail with [`Error::NoSpace`] if the log finds no space, or if the memtables are
    /// full.
    NoSpace(FailingWork),
    /// Work fails and is retried: see the error. Acknowledged data is safe, and reads continue.
    Retrying(FailingWork),
    /// A failed write or sync of the log, or a panic, has stopped writes: reopen the database. Reads
    /// continue.
    Poisoned {
        /// What stopped writes.
        cause: String,
    },
    /// The database was closed.
    Closed,
}

/// Work that currently fails.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailingWork {
    /// The kind of work.
    pub work: Work,
    /// Time since the first failure after its last success.
    pub since: Duration,
    /// Number of failures in that time.
    pub times: u64,
    /// Message of the last failure.
    pub error: String,
}

/// The kinds of work that are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Work {
    /// Making and reserving log files. Commits that need one fail.
    Log,
    /// Writing memtables to tables. Commits wait, then fail, once several memtables are full.
    Flush,
    /// Writing a new manifest after the old one could not be written. Flushes and compactions wait for it.
    Manifest,
    /// Making and reserving blob files. Commits with large values fail.
    Blobs,
    /// Compaction of tables. Reads become slower, and later commits as well.
    Compaction,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Work::Log => "log",
            Work::Flush => "flush",
            Work::Manifest => "manifest",
            Work::Blobs => "blobs",
            Work::Compaction => "compaction",
        })
    }
}

impl fmt::Display for FailingWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailingWork { work, since, times, error } = self;
        write!(f, "{work} fails for {} s, {times} times: {error}", since.as_secs())
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Health::Ok => f.write_str("ok"),
            Health::NoSpace(failing) => write!(f, "no space: {failing}"),
            Health::Retrying(failing) => write!(f, "retrying: {failing}"),
            Health::Poisoned { cause } => write!(f, "poisoned, reopen to write again: {cause}"),
            Health::Closed => f.write_str("closed"),
        }
    }
}

/// The state of a database that health is judged from.
#[derive(Debug, Default)]
pub(in crate::engine) struct Observed {
    pub(in crate::engine) closed: bool,
    pub(in crate::engine) poisoned: Option<String>,
    /// Sorted by kind of work.
    pub(in crate::engine) failing: Vec<(Work, Failures)>,
    pub(in crate::engine) now: Duration,
}

/// Returns the worst condition.
pub(in crate::engine) fn judge(observed: Observed) -> Health {
    if observed.closed {
        return Health::Closed;
    }
    if let Some(cause) = observed.poisoned {
        return Health::Poisoned { cause };
    }
    let worst = observed.failing.into_iter().min_by_key(|(work, failures)| (!failures.is_no_space, *work));
    let Some((work, Failures { since, times, is_no_space, error })) = worst else { return Health::Ok };
    let failing = FailingWork { work, since: observed.now.saturating_sub(since), times, error };
    if is_no_space { Health::NoSpace(failing) } else { Health::Retrying(failing) }
}

/// Outcomes of the engine's background work. The log keeps the outcomes for its own files.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(in crate::engine) flush: Outcomes,
    pub(in crate::engine) manifest: Outcomes,
    pub(in crate::engine) compaction: Outcomes,
    /// Tables on which compactions have failed.
    failed_on: Mutex<BTreeSet<FileId>>,
}

impl Watch {
    /// Records that a compaction of these tables failed.
    pub(in crate::engine) fn compaction_failed(
        &self,
        files: impl IntoIterator<Item = FileId>,
        error: &Error,
        now: Duration,
    ) {
        self.failed_on.lock().extend(files);
        self.compaction.failed(error, now);
    }

    /// Forgets the tables for which `matters` is false. With the last of them, compaction counts as
    /// successful.
    pub(in crate::engine) fn retain_failed(&self, matters: impl Fn(FileId) -> bool) {
        let mut failed_on = self.failed_on.lock();
        if !failed_on.is_empty() {
            failed_on.retain(|file| matters(*file));
            if failed_on.is_empty() {
                self.compaction.succeeded();
            }
        }
    }
}

#[cfg(test)]
mod tests;
