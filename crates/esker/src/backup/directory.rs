//! The directory of backups: its layout and its locks.
//!
//! ```text
//!   ESKER-BACKUPS            identifies the directory
//!   LOCK                     held to create or prune backups; shared by readers
//!   ESKER-JOB-<id>           of a backup being created, or interrupted
//!   backups/000007.backup    records
//!   files/NAME.sst, .blob    referenced files
//!   files/incoming-<id>.tmp  file being copied by that job
//!   feed/NAME.segment        commits between backups; created by the first segment
//! ```
//!
//! A directory with other contents is never written to, nor is a directory inside a database. Names of
//! temporary files contain the id of a job. Leftovers of a crash are identified by the job file, so
//! that files of other programs are never removed. Symbolic links in the directory are not followed, because
//! the directory is held open while it is used (fs.5).

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use esker_env::{Env, FileLock, JobFile, OpenOptions, read_range};

use super::Backup;
use super::record::{self, FORMAT_VERSION, Record, is_unusable, stored};
use crate::encryption::{self, KEYS, KEYS_TMP, Unlock};
use crate::engine::life::copies::names::refuse_in_database;
use crate::manifest::file_name::LOCK;
use crate::types::{EncryptionProblem, Error, Result};

const MARKER: &str = "ESKER-BACKUPS";
const MARKER_TEXT: &str = "esker backups, format ";
/// Maximum size of a marker file.
const MARKER_BYTES_MAX: u64 = 64;
const RECORDS: &str = "backups";
const FILES: &str = "files";
const RECORD_ENDING: &str = ".backup";
/// Returns the file name of a backup's record.
pub(super) fn record_name(id: u64) -> String {
    format!("{id:06}{RECORD_ENDING}")
}

/// Returns the id in the name of a record.
pub(super) fn record_id(name: &str) -> Option<u64> {
    name.strip_suffix(RECORD_ENDING)?.parse().ok()
}

/// Kind of job in job files.
const KIND: &str = "backup";

/// The directory of backups, held and locked for one call. Dropping it ends the job of the call.
pub(super) struct LockedBackup<'a> {
    backup: Backup,
    /// The caller, which gets its progress function back.
    caller: &'a mut Backup,
    _lock: Option<Box<dyn FileLock>>,
}

impl<'a> LockedBackup<'a> {
    fn new(caller: &'a mut Backup, mut backup: Backup, lock: Option<Box<dyn FileLock>>) -> Self {
        backup.on_progress = caller.on_progress.take();
        LockedBackup { backup, caller, _lock: lock }
    }
}

impl Deref for LockedBackup<'_> {
    type Target = Backup;

    fn deref(&self) -> &Backup {
        &self.backup
    }
}

impl DerefMut for LockedBackup<'_> {
    fn deref_mut(&mut self) -> &mut Backup {
        &mut self.backup
    }
}

impl Drop for LockedBackup<'_> {
    fn drop(&mut self) {
        self.caller.on_progress = self.backup.on_progress.take();
        if let Some(job) = self.backup.job.take() {
            // Leftovers are removed by the next backup.
            let _ = self.backup.end(job);
        }
    }
}

impl Backup {
    /// Returns whether this is a directory of backups. Fails if it has other contents.
    pub(super) fn look(&self) -> Result<bool> {
        if !self.env.fs.exists(&self.dir).map_err(|e| Error::io("look for", &self.dir, e))? {
            return Ok(false);
        }
        self.held()?.look_inside()
    }

    fn look_inside(&self) -> Result<bool> {
        let fs = &self.env.fs;
        let path = self.dir.join(MARKER);
        if fs.entry(&path).map_err(|e| Error::io("look for", &path, e))?.is_none() {
            // A crash may have left the files that the first backup creates.
            let jobs = self.jobs()?;
            // A store may have void records before the first backup.
            let is_void = self.store.is_some() && self.names(&self.records_dir())?.is_empty();
            let is_ours = |name: &String| {
                let path = self.dir.join(name);
                let is_temporary = || jobs.iter().any(|job| job.temporary(&self.dir, "incoming") == path);
                let is_fixed = [LOCK, KEYS, KEYS_TMP].contains(&name.as_str());
                is_fixed || JobFile::is_name(name) || is_temporary() || (is_void && name == RECORDS)
            };
            let names = fs.list_dir(&self.dir).map_err(|e| Error::io("list", &self.dir, e))?;
            return match names.iter().find(|name| !is_ours(name)) {
                None => Ok(false),
                Some(name) => Err(Error::Invalid(format!(
                    "{} holds {name} and no backups: use another directory",
                    self.dir.display()
                ))),
            };
        }
        let read = || {
            let file = fs.open(&path, OpenOptions::read())?;
            let len = file.len()?.min(MARKER_BYTES_MAX) as usize;
            read_range(&*file, 0, len)
        };
        let text = read().map_err(|e| Error::io("read", &path, e))?;
        let text = String::from_utf8_lossy(&text);
        let version = text.strip_prefix(MARKER_TEXT).and_then(|rest| rest.trim_end().parse::<u32>().ok());
        match version {
            Some(FORMAT_VERSION) => Ok(true),
            Some(found) => {
                Err(Error::UnsupportedVersion { what: "backups", path, found, supported: FORMAT_VERSION })
            }
            None => Err(Error::corrupt("marker of backups", path, 0, "the marker is not valid")),
        }
    }

    /// Creates the directory if it is missing and locks it exclusively. Starts a job and removes leftovers of
    /// earlier ones. `db_env` is that of the database.
    pub(super) fn lock_to_create(&mut self, db_env: &Env) -> Result<LockedBackup<'_>> {
        if self.store.is_none() {
            for dir in [self.dir.clone(), self.records_dir(), self.files_dir(), self.segments_dir()] {
                refuse_in_database(&self.env, &dir)?;
            }
        }
        self.look()?;
        self.env.fs.create_dir_all(&self.dir).map_err(|e| Error::io("create", &self.dir, e))?;
        let mut here = self.lock()?;
        let job = JobFile::begin(&here.env, &here.dir, KIND);
        here.job = Some(job.map_err(|e| Error::io("mark", &here.dir, e))?);
        let has_backups = here.look()?;
        here.env = here.with_keys_of(db_env, has_backups)?;
        if !has_backups {
            here.write_marker()?;
        }
        for dir in [here.records_dir(), here.files_dir()] {
            here.make_dir(&dir)?;
        }
        Ok(here)
    }

    /// Gives the directory the keys of a database, durably, and returns the environment with all its keys.
    /// The databases of one directory are all encrypted, or none is.
    fn with_keys_of(&self, db_env: &Env, has_backups: bool) -> Result<Env> {
        let path = self.dir.join(KEYS);
        let has_keys = self.env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))?;
        match (encryption::is_on(db_env), has_keys) {
            (true, false) if has_backups => {
                Err(Error::encryption(&self.dir, EncryptionProblem::NotEncrypted))
            }
            (true, _) => encryption::share(db_env, &self.env, &self.dir),
            (false, true) => Err(Error::Invalid(format!(
                "the backups in {} are encrypted and the database is not: use another directory",
                self.dir.display()
            ))),
            (false, false) => Ok(encryption::without_keys(&self.env)),
        }
    }

    /// Opens the keys of the directory.
    pub(super) fn unlocked(self, purpose: Unlock) -> Result<Backup> {
        Ok(Backup { env: encryption::unlock(&self.env, &self.dir, purpose)?, ..self })
    }

    /// Creates a subdirectory unless it exists.
    pub(super) fn make_dir(&self, dir: &Path) -> Result<()> {
        match self.env.fs.create_dir(dir, None) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(Error::io("create", dir, e)),
            _ => Ok(()),
        }
    }

    fn write_marker(&self) -> Result<()> {
        let (from, to) = (self.incoming(&self.dir), self.dir.join(MARKER));
        let file = self.env.fs.open(&from, OpenOptions::create_new());
        let file = file.map_err(|e| Error::io("create", &from, e))?;
        let text = format!("{MARKER_TEXT}{FORMAT_VERSION}\n");
        let written = file.write_all_at(text.as_bytes(), 0).and_then(|()| file.sync_data());
        written.map_err(|e| Error::io("write", &from, e))?;
        self.env.fs.rename_new(&from, &to).map_err(|e| Error::io("rename", &from, e))?;
        self.sync_dir(&self.dir)
    }

    /// Locks an existing directory of backups exclusively.
    pub(super) fn lock_to_change(&mut self) -> Result<LockedBackup<'_>> {
        self.check_there()?;
        let mut here = self.lock()?;
        here.env = encryption::unlock(&here.env, &here.dir, Unlock::Change)?;
        Ok(here)
    }

    /// Locks the directory against removals.
    pub(super) fn lock_to_read(&mut self) -> Result<LockedBackup<'_>> {
        self.check_there()?;
        let backup = self.held()?;
        let path = backup.dir.join(LOCK);
        let lock = backup.env.fs.lock_to_read(&path);
        let lock = lock.map_err(|e| Error::lock(path, e, backup.env.threads.process_id()))?;
        let backup = backup.unlocked(Unlock::Read)?;
        Ok(LockedBackup::new(self, backup, lock))
    }

    /// Holds the directory open, so that links in it are not followed.
    pub(super) fn held(&self) -> Result<Backup> {
        let env = self.env.hold(&self.dir, None).map_err(|e| Error::io("open", &self.dir, e))?;
        Ok(Backup { env, dir: self.dir.clone(), store: self.store.clone(), on_progress: None, job: None })
    }

    pub(super) fn check_there(&self) -> Result<()> {
        match self.look()? {
            true => Ok(()),
            false => Err(Error::NoBackup(format!("there are no backups in {}", self.dir.display()))),
        }
    }

    /// Locks the directory and removes leftovers of earlier jobs.
    fn lock(&mut self) -> Result<LockedBackup<'_>> {
        let backup = self.held()?;
        let path = backup.dir.join(LOCK);
        let lock = backup.env.fs.lock(&path);
        let lock = lock.map_err(|e| Error::lock(path, e, backup.env.threads.process_id()))?;
        for job in backup.jobs()? {
            backup.end(job)?;
        }
        Ok(LockedBackup::new(self, backup, Some(lock)))
    }

    fn jobs(&self) -> Result<Vec<JobFile>> {
        JobFile::left(&self.env, &self.dir, KIND).map_err(|e| Error::io("look into", &self.dir, e))
    }

    /// Removes the temporary files of a job, then its job file.
    fn end(&self, job: JobFile) -> Result<()> {
        for dir in [&self.dir, &self.records_dir(), &self.files_dir(), &self.segments_dir()] {
            job.remove_temporary(&self.env, dir)
                .map_err(|e| Error::io("remove temporary files in", dir, e))?;
        }
        job.end(&self.env).map_err(|e| Error::io("remove the job file in", &self.dir, e))
    }

    pub(super) fn records_dir(&self) -> PathBuf {
        self.dir.join(RECORDS)
    }

    pub(super) fn files_dir(&self) -> PathBuf {
        self.dir.join(FILES)
    }

    pub(super) fn record_path(&self, id: u64) -> PathBuf {
        self.records_dir().join(record_name(id))
    }

    /// Returns the temporary path of a file being written.
    pub(super) fn incoming(&self, dir: &Path) -> PathBuf {
        self.job.as_ref().expect("the caller has locked the directory to create").temporary(dir, "incoming")
    }

    /// Returns the sorted names in a subdirectory. Empty if it is missing.
    pub(super) fn names(&self, dir: &Path) -> Result<Vec<String>> {
        if self.env.fs.entry(dir).map_err(|e| Error::io("look for", dir, e))?.is_none() {
            return Ok(Vec::new());
        }
        let mut names = self.env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the ids of all backups, ascending.
    pub(super) fn ids(&self) -> Result<Vec<u64>> {
        let names = self.names(&self.records_dir())?;
        let mut ids: Vec<u64> = names.iter().filter_map(|name| record_id(name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Returns the id of the next backup. Ids of void records are not used.
    pub(super) fn next_id(&self) -> Result<u64> {
        let void = match &self.store {
            None => Vec::new(),
            Some(store) => store.void_records().map_err(|e| Error::io("list", self.records_dir(), e))?,
        };
        let void = void.iter().filter_map(|name| record_id(name));
        Ok(self.ids()?.into_iter().chain(void).max().map_or(1, |last| last + 1))
    }

    /// Returns the record of a backup.
    pub(super) fn record(&self, id: u64) -> Result<Record> {
        let path = self.record_path(id);
        if !self.env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
            return Err(Error::NoBackup(format!("there is no backup {id} in {}", self.dir.display())));
        }
        let record = record::read(&self.env, &path)?;
        match record.info.id == id {
            true => Ok(record),
            false => {
                let detail =
                    format!("the file holds the record of backup {}: it was renamed", record.info.id);
                Err(Error::corrupt("backup record", path, 0, detail))
            }
        }
    }

    /// Returns the record of a backup. `None` if it is damaged or of a newer version; other errors are
    /// returned.
    pub(super) fn sound_record(&self, id: u64) -> Result<Option<Record>> {
        match self.record(id) {
            Ok(record) => Ok(Some(record)),
            Err(error) if is_unusable(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the database of all backups if there is only one: all records, stored files and segments
    /// belong to it.
    pub(super) fn only_database(&self) -> Result<Option<u32>> {
        let mut found = BTreeSet::new();
        for id in self.ids()? {
            found.extend(self.sound_record(id)?.map(|record| record.info.database));
        }
        found.extend(self.names(&self.files_dir())?.iter().filter_map(|name| Some(stored(name)?.0)));
        found.extend(self.spans()?.iter().map(|span| span.database));
        Ok(found.first().copied().filter(|_| found.len() == 1))
    }

    pub(super) fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.env.fs.sync_dir(dir).map_err(|e| Error::io("sync directory", dir, e))
    }
}
