//! Files of copies, beside the directory of the database.
//!
//! ```text
//!   data                  the database
//!   data.esker-copy-<n>   a checkpoint that is being sent, on a primary
//!   data.esker-full       a copy that comes, or has come, on a replica
//!   data.esker-old        what the replica had before, until the copy is in its place
//! ```
//!
//! repl_disk.1. At any moment of the exchange, one of the directories is whole; the next start ends what was begun.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "files of a database that nobody has open are sent and put into place around the engine"
)]

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use esker::env::{AppendWriter, RealFs};
use xxhash_rust::xxh3::Xxh3;

/// A path beside a directory.
pub fn beside(dir: &Path, suffix: &str) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    dir.with_file_name(name)
}

/// Where a copy comes to.
pub fn full_dir(dir: &Path) -> PathBuf {
    beside(dir, ".esker-full")
}

fn old_dir(dir: &Path) -> PathBuf {
    beside(dir, ".esker-old")
}

/// Puts a copy that has come into the place of a database that nobody has open (repl_disk.1).
///
/// # Errors
/// Of the file system.
pub fn exchange(dir: &Path) -> io::Result<()> {
    fs::rename(dir, old_dir(dir))?;
    sync_parent(dir)?;
    finish_copy(dir)
}

/// Ends an exchange that was broken off, and removes what copies have left behind. To be called before the database is opened.
///
/// # Errors
/// Of the file system.
pub fn finish_copy(dir: &Path) -> io::Result<()> {
    let (old, full) = (old_dir(dir), full_dir(dir));
    if old.exists() {
        if !dir.exists() {
            fs::rename(&full, dir)?;
            sync_parent(dir)?;
        }
        fs::remove_dir_all(&old)?;
    }
    remove_copies(dir)
}

/// Removes checkpoints that were to be sent, by a process that has ended.
fn remove_copies(dir: &Path) -> io::Result<()> {
    let parent = parent(dir);
    if !parent.is_dir() {
        return Ok(());
    }
    let prefix = beside(dir, ".esker-copy-");
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let is_one = path
            .file_name()
            .zip(prefix.file_name())
            .is_some_and(|(name, prefix)| name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes()));
        if is_one {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

/// The directory that a directory lies in; a name alone lies in the working directory.
fn parent(dir: &Path) -> &Path {
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_parent(dir: &Path) -> io::Result<()> {
    sync_dir(parent(dir))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// Of the file system.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    // Other systems have no such call, and need none.
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

/// Names and lengths of the files of a directory, in order of names. A database has no directories inside.
///
/// # Errors
/// Of the file system.
pub fn files(dir: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if let (Ok(name), true) = (entry.file_name().into_string(), metadata.is_file()) {
            files.push((name, metadata.len()));
        }
    }
    files.sort();
    Ok(files)
}

/// Shows a file piece by piece, and tells the digest of what it has shown. `see` returns false to break off.
///
/// # Errors
/// Of the file system.
pub fn read(path: &Path, piece: usize, mut see: impl FnMut(&[u8]) -> bool) -> io::Result<u128> {
    let mut file = File::open(path)?;
    let mut digest = Xxh3::new();
    let mut buffer = vec![0; piece];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(digest.digest128());
        }
        digest.update(&buffer[..n]);
        if !see(&buffer[..n]) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
}

/// So much is written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// A file that is written past the page cache, where that can be: fresh pages for all of a copy would cost more than its way to the disk.
pub struct Writer {
    file: AppendWriter,
    digest: Xxh3,
    /// Bytes that are still to come.
    pub left: u64,
}

impl Writer {
    /// Begins a file.
    ///
    /// # Errors
    /// Of the file system.
    pub fn create(path: &Path, len: u64) -> io::Result<Self> {
        let options = esker::env::OpenOptions::create().direct();
        let file = AppendWriter::create(&RealFs::new(), path, options, WRITE_BYTES)?;
        Ok(Writer { file, digest: Xxh3::new(), left: len })
    }

    /// Writes the next bytes.
    ///
    /// # Errors
    /// Of the file system; there are too many.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.left = self.left.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
        self.digest.update(bytes);
        self.file.write(bytes)
    }

    /// Makes the file durable, and tells the digest of what was written.
    ///
    /// # Errors
    /// Of the file system.
    pub fn finish(self) -> io::Result<u128> {
        self.file.finish()?;
        Ok(self.digest.digest128())
    }
}

/// Makes a directory, if there is none.
///
/// # Errors
/// Of the file system.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)
}

/// Removes a file.
///
/// # Errors
/// Of the file system.
pub fn remove_file(path: &Path) -> io::Result<()> {
    fs::remove_file(path)
}

/// Removes a directory with all in it, if it is there.
///
/// # Errors
/// Of the file system.
pub fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repl_disk_1_the_next_start_ends_an_exchange_wherever_it_was_broken_off() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        let make = |dir: &Path, text: &str| {
            fs::create_dir_all(dir).unwrap();
            fs::write(dir.join("file"), text).unwrap();
        };
        let now = || fs::read(dir.join("file")).unwrap();
        // What was done of it -> what the start finds.
        for step in 0..3 {
            make(&dir, "old");
            make(&full_dir(&dir), "new");
            make(&beside(&dir, ".esker-copy-7"), "left");
            if step > 0 {
                fs::rename(&dir, old_dir(&dir)).unwrap();
            }
            if step > 1 {
                fs::rename(full_dir(&dir), &dir).unwrap();
            }
            finish_copy(&dir).unwrap();
            assert_eq!(now(), if step > 0 { &b"new"[..] } else { b"old" }, "repl_disk.1: step {step}");
            let left = fs::read_dir(parent.path()).unwrap().count();
            assert_eq!(left, if step > 0 { 1 } else { 2 }, "an unfinished copy stays, to go on with it");
        }
        assert_eq!(super::parent(Path::new("data")), Path::new("."), "a name alone");
        make(&full_dir(&dir), "newer");
        exchange(&dir).unwrap();
        assert_eq!(now(), b"newer");
    }

    #[test]
    fn what_was_written_has_the_digest_of_what_was_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut writer = Writer::create(&path, 5).unwrap();
        writer.write(b"ab").unwrap();
        assert!(writer.write(b"cdef").is_err(), "more than there were to be");
        let mut writer = Writer::create(&path, 5).unwrap();
        writer.write(b"ab").unwrap();
        writer.write(b"cde").unwrap();
        let written = writer.finish().unwrap();
        let mut seen = Vec::new();
        let read = read(&path, 2, |piece| {
            seen.extend_from_slice(piece);
            true
        });
        assert_eq!((read.unwrap(), &*seen), (written, &b"abcde"[..]));
        assert_eq!(files(dir.path()).unwrap(), [("file".to_owned(), 5)]);
    }
}
