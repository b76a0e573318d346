//! Ingest: sorted pairs and finished tables as one commit, past log and memtable.

use std::path::Path;

use super::commit_error::CommitError;
use super::keyspace::Keyspace;
use crate::engine::life::ingest::SortedPairs;
use crate::txn::commit::Durability;
use crate::types::expiry::Lifetime;
use crate::types::{Result, SeqNo};

/// Pairs that come in key order, and tables that [`sstable::Writer`](crate::sstable::Writer) made, become visible and durable in one commit. They
/// are written once, into tables of the database, and replace what the keyspace holds of their keys. Made by [`Keyspace::ingest`].
///
/// Memory does not grow with the number of pairs. Others read and write meanwhile; like a batch it checks for no conflicts. Nothing is left of one
/// that is dropped.
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

    /// Adds a pair. Its key is above all keys before it.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) if it is not, [`KeyTooLong`](crate::Error::KeyTooLong), [`ValueTooLong`](crate::Error::ValueTooLong):
    /// the ingest stays as it was then. [`KeyspaceNotFound`](crate::Error::KeyspaceNotFound) if the keyspace was dropped,
    /// [`Closed`](crate::Error::Closed).
    ///
    /// After [`NoSpace`](crate::Error::NoSpace) or [`Io`](crate::Error::Io) it can neither go on nor be committed.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.keyspace.state.check_alive()?;
        self.pairs.put(key.as_ref(), value.as_ref())
    }

    /// Adds all pairs of a table that [`sstable::Writer`](crate::sstable::Writer) has made. The file is read, checked, and left as it is. Its first key is
    /// above all keys before it.
    ///
    /// # Errors
    /// Those of [`put`](Self::put); [`Invalid`](crate::Error::Invalid) for a table of a database; what is wrong with the file. After
    /// [`Corrupt`](crate::Error::Corrupt) in the middle of it the ingest can neither go on nor be committed.
    pub fn table(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.keyspace.state.check_alive()?;
        self.pairs.table(path.as_ref())
    }

    /// The number of pairs so far.
    pub fn len(&self) -> u64 {
        self.pairs.pairs()
    }

    /// Whether there is none yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes all pairs durable and visible, or none. The number is that of the commit; without pairs, that of the newest one.
    ///
    /// # Errors
    /// Those of [`WriteBatch::commit`](crate::WriteBatch::commit); the ingest comes back with them. It can be committed again unless its files could not
    /// be written.
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
