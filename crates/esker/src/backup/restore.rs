//! Restores a database from a backup.

use std::path::Path;

use super::record::Record;
use super::verify::{WRONG_DIGEST, damaged};
use super::{Backup, BackupInfo, Reporter};
use crate::encoding::digest::Digester;
use crate::engine::life::copies::checkpoint::{data_path, write_manifest};
use crate::engine::life::copies::transfer;
use crate::engine::life::copies::workplace::Workplace;
use crate::types::{Error, Result};

impl Backup {
    /// Restores a backup to a directory that must not exist. The database is created completely or not at
    /// all.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the backup does not exist or `dir` exists; [`Error::Corrupt`] for a damaged file
    /// of the backup; [`Error::Io`], [`Error::NoSpace`].
    pub fn restore(&mut self, id: u64, dir: impl AsRef<Path>) -> Result<BackupInfo> {
        let mut here = self.lock_to_read()?;
        let record = here.record(id)?;
        let workplace = here.workplace(dir.as_ref())?;
        let info = here.put(&workplace, record)?;
        workplace.finish()?;
        Ok(info)
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
