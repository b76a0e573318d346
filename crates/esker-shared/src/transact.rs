//! `transact`: repeats a transaction until it commits.
//!
//! After [`TRIES_BEFORE_EXCLUSIVE`] attempts the transaction is exclusive, so that it is sure to make
//! progress.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use esker::{Durability, Isolation};

use crate::error::{Error, Result};
use crate::inner::Opened;
use crate::protocol::WireIsolation;
use crate::transaction::SharedTransaction;

/// Number of attempts after which other commits have to wait.
const TRIES_BEFORE_EXCLUSIVE: u32 = 8;
/// Longest wait after the first attempt. It doubles with each further one.
const WAIT_MIN: Duration = Duration::from_micros(50);
const WAIT_MAX: Duration = Duration::from_millis(4);

/// How a transaction is isolated, repeated and committed. Made by
/// [`Shared::transaction`](crate::Shared::transaction).
#[derive(Clone)]
#[must_use = "call `run` or `begin`"]
pub struct TransactionOptions {
    inner: Arc<Opened>,
    isolation: Isolation,
    durability: Option<Durability>,
    attempts_max: u32,
}

impl TransactionOptions {
    pub(crate) fn new(inner: &Arc<Opened>) -> Self {
        let (isolation, durability, attempts_max) = (Isolation::Serializable, None, u32::MAX);
        TransactionOptions { inner: inner.clone(), isolation, durability, attempts_max }
    }

    /// Sets the isolation. Default: [`Isolation::Serializable`].
    pub fn isolation(self, isolation: Isolation) -> Self {
        TransactionOptions { isolation, ..self }
    }

    /// Sets the durability of the commit, at least [`Buffered`](Durability::Buffered). Default: that of the
    /// host's database.
    pub fn durability(self, durability: Durability) -> Self {
        TransactionOptions { durability: Some(durability), ..self }
    }

    /// Sets how often [`run`](Self::run) runs its body, at least once. Default: until it commits.
    pub fn attempts(self, attempts: u32) -> Self {
        TransactionOptions { attempts_max: attempts, ..self }
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`Error::NoHost`]; [`Error::Db`].
    pub fn begin(&self) -> Result<SharedTransaction> {
        self.begin_attempt(1)
    }

    fn begin_attempt(&self, attempt: u32) -> Result<SharedTransaction> {
        let isolation = match self.isolation {
            _ if attempt > TRIES_BEFORE_EXCLUSIVE => WireIsolation::Exclusive,
            Isolation::Serializable => WireIsolation::Serializable,
            Isolation::Snapshot => WireIsolation::Snapshot,
            Isolation::Exclusive => WireIsolation::Exclusive,
        };
        SharedTransaction::begin(&self.inner, isolation, self.durability)
    }

    /// Runs `body` in a transaction and commits it: see [`Shared::transact`](crate::Shared::transact).
    ///
    /// # Errors
    /// Those of `body` and of [`SharedTransaction::commit`]. After the last attempt, also conflicts,
    /// deadlocks and [`Error::HostGone`].
    pub fn run<T, E: From<Error>>(
        &self,
        mut body: impl FnMut(&mut SharedTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut attempts = 1;
        loop {
            let mut transaction = self.begin_attempt(attempts)?;
            let error = match body(&mut transaction) {
                Ok(value) => match transaction.commit() {
                    Ok(_) => return Ok(value),
                    Err(error) if error.asks_for_restart() => error.into(),
                    Err(error) => return Err(error.into()),
                },
                Err(error) if !transaction.can_restart() => return Err(error),
                Err(error) => {
                    // Releases its locks.
                    drop(transaction);
                    error
                }
            };
            if attempts >= self.attempts_max {
                return Err(error);
            }
            back_off(attempts);
            attempts = attempts.saturating_add(1);
        }
    }
}

/// Waits before the next attempt, for a random time.
fn back_off(attempts: u32) {
    let longest = (WAIT_MIN * (1 << attempts.min(10))).min(WAIT_MAX).as_nanos() as u64;
    let random = RandomState::new().hash_one(attempts);
    std::thread::sleep(Duration::from_nanos(random % longest));
}
