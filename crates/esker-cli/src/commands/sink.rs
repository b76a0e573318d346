//! Rows on their way into a keyspace, batch by batch.

use esker::{Error, Keyspace, WriteBatch};

use crate::database::Database;
use crate::failure::Result;

/// A batch is committed when it holds so many bytes, whatever its number of rows.
const BATCH_BYTES_MAX: usize = 32 << 20;
/// Rows of a batch, where the user does not say.
pub(super) const BATCH_ROWS: usize = 10_000;

/// Collects rows and commits them.
pub(super) struct Sink<'a> {
    database: &'a Database,
    keyspace: Keyspace,
    batch: WriteBatch,
    /// Zero: one batch for all.
    batch_rows_max: usize,
    pub(super) committed: u64,
}

impl<'a> Sink<'a> {
    pub(super) fn new(database: &'a Database, keyspace: Keyspace, batch_rows_max: usize) -> Self {
        let batch = database.db.batch();
        Sink { database, keyspace, batch, batch_rows_max, committed: 0 }
    }

    /// Adds a row; the reason if the engine cannot take it.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<Option<String>> {
        match self.batch.put(&self.keyspace, key, value) {
            Ok(()) => {}
            Err(error @ (Error::KeyTooLong { .. } | Error::ValueTooLong { .. })) => {
                return Ok(Some(error.to_string()));
            }
            Err(error) => return Err(self.database.failure(error)),
        }
        let is_full = self.batch.len() >= self.batch_rows_max || self.batch.byte_len() >= BATCH_BYTES_MAX;
        if self.batch_rows_max > 0 && is_full {
            self.commit()?;
        }
        Ok(None)
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        let batch = std::mem::replace(&mut self.batch, self.database.db.batch());
        let rows = batch.len() as u64;
        self.database.commit_batch(batch)?;
        self.committed += rows;
        Ok(())
    }

    /// All rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.committed + self.batch.len() as u64
    }
}
