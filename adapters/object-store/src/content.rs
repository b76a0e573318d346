//! Content: numbered parts, each in chunks of up to 1 MiB.

use std::ops::Range;

use bytes::Bytes;
use esker::{Keyspace, Transaction};
use object_store::PutPayload;

use crate::error::{Failed, generic};
use crate::stored::{Object, chunk_key};

/// Larger pieces are cut.
const CHUNK_BYTES: usize = 1 << 20;

/// Writes a part. Nothing of it is there yet.
pub(crate) fn write_part(
    t: &mut Transaction,
    chunks: &Keyspace,
    (content, part): (u64, u32),
    payload: &PutPayload,
) -> Result<(), Failed> {
    let mut number = 0;
    let mut chunk = Vec::new();
    for mut piece in payload.iter().map(|piece| &piece[..]) {
        while !piece.is_empty() {
            let (now, later) = piece.split_at(piece.len().min(CHUNK_BYTES - chunk.len()));
            chunk.extend_from_slice(now);
            piece = later;
            if chunk.len() == CHUNK_BYTES {
                t.put(chunks, chunk_key(content, part, number), &chunk)?;
                number += 1;
                chunk.clear();
            }
        }
    }
    if !chunk.is_empty() {
        t.put(chunks, chunk_key(content, part, number), &chunk)?;
    }
    Ok(())
}

/// A chunk, and which of its bytes belong to a range of the content.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    key: [u8; 16],
    len: usize,
    bytes: Range<usize>,
}

/// Returns the pieces that make up a range of the content, in order.
pub(crate) fn pieces(object: &Object, range: Range<u64>) -> Result<Vec<Piece>, Failed> {
    let mut pieces = Vec::new();
    let mut part_start = 0;
    for (part, size) in (0..).zip(object.parts.iter().copied()) {
        let part_end = part_start + size;
        let wanted = range.start.max(part_start)..range.end.min(part_end);
        let mut position = wanted.start;
        while position < wanted.end {
            let in_part = position - part_start;
            let number = in_part / CHUNK_BYTES as u64;
            let chunk_start = number * CHUNK_BYTES as u64;
            let len = (size - chunk_start).min(CHUNK_BYTES as u64);
            let end = (wanted.end - part_start - chunk_start).min(len);
            let number = u32::try_from(number).map_err(|_| generic("a part of more than 4 PiB"))?;
            pieces.push(Piece {
                key: chunk_key(object.content, part, number),
                len: len as usize,
                bytes: (in_part - chunk_start) as usize..end as usize,
            });
            position = part_start + chunk_start + end;
        }
        part_start = part_end;
    }
    Ok(pieces)
}

impl Piece {
    pub(crate) fn read(&self, state: &esker::Snapshot, chunks: &Keyspace) -> Result<Bytes, Failed> {
        match state.get(chunks, self.key)? {
            Some(chunk) if chunk.len() == self.len => Ok(Bytes::from(chunk).slice(self.bytes.clone())),
            found => {
                let found = found.map(|chunk| chunk.len());
                let text = format!("chunk {:02x?} has {} bytes: found {found:?}", self.key, self.len);
                Err(Failed(generic(text)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_into_chunks() {
        const MIB: u64 = CHUNK_BYTES as u64;
        let parts = vec![10, 0, 2 * MIB + 5, MIB];
        let object = Object { content: 7, parts, modified_us: 0, attributes: Vec::new() };
        let cut = |range| {
            let pieces = pieces(&object, range).unwrap();
            pieces.into_iter().map(|p| (p.key, p.len, p.bytes)).collect::<Vec<_>>()
        };
        let key = |part, chunk| chunk_key(7, part, chunk);
        assert_eq!(cut(0..0), []);
        assert_eq!(cut(3..10), [(key(0, 0), 10, 3..10)]);
        assert_eq!(cut(9..11), [(key(0, 0), 10, 9..10), (key(2, 0), 1 << 20, 0..1)]);
        let whole = [
            (key(0, 0), 10, 0..10),
            (key(2, 0), 1 << 20, 0..1 << 20),
            (key(2, 1), 1 << 20, 0..1 << 20),
            (key(2, 2), 5, 0..5),
            (key(3, 0), 1 << 20, 0..1 << 20),
        ];
        assert_eq!(cut(0..object.size()), whole);
        let from = 10 + 2 * MIB + 4;
        assert_eq!(cut(from..from + 2), [(key(2, 2), 5, 4..5), (key(3, 0), 1 << 20, 0..1)]);
    }
}
