//! The values that a damaged database has in blob files.
//!
//! repair_blobs.1. A file that the manifest names counts as it says; another one as the file that it was made as. What cannot be opened is as if
//!      it were not there: each value in it is lost, and told.
//! repair_blobs.2. A commit of the log with a value that is lost is lost as a whole.

use std::collections::BTreeMap;
use std::path::Path;

use esker_env::Env;

use crate::blob::{BlobFile, BlobSet, BlobSource};
use crate::manifest::file_name::{FileKind, blob_path, parse};
use crate::txn::write_set::WriteSet;
use crate::types::expiry::{Expiry, value_of};
use crate::types::op::Kind;
use crate::types::{FileId, Result, SeqNo};

/// The blob files in a directory; `named`: what the manifest says of them (repair_blobs.1).
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
    BlobSet::new(found)
}

/// The same writes, with values in place of pointers (repair_blobs.2).
pub(super) fn fetched(set: WriteSet, blobs: &BlobSet) -> Result<WriteSet> {
    if set.entries(SeqNo::ZERO).all(|entry| !entry.kind.needs_fetch()) {
        return Ok(set);
    }
    let mut out = WriteSet::new();
    set.ranges().iter().for_each(|(start, end)| out.remove_range(start, end));
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
