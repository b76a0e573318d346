//! What a view reads: the newest state, a snapshot, the past, or a transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker::{Db, Error, Keyspace, Past, ReadCore, Result, Snapshot, Transaction};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::wait;
use crate::fork::Process;

/// A transaction that several objects use. `None`: it has ended.
///
/// Code that holds the lock never waits for the interpreter: it runs detached, or makes no Python calls.
pub(crate) struct Cell {
    transaction: Mutex<Option<Transaction>>,
    /// Number of operations that may have written, and of ends. Relaxed: changed under the lock.
    changes: AtomicU64,
    process: Process,
    /// Whether `Db.transact` ends it.
    pub(crate) is_managed: bool,
}

impl Cell {
    /// Shares a transaction.
    pub(crate) fn new(transaction: Transaction, is_managed: bool) -> Arc<Cell> {
        let (transaction, process) = (Mutex::new(Some(transaction)), Process::current());
        Arc::new(Cell { transaction, changes: AtomicU64::new(0), process, is_managed })
    }

    /// Runs an operation of the transaction, which may write. Call it detached.
    pub(crate) fn with<T>(&self, run: impl FnOnce(&mut Transaction) -> Result<T>) -> Result<T> {
        self.read(|transaction| {
            self.changes.fetch_add(1, Ordering::Relaxed);
            run(transaction)
        })
    }

    /// Returns a number that differs after each operation that may have written.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Runs an operation of the transaction that writes nothing. Call it detached.
    fn read<T>(&self, run: impl FnOnce(&mut Transaction) -> Result<T>) -> Result<T> {
        match &mut *self.transaction.lock() {
            Some(transaction) => run(transaction),
            None => Err(Error::Invalid("the transaction has ended".to_owned())),
        }
    }

    /// Takes the transaction out: it has ended for others.
    pub(crate) fn take(&self) -> Option<Transaction> {
        let mut transaction = self.transaction.lock();
        self.changes.fetch_add(1, Ordering::Relaxed);
        transaction.take()
    }

    /// Puts it back after a failed commit.
    pub(crate) fn put_back(&self, transaction: Transaction) {
        *self.transaction.lock() = Some(transaction);
    }

    /// Returns whether it has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.transaction.lock().is_some()
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.process.forget_in_child(self.transaction.get_mut());
    }
}

/// A snapshot that several objects use.
pub(crate) struct SharedSnapshot {
    /// `None`: it was closed.
    snapshot: Mutex<Option<Snapshot>>,
    process: Process,
}

impl SharedSnapshot {
    pub(crate) fn new(snapshot: Snapshot) -> Arc<SharedSnapshot> {
        Arc::new(SharedSnapshot { snapshot: Mutex::new(Some(snapshot)), process: Process::current() })
    }

    /// Returns the snapshot, unless it was closed.
    pub(crate) fn get(&self) -> Result<Snapshot> {
        self.snapshot.lock().clone().ok_or_else(|| Error::Invalid("the snapshot was closed".to_owned()))
    }

    /// Closes it for all objects. Not in a forked child.
    pub(crate) fn close(&self) {
        self.snapshot.lock().take();
    }
}

impl Drop for SharedSnapshot {
    fn drop(&mut self) {
        self.process.forget_in_child(self.snapshot.get_mut());
    }
}

/// A state of the database.
#[derive(Clone)]
pub(crate) enum Source {
    /// The newest one.
    Now,
    /// That of a snapshot.
    Snapshot(Arc<SharedSnapshot>),
    /// That of an older commit.
    Past(Arc<Past>),
    /// That of a transaction, with its writes.
    Transaction(Arc<Cell>),
}

/// A keyspace in a state of the database.
#[derive(Clone)]
pub(crate) struct Reader {
    pub(crate) db: Db,
    pub(crate) keyspace: Keyspace,
    pub(crate) source: Source,
    pub(crate) process: Process,
}

impl Reader {
    /// Reads. Call it detached.
    pub(crate) fn read_here<T>(&self, read: impl FnOnce(&dyn ReadCore) -> Result<T>) -> Result<T> {
        match &self.source {
            Source::Now => read(&self.keyspace),
            Source::Past(past) => read(&**past),
            Source::Snapshot(snapshot) => read(&snapshot.get()?.keyspace(&self.keyspace)),
            Source::Transaction(cell) => cell.read(|t| read(&t.keyspace(&self.keyspace))),
        }
    }

    /// Reads, without the interpreter's lock.
    pub(crate) fn read<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&dyn ReadCore) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.process.check(py)?;
        wait(py, || self.read_here(read))
    }
}
