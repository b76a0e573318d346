//! Writes small commits by storing into a memory mapping of the WAL segment instead of calling `pwrite`.
//!
//! ```text
//!   WalWriter::write --few since the last sync, or large--> pwrite
//!                    `--else--> FileWindow over the next MiB of the segment (esker-env)
//! ```
//!
//! If the mapping cannot be created, or its pages cannot be prepared, the segment uses `pwrite` for good;
//! `pwrite` reports the error. While commits are synced one by one, `pwrite` is used too: a sync would write
//! out whole pages that the window prepared.

use esker_env::{File, FileWindow};

/// Bytes of the segment mapped at a time.
const WINDOW_BYTES: u64 = 1 << 20;
/// Records larger than this go through `pwrite`: one call covers the whole record.
const STORED_BYTES_MAX: usize = 16 << 10;
/// Number of records written with `pwrite` after a sync before the window is used again.
const CALLS: u32 = 3;

/// The mapped window of one segment.
#[derive(Debug)]
pub(super) struct LogWindow {
    memory: Option<FileWindow>,
    is_refused: bool,
    /// Number of writes since the last sync.
    writes: u32,
}

impl LogWindow {
    /// Returns a window that maps nothing yet, and never will if `is_allowed` is false.
    pub(super) fn new(is_allowed: bool) -> Self {
        LogWindow { memory: None, is_refused: !is_allowed, writes: 0 }
    }

    /// Stores `bytes` at `offset`, the end of the segment's records; returns false if `pwrite` has to be
    /// used. `len` is the length of the file.
    pub(super) fn write(&mut self, file: &dyn File, len: u64, bytes: &[u8], offset: u64) -> bool {
        self.writes += 1;
        if self.is_refused || self.writes <= CALLS || bytes.len() > STORED_BYTES_MAX {
            return false;
        }
        if !self.memory.as_ref().is_some_and(|memory| memory.holds(offset, bytes.len())) {
            self.memory = file.window(offset, WINDOW_BYTES.min(len - offset) as usize);
        }
        let stored = self.memory.as_mut().is_some_and(|memory| memory.write(bytes, offset).is_ok());
        self.is_refused = !stored;
        if !stored {
            self.memory = None;
        }
        stored
    }

    /// Records that the segment was synced.
    pub(super) fn note_sync(&mut self) {
        self.writes = 0;
        if let Some(memory) = &mut self.memory {
            memory.renew();
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
#[expect(clippy::disallowed_methods, reason = "real files, copied as a kill would leave them")]
mod tests {
    use crate::{Db, Durability};

    #[test]
    fn a_kill_takes_nothing_that_was_stored() {
        let (dir, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let db = Db::open(dir.path()).unwrap();
        let map = db.default_keyspace();
        for n in 0..3000_u32 {
            let mut batch = db.batch();
            batch.put(&map, n.to_be_bytes(), vec![n as u8; n as usize % 700]).unwrap();
            batch.commit_with(Durability::Buffered).unwrap();
            if n % 1000 == 999 {
                db.sync().unwrap();
            }
        }
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            match std::fs::copy(entry.path(), killed.path().join(entry.file_name())) {
                // The engine has removed a file that it does not need.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.unwrap()),
            }
        }
        let found = Db::open(killed.path()).unwrap();
        let found: Vec<_> = found.default_keyspace().iter().map(|entry| entry.unwrap()).collect();
        assert_eq!(found.len(), 3000);
        for (n, (key, value)) in (0_u32..).zip(found) {
            assert_eq!((&key[..], &value[..]), (&n.to_be_bytes()[..], &vec![n as u8; n as usize % 700][..]));
        }
    }
}
