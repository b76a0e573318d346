//! `Db`: an open database.

use std::path::PathBuf;

use esker::{Error, FigureValue, KeyspaceOptions, SeqNo};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::batch::Batch;
use crate::error::{OrRaise, invalid, wait};
use crate::feed::Feed;
use crate::fork::{Process, has_failed};
use crate::keyspace::{Keyspace, keyspace};
use crate::names::{durability_of, isolation_of};
use crate::snapshot::Snapshot;
use crate::source::{Reader, Source};
use crate::transact::{Attempts, transact};
use crate::transaction::{Transaction, begin};

/// An open database. It closes with `close`, at the end of a `with` block, or when the program ends.
#[pyclass(module = "esker", frozen, weakref, mapping)]
pub(crate) struct Db {
    db: esker::Db,
    process: Process,
}

impl Db {
    pub(crate) fn new(db: esker::Db) -> Db {
        Db { db, process: Process::current() }
    }

    /// Returns the engine's handle, except in a forked child.
    pub(crate) fn inner(&self, py: Python<'_>) -> PyResult<&esker::Db> {
        self.process.check(py)?;
        Ok(&self.db)
    }

    fn reader(&self, keyspace: esker::Keyspace) -> Reader {
        Reader { db: self.db.clone(), keyspace, source: Source::Now, process: self.process }
    }
}

#[pymethods]
impl Db {
    /// The directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.db.path().to_owned()
    }

    /// The number of the newest commit.
    #[getter]
    fn seqno(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.inner(py)?.snapshot().seqno().get())
    }

    fn __repr__(&self) -> String {
        format!("<esker database {}>", self.db.path().display())
    }

    /// Returns the keyspace with this name, which is created if it is missing.
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<Keyspace>> {
        let db = self.inner(py)?;
        let found = wait(py, || db.keyspace(name))?;
        keyspace(py, self.reader(found))
    }

    /// Returns the keyspace with this name. Raises `KeyspaceNotFound` if there is none.
    fn open_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<Py<Keyspace>> {
        let found = self.inner(py)?.open_keyspace(name).or_raise(py)?;
        keyspace(py, self.reader(found))
    }

    /// Returns the table in this keyspace: its keys are of these fields, `esker.keys(str, int)`, its values
    /// are written by a codec, such as `esker.json`; `str` and `bytes` stand for text and bytes.
    fn table<'py>(
        slf: &Bound<'py, Self>,
        name: &str,
        key: Bound<'py, PyAny>,
        value: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("esker.table")?.call_method1("make", (slf, name, key, value))
    }

    /// Creates a keyspace. Raises `KeyspaceExists` if there is one of this name.
    #[pyo3(signature = (name, *, merge_operator = None, lazy_counting = false))]
    fn create_keyspace(
        &self,
        py: Python<'_>,
        name: &str,
        merge_operator: Option<&str>,
        lazy_counting: bool,
    ) -> PyResult<Py<Keyspace>> {
        let db = self.inner(py)?;
        let mut options = KeyspaceOptions::new();
        if let Some(operator) = merge_operator {
            options = options.merge_operator(operator);
        }
        if lazy_counting {
            options = options.counting(esker::Counting::Lazy);
        }
        let made = wait(py, || db.create_keyspace_with(name, options))?;
        keyspace(py, self.reader(made))
    }

    /// Drops a keyspace and all entries in it.
    fn drop_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let db = self.inner(py)?;
        wait(py, || db.drop_keyspace(name))
    }

    fn __delitem__(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.drop_keyspace(py, name)
    }

    /// Renames a keyspace. Its handles stay valid.
    fn rename_keyspace(&self, py: Python<'_>, old: &str, new: &str) -> PyResult<()> {
        let db = self.inner(py)?;
        wait(py, || db.rename_keyspace(old, new))
    }

    /// Returns the names of all keyspaces, in order.
    fn keyspaces(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.inner(py)?.keyspaces().or_raise(py)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let names = PyTuple::new(py, self.keyspaces(py)?)?;
        names.call_method0("__iter__")
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.keyspaces(py)?.len())
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __contains__(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        match self.inner(py)?.open_keyspace(name) {
            Err(Error::KeyspaceNotFound(_)) => Ok(false),
            found => found.map(|_| true).or_raise(py),
        }
    }

    /// Returns a snapshot: the state of all keyspaces at this moment.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let db = self.inner(py)?;
        Ok(Snapshot::new(db.clone(), db.snapshot(), self.process))
    }

    /// Returns an empty batch: writes that are committed together.
    #[pyo3(signature = (*, durability = None))]
    fn batch(&self, py: Python<'_>, durability: Option<&str>) -> PyResult<Batch> {
        let durability = durability.map(|name| durability_of(py, name)).transpose()?;
        Ok(Batch::new(self.inner(py)?.clone(), durability, self.process))
    }

    /// Begins a transaction. In a `with` block it commits at the end, and rolls back on an exception.
    #[pyo3(signature = (*, isolation = None, durability = None))]
    fn transaction(
        &self,
        py: Python<'_>,
        isolation: Option<&str>,
        durability: Option<&str>,
    ) -> PyResult<Transaction> {
        let mut options = self.inner(py)?.transaction();
        if let Some(name) = isolation {
            options = options.isolation(isolation_of(py, name)?);
        }
        if let Some(name) = durability {
            options = options.durability(durability_of(py, name)?);
        }
        Ok(begin(py, self.db.clone(), &options, self.process))
    }

    /// Calls `body` with a transaction, commits it, and returns what `body` returned. After a conflict it
    /// runs again. An exception rolls back.
    #[pyo3(signature = (body, *, isolation = None, durability = None, attempts = None, timeout = None))]
    fn transact(
        slf: PyRef<'_, Self>,
        body: &Bound<'_, PyAny>,
        isolation: Option<&str>,
        durability: Option<&str>,
        attempts: Option<u32>,
        timeout: Option<crate::data::Seconds>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let db = slf.inner(py)?;
        let mut options = db.transaction();
        if let Some(name) = isolation {
            options = options.isolation(isolation_of(py, name)?);
        }
        if let Some(name) = durability {
            options = options.durability(durability_of(py, name)?);
        }
        if let Some(attempts) = attempts {
            options = options.attempts(attempts);
        }
        if let Some(timeout) = timeout {
            options = options.repeat_for(timeout.0);
        }
        transact(py, &Attempts { db, options, process: slf.process }, body)
    }

    /// Returns the commits after the commit `after`, in order, each once it is durable.
    #[pyo3(signature = (after = 0))]
    fn feed(&self, py: Python<'_>, after: u64) -> PyResult<Feed> {
        let db = self.inner(py)?;
        let after = SeqNo::try_new(after).ok_or_else(|| invalid(py, "there are no such commits"))?;
        let feed = wait(py, || db.feed_after(after))?;
        Ok(Feed::new(db.clone(), feed, self.process))
    }

    /// Makes all commits so far durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.inner(py)?;
        wait(py, || db.sync())
    }

    /// Writes all memtables to tables.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.inner(py)?;
        wait(py, || db.flush())
    }

    /// Compacts everything.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.inner(py)?;
        wait(py, || db.compact())
    }

    /// Removes the entries that have expired, and returns their number.
    fn sweep(&self, py: Python<'_>) -> PyResult<u64> {
        let db = self.inner(py)?;
        wait(py, || db.sweep())
    }

    /// Copies the database to a new directory, as of one commit, and returns its number.
    fn checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        let db = self.inner(py)?;
        Ok(wait(py, || db.checkpoint(path))?.seqno.get())
    }

    /// Adds a backup of the database to the backups in a directory, and returns the backup's number.
    fn backup(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        let db = self.inner(py)?;
        Ok(wait(py, || esker::backup::Backup::open(path)?.create(db))?.id)
    }

    /// Verifies tables, log, manifest and counts. Returns counts, `problems` and `notes`.
    fn check<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let db = self.inner(py)?;
        let report = wait(py, || db.check())?;
        let found = PyDict::new(py);
        found.set_item("problems", report.problems)?;
        found.set_item("notes", report.notes)?;
        found.set_item("tables", report.tables)?;
        found.set_item("blocks", report.blocks)?;
        found.set_item("entries", report.entries)?;
        found.set_item("bytes", report.bytes)?;
        found.set_item("live_keys", report.live_keys)?;
        Ok(found)
    }

    /// Returns statistics by name. Times are in seconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.inner(py)?.stats();
        let (figures, mut failed) = (PyDict::new(py), Ok(()));
        stats.each(|figure| {
            let set = match &figure.value {
                FigureValue::Count(n) | FigureValue::Bytes(n) => figures.set_item(figure.name, *n),
                FigureValue::Text(text) => figures.set_item(figure.name, text.as_deref()),
                value => figures.set_item(figure.name, value.number()),
            };
            if set.is_err() {
                failed = set;
            }
        });
        failed.map(|()| figures)
    }

    /// Closes the database. Everything that was made from it fails from then on. May be called again.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.inner(py)?;
        wait(py, || db.clone().close())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.process.may_leave(py, has_failed(exception)?)? { self.close(py) } else { Ok(()) }
    }
}
