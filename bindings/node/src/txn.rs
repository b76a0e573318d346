//! Snapshots, batches and transactions.
//!
//! txn.1. An exclusive transaction is touched only by its lane (pool.rs), from its begin to its end. The
//!     engine counts it as that of the thread that used it last, and would let other commits of the
//!     JavaScript thread pass it.
//! - While a call waits for a lock, other calls of the transaction are refused: the JavaScript thread must
//!   not wait for the lock of another transaction, which it may have to continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use esker::{
    CommitError, Error, Isolation, LockMode, Savepoint, Snapshot, Transaction, TransactionOptions, WriteBatch,
};
use napi::bindgen_prelude::Env;
use napi_derive::napi;
use parking_lot::Mutex;

use crate::completion::{BoxFuture, Outcome};
use crate::db::Shared;
use crate::error::{Failure, caught};
use crate::options::durability;
use crate::pool::{Lane, READS, WAITS};
use crate::view::NativeView;

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
    state: Mutex<State>,
    lane: Option<Lane>,
    savepoints: Mutex<Vec<Savepoint>>,
    waits_for_lock: AtomicBool,
    /// Counts an exclusive transaction in [`Shared::exclusive`] until it ends.
    open: Mutex<Option<Open>>,
}

/// An open exclusive transaction.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Open {
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

    fn check_free(&self) -> Result<(), Failure> {
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

    fn end(&self, state: &mut State) {
        *state = State::Ended;
        self.savepoints.lock().clear();
        self.open.lock().take();
    }

    /// Records the end of a commit. What failed can be tried again, unless it is a conflict.
    fn committed(&self, outcome: Result<f64, (Error, State)>) -> crate::completion::Result {
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

fn of_transaction(failed: CommitError<Transaction>) -> (Error, State) {
    (failed.error, State::Transaction(failed.given_back))
}

#[napi]
pub struct NativeTxn {
    shared: Arc<Shared>,
    txn: Arc<Txn>,
}

#[napi]
impl NativeTxn {
    pub(crate) fn new(shared: Arc<Shared>, txn: Arc<Txn>) -> NativeTxn {
        NativeTxn { shared, txn }
    }

    /// Begins a transaction and pushes it as the outcome of a call.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        number: u32,
        options: TransactionOptions,
        kind: Option<Isolation>,
    ) -> Result<(), Failure> {
        let is_exclusive = match kind {
            Some(kind) => kind == Isolation::Exclusive,
            None => shared.is_exclusive_by_default,
        };
        if !is_exclusive {
            let txn = Txn::new(State::Transaction(Box::new(options.begin())), None);
            shared.done.push(number, Ok(Outcome::Txn(NativeTxn::new(shared.clone(), txn))));
            return Ok(());
        }
        let lane = Lane::start("esker-exclusive")
            .map_err(|error| Failure::invalid(format!("no thread can be started: {error}")))?;
        let txn = Txn::new(State::Ended, Some(lane));
        *txn.open.lock() = Some(Open::new(shared));
        let (begun, shared) = (txn.clone(), shared.clone());
        let begin = move || {
            let done = shared.done.clone();
            done.finish(number, || {
                *begun.state.lock() = State::Transaction(Box::new(options.begin()));
                Ok(Outcome::Txn(NativeTxn::new(shared, begun)))
            });
        };
        if let Some(lane) = &txn.lane {
            lane.run(begin);
        }
        Ok(())
    }

    /// Returns a keyspace as the transaction sees it.
    #[napi]
    pub fn view(&self, keyspace: &NativeView) -> NativeView {
        keyspace.within(self.txn.clone())
    }

    /// Returns the number of the newest commit that it reads.
    #[napi(catch_unwind)]
    pub fn seqno(&self, env: &Env) -> napi::Result<f64> {
        let seqno = self.txn.sync(|state| match state {
            State::Snapshot(snapshot) => Ok(snapshot.seqno().get() as f64),
            state => Ok(state.transaction()?.snapshot().seqno().get() as f64),
        });
        seqno.map_err(|why| why.thrown(env))
    }

    /// Commits. `lasting` is the durability of a batch; that of a transaction is set when it begins.
    #[napi(catch_unwind)]
    pub fn commit(&self, number: u32, lasting: Option<String>) {
        let done = self.shared.done.clone();
        if let Err(why) = caught(|| self.begin_commit(number, lasting)) {
            done.push(number, Err(why));
        }
    }

    fn begin_commit(&self, number: u32, lasting: Option<String>) -> Result<(), Failure> {
        let (txn, done) = (self.txn.clone(), self.shared.done.clone());
        txn.check_free()?;
        if let Some(lane) = &self.txn.lane {
            lane.run(move || {
                done.finish(number, || {
                    txn.state.lock().transaction()?;
                    let state = std::mem::replace(&mut *txn.state.lock(), State::Committing);
                    let State::Transaction(transaction) = state else { return Ok(Outcome::Nothing) };
                    let outcome = transaction.commit().map(|seqno| seqno.get() as f64);
                    txn.committed(outcome.map_err(of_transaction))
                });
            });
            return Ok(());
        }
        let lasting = lasting.as_deref().map_or(Ok(self.shared.durability), durability)?;
        let mut state = self.txn.state.lock();
        let begin: Box<dyn FnOnce() -> BoxFuture + Send>;
        let size;
        match std::mem::replace(&mut *state, State::Committing) {
            State::Batch(batch) => {
                size = batch.byte_len();
                begin = Box::new(move || {
                    let commit = batch.commit_async(lasting);
                    Box::pin(async move {
                        let outcome = commit.await.map(|seqno| seqno.get() as f64);
                        txn.committed(
                            outcome.map_err(|failed| (failed.error, State::Batch(failed.given_back))),
                        )
                    })
                });
            }
            State::Transaction(transaction) => {
                size = transaction.written_bytes();
                begin = Box::new(move || {
                    let commit = transaction.commit_async();
                    Box::pin(async move {
                        let outcome = commit.await.map(|seqno| seqno.get() as f64);
                        txn.committed(outcome.map_err(of_transaction))
                    })
                });
            }
            other => {
                *state = other;
                state.transaction()?;
                return Ok(());
            }
        }
        drop(state);
        self.shared.commits.submit(&done, number, size, begin);
        Ok(())
    }

    /// Drops the writes, or the snapshot.
    #[napi(catch_unwind)]
    pub fn rollback(&self) {
        let txn = self.txn.clone();
        let end = move || {
            let mut state = txn.state.lock();
            if !matches!(*state, State::Committing) {
                txn.end(&mut state);
            }
        };
        match &self.txn.lane {
            Some(lane) => lane.run(end),
            None if self.txn.waits_for_lock.load(Ordering::SeqCst) => WAITS.run(end),
            None => end(),
        }
    }

    /// Marks a state to which `rollbackTo` can return. Returns its number.
    #[napi(catch_unwind)]
    pub fn savepoint(&self, env: &Env) -> napi::Result<u32> {
        let txn = self.txn.clone();
        let mark = move |state: &mut State| {
            let point = state.transaction()?.savepoint();
            let mut points = txn.savepoints.lock();
            points.push(point);
            Ok(points.len() as u32)
        };
        self.txn.sync(mark).map_err(|why| why.thrown(env))
    }

    /// Undoes all writes since a savepoint. Later ones end; this one stays.
    #[napi(catch_unwind)]
    pub fn rollback_to(&self, env: &Env, number: u32) -> napi::Result<()> {
        let txn = self.txn.clone();
        let undo = move |state: &mut State| {
            let transaction = state.transaction()?;
            let mut points = txn.savepoints.lock();
            let keep = number as usize;
            if keep == 0 || keep > points.len() {
                return Err(Error::SavepointGone.into());
            }
            points.truncate(keep);
            Ok(transaction.rollback_to(&points[keep - 1])?)
        };
        self.txn.sync(undo).map_err(|why| why.thrown(env))
    }

    /// Locks a key until the transaction ends.
    #[napi(catch_unwind)]
    pub fn lock(&self, number: u32, view: &NativeView, key: &[u8], shared: bool) {
        let (done, keyspace, key) = (self.shared.done.clone(), view.keyspace().clone(), key.to_vec());
        let mode = if shared { LockMode::Shared } else { LockMode::Exclusive };
        if let Err(why) = self.txn.check_free() {
            return done.push(number, Err(why));
        }
        self.txn.waits_for_lock.store(true, Ordering::SeqCst);
        let txn = self.txn.clone();
        let job = move || {
            let outcome = caught(|| {
                txn.state.lock().transaction()?.lock(&keyspace, key, mode)?;
                Ok(Outcome::Nothing)
            });
            txn.waits_for_lock.store(false, Ordering::SeqCst);
            done.push(number, outcome);
        };
        match &self.txn.lane {
            Some(lane) => lane.run(job),
            None => WAITS.run(job),
        }
    }
}
