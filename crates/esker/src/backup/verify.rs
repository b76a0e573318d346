//! Looks whether backups are whole: every byte of every file is read.

use std::collections::BTreeMap;
use std::path::Path;

use esker_env::{Env, OpenOptions, read_range};

use super::record::StoredFile;
use super::segment::Reader;
use super::{Backup, Reporter};
use crate::encoding::digest::Digester;
use crate::types::{Error, Result};

/// So much is read at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// What [`Backup::verify`] has found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Backups that were looked at.
    pub backups: u64,
    /// Files that were read.
    pub files: u64,
    /// Segments of the archive that were read.
    pub segments: u64,
    /// The bytes of both.
    pub bytes: u64,
    /// What is wrong. Each names its file.
    pub problems: Vec<Error>,
    /// The backups that cannot be restored.
    pub damaged: Vec<u64>,
}

impl Verified {
    /// Whether all backups can be restored, and all that was archived.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Backup {
    /// Reads all files of all backups and all segments of the archive, and compares their digests.
    ///
    /// # Errors
    /// Those that keep it from looking; what it finds is in the result.
    pub fn verify(&mut self) -> Result<Verified> {
        let _lock = self.lock_to_read()?;
        let mut found = Verified::default();
        // Each file once, and the backups that need it.
        let mut files: BTreeMap<String, (StoredFile, Vec<u64>)> = BTreeMap::new();
        for id in self.ids()? {
            found.backups += 1;
            match self.record(id) {
                Ok(record) => {
                    for file in record.files {
                        let name = file.name(record.info.database);
                        files.entry(name).or_insert_with(|| (file, Vec::new())).1.push(id);
                    }
                }
                Err(error) => {
                    found.problems.push(error);
                    found.damaged.push(id);
                }
            }
        }
        let bytes = files.values().map(|(file, _)| file.len).sum();
        let dir = self.files_dir();
        let mut reporter = Reporter::new(&mut self.on_progress, files.len() as u64, bytes);
        for (name, (file, ids)) in files {
            let path = dir.join(name);
            if let Err(error) = check(&self.env, &path, &file, |read| reporter.bytes(read)) {
                found.problems.push(error);
                found.damaged.extend(ids);
            }
            found.files += 1;
            found.bytes += file.len;
            reporter.file();
        }
        let segments = match self.segments() {
            Err(error) if error.is_corrupt() => {
                found.problems.push(error);
                Vec::new()
            }
            segments => segments?,
        };
        for segment in segments {
            found.segments += 1;
            let path = self.segment_path(&segment);
            let checked = Reader::open(&self.env, &path).and_then(|mut reader| reader.check());
            found.problems.extend(checked.err());
            found.bytes += segment.bytes;
        }
        found.damaged.sort_unstable();
        found.damaged.dedup();
        Ok(found)
    }
}

/// Whether a stored file is what its backup says.
fn check(env: &Env, path: &Path, file: &StoredFile, mut each: impl FnMut(usize)) -> Result<()> {
    let io = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => damaged(path, "it is missing"),
        std::io::ErrorKind::UnexpectedEof => damaged(path, "it ends too early"),
        _ => Error::io("read", path, e),
    };
    let opened = env.fs.open(path, OpenOptions::read()).map_err(io)?;
    let mut digester = Digester::default();
    let mut at = 0;
    while at < file.len {
        let piece = read_range(&*opened, at, (file.len - at).min(PIECE_BYTES) as usize).map_err(io)?;
        digester.add(&piece);
        each(piece.len());
        at += piece.len() as u64;
    }
    if digester.finish() == file.digest { Ok(()) } else { Err(damaged(path, WRONG_DIGEST)) }
}

/// What is said of bytes that are not those that were copied.
pub(super) const WRONG_DIGEST: &str = "its bytes are not those that were backed up";

/// Damage of a stored file (backup.3).
pub(super) fn damaged(path: &Path, what: &str) -> Error {
    Error::corrupt("backup file", path, 0, format!("{what}: restore another backup, and make a new one"))
}
