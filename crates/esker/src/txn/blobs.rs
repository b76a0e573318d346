//! Where commits put their large values: the blob file in use.
//!
//! ```text
//!   write set --divert--> the same ops, pointers in place of large values --> log, memtable
//!                `------> the values --> blob file          before the log has the record
//! ```
//!
//! txn_blobs.1. A value is with the operating system before the record that points to it is in the log's buffer, and each sync of the log syncs
//!      the blob file first (wal/sync.rs). So what the log knows to be durable points to durable values.
//! txn_blobs.2. Of a file only the one in use may not be synced: it is synced before another takes its place.
//! txn_blobs.3. A file is named by a durable edit of the manifest before anything points to it.
//! txn_blobs.4. A value that could not be written refuses its commit, and leaves nothing but bytes that the next one writes over.

use std::sync::Arc;

use parking_lot::Mutex;

use super::commit::Pipeline;
use super::write_set::WriteSet;
use crate::blob::{BlobFile, BlobPointer};
use crate::types::entry::EntryRef;
use crate::types::key::decode_key;
use crate::types::{Error, KeyspaceId, Result, SeqNo};
use crate::wal::SyncFirst;

/// Values are handed to the system in pieces of about this size.
const WRITE_BYTES: usize = 1 << 20;

/// Makes a blob file and has the manifest and the view name it (txn_blobs.3).
pub(crate) type NewBlobFile = Box<dyn Fn() -> Result<Arc<BlobFile>> + Send + Sync>;

/// The blob file in use.
pub(crate) struct Blobs {
    /// Values of so many bytes and more go to blob files; none: no values do.
    over: Option<usize>,
    /// A file of this size is full.
    file_bytes_max: u64,
    new_file: NewBlobFile,
    current: Arc<Mutex<Option<Arc<BlobFile>>>>,
}

/// A write set whose large values go to a blob file.
pub(super) struct Diverted {
    /// The ops, with pointers.
    pub(super) set: WriteSet,
    /// The file.
    pub(super) file: Arc<BlobFile>,
    /// Bytes of those values.
    pub(super) bytes: u64,
}

impl Blobs {
    /// No file yet; values of `over` bytes and more go to one.
    pub(crate) fn new(over: Option<usize>, file_bytes_max: u64, new_file: NewBlobFile) -> Self {
        Blobs { over, file_bytes_max, new_file, current: Arc::default() }
    }

    /// What the log does before it syncs (txn_blobs.1).
    pub(crate) fn sync_first(&self) -> SyncFirst {
        let current = self.current.clone();
        SyncFirst::new(move || {
            let file = current.lock().clone();
            file.map_or(Ok(()), |file| file.sync())
        })
    }

    fn is_large(&self, entry: &EntryRef<'_>) -> bool {
        self.over.is_some_and(|over| entry.value.len() >= over)
            && !entry.kind.needs_fetch()
            && decode_key(entry.key).is_some_and(|(keyspace, _)| keyspace != KeyspaceId::CATALOG)
    }

    /// Gives the large values of a set their places; none if it has no such. Nothing is written yet.
    pub(super) fn divert(&self, set: &WriteSet) -> Result<Option<Diverted>> {
        if self.over.is_none_or(|over| set.largest_value() < over) {
            return Ok(None);
        }
        let large = set.entries(SeqNo::ZERO).filter(|entry| self.is_large(entry));
        let bytes = large.map(|entry| entry.value.len() as u64).sum();
        if bytes == 0 {
            return Ok(None);
        }
        let file = self.file_for(bytes)?;
        let mut at = file.len();
        let mut diverted = WriteSet::new();
        set.ranges().iter().for_each(|(start, end)| diverted.remove_range(start, end));
        let mut pointer = Vec::new();
        for entry in set.entries(SeqNo::ZERO) {
            if self.is_large(&entry) {
                pointer.clear();
                BlobPointer::new(file.id(), at, entry.value).encode(&mut pointer);
                at += entry.value.len() as u64;
                diverted.put_blob(entry.key, &pointer);
            } else if entry.kind.is_live() {
                diverted.put(entry.key, entry.value);
            } else {
                diverted.remove(entry.key);
            }
        }
        diverted.sort();
        Ok(Some(Diverted { set: diverted, file, bytes }))
    }

    /// Writes the values of a set that was diverted just now (txn_blobs.4).
    pub(super) fn write(&self, set: &WriteSet, diverted: &Diverted) -> Result<()> {
        let mut buffer = Vec::new();
        let mut at = diverted.file.len();
        for entry in set.entries(SeqNo::ZERO).filter(|entry| self.is_large(entry)) {
            if entry.value.len() >= WRITE_BYTES {
                at = diverted.file.write(at, &buffer)?;
                buffer.clear();
                at = diverted.file.write(at, entry.value)?;
                continue;
            }
            buffer.extend_from_slice(entry.value);
            if buffer.len() >= WRITE_BYTES {
                at = diverted.file.write(at, &buffer)?;
                buffer.clear();
            }
        }
        at = diverted.file.write(at, &buffer)?;
        diverted.file.set_written(at);
        Ok(())
    }

    /// The file that takes so many bytes more.
    fn file_for(&self, bytes: u64) -> Result<Arc<BlobFile>> {
        let current = self.current.lock().clone();
        match current {
            Some(file) if file.is_fresh() || file.len() + bytes <= self.file_bytes_max => Ok(file),
            _ => {
                self.close_current()?;
                let file = (self.new_file)()?;
                *self.current.lock() = Some(file.clone());
                Ok(file)
            }
        }
    }

    /// Ends the file in use, durably (txn_blobs.2).
    fn close_current(&self) -> Result<()> {
        let current = self.current.lock().clone();
        if let Some(file) = current {
            file.sync()?;
            self.current.lock().take();
            file.close();
        }
        Ok(())
    }
}

impl Pipeline {
    /// Ends the blob file in use, so that it can be collected once its commits are in tables.
    pub(crate) fn close_blob_file(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.poison.check()?;
        let closed = state.blobs.close_current();
        closed.map_err(|error| state.poison.stop(error))
    }
}

/// Whether a failure leaves unknown what is on the disk.
pub(super) fn is_fatal(error: &Error) -> bool {
    matches!(error, Error::Poisoned(_))
}
