//! Writes a record file, new or continued.
//!
//! ```text
//!   append(&[u8]) --frame::pack--> AppendWriter --buffer--> File
//!   open_append: read to the last valid record -> sync the name -> truncate the torn tail -> rewrite, sync
//! ```
//!
//! recordio_writer.1. When `sync` or `append_sync` returns, every record appended so far survives a crash. So
//!     does the name of the file, unless its directory cannot be read: then the directory cannot be synced.
//!
//! After a failed write or sync nothing more is written, and nothing is retried.
//!
//! - A file is continued only directly after its last valid record, and never if there is damage before that
//!   record.
//!
//! recordio_writer.4. The contents and the name of a continued file are durable before anything is appended.
//!     A killed process leaves readable records that were never synced. After a failed sync the system may
//!     even consider them written, so that another sync does nothing. Therefore the same bytes are written
//!     again at the same offsets.

use std::path::{Path, PathBuf};

use esker_env::{AppendWriter, Env, OpenOptions};

use crate::encoding::Compression;
use crate::encryption::{self, FileKind, Seal};
use crate::types::{Error, Result};

use super::frame;
use super::header::FileHeader;
use super::reader::{LastRecord, Reader};
use super::scan::Tail;

/// Maximum length of a record in bytes.
const RECORD_BYTES_MAX: u32 = u32::MAX;
/// Bytes that a writer may keep for compressed records, whatever its buffer size.
const SCRATCH_BYTES: usize = 1 << 20;

/// Options for writing a record file.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    env: Env,
    compression: Compression,
    buffer_bytes: usize,
    direct: bool,
    is_named_later: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            env: Env::real(),
            compression: Compression::None,
            buffer_bytes: 256 << 10,
            direct: false,
            is_named_later: false,
        }
    }
}

impl WriteOptions {
    /// Sets the environment; the operating system's files by default.
    pub fn env(mut self, env: &Env) -> Self {
        self.env = env.clone();
        self
    }

    /// Sets the codec of a new file; none by default. Each record that it shortens is compressed on its own.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets the bytes buffered before a write; 256 KiB by default.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// Bypasses the page cache of the operating system if the file system supports it. Off by default.
    pub fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Leaves it to the caller to make the name of a new file durable, after its first records.
    pub(crate) fn named_later(mut self) -> Self {
        self.is_named_later = true;
        self
    }

    /// Creates a file, or replaces an existing one.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Writer> {
        self.create_with(path.as_ref(), OpenOptions::create())
    }

    /// Creates a file. Fails with [`Error::AlreadyExists`] if there is one.
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<Writer> {
        self.create_with(path.as_ref(), OpenOptions::create_new()).map_err(Error::or_exists)
    }

    /// Continues a file after its last valid record, or creates it. Truncates a torn tail (returned by
    /// [`Writer::cut_tail`]). Damage before a valid record returns [`Error::Corrupt`] and changes nothing.
    /// The file keeps its codec. An encrypted file is not continued.
    ///
    /// Reads the whole file to verify it, then rewrites it in place and syncs it, because the file does not
    /// show whether its records were ever synced. When this returns, all records in the file are durable.
    /// Where this takes too long, start a new file from time to time.
    pub fn open_append(&self, path: impl AsRef<Path>) -> Result<Writer> {
        let path = path.as_ref();
        let exists = self.env.fs.exists(path).map_err(|e| Error::io("look for", path, e))?;
        if !exists {
            return self.create_new(path);
        }
        let mut reader = Reader::options().env(&self.env).open(path)?;
        while reader.next()?.is_some() {}
        let tail = reader.tail().expect("the reader is at the end");
        let end = tail.records_end(reader.file_size());
        if reader.header().is_sealed {
            // seal.1: another writer would seal the position of a torn record again.
            let path = path.display();
            return Err(Error::Invalid(format!(
                "{path} is encrypted and cannot be continued: start a new file"
            )));
        }
        drop(reader);
        if end == 0 {
            return Ok(Writer { cut_tail: tail, ..self.create(path)? });
        }
        // Before the expensive steps, so that a refusal is cheap.
        self.sync_name(path)?;
        self.cut(path, end, tail).map_err(|e| Error::io("truncate the torn tail of", path, e))?;
        let writer = self.write_again(path, end)?;
        Ok(Writer { cut_tail: tail, ..writer })
    }

    /// Continues a file at its last record, which the caller appends again. For callers that know that
    /// everything before it, and the name, is durable (recordio_writer.4). Writes nothing itself. The writer
    /// does not know the number of earlier records.
    pub(crate) fn go_on_at(&self, path: &Path, last: LastRecord) -> Result<Writer> {
        let out =
            AppendWriter::go_on(&*self.env.fs, path, OpenOptions::write(), self.buffer_bytes, last.offset)
                .map_err(|e| Error::io("open", path, e))?;
        assert!(!last.header.is_sealed, "seal.1: an encrypted file is not continued");
        Ok(self.writer(path, out, last.header, Seal::default()))
    }

    /// Truncates the file at `end`, so that nothing of the old tail can reappear after new records.
    fn cut(&self, path: &Path, end: u64, tail: Tail) -> std::io::Result<()> {
        if tail == Tail::Clean {
            return Ok(());
        }
        self.env.fs.open(path, OpenOptions::write())?.set_len(end)
    }

    /// Rewrites the records of a file that ends at `end` in place and makes them durable (recordio_writer.4).
    /// Each record is verified again as it is read.
    fn write_again(&self, path: &Path, end: u64) -> Result<Writer> {
        let mut reader = Reader::options().env(&self.env).open(path)?;
        let open = self.open_options(OpenOptions::write());
        let out = AppendWriter::rewrite(&*self.env.fs, path, open, self.buffer_bytes)
            .map_err(|e| Error::io("open", path, e))?;
        let mut writer = self.writer(path, out, reader.header(), Seal::default());
        writer.write(&writer.header.encode())?;
        while let Some((frame, payload)) = reader.next_stored()? {
            writer.write(&frame.encode(&writer.header, writer.size()))?;
            writer.write(payload)?;
            writer.records += 1;
        }
        if writer.size() != end {
            let detail = format!("the records ended at {end} in an earlier read");
            return Err(Error::corrupt("record file", path, writer.size(), detail));
        }
        writer.sync()?;
        Ok(writer)
    }

    /// A synced record is useless in a file whose name is lost (recordio_writer.1).
    fn sync_name(&self, path: &Path) -> Result<()> {
        if self.is_named_later {
            return Ok(());
        }
        let dir = path.parent().unwrap_or(Path::new(""));
        self.env.fs.sync_dir_if_readable(dir).map_err(|e| Error::io("sync the directory", dir, e))
    }

    fn create_with(&self, path: &Path, open: OpenOptions) -> Result<Writer> {
        let fs = &*self.env.fs;
        let seal = Seal::create(&self.env, FileKind::Records)?;
        let own_keys = encryption::own_keys(&self.env)?;
        let out = AppendWriter::create(fs, path, self.open_options(open), self.buffer_bytes)
            .map_err(|e| Error::io("create", path, e))?;
        let salt = self.env.random.next_u64() as u32;
        let header = FileHeader {
            codec: self.compression,
            salt,
            is_sealed: seal.is_on(),
            has_keys: own_keys.is_some(),
        };
        let bytes = header.encode();
        let bytes = [&bytes[..], &seal.header(&bytes), &own_keys.unwrap_or_default()].concat();
        let mut writer = self.writer(path, out, header, seal);
        match self.sync_name(path).and_then(|()| writer.write(&bytes)) {
            Ok(()) => Ok(writer),
            Err(error) => {
                drop(writer);
                if open.create_new {
                    // The next attempt must not find the file. If it cannot be removed, it is empty and can
                    // be continued.
                    let _ = fs.remove_file(path);
                }
                Err(error)
            }
        }
    }

    fn open_options(&self, open: OpenOptions) -> OpenOptions {
        if self.direct { open.direct() } else { open }
    }

    fn writer(&self, path: &Path, out: AppendWriter, header: FileHeader, seal: Seal) -> Writer {
        Writer {
            out,
            path: path.to_path_buf(),
            header,
            seal,
            scratch: Vec::new(),
            scratch_bytes_max: self.buffer_bytes.max(SCRATCH_BYTES),
            records: 0,
            cut_tail: Tail::Clean,
        }
    }
}

/// Appends records to a file. Call [`finish`](Self::finish) at the end: dropping a writer discards buffered
/// records.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("log");
/// use esker::Compression;
/// use esker::recordio::{Reader, Writer};
///
/// let mut writer = Writer::options().compression(Compression::Lz4).create(&path)?;
/// writer.append(b"one")?;
/// writer.append_sync(b"two")?; // both are durable
/// drop(writer);
///
/// let mut writer = Writer::open_append(&path)?;
/// writer.append(b"three")?;
/// assert_eq!(writer.len(), 3);
/// writer.finish()?;
///
/// let records: Result<Vec<_>, _> = Reader::open(&path)?.records().collect();
/// assert_eq!(records?, [&b"one"[..], b"two", b"three"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Writer {
    out: AppendWriter,
    path: PathBuf,
    header: FileHeader,
    seal: Seal,
    /// Buffer for a compressed or encrypted record. Between records it keeps at most `scratch_bytes_max`.
    scratch: Vec<u8>,
    scratch_bytes_max: usize,
    records: u64,
    cut_tail: Tail,
}

impl Writer {
    /// Creates a file, or replaces an existing one, with the default options.
    pub fn create(path: impl AsRef<Path>) -> Result<Writer> {
        Self::options().create(path)
    }

    /// Continues or creates a file with the default options; see [`WriteOptions::open_append`].
    pub fn open_append(path: impl AsRef<Path>) -> Result<Writer> {
        Self::options().open_append(path)
    }

    /// Returns the default options.
    pub fn options() -> WriteOptions {
        WriteOptions::default()
    }

    /// Appends a record of at most `u32::MAX` bytes. Returns its offset, by which a
    /// [`SeekableReader`](super::SeekableReader) reads it. The record is durable after the next
    /// [`sync`](Self::sync).
    pub fn append(&mut self, record: &[u8]) -> Result<u64> {
        let max = RECORD_BYTES_MAX - self.header.tag_bytes();
        let raw_len = u32::try_from(record.len()).ok().filter(|len| *len <= max).ok_or_else(|| {
            Error::Invalid(format!("record of {} bytes: the maximum is {max} bytes", record.len()))
        })?;
        let offset = self.out.position();
        // Moved out while the frame borrows it.
        let mut scratch = std::mem::take(&mut self.scratch);
        let written = frame::pack(record, raw_len, (&self.header, &self.seal), offset, &mut scratch)
            .map_err(|e| Error::io("compress a record for", &self.path, e))
            .and_then(|(frame, payload)| {
                self.write(&frame.encode(&self.header, offset))?;
                self.write(payload)
            });
        if scratch.capacity() > self.scratch_bytes_max {
            // Do not keep the memory of one huge record for the life of the writer.
            scratch.clear();
            scratch.shrink_to(self.scratch_bytes_max);
        }
        self.scratch = scratch;
        written?;
        self.records += 1;
        Ok(offset)
    }

    /// Appends a record and makes it and all earlier records durable (recordio_writer.1).
    pub fn append_sync(&mut self, record: &[u8]) -> Result<u64> {
        let offset = self.append(record)?;
        self.sync()?;
        Ok(offset)
    }

    /// Writes all buffered records to the file system, so that readers see them. A crash of the machine may
    /// still lose them.
    pub fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|e| Error::io("write", &self.path, e))
    }

    /// Writes all buffered records, and asks the file system to start writing them to the disk.
    pub(crate) fn begin_sync(&mut self) -> Result<()> {
        self.out.begin_sync().map_err(|e| Error::io("write", &self.path, e))
    }

    /// Makes all records durable (recordio_writer.1). After an error it is unknown which records since the
    /// last sync are durable, and the writer accepts no more: [`open_append`](WriteOptions::open_append)
    /// makes the readable ones durable and continues.
    pub fn sync(&mut self) -> Result<()> {
        self.out.sync().map_err(|e| Error::io("sync", &self.path, e))
    }

    /// Makes all records durable, truncates preallocated space of a direct file, and returns the file size in
    /// bytes. After an error the file remains, with every record that was synced before.
    pub fn finish(self) -> Result<u64> {
        let (_, size) = self.out.finish().map_err(|e| Error::io("sync", &self.path, e))?;
        Ok(size)
    }

    /// Number of records in the file.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Returns whether the file has no records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Size of the file in bytes, including buffered records: the offset of the next record.
    pub fn size(&self) -> u64 {
        self.out.position()
    }

    /// Returns what [`open_append`](WriteOptions::open_append) found after the last valid record and
    /// truncated.
    pub fn cut_tail(&self) -> Tail {
        self.cut_tail
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write(bytes).map_err(|e| Error::io("write", &self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_env::MemFs;

    use super::*;

    #[test]
    fn a_huge_record_does_not_keep_its_memory() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let options = Writer::options().env(&env).compression(Compression::Lz4);
        let mut writer = options.create_new("f").unwrap();
        writer.append(&[b'a'; 1000]).unwrap();
        let usual = writer.scratch.capacity();
        assert!(usual > 0 && usual <= SCRATCH_BYTES);
        writer.append(&vec![b'a'; 8 * SCRATCH_BYTES]).unwrap();
        assert!(writer.scratch.capacity() <= SCRATCH_BYTES, "{} bytes", writer.scratch.capacity());
        // The memory of a normal record is kept, so that records do not allocate each time.
        writer.append(&[b'a'; 1000]).unwrap();
        let kept = writer.scratch.capacity();
        writer.append(&[b'a'; 1000]).unwrap();
        assert!(kept > 0 && kept == writer.scratch.capacity());
    }
}
