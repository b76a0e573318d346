//! Backups: a directory that holds copies of a database, and of each file one copy only.
//!
//! ```text
//!   Db --capture--> files that are not there yet --copied, with digests--> files/...
//!                   state of the manifest, names, digests  ------------->  backups/000007.backup
//!   backups/000007.backup + files/... --restore, digests compared--> a database
//!   Db --feed--> feed/....segment     what was committed since: restore_to makes the database of a moment between two backups
//! ```
//!
//! Tables and blob files never change. So a backup copies what is new since the last one, and is whole by itself all the same: it can be
//! restored alone, and older ones can go.
//!
//! ```
//! use esker::backup::Backup;
//! # let temp = tempfile::tempdir().unwrap();
//! # let (path, to) = (temp.path().join("db"), temp.path().join("backups"));
//! # let restored = temp.path().join("restored");
//! let db = esker::Db::open(&path)?;
//! db.default_keyspace().put("a", "1")?;
//!
//! let mut backup = Backup::open(&to)?.on_progress(|done| println!("{} of {} bytes", done.bytes_done, done.bytes));
//! let first = backup.create(&db)?; // reads and writes go on meanwhile
//! db.default_keyspace().put("a", "2")?;
//! let second = backup.create(&db)?;
//! assert_eq!(backup.list()?.len(), 2);
//! assert!(backup.verify()?.problems.is_empty());
//!
//! backup.restore(first.id, &restored)?;
//! let old = esker::Db::open(&restored)?;
//! assert_eq!(old.default_keyspace().get("a")?.as_deref(), Some(&b"1"[..]));
//! assert_eq!(old.snapshot().seqno(), first.seqno);
//!
//! backup.prune(1)?;
//! assert_eq!(backup.list()?[0].id, second.id);
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! Between two backups, [`archive`](Backup::archive) keeps what the [change feed](crate::Db::feed) has, and [`restore_to`](Backup::restore_to) goes back to any
//! commit of it:
//!
//! ```
//! use esker::backup::{Backup, Point};
//! # let temp = tempfile::tempdir().unwrap();
//! # let (path, to) = (temp.path().join("db"), temp.path().join("backups"));
//! # let restored = temp.path().join("restored");
//! let db = esker::Db::builder().feed_retention(64 << 20, std::time::Duration::MAX).open(&path)?;
//! let mut backup = Backup::open(&to)?;
//! backup.create(&db)?;
//! let good = db.default_keyspace().put("a", "1")?;
//! db.default_keyspace().clear()?; // by mistake
//! backup.archive(&db)?; // every minute, say
//!
//! backup.restore_to(Point::Commit(good), None, &restored, esker::Db::builder())?;
//! let old = esker::Db::open(&restored)?;
//! assert_eq!(old.default_keyspace().get("a")?.as_deref(), Some(&b"1"[..]));
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! One directory takes the backups of several databases. A restored database is another one: its first backup copies everything.
//!
//! backup.1. A backup counts from the moment on at which its record has its name: then all of its files are durable. A crash before leaves files that
//!      nothing names: the next `prune` removes them, or the next `create` replaces them.
//! backup.2. No file that a backup names is changed or written over. It is removed only after the records of all backups that name it are gone.
//! backup.3. Damage is an error that names the file. Nothing is restored from bytes whose digest is wrong.
//!
//! Bytes: docs/formats/backup.md

mod archive;
mod create;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod place;
mod point;
mod prune;
mod record;
mod restore;
mod segment;
mod verify;

use std::path::{Path, PathBuf};

use esker_env::{Env, JobFile};

pub use self::archive::Segment;
pub use self::point::{Point, Restored};
pub use self::prune::Pruned;
pub use self::verify::Verified;
use crate::types::{Error, Result, SeqNo};

/// Backups in a directory. See the [module](self).
pub struct Backup {
    env: Env,
    dir: PathBuf,
    on_progress: Option<OnProgress>,
    /// Of a call that makes something.
    job: Option<JobFile>,
}

type OnProgress = Box<dyn FnMut(&Progress) + Send>;

/// How far a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Files that are done.
    pub files_done: u64,
    /// All files that are to be copied or read.
    pub files: u64,
    /// Bytes that are done.
    pub bytes_done: u64,
    /// All bytes.
    pub bytes: u64,
}

/// What is known of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Its number. Later ones have larger numbers.
    pub id: u64,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// The number that its database has for itself.
    pub database: u32,
    /// Its last commit: it holds all up to this one, and none after it.
    pub seqno: SeqNo,
    /// The files that it consists of.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that it had to copy.
    pub new_files: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Why it cannot be restored, if its record is damaged. Then the other fields, except `id`, are zero.
    pub damage: Option<String>,
}

impl Backup {
    /// The backups in this directory of the operating system. It is made by the first [`create`](Self::create).
    ///
    /// # Errors
    /// [`Error::Invalid`] if the path is empty, or the directory holds something else; [`Error::UnsupportedVersion`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Backup> {
        Self::open_in(Env::real(), dir)
    }

    /// The same in a world of its own, for tests. That of the databases may be another.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_in(env: Env, dir: impl AsRef<Path>) -> Result<Backup> {
        let dir = dir.as_ref();
        if dir.as_os_str().is_empty() {
            return Err(Error::Invalid("the path of the backups is empty".to_owned()));
        }
        let dir = env.fs.absolute(dir).map_err(|e| Error::io("find", dir, e))?;
        let backup = Backup { env, dir, on_progress: None, job: None };
        backup.look()?;
        Ok(backup)
    }

    /// Calls this while bytes are copied or read: at the start, for each MiB, and for each file.
    pub fn on_progress(mut self, call: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(call));
        self
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The backups, oldest first.
    ///
    /// # Errors
    /// [`Error::Io`]. A backup whose record is damaged is in the list, and says so.
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        self.check_there()?;
        let here = self.held()?;
        let records = here.ids()?.into_iter().map(|id| match here.record(id) {
            Ok(record) => record.info,
            Err(error) => BackupInfo { id, damage: Some(error.to_string()), ..BackupInfo::default() },
        });
        Ok(records.collect())
    }
}

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Backup({})", self.dir.display())
    }
}

/// Tells how far a call is.
struct Reporter<'a> {
    call: Option<&'a mut OnProgress>,
    progress: Progress,
}

impl<'a> Reporter<'a> {
    fn new(call: &'a mut Option<OnProgress>, files: u64, bytes: u64) -> Self {
        let progress = Progress { files, bytes, ..Progress::default() };
        let mut reporter = Reporter { call: call.as_mut(), progress };
        reporter.tell();
        reporter
    }

    fn bytes(&mut self, bytes: usize) {
        self.progress.bytes_done += bytes as u64;
        self.tell();
    }

    fn file(&mut self) {
        self.progress.files_done += 1;
        self.tell();
    }

    fn tell(&mut self) {
        if let Some(call) = &mut self.call {
            call(&self.progress);
        }
    }
}
