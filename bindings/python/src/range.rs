//! `Range`: the entries, keys or values of a range, as often as they are asked for; and the walk through
//! them.

use std::sync::{Arc, Weak};
use std::vec::IntoIter;

use esker::{Key, Keys, Result, Value};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::data::{Bounds, Data};
use crate::error::wait;
use crate::fork::Process;
use crate::source::{Reader, Source};

/// Entries of the first and of the largest chunk, and the bytes at which a chunk ends.
const CHUNK_LEN_MIN: usize = 8;
/// Entries of the first chunk at most, if there is a limit.
const CHUNK_LEN_LIMITED: u64 = 128;
const CHUNK_LEN_MAX: usize = 1024;
const CHUNK_BYTES: usize = 256 << 10;

/// What of each entry is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Keys,
    Values,
    Items,
}

/// The entries, keys or values of a range. It can be iterated any number of times; each time it begins with
/// the state of that moment.
#[pyclass(module = "esker", frozen)]
pub(crate) struct Range {
    pub(crate) reader: Reader,
    pub(crate) kind: Kind,
    pub(crate) bounds: Bounds,
    pub(crate) reverse: bool,
    pub(crate) limit: Option<u64>,
    /// The walk that began last, for the length that `list` asks for after it has begun one.
    pub(crate) begun: Mutex<Begun>,
}

/// A walk, and the state that it shows.
#[derive(Default)]
pub(crate) struct Begun {
    walk: Weak<Mutex<ChunkedWalk>>,
    state: u64,
}

/// The length of the walk that began last, if it shows the state of this moment and nothing was taken from
/// it.
enum BegunLength {
    Known(usize),
    /// The walk is longer than a chunk.
    Longer,
    Unknown,
}

impl Range {
    /// Begins a walk.
    pub(crate) fn walk(&self, py: Python<'_>, reverse: bool) -> PyResult<Entries> {
        let (kind, bounds) = (self.kind, &self.bounds);
        let source = self.reader.read(py, |reads| {
            let range = match bounds {
                Bounds::Between(start, end) => {
                    reads.between(start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice))
                }
                Bounds::Prefix(prefix) => reads.with_prefix(prefix),
            };
            Ok(if kind == Kind::Keys { Walk::Keys(range.keys()) } else { Walk::Entries(range) })
        })?;
        let walk = ChunkedWalk {
            source: Some(source),
            reverse,
            left: self.limit.unwrap_or(u64::MAX),
            chunk: Vec::new().into_iter(),
            chunk_len: self.limit.map_or(CHUNK_LEN_MIN, |limit| limit.clamp(1, CHUNK_LEN_LIMITED) as usize),
            is_fresh: true,
            failed: None,
            process: self.reader.process,
        };
        Ok(Entries { walk: Arc::new(Mutex::new(walk)), kind, process: self.reader.process })
    }

    /// Returns a number that changes with what the range shows: the newest commit, or a count of the
    /// operations of a transaction.
    fn state(&self) -> u64 {
        match &self.reader.source {
            Source::Now => self.reader.db.snapshot().seqno().get(),
            Source::Snapshot(_) | Source::Past(_) => 0,
            Source::Transaction(cell) => cell.changes(),
        }
    }

    /// Returns the length of the walk that began last.
    fn len_of_begun(&self, py: Python<'_>) -> PyResult<BegunLength> {
        let (walk, state) = {
            let begun = self.begun.lock();
            (begun.walk.upgrade(), begun.state)
        };
        let Some(walk) = walk.filter(|_| state == self.state()) else { return Ok(BegunLength::Unknown) };
        wait(py, || {
            let mut walk = walk.lock();
            if !walk.is_fresh || walk.failed.is_some() {
                return Ok(BegunLength::Unknown);
            }
            // The caller wants all of it.
            walk.chunk_len = CHUNK_LEN_MAX;
            walk.fill()?;
            Ok(if walk.source.is_none() { BegunLength::Known(walk.chunk.len()) } else { BegunLength::Longer })
        })
    }

    /// Returns the value of a key, if it is in the range.
    fn find<'py>(&self, py: Python<'py>, key: &Data) -> PyResult<Option<Value>> {
        if !self.bounds.contain(key) {
            return Ok(None);
        }
        self.reader.read(py, |reads| reads.value_of(key))
    }
}

#[pymethods]
impl Range {
    fn __iter__(&self, py: Python<'_>) -> PyResult<Entries> {
        self.reader.process.check(py)?;
        let state = self.state();
        let entries = self.walk(py, self.reverse)?;
        *self.begun.lock() = Begun { walk: Arc::downgrade(&entries.walk), state };
        Ok(entries)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Entries> {
        match self.limit {
            None => self.walk(py, !self.reverse),
            Some(_) => Err(crate::error::invalid(py, "a range with a limit is not reversed: pass `reverse`")),
        }
    }

    /// The number of entries. A part of a keyspace is counted one by one. `list` asks for it as well, right
    /// after it has begun a walk, which then tells the length of a short range. In a transaction `list`
    /// counts the entries of a long range, because a read of the keyspace's length may conflict.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.reader.process.check(py)?;
        let counts = match (self.len_of_begun(py)?, &self.reader.source) {
            (BegunLength::Known(len), _) => return Ok(len),
            (BegunLength::Longer, Source::Transaction(_)) => true,
            _ => !self.bounds.are_all(),
        };
        let limit = self.limit.unwrap_or(u64::MAX);
        if !counts {
            return Ok(usize::try_from(self.reader.read(py, |reads| reads.count())?.min(limit))?);
        }
        let bounds = self.bounds.clone();
        let all =
            Range { kind: Kind::Keys, bounds, reader: self.reader.clone(), begun: Mutex::default(), ..*self };
        let walk = all.walk(py, self.reverse)?.walk;
        wait(py, || walk.lock().count())
    }

    fn __contains__(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.limit.is_some() || self.kind == Kind::Values {
            for other in self.walk(py, self.reverse)? {
                if other?.bind(py).eq(item)? {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        match self.kind {
            Kind::Items => {
                let Ok((key, value)) = item.extract::<(Data, Data)>() else { return Ok(false) };
                Ok(self.find(py, &key)?.is_some_and(|found| *found == *value))
            }
            _ => Ok(self.find(py, &item.extract()?)?.is_some()),
        }
    }

    fn __repr__(&self) -> String {
        format!("<{:?} of esker keyspace {:?}>", self.kind, self.reader.keyspace.name())
    }
}

/// A walk, as the engine has it.
enum Walk {
    Keys(Keys),
    Entries(esker::Range),
}

impl Walk {
    fn next(&mut self, reverse: bool) -> Option<Result<(Key, Option<Value>)>> {
        let with_value = |entry: Result<(Key, Value)>| entry.map(|(key, value)| (key, Some(value)));
        let alone = |key: Result<Key>| key.map(|key| (key, None));
        match self {
            Walk::Keys(keys) if reverse => keys.next_back().map(alone),
            Walk::Keys(keys) => keys.next().map(alone),
            Walk::Entries(range) if reverse => range.next_back().map(with_value),
            Walk::Entries(range) => range.next().map(with_value),
        }
    }
}

/// A walk that reads ahead in growing chunks.
pub(crate) struct ChunkedWalk {
    /// `None` at the end.
    source: Option<Walk>,
    reverse: bool,
    /// Entries until the limit.
    left: u64,
    chunk: IntoIter<(Key, Option<Value>)>,
    chunk_len: usize,
    /// Whether nothing was taken from it.
    is_fresh: bool,
    /// The error that follows the chunk.
    failed: Option<esker::Error>,
    process: Process,
}

impl Drop for ChunkedWalk {
    fn drop(&mut self) {
        self.process.forget_in_child(&mut self.source);
    }
}

impl ChunkedWalk {
    /// Reads the next chunk, unless there is one. Returns whether there are entries.
    fn fill(&mut self) -> Result<bool> {
        if !self.chunk.as_slice().is_empty() {
            return Ok(true);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while chunk.len() < self.chunk_len && bytes < CHUNK_BYTES && self.left > 0 {
            let Some(source) = &mut self.source else { break };
            match source.next(self.reverse) {
                Some(Ok((key, value))) => {
                    bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
                    self.left -= 1;
                    chunk.push((key, value));
                }
                Some(Err(error)) => {
                    // Only this error concerns one entry.
                    if !matches!(error, esker::Error::Merge { .. }) {
                        self.source = None;
                    }
                    self.failed = Some(error);
                    break;
                }
                None => self.source = None,
            }
        }
        if self.left == 0 {
            self.source = None;
        }
        self.chunk_len = (self.chunk_len * 2).min(CHUNK_LEN_MAX);
        self.chunk = chunk.into_iter();
        match self.failed.take_if(|_| self.chunk.as_slice().is_empty()) {
            Some(error) => Err(error),
            None => Ok(!self.chunk.as_slice().is_empty()),
        }
    }

    fn count(&mut self) -> Result<usize> {
        let mut count = 0;
        while self.fill()? {
            count += self.chunk.len();
            self.chunk = Vec::new().into_iter();
        }
        Ok(count)
    }
}

/// A walk through entries, keys or values.
#[pyclass(module = "esker", frozen)]
pub(crate) struct Entries {
    pub(crate) walk: Arc<Mutex<ChunkedWalk>>,
    kind: Kind,
    process: Process,
}

impl Entries {
    fn step(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.process.check(py)?;
        loop {
            // Between two chunks only detached code holds the lock (source.rs, `Cell`).
            let next = self.walk.try_lock().and_then(|mut walk| {
                walk.is_fresh = false;
                walk.chunk.next()
            });
            if let Some((key, value)) = next {
                return self.item(py, &key, value.as_ref()).map(Some);
            }
            if !wait(py, || self.walk.lock().fill())? {
                return Ok(None);
            }
        }
    }

    fn item(&self, py: Python<'_>, key: &Key, value: Option<&Value>) -> PyResult<Py<PyAny>> {
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok(match (self.kind, value) {
            (Kind::Items, Some(value)) => (bytes(key), bytes(value)).into_pyobject(py)?.into_any().unbind(),
            (Kind::Values, Some(value)) => bytes(value).into_any().unbind(),
            _ => bytes(key).into_any().unbind(),
        })
    }
}

#[pymethods]
impl Entries {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.step(py)
    }

    /// Returns the next items, as many as are read at a time. Empty: there are no more.
    fn chunk(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.process.check(py)?;
        let chunk = wait(py, || {
            let mut walk = self.walk.lock();
            walk.is_fresh = false;
            walk.fill()?;
            Ok(std::mem::take(&mut walk.chunk))
        })?;
        chunk.map(|(key, value)| self.item(py, &key, value.as_ref())).collect()
    }
}

impl Iterator for Entries {
    type Item = PyResult<Py<PyAny>>;

    fn next(&mut self) -> Option<Self::Item> {
        Python::attach(|py| self.step(py).transpose())
    }
}
