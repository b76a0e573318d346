//! Asynchronous commits: one thread commits for all callers, and wakes each caller when its commit is done.
//!
//! ```text
//!   put_async, commit_async --> queue --thread "esker-commit": as one group--> pipeline --> futures
//!                           `-- a commit that waits for nothing (txn/at_once.rs): pipeline
//! ```
//!
//! committer.1. Commits are made in the order of the queue. A commit that waits for nothing is made by its
//!     caller, without the queue, once all queued commits have their outcomes.
//! - Each future gets an outcome, even if the database is closed meanwhile.
//! - The queue is bounded. While it is full, callers wait.
//! - A caller with an open exclusive transaction commits in its own thread: the commit thread
//!   would wait for that transaction.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::engine::writes::Writes;
use crate::txn::commit::CommitRequest;
use crate::types::{Error, Result, SeqNo};

/// Maximum bytes of queued commits.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// A commit that another thread makes: a future of the commit's number. The commit proceeds whether or not
/// the future is awaited, even if it is dropped. Works with any runtime.
#[derive(Debug)]
#[must_use = "await it to learn whether the commit succeeded"]
pub struct Committing(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<SeqNo>>,
    waker: Option<Waker>,
}

impl Committing {
    /// A finished commit.
    pub(crate) fn done(outcome: Result<SeqNo>) -> Self {
        Committing(Arc::new(Mutex::new(State { outcome: Some(outcome), waker: None })))
    }
}

impl Future for Committing {
    type Output = Result<SeqNo>;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A queued commit. Its future gets an outcome at the latest when this is dropped.
struct Job {
    request: Option<CommitRequest>,
    state: Arc<Mutex<State>>,
    has_ended: bool,
}

impl Job {
    fn end(&mut self, outcome: Result<SeqNo>) {
        self.has_ended = true;
        let mut state = self.state.lock();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Err(Error::Closed));
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    bytes: usize,
    is_running: bool,
    /// Whether the thread makes commits that it has taken.
    is_busy: bool,
    is_ended: bool,
}

/// The queue of asynchronous commits.
#[derive(Default)]
pub(crate) struct Committer {
    queue: Mutex<Queue>,
    filled: Condvar,
    /// Signalled when the thread has taken the queue, or has ended.
    taken: Condvar,
}

impl Committer {
    /// Accepts no further commits. The thread makes those in the queue and ends.
    pub(in crate::engine) fn end(&self) {
        self.queue.lock().is_ended = true;
        self.filled.notify_all();
        self.taken.notify_all();
    }

    /// Queues a commit, unless the caller has to make it. Waits while the queue is full.
    pub(in crate::engine) fn push(&self, request: &mut Option<CommitRequest>) -> Option<Committing> {
        let bytes = request.as_ref()?.set.byte_len();
        let mut queue = self.queue.lock();
        let is_over = |queue: &Queue| queue.is_ended || !queue.is_running;
        let is_full = |queue: &Queue| !queue.jobs.is_empty() && queue.bytes + bytes > WAITING_BYTES_MAX;
        self.taken.wait_while(&mut queue, |queue| !is_over(queue) && is_full(queue));
        if is_over(&queue) {
            return None;
        }
        let state = Arc::<Mutex<State>>::default();
        queue.bytes += bytes;
        queue.jobs.push_back(Job { request: request.take(), state: state.clone(), has_ended: false });
        drop(queue);
        self.filled.notify_one();
        Some(Committing(state))
    }

    /// Returns whether all queued commits have their outcomes.
    pub(in crate::engine) fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.jobs.is_empty() && !queue.is_busy && !queue.is_ended
    }

    /// Records that the thread runs. Returns whether it was running already.
    pub(in crate::engine) fn begin(&self) -> bool {
        std::mem::replace(&mut self.queue.lock().is_running, true)
    }

    /// Fails all queued commits, because the thread has ended.
    pub(in crate::engine) fn abandon(&self) {
        let mut queue = self.queue.lock();
        queue.is_running = false;
        let jobs = std::mem::take(&mut queue.jobs);
        drop(queue);
        self.taken.notify_all();
        drop(jobs);
    }

    /// Waits for commits and takes all of them. Returns `None` at the end.
    fn take(&self) -> Option<VecDeque<Job>> {
        let mut queue = self.queue.lock();
        queue.is_busy = false;
        self.filled.wait_while(&mut queue, |queue| queue.jobs.is_empty() && !queue.is_ended);
        let jobs = std::mem::take(&mut queue.jobs);
        queue.bytes = 0;
        queue.is_busy = !jobs.is_empty();
        self.taken.notify_all();
        (!jobs.is_empty()).then_some(jobs)
    }
}

impl Writes {
    pub(in crate::engine) fn commit_for_others(&self) {
        /// Fails the queued commits when the thread ends, even by a panic.
        struct Abandon<'a>(&'a Committer);
        impl Drop for Abandon<'_> {
            fn drop(&mut self) {
                self.0.abandon();
            }
        }
        let _abandon = Abandon(&self.committer);
        while let Some(mut jobs) = self.committer.take() {
            let requests = jobs.iter_mut().filter_map(|job| job.request.take()).collect();
            let mut outcomes = self.submit_group(requests).into_iter();
            for mut job in jobs {
                job.end(outcomes.next().unwrap_or(Err(Error::Closed)));
            }
        }
    }
}
