//! Tables of keys with columns, and transactions over them: the commands `OB.`.
//!
//! A table has keys, and a key has columns: each has a name, data and a timestamp in microseconds since 1970. Requests work in the keyspace that
//! [`use_keyspace`] chose, at first `default`.

mod slices;
mod transactions;

pub use self::slices::{Column, Page, Row, Slice, keys, slice};
pub use self::transactions::{
    Begin, Isolation, LockMode, Sync, TransactionInfo, Watch, abort, await_topics, begin, changed_tables,
    commit, listen, listen_prefix, lock, notify, transaction_id, transactions, unlisten, unlisten_prefix,
    watch,
};
use crate::names::Names;
use crate::{Bytes, Request, reply};

const KEYS: [&str; 3] = ["RANGE", "PREFIX", "KEYS"];
const COLUMNS: [&str; 3] = ["COLRANGE", "COLPREFIX", "COLS"];

/// The names of keyspaces.
pub fn keyspaces() -> Request<Vec<String>> {
    Request::new("OB.KS", |value| reply::list(value, reply::text)).word("LIST")
}

/// Has the connection work in a keyspace, which is made if there is none.
pub fn use_keyspace(name: &str) -> Request<()> {
    Request::new("OB.KS", reply::done).word("USE").word(name)
}

/// Drops a keyspace with all it holds.
pub fn drop_keyspace(name: &str) -> Request<()> {
    Request::new("OB.KS", reply::done).word("DROP").word(name)
}

/// Sets columns of a key. At least one has to be given.
pub fn put<C: AsRef<[u8]>, D: AsRef<[u8]>>(
    table: impl AsRef<[u8]>,
    key: impl AsRef<[u8]>,
    columns: impl IntoIterator<Item = (C, D)>,
) -> Request<()> {
    let mut request = Request::new("OB.PUT", reply::done).word(table).word(key);
    for (column, data) in columns {
        request = request.word(column).word(data);
    }
    request
}

/// Sets columns of several keys at once: see [`Rows::row`].
pub fn put_rows(table: impl Into<Bytes>) -> Rows {
    Rows { request: Request::new("OB.MPUT", reply::done).word(table.into()) }
}

/// Rows to be set: made by [`put_rows`].
#[derive(Debug)]
#[must_use = "rows are set when their request is run"]
pub struct Rows {
    request: Request<()>,
}

impl Rows {
    /// Adds columns of a key.
    pub fn row<C: AsRef<[u8]>, D: AsRef<[u8]>>(
        mut self,
        key: impl AsRef<[u8]>,
        columns: impl IntoIterator<Item = (C, D)>,
    ) -> Self {
        let columns: Vec<_> = columns.into_iter().collect();
        self.request = self.request.word("ROW").word(key).word(columns.len().to_string());
        for (column, data) in columns {
            self.request = self.request.word(column).word(data);
        }
        self
    }

    /// The same with a timestamp of one's own.
    pub fn row_at<C: AsRef<[u8]>, D: AsRef<[u8]>>(
        self,
        key: impl AsRef<[u8]>,
        columns: impl IntoIterator<Item = (C, D)>,
        micros: i64,
    ) -> Self {
        let Rows { request } = self.row(key, columns);
        Rows { request: request.word("AT").word(micros.to_string()) }
    }

    /// The request.
    pub fn request(self) -> Request<()> {
        self.request
    }
}

/// The data of columns of a key, in the order in which they are named.
pub fn get<C: AsRef<[u8]>>(
    table: impl AsRef<[u8]>,
    key: impl AsRef<[u8]>,
    columns: impl IntoIterator<Item = C>,
) -> Request<Vec<Option<Bytes>>> {
    let read = |value| reply::list(value, |data| reply::option(data, reply::bytes));
    Request::new("OB.GET", read).word(table).word(key).words(columns)
}

/// All columns of a key, with their data.
pub fn row(table: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Request<Vec<(Bytes, Bytes)>> {
    Request::new("OB.GET", reply::pairs).word(table).word(key)
}

/// Removes columns of a key.
pub fn delete_columns<C: AsRef<[u8]>>(
    table: impl AsRef<[u8]>,
    key: impl AsRef<[u8]>,
    first: C,
    others: impl IntoIterator<Item = C>,
) -> Request<()> {
    Request::new("OB.DEL", reply::done).word(table).word(key).word(first).words(others)
}

/// Removes a key with all its columns.
pub fn delete(table: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Request<()> {
    Request::new("OB.DEL", reply::done).word(table).word(key)
}

/// Removes keys with all their columns.
pub fn delete_keys(table: impl AsRef<[u8]>, keys: &Names) -> Request<()> {
    let request = Request::new("OB.DELKEYS", reply::done).word(table);
    // Of no names it is all, which the server wants to be said.
    let all = Names::new().range("", "");
    if keys.is_all() { all.say(request, KEYS) } else { keys.say(request, KEYS) }
}

/// For each key, whether it has columns. At least one has to be given.
pub fn exist<K: AsRef<[u8]>>(
    table: impl AsRef<[u8]>,
    keys: impl IntoIterator<Item = K>,
) -> Request<Vec<bool>> {
    Request::new("OB.EXISTS", |value| reply::list(value, reply::flag)).word(table).words(keys)
}

/// How many of these keys there are.
pub fn count(table: impl AsRef<[u8]>, keys: &Names) -> Request<u64> {
    keys.say(Request::new("OB.COUNT", reply::number).word(table), KEYS)
}

/// The names of all tables.
pub fn tables() -> Request<Vec<Bytes>> {
    Request::new("OB.TABLES", |value| reply::list(value, reply::bytes))
}

/// How many bytes the keys and data of a table have.
pub fn size(table: impl AsRef<[u8]>) -> Request<u64> {
    Request::new("OB.SIZE", reply::number).word(table)
}

/// The same of keys from one on, up to another. An empty `to` is the end.
pub fn range_size(table: impl AsRef<[u8]>, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Request<u64> {
    size(table).word(from).word(to)
}
