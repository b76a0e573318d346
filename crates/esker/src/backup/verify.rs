//! Verifies backups by reading every byte of every file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use esker_env::{Env, OpenOptions, read_range};

use super::record::StoredFile;
use super::segment::Reader;
use super::{Backup, BackupInfo, Reporter, Segment};
use crate::encoding::digest::Digester;
use crate::types::{Error, Result};

/// Bytes read at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Result of [`Backup::verify`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Verified {
    /// Number of backups examined.
    pub backups: u64,
    /// Number of files read.
    pub files: u64,
    /// Number of archive segments read.
    pub segments: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Problems found. Each names its file.
    pub problems: Vec<Error>,
    /// Backups that cannot be restored.
    pub damaged: Vec<u64>,
}

impl Verified {
    /// Returns whether all backups and the whole archive can be restored.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl Backup {
    /// Reads all files of all backups and all segments of the archive and verifies their digests. A missing
    /// record or segment that later ones refer to is also a problem. A missing newest one cannot be detected,
    /// nor can a missing oldest one, which may have been pruned.
    ///
    /// # Errors
    /// Errors that prevent the verification. Problems found are in the result.
    pub fn verify(&mut self) -> Result<Verified> {
        self.lock_to_read()?.look_at_all()
    }

    fn look_at_all(&mut self) -> Result<Verified> {
        let mut found = Verified::default();
        // Each file once, with the backups that need it.
        let mut files: BTreeMap<String, (StoredFile, Vec<u64>)> = BTreeMap::new();
        let mut chains: BTreeMap<u32, Chain> = BTreeMap::new();
        let ids = self.ids()?;
        for &id in &ids {
            found.backups += 1;
            match self.record(id) {
                Ok(record) => {
                    let chain = chains.entry(record.info.database).or_default();
                    chain.push((record.info.clone(), record.previous));
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
        let mut lost = lost_records(&chains, &ids);
        self.look_at_segments(&chains, &ids, &mut lost, &mut found)?;
        for id in lost {
            let detail =
                "the record is missing although later ones refer to it: restore another backup".to_owned();
            found.problems.push(Error::corrupt("backup record", self.record_path(id), 0, detail));
            found.damaged.push(id);
        }
        found.damaged.sort_unstable();
        found.damaged.dedup();
        Ok(found)
    }

    /// Checks the segments of the archive. Adds to `lost` the records that they name and that are not there.
    fn look_at_segments(
        &self,
        chains: &BTreeMap<u32, Chain>,
        ids: &[u64],
        lost: &mut BTreeSet<u64>,
        found: &mut Verified,
    ) -> Result<()> {
        let segments = match self.segments_here() {
            Err(error) if error.is_corrupt() => {
                found.problems.push(error);
                Vec::new()
            }
            segments => segments?,
        };
        for segment in &segments {
            found.segments += 1;
            let path = self.segment_path(segment);
            let mut goes_on = false;
            let checked = Reader::open(&self.env, &path).and_then(|mut reader| {
                goes_on = reader.head.digest_before.is_some();
                reader.check()
            });
            found.problems.extend(checked.err());
            found.bytes += segment.bytes;
            let Some(chain) = chains.get(&segment.database) else { continue };
            let Some((oldest, _)) = chain.first() else { continue };
            if segment.backup > oldest.id && !ids.contains(&segment.backup) {
                lost.insert(segment.backup);
            }
            if goes_on && segment.after > oldest.seqno && lacks_segment_before(segment, &segments, chain) {
                let detail =
                    format!("the preceding segment, which ends with commit {}, is missing", segment.after);
                found.problems.push(Error::corrupt("segment of the feed", path, 0, detail));
            }
        }
        Ok(())
    }
}

/// The backups of a database, each with the id of the preceding one.
type Chain = Vec<(BackupInfo, Option<u64>)>;

/// Returns whether the segment before this one is missing.
fn lacks_segment_before(segment: &Segment, segments: &[Segment], chain: &Chain) -> bool {
    let of_it = || segments.iter().filter(|other| other.database == segment.database);
    // An archive without older segments may start at any backup.
    let is_first = of_it().all(|other| other.last >= segment.after);
    let begins_at_backup = chain.iter().any(|(info, _)| info.seqno == segment.after);
    !(is_first && begins_at_backup) && of_it().all(|other| other.last != segment.after)
}

/// Returns the missing records that later records of their database refer to.
fn lost_records(chains: &BTreeMap<u32, Chain>, ids: &[u64]) -> BTreeSet<u64> {
    // The predecessor of the oldest backup was pruned.
    let followed =
        chains.values().flat_map(|chain| chain.iter().skip(1)).filter_map(|(_, previous)| *previous);
    followed.filter(|previous| !ids.contains(previous)).collect()
}

/// Verifies a stored file against its backup.
fn check(env: &Env, path: &Path, file: &StoredFile, mut each: impl FnMut(usize)) -> Result<()> {
    let io = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => damaged(path, "the file is missing"),
        std::io::ErrorKind::UnexpectedEof => damaged(path, "the file is too short"),
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

/// Message for bytes with a wrong digest.
pub(super) const WRONG_DIGEST: &str = "the contents differ from what was backed up";

/// Returns the error for a damaged stored file.
pub(super) fn damaged(path: &Path, what: &str) -> Error {
    Error::corrupt("backup file", path, 0, format!("{what}: restore another backup, and make a new one"))
}
