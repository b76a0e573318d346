//! Ops as bytes: what of them the log adds, and how it is decoded.

use std::borrow::Cow;

use super::WriteSet;
use crate::blob::BlobPointer;
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded, put_varint};
use crate::encoding::operand::elements;
use crate::types::expiry::{EXPIRY_BYTES, value_of};
use crate::types::key;
use crate::types::limits::KEY_BYTES_MAX;
use crate::types::op::{Kind, UNRESOLVED_OPS};

/// The start of a range after a key is the key followed by a zero byte.
pub(super) const RANGE_START_BYTES_MAX: usize = KEY_BYTES_MAX + 1;
/// The end of a range may be an encoded key followed by a zero byte.
pub(super) const RANGE_END_BYTES_MAX: usize = key::PREFIX_BYTES_MAX + KEY_BYTES_MAX + 1;

impl WriteSet {
    /// Encodes what follows the ops in the log: the ops of the unresolved entries at `places`. Empty if there
    /// are none.
    pub fn encode_unresolved(&self, places: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        if places.is_empty() {
            return out;
        }
        let order = self.order();
        let mut ops: Vec<u32> = places.iter().filter_map(|place| order.ops.get(*place as usize)).collect();
        ops.sort_unstable();
        out.push(UNRESOLVED_OPS);
        put_varint(&mut out, ops.len() as u64);
        let mut next = 0;
        for op in ops {
            put_varint(&mut out, u64::from(op - next));
            next = op + 1;
        }
        out
    }

    /// Marks the ops listed in the log as unresolved.
    fn note_unresolved(&mut self, reader: &mut ByteReader<'_>) -> Decoded<()> {
        let mut next = 0_usize;
        for _ in 0..reader.varint()? {
            let gap = usize::try_from(reader.varint()?).unwrap_or(usize::MAX);
            let op = next.checked_add(gap).and_then(|at| self.ops.get_mut(at));
            let Some(op) = op else {
                return Err(reader.error("the list of unresolved ops names an op that does not exist"));
            };
            op.kind = op.kind.unresolved();
            next += gap + 1;
        }
        Ok(())
    }

    /// Replays the encoded ops in `record` after its header. Offsets in errors count from the
    /// end of the header.
    pub fn decode(record: Cow<'_, [u8]>, header_len: usize) -> Decoded<Self> {
        let mut set = WriteSet { header_len, ..Self::default() };
        let mut reader = ByteReader::new(&record[header_len..]);
        while !reader.is_empty() {
            let at = reader.position();
            let byte = reader.u8()?;
            if byte == UNRESOLVED_OPS {
                set.note_unresolved(&mut reader)?;
                continue;
            }
            // The log lists unresolved ops after the ops.
            let Some(kind) = Kind::from_u8(byte).filter(|kind| !kind.is_unresolved()) else {
                return Err(DecodeError::new(at, format!("unknown op {byte} in a commit")));
            };
            let longest = if kind.is_point() { KEY_BYTES_MAX } else { RANGE_START_BYTES_MAX };
            let first = checked_key(&mut reader, longest)?;
            let first_start = header_len + reader.position() - first.len();
            if !kind.is_point() {
                let end = range_end(&mut reader)?;
                if first < end {
                    set.note_range(&record, first, end);
                }
            } else if kind.has_value() {
                let value = reader.string()?;
                if kind.expires() && value.len() < EXPIRY_BYTES {
                    return Err(DecodeError::new(at, "an expiring version has no expiry"));
                }
                if kind.needs_fetch() {
                    BlobPointer::decode(value_of(kind, value))?;
                } else if kind.is_operand() {
                    elements(value)?;
                }
                let value_start = header_len + reader.position() - value.len();
                set.note(kind, (first_start, first), (value_start, value.len()));
            } else {
                set.note(kind, (first_start, first), (first_start, 0));
            }
        }
        set.bytes = record.into_owned();
        Ok(set)
    }
}

/// Reads the next op of a payload: its kind, its key or range start, and its value or range end.
pub(super) fn op_of<'a>(reader: &mut ByteReader<'a>) -> Decoded<(Kind, &'a [u8], &'a [u8])> {
    let byte = reader.u8()?;
    let kind = Kind::from_u8(byte).ok_or_else(|| reader.error(format!("unknown op {byte}")))?;
    let first = reader.string()?;
    let second = if !kind.is_point() || kind.has_value() { reader.string()? } else { &[] };
    Ok((kind, first, second))
}

/// Reads the end of a range: a key, a key and a zero byte, or the first byte after all keys of a keyspace.
fn range_end<'a>(reader: &mut ByteReader<'a>) -> Decoded<&'a [u8]> {
    let at = reader.clone();
    let bytes = reader.string()?;
    if bytes.len() <= RANGE_END_BYTES_MAX { Ok(bytes) } else { Err(at.error("longer than a key can be")) }
}

/// Returns whether this is an encoded key whose user key is not too long.
pub(super) fn is_key(encoded: &[u8], user_key_bytes_max: usize) -> bool {
    key::decode_key(encoded).is_some_and(|(_, user_key)| user_key.len() <= user_key_bytes_max)
}

fn checked_key<'a>(reader: &mut ByteReader<'a>, user_key_bytes_max: usize) -> Decoded<&'a [u8]> {
    let at = reader.clone();
    let bytes = reader.string()?;
    if is_key(bytes, user_key_bytes_max) { Ok(bytes) } else { Err(at.error("not an encoded key")) }
}
