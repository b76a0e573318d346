//! `SharedBatch`: writes that are committed together.

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker::{Durability, KeyBounds, SeqNo};

use crate::error::Result;
use crate::inner::Opened;
use crate::keyspace::{SharedKeyspace, check_of};
use crate::protocol::{Bytes, ITEMS_MAX, Op, Request, WireLifetime};

/// Bytes of keys and values in one request, unless a single value has more.
const REQUEST_BYTES: usize = 4 << 20;
/// Bytes of a write besides those of its keys and values, about.
const WRITE_BYTES: usize = 16;
const _: () = assert!(REQUEST_BYTES / WRITE_BYTES <= ITEMS_MAX);

/// A write with its own bytes.
enum Write {
    Put { key: Vec<u8>, value: Vec<u8>, lifetime: WireLifetime },
    Delete(Vec<u8>),
    DeleteRange(Bound<Vec<u8>>, Bound<Vec<u8>>),
    Merge(Vec<u8>, Vec<u8>),
}

/// Writes that are committed together, all or none. They are kept in this process until the commit.
#[must_use = "call `commit`"]
pub struct SharedBatch {
    inner: Arc<Opened>,
    writes: Vec<(u32, Write)>,
}

impl SharedBatch {
    pub(crate) fn new(inner: &Arc<Opened>) -> Self {
        SharedBatch { inner: inner.clone(), writes: Vec::new() }
    }

    fn add(&mut self, keyspace: &SharedKeyspace, write: Write) -> Result<()> {
        check_of(&self.inner, keyspace)?;
        self.writes.push((keyspace.id, write));
        Ok(())
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Sets a key to a value.
    ///
    /// # Errors
    /// That of a keyspace of another database. All other errors are those of the commit.
    pub fn put(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        self.add(keyspace, Write::Put { key, value, lifetime: WireLifetime::Default })
    }

    /// Sets a key to a value that expires after this time, which begins with the commit.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_with_ttl(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        self.add(keyspace, Write::Put { key, value, lifetime: WireLifetime::For(ttl) })
    }

    /// Sets a key to a value that expires at this moment: see [`esker::WriteBatch::put_until`].
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn put_until(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        end: Option<SystemTime>,
    ) -> Result<()> {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        self.add(keyspace, Write::Put { key, value, lifetime: WireLifetime::until(end) })
    }

    /// Removes a key.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete(&mut self, keyspace: &SharedKeyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.add(keyspace, Write::Delete(key.as_ref().to_vec()))
    }

    /// Removes all keys of a range, except those put later.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn delete_range(&mut self, keyspace: &SharedKeyspace, range: impl KeyBounds) -> Result<()> {
        let (lower, upper) = (range.lower().map(<[u8]>::to_vec), range.upper().map(<[u8]>::to_vec));
        self.add(keyspace, Write::DeleteRange(lower, upper))
    }

    /// Merges an operand into a key: see [`esker::Keyspace::merge`].
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn merge(
        &mut self,
        keyspace: &SharedKeyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.add(keyspace, Write::Merge(key.as_ref().to_vec(), operand.as_ref().to_vec()))
    }

    /// Makes the writes durable and visible, with the durability of the host's database.
    ///
    /// # Errors
    /// Those of [`SharedKeyspace::put`].
    pub fn commit(&self) -> Result<SeqNo> {
        self.commit_as(None)
    }

    /// Same as [`commit`](Self::commit), with this durability, and at least
    /// [`Buffered`](Durability::Buffered).
    ///
    /// # Errors
    /// Those of [`SharedKeyspace::put`].
    pub fn commit_with(&self, durability: Durability) -> Result<SeqNo> {
        self.commit_as(Some(durability))
    }

    fn commit_as(&self, durability: Option<Durability>) -> Result<SeqNo> {
        self.inner.commit(durability, |link, number, durability| {
            let (mut ops, mut bytes) = (Vec::new(), 0);
            for (keyspace, write) in &self.writes {
                if bytes > 0 && bytes + write.bytes() > REQUEST_BYTES {
                    link.call(&Request::Gather(std::mem::take(&mut ops)), &self.inner.dir)?;
                    bytes = 0;
                }
                bytes += write.bytes();
                ops.push((*keyspace, write.op()));
            }
            link.call(&Request::Commit(number, durability, ops), &self.inner.dir)
        })
    }
}

impl Write {
    /// Size of the request, about.
    fn bytes(&self) -> usize {
        let of = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        WRITE_BYTES
            + match self {
                Write::Put { key, value, .. } | Write::Merge(key, value) => key.len() + value.len(),
                Write::Delete(key) => key.len(),
                Write::DeleteRange(lower, upper) => of(lower) + of(upper),
            }
    }

    fn op(&self) -> Op<'_> {
        match self {
            Write::Put { key, value, lifetime } => {
                Op::Put { key: Bytes(key), value: Bytes(value), lifetime: *lifetime }
            }
            Write::Delete(key) => Op::Delete(Bytes(key)),
            Write::DeleteRange(lower, upper) => {
                Op::DeleteRange(lower.as_ref().map(|key| Bytes(key)), upper.as_ref().map(|key| Bytes(key)))
            }
            Write::Merge(key, operand) => Op::Merge(Bytes(key), Bytes(operand)),
        }
    }
}
