//! Transactions that run again after conflicts.

use std::thread;
use std::time::Duration;

use crate::Result;
use crate::kv::{Kv, Transaction};

/// How often a transaction runs again after conflicts, and how long it waits in between.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// Maximum number of runs.
    pub attempts: u32,
    /// The longest wait before the second run. It doubles for each further run, up to a second.
    pub wait: Duration,
}

impl Default for Retry {
    /// 20 runs, the first wait up to 2 milliseconds.
    fn default() -> Self {
        Retry { attempts: 20, wait: Duration::from_millis(2) }
    }
}

impl Retry {
    /// Returns how long to wait after a number of runs: a random time, so that transactions in conflict do
    /// not meet again.
    pub fn pause(&self, attempts: u32) -> Duration {
        let longest = self.wait.saturating_mul(1 << attempts.saturating_sub(1).min(16));
        longest.min(Duration::from_secs(1)).mul_f64(fastrand::f64())
    }

    /// Runs `work` in a transaction, and commits.
    ///
    /// # Errors
    /// Those of `work`, [`Kv::begin`] and [`Transaction::commit`].
    /// [`OutcomeUnknown`](crate::Error::OutcomeUnknown) is returned at once: running again might do the work
    /// twice.
    #[expect(clippy::disallowed_methods, reason = "stores of other processes have no simulated clock")]
    pub fn run<T>(&self, kv: &dyn Kv, mut work: impl FnMut(&mut dyn Transaction) -> Result<T>) -> Result<T> {
        let mut attempt = 1;
        loop {
            match run_once(kv, &mut work) {
                Err(error) if error.is_retryable() && attempt < self.attempts => {
                    thread::sleep(self.pause(attempt));
                    attempt += 1;
                }
                done => return done,
            }
        }
    }
}

fn run_once<T>(kv: &dyn Kv, work: &mut impl FnMut(&mut dyn Transaction) -> Result<T>) -> Result<T> {
    let mut transaction = kv.begin()?;
    let value = work(&mut *transaction)?;
    transaction.commit()?;
    Ok(value)
}

/// Runs `work` in a transaction and commits; runs it again after conflicts, as [`Retry::default`] says.
///
/// ```
/// # fn main() -> esker_kv::Result<()> {
/// # let db = esker::Db::in_memory().map_err(esker_kv::Error::other)?;
/// use esker_kv::{Kv, Reads, Transaction, local::Local, transact};
///
/// let kv = Local::new(db);
/// let stock = kv.space("stock")?;
/// transact(&kv, |transaction| {
///     let apples = transaction.get_for_update(&stock, b"apples")?.map_or(0, |bytes| bytes[0]);
///     transaction.put(&stock, b"apples", &[apples + 1])
/// })?;
/// assert_eq!(kv.get(&stock, b"apples")?.as_deref(), Some(&[1][..]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of [`Retry::run`].
pub fn transact<T>(kv: &dyn Kv, work: impl FnMut(&mut dyn Transaction) -> Result<T>) -> Result<T> {
    Retry::default().run(kv, work)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn waits_grow_up_to_a_second() {
        let retry = Retry { attempts: 3, wait: Duration::from_millis(8) };
        for attempt in 1..100 {
            assert!(retry.pause(attempt) <= Duration::from_millis(8 << (attempt - 1).min(10)));
            assert!(retry.pause(attempt) <= Duration::from_secs(1));
        }
    }

    #[test]
    fn is_retryable_only_if_nothing_was_committed() {
        assert!(Error::Conflict.is_retryable() && Error::SnapshotTooOld(String::new()).is_retryable());
        assert!(!Error::OutcomeUnknown(String::new()).is_retryable());
        assert!(!Error::Unavailable(String::new()).is_retryable());
    }
}
