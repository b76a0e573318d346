//! The class of snapshots, batches and transactions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker::{CommitError, Error, Isolation, LockMode, Transaction, TransactionOptions};
use napi::bindgen_prelude::{Env, ToNapiValue, Unknown};
use napi_derive::napi;

use crate::completion::{self, BoxFuture, Outcome, returned};
use crate::error::{Failure, caught};
use crate::options::durability;
use crate::pool::{Lane, WAITS};
use crate::shared::Shared;
use crate::txn::{Open, State, Txn};
use crate::view::NativeView;

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

    fn outcome(shared: Arc<Shared>, txn: Arc<Txn>) -> Outcome {
        let made = NativeTxn::new(shared, txn);
        Outcome::made(|env| made.into_unknown(env))
    }

    /// Begins a transaction. `None`: it waits for its turn, and is pushed as the outcome of the call.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        number: u32,
        options: TransactionOptions,
        kind: Option<Isolation>,
    ) -> Result<Option<NativeTxn>, Failure> {
        let is_exclusive = match kind {
            Some(kind) => kind == Isolation::Exclusive,
            None => shared.is_exclusive_by_default,
        };
        if !is_exclusive {
            let txn = Txn::new(State::Transaction(Box::new(options.begin())), None);
            return Ok(Some(NativeTxn::new(shared.clone(), txn)));
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
                Ok(NativeTxn::outcome(shared, begun))
            });
        };
        if let Some(lane) = &txn.lane {
            lane.run(begin);
        }
        Ok(None)
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
    pub fn commit<'env>(
        &self,
        env: &'env Env,
        number: u32,
        lasting: Option<String>,
    ) -> napi::Result<Unknown<'env>> {
        returned(env, caught(|| self.begin_commit(number, lasting)).unwrap_or_else(|why| Some(Err(why))))
    }

    fn begin_commit(
        &self,
        number: u32,
        lasting: Option<String>,
    ) -> Result<Option<completion::Result>, Failure> {
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
            return Ok(None);
        }
        let lasting = lasting.as_deref().map_or(Ok(self.shared.durability), durability)?;
        let mut state = self.txn.state.lock();
        let begin: Box<dyn FnOnce() -> BoxFuture + Send>;
        let size;
        match std::mem::replace(&mut *state, State::Committing) {
            State::Batch(batch) => {
                size = batch.byte_len();
                begin = Box::new(move || {
                    let commit = batch.commit_async_with(lasting);
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
                return Ok(None);
            }
        }
        drop(state);
        Ok(self.shared.commits.submit(&done, number, size, begin))
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
