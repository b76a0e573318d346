//! `open`: options in Python and their values in the engine.

use std::path::PathBuf;

use esker::{Blobs, Builder, Durability, Isolation, TableCompression};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::data::Seconds;
use crate::db::Db;
use crate::error::{invalid, wait};

/// Returns the durability of this name.
pub(crate) fn durability_of(py: Python<'_>, name: &str) -> PyResult<Durability> {
    Ok(match name {
        "sync" => Durability::Sync,
        "buffered" => Durability::Buffered,
        "none" => Durability::None,
        _ => {
            let message = format!("durability {name:?}: it is \"sync\", \"buffered\" or \"none\"");
            return Err(invalid(py, message));
        }
    })
}

/// Returns the isolation of this name.
pub(crate) fn isolation_of(py: Python<'_>, name: &str) -> PyResult<Isolation> {
    Ok(match name {
        "serializable" => Isolation::Serializable,
        "snapshot" => Isolation::Snapshot,
        "exclusive" => Isolation::Exclusive,
        _ => {
            let message =
                format!("isolation {name:?}: it is \"serializable\", \"snapshot\" or \"exclusive\"");
            return Err(invalid(py, message));
        }
    })
}

fn compression_of(py: Python<'_>, name: &str) -> PyResult<TableCompression> {
    Ok(match name {
        "auto" => TableCompression::Auto,
        "none" => TableCompression::None,
        "lz4" => TableCompression::Lz4,
        "zstd" => TableCompression::Zstd,
        _ => {
            let message = format!("compression {name:?}: it is \"auto\", \"none\", \"lz4\" or \"zstd\"");
            return Err(invalid(py, message));
        }
    })
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
        "blobs" => builder.blobs(value.extract::<usize>().map_or(Blobs::Never, Blobs::From)),
        _ => return Ok(None),
    }))
}

/// Opens the database in a directory, or a new one in memory. `options` that are `None` have their defaults.
#[pyfunction]
pub(crate) fn open(
    py: Python<'_>,
    path: Option<PathBuf>,
    read_only: bool,
    options: &Bound<'_, PyDict>,
) -> PyResult<Db> {
    let mut builder = esker::Db::builder();
    for (name, value) in options.iter().filter(|(_, value)| !value.is_none()) {
        let name: String = name.extract()?;
        let set = set(builder, &name, &value)?;
        builder = set.ok_or_else(|| PyTypeError::new_err(format!("there is no option {name:?}")))?;
    }
    let opened = wait(py, || match path {
        None => builder.open_in_memory(),
        Some(path) if read_only => builder.open_read_only(path),
        Some(path) => builder.open(path),
    })?;
    Ok(Db::new(opened))
}
