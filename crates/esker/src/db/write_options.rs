//! `WriteOptions`: how a handle of a keyspace writes.

use std::time::Duration;

use super::keyspace::Keyspace;
use crate::txn::commit::Durability;
use crate::types::expiry::Lifetime;

/// How a handle of a keyspace writes: see [`Keyspace::with`]. A [`Durability`] converts into it.
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

impl Keyspace {
    /// Returns a handle of the same keyspace that writes with these options. They replace those of this
    /// handle.
    ///
    /// - The durability is that of each commit that the handle makes. A batch or a transaction is committed
    ///   with its own durability.
    /// - The lifetime is that of each put, and of each value that begins with a merge, a
    ///   [`fetch_add`](Self::fetch_add), an [`update`](Self::update) or a
    ///   [`compare_and_swap`](Self::compare_and_swap). It also applies if the handle is passed to a batch or a
    ///   transaction, but not to an [ingest](Self::ingest).
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// use esker::{Durability, WriteOptions};
    /// use std::time::Duration;
    ///
    /// let pages = db.keyspace("pages")?;
    /// let cache = pages.with(WriteOptions::new().durability(Durability::None).ttl(Duration::from_secs(60)));
    /// cache.put("/", "<html>")?;
    /// cache.fetch_add("hits", 1)?;
    /// pages.with(Durability::Buffered).delete("/old")?;
    /// assert!(matches!(pages.ttl("hits")?, Some(esker::Ttl::Left(_))));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with(&self, options: impl Into<WriteOptions>) -> Keyspace {
        Keyspace { write: options.into(), ..self.clone() }
    }

    /// The durability of the commits that this handle makes.
    pub(super) fn durability(&self) -> Durability {
        self.write.durability.unwrap_or_else(|| self.core().options.durability())
    }
}
