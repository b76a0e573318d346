//! Checks the log: names and finished segments of a log in use, or all of a log that is not in use.

use std::path::Path;

use esker_env::Env;

use super::CheckReport;
use crate::manifest::edit::VersionEdit;
use crate::types::{Error, Result, SeqNo};
use crate::wal::{self, LogExtent, LogPiece, SegmentPiece};

/// Checks the finished segments of a log in use. Every commit after `flushed` must exist.
pub(super) fn check_finished(
    env: &Env,
    dir: &Path,
    extent: LogExtent,
    flushed: SeqNo,
    report: &mut CheckReport,
) -> Result<()> {
    let from = extent.from;
    let segments = wal::segments(env, dir, from)?;
    let Some((_, finished)) = segments.split_last() else { return Ok(()) };
    // The next expected segment, and the commit before it. The commit is unknown if the segments before it
    // were released meanwhile.
    let (mut next, mut before) = (from, Some(flushed));
    for &number in finished {
        let path = wal::file_name::segment_path(dir, number);
        let mut last = before.filter(|_| number == next);
        let (mut problems, mut commits) = (Vec::new(), 0);
        let mut corrupt =
            |what, offset, detail: &str| problems.push(Error::corrupt(what, &path, offset, detail));
        let mut header = None;
        let walked =
            wal::walk_segment_file(env, &path, number, extent.database_id, &mut |piece| match piece {
                SegmentPiece::Header(Ok(found)) if found.is_foreign(extent.database_id) => {
                    corrupt("WAL segment header", 0, "the segment is part of the log of another database");
                }
                SegmentPiece::Header(found) => header = found.err(),
                SegmentPiece::Record { offset, kind, seq, .. } => {
                    if let Some(before) = last.take_if(|last| seq > last.next()) {
                        corrupt("commit", offset, &format!("commit {seq} follows commit {before}"));
                    }
                    if kind == "full" || kind == "last" {
                        commits += 1;
                        // The first commits may be in tables already.
                        last = Some(last.map_or(seq, |last| last.max(seq)));
                    }
                }
                SegmentPiece::Damage { offset, detail, .. } => {
                    corrupt("WAL record", offset, detail);
                    last = None;
                }
                SegmentPiece::Tail { offset, .. } => {
                    let detail = "it does not end in an end record, and a newer segment follows";
                    corrupt("WAL segment", offset, detail);
                    last = None;
                }
                SegmentPiece::End { .. } => {}
            });
        // An unreadable part may hold any commit.
        last = last.filter(|_| walked.is_ok());
        problems.extend(header);
        problems.extend(walked.err());
        (next, before) = (number + 1, last);
        // Released meanwhile: the file was recycled or deleted, so what was read means nothing.
        if !problems.is_empty() && !env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
            before = None;
            continue;
        }
        report.log_segments += 1;
        report.commits += commits;
        problems.iter().for_each(|error| report.problem(error));
    }
    Ok(())
}

/// Checks that each segment named by the manifest, or its prepared file, exists while the log is in use.
/// `extent` reads the current manifest: a missing segment that it no longer names was released meanwhile.
pub(super) fn check_named(
    env: &Env,
    dir: &Path,
    extent: impl Fn() -> LogExtent,
    report: &mut CheckReport,
) -> Result<()> {
    let LogExtent { from, named_to, .. } = extent();
    let Some(named_to) = named_to else { return Ok(()) };
    for number in from..=named_to {
        let segment = wal::file_name::segment_path(dir, number);
        let prepared = wal::file_name::prepared_path(dir, number);
        let exists = |path: &Path| env.fs.exists(path).map_err(|e| Error::io("look for", path, e));
        let is_prepared =
            || -> Result<bool> { Ok(exists(&prepared)? && !wal::is_in_use(env, &prepared, number)) };
        let is_missing = || -> Result<bool> {
            // The writer renames one to the other. If it does so between the first two checks, the third
            // finds it.
            let is_there = exists(&segment)? || is_prepared()? || exists(&segment)?;
            let now = extent();
            Ok(!is_there && now.from <= number && now.named_to >= Some(number))
        };
        // Between the checks the file may have been released, created and named again. Then it exists now.
        if is_missing()? && is_missing()? {
            let detail = "the segment is missing, and the manifest says that it is in use";
            report.problem(Error::corrupt("WAL", &segment, 0, detail));
        }
    }
    Ok(())
}

/// Checks the segments that are kept only for the change feed. Opening reads each, and fails if one is
/// unreadable. After a missing or damaged segment the feed begins behind it.
pub(super) fn check_kept(env: &Env, dir: &Path, state: &VersionEdit, report: &mut CheckReport) -> Result<()> {
    let is_on = state.feed.limits.is_some_and(|limits| limits.bytes > 0);
    let Some(from) = state.feed.from.filter(|_| is_on) else { return Ok(()) };
    for number in (from.segment..state.log_extent().from).rev() {
        let path = wal::file_name::segment_path(dir, number);
        if !env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
            break;
        }
        match wal::look_at(env, dir, number, state.database_id) {
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => report.problem(error),
        }
    }
    Ok(())
}

/// Checks all of a log that is not in use. Returns its newest valid commit, or `flushed` if that is newer.
pub(super) fn check_all(
    env: &Env,
    dir: &Path,
    extent: LogExtent,
    flushed: SeqNo,
    report: &mut CheckReport,
) -> Result<SeqNo> {
    let recovered = wal::verify(env, dir, extent, |_, _| Ok(()));
    // Commits after an unfinished one never count, even if they can be read.
    let end = recovered.as_ref().map_or(SeqNo::MAX, |recovered| recovered.last_seq);
    let mut last = flushed;
    let mut commits = 0;
    let mut problems = Vec::new();
    let segments = wal::salvage(env, dir, extent, &mut |piece| {
        match piece {
            // After an unfinished commit there may be others that were never acknowledged: recovery decides.
            LogPiece::Lost { error, .. } => {
                if recovered.is_err() {
                    problems.push(error);
                }
            }
            LogPiece::Commit { seq, .. } if seq > end => {}
            LogPiece::Torn { .. } => {}
            LogPiece::Commit { seq, payload, path, offset } => {
                commits += 1;
                let mut wrong =
                    |detail: String| problems.push(Error::corrupt("commit", path, offset, detail));
                if seq > last.next() && recovered.is_ok() {
                    wrong(format!("commit {seq} follows commit {last}"));
                }
                if let Err(error) = crate::txn::payload::decode(payload) {
                    wrong(format!("byte {}: {}", error.offset, error.detail));
                }
                last = last.max(seq);
            }
        }
        Ok(())
    })?;
    (report.log_segments, report.commits) = (segments, commits);
    match recovered {
        Ok(recovered) if recovered.trimmed_bytes > 0 => {
            let bytes = recovered.trimmed_bytes;
            report.note(format!("{}: the log ends in {bytes} bytes of an unfinished commit", dir.display()));
        }
        Ok(_) => {}
        Err(error) => {
            let place = |error: &Error| match error {
                Error::Corrupt { path, offset, .. } => Some((path.clone(), *offset)),
                _ => None,
            };
            problems.retain(|problem| place(problem) != place(&error));
            report.problem(error);
        }
    }
    problems.iter().for_each(|error| report.problem(error));
    Ok(last)
}
