//! A server of Esker, through `esker-client`. The store lives in one keyspace of the server.
//!
//! ```text
//!   Layered<Server> --> view, page, commit --> ES.BEGIN, ES.GET, ES.RANGE, ES.COMMIT --> esker serve
//! ```
//!
//! The spaces of the store are not the keyspaces of the server: its commands name a keyspace by its name, so
//! a handle could not tell a keyspace that was dropped from a new one of the same name.
//!
//! Each state is a transaction of a connection, which goes back to the pool when the state is dropped. The
//! server ends a transaction without requests after a minute ([`Error::SnapshotTooOld`]).
//!
//! client.1. A commit returns once it is on the server's disk.
//! client.2. If the connection fails before the commit is sent, nothing is committed. If it fails later, the
//!           outcome is unknown.
//! client.3. A transaction is serializable, so what it read without `get_for_update` can conflict, too.
//! client.4. A keyspace with keys of other programs is refused. Nothing in it is written or removed.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use esker_client::ob::{self, Isolation, Sync};
use esker_client::{AsyncClient, Error as ClientError, Request, es};
use redis::{ErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::kv::Limits;
use crate::layered::{Driver, Layered, NEXT_KEY, View, Write};
use crate::page::{Page, PageBuilder, Query};
use crate::time_limit::within;
use crate::{Error, Order, Result};

/// How long a call waits for the server.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Connections that are kept for later.
const POOL_MAX: usize = 32;
/// Entries of the first request of a page, and of the largest one.
const ENTRIES_MIN: usize = 32;
const ENTRIES_MAX: usize = 1024;
/// Bytes of writes that are sent in one go.
const WRITES_BYTES: usize = 1 << 20;
/// The keyspace of a URL that names none.
const KEYSPACE: &str = "kv";
const FORM: &str = "the URL has the form esker://user:password@host:port/keyspace";

/// The server has a limit of 64 MiB for the writes of a transaction.
const LIMITS: Limits = Limits { key_bytes: 32 << 10, value_bytes: 16 << 20, transaction_bytes: 48 << 20 };

/// A server.
pub struct Server {
    pool: Arc<Pool>,
}

/// Connections outside of transactions.
struct Pool {
    url: String,
    keyspace: String,
    free: parking_lot::Mutex<Vec<AsyncClient>>,
    runtime: Handle,
}

/// One state of the store.
pub struct ServerView {
    pool: Arc<Pool>,
    /// `None` after a failure.
    client: Mutex<Option<AsyncClient>>,
    is_read_only: bool,
}

/// Opens the store in a keyspace of the server at `esker://[user:password@]host[:port][/keyspace]`. Creates
/// the keyspace if there is none. Without a name it is `kv`.
///
/// Needs a tokio runtime of several threads. TLS is not supported.
///
/// # Errors
/// [`Error::Invalid`] for the URL, and for a keyspace that another program uses; [`Error::Unavailable`] if
/// the server does not answer; [`Error::Other`] for a wrong password.
pub async fn open(url: &str) -> Result<Layered<Server>> {
    let place = url.strip_prefix("esker://").unwrap_or_default();
    let (server, keyspace) = place.split_once('/').unwrap_or((place, ""));
    if server.is_empty() || keyspace.contains('/') || place.contains(['?', '#']) {
        return Err(Error::Invalid(FORM.to_owned()));
    }
    let keyspace = if keyspace.is_empty() { KEYSPACE } else { keyspace }.to_owned();
    let runtime = Handle::current();
    let pool =
        Pool { url: format!("redis://{server}/"), keyspace, free: parking_lot::Mutex::default(), runtime };
    within(TIMEOUT, pool.claim()).await?;
    Layered::open(Server { pool: Arc::new(pool) }).await
}

async fn connected(url: &str) -> Result<AsyncClient> {
    AsyncClient::connect(url).await.map_err(error)
}

/// Returns the error of a request that has committed nothing.
fn error(from: ClientError) -> Error {
    let text = from.to_string();
    match from {
        ClientError::Conflict | ClientError::Dirty | ClientError::Deadlock => Error::Conflict,
        ClientError::TransactionTimeout => Error::SnapshotTooOld(text),
        ClientError::Connection(failed) => match failed.kind() {
            ErrorKind::AuthenticationFailed => Error::other(failed),
            ErrorKind::InvalidClientConfig => Error::Invalid(FORM.to_owned()),
            _ => Error::Unavailable(text),
        },
        ClientError::Server { code, .. } => match code.as_str() {
            "LOADING" | "READONLY" | "NOREPLICAS" | "UNAVAILABLE" | "MISCONF" => Error::Unavailable(text),
            "TRYAGAIN" => Error::Conflict,
            _ => Error::other(text),
        },
        other => Error::other(other),
    }
}

/// Returns the error of a commit (client.2).
fn commit_error(from: ClientError) -> Error {
    match from {
        ClientError::Connection(_) => Error::OutcomeUnknown(from.to_string()),
        // `ERR` is also the answer if writing the log has failed midway.
        ClientError::Server { ref code, .. } if code == "UNCONFIRMED" || code == "ERR" => {
            Error::OutcomeUnknown(from.to_string())
        }
        from => error(from),
    }
}

impl Pool {
    /// Creates the keyspace if there is none (client.4).
    async fn claim(&self) -> Result<()> {
        let mut client = connected(&self.url).await?;
        client.run(es::create_keyspace(&self.keyspace)).await.map_err(error)?;
        client.run(es::use_keyspace(&self.keyspace)).await.map_err(error)?;
        // In this order: the first commit of a store writes `NEXT_KEY`.
        let first = client.run(es::range(b"", b"").limit(1).request()).await.map_err(error)?;
        if !first.is_empty() && client.run(es::get(NEXT_KEY)).await.map_err(error)?.is_none() {
            return Err(Error::Invalid(format!(
                "the keyspace {} has keys that are not of a store: name another one in the URL",
                self.keyspace
            )));
        }
        Ok(())
    }

    /// Runs a first request on a free connection, or on a new one if all free ones have failed.
    async fn begin<T>(&self, request: impl Fn() -> Request<T>) -> Result<(AsyncClient, T)> {
        let begun = async {
            loop {
                let Some(mut client) = self.free.lock().pop() else { break };
                match client.run(request()).await {
                    Ok(reply) => return Ok((client, reply)),
                    // The server was restarted, or has ended idle connections.
                    Err(ClientError::Connection(_)) => {}
                    Err(failed) => return Err(error(failed)),
                }
            }
            let mut client = connected(&self.url).await?;
            client.run(es::use_keyspace(&self.keyspace)).await.map_err(error)?;
            let reply = client.run(request()).await.map_err(error)?;
            Ok((client, reply))
        };
        // One limit for all of them. A server that hangs does so on each connection.
        let done = within(TIMEOUT, begun).await;
        if matches!(done, Err(Error::Unavailable(_))) {
            self.free.lock().clear();
        }
        done
    }

    fn put_back(&self, client: AsyncClient) {
        let mut free = self.free.lock();
        if free.len() < POOL_MAX {
            free.push(client);
        }
    }
}

impl Driver for Server {
    type View = ServerView;

    async fn view(&self, is_read_only: bool) -> Result<ServerView> {
        let isolation = if is_read_only { Isolation::Snapshot } else { Isolation::Serializable };
        // client.1
        let begin = || ob::begin().isolation(isolation).sync(Sync::Disk).request();
        let (client, _id) = self.pool.begin(begin).await?;
        Ok(ServerView { pool: self.pool.clone(), client: Mutex::new(Some(client)), is_read_only })
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let (client, value) = self.pool.begin(|| es::get(key)).await?;
        self.pool.put_back(client);
        Ok(value.map(Bytes::from))
    }

    fn limits(&self) -> Limits {
        LIMITS
    }
}

impl ServerView {
    /// Makes a call on the connection, which is given up after a failure.
    async fn call<T>(&self, call: impl AsyncFnOnce(&mut AsyncClient) -> Result<T, ClientError>) -> Result<T> {
        let mut held = self.client.lock().await;
        let Some(client) = &mut *held else {
            return Err(Error::Unavailable("the connection failed: begin again".to_owned()));
        };
        let done = within(TIMEOUT, async { call(client).await.map_err(error) }).await;
        if matches!(done, Err(Error::Unavailable(_))) {
            *held = None;
        }
        done
    }

    async fn send(&self, writes: &[Write]) -> Result<()> {
        let mut commands = redis::pipe();
        for write in writes {
            match write {
                Write::Put(key, value) => commands.cmd("ES.SET").arg(&key[..]).arg(&value[..]),
                Write::Remove(key) => commands.cmd("ES.DEL").arg(&key[..]),
                Write::RemoveRange(from, to) => commands.cmd("ES.DELRANGE").arg(&from[..]).arg(&to[..]),
            };
        }
        let sent = async |client: &mut AsyncClient| {
            commands.query_async::<Vec<Value>>(client.connection()).await.map_err(ClientError::from)
        };
        self.call(sent).await.map(drop)
    }
}

/// The first key behind this one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, b"\0"].concat()
}

fn write_bytes(write: &Write) -> usize {
    match write {
        Write::Put(key, value) => key.len() + value.len(),
        Write::Remove(key) | Write::RemoveRange(key, _) => key.len(),
    }
}

impl View for ServerView {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let value = self.call(async |client| client.run(es::get(key)).await).await?;
        Ok(value.map(Bytes::from))
    }

    async fn multi_get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut commands = redis::pipe();
        for key in keys {
            commands.cmd("ES.GET").arg(&key[..]);
        }
        let asked = async |client: &mut AsyncClient| {
            let values = commands.query_async::<Vec<Option<Vec<u8>>>>(client.connection()).await;
            values.map_err(ClientError::from)
        };
        Ok(self.call(asked).await?.into_iter().map(|value| value.map(Bytes::from)).collect())
    }

    async fn page(&self, query: Query<'_>) -> Result<Page> {
        let mut from = match query.span.lower {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Vec::new(),
        };
        let mut to = match query.span.upper {
            Bound::Included(key) => behind(key),
            Bound::Excluded(key) => key.to_vec(),
            Bound::Unbounded => Vec::new(),
        };
        let mut page = PageBuilder::new(&query);
        let mut limit = ENTRIES_MIN.min(query.entries_max);
        // An empty upper bound is none.
        while from < to || matches!(query.span.upper, Bound::Unbounded) {
            let walk = es::range(&from, &to).limit(limit);
            let walk = if query.order == Order::Down { walk.reverse() } else { walk };
            let entries = self.call(async |client| client.run(walk.request()).await).await?;
            let is_last = entries.len() < limit;
            if let Some((key, _)) = entries.last() {
                match query.order {
                    Order::Up => from = behind(key),
                    Order::Down => to = key.to_vec(),
                }
            }
            let is_full = entries
                .into_iter()
                .any(|(key, value)| page.push(Bytes::from(key), value.map_or_else(Bytes::new, Bytes::from)));
            if is_full || is_last {
                break;
            }
            limit = (limit * 4).min(ENTRIES_MAX);
        }
        Ok(page.finish())
    }

    async fn count(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        self.call(async |client| client.run(es::count(from, to)).await).await
    }

    async fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        View::get(self, key).await
    }

    async fn commit(self, writes: Vec<Write>) -> Result<()> {
        if self.is_read_only {
            return Err(Error::Invalid("a snapshot commits nothing".to_owned()));
        }
        let (mut begin, mut bytes) = (0, 0);
        for (at, write) in writes.iter().enumerate() {
            bytes += write_bytes(write);
            if bytes >= WRITES_BYTES || at + 1 == writes.len() {
                self.send(&writes[begin..=at]).await?;
                (begin, bytes) = (at + 1, 0);
            }
        }
        let Some(mut client) = self.client.lock().await.take() else {
            return Err(Error::Unavailable("the connection failed: begin again".to_owned()));
        };
        match tokio::time::timeout(TIMEOUT, client.run(ob::commit())).await {
            Ok(Ok(())) => {
                self.pool.put_back(client);
                Ok(())
            }
            // The connection is given up: it may still have the transaction.
            Ok(Err(failed)) => Err(commit_error(failed)),
            Err(_) => Err(Error::OutcomeUnknown("no answer to a commit in time".to_owned())),
        }
    }
}

impl Drop for ServerView {
    /// Rolls back, so that the server does not keep the state.
    fn drop(&mut self) {
        let Some(mut client) = self.client.get_mut().take() else { return };
        let pool = self.pool.clone();
        self.pool.runtime.spawn(async move {
            if let Ok(Ok(())) = tokio::time::timeout(TIMEOUT, client.run(ob::abort())).await {
                pool.put_back(client);
            }
        });
    }
}
