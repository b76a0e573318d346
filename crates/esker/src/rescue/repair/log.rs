//! Salvages the log of a damaged database: every whole commit that can be read, in order, on top of the
//! tables.
//!
//! - Commits that are in tables already are skipped: applying one without its successors would
//!   bring old values back. A whole manifest says which they are. Tables are not asked then, because they
//!   may be foreign. Without a whole manifest a commit is in tables if some table says so. Exception: if
//!   all later commits follow without a gap, it is applied, because that table may come from an unfinished
//!   flush.
//! - A gap in the sequence numbers is reported with the numbers of the missing commits. So is an end before a
//!   commit that was durable.
//! - If recovery accepts the log, it ends where recovery ends it. Readable commits after an
//!   unfinished one, or after one with a torn value (recovery.9), never counted and are no loss.
//! - Segments that recovery would miss are reported, even if the manifest names none and only later ones
//!   exist.
//! - The log is read twice, to see whether recovery accepts it, and to take its commits. A commit that only
//!   the first pass could read is reported as lost.
//! - The writes of a commit without ops are in tables that it adopted. If the manifest does not confirm that,
//!   the commit is reported as a loss. Without a whole manifest no commit before it is applied again, because
//!   it may be older than those tables.
//! - The same holds for a commit with operands and those before it: a table may already hold the results of
//!   its merges.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use esker_env::Env;

use super::blobs;
use super::report::{Loss, LostKeys, RepairReport};
use super::sources::Sources;
use super::target::Target;
use crate::engine::life::look::sound_extent;
use crate::txn::payload;
use crate::types::{Error, Result, SeqNo};
use crate::wal::{self, LogPiece};

/// Applies commits of the log to the target.
struct Commits<'a> {
    sources: &'a Sources,
    target: &'a mut Target,
    report: &'a mut RepairReport,
    /// The last commit, if it is known.
    last: Option<SeqNo>,
    /// Where it starts in the log.
    last_at: Option<(PathBuf, u64)>,
}

impl Commits<'_> {
    /// Applies a commit. Reports what is lost of it, and the commits missing before it.
    fn add(&mut self, seq: SeqNo, payload: &[u8], path: &Path, offset: u64) -> Result<()> {
        if let Some(last) = self.last.filter(|last| seq > last.next()) {
            let detail = format!("commit {seq} follows commit {last}: those between them are lost");
            self.report.losses.push(gap(last.get() + 1..=seq.get() - 1, detail, path, offset));
        }
        (self.last, self.last_at) = (Some(seq), Some((path.to_path_buf(), offset)));
        let fetched = match payload::decode(payload) {
            Ok((_, set)) if set.is_empty() => {
                if !self.sources.adopted.contains(&seq) {
                    let detail = format!(
                        "the writes of commit {seq} are in tables, and the manifest that names them is lost"
                    );
                    self.report.losses.push(gap(seq.get()..=seq.get(), detail, path, offset));
                }
                return Ok(());
            }
            Ok((_, set)) => blobs::fetched(set, &self.target.blobs),
            Err(e) => {
                let detail = format!("at byte {} of its payload: {}", e.offset, e.detail);
                Err(Error::corrupt("commit", path, offset, detail))
            }
        };
        match fetched {
            Ok(set) => {
                self.report.commits += 1;
                self.target.apply(set)?;
            }
            Err(error) => self.report.lose(error, payload.len() as u64, LostKeys::Any),
        }
        Ok(())
    }
}

/// Applies the log's commits to the target.
pub(super) fn salvage(
    env: &Env,
    dir: &Path,
    sources: &Sources,
    target: &mut Target,
    report: &mut RepairReport,
) -> Result<()> {
    let flushed = if sources.complete { sources.flushed } else { sources.flushed.max(target.newest_flushed) };
    let again = if sources.complete { None } else { first_to_do_again(env, dir, sources, flushed)? };
    let as_opened = sound_extent(env, dir, sources.log, flushed, &sources.blobs);
    let sound = as_opened.and_then(|extent| wal::verify(env, dir, extent, |_, _| Ok(())));
    let sound = sound.ok().filter(|_| sources.complete);
    let end = sound.as_ref().map_or(SeqNo::MAX, |recovered| recovered.last_seq);
    let losses = report.losses.len();
    let last = sources.complete.then_some(flushed);
    let mut commits = Commits { sources, target, report, last, last_at: None };
    let segments = wal::salvage(env, dir, sources.log, &mut |piece| {
        match piece {
            LogPiece::Lost { error, .. } if sound.is_some() => {
                let text = "behind or in an unfinished commit, never acknowledged as durable";
                commits.report.notes.push(format!("{error}: {text}"));
            }
            LogPiece::Lost { error, bytes } => commits.report.lose(error, bytes, LostKeys::Any),
            LogPiece::Torn { path, offset, bytes } => {
                let text = "an unfinished commit, never acknowledged as durable, is dropped";
                let note = format!("{} at offset {offset}: {text} ({bytes} bytes)", path.display());
                commits.report.notes.push(note);
            }
            LogPiece::Commit { seq, .. } if seq > end => {}
            LogPiece::Commit { seq, .. } if seq <= flushed && again.is_none_or(|first| seq < first) => {}
            LogPiece::Commit { seq, payload, path, offset } => commits.add(seq, payload, path, offset)?,
        }
        Ok(())
    })?;
    let (last, last_at) = (commits.last.unwrap_or(flushed), commits.last_at);
    report.log_segments = segments;
    let durable = sources.log.durable_to.map(|durable| (durable, "was durable"));
    let met = sound.as_ref().map(|recovered| (recovered.last_seq, "could be read by an earlier pass"));
    let ends = [durable, met].into_iter().flatten().filter(|(end, _)| last < *end);
    if let Some((end, why)) = ends.max_by_key(|(end, _)| *end) {
        let (path, offset) =
            last_at.unwrap_or_else(|| (wal::file_name::segment_path(dir, sources.log.from), 0));
        let detail = format!("the log ends after commit {last}, but commit {end} {why}: its end is lost");
        report.losses.push(gap(last.get() + 1..=end.get(), detail, &path, offset));
    }
    if sources.complete && report.losses.len() == losses && wal::lacks_segments(env, dir, sources.log)? {
        let path = wal::file_name::segment_path(dir, sources.log.from);
        let error = Error::corrupt("WAL", path, 0, "the segment is missing, and newer ones exist");
        report.lose(error, 0, LostKeys::Any);
    }
    Ok(())
}

/// Returns the first of the log's last consecutive commits if they include the newest flushed one. Then the
/// last write to each of their keys is the newest.
fn first_to_do_again(env: &Env, dir: &Path, sources: &Sources, flushed: SeqNo) -> Result<Option<SeqNo>> {
    let mut row: Option<(SeqNo, SeqNo)> = None;
    wal::salvage(env, dir, sources.log, &mut |piece| {
        if let LogPiece::Commit { seq, payload, .. } = piece {
            row = match row.filter(|(_, last)| seq == last.next()) {
                _ if payload::decode(payload)
                    .map_or(true, |(_, set)| set.is_empty() || set.has_operands()) =>
                {
                    None
                }
                Some((first, _)) => Some((first, seq)),
                None => Some((seq, seq)),
            };
        }
        Ok(())
    })?;
    Ok(row.filter(|(_, last)| *last >= flushed).map(|(first, _)| first))
}

fn gap(commits: RangeInclusive<u64>, detail: String, path: &Path, offset: u64) -> Loss {
    let commits = Some(commits.into_inner());
    Loss { path: path.to_path_buf(), offset, bytes: 0, detail, keys: LostKeys::Any, commits }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_env::{Fs, MemFs, OpenOptions, read_range};

    use super::*;
    use crate::Db;
    use crate::manifest::file_name::{FileKind, parse};

    /// The log has an old value of a key. A table has the newest, without its number.
    #[test]
    fn what_a_table_holds_is_not_done_again() {
        let dir = Path::new("db");
        let builder = |fs: &MemFs| {
            let env = Env::simulated(Arc::new(fs.clone()), 1);
            Db::builder().background(false).memory(1 << 20).env(env)
        };
        let later = MemFs::new();
        let db = builder(&later).open(dir).unwrap();
        db.default_keyspace().put("a", "old").unwrap();
        let earlier = later.kill();
        db.default_keyspace().put("a", "new").unwrap();
        db.compact().unwrap();
        let names = later.list_dir(dir).unwrap();
        for name in names.iter().filter(|name| matches!(parse(name), FileKind::Table(_))) {
            let file = later.open(&dir.join(name), OpenOptions::read()).unwrap();
            let bytes = read_range(&*file, 0, file.len().unwrap() as usize).unwrap();
            let copy = earlier.open(&dir.join(name), OpenOptions::create()).unwrap();
            copy.write_all_at(&bytes, 0).unwrap();
        }
        builder(&earlier).repair(dir, "repaired").unwrap();
        let db = builder(&earlier).open("repaired").unwrap();
        let value = db.default_keyspace().get("a").unwrap();
        assert_eq!(value.as_deref(), Some(&b"new"[..]));
    }
}
