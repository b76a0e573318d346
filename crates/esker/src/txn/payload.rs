//! The payload of the WAL record of a commit: changes of live counts, then the ops of the write set.
//!
//! Bytes: docs/formats/wal.md, "Commit payload".
//!
//! The counts are in the record, so that replaying the log needs no lookups.

use std::borrow::Cow;

use super::write_set::{CountDeltas, WriteSet};
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded, put_varint, unzigzag, zigzag};
use crate::types::KeyspaceId;

/// Encodes the bytes before the ops.
pub fn encode_header(deltas: &CountDeltas) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + 6 * deltas.len());
    put_varint(&mut out, deltas.len() as u64);
    for &(keyspace, delta) in deltas {
        put_varint(&mut out, u64::from(keyspace.get()));
        put_varint(&mut out, zigzag(delta));
    }
    out
}

/// Decodes a whole payload. An owned payload is not copied.
pub fn decode<'a>(payload: impl Into<Cow<'a, [u8]>>) -> Decoded<(CountDeltas, WriteSet)> {
    let payload = payload.into();
    let mut reader = ByteReader::new(&payload);
    let n = reader.varint()?;
    let mut deltas = CountDeltas::new();
    for _ in 0..n {
        let keyspace = reader.varint()?;
        let keyspace =
            u32::try_from(keyspace).map_err(|_| reader.error("keyspace id has more than 32 bits"))?;
        deltas.push((KeyspaceId::new(keyspace), unzigzag(reader.varint()?)));
    }
    let at = reader.position();
    let set = WriteSet::decode(payload, at);
    let set = set.map_err(|e| DecodeError { offset: at + e.offset, detail: e.detail })?;
    Ok((deltas, set))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::operand::Operand;
    use crate::types::op::Kind;

    #[test]
    fn golden_bytes() {
        let mut set = WriteSet::new();
        set.put(b"\x01a", b"xyz");
        set.remove(b"\x01b");
        set.delete_range(b"\x01c", b"\x01d");
        let deltas = vec![(KeyspaceId::DEFAULT, -2), (KeyspaceId::new(300), 5)];
        let bytes = [&encode_header(&deltas), set.payload()].concat();
        assert_eq!(bytes, b"\x02\x01\x03\xac\x02\x0a\x01\x02\x01a\x03xyz\x00\x02\x01b\x02\x02\x01c\x02\x01d");
        let (again, set_again) = decode(&bytes[..]).unwrap();
        assert_eq!((again, set_again.payload()), (deltas, set.payload()));
    }

    #[test]
    fn golden_bytes_of_a_merge() {
        let mut set = WriteSet::new();
        set.write(Kind::MERGE, b"\x01e", &Operand { at_ms: 258, lifetime_ms: 7, bytes: b"op" }.to_list());
        assert_eq!(set.payload(), b"\x04\x02\x01e\x06\x82\x02\x07\x02op");
    }
}
