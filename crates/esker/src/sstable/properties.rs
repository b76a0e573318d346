//! What a table says about itself, and its range tombstones: the two small parts besides index and filter.
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

/// The longest key of a range tombstone: a range that begins after a key begins at that key and a zero byte.
const TOMBSTONE_KEY_BYTES_MAX: usize = PREFIX_BYTES_MAX + crate::KEY_BYTES_MAX + 1;

/// Counts and limits of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    /// What its entries add up to.
    pub counts: Counts,
    /// What the table covers: all its keys and range tombstones. An empty table covers nothing.
    pub range: KeyRange,
    /// The codec of blocks that shrink by it.
    pub compression: Compression,
    /// Data blocks.
    pub blocks: u64,
    /// Of all parts before this one.
    pub fingerprint: Fingerprint,
    /// What its values are in blob files. Stored if there are any (footer.2), as are the numbers of unresolved versions and of those that expire.
    pub blobs: BlobReferences,
}

/// Where references of blob files have their number stands 0, then that of unresolved versions, or 0 again and what is said of expiring ones.
const MORE: u8 = 0;

/// The range that holds no key.
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
            return Err(reader.error(format!("codec {codec}, which this build does not have")));
        };
        let start = reader.string()?.to_vec();
        let included = reader.u8()?;
        let end = reader.string()?.to_vec();
        let end = match included {
            0 => End::Excluded(end),
            1 => End::Included(end),
            _ => return Err(reader.error(format!("{included} where 0 or 1 is expected"))),
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
        Ok(Properties { counts, range: KeyRange { start, end }, compression, blocks, fingerprint, blobs })
    }
}

/// The stored form of range tombstones: for each fragment its start, its end, and its sequence numbers, newest first.
pub(super) fn encode_tombstones(tombstones: &RangeTombstones, out: &mut Vec<u8>) {
    put_varint(out, tombstones.fragments().len() as u64);
    for fragment in tombstones.fragments() {
        put_string(out, &fragment.start);
        put_string(out, &fragment.end);
        put_varint(out, fragment.seqs.len() as u64);
        fragment.seqs.iter().for_each(|seq| put_varint(out, seq.get()));
    }
}

/// Takes only what `encode_tombstones` makes: range_tombstone.1. The memory it needs is in proportion to the bytes, since no key and
/// no number is stored twice.
pub(super) fn decode_tombstones(bytes: &[u8]) -> Decoded<RangeTombstones> {
    let mut reader = ByteReader::new(bytes);
    let count = reader.varint()?;
    let mut fragments: Vec<Fragment> = Vec::new();
    for _ in 0..count {
        let (start, end) = (reader.string()?, reader.string()?);
        if start >= end {
            return Err(reader.error("an empty range tombstone"));
        }
        if start.len().max(end.len()) > TOMBSTONE_KEY_BYTES_MAX {
            return Err(reader.error("a range tombstone with too long a key"));
        }
        let start = match fragments.last() {
            Some(last) if *last.end > *start => return Err(reader.error("range tombstones that overlap")),
            Some(last) if *last.end == *start => last.end.clone(),
            _ => SharedKey::from(start),
        };
        fragments.push(Fragment { start, end: end.into(), seqs: decode_seqs(&mut reader)? });
    }
    reader.finish()?;
    Ok(RangeTombstones::from_sorted(fragments))
}

/// How often a fragment was deleted, and the numbers.
fn decode_seqs(reader: &mut ByteReader<'_>) -> Decoded<Seqs> {
    let count = reader.varint()?;
    // Each number takes a byte or more.
    if count == 0 || count > reader.remaining() as u64 {
        return Err(reader.error(format!("{count} sequence numbers")));
    }
    let mut falling = Vec::new();
    for _ in 0..count {
        let Some(seq) = SeqNo::try_new(reader.varint()?) else {
            return Err(reader.error("a sequence number of more than 56 bits"));
        };
        if falling.last().is_some_and(|&last| last <= seq) {
            return Err(reader.error("sequence numbers of a range tombstone that do not fall"));
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

    /// The stored form of any fragments, sound or not.
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
            (&[(b"a", b"b", &[])], "0 sequence numbers"),
            (&[(b"a", b"b", &[7, 9])], "do not fall"),
            (&[(b"a", b"b", &[7, 7])], "do not fall"),
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
