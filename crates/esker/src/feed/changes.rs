//! Reads the changes of one commit, in an order in which they can be applied.
//!
//! ```text
//!   record of the log --op by op, in order of the writes--.
//!   kept tables --range removals, then MergeScan----------+--> CommitOp
//! ```
//!
//! Ops of a record are neither copied nor reordered. Of tables, only one key with its operands is in memory.
//!
//! changes.1. Applying the changes in order reproduces the commit.
//! - Operands of several runs come oldest first, after the commit's own put of the key, if there is one.

use std::path::Path;
use std::sync::Arc;

use super::keeper::KeptTables;
use crate::compaction::merge::MergeScan;
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded};
use crate::sstable::Table;
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::op::{Kind, UNRESOLVED_OPS};
use crate::types::{Error, KeyspaceId, Result, SeqNo};
use crate::wal::Record;

/// An op of a commit, with encoded keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitOp<'a> {
    /// An op on a key: its kind, the key, and the value or operands.
    Key(Kind, &'a [u8], &'a [u8]),
    /// Removes all keys from the first one to the second, exclusive.
    Range(&'a [u8], &'a [u8]),
}

/// The changes of one commit: see the module docs.
pub(crate) enum Changes {
    /// From a log record. The number is the offset of the next op.
    Record(Record, usize),
    /// From tables.
    Tables(Box<OfTables>),
}

/// Where a commit was found, for errors.
#[derive(Clone, Debug)]
pub(crate) struct CommitPlace {
    /// The commit's number.
    pub(crate) seq: SeqNo,
    /// The segment of the log with its last record.
    pub(crate) path: Arc<Path>,
    /// The offset of this record.
    pub(crate) offset: u64,
}

impl CommitPlace {
    /// Makes an error about the payload.
    #[cold]
    pub(crate) fn damaged(&self, error: DecodeError) -> Error {
        let detail = format!("commit {}: {}", self.seq, error.detail);
        Error::corrupt("commit payload", &self.path, self.offset, detail)
    }
}

/// Kind and value of an op.
type Beside = (Kind, Vec<u8>);

pub(crate) struct OfTables {
    /// Range removals that were not returned yet, newest first.
    ranges: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    range: (Vec<u8>, Vec<u8>),
    scan: MergeScan,
    /// The current key, and its ops that were not returned yet, newest first.
    key: Vec<u8>,
    left: Vec<Beside>,
    /// The value of the last returned op.
    value: Vec<u8>,
    /// The first entry of the next key.
    ahead: Option<(Vec<u8>, Beside)>,
    _tables: Vec<Arc<Table>>,
    _kept: Arc<KeptTables>,
}

impl Changes {
    /// Makes the changes of a record, or `None` if it has no writes.
    pub(crate) fn of_record(payload: Record) -> Decoded<Option<Changes>> {
        let mut reader = ByteReader::new(&payload);
        for _ in 0..reader.varint()? {
            reader.varint()?;
            reader.varint()?;
        }
        let at = reader.position();
        Ok((!reader.is_empty()).then_some(Changes::Record(payload, at)))
    }

    /// Makes the changes of an adopted commit.
    pub(crate) fn of_tables(kept: Arc<KeptTables>) -> Result<Changes> {
        let (sources, tables) = kept.runs()?;
        let ranges = tables.iter().flat_map(|table| table.range_tombstones().iter());
        let ranges: Vec<_> = ranges.flat_map(|removed| by_keyspace(removed.start, removed.end)).collect();
        Ok(Changes::Tables(Box::new(OfTables {
            ranges: ranges.into_iter(),
            range: Default::default(),
            scan: MergeScan::new(sources)?,
            key: Vec::new(),
            left: Vec::new(),
            value: Vec::new(),
            ahead: None,
            _tables: tables,
            _kept: kept,
        })))
    }

    /// Returns the next op, or `None` after the last.
    pub(crate) fn next(&mut self, place: &CommitPlace) -> Result<Option<CommitOp<'_>>> {
        match self {
            Changes::Record(payload, at) => {
                let mut reader = ByteReader::new(&payload[*at..]);
                let change = next_op(&mut reader).map_err(|error| place.damaged(error))?;
                *at += reader.position();
                Ok(change)
            }
            Changes::Tables(tables) => tables.next(),
        }
    }
}

fn next_op<'a>(reader: &mut ByteReader<'a>) -> Decoded<Option<CommitOp<'a>>> {
    if reader.is_empty() {
        return Ok(None);
    }
    let byte = reader.u8()?;
    if byte == UNRESOLVED_OPS {
        // The rest of the record says how the ops were counted.
        reader.rest();
        return Ok(None);
    }
    let Some(kind) = Kind::from_u8(byte) else { return Err(reader.error(format!("unknown op {byte}"))) };
    let key = reader.string()?;
    if !kind.is_point() {
        return Ok(Some(CommitOp::Range(key, reader.string()?)));
    }
    let value = if kind.has_value() { reader.string()? } else { &[] };
    Ok(Some(CommitOp::Key(kind, key, value)))
}

/// Splits a range into parts within one keyspace each: tables join adjacent ranges.
fn by_keyspace(start: Vec<u8>, end: Vec<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut parts = Vec::new();
    let mut id = decode_key(&start).map(|(id, _)| id);
    let mut start = start;
    while start < end {
        let behind = id.map_or_else(|| end.clone(), keyspace_end);
        // The end of a keyspace is not the first key of the next if the next one's prefix is longer.
        id = id.and_then(|id| id.get().checked_add(1)).map(KeyspaceId::new);
        let next = id.map_or_else(|| end.clone(), |id| encode_key(id, &[]));
        parts.push((std::mem::replace(&mut start, next), behind.min(end.clone())));
    }
    parts
}

impl OfTables {
    fn next(&mut self) -> Result<Option<CommitOp<'_>>> {
        if let Some(range) = self.ranges.next() {
            self.range = range;
            return Ok(Some(CommitOp::Range(&self.range.0, &self.range.1)));
        }
        if self.left.is_empty() {
            self.gather()?;
        }
        let Some((kind, value)) = self.left.pop() else { return Ok(None) };
        self.value = value;
        Ok(Some(CommitOp::Key(kind, &self.key, &self.value)))
    }

    /// Collects the entries of the next key, down to the first that hides older ones (layers.1).
    fn gather(&mut self) -> Result<()> {
        loop {
            let scanned = |scan: &mut MergeScan| -> Result<_> {
                let found = scan.next()?;
                Ok(found.map(|found| (found.key.to_vec(), (found.kind, found.value.to_vec()))))
            };
            let next = self.ahead.take().map_or_else(|| scanned(&mut self.scan), |ahead| Ok(Some(ahead)))?;
            let Some((key, (kind, value))) = next else { return Ok(()) };
            // No key is empty.
            match (key == self.key, self.left.is_empty()) {
                (true, true) => continue,
                (true, false) => {}
                (false, true) => self.key = key,
                (false, false) => {
                    self.ahead = Some((key, (kind, value)));
                    return Ok(());
                }
            }
            self.left.push((kind, value));
            if kind.ends_search() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_payload_is_reported_with_its_segment_and_offset() {
        let place = CommitPlace { seq: SeqNo::new(7), path: Path::new("db/000002.wal").into(), offset: 640 };
        let found = Changes::Record(Record::Own(vec![250]), 0).next(&place).map(drop);
        let Err(Error::Corrupt { path, offset: 640, detail, .. }) = found else { panic!("{found:?}") };
        assert!(path == *place.path && detail.starts_with("commit 7: unknown op"), "{path:?} {detail}");
    }

    #[test]
    fn ranges_of_tables_are_cut_where_keyspaces_meet() {
        let key = |id: u32, key: &[u8]| encode_key(KeyspaceId::new(id), key);
        let parts = |start, end| {
            by_keyspace(start, end).into_iter().map(|(a, b)| [a, b].concat()).collect::<Vec<_>>()
        };
        let behind = |id: u32| keyspace_end(KeyspaceId::new(id));
        assert_eq!(parts(key(1, b"a"), key(1, b"c")), [[key(1, b"a"), key(1, b"c")].concat()]);
        assert_eq!(parts(key(1, b"a"), behind(1)), [[key(1, b"a"), behind(1)].concat()]);
        let all =
            [[key(239, b"a"), behind(239)], [key(240, b""), behind(240)], [key(241, b""), key(241, b"x")]];
        assert_eq!(parts(key(239, b"a"), key(241, b"x")), all.map(|part| part.concat()));
    }
}
