//! Backups: a directory of database copies in which each file is stored once.
//!
//! ```text
//!   Db --capture--> files that are not stored yet --copied, with digests--> files/...
//!                   state of the manifest, names, digests  ------------->  backups/000007.backup
//!   backups/000007.backup + files/... --restore, digests verified--> a database
//!   Db --feed--> feed/....segment     later commits: they restore a moment between two backups
//! ```
//!
//! Tables and blob files never change. A backup therefore copies only files that are new since the last one.
//! Each backup is still complete: it can be restored by itself, and older ones can be removed.
//!
//! ```
//! use esker::backup::{Backup, Progress};
//! # let temp = tempfile::tempdir().unwrap();
//! # let (path, to) = (temp.path().join("db"), temp.path().join("backups"));
//! # let restored = temp.path().join("restored");
//! let db = esker::Db::open(&path)?;
//! db.default_keyspace().put("a", "1")?;
//!
//! let show = |done: &Progress| println!("{} of {} bytes", done.bytes_done, done.bytes);
//! let mut backup = Backup::open(&to)?.on_progress(show);
//! let first = backup.create(&db)?; // reads and writes continue meanwhile
//! db.default_keyspace().put("a", "2")?;
//! let second = backup.create(&db)?;
//! assert_eq!(backup.list()?.len(), 2);
//! assert!(backup.verify()?.problems.is_empty());
//!
//! backup.restore(&restored).backup(first.id).run()?;
//! let old = esker::Db::open(&restored)?;
//! assert_eq!(old.default_keyspace().get("a")?.as_deref(), Some(&b"1"[..]));
//! assert_eq!(old.snapshot().seqno(), first.seqno);
//!
//! backup.prune(1)?;
//! assert_eq!(backup.list()?[0].id, second.id);
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! Between two backups, [`archive`](Backup::archive) stores the [change feed](crate::Db::feed_after), and
//! [`Restoration::point`] restores the state after any of its commits:
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
//! backup.restore(&restored).point(Point::Commit(good)).run()?;
//! let old = esker::Db::open(&restored)?;
//! assert_eq!(old.default_keyspace().get("a")?.as_deref(), Some(&b"1"[..]));
//! # Ok::<(), esker::Error>(())
//! ```
//!
//! One directory can hold backups of several databases. A restored database is a new database: its first
//! backup copies everything.
//!
//! backup.1. A backup exists from the moment its record has its final name; all its files are durable by
//!     then. An earlier crash leaves unreferenced files, which the next `prune` removes or the next `create`
//!     replaces.
//! backup.2. A file referenced by a backup is never changed or overwritten. It is removed only after the
//!     records of all backups that reference it are removed.
//!
//! - Damage is reported as an error that names the file. Bytes with a wrong digest are never
//!   restored.
//!
//! Bytes: docs/formats/backup.md

mod archive;
mod create;
mod directory;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod point;
mod prune;
mod record;
mod restore;
mod segment;
mod store;
mod stream;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, JobFile};

pub use self::archive::Segment;
pub use self::point::Point;
pub use self::prune::Pruned;
pub use self::restore::{Restoration, Restored};
use self::store::StoreFs;
pub use self::store::{BackupStore, Listed, Upload};
pub use self::stream::{Restore, Stream};
pub use self::verify::Verified;
use crate::encryption::Unlock;
use crate::types::{Error, Result, SeqNo};

/// Backups in a directory, or in object storage. See the [module documentation](self).
pub struct Backup {
    env: Env,
    dir: PathBuf,
    /// The files of `env`, if the backups are in object storage.
    store: Option<StoreFs>,
    on_progress: Option<OnProgress>,
    /// The job file, while a call creates something.
    job: Option<JobFile>,
}

type OnProgress = Box<dyn FnMut(&Progress) + Send>;

/// Progress of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Number of files completed.
    pub files_done: u64,
    /// Number of files to copy or read.
    pub files: u64,
    /// Bytes completed.
    pub bytes_done: u64,
    /// Bytes to copy or read.
    pub bytes: u64,
}

/// Information about a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupInfo {
    /// Id of the backup. Later backups have larger ids.
    pub id: u64,
    /// Creation time, in seconds since 1970.
    pub created: u64,
    /// Id of the database.
    pub database: u32,
    /// The last commit: the backup contains all commits up to this one, and none after it.
    pub seqno: SeqNo,
    /// Number of files.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Number of files that had to be copied.
    pub new_files: u64,
    /// Bytes of the copied files.
    pub new_bytes: u64,
    /// Why the backup cannot be restored, if its record is damaged. The other fields except `id` are zero
    /// then.
    pub damage: Option<String>,
}

impl Backup {
    /// Opens the backups in a directory. The first [`create`](Self::create) creates the directory.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the path is empty or the directory holds something else;
    /// [`Error::UnsupportedVersion`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Backup> {
        Self::open_in(Env::real(), dir)
    }

    /// Opens the backups in a directory of another environment: for tests, and with the
    /// [keys](crate::Db::env) of encrypted databases. Databases may be in a different environment.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_in(env: Env, dir: impl AsRef<Path>) -> Result<Backup> {
        let dir = dir.as_ref();
        if dir.as_os_str().is_empty() {
            return Err(Error::Invalid("the path of the backups is empty".to_owned()));
        }
        let dir = env.fs.absolute(dir).map_err(|e| Error::io("find", dir, e))?;
        let backup = Backup { env, dir, store: None, on_progress: None, job: None };
        backup.look()?;
        Ok(backup)
    }

    /// Opens backups in object storage. All methods work as with a directory. Messages and
    /// [`path`](Self::path) contain the store's URL in place of the directory. The environment provides the
    /// keys of encrypted databases, the files for restored databases, and the clock.
    ///
    /// Concurrent calls that change the backups are excluded by a lease. A call that finds the lease of a
    /// process that does not renew it waits for the [time of the lease](BackupStore::lease), then takes over.
    /// Calls that only read take no lease: a `prune` beside them may remove what they read, and they then
    /// fail.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); [`Error::Io`] if the store cannot be listed.
    pub fn open_store(env: Env, store: impl BackupStore) -> Result<Backup> {
        let fs = StoreFs::new(&env, Arc::new(store));
        let dir = fs.root().to_owned();
        let env = Env { fs: Arc::new(fs.clone()), ..env };
        let backup = Backup { env, dir, store: Some(fs), on_progress: None, job: None };
        backup.look()?;
        Ok(backup)
    }

    /// Sets a function that is called while bytes are copied or read: at the start, for each MiB, and for
    /// each file.
    pub fn on_progress(mut self, call: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(call));
        self
    }

    /// Path of the directory, or the URL of the store.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Has the current master key wrap the keys of encrypted backups. The next [`create`](Self::create) does
    /// the same.
    ///
    /// # Errors
    /// [`Error::Encryption`]; [`Error::Locked`]; [`Error::Io`].
    #[cfg(feature = "encryption")]
    pub fn rotate_master_key(&mut self) -> Result<()> {
        self.lock_to_change().map(drop)
    }

    /// Lists the backups, oldest first. Includes backups with a damaged record, which have
    /// [`damage`](BackupInfo::damage) set.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn list(&self) -> Result<Vec<BackupInfo>> {
        self.check_there()?;
        let here = self.held()?.unlocked(Unlock::Read)?;
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

/// Reports the progress of a call.
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
