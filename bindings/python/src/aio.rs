//! `Completions`: commits that an event loop waits for, without a thread for each.
//!
//! ```text
//!   put, commit --> Committing, a future of the engine
//!                        | done: the committer's thread notes the token and rings the bell
//!   event loop <-- socket `--> drain(): the outcomes, in Python
//! ```
//!
//! The committer's thread never waits for the interpreter: it only writes a byte.

use std::collections::HashMap;
use std::future::Future;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use esker::{Error, SeqNo, WriteOptions};
use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::Batch;
use crate::data::{Data, Seconds};
use crate::error::{invalid, raise};
use crate::fork::Process;
use crate::keyspace::Keyspace;
use crate::source::Source;
use crate::transaction::Transaction;

type Commit = Pin<Box<dyn Future<Output = esker::Result<SeqNo>> + Send>>;

/// Tokens of futures that can go on, and the bell that says so.
struct Ready {
    tokens: Mutex<Vec<u64>>,
    bell: UnixStream,
}

struct TokenWaker {
    token: u64,
    ready: Arc<Ready>,
}

impl Wake for TokenWaker {
    fn wake(self: Arc<Self>) {
        let mut tokens = self.ready.tokens.lock();
        tokens.push(self.token);
        if tokens.len() == 1 {
            // A full socket rings already.
            let _ = (&self.ready.bell).write(&[1]);
        }
    }
}

#[derive(Default)]
struct Pending {
    last: u64,
    commits: HashMap<u64, Commit>,
}

/// Commits in progress. An event loop calls `drain` when `fileno` is readable.
#[pyclass(module = "esker", frozen)]
pub(crate) struct Completions {
    ready: Arc<Ready>,
    listener: UnixStream,
    pending: Mutex<Pending>,
    process: Process,
}

impl Completions {
    /// Polls a commit, and keeps it if it is not done. Call it detached.
    fn poll(&self, token: u64, mut commit: Commit) -> Option<esker::Result<SeqNo>> {
        let waker = Waker::from(Arc::new(TokenWaker { token, ready: self.ready.clone() }));
        // The lock keeps `drain` in another thread from looking before the commit is there.
        let mut pending = self.pending.lock();
        match commit.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => {
                pending.commits.insert(token, commit);
                None
            }
        }
    }

    /// Begins a commit. Returns its token.
    fn begin(&self, py: Python<'_>, begin: impl FnOnce() -> Commit + Send) -> PyResult<u64> {
        self.process.check(py)?;
        py.detach(|| {
            let commit = begin();
            let mut pending = self.pending.lock();
            pending.last += 1;
            let token = pending.last;
            pending.commits.insert(token, commit);
            drop(pending);
            // `drain` polls it for the first time, which hands over the waker.
            Arc::new(TokenWaker { token, ready: self.ready.clone() }).wake();
            Ok(token)
        })
    }

    fn keyspace<'a>(
        &self,
        keyspace: &'a Bound<'_, Keyspace>,
        ttl: Option<Seconds>,
    ) -> PyResult<std::borrow::Cow<'a, esker::Keyspace>> {
        let reader = &keyspace.as_super().get().reader;
        if !matches!(reader.source, Source::Now) {
            return Err(invalid(keyspace.py(), "a transaction makes its own commit"));
        }
        let Some(Seconds(ttl)) = ttl else { return Ok(std::borrow::Cow::Borrowed(&reader.keyspace)) };
        let durability = keyspace.get().durability;
        let options = durability.map_or_else(WriteOptions::new, WriteOptions::from).ttl(ttl);
        Ok(std::borrow::Cow::Owned(reader.keyspace.with(options)))
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> PyResult<Completions> {
        let pair = || -> std::io::Result<_> {
            let (listener, bell) = UnixStream::pair()?;
            listener.set_nonblocking(true)?;
            bell.set_nonblocking(true)?;
            Ok((listener, bell))
        };
        let (listener, bell) = pair().map_err(|error| PyOSError::new_err(error.to_string()))?;
        let ready = Arc::new(Ready { tokens: Mutex::default(), bell });
        Ok(Completions { ready, listener, pending: Mutex::default(), process: Process::current() })
    }

    /// The descriptor that is readable when commits are done.
    fn fileno(&self) -> i32 {
        self.listener.as_raw_fd()
    }

    /// The number of commits in progress.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.process.check(py)?;
        Ok(py.detach(|| self.pending.lock().commits.len()))
    }

    /// Begins to put a value.
    #[pyo3(signature = (keyspace, key, value, ttl = None))]
    fn put(
        slf: PyRef<'_, Self>,
        keyspace: &Bound<'_, Keyspace>,
        key: Data,
        value: Data,
        ttl: Option<Seconds>,
    ) -> PyResult<u64> {
        let into = slf.keyspace(keyspace, ttl)?;
        slf.begin(slf.py(), || Box::pin(into.put_async(&key, &value)))
    }

    /// Begins to remove a key.
    fn delete(&self, keyspace: &Bound<'_, Keyspace>, key: Data) -> PyResult<u64> {
        let into = self.keyspace(keyspace, None)?;
        self.begin(keyspace.py(), || Box::pin(into.delete_async(&key)))
    }

    /// Begins to merge an operand.
    fn merge(&self, keyspace: &Bound<'_, Keyspace>, key: Data, operand: Data) -> PyResult<u64> {
        let into = self.keyspace(keyspace, None)?;
        self.begin(keyspace.py(), || Box::pin(into.merge_async(&key, &operand)))
    }

    /// Begins to commit a batch.
    fn commit_batch(&self, batch: &Bound<'_, Batch>) -> PyResult<u64> {
        let (writes, durability) = batch.get().parts();
        self.begin(batch.py(), || {
            let Some(taken) = writes.lock().take() else { return Box::pin(std::future::ready(Err(ended()))) };
            let committing = taken.commit_async_with(durability);
            Box::pin(async move {
                committing.await.map_err(|failed| {
                    *writes.lock() = Some(*failed.given_back);
                    failed.error
                })
            })
        })
    }

    /// Begins to commit a transaction. If it is exclusive or changes keyspaces, this call commits it.
    fn commit(&self, transaction: &Bound<'_, Transaction>) -> PyResult<u64> {
        let py = transaction.py();
        transaction.get().check_may_end(py)?;
        let cell = transaction.get().cell.clone();
        self.begin(py, || {
            let Some(taken) = cell.take() else { return Box::pin(std::future::ready(Err(ended()))) };
            let committing = taken.commit_async();
            Box::pin(async move {
                committing.await.map_err(|failed| {
                    if !matches!(failed.error, Error::Conflict { .. }) {
                        cell.put_back(*failed.given_back);
                    }
                    failed.error
                })
            })
        })
    }

    /// Returns the outcomes of commits that are done: tokens with numbers of commits or exceptions.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.process.check(py)?;
        let done = py.detach(|| {
            let mut buffer = [0; 64];
            while matches!((&self.listener).read(&mut buffer), Ok(read) if read > 0) {}
            let tokens = std::mem::take(&mut *self.ready.tokens.lock());
            let mut done = Vec::new();
            for token in tokens {
                let taken = self.pending.lock().commits.remove(&token);
                let outcome = taken.and_then(|commit| self.poll(token, commit));
                done.extend(outcome.map(|outcome| (token, outcome)));
            }
            done
        });
        let outcomes = PyList::empty(py);
        for (token, outcome) in done {
            match outcome {
                Ok(seqno) => outcomes.append((token, seqno.get()))?,
                Err(error) => outcomes.append((token, raise(py, &error)))?,
            }
        }
        Ok(outcomes)
    }
}

fn ended() -> Error {
    Error::Invalid("the batch or transaction has ended".to_owned())
}
