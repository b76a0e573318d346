//! The contents of a copy of the database, as of one commit.
//!
//! ```text
//!   flush --> under the manifest's lock: its state and the version of the same moment --> state of the copy
//!                                                                     the version pins the files
//! ```
//!
//! - The copy holds every commit up to its number, and none after it. It needs no log. The blob values that
//!   its tables refer to are durable: they were synced with the log when the memtables were sealed
//!   (wal/sync.rs), or before the tables were adopted.
//!
//! capture.2. Every commit that was visible when the capture began is in it.
//! - State and version belong to one moment: both change only under the manifest's lock. The files of the
//!   version stay until it is dropped, whatever is compacted or collected meanwhile.
//! - A table of a commit that was adopted after commits which only the log has is left out. It is still
//!   separate: a compaction that could have included it ran before the flush, or waits for its turn.
//!
//! capture.5. A copy lacks nothing that it should hold. Compactions drop tables below range removals that
//!     only memtables and the log have (covered.3). The edit that does so records how far the manifest relies
//!     on the log (`durable_seq`). A state that relies on commits after the copy's number is not used.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::core::Core;
use crate::manifest::edit::VersionEdit;
use crate::manifest::feed::FeedEdit;
use crate::manifest::file_name::{CURRENT, blob_path, table_path};
use crate::manifest::version::Version;
use crate::types::canary::{self, Canary};
use crate::types::interleave::{self, Point};
use crate::types::{Error, FileId, KeyspaceId, Result, SeqNo};

/// A larger blob file in use is closed first, so that it can be linked.
const OPEN_BLOBS_BYTES_MAX: u64 = 4 << 20;

/// The contents of a copy.
pub(crate) struct Capture {
    /// State for the copy's manifest, without a log and without a database number.
    pub(crate) state: VersionEdit,
    /// The last commit.
    pub(crate) seq: SeqNo,
    /// The original's database number.
    pub(crate) database_id: u32,
    /// The files, sorted by number.
    pub(crate) files: Vec<CapturedFile>,
    /// Pins the files.
    _version: Arc<Version>,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DataKind {
    Table,
    Blobs,
}

/// A file of a copy.
pub(crate) struct CapturedFile {
    pub(crate) kind: DataKind,
    pub(crate) id: FileId,
    pub(crate) path: PathBuf,
    /// Bytes of it that belong to the copy.
    pub(crate) len: u64,
    /// It no longer changes, so it may be linked.
    pub(crate) is_final: bool,
    /// Identifies the contents together with number and length, if known without reading the file.
    pub(crate) fingerprint: Option<u32>,
}

impl Core {
    /// Captures everything that is visible now.
    pub(crate) fn capture(&self) -> Result<Capture> {
        self.check_writable()?;
        let begun = self.published.visible();
        self.blobs.close_over(OPEN_BLOBS_BYTES_MAX);
        self.flush_all()?;
        interleave::reached(Point::CaptureFlushed);
        let capture = match self.capture_now(false)? {
            Some(capture) => capture,
            None => {
                // Large commits continue among small ones, or a compaction relied on a later
                // commit (capture.5). While this thread holds the compaction turn, neither happens between
                // the flush and the capture.
                let _turn = self.turns.compact.lock();
                self.check_writable()?;
                let relied_on = self.tables.manifest().state().durable_seq;
                self.flush_all()?;
                let capture = self.capture_now(true)?.expect("others are left out");
                assert!(Some(capture.seq) >= relied_on, "capture.5: {} of {relied_on:?}", capture.seq);
                capture
            }
        };
        assert!(capture.seq >= begun, "capture.2: {} of {begun}", capture.seq);
        Ok(capture)
    }

    /// The database's number.
    pub(crate) fn database_id(&self) -> u32 {
        self.tables.manifest().state().database_id.unwrap_or_default()
    }

    /// Captures the current state. `None`: commits would have to be left out, and that is impossible or needs
    /// `leaving_out`.
    fn capture_now(&self, leaving_out: bool) -> Result<Option<Capture>> {
        let manifest = self.tables.manifest();
        let mut state = manifest.state().clone();
        let version = self.version();
        self.tables.number(&mut state);
        drop(manifest);
        let corrupt = |detail| Error::corrupt("manifest", self.dir.join(CURRENT), 0, detail);
        let Some(seq) = settle(&mut state, leaving_out).map_err(corrupt)? else { return Ok(None) };
        let database_id = state.database_id.take().unwrap_or_default();
        let files = self.files_of(&state, &version)?;
        Ok(Some(Capture { state, seq, database_id, files, _version: version }))
    }

    fn files_of(&self, state: &VersionEdit, version: &Version) -> Result<Vec<CapturedFile>> {
        let tables = state.added.iter().map(|added| CapturedFile {
            kind: DataKind::Table,
            id: added.file,
            path: table_path(&self.dir, added.file),
            len: added.meta.file_bytes,
            is_final: true,
            fingerprint: Some(added.meta.fingerprint.get()),
        });
        let blobs = state.blobs.added.iter().filter_map(|&(named, id)| {
            let file = version.blobs().find(named)?.file;
            // In this order: a closed file gets no new leases.
            let is_final = file.is_closed() && file.is_quiet();
            let path = blob_path(&self.dir, id);
            // Leased bytes that are not written yet belong to later commits, or to none.
            let len = self.env.fs.file_size(&path).map_err(|e| Error::io("measure", &path, e));
            Some(len.map(|len| CapturedFile {
                kind: DataKind::Blobs,
                id,
                path,
                len: len.min(file.len()),
                is_final,
                fingerprint: None,
            }))
        });
        let mut files: Vec<_> = tables.map(Ok).chain(blobs).collect::<Result<_>>()?;
        files.sort_by_key(|file| (file.id.get(), file.kind));
        Ok(files)
    }
}

/// Turns the manifest's state into that of a copy, and returns its last commit. `None`: see
/// [`Core::capture_now`].
fn settle(state: &mut VersionEdit, leaving_out: bool) -> Result<Option<SeqNo>, String> {
    let mut adopted = std::mem::take(&mut state.adopted);
    adopted.sort_by_key(|commit| commit.seq);
    let mut last = state.flushed_seq.unwrap_or_default();
    let mut counts: BTreeMap<KeyspaceId, u64> = state.counts.all.iter().flatten().copied().collect();
    for commit in &adopted {
        if commit.seq != last.next() {
            if !leaving_out {
                return Ok(None);
            }
            state.added.retain(|table| table.meta.base_seq <= last);
            break;
        }
        for &(keyspace, delta) in &commit.deltas {
            let count = counts.entry(keyspace).or_default();
            let changed = count.checked_add_signed(delta);
            *count = changed.ok_or_else(|| format!("keyspace {keyspace} would count below zero"))?;
        }
        last = commit.seq;
    }
    // capture.5
    if !leaving_out && state.durable_seq > Some(last) && !canary::is_set(Canary::CaptureMissesCovered) {
        return Ok(None);
    }
    counts.retain(|_, count| *count > 0);
    state.counts.all = Some(counts.into_iter().collect());
    state.flushed_seq = Some(last);
    (state.durable_seq, state.wal_named) = (None, None);
    // Commits kept for the change feed are left out: the copy starts a feed of its own.
    state.feed = FeedEdit { limits: state.feed.limits, ..FeedEdit::default() };
    let VersionEdit { added, blobs, .. } = state;
    blobs.added.retain(|(named, _)| added.iter().any(|table| table.meta.blobs.has(*named)));
    Ok(Some(last))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use esker_env::{Env, MemFs};

    use super::*;
    use crate::manifest::edit::{AddedTable, Adopted, LiveCounts};
    use crate::manifest::level::{Level, RunId};
    use crate::sstable::{Counts, Fingerprint, TableMeta};
    use crate::types::key_range::{End, KeyRange};
    use crate::{BackgroundStep, Db};

    fn table(file: u64, base: u64) -> AddedTable {
        let range = KeyRange { start: vec![1], end: End::Included(vec![1]) };
        let meta = TableMeta {
            blobs: Default::default(),
            file_bytes: 0,
            range,
            counts: Counts::default(),
            fingerprint: Fingerprint::default(),
            base_seq: SeqNo::new(base),
        };
        AddedTable { file: FileId::new(file), level: Level::L0, run: RunId(file), meta }
    }

    #[test]
    fn capture_4_capture_5_adopted_commits_are_taken_as_far_as_none_is_missing_before() {
        let adopted =
            |seq, delta| Adopted { seq: SeqNo::new(seq), deltas: vec![(KeyspaceId::DEFAULT, delta)] };
        let state = |adopted: Vec<Adopted>, durable| VersionEdit {
            flushed_seq: Some(SeqNo::new(10)),
            durable_seq: Some(SeqNo::new(durable)),
            counts: LiveCounts { all: Some(vec![(KeyspaceId::DEFAULT, 5)]), ..LiveCounts::default() },
            added: [(1, 0), (2, 11), (3, 12), (4, 14)].map(|(file, base)| table(file, base)).to_vec(),
            adopted,
            ..VersionEdit::default()
        };
        let relying_on = |durable, adopted: Vec<Adopted>, leaving_out| {
            let mut state = state(adopted, durable);
            let last = settle(&mut state, leaving_out)?.map(SeqNo::get);
            assert!(state.adopted.is_empty() && last.is_none_or(|_| state.durable_seq.is_none()));
            let files: Vec<_> = state.added.iter().map(|table| table.file.get()).collect();
            Ok::<_, String>((last, state.counts.all.unwrap(), files))
        };
        let of = |adopted, leaving_out| relying_on(10, adopted, leaving_out);
        let count = |n| vec![(KeyspaceId::DEFAULT, n)];
        let all = vec![1, 2, 3, 4];
        assert_eq!(of(vec![], false), Ok((Some(10), count(5), all.clone())));
        assert_eq!(of(vec![adopted(12, -4), adopted(11, 2)], false), Ok((Some(12), count(3), all)));
        // Commit 13 is in the log.
        let gap = || vec![adopted(11, 2), adopted(12, -4), adopted(14, 9)];
        assert_eq!(of(gap(), false).map(|found| found.0), Ok(None));
        assert_eq!(of(gap(), true), Ok((Some(12), count(3), vec![1, 2, 3])));
        assert_eq!(of(vec![adopted(12, 1)], true), Ok((Some(10), count(5), vec![1])));
        assert_eq!(of(vec![adopted(11, -5)], false).map(|found| found.1), Ok(vec![]));
        assert!(of(vec![adopted(11, -6)], false).is_err());
        // Tables are missing that commit 13 of the log covers.
        assert_eq!(relying_on(13, vec![adopted(11, 2)], false).map(|found| found.0), Ok(None), "capture.5");
        assert_eq!(
            relying_on(11, vec![adopted(11, 2)], false).map(|found| found.0),
            Ok(Some(11)),
            "capture.5"
        );
    }

    #[test]
    fn capture_5_a_copy_holds_what_a_later_range_removal_has_taken_from_the_tables() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let db = Db::builder().stepped().env(env.clone()).open(Path::new("db")).unwrap();
        let map = db.default_keyspace();
        for key in 0..100_u8 {
            map.put([key], [key]).unwrap();
        }
        let (in_hook, mut is_done) = (db.clone(), false);
        let before = interleave::set(Some(Box::new(move |point| {
            if point == Point::CaptureFlushed && !std::mem::replace(&mut is_done, true) {
                in_hook.default_keyspace().delete_range([0]..=[99]).unwrap();
                while in_hook.step(BackgroundStep::Compact { idle: false }).unwrap() {}
                assert_eq!(in_hook.stats().tables_dropped, 1);
            }
        })));
        db.checkpoint("copy").unwrap();
        interleave::set(before);
        let copy = Db::builder().stepped().env(env).open(Path::new("copy")).unwrap();
        let copied = copy.default_keyspace();
        let (len, keys) = (copied.len().unwrap(), copied.range(..).keys().count() as u64);
        let is_there = (0..100).all(|key| copied.contains([key]).unwrap());
        assert!(len == keys && (len == 0 || is_there), "capture.5: {keys} keys, counted as {len}");
        assert_eq!((map.len().unwrap(), copy.check().unwrap().is_sound()), (0, true));
    }
}
