//! Reads a damaged manifest as far as possible.
//!
//! ```text
//!   MANIFEST-n --sound records--> edits, merged into one --> SalvagedManifest
//!              `-others---------> damage; `complete` is false
//! ```
//!
//! - Nothing is changed, and no bytes cause a panic.
//!
//! manifest_salvage.2. `complete` is true only if every edit that took effect is in the state.
//! - Unreadable bytes cost the edits in the 4 KiB around them, including those that begin or end there. In
//!   the first 4 KiB they cost the manifest.

use std::collections::BTreeSet;
use std::path::Path;

use esker_env::Env;

use super::edit::VersionEdit;
use super::log::check_header;
use crate::recordio::{self, Tail};
use crate::types::{Error, FileId, Result};

/// What can be read of a manifest.
#[derive(Debug, Default)]
pub(crate) struct SalvagedManifest {
    /// All readable edits, merged; `None` if there are none.
    pub state: Option<VersionEdit>,
    /// Number of non-empty edits, including the first state.
    pub edits: u64,
    /// The tables that edits removed and none added again.
    pub removed: BTreeSet<FileId>,
    /// Whether no edit is missing (manifest_salvage.2).
    pub complete: bool,
    /// What cannot be read.
    pub damage: Vec<Error>,
    /// Offset and length of an incomplete edit at the end, which never took effect.
    pub torn: Option<(u64, u64)>,
}

/// One record of a manifest.
pub(crate) enum ManifestPiece {
    /// The file's first record.
    Header(Result<()>),
    /// An edit. The first one is the whole state when the file was created.
    Edit(Box<VersionEdit>),
    /// An empty record, which proves that the edit before it took effect.
    Marker,
    /// A record that is not an edit. Or bytes that are not a record and are followed by valid ones, or
    /// contain unreadable bytes.
    Damage(Error),
    /// The bytes after the last record.
    Tail(Tail),
}

/// Calls `each` with every piece of the manifest and its offset, in order. Fails if the file cannot be
/// opened, or not read at its start.
pub(crate) fn walk(env: &Env, path: &Path, each: &mut dyn FnMut(u64, ManifestPiece)) -> Result<()> {
    let mut reader = recordio::Reader::options().env(env).salvage().uncompressed().open(path)?;
    if let Some(error) = reader.header_damage() {
        each(0, ManifestPiece::Damage(error));
    }
    let mut first = true;
    let mut end = reader.position();
    loop {
        let skipped_before = reader.skipped_bytes();
        let record = reader.next()?.map(<[u8]>::to_vec);
        let skipped = reader.skipped_bytes() - skipped_before;
        // Also after the last one: a record may have correct checksums without being one.
        if skipped > 0 {
            each(end, ManifestPiece::Damage(reader.skipped_damage("manifest", end, skipped)));
        }
        end = reader.position();
        let Some(record) = record else { break };
        let (offset, content_offset) = (reader.record_offset(), reader.content_offset());
        if std::mem::take(&mut first) {
            let header = check_header(&record, path, content_offset);
            let is_edit = skipped > 0 && header.as_ref().is_err_and(Error::is_corrupt);
            // The header itself may have been skipped. Then this is an edit.
            if !is_edit {
                each(offset, ManifestPiece::Header(header));
                continue;
            }
        }
        each(
            offset,
            match VersionEdit::decode(&record) {
                Ok(_) if record.is_empty() => ManifestPiece::Marker,
                Ok(edit) => ManifestPiece::Edit(Box::new(edit)),
                Err(error) => ManifestPiece::Damage(error.in_file("version edit", path, content_offset)),
            },
        );
    }
    each(end, ManifestPiece::Tail(reader.tail().unwrap_or(Tail::Clean)));
    Ok(())
}

/// Reads what is left of the manifest at `path`. Fails if nothing can be read, or if its format is newer.
pub(crate) fn salvage(env: &Env, path: &Path) -> Result<SalvagedManifest> {
    let mut out = SalvagedManifest { complete: true, ..SalvagedManifest::default() };
    let mut newer = None;
    walk(env, path, &mut |_, piece| match piece {
        ManifestPiece::Header(Ok(())) | ManifestPiece::Marker => {}
        ManifestPiece::Header(Err(error @ Error::UnsupportedVersion { .. })) => newer = Some(error),
        ManifestPiece::Header(Err(error)) | ManifestPiece::Damage(error) => {
            out.complete = false;
            out.damage.push(error);
        }
        ManifestPiece::Edit(edit) => {
            out.edits += 1;
            out.removed.extend(edit.removed.iter().copied());
            for table in &edit.added {
                out.removed.remove(&table.file);
            }
            match &mut out.state {
                Some(state) => state.merge(*edit),
                None => out.state = Some(*edit),
            }
        }
        ManifestPiece::Tail(Tail::Torn { offset, bytes }) => out.torn = Some((offset, bytes)),
        ManifestPiece::Tail(_) => {}
    })?;
    if let Some(error) = newer {
        return Err(error);
    }
    if out.state.is_none() {
        out.complete = false;
        out.damage.push(Error::corrupt("manifest", path, 0, "its first edit is missing"));
    }
    Ok(out)
}
