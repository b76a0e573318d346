//! Ordered keys: the commands `ES.`. They work in the keyspace that [`use_keyspace`] chose; without it, on the strings of the connection's database.

use redis::Value;

use crate::{Bytes, Request, Result, reply};

/// A key and its value; none if it has none of its own, as keys of databases that are no strings.
pub type Entry = (Bytes, Option<Bytes>);

fn entry([key, value]: [Value; 2]) -> Result<Entry> {
    Ok((reply::bytes(key)?, reply::option(value, reply::bytes)?))
}

fn one_entry(value: Value) -> Result<Option<Entry>> {
    reply::option(value, |value| entry(reply::array(value)?))
}

/// Has the connection work in a keyspace of plain keys, which is there.
pub fn use_keyspace(name: &str) -> Request<()> {
    Request::new("ES.KS", reply::done).word("USE").word(name)
}

/// Makes a keyspace of plain keys, if there is none.
pub fn create_keyspace(name: &str) -> Request<()> {
    Request::new("ES.KS", reply::done).word("CREATE").word(name)
}

/// The value of a key.
pub fn get(key: impl AsRef<[u8]>) -> Request<Option<Bytes>> {
    Request::new("ES.GET", |value| reply::option(value, reply::bytes)).word(key)
}

/// Sets a key.
pub fn set(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Request<()> {
    Request::new("ES.SET", reply::done).word(key).word(value)
}

/// Merges an operand into a key, by the operator of the keyspace.
pub fn merge(key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Request<()> {
    Request::new("ES.MERGE", reply::done).word(key).word(operand)
}

/// Removes a key; whether it was there.
pub fn delete(key: impl AsRef<[u8]>) -> Request<bool> {
    Request::new("ES.DEL", reply::flag).word(key)
}

/// Removes the keys from one on, up to another; how many. An empty `to` is the end.
pub fn delete_range(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Request<u64> {
    Request::new("ES.DELRANGE", reply::number).word(from).word(to)
}

/// How many keys there are from one on, up to another.
pub fn count(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Request<u64> {
    Request::new("ES.COUNT", reply::number).word(from).word(to)
}

/// Sets a key if its value is `old`, or if it is not there and `old` is none; or removes it, if `new` is none. Whether it was so.
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

/// The key behind this one, and its value.
pub fn next(key: impl AsRef<[u8]>) -> Request<Option<Entry>> {
    Request::new("ES.NEXT", one_entry).word(key)
}

/// The key before this one, and its value.
pub fn previous(key: impl AsRef<[u8]>) -> Request<Option<Entry>> {
    Request::new("ES.PREV", one_entry).word(key)
}

/// The first key, and its value.
pub fn first() -> Request<Option<Entry>> {
    Request::new("ES.FIRST", one_entry)
}

/// The last key, and its value.
pub fn last() -> Request<Option<Entry>> {
    Request::new("ES.LAST", one_entry)
}

/// A walk over keys in order: made by [`range`] or [`prefix`].
#[derive(Debug)]
#[must_use = "a walk does nothing until its request is run"]
pub struct Walk {
    request: Request<Vec<Entry>>,
}

/// The keys from one on, with it, up to another, without it. An empty `to` is the end.
pub fn range(from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Walk {
    Walk { request: Request::new("ES.RANGE", |value| reply::groups(value, entry)).word(from).word(to) }
}

/// The keys that begin so.
pub fn prefix(prefix: impl AsRef<[u8]>) -> Walk {
    Walk { request: Request::new("ES.PREFIX", |value| reply::groups(value, entry)).word(prefix) }
}

impl Walk {
    /// The last one first.
    pub fn reverse(self) -> Self {
        Walk { request: self.request.word("REV") }
    }

    /// No more than this. To page, begin behind the last key that was told.
    pub fn limit(self, keys: usize) -> Self {
        Walk { request: self.request.word("LIMIT").word(keys.to_string()) }
    }

    /// Without `from`, of a range.
    pub fn exclusive(self) -> Self {
        Walk { request: self.request.word("EXCL") }
    }

    /// The request.
    pub fn request(self) -> Request<Vec<Entry>> {
        self.request
    }
}
