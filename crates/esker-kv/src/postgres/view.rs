//! One state of the table: a transaction of the database.
//!
//! `BEGIN` goes out with the first read, without a round trip of its own.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bytes::Bytes;
use tokio_postgres::Row;

use super::error::Stage;
use super::pipeline::{both, send};
use super::pool::Lease;
use super::session::Connection;
use super::{Isolation, KEY_BYTES};
use crate::layered::{View, Write};
use crate::page::{Page, PageBuilder, Query};
use crate::{Error, Order, Result, Span};

/// Entries that the first statement of a page asks for. Later ones know the size of entries.
const FIRST_ENTRIES: usize = 128;
/// Maximum number of entries of a statement.
const ENTRIES_MAX: usize = 4_096;
/// The shortest key of the map, of the layers above.
const KEY_BYTES_MIN: usize = 2;

// What was said to the server.
const NOTHING: u8 = 0;
/// `BEGIN` was sent, and has failed or is not answered.
const SENT: u8 = 1;
const BEGUN: u8 = 2;
/// The transaction is over.
const ENDED: u8 = 3;

/// One state of the table.
pub struct PostgresView {
    pub(super) lease: Lease,
    begin: &'static str,
    /// Changes under `turn`.
    said: AtomicU8,
    turn: tokio::sync::Mutex<()>,
    /// Keys read for update, and whether they are there.
    pub(super) for_update: BTreeMap<Bytes, bool>,
    /// A statement has failed with [`Error::Conflict`].
    has_conflict: AtomicBool,
}

impl PostgresView {
    pub(super) fn new(lease: Lease, is_read_only: bool, isolation: Isolation) -> Self {
        let begin = match (is_read_only, isolation) {
            (true, _) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            (false, Isolation::Snapshot) => "BEGIN ISOLATION LEVEL REPEATABLE READ",
            (false, Isolation::Serializable) => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        };
        let (said, turn) = (AtomicU8::new(NOTHING), tokio::sync::Mutex::new(()));
        PostgresView {
            lease,
            begin,
            said,
            turn,
            for_update: BTreeMap::new(),
            has_conflict: AtomicBool::new(false),
        }
    }

    pub(super) fn connection(&self) -> &Connection {
        self.lease.connection()
    }

    /// Begins, and fixes the state: that of the first statement that reads.
    pub(super) async fn fix_state(&self, table: &str) -> Result<()> {
        let text = format!("SELECT 1 FROM {table} WHERE k = ''");
        self.run(self.connection().client.batch_execute(&text)).await
    }

    /// Begins, if no read has.
    pub(super) async fn begin(&self) -> Result<()> {
        if self.said.load(Ordering::Acquire) == BEGUN {
            return Ok(());
        }
        self.run(std::future::ready(Ok(()))).await
    }

    /// Runs a statement in the transaction.
    async fn run<T>(&self, request: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T> {
        if self.said.load(Ordering::Acquire) != BEGUN {
            let _turn = self.turn.lock().await;
            // Another read may have begun meanwhile. If it has failed, `BEGIN` fails again.
            if self.said.load(Ordering::Acquire) != BEGUN {
                self.said.store(SENT, Ordering::Release);
                let begin = self.connection().client.batch_execute(self.begin);
                let (begun, answer) = self.lease.wait(Stage::Open, both(begin, request)).await?;
                self.lease.checked(begun)?;
                self.said.store(BEGUN, Ordering::Release);
                return self.checked(answer);
            }
        }
        self.checked(self.lease.wait(Stage::Open, request).await?)
    }

    fn checked<T>(&self, done: Result<T, tokio_postgres::Error>) -> Result<T> {
        let done = self.lease.checked(done);
        if matches!(done, Err(Error::Conflict)) {
            self.has_conflict.store(true, Ordering::Relaxed);
        }
        done
    }

    /// Fails if a read has failed with a conflict: the server has given up the transaction.
    pub(super) fn check_conflicts(&self) -> Result<()> {
        if self.has_conflict.load(Ordering::Relaxed) { Err(Error::Conflict) } else { Ok(()) }
    }

    /// Says that the transaction is over: there is nothing to roll back.
    pub(super) fn end(&self) {
        self.said.store(ENDED, Ordering::Release);
    }

    async fn rows(&self, query: &Query<'_>, bounds: (&[u8], &[u8]), limits: (i64, i64)) -> Result<Vec<Row>> {
        let connection = self.connection();
        let statement = if query.order == Order::Up { &connection.up } else { &connection.down };
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&bounds.0, &bounds.1, &limits.0, &limits.1];
        self.run(connection.client.query(statement, &parameters)).await
    }

    fn bytes(&self, row: &Row, column: usize) -> Result<Bytes> {
        self.lease.checked(row.try_get(column).map(Bytes::copy_from_slice))
    }
}

/// A view that is dropped leaves its connection outside a transaction (postgres.3).
impl Drop for PostgresView {
    fn drop(&mut self) {
        match self.said.load(Ordering::Acquire) {
            BEGUN => send(self.connection().client.batch_execute("ROLLBACK")),
            SENT => self.lease.discard(),
            _ => {}
        }
    }
}

/// The first key of a span, and the first one behind it.
fn bounds(span: &Span<'_>) -> (Vec<u8>, Vec<u8>) {
    let from = match span.lower {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => Vec::new(),
    };
    let to = match span.upper {
        Bound::Included(key) => behind(key),
        Bound::Excluded(key) => key.to_vec(),
        Bound::Unbounded => vec![0xFF; KEY_BYTES + 1],
    };
    (from, to)
}

fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Returns how many entries to ask for, given the entries and bytes of the page until here and what is left.
fn batch((entries, bytes): (usize, usize), (entries_left, bytes_left): (usize, usize)) -> usize {
    let fits = match entries {
        0 => FIRST_ENTRIES.min(bytes_left / KEY_BYTES_MIN + 1),
        _ => (bytes_left / (bytes / entries).max(1) + 1).max(FIRST_ENTRIES / 8),
    };
    fits.min(ENTRIES_MAX).min(entries_left)
}

fn to_i64(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl View for PostgresView {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.run(self.connection().get(key)).await
    }

    async fn multi_get(&self, keys: &[Bytes]) -> Result<Vec<Option<Bytes>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let connection = self.connection();
        let wanted: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let rows = self.run(connection.client.query(&connection.multi_get, &[&wanted])).await?;
        let mut found = HashMap::new();
        for row in &rows {
            found.insert(self.bytes(row, 0)?, self.bytes(row, 1)?);
        }
        Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    async fn page(&self, query: Query<'_>) -> Result<Page> {
        let (mut from, mut to) = bounds(&query.span);
        let mut page = PageBuilder::new(&query);
        let (mut entries, mut bytes) = (0, 0);
        while from < to {
            let bytes_left = query.bytes_max.max(1) - bytes;
            let limit = batch((entries, bytes), (query.entries_max.max(1) - entries, bytes_left));
            let limits = (to_i64(limit), to_i64(bytes_left));
            let rows = self.rows(&query, (&from, &to), limits).await?;
            for row in &rows {
                let (key, value) = (self.bytes(row, 0)?, self.bytes(row, 1)?);
                entries += 1;
                bytes += key.len() + value.len();
                match query.order {
                    Order::Up => from = behind(&key),
                    Order::Down => to = key.to_vec(),
                }
                if page.push(key, value) {
                    return Ok(page.finish());
                }
            }
            if rows.len() < limit {
                break;
            }
        }
        Ok(page.finish())
    }

    async fn count(&self, from: &[u8], to: &[u8]) -> Result<u64> {
        let connection = self.connection();
        let row = self.run(connection.client.query_one(&connection.count, &[&from, &to])).await?;
        let count: i64 = self.lease.checked(row.try_get(0))?;
        Ok(count.unsigned_abs())
    }

    async fn get_for_update(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        let connection = self.connection();
        let value = self.run(connection.value(&connection.get_for_update, &key)).await?;
        self.for_update.insert(Bytes::copy_from_slice(key), value.is_some());
        Ok(value)
    }

    async fn commit(self, writes: Vec<Write>) -> Result<()> {
        super::commit::commit(self, writes).await
    }
}
