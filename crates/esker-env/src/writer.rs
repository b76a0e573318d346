//! An append-only file writer for tables, record files and blob files.
//!
//! ```text
//!   write(&[u8]) --> buffer --full, flush, sync, finish--> File::write_all_at, sync_data
//!                 `-- large slices go straight to the file (buffered files only)
//! ```
//!
//! The file contains exactly the bytes given, in order. Until `finish`, a direct file may have trailing
//! zeros. If creating the writer of a new file fails, the file is removed, so that it can be created again. A
//! steady writer keeps at most one buffer under writeback, so that its final sync does not delay others.
//!
//! - A direct file is written in whole blocks of [`AlignedBuf::ALIGN`] bytes. A last block padded with zeros
//!   is rewritten from its start when more bytes arrive. Its earlier bytes do not change, so a torn rewrite
//!   loses nothing that was synced.
//!
//! env_writer.3. After an error or a panic nothing more is written, because the content of the file is
//!     unknown.

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::{AlignedBuf, File, Fs, OpenOptions};

/// Writes a new or existing file up to its end.
#[derive(Debug)]
pub struct AppendWriter {
    file: Arc<dyn File>,
    /// Returned by `finish` for a direct file: the same file, opened for buffered reading.
    reader: Option<Arc<dyn File>>,
    buf: Buffer,
    /// Offset of the buffer's first byte in the file.
    base: u64,
    failed: bool,
    /// The range under writeback, if the writer is steady.
    under_way: Option<Range<u64>>,
}

/// Bytes not yet written to the file.
enum Buffer {
    /// For a buffered file; written before it would exceed its capacity.
    Plain { bytes: Vec<u8>, capacity: usize },
    /// For a direct file. Of the `filled` bytes, the first `written` are already in the file.
    Aligned { bytes: AlignedBuf, filled: usize, written: usize },
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Buffer::Plain { bytes, capacity } => write!(f, "Plain({} of {capacity} bytes)", bytes.len()),
            Buffer::Aligned { bytes, filled, written } => {
                write!(f, "Aligned({filled} of {} bytes, {written} written)", bytes.len())
            }
        }
    }
}

impl AppendWriter {
    /// Opens `path` with `options` that produce an empty file ([`OpenOptions::create_new`] or
    /// [`OpenOptions::create`], optionally [`direct`](OpenOptions::direct)). `buffer_bytes` are collected
    /// before each write; a direct file rounds them up to whole blocks.
    pub fn create(
        fs: &dyn Fs,
        path: &Path,
        options: OpenOptions,
        buffer_bytes: usize,
    ) -> io::Result<AppendWriter> {
        assert!(options.create_new || options.truncate, "an append writer starts with an empty file");
        Self::at_front(fs, path, options, buffer_bytes)
    }

    /// Opens the file at `path` to overwrite it from its start. The caller gives the existing bytes again,
    /// followed by new ones. `options` must keep the content ([`OpenOptions::write`], optionally
    /// [`direct`](OpenOptions::direct)).
    pub fn rewrite(
        fs: &dyn Fs,
        path: &Path,
        options: OpenOptions,
        buffer_bytes: usize,
    ) -> io::Result<AppendWriter> {
        assert!(
            options.write && !options.truncate,
            "the content must survive a crash before it is rewritten"
        );
        Self::at_front(fs, path, options, buffer_bytes)
    }

    /// Opens the file at `path` to continue at `position`. The bytes before it stay. `options` must keep the
    /// content and not request direct I/O.
    pub fn go_on(
        fs: &dyn Fs,
        path: &Path,
        options: OpenOptions,
        buffer_bytes: usize,
        position: u64,
    ) -> io::Result<AppendWriter> {
        assert!(options.write && !options.truncate && !options.direct, "what is there must stay");
        Ok(AppendWriter { base: position, ..Self::at_front(fs, path, options, buffer_bytes)? })
    }

    fn at_front(
        fs: &dyn Fs,
        path: &Path,
        options: OpenOptions,
        buffer_bytes: usize,
    ) -> io::Result<AppendWriter> {
        let file = fs.open(path, options)?;
        let (buf, reader) = if file.is_direct() {
            let reader = fs.open(path, OpenOptions::read()).inspect_err(|_| {
                if options.create_new {
                    // The first error matters.
                    let _ = fs.remove_file(path);
                }
            })?;
            let bytes = AlignedBuf::zeroed(buffer_bytes);
            (Buffer::Aligned { bytes, filled: 0, written: 0 }, Some(reader))
        } else {
            (Buffer::Plain { bytes: Vec::with_capacity(buffer_bytes), capacity: buffer_bytes }, None)
        };
        Ok(AppendWriter { file, reader, buf, base: 0, failed: false, under_way: None })
    }

    /// Makes the writer steady: it starts writeback at once and keeps at most one buffer under writeback. For
    /// large buffered files that are synced at their end.
    #[must_use]
    pub fn steady(self) -> AppendWriter {
        AppendWriter { under_way: Some(0..0), ..self }
    }

    /// Appends `data`.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.guard(|writer| writer.append(data))
    }

    /// Returns the number of bytes given so far, which is the offset of the next byte.
    pub fn position(&self) -> u64 {
        self.base
            + match &self.buf {
                Buffer::Plain { bytes, .. } => bytes.len() as u64,
                Buffer::Aligned { filled, .. } => *filled as u64,
            }
    }

    /// Passes all bytes given so far to the file system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.guard(Self::write_out)
    }

    /// Passes all bytes given so far to the file system, and asks it to start writing them to the disk. Pays
    /// if other files are written before the sync.
    pub fn begin_sync(&mut self) -> io::Result<()> {
        self.guard(|writer| {
            writer.write_out()?;
            // Only a hint: the sync writes the rest.
            let _ = writer.file.start_writeback(0, writer.position());
            Ok(())
        })
    }

    /// Makes all bytes given so far durable. The caller syncs the directory entry.
    pub fn sync(&mut self) -> io::Result<()> {
        self.guard(|writer| {
            writer.write_out()?;
            writer.file.sync_data()
        })
    }

    /// Writes the remaining bytes, truncates the file to exactly the bytes given and makes it durable.
    /// Returns it opened for buffered reading, with its length.
    pub fn finish(mut self) -> io::Result<(Arc<dyn File>, u64)> {
        let len = self.position();
        self.guard(|writer| {
            writer.write_out()?;
            if writer.file.len()? != len {
                writer.file.set_len(len)?;
            }
            writer.file.sync_data()
        })?;
        Ok((self.reader.unwrap_or(self.file), len))
    }

    /// Runs `work` unless an earlier call failed (env_writer.3).
    fn guard(&mut self, work: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("an earlier write to this file failed"));
        }
        // env_writer.3: a panic leaves it set.
        self.failed = true;
        let result = work(self);
        self.failed = result.is_err();
        result
    }

    fn append(&mut self, mut data: &[u8]) -> io::Result<()> {
        match &mut self.buf {
            Buffer::Plain { bytes, capacity } => {
                if bytes.len() + data.len() > *capacity {
                    self.file.write_all_at(bytes, self.base)?;
                    let end = self.base + bytes.len() as u64;
                    if let Some(under_way) = &mut self.under_way {
                        let before = std::mem::replace(under_way, self.base..end);
                        if !before.is_empty() {
                            self.file.wait_for_writeback(before.start, before.end - before.start)?;
                        }
                        // Only a hint: the sync writes the rest.
                        let _ = self.file.start_writeback(self.base, end - self.base);
                    }
                    self.base = end;
                    bytes.clear();
                    if data.len() >= *capacity {
                        self.file.write_all_at(data, self.base)?;
                        self.base += data.len() as u64;
                        return Ok(());
                    }
                }
                bytes.extend_from_slice(data);
            }
            Buffer::Aligned { bytes, filled, written } => {
                while !data.is_empty() {
                    let n = data.len().min(bytes.len() - *filled);
                    bytes[*filled..*filled + n].copy_from_slice(&data[..n]);
                    *filled += n;
                    data = &data[n..];
                    if *filled == bytes.len() {
                        self.file.write_all_at(bytes, self.base)?;
                        self.base += bytes.len() as u64;
                        (*filled, *written) = (0, 0);
                    }
                }
            }
        }
        Ok(())
    }

    fn write_out(&mut self) -> io::Result<()> {
        match &mut self.buf {
            Buffer::Plain { bytes, .. } => {
                if !bytes.is_empty() {
                    self.file.write_all_at(bytes, self.base)?;
                    self.base += bytes.len() as u64;
                    bytes.clear();
                }
            }
            Buffer::Aligned { bytes, filled, written } => {
                if filled == written {
                    return Ok(());
                }
                let padded = filled.next_multiple_of(AlignedBuf::ALIGN);
                bytes[*filled..padded].fill(0);
                self.file.write_all_at(&bytes[..padded], self.base)?;
                // Move the unfinished block to the front of the buffer, to be rewritten with
                // more bytes.
                let whole = *filled / AlignedBuf::ALIGN * AlignedBuf::ALIGN;
                bytes.copy_within(whole..*filled, 0);
                self.base += whole as u64;
                *filled -= whole;
                *written = *filled;
            }
        }
        Ok(())
    }
}
