//! Writes the large values of one transaction to leases of blob files while the transaction runs.
//!
//! ```text
//!   value --stored.rs--> buffer --full--> written by a thread while the next one fills; small values through
//!                                 |       the page cache if all data fits in it, others directly
//!                                 `-- flush: everything is written
//! ```
//!
//! A value lies within one lease. The leases of a writer consist of whole blocks, and grow
//! with the amount written.
//!
//! Values are flushed before readers can see them or a commit points to them.
//!
//! Buffers that could not be written are kept and retried before any other write. If one is
//! lost, for example by a panic, no value of the writer can be committed.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_env::{AlignedBuf, ThreadHandle};
use parking_lot::Mutex;

use super::file::{BlobFile, Lease};
use super::pointer::BlobPointer;
use super::store::BlobStore;
use super::stored::{CHUNK_BYTES, ChunkCompressor, Sink, ValueEncoder, put_value, stored_bytes_max};
use crate::cache::{BudgetKind, Reservation};
use crate::encryption::TAG_BYTES;
use crate::types::{Error, FileId, Result};

/// Maximum number of buffers being written.
const RUNNING_MAX: usize = 2;

/// Longer values are written directly, because reading one waits for the device only once.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// Minimum and maximum size of leases.
const LEASE_BYTES: std::ops::Range<u64> = 256 << 10..16 << 20;

/// Writes large values; see the module documentation.
pub(crate) struct BlobWriter {
    compressor: ChunkCompressor,
    out: Output,
}

impl BlobWriter {
    /// Creates a writer that has written nothing.
    pub(crate) fn new(store: &Arc<BlobStore>) -> BlobWriter {
        let compressor = ChunkCompressor::new(store.options.compress);
        BlobWriter { compressor, out: Output::new(store.clone()) }
    }

    /// Writes a value and returns a pointer to it.
    pub(crate) fn put(&mut self, value: &[u8]) -> Result<BlobPointer> {
        let BlobWriter { compressor, out } = self;
        let place = out.begin(stored_bytes_max(value.len(), out.store.is_sealed()))?;
        let pointer = put_value(value, place, compressor, out)?;
        out.store.cache.was_written(&pointer, value);
        Ok(pointer)
    }

    /// Writes a value of `len` bytes and returns a pointer to it. `next` fills each chunk completely.
    pub(crate) fn put_from(
        &mut self,
        len: usize,
        mut next: impl FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<BlobPointer> {
        let BlobWriter { compressor, out } = self;
        let mut chunk = vec![0; len.min(CHUNK_BYTES)];
        let (file, offset) = out.begin(stored_bytes_max(len, out.store.is_sealed()))?;
        let mut encoder = ValueEncoder::new(len);
        let mut left = len;
        while left > 0 {
            let bytes = &mut chunk[..left.min(CHUNK_BYTES)];
            // After a failure the next value starts after the part written so far.
            next(bytes)?;
            encoder.chunk(bytes, compressor, out)?;
            left -= bytes.len();
        }
        encoder.finish(file, offset, out)
    }

    /// Returns once everything written so far is at the device.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }

    /// Leases of the files written to, one per file.
    pub(crate) fn leases(&self) -> &[Lease] {
        &self.out.leases
    }

    /// Bytes written.
    pub(crate) fn bytes(&self) -> u64 {
        self.out.total
    }
}

/// The part of a file that is being written.
struct Extent {
    lease: Lease,
    /// File offset of the first byte of the buffer.
    base: u64,
    end: u64,
}

/// A full buffer and its file offset.
struct Full {
    file: Arc<BlobFile>,
    at: u64,
    buffer: AlignedBuf,
    is_small: bool,
}

/// Outcome of a write. `None` while it is running.
type WriteOutcome = Arc<Mutex<Option<(Full, Result<()>)>>>;

/// A write that is running on a thread.
struct RunningWrite {
    thread: ThreadHandle,
    outcome: WriteOutcome,
}

/// Output for all values, one after another.
struct Output {
    store: Arc<BlobStore>,
    leases: Vec<Lease>,
    extent: Option<Extent>,
    buffer: Option<AlignedBuf>,
    filled: usize,
    /// Bytes of the buffer already written, followed by zeros in the file.
    written: usize,
    running: VecDeque<RunningWrite>,
    /// Whether no value in the buffer is longer than [`SMALL_BYTES_MAX`].
    is_small: bool,
    /// Buffers that could not be written and will be retried.
    unwritten: Vec<Full>,
    total: u64,
    /// Whether a buffer was lost.
    has_lost: bool,
    memory: Reservation,
}

impl Sink for Output {
    fn take(&mut self, unit: &[u8]) -> Result<()> {
        let Some(extent) = self.extent.as_ref().filter(|_| self.store.is_sealed()) else {
            return self.take_bytes(unit);
        };
        let (file, at) = (extent.lease.file(), extent.base + self.filled as u64);
        let mut sealed = Vec::with_capacity(unit.len() + TAG_BYTES);
        sealed.extend_from_slice(unit);
        file.seal(at, (file.id(), at), &mut sealed);
        self.take_bytes(&sealed)
    }
}

impl Output {
    fn take_bytes(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.total += bytes.len() as u64;
        self.store.count(bytes.len() as u64);
        while !bytes.is_empty() {
            if self.buffer.as_ref().is_some_and(|buffer| self.filled == buffer.len()) {
                self.launch()?;
            }
            let (filled, buffer) = (self.filled, self.buffer());
            let n = bytes.len().min(buffer.len() - filled);
            buffer[filled..filled + n].copy_from_slice(&bytes[..n]);
            self.filled += n;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    fn new(store: Arc<BlobStore>) -> Output {
        let memory = store.budget.reserve(BudgetKind::Transaction, 0);
        Output {
            store,
            leases: Vec::new(),
            extent: None,
            buffer: None,
            filled: 0,
            written: 0,
            running: VecDeque::new(),
            is_small: true,
            unwritten: Vec::new(),
            total: 0,
            has_lost: false,
            memory,
        }
    }

    fn buffer(&mut self) -> &mut AlignedBuf {
        let buffer = self.buffer.get_or_insert_with(|| self.store.take_buffer());
        self.memory.resize((1 + RUNNING_MAX as u64) * buffer.len() as u64);
        buffer
    }

    /// Reserves `bytes` bytes in one lease. Returns the file and the offset of the value.
    fn begin(&mut self, bytes: u64) -> Result<(FileId, u64)> {
        self.check()?;
        self.is_small &= bytes <= SMALL_BYTES_MAX;
        if let Some(extent) = &self.extent {
            let at = extent.base + self.filled as u64;
            if at + bytes <= extent.end {
                return Ok((extent.lease.file().id(), at));
            }
        }
        let wanted = bytes.max(self.total.clamp(LEASE_BYTES.start, LEASE_BYTES.end));
        let wanted = wanted.next_multiple_of(AlignedBuf::ALIGN as u64);
        let (lease, base) = self.store.lease(wanted, true)?;
        let id = lease.file().id();
        if let Some(extent) = &mut self.extent {
            // The new lease follows the old one directly, so both are merged.
            if Arc::ptr_eq(extent.lease.file(), lease.file()) && extent.end == base {
                extent.end += wanted;
                return Ok((id, extent.base + self.filled as u64));
            }
            self.end_extent()?;
        }
        if self.leases.iter().all(|other| other.file().id() != id) {
            self.leases.push(lease.clone());
        }
        self.extent =
            Some(Extent { end: base + wanted.next_multiple_of(AlignedBuf::ALIGN as u64), lease, base });
        Ok((id, base))
    }

    /// Writes the rest of the buffer, and returns the unused end of the lease.
    fn end_extent(&mut self) -> Result<()> {
        self.flush()?;
        if let Some(Extent { lease, base, end }) = self.extent.take() {
            let used = (base + self.filled as u64).next_multiple_of(AlignedBuf::ALIGN as u64);
            self.store.give_back(lease.file(), used, end);
        }
        (self.filled, self.written) = (0, 0);
        Ok(())
    }

    /// Starts writing the buffer, which is full.
    fn launch(&mut self) -> Result<()> {
        while self.running.len() >= RUNNING_MAX {
            self.await_first()?;
        }
        self.retry_unwritten()?;
        let (Some(extent), Some(buffer)) = (&mut self.extent, self.buffer.take()) else { return Ok(()) };
        let full =
            Full { file: extent.lease.file().clone(), at: extent.base, buffer, is_small: self.is_small };
        extent.base += full.buffer.len() as u64;
        (self.filled, self.written, self.is_small) = (0, 0, true);
        if !self.store.options.threads {
            self.unwritten.push(full);
            return self.retry_unwritten();
        }
        let outcome = WriteOutcome::default();
        let (slot, store) = (outcome.clone(), self.store.clone());
        let write = move || {
            let written = store.write_blocks(&full.file, full.at, &full.buffer, full.is_small);
            *slot.lock() = Some((full, written));
        };
        match self.store.env.threads.spawn("esker-blob", Box::new(write)) {
            Ok(thread) => {
                self.running.push_back(RunningWrite { thread, outcome });
                Ok(())
            }
            Err(e) => {
                self.has_lost = true;
                Err(Error::io("start a thread for", "", e))
            }
        }
    }

    /// Waits until all full buffers have been written.
    fn await_all(&mut self) -> Result<()> {
        while !self.running.is_empty() {
            self.await_first()?;
        }
        self.retry_unwritten()
    }

    /// Waits for the oldest running write.
    fn await_first(&mut self) -> Result<()> {
        if let Some(RunningWrite { thread, outcome }) = self.running.pop_front() {
            let ended = thread.join();
            match outcome.lock().take() {
                Some((full, Ok(()))) => self.store.give_buffer(full.buffer),
                Some((full, failed)) => {
                    self.unwritten.push(full);
                    return self.store.note(failed);
                }
                None => {
                    self.has_lost = true;
                    let text = ended.err().unwrap_or_default();
                    return Err(Error::Invalid(format!(
                        "a thread panicked while writing a blob file: {text}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Retries the buffers that could not be written.
    fn retry_unwritten(&mut self) -> Result<()> {
        while let Some(full) = self.unwritten.last() {
            let written = self.store.write_blocks(&full.file, full.at, &full.buffer, full.is_small);
            self.store.note(written)?;
            if let Some(full) = self.unwritten.pop() {
                self.store.give_buffer(full.buffer);
            }
        }
        Ok(())
    }

    /// Fails if values were lost.
    fn check(&self) -> Result<()> {
        self.store.check_process()?;
        if !self.has_lost {
            return Ok(());
        }
        let text = "values of this transaction could not be written: it cannot be committed; start another transaction";
        Err(Error::Invalid(text.to_owned()))
    }

    fn flush(&mut self) -> Result<()> {
        self.check()?;
        self.await_all()?;
        if let (Some(extent), Some(buffer)) = (&self.extent, &mut self.buffer)
            && self.written < self.filled
        {
            let blocks = self.filled.next_multiple_of(AlignedBuf::ALIGN);
            buffer[self.filled..blocks].fill(0);
            let from = self.written / AlignedBuf::ALIGN * AlignedBuf::ALIGN;
            let at = extent.base + from as u64;
            let bytes = &buffer[from..blocks];
            let written = self.store.write_blocks(extent.lease.file(), at, bytes, self.is_small);
            self.store.note(written)?;
            self.written = self.filled;
        }
        // Mark the files as dirty (blob_store.2).
        self.leases.iter().for_each(|lease| self.store.note_dirty(lease.file()));
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // The writing threads do not exist in the child of a fork.
        if self.store.is_ours() && self.await_all().is_ok() && !self.has_lost {
            // Unflushed values are not needed.
            self.written = self.filled;
            let _ = self.end_extent();
        }
        if let Some(buffer) = self.buffer.take() {
            self.store.give_buffer(buffer);
        }
    }
}
