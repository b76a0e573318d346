//! `View`: one keyspace of a snapshot or of the past, as a `Mapping`. `Keyspace` extends it.

use esker::{Cached, Ttl};
use parking_lot::Mutex;
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping};

use crate::data::{Bounds, Data, to_python};
use crate::error::{OrRaise, wait};
use crate::range::{Entries, Kind, Range};
use crate::source::{Reader, Source};

/// One keyspace of a snapshot or of the past: a `Mapping` of bytes to bytes.
#[pyclass(module = "esker", subclass, frozen, mapping, weakref)]
pub(crate) struct View {
    pub(crate) reader: Reader,
}

/// An entry in Python.
pub(crate) type Entry<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Returns an entry as a pair of bytes.
pub(crate) fn entry<'py>(py: Python<'py>, found: Option<(esker::Key, esker::Value)>) -> Option<Entry<'py>> {
    found.map(|(key, value)| (PyBytes::new(py, &key), PyBytes::new(py, &value)))
}

/// Returns the keyspace that is given as a keyspace or by its name.
pub(crate) fn keyspace_of(
    given: &Bound<'_, PyAny>,
    by_name: impl FnOnce(&str) -> PyResult<esker::Keyspace>,
) -> PyResult<esker::Keyspace> {
    if let Ok(view) = given.cast::<View>() {
        return Ok(view.get().reader.keyspace.clone());
    }
    match given.extract::<String>() {
        Ok(name) => by_name(&name),
        Err(_) => Err(PyTypeError::new_err("a keyspace is given as a keyspace or by its name")),
    }
}

impl View {
    pub(crate) fn value(&self, py: Python<'_>, key: &Data) -> PyResult<Option<esker::Value>> {
        self.reader.process.check(py)?;
        if let Source::Now = self.reader.source {
            match self.reader.keyspace.get_if_cached(key).or_raise(py)? {
                Cached::Value(value) => return Ok(Some(value)),
                Cached::Absent => return Ok(None),
                Cached::NotCached => {}
            }
        }
        self.reader.read(py, |reads| reads.value_of(key))
    }

    fn range(&self, py: Python<'_>, kind: Kind, bounds: Bounds) -> PyResult<Range> {
        self.reader.process.check(py)?;
        let reader = self.reader.clone();
        Ok(Range { reader, kind, bounds, reverse: false, limit: None, begun: Mutex::default() })
    }
}

#[pymethods]
impl View {
    /// The name of the keyspace.
    #[getter]
    fn name(&self) -> String {
        self.reader.keyspace.name()
    }

    /// The number of the keyspace, which does not change with its name.
    #[getter]
    fn id(&self) -> u32 {
        self.reader.keyspace.id().get()
    }

    fn __repr__(&self) -> String {
        format!("<esker keyspace {:?}>", self.reader.keyspace.name())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let len = self.reader.read(py, |reads| reads.count())?;
        Ok(usize::try_from(len)?)
    }

    /// Returns whether there is an entry. Unlike `len`, it does not count expired entries.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(!self.reader.read(py, |reads| reads.has_no_keys())?)
    }

    fn __contains__(&self, py: Python<'_>, key: Data) -> PyResult<bool> {
        self.reader.read(py, |reads| reads.has(&key))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: Data) -> PyResult<Bound<'py, PyBytes>> {
        match self.value(py, &key)? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(PyKeyError::new_err((PyBytes::new(py, &key).unbind(),))),
        }
    }

    /// Returns the value of a key, or `default`. With `view`: a memoryview that keeps the value in memory
    /// instead of a copy.
    #[pyo3(signature = (key, default = None, *, view = false))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Data,
        default: Option<Bound<'py, PyAny>>,
        view: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.value(py, &key)? {
            Some(value) => to_python(py, value, view).map(Some),
            None => Ok(default),
        }
    }

    /// Returns a list of the value of a key, or of `None`, if memory alone tells it. Returns `None` if a file
    /// would have to be read: call `get` where waiting is allowed.
    fn get_if_cached<'py>(
        &self,
        py: Python<'py>,
        key: Data,
    ) -> PyResult<Option<[Option<Bound<'py, PyBytes>>; 1]>> {
        self.reader.process.check(py)?;
        let Source::Now = self.reader.source else { return Ok(None) };
        Ok(match self.reader.keyspace.get_if_cached(&key).or_raise(py)? {
            Cached::Value(value) => Some([Some(PyBytes::new(py, &value))]),
            Cached::Absent => Some([None]),
            Cached::NotCached => None,
        })
    }

    /// Returns the values of several keys as of the same commit, `None` for those that are missing.
    fn get_many<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let keys = keys.try_iter()?.map(|key| key?.extract::<Data>()).collect::<PyResult<Vec<_>>>()?;
        let found = self
            .reader
            .read(py, |reads| reads.values_of(&keys.iter().map(|key| &**key).collect::<Vec<_>>()))?;
        PyList::new(py, found.iter().map(|value| value.as_ref().map(|value| PyBytes::new(py, value))))
    }

    /// Returns the remaining lifetime of a key in seconds, `None` if it is unlimited. Raises `KeyError` if
    /// there is no such key.
    fn ttl(&self, py: Python<'_>, key: Data) -> PyResult<Option<f64>> {
        match self.reader.read(py, |reads| reads.ttl_of(&key))? {
            Some(Ttl::Left(left)) => Ok(Some(left.as_secs_f64())),
            Some(Ttl::Unlimited) => Ok(None),
            None => Err(PyKeyError::new_err((PyBytes::new(py, &key).unbind(),))),
        }
    }

    /// Returns the first entry, or `None`.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Entry<'py>>> {
        let found = self.reader.read(py, |reads| reads.with_prefix(&[]).next().transpose())?;
        Ok(entry(py, found))
    }

    /// Returns the last entry, or `None`.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Entry<'py>>> {
        let found = self.reader.read(py, |reads| reads.with_prefix(&[]).next_back().transpose())?;
        Ok(entry(py, found))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Entries> {
        self.range(py, Kind::Keys, Bounds::Prefix(Vec::new()))?.walk(py, false)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Entries> {
        self.range(py, Kind::Keys, Bounds::Prefix(Vec::new()))?.walk(py, true)
    }

    /// The entries of a range of keys, in order.
    #[pyo3(signature = (start = None, end = None, *, prefix = None, reverse = false, limit = None))]
    fn items(
        slf: PyRef<'_, Self>,
        start: Option<Data>,
        end: Option<Data>,
        prefix: Option<Data>,
        reverse: bool,
        limit: Option<u64>,
    ) -> PyResult<Range> {
        let all = slf.range(slf.py(), Kind::Items, Bounds::of(start, end, prefix)?)?;
        Ok(Range { reverse, limit, ..all })
    }

    /// The keys of a range, in order.
    #[pyo3(signature = (start = None, end = None, *, prefix = None, reverse = false, limit = None))]
    fn keys(
        slf: PyRef<'_, Self>,
        start: Option<Data>,
        end: Option<Data>,
        prefix: Option<Data>,
        reverse: bool,
        limit: Option<u64>,
    ) -> PyResult<Range> {
        let all = slf.range(slf.py(), Kind::Keys, Bounds::of(start, end, prefix)?)?;
        Ok(Range { reverse, limit, ..all })
    }

    /// The values of a range of keys, in the order of the keys.
    #[pyo3(signature = (start = None, end = None, *, prefix = None, reverse = false, limit = None))]
    fn values(
        slf: PyRef<'_, Self>,
        start: Option<Data>,
        end: Option<Data>,
        prefix: Option<Data>,
        reverse: bool,
        limit: Option<u64>,
    ) -> PyResult<Range> {
        let all = slf.range(slf.py(), Kind::Values, Bounds::of(start, end, prefix)?)?;
        Ok(Range { reverse, limit, ..all })
    }

    /// Bytes that the entries of a range take in files and memory, roughly.
    #[pyo3(signature = (start = None, end = None, *, prefix = None))]
    fn approximate_size(
        &self,
        py: Python<'_>,
        start: Option<Data>,
        end: Option<Data>,
        prefix: Option<Data>,
    ) -> PyResult<u64> {
        self.reader.process.check(py)?;
        let keyspace = &self.reader.keyspace;
        match Bounds::of(start, end, prefix)? {
            Bounds::Between(start, end) => wait(py, || keyspace.approximate_size((start, end))),
            Bounds::Prefix(prefix) if prefix.is_empty() => wait(py, || keyspace.approximate_size(..)),
            Bounds::Prefix(_) => Err(crate::error::invalid(py, "give start and end")),
        }
    }

    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let Ok(other) = other.cast::<PyMapping>() else { return Ok(py.NotImplemented()) };
        let pairs = |of: &Bound<'_, PyAny>| -> PyResult<_> {
            let pairs = PyDict::new(py);
            pairs.update(of.cast::<PyMapping>()?)?;
            Ok(pairs)
        };
        let equal = pairs(slf.as_any())?.eq(pairs(other.as_any())?)?;
        Ok(equal.into_pyobject(py)?.to_owned().into_any().unbind())
    }
}
