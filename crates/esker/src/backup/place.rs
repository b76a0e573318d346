//! The directory of backups: what is in it, and who may change it.
//!
//! ```text
//!   ESKER-BACKUPS            says what the directory is
//!   LOCK                     of who makes or prunes backups; shared by who reads them
//!   backups/000007.backup    records
//!   files/NAME.sst, .blob    what they name
//!   files/incoming.tmp       what is being copied
//!   feed/NAME.segment        what was committed between backups; made by the first one
//! ```
//!
//! backup_place.1. A directory that holds something else is never written to.
//! backup_place.2. Files that are here for a while have names that end with `.tmp`.

use std::path::PathBuf;

use esker_env::{FileLock, OpenOptions, read_range};

use super::Backup;
use super::record::{self, FORMAT_VERSION, Record};
use crate::manifest::file_name::LOCK;
use crate::manifest::log::replace_file;
use crate::types::{Error, Result};

const MARKER: &str = "ESKER-BACKUPS";
const MARKER_TMP: &str = "ESKER-BACKUPS.tmp";
const MARKER_TEXT: &str = "esker backups, format ";
/// Longer markers are none.
const MARKER_BYTES_MAX: u64 = 64;
const RECORDS: &str = "backups";
const FILES: &str = "files";
const RECORD_ENDING: &str = ".backup";
const TEMPORARY_ENDING: &str = ".tmp";

impl Backup {
    /// Looks whether this is a directory of backups, or may become one; whether it is one (backup_place.1).
    pub(super) fn look(&self) -> Result<bool> {
        let fs = &self.env.fs;
        if !fs.exists(&self.dir).map_err(|e| Error::io("look for", &self.dir, e))? {
            return Ok(false);
        }
        let path = self.dir.join(MARKER);
        if !fs.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
            // A crash may have left what the first backup begins with.
            let ours = |name: &String| [MARKER_TMP, LOCK, RECORDS, FILES].contains(&name.as_str());
            let names = fs.list_dir(&self.dir).map_err(|e| Error::io("list", &self.dir, e))?;
            return match names.iter().find(|name| !ours(name)) {
                None => Ok(false),
                Some(name) => Err(Error::Invalid(format!(
                    "{} holds {name}, and no backups: name another directory",
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
            None => Err(Error::corrupt("marker of backups", path, 0, "it does not say what it is")),
        }
    }

    /// Makes the directory if it is none yet, and keeps others out. Removes what was left half done (backup_place.2).
    pub(super) fn lock_to_create(&self) -> Result<Box<dyn FileLock>> {
        let fs = &self.env.fs;
        for dir in [self.dir.clone(), self.records_dir(), self.files_dir()] {
            fs.create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
        }
        let lock = self.lock()?;
        if !self.look()? {
            let text = format!("{MARKER_TEXT}{FORMAT_VERSION}\n");
            replace_file(&self.env, &self.dir, MARKER_TMP, MARKER, text.as_bytes())?;
        }
        for dir in [self.records_dir(), self.files_dir(), self.segments_dir()] {
            if !fs.exists(&dir).map_err(|e| Error::io("look for", &dir, e))? {
                continue;
            }
            for name in self.names(&dir)?.iter().filter(|name| name.ends_with(TEMPORARY_ENDING)) {
                let path = dir.join(name);
                fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
            }
        }
        Ok(lock)
    }

    /// Keeps others out of a directory that has backups.
    pub(super) fn lock_to_change(&self) -> Result<Box<dyn FileLock>> {
        self.check_there()?;
        self.lock()
    }

    /// Keeps others from removing anything.
    pub(super) fn lock_to_read(&self) -> Result<Option<Box<dyn FileLock>>> {
        self.check_there()?;
        let path = self.dir.join(LOCK);
        let lock = self.env.fs.lock_to_read(&path);
        lock.map_err(|e| Error::lock(path, e, self.env.threads.process_id()))
    }

    fn check_there(&self) -> Result<()> {
        match self.look()? {
            true => Ok(()),
            false => Err(Error::Invalid(format!("there are no backups in {}", self.dir.display()))),
        }
    }

    fn lock(&self) -> Result<Box<dyn FileLock>> {
        let path = self.dir.join(LOCK);
        self.env.fs.lock(&path).map_err(|e| Error::lock(path, e, self.env.threads.process_id()))
    }

    pub(super) fn records_dir(&self) -> PathBuf {
        self.dir.join(RECORDS)
    }

    pub(super) fn files_dir(&self) -> PathBuf {
        self.dir.join(FILES)
    }

    pub(super) fn record_path(&self, id: u64) -> PathBuf {
        self.records_dir().join(format!("{id:06}{RECORD_ENDING}"))
    }

    /// A file of this directory while it is being written.
    pub(super) fn incoming(dir: &std::path::Path) -> PathBuf {
        dir.join(format!("incoming{TEMPORARY_ENDING}"))
    }

    /// The names in a directory of this one, in order.
    pub(super) fn names(&self, dir: &std::path::Path) -> Result<Vec<String>> {
        let mut names = self.env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
        names.sort_unstable();
        Ok(names)
    }

    /// The numbers of all backups, ascending.
    pub(super) fn ids(&self) -> Result<Vec<u64>> {
        self.check_there()?;
        let number = |name: &String| name.strip_suffix(RECORD_ENDING)?.parse::<u64>().ok();
        let mut ids: Vec<u64> = self.names(&self.records_dir())?.iter().filter_map(number).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// The record of a backup.
    pub(super) fn record(&self, id: u64) -> Result<Record> {
        let path = self.record_path(id);
        if !self.env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
            return Err(Error::Invalid(format!("there is no backup {id} in {}", self.dir.display())));
        }
        let record = record::read(&self.env, &path)?;
        match record.info.id == id {
            true => Ok(record),
            false => {
                let detail = format!("it is the record of backup {}: it was renamed", record.info.id);
                Err(Error::corrupt("backup record", path, 0, detail))
            }
        }
    }

    pub(super) fn sync_dir(&self, dir: &std::path::Path) -> Result<()> {
        self.env.fs.sync_dir(dir).map_err(|e| Error::io("sync directory", dir, e))
    }
}
