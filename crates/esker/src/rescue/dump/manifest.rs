//! Dumps a manifest: its edits.

use std::path::Path;

use super::{Output, text};
use crate::manifest::edit::VersionEdit;
use crate::manifest::salvage::{self, ManifestPiece};
use crate::types::Result;

pub(super) fn dump(out: &mut Output<'_>, path: &Path) -> Result<()> {
    let env = out.env.clone();
    salvage::walk(&env, path, &mut |offset, piece| match piece {
        ManifestPiece::Header(Ok(())) => out.item(offset, "manifest header", Vec::new()),
        ManifestPiece::Header(Err(error)) | ManifestPiece::Damage(error) => out.damage(&error),
        ManifestPiece::Edit(edit) => dump_edit(out, offset, &edit),
        ManifestPiece::Marker => out.item(offset, "marker", Vec::new()),
        ManifestPiece::Tail(tail) => text::tail(out, offset, Some(tail)),
    })
}

fn dump_edit(out: &mut Output<'_>, offset: u64, edit: &VersionEdit) {
    let (mut fields, items) = edit.shown();
    fields.push(("removed", (edit.removed.len() as u64).into()));
    fields.push(("added", (edit.added.len() as u64).into()));
    out.item(offset, "edit", fields);
    for (kind, fields) in items {
        out.item(offset, kind, fields);
    }
}
