//! Moves large values of a commit to blob files.
//!
//! ```text
//!   put --large, not among the first few--> BlobWriter, immediately (db/writes.rs)
//!   commit: write set --divert--> the same ops with pointers instead of large values --> log, memtable
//!                        `------> the values, in one write --> a lease of the current blob file
//! ```
//!
//! A value is written to the page cache before the record that points to it enters the log buffer. Each sync
//! of the log also syncs the blob files (wal/sync.rs). A durable log record therefore points only to durable
//! values. A commit whose values cannot be written fails.

use std::sync::Arc;

use super::write_set::WriteSet;
use crate::blob::{BlobFile, BlobStore, ChunkCompressor, Lease, Units, put_value, stored_bytes_max};
use crate::types::entry::EntryRef;
use crate::types::expiry::{Expiry, value_of};
use crate::types::key::decode_key;
use crate::types::op::Kind;
use crate::types::{FileId, Result, SeqNo};
use crate::wal::{SyncBeside, SyncWork};

/// The values of a commit that are already in blob files.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlobUse {
    /// Leases of the files. They keep the files until the commit is recorded in them.
    pub(crate) leases: Vec<Lease>,
    /// Bytes of the values.
    pub(crate) bytes: u64,
}

impl BlobUse {
    /// Adds leases and bytes.
    pub(crate) fn extend(&mut self, leases: &[Lease], bytes: u64) {
        self.leases.extend_from_slice(leases);
        self.bytes += bytes;
    }
}

/// Returns the work that accompanies each sync of the log.
pub(crate) fn sync_beside(store: Arc<BlobStore>, threads: bool) -> SyncBeside {
    let begin = move || {
        let dirty = store.dirty();
        let sync = |dirty: Vec<Arc<BlobFile>>| move || dirty.iter().try_for_each(|file| file.sync());
        (!dirty.is_empty()).then(|| Box::new(sync(dirty)) as SyncWork)
    };
    SyncBeside::new(begin, threads)
}

/// Writes the large values of a set to a blob file. Returns the set with pointers instead, or `None` if it
/// has no large values.
pub(crate) fn divert(store: &Arc<BlobStore>, set: &WriteSet) -> Result<Option<(WriteSet, BlobUse)>> {
    if !store.may_take(set.largest_value()) {
        return Ok(None);
    }
    let is_large = |entry: &EntryRef<'_>| {
        let keyspace = decode_key(entry.key).map(|(keyspace, _)| keyspace);
        let stands_beside = !entry.kind.needs_fetch() && !entry.kind.is_operand();
        stands_beside
            && keyspace.is_some_and(|keyspace| store.takes(keyspace, value_of(entry.kind, entry.value).len()))
    };
    let large = set.entries(SeqNo::ZERO).filter(is_large);
    let large = large.map(|entry| (entry, value_of(entry.kind, entry.value)));
    let is_sealed = store.is_sealed();
    let bytes_max: u64 = large.clone().map(|(_, value)| stored_bytes_max(value.len(), is_sealed)).sum();
    if bytes_max == 0 {
        return Ok(None);
    }
    let mut compressor = ChunkCompressor::new(store.compresses());
    let (mut units, mut pointers) = (Units::new(bytes_max, is_sealed), Vec::new());
    for (_, value) in large {
        let offset = units.len();
        pointers.push(put_value(value, (FileId::new(0), offset), &mut compressor, &mut units)?);
    }
    let (lease, base) = store.lease(units.len(), false)?;
    let bytes = units.at(lease.file(), base);
    store.write(lease.file(), base, &bytes)?;
    let mut pointers = pointers.into_iter();
    let (mut diverted, mut encoded) = (WriteSet::new(), Vec::new());
    set.ranges().iter().for_each(|(start, end)| diverted.delete_range(start, end));
    for entry in set.entries(SeqNo::ZERO) {
        let pointer = if is_large(&entry) { pointers.next() } else { None };
        match pointer {
            Some(mut pointer) => {
                (pointer.file, pointer.offset) = (lease.file().id(), base + pointer.offset);
                store.cache.was_written(&pointer, value_of(entry.kind, entry.value));
                encoded.clear();
                pointer.encode(&mut encoded);
                let expiry = Expiry::of_version(entry.kind, entry.value);
                diverted.put_until(Kind::PUT_BLOB, entry.key, expiry, &encoded);
            }
            None => diverted.push(entry.kind, entry.key, entry.value),
        }
    }
    diverted.sort();
    let used = BlobUse { leases: vec![lease], bytes: bytes.len() as u64 };
    Ok(Some((diverted, used)))
}
