//! `Batch`: writes that are committed together, without reading.

use std::sync::Arc;

use esker::{Durability, Error, Result, WriteBatch};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::data::{Bounds, Data, Seconds};
use crate::error::{OrRaise, wait};
use crate::fork::{Process, has_failed};
use crate::view::keyspace_of;

/// The writes. `None`: committed or dropped. Code that holds the lock makes no Python calls.
pub(crate) type Shared = Arc<Mutex<Option<WriteBatch>>>;

/// Writes to any keyspaces that are committed together. A `with` block commits them at its end, and drops
/// them after an exception.
#[pyclass(module = "esker", frozen)]
pub(crate) struct Batch {
    db: esker::Db,
    writes: Shared,
    durability: Option<Durability>,
    process: Process,
}

/// One keyspace of a batch, for writing.
#[pyclass(module = "esker", frozen)]
pub(crate) struct BatchView {
    keyspace: esker::Keyspace,
    writes: Shared,
    process: Process,
}

impl Batch {
    pub(crate) fn new(db: esker::Db, durability: Option<Durability>, process: Process) -> Batch {
        let writes = Arc::new(Mutex::new(Some(db.batch())));
        Batch { db, writes, durability, process }
    }

    /// The writes, and the durability of their commit.
    pub(crate) fn parts(&self) -> (Shared, Durability) {
        (self.writes.clone(), self.durability.unwrap_or_else(|| self.db.info().durability))
    }
}

fn ended() -> Error {
    Error::Invalid("the batch was committed or dropped".to_owned())
}

#[pymethods]
impl Batch {
    /// Returns a keyspace, given as such or by its name, for writing.
    fn __getitem__(&self, py: Python<'_>, keyspace: &Bound<'_, PyAny>) -> PyResult<BatchView> {
        self.process.check(py)?;
        let keyspace = keyspace_of(keyspace, |name| wait(py, || self.db.keyspace(name)))?;
        Ok(BatchView { keyspace, writes: self.writes.clone(), process: self.process })
    }

    /// The number of writes.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.process.check(py)?;
        Ok(py.detach(|| self.writes.lock().as_ref().map_or(0, WriteBatch::len)))
    }

    fn __bool__(&self) -> bool {
        true
    }

    /// Whether it was neither committed nor dropped.
    #[getter]
    fn is_open(&self, py: Python<'_>) -> PyResult<bool> {
        self.process.check(py)?;
        Ok(py.detach(|| self.writes.lock().is_some()))
    }

    /// Commits, and returns the number of the commit. After an error it can be called again.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        self.process.check(py)?;
        let seqno = wait(py, || {
            let batch = self.writes.lock().take().ok_or_else(ended)?;
            let done = match self.durability {
                Some(durability) => batch.commit_with(durability),
                None => batch.commit(),
            };
            done.map_err(|failed| {
                *self.writes.lock() = Some(*failed.given_back);
                failed.error
            })
        })?;
        Ok(seqno.get())
    }

    /// Drops the writes.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check(py)?;
        py.detach(|| drop(self.writes.lock().take()));
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
        let done = if has_failed || !self.is_open(py)? { Ok(0) } else { self.commit(py) };
        self.rollback(py)?;
        done.map(drop)
    }
}

impl BatchView {
    fn write(
        &self,
        py: Python<'_>,
        write: impl FnOnce(&mut WriteBatch, &esker::Keyspace) -> Result<()> + Send,
    ) -> PyResult<()> {
        self.process.check(py)?;
        py.detach(|| write(self.writes.lock().as_mut().ok_or_else(ended)?, &self.keyspace)).or_raise(py)
    }
}

#[pymethods]
impl BatchView {
    fn __setitem__(&self, py: Python<'_>, key: Data, value: Data) -> PyResult<()> {
        self.write(py, |batch, keyspace| batch.put(keyspace, &key, &value))
    }

    /// Sets a key to a value, which expires after `ttl` seconds from now.
    #[pyo3(signature = (key, value, *, ttl = None))]
    fn put(&self, py: Python<'_>, key: Data, value: Data, ttl: Option<Seconds>) -> PyResult<()> {
        self.write(py, |batch, keyspace| match ttl {
            Some(Seconds(ttl)) => batch.put_with_ttl(keyspace, &key, &value, ttl),
            None => batch.put(keyspace, &key, &value),
        })
    }

    /// Removes a key, which may be missing.
    fn delete(&self, py: Python<'_>, key: Data) -> PyResult<()> {
        self.write(py, |batch, keyspace| batch.delete(keyspace, &key))
    }

    /// Removes a key, which may be missing: a batch does not look.
    fn __delitem__(&self, py: Python<'_>, key: Data) -> PyResult<()> {
        self.delete(py, key)
    }

    /// Merges an operand into a key.
    fn merge(&self, py: Python<'_>, key: Data, operand: Data) -> PyResult<()> {
        self.write(py, |batch, keyspace| batch.merge(keyspace, &key, &operand))
    }

    /// Removes all keys of a range, except those put later.
    #[pyo3(signature = (start = None, end = None, *, prefix = None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Data>,
        end: Option<Data>,
        prefix: Option<Data>,
    ) -> PyResult<()> {
        let bounds = Bounds::of(start, end, prefix)?;
        self.write(py, |batch, keyspace| match bounds {
            Bounds::Prefix(prefix) => batch.delete_prefix(keyspace, prefix),
            Bounds::Between(start, end) => batch.delete_range(keyspace, (start, end)),
        })
    }

    /// Removes all keys, except those put later.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.write(py, |batch, keyspace| batch.clear(keyspace))
    }
}
