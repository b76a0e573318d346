//! `SharedSavepoint`: a point in a transaction to which it can roll back.
//!
//! The guest numbers its savepoints, so that no two transactions of a process have the same number. The host
//! keeps those of the transaction that a connection holds.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::protocol::Request;
use crate::transaction::SharedTransaction;

/// A point in a [`SharedTransaction`]: made by [`SharedTransaction::savepoint`].
#[derive(Clone, Debug)]
pub struct SharedSavepoint {
    number: u64,
}

/// Number of savepoints made. Relaxed: it orders nothing.
static MADE: AtomicU64 = AtomicU64::new(0);

impl SharedTransaction {
    /// Sets a savepoint: see [`esker::Transaction::savepoint`]. It ends with the transaction.
    ///
    /// ```
    /// # fn main() -> esker_shared::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = esker_shared::Shared::open(dir.path())?;
    /// let map = db.keyspace("map")?;
    /// let mut transaction = db.begin()?;
    /// transaction.put(&map, "kept", "1")?;
    /// let point = transaction.savepoint()?;
    /// transaction.put(&map, "undone", "2")?;
    /// transaction.rollback_to(&point)?;
    /// transaction.commit()?;
    /// assert_eq!((map.contains("kept")?, map.contains("undone")?), (true, false));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn savepoint(&mut self) -> Result<SharedSavepoint> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        self.ask_aside(&Request::Savepoint(number))?;
        Ok(SharedSavepoint { number })
    }

    /// Undoes the writes since a savepoint: see [`esker::Transaction::rollback_to`]. The savepoint stays;
    /// later ones are released.
    ///
    /// # Errors
    /// Those of [`get`](Self::get); the engine's [`SavepointGone`](esker::Error::SavepointGone).
    pub fn rollback_to(&mut self, point: &SharedSavepoint) -> Result<()> {
        self.ask_aside(&Request::RollbackTo(point.number))
    }

    /// Releases a savepoint and later ones. The writes since then stay.
    ///
    /// # Errors
    /// Those of [`rollback_to`](Self::rollback_to).
    pub fn release(&mut self, point: SharedSavepoint) -> Result<()> {
        self.ask_aside(&Request::ReleaseSavepoint(point.number))
    }

    /// Runs a part of the transaction as a nested transaction: see [`esker::Transaction::nested`]. If the
    /// part fails, its writes are undone, and the transaction can continue, unless its host has gone.
    ///
    /// # Errors
    /// The error of the part; those of [`get`](Self::get).
    pub fn nested<T, E: From<Error>>(
        &mut self,
        part: impl FnOnce(&mut SharedTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let point = self.savepoint()?;
        let done = part(self);
        // These fail if the part has released the savepoint, or with the connection, like all later calls.
        if done.is_err() {
            let _ = self.rollback_to(&point);
        }
        let _ = self.release(point);
        done
    }
}
