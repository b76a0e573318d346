//! Blob collection: finds garbage in blob files by the references of tables, and collects one file at a time.
//!
//! ```text
//!   version --references of all tables--> live bytes per file --the file with the most garbage-->
//!       its tables scanned in key order --values--> new file, with a map --install--> old file removed
//! ```
//!
//! collect.1. Every value that a table of the version references is copied. Only compactions drop references.
//! collect.2. Only settled files are collected: no commit writes to them any more, and all commits that point
//!     into them are in tables. Compactions may replace those tables meanwhile, but only by tables that
//!     reference less. A compaction that reads the old file keeps it open.
//! collect.4. A file is not collected while commits that point into it are still in the change feed.
//!
//! No table is changed: the new file replaces the old one (blob.1 in blob/mod.rs). The map and the values are
//! durable before the manifest names the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::blob::{BlobFile, BlobPointer, BlobSource, Moves};
use crate::compaction::merge::{MergeScan, Source};
use crate::encryption;
use crate::engine::base::event::Event;
use crate::engine::base::stats::add;
use crate::engine::upkeep::Upkeep;
use crate::engine::upkeep::amplification::{Space, is_over};
use crate::manifest::edit::{BlobEdit, VersionEdit};
use crate::manifest::file_name::blob_path;
use crate::manifest::version::{Run, Version};
use crate::read::view::ReadView;
use crate::types::canary::{self, Canary};
use crate::types::expiry::value_of;
use crate::types::{Error, FileId, Result, SeqNo};

/// To reduce the amplification of tables and blob files together, a file is collected only if its garbage is
/// at least this fraction of all.
const GARBAGE_PART: u64 = 8;
/// An idle database closes the current file and flushes the commits that point to it, if unsettled files have
/// this size and are a quarter of all.
const IDLE_BYTES_MIN: u64 = 1 << 20;
const IDLE_PART: u64 = 4;

/// What to do about blob files.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// Remove files that nothing references.
    Remove(Vec<FileId>),
    /// Collect the file with the most garbage.
    Collect(FileId),
    /// Settle files, because too much is in files that are not settled.
    Settle,
    Nothing,
}

impl Upkeep {
    /// Collects a blob file, or removes files that nothing references. Returns false if there is nothing to
    /// do. The caller holds the turn to choose a compaction, or the exclusive one.
    pub(in crate::engine) fn collect_blobs(&self, idle: bool) -> Result<bool> {
        // Before reading the version: commits that wrote to these files are in it, or in a memtable
        // (collect.2).
        let quiet = self.quiet_blob_files();
        // Read together, so that the version has the tables of everything flushed.
        let manifest = self.tables.manifest();
        let flushed = manifest.state().flushed_seq.unwrap_or_default();
        let version = self.version();
        drop(manifest);
        if version.blobs().is_empty() {
            return Ok(false);
        }
        let kept_from = self.feed.as_ref().map(|keeper| keeper.shelf.oldest());
        let settled = Settled { flushed, kept_from };
        match choose(&version, &quiet, settled, (self.options.amplification_percent_max(), idle)) {
            Choice::Nothing => Ok(false),
            Choice::Settle => {
                self.blobs.close_current();
                self.pipeline.seal()?;
                self.flush_step()?;
                Ok(true)
            }
            Choice::Remove(files) => self.collecting(&version, &files.clone(), || {
                add(&self.counters.collections, files.len() as u64);
                self.install_blobs(files, Vec::new()).map(|()| 0)
            }),
            Choice::Collect(file) => self.collecting(&version, &[file], || self.collect(&version, file)),
        }
    }

    /// Collects a settled blob file that is encrypted with an older key than new files. Returns false if
    /// there is none. The caller holds the exclusive turn of compactions.
    pub(in crate::engine) fn renew_blobs(&self) -> Result<bool> {
        if !encryption::has_older_keys(&self.env) {
            return Ok(false);
        }
        let quiet = self.quiet_blob_files();
        let manifest = self.tables.manifest();
        let flushed = manifest.state().flushed_seq.unwrap_or_default();
        let version = self.version();
        drop(manifest);
        let kept_from = self.feed.as_ref().map(|keeper| keeper.shelf.oldest());
        for (named, source) in version.blobs().iter() {
            let newest = source.file.newest_commit();
            let is_settled = quiet.get(&named) == Some(&true) && newest <= flushed;
            let is_kept = kept_from.is_some_and(|from| newest >= from);
            if is_settled && !is_kept && source.file.has_old_key(&self.env)? {
                return self.collecting(&version, &[named], || self.collect(&version, named));
            }
        }
        Ok(false)
    }

    /// Does the work of a collection, which returns the bytes that it wrote. Returns true.
    fn collecting(
        &self,
        version: &Version,
        files: &[FileId],
        collect: impl FnOnce() -> Result<u64>,
    ) -> Result<bool> {
        let begun = || {
            let used = |named: &FileId| version.blobs().find(*named).map_or(0, |source| source.file.used());
            Event::CollectionBegun { files: files.len(), bytes: files.iter().map(used).sum() }
        };
        let ended = |time, written: &Result<u64>| Event::CollectionEnded {
            files: if written.is_ok() { files.len() } else { 0 },
            bytes_written: written.as_ref().map_or(0, |bytes| *bytes),
            time,
            error: written.as_ref().err().cloned(),
        };
        self.between(begun, || self.heal_manifest().and_then(|()| collect()), ended).map(|_| true)
    }

    /// Returns the files that no commit is writing to, and whether each is closed.
    fn quiet_blob_files(&self) -> BTreeMap<FileId, bool> {
        let version = self.version();
        let quiet = version.blobs().iter().filter_map(|(named, source)| {
            // In this order: a closed file gets no new leases.
            let is_closed = source.file.is_closed();
            source.file.is_quiet().then_some((named, is_closed))
        });
        quiet.collect()
    }

    /// Copies the live values of a file to a new file that replaces it (collect.1). Returns the new file's
    /// size.
    fn collect(&self, version: &Version, named: FileId) -> Result<u64> {
        let Some(old) = version.blobs().find(named) else { return Ok(0) };
        let id = self.tables.new_file();
        let path = blob_path(&self.dir, id);
        let file = BlobFile::create(&self.env, &path, id)?;
        let copied = copy_live(version, named, &old, &file).and_then(|()| {
            // A failure does not stop the log, which points to nothing in this file.
            file.sync().map_err(Error::not_of_the_log)?;
            self.env.fs.sync_dir(&self.dir).map_err(|e| Error::io("sync directory", &self.dir, e))?;
            BlobSource::new(named, file.clone())
        });
        file.close();
        match copied {
            Ok(source) => {
                add(&self.counters.collections, 1);
                add(&self.counters.collection_bytes_written, file.len());
                self.install_blobs(Vec::new(), vec![(named, source)]).map(|()| file.len())
            }
            Err(error) => {
                let _ = self.env.fs.remove_file(&path);
                Err(error)
            }
        }
    }

    /// Removes blob files from the version and adds others, durably.
    fn install_blobs(&self, removed: Vec<FileId>, added: Vec<(FileId, BlobSource)>) -> Result<()> {
        let mut manifest = self.tables.manifest();
        let before = self.version();
        let replaced = added.iter().map(|(named, _)| *named).chain(removed.iter().copied());
        let gone: Vec<_> = replaced.filter_map(|named| before.blobs().find(named)).collect();
        let mut edit = VersionEdit {
            blobs: BlobEdit {
                added: added.iter().map(|(named, source)| (*named, source.file.id())).collect(),
                removed: removed.clone(),
            },
            ..VersionEdit::default()
        };
        self.tables.number(&mut edit);
        let version = Arc::new(before.with_blobs(before.blobs().changed(&removed, added)));
        drop(before);
        // After a failure the manifest may name the new file, so the file stays until the next opening.
        manifest.append(edit, || self.tables.new_file())?;
        self.view.update(|old| ReadView { version, ..old.clone() });
        drop(manifest);
        for source in gone {
            source.file.mark_obsolete(self.lock.remover(self.env.fs.clone()));
        }
        self.view.reclaim();
        Ok(())
    }
}

/// Decides which files are settled.
#[derive(Clone, Copy, Debug)]
struct Settled {
    /// All commits up to this one are in tables.
    flushed: SeqNo,
    /// Commits from this one on are kept for the change feed (feed.3 of feed/mod.rs).
    kept_from: Option<SeqNo>,
}

/// Decides what to do about the blob files of a version.
fn choose(
    version: &Version,
    quiet: &BTreeMap<FileId, bool>,
    settled: Settled,
    (percent_max, idle): (u64, bool),
) -> Choice {
    let space = Space::of(version);
    let (mut all, mut all_live, mut unsettled) = (0, 0, 0);
    let (mut unreferenced, mut most) = (Vec::new(), None);
    for (named, source) in version.blobs().iter() {
        let bytes = source.value_bytes();
        let Some(&is_closed) = quiet.get(&named) else { continue };
        if settled.kept_from.is_some_and(|from| source.file.newest_commit() >= from) {
            continue;
        }
        let is_settled = is_closed && source.file.newest_commit() <= settled.flushed;
        if !is_settled && !canary::is_set(Canary::BlobDroppedEarly) {
            unsettled += bytes;
            continue;
        }
        let live = space.live.get(&named).copied().unwrap_or(0);
        if live == 0 {
            unreferenced.push(named);
        }
        (all, all_live) = (all + bytes, all_live + live);
        most = most.max(Some((bytes.saturating_sub(live), named)));
    }
    let too_much = is_over(all, all_live, percent_max);
    let too_much_of_both = is_over(all + space.tables, all_live + space.base, percent_max);
    match most {
        _ if !unreferenced.is_empty() => Choice::Remove(unreferenced),
        Some((garbage, named)) if too_much && garbage > 0 => Choice::Collect(named),
        Some((garbage, named)) if too_much_of_both && garbage > all / GARBAGE_PART => Choice::Collect(named),
        _ if idle && unsettled >= IDLE_BYTES_MIN && unsettled >= (all + unsettled) / IDLE_PART => {
            Choice::Settle
        }
        _ => Choice::Nothing,
    }
}

/// Copies the values that tables reference in a file, in key order, and appends the map.
fn copy_live(version: &Version, named: FileId, old: &BlobSource, to: &BlobFile) -> Result<()> {
    let references = |run: &Arc<Run>| -> Vec<_> {
        let tables = run.tables().iter().filter(|table| table.meta.blobs.has(named));
        tables.map(|table| table.table.clone()).collect()
    };
    let runs = version.runs().iter().map(references).filter(|tables| !tables.is_empty());
    let mut scan = MergeScan::new(runs.map(Source::run))?;
    let mut moves = BTreeMap::new();
    while let Some(entry) = scan.next()? {
        if !entry.kind.needs_fetch() {
            continue;
        }
        let pointer = BlobPointer::decode(value_of(entry.kind, entry.value))
            .map_err(|e| e.in_file("blob pointer", to.path(), 0))?;
        if pointer.file == named && !moves.contains_key(&pointer.offset) {
            moves.insert(pointer.offset, old.copy(&pointer, to)?);
        }
    }
    to.append(&Moves::new(moves.into_iter().collect()).encode())?;
    Ok(())
}
