//! Old backups go, and with them the files that no other names.

use std::collections::{BTreeMap, BTreeSet};

use super::Backup;
use crate::types::{Error, Result};

/// What [`Backup::prune`] has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Backups.
    pub backups: u64,
    /// Files that none of the others needs.
    pub files: u64,
    /// Segments of the archive that lead to no moment behind a backup that stays.
    pub segments: u64,
    /// The bytes of all these.
    pub bytes: u64,
}

impl Backup {
    /// Removes all backups but the newest `keep`, and the files that no other names.
    ///
    /// # Errors
    /// [`Error::Invalid`] if none is to be kept; [`Error::Locked`] if somebody else makes or reads backups here; [`Error::Corrupt`] if the record of a
    /// backup that stays is damaged: nobody knows then what it needs, and nothing is removed; [`Error::Io`].
    pub fn prune(&mut self, keep: usize) -> Result<Pruned> {
        if keep == 0 {
            return Err(Error::Invalid("keep at least one backup, or remove the directory".to_owned()));
        }
        let _lock = self.lock_to_change()?;
        let ids = self.ids()?;
        let (old, kept) = ids.split_at(ids.len().saturating_sub(keep));
        let mut needed = BTreeSet::new();
        // The oldest commit of each database that can still be restored.
        let mut oldest = BTreeMap::new();
        for id in kept {
            let record = self.record(*id)?;
            let database = record.info.database;
            oldest.entry(database).or_insert(record.info.seqno);
            needed.extend(record.files.iter().map(|file| file.name(database)));
        }
        let mut pruned = Pruned::default();
        for id in old {
            let path = self.record_path(*id);
            self.env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
            pruned.backups += 1;
        }
        // backup.2
        self.sync_dir(&self.records_dir())?;
        let dir = self.files_dir();
        let is_ours = |name: &&String| [".sst", ".blob", ".tmp"].iter().any(|ending| name.ends_with(ending));
        for name in self.names(&dir)?.iter().filter(is_ours).filter(|name| !needed.contains(*name)) {
            let path = dir.join(name);
            let bytes = self.env.fs.file_size(&path).unwrap_or(0);
            self.env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
            (pruned.files, pruned.bytes) = (pruned.files + 1, pruned.bytes + bytes);
        }
        for segment in self.segments()? {
            if oldest.get(&segment.database).is_none_or(|oldest| segment.last <= *oldest) {
                let path = self.segment_path(&segment);
                self.env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
                (pruned.segments, pruned.bytes) = (pruned.segments + 1, pruned.bytes + segment.bytes);
            }
        }
        Ok(pruned)
    }
}
