//! A damaged manifest, as far as it can be read.
//!
//! ```text
//!   MANIFEST-n --records that are sound--> edits, merged into one --> SalvagedManifest
//!              `-the others--------------> damage; `complete` is false
//! ```
//!
//! manifest_salvage.1. Nothing is changed, and no bytes make this panic.
//! manifest_salvage.2. `complete` is true only if every edit that ever counted is in the state.
//! manifest_salvage.3. Bytes that cannot be read cost the edits of the 4 KiB around them, those that begin or end there too; the first 4 KiB cost
//!      the manifest.

use std::collections::BTreeSet;
use std::path::Path;

use esker_env::Env;

use super::edit::VersionEdit;
use super::log::check_header;
use crate::recordio::{self, Tail};
use crate::types::{Error, FileId, Result};

/// What is left of a manifest.
#[derive(Debug, Default)]
pub(crate) struct SalvagedManifest {
    /// All edits that can be read, merged; `None` if there is none.
    pub state: Option<VersionEdit>,
    /// How many there are, the first state included, empty ones not.
    pub edits: u64,
    /// The tables that edits removed and none brought back.
    pub removed: BTreeSet<FileId>,
    /// Whether no edit is missing (manifest_salvage.2).
    pub complete: bool,
    /// What cannot be read.
    pub damage: Vec<Error>,
    /// An unfinished edit at the end, which never counted: its offset and length.
    pub torn: Option<(u64, u64)>,
}

/// One record of a manifest.
pub(crate) enum ManifestPiece {
    /// The file's first record.
    Header(Result<()>),
    /// An edit; the first one is the whole state when the file was begun.
    Edit(Box<VersionEdit>),
    /// An empty record, the sign that the edit before it counted.
    Marker,
    /// A record that is no edit, or bytes that are no record, with valid ones behind them, or with some that cannot be read among
    /// them.
    Damage(Error),
    /// What follows the last record.
    Tail(Tail),
}

/// Calls `each` with the offset of every piece of the manifest, in order. Fails if the file cannot be opened, or not read at its
/// start.
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
        // Also behind the last one: a record may have its checksums and yet not be one.
        if skipped > 0 {
            each(end, ManifestPiece::Damage(reader.skipped_damage("manifest", end, skipped)));
        }
        end = reader.position();
        let Some(record) = record else { break };
        let (offset, content_offset) = (reader.record_offset(), reader.content_offset());
        if std::mem::take(&mut first) {
            let header = check_header(&record, path, content_offset);
            let is_edit = skipped > 0 && header.as_ref().is_err_and(Error::is_corrupt);
            // The header itself may be what was skipped: then this is an edit.
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

/// Reads what is left of the manifest at `path`. Fails if it cannot be read at all, or is of a newer format.
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
