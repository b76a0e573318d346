//! The manifest, and the numbers that it gives to files and runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_env::Env;
use parking_lot::{Mutex, MutexGuard};

use crate::manifest::edit::VersionEdit;
use crate::manifest::file_name::table_path;
use crate::manifest::level::RunId;
use crate::manifest::log::ManifestLog;
use crate::types::{FileId, Result};
use crate::wal::Register;

/// The manifest, and the numbers of what it names.
pub(crate) struct Tables {
    manifest: Arc<Mutex<ManifestLog>>,
    next_file: Arc<AtomicU64>,
    next_run: AtomicU64,
    /// Tables of edits whose append failed.
    disowned: Mutex<Vec<FileId>>,
}

/// The manifest, and the numbers of files.
pub(in crate::engine) struct SharedTables {
    manifest: Arc<Mutex<ManifestLog>>,
    next_file: Arc<AtomicU64>,
}

impl SharedTables {
    pub(in crate::engine) fn manifest(&self) -> MutexGuard<'_, ManifestLog> {
        self.manifest.lock()
    }

    pub(in crate::engine) fn new_file(&self) -> FileId {
        FileId::new(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// A number above those of all files so far.
    pub(in crate::engine) fn next_file(&self) -> FileId {
        FileId::new(self.next_file.load(Ordering::Relaxed))
    }
}

impl Tables {
    /// For a manifest just written. The numbers of new files and runs start here.
    pub(in crate::engine) fn new(manifest: ManifestLog, next_file: FileId, next_run: RunId) -> Self {
        Tables {
            manifest: Arc::new(Mutex::new(manifest)),
            next_file: Arc::new(AtomicU64::new(next_file.get())),
            next_run: AtomicU64::new(next_run.0),
            disowned: Mutex::default(),
        }
    }

    /// Returns a function with which the log names its segments in the manifest.
    pub(in crate::engine) fn register_segments(&self) -> Register {
        let (manifest, next_file) = (self.manifest.clone(), self.next_file.clone());
        Register::new(move |segment| {
            let edit = VersionEdit { wal_named: Some(segment), ..VersionEdit::default() };
            manifest.lock().append(edit, || FileId::new(next_file.fetch_add(1, Ordering::Relaxed)))
        })
    }

    /// Records tables of an edit whose append failed.
    pub(in crate::engine) fn disown(&self, files: Vec<FileId>) {
        self.disowned.lock().extend(files);
    }

    /// The same manifest and numbers, with shared ownership.
    pub(in crate::engine) fn shared(&self) -> SharedTables {
        SharedTables { manifest: self.manifest.clone(), next_file: self.next_file.clone() }
    }

    /// Locks the manifest. No edit is written meanwhile.
    pub(crate) fn manifest(&self) -> MutexGuard<'_, ManifestLog> {
        self.manifest.lock()
    }

    /// Returns a number for a new file.
    pub(crate) fn new_file(&self) -> FileId {
        FileId::new(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a function that gives numbers for new files.
    pub(in crate::engine) fn file_numbers(&self) -> impl Fn() -> FileId + Send + Sync + 'static {
        let next_file = self.next_file.clone();
        move || FileId::new(next_file.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a number for a new run, larger than all before.
    pub(crate) fn new_run(&self) -> RunId {
        RunId(self.next_run.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds the numbers given out so far to an edit.
    pub(in crate::engine) fn number(&self, edit: &mut VersionEdit) {
        edit.next_file = Some(FileId::new(self.next_file.load(Ordering::Relaxed)));
        edit.next_run = Some(RunId(self.next_run.load(Ordering::Relaxed)));
    }

    /// Returns whether an append has failed since the last new manifest.
    pub(in crate::engine) fn has_disowned(&self) -> bool {
        !self.disowned.lock().is_empty()
    }

    /// Starts a new manifest if an append to the old one has failed. Removes the tables that only the old one
    /// may name.
    pub(in crate::engine) fn heal(&self, env: &Env, dir: &Path) -> Result<()> {
        let mut manifest = self.manifest.lock();
        manifest.heal(|| self.new_file())?;
        for file in self.disowned.lock().drain(..) {
            // Garbage: if the removal fails, the next opening repeats it.
            let _ = env.fs.remove_file(&table_path(dir, file));
        }
        Ok(())
    }
}
