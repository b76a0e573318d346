//! A new backup: what is there already is named again, the rest is copied.

use std::collections::HashMap;
use std::path::Path;

use esker_env::{File, OpenOptions, read_range};

use super::archive::digest_of;
use super::record::{self, Record, StoredFile, stored_name};
use super::{Backup, BackupInfo, Reporter};
use crate::db::Db;
use crate::encoding::checksum::crc32c_append;
use crate::encoding::digest::{Digest, Digester};
use crate::engine::life::copies::capture::{Capture, CapturedFile};
use crate::engine::life::copies::transfer;
use crate::types::{Error, Result, SeqNo};
use esker_env::Env;

/// So much of the beginning and of the end of a blob file goes into what it is known by.
const MARKED_BYTES: u64 = 4096;
/// Blob files up to this size are known by all of their bytes.
const WHOLE_BYTES_MAX: u64 = 8 << 20;
/// So much is read at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl Backup {
    /// Makes a backup of the database, while reads and writes go on. It holds all that was visible when the call began. Files that an earlier backup has are not
    /// copied again: their lengths, beginnings and ends are compared, and what differs is copied. To compare every byte would take as long as
    /// to copy everything; [`verify`](Self::verify) does so.
    ///
    /// # Errors
    /// Those of [`Db::flush`]; [`Error::Locked`] if somebody else makes or reads backups here; [`Error::Io`], [`Error::NoSpace`]: then the earlier
    /// backups are as they were.
    pub fn create(&mut self, db: &Db) -> Result<BackupInfo> {
        self.lock_to_create()?.make(db)
    }

    fn make(&mut self, db: &Db) -> Result<BackupInfo> {
        let core = &db.handle.core;
        let id = self.ids()?.last().map_or(1, |last| last + 1);
        let known = self.known()?;
        let previous = self.newest_of(core.database_id())?.map(|record| record.info.id);
        let capture = core.capture()?;
        let mut files = Vec::new();
        let mut missing = Vec::new();
        for file in &capture.files {
            let mark = mark_of(&core.env, file)?;
            let name = stored_name(capture.database_id, file.kind, file.id, file.len, mark);
            let path = self.files_dir().join(&name);
            // One that is missing, or seen to be harmed, is copied again.
            let is_there = || self.looks_like(&path, &core.env, file);
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
        let tip = tip_of(db, capture.seq);
        let Capture { state, .. } = capture;
        self.enter(&Record { info, previous, tip, state, files })
    }

    /// The newest backup of a database. One whose record is damaged is of none.
    pub(super) fn newest_of(&self, database: u32) -> Result<Option<Record>> {
        for id in self.ids()?.into_iter().rev() {
            match self.sound_record(id)? {
                Some(record) if record.info.database == database => return Ok(Some(record)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Whether a stored file has the length, the beginning and the end of the database's.
    fn looks_like(&self, path: &Path, env: &Env, file: &CapturedFile) -> bool {
        let ends = |env: &Env, path: &Path| -> std::io::Result<Vec<Vec<u8>>> {
            let opened = env.fs.open(path, OpenOptions::read())?;
            let part = file.len.min(MARKED_BYTES);
            [0, file.len - part].into_iter().map(|at| read_range(&*opened, at, part as usize)).collect()
        };
        self.env.fs.file_size(path).is_ok_and(|len| len == file.len)
            && ends(&self.env, path)
                .is_ok_and(|stored| !file.is_final || ends(env, &file.path).is_ok_and(|live| live == stored))
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
        let (incoming, path) = (self.incoming(&dir), dir.join(stored.name(info.database)));
        let mut digester = Digester::default();
        let copied = transfer::copy((env, &file.path), (&self.env, &incoming), file.len, |piece| {
            digester.add(piece);
            reporter.bytes(piece.len());
            Ok(())
        });
        copied?;
        self.env.fs.rename(&incoming, &path).map_err(|e| Error::io("rename", &incoming, e))?;
        Ok(digester.finish())
    }

    /// Has the record of a backup stand, durably, after all that it names (backup.1).
    fn enter(&self, record: &Record) -> Result<BackupInfo> {
        self.sync_dir(&self.files_dir())?;
        let dir = self.records_dir();
        let (incoming, path) = (self.incoming(&dir), self.record_path(record.info.id));
        record::write(&self.env, &incoming, record)?;
        self.env.fs.rename_new(&incoming, &path).map_err(|e| Error::io("rename", &incoming, e))?;
        self.sync_dir(&dir)?;
        Ok(record.info.clone())
    }

    /// The digests of the files that backups name. Those of a damaged record are not known: what it names is copied again.
    fn known(&self) -> Result<HashMap<String, Digest>> {
        let mut known = HashMap::new();
        for id in self.ids()? {
            let Some(record) = self.sound_record(id)? else { continue };
            let database = record.info.database;
            known.extend(record.files.iter().map(|file| (file.name(database), file.digest)));
        }
        Ok(known)
    }
}

/// The digest of a backup's last commit. Without a feed that has it and can be read, the backup is made all the same: the archive asks for
/// another one then (archive.2).
fn tip_of(db: &Db, seq: SeqNo) -> Option<Digest> {
    // There is no commit 0.
    if seq == SeqNo::ZERO {
        return None;
    }
    db.sync().ok()?;
    let mut feed = db.feed(seq).ok()?;
    digest_of(&mut feed).ok().flatten()
}

/// What tells a file from another of the same number and length: a database that was put back to an older state, or copied with all its
/// numbers, gives them out again. A large blob file that is complete has a random number in its header, and does not change. One that is
/// written to is read whole: parts of it that others have leased may get their values later. A small one is read whole as well, so that
/// it has the same mark before and after it is complete.
fn mark_of(env: &Env, file: &CapturedFile) -> Result<u32> {
    if let Some(fingerprint) = file.fingerprint {
        return Ok(fingerprint);
    }
    let read = || {
        let opened = env.fs.open(&file.path, OpenOptions::read())?;
        if !file.is_final || file.len <= WHOLE_BYTES_MAX {
            return mark_of_all(&*opened, file.len);
        }
        let part = file.len.min(MARKED_BYTES);
        let mut mark = 0;
        for at in [0, file.len - part] {
            mark = crc32c_append(mark, &read_range(&*opened, at, part as usize)?);
        }
        Ok(mark)
    };
    read().map_err(|e| Error::io("read", &file.path, e))
}

/// The CRC-32C of the first `len` bytes.
fn mark_of_all(file: &dyn File, len: u64) -> std::io::Result<u32> {
    let (mut mark, mut at) = (0, 0);
    while at < len {
        let piece = read_range(file, at, (len - at).min(PIECE_BYTES) as usize)?;
        mark = crc32c_append(mark, &piece);
        at += piece.len() as u64;
    }
    Ok(mark)
}
