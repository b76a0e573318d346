//! The map of a collected blob file: where the moved values are. Stored at the end of the file that received
//! them.
//!
//! Bytes: docs/formats/blob.md, "Map"

use crate::encoding::bytes::{ByteReader, DecodeError, Decoded};
use crate::encoding::checksum::crc32c;

const MAGIC: [u8; 4] = *b"bmap";
/// Bytes after the entries.
pub(super) const TAIL_BYTES: usize = 16;
const ENTRY_BYTES: usize = 16;

/// Maps offsets in the file that pointers name to offsets in this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves(Vec<(u64, u64)>);

impl Moves {
    /// Creates a map of (old offset, new offset) pairs in any order.
    pub(crate) fn new(mut moves: Vec<(u64, u64)>) -> Self {
        moves.sort_unstable();
        moves.dedup_by_key(|(from, _)| *from);
        Moves(moves)
    }

    /// Returns the offset of the value that was at offset `from` of the old file.
    pub(super) fn find(&self, from: u64) -> Option<u64> {
        self.0.binary_search_by_key(&from, |(from, _)| *from).ok().map(|at| self.0[at].1)
    }

    /// Bytes of the map with its tail.
    pub(super) fn bytes(&self) -> u64 {
        (self.0.len() * ENTRY_BYTES + TAIL_BYTES) as u64
    }

    /// Number of values.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// Encodes the map with its tail.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.0.len() * ENTRY_BYTES + TAIL_BYTES);
        for (from, to) in &self.0 {
            out.extend_from_slice(&from.to_le_bytes());
            out.extend_from_slice(&to.to_le_bytes());
        }
        out.extend_from_slice(&(self.0.len() as u64).to_le_bytes());
        out.extend_from_slice(&crc32c(&out).to_le_bytes());
        out.extend_from_slice(&MAGIC);
        out
    }

    /// Returns the bytes of the map with this tail.
    pub(super) fn bytes_of(tail: &[u8]) -> Decoded<u64> {
        let mut reader = ByteReader::new(tail);
        let (count, _crc) = (reader.u64()?, reader.u32()?);
        if reader.rest() != MAGIC {
            return Err(DecodeError::new(12, "the collected blob file does not end with a map"));
        }
        let bytes = count.checked_mul(ENTRY_BYTES as u64).and_then(|n| n.checked_add(TAIL_BYTES as u64));
        bytes.ok_or_else(|| DecodeError::new(0, "the map is longer than any file"))
    }

    /// The inverse of [`encode`](Self::encode).
    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Self> {
        let at = bytes.len().saturating_sub(TAIL_BYTES);
        let (entries, tail) = bytes.split_at(at);
        if Self::bytes_of(tail)? != bytes.len() as u64 {
            return Err(DecodeError::new(at, "the map has another length than its tail says"));
        }
        let crc = ByteReader::new(&tail[8..]).u32()?;
        if crc32c(&bytes[..at + 8]) != crc {
            return Err(DecodeError::new(at + 8, "checksum mismatch"));
        }
        let mut moves = Vec::new();
        let mut reader = ByteReader::new(entries);
        while !reader.is_empty() {
            let (from, to) = (reader.u64()?, reader.u64()?);
            if moves.last().is_some_and(|(last, _)| *last >= from) {
                return Err(reader.error("the map is not in ascending order"));
            }
            moves.push((from, to));
        }
        Ok(Moves(moves))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_comes_back_and_damage_is_seen() {
        let moves = Moves::new(vec![(70, 32), (5, 90)]);
        let bytes = moves.encode();
        assert_eq!(Moves::decode(&bytes), Ok(moves.clone()));
        assert_eq!((moves.find(5), moves.find(70), moves.find(6)), (Some(90), Some(32), None));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(Moves::decode(&bad).is_err(), "byte {at}");
        }
        assert!((0..bytes.len()).all(|len| Moves::decode(&bytes[..len]).is_err()));
    }
}
