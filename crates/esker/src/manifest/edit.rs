//! A version edit: one atomic change of what the database consists of.
//!
//! Bytes: docs/formats/manifest.md
//!
//! - An absent field keeps its earlier value. Lists add to the earlier items.
//! - For an adopted commit (engine/writes/adoption.rs) the log holds only its number and count changes, and
//!   perhaps not durably. The manifest repeats these as long as its own counts are older.

use super::feed::FeedEdit;
use super::field::{Field, Item, Rows};
use super::history::{Floors, Marks};
use super::overcounts::Overcounts;
use crate::blob::BlobReferences;
use crate::encoding::bytes::{ByteReader, Decoded, put_string, put_varint};
use crate::manifest::level::{Level, RunId};
use crate::sstable::{Counts, Fingerprint, TableMeta};
use crate::types::dump_value::{DumpValue, Fields};
use crate::types::key_range::{End, KeyRange};
use crate::types::{FileId, KeyspaceId, SeqNo};
use crate::wal::LogExtent;

/// A table that joins a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedTable {
    /// Its file.
    pub file: FileId,
    /// The level of its run.
    pub level: Level,
    /// Its run.
    pub run: RunId,
    /// What the manifest stores about it.
    pub meta: TableMeta,
}

/// A commit whose writes were adopted as tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    /// Its number.
    pub seq: SeqNo,
    /// How it changed the live counts.
    pub deltas: Vec<(KeyspaceId, i64)>,
}

/// The change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionEdit {
    /// Every file number in use is below this.
    pub next_file: Option<FileId>,
    /// Every run number in use is below this.
    pub next_run: Option<RunId>,
    /// The first WAL segment that recovery must replay.
    pub wal_from: Option<u64>,
    /// The newest WAL segment that may be in use. All segments from `wal_from` up to it exist, or their
    /// prepared files do. The number can decrease, when prepared files are released.
    pub wal_named: Option<u64>,
    /// Every commit up to this one is in the tables.
    pub flushed_seq: Option<SeqNo>,
    /// Every commit up to this one is durable, in the tables or in the log. There may be newer ones.
    pub durable_seq: Option<SeqNo>,
    /// The database's random number, which its log segments contain.
    pub database_id: Option<u32>,
    /// Number of live keys of each keyspace at `flushed_seq`.
    pub counts: LiveCounts,
    /// Tables removed from the version.
    pub removed: Vec<FileId>,
    /// Tables added to the version.
    pub added: Vec<AddedTable>,
    /// Commits whose tables are added, by number.
    pub adopted: Vec<Adopted>,
    /// Blob files added and removed.
    pub blobs: BlobEdit,
    /// Keys counted twice, to be subtracted from the counts (overcounts.rs).
    pub overcounts: Overcounts,
    /// What the change feed keeps (feed.rs).
    pub feed: FeedEdit,
    /// Marks and floors of older versions (history.rs).
    pub history: HistoryEdit,
}

/// Number of live keys of each keyspace, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Counts of all keyspaces. If present, they replace the earlier ones.
    pub all: Option<Vec<(KeyspaceId, u64)>>,
    /// Counts that have changed. Zero: the keyspace is empty.
    pub changed: Option<Vec<(KeyspaceId, u64)>>,
}

/// Changes to the blob files of the version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobEdit {
    /// Blob files added: the number that pointers contain, and the file that holds the values (blob.1 in
    /// blob/mod.rs). A later pair replaces an earlier one.
    pub added: Vec<(FileId, FileId)>,
    /// Blob files removed, by the number that pointers contain.
    pub removed: Vec<FileId>,
}

/// Marks and floors of older versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryEdit {
    /// Which commits were visible at which time.
    pub marks: Marks,
    /// The first commit from which on each history is complete.
    pub floors: Floors,
}

/// The fields in encoding order, with their tags, and with the kind and column names that dumps show. A field
/// without columns is a number of the edit itself.
macro_rules! fields {
    ($each:ident) => {
        $each! {
            next_file [1] "next_file" [],
            next_run [2] "next_run" [],
            wal_from [3] "wal_from" [],
            wal_named [4] "wal_named" [],
            flushed_seq [5] "flushed_seq" [],
            durable_seq [6] "durable_seq" [],
            database_id [7] "database_id" [],
            counts.all [8] "count" ["keyspace", "keys"],
            counts.changed [26] "count" ["keyspace", "keys"],
            removed [9] "removed" ["file"],
            added [10 11 22 23 25] "added" [
                "file", "level", "run", "bytes", "entries", "tombstones", "unresolved", "expiring", "range_tombstones",
                "min_seq", "max_seq", "base_seq", "first", "last", "last_is", "fingerprint"
            ],
            adopted [12] "adopted" ["seq", "keys_added"],
            blobs.added [20] "blob_file" ["named", "file"],
            blobs.removed [21] "blob_file_removed" ["named"],
            overcounts [24] "overcount" ["keyspace", "from", "keys"],
            feed.from [30] "feed_from" ["segment", "oldest"],
            feed.limits [33] "feed_limits" ["bytes", "age"],
            feed.released [31] "released" ["below", "at", "beside"],
            feed.kept [32] "kept" ["seq", "file", "run"],
            history.marks [40] "mark" ["ms", "seq"],
            history.floors [41] "history" ["keyspace", "from"],
        }
    };
}

const TAG_ADDED_AT: u64 = 11;
const TAG_REFERENCES: u64 = 22;
const TAG_UNRESOLVED: u64 = 23;
const TAG_EXPIRY: u64 = 25;

impl VersionEdit {
    /// Encodes one manifest record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        macro_rules! each {
            ($($field:ident $(. $part:ident)? [$tag:literal $($more:literal)*] $kind:literal $columns:tt,)*) => {
                $(Field::encode(&self.$field $(.$part)?, $tag, &mut out);)*
            };
        }
        fields!(each);
        out
    }

    /// The inverse of [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = ByteReader::new(bytes);
        let mut edit = VersionEdit::default();
        while !reader.is_empty() {
            let tag = reader.varint()?;
            macro_rules! each {
                ($($field:ident $(. $part:ident)? [$($tag:literal)*] $kind:literal $columns:tt,)*) => {
                    match tag {
                        $($(| $tag)* => Field::decode(&mut edit.$field $(.$part)?, tag, &mut reader)?,)*
                        other => return Err(reader.error(format!("unknown field {other} of a version edit"))),
                    }
                };
            }
            fields!(each);
        }
        let is_sorted = |counts: &Vec<(KeyspaceId, u64)>| counts.is_sorted_by(|a, b| a.0 < b.0);
        if !edit.counts.all.iter().chain(&edit.counts.changed).all(is_sorted) {
            return Err(reader.error("counts are not sorted by keyspace"));
        }
        Ok(edit)
    }

    /// Returns what dumps show: the edit's numbers, and items of other kinds.
    pub(crate) fn shown(&self) -> (Fields, Vec<(&'static str, Fields)>) {
        let (mut numbers, mut items) = (Fields::new(), Vec::new());
        let mut show = |kind, columns: &[&'static str], rows: Rows| {
            for row in rows {
                match columns {
                    [] => numbers.extend(row.into_iter().map(|value| (kind, value))),
                    _ => items.push((kind, columns.iter().copied().zip(row).collect())),
                }
            }
        };
        macro_rules! each {
            ($($field:ident $(. $part:ident)? [$($tag:literal)*] $kind:literal $columns:tt,)*) => {
                $(show($kind, &$columns, Field::rows(&self.$field $(.$part)?));)*
            };
        }
        fields!(each);
        (numbers, items)
    }

    /// Returns what the manifest says about the log.
    pub(crate) fn log_extent(&self) -> LogExtent {
        LogExtent {
            from: self.wal_from.unwrap_or(1),
            named_to: self.wal_named,
            durable_to: self.durable_in_log(),
            database_id: self.database_id,
            ends_before: None,
        }
    }

    /// The newest commit that tables may hold.
    pub(crate) fn newest_in_tables(&self) -> SeqNo {
        let adopted = self.adopted.iter().map(|adopted| adopted.seq).max();
        adopted.max(self.flushed_seq).unwrap_or_default()
    }

    /// Returns the newest commit that is known to be durable in the log.
    fn durable_in_log(&self) -> Option<SeqNo> {
        let mut durable = self.durable_seq?;
        while self.adopted.iter().any(|adopted| adopted.seq == durable) {
            durable = durable.before()?;
        }
        // The log may no longer hold commits that are in tables.
        Some(durable).filter(|durable| Some(*durable) > self.flushed_seq)
    }

    /// Subtracts the overcounts from the counts, before any reader exists. Fails if a keyspace has more
    /// overcounts than keys. Overcounts of keyspaces without a count are dropped.
    pub(crate) fn settle_overcounts(&mut self) -> Result<(), String> {
        for (keyspace, _, keys) in std::mem::take(&mut self.overcounts).iter() {
            let counted = self.counts.all.iter_mut().flatten().find(|counted| counted.0 == keyspace);
            let Some((_, count)) = counted else { continue };
            let left = count.checked_sub(keys);
            *count = left.ok_or_else(|| {
                format!("keyspace {keyspace}: {keys} overcounted keys, but only {count} counted")
            })?;
        }
        Ok(())
    }

    /// Applies a later edit, so that many edits become one.
    pub fn merge(&mut self, mut later: VersionEdit) {
        // Edits are made from numbers that were read earlier, so they come in any order.
        later.durable_seq = later.durable_seq.max(self.durable_seq);
        later.removed.retain(|file| {
            let at = self.added.iter().position(|table| table.file == *file);
            at.map(|at| self.added.remove(at)).is_none()
        });
        later.blobs.removed.retain(|named| {
            let at = self.blobs.added.iter().position(|blob| blob.0 == *named);
            at.map(|at| self.blobs.added.remove(at)).is_none()
        });
        for blob in std::mem::take(&mut later.blobs.added) {
            self.blobs.added.retain(|earlier| earlier.0 != blob.0);
            self.blobs.added.push(blob);
        }
        let (feed_from, changed) = (later.feed.from, later.counts.changed.take());
        macro_rules! each {
            ($($field:ident $(. $part:ident)? [$($tag:literal)*] $kind:literal $columns:tt,)*) => {
                $(Field::merge(&mut self.$field $(.$part)?, later.$field $(.$part)?);)*
            };
        }
        fields!(each);
        if let Some(changed) = changed {
            merge_counts(self.counts.all.get_or_insert_default(), changed);
        }
        feed_from.into_iter().for_each(|from| self.feed.forget_before(from));
        self.adopted.retain(|adopted| Some(adopted.seq) > self.flushed_seq);
    }
}

/// Applies changed counts. Both lists are sorted by id, without repetition. Zero counts are removed.
fn merge_counts(counts: &mut Vec<(KeyspaceId, u64)>, changed: Vec<(KeyspaceId, u64)>) {
    let known = counts.len();
    for (id, count) in changed {
        match counts[..known].binary_search_by_key(&id, |counted| counted.0) {
            Ok(at) => counts[at].1 = count,
            Err(_) => counts.push((id, count)),
        }
    }
    if counts.len() > known {
        // Two sorted parts.
        counts.sort();
    }
    counts.retain(|counted| counted.1 > 0);
}

impl Item for Adopted {
    fn put(&self, out: &mut Vec<u8>) {
        self.seq.put(out);
        Item::put(&self.deltas, out);
    }

    fn read(reader: &mut ByteReader<'_>) -> Decoded<Self> {
        Ok(Adopted { seq: Item::read(reader)?, deltas: Item::read(reader)? })
    }

    fn rows(&self) -> Rows {
        let keys = self.deltas.iter().map(|delta| delta.1).sum::<i64>();
        vec![vec![self.seq.get().into(), keys.to_string().into()]]
    }
}

impl Field for Vec<AddedTable> {
    fn encode(&self, tag: u64, out: &mut Vec<u8>) {
        for table in self {
            let (meta, counts) = (&table.meta, &table.meta.counts);
            match meta.base_seq {
                SeqNo::ZERO => put_varint(out, tag),
                base => [TAG_ADDED_AT, base.get()].into_iter().for_each(|n| put_varint(out, n)),
            }
            encode_table(out, table);
            if !meta.blobs.is_empty() {
                put_varint(out, TAG_REFERENCES);
                meta.blobs.encode(out);
            }
            if counts.unresolved > 0 {
                [TAG_UNRESOLVED, counts.unresolved].into_iter().for_each(|n| put_varint(out, n));
            }
            if counts.expiring > 0 {
                put_varint(out, TAG_EXPIRY);
                counts.encode_expiry(out);
            }
        }
    }

    fn decode(&mut self, tag: u64, reader: &mut ByteReader<'_>) -> Decoded<()> {
        match (tag, self.last_mut().map(|table| &mut table.meta)) {
            (TAG_REFERENCES, Some(meta)) => meta.blobs = BlobReferences::decode(reader)?,
            (TAG_UNRESOLVED, Some(meta)) => meta.counts.unresolved = reader.varint()?,
            (TAG_EXPIRY, Some(meta)) => meta.counts.decode_expiry(reader)?,
            (TAG_REFERENCES | TAG_UNRESOLVED | TAG_EXPIRY, None) => {
                return Err(reader.error("a part without a table"));
            }
            (TAG_ADDED_AT, _) => {
                let base = SeqNo::read(reader)?;
                self.push(decode_table(reader, base)?);
            }
            _ => self.push(decode_table(reader, SeqNo::ZERO)?),
        }
        Ok(())
    }

    fn merge(&mut self, later: Self) {
        self.extend(later);
    }

    fn rows(&self) -> Rows {
        self.iter().map(table_row).collect()
    }
}

fn table_row(AddedTable { file, level, run, meta }: &AddedTable) -> Vec<DumpValue> {
    let counts = &meta.counts;
    let numbers = [
        file.get(),
        level.get().into(),
        run.0,
        meta.file_bytes,
        counts.entries,
        counts.tombstones,
        counts.unresolved,
        counts.expiring,
        counts.range_tombstones,
        counts.min_seq.get(),
        counts.max_seq.get(),
        meta.base_seq.get(),
    ];
    let last_is = if matches!(meta.range.end, End::Included(_)) { "in" } else { "out" };
    let range = [meta.range.start.as_slice().into(), meta.range.end.key().into(), last_is.into()];
    let fingerprint = u64::from(meta.fingerprint.get()).into();
    numbers.into_iter().map(DumpValue::from).chain(range).chain([fingerprint]).collect()
}

fn encode_table(out: &mut Vec<u8>, table: &AddedTable) {
    let AddedTable { file, level, run, meta } = table;
    put_varint(out, file.get());
    out.push(level.get());
    put_varint(out, run.0);
    put_varint(out, meta.file_bytes);
    meta.counts.encode(out);
    put_string(out, &meta.range.start);
    out.push(matches!(meta.range.end, End::Included(_)).into());
    put_string(out, meta.range.end.key());
    put_varint(out, meta.fingerprint.get().into());
}

fn decode_table(reader: &mut ByteReader<'_>, base_seq: SeqNo) -> Decoded<AddedTable> {
    let file = FileId::new(reader.varint()?);
    let level = reader.u8()?;
    let level = Level::from_u8(level).ok_or_else(|| reader.error(format!("no level {level}")))?;
    let run = RunId(reader.varint()?);
    let file_bytes = reader.varint()?;
    let counts = Counts::decode(reader)?;
    let start = reader.string()?.to_vec();
    let included = reader.u8()?;
    let end = reader.string()?.to_vec();
    let end = match included {
        0 => End::Excluded(end),
        1 => End::Included(end),
        _ => return Err(reader.error(format!("kind of range end {included}"))),
    };
    if !end.admits(&start) {
        return Err(reader.error("a table's key range is empty"));
    }
    let range = KeyRange { start, end };
    let fingerprint = Fingerprint::new(u32::read(reader)?);
    let blobs = BlobReferences::default();
    let meta = TableMeta { file_bytes, range, counts, fingerprint, base_seq, blobs };
    Ok(AddedTable { file, level, run, meta })
}

#[cfg(test)]
mod tests;
