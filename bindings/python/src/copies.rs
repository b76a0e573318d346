//! Backups, and databases that are read while another process writes them.

use std::path::PathBuf;

use esker::backup::Backup;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::db::Db;
use crate::error::wait;
use crate::fork::Process;

/// Lists the backups in a directory, the oldest first: dicts with `id`, `created` and others.
#[pyfunction]
pub(crate) fn backups(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyList>> {
    let found = wait(py, || Backup::open(path)?.list())?;
    let backups = PyList::empty(py);
    for info in found {
        let backup = PyDict::new(py);
        backup.set_item("id", info.id)?;
        backup.set_item("created", info.created)?;
        backup.set_item("seqno", info.seqno.get())?;
        backup.set_item("files", info.files)?;
        backup.set_item("bytes", info.bytes)?;
        backup.set_item("damage", info.damage)?;
        backups.append(backup)?;
    }
    Ok(backups)
}

/// Restores a backup, by default the newest one, into a new directory.
#[pyfunction]
#[pyo3(signature = (path, to, *, id = None))]
pub(crate) fn restore(py: Python<'_>, path: PathBuf, to: PathBuf, id: Option<u64>) -> PyResult<()> {
    wait(py, || Backup::open(path)?.restore(to).backup(id).run().map(drop))
}

/// A database that is read while another process writes it.
#[pyclass(module = "esker", frozen)]
pub(crate) struct Follower {
    follower: Mutex<esker::Follower>,
    process: Process,
}

/// Opens a database to read it while another process writes it.
#[pyfunction]
pub(crate) fn follow(py: Python<'_>, path: PathBuf) -> PyResult<Follower> {
    let follower = wait(py, || esker::Db::open_follower(path))?;
    Ok(Follower { follower: Mutex::new(follower), process: Process::current() })
}

#[pymethods]
impl Follower {
    /// The database as of the commit that was the newest when this was opened or last caught up.
    #[getter]
    fn db(&self, py: Python<'_>) -> PyResult<Db> {
        self.process.check(py)?;
        Ok(Db::new(py.detach(|| self.follower.lock().db().clone())))
    }

    /// Goes on to the newest commit, and returns its number.
    fn catch_up(&self, py: Python<'_>) -> PyResult<u64> {
        self.process.check(py)?;
        Ok(wait(py, || self.follower.lock().catch_up())?.get())
    }
}
