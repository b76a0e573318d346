//! The change feed: the durable commits after a position.

use std::time::Duration;

use redis::Value;

use crate::{Bytes, Request, Result, reply};

/// A commit in the history of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The epoch. Each start of a primary, and each promotion, begins one.
    pub epoch: String,
    /// The number of the commit.
    pub number: u64,
}

/// A change of the connection's keyspace or database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A key was set. The value is `None` if it is not a string.
    Set(Bytes, Option<Bytes>),
    /// Operands were merged into a key.
    Merge(Bytes, Vec<Bytes>),
    /// A key was removed, or has expired.
    Delete(Bytes),
    /// The keys from the first one to the second one were removed. An empty second one means no bound.
    DeleteRange(Bytes, Bytes),
    /// `SWAPDB` or a rename gave the name to another keyspace: read all data again.
    All,
}

/// The changes of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its position.
    pub position: Position,
    /// Its changes.
    pub changes: Vec<Change>,
}

/// Commits in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The commits that changed the keyspace or database.
    pub commits: Vec<Commit>,
    /// The position to continue from.
    pub next: Position,
}

/// A request of the change feed. Created by [`feed`].
#[derive(Debug)]
#[must_use = "the feed does nothing until its request is run"]
pub struct Feed {
    request: Request<Page>,
}

/// Returns the newest commit that reads see. Note it, read all data, then follow the [`feed`].
pub fn position() -> Request<Position> {
    Request::new("ES.POSITION", |value| position_of(reply::array(value)?))
}

/// Reads the commits behind a position. They arrive once they are durable. Fails with
/// [`Error::PositionLost`](crate::Error::PositionLost) if the server cannot continue from there.
pub fn feed(behind: &Position) -> Feed {
    let request = Request::new("ES.FEED", page).word(&behind.epoch).word(behind.number.to_string());
    Feed { request }
}

impl Feed {
    /// Limits the number of commits. The default is 100.
    pub fn count(self, commits: usize) -> Self {
        Feed { request: self.request.word("COUNT").word(commits.to_string()) }
    }

    /// Waits up to this time if there are no commits, at least a millisecond.
    pub fn wait(self, patience: Duration) -> Self {
        Feed { request: self.request.word("BLOCK").word(patience.as_millis().max(1).to_string()) }
    }

    /// Waits without a limit if there are no commits.
    pub fn wait_forever(self) -> Self {
        Feed { request: self.request.words(["BLOCK", "0"]) }
    }

    /// Returns the request.
    pub fn request(self) -> Request<Page> {
        self.request
    }
}

fn position_of([epoch, number]: [Value; 2]) -> Result<Position> {
    Ok(Position { epoch: reply::text(epoch)?, number: reply::number(number)? })
}

fn page(value: Value) -> Result<Page> {
    let [epoch, number, commits] = reply::array(value)?;
    Ok(Page { commits: reply::list(commits, commit)?, next: position_of([epoch, number])? })
}

fn commit(value: Value) -> Result<Commit> {
    let [epoch, number, changes] = reply::array(value)?;
    Ok(Commit { position: position_of([epoch, number])?, changes: reply::list(changes, change)? })
}

fn change(value: Value) -> Result<Change> {
    let mut words = reply::items(value.clone())?.into_iter();
    let mut next = || words.next().map_or_else(|| reply::unexpected(&value), Ok);
    let kind = reply::text(next()?)?;
    if kind == "all" {
        return Ok(Change::All);
    }
    let key = reply::bytes(next()?)?;
    match kind.as_str() {
        "set" => Ok(Change::Set(key, reply::option(next()?, reply::bytes)?)),
        "merge" => Ok(Change::Merge(key, words.map(reply::bytes).collect::<Result<_>>()?)),
        "del" => Ok(Change::Delete(key)),
        "delrange" => Ok(Change::DeleteRange(key, reply::bytes(next()?)?)),
        _ => reply::unexpected(&value),
    }
}
