//! Finds the blob files of a damaged database.
//!
//! - A file that the manifest names has the number that the manifest gives it; any other has its own. A file
//!   that cannot be opened counts as missing: each value in it is reported as lost.
//! - A commit of the log with a lost value is lost as a whole.

use std::collections::BTreeMap;
use std::path::Path;

use esker_env::Env;

use crate::blob::{BlobFile, BlobSet, BlobSource};
use crate::manifest::file_name::{FileKind, blob_path, parse};
use crate::txn::write_set::WriteSet;
use crate::types::expiry::{Expiry, value_of};
use crate::types::op::Kind;
use crate::types::{FileId, Result, SeqNo};

/// Finds the blob files in a directory. `named`: those that the manifest names.
pub(super) fn find(env: &Env, dir: &Path, names: &[String], named: &[(FileId, FileId)]) -> BlobSet {
    let mut found = BTreeMap::new();
    for name in names {
        let FileKind::Blob(file) = parse(name) else { continue };
        let name = named.iter().find(|(_, of)| *of == file).map_or(file, |(name, _)| *name);
        let source =
            BlobFile::open(env, &blob_path(dir, file), file).and_then(|file| BlobSource::new(name, file));
        if let Ok(source) = source {
            found.insert(name, source);
        }
    }
    BlobSet::new(dir, found)
}

/// Replaces pointers to blob files by the values.
pub(super) fn fetched(set: WriteSet, blobs: &BlobSet) -> Result<WriteSet> {
    if set.entries(SeqNo::ZERO).all(|entry| !entry.kind.needs_fetch()) {
        return Ok(set);
    }
    let mut out = WriteSet::new();
    set.ranges().iter().for_each(|(start, end)| out.delete_range(start, end));
    for entry in set.entries(SeqNo::ZERO) {
        if entry.kind.needs_fetch() {
            let value = blobs.read(value_of(entry.kind, entry.value))?;
            out.put_until(Kind::PUT, entry.key, Expiry::of_version(entry.kind, entry.value), &value);
        } else {
            out.write(entry.kind.resolved(), entry.key, entry.value);
        }
    }
    Ok(out)
}
