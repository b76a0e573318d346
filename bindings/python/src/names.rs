//! Options that are given by name.

use esker::{Durability, Isolation, TableCompression};
use pyo3::prelude::*;

use crate::error::invalid;

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

/// Returns the compression of this name.
pub(crate) fn compression_of(py: Python<'_>, name: &str) -> PyResult<TableCompression> {
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
