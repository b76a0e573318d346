//! Sequences: growing numbers that are never returned twice, even after a crash.
//!
//! ```text
//!   stored under the key: the end of the lease
//!   next() --in memory--> n     lease used up --one synced commit--> the next lease
//!   release() --one commit--> the first unused number, if no lease follows
//! ```
//!
//! sequence.1. A number is returned only after a synced commit has stored the end of its lease.
//! sequence.2. The stored number decreases only by a release, in the transaction that finds it at the end of
//!     the released lease. So no number from there on has been returned. If a crash undoes the release,
//!     numbers are skipped.
//! - A sequence that drops releases nothing: the commit could wait for an exclusive transaction whose thread
//!   waits for the drop.
//! - The stored number never expires, whatever the default lifetime of the keyspace: without it the sequence
//!   would start again at 0.

use parking_lot::Mutex;

use super::Db;
use super::keyspace::Keyspace;
use crate::txn::commit::Durability;
use crate::types::{Error, Result};

/// A sequence of numbers, made by [`Keyspace::sequence`]. Threads can share it. Several sequences on one key,
/// even of several openings, return different numbers. As an iterator, `&Sequence` returns the next number
/// for as long as there are any; an error does not end it.
pub struct Sequence {
    keyspace: Keyspace,
    key: Vec<u8>,
    lease: u64,
    left: Mutex<std::ops::Range<u64>>,
}

impl Keyspace {
    /// Opens the sequence under a key. A new sequence starts at 0. It reserves `lease` numbers at a time by
    /// one synced commit. Numbers that it has not returned when it is dropped, or when the process or the
    /// machine ends, are skipped; [`release`](Sequence::release) gives them back. It never expires, whatever
    /// the keyspace's [default lifetime](Self::set_default_ttl). The value under the key is the first number
    /// without a lease, stored as for [`fetch_add`](Self::fetch_add).
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let ids = db.keyspace("meta")?.sequence("next id", 1000)?;
    /// assert_eq!((ids.next()?, ids.next()?), (0, 1));
    /// let three = ids.into_iter().take(3).collect::<esker::Result<Vec<_>>>()?;
    /// assert_eq!(three, [2, 3, 4]);
    /// ids.release()?; // the next sequence begins with 5
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

    /// Ends the sequence and gives back the numbers that it has reserved but not returned, so that the next
    /// lease begins with them. If another sequence has reserved numbers behind them, or the value under the
    /// key was changed otherwise, they are skipped. Programs call this before a clean end.
    ///
    /// The commit is [`Buffered`](Durability::Buffered): if a crash undoes it, the numbers are skipped.
    ///
    /// # Errors
    /// Those of [`get`](Keyspace::get) and of a commit. The numbers are then skipped or given back.
    pub fn release(self) -> Result<()> {
        let rest = self.left.into_inner();
        if rest.is_empty() {
            return Ok(());
        }
        let db = Db::new(self.keyspace.handle.clone());
        // sequence.2
        let done = db.transaction().durability(Durability::Buffered).run(|t| -> Result<()> {
            let stored = t.get(&self.keyspace, &self.key)?;
            if stored.is_some_and(|stored| *stored == rest.end.to_le_bytes()) {
                let unused = (rest.end - rest.start) as i64;
                t.keyspace_mut(&self.keyspace).fetch_add_unlimited(&self.key, -unused)?;
            }
            Ok(())
        });
        done.map(drop)
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

impl Iterator for &Sequence {
    type Item = Result<u64>;

    fn next(&mut self) -> Option<Result<u64>> {
        Some(Sequence::next(self))
    }
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sequence(\"{}\", {:?} left)", self.key.escape_ascii(), *self.left.lock())
    }
}
