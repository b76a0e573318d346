//! Where changes come from: a directory, or a server (`server.rs`).
//!
//! ```text
//!   Db::feed_after | ES.FEED --fill--> Batch
//! ```
//!
//! feed_source.1. A source fills batches with all changes of all commits after its position, in order. The
//!     end of a batch is a commit whose changes it has returned completely.

use std::str::FromStr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use esker::{Error, Feed, FeedCommit, SeqNo};

use super::change::{Batch, Change, Position};
use super::names::Names;
use super::no_feed;
use crate::args::Common;
use crate::database::Database;
use crate::failure::{Failure, Result};

/// Why a source or a sink failed.
pub(super) enum Trouble {
    /// A later attempt may succeed.
    Retry(String),
    /// Someone has to do something.
    Stop(Failure),
}

impl Trouble {
    pub(super) fn stop(text: impl Into<String>) -> Self {
        Trouble::Stop(Failure::message(text))
    }
}

/// A result with a [`Trouble`].
pub(super) type Tried<T> = std::result::Result<T, Trouble>;

/// Whether a source has more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    More,
    /// There are no further commits at the moment.
    AtEnd,
}

/// A feed of changes.
pub(super) trait Source {
    /// Begins after a position, or where a first run begins. Returns the position.
    fn begin(&mut self, after: Option<Position>) -> Tried<Position>;

    /// Appends changes until the batch is full or there are no more. A source that follows waits a while for
    /// the first.
    fn fill(&mut self, batch: &mut Batch) -> Tried<Filled>;
}

/// A position on the command line: COMMIT, or HISTORY:COMMIT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Since {
    history: Option<Arc<str>>,
    commit: u64,
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let parsed = match text.parse() {
            Ok(commit) => Ok(Since { history: None, commit }),
            Err(_) => {
                text.parse().map(|Position { history, commit }| Since { history: Some(history), commit })
            }
        };
        let parsed = parsed.ok().filter(|since| SeqNo::try_new(since.commit).is_some());
        parsed.ok_or_else(|| "a commit number, as `esker stats` shows it, or HISTORY:COMMIT".to_owned())
    }
}

impl Since {
    /// Returns the commit for a command that has one history only.
    pub(super) fn commit_here(&self) -> Result<SeqNo> {
        match &self.history {
            None => Ok(seqno(self.commit)),
            Some(_) => Err(Failure::message("HISTORY:COMMIT is for --to: give the commit alone")),
        }
    }

    /// Returns the position, with `history` if the user named none.
    pub(super) fn in_history(&self, history: Option<&Arc<str>>) -> Result<Position> {
        let named = self.history.as_ref().or(history).cloned();
        let history = named.ok_or_else(|| {
            Failure::message(
                "--since of a server is EPOCH:NUMBER, the two parts of the reply to ES.POSITION, such as 1-9f:4711",
            )
        })?;
        Ok(Position { history, commit: self.commit })
    }
}

fn seqno(commit: u64) -> SeqNo {
    SeqNo::try_new(commit).unwrap_or(SeqNo::MAX)
}

/// What to do about a position that the feed does not reach back to.
pub(super) fn gap(position: &Position, why: &str) -> Trouble {
    Trouble::stop(format!(
        "{why}\n  the sink misses changes after {position}: have it read all data again, then remove the file of the \
         position, and begin with --since at the position of that data"
    ))
}

/// The retained commits of a directory.
pub(super) struct DirectorySource<'a> {
    database: &'a Database,
    common: &'a Common,
    all_hex: bool,
    history: Arc<str>,
    names: Names,
    feed: Option<Feed>,
    /// The commit that is being read.
    open: Option<Reading>,
}

struct Reading {
    commit: FeedCommit,
    /// Changes read.
    n: u64,
    /// Held back until it is known whether it is the last.
    pending: Option<Change>,
}

impl<'a> DirectorySource<'a> {
    pub(super) fn new(database: &'a Database, common: &'a Common, all_hex: bool) -> Result<Self> {
        let history = format!("{:08x}", database.db.number()).into();
        let names = Names::of(&database.db).map_err(|error| database.failure(error))?;
        Ok(DirectorySource { database, common, all_hex, history, names, feed: None, open: None })
    }

    pub(super) fn history(&self) -> &Arc<str> {
        &self.history
    }

    fn failed(&self, error: Error) -> Trouble {
        Trouble::Stop(self.database.failure(error))
    }

    /// Reads the next change of the open commit into the batch. Returns whether there was one.
    fn read(&mut self, batch: &mut Batch) -> esker::Result<bool> {
        let Some(reading) = &mut self.open else { return Ok(false) };
        let at = Position { history: self.history.clone(), commit: reading.commit.seqno().get() };
        let Some(change) = reading.commit.next_change()? else {
            if let Some(last) = reading.pending.take() {
                batch.push(last.seal(true));
            }
            batch.end = Some(at);
            self.open = None;
            return Ok(true);
        };
        let n = reading.n;
        reading.n += 1;
        if let Some(described) = self.names.describe(self.common, &change)? {
            let change = Change::new(at, n, described, self.all_hex);
            let change = change.map_err(|error| Error::Invalid(error.to_string()))?;
            if let Some(previous) = reading.pending.replace(change) {
                batch.push(previous.seal(false));
            }
        }
        Ok(true)
    }
}

impl Source for DirectorySource<'_> {
    fn begin(&mut self, after: Option<Position>) -> Tried<Position> {
        if let Some(position) = after.as_ref().filter(|position| position.history != self.history) {
            return Err(Trouble::stop(format!(
                "{position} is not a position of this database, whose history is {}\n  \
                 a copy of a database and a server have histories of their own",
                self.history
            )));
        }
        let start = after.as_ref().map_or(SeqNo::ZERO, |position| seqno(position.commit));
        let (feed, start) = match (self.database.db.feed_after(start), &after) {
            // A first run begins at the oldest retained commit.
            (Err(Error::FeedTruncated { oldest }), None) => {
                (self.database.db.feed_after(oldest.prev()), oldest.prev())
            }
            (Err(error @ (Error::FeedTruncated { .. } | Error::FeedAhead { .. })), Some(position)) => {
                return Err(gap(position, &error.to_string()));
            }
            (Err(error @ Error::NoFeed), _) => return Err(Trouble::Stop(no_feed(&error))),
            (feed, _) => (feed, start),
        };
        self.feed = Some(feed.map_err(|error| self.failed(error))?);
        Ok(Position { history: self.history.clone(), commit: start.get() })
    }

    fn fill(&mut self, batch: &mut Batch) -> Tried<Filled> {
        while !batch.is_full() {
            if self.open.is_none() {
                let feed = self.feed.as_mut().expect("begin opens it");
                let commit = feed.try_next();
                let Some(commit) = commit.map_err(|error| self.failed(error))? else {
                    return Ok(Filled::AtEnd);
                };
                self.open = Some(Reading { commit, n: 0, pending: None });
            }
            self.read(batch).map_err(|error| self.failed(error))?;
        }
        Ok(Filled::More)
    }
}

/// Milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
