//! `WriteOptions`: how a handle of a keyspace writes.

use std::time::Duration;

use crate::txn::commit::Durability;
use crate::types::expiry::Lifetime;

/// How a handle of a keyspace writes: see [`Keyspace::with`](crate::Keyspace::with). A [`Durability`]
/// converts into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub(super) durability: Option<Durability>,
    pub(super) lifetime: Lifetime,
}

impl WriteOptions {
    /// The durability of the database, and the default lifetime of the keyspace.
    pub fn new() -> Self {
        WriteOptions::default()
    }

    /// Commits have this durability.
    #[must_use]
    pub fn durability(self, durability: Durability) -> Self {
        WriteOptions { durability: Some(durability), ..self }
    }

    /// New values expire after this time.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        WriteOptions { lifetime: Lifetime::For(ttl), ..self }
    }

    /// New values never expire, whatever the default lifetime of the keyspace.
    #[must_use]
    pub fn without_ttl(self) -> Self {
        WriteOptions { lifetime: Lifetime::Unlimited, ..self }
    }
}

impl From<Durability> for WriteOptions {
    fn from(durability: Durability) -> Self {
        WriteOptions::new().durability(durability)
    }
}
