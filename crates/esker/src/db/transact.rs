//! `transact`: runs a transaction again until it meets no conflict.
//!
//! transact.1. Between tries it waits, longer each time and by chance, so that two that conflict do not meet again at once.
//! transact.2. After [`TRIES_BEFORE_TURN`] tries it asks for the exclusive turn (engine/writes/exclusive_turn.rs): with it, it commits.
//! transact.3. A conflict or deadlock that an operation of the transaction reports to `body` counts like one at the commit. After a deadlock the
//!      transaction gives up the exclusive turn: the others in the cycle may wait for it.

use std::time::Duration;

use super::Db;
use super::transaction::Transaction;
use crate::engine::base::stats::add;
use crate::engine::writes::exclusive_turn::Held;
use crate::txn::commit::{Durability, Isolation};
use crate::types::{Error, Result, SeqNo};

/// After so many conflicts others have to wait.
const TRIES_BEFORE_TURN: u32 = 8;
/// The longest wait after the first conflict; it doubles.
const WAIT_MIN: Duration = Duration::from_micros(20);
const WAIT_MAX: Duration = Duration::from_millis(2);

/// What [`Db::transact_with`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed<T> {
    /// What the body returned.
    pub value: T,
    /// The number of the commit; of one that wrote nothing, that of the newest commit.
    pub seqno: SeqNo,
    /// How often the body ran.
    pub attempts: u32,
}

impl Db {
    /// Runs `body` in a transaction and commits it. On a conflict or deadlock it runs `body` again with a new transaction, after a short pause, also
    /// if an operation in `body` reports it, such as [`lock`](Transaction::lock): `body` passes that error on. After eight conflicts it
    /// makes sure of progress: other threads' commits wait while `body` runs. Each waits for a quarter of a second at the most, and twice as
    /// long after each further conflict, up to 64 seconds. Keep `body` short, and without effects outside of the database.
    ///
    /// The error is any type that [`Error`] converts into. Any other error from `body` rolls back and is returned: so `body` can give up. An error is
    /// taken for a conflict or deadlock if that is how the last operation of the transaction failed, whatever `body` makes of it.
    /// Where nothing else says what type it is, write the closure's: `|t| -> esker::Result<()> { ... }`.
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

    /// [`transact`](Self::transact) with a durability of its own. It also says how often it ran, and as which commit.
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

    /// The same with an isolation of its own.
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
                // transact.3
                Err(error) if !transaction.restart.is_due() => return Err(error),
                Err(_) => {
                    if transaction.restart.is_after_deadlock() {
                        turn = None;
                    }
                    // Its locks and its turn.
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

    /// transact.1
    fn back_off(&self, attempts: u32) {
        let env = &self.handle.core.env;
        let longest = (WAIT_MIN * (1 << attempts.min(10))).min(WAIT_MAX).as_nanos() as u64;
        env.clock.sleep(Duration::from_nanos(env.random.next_u64() % longest));
    }
}
