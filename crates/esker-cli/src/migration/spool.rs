//! A queue of bytes in a file: what a source sends while the target takes what came before.
//!
//! ```text
//!   receive --append--> file --read--> apply            emptied when all is read
//! ```
//!
//! spool.1. A queue has bytes of one history. Offsets of different histories cannot be compared, so the queue
//! has them: another history begins with another queue.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A file that is read to its end is emptied beyond this size.
const KEPT_BYTES: u64 = 64 << 20;

/// Creates a file that is gone when it is closed.
pub(super) fn temporary(directory: &Path) -> io::Result<File> {
    // Relaxed: only the number has to differ.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("esker-import-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = directory.join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// The queue.
#[derive(Debug)]
pub(super) struct Spool {
    /// The offset up to which its bytes were applied (migration.2). Relaxed: no other data depends on it.
    pub(super) applied: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    file: File,
    read: u64,
    written: u64,
    is_over: bool,
    /// The id of the history.
    history: String,
    /// The offset in it up to which bytes were appended.
    received: u64,
}

/// What a reader gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Bytes(usize),
    /// Nothing came in time.
    Nothing,
    /// Nothing will come.
    Over,
}

impl Spool {
    /// Creates the queue of a history, from behind `offset`.
    pub(super) fn new(directory: &Path, history: String, offset: u64) -> io::Result<Self> {
        let file = temporary(directory)?;
        let state = State { file, read: 0, written: 0, is_over: false, history, received: offset };
        Ok(Spool { applied: AtomicU64::new(offset), state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Returns the id of the history, and the offset up to which bytes were appended.
    pub(super) fn position(&self) -> (String, u64) {
        let state = self.lock();
        (state.history.clone(), state.received)
    }

    /// Gives the history another id, as after a failover of the source.
    pub(super) fn rename(&self, history: String) {
        self.lock().history = history;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        let end = state.written;
        state.file.seek(SeekFrom::Start(end))?;
        state.file.write_all(bytes)?;
        state.written += bytes.len() as u64;
        state.received += bytes.len() as u64;
        self.changed.notify_all();
        Ok(())
    }

    /// Says that no more bytes come.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Reads some bytes, and waits for them for a while.
    pub(super) fn read(&self, into: &mut [u8], wait: Duration) -> io::Result<Taken> {
        let state = self.lock();
        let is_idle = |state: &mut State| state.read == state.written && !state.is_over;
        let (mut state, _) =
            self.changed.wait_timeout_while(state, wait, is_idle).unwrap_or_else(PoisonError::into_inner);
        if state.read == state.written {
            return Ok(if state.is_over { Taken::Over } else { Taken::Nothing });
        }
        let start = state.read;
        let len = usize::try_from(state.written - start).unwrap_or(usize::MAX).min(into.len());
        state.file.seek(SeekFrom::Start(start))?;
        state.file.read_exact(&mut into[..len])?;
        state.read += len as u64;
        if state.read == state.written && state.written > KEPT_BYTES {
            state.file.set_len(0)?;
            (state.read, state.written) = (0, 0);
        }
        Ok(Taken::Bytes(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::new(directory.path(), "id".to_owned(), 5).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut into = [0; 4];
        let mut read = || {
            let taken = spool.read(&mut into, Duration::ZERO).unwrap();
            (taken, into)
        };
        assert_eq!(read().0, Taken::Nothing);
        spool.append(b"abc").unwrap();
        spool.append(b"def").unwrap();
        assert_eq!(spool.position(), ("id".to_owned(), 11));
        assert_eq!(read(), (Taken::Bytes(4), *b"abcd"));
        spool.end();
        assert_eq!(read(), (Taken::Bytes(2), *b"efcd"));
        assert_eq!(read().0, Taken::Over);
    }
}
