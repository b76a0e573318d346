//! Ordered keys: the commands `ES.`. They work in the keyspace selected by [`use_keyspace`]; without it, on
//! the strings of the connection's database.

mod feed;
mod session;
mod watch;

use redis::Value;

pub use self::feed::{Change, Commit, Feed, Page, Position, feed, position};
pub use self::session::{
    Lock, at, close_snapshot, lock, open_snapshot, rollback_to, savepoint, snapshots, unlock,
};
pub use self::watch::{KeyEvent, Watch, unwatch, watch};
use crate::{Bytes, Request, Result, reply};

/// A key and its value. Keys of a database that are not strings have no value.
pub type Entry = (Bytes, Option<Bytes>);

fn entry([key, value]: [Value; 2]) -> Result<Entry> {
    Ok((reply::bytes(key)?, reply::option(value, reply::bytes)?))
}

fn one_entry(value: Value) -> Result<Option<Entry>> {
    reply::option(value, |value| entry(reply::array(value)?))
}

/// Selects an existing keyspace of plain keys for the connection.
pub fn use_keyspace(name: &str) -> Request<()> {
    Request::new("ES.KS", reply::done).word("USE").word(name)
}

/// Creates a keyspace of plain keys if it does not exist.
pub fn create_keyspace(name: &str) -> Request<()> {
    Request::new("ES.KS", reply::done).word("CREATE").word(name)
}

/// Returns the value of a key.
pub fn get(key: impl AsRef<[u8]>) -> Request<Option<Bytes>> {
    Request::new("ES.GET", |value| reply::option(value, reply::bytes)).word(key)
}

/// Sets a key.
pub fn set(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Request<()> {
    Request::new("ES.SET", reply::done).word(key).word(value)
}

/// Applies the merge operator of the keyspace to a key.
pub fn merge(key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Request<()> {
    Request::new("ES.MERGE", reply::done).word(key).word(operand)
}

/// Removes a key. Returns whether it existed.
pub fn delete(key: impl AsRef<[u8]>) -> Request<bool> {
    Request::new("ES.DEL", reply::flag).word(key)
}

/// Removes the keys in `from..to` and returns their number. An empty `to` means no bound.
pub fn delete_range(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Request<u64> {
    Request::new("ES.DELRANGE", reply::number).word(from).word(to)
}

/// Returns the number of keys in `from..to`. An empty `to` means no bound.
pub fn count(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Request<u64> {
    Request::new("ES.COUNT", reply::number).word(from).word(to)
}

/// Sets a key to `new`, or removes it if `new` is `None`, provided that its value is `old` (`None`: it does
/// not exist). Returns whether that was so.
pub fn compare_and_set(key: impl AsRef<[u8]>, old: Option<&[u8]>, new: Option<&[u8]>) -> Request<bool> {
    let request = Request::new("ES.CAS", reply::flag).word(key);
    let request = match old {
        Some(old) => request.word("EQ").word(old),
        None => request.word("NONE"),
    };
    match new {
        Some(new) => request.word("SET").word(new),
        None => request.word("DEL"),
    }
}

/// Returns the next key and its value.
pub fn next(key: impl AsRef<[u8]>) -> Request<Option<Entry>> {
    Request::new("ES.NEXT", one_entry).word(key)
}

/// Returns the previous key and its value.
pub fn previous(key: impl AsRef<[u8]>) -> Request<Option<Entry>> {
    Request::new("ES.PREV", one_entry).word(key)
}

/// Returns the first key and its value.
pub fn first() -> Request<Option<Entry>> {
    Request::new("ES.FIRST", one_entry)
}

/// Returns the last key and its value.
pub fn last() -> Request<Option<Entry>> {
    Request::new("ES.LAST", one_entry)
}

/// A scan of keys in order. Created by [`range`] or [`prefix`].
#[derive(Debug)]
#[must_use = "a scan does nothing until its request is run"]
pub struct Walk {
    request: Request<Vec<Entry>>,
}

/// Scans the keys in `from..to`. An empty `to` means no bound.
pub fn range(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Walk {
    Walk { request: Request::new("ES.RANGE", |value| reply::groups(value, entry)).word(from).word(to) }
}

/// Scans the keys with a prefix.
pub fn prefix(prefix: impl AsRef<[u8]>) -> Walk {
    Walk { request: Request::new("ES.PREFIX", |value| reply::groups(value, entry)).word(prefix) }
}

impl Walk {
    /// Scans from the last key to the first.
    pub fn reverse(self) -> Self {
        Walk { request: self.request.word("REV") }
    }

    /// Limits the number of keys. For the next page, start after the last returned key.
    pub fn limit(self, keys: usize) -> Self {
        Walk { request: self.request.word("LIMIT").word(keys.to_string()) }
    }

    /// Excludes `from` from a range.
    pub fn exclusive(self) -> Self {
        Walk { request: self.request.word("EXCL") }
    }

    /// Returns the request.
    pub fn request(self) -> Request<Vec<Entry>> {
        self.request
    }
}
