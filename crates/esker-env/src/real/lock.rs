//! Locks of files by the operating system (real.4).

use std::fs;
use std::io;

use super::{At, look, open_file, sys};
use crate::{FileLock, LockError, OpenOptions};

/// Number of attempts to lock a file that is replaced each time (real.4).
const LOCK_ROUNDS: u32 = 100;
/// Longer than any process id.
const LOCK_BYTES_MAX: usize = 32;

/// A point in [`lock_with`] at which tests act as another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The file is open, and not yet locked.
    Opened,
    /// Another holder has it locked.
    Refused,
}

/// Locks the file at the path, creating it if missing.
pub(super) fn lock_with(at: At<'_>, mut when: impl FnMut(Moment)) -> Result<Box<dyn FileLock>, LockError> {
    for _ in 0..LOCK_ROUNDS {
        // Not truncated when opened: until we have the lock, the content belongs to the holder.
        let options = OpenOptions { create: true, ..OpenOptions::write() };
        let file = open_file(at, options).map_err(LockError::Io)?;
        when(Moment::Opened);
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                when(Moment::Refused);
                if file.try_lock_shared().is_err() {
                    return Err(LockError::Held { path: at.path.to_owned(), pid: read_pid(&file) });
                }
                // The holders are shared and the id is that of an earlier holder, or the lock was
                // just released. An unlock that fails leaves the lock, so that the next attempt fails, too.
                let _ = file.unlock();
                if file.try_lock().is_err() {
                    return Err(LockError::Held { path: at.path.to_owned(), pid: None });
                }
            }
            Err(fs::TryLockError::Error(e)) => return Err(LockError::Io(e)),
        }
        if !has_name(&file, at).map_err(LockError::Io)? {
            // real.4: another holder removed the file.
            continue;
        }
        refuse_other_content(&file)?;
        let dir = lock_held_dir(at, fs::File::try_lock)?;
        // Padded to a fixed length, so that the file rarely needs truncation, which is the slowest step here.
        let pid = format!("{:<10}\n", std::process::id());
        let is_longer = file.metadata().is_ok_and(|meta| meta.len() > pid.len() as u64);
        // A full disk is no reason to refuse the lock; at worst an error message lacks the id.
        let cut = || if is_longer { file.set_len(0) } else { Ok(()) };
        if look(at).is_ok_and(|meta| meta.is_none_or(|meta| meta.names == 1)) {
            let _ = cut().and_then(|()| sys::write_at(&file, pid.as_bytes(), 0));
        }
        return Ok(Box::new(RealLock { file, dir }));
    }
    Err(never_the_same())
}

/// Refuses a file with foreign content, which is not a lock file.
fn refuse_other_content(file: &fs::File) -> Result<(), LockError> {
    let mut bytes = [0; LOCK_BYTES_MAX + 1];
    let len = sys::read_at(file, &mut bytes, 0).map_err(LockError::Io)?;
    let is_ours = |byte: &u8| byte.is_ascii_digit() || [0, b' ', b'\n'].contains(byte);
    if len <= LOCK_BYTES_MAX && bytes[..len].iter().all(is_ours) {
        return Ok(());
    }
    let text = "it is not a lock file of Esker: another file has this name";
    Err(LockError::Io(io::Error::new(io::ErrorKind::InvalidInput, text)))
}

/// Locks an existing file at the path in shared mode. `opened` is called between opening and locking.
pub(super) fn lock_to_read_with(
    at: At<'_>,
    mut opened: impl FnMut(),
) -> Result<Option<Box<dyn FileLock>>, LockError> {
    for _ in 0..LOCK_ROUNDS {
        let file = match open_file(at, OpenOptions::read()) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let dir = lock_held_dir(at, fs::File::try_lock_shared)?;
                return Ok(dir.map(|file| Box::new(RealLock { file, dir: None }) as Box<dyn FileLock>));
            }
            Err(e) => return Err(LockError::Io(e)),
        };
        opened();
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(LockError::Held { path: at.path.to_owned(), pid: read_pid(&file) });
            }
            // Without locks in this file system, there is no other holder either.
            Err(fs::TryLockError::Error(_)) => return Ok(None),
        }
        if has_name(&file, at).map_err(LockError::Io)? {
            let dir = lock_held_dir(at, fs::File::try_lock_shared)?;
            return Ok(Some(Box::new(RealLock { file, dir })));
        }
        // real.4: the file was removed meanwhile.
    }
    Err(never_the_same())
}

/// Also locks the held directory, if directories can be locked.
fn lock_held_dir(
    at: At<'_>,
    lock: impl FnOnce(&fs::File) -> Result<(), fs::TryLockError>,
) -> Result<Option<fs::File>, LockError> {
    let Some(dir) = sys::open_held_dir(at).map_err(LockError::Io)? else { return Ok(None) };
    match lock(&dir) {
        Ok(()) => Ok(Some(dir)),
        Err(fs::TryLockError::WouldBlock) => Err(LockError::Held { path: at.path.to_owned(), pid: None }),
        Err(fs::TryLockError::Error(_)) => Ok(None),
    }
}

/// The error after all attempts of real.4.
fn never_the_same() -> LockError {
    LockError::Io(io::Error::other("the lock file was replaced at every attempt to lock it"))
}

/// Reads the holder's process id, if the platform allows reading a locked file (Windows does not).
fn read_pid(file: &fs::File) -> Option<u32> {
    let mut bytes = [0; 16];
    let n = sys::read_at(file, &mut bytes, 0).ok()?;
    std::str::from_utf8(&bytes[..n]).ok()?.trim().parse().ok()
}

/// Returns whether the path still refers to this file. Assumed where files have no identity, so real.4 does
/// not hold there.
fn has_name(file: &fs::File, at: At<'_>) -> io::Result<bool> {
    let identity = sys::identity(file)?;
    Ok(look(at)?.is_some_and(|named| named.identity == identity))
}

/// A lock on a file, held by this handle.
#[derive(Debug)]
pub(super) struct RealLock {
    pub(super) file: fs::File,
    /// The directory, if it is held and can be locked.
    pub(super) dir: Option<fs::File>,
}

impl FileLock for RealLock {}

impl Drop for RealLock {
    /// Closing the file is not enough: a child process between its fork and its exec may share the lock.
    fn drop(&mut self) {
        // An unlock that fails is completed by closing. The directory is unlocked first, so that the next
        // holder of the file finds it free.
        let _ = self.dir.as_ref().map(fs::File::unlock);
        let _ = self.file.unlock();
    }
}
