//! `SharedWalk`: a walk through a range of a shared database.

use esker::{Key, Value};
use esker_shared::{Result, SharedRange};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::wait;
use crate::fork::Process;

/// Entries and bytes at which a chunk ends.
const CHUNK_LEN: usize = 1024;
const CHUNK_BYTES: usize = 256 << 10;

type Entry = (Key, Option<Value>);
type PyEntry<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);
type Source = Box<dyn Iterator<Item = Result<Entry>> + Send>;

/// A walk through entries or keys.
#[pyclass(module = "esker", frozen)]
pub(crate) struct SharedWalk {
    /// `None` at the end.
    source: Mutex<Option<Source>>,
    process: Process,
}

impl SharedWalk {
    /// Begins a walk through at most `limit` entries.
    pub(crate) fn new(
        range: SharedRange,
        keys_only: bool,
        reverse: bool,
        limit: Option<usize>,
    ) -> SharedWalk {
        let with_value = |entry: Result<(Key, Value)>| entry.map(|(key, value)| (key, Some(value)));
        let alone = |key: Result<Key>| key.map(|key| (key, None));
        let source: Source = match (keys_only, reverse) {
            (true, true) => Box::new(range.keys().rev().map(alone)),
            (true, false) => Box::new(range.keys().map(alone)),
            (false, true) => Box::new(range.rev().map(with_value)),
            (false, false) => Box::new(range.map(with_value)),
        };
        let source: Source = match limit {
            Some(limit) => Box::new(source.take(limit)),
            None => source,
        };
        SharedWalk { source: Mutex::new(Some(source)), process: Process::current() }
    }

    fn read(&self) -> Result<Vec<Entry>> {
        let mut source = self.source.lock();
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while chunk.len() < CHUNK_LEN && bytes < CHUNK_BYTES {
            let Some(entry) = source.as_mut().and_then(Iterator::next) else {
                *source = None;
                break;
            };
            let (key, value) = entry.inspect_err(|_| *source = None)?;
            bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
            chunk.push((key, value));
        }
        Ok(chunk)
    }
}

impl Drop for SharedWalk {
    fn drop(&mut self) {
        self.process.forget_in_child(self.source.get_mut());
    }
}

#[pymethods]
impl SharedWalk {
    /// Returns the next pairs of key and value, or keys with `None`. Empty: there are no more.
    fn chunk<'py>(&self, py: Python<'py>) -> PyResult<Vec<PyEntry<'py>>> {
        self.process.check(py)?;
        let chunk = wait(py, || self.read())?;
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok(chunk.iter().map(|(key, value)| (bytes(key), value.as_ref().map(|value| bytes(value)))).collect())
    }
}
