//! Writes a table of plain keys and values.

use std::path::{Path, PathBuf};

use esker_env::Env;

use super::super::options::TableOptions;
use super::super::writer::TableWriter;
use crate::types::entry::EntryRef;
use crate::types::op::Kind;
use crate::types::{Error, Result, SeqNo};
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Writes a table of keys in strictly ascending order.
///
/// The table is complete only when [`finish`](Self::finish) returns. A writer that is dropped or fails to
/// finish removes its file.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("fruits.sst");
/// use esker::sstable::{Reader, Writer};
///
/// let mut writer = Writer::create(&path)?;
/// writer.put(b"apple", b"red")?;
/// writer.put(b"banana", b"yellow")?;
/// assert!(writer.put(b"aardvark", b"too late").is_err());
/// writer.finish()?;
///
/// assert_eq!(Reader::open(&path)?.get(b"banana")?.unwrap(), b"yellow");
/// # Ok::<(), esker::Error>(())
/// ```
pub struct Writer {
    /// `None` after `finish`.
    table: Option<TableWriter>,
    env: Env,
    path: PathBuf,
}

impl Writer {
    /// Creates the file with the default options. It must not exist.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::create_in(&Env::real(), path, TableOptions::default())
    }

    /// Creates the file. It must not exist.
    pub fn create_with(path: impl AsRef<Path>, options: TableOptions) -> Result<Self> {
        Self::create_in(&Env::real(), path, options)
    }

    /// Creates the file in another environment, for example in memory.
    pub fn create_in(env: &Env, path: impl AsRef<Path>, options: TableOptions) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let table = TableWriter::create(env, &path, options).map_err(Error::or_exists)?;
        Ok(Writer { table: Some(table), env: env.clone(), path })
    }

    fn table(&mut self) -> &mut TableWriter {
        self.table.as_mut().expect("only finish takes the table, and the writer with it")
    }

    /// Adds a key, which must be larger than the last one. The writer remains usable after
    /// [`Error::OutOfOrder`], after [`Error::Invalid`] (a full table: 4 billion blocks, or about 4 GiB of
    /// separators in its index) and after an error about a length, but not after other errors.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(key, Kind::PUT, value)
    }

    /// Adds a tombstone of a key, which must be larger than the last one. Readers do not show the key, and
    /// [`merge`](super::merge) drops its values in older tables. Errors are those of [`put`](Self::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.add(key, Kind::REMOVE, b"")
    }

    pub(crate) fn add(&mut self, key: &[u8], kind: Kind, value: &[u8]) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLong { len: key.len() });
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { len: value.len() });
        }
        self.table().add(EntryRef { key, seq: SeqNo::ZERO, kind, value })
    }

    /// Number of keys so far.
    pub fn len(&self) -> u64 {
        self.table.as_ref().map_or(0, TableWriter::entries)
    }

    /// Returns whether no key was added yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Approximate size of the file in bytes if it were finished now.
    pub fn estimated_bytes(&self) -> u64 {
        self.table.as_ref().map_or(0, TableWriter::estimated_bytes)
    }

    /// Completes the table and makes its contents and its name durable. Returns the size of the file. The
    /// name is not made durable if the directory cannot be read, because it cannot be synced then. After an
    /// error the file is removed. If it cannot be removed either, it is incomplete, or a complete table.
    pub fn finish(mut self) -> Result<u64> {
        let table = self.table.take().expect("only finish takes the table, and the writer with it");
        let finished = table.finish(None).and_then(|meta| {
            let dir = self.path.parent().unwrap_or(Path::new(""));
            self.env.fs.sync_dir_if_readable(dir).map_err(|e| Error::io("sync the directory", dir, e))?;
            Ok(meta.file_bytes)
        });
        finished.inspect_err(|_| {
            // The original error is more important.
            let _ = self.env.fs.remove_file(&self.path);
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(table) = self.table.take() {
            // If an unfinished file cannot be removed, readers refuse it.
            let _ = table.abandon();
        }
    }
}
