//! Handing small commits to the operating system by storing them in its memory of the segment's file.
//!
//! ```text
//!   WalWriter::write --few since the last sync, or large--> a call of the system
//!                    `--else--> FileWindow over the next MiB of the segment (esker-env)
//! ```
//!
//! wal_window.1. Where the system does not take part, or cannot, the segment's commits are written by calls, which say what is the matter.
//! wal_window.2. Commits that are synced one by one are written by calls: a sync writes whole what a window made ready.

use esker_env::{File, FileWindow};

/// Of the file, at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// More is written by a call, which is one for all.
const STORED_BYTES_MAX: usize = 16 << 10;
/// So many are written by calls after a sync (wal_window.2).
const CALLS: u32 = 3;

/// The window of one segment.
#[derive(Debug)]
pub(super) struct LogWindow {
    memory: Option<FileWindow>,
    is_refused: bool,
    /// Since the last sync.
    writes: u32,
}

impl LogWindow {
    /// None of the segment is stored yet; nothing ever is, where it is not allowed.
    pub(super) fn new(is_allowed: bool) -> Self {
        LogWindow { memory: None, is_refused: !is_allowed, writes: 0 }
    }

    /// Hands the bytes, which follow the last ones of the segment, to the system; false if a call of it has to. `len`: bytes of the file.
    pub(super) fn write(&mut self, file: &dyn File, len: u64, bytes: &[u8], offset: u64) -> bool {
        self.writes += 1;
        if self.is_refused || self.writes <= CALLS || bytes.len() > STORED_BYTES_MAX {
            return false;
        }
        if !self.memory.as_ref().is_some_and(|memory| memory.holds(offset, bytes.len())) {
            self.memory = file.window(offset, WINDOW_BYTES.min(len - offset) as usize);
        }
        let stored = self.memory.as_mut().is_some_and(|memory| memory.write(bytes, offset).is_ok());
        // wal_window.1
        self.is_refused = !stored;
        if !stored {
            self.memory = None;
        }
        stored
    }

    /// The segment was synced.
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
            std::fs::copy(entry.path(), killed.path().join(entry.file_name())).unwrap();
        }
        let found = Db::open(killed.path()).unwrap();
        let found: Vec<_> = found.default_keyspace().iter().map(|entry| entry.unwrap()).collect();
        assert_eq!(found.len(), 3000);
        for (n, (key, value)) in (0_u32..).zip(found) {
            assert_eq!((&key[..], &value[..]), (&n.to_be_bytes()[..], &vec![n as u8; n as usize % 700][..]));
        }
    }
}
