//! `Feed`: every durable commit, in order; and `Commit`: the changes that it made.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::vec::IntoIter;

use esker::{Error, FeedChange, FeedCommit, KeyspaceId, Result};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyTuple};

use crate::data::Seconds;
use crate::error::wait;
use crate::fork::Process;

/// Time after which a waiting reader looks for signals.
const PATIENCE: Duration = Duration::from_millis(100);
/// Changes that are decoded at a time.
const CHUNK_LEN: usize = 256;

static CHANGE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Names of keyspaces, as far as they are known. `None`: the keyspace was dropped.
type Names = Arc<Mutex<HashMap<KeyspaceId, Option<String>>>>;

/// Reads the commits after a position, in order. As an iterator it waits for the next commit, and ends when
/// the database is closed.
#[pyclass(module = "esker", frozen)]
pub(crate) struct Feed {
    db: esker::Db,
    feed: Mutex<esker::Feed>,
    names: Names,
    process: Process,
}

impl Feed {
    pub(crate) fn new(db: esker::Db, feed: esker::Feed, process: Process) -> Feed {
        Feed { db, feed: Mutex::new(feed), names: Names::default(), process }
    }

    fn within(&self, patience: Duration) -> Result<Option<Commit>> {
        let next = self.feed.lock().next_within(patience)?;
        Ok(next.map(|commit| Commit {
            seqno: commit.seqno().get(),
            db: self.db.clone(),
            names: self.names.clone(),
            remaining: Mutex::new(RemainingChanges { commit, chunk: Vec::new().into_iter(), failed: None }),
            process: self.process,
        }))
    }

    /// Waits for a commit, at most for `patience`, and looks for signals meanwhile.
    fn wait(&self, py: Python<'_>, patience: Option<Duration>) -> PyResult<Option<Commit>> {
        self.process.check(py)?;
        let mut left = patience.unwrap_or(Duration::MAX);
        loop {
            let part = left.min(PATIENCE);
            let next = wait(py, || self.within(part))?;
            left = left.saturating_sub(part);
            if next.is_some() || left.is_zero() {
                return Ok(next);
            }
            py.check_signals()?;
        }
    }
}

#[pymethods]
impl Feed {
    /// Returns the next commit, waiting for it up to `timeout` seconds, or `None`.
    #[pyo3(signature = (timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<Option<Commit>> {
        self.wait(py, timeout.map(|Seconds(time)| time))
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Commit>> {
        self.wait(py, None).or_else(|error| {
            let ended = crate::error::raise(py, &Error::Closed);
            if error.is_instance(py, &ended.get_type(py)) { Ok(None) } else { Err(error) }
        })
    }
}

/// A change as it is passed to Python.
#[derive(Default)]
struct Change {
    kind: &'static str,
    keyspace: Option<KeyspaceId>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    name: Option<String>,
    expires_at: Option<f64>,
    merged_at: Option<f64>,
    lifetime: Option<f64>,
}

impl Change {
    fn new(kind: &'static str, keyspace: KeyspaceId, key: &[u8]) -> Change {
        Change { key: Some(key.to_vec()), ..Change::about(kind, Some(keyspace), None) }
    }

    fn about(kind: &'static str, keyspace: Option<KeyspaceId>, name: Option<&str>) -> Change {
        Change { kind, keyspace, name: name.map(str::to_owned), ..Change::default() }
    }

    /// Returns the change, or one for each operand of a merge.
    fn all_of(change: &FeedChange<'_>) -> Result<Vec<Change>> {
        Ok(vec![match change {
            FeedChange::Put { keyspace, key, value } => Change {
                value: Some(value.read()?.to_vec()),
                expires_at: value.expires_at().map(seconds_since_1970),
                ..Change::new("put", *keyspace, key)
            },
            FeedChange::Merge { keyspace, key, operands } => {
                let of = |operand: &esker::FeedOperand<'_>| Change {
                    value: Some(operand.bytes().to_vec()),
                    merged_at: Some(seconds_since_1970(operand.merged_at())),
                    lifetime: operand.lifetime().map(|lifetime| lifetime.as_secs_f64()),
                    ..Change::new("merge", *keyspace, key)
                };
                return Ok(operands.iter().map(of).collect());
            }
            FeedChange::Delete { keyspace, key } => Change::new("delete", *keyspace, key),
            FeedChange::Expire { keyspace, key } => Change::new("expire", *keyspace, key),
            FeedChange::DeleteRange { keyspace, start, end } => {
                Change { value: end.map(<[u8]>::to_vec), ..Change::new("delete_range", *keyspace, start) }
            }
            FeedChange::Named { keyspace, name } => Change::about("named", Some(*keyspace), Some(name)),
            FeedChange::Unnamed { name } => Change::about("unnamed", None, Some(name)),
            FeedChange::Options { keyspace, .. } => Change::about("options", Some(*keyspace), None),
            _ => Change::about("internal", None, None),
        }])
    }
}

fn seconds_since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The changes that were not returned yet.
struct RemainingChanges {
    commit: FeedCommit,
    chunk: IntoIter<Change>,
    /// The error that follows the chunk.
    failed: Option<Error>,
}

impl RemainingChanges {
    fn fill(&mut self) -> Result<bool> {
        if self.chunk.as_slice().is_empty() {
            let mut chunk = Vec::new();
            while chunk.len() < CHUNK_LEN && self.failed.is_none() {
                match self.next() {
                    Ok(Some(changes)) => chunk.extend(changes),
                    Ok(None) => break,
                    Err(error) => self.failed = Some(error),
                }
            }
            self.chunk = chunk.into_iter();
        }
        match self.failed.take_if(|_| self.chunk.as_slice().is_empty()) {
            Some(error) => Err(error),
            None => Ok(!self.chunk.as_slice().is_empty()),
        }
    }

    fn next(&mut self) -> Result<Option<Vec<Change>>> {
        self.commit.next_change()?.map(|change| Change::all_of(&change)).transpose()
    }
}

/// A commit: an iterator over its changes.
#[pyclass(module = "esker", frozen)]
pub(crate) struct Commit {
    /// The number of the commit.
    #[pyo3(get)]
    seqno: u64,
    db: esker::Db,
    names: Names,
    remaining: Mutex<RemainingChanges>,
    process: Process,
}

impl Commit {
    fn name_of(&self, change: &Change) -> Option<String> {
        let id = change.keyspace?;
        let mut names = self.names.lock();
        if change.kind == "named" {
            names.insert(id, change.name.clone());
        }
        let find = || self.db.keyspace_by_id(id).ok().flatten().map(|keyspace| keyspace.name());
        names.entry(id).or_insert_with(find).clone()
    }
}

#[pymethods]
impl Commit {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.process.check(py)?;
        let next = wait(py, || {
            let mut remaining = self.remaining.lock();
            let change = if remaining.fill()? { remaining.chunk.next() } else { None };
            Ok(change.map(|change| (self.name_of(&change), change)))
        })?;
        let Some((keyspace, change)) = next else { return Ok(None) };
        let class = CHANGE.get_or_try_init(py, || -> PyResult<_> {
            Ok(py.import("esker._types")?.getattr("Change")?.unbind())
        })?;
        let bytes = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| PyBytes::new(py, bytes));
        let id = change.keyspace.map(KeyspaceId::get);
        let fields: Bound<'py, PyTuple> = (
            change.kind,
            keyspace.or(change.name),
            bytes(&change.key),
            bytes(&change.value),
            change.expires_at,
            id,
            change.merged_at,
            change.lifetime,
        )
            .into_pyobject(py)?;
        class.bind(py).call1(fields).map(Some)
    }

    fn __repr__(&self) -> String {
        format!("<esker commit {}>", self.seqno)
    }
}
