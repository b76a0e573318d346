//! `transact`: repeats a transaction until it commits without a conflict.
//!
//! - Between attempts it waits for a random time with a growing limit, so that two conflicting transactions
//!   do not meet again at once.
//! - After [`TRIES_BEFORE_TURN`] attempts it requests the exclusive turn (engine/writes/exclusive_turn.rs),
//!   with which it commits.
//! - A conflict or deadlock that an operation reports to `body` counts like one at the commit. After a
//!   deadlock the transaction releases the exclusive turn, because the others in the cycle may wait for it.

use std::time::Duration;

use super::Db;
use super::transaction::Transaction;
use crate::engine::base::stats::add;
use crate::engine::writes::exclusive_turn::Held;
use crate::txn::commit::{Durability, Isolation};
use crate::types::{Error, Result, SeqNo};

/// Number of conflicts after which other commits have to wait.
const TRIES_BEFORE_TURN: u32 = 8;
/// Longest wait after the first conflict. It doubles with each further one.
const WAIT_MIN: Duration = Duration::from_micros(20);
const WAIT_MAX: Duration = Duration::from_millis(2);

/// The result of [`Db::transact_with`].
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

impl Db {
    /// Runs `body` in a transaction and commits it. After a conflict or deadlock it waits shortly and runs
    /// `body` again in a new transaction. This includes conflicts reported by an operation in `body`, such as
    /// [`lock`](Transaction::lock); `body` returns that error. After eight conflicts the transaction is sure
    /// to make progress: other commits wait while `body` runs. Each waits up to a quarter of a second, and
    /// twice as long after each further conflict, up to 64 seconds. Keep `body` short, and without effects
    /// outside the database.
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
        self.transact_with(self.handle.core.options.durability(), body).map(|done| done.value)
    }

    /// Same as [`transact`](Self::transact), with this durability. Also returns the number of attempts and of
    /// the commit.
    ///
    /// # Errors
    /// Those of [`transact`](Self::transact).
    pub fn transact_with<T, E: From<Error>>(
        &self,
        durability: Durability,
        body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<Committed<T>, E> {
        self.transact_as(self.handle.core.options.isolation(), durability, body)
    }

    /// Same as `transact_with`, with this isolation.
    pub(super) fn transact_as<T, E: From<Error>>(
        &self,
        isolation: Isolation,
        durability: Durability,
        mut body: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<Committed<T>, E> {
        let core = &self.handle.core;
        let mut turn: Option<Held<'_>> = None;
        let mut attempts = 1;
        loop {
            let mut transaction = Transaction::new(self.handle.clone(), isolation, attempts);
            match body(&mut transaction) {
                Ok(value) => match transaction.commit_with(durability) {
                    Ok(seqno) => return Ok(Committed { value, seqno, attempts }),
                    Err(failed) if matches!(failed.error, Error::Conflict { .. }) => {}
                    Err(failed) => return Err(failed.error.into()),
                },
                Err(error) if !transaction.restart.is_due() => return Err(error),
                Err(_) => {
                    if transaction.restart.is_after_deadlock() {
                        turn = None;
                    }
                    // Releases its locks and its turn.
                    drop(transaction);
                }
            }
            add(&core.counters.conflicts, 1);
            match &turn {
                Some(held) => held.be_patient(),
                None if attempts >= TRIES_BEFORE_TURN && isolation != Isolation::Exclusive => {
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
