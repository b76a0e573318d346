//! `open`: options in Python and their values in the engine.

use std::path::PathBuf;

use esker::{Blobs, Builder};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

use crate::data::Seconds;
use crate::db::Db;
use crate::error::wait;
use crate::names::{compression_of, durability_of, isolation_of};

/// Returns which values are stored in blob files: those from a size on, or none of them.
fn blobs_of(value: &Bound<'_, PyAny>) -> PyResult<Blobs> {
    match value.cast::<PyBool>() {
        Ok(yes) if yes.is_true() => Err(PyTypeError::new_err("blobs: give a size, or False for none")),
        Ok(_) => Ok(Blobs::Never),
        Err(_) => Ok(Blobs::From(value.extract()?)),
    }
}

/// Sets one option. Returns `None` if it is unknown.
fn set(builder: Builder, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Builder>> {
    let py = value.py();
    Ok(Some(match name {
        "memory" => builder.memory(value.extract()?),
        "durability" => builder.durability(durability_of(py, value.extract()?)?),
        "isolation" => builder.isolation(isolation_of(py, value.extract()?)?),
        "compression" => builder.compression(compression_of(py, value.extract()?)?),
        "create" => builder.create_if_missing(value.extract()?),
        "error_if_exists" => builder.error_if_exists(value.extract()?),
        "feed" => {
            let (bytes, age): (u64, Seconds) = value.extract()?;
            builder.feed_retention(bytes, age.0)
        }
        "lock_timeout" => builder.lock_timeout(value.extract::<Seconds>()?.0),
        "lock_patience" => builder.lock_patience(value.extract::<Seconds>()?.0),
        "sync_every" => builder.sync_every(value.extract::<Seconds>()?.0),
        "mode" => builder.mode(value.extract()?),
        "blobs" => builder.blobs(blobs_of(value)?),
        _ => return Ok(None),
    }))
}

/// Returns what the options say. Those that are `None` have their defaults.
pub(crate) fn builder_of(options: &Bound<'_, PyDict>) -> PyResult<Builder> {
    let mut builder = esker::Db::builder();
    for (name, value) in options.iter().filter(|(_, value)| !value.is_none()) {
        let name: String = name.extract()?;
        let set = set(builder, &name, &value)?;
        builder = set.ok_or_else(|| PyTypeError::new_err(format!("there is no option {name:?}")))?;
    }
    Ok(builder)
}

/// Opens the database in a directory, or a new one in memory.
#[pyfunction]
pub(crate) fn open(
    py: Python<'_>,
    path: Option<PathBuf>,
    read_only: bool,
    options: &Bound<'_, PyDict>,
) -> PyResult<Db> {
    let builder = builder_of(options)?;
    let opened = wait(py, || match path {
        None => builder.open_in_memory(),
        Some(path) if read_only => builder.open_read_only(path),
        Some(path) => builder.open(path),
    })?;
    Ok(Db::new(opened))
}
