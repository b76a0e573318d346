//! Transactions, locks, watches and topics.

use std::time::Duration;

use redis::Value;

use super::KEYS;
use crate::names::Names;
use crate::{Bytes, Error, Request, Result, reply};

/// What the reads of a transaction are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Each of the newest state.
    #[default]
    ReadCommitted,
    /// All of the state at its beginning.
    RepeatableRead,
    /// The same. The commit fails with [`Error::Conflict`] if others have changed what it has written.
    Snapshot,
    /// The same, and also if others have changed what it has read.
    Serializable,
}

/// What a commit waits for, at least. The server's own setting holds where it is stricter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// What the server was told.
    #[default]
    Server,
    /// The operating system has it.
    Os,
    /// It is on the disk.
    Disk,
}

/// How a transaction begins: made by [`begin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Begin {
    isolation: Isolation,
    sync: Sync,
}

/// Begins a transaction, or one inside of the one that the connection holds. Its own writes are seen by it alone until it commits.
pub fn begin() -> Begin {
    Begin::default()
}

impl Begin {
    /// With this isolation.
    #[must_use]
    pub fn isolation(self, isolation: Isolation) -> Self {
        Begin { isolation, ..self }
    }

    /// Its commit waits for this.
    #[must_use]
    pub fn sync(self, sync: Sync) -> Self {
        Begin { sync, ..self }
    }

    /// The request; its reply is the number of the transaction.
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

/// Commits the innermost transaction. What one inside of another wrote is there for others once all around it have committed.
pub fn commit() -> Request<()> {
    Request::new("OB.COMMIT", reply::done)
}

/// Rolls back the innermost transaction.
pub fn abort() -> Request<()> {
    Request::new("OB.ABORT", reply::done)
}

/// The number of the connection's transaction.
pub fn transaction_id() -> Request<Option<u64>> {
    Request::new("OB.TXID", |value| reply::option(value, reply::number))
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// By any number at once.
    Shared,
    /// By one alone.
    Exclusive,
}

/// Locks names until the outermost transaction ends, and waits for them: for ever, if `patience` is zero.
pub fn lock<N: AsRef<[u8]>>(
    mode: LockMode,
    patience: Duration,
    names: impl IntoIterator<Item = N>,
) -> Request<()> {
    let mode = if mode == LockMode::Shared { "SHARED" } else { "EXCLUSIVE" };
    Request::new("OB.LOCK", reply::done).word(mode).word(patience.as_secs_f64().to_string()).words(names)
}

/// What a transaction watches in a table: made by [`watch`].
#[derive(Debug)]
#[must_use = "nothing is watched until the request is run"]
pub struct Watch {
    request: Request<()>,
}

/// Has the outermost transaction fail with [`Error::Dirty`] if it has written and one of these changes before its commit.
pub fn watch(table: impl AsRef<[u8]>) -> Watch {
    Watch { request: Request::new("OB.WATCH", reply::done).word(table) }
}

impl Watch {
    /// All columns of these keys, also of those that are not there yet.
    pub fn keys(self, keys: &Names) -> Self {
        Watch { request: keys.say(self.request, KEYS) }
    }

    /// All columns of a key.
    pub fn key(self, key: impl Into<Bytes>) -> Self {
        self.keys(&Names::new().one(key))
    }

    /// Columns of a key. At least one has to be given.
    pub fn columns<C: AsRef<[u8]>>(
        self,
        key: impl AsRef<[u8]>,
        columns: impl IntoIterator<Item = C>,
    ) -> Self {
        let columns: Vec<C> = columns.into_iter().collect();
        let request = self.request.word("COLS").word(key).word(columns.len().to_string());
        Watch { request: request.words(columns) }
    }

    /// The request.
    pub fn request(self) -> Request<()> {
        self.request
    }
}

/// Says topics to those that listen, once the outermost transaction has committed; without one, at once.
pub fn notify<T: AsRef<[u8]>>(topics: impl IntoIterator<Item = T>) -> Request<()> {
    Request::new("OB.NOTIFY", reply::done).words(topics)
}

/// Listens to a topic.
pub fn listen(topic: impl AsRef<[u8]>) -> Request<()> {
    Request::new("OB.LISTEN", reply::done).word(topic)
}

/// Listens to all topics that begin so.
pub fn listen_prefix(prefix: impl AsRef<[u8]>) -> Request<()> {
    Request::new("OB.PLISTEN", reply::done).word(prefix)
}

/// Listens no more to a topic.
pub fn unlisten(topic: impl AsRef<[u8]>) -> Request<()> {
    Request::new("OB.UNLISTEN", reply::done).word(topic)
}

/// Listens no more to topics that begin so.
pub fn unlisten_prefix(prefix: impl AsRef<[u8]>) -> Request<()> {
    Request::new("OB.PUNLISTEN", reply::done).word(prefix)
}

/// The topics that were said since the last time, each once. Waits for one: for ever, if `patience` is zero. None: it was over.
pub fn await_topics(patience: Duration) -> Request<Vec<Bytes>> {
    let read = |value| reply::list(value, reply::bytes);
    Request::new("OB.AWAIT", read).word(patience.as_secs_f64().to_string())
}

/// A transaction that some connection holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionInfo {
    /// Its number.
    pub id: u64,
    /// The number of its connection, as `CLIENT LIST` has it.
    pub client: u64,
    /// How long it has been open.
    pub age: Duration,
    /// How many keys and ranges it has written.
    pub writes: u64,
    /// Its keyspace.
    pub keyspace: String,
    /// The locks it holds; true: exclusively.
    pub holds: Vec<(Bytes, bool)>,
    /// The lock it waits for.
    pub wants: Vec<(Bytes, bool)>,
}

/// All transactions.
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
            // A newer server tells more.
            _ => {}
        }
    }
    if info.id == 0 {
        return Err(Error::Reply("a transaction without a number".to_owned()));
    }
    Ok(info)
}

/// The tables that a transaction has changed.
pub fn changed_tables(transaction: u64) -> Request<Vec<Bytes>> {
    let read = |value| reply::list(value, reply::bytes);
    Request::new("OB.CHANGED", read).word(transaction.to_string())
}
