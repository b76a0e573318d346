//! A version edit: one atomic change of what the database consists of.
//!
//! Bytes: docs/formats/manifest.md
//!
//! edit.1. A field that is absent keeps its earlier value; lists add to what is there.
//! edit.2. Of an adopted commit (engine/writes/adoption.rs) the log has no more than its number and what it changed of the counts, and that perhaps not
//!      durably. The manifest says the same for as long as its counts are older.

use super::debts::Debts;
use super::feed::{self, FeedEdit};
use super::history::{Floors, Marks};
use crate::blob::BlobReferences;
use crate::encoding::bytes::{ByteReader, Decoded, put_string, put_varint, unzigzag, zigzag};
use crate::manifest::version::{Level, RunId};
use crate::sstable::{Counts, Fingerprint, TableMeta};
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
    /// What it holds.
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
    /// No file has this number or a larger one yet.
    pub next_file: Option<FileId>,
    /// No run has this number or a larger one yet.
    pub next_run: Option<RunId>,
    /// The first WAL segment that recovery must replay.
    pub wal_from: Option<u64>,
    /// The newest WAL segment that may be in use. From `wal_from` on, each up to it is there, itself or its prepared file.
    /// It can go down: prepared files are given up.
    pub wal_named: Option<u64>,
    /// Every commit up to this one is in the tables.
    pub flushed_seq: Option<SeqNo>,
    /// Every commit up to this one is durable, in the tables or in the log. There may be newer ones.
    pub durable_seq: Option<SeqNo>,
    /// The database's number for itself, drawn once; its log segments carry it.
    pub database_id: Option<u32>,
    /// Live items per keyspace as of `flushed_seq`, by id. Absent keeps the earlier ones; present replaces them all.
    pub counts: Option<Vec<(KeyspaceId, u64)>>,
    /// The same of keyspaces where that has changed; zero: it holds nothing any more.
    pub counts_changed: Vec<(KeyspaceId, u64)>,
    /// Tables that leave the version.
    pub removed: Vec<FileId>,
    /// Tables that join it.
    pub added: Vec<AddedTable>,
    /// Commits whose tables join it, by number (edit.2).
    pub adopted: Vec<Adopted>,
    /// Blob files that join it: the number that pointers name, and the file that holds the values (blob.1 in blob/mod.rs). A later one
    /// takes the place of an earlier one.
    pub blobs: Vec<(FileId, FileId)>,
    /// Blob files that leave it, by the number that pointers name.
    pub blobs_removed: Vec<FileId>,
    /// What is to be taken from the counts (debts.rs).
    pub debts: Debts,
    /// What is kept for the change feed (feed.rs).
    pub feed: FeedEdit,
    /// Which commits were visible by when (history.rs).
    pub marks: Marks,
    /// From where on histories are whole (history.rs).
    pub floors: Floors,
}

const TAG_NEXT_FILE: u64 = 1;
const TAG_NEXT_RUN: u64 = 2;
const TAG_WAL_FROM: u64 = 3;
const TAG_WAL_NAMED: u64 = 4;
const TAG_FLUSHED_SEQ: u64 = 5;
const TAG_DURABLE_SEQ: u64 = 6;
const TAG_DATABASE_ID: u64 = 7;
const TAG_COUNTS: u64 = 8;
const TAG_REMOVED: u64 = 9;
const TAG_ADDED: u64 = 10;
const TAG_ADDED_AT: u64 = 11;
const TAG_ADOPTED: u64 = 12;
const TAG_BLOB: u64 = 20;
const TAG_BLOB_REMOVED: u64 = 21;
const TAG_REFERENCES: u64 = 22;
const TAG_UNRESOLVED: u64 = 23;
const TAG_DEBTS: u64 = 24;
const TAG_EXPIRY: u64 = 25;
const TAG_COUNTS_CHANGED: u64 = 26;
const TAG_MARKS: u64 = 40;
const TAG_FLOORS: u64 = 41;

impl VersionEdit {
    /// The bytes of one manifest record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut number = |tag, n: Option<u64>| {
            if let Some(n) = n {
                put_varint(&mut out, tag);
                put_varint(&mut out, n);
            }
        };
        number(TAG_NEXT_FILE, self.next_file.map(FileId::get));
        number(TAG_NEXT_RUN, self.next_run.map(|r| r.0));
        number(TAG_WAL_FROM, self.wal_from);
        number(TAG_WAL_NAMED, self.wal_named);
        number(TAG_FLUSHED_SEQ, self.flushed_seq.map(SeqNo::get));
        number(TAG_DURABLE_SEQ, self.durable_seq.map(SeqNo::get));
        number(TAG_DATABASE_ID, self.database_id.map(u64::from));
        let changed = Some(&self.counts_changed).filter(|changed| !changed.is_empty());
        for (tag, counts) in [(TAG_COUNTS, self.counts.as_ref()), (TAG_COUNTS_CHANGED, changed)] {
            let Some(counts) = counts else { continue };
            put_varint(&mut out, tag);
            put_varint(&mut out, counts.len() as u64);
            for (keyspace, count) in counts {
                put_varint(&mut out, u64::from(keyspace.get()));
                put_varint(&mut out, *count);
            }
        }
        for file in &self.removed {
            put_varint(&mut out, TAG_REMOVED);
            put_varint(&mut out, file.get());
        }
        for table in &self.added {
            match table.meta.base_seq {
                SeqNo::ZERO => put_varint(&mut out, TAG_ADDED),
                base => {
                    put_varint(&mut out, TAG_ADDED_AT);
                    put_varint(&mut out, base.get());
                }
            }
            encode_table(&mut out, table);
            if !table.meta.blobs.is_empty() {
                put_varint(&mut out, TAG_REFERENCES);
                table.meta.blobs.encode(&mut out);
            }
            if table.meta.counts.unresolved > 0 {
                put_varint(&mut out, TAG_UNRESOLVED);
                put_varint(&mut out, table.meta.counts.unresolved);
            }
            if table.meta.counts.expiring > 0 {
                put_varint(&mut out, TAG_EXPIRY);
                table.meta.counts.encode_expiry(&mut out);
            }
        }
        for Adopted { seq, deltas } in &self.adopted {
            put_varint(&mut out, TAG_ADOPTED);
            put_varint(&mut out, seq.get());
            put_varint(&mut out, deltas.len() as u64);
            for (keyspace, delta) in deltas {
                put_varint(&mut out, u64::from(keyspace.get()));
                put_varint(&mut out, zigzag(*delta));
            }
        }
        for (named, file) in &self.blobs {
            [TAG_BLOB, named.get(), file.get()].into_iter().for_each(|n| put_varint(&mut out, n));
        }
        for named in &self.blobs_removed {
            [TAG_BLOB_REMOVED, named.get()].into_iter().for_each(|n| put_varint(&mut out, n));
        }
        if !self.debts.is_empty() {
            put_varint(&mut out, TAG_DEBTS);
            self.debts.encode(&mut out);
        }
        self.feed.encode(&mut out);
        if !self.marks.is_empty() {
            put_varint(&mut out, TAG_MARKS);
            self.marks.encode(&mut out);
        }
        if !self.floors.is_empty() {
            put_varint(&mut out, TAG_FLOORS);
            self.floors.encode(&mut out);
        }
        out
    }

    /// The inverse of [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Decoded<Self> {
        let mut reader = ByteReader::new(bytes);
        let mut edit = VersionEdit::default();
        while !reader.is_empty() {
            match reader.varint()? {
                TAG_NEXT_FILE => edit.next_file = Some(FileId::new(reader.varint()?)),
                TAG_NEXT_RUN => edit.next_run = Some(RunId(reader.varint()?)),
                TAG_WAL_FROM => edit.wal_from = Some(reader.varint()?),
                TAG_WAL_NAMED => edit.wal_named = Some(reader.varint()?),
                TAG_FLUSHED_SEQ => edit.flushed_seq = Some(seq(&mut reader)?),
                TAG_DURABLE_SEQ => edit.durable_seq = Some(seq(&mut reader)?),
                TAG_DATABASE_ID => edit.database_id = Some(number_of_32_bits(&mut reader)?),
                TAG_COUNTS => edit.counts = Some(decode_counts(&mut reader)?),
                TAG_COUNTS_CHANGED => edit.counts_changed = decode_counts(&mut reader)?,
                TAG_REMOVED => edit.removed.push(FileId::new(reader.varint()?)),
                TAG_ADDED => edit.added.push(decode_table(&mut reader, SeqNo::ZERO)?),
                TAG_ADDED_AT => {
                    let base = seq(&mut reader)?;
                    edit.added.push(decode_table(&mut reader, base)?);
                }
                TAG_ADOPTED => edit.adopted.push(decode_adopted(&mut reader)?),
                TAG_BLOB => {
                    let named = FileId::new(reader.varint()?);
                    edit.blobs.push((named, FileId::new(reader.varint()?)));
                }
                TAG_BLOB_REMOVED => edit.blobs_removed.push(FileId::new(reader.varint()?)),
                TAG_REFERENCES => match edit.added.last_mut() {
                    Some(table) => table.meta.blobs = BlobReferences::decode(&mut reader)?,
                    None => return Err(reader.error("references of no table")),
                },
                TAG_UNRESOLVED => match edit.added.last_mut() {
                    Some(table) => table.meta.counts.unresolved = reader.varint()?,
                    None => return Err(reader.error("unresolved versions of no table")),
                },
                TAG_EXPIRY => match edit.added.last_mut() {
                    Some(table) => table.meta.counts.decode_expiry(&mut reader)?,
                    None => return Err(reader.error("versions that expire of no table")),
                },
                TAG_DEBTS => edit.debts.decode_more(&mut reader)?,
                tag @ feed::TAG_FROM..=feed::TAG_LIMITS => {
                    edit.feed.decode_more(tag, &mut reader)?;
                }
                TAG_MARKS => edit.marks.decode_more(&mut reader)?,
                TAG_FLOORS => edit.floors.decode_more(&mut reader)?,
                other => return Err(reader.error(format!("unknown field {other} of a version edit"))),
            }
        }
        Ok(edit)
    }

    /// What is known of the log.
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

    /// The newest commit that is known to be durable and in the log.
    fn durable_in_log(&self) -> Option<SeqNo> {
        let mut durable = self.durable_seq?;
        // edit.2
        while self.adopted.iter().any(|adopted| adopted.seq == durable) {
            durable = durable.before()?;
        }
        // What is in tables may have left the log.
        Some(durable).filter(|durable| Some(*durable) > self.flushed_seq)
    }

    /// Takes the debts from the counts, while nobody reads. Fails if a keyspace owes more than it counts; of one that is not counted any more
    /// they are forgotten.
    pub(crate) fn pay_debts(&mut self) -> Result<(), String> {
        for (keyspace, _, keys) in std::mem::take(&mut self.debts).iter() {
            let counted = self.counts.iter_mut().flatten().find(|counted| counted.0 == keyspace);
            let Some((_, count)) = counted else { continue };
            let left = count.checked_sub(keys);
            *count = left.ok_or_else(|| format!("keyspace {keyspace} owes {keys} of {count} keys"))?;
        }
        Ok(())
    }

    /// Takes over what a later edit says (edit.1), so that many edits become one.
    pub fn merge(&mut self, later: VersionEdit) {
        let VersionEdit {
            next_file,
            next_run,
            wal_from,
            wal_named,
            flushed_seq,
            durable_seq,
            database_id,
            counts,
            counts_changed,
            removed,
            added,
            adopted,
            blobs,
            blobs_removed,
            debts,
            feed,
            marks,
            floors,
        } = later;
        self.next_file = next_file.or(self.next_file);
        self.next_run = next_run.or(self.next_run);
        self.wal_from = wal_from.or(self.wal_from);
        self.wal_named = wal_named.or(self.wal_named);
        self.flushed_seq = flushed_seq.or(self.flushed_seq);
        // Edits are made from numbers that were read earlier, in any order.
        self.durable_seq = durable_seq.max(self.durable_seq);
        self.database_id = database_id.or(self.database_id);
        self.counts = counts.or(self.counts.take());
        if !counts_changed.is_empty() {
            merge_counts(self.counts.get_or_insert_default(), counts_changed);
        }
        for file in removed {
            match self.added.iter().position(|t| t.file == file) {
                Some(at) => drop(self.added.remove(at)),
                None => self.removed.push(file),
            }
        }
        self.added.extend(added);
        for named in blobs_removed {
            match self.blobs.iter().position(|blob| blob.0 == named) {
                Some(at) => drop(self.blobs.remove(at)),
                None => self.blobs_removed.push(named),
            }
        }
        for blob in blobs {
            self.blobs.retain(|earlier| earlier.0 != blob.0);
            self.blobs.push(blob);
        }
        self.debts.extend(&debts);
        self.feed.merge(feed);
        self.marks.extend(&marks);
        self.floors.extend(&floors);
        self.adopted.extend(adopted);
        // edit.2
        self.adopted.retain(|adopted| Some(adopted.seq) > self.flushed_seq);
    }
}

/// Takes over what has changed: both are in the order of ids, each once. What counts nothing is left out.
fn merge_counts(counts: &mut Vec<(KeyspaceId, u64)>, changed: Vec<(KeyspaceId, u64)>) {
    let known = counts.len();
    for (id, count) in changed {
        match counts[..known].binary_search_by_key(&id, |counted| counted.0) {
            Ok(at) => counts[at].1 = count,
            Err(_) => counts.push((id, count)),
        }
    }
    if counts.len() > known {
        // Two sorted stretches.
        counts.sort();
    }
    counts.retain(|counted| counted.1 > 0);
}

pub(super) fn seq(reader: &mut ByteReader<'_>) -> Decoded<SeqNo> {
    let n = reader.varint()?;
    SeqNo::try_new(n).ok_or_else(|| reader.error(format!("sequence number {n} has more than 56 bits")))
}

fn number_of_32_bits(reader: &mut ByteReader<'_>) -> Decoded<u32> {
    let n = reader.varint()?;
    u32::try_from(n).map_err(|_| reader.error(format!("{n} has more than 32 bits")))
}

fn decode_counts(reader: &mut ByteReader<'_>) -> Decoded<Vec<(KeyspaceId, u64)>> {
    let n = reader.varint()?;
    let mut counts = Vec::new();
    for _ in 0..n {
        let keyspace = reader.varint()?;
        let keyspace =
            u32::try_from(keyspace).map_err(|_| reader.error("keyspace id has more than 32 bits"))?;
        let keyspace = KeyspaceId::new(keyspace);
        if counts.last().is_some_and(|last: &(KeyspaceId, u64)| last.0 >= keyspace) {
            return Err(reader.error("counts that are not in the order of keyspaces"));
        }
        counts.push((keyspace, reader.varint()?));
    }
    Ok(counts)
}

fn decode_adopted(reader: &mut ByteReader<'_>) -> Decoded<Adopted> {
    let commit = seq(reader)?;
    let mut deltas = Vec::new();
    for _ in 0..reader.varint()? {
        let keyspace = KeyspaceId::new(number_of_32_bits(reader)?);
        deltas.push((keyspace, unzigzag(reader.varint()?)));
    }
    Ok(Adopted { seq: commit, deltas })
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
    let fingerprint = Fingerprint::new(number_of_32_bits(reader)?);
    let blobs = BlobReferences::default();
    let meta = TableMeta { file_bytes, range, counts, fingerprint, base_seq, blobs };
    Ok(AddedTable { file, level, run, meta })
}

#[cfg(test)]
mod tests;
