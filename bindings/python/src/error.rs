//! Errors: the classes of `esker._errors` have the names of [`esker::ErrorKind`].

use esker::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Sets what the engine knows beside the message.
fn set_attributes(object: &Bound<'_, PyAny>, error: &Error) -> PyResult<()> {
    if let Some(path) = error.path() {
        object.setattr("path", path)?;
    }
    if let Some(offset) = error.offset() {
        object.setattr("offset", offset)?;
    }
    match error {
        Error::Io { source, .. } => object.setattr("errno", source.raw_os_error()),
        Error::Locked { pid, .. } => object.setattr("pid", *pid),
        Error::Conflict { keyspace, .. }
        | Error::Merge { keyspace, .. }
        | Error::MergeOperatorMissing { keyspace, .. }
        | Error::NoMergeOperator { keyspace }
        | Error::ForeignHandle { keyspace }
        | Error::KeyspaceNotFound(keyspace)
        | Error::KeyspaceExists(keyspace) => object.setattr("keyspace", keyspace),
        Error::HistoryGone { keyspace, oldest } => {
            object.setattr("keyspace", keyspace)?;
            object.setattr("oldest", oldest.get())
        }
        Error::FeedTruncated { oldest } => object.setattr("oldest", oldest.get()),
        Error::Poisoned(cause) => object.setattr("__cause__", raise(object.py(), cause)),
        _ => Ok(()),
    }
}

/// Returns the exception for an error of the engine.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let object = raise_as(py, &format!("{:?}", error.kind()), error.to_string())?;
        set_attributes(&object, error)?;
        Ok(PyErr::from_value(object))
    };
    make().unwrap_or_else(|failed| failed)
}

/// Returns the exception of this class of `esker._errors`.
pub(crate) fn raise_as<'py>(py: Python<'py>, class: &str, message: String) -> PyResult<Bound<'py, PyAny>> {
    let classes = CLASSES.get_or_try_init(py, || py.import("esker._errors").map(Bound::unbind))?;
    classes.bind(py).getattr(class)?.call1((message,))
}

/// The exception for a mistake of the caller.
pub(crate) fn invalid(py: Python<'_>, what: impl Into<String>) -> PyErr {
    raise(py, &Error::Invalid(what.into()))
}

/// Runs what may wait, without the interpreter's lock.
pub(crate) fn wait<T: Send>(py: Python<'_>, run: impl FnOnce() -> esker::Result<T> + Send) -> PyResult<T> {
    py.detach(run).map_err(|error| raise(py, &error))
}

/// Turns a result of the engine into that of a Python call.
pub(crate) trait OrRaise<T> {
    /// Returns the value, or raises the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for esker::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}
