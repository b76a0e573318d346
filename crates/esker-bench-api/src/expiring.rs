//! Entries that expire: what suite `time` asks of an engine.
//!
//! ```text
//! Engine --open_expiring(dir)--> Expiring --put(key, value, ttl), get, scan
//! ```
//!
//! bench_expiring.1. Reads find an entry until a second before its time to live is over, since some engines count whole seconds. From then on they do not
//!     find it, however long it stays in the files.

use std::time::{Duration, Instant};

use crate::engine::Failure;

/// An open database with one ordered map in it, whose entries may expire.
pub trait Expiring: Send + Sync {
    /// Puts one entry in a transaction of its own. It expires when `ttl` is over; without one, never. The commit is as durable as the database was
    /// opened for.
    fn put(&self, key: &[u8], value: &[u8], ttl: Option<Duration>) -> Result<(), Failure>;

    /// Shows the value of `key` to `visit`; false when there is none, or when it has expired.
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Failure>;

    /// Shows all entries that have not expired, in key order; returns how many there were.
    fn scan(&self, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64, Failure>;

    /// As [`Store::drain`](crate::Store::drain).
    fn drain(&self, _deadline: Instant) -> Result<(), Failure> {
        Ok(())
    }
}
