//! Dumps a manifest: its edits.

use std::path::Path;

use super::{DumpValue, Output, text};
use crate::manifest::edit::{AddedTable, Adopted, VersionEdit};
use crate::manifest::salvage::{self, ManifestPiece};
use crate::types::key_range::End;
use crate::types::{FileId, Result, SeqNo};

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
    let VersionEdit {
        next_file,
        next_run,
        wal_from,
        wal_named,
        flushed_seq,
        durable_seq,
        database_id,
        counts,
        removed,
        added,
        adopted,
        blobs,
        blobs_removed,
        debts,
        marks,
        floors,
    } = edit;
    let mut fields: Vec<(&'static str, DumpValue)> = Vec::new();
    let numbers = [
        ("next_file", next_file.map(FileId::get)),
        ("next_run", next_run.map(|run| run.0)),
        ("wal_from", *wal_from),
        ("wal_named", *wal_named),
        ("flushed_seq", flushed_seq.map(SeqNo::get)),
        ("durable_seq", durable_seq.map(SeqNo::get)),
        ("database_id", database_id.map(u64::from)),
    ];
    fields.extend(numbers.into_iter().filter_map(|(name, n)| Some((name, n?.into()))));
    fields.push(("removed", (removed.len() as u64).into()));
    fields.push(("added", (added.len() as u64).into()));
    out.item(offset, "edit", fields);
    for (keyspace, keys) in counts.iter().flatten() {
        let fields = vec![("keyspace", u64::from(keyspace.get()).into()), ("keys", (*keys).into())];
        out.item(offset, "count", fields);
    }
    for file in removed {
        out.item(offset, "removed", vec![("file", file.get().into())]);
    }
    for (named, file) in blobs {
        out.item(offset, "blob_file", vec![("named", named.get().into()), ("file", file.get().into())]);
    }
    for named in blobs_removed {
        out.item(offset, "blob_file_removed", vec![("named", named.get().into())]);
    }
    for (keyspace, from, keys) in debts.iter() {
        let fields = vec![
            ("keyspace", u64::from(keyspace.get()).into()),
            ("from", from.get().into()),
            ("keys", keys.into()),
        ];
        out.item(offset, "debt", fields);
    }
    for (ms, seq) in marks.iter() {
        out.item(offset, "mark", vec![("ms", ms.into()), ("seq", seq.get().into())]);
    }
    for (keyspace, from) in floors.iter() {
        let fields = vec![("keyspace", u64::from(keyspace.get()).into()), ("from", from.get().into())];
        out.item(offset, "history", fields);
    }
    for Adopted { seq, deltas } in adopted {
        let keys = deltas.iter().map(|delta| delta.1).sum::<i64>();
        let fields = vec![("seq", seq.get().into()), ("keys_added", keys.to_string().into())];
        out.item(offset, "adopted", fields);
    }
    for AddedTable { file, level, run, meta } in added {
        let fields = vec![
            ("file", file.get().into()),
            ("level", u64::from(level.get()).into()),
            ("run", run.0.into()),
            ("bytes", meta.file_bytes.into()),
            ("entries", meta.counts.entries.into()),
            ("tombstones", meta.counts.tombstones.into()),
            ("unresolved", meta.counts.unresolved.into()),
            ("range_tombstones", meta.counts.range_tombstones.into()),
            ("min_seq", meta.counts.min_seq.get().into()),
            ("max_seq", meta.counts.max_seq.get().into()),
            ("base_seq", meta.base_seq.get().into()),
            ("first", meta.range.start.as_slice().into()),
            ("last", meta.range.end.key().into()),
            ("last_is", if matches!(meta.range.end, End::Included(_)) { "in" } else { "out" }.into()),
            ("fingerprint", u64::from(meta.fingerprint.get()).into()),
        ];
        out.item(offset, "added", fields);
    }
}
