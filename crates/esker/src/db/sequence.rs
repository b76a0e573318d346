//! Sequences: numbers that grow and are never given out twice, whatever is lost.
//!
//! ```text
//!   stored under the key: the end of the lease      next() --in memory--> n     the lease is over --one synced commit--> the next lease
//! ```
//!
//! sequence.1. A number is given out only once a synced commit has said that the numbers up to the end of its lease are.
//! sequence.2. What is stored never expires, whatever lifetime the keyspace gives to others: a sequence whose record is gone begins again.

use parking_lot::Mutex;

use super::Db;
use super::keyspace::Keyspace;
use crate::txn::commit::Durability;
use crate::types::{Error, Result};

/// A sequence of numbers: made by [`Keyspace::sequence`]. Threads share it; several of one key, also of several openings, give out different
/// numbers.
pub struct Sequence {
    keyspace: Keyspace,
    key: Vec<u8>,
    lease: u64,
    left: Mutex<std::ops::Range<u64>>,
}

impl Keyspace {
    /// The sequence under a key, which begins at 0. It takes `lease` numbers at a time, by one synced commit: those that it has not given out when it is
    /// dropped, or when the process or the machine ends, are left out. It never expires, whatever the keyspace's
    /// [default lifetime](Self::set_default_ttl) is. The value under the key is a number for [`fetch_add`](Self::fetch_add):
    /// the first that is not leased.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let ids = db.keyspace("meta")?.sequence("next id", 1000)?;
    /// assert_eq!((ids.next()?, ids.next()?), (0, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a lease of 0 or of more than 2^32, and the errors of [`get`](Self::get).
    pub fn sequence(&self, key: impl AsRef<[u8]>, lease: u64) -> Result<Sequence> {
        if lease == 0 || lease > 1 << 32 {
            return Err(Error::Invalid(format!("a lease of {lease} numbers: take 1 to 2^32")));
        }
        let key = key.as_ref().to_vec();
        self.contains(&key)?;
        Ok(Sequence { keyspace: self.clone(), key, lease, left: Mutex::new(0..0) })
    }
}

impl Sequence {
    /// The next number. Where the lease is over this waits for a synced commit.
    ///
    /// # Errors
    /// Those of [`Keyspace::fetch_add`].
    pub fn next(&self) -> Result<u64> {
        let mut left = self.left.lock();
        if left.is_empty() {
            *left = self.take_lease()?;
        }
        let next = left.start;
        left.start += 1;
        Ok(next)
    }

    /// sequence.1
    fn take_lease(&self) -> Result<std::ops::Range<u64>> {
        let db = Db::new(self.keyspace.handle.clone());
        let lease = self.lease as i64;
        let taken = db.transact_with(Durability::Sync, |t| -> Result<i64> {
            t.keyspace_mut(&self.keyspace).fetch_add_unlimited(&self.key, lease)
        })?;
        let start = u64::try_from(taken.value)
            .map_err(|_| Error::Invalid(format!("a sequence that has come to {}", taken.value)))?;
        Ok(start..start + self.lease)
    }
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sequence(\"{}\", {:?} left)", self.key.escape_ascii(), *self.left.lock())
    }
}
