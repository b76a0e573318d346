//! `SharedMap`: a keyspace of a shared database, in its newest state, a snapshot or a transaction.

use std::sync::Arc;

use esker::Ttl;
use esker_shared::{SharedKeyspace, SharedSnapshot, SharedTransaction};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::walk::SharedWalk;
use super::{Held, wait};
use crate::data::{Bounds, Data, Seconds};
use crate::error::invalid;
use crate::fork::Process;
use crate::names::durability_of;
use crate::view::{Entry, entry};

/// Which state a map shows.
#[derive(Clone)]
pub(crate) enum State {
    Now,
    Snapshot(Arc<Held<SharedSnapshot>>),
    Transaction(Arc<Held<SharedTransaction>>),
}

/// The calls of one keyspace, for `esker.shared`.
#[pyclass(module = "esker", frozen, weakref)]
pub(crate) struct SharedMap {
    pub(crate) keyspace: SharedKeyspace,
    pub(crate) state: State,
    pub(crate) process: Process,
}

/// Calls a method that keyspaces, snapshots and transactions have, without the interpreter's lock.
macro_rules! read {
    ($self:ident, $py:ident, $method:ident($($argument:expr),*)) => {{
        $self.process.check($py)?;
        let keyspace = &$self.keyspace;
        match &$self.state {
            State::Now => wait($py, || keyspace.$method($($argument),*)),
            State::Snapshot(held) => wait($py, || held.with(|s| s.$method(keyspace, $($argument),*))),
            State::Transaction(held) => wait($py, || held.with(|t| t.$method(keyspace, $($argument),*))),
        }
    }};
}

/// Calls a method that keyspaces and transactions have, without the interpreter's lock.
macro_rules! change {
    ($self:ident, $py:ident, $method:ident($($argument:expr),*)) => {{
        $self.process.check($py)?;
        let keyspace = &$self.keyspace;
        match &$self.state {
            State::Now => wait($py, || Ok(keyspace.$method($($argument),*)?.into())),
            State::Snapshot(_) => Err(invalid($py, "a snapshot cannot be written")),
            State::Transaction(held) => {
                wait($py, || Ok(held.with(|t| t.$method(keyspace, $($argument),*))?.into()))
            }
        }
    }};
}

/// The result of a write that returns the number of its commit, or nothing.
struct Written;

impl From<esker::SeqNo> for Written {
    fn from(_: esker::SeqNo) -> Written {
        Written
    }
}

impl From<()> for Written {
    fn from((): ()) -> Written {
        Written
    }
}

#[pymethods]
impl SharedMap {
    /// The number of the keyspace.
    #[getter]
    fn id(&self) -> u32 {
        self.keyspace.id().get()
    }

    fn get<'py>(&self, py: Python<'py>, key: Data) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found = read!(self, py, get(&key))?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    fn contains(&self, py: Python<'_>, key: Data) -> PyResult<bool> {
        read!(self, py, contains(&key))
    }

    fn get_many<'py>(&self, py: Python<'py>, keys: Vec<Data>) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let found = read!(self, py, multi_get(&keys))?;
        Ok(found.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value))).collect())
    }

    /// Returns a list of the remaining lifetime, of `None` if it is unlimited. `None`: there is no such key.
    fn ttl(&self, py: Python<'_>, key: Data) -> PyResult<Option<[Option<f64>; 1]>> {
        Ok(match read!(self, py, ttl(&key))? {
            Some(Ttl::Left(left)) => Some([Some(left.as_secs_f64())]),
            Some(Ttl::Unlimited) => Some([None]),
            None => None,
        })
    }

    fn len(&self, py: Python<'_>) -> PyResult<u64> {
        read!(self, py, len())
    }

    fn is_empty(&self, py: Python<'_>) -> PyResult<bool> {
        read!(self, py, is_empty())
    }

    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Entry<'py>>> {
        Ok(entry(py, read!(self, py, first())?))
    }

    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Entry<'py>>> {
        Ok(entry(py, read!(self, py, last())?))
    }

    /// Begins a walk through the range of a start, an end, and a prefix.
    fn walk(
        &self,
        py: Python<'_>,
        bounds: (Option<Data>, Option<Data>, Option<Data>),
        keys_only: bool,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<SharedWalk> {
        self.process.check(py)?;
        let (start, end, prefix) = bounds;
        let (ends, keyspace) = (Bounds::of(start, end, prefix)?.ends(), &self.keyspace);
        let range = wait(py, || match &self.state {
            State::Now => Ok(keyspace.range(ends)),
            State::Snapshot(held) => held.with(|s| Ok(s.range(keyspace, ends))),
            State::Transaction(held) => held.with(|t| Ok(t.range(keyspace, ends))),
        })?;
        Ok(SharedWalk::new(range, keys_only, reverse, limit))
    }

    #[pyo3(signature = (key, value, ttl = None))]
    fn put(&self, py: Python<'_>, key: Data, value: Data, ttl: Option<Seconds>) -> PyResult<()> {
        let Written = match ttl {
            None => change!(self, py, put(&key, &value)),
            Some(Seconds(ttl)) => change!(self, py, put_with_ttl(&key, &value, ttl)),
        }?;
        Ok(())
    }

    fn delete(&self, py: Python<'_>, key: Data) -> PyResult<()> {
        let Written = change!(self, py, delete(&key))?;
        Ok(())
    }

    fn delete_range(
        &self,
        py: Python<'_>,
        start: Option<Data>,
        end: Option<Data>,
        prefix: Option<Data>,
    ) -> PyResult<()> {
        let ends = Bounds::of(start, end, prefix)?.ends();
        let Written = change!(self, py, delete_range(&ends))?;
        Ok(())
    }

    fn merge(&self, py: Python<'_>, key: Data, operand: Data) -> PyResult<()> {
        let Written = change!(self, py, merge(&key, &operand))?;
        Ok(())
    }

    fn add(&self, py: Python<'_>, key: Data, by: i64) -> PyResult<i64> {
        change!(self, py, fetch_add(&key, by))
    }

    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: Data,
        expected: Option<Data>,
        value: Option<Data>,
    ) -> PyResult<bool> {
        let (expected, value) = (expected.as_deref(), value.as_deref());
        let swap: esker::Swap = change!(self, py, compare_and_swap(&key, expected, value))?;
        Ok(swap.swapped)
    }

    fn pop<'py>(&self, py: Python<'py>, key: Data) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let found: Option<esker::Value> = change!(self, py, remove(&key))?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    fn pop_first<'py>(&self, py: Python<'py>) -> PyResult<Option<Entry<'py>>> {
        Ok(entry(py, change!(self, py, pop_first())?))
    }

    fn pop_last<'py>(&self, py: Python<'py>) -> PyResult<Option<Entry<'py>>> {
        Ok(entry(py, change!(self, py, pop_last())?))
    }

    /// Returns a handle that commits with this durability.
    fn using(&self, py: Python<'_>, durability: &str) -> PyResult<SharedMap> {
        let keyspace = self.keyspace.with(durability_of(py, durability)?);
        Ok(SharedMap { keyspace, state: self.state.clone(), process: self.process })
    }
}
