//! Writes large values of one transaction, as they come, to leases of blob files.
//!
//! ```text
//!   value --stored.rs--> buffer --full--> written by threads, while the next buffer is filled: small values through the page cache if all
//!                                 |       data has room in it (they are read again one by one), else past it
//!                                 `-- flush: all that was given is with the system
//! ```
//!
//! blob_writer.1. A value stands whole in one lease. Leases of a writer begin on blocks of their own, and grow with what it writes.
//! blob_writer.2. What readers are to see, or a commit is to point to, has been flushed.
//! blob_writer.3. What could not be written is kept, and tried again before anything else. If it is lost, by a panic for one, nothing of the
//!      writer's can be committed.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_env::{AlignedBuf, ThreadHandle};
use parking_lot::Mutex;

use super::file::{BlobFile, Lease};
use super::pointer::BlobPointer;
use super::store::BlobStore;
use super::stored::{CHUNK_BYTES, Sink, Squeeze, ValueEncoder, put_value, stored_bytes_max};
use crate::cache::{BudgetKind, Reservation};
use crate::types::{Error, FileId, Result};

/// Buffers that are on their way at a time.
const FLIGHTS_MAX: usize = 2;

/// Longer values are written past the page cache: whoever reads one waits for the device once.
const SMALL_BYTES_MAX: u64 = 64 << 10;

/// The sizes of leases.
const LEASE_BYTES: std::ops::Range<u64> = 256 << 10..16 << 20;

/// See the module's text.
pub(crate) struct BlobWriter {
    squeeze: Squeeze,
    out: Output,
}

impl BlobWriter {
    /// Nothing written yet.
    pub(crate) fn new(store: &Arc<BlobStore>) -> BlobWriter {
        let squeeze = Squeeze::new(store.options.compress);
        BlobWriter { squeeze, out: Output::new(store.clone()) }
    }

    /// Writes a value; returns where it is.
    pub(crate) fn put(&mut self, value: &[u8]) -> Result<BlobPointer> {
        let BlobWriter { squeeze, out } = self;
        let place = out.begin(stored_bytes_max(value.len()))?;
        let pointer = put_value(value, place, squeeze, out)?;
        out.store.cache.was_written(&pointer, value);
        Ok(pointer)
    }

    /// Writes a value of `len` bytes that `next` fills in, chunk by chunk, all of each; returns where it is.
    pub(crate) fn put_from(
        &mut self,
        len: usize,
        mut next: impl FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<BlobPointer> {
        let BlobWriter { squeeze, out } = self;
        let mut chunk = vec![0; len.min(CHUNK_BYTES)];
        let (file, offset) = out.begin(stored_bytes_max(len))?;
        let mut encoder = ValueEncoder::new(len);
        let mut left = len;
        while left > 0 {
            let bytes = &mut chunk[..left.min(CHUNK_BYTES)];
            // After a failure the next value begins behind what there is of this one.
            next(bytes)?;
            encoder.chunk(bytes, squeeze, out)?;
            left -= bytes.len();
        }
        encoder.finish(file, offset, out)
    }

    /// Everything given so far is with the device when this returns (blob_writer.2).
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }

    /// The files that it wrote to, each once.
    pub(crate) fn leases(&self) -> &[Lease] {
        &self.out.leases
    }

    /// Bytes that it wrote.
    pub(crate) fn bytes(&self) -> u64 {
        self.out.total
    }
}

/// The part of a file that is being written.
struct Extent {
    lease: Lease,
    /// Where the buffer's first byte belongs.
    base: u64,
    end: u64,
}

/// A full buffer, and where its bytes belong.
struct Full {
    file: Arc<BlobFile>,
    at: u64,
    buffer: AlignedBuf,
    is_small: bool,
}

/// Whether it was written; none as long as it is on its way.
type Landing = Arc<Mutex<Option<(Full, Result<()>)>>>;

/// One on its way to the device.
struct Flight {
    thread: ThreadHandle,
    landed: Landing,
}

/// The bytes of all values, one after another.
struct Output {
    store: Arc<BlobStore>,
    leases: Vec<Lease>,
    extent: Option<Extent>,
    buffer: Option<AlignedBuf>,
    filled: usize,
    /// Of these, written already: zeros follow them there.
    written: usize,
    flights: VecDeque<Flight>,
    /// No value in the buffer is longer than [`SMALL_BYTES_MAX`].
    is_small: bool,
    /// What could not be written, and will be tried again.
    unwritten: Vec<Full>,
    total: u64,
    /// Bytes were lost on their way (blob_writer.3).
    has_lost: bool,
    memory: Reservation,
}

impl Sink for Output {
    fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
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
}

impl Output {
    fn new(store: Arc<BlobStore>) -> Output {
        let memory = store.budget.reserve(BudgetKind::Transaction, 0);
        Output {
            store,
            leases: Vec::new(),
            extent: None,
            buffer: None,
            filled: 0,
            written: 0,
            flights: VecDeque::new(),
            is_small: true,
            unwritten: Vec::new(),
            total: 0,
            has_lost: false,
            memory,
        }
    }

    fn buffer(&mut self) -> &mut AlignedBuf {
        let buffer = self.buffer.get_or_insert_with(|| self.store.take_buffer());
        self.memory.resize((1 + FLIGHTS_MAX as u64) * buffer.len() as u64);
        buffer
    }

    /// Makes room for a value of so many bytes, all in one lease (blob_writer.1); says where it will begin.
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
            // Nobody has come between: the two are one.
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

    /// Writes what is left, and gives back what is not needed.
    fn end_extent(&mut self) -> Result<()> {
        self.flush()?;
        if let Some(Extent { lease, base, end }) = self.extent.take() {
            let used = (base + self.filled as u64).next_multiple_of(AlignedBuf::ALIGN as u64);
            self.store.give_back(lease.file(), used, end);
        }
        (self.filled, self.written) = (0, 0);
        Ok(())
    }

    /// Sends the buffer, which is full, to the device.
    fn launch(&mut self) -> Result<()> {
        while self.flights.len() >= FLIGHTS_MAX {
            self.land_first()?;
        }
        self.write_again()?;
        let (Some(extent), Some(buffer)) = (&mut self.extent, self.buffer.take()) else { return Ok(()) };
        let full =
            Full { file: extent.lease.file().clone(), at: extent.base, buffer, is_small: self.is_small };
        extent.base += full.buffer.len() as u64;
        (self.filled, self.written, self.is_small) = (0, 0, true);
        if !self.store.options.threads {
            self.unwritten.push(full);
            return self.write_again();
        }
        let landed = Landing::default();
        let (slot, store) = (landed.clone(), self.store.clone());
        let write = move || {
            let written = store.write_blocks(&full.file, full.at, &full.buffer, full.is_small);
            *slot.lock() = Some((full, written));
        };
        match self.store.env.threads.spawn("esker-blob", Box::new(write)) {
            Ok(thread) => {
                self.flights.push_back(Flight { thread, landed });
                Ok(())
            }
            Err(e) => {
                self.has_lost = true;
                Err(Error::io("start a thread for", "", e))
            }
        }
    }

    /// Returns when all full buffers have been written.
    fn land(&mut self) -> Result<()> {
        while !self.flights.is_empty() {
            self.land_first()?;
        }
        self.write_again()
    }

    /// Waits for the buffer that was sent first.
    fn land_first(&mut self) -> Result<()> {
        if let Some(Flight { thread, landed }) = self.flights.pop_front() {
            let ended = thread.join();
            match landed.lock().take() {
                Some((full, Ok(()))) => self.store.give_buffer(full.buffer),
                Some((full, failed)) => {
                    self.unwritten.push(full);
                    return self.store.note(failed);
                }
                None => {
                    self.has_lost = true;
                    let text = ended.err().unwrap_or_default();
                    return Err(Error::Invalid(format!(
                        "a thread panicked while it wrote a blob file: {text}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Writes what could not be written before.
    fn write_again(&mut self) -> Result<()> {
        while let Some(full) = self.unwritten.last() {
            let written = self.store.write_blocks(&full.file, full.at, &full.buffer, full.is_small);
            self.store.note(written)?;
            if let Some(full) = self.unwritten.pop() {
                self.store.give_buffer(full.buffer);
            }
        }
        Ok(())
    }

    /// blob_writer.3
    fn check(&self) -> Result<()> {
        self.store.check_process()?;
        if !self.has_lost {
            return Ok(());
        }
        let text = "values of this transaction could not be written: nothing of it can be committed, begin another one";
        Err(Error::Invalid(text.to_owned()))
    }

    fn flush(&mut self) -> Result<()> {
        self.check()?;
        self.land()?;
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
        // blob_store.2
        self.leases.iter().for_each(|lease| self.store.note_dirty(lease.file()));
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // blob_store.5: the threads are not there either.
        if self.store.is_ours() && self.land().is_ok() && !self.has_lost {
            // What was not flushed nobody wants.
            self.written = self.filled;
            let _ = self.end_extent();
        }
        if let Some(buffer) = self.buffer.take() {
            self.store.give_buffer(buffer);
        }
    }
}
