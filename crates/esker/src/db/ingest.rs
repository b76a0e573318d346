//! `Ingest`: commits sorted pairs and finished tables at once, without log and memtable.

use std::path::Path;

use super::commit_error::CommitError;
use super::keyspace::Keyspace;
use crate::engine::life::ingest::SortedPairs;
use crate::txn::commit::Durability;
use crate::types::expiry::Lifetime;
use crate::types::{Result, SeqNo};

/// Commits pairs in key order, and tables made by [`sstable::Writer`](crate::sstable::Writer), all or none.
/// The pairs are written once, as tables of the database. They overwrite existing keys. Made by
/// [`Keyspace::ingest`].
///
/// Memory use does not grow with the number of pairs. Other threads read and write meanwhile. Like a batch,
/// an ingest does not check for conflicts. Dropping it without a commit leaves no trace.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let (path, file) = (dir.path().join("db"), dir.path().join("squares.sst"));
/// let mut writer = esker::sstable::Writer::create(&file)?;
/// for n in 1000..2000_u32 {
///     writer.put(&n.to_be_bytes(), &(n * n).to_be_bytes())?;
/// }
/// writer.finish()?;
///
/// let squares = esker::Db::open(&path)?.keyspace("squares")?;
/// let mut ingest = squares.ingest();
/// for n in 0..1000_u32 {
///     ingest.put(n.to_be_bytes(), (n * n).to_be_bytes())?;
/// }
/// ingest.table(&file)?;
/// assert!(ingest.put(7_u32.to_be_bytes(), "").is_err(), "keys ascend");
/// ingest.commit()?;
/// assert_eq!(squares.len()?, 2000);
/// # Ok(())
/// # }
/// ```
pub struct Ingest {
    keyspace: Keyspace,
    pairs: SortedPairs,
}

impl Ingest {
    pub(super) fn new(keyspace: Keyspace) -> Self {
        let core = keyspace.handle.core.clone();
        let expiry = keyspace.state.expiry(&core.time, Lifetime::AsKeyspace);
        let pairs = SortedPairs::new(core, keyspace.state.id, expiry);
        Ingest { keyspace, pairs }
    }

    /// Adds a pair. Its key must be above all earlier keys.
    ///
    /// # Errors
    /// [`OutOfOrder`](crate::Error::OutOfOrder) if the key is not above all earlier keys;
    /// [`KeyTooLong`](crate::Error::KeyTooLong); [`ValueTooLong`](crate::Error::ValueTooLong). After these
    /// the ingest is unchanged. [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was
    /// dropped; [`Closed`](crate::Error::Closed).
    ///
    /// After [`NoSpace`](crate::Error::NoSpace) or [`Io`](crate::Error::Io) the ingest can neither continue
    /// nor be committed.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.keyspace.state.check_alive()?;
        self.pairs.put(key.as_ref(), value.as_ref())
    }

    /// Adds all pairs of a table made by [`sstable::Writer`](crate::sstable::Writer). The file is read,
    /// checked, and left unchanged. Its first key must be above all earlier keys.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); [`Invalid`](crate::Error::Invalid) if the table belongs to a database or
    /// has tombstones; errors of reading the file. After [`Corrupt`](crate::Error::Corrupt) in the middle of
    /// the file the ingest can neither continue nor be committed.
    pub fn table(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.keyspace.state.check_alive()?;
        self.pairs.table(path.as_ref())
    }

    /// Number of pairs added.
    pub fn len(&self) -> u64 {
        self.pairs.pairs()
    }

    /// Returns whether no pair was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes all pairs durable and visible, or none. Returns the number of the commit, or without pairs the
    /// number of the newest commit.
    ///
    /// # Errors
    /// Those of [`WriteBatch::commit`](crate::WriteBatch::commit). The error returns the ingest, which can be
    /// committed again unless its files could not be written.
    pub fn commit(mut self) -> Result<SeqNo, CommitError<Ingest>> {
        let durability: Durability = self.keyspace.handle.core.options.durability();
        let done = self.pairs.commit(durability, self.keyspace.state.life());
        done.map_err(|error| CommitError::new(error, self))
    }
}

impl std::fmt::Debug for Ingest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ingest({} pairs into {:?})", self.len(), self.keyspace.name())
    }
}
