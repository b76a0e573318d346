//! The properties of a table and its range tombstones: two small parts besides index and filter.
//!
//! Bytes: docs/formats/sstable.md

use super::counts::Counts;
use super::stored::Fingerprint;
use crate::blob::BlobReferences;
use crate::encoding::Compression;
use crate::encoding::bytes::{ByteReader, Decoded, put_string, put_varint};
use crate::types::SeqNo;
use crate::types::key::PREFIX_BYTES_MAX;
use crate::types::key_range::{End, KeyRange};
use crate::types::range_tombstone::{Fragment, RangeTombstones, Seqs, SharedKey};

/// Maximum length of a key of a range tombstone: a range that starts after a key starts at that key and a
/// zero byte.
const TOMBSTONE_KEY_BYTES_MAX: usize = PREFIX_BYTES_MAX + crate::KEY_BYTES_MAX + 1;

/// Statistics and limits of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    /// Statistics of its entries.
    pub counts: Counts,
    /// The range that the table covers: all its keys and range tombstones. Empty for an empty table.
    pub range: KeyRange,
    /// The codec of compressed blocks.
    pub compression: Compression,
    /// Number of data blocks.
    pub blocks: u64,
    /// Fingerprint of all preceding parts.
    pub fingerprint: Fingerprint,
    /// The features of its entries. Stored in the footer.
    pub features: u32,
    /// References to blob files. Stored only if there are any, like the numbers of unresolved and of expiring
    /// versions.
    pub blobs: BlobReferences,
}

/// Marker instead of a nonzero number of blob files. The number of unresolved versions follows; or 0 and the
/// statistics of expiring versions.
const MORE: u8 = 0;

/// Returns the range that contains no key.
pub(super) fn empty_range() -> KeyRange {
    KeyRange { start: Vec::new(), end: End::Excluded(Vec::new()) }
}

impl Properties {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.counts.encode(out);
        put_varint(out, self.blocks);
        out.push(self.compression.id());
        put_string(out, &self.range.start);
        out.push(u8::from(matches!(self.range.end, End::Included(_))));
        put_string(out, self.range.end.key());
        out.extend_from_slice(&self.fingerprint.get().to_le_bytes());
        if self.counts.unresolved > 0 {
            out.push(MORE);
            put_varint(out, self.counts.unresolved);
        }
        if self.counts.expiring > 0 {
            out.extend_from_slice(&[MORE, 0]);
            self.counts.encode_expiry(out);
        }
        if !self.blobs.is_empty() {
            self.blobs.encode(out);
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Decoded<Properties> {
        let mut reader = ByteReader::new(bytes);
        let mut counts = Counts::decode(&mut reader)?;
        let blocks = reader.varint()?;
        let codec = reader.u8()?;
        let Some(compression) = Compression::from_id(codec) else {
            return Err(reader.error(format!("unknown codec {codec}")));
        };
        let start = reader.string()?.to_vec();
        let included = reader.u8()?;
        let end = reader.string()?.to_vec();
        let end = match included {
            0 => End::Excluded(end),
            1 => End::Included(end),
            _ => return Err(reader.error(format!("expected 0 or 1, found {included}"))),
        };
        let fingerprint = Fingerprint::new(reader.u32()?);
        while reader.clone().rest().first() == Some(&MORE) {
            reader.u8()?;
            match reader.varint()? {
                0 if counts.expiring == 0 => counts.decode_expiry(&mut reader)?,
                unresolved if unresolved > counts.entries || counts.unresolved + counts.expiring > 0 => {
                    return Err(reader.error(format!("{unresolved} unresolved versions")));
                }
                unresolved => counts.unresolved = unresolved,
            }
        }
        let blobs = match reader.is_empty() {
            true => BlobReferences::default(),
            false => BlobReferences::decode(&mut reader)?,
        };
        reader.finish()?;
        let range = KeyRange { start, end };
        Ok(Properties { counts, range, compression, blocks, fingerprint, features: 0, blobs })
    }
}

/// Encodes range tombstones: for each fragment its start, its end, and its sequence numbers, newest first.
pub(super) fn encode_tombstones(tombstones: &RangeTombstones, out: &mut Vec<u8>) {
    put_varint(out, tombstones.fragments().len() as u64);
    for fragment in tombstones.fragments() {
        put_string(out, &fragment.start);
        put_string(out, &fragment.end);
        put_varint(out, fragment.seqs.len() as u64);
        fragment.seqs.iter().for_each(|seq| put_varint(out, seq.get()));
    }
}

/// Decodes range tombstones as written by `encode_tombstones` (range_tombstone.1). Memory use is proportional
/// to the input, because no key or number is stored twice.
pub(super) fn decode_tombstones(bytes: &[u8]) -> Decoded<RangeTombstones> {
    let mut reader = ByteReader::new(bytes);
    let count = reader.varint()?;
    let mut fragments: Vec<Fragment> = Vec::new();
    for _ in 0..count {
        let (start, end) = (reader.string()?, reader.string()?);
        if start >= end {
            return Err(reader.error("a range tombstone is empty"));
        }
        if start.len().max(end.len()) > TOMBSTONE_KEY_BYTES_MAX {
            return Err(reader.error("a key of a range tombstone is too long"));
        }
        let start = match fragments.last() {
            Some(last) if *last.end > *start => return Err(reader.error("range tombstones overlap")),
            Some(last) if *last.end == *start => last.end.clone(),
            _ => SharedKey::from(start),
        };
        fragments.push(Fragment { start, end: end.into(), seqs: decode_seqs(&mut reader)? });
    }
    reader.finish()?;
    Ok(RangeTombstones::from_sorted(fragments))
}

/// Decodes the number of removals of a fragment and their sequence numbers.
fn decode_seqs(reader: &mut ByteReader<'_>) -> Decoded<Seqs> {
    let count = reader.varint()?;
    // Each number takes at least one byte.
    if count == 0 || count > reader.remaining() as u64 {
        return Err(reader.error(format!("invalid number of sequence numbers: {count}")));
    }
    let mut falling = Vec::new();
    for _ in 0..count {
        let Some(seq) = SeqNo::try_new(reader.varint()?) else {
            return Err(reader.error("a sequence number exceeds 56 bits"));
        };
        if falling.last().is_some_and(|&last| last <= seq) {
            return Err(reader.error("the sequence numbers of a range tombstone do not decrease"));
        }
        falling.push(seq);
    }
    Ok(Seqs::from_falling(&falling))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::range_tombstone::RangeTombstone;

    #[test]
    fn properties_come_back() {
        let properties = Properties {
            counts: Counts {
                unresolved: 0,
                expiring: 0,
                min_expiry: 0,
                max_expiry: 0,
                entries: 1 << 40,
                keys: 3,
                tombstones: 2,
                range_tombstones: 1,
                key_bytes: 9,
                value_bytes: u64::MAX,
                min_seq: SeqNo::new(4),
                max_seq: SeqNo::MAX,
            },
            range: KeyRange { start: b"a".to_vec(), end: End::Included(b"zz".to_vec()) },
            compression: Compression::Lz4,
            blocks: 7,
            fingerprint: Fingerprint::new(8),
            features: 0,
            blobs: BlobReferences::default(),
        };
        let mut bytes = Vec::new();
        properties.encode(&mut bytes);
        assert!((0..bytes.len()).all(|len| Properties::decode(&bytes[..len]).is_err()));
        assert_eq!(Properties::decode(&bytes), Ok(properties.clone()));
        let (unresolved, expiring) = (5, 3);
        let (min_expiry, max_expiry) = (7, 1 << 50);
        let counts = Counts { unresolved, expiring, min_expiry, max_expiry, ..properties.counts };
        let properties = Properties { counts, ..properties };
        bytes.clear();
        properties.encode(&mut bytes);
        assert_eq!(Properties::decode(&bytes), Ok(properties));
    }

    #[test]
    fn tombstones_come_back() {
        let one = |start: &str, end: &str, seq| RangeTombstone {
            start: start.into(),
            end: end.into(),
            seq: SeqNo::new(seq),
        };
        let all = RangeTombstones::new([one("a", "m", 7), one("f", "z", 900)]);
        let mut bytes = Vec::new();
        encode_tombstones(&all, &mut bytes);
        assert_eq!(decode_tombstones(&bytes), Ok(all));
        assert!((0..bytes.len()).all(|len| decode_tombstones(&bytes[..len]).is_err()));
    }

    /// Encodes arbitrary fragments, valid or not.
    fn crafted(fragments: &[(&[u8], &[u8], &[u64])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, fragments.len() as u64);
        for (start, end, seqs) in fragments {
            put_string(&mut bytes, start);
            put_string(&mut bytes, end);
            put_varint(&mut bytes, seqs.len() as u64);
            seqs.iter().for_each(|&seq| put_varint(&mut bytes, seq));
        }
        bytes
    }

    #[test]
    fn range_tombstone_1_only_sorted_disjoint_fragments_of_falling_numbers_are_taken() {
        let refusal = |fragments: &[(&[u8], &[u8], &[u64])]| match decode_tombstones(&crafted(fragments)) {
            Ok(_) => String::new(),
            Err(error) => error.detail,
        };
        let longest = vec![b'k'; TOMBSTONE_KEY_BYTES_MAX];
        let too_long = [&longest[..], b"k"].concat();
        assert_eq!(refusal(&[(b"a", b"b", &[9, 7]), (b"b", b"c", &[9]), (b"d", b"e", &[1])]), "");
        assert_eq!(refusal(&[(b"a", &longest, &[1]), (&longest, b"l", &[2])]), "");
        for (bad, why) in [
            (&[(&b"b"[..], &b"b"[..], &[9][..])][..], "empty"),
            (&[(b"c", b"b", &[9])], "empty"),
            (&[(b"a", b"b", &[])], "sequence numbers: 0"),
            (&[(b"a", b"b", &[7, 9])], "do not decrease"),
            (&[(b"a", b"b", &[7, 7])], "do not decrease"),
            (&[(b"a", b"b", &[1 << 56])], "56 bits"),
            (&[(b"a", b"c", &[7]), (b"b", b"d", &[7])], "overlap"),
            (&[(b"c", b"d", &[7]), (b"a", b"b", &[7])], "overlap"),
            (&[(b"a", &too_long, &[7])], "too long"),
        ] {
            let refused = refusal(bad);
            assert!(refused.contains(why), "{bad:?}: {refused:?}, not {why:?}");
        }
    }
}
