//! Removes old backups and the files that no other backup references.

use std::collections::{BTreeMap, BTreeSet};

use esker_env::Entry;

use super::record::{is_unusable, stored};
use super::{Backup, BackupInfo};
use crate::types::{Error, Result};

/// Result of [`Backup::prune`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Number of backups removed.
    pub backups: u64,
    /// Number of files removed because no remaining backup needs them.
    pub files: u64,
    /// Number of archive segments removed because they are not usable with a remaining backup.
    pub segments: u64,
    /// Bytes removed.
    pub bytes: u64,
}

impl Backup {
    /// Removes all backups except the newest `keep` of each database, and files that no other backup
    /// references.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `keep` is 0; [`Error::Locked`] if the directory is in use; [`Error::Io`];
    /// [`Error::Corrupt`] if the record of a remaining backup is damaged, or a damaged record may belong to
    /// one of several databases. The files it references and its database are unknown then, and nothing is
    /// removed; remove the record first.
    pub fn prune(&mut self, keep: usize) -> Result<Pruned> {
        if keep == 0 {
            return Err(Error::Invalid("keep at least one backup, or remove the directory".to_owned()));
        }
        self.lock_to_change()?.remove_old(keep)
    }

    fn remove_old(&mut self, keep: usize) -> Result<Pruned> {
        let mut needed = BTreeSet::new();
        // Number of backups kept of each database, and the oldest of them.
        let mut kept: BTreeMap<u32, (usize, BackupInfo)> = BTreeMap::new();
        let mut old = Vec::new();
        let only = self.only_database()?;
        for id in self.ids()?.into_iter().rev() {
            let record = self.record(id);
            let known = match &record {
                Ok(record) => Some(record.info.database),
                Err(error) if is_unusable(error) => only,
                // Other errors say nothing about the record.
                Err(_) => None,
            };
            if known.is_some_and(|database| kept.get(&database).is_some_and(|kept| kept.0 == keep)) {
                old.push(id);
                continue;
            }
            let record = record?;
            let database = record.info.database;
            let of_database = kept.entry(database).or_default();
            *of_database = (of_database.0 + 1, record.info);
            needed.extend(record.files.iter().map(|file| file.name(database)));
        }
        let mut pruned = Pruned::default();
        for id in old.into_iter().rev() {
            let path = self.record_path(id);
            self.env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
            pruned.backups += 1;
        }
        // The records must be gone durably before their files (backup.2).
        self.sync_dir(&self.records_dir())?;
        let dir = self.files_dir();
        for name in self.names(&dir)?.iter().filter(|name| !needed.contains(*name)) {
            let path = dir.join(name);
            // Files that were not created by a backup are kept.
            let entry = self.env.fs.entry(&path).map_err(|e| Error::io("look for", &path, e))?;
            let bytes = match (entry, stored(name)) {
                (Some(Entry::File { len, .. }), Some((_, stored))) if len == stored => len,
                _ => continue,
            };
            self.env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
            (pruned.files, pruned.bytes) = (pruned.files + 1, pruned.bytes + bytes);
        }
        for segment in self.segments_here()? {
            let leads_on = |(_, oldest): &(usize, BackupInfo)| {
                segment.last > oldest.seqno && segment.backup >= oldest.id
            };
            if !kept.get(&segment.database).is_some_and(leads_on) {
                let path = self.segment_path(&segment);
                self.env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
                (pruned.segments, pruned.bytes) = (pruned.segments + 1, pruned.bytes + segment.bytes);
            }
        }
        if let Some(store) = &self.store {
            for dir in [&self.dir, &self.files_dir()] {
                store.remove_replaced(dir).map_err(|e| Error::io("remove replaced objects in", dir, e))?;
            }
        }
        Ok(pruned)
    }
}
