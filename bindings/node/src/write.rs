//! Writes that read nothing, and ranges of keys.

use std::ops::Bound;
use std::time::Duration;

use esker::{Keyspace, Transaction, WriteBatch};

use crate::error::Failure;
use crate::options::milliseconds;

/// Kinds of writes, as lib/native.js numbers them.
const PUT: u32 = 1;
const DELETE: u32 = 2;
const MERGE: u32 = 3;

/// Both ends of a range.
pub(crate) type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Makes an end of a range. No key: no bound.
pub(crate) fn end_of(key: Option<&[u8]>, is_included: bool) -> Bound<Vec<u8>> {
    match key {
        None => Bound::Unbounded,
        Some(key) if is_included => Bound::Included(key.to_vec()),
        Some(key) => Bound::Excluded(key.to_vec()),
    }
}

/// A write that reads nothing.
pub(crate) enum Write {
    Put { key: Vec<u8>, value: Vec<u8>, ttl: Option<Duration> },
    Delete(Vec<u8>),
    Merge { key: Vec<u8>, operand: Vec<u8> },
    DeleteRange(Ends),
}

impl Write {
    /// Reads the arguments of `write` and `stage`.
    pub(crate) fn of(
        what: u32,
        key: &[u8],
        value: Option<&[u8]>,
        ttl: Option<f64>,
    ) -> Result<Write, Failure> {
        let (key, value) = (key.to_vec(), value.map(<[u8]>::to_vec));
        Ok(match (what, value) {
            (PUT, Some(value)) => {
                Write::Put { key, value, ttl: ttl.map(|ms| milliseconds(ms, "ttl")).transpose()? }
            }
            (MERGE, Some(operand)) => Write::Merge { key, operand },
            (DELETE, _) => Write::Delete(key),
            _ => return Err(Failure::invalid("the write has no value")),
        })
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            Write::Put { key, value, .. } => key.len() + value.len(),
            Write::Merge { key, operand } => key.len() + operand.len(),
            Write::Delete(key) => key.len(),
            Write::DeleteRange(_) => 64,
        }
    }

    /// Adds the write to a batch.
    pub(crate) fn stage(self, to: &mut WriteBatch, keyspace: &Keyspace) -> esker::Result<()> {
        match self {
            Write::Put { key, value, ttl: None } => to.put(keyspace, key, value),
            Write::Put { key, value, ttl: Some(ttl) } => to.put_with_ttl(keyspace, key, value, ttl),
            Write::Delete(key) => to.delete(keyspace, key),
            Write::Merge { key, operand } => to.merge(keyspace, key, operand),
            Write::DeleteRange(ends) => to.delete_range(keyspace, ends),
        }
    }

    /// Adds the write to a transaction.
    pub(crate) fn stage_in(self, to: &mut Transaction, keyspace: &Keyspace) -> esker::Result<()> {
        match self {
            Write::Put { key, value, ttl: None } => to.put(keyspace, key, value),
            Write::Put { key, value, ttl: Some(ttl) } => to.put_with_ttl(keyspace, key, value, ttl),
            Write::Delete(key) => to.delete(keyspace, key),
            Write::Merge { key, operand } => to.merge(keyspace, key, operand),
            Write::DeleteRange(ends) => to.delete_range(keyspace, ends),
        }
    }
}
