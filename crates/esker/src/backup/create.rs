//! Creates a backup: files that are already stored are referenced again, the others are copied.

use std::collections::HashMap;
use std::path::Path;

use esker_env::{File, OpenOptions, read_range};

use super::archive::digest_of;
use super::record::{self, Record, StoredFile, is_unusable, stored_name};
use super::{Backup, BackupInfo, Reporter};
use crate::db::Db;
use crate::encoding::checksum::crc32c_append;
use crate::encoding::digest::{Digest, Digester};
use crate::engine::life::copies::capture::{Capture, CapturedFile};
use crate::engine::life::copies::transfer;
use crate::types::{Error, Result, SeqNo};
use esker_env::Env;

/// Bytes at the start and at the end of a blob file that contribute to its mark.
const MARKED_BYTES: u64 = 4096;
/// The mark of a smaller blob file covers all its bytes.
const WHOLE_BYTES_MAX: u64 = 8 << 20;
/// Bytes read at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl Backup {
    /// Creates a backup of the database while reads and writes continue. It contains everything visible when
    /// the call started. Files of an earlier backup are not copied again if their lengths, starts and ends
    /// match. Comparing every byte would take as long as copying; [`verify`](Self::verify) does that.
    ///
    /// # Errors
    /// Those of [`Db::flush`]; [`Error::Locked`] if the directory is in use; [`Error::Io`],
    /// [`Error::NoSpace`]. After an error the earlier backups are unchanged.
    pub fn create(&mut self, db: &Db) -> Result<BackupInfo> {
        self.lock_to_create(&db.handle.core.env)?.make(db)
    }

    fn make(&mut self, db: &Db) -> Result<BackupInfo> {
        let core = &db.handle.core;
        let id = self.next_id()?;
        let (newest, damage) = self.newest_of(core.database_id())?;
        let known = match (&self.store, &newest) {
            (None, _) => self.known()?,
            // backup_store.1
            (Some(_), Some(newest)) if damage.is_none() => digests(newest).collect(),
            (Some(_), _) => HashMap::new(),
        };
        let previous = newest.map(|record| record.info.id);
        let capture = core.capture()?;
        let mut files = Vec::new();
        let mut missing = Vec::new();
        for file in &capture.files {
            let mark = mark_of(&core.env, file)?;
            let name = stored_name(capture.database_id, file.kind, file.id, file.len, mark);
            let path = self.files_dir().join(&name);
            // A file that is missing or visibly damaged is copied again.
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

    /// Returns the newest backup of a database, without damaged records, and the damage of the newest one.
    pub(super) fn newest_of(&self, database: u32) -> Result<(Option<Record>, Option<Error>)> {
        let mut damage = None;
        for id in self.ids()?.into_iter().rev() {
            match self.record(id) {
                Ok(record) if record.info.database == database => return Ok((Some(record), damage)),
                Ok(_) => {}
                Err(error) if is_unusable(&error) => drop(damage.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        Ok((None, damage))
    }

    /// Returns whether a stored file has the length, start and end of the file in the database.
    /// Objects in a store do not change, so their length is enough.
    fn looks_like(&self, path: &Path, env: &Env, file: &CapturedFile) -> bool {
        if self.store.is_some() {
            return self.env.fs.file_size(path).is_ok_and(|len| len == file.len);
        }
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
        if let Some(store) = &self.store {
            store.announce(&incoming, &path, file.len).map_err(|e| Error::io("create", &path, e))?;
        }
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

    /// Makes the record of a backup durable, after all files that it references (backup.1).
    fn enter(&self, record: &Record) -> Result<BackupInfo> {
        self.sync_dir(&self.files_dir())?;
        let dir = self.records_dir();
        let (incoming, path) = (self.incoming(&dir), self.record_path(record.info.id));
        record::write(&self.env, &incoming, record)?;
        self.env.fs.rename_new(&incoming, &path).map_err(|e| Error::io("rename", &incoming, e))?;
        self.sync_dir(&dir)?;
        Ok(record.info.clone())
    }

    /// Returns the digests of the referenced files. Files of damaged records are not included, so they are
    /// copied again.
    fn known(&self) -> Result<HashMap<String, Digest>> {
        let mut known = HashMap::new();
        for id in self.ids()? {
            let Some(record) = self.sound_record(id)? else { continue };
            known.extend(digests(&record));
        }
        Ok(known)
    }
}

/// Returns the digests of the files of a backup, by their names.
fn digests(record: &Record) -> impl Iterator<Item = (String, Digest)> {
    let database = record.info.database;
    record.files.iter().map(move |file| (file.name(database), file.digest))
}

/// Returns the digest of the last commit of a backup. `None` if the feed does not contain that commit or
/// cannot be read; archiving then requires another backup (archive.2).
fn tip_of(db: &Db, seq: SeqNo) -> Option<Digest> {
    // Commit 0 does not exist.
    if seq == SeqNo::ZERO {
        return None;
    }
    db.sync().ok()?;
    let mut feed = db.feed_after(seq.prev()).ok()?;
    digest_of(&mut feed).ok().flatten()
}

/// Returns a mark that distinguishes files with the same number and length. A database that was reset to an
/// older state, or was copied, assigns the same numbers again. A large, complete blob file does not change
/// and has a random number in its header. A blob file still being written is read completely, because leased
/// parts may be written later. A small one is read completely too, so that its mark does not change on
/// completion.
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

/// Returns the CRC-32C of the first `len` bytes.
fn mark_of_all(file: &dyn File, len: u64) -> std::io::Result<u32> {
    let (mut mark, mut at) = (0, 0);
    while at < len {
        let piece = read_range(file, at, (len - at).min(PIECE_BYTES) as usize)?;
        mark = crc32c_append(mark, &piece);
        at += piece.len() as u64;
    }
    Ok(mark)
}
