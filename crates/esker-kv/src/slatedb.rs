//! SlateDB: a store in a bucket of an object store, or in a directory. One process writes.
//!
//! ```text
//!   Layered<SlateDb> --> view, page, commit --> slatedb::Db --> write-ahead log, tables --> S3, files
//! ```
//!
//! slate.1. A commit returns only once the object store has its part of the write-ahead log.
//! slate.2. After a failure that may have come behind the write, a commit is
//!          [`Error::OutcomeUnknown`]: also if another process has fenced this one meanwhile, since the log
//!          may have been written before.

mod url;

use std::sync::Arc;
use std::time::Duration;

use ::slatedb::config::{ScanOptions, Settings, WriteOptions};
use ::slatedb::object_store::ObjectStore;
use ::slatedb::{Db, DbIterator, DbSnapshot, DbTransaction, ErrorKind, IsolationLevel, IterationOrder};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use self::url::Location;
use crate::kv::Limits;
use crate::layered::{Driver, Layered, View, Write};
use crate::page::{Page, PageBuilder, Query};
use crate::time_limit::within;
use crate::{Error, Order, Result};

/// Keys that one call of several looks up at the same time.
const LOOKUPS: usize = 32;

const LIMITS: Limits = Limits { key_bytes: 32 << 10, value_bytes: 64 << 20, transaction_bytes: 256 << 20 };

/// A SlateDB database.
pub struct SlateDb {
    db: Db,
    /// SlateDB itself waits for the object store without end.
    timeout: Duration,
}

/// One state of a SlateDB database.
pub struct SlateView {
    db: Db,
    state: State,
    timeout: Duration,
}

enum State {
    Snapshot(Arc<DbSnapshot>),
    Transaction(DbTransaction),
}

/// Opens the store at a URL, and creates it if there is none. Fences the process that has it open.
///
/// | URL | place |
/// |---|---|
/// | `slatedb://bucket/path` | below `path` in a bucket of S3; the rest by the variables `AWS_*` |
/// | `slatedb:///absolute/path` | a directory; files are synced |
///
/// Parameters, as in `slatedb://bucket/path?flush_ms=20&timeout_ms=5000`:
///
/// | parameter | default | meaning |
/// |---|---|---|
/// | `flush_ms` | 100 for S3, 5 for files | how often the write-ahead log is written; a commit waits for it |
/// | `timeout_ms` | 30000 | how long a call waits for the object store |
///
/// Needs a tokio runtime. Close with [`SlateDb::close`].
///
/// # Errors
/// [`Error::Invalid`] for the URL; [`Error::Unavailable`] if the object store does not answer.
pub async fn open(url: &str) -> Result<Layered<SlateDb>> {
    let location = url::parse(url)?;
    let store = url::object_store(&location)?;
    open_on(store, &location).await
}

async fn open_on(store: Arc<dyn ObjectStore>, location: &Location) -> Result<Layered<SlateDb>> {
    let settings = Settings { flush_interval: Some(location.flush), ..Settings::default() };
    let opening = Db::builder(location.path.as_str(), store).with_settings(settings).build();
    let db = within(location.timeout, async { opening.await.map_err(error) }).await?;
    Layered::open(SlateDb { db, timeout: location.timeout }).await
}

fn error(error: ::slatedb::Error) -> Error {
    match error.kind() {
        ErrorKind::Transaction => Error::Conflict,
        ErrorKind::Closed(_) | ErrorKind::Unavailable => Error::Unavailable(error.to_string()),
        ErrorKind::Invalid => Error::Invalid(error.to_string()),
        _ => Error::other(error),
    }
}

/// The error of a call that may have written (slate.2).
fn commit_error(from: ::slatedb::Error) -> Error {
    match from.kind() {
        ErrorKind::Transaction | ErrorKind::Invalid => error(from),
        _ => Error::OutcomeUnknown(from.to_string()),
    }
}

impl SlateDb {
    /// Writes what is left to write, and ends the database's tasks. All later calls fail.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if another process has fenced this one, or the object store does not answer.
    pub async fn close(&self) -> Result<()> {
        within(self.timeout, async { self.db.close().await.map_err(error) }).await
    }
}

impl Driver for SlateDb {
    type View = SlateView;

    async fn view(&self, is_read_only: bool) -> Result<SlateView> {
        let state = match is_read_only {
            // An open transaction keeps the keys of later commits in memory; a snapshot does not.
            true => State::Snapshot(self.db.snapshot().map_err(error)?),
            false => State::Transaction(self.db.begin(IsolationLevel::Snapshot).map_err(error)?),
        };
        Ok(SlateView { db: self.db.clone(), state, timeout: self.timeout })
    }

    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        within(self.timeout, async { self.db.get(key).await.map_err(error) }).await
    }

    fn limits(&self) -> Limits {
        LIMITS
    }
}

impl SlateView {
    async fn look_up(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let found = match &self.state {
            State::Snapshot(snapshot) => snapshot.get(key).await,
            State::Transaction(transaction) => transaction.get(key).await,
        };
        found.map_err(error)
    }

    async fn scan(&self, from: &[u8], to: &[u8], options: &ScanOptions) -> Result<DbIterator> {
        let found = match &self.state {
            State::Snapshot(snapshot) => snapshot.scan_with_options(from..to, options).await,
            State::Transaction(transaction) => transaction.scan_with_options(from..to, options).await,
        };
        found.map_err(error)
    }

    /// Fills a page.
    async fn read(&self, query: &Query<'_>) -> Result<Page> {
        let order = match query.order {
            Order::Up => IterationOrder::Ascending,
            Order::Down => IterationOrder::Descending,
        };
        // Blocks are read one at a time unless more of them will be needed.
        let read_ahead_bytes = if query.entries_max > 100 { query.bytes_max.clamp(1, 1 << 20) } else { 1 };
        let options = ScanOptions { order, cache_blocks: true, read_ahead_bytes, ..ScanOptions::default() };
        let mut page = PageBuilder::new(query);
        let bounds = (query.span.lower, query.span.upper);
        let found = match &self.state {
            State::Snapshot(snapshot) => snapshot.scan_with_options(bounds, &options).await,
            State::Transaction(transaction) => transaction.scan_with_options(bounds, &options).await,
        };
        let mut entries = found.map_err(error)?;
        while let Some(entry) = entries.next().await.map_err(error)? {
            if page.push(entry.key, entry.value) {
                break;
            }
        }
        Ok(page.finish())
    }

    /// Returns the keys of a range.
    async fn keys(&self, from: &[u8], to: &[u8]) -> Result<Vec<Bytes>> {
        let mut entries = self.scan(from, to, &bulk()).await?;
        let (mut keys, mut bytes) = (Vec::new(), 0);
        while let Some(entry) = entries.next().await.map_err(error)? {
            bytes += entry.key.len() as u64;
            if bytes > LIMITS.transaction_bytes {
                return Err(Error::TooLarge("a removal of a range, by its keys".to_owned()));
            }
            keys.push(entry.key);
        }
        Ok(keys)
    }

    /// Adds writes to the transaction of this state. Nothing leaves the process.
    async fn apply(&self, transaction: &DbTransaction, writes: Vec<Write>) -> Result<()> {
        for write in writes {
            let done = match write {
                Write::Put(key, value) => transaction.put(&key, &value),
                Write::Remove(key) => transaction.delete(&key),
                Write::RemoveRange(from, to) => {
                    let keys = within(self.timeout, self.keys(&from, &to)).await?;
                    keys.iter().try_for_each(|key| transaction.delete(key))
                }
            };
            done.map_err(error)?;
        }
        Ok(())
    }
}

/// Options to read a whole range once.
fn bulk() -> ScanOptions {
    ScanOptions { read_ahead_bytes: 1 << 20, max_fetch_tasks: 2, ..ScanOptions::default() }
}

impl View for SlateView {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        within(self.timeout, self.look_up(key)).await
    }

    async fn multi_get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        let found = stream::iter(keys.to_vec()).map(async |key| self.look_up(&key).await);
        within(self.timeout, found.buffered(LOOKUPS).try_collect()).await
    }

    async fn page(&self, query: Query<'_>) -> Result<Page> {
        within(self.timeout, self.read(&query)).await
    }

    async fn count(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        let mut entries = self.scan(from, to, &bulk()).await?;
        let mut count = 0;
        // A range of any length may be counted: each entry has its own time.
        while within(self.timeout, async { entries.next().await.map_err(error) }).await?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    async fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        if let State::Transaction(transaction) = &self.state {
            transaction.mark_read([key]).map_err(error)?;
        }
        View::get(self, key).await
    }

    async fn commit(self, writes: Vec<Write>) -> Result<()> {
        let State::Transaction(transaction) = &self.state else {
            return Err(Error::Invalid("a snapshot commits nothing".to_owned()));
        };
        self.apply(transaction, writes).await?;
        let State::Transaction(transaction) = self.state else { return Ok(()) };
        // A database that is known to be closed or fenced writes nothing: then the outcome is known, too.
        drop(self.db.snapshot().map_err(error)?);
        let writing = async {
            let handle = transaction.commit_with_options(&WriteOptions::default()).await;
            match handle.map_err(commit_error)? {
                Some(handle) => handle.await_durable().await.map_err(commit_error),
                None => Ok(()),
            }
        };
        match tokio::time::timeout(self.timeout, writing).await {
            Ok(done) => done,
            Err(_) => Err(Error::OutcomeUnknown("no answer to a commit in time".to_owned())),
        }
    }
}
