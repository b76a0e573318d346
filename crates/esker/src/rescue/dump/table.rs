//! Dumps a table: its parts, its blocks, their entries.

use std::path::Path;

use super::Output;
use super::entry::{name_of, push_value};
use crate::sstable::{Properties, SalvageTable};
use crate::types::Result;
use crate::types::dump_value::DumpValue;

pub(super) fn dump(out: &mut Output<'_>, path: &Path) -> Result<()> {
    let table = SalvageTable::open(out.env, path)?;
    for damage in &table.damage {
        out.damage_of(damage.start, &damage.error);
    }
    for (name, part) in table.parts() {
        let bytes = part.end - part.start;
        out.item(part.start, "part", vec![("name", name.into()), ("bytes", bytes.into())]);
    }
    if let Some(properties) = &table.properties {
        let newest_commit = table.newest_commit().map(|commit| ("newest_commit", commit.get().into()));
        out.item(0, "properties", fields_of(properties).into_iter().chain(newest_commit).collect());
    }
    for tombstone in table.tombstones.iter() {
        let fields = vec![
            ("from", tombstone.start.as_slice().into()),
            ("to", tombstone.end.as_slice().into()),
            ("seq", tombstone.seq.get().into()),
        ];
        out.item(0, "range tombstone", fields);
    }
    let blocks: Vec<_> = (0..table.blocks()).map(|n| (table.extent(n), table.separator(n))).collect();
    let mut scan = table.scan();
    let mut shown = 0;
    loop {
        let more = scan.advance();
        for damage in scan.damage.drain(..) {
            out.damage_of(damage.start, &damage.error);
        }
        let upto = if more { scan.block_number() + 1 } else { blocks.len() };
        for (extent, separator) in &blocks[shown..upto] {
            let (key, continues) = separator;
            let fields = vec![
                ("bytes", (extent.end - extent.start).into()),
                ("separator", key.as_slice().into()),
                ("continues", u64::from(*continues).into()),
            ];
            out.item(extent.start, "block", fields);
        }
        shown = upto;
        if !more {
            return Ok(());
        }
        if out.entries {
            let entry = scan.entry();
            let (kind, offset) = (entry.kind, blocks[scan.block_number()].0.start);
            let mut fields = vec![("key", entry.key.into()), ("seq", entry.seq.get().into())];
            push_value(&mut fields, kind, entry.value);
            if kind.is_unresolved() {
                fields.push(("counted", "unresolved".into()));
            }
            out.item(offset, name_of(kind, "tombstone"), fields);
        }
    }
}

/// Returns the properties of a table as fields.
fn fields_of(p: &Properties) -> Vec<(&'static str, DumpValue)> {
    vec![
        ("entries", p.counts.entries.into()),
        ("keys", p.counts.keys.into()),
        ("tombstones", p.counts.tombstones.into()),
        ("unresolved", p.counts.unresolved.into()),
        ("expiring", p.counts.expiring.into()),
        ("min_expiry_ms", p.counts.min_expiry.into()),
        ("max_expiry_ms", p.counts.max_expiry.into()),
        ("range_tombstones", p.counts.range_tombstones.into()),
        ("key_bytes", p.counts.key_bytes.into()),
        ("value_bytes", p.counts.value_bytes.into()),
        ("min_seq", p.counts.min_seq.get().into()),
        ("max_seq", p.counts.max_seq.get().into()),
        ("blocks", p.blocks.into()),
        ("compression", p.compression.name().into()),
        ("first", p.range.start.as_slice().into()),
        ("last", p.range.end.key().into()),
        ("fingerprint", u64::from(p.fingerprint.get()).into()),
    ]
}
