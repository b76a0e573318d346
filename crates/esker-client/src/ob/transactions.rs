//! Transactions, locks, watches and notifications.

use std::time::Duration;

use redis::Value;

use super::KEYS;
use crate::names::Names;
use crate::{Bytes, Error, Request, Result, reply};

/// The isolation level of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each read sees the newest committed state.
    #[default]
    ReadCommitted,
    /// All reads see the state at the beginning of the transaction.
    RepeatableRead,
    /// As `RepeatableRead`. The commit also fails with [`Error::Conflict`] if another transaction changed
    /// what this one wrote.
    Snapshot,
    /// As `Snapshot`. The commit also fails if another transaction changed what this one read.
    Serializable,
}

/// What a commit waits for at least. A stricter setting of the server takes precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// The server's setting.
    #[default]
    Server,
    /// The operating system.
    Os,
    /// The disk.
    Disk,
}

/// Options of a transaction. Created by [`begin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Begin {
    isolation: Isolation,
    sync: Sync,
}

/// Begins a transaction, nested in the connection's current one, if any. Its writes are invisible to others
/// until it commits.
pub fn begin() -> Begin {
    Begin::default()
}

impl Begin {
    /// Sets the isolation level.
    #[must_use]
    pub fn isolation(self, isolation: Isolation) -> Self {
        Begin { isolation, ..self }
    }

    /// Sets what the commit waits for.
    #[must_use]
    pub fn sync(self, sync: Sync) -> Self {
        Begin { sync, ..self }
    }

    /// Returns the request. Its reply is the id of the transaction.
    pub fn request(self) -> Request<u64> {
        let (command, isolation) = match self.isolation {
            Isolation::ReadCommitted => ("OB.BEGIN", "RC"),
            Isolation::RepeatableRead => ("OB.BEGIN", "RR"),
            Isolation::Snapshot => ("ES.BEGIN", "SNAPSHOT"),
            Isolation::Serializable => ("ES.BEGIN", "SERIALIZABLE"),
        };
        let request = Request::new(command, reply::number).word(isolation);
        match self.sync {
            Sync::Server => request,
            Sync::Os => request.words(["SYNC", "OS"]),
            Sync::Disk => request.words(["SYNC", "DISK"]),
        }
    }
}

/// Commits the innermost transaction. Writes of a nested one become visible once all enclosing transactions
/// have committed.
pub fn commit() -> Request<()> {
    Request::new("OB.COMMIT", reply::done)
}

/// Rolls back the innermost transaction.
pub fn abort() -> Request<()> {
    Request::new("OB.ABORT", reply::done)
}

/// Returns the id of the connection's transaction.
pub fn transaction_id() -> Request<Option<u64>> {
    Request::new("OB.TXID", |value| reply::option(value, reply::number))
}

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Held by any number of transactions.
    Shared,
    /// Held by one transaction.
    Exclusive,
}

/// Locks names until the outermost transaction ends. Waits up to `timeout`, or without a limit if it is zero.
pub fn lock<N: AsRef<[u8]>>(
    mode: LockMode,
    timeout: Duration,
    names: impl IntoIterator<Item = N>,
) -> Request<()> {
    let mode = if mode == LockMode::Shared { "SHARED" } else { "EXCLUSIVE" };
    Request::new("OB.LOCK", reply::done).word(mode).word(timeout.as_secs_f64().to_string()).words(names)
}

/// The part of a table that a transaction watches. Created by [`watch`].
#[derive(Debug)]
#[must_use = "nothing is watched until the request is run"]
pub struct Watch {
    request: Request<()>,
}

/// Makes the commit of the outermost transaction fail with [`Error::Dirty`] if it has writes and a watched
/// key has changed.
pub fn watch(table: impl AsRef<[u8]>) -> Watch {
    Watch { request: Request::new("OB.WATCH", reply::done).word(table) }
}

impl Watch {
    /// Watches all columns of these keys, including keys that do not exist yet.
    pub fn keys(self, keys: &Names) -> Self {
        Watch { request: keys.say(self.request, KEYS) }
    }

    /// Watches all columns of a key.
    pub fn key(self, key: impl Into<Bytes>) -> Self {
        self.keys(&Names::new().one(key))
    }

    /// Watches columns of a key. Requires at least one column.
    pub fn columns<C: AsRef<[u8]>>(
        self,
        key: impl AsRef<[u8]>,
        columns: impl IntoIterator<Item = C>,
    ) -> Self {
        let columns: Vec<C> = columns.into_iter().collect();
        let request = self.request.word("COLS").word(key).word(columns.len().to_string());
        Watch { request: request.words(columns) }
    }

    /// Returns the request.
    pub fn request(self) -> Request<()> {
        self.request
    }
}

/// Notifies listeners of topics once the outermost transaction has committed; without a transaction,
/// immediately.
pub fn notify<T: AsRef<[u8]>>(topics: impl IntoIterator<Item = T>) -> Request<()> {
    Request::new("OB.NOTIFY", reply::done).words(topics)
}

/// Listens to a topic.
pub fn listen(topic: impl AsRef<[u8]>) -> Request<()> {
    Request::new("OB.LISTEN", reply::done).word(topic)
}

/// Listens to all topics with a prefix.
pub fn listen_prefix(prefix: impl AsRef<[u8]>) -> Request<()> {
    Request::new("OB.PLISTEN", reply::done).word(prefix)
}

/// Stops listening to a topic.
pub fn unlisten(topic: impl AsRef<[u8]>) -> Request<()> {
    Request::new("OB.UNLISTEN", reply::done).word(topic)
}

/// Stops listening to topics with a prefix.
pub fn unlisten_prefix(prefix: impl AsRef<[u8]>) -> Request<()> {
    Request::new("OB.PUNLISTEN", reply::done).word(prefix)
}

/// Returns the topics notified since the last call, without duplicates. Waits up to `timeout` for one, or
/// without a limit if it is zero. Returns an empty list after a timeout.
pub fn await_topics(timeout: Duration) -> Request<Vec<Bytes>> {
    let read = |value| reply::list(value, reply::bytes);
    Request::new("OB.AWAIT", read).word(timeout.as_secs_f64().to_string())
}

/// An open transaction of any connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionInfo {
    /// Its id.
    pub id: u64,
    /// The id of its connection, as in `CLIENT LIST`.
    pub client: u64,
    /// How long it has been open.
    pub age: Duration,
    /// The number of keys and ranges it has written.
    pub writes: u64,
    /// Its keyspace.
    pub keyspace: String,
    /// The locks it holds, each with whether it is exclusive.
    pub holds: Vec<(Bytes, bool)>,
    /// The lock that it waits for.
    pub wants: Vec<(Bytes, bool)>,
}

/// Returns all open transactions.
pub fn transactions() -> Request<Vec<TransactionInfo>> {
    Request::new("OB.TXLIST", |value| reply::list(value, info))
}

fn info(value: Value) -> Result<TransactionInfo> {
    let locks = |value| {
        reply::groups(value, |[name, mode]| Ok((reply::bytes(name)?, reply::bytes(mode)? == b"exclusive")))
    };
    let mut info = TransactionInfo::default();
    for (name, value) in reply::groups(value, |[name, value]| Ok((reply::text(name)?, value)))? {
        match name.as_str() {
            "id" => info.id = reply::number(value)?,
            "client" => info.client = reply::number(value)?,
            "age-ms" => info.age = Duration::from_millis(reply::number(value)?),
            "writes" => info.writes = reply::number(value)?,
            "keyspace" => info.keyspace = reply::text(value)?,
            "holds" => info.holds = locks(value)?,
            "wants" => info.wants = locks(value)?,
            // Newer servers send more fields.
            _ => {}
        }
    }
    if info.id == 0 {
        return Err(Error::Reply("a transaction without an id".to_owned()));
    }
    Ok(info)
}

/// Returns the tables that a transaction has changed.
pub fn changed_tables(transaction: u64) -> Request<Vec<Bytes>> {
    let read = |value| reply::list(value, reply::bytes);
    Request::new("OB.CHANGED", read).word(transaction.to_string())
}
