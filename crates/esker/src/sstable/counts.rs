//! Statistics of the content of a table. An optional statistic, stored only if it is not zero, also needs a
//! field in `properties.rs` and a tag in `manifest/edit.rs`.
//!
//! ```text
//!   writer: add(entry) ... --> properties, manifest     check: add(entry) ... <--compare--> properties
//! ```
//!
//! Bytes: docs/formats/sstable.md

use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::encoding::operand::expiries;
use crate::types::SeqNo;
use crate::types::entry::EntryRef;

/// Statistics of the entries and range tombstones of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of versions, including tombstones.
    pub entries: u64,
    /// Number of distinct keys.
    pub keys: u64,
    /// Number of versions that are tombstones.
    pub tombstones: u64,
    /// Number of unresolved versions (types/op.rs). Stored only if it is not zero.
    pub unresolved: u64,
    /// Number of versions that expire, or whose operands may create a value that does. Stored only if it is
    /// not zero, with the next two fields.
    pub expiring: u64,
    /// The earliest expiry, in milliseconds since 1970; zero if nothing expires.
    pub min_expiry: u64,
    /// The latest expiry; `u64::MAX` if there are operands that may create an expiring value.
    pub max_expiry: u64,
    /// Number of range tombstones, counted as fragments.
    pub range_tombstones: u64,
    /// Bytes of keys before compression.
    pub key_bytes: u64,
    /// Bytes of values before compression.
    pub value_bytes: u64,
    /// The smallest sequence number, including range tombstones; zero in an empty table.
    pub min_seq: SeqNo,
    /// The largest sequence number, including range tombstones.
    pub max_seq: SeqNo,
}

impl Counts {
    /// Creates the statistics of no entries. Call [`ended`](Self::ended) after adding all entries.
    pub(super) fn begun() -> Counts {
        Counts { min_seq: SeqNo::MAX, min_expiry: u64::MAX, ..Counts::default() }
    }

    /// Adds a version. `new_key` says whether its key differs from the previous one.
    #[inline(always)]
    pub(super) fn add(&mut self, entry: &EntryRef<'_>, new_key: bool) {
        self.entries += 1;
        self.keys += u64::from(new_key);
        self.tombstones += u64::from(!entry.kind.is_live());
        self.unresolved += u64::from(entry.kind.is_unresolved());
        if let Some(expiry) = expiries(entry.kind, entry.value).min() {
            self.expiring += 1;
            self.min_expiry = self.min_expiry.min(expiry.ms());
            // The expiry of a key with operands depends on what lies below.
            let last = if entry.kind.is_operand() { u64::MAX } else { expiry.ms() };
            self.max_expiry = self.max_expiry.max(last);
        }
        self.key_bytes += entry.key.len() as u64;
        self.value_bytes += entry.value.len() as u64;
        self.add_seqs(entry.seq, entry.seq);
    }

    /// Adds a range of sequence numbers.
    #[inline(always)]
    pub(super) fn add_seqs(&mut self, min: SeqNo, max: SeqNo) {
        self.min_seq = self.min_seq.min(min);
        self.max_seq = self.max_seq.max(max);
    }

    /// Completes the statistics, with the number of range tombstones.
    pub(super) fn ended(self, range_tombstones: u64) -> Counts {
        let (min_seq, min_expiry) = (self.min_seq.min(self.max_seq), self.min_expiry.min(self.max_expiry));
        Counts { range_tombstones, min_seq, min_expiry, ..self }
    }

    /// Appends the statistics of expiring versions.
    pub(crate) fn encode_expiry(&self, out: &mut Vec<u8>) {
        [self.expiring, self.min_expiry, self.max_expiry].into_iter().for_each(|n| put_varint(out, n));
    }

    /// Decodes the output of [`encode_expiry`](Self::encode_expiry).
    pub(crate) fn decode_expiry(&mut self, reader: &mut ByteReader<'_>) -> Decoded<()> {
        for number in [&mut self.expiring, &mut self.min_expiry, &mut self.max_expiry] {
            *number = reader.varint()?;
        }
        if self.expiring == 0 || self.expiring > self.entries || self.min_expiry > self.max_expiry {
            return Err(reader.error(format!("invalid statistics of {} expiring versions", self.expiring)));
        }
        Ok(())
    }

    /// Appends the statistics that are always stored.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let Counts { entries, keys, tombstones, range_tombstones, key_bytes, value_bytes, .. } = *self;
        let Counts { unresolved: _, expiring: _, min_expiry: _, max_expiry: _, min_seq, max_seq, .. } = *self;
        let numbers = [entries, keys, tombstones, range_tombstones, key_bytes, value_bytes];
        numbers.into_iter().chain([min_seq.get(), max_seq.get()]).for_each(|number| put_varint(out, number));
    }

    /// Decodes the output of [`encode`](Self::encode).
    pub(crate) fn decode(reader: &mut ByteReader<'_>) -> Decoded<Counts> {
        let mut numbers = [0; 8];
        for number in &mut numbers {
            *number = reader.varint()?;
        }
        let [entries, keys, tombstones, range_tombstones, key_bytes, value_bytes, min_seq, max_seq] = numbers;
        let (Some(min_seq), Some(max_seq)) = (SeqNo::try_new(min_seq), SeqNo::try_new(max_seq)) else {
            return Err(reader.error("a sequence number exceeds 56 bits"));
        };
        let counts =
            Counts { entries, keys, tombstones, range_tombstones, key_bytes, value_bytes, ..Self::default() };
        Ok(Counts { min_seq, max_seq, ..counts })
    }
}
