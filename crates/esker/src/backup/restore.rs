//! Restores a database from a backup.

use std::path::{Path, PathBuf};

use super::record::Record;
use super::verify::{WRONG_DIGEST, damaged};
use super::{Backup, BackupInfo, Point, Reporter};
use crate::db::{Builder, Db};
use crate::encoding::digest::Digester;
use crate::engine::life::copies::checkpoint::{data_path, write_manifest};
use crate::engine::life::copies::transfer;
use crate::engine::life::copies::workplace::Workplace;
use crate::types::{Error, Result, SeqNo};

/// A restore that [`Backup::restore`] begins. It needs no option: then it restores the newest backup.
#[must_use = "nothing is restored before `run`"]
pub struct Restoration<'a> {
    pub(super) backups: &'a mut Backup,
    pub(super) dir: PathBuf,
    pub(super) id: Option<u64>,
    point: Option<Point>,
    pub(super) builder: Builder,
    pub(super) verify: bool,
}

/// Result of [`Restoration::run`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The backup that was restored.
    pub backup: BackupInfo,
    /// The commit whose state was restored, in the numbering of the original database.
    pub seqno: SeqNo,
    /// Number of commits replayed from the archive.
    pub commits: u64,
    /// Creation time of the segment with the last of these commits, or of the backup if none were replayed,
    /// in seconds since 1970. A later [`Point::Time`] restores no more.
    pub made: u64,
}

impl Restoration<'_> {
    /// Sets the backup. By default it is the newest one, or with a [point](Self::point) the newest one before
    /// that moment.
    pub fn backup(mut self, id: impl Into<Option<u64>>) -> Self {
        self.id = id.into();
        self
    }

    /// Restores the state at this moment: replays the commits after the backup from the
    /// [archive](Backup::archive).
    pub fn point(mut self, point: impl Into<Option<Point>>) -> Self {
        self.point = point.into();
        self
    }

    /// Sets the options of the database while commits are replayed. A database with merges needs its merge
    /// operators here. Compaction filters are not used.
    pub fn builder(mut self, builder: Builder) -> Self {
        self.builder = builder;
        self
    }

    /// Also reads the whole restored database as [`Db::check`] does, before it gets its name. Off by default:
    /// the digests of the files are always compared.
    pub fn verify(mut self, on: bool) -> Self {
        self.verify = on;
        self
    }

    /// Restores. The database is created completely or not at all.
    ///
    /// # Errors
    /// [`Error::NoBackup`] if there is no such backup, none before the point, or the archive does not reach
    /// the commit; [`Error::OtherHistory`] if the archive does not follow the backup; [`Error::Invalid`] if
    /// a commit number may be one of several databases, or the directory lies in the backups;
    /// [`Error::AlreadyExists`]; [`Error::Corrupt`] for a damaged file, or for a damaged record that may
    /// belong to another database;
    /// [`Error::MergeOperatorMissing`]; [`Error::Io`], [`Error::NoSpace`].
    pub fn run(self) -> Result<Restored> {
        if let Some(point) = self.point {
            return self.run_to(point);
        }
        let mut here = self.backups.lock_to_read()?;
        let newest = || {
            here.ids()?
                .last()
                .copied()
                .ok_or_else(|| Error::NoBackup(format!("there are no backups in {}", here.dir.display())))
        };
        let record = here.record(self.id.map_or_else(newest, Ok)?)?;
        let workplace = here.workplace(&self.dir)?;
        let backup = here.put(&workplace, record)?;
        finish(workplace, self.verify)?;
        Ok(Restored { seqno: backup.seqno, commits: 0, made: backup.created, backup })
    }
}

/// Gives a complete database its name, after a look through all of it if that is asked for.
pub(super) fn finish(workplace: Workplace, verify: bool) -> Result<()> {
    if verify {
        let builder: Builder = Db::builder().allow_missing_merge_operators(true);
        let db = builder.for_copy().env(workplace.held().clone()).open(workplace.dir())?;
        let found = db.check()?.problems.into_iter().next();
        db.close()?;
        if let Some(detail) = found {
            return Err(Error::corrupt("restored database", workplace.dir(), 0, detail));
        }
    }
    workplace.finish()
}

impl Backup {
    /// Begins to restore a database into `dir`, which must not exist.
    pub fn restore(&mut self, dir: impl AsRef<Path>) -> Restoration<'_> {
        Restoration {
            backups: self,
            dir: dir.as_ref().to_owned(),
            id: None,
            point: None,
            builder: Db::builder(),
            verify: false,
        }
    }

    /// Returns a workplace for a database in `dir`, which must be outside of the backups.
    pub(super) fn workplace(&self, dir: &Path) -> Result<Workplace> {
        let target = self.env.fs.absolute(dir).map_err(|e| Error::io("find", dir, e))?;
        if target.starts_with(&self.dir) {
            let (target, backups) = (target.display(), self.dir.display());
            let text =
                format!("{target} is inside the backups in {backups}: use a directory outside of them");
            return Err(Error::Invalid(text));
        }
        Workplace::take(&self.env, dir, None)
    }

    /// Restores a backup to a workplace.
    pub(super) fn put(&mut self, workplace: &Workplace, record: Record) -> Result<BackupInfo> {
        let Record { info, state, files, previous: _, tip: _ } = record;
        let stored_dir = self.files_dir();
        let mut reporter = Reporter::new(&mut self.on_progress, info.files, info.bytes);
        for file in &files {
            let from = stored_dir.join(file.name(info.database));
            let to = data_path(workplace.dir(), file.kind, file.id);
            let mut digester = Digester::default();
            transfer::copy((&self.env, &from), (workplace.held(), &to), file.len, |piece| {
                digester.add(piece);
                reporter.bytes(piece.len());
                Ok(())
            })
            .map_err(|error| match error {
                Error::Io { source, path, .. }
                    if path == from && source.kind() == std::io::ErrorKind::NotFound =>
                {
                    damaged(&from, "the file is missing")
                }
                other => other,
            })?;
            if digester.finish() != file.digest {
                return Err(damaged(&from, WRONG_DIGEST));
            }
            reporter.file();
        }
        write_manifest(workplace, state)?;
        Ok(info)
    }
}
