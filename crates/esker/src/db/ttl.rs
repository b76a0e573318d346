//! The remaining lifetime of an entry.

use std::time::Duration;

use crate::read::time::Time;
use crate::types::expiry::Expiry;

/// The remaining lifetime of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// The entry does not expire.
    Unlimited,
    /// The entry expires after this time, in whole milliseconds.
    Left(Duration),
}

impl Ttl {
    /// Returns the remaining lifetime of an entry with this expiry.
    pub(super) fn until(expiry: Option<Expiry>, time: &Time) -> Self {
        match expiry {
            None => Ttl::Unlimited,
            Some(expiry) => Ttl::Left(Duration::from_millis(expiry.ms().saturating_sub(time.now_ms()))),
        }
    }
}
