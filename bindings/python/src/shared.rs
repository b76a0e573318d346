//! A database that several processes write: the crate `esker_shared` for the module `esker.shared`, which
//! makes mappings of it.

pub(crate) mod map;
pub(crate) mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use esker::{Durability, Error as DbError, LockMode};
use esker_shared::{Error, Outcome, Result, SharedBuilder};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use self::map::{SharedMap, State};
use crate::data::{Bounds, Data, Seconds};
use crate::error::{invalid, raise, raise_as};
use crate::fork::Process;
use crate::names::{durability_of, isolation_of};
use crate::options::builder_of;

/// Returns the exception for an error.
fn raise_shared(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Db(error) => return raise(py, error),
        Error::NoHost { .. } => "NoHost",
        Error::HostGone => "HostGone",
        Error::OutcomeUnknown(_) => "OutcomeUnknown",
        Error::Version { .. } => "UnsupportedVersion",
        Error::PathTooLong(_) => "Invalid",
        _ => "Error",
    };
    let make = || -> PyResult<PyErr> {
        let object = raise_as(py, class, error.to_string())?;
        match error {
            Error::OutcomeUnknown(id) => object.setattr("commit", CommitName { id: *id })?,
            Error::NoHost { dir: path, .. } | Error::Version { dir: path, .. } | Error::PathTooLong(path) => {
                object.setattr("path", path)?;
            }
            _ => {}
        }
        Ok(PyErr::from_value(object))
    };
    make().unwrap_or_else(|failed| failed)
}

/// Runs what may wait, without the interpreter's lock.
fn wait<T: Send>(py: Python<'_>, run: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(run).map_err(|error| raise_shared(py, &error))
}

/// A snapshot or transaction that several objects use.
pub(crate) struct Held<T> {
    /// `None`: it has ended.
    value: Mutex<Option<T>>,
    process: Process,
}

impl<T> Held<T> {
    fn new(value: T) -> Arc<Held<T>> {
        Arc::new(Held { value: Mutex::new(Some(value)), process: Process::current() })
    }

    /// Runs a call. Call it detached.
    fn with<R>(&self, run: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        match &mut *self.value.lock() {
            Some(value) => run(value),
            None => Err(ended()),
        }
    }

    fn take(&self) -> Option<T> {
        self.value.lock().take()
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        self.process.forget_in_child(self.value.get_mut());
    }
}

fn ended() -> Error {
    DbError::Invalid("the snapshot or transaction has ended".to_owned()).into()
}

/// The name of a commit whose outcome is unknown.
#[pyclass(module = "esker", frozen)]
pub(crate) struct CommitName {
    id: esker_shared::CommitId,
}

#[pymethods]
impl CommitName {
    fn __repr__(&self) -> String {
        self.id.to_string()
    }
}

/// An open database of several processes.
#[pyclass(module = "esker", frozen, weakref)]
pub(crate) struct Shared {
    /// `None`: it was closed.
    shared: Mutex<Option<esker_shared::Shared>>,
    process: Process,
}

/// Opens the database in a directory, or connects to the process that has.
#[pyfunction]
pub(crate) fn open_shared(
    py: Python<'_>,
    path: PathBuf,
    options: &Bound<'_, PyDict>,
    wait_for: Option<Seconds>,
    transaction_idle: Option<Seconds>,
) -> PyResult<Shared> {
    let mut builder = SharedBuilder::default().engine(builder_of(options)?);
    if let Some(Seconds(time)) = wait_for {
        builder = builder.wait(time);
    }
    if let Some(Seconds(time)) = transaction_idle {
        builder = builder.transaction_idle(time);
    }
    let shared = wait(py, || builder.open(path))?;
    Ok(Shared { shared: Mutex::new(Some(shared)), process: Process::current() })
}

impl Shared {
    /// Runs a call, without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&esker_shared::Shared) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.process.check(py)?;
        let shared = self.shared.lock().clone();
        wait(py, || run(shared.as_ref().ok_or(DbError::Closed)?))
    }

    fn now(&self, keyspace: esker_shared::SharedKeyspace) -> SharedMap {
        SharedMap { keyspace, state: State::Now, process: self.process }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.process.forget_in_child(self.shared.get_mut());
    }
}

/// A write of a batch: keyspace, key, value, lifetime. Without a value it removes the key.
type Write<'py> = (PyRef<'py, SharedMap>, Data, Option<Data>, Option<Seconds>);
/// A removal of a range in a batch: keyspace, start, end, prefix, and something that tells it from a write.
type Removal<'py> = (PyRef<'py, SharedMap>, Option<Data>, Option<Data>, Option<Data>, bool);

#[derive(FromPyObject)]
enum Step<'py> {
    Write(Write<'py>),
    Removal(Removal<'py>),
}

#[pymethods]
impl Shared {
    /// Whether this process has the database open, and serves the others.
    #[getter]
    fn is_host(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |shared| Ok(shared.is_host()))
    }

    fn keyspace(&self, py: Python<'_>, name: &str) -> PyResult<SharedMap> {
        Ok(self.now(self.with(py, |shared| shared.keyspace(name))?))
    }

    fn open_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<SharedMap> {
        Ok(self.now(self.with(py, |shared| shared.open_keyspace(name))?))
    }

    fn keyspaces(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, esker_shared::Shared::keyspaces)
    }

    fn drop_keyspace(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.with(py, |shared| shared.drop_keyspace(name))
    }

    fn rename_keyspace(&self, py: Python<'_>, old: &str, new: &str) -> PyResult<()> {
        self.with(py, |shared| shared.rename_keyspace(old, new))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<SharedSnapshot> {
        let snapshot = self.with(py, esker_shared::Shared::snapshot)?;
        Ok(SharedSnapshot { seqno: snapshot.seqno().get(), held: Held::new(snapshot), process: self.process })
    }

    fn begin(
        &self,
        py: Python<'_>,
        isolation: Option<&str>,
        durability: Option<&str>,
    ) -> PyResult<SharedTransaction> {
        let isolation = isolation.map(|name| isolation_of(py, name)).transpose()?;
        let durability = durability.map(|name| durability_of(py, name)).transpose()?;
        let transaction = self.with(py, |shared| {
            let mut options = shared.transaction();
            if let Some(isolation) = isolation {
                options = options.isolation(isolation);
            }
            if let Some(durability) = durability {
                options = options.durability(durability);
            }
            options.begin()
        })?;
        Ok(SharedTransaction { held: Held::new(transaction), process: self.process })
    }

    /// Commits the steps of a batch: see `Step`.
    fn commit(&self, py: Python<'_>, steps: Vec<Step<'_>>, durability: Option<&str>) -> PyResult<u64> {
        let durability: Option<Durability> = durability.map(|name| durability_of(py, name)).transpose()?;
        let mut batch = self.with(py, |shared| Ok(shared.batch()))?;
        for step in steps {
            let added = match step {
                Step::Write((map, key, Some(value), None)) => batch.put(&map.keyspace, &key, &value),
                Step::Write((map, key, Some(value), Some(Seconds(ttl)))) => {
                    batch.put_with_ttl(&map.keyspace, &key, &value, ttl)
                }
                Step::Write((map, key, None, _)) => batch.delete(&map.keyspace, &key),
                Step::Removal((map, start, end, prefix, _)) => {
                    batch.delete_range(&map.keyspace, Bounds::of(start, end, prefix)?.ends())
                }
            };
            added.map_err(|error| raise_shared(py, &error))?;
        }
        let seqno = wait(py, || match durability {
            Some(durability) => batch.commit_with(durability),
            None => batch.commit(),
        })?;
        Ok(seqno.get())
    }

    /// Returns the number of the commit at or before which a commit was applied. `None`: it never will be.
    fn outcome(&self, py: Python<'_>, commit: PyRef<'_, CommitName>) -> PyResult<Option<u64>> {
        let id = commit.id;
        Ok(match self.with(py, |shared| shared.outcome(&id))? {
            Outcome::Applied(seqno) => Some(seqno.get()),
            Outcome::NotApplied => None,
        })
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, esker_shared::Shared::sync)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check(py)?;
        let shared = self.shared.lock().take();
        wait(py, || shared.map_or(Ok(()), esker_shared::Shared::close))
    }
}

/// A snapshot of a shared database.
#[pyclass(module = "esker", frozen)]
pub(crate) struct SharedSnapshot {
    held: Arc<Held<esker_shared::SharedSnapshot>>,
    #[pyo3(get)]
    seqno: u64,
    process: Process,
}

#[pymethods]
impl SharedSnapshot {
    fn map(&self, of: PyRef<'_, SharedMap>) -> SharedMap {
        let state = State::Snapshot(self.held.clone());
        SharedMap { keyspace: of.keyspace.clone(), state, process: self.process }
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check(py)?;
        py.detach(|| drop(self.held.take()));
        Ok(())
    }
}

/// A transaction of a shared database.
#[pyclass(module = "esker", frozen)]
pub(crate) struct SharedTransaction {
    held: Arc<Held<esker_shared::SharedTransaction>>,
    process: Process,
}

#[pymethods]
impl SharedTransaction {
    fn map(&self, of: PyRef<'_, SharedMap>) -> SharedMap {
        let state = State::Transaction(self.held.clone());
        SharedMap { keyspace: of.keyspace.clone(), state, process: self.process }
    }

    #[getter]
    fn is_open(&self, py: Python<'_>) -> bool {
        py.detach(|| self.held.value.lock().is_some())
    }

    fn lock(&self, py: Python<'_>, of: PyRef<'_, SharedMap>, key: Data, shared: bool) -> PyResult<()> {
        self.process.check(py)?;
        let (mode, keyspace) = match shared {
            true => (LockMode::Shared, of.keyspace.clone()),
            false => (LockMode::Exclusive, of.keyspace.clone()),
        };
        wait(py, || self.held.with(|t| t.lock(&keyspace, &key, mode)))
    }

    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        self.process.check(py)?;
        let Some(transaction) = py.detach(|| self.held.take()) else {
            return Err(invalid(py, "the transaction has ended"));
        };
        Ok(wait(py, || transaction.commit())?.get())
    }

    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check(py)?;
        py.detach(|| drop(self.held.take()));
        Ok(())
    }
}
