//! Dumps a segment of the log: its records, and the ops of whole commits.

use std::path::Path;

use super::entry::{name_of, push_value};
use super::{DumpValue, Output};
use crate::txn::payload;
use crate::types::{Error, Result, SeqNo};
use crate::wal::{CUT, SegmentHeader, SegmentPiece, walk_segment_file};

pub(super) fn dump(out: &mut Output<'_>, path: &Path, number: u64) -> Result<()> {
    let env = out.env.clone();
    walk_segment_file(&env, path, number, None, &mut |piece| match piece {
        SegmentPiece::Header(Ok(SegmentHeader { number, made_bytes, database_id, .. })) => {
            let fields = vec![
                ("number", number.into()),
                ("made_bytes", u64::from(made_bytes).into()),
                ("database_id", u64::from(database_id).into()),
            ];
            out.item(0, "segment header", fields);
        }
        SegmentPiece::Header(Err(error)) => out.damage(&error),
        SegmentPiece::Record { offset, kind, seq, synced_to, payload } => {
            let fields = vec![
                ("kind", kind.into()),
                ("seq", seq.get().into()),
                ("bytes", (payload.len() as u64).into()),
                ("synced_to", u64::from(synced_to).into()),
            ];
            out.item(offset, "record", fields);
            if kind == "full" && out.entries {
                dump_commit(out, path, offset, payload);
            }
        }
        SegmentPiece::Damage { offset, bytes, detail } => {
            out.damage(&Error::corrupt("WAL record", path, offset, format!("{detail} ({bytes} bytes)")));
        }
        SegmentPiece::End { offset } => out.item(offset, "end", Vec::new()),
        SegmentPiece::Tail { offset, cut: true, .. } => {
            out.damage(&Error::corrupt("WAL segment", path, offset, CUT));
        }
        SegmentPiece::Tail { offset, torn_bytes: 0, .. } => out.item(offset, "no record follows", Vec::new()),
        SegmentPiece::Tail { offset, torn_bytes, .. } => {
            out.item(offset, "torn tail", vec![("bytes", torn_bytes.into())]);
        }
    })
}

fn dump_commit(out: &mut Output<'_>, path: &Path, offset: u64, bytes: &[u8]) {
    let (deltas, set) = match payload::decode(bytes) {
        Ok(decoded) => decoded,
        Err(error) => return out.damage(&error.in_file("commit", path, offset)),
    };
    for (keyspace, delta) in deltas {
        let fields = vec![
            ("keyspace", u64::from(keyspace.get()).into()),
            ("keys", DumpValue::Text(format!("{delta:+}"))),
        ];
        out.item(offset, "count", fields);
    }
    if set.is_empty() {
        let fields = vec![("writes", DumpValue::Text("in tables that the manifest names".to_owned()))];
        out.item(offset, "adopted", fields);
    }
    for (start, end) in set.ranges() {
        let fields = vec![("from", start.as_slice().into()), ("to", end.as_slice().into())];
        out.item(offset, "remove range", fields);
    }
    for entry in set.entries(SeqNo::ZERO) {
        let mut fields = vec![("key", entry.key.into())];
        push_value(&mut fields, entry.kind, entry.value);
        if entry.kind.is_unresolved() {
            fields.push(("counted", "unresolved".into()));
        }
        out.item(offset, name_of(entry.kind, "remove"), fields);
    }
}
