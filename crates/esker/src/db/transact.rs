//! `transact`: repeats a transaction until it commits without a conflict.
//!
//! - Between attempts it waits for a random time with a growing limit, so that two conflicting transactions
//!   do not meet again at once.
//! - After [`TRIES_BEFORE_TURN`] attempts it requests the exclusive turn (engine/writes/exclusive_turn.rs),
//!   with which it commits.
//! - A conflict or deadlock that an operation reports to `body` counts like one at the commit. After a
//!   deadlock the transaction releases the exclusive turn, because the others in the cycle may wait for it.

use std::sync::Arc;
use std::time::Duration;

use super::Db;
use super::transaction::Transaction;
use crate::engine::base::stats::add;
use crate::engine::life::handle::Handle;
use crate::engine::writes::exclusive_turn::Held;
use crate::txn::commit::{Durability, Isolation};
use crate::types::{Error, Result, SeqNo};

/// Number of conflicts after which other commits have to wait.
const TRIES_BEFORE_TURN: u32 = 8;
/// Longest wait after the first conflict. It doubles with each further one.
const WAIT_MIN: Duration = Duration::from_micros(20);
const WAIT_MAX: Duration = Duration::from_millis(2);

/// The result of [`TransactionOptions::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed<T> {
    /// What the body returned.
    pub value: T,
    /// The number of the commit. If nothing was written: the number of the newest commit.
    pub seqno: SeqNo,
    /// How many times the body ran.
    pub attempts: u32,
}

/// How a transaction is isolated, repeated and committed. Made by [`Db::transaction`].
#[derive(Clone)]
#[must_use = "call `run` or `begin`"]
pub struct TransactionOptions {
    pub(super) handle: Arc<Handle>,
    isolation: Isolation,
    durability: Durability,
    attempts_max: u32,
    repeat_for: Duration,
}

impl Db {
    /// Options of one transaction. They begin with those of the database
    /// ([`Builder::isolation`](crate::Builder::isolation),
    /// [`Builder::durability`](crate::Builder::durability)) and any number of attempts.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// # let stock = db.keyspace("stock")?;
    /// use esker::{Durability, Isolation};
    /// use std::time::Duration;
    ///
    /// let done = db
    ///     .transaction()
    ///     .isolation(Isolation::Snapshot)
    ///     .durability(Durability::Buffered)
    ///     .attempts(20)
    ///     .repeat_for(Duration::from_secs(2))
    ///     .run(|t| t.put(&stock, "apples", "7"))?;
    /// println!("commit {}, attempt {}", done.seqno, done.attempts);
    ///
    /// // Without a closure, and never with a conflict:
    /// let mut transaction = db.transaction().isolation(Isolation::Exclusive).begin();
    /// transaction.put(&stock, "pears", "5")?;
    /// transaction.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn transaction(&self) -> TransactionOptions {
        let options = &self.handle.core.options;
        TransactionOptions {
            handle: self.handle.clone(),
            isolation: options.isolation(),
            durability: options.durability(),
            attempts_max: u32::MAX,
            repeat_for: Duration::MAX,
        }
    }

    /// Begins a transaction with the options of the database: see [`transaction`](Self::transaction).
    pub fn begin(&self) -> Transaction {
        self.transaction().begin()
    }

    /// Runs `body` in a transaction and commits it. After a conflict or deadlock it waits shortly and runs
    /// `body` again in a new transaction. This includes conflicts reported by an operation in `body`, such as
    /// [`lock`](Transaction::lock); `body` returns that error. After eight conflicts the transaction is sure
    /// to make progress: other commits wait while `body` runs. Each waits up to a quarter of a second, and
    /// twice as long after each further conflict, up to 64 seconds. Keep `body` short, and without effects
    /// outside the database. [`transaction`](Self::transaction) sets the isolation, the durability and an end
    /// of the attempts.
    ///
    /// The error can be any type that [`Error`] converts into. Any other error from `body` rolls back and is
    /// returned, so `body` can give up. Whether to run again depends on how the last operation of the
    /// transaction failed, not on the error that `body` returns. If the compiler cannot infer the error type,
    /// write the closure's: `|t| -> esker::Result<()> { ... }`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let db = esker::Db::in_memory()?;
    /// # let accounts = db.keyspace("accounts")?;
    /// # accounts.fetch_add("ann", 100)?;
    /// let moved = db.transact(|t| -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut accounts = t.keyspace_mut(&accounts);
    ///     if accounts.fetch_add("ann", -30)? < 30 {
    ///         return Err("ann has not enough".into()); // nothing is written
    ///     }
    ///     accounts.fetch_add("bob", 30)?;
    ///     Ok(())
    /// });
    /// # moved?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `body`, and those of [`Transaction::commit`], except for conflicts and deadlocks.
    pub fn transact<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transaction().run(body).map(|done| done.value)
    }
}

impl TransactionOptions {
    /// Sets the isolation. Default: [`Builder::isolation`](crate::Builder::isolation).
    pub fn isolation(self, isolation: Isolation) -> Self {
        TransactionOptions { isolation, ..self }
    }

    /// Sets the durability of the commit. Default: [`Builder::durability`](crate::Builder::durability).
    pub fn durability(self, durability: Durability) -> Self {
        TransactionOptions { durability, ..self }
    }

    /// Sets how often [`run`](Self::run) runs its body, at least once. Default: until it commits.
    pub fn attempts(self, attempts: u32) -> Self {
        TransactionOptions { attempts_max: attempts, ..self }
    }

    /// Sets how long after its start [`run`](Self::run) begins another attempt. An attempt that has begun is
    /// not cut short. Default: without an end.
    pub fn repeat_for(self, time: Duration) -> Self {
        TransactionOptions { repeat_for: time, ..self }
    }

    /// Begins a transaction. An exclusive transaction waits for its turn. If it does not get it, its
    /// operations and its commit fail as [`Isolation::Exclusive`] says.
    pub fn begin(&self) -> Transaction {
        self.begin_attempt(1)
    }

    fn begin_attempt(&self, attempt: u32) -> Transaction {
        Transaction::new(self.handle.clone(), self.isolation, self.durability, attempt)
    }

    /// Runs `body` as [`Db::transact`] does, and also returns the numbers of the commit and of the attempts.
    ///
    /// # Errors
    /// Those of [`Db::transact`]. After the last attempt: that of `body` or of the commit, for example
    /// [`Conflict`](Error::Conflict).
    pub fn run<T, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<Committed<T>, E> {
        let core = &self.handle.core;
        let mut turn: Option<Held<'_>> = None;
        let mut attempts = 1;
        let end = (self.repeat_for < Duration::MAX)
            .then(|| core.env.clock.monotonic().saturating_add(self.repeat_for));
        loop {
            let mut transaction = self.begin_attempt(attempts);
            let error = match body(&mut transaction) {
                Ok(value) => match transaction.commit() {
                    Ok(seqno) => return Ok(Committed { value, seqno, attempts }),
                    Err(failed) if matches!(failed.error, Error::Conflict { .. }) => failed.error.into(),
                    Err(failed) => return Err(failed.error.into()),
                },
                Err(error) if !transaction.restart.is_due() => return Err(error),
                Err(error) => {
                    if transaction.restart.is_after_deadlock() {
                        turn = None;
                    }
                    // Releases its locks and its turn.
                    drop(transaction);
                    error
                }
            };
            add(&core.counters.conflicts, 1);
            let is_over = end.is_some_and(|end| core.env.clock.monotonic() >= end);
            if attempts >= self.attempts_max || is_over {
                return Err(error);
            }
            match &turn {
                Some(held) => held.be_patient(),
                None if attempts >= TRIES_BEFORE_TURN && self.isolation != Isolation::Exclusive => {
                    turn = core.exclusive_turn.take()
                }
                None => {}
            }
            if turn.is_none() {
                self.back_off(attempts);
            }
            attempts = attempts.saturating_add(1);
        }
    }

    /// Waits before the next attempt.
    fn back_off(&self, attempts: u32) {
        let env = &self.handle.core.env;
        let longest = (WAIT_MIN * (1 << attempts.min(10))).min(WAIT_MAX).as_nanos() as u64;
        env.clock.sleep(Duration::from_nanos(env.random.next_u64() % longest));
    }
}
