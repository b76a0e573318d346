//! Errors: the classes of `esker._errors` stand for the variants of [`esker::Error`].

use esker::Error;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyModule;

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Returns the name of the class of an error.
fn class_of(error: &Error) -> &'static str {
    match error {
        Error::Io { .. } | Error::Behind { .. } => "Io",
        Error::NoSpace { .. } => "NoSpace",
        Error::Corrupt { .. } => "Corrupt",
        Error::UnsupportedVersion { .. } | Error::UnknownChange(_) => "UnsupportedVersion",
        Error::Encryption { .. } => "Encryption",
        Error::NotFound(_) | Error::UnfinishedRepair(_) => "NoDatabase",
        Error::Locked { .. } => "Locked",
        Error::ReadOnly(_) => "ReadOnly",
        Error::Conflict { .. } => "Conflict",
        Error::Deadlock(_) => "Deadlock",
        Error::LockTimeout { .. } => "LockTimeout",
        Error::Poisoned(_) => "Poisoned",
        Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => "TooLong",
        Error::KeyspaceNotFound(_) => "KeyspaceNotFound",
        Error::KeyspaceExists(_) => "KeyspaceExists",
        Error::Merge { .. } | Error::MergeOperatorMissing { .. } | Error::NoMergeOperator { .. } => "Merge",
        Error::FeedTruncated { .. } | Error::HistoryGone { .. } => "Gone",
        Error::NoFeed => "NoFeed",
        Error::FeedAhead { .. } => "FeedAhead",
        Error::AlreadyExists(_) => "AlreadyExists",
        Error::Panicked(_) => "Panicked",
        Error::Forked => "Forked",
        Error::Closed => "Closed",
        Error::Invalid(_)
        | Error::ForeignHandle { .. }
        | Error::SavepointGone
        | Error::OutOfOrder(_)
        | Error::NoBackup(_)
        | Error::OtherHistory(_)
        | Error::UnfinishedLoad(_) => "Invalid",
        _ => "Error",
    }
}

/// Sets what the engine knows beside the message.
fn set_attributes(object: &Bound<'_, PyAny>, error: &Error) -> PyResult<()> {
    match error {
        Error::Io { path, source, .. } => {
            object.setattr("path", path)?;
            object.setattr("errno", source.raw_os_error())
        }
        Error::NoSpace { path, .. }
        | Error::UnsupportedVersion { path, .. }
        | Error::Encryption { path, .. }
        | Error::Behind { path, .. }
        | Error::NotFound(path)
        | Error::UnfinishedRepair(path)
        | Error::AlreadyExists(path)
        | Error::ReadOnly(path) => object.setattr("path", path),
        Error::Corrupt { path, offset, .. } => {
            object.setattr("path", path)?;
            object.setattr("offset", *offset)
        }
        Error::Locked { path, pid, .. } => {
            object.setattr("path", path)?;
            object.setattr("pid", *pid)
        }
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
        let object = raise_as(py, class_of(error), error.to_string())?;
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
