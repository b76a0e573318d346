//! The states of snapshots, batches and transactions, and how calls reach them.
//!
//! txn.1. An exclusive transaction is touched only by its lane (pool.rs), from its begin to its end. The
//!     engine counts it as that of the thread that used it last, and would let other commits of the
//!     JavaScript thread pass it.
//! - While a call waits for a lock, other calls of the transaction are refused: the JavaScript thread must
//!   not wait for the lock of another transaction, which it may have to continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use esker::{Error, Keyspace, ReadCore, Savepoint, Snapshot, Transaction, WriteBatch};
use parking_lot::Mutex;

use crate::completion::Outcome;
use crate::error::{Failure, caught};
use crate::pool::{Lane, READS};
use crate::shared::Shared;

pub(crate) enum State {
    Snapshot(Snapshot),
    Batch(Box<WriteBatch>),
    Transaction(Box<Transaction>),
    /// A commit is under way.
    Committing,
    Ended,
}

impl State {
    /// The transaction that reads and writes.
    pub(crate) fn transaction(&mut self) -> Result<&mut Transaction, Failure> {
        match self {
            State::Transaction(transaction) => Ok(transaction),
            State::Snapshot(_) => Err(Failure::invalid("a snapshot cannot be written")),
            State::Batch(_) => Err(Failure::invalid("a batch cannot be read: begin a transaction")),
            State::Committing => Err(Failure::invalid("the transaction is being committed")),
            State::Ended => Err(Failure::invalid("the transaction or snapshot has ended: begin another one")),
        }
    }
}

pub(crate) struct Txn {
    pub(crate) state: Mutex<State>,
    pub(crate) lane: Option<Lane>,
    pub(crate) savepoints: Mutex<Vec<Savepoint>>,
    pub(crate) waits_for_lock: AtomicBool,
    /// Counts an exclusive transaction in [`Shared::exclusive`] until it ends.
    pub(crate) open: Mutex<Option<Open>>,
}

/// An open exclusive transaction.
pub(crate) struct Open(Arc<Shared>);

impl Open {
    pub(crate) fn new(shared: &Arc<Shared>) -> Open {
        shared.exclusive.fetch_add(1, Ordering::SeqCst);
        Open(shared.clone())
    }

    fn count(&self) -> &AtomicUsize {
        &self.0.exclusive
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.count().fetch_sub(1, Ordering::SeqCst);
    }
}

impl Txn {
    pub(crate) fn new(state: State, lane: Option<Lane>) -> Arc<Txn> {
        Arc::new(Txn {
            state: Mutex::new(state),
            lane,
            savepoints: Mutex::default(),
            waits_for_lock: AtomicBool::new(false),
            open: Mutex::new(None),
        })
    }

    pub(crate) fn check_free(&self) -> Result<(), Failure> {
        match self.waits_for_lock.load(Ordering::SeqCst) {
            true => Err(Failure::invalid("the transaction waits for a lock: await that call first")),
            false => Ok(()),
        }
    }

    /// Runs a body and waits for its result.
    pub(crate) fn sync<R: Send + 'static>(
        self: &Arc<Self>,
        body: impl FnOnce(&mut State) -> Result<R, Failure> + Send + 'static,
    ) -> Result<R, Failure> {
        self.check_free()?;
        let Some(lane) = &self.lane else { return body(&mut self.state.lock()) };
        // txn.1
        let txn = self.clone();
        let done = lane.run_and_wait(move || caught(|| body(&mut txn.state.lock())));
        done.unwrap_or_else(|| Err(Error::Panicked("a call panicked".to_owned()).into()))
    }

    /// Runs a job for the transaction.
    pub(crate) fn job(self: &Arc<Self>, job: impl FnOnce(Result<&Mutex<State>, Failure>) + Send + 'static) {
        if let Err(why) = self.check_free() {
            return job(Err(why));
        }
        let txn = self.clone();
        match &self.lane {
            Some(lane) => lane.run(move || job(Ok(&txn.state))),
            None => READS.run(move || job(Ok(&txn.state))),
        }
    }

    pub(crate) fn end(&self, state: &mut State) {
        *state = State::Ended;
        self.savepoints.lock().clear();
        self.open.lock().take();
    }

    /// Records the end of a commit. What failed can be tried again, unless it is a conflict.
    pub(crate) fn committed(&self, outcome: Result<f64, (Error, State)>) -> crate::completion::Result {
        let mut state = self.state.lock();
        match outcome {
            Ok(seqno) => {
                self.end(&mut state);
                Ok(Outcome::Number(seqno))
            }
            Err((error, given_back)) => {
                match error {
                    Error::Conflict { .. } | Error::Closed => self.end(&mut state),
                    _ => *state = given_back,
                }
                Err(error.into())
            }
        }
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        // txn.1: a forgotten exclusive transaction ends in its lane, before the lane ends.
        if let (Some(lane), state) = (&self.lane, std::mem::replace(self.state.get_mut(), State::Ended)) {
            let open = self.open.get_mut().take();
            lane.run(move || drop((state, open)));
        }
    }
}

/// Reads in a state that is locked.
pub(crate) fn read_in<R>(
    state: &mut State,
    keyspace: &Keyspace,
    body: impl FnOnce(&dyn ReadCore) -> esker::Result<R>,
) -> Result<R, Failure> {
    match state {
        State::Snapshot(snapshot) => Ok(body(&snapshot.keyspace(keyspace))?),
        state => Ok(body(&state.transaction()?.keyspace(keyspace))?),
    }
}
