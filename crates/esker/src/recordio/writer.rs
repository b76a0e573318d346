//! Writing a record file, new or continued.
//!
//! ```text
//!   append(&[u8]) --frame::pack--> AppendWriter --buffer--> File
//!   open_append: Reader to the last valid record -> sync the name -> cut the torn tail -> write all again, sync -> go on there
//! ```
//!
//! recordio_writer.1. When `sync` or `append_sync` has returned, every record appended so far survives a crash, and so does the
//!     file's name, unless its directory may not be read: then that cannot be synced.
//! recordio_writer.2. After a failed write or sync nothing more is written, and nothing is retried.
//! recordio_writer.3. A file is continued only right behind its last valid record, and never if there is damage before one.
//! recordio_writer.4. What a continued file holds is durable before anything follows it, and so is the file's name. A killed process
//!     leaves records that can be read and were never synced; after a sync that failed the system may even count them as
//!     written, so that another sync alone would do nothing: they are written again, the same bytes to the same place.

use std::path::{Path, PathBuf};

use esker_env::{AppendWriter, Env, OpenOptions};

use crate::encoding::Compression;
use crate::types::{Error, Result};

use super::frame;
use super::header::FileHeader;
use super::reader::{LastRecord, Reader};
use super::scan::Tail;

/// The longest record, in bytes.
const RECORD_BYTES_MAX: u32 = u32::MAX;
/// The room for a compressed record that a writer keeps at least, whatever its buffer.
const SCRATCH_BYTES: usize = 1 << 20;

/// How to write a record file.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    env: Env,
    compression: Compression,
    buffer_bytes: usize,
    direct: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            env: Env::real(),
            compression: Compression::None,
            buffer_bytes: 256 << 10,
            direct: false,
        }
    }
}

impl WriteOptions {
    /// The file system to write to; the operating system's by default.
    pub fn env(mut self, env: &Env) -> Self {
        self.env = env.clone();
        self
    }

    /// The codec of a new file; none by default. Each record that it makes shorter is compressed on its own.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// How much is collected before it is written, in bytes; 256 KiB by default.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// Write around the operating system's page cache, where the file system can. Off by default.
    pub fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Creates a file, or replaces the one of this name.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Writer> {
        self.create_with(path.as_ref(), OpenOptions::create())
    }

    /// Creates a file that must not exist yet.
    pub fn create_new(&self, path: impl AsRef<Path>) -> Result<Writer> {
        self.create_with(path.as_ref(), OpenOptions::create_new())
    }

    /// Continues a file behind its last valid record, or creates it. A torn tail is cut off
    /// ([`Writer::cut_tail`] tells); damage before a valid record is [`Error::Corrupt`], and nothing is changed.
    /// The file keeps its codec.
    ///
    /// Reads the whole file to verify it, then writes it again in place, as it is, and syncs it: whether what can be
    /// read was ever synced, or a sync of it failed, nothing in the file tells. When this returns, all records in the
    /// file are durable. Where that takes too long, begin a new file from time to time.
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
        drop(reader);
        if end == 0 {
            return Ok(Writer { cut_tail: tail, ..self.create(path)? });
        }
        // Before all that takes its time: a refusal is to cost nothing.
        self.sync_name(path)?;
        self.cut(path, end, tail).map_err(|e| Error::io("cut the torn tail of", path, e))?;
        let writer = self.write_again(path, end)?;
        Ok(Writer { cut_tail: tail, ..writer })
    }

    /// Continues a file at its last record, which the caller appends again, for who knows that what is before it is durable, and its name too
    /// (recordio_writer.4). Writes nothing. The writer does not know how many records there are.
    pub(crate) fn go_on_at(&self, path: &Path, last: LastRecord) -> Result<Writer> {
        let out =
            AppendWriter::go_on(&*self.env.fs, path, OpenOptions::write(), self.buffer_bytes, last.offset)
                .map_err(|e| Error::io("open", path, e))?;
        Ok(self.writer(path, out, last.header))
    }

    /// Makes the file end at `end`: of the old tail nothing may come back behind what is written next.
    fn cut(&self, path: &Path, end: u64, tail: Tail) -> std::io::Result<()> {
        if tail == Tail::Clean {
            return Ok(());
        }
        self.env.fs.open(path, OpenOptions::write())?.set_len(end)
    }

    /// Writes the records of a file that ends at `end` again, in place, and makes them durable (recordio_writer.4). What is written is
    /// what was just verified: it may be read another time from the disk, which need not have it.
    fn write_again(&self, path: &Path, end: u64) -> Result<Writer> {
        let mut reader = Reader::options().env(&self.env).open(path)?;
        let open = self.open_options(OpenOptions::write());
        let out = AppendWriter::rewrite(&*self.env.fs, path, open, self.buffer_bytes)
            .map_err(|e| Error::io("open", path, e))?;
        let mut writer = self.writer(path, out, reader.header());
        writer.write(&writer.header.encode())?;
        while let Some((frame, payload)) = reader.next_stored()? {
            writer.write(&frame.encode(&writer.header, writer.size()))?;
            writer.write(payload)?;
            writer.records += 1;
        }
        if writer.size() != end {
            let detail = format!("its records ended at {end} when they were read before");
            return Err(Error::corrupt("record file", path, writer.size(), detail));
        }
        writer.sync()?;
        Ok(writer)
    }

    /// recordio_writer.1: a synced record is of no use in a file whose name is lost.
    fn sync_name(&self, path: &Path) -> Result<()> {
        let dir = path.parent().unwrap_or(Path::new(""));
        self.env.fs.sync_dir_if_readable(dir).map_err(|e| Error::io("sync the directory", dir, e))
    }

    fn create_with(&self, path: &Path, open: OpenOptions) -> Result<Writer> {
        let fs = &*self.env.fs;
        let out = AppendWriter::create(fs, path, self.open_options(open), self.buffer_bytes)
            .map_err(|e| Error::io("create", path, e))?;
        let header = FileHeader { codec: self.compression, salt: self.env.random.next_u64() as u32 };
        let mut writer = self.writer(path, out, header);
        match self.sync_name(path).and_then(|()| writer.write(&header.encode())) {
            Ok(()) => Ok(writer),
            Err(error) => {
                drop(writer);
                if open.create_new {
                    // The next attempt is to find no file; one that stays is empty, and can be continued.
                    let _ = fs.remove_file(path);
                }
                Err(error)
            }
        }
    }

    fn open_options(&self, open: OpenOptions) -> OpenOptions {
        if self.direct { open.direct() } else { open }
    }

    fn writer(&self, path: &Path, out: AppendWriter, header: FileHeader) -> Writer {
        Writer {
            out,
            path: path.to_path_buf(),
            header,
            scratch: Vec::new(),
            scratch_bytes_max: self.buffer_bytes.max(SCRATCH_BYTES),
            records: 0,
            cut_tail: Tail::Clean,
        }
    }
}

/// Appends records to a file. End with [`finish`](Self::finish): a writer that is dropped leaves out what it has
/// not handed to the file system yet.
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
/// writer.append_sync(b"two")?; // both are durable now
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
    /// Room for a compressed record; it keeps no more than this many bytes from one record to the next.
    scratch: Vec<u8>,
    scratch_bytes_max: usize,
    records: u64,
    cut_tail: Tail,
}

impl Writer {
    /// Creates a file, or replaces the one of this name, with the default options.
    pub fn create(path: impl AsRef<Path>) -> Result<Writer> {
        Self::options().create(path)
    }

    /// Continues or creates a file with the default options: see [`WriteOptions::open_append`].
    pub fn open_append(path: impl AsRef<Path>) -> Result<Writer> {
        Self::options().open_append(path)
    }

    /// Options to open a file with.
    pub fn options() -> WriteOptions {
        WriteOptions::default()
    }

    /// Appends a record of at most `u32::MAX` bytes and returns its offset, by which a
    /// [`SeekableReader`](super::SeekableReader) finds it. It is durable after the next [`sync`](Self::sync).
    pub fn append(&mut self, record: &[u8]) -> Result<u64> {
        let raw_len = u32::try_from(record.len()).map_err(|_| {
            Error::Invalid(format!(
                "record of {} bytes: the longest is {RECORD_BYTES_MAX} bytes",
                record.len()
            ))
        })?;
        let offset = self.out.position();
        // Taken out while the frame borrows from it.
        let mut scratch = std::mem::take(&mut self.scratch);
        let written = frame::pack(record, raw_len, &self.header, &mut scratch)
            .map_err(|e| Error::io("compress a record for", &self.path, e))
            .and_then(|(frame, payload)| {
                self.write(&frame.encode(&self.header, offset))?;
                self.write(payload)
            });
        if scratch.capacity() > self.scratch_bytes_max {
            // One huge record must not keep its memory for the life of the writer.
            scratch.clear();
            scratch.shrink_to(self.scratch_bytes_max);
        }
        self.scratch = scratch;
        written?;
        self.records += 1;
        Ok(offset)
    }

    /// Appends a record and makes it, and all before it, durable (recordio_writer.1).
    pub fn append_sync(&mut self, record: &[u8]) -> Result<u64> {
        let offset = self.append(record)?;
        self.sync()?;
        Ok(offset)
    }

    /// Hands all records to the file system, so that readers see them; a crash of the machine may still lose them.
    pub fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|e| Error::io("write", &self.path, e))
    }

    /// Makes all records durable (recordio_writer.1). After an error it is not known which of those since the last sync are, and the writer
    /// takes nothing more: [`open_append`](WriteOptions::open_append) makes durable what can be read, and goes on.
    pub fn sync(&mut self) -> Result<()> {
        self.out.sync().map_err(|e| Error::io("sync", &self.path, e))
    }

    /// Makes all records durable, cuts what a direct file has behind them, and returns the file's size in bytes. After an
    /// error the file stays, with all that was synced before.
    pub fn finish(self) -> Result<u64> {
        let (_, size) = self.out.finish().map_err(|e| Error::io("sync", &self.path, e))?;
        Ok(size)
    }

    /// The number of records in the file.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Whether the file has no records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The size of the file in bytes, records not written yet included: the offset of the next record.
    pub fn size(&self) -> u64 {
        self.out.position()
    }

    /// What [`open_append`](WriteOptions::open_append) found behind the last valid record, and cut off.
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
        // Of a size that fits it stays, so that not each record allocates.
        writer.append(&[b'a'; 1000]).unwrap();
        let kept = writer.scratch.capacity();
        writer.append(&[b'a'; 1000]).unwrap();
        assert!(kept > 0 && kept == writer.scratch.capacity());
    }
}
