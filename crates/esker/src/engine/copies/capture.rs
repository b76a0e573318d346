//! What a copy of the database consists of, as of one commit.
//!
//! ```text
//!   flush --> under the manifest's lock: its state, and the version of the same moment --> state of the copy; the version pins its files
//! ```
//!
//! capture.1. The copy holds every commit up to its number, and none after it. It needs no log. What its tables point to in blob files is durable: the
//!      log was synced with it when the memtables were sealed (wal/sync.rs), or the tables were adopted after it was.
//! capture.2. Every commit that was visible when the capture began is in it.
//! capture.3. State and version are of one moment: both change under the manifest's lock alone. Files that the version has stay until it
//!      is dropped, whatever is merged or collected meanwhile.
//! capture.4. A table of a commit that was adopted behind others, which the log alone has, is left out. It stands by itself: what could have merged it
//!      had its turn before the flush, or waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::core::Core;
use crate::manifest::edit::VersionEdit;
use crate::manifest::feed::FeedEdit;
use crate::manifest::file_name::{CURRENT, blob_path, table_path};
use crate::manifest::version::Version;
use crate::types::{Error, FileId, KeyspaceId, Result, SeqNo};

/// A blob file in use that is larger is closed first, so that it can be linked.
const OPEN_BLOBS_BYTES_MAX: u64 = 4 << 20;

/// See the module's text.
pub(crate) struct Capture {
    /// What the copy's manifest says: no log, no number of the database.
    pub(crate) state: VersionEdit,
    /// The last commit.
    pub(crate) seq: SeqNo,
    /// The number that the database has for itself.
    pub(crate) database_id: u32,
    /// The files, in the order of their numbers.
    pub(crate) files: Vec<CapturedFile>,
    /// capture.3
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
    /// How much of it belongs to the copy.
    pub(crate) len: u64,
    /// It does not change any more: it may have another name.
    pub(crate) is_final: bool,
    /// What it is known by beside its number and length, if that is known without reading it.
    pub(crate) fingerprint: Option<u32>,
}

impl Core {
    /// What a copy consists of that holds all that is visible now.
    pub(crate) fn capture(&self) -> Result<Capture> {
        self.check_ours()?;
        let begun = self.published.visible();
        self.blobs.close_over(OPEN_BLOBS_BYTES_MAX);
        self.flush_all()?;
        let capture = match self.capture_now(false)? {
            Some(capture) => capture,
            None => {
                // Large commits go on among small ones (capture.4).
                let _turn = self.turns.compact.lock();
                self.check_ours()?;
                self.flush_all()?;
                self.capture_now(true)?.expect("capture.4: others are left out")
            }
        };
        assert!(capture.seq >= begun, "capture.2: {} of {begun}", capture.seq);
        Ok(capture)
    }

    /// The number that the database has for itself.
    pub(crate) fn database_id(&self) -> u32 {
        self.tables.manifest().state().database_id.unwrap_or_default()
    }

    /// None if commits would have to be left out that cannot be, or only with `leaving_out`.
    fn capture_now(&self, leaving_out: bool) -> Result<Option<Capture>> {
        // capture.3
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
        let blobs = state.blobs.iter().filter_map(|&(named, id)| {
            let file = version.blobs().find(named)?.file;
            // In this order: of a file that is closed there are no new leases.
            let is_final = file.is_closed() && file.is_quiet();
            let path = blob_path(&self.dir, id);
            // What is leased and not written yet is of later commits, or of none.
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

/// Makes of the manifest's state that of a copy; its last commit (capture.1). None: see [`Core::capture_now`].
fn settle(state: &mut VersionEdit, leaving_out: bool) -> Result<Option<SeqNo>, String> {
    let mut adopted = std::mem::take(&mut state.adopted);
    adopted.sort_by_key(|commit| commit.seq);
    let mut last = state.flushed_seq.unwrap_or_default();
    let mut counts: BTreeMap<KeyspaceId, u64> = state.counts.iter().flatten().copied().collect();
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
    counts.retain(|_, count| *count > 0);
    state.counts = Some(counts.into_iter().collect());
    state.flushed_seq = Some(last);
    (state.durable_seq, state.wal_named) = (None, None);
    // What is kept for the change feed stays behind: so the copy's feed begins anew.
    state.feed = FeedEdit { limits: state.feed.limits, ..FeedEdit::default() };
    let VersionEdit { added, blobs, .. } = state;
    blobs.retain(|(named, _)| added.iter().any(|table| table.meta.blobs.has(*named)));
    Ok(Some(last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::edit::{AddedTable, Adopted};
    use crate::manifest::version::{Level, RunId};
    use crate::sstable::{Counts, Fingerprint, TableMeta};
    use crate::types::key_range::{End, KeyRange};

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
    fn capture_1_capture_4_adopted_commits_are_taken_as_far_as_none_is_missing_before() {
        let adopted =
            |seq, delta| Adopted { seq: SeqNo::new(seq), deltas: vec![(KeyspaceId::DEFAULT, delta)] };
        let state = |adopted: Vec<Adopted>| VersionEdit {
            flushed_seq: Some(SeqNo::new(10)),
            durable_seq: Some(SeqNo::new(14)),
            counts: Some(vec![(KeyspaceId::DEFAULT, 5)]),
            added: [(1, 0), (2, 11), (3, 12), (4, 14)].map(|(file, base)| table(file, base)).to_vec(),
            adopted,
            ..VersionEdit::default()
        };
        let of = |adopted: Vec<Adopted>, leaving_out| {
            let mut state = state(adopted);
            let last = settle(&mut state, leaving_out)?.map(SeqNo::get);
            assert!(state.adopted.is_empty() && last.is_none_or(|_| state.durable_seq.is_none()));
            let files: Vec<_> = state.added.iter().map(|table| table.file.get()).collect();
            Ok::<_, String>((last, state.counts.unwrap(), files))
        };
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
    }
}
