//! Sequences: growing numbers that are never returned twice, even after a crash.
//!
//! ```text
//!   stored under the key: the end of the lease
//!   next() --in memory--> n     lease used up --one synced commit--> the next lease
//! ```
//!
//! sequence.1. A number is returned only after a synced commit has stored the end of its lease.
//! - The stored number never expires, whatever the default lifetime of the keyspace: without it the sequence
//!   would start again at 0.

use parking_lot::Mutex;

use super::Db;
use super::keyspace::Keyspace;
use crate::txn::commit::Durability;
use crate::types::{Error, Result};

/// A sequence of numbers, made by [`Keyspace::sequence`]. Threads can share it. Several sequences on one key,
/// even of several openings, return different numbers.
pub struct Sequence {
    keyspace: Keyspace,
    key: Vec<u8>,
    lease: u64,
    left: Mutex<std::ops::Range<u64>>,
}

impl Keyspace {
    /// Opens the sequence under a key. A new sequence starts at 0. It reserves `lease` numbers at a time by
    /// one synced commit. Numbers that it has not returned when it is dropped, or when the process or the
    /// machine ends, are skipped. It never expires, whatever the keyspace's [default
    /// lifetime](Self::set_default_ttl). The value under the key is the first number without a lease, stored
    /// as for [`fetch_add`](Self::fetch_add).
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
            return Err(Error::Invalid(format!("a lease of {lease} numbers: it must be 1 to 2^32")));
        }
        let key = key.as_ref().to_vec();
        self.contains(&key)?;
        Ok(Sequence { keyspace: self.clone(), key, lease, left: Mutex::new(0..0) })
    }
}

impl Sequence {
    /// Returns the next number. If the lease is used up, this waits for a synced commit.
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

    /// Reserves the next numbers (sequence.1).
    fn take_lease(&self) -> Result<std::ops::Range<u64>> {
        let db = Db::new(self.keyspace.handle.clone());
        let lease = self.lease as i64;
        let taken = db.transaction().durability(Durability::Sync).run(|t| -> Result<i64> {
            t.keyspace_mut(&self.keyspace).fetch_add_unlimited(&self.key, lease)
        })?;
        let start = u64::try_from(taken.value)
            .map_err(|_| Error::Invalid(format!("the sequence has a negative number: {}", taken.value)))?;
        Ok(start..start + self.lease)
    }
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sequence(\"{}\", {:?} left)", self.key.escape_ascii(), *self.left.lock())
    }
}
