//! Blob files of the running database.
//!
//! ```text
//!   commit needs a file --> created, directory synced --> named in the manifest --> in the view --> values
//!   opening: manifest --> files --> check values of last commits --> replay the log up to the first damage
//! ```
//!
//! - A file that the manifest names exists, or opening fails. A file that it does not name is a leftover:
//!   nothing durable refers to it.
//! - The values of replayed commits are durable before anything states that the commits are (recovery.4 of
//!   wal/recovery.rs).
//! - Opening checks only the length of a file. The first reader checks its header.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::Env;

use crate::blob::{BlobFile, BlobPointer, BlobSet, BlobSource, NewBlobFile};
use crate::engine::disk::tables::Tables;
use crate::manifest::edit::{BlobEdit, VersionEdit};
use crate::manifest::file_name::blob_path;
use crate::read::view::ReadView;
use crate::read::view_cell::ViewCell;
use crate::txn::payload;
use crate::types::canary::{self, Canary};
use crate::types::expiry::value_of;
use crate::types::{Error, FileId, Result, SeqNo};
use crate::wal::{self, LogExtent};

/// What [`check_tail`] does with intact values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Tail {
    /// Nothing.
    Look,
    /// Make them durable.
    Store,
}

/// Opens the blob files that the manifest names.
pub(in crate::engine) fn open_blobs(env: &Env, dir: &Path, state: &VersionEdit) -> Result<BlobSet> {
    let mut named = BTreeMap::new();
    for &(name, file) in &state.blobs.added {
        let path = blob_path(dir, file);
        let len = env.fs.file_size(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                let detail =
                    "the manifest names it, but it is missing: restore a backup or run `esker repair`";
                Error::corrupt("blob file", &path, 0, detail)
            }
            _ => Error::io("measure", &path, e),
        })?;
        named.insert(name, BlobSource::new(name, BlobFile::described(env, &path, file, len))?);
    }
    Ok(BlobSet::new(dir, named))
}

/// Checks the values of commits that may not be durable. Returns the first commit with a damaged value: the
/// log ends before it.
pub(in crate::engine) fn check_tail(
    env: &Env,
    dir: &Path,
    extent: LogExtent,
    flushed: SeqNo,
    blobs: &BlobSet,
    tail: Tail,
) -> Result<Option<SeqNo>> {
    if blobs.is_empty() || canary::is_set(Canary::TornBlobAccepted) {
        return Ok(None);
    }
    let mut unsure: BTreeMap<FileId, Vec<BlobPointer>> = BTreeMap::new();
    let torn = wal::first_torn(env, dir, extent, |seq, record| {
        if seq <= flushed {
            return Ok(true);
        }
        // Replay reports what is wrong with it.
        let Ok((_, set)) = payload::decode(record) else { return Ok(true) };
        let mut pointers = Vec::new();
        for entry in set.entries(seq).filter(|entry| entry.kind.needs_fetch()) {
            let Ok(pointer) = BlobPointer::decode(value_of(entry.kind, entry.value)) else { return Ok(true) };
            let Some(source) = blobs.find(pointer.file) else {
                let detail = format!("commit {seq} points to it, but the manifest does not name it");
                return Err(Error::corrupt("blob file", blob_path(dir, pointer.file), 0, detail));
            };
            match source.check(&pointer) {
                Ok(()) => pointers.push(pointer),
                Err(Error::Corrupt { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        pointers.into_iter().for_each(|pointer| unsure.entry(pointer.file).or_default().push(pointer));
        Ok(true)
    })?;
    if tail == Tail::Store {
        for (file, pointers) in &unsure {
            if let Some(source) = blobs.find(*file) {
                source.store_again(env, pointers)?;
            }
        }
    }
    Ok(torn)
}

/// Returns the function with which commits create a blob file (blob_store.1 of blob/store.rs).
pub(in crate::engine) fn new_blob_file(
    env: Env,
    dir: PathBuf,
    tables: &Tables,
    view: Arc<ViewCell>,
) -> NewBlobFile {
    let shared = tables.shared();
    Box::new(move || {
        let mut manifest = shared.manifest();
        let id = shared.new_file();
        let file = BlobFile::create(&env, &blob_path(&dir, id), id)?;
        let named = env.fs.sync_dir(&dir).map_err(|e| Error::io("sync directory", &dir, e)).and_then(|()| {
            let next_file = Some(shared.next_file());
            let edit = VersionEdit {
                next_file,
                blobs: BlobEdit { added: vec![(id, id)], ..BlobEdit::default() },
                ..VersionEdit::default()
            };
            manifest.append(edit, || shared.new_file())
        });
        // After a failure the manifest may still name the file. It stays until the next opening.
        named?;
        view.update(|old| {
            let source = BlobSource { file: file.clone(), moves: None };
            let blobs = old.version.blobs().changed(&[], vec![(id, source)]);
            blobs.note_recent(&file);
            ReadView { version: Arc::new(old.version.with_blobs(blobs)), ..old.clone() }
        });
        Ok(file)
    })
}

#[cfg(test)]
mod tests {
    use esker_env::{MemFs, OpenOptions};

    use super::*;
    use crate::blob::Blobs;
    use crate::{BackgroundStep, Db, Durability};

    fn open(fs: &MemFs) -> Db {
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        Db::builder()
            .stepped()
            .blobs(Blobs::From(64))
            .compression(crate::TableCompression::None)
            .env(env)
            .open("db")
            .unwrap()
    }

    /// Opens what a killed process left, with this canary on. Returns whether each value is intact or absent.
    fn both_are_well(fs: &MemFs, canary: Option<Canary>) -> (bool, bool) {
        let db = open(fs);
        let map = db.default_keyspace();
        map.put("a", [1; 100]).unwrap();
        map.with(Durability::Buffered).put("b", [2; 100]).unwrap();
        canary::set(canary);
        db.step(BackgroundStep::Compact { idle: false }).unwrap();
        let left = fs.kill();
        if canary != Some(Canary::BlobDroppedEarly) {
            let env = Env::simulated(Arc::new(left.clone()), 1);
            let names = env.fs.list_dir("db".as_ref()).unwrap();
            let blob = names.iter().find(|name| name.ends_with(".blob")).unwrap();
            let file = env.fs.open(&Path::new("db").join(blob), OpenOptions::write()).unwrap();
            file.write_all_at(&[0; 50], 32 + 150).unwrap();
        }
        let db = open(&left);
        canary::set(None);
        let map = db.default_keyspace();
        let is_well = |key| matches!(map.get(key), Ok(Some(value)) if value.len() == 100);
        (is_well("a"), is_well("b") || matches!(map.get("b"), Ok(None)))
    }

    #[test]
    fn a_damaged_or_missing_blob_file_is_an_error_with_its_name() {
        let fs = MemFs::new();
        let db = open(&fs);
        db.default_keyspace().put("a", [1; 100]).unwrap();
        db.close().unwrap();
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        let names = env.fs.list_dir("db".as_ref()).unwrap();
        let blob = Path::new("db").join(names.iter().find(|name| name.ends_with(".blob")).unwrap());
        let file = env.fs.open(&blob, OpenOptions::write()).unwrap();
        file.write_all_at(&[7], 16).unwrap();
        let db = open(&fs);
        let map = db.default_keyspace();
        assert!(map.contains("a").unwrap());
        match map.get("a") {
            Err(Error::Corrupt { path, offset: 0, .. }) => assert_eq!(path, blob),
            other => panic!("{other:?}"),
        }
        drop((map, db));
        env.fs.remove_file(&blob).unwrap();
        let error = Db::builder().stepped().env(env.clone()).open("db").unwrap_err();
        assert!(error.is_corrupt(), "{error}");
    }

    #[test]
    fn a_file_without_references_is_removed_at_once_though_its_values_were_never_synced() {
        let fs = MemFs::new();
        let db = open(&fs);
        let map = db.default_keyspace();
        let files = || {
            let names = Env::simulated(Arc::new(fs.clone()), 1).fs.list_dir("db".as_ref()).unwrap();
            names.iter().filter(|name| name.ends_with(".blob")).count()
        };
        map.with(Durability::Buffered).put("a", [1; 100]).unwrap();
        map.with(Durability::Buffered).put("a", "small").unwrap();
        assert_eq!(files(), 1);
        db.compact().unwrap();
        assert_eq!(files(), 0);
    }

    #[test]
    fn recovery_9_collect_2_a_torn_value_ends_the_log_and_no_file_goes_that_the_log_needs() {
        assert_eq!(both_are_well(&MemFs::new(), None), (true, true), "recovery.9");
        assert_eq!(both_are_well(&MemFs::new(), Some(Canary::TornBlobAccepted)), (true, false));
        assert_eq!(both_are_well(&MemFs::new(), Some(Canary::BlobDroppedEarly)), (false, false));
    }
}
