//! The changes of one commit, one after the other, in an order in which they can be applied.
//!
//! ```text
//!   record of the log --op by op, as they were made--.
//!   kept tables --range removals, then MergeScan------+--> Change
//! ```
//!
//! changes.1. Who applies them in their order has what the commit has made of the database.
//! changes.2. Nothing of a record is copied, nor brought into another order; of tables one entry is in memory.

use std::path::Path;
use std::sync::Arc;

use super::keeper::KeptTables;
use crate::compaction::merge::MergeScan;
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded};
use crate::sstable::Table;
use crate::types::key::{decode_key, encode_key, keyspace_end};
use crate::types::op::{Kind, UNRESOLVED_OPS};
use crate::types::{KeyspaceId, Result, SeqNo};

/// A change, of encoded keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// Of a key: what, and what stands beside it.
    Key(Kind, &'a [u8], &'a [u8]),
    /// All keys from one on, and before another, are gone.
    Range(&'a [u8], &'a [u8]),
}

/// See the module's text.
pub(crate) enum Changes {
    /// Of a record, and where the next op begins.
    Record(Vec<u8>, usize),
    /// Of tables.
    Tables(Box<OfTables>),
}

pub(crate) struct OfTables {
    /// Newest first; the first that are not read yet.
    ranges: std::vec::IntoIter<(Vec<u8>, Vec<u8>)>,
    range: (Vec<u8>, Vec<u8>),
    scan: MergeScan,
    /// The last entry.
    entry: Option<(Kind, Vec<u8>, Vec<u8>)>,
    _tables: Vec<Arc<Table>>,
    _kept: Arc<KeptTables>,
}

impl Changes {
    /// Those of a record; none if it has no writes.
    pub(crate) fn of_record(payload: Vec<u8>) -> Decoded<Option<Changes>> {
        let mut reader = ByteReader::new(&payload);
        for _ in 0..reader.varint()? {
            reader.varint()?;
            reader.varint()?;
        }
        let at = reader.position();
        Ok((!reader.is_empty()).then_some(Changes::Record(payload, at)))
    }

    /// Those of an adopted commit.
    pub(crate) fn of_tables(kept: Arc<KeptTables>) -> Result<Changes> {
        let (sources, tables) = kept.runs()?;
        let ranges = tables.iter().flat_map(|table| table.range_tombstones().iter());
        let ranges: Vec<_> = ranges.flat_map(|removed| by_keyspace(removed.start, removed.end)).collect();
        Ok(Changes::Tables(Box::new(OfTables {
            ranges: ranges.into_iter(),
            range: Default::default(),
            scan: MergeScan::new(sources)?,
            entry: None,
            _tables: tables,
            _kept: kept,
        })))
    }

    /// The next one; none after the last. `seq` is the commit's, for the message.
    pub(crate) fn next(&mut self, seq: SeqNo) -> Result<Option<Change<'_>>> {
        match self {
            Changes::Record(payload, at) => {
                let mut reader = ByteReader::new(&payload[*at..]);
                let change = next_op(&mut reader).map_err(|e| {
                    let what = DecodeError { detail: format!("commit {seq}: {}", e.detail), ..e };
                    what.in_file("commit payload", Path::new(""), *at as u64)
                })?;
                *at += reader.position();
                Ok(change)
            }
            Changes::Tables(tables) => tables.next(),
        }
    }
}

fn next_op<'a>(reader: &mut ByteReader<'a>) -> Decoded<Option<Change<'a>>> {
    if reader.is_empty() {
        return Ok(None);
    }
    let byte = reader.u8()?;
    if byte == UNRESOLVED_OPS {
        // What follows says how they were counted.
        reader.rest();
        return Ok(None);
    }
    let Some(kind) = Kind::from_u8(byte) else { return Err(reader.error(format!("unknown op {byte}"))) };
    let key = reader.string()?;
    if !kind.is_point() {
        return Ok(Some(Change::Range(key, reader.string()?)));
    }
    let value = if kind.has_value() { reader.string()? } else { &[] };
    Ok(Some(Change::Key(kind, key, value)))
}

/// The parts of a range, each in one keyspace: tables join ranges that meet.
fn by_keyspace(start: Vec<u8>, end: Vec<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut parts = Vec::new();
    let mut id = decode_key(&start).map(|(id, _)| id);
    let mut start = start;
    while start < end {
        let behind = id.map_or_else(|| end.clone(), keyspace_end);
        // What lies behind a keyspace is not the first key of the next, where that has a longer prefix.
        id = id.and_then(|id| id.get().checked_add(1)).map(KeyspaceId::new);
        let next = id.map_or_else(|| end.clone(), |id| encode_key(id, &[]));
        parts.push((std::mem::replace(&mut start, next), behind.min(end.clone())));
    }
    parts
}

impl OfTables {
    fn next(&mut self) -> Result<Option<Change<'_>>> {
        if let Some(range) = self.ranges.next() {
            self.range = range;
            return Ok(Some(Change::Range(&self.range.0, &self.range.1)));
        }
        loop {
            let Some(found) = self.scan.next()? else { return Ok(None) };
            match &mut self.entry {
                // Of a newer run (layers.1).
                Some((_, key, _)) if *key == found.key => continue,
                Some((kind, key, value)) => {
                    *kind = found.kind;
                    key.clear();
                    key.extend_from_slice(found.key);
                    value.clear();
                    value.extend_from_slice(found.value);
                }
                None => self.entry = Some((found.kind, found.key.to_vec(), found.value.to_vec())),
            }
            break;
        }
        Ok(self.entry.as_ref().map(|(kind, key, value)| Change::Key(*kind, key, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
