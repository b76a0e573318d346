//! Descriptors of tables: no more than a part of what the process may have are open; others are opened again by who reads.
//!
//! ```text
//!   TableFile::get --open?--> File
//!                  `--no----> opened by its name, looked at --> more than [`max`](Descriptors::max): the one that was used longest ago is closed
//! ```
//!
//! descriptors.1. A file that is opened again is the one that was opened before: its end is compared. A table keeps its name until its last user is
//!      gone (table.4).
//! descriptors.2. Who reads has a handle of its own: a file that is closed here is open for as long as somebody reads it.
//! descriptors.3. Files that are none of the operating system's cost no descriptor, and stay open.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use esker_env::{File, FsRef, OpenOptions, read_range};
use parking_lot::{Mutex, RwLock};

use crate::types::{Error, Result};

/// Tables have this part of the process's descriptors.
const PART: u64 = 2;
/// So many they have in any case.
const MIN: u64 = 8;
/// Where the system names no limit.
const UNLIMITED: u64 = 1 << 20;

/// Those of this process.
static OF_PROCESS: LazyLock<Arc<Descriptors>> = LazyLock::new(|| {
    let max = esker_env::descriptors_max().map_or(UNLIMITED, |max| (max / PART).max(MIN));
    Descriptors::new(max.min(UNLIMITED) as usize)
});

/// The open files of tables.
pub(super) struct Descriptors {
    max: usize,
    /// In the order in which they were opened, or were found used.
    open: Mutex<VecDeque<Weak<TableFile>>>,
}

impl Descriptors {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Descriptors { max, open: Mutex::default() })
    }

    /// Those of this process.
    pub(super) fn of_process() -> Arc<Self> {
        OF_PROCESS.clone()
    }

    /// Counts a file that was opened, and closes others.
    fn note(&self, opened: &Arc<TableFile>) {
        let mut open = self.open.lock();
        open.push_back(Arc::downgrade(opened));
        // Each has a second chance.
        let mut tries = 2 * open.len();
        while open.len() > self.max && tries > 0 {
            tries -= 1;
            let Some(oldest) = open.pop_front() else { break };
            let Some(file) = oldest.upgrade() else { continue };
            if file.is_used.swap(false, Ordering::Relaxed) {
                open.push_back(oldest);
            } else {
                *file.open.write() = None;
            }
        }
    }
}

/// The file of a table.
pub(super) struct TableFile {
    fs: FsRef,
    path: PathBuf,
    open: RwLock<Option<Arc<dyn File>>>,
    /// Since it was looked at last. Relaxed: a hint.
    is_used: AtomicBool,
    /// Its end, by which it is told from others (descriptors.1), and where that begins.
    end: (u64, Vec<u8>),
    descriptors: Arc<Descriptors>,
}

impl TableFile {
    /// An open file that ends in these bytes.
    pub(super) fn new(
        fs: &FsRef,
        path: &Path,
        file: Arc<dyn File>,
        end: (u64, Vec<u8>),
        descriptors: Arc<Descriptors>,
    ) -> Arc<Self> {
        // descriptors.3
        let is_counted = file.as_std().is_some();
        let table = Arc::new(TableFile {
            fs: fs.clone(),
            path: path.to_owned(),
            open: RwLock::new(Some(file)),
            is_used: AtomicBool::new(true),
            end,
            descriptors,
        });
        if is_counted {
            table.descriptors.note(&table);
        }
        table
    }

    /// The file, open.
    pub(super) fn get(self: &Arc<Self>) -> Result<Arc<dyn File>> {
        if let Some(file) = &*self.open.read() {
            self.is_used.store(true, Ordering::Relaxed);
            return Ok(file.clone());
        }
        let file = self.open_again()?;
        {
            let mut open = self.open.write();
            if let Some(first) = &*open {
                return Ok(first.clone());
            }
            *open = Some(file.clone());
        }
        self.is_used.store(true, Ordering::Relaxed);
        self.descriptors.note(self);
        Ok(file)
    }

    fn open_again(&self) -> Result<Arc<dyn File>> {
        let path = &self.path;
        let file = self.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let (start, end) = &self.end;
        let len = file.len().map_err(|e| Error::io("measure", path, e))?;
        let is_as_long = len == start + end.len() as u64;
        let found = read_range(&*file, *start, if is_as_long { end.len() } else { 0 });
        // descriptors.1
        if found.map_err(|e| Error::read(path, *start, end.len(), &e))? != *end {
            let detail = "another file has taken the place of the one that was open: restore a backup or run `esker repair`";
            return Err(Error::corrupt("table", path, *start, detail));
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use esker_env::Env;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "real files, of which some go")]
    fn descriptors_1_files_beyond_the_limit_are_opened_again_and_are_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (fs, pool) = (Env::real().fs, Descriptors::new(3));
        let path = |n: u8| dir.path().join(n.to_string());
        let files: Vec<_> = (0..10_u8)
            .map(|n| {
                let file = fs.open(&path(n), OpenOptions::create()).unwrap();
                file.write_all_at(&[n; 50], 0).unwrap();
                TableFile::new(&fs, &path(n), file, (10, vec![n; 40]), pool.clone())
            })
            .collect();
        let open = || files.iter().filter(|file| file.open.read().is_some()).count();
        assert_eq!(open(), 3);
        for n in (0..10).chain([0, 0, 5, 0, 6, 0, 7, 0, 8, 0]) {
            let file = files[n].get().unwrap();
            assert_eq!(read_range(&*file, 0, 1).unwrap(), [n as u8]);
            assert_eq!(open(), 3, "descriptors.1: {n}");
        }
        assert!(files[0].open.read().is_some(), "it is used again and again");
        let closed = files.iter().position(|file| file.open.read().is_none()).unwrap();
        let reader = files[8].get().unwrap();
        (0..4).for_each(|n| drop(files[n].get().unwrap()));
        assert!(read_range(&*reader, 0, 1).is_ok(), "descriptors.2");
        std::fs::write(path(closed as u8), [77; 50]).unwrap();
        (4..10).for_each(|n| drop(files[n].get()));
        if files[closed].open.read().is_none() {
            assert!(files[closed].get().unwrap_err().is_corrupt(), "descriptors.1");
        }
        std::fs::remove_file(path(9)).unwrap();
        (0..8).for_each(|n| drop(files[n].get()));
        assert!(files[9].open.read().is_some() || matches!(files[9].get(), Err(Error::Io { .. })));
    }
}
