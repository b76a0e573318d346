//! `Transaction` and `Savepoint`: reads and writes that are committed together.

use std::sync::Arc;

use esker::{Error, LockMode, TransactionOptions};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::data::{Data, Seconds};
use crate::error::{OrRaise, invalid, raise, wait};
use crate::fork::{Process, has_failed};
use crate::keyspace::{Keyspace, keyspace};
use crate::source::{Cell, Reader, Source};
use crate::view::keyspace_of;

/// Reads and writes that are committed together. A transaction that is dropped rolls back.
#[pyclass(module = "esker", frozen, weakref)]
pub(crate) struct Transaction {
    db: esker::Db,
    pub(crate) cell: Arc<Cell>,
    process: Process,
}

/// Begins a transaction.
pub(crate) fn begin(
    py: Python<'_>,
    db: esker::Db,
    options: &TransactionOptions,
    process: Process,
) -> Transaction {
    // An exclusive transaction waits for its turn.
    let cell = Cell::new(py.detach(|| options.begin()), false);
    Transaction { db, cell, process }
}

impl Transaction {
    /// A transaction that `Db.transact` ends.
    pub(crate) fn managed(db: esker::Db, cell: Arc<Cell>, process: Process) -> Transaction {
        Transaction { db, cell, process }
    }

    /// Runs an operation, without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut esker::Transaction) -> esker::Result<T> + Send,
    ) -> PyResult<T> {
        self.process.check(py)?;
        wait(py, || self.cell.with(run))
    }

    /// Fails if `Db.transact` ends it.
    pub(crate) fn check_may_end(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check(py)?;
        match self.cell.is_managed {
            true => Err(invalid(py, "`transact` ends this transaction: return, or raise an exception")),
            false => Ok(()),
        }
    }

    fn find(&self, py: Python<'_>, name: &str) -> PyResult<esker::Keyspace> {
        self.with(py, |t| match t.open_keyspace(name) {
            Err(Error::KeyspaceNotFound(_)) => t.create_keyspace(name),
            found => found,
        })
    }

    fn bind(&self, py: Python<'_>, keyspace_: esker::Keyspace) -> PyResult<Py<Keyspace>> {
        let source = Source::Transaction(self.cell.clone());
        keyspace(py, Reader { db: self.db.clone(), keyspace: keyspace_, source, process: self.process })
    }
}

#[pymethods]
impl Transaction {
    /// The number of the commit whose state it reads.
    #[getter]
    fn seqno(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |t| Ok(t.snapshot().seqno().get()))
    }

    /// How often `Db.transact` has started it: 1 at first.
    #[getter]
    fn attempt(&self, py: Python<'_>) -> PyResult<u32> {
        self.with(py, |t| Ok(t.attempt()))
    }

    /// Whether it has not ended.
    #[getter]
    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        self.process.check(py)?;
        Ok(py.detach(|| self.cell.is_open()))
    }

    /// Returns a keyspace, given as such or by its name, in the transaction. A missing name is created.
    fn __getitem__(&self, py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<Py<Keyspace>> {
        self.process.check(py)?;
        let found = keyspace_of(given, |name| self.find(py, name))?;
        self.bind(py, found)
    }

    /// Creates a keyspace, which others find after the commit.
    fn create_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<Py<Keyspace>> {
        let made = self.with(py, |t| t.create_keyspace(name))?;
        self.bind(py, made)
    }

    /// Drops a keyspace at the commit.
    fn drop_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.with(py, |t| t.drop_keyspace(name))
    }

    /// Renames a keyspace at the commit.
    fn rename_keyspace(&self, py: Python<'_>, old: &str, new: &str) -> PyResult<()> {
        self.with(py, |t| t.rename_keyspace(old, new))
    }

    /// Locks a key until the transaction ends: others that lock it wait.
    #[pyo3(signature = (keyspace, key, *, shared = false, timeout = None))]
    fn lock(
        slf: PyRef<'_, Self>,
        keyspace: &Bound<'_, PyAny>,
        key: Data,
        shared: bool,
        timeout: Option<Seconds>,
    ) -> PyResult<()> {
        let py = slf.py();
        let keyspace = keyspace_of(keyspace, |name| slf.find(py, name))?;
        let mode = if shared { LockMode::Shared } else { LockMode::Exclusive };
        slf.with(py, |t| match timeout {
            Some(Seconds(time)) => t.lock_for(&keyspace, &key, mode, time),
            None => t.lock(&keyspace, &key, mode),
        })
    }

    /// Sets a savepoint, to which the transaction can roll back.
    fn savepoint(&self, py: Python<'_>) -> PyResult<Savepoint> {
        let point = self.with(py, |t| Ok(t.savepoint()))?;
        Ok(Savepoint { cell: self.cell.clone(), point: Mutex::new(Some(point)), process: self.process })
    }

    /// Commits, and returns the number of the commit. After `Conflict` the transaction has ended. After other
    /// errors, such as `NoSpace`, `commit` can be called again.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        self.check_may_end(py)?;
        let seqno = wait(py, || {
            let ended = || Error::Invalid("the transaction has ended".to_owned());
            self.cell.take().ok_or_else(ended)?.commit().map_err(|failed| {
                if !matches!(failed.error, Error::Conflict { .. }) {
                    self.cell.put_back(*failed.given_back);
                }
                failed.error
            })
        })?;
        Ok(seqno.get())
    }

    /// Rolls back. Does nothing after the end.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.check_may_end(py)?;
        py.detach(|| drop(self.cell.take()));
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let has_failed = has_failed(exception)?;
        if !self.process.may_leave(py, has_failed)? || !self.is_open(py)? {
            return Ok(());
        }
        let done = if has_failed { Ok(0) } else { self.commit(py) };
        self.rollback(py)?;
        done.map(drop)
    }
}

/// A point in a transaction. In a `with` block, an exception undoes the writes of the block.
#[pyclass(module = "esker", frozen)]
pub(crate) struct Savepoint {
    cell: Arc<Cell>,
    /// `None` once it is released.
    point: Mutex<Option<esker::Savepoint>>,
    process: Process,
}

impl Savepoint {
    fn point(&self, py: Python<'_>) -> PyResult<esker::Savepoint> {
        self.process.check(py)?;
        self.point.lock().clone().ok_or_else(|| raise(py, &Error::SavepointGone))
    }
}

#[pymethods]
impl Savepoint {
    /// Undoes the writes since the savepoint, which stays.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let point = self.point(py)?;
        py.detach(|| self.cell.with(|t| t.rollback_to(&point))).or_raise(py)
    }

    /// Releases the savepoint. The writes since then stay.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let point = self.point(py)?;
        py.detach(|| self.cell.with(|t| t.release(point))).or_raise(py)?;
        self.point.lock().take();
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let has_failed = has_failed(exception)?;
        if !self.process.may_leave(py, has_failed)? {
            return Ok(());
        }
        if self.point.lock().is_none() || !py.detach(|| self.cell.is_open()) {
            return Ok(());
        }
        if has_failed {
            // The exception matters more than a savepoint that an outer one has undone.
            let _ = self.rollback(py);
            let _ = self.release(py);
            return Ok(());
        }
        self.release(py)
    }
}
