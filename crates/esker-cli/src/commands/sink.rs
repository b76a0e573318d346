//! Collects rows into batches and commits them.

use std::time::SystemTime;

use esker::{Error, Keyspace, KeyspaceOptions, WriteBatch};

use crate::database::Database;
use crate::failure::Result;

/// A batch of this many bytes is committed regardless of its number of rows.
const BATCH_BYTES_MAX: usize = 32 << 20;
/// Default number of rows per batch.
pub(super) const BATCH_ROWS: usize = 10_000;

/// Collects rows and commits them.
pub(super) struct Sink<'a> {
    database: &'a Database,
    batch: WriteBatch,
    /// Rows of the batch.
    batched: u64,
    /// Zero collects everything in one batch.
    batch_rows_max: usize,
    pub(super) committed: u64,
}

impl<'a> Sink<'a> {
    pub(super) fn new(database: &'a Database, batch_rows_max: usize) -> Self {
        let batch = database.db.batch();
        Sink { database, batch, batched: 0, batch_rows_max, committed: 0 }
    }

    /// Creates a keyspace that exists once its first rows are committed.
    pub(super) fn create_keyspace(&mut self, name: &str) -> esker::Result<Keyspace> {
        self.batch.create_keyspace(name)
    }

    /// Adds a row with the keyspace's default expiry. Returns the reason if the engine refuses it.
    pub(super) fn add(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<Option<String>> {
        let put = self.batch.put(keyspace, key, value);
        self.added(put)
    }

    /// Adds a row that expires at `end`, or never.
    pub(super) fn add_until(
        &mut self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        end: Option<SystemTime>,
    ) -> Result<Option<String>> {
        let put = self.batch.put_until(keyspace, key, value, end);
        self.added(put)
    }

    /// Sets the options of a keyspace with the next commit.
    pub(super) fn set_options(&mut self, keyspace: &Keyspace, options: KeyspaceOptions) -> esker::Result<()> {
        self.batch.set_options(keyspace, options)
    }

    fn added(&mut self, put: esker::Result<()>) -> Result<Option<String>> {
        match put {
            Ok(()) => self.batched += 1,
            Err(error @ (Error::KeyTooLong { .. } | Error::ValueTooLong { .. })) => {
                return Ok(Some(error.to_string()));
            }
            Err(error) => return Err(self.database.failure(error)),
        }
        let is_full = self.batched >= self.batch_rows_max as u64 || self.batch.byte_len() >= BATCH_BYTES_MAX;
        if self.batch_rows_max > 0 && is_full {
            self.commit()?;
        }
        Ok(None)
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        let batch = std::mem::replace(&mut self.batch, self.database.db.batch());
        let rows = std::mem::take(&mut self.batched);
        self.database.commit_batch(batch)?;
        self.committed += rows;
        Ok(())
    }

    /// Returns the number of rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.committed + self.batched
    }
}
