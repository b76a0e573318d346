//! A new backup: what is there already is named again, the rest is copied.

use std::collections::HashMap;

use esker_env::{OpenOptions, read_range};

use super::record::{self, Record, StoredFile, stored_name};
use super::{Backup, BackupInfo, Reporter};
use crate::db::Db;
use crate::encoding::checksum::crc32c_append;
use crate::encoding::digest::{Digest, Digester};
use crate::engine::copies::capture::{Capture, CapturedFile};
use crate::engine::copies::transfer;
use crate::types::{Error, Result};
use esker_env::Env;

/// So much of the beginning and of the end of a blob file goes into what it is known by.
const MARKED_BYTES: u64 = 4096;

impl Backup {
    /// Makes a backup of the database, while reads and writes go on. It holds all that was visible when the call began. Files that an earlier backup has are not
    /// copied again.
    ///
    /// # Errors
    /// Those of [`Db::flush`]; [`Error::Locked`] if somebody else makes or reads backups here; [`Error::Io`], [`Error::NoSpace`]: then the earlier
    /// backups are as they were.
    pub fn create(&mut self, db: &Db) -> Result<BackupInfo> {
        let _lock = self.lock_to_create()?;
        let core = &db.handle.core;
        let id = self.ids()?.last().map_or(1, |last| last + 1);
        let known = self.known()?;
        let capture = core.capture()?;
        let mut files = Vec::new();
        let mut missing = Vec::new();
        for file in &capture.files {
            let mark = mark_of(&core.env, file)?;
            let name = stored_name(capture.database_id, file.kind, file.id, file.len, mark);
            let path = self.files_dir().join(&name);
            // One that has lost its end is copied again.
            let is_there = || self.env.fs.file_size(&path).is_ok_and(|len| len == file.len);
            let digest = known.get(&name).copied().filter(|_| is_there());
            if digest.is_none() {
                missing.push(files.len());
            }
            let digest = digest.unwrap_or(Digest([0; 16]));
            files.push(StoredFile { kind: file.kind, id: file.id, len: file.len, mark, digest });
        }
        let bytes = |of: &[usize]| of.iter().map(|at| files[*at].len).sum::<u64>();
        let all: Vec<usize> = (0..files.len()).collect();
        let info = BackupInfo {
            id,
            created: core.env.clock.unix_time().as_secs(),
            database: capture.database_id,
            seqno: capture.seq,
            files: files.len() as u64,
            bytes: bytes(&all),
            new_files: missing.len() as u64,
            new_bytes: bytes(&missing),
            damage: None,
        };
        let mut call = self.on_progress.take();
        let mut reporter = Reporter::new(&mut call, info.new_files, info.new_bytes);
        let copied: Result<()> = missing.into_iter().try_for_each(|at| {
            files[at].digest =
                self.take_in(&core.env, &capture.files[at], &files[at], &info, &mut reporter)?;
            reporter.file();
            Ok(())
        });
        self.on_progress = call;
        copied?;
        core.check_ours()?;
        let Capture { state, .. } = capture;
        self.enter(&Record { info, state, files })
    }

    /// Copies a file of the database.
    fn take_in(
        &self,
        env: &Env,
        file: &CapturedFile,
        stored: &StoredFile,
        info: &BackupInfo,
        reporter: &mut Reporter<'_>,
    ) -> Result<Digest> {
        let dir = self.files_dir();
        let (incoming, path) = (Self::incoming(&dir), dir.join(stored.name(info.database)));
        let mut digester = Digester::default();
        let copied = transfer::copy((env, &file.path), (&self.env, &incoming), file.len, |piece| {
            digester.add(piece);
            reporter.bytes(piece.len());
            Ok(())
        });
        copied.inspect_err(|_| {
            // What cannot be removed goes with the next backup (backup_place.2).
            let _ = self.env.fs.remove_file(&incoming);
        })?;
        self.env.fs.rename(&incoming, &path).map_err(|e| Error::io("rename", &incoming, e))?;
        Ok(digester.finish())
    }

    /// Has the record of a backup stand, durably, after all that it names (backup.1).
    fn enter(&self, record: &Record) -> Result<BackupInfo> {
        self.sync_dir(&self.files_dir())?;
        let dir = self.records_dir();
        let (incoming, path) = (Self::incoming(&dir), self.record_path(record.info.id));
        record::write(&self.env, &incoming, record).inspect_err(|_| {
            let _ = self.env.fs.remove_file(&incoming);
        })?;
        self.env.fs.rename(&incoming, &path).map_err(|e| Error::io("rename", &incoming, e))?;
        self.sync_dir(&dir)?;
        Ok(record.info.clone())
    }

    /// The digests of the files that backups name. Those of a damaged record are not known: what it names is copied again.
    fn known(&self) -> Result<HashMap<String, Digest>> {
        let mut known = HashMap::new();
        for record in self.ids()?.into_iter().filter_map(|id| self.record(id).ok()) {
            let database = record.info.database;
            known.extend(record.files.iter().map(|file| (file.name(database), file.digest)));
        }
        Ok(known)
    }
}

/// What tells a file from another of the same number and length, without reading it whole: a database that was put back to an older state
/// gives numbers out again.
fn mark_of(env: &Env, file: &CapturedFile) -> Result<u32> {
    if let Some(fingerprint) = file.fingerprint {
        return Ok(fingerprint);
    }
    let read = || {
        let opened = env.fs.open(&file.path, OpenOptions::read())?;
        let part = file.len.min(MARKED_BYTES);
        let mut mark = 0;
        for at in [0, file.len - part] {
            mark = crc32c_append(mark, &read_range(&*opened, at, part as usize)?);
        }
        Ok(mark)
    };
    read().map_err(|e| Error::io("read", &file.path, e))
}
