//! A log without a database: a directory of record files, one for each segment. The public interface of this
//! module.
//!
//! ```text
//!   append --> 000001.log 000002.log 000003.log --replay, segment by segment--> records
//!              `-- remove_below                `-- continued by the next opening
//! ```
//!
//! standalone.1. A segment exists only if all segments before it are durable. So only the last one may have a
//!     torn tail, and opening the log truncates it.
//! standalone.2. The numbers of the segments have no gaps, and the last segment is never removed. So a lost
//!     segment between others is noticed, and no number is used twice.

use std::path::{Path, PathBuf};

use esker_env::{Env, FileLock};

use super::file_name;
use crate::encoding::Compression;
use crate::recordio::{Reader, Tail, WriteOptions, Writer};
use crate::types::{Error, Result};

/// Number of the first segment.
const FIRST: u64 = 1;

/// Options of a [`Log`].
#[derive(Clone, Debug)]
pub struct Options {
    env: Env,
    segment_bytes: u64,
    compression: Compression,
}

impl Default for Options {
    fn default() -> Self {
        Options { env: Env::real(), segment_bytes: 64 << 20, compression: Compression::None }
    }
}

impl Options {
    /// Sets the environment; the operating system's files by default.
    pub fn env(mut self, env: &Env) -> Self {
        self.env = env.clone();
        self
    }

    /// Sets the size at which a segment ends, in bytes; 64 MiB by default. A larger record gets a segment of
    /// its own.
    pub fn segment_bytes(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self
    }

    /// Sets the codec of new segments; none by default. Each record that it shortens is compressed on its
    /// own.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Opens the log in a directory, or creates both. Truncates a torn tail of the last segment, and makes
    /// the records before it durable: that reads and rewrites this segment.
    ///
    /// # Errors
    /// [`Error::Locked`] while another handle has the log open; [`Error::Corrupt`] for damage in the last
    /// segment and for a missing segment; [`Error::Io`], [`Error::NoSpace`].
    pub fn open(&self, dir: impl AsRef<Path>) -> Result<Log> {
        let (dir, env) = (dir.as_ref(), &self.env);
        env.fs.create_dir_all(dir).map_err(|e| Error::io("create", dir, e))?;
        let lock_path = dir.join("LOCK");
        let lock = env.fs.lock(&lock_path);
        let lock = lock.map_err(|e| Error::lock(lock_path, e, env.threads.process_id()))?;
        let segments = segments(env, dir)?;
        let last = segments.last().copied().unwrap_or(FIRST);
        let mut log = Log {
            options: self.clone(),
            dir: dir.to_path_buf(),
            first: segments.first().copied().unwrap_or(last),
            last,
            writer: None,
            cut_tail: Tail::Clean,
            _lock: lock,
        };
        if !segments.is_empty() {
            let writer = log.write_options().open_append(log.path(last))?;
            (log.cut_tail, log.writer) = (writer.cut_tail(), Some(writer));
        }
        log.writer()?;
        Ok(log)
    }
}

/// Returns the numbers of the segments in a directory (standalone.2).
fn segments(env: &Env, dir: &Path) -> Result<Vec<u64>> {
    let names = env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| file_name::parse_standalone(name)).collect();
    numbers.sort_unstable();
    match numbers.windows(2).find(|pair| pair[0] + 1 < pair[1]) {
        Some(pair) => {
            let path = dir.join(file_name::standalone_file_name(pair[0] + 1));
            Err(Error::corrupt("log", path, 0, format!("the segment is missing, but {} exists", pair[1])))
        }
        None => Ok(numbers),
    }
}

/// An open log. Records are appended to its last segment, and removed with their segments.
#[derive(Debug)]
pub struct Log {
    options: Options,
    dir: PathBuf,
    first: u64,
    last: u64,
    /// The writer of the last segment. `None` if its file could not be created yet.
    writer: Option<Writer>,
    cut_tail: Tail,
    _lock: Box<dyn FileLock>,
}

impl Log {
    /// Opens or creates a log with the default options; see [`Options::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Log> {
        Self::options().open(dir)
    }

    /// Returns the default options.
    pub fn options() -> Options {
        Options::default()
    }

    /// Appends a record of at most `u32::MAX` bytes. Returns the number of its segment. The record is durable
    /// after the next [`sync`](Self::sync). If it fills the segment, a new one is started.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a longer record. [`Error::Io`] and [`Error::NoSpace`]: open the log again if
    /// they persist; what was synced is there.
    pub fn append(&mut self, record: &[u8]) -> Result<u64> {
        let segment_bytes = self.options.segment_bytes;
        let writer = self.writer()?;
        let bytes = writer.size().saturating_add(record.len() as u64);
        if !writer.is_empty() && bytes > segment_bytes {
            self.rotate()?;
        }
        self.writer()?.append(record)?;
        Ok(self.last)
    }

    /// Appends a record and makes it and all earlier records durable.
    pub fn append_sync(&mut self, record: &[u8]) -> Result<u64> {
        let segment = self.append(record)?;
        self.sync()?;
        Ok(segment)
    }

    /// Makes all appended records durable. After an error the log accepts no more records: open it again.
    pub fn sync(&mut self) -> Result<()> {
        self.writer()?.sync()
    }

    /// Makes all appended records durable and starts a new segment, unless the last one is empty. Returns the
    /// number of the segment that the next record goes to.
    pub fn rotate(&mut self) -> Result<u64> {
        let writer = self.writer()?;
        if !writer.is_empty() {
            // standalone.1
            writer.sync()?;
            self.writer = None;
            self.last += 1;
            self.writer()?;
        }
        Ok(self.last)
    }

    /// Passes every record to `visit` with the number of its segment, in the order in which they were
    /// appended. Stops at the first error of `visit` and returns it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] names the file and the offset of damage. The records before it were passed.
    pub fn replay(&mut self, mut visit: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        self.writer()?.flush()?;
        for segment in self.first..=self.last {
            let options = Reader::options().env(&self.options.env).strict_tail(segment < self.last);
            let mut reader = options.open(self.path(segment))?;
            while let Some(record) = reader.next()? {
                visit(segment, record)?;
            }
        }
        Ok(())
    }

    /// Removes the segments below `segment`, except the last one.
    pub fn remove_below(&mut self, segment: u64) -> Result<()> {
        while self.first < segment.min(self.last) {
            let (path, fs) = (self.path(self.first), &self.options.env.fs);
            fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
            self.first += 1;
            // A crash must not bring back this segment without the next one (standalone.2).
            fs.sync_dir_if_readable(&self.dir).map_err(|e| Error::io("sync the directory", &self.dir, e))?;
        }
        Ok(())
    }

    /// Returns the numbers of the first and the last segment.
    pub fn segments(&self) -> std::ops::RangeInclusive<u64> {
        self.first..=self.last
    }

    /// Returns what opening the log found after the last valid record and truncated.
    pub fn cut_tail(&self) -> Tail {
        self.cut_tail
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.dir.join(file_name::standalone_file_name(segment))
    }

    fn write_options(&self) -> WriteOptions {
        Writer::options().env(&self.options.env).compression(self.options.compression)
    }

    /// Returns the writer of the last segment. Creates the file if that failed before.
    fn writer(&mut self) -> Result<&mut Writer> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            // The file of an earlier attempt may exist; it has no records.
            None => self.write_options().create(self.path(self.last))?,
        };
        Ok(self.writer.insert(writer))
    }
}

#[cfg(test)]
mod tests;
