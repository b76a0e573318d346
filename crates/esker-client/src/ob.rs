//! Tables of keys with columns, and transactions over them: the commands `OB.`.
//!
//! A table has keys, and a key has columns: each has a name, data, and a timestamp in microseconds since
//! 1970. Requests work in the keyspace selected by [`use_keyspace`], initially `default`.

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

/// Returns the names of all keyspaces.
pub fn keyspaces() -> Request<Vec<String>> {
    Request::new("OB.KS", |value| reply::list(value, reply::text)).word("LIST")
}

/// Selects a keyspace for the connection, creating it if it does not exist.
pub fn use_keyspace(name: &str) -> Request<()> {
    Request::new("OB.KS", reply::done).word("USE").word(name)
}

/// Drops a keyspace and everything in it.
pub fn drop_keyspace(name: &str) -> Request<()> {
    Request::new("OB.KS", reply::done).word("DROP").word(name)
}

/// Sets columns of a key. Requires at least one column.
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

/// Sets columns of several keys in one request: see [`Rows::row`].
pub fn put_rows(table: impl Into<Bytes>) -> Rows {
    Rows { request: Request::new("OB.MPUT", reply::done).word(table.into()) }
}

/// Rows to set. Created by [`put_rows`].
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

    /// Adds columns of a key with an explicit timestamp.
    pub fn row_at<C: AsRef<[u8]>, D: AsRef<[u8]>>(
        self,
        key: impl AsRef<[u8]>,
        columns: impl IntoIterator<Item = (C, D)>,
        micros: i64,
    ) -> Self {
        let Rows { request } = self.row(key, columns);
        Rows { request: request.word("AT").word(micros.to_string()) }
    }

    /// Returns the request.
    pub fn request(self) -> Request<()> {
        self.request
    }
}

/// Returns the data of columns of a key, in the given order.
pub fn get<C: AsRef<[u8]>>(
    table: impl AsRef<[u8]>,
    key: impl AsRef<[u8]>,
    columns: impl IntoIterator<Item = C>,
) -> Request<Vec<Option<Bytes>>> {
    let read = |value| reply::list(value, |data| reply::option(data, reply::bytes));
    Request::new("OB.GET", read).word(table).word(key).words(columns)
}

/// Returns all columns of a key with their data.
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

/// Removes a key and all its columns.
pub fn delete(table: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Request<()> {
    Request::new("OB.DEL", reply::done).word(table).word(key)
}

/// Removes keys and all their columns.
pub fn delete_keys(table: impl AsRef<[u8]>, keys: &Names) -> Request<()> {
    let request = Request::new("OB.DELKEYS", reply::done).word(table);
    // The server requires an explicit range to remove all keys.
    let all = Names::new().range("", "");
    if keys.is_all() { all.say(request, KEYS) } else { keys.say(request, KEYS) }
}

/// Returns for each key whether it exists. Requires at least one key.
pub fn exist<K: AsRef<[u8]>>(
    table: impl AsRef<[u8]>,
    keys: impl IntoIterator<Item = K>,
) -> Request<Vec<bool>> {
    Request::new("OB.EXISTS", |value| reply::list(value, reply::flag)).word(table).words(keys)
}

/// Returns the number of keys.
pub fn count(table: impl AsRef<[u8]>, keys: &Names) -> Request<u64> {
    keys.say(Request::new("OB.COUNT", reply::number).word(table), KEYS)
}

/// Returns the names of all tables.
pub fn tables() -> Request<Vec<Bytes>> {
    Request::new("OB.TABLES", |value| reply::list(value, reply::bytes))
}

/// Returns the size of the keys and data of a table in bytes.
pub fn size(table: impl AsRef<[u8]>) -> Request<u64> {
    Request::new("OB.SIZE", reply::number).word(table)
}

/// Returns the size of the keys in `from..to` and their data in bytes. An empty `to` means no bound.
pub fn range_size(table: impl AsRef<[u8]>, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Request<u64> {
    size(table).word(from).word(to)
}
