//! The operating system's files.
//!
//! ```text
//!   RealFs / RealFile --portable part (std)--> here
//!                     `-direct I/O, allocation, cache hints, directory sync--> unix.rs | other.rs
//! ```
//!
//! R1. A direct file is opened buffered first and switched afterwards, so that a file system without direct I/O
//!     leaves no half-done `create_new` behind; one that then cannot be switched is removed.
//! R2. A lock is the operating system's (flock, LockFileEx): it ends with its handle or its process, however that
//!     ends. The process id in the file serves only the error message of the loser, and says nothing of those who hold the
//!     lock to read.
//! R3. Only regular files are opened; others are refused without being touched. Opening a named pipe would wait for its
//!     other end.
//! R4. Only the file that has the name is locked: whoever held the lock may have removed the file after we had opened it, and the
//!     next one makes a new file, which a lock of the old one says nothing of.
//! R5. A file system may grant direct I/O and refuse it in the call that needs it, as overlayfs does over one that has none: then the file
//!     goes on buffered. Its writer goes on as it was, in whole blocks.
//! R6. A direct write that is cut short inside a block is repeated from that block's start: from the middle it would
//!     fail for its alignment and hide the true error. Where it is cut there again, the disk is full.
#![expect(unsafe_code, reason = "mapping a file")]

#[cfg(not(unix))]
#[path = "real/other.rs"]
mod sys;
#[cfg(unix)]
#[path = "real/unix.rs"]
mod sys;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{AlignedBuf, File, FileLock, Fs, LockError, Mapping, OpenOptions};

/// How often a lock file is opened that is another one once it is locked (R4).
const LOCK_ROUNDS: u32 = 100;

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

impl RealFs {
    /// The file system of this process.
    pub fn new() -> Self {
        RealFs
    }
}

impl Fs for RealFs {
    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        open_with(path, options, sys::make_direct)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        self.create_dir_all(parent)?;
        match fs::create_dir(path) {
            // Another process or thread may have been faster; its directory serves as well.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            other => other?,
        }
        self.sync_dir_if_readable(parent)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        sys::sync_dir(or_here(path))
    }

    fn can_sync_dir(&self, path: &Path) -> io::Result<()> {
        sys::can_sync_dir(or_here(path))
    }

    /// The system knows it, whatever links, `.` and `..` the path has. Above the root it is the root.
    fn dir_above(&self, path: &Path) -> Option<PathBuf> {
        Some(path.join(".."))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn file_size(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        sys::free_bytes(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>, LockError> {
        lock_with(path, || ())
    }

    fn lock_to_read(&self, path: &Path) -> Result<Option<Box<dyn FileLock>>, LockError> {
        lock_to_read_with(path, || ())
    }
}

fn or_here(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

/// Locks the file at `path`, which is made if it is not there; `opened` is called between its opening and its locking.
fn lock_with(path: &Path, mut opened: impl FnMut()) -> Result<Box<dyn FileLock>, LockError> {
    for _ in 0..LOCK_ROUNDS {
        refuse_special(path).map_err(LockError::Io)?;
        // Not cut on open: until the lock is ours, the content belongs to the holder.
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(LockError::Io)?;
        opened();
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                // R2: if it can be shared, those who hold it only read, and the id in the file is that of an earlier holder.
                let pid = if file.try_lock_shared().is_ok() { None } else { read_pid(&file) };
                return Err(LockError::Held { path: path.to_owned(), pid });
            }
            Err(fs::TryLockError::Error(e)) => return Err(LockError::Io(e)),
        }
        if !sys::has_name(&file, path).map_err(LockError::Io)? {
            // R4: each time round somebody else has held the lock and removed its file.
            continue;
        }
        let pid = format!("{}\n", std::process::id());
        // R2: a full disk is no reason to refuse the lock; at worst a loser's message lacks the id.
        let _ = file.set_len(0).and_then(|()| sys::write_at(&file, pid.as_bytes(), 0));
        return Ok(Box::new(RealLock { file, path: path.to_owned() }));
    }
    Err(never_the_same())
}

/// Keeps others from locking the file at `path`, if there is one; `opened` is called between its opening and its locking.
fn lock_to_read_with(path: &Path, mut opened: impl FnMut()) -> Result<Option<Box<dyn FileLock>>, LockError> {
    for _ in 0..LOCK_ROUNDS {
        refuse_special(path).map_err(LockError::Io)?;
        let file = match fs::File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(LockError::Io(e)),
        };
        opened();
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(LockError::Held { path: path.to_owned(), pid: read_pid(&file) });
            }
            // A file system without locks: then nobody else has it locked either.
            Err(fs::TryLockError::Error(_)) => return Ok(None),
        }
        if sys::has_name(&file, path).map_err(LockError::Io)? {
            return Ok(Some(Box::new(RealLock { file, path: path.to_owned() })));
        }
        // R4: somebody has removed the file meanwhile.
    }
    Err(never_the_same())
}

/// After so many rounds of R4.
fn never_the_same() -> LockError {
    LockError::Io(io::Error::other("the lock file is another one each time it is looked at"))
}

/// Opens a file; `make_direct` switches it to unbuffered I/O, if it can.
fn open_with(
    path: &Path,
    options: OpenOptions,
    make_direct: impl FnOnce(&fs::File) -> io::Result<bool>,
) -> io::Result<Arc<dyn File>> {
    let create = options.create || options.create_new;
    // What is created anew is a regular file.
    if !options.create_new {
        refuse_special(path)?;
    }
    let file = fs::OpenOptions::new()
        .read(true)
        .write(options.write || create || options.truncate)
        .create(create)
        .create_new(options.create_new)
        .truncate(options.truncate)
        .open(path)?;
    let switched = if options.direct { make_direct(&file) } else { Ok(false) };
    let direct = switched.inspect_err(|_| {
        if options.create_new {
            // R1. The error that matters is the one above.
            let _ = fs::remove_file(path);
        }
    })?;
    Ok(Arc::new(RealFile { file, direct }))
}

/// Refuses what is there and is no regular file (R3). What cannot be looked at is for the opening to tell.
fn refuse_special(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(meta) if !meta.is_file() => {
            let text = "it is a pipe, a socket or a device, not a file";
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        _ => Ok(()),
    }
}

/// The holder's process id, if the platform lets us read a locked file (Windows does not).
fn read_pid(file: &fs::File) -> Option<u32> {
    let mut bytes = [0; 16];
    let n = sys::read_at(file, &mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..n]).ok()?.trim().parse().ok()
}

/// A lock on a file, of this handle or of this process.
struct RealLock {
    file: fs::File,
    path: PathBuf,
}

impl FileLock for RealLock {}

impl Drop for RealLock {
    /// Closing the file would not do: a child process, between its fork and its exec, has a descriptor of the same lock.
    fn drop(&mut self) {
        // What cannot be unlocked is unlocked by closing, or never was locked.
        let _ = self.file.unlock();
    }
}

impl std::fmt::Debug for RealLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RealLock({})", self.path.display())
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    direct: bool,
}

impl RealFile {
    /// Whether a call that failed so may be tried again: it was direct, and is buffered now (R5).
    fn is_buffered_now(&self, error: &io::Error) -> bool {
        self.direct
            && error.kind() == io::ErrorKind::InvalidInput
            && sys::make_buffered(&self.file).unwrap_or(false)
    }
}

/// Writes all of `buf` by calls of `write` that may write less; in whole blocks, if it is to (R6).
fn write_all_by(
    buf: &[u8],
    offset: u64,
    in_blocks: bool,
    mut write: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    // Whether the last call wrote less than the block that it began with.
    let (mut done, mut is_stuck) = (0, false);
    while done < buf.len() {
        match write(&buf[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) if in_blocks && done + n < buf.len() => {
                let whole = (done + n) / AlignedBuf::ALIGN * AlignedBuf::ALIGN;
                if is_stuck && whole == done {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                (is_stuck, done) = (whole == done, whole);
            }
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match sys::read_at(&self.file, buf, offset) {
            Err(e) if self.is_buffered_now(&e) => sys::read_at(&self.file, buf, offset),
            read => read,
        }
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        write_all_by(buf, offset, self.direct, |bytes, at| match sys::write_at(&self.file, bytes, at) {
            Err(e) if self.is_buffered_now(&e) => sys::write_at(&self.file, bytes, at),
            written => written,
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        // std: fdatasync on Linux, F_FULLFSYNC on Apple's systems, FlushFileBuffers on Windows.
        self.file.sync_data()
    }

    fn start_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::start_writeback(&self.file, offset, len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::allocate(&self.file, offset, len)
    }

    fn drop_cache(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::drop_cache(&self.file, offset, len)
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn map(&self) -> io::Result<Mapping> {
        if self.len()? == 0 {
            return Ok(Mapping(Box::new(Vec::new())));
        }
        // SAFETY: the map is read-only and private to this process's view; that the file is not cut while it lives
        // is the documented duty of `File::map`'s caller, and the engine maps only finished, immutable files.
        let map = unsafe { memmap2::Mmap::map(&self.file)? };
        Ok(Mapping(Box::new(map)))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn r1_a_new_file_that_cannot_be_switched_is_not_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let fails = |_: &fs::File| Err(io::ErrorKind::Other.into());
        for _ in 0..2 {
            let error = open_with(&path, OpenOptions::create_new().direct(), fails).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Other, "R1");
            assert!(!path.exists(), "R1");
        }
        // What was there before stays.
        fs::write(&path, "mine").unwrap();
        for options in [OpenOptions::write(), OpenOptions::read()] {
            open_with(&path, options.direct(), fails).unwrap_err();
            assert_eq!(fs::read(&path).unwrap(), b"mine", "R1");
        }
        open_with(&path, OpenOptions::create_new().direct(), |_| Ok(false)).unwrap_err();
        assert!(path.exists(), "R1");
    }

    #[test]
    fn r5_a_direct_file_whose_calls_are_refused_goes_on_buffered() {
        let dir = tempfile::tempdir().unwrap();
        for first in ["write", "read"] {
            let file = RealFs.open(&dir.path().join(first), OpenOptions::create_new().direct()).unwrap();
            let block = crate::AlignedBuf::zeroed(AlignedBuf::ALIGN);
            file.write_all_at(&block, 0).unwrap();
            // No file system does this directly.
            if first == "read" {
                assert_eq!(file.read_at(&mut [1; 3], 1).unwrap(), 3, "R5");
            }
            file.write_all_at(b"odd", 1).unwrap();
            let mut bytes = [1; 5];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes, b"\0odd\0", "R5");
            file.sync_data().unwrap();
        }
    }

    /// Three blocks, no two of them alike.
    fn three_blocks() -> Vec<u8> {
        (0..3 * AlignedBuf::ALIGN).map(|n| (n % 251) as u8).collect()
    }

    #[test]
    fn r6_a_direct_write_that_is_cut_inside_a_block_is_repeated_from_its_start() {
        const OFFSET: usize = 5 * AlignedBuf::ALIGN;
        let bytes = three_blocks();
        for whole in [0, AlignedBuf::ALIGN, 2 * AlignedBuf::ALIGN] {
            let mut store = vec![0; OFFSET + bytes.len()];
            let mut calls = Vec::new();
            let written = write_all_by(&bytes, OFFSET as u64, true, |part, at| {
                let at = at as usize;
                calls.push(at - OFFSET);
                // The first call ends 1,024 bytes into a block, the second one is interrupted.
                let n = match calls.len() {
                    1 => whole + 1024,
                    2 => return Err(io::ErrorKind::Interrupted.into()),
                    _ => part.len(),
                };
                store[at..at + n].copy_from_slice(&part[..n]);
                Ok(n)
            });
            written.unwrap();
            assert_eq!(calls, [0, whole, whole], "R6");
            assert!(store[OFFSET..] == bytes[..], "R6: cut behind {whole}");
            assert!(store[..OFFSET].iter().all(|byte| *byte == 0), "R6: cut behind {whole}");
        }
    }

    #[test]
    fn r6_a_direct_write_that_is_cut_inside_a_block_again_has_met_a_full_disk() {
        let bytes = three_blocks();
        for whole in [0, AlignedBuf::ALIGN, 2 * AlignedBuf::ALIGN] {
            // The disk has so much room. Asked again it may say that it is full, or write as little as before.
            for error in [None, Some(io::ErrorKind::QuotaExceeded)] {
                let mut calls = 0;
                let written = write_all_by(&bytes, 0, true, |part, at| {
                    calls += 1;
                    assert!(calls < 10, "R6: it goes round for ever");
                    match error {
                        Some(error) if calls > 1 => Err(error.into()),
                        _ => Ok(part.len().min(whole + 1024 - at as usize)),
                    }
                });
                let expected = error.unwrap_or(io::ErrorKind::StorageFull);
                assert_eq!(written.unwrap_err().kind(), expected, "R6: {whole}");
            }
        }
    }

    #[test]
    fn a_buffered_write_goes_on_where_it_was_cut_and_ends_where_nothing_is_written() {
        let bytes = three_blocks();
        let mut store = vec![0; bytes.len()];
        let mut calls = 0;
        let written = write_all_by(&bytes, 0, false, |part, at| {
            calls += 1;
            if calls % 3 == 0 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let (at, n) = (at as usize, part.len().min(1000));
            store[at..at + n].copy_from_slice(&part[..n]);
            Ok(n)
        });
        written.unwrap();
        assert!(store == bytes && calls > 13, "{calls} calls");
        for in_blocks in [false, true] {
            let nothing = write_all_by(&bytes, 0, in_blocks, |_, _| Ok(0));
            assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WriteZero);
        }
    }

    /// Of what cannot be synced, the kernel says so if it is asked. Elsewhere nobody misses a sync that is not made.
    #[cfg(target_os = "linux")]
    #[test]
    fn syncs_of_files_and_directories_reach_the_kernel() {
        let (_reader, writer) = io::pipe().unwrap();
        let pipe = RealFile { file: std::os::fd::OwnedFd::from(writer).into(), direct: false };
        // EINVAL.
        assert_eq!(pipe.sync_data().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(RealFs.sync_dir(Path::new("/proc")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        // And what can be synced is.
        let dir = tempfile::tempdir().unwrap();
        RealFs.sync_dir(dir.path()).unwrap();
        RealFs.open(&dir.path().join("f"), OpenOptions::create_new()).unwrap().sync_data().unwrap();
    }

    #[test]
    fn r2_a_lock_ends_with_its_handle_although_a_descriptor_of_it_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.unwrap();
        file.try_lock().unwrap();
        // As a child process has it that was forked and has not executed its program yet.
        let inherited = file.try_clone().unwrap();
        drop(RealLock { file, path: path.clone() });
        let again = RealFs.lock(&path);
        assert!(again.is_ok(), "{:?}", again.err());
        drop(inherited);
    }

    #[test]
    fn r4_a_file_that_was_removed_before_it_is_locked_is_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        // The holder goes, and removes the file, while we are between its opening and its locking.
        let mut rounds = 0;
        let lock = lock_with(&path, || {
            rounds += 1;
            if rounds == 1 {
                fs::remove_file(&path).unwrap();
            }
        });
        assert!(lock.is_ok() && path.exists() && rounds == 2, "R4: {rounds} rounds");
        drop(lock);
        // And somebody else comes: there is one holder, not two.
        let mut other = None;
        let mine = lock_with(&path, || {
            if other.is_none() {
                fs::remove_file(&path).unwrap();
                other = Some(RealFs.lock(&path).unwrap());
            }
        });
        assert!(matches!(mine, Err(LockError::Held { .. })), "R4");
    }

    #[test]
    fn r4_a_file_that_was_removed_before_it_is_locked_to_read_keeps_nobody_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        // It is removed while we are between its opening and its locking, and there is none any more.
        drop(RealFs.lock(&path).unwrap());
        let none = lock_to_read_with(&path, || fs::remove_file(&path).unwrap());
        assert!(matches!(none, Ok(None)), "R4: {none:?}");
        // Or somebody makes a new one: held, it keeps us out; else it is the one to hold.
        for is_held in [true, false] {
            drop(RealFs.lock(&path).unwrap());
            let (mut rounds, mut other) = (0, None);
            let mine = lock_to_read_with(&path, || {
                rounds += 1;
                if rounds == 1 {
                    fs::remove_file(&path).unwrap();
                    other = Some(RealFs.lock(&path).unwrap()).filter(|_| is_held);
                }
            });
            assert_eq!((rounds, other.is_some()), (2, is_held), "R4");
            match mine {
                Err(LockError::Held { .. }) => assert!(is_held, "R4"),
                Ok(Some(_)) => assert!(!is_held && RealFs.lock(&path).is_err(), "R4"),
                mine => panic!("R4: {mine:?}"),
            }
        }
    }
}
