//! Entries that expire: the interface for suite `time`.
//!
//! ```text
//! Engine --open_expiring(dir)--> Expiring --put(key, value, ttl), get, scan
//! ```
//!
//! Reads find an entry until a second before its time to live ends, because some engines count whole seconds.
//! They never find it after its end, however long it stays in the files.

use std::time::{Duration, Instant};

use crate::store::{Result, VisitItem};

/// An open database with one ordered map, whose entries may expire.
pub trait Expiring: Send + Sync {
    /// Puts one entry in a transaction of its own. It expires after `ttl`, or never. The commit has the
    /// durability given at the opening.
    fn put(&self, key: &[u8], value: &[u8], ttl: Option<Duration>) -> Result<()>;

    /// Passes the value of `key` to `visit`. Returns false if there is none or it has expired.
    fn get(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Passes all entries that have not expired to `visit`, in key order. Returns their number.
    fn scan(&self, visit: VisitItem<'_>) -> Result<u64>;

    /// As [`Store::drain`](crate::Store::drain).
    fn drain(&self, _deadline: Instant) -> Result<()> {
        Ok(())
    }
}
