//! Keys and values on their way between Python and the engine.

use std::ops::{Bound as End, Deref};

use esker::Value;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyMemoryView, PyString};
use std::time::Duration;

use crate::block;

/// A key or value from Python: `bytes` and `str` are borrowed, the bytes of other buffers are copied.
pub(crate) enum Data {
    Bytes(PyBackedBytes),
    /// Text in UTF-8.
    Text(PyBackedStr),
    Copy(Vec<u8>),
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Data::Bytes(bytes) => bytes,
            Data::Text(text) => text.as_bytes(),
            Data::Copy(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Data {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<'py> FromPyObject<'_, 'py> for Data {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyBytes>() {
            return Ok(Data::Bytes(given.extract()?));
        }
        if given.is_instance_of::<PyString>() {
            return Ok(Data::Text(given.extract()?));
        }
        let Ok(view) = PyMemoryView::from(&given) else {
            let kind = given.get_type().name()?;
            let message = format!("keys and values are bytes, str or a bytes-like object, not {kind}");
            return Err(PyTypeError::new_err(message));
        };
        let bytes = view.call_method0("tobytes")?;
        Ok(Data::Copy(bytes.cast::<PyBytes>()?.as_bytes().to_vec()))
    }
}

/// A range of keys, or the keys with a prefix.
#[derive(Clone, Debug)]
pub(crate) enum Bounds {
    Between(End<Vec<u8>>, End<Vec<u8>>),
    Prefix(Vec<u8>),
}

impl Bounds {
    /// The keys from `start` on, below `end`, or those with `prefix`.
    pub(crate) fn of(start: Option<Data>, end: Option<Data>, prefix: Option<Data>) -> PyResult<Bounds> {
        match (prefix, &start, &end) {
            (Some(prefix), None, None) => Ok(Bounds::Prefix(prefix.to_vec())),
            (Some(_), _, _) => Err(PyTypeError::new_err("a prefix goes without start and end")),
            (None, _, _) => Ok(Bounds::Between(
                start.map_or(End::Unbounded, |key| End::Included(key.to_vec())),
                end.map_or(End::Unbounded, |key| End::Excluded(key.to_vec())),
            )),
        }
    }

    /// Returns whether all keys are in it.
    pub(crate) fn are_all(&self) -> bool {
        match self {
            Bounds::Between(start, end) => matches!((start, end), (End::Unbounded, End::Unbounded)),
            Bounds::Prefix(prefix) => prefix.is_empty(),
        }
    }

    /// Returns whether a key is in it.
    pub(crate) fn contain(&self, key: &[u8]) -> bool {
        match self {
            Bounds::Between(start, end) => {
                let is_behind = matches!(end, End::Excluded(end) if key >= end.as_slice());
                !is_behind && !matches!(start, End::Included(start) if key < start.as_slice())
            }
            Bounds::Prefix(prefix) => key.starts_with(prefix),
        }
    }
}

impl Bounds {
    /// Returns the two ends.
    pub(crate) fn ends(self) -> (End<Vec<u8>>, End<Vec<u8>>) {
        let mut end = match self {
            Bounds::Between(start, end) => return (start, end),
            Bounds::Prefix(prefix) => prefix,
        };
        let start = End::Included(end.clone());
        // The first key behind all that have the prefix.
        while let Some(last) = end.pop() {
            if let Some(next) = last.checked_add(1) {
                end.push(next);
                return (start, End::Excluded(end));
            }
        }
        (start, End::Unbounded)
    }
}

/// Returns bytes, or a memoryview that keeps the value in memory.
pub(crate) fn to_python<'py>(py: Python<'py>, value: Value, as_view: bool) -> PyResult<Bound<'py, PyAny>> {
    match as_view {
        true => block::memoryview(py, value),
        false => Ok(PyBytes::new(py, &value).into_any()),
    }
}

/// A number of seconds that is not negative.
pub(crate) struct Seconds(pub(crate) Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let seconds = match given.getattr_opt("total_seconds")? {
            Some(of_timedelta) => of_timedelta.call0()?.extract::<f64>()?,
            None => given.extract::<f64>()?,
        };
        let duration = Duration::try_from_secs_f64(seconds);
        duration.map(Seconds).map_err(|error| PyOverflowError::new_err(format!("{seconds} seconds: {error}")))
    }
}
