//! Files of copies, beside the directory of the database.
//!
//! ```text
//!   data                  the database
//!   data.esker-copy-<n>   on a primary: a checkpoint that is being sent
//!   data.esker-full       on a replica: a copy, incomplete or complete
//!   data.esker-old        the replaced database, until the copy has its name
//! ```
//!
//! - At each moment of the exchange one of the directories is complete. The next start finishes the exchange.
//! - Each of these directories has a job file that proves what it is. A directory that only has such
//!   a name is left alone, and blocks the copy. Only files with names of a database are removed from a proved
//!   one.
//! - No symbolic link below the parent directory is followed (fs.5).
#![expect(
    clippy::disallowed_types,
    reason = "files of a database that is not open are sent and exchanged around the engine"
)]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use esker::env::{AppendWriter, Entry, Env, JobFile, OpenOptions};
use esker::is_of_database;
use xxhash_rust::xxh3::Xxh3;

/// Kinds of job files: an arriving copy, a replaced database, a copy that is sent.
const COMING: &str = "replica-copy";
const REPLACED: &str = "replaced-database";
const SENT: &str = "copy-to-send";
/// Kind of the job file of a checkpoint that is being made in the directory of a copy to send.
const WORKPLACE: &str = "workplace";
/// The database in the directory of a copy to send, and the workplace of its checkpoint.
const DATABASE: &str = "db";
const DATABASE_NEW: &str = "db.esker-new";
/// Maximum number tried for a copy to send. Directories of other programs may have lower ones.
const COPIES_MAX: u64 = 1000;

/// Returns a path beside a directory.
pub fn beside(dir: &Path, suffix: &str) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    dir.with_file_name(name)
}

/// Returns the directory of an arriving copy.
pub fn full_dir(dir: &Path) -> PathBuf {
    beside(dir, ".esker-full")
}

fn old_dir(dir: &Path) -> PathBuf {
    beside(dir, ".esker-old")
}

/// Returns a file system that reaches the directories beside this one through no link.
fn env_beside(dir: &Path) -> io::Result<Env> {
    Env::real().hold(parent(dir), None)
}

fn is_proved(env: &Env, dir: &Path, kind: &str) -> io::Result<bool> {
    Ok(env.fs.entry(dir)? == Some(Entry::Dir) && !JobFile::left(env, dir, kind)?.is_empty())
}

/// Clears the name for a replaced database. Removes what an earlier exchange has left. Fails if other files
/// are there.
fn make_way(env: &Env, old: &Path) -> io::Result<()> {
    if !is_proved(env, old, REPLACED)? {
        return if env.fs.entry(old)?.is_some() { Err(in_the_way(old)) } else { Ok(()) };
    }
    remove_proved(env, old, &[REPLACED])?;
    if env.fs.entry(old)?.is_none() {
        return Ok(());
    }
    let mut names = env.fs.list_dir(old)?;
    names.retain(|name| !JobFile::is_name(name));
    names.sort_unstable();
    let text = format!(
        "{} holds files that are not of a database: {}. They lay in the directory of this replica when a copy took its place. Move them away; the next copy comes by itself then",
        old.display(),
        names.join(" ")
    );
    Err(io::Error::new(io::ErrorKind::AlreadyExists, text))
}

fn in_the_way(path: &Path) -> io::Error {
    let text = format!("{} is there, and is not of this server: move it away", path.display());
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

/// Makes the directory for an arriving copy, or finds that of an earlier attempt. Nothing may block the
/// exchange.
///
/// # Errors
/// Of the file system, or if another file has one of the names.
pub fn begin_full(dir: &Path) -> io::Result<PathBuf> {
    let (full, old, env) = (full_dir(dir), old_dir(dir), env_beside(dir)?);
    make_way(&env, &old)?;
    match env.fs.create_dir(&full, None) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            if is_proved(&env, &full, COMING)? {
                return Ok(full);
            }
            // A crash may leave an empty directory, or one with only a job file.
            let is_empty = env.fs.entry(&full)? == Some(Entry::Dir)
                && env.fs.list_dir(&full)?.iter().all(|name| JobFile::is_name(name));
            if !is_empty {
                return Err(in_the_way(&full));
            }
        }
        made => made?,
    }
    JobFile::begin(&env, &full, COMING)?;
    Ok(full)
}

/// Replaces a closed database by a complete copy.
///
/// # Errors
/// Fails if the file system fails.
pub fn exchange(dir: &Path) -> io::Result<()> {
    let (env, old) = (env_beside(dir)?, old_dir(dir));
    make_way(&env, &old)?;
    JobFile::begin(&env, dir, REPLACED)?;
    env.fs.rename_dir(dir, &old)?;
    sync_parent(dir)?;
    finish_copy(dir)
}

/// Finishes an interrupted exchange, and removes what copies have left. Must be called before the database is
/// opened.
///
/// # Errors
/// Fails if the file system fails.
pub fn finish_copy(dir: &Path) -> io::Result<()> {
    if !parent(dir).is_dir() {
        return Ok(());
    }
    let (env, old, full) = (env_beside(dir)?, old_dir(dir), full_dir(dir));
    if is_proved(&env, &old, REPLACED)? {
        if env.fs.entry(dir)?.is_none() {
            if !is_proved(&env, &full, COMING)? {
                return Err(in_the_way(&full));
            }
            env.fs.rename_dir(&full, dir)?;
            sync_parent(dir)?;
        }
        remove_proved(&env, &old, &[REPLACED])?;
    }
    // The exchange did not begin, or has ended.
    if env.fs.entry(dir)? == Some(Entry::Dir) {
        for kind in [REPLACED, COMING] {
            JobFile::left(&env, dir, kind)?.into_iter().try_for_each(|job| job.end(&env))?;
        }
    }
    remove_copies(&env, dir)
}

/// Removes the copies that an ended process was sending.
fn remove_copies(env: &Env, dir: &Path) -> io::Result<()> {
    let prefix = beside(dir, ".esker-copy-");
    let prefix = prefix.file_name().unwrap_or_default().to_string_lossy();
    for name in env.fs.list_dir(parent(dir))?.iter().filter(|name| name.starts_with(&*prefix)) {
        let path = dir.with_file_name(name);
        if is_proved(env, &path, SENT)? {
            remove_sent(env, &path)?;
        }
    }
    Ok(())
}

fn remove_sent(env: &Env, path: &Path) -> io::Result<()> {
    let made = path.join(DATABASE_NEW);
    for (dir, kinds) in [
        (path.join(DATABASE), &[][..]),
        (made.join(DATABASE), &[][..]),
        (made, &[WORKPLACE][..]),
        (path.to_owned(), &[SENT][..]),
    ] {
        remove_proved(env, &dir, kinds)?;
    }
    Ok(())
}

/// Removes a proved directory, or one in a proved directory, if it holds no other files. The
/// proof is removed last, once the other removals are durable.
fn remove_proved(env: &Env, dir: &Path, kinds: &[&str]) -> io::Result<()> {
    if env.fs.entry(dir)? != Some(Entry::Dir) {
        return Ok(());
    }
    let env_in = env.hold(dir, None)?;
    for name in env_in.fs.list_dir(dir)?.iter().filter(|name| *name == "LOCK" || is_of_database(name)) {
        env_in.fs.remove_file(&dir.join(name))?;
    }
    let is_job = |name: &String| JobFile::is_name(name);
    if env_in.fs.list_dir(dir)?.iter().all(is_job) {
        env_in.fs.sync_dir_if_readable(dir)?;
        for kind in kinds {
            JobFile::left(&env_in, dir, kind)?.into_iter().try_for_each(|job| job.end(&env_in))?;
        }
    }
    match env.fs.remove_dir(dir) {
        Err(e) if e.kind() != io::ErrorKind::DirectoryNotEmpty => Err(e),
        _ => Ok(()),
    }
}

/// The directory of a copy to send.
pub struct Sent {
    env: Env,
    path: PathBuf,
}

impl Sent {
    /// Makes one beside a database.
    ///
    /// # Errors
    /// Fails if the file system fails.
    pub fn begin(dir: &Path) -> io::Result<Sent> {
        let env = env_beside(dir)?;
        let mut number = 1;
        let path = loop {
            let path = beside(dir, &format!(".esker-copy-{number}"));
            match env.fs.create_dir(&path, None) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < COPIES_MAX => number += 1,
                made => break made.map(|()| path)?,
            }
        };
        JobFile::begin(&env, &path, SENT)?;
        Ok(Sent { env, path })
    }

    /// Returns the path for the checkpoint.
    pub fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // The next start removes what is left.
        let _ = remove_sent(&self.env, &self.path);
    }
}

/// Returns the parent directory. That of a single name is the working directory.
fn parent(dir: &Path) -> &Path {
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_parent(dir: &Path) -> io::Result<()> {
    sync_dir(parent(dir))
}

/// Makes the names in a directory durable.
///
/// # Errors
/// Fails if the file system fails.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    // Other systems have no such call, and need none.
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

/// Returns the names and sizes of the files in a database's directory, sorted by name. A database has no
/// subdirectories.
///
/// # Errors
/// Fails if the file system fails.
pub fn files(dir: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    let env = env_beside(dir)?;
    for name in env.fs.list_dir(dir)?.into_iter().filter(|name| is_of_database(name)) {
        if let Some(Entry::File { len, .. }) = env.fs.entry(&dir.join(&name))? {
            files.push((name, len));
        }
    }
    files.sort();
    Ok(files)
}

/// Passes a file to `see` in pieces, and returns the digest of what was passed. `see` returns false to stop.
///
/// # Errors
/// Fails if the file system fails.
pub fn read(path: &Path, piece: usize, mut see: impl FnMut(&[u8]) -> bool) -> io::Result<u128> {
    let file = env_beside(path)?.fs.open(path, OpenOptions::read())?;
    let mut digest = Xxh3::new();
    let mut buffer = vec![0; piece];
    let mut at = 0;
    loop {
        let n = file.read_at(&mut buffer, at)?;
        if n == 0 {
            return Ok(digest.digest128());
        }
        at += n as u64;
        digest.update(&buffer[..n]);
        if !see(&buffer[..n]) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
}

/// Bytes written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// Writes a file with direct I/O where possible: new pages for a whole copy would cost more than writing it
/// to the disk.
pub struct Writer {
    file: AppendWriter,
    digest: Xxh3,
    /// Bytes still to be written.
    pub left: u64,
}

impl Writer {
    /// Begins a file.
    ///
    /// # Errors
    /// Fails if the file system fails.
    pub fn create(path: &Path, len: u64) -> io::Result<Self> {
        let env = env_beside(path)?;
        if env.fs.entry(path)?.is_some() {
            env.fs.remove_file(path)?;
        }
        let file = AppendWriter::create(&*env.fs, path, OpenOptions::create_new().direct(), WRITE_BYTES)?;
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

    /// Makes the file durable, and returns the digest of its content.
    ///
    /// # Errors
    /// Fails if the file system fails.
    pub fn finish(self) -> io::Result<u128> {
        self.file.finish()?;
        Ok(self.digest.digest128())
    }
}

/// Removes a file.
///
/// # Errors
/// Fails if the file system fails.
pub fn remove_file(path: &Path) -> io::Result<()> {
    env_beside(path)?.fs.remove_file(path)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "what a crash leaves, made by hand")]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use esker_env::{Fs, MemFs};

    use super::*;

    #[test]
    fn a_power_loss_leaves_no_file_without_its_proof() {
        let (fs, dir) = (MemFs::new(), Path::new("beside/data.esker-full"));
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        fs.create_dir_all(dir).unwrap();
        JobFile::begin(&env, dir, COMING).unwrap();
        let current = dir.join("CURRENT");
        let file = fs.open(&current, OpenOptions::create_new()).unwrap();
        file.write_all_at(b"copied", 0).unwrap();
        file.sync_data().unwrap();
        [dir, Path::new("beside"), Path::new("")].iter().for_each(|dir| fs.sync_dir(dir).unwrap());
        remove_proved(&env, dir, &[COMING]).unwrap();
        for seed in 0..100 {
            let left = fs.crash(seed);
            let env = Env::simulated(Arc::new(left.clone()), 1);
            let is_there = left.exists(&current).unwrap();
            assert!(!is_there || is_proved(&env, dir, COMING).unwrap(), "seed {seed}");
        }
    }

    #[test]
    fn the_next_start_ends_an_exchange_wherever_it_was_broken_off() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        let env = Env::real();
        let make = |dir: &Path, text: &str| {
            fs::create_dir_all(dir).unwrap();
            fs::write(dir.join("CURRENT"), text).unwrap();
        };
        let now = || fs::read(dir.join("CURRENT")).unwrap();
        // What was done of it -> what the start finds.
        for step in 0..3 {
            make(&dir, "old");
            if step > 0 {
                JobFile::begin(&env, &dir, REPLACED).unwrap();
            }
            begin_full(&dir).unwrap();
            make(&full_dir(&dir), "new");
            make(&Sent::begin(&dir).map(std::mem::ManuallyDrop::new).unwrap().database(), "left");
            if step > 0 {
                fs::rename(&dir, old_dir(&dir)).unwrap();
            }
            if step > 1 {
                fs::rename(full_dir(&dir), &dir).unwrap();
            }
            finish_copy(&dir).unwrap();
            assert_eq!(now(), if step > 0 { &b"new"[..] } else { b"old" }, "step {step}");
            assert_eq!(files(&dir).unwrap().len(), fs::read_dir(&dir).unwrap().count());
            let left = fs::read_dir(parent.path()).unwrap().count();
            assert_eq!(left, if step > 0 { 1 } else { 2 }, "an unfinished copy stays, to go on with it");
        }
        assert_eq!(super::parent(Path::new("data")), Path::new("."), "a name alone");
        begin_full(&dir).unwrap();
        make(&full_dir(&dir), "newer");
        exchange(&dir).unwrap();
        assert_eq!(now(), b"newer");
    }

    #[cfg(unix)]
    #[test]
    fn repl_disk_3_directories_of_others_stay_whatever_they_are_called() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        fs::create_dir(&dir).unwrap();
        let others = parent.path().join("others");
        let names = [old_dir(&dir), full_dir(&dir), beside(&dir, ".esker-copy-1"), others.clone()];
        for path in &names {
            fs::create_dir(path).unwrap();
            fs::write(path.join("CURRENT"), "mine").unwrap();
        }
        let check = || {
            for path in &names {
                assert_eq!(fs::read(path.join("CURRENT")).unwrap(), b"mine", "{path:?}");
            }
        };
        finish_copy(&dir).unwrap();
        assert!(begin_full(&dir).is_err() && exchange(&dir).is_err());
        drop(Sent::begin(&dir).unwrap());
        check();
        for path in &names[..3] {
            fs::remove_dir_all(path).unwrap();
            std::os::unix::fs::symlink(&others, path).unwrap();
        }
        finish_copy(&dir).unwrap();
        assert!(begin_full(&dir).is_err() && exchange(&dir).is_err());
        drop(Sent::begin(&dir).unwrap());
        check();
    }

    #[test]
    fn files_of_others_in_a_replaced_database_are_named_and_block_no_copy_once_they_are_away() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("data");
        let copied = || {
            let full = begin_full(&dir).unwrap();
            fs::write(full.join("CURRENT"), "copied").unwrap();
            exchange(&dir)
        };
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("notes.txt"), "mine").unwrap();
        fs::write(dir.join("CURRENT"), "old").unwrap();
        copied().unwrap();
        assert_eq!(fs::read(old_dir(&dir).join("notes.txt")).unwrap(), b"mine");
        let text = begin_full(&dir).unwrap_err().to_string();
        assert!(text.contains("notes.txt") && text.contains("Move them away"), "{text}");
        fs::rename(old_dir(&dir).join("notes.txt"), parent.path().join("notes.txt")).unwrap();
        copied().unwrap();
        assert!(!old_dir(&dir).exists());
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
        fs::rename(&path, dir.path().join("000007.sst")).unwrap();
        assert_eq!(files(dir.path()).unwrap(), [("000007.sst".to_owned(), 5)]);
    }
}
