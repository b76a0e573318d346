//! `Snapshot`: the state of all keyspaces at one commit.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::OrRaise;
use crate::fork::{Process, has_failed};
use crate::source::{Reader, SharedSnapshot, Source};
use crate::view::{View, keyspace_of};

/// The state of all keyspaces at one commit. It keeps old versions of entries until it is closed or dropped.
#[pyclass(module = "esker", frozen, weakref)]
pub(crate) struct Snapshot {
    db: esker::Db,
    snapshot: Arc<SharedSnapshot>,
    process: Process,
}

impl Snapshot {
    pub(crate) fn new(db: esker::Db, snapshot: esker::Snapshot, process: Process) -> Snapshot {
        Snapshot { db, snapshot: SharedSnapshot::new(snapshot), process }
    }
}

#[pymethods]
impl Snapshot {
    /// The number of its newest commit.
    #[getter]
    fn seqno(&self, py: Python<'_>) -> PyResult<u64> {
        self.process.check(py)?;
        Ok(self.snapshot.get().or_raise(py)?.seqno().get())
    }

    /// Returns a keyspace, given as such or by its name, in the state of the snapshot.
    fn __getitem__(&self, py: Python<'_>, keyspace: &Bound<'_, PyAny>) -> PyResult<View> {
        self.process.check(py)?;
        let keyspace = keyspace_of(keyspace, |name| self.db.open_keyspace(name).or_raise(py))?;
        let source = Source::Snapshot(self.snapshot.clone());
        Ok(View { reader: Reader { db: self.db.clone(), keyspace, source, process: self.process } })
    }

    /// Releases the state. Views of it fail from then on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check(py)?;
        self.snapshot.close();
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.process.may_leave(py, has_failed(exception)?)? { self.close(py) } else { Ok(()) }
    }
}
