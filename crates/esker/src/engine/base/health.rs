//! Health: whether the database works now, and if not, what fails, since when, and what helps.
//!
//! ```text
//!   how work ended (Outcomes of log files, manifest, flush, compaction), poison, closed --Observed--> judge --> Health
//! ```
//!
//! engine_health.1. It clears by itself: of each kind of work the last try counts, and of compactions the tables that one has failed on, until
//!      another one has merged them.
//! engine_health.2. The worst is reported: closed, then poisoned, then want of space, then other failures; among these what holds up commits first.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

use crate::types::outcomes::{Failures, Outcomes};
use crate::types::{Error, FileId};

/// Whether the database works now. It clears by itself when the work that failed succeeds; what it says of a full disk stays until that work has been
/// tried again. Made by [`Db::health`](crate::Db::health).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// All work succeeds.
    #[default]
    Ok,
    /// There is no space left on the disk, or in a quota: make room. Nothing that was acknowledged is lost, and reads go on. The work is tried again
    /// by itself. Commits fail with [`Error::NoSpace`] when it is the log that finds none, or when memtables are full.
    NoSpace(FailingWork),
    /// Work fails and is tried again: see the error. Nothing that was acknowledged is lost, and reads go on.
    Retrying(FailingWork),
    /// Writes were stopped, by a failed write or sync of the log or by a panic: reopen the database. Reads go on.
    Poisoned {
        /// What stopped them.
        cause: String,
    },
    /// The database was closed.
    Closed,
}

/// Work that fails now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailingWork {
    /// Which.
    pub work: Work,
    /// How long ago it failed first; it has not succeeded since.
    pub since: Duration,
    /// How often it has failed since then.
    pub times: u64,
    /// What the last failure was.
    pub error: String,
}

/// The kinds of work that are tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Work {
    /// Files for the log. Commits that need one fail.
    Log,
    /// Memtables to tables. Once several are full commits wait, then fail.
    Flush,
    /// A new manifest, after one that could not be written. Flushes and compactions wait for it.
    Manifest,
    /// New files and room for large values. Commits of those fail.
    Blobs,
    /// Merging tables. Reads take longer, and later commits.
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

/// What is known of a database at one moment.
#[derive(Debug, Default)]
pub(in crate::engine) struct Observed {
    pub(in crate::engine) closed: bool,
    pub(in crate::engine) poisoned: Option<String>,
    /// In the order of `Work`.
    pub(in crate::engine) failing: Vec<(Work, Failures)>,
    pub(in crate::engine) now: Duration,
}

/// engine_health.2
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

/// How the engine's work has ended. What the log has to say of its files is with the log.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(in crate::engine) flush: Outcomes,
    pub(in crate::engine) manifest: Outcomes,
    pub(in crate::engine) compaction: Outcomes,
    /// Tables that compactions have failed on (engine_health.1).
    failed_on: Mutex<BTreeSet<FileId>>,
}

impl Watch {
    /// A compaction has failed over these tables.
    pub(in crate::engine) fn compaction_failed(
        &self,
        files: impl IntoIterator<Item = FileId>,
        error: &Error,
        now: Duration,
    ) {
        self.failed_on.lock().extend(files);
        self.compaction.failed(error, now);
    }

    /// Of the tables that compactions have failed on only these still matter.
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
