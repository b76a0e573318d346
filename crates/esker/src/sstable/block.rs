//! A data block in memory: sorted entries after an array of key heads.
//!
//! ```text
//!   key --prefix--> compare   --next 4 bytes--> count smaller heads   --equal heads--> compare the rest
//!
//!   header | heads u32 | trailers | offsets, lengths | prefix | entries: rest value rest value ...
//!                        unless     unless all have             or, split: rest rest ... value value ...
//!                        all visible the same lengths
//! ```
//!
//! sstable_block.1. A `Block` exists only if its bytes were verified: the key and value of every entry lie
//!     inside, in order.
//!
//! Entries are in key order, versions of a key newest first. The writer ensures this, the checksum protects
//! it, and `Table::verify` checks it; a block that violates it gives wrong answers but never a panic. With
//! [`ALL_VISIBLE`], every entry is a put of sequence number 0, so keys are distinct. The block handle and the
//! counts of its `Arc` fit in 64 bytes, because every search reads them.
//!
//! Bytes: docs/formats/sstable.md
#![expect(unsafe_code, reason = "values point into blocks")]

use std::cmp::Ordering;

use esker_env::PageBuf;

use super::block_search::{Simd, prefetch};
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded};
use crate::types::key::head4;
use crate::types::op::Kind;
use crate::types::{SeqNo, SharedBytes};

/// Flag: all keys have the same length.
pub(super) const FIXED_KEYS: u8 = 1;
/// Flag: all values have the same length.
pub(super) const FIXED_VALUES: u8 = 2;
/// Flag: all entries are puts of sequence number 0.
pub(super) const ALL_VISIBLE: u8 = 4;
/// Flag: keys and values are in separate regions.
pub(super) const SPLIT: u8 = 8;
/// Flag: offsets and lengths have 4 bytes instead of 2.
pub(super) const WIDE: u8 = 16;
/// Flag: all keys have at least 4 bytes after the prefix, which are stored only as heads.
pub(super) const HEADED: u8 = 32;
const ALL_FLAGS: u8 = 63;

pub(super) const HEADER_BYTES: usize = 16;
pub(super) const HEAD_BYTES: usize = 4;
pub(super) const TRAILER_BYTES: usize = 8;

/// Packs the sequence number and the kind of an entry.
pub(super) fn pack_trailer(seq: SeqNo, kind: Kind) -> u64 {
    seq.get() << 8 | u64::from(kind.to_u8())
}

fn unpack_trailer(trailer: u64) -> Option<(SeqNo, Kind)> {
    let kind = Kind::from_u8(trailer as u8).filter(|kind| kind.is_point())?;
    Some((SeqNo::try_new(trailer >> 8)?, kind))
}

/// A verified block. To keep it small, positions have 32 bits, and values that follow from other fields are
/// computed.
pub(crate) struct Block {
    bytes: PageBuf,
    count: u32,
    flags: u8,
    /// Length of the stored part of each key, if all are equal.
    rest_len: u32,
    /// Length of each value, if all are equal.
    value_len: u32,
    /// Position of the key lengths of an interleaved block, or of the value offsets of a split block.
    second: u32,
    /// Positions of the prefix, of the entries (of their keys, if split), and of the values of a split block.
    prefix: u32,
    entries: u32,
    values: u32,
}

const _: () = assert!(
    size_of::<Block>() == size_of::<PageBuf>() + 32,
    "a block handle fits in a cache line with its counts"
);

impl Block {
    /// Bytes of memory used, including the counts of its `Arc`.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Block>() + 2 * size_of::<usize>() + self.bytes.size_bytes()
    }

    /// Verifies the bytes and takes ownership of them.
    pub(super) fn parse(bytes: PageBuf) -> Decoded<Block> {
        let mut header = ByteReader::new(&bytes);
        let count = header.u32()? as usize;
        let packed = header.u32()?;
        let (flags, prefix_len) = (packed as u8, (packed >> 8) as usize);
        let (rest_len, value_len) = (header.u32()?, header.u32()?);
        if count == 0 || flags & !ALL_FLAGS != 0 {
            return Err(header.error(format!("{count} entries, flags {flags:#x}")));
        }
        let mut block = Block {
            bytes: PageBuf::default(),
            count: count as u32,
            flags,
            rest_len,
            value_len,
            second: 0,
            prefix: 0,
            entries: 0,
            values: 0,
        };
        let (offset_table, length_table) = ((count + 1) * block.width(), count * block.width());
        let fixed = (block.has(FIXED_KEYS), block.has(FIXED_VALUES));
        // Each length is checked against the remaining bytes, so none can overflow or exceed the end.
        let skip = |reader: &mut ByteReader<'_>, present: bool, len: usize| {
            reader.take(if present { len as u64 } else { 0 }).map(|_| ())
        };
        let position = |reader: &ByteReader<'_>| {
            u32::try_from(reader.position()).map_err(|_| reader.error("the entries start above 4 GiB"))
        };
        skip(&mut header, true, HEAD_BYTES * count)?;
        skip(&mut header, flags & ALL_VISIBLE == 0, TRAILER_BYTES * count)?;
        let (first, second) = match flags & SPLIT {
            0 => ((fixed != (true, true), offset_table), (fixed == (false, false), length_table)),
            _ => ((!fixed.0, offset_table), (!fixed.1, offset_table)),
        };
        skip(&mut header, first.0, first.1)?;
        block.second = position(&header)?;
        skip(&mut header, second.0, second.1)?;
        block.prefix = position(&header)?;
        skip(&mut header, true, prefix_len)?;
        block.entries = position(&header)?;
        block.bytes = bytes;
        block.check_entries()?;
        Ok(block)
    }

    /// Verifies that the entries fill the rest of the bytes and that each trailer is valid (sstable_block.1).
    fn check_entries(&mut self) -> Decoded<()> {
        let wrong = |at: usize, detail: &str| Err(DecodeError::new(at, detail));
        let n = u64::from(self.count);
        let start = self.entries as usize;
        let total = (self.bytes.len() - start) as u64;
        let (rest_len, value_len) = (u64::from(self.rest_len), u64::from(self.value_len));
        let fixed = (self.has(FIXED_KEYS), self.has(FIXED_VALUES));
        // All factors have 32 bits, so no product overflows.
        if self.has(SPLIT) {
            let keys = if fixed.0 { n * rest_len } else { self.check_offsets(self.entry_offsets())? };
            let Some(values_total) = total.checked_sub(keys) else {
                return wrong(start, "the keys exceed the block");
            };
            let Ok(values_start) = u32::try_from(start as u64 + keys) else {
                return wrong(start, "the values start above 4 GiB");
            };
            self.values = values_start;
            let values = if fixed.1 { n * value_len } else { self.check_offsets(self.second as usize)? };
            if values != values_total {
                return wrong(start, "the values do not fill the block");
            }
        } else {
            let end = match fixed {
                (true, true) => n * (rest_len + value_len),
                _ => self.check_offsets(self.entry_offsets())?,
            };
            if end != total {
                return wrong(start, "the entries do not fill the block");
            }
            for i in (0..self.count()).filter(|_| fixed != (true, true)) {
                let inside = match fixed {
                    (true, _) => self.rest_len as usize,
                    (_, true) => self.value_len as usize,
                    _ => self.number(self.second as usize, i),
                };
                if inside > self.offset(i + 1) - self.offset(i) {
                    return wrong(self.entry_offsets(), "an entry is shorter than its parts");
                }
            }
        }
        if !self.all_visible() && (0..self.count()).any(|i| unpack_trailer(self.trailer(i)).is_none()) {
            return wrong(self.trailers(), "invalid trailer");
        }
        Ok(())
    }

    /// Verifies that a table of `count + 1` offsets starts at 0 and never decreases. Returns the last offset.
    fn check_offsets(&self, table: usize) -> Decoded<u64> {
        let mut last = 0;
        for i in 0..=self.count() {
            let next = self.number(table, i);
            if next < last || (i == 0 && next != 0) {
                return Err(DecodeError::new(table, format!("offset {i} out of order")));
            }
            last = next;
        }
        Ok(last as u64)
    }

    #[inline(always)]
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline(always)]
    fn width(&self) -> usize {
        if self.has(WIDE) { 4 } else { 2 }
    }

    /// Returns number `i` of a table of offsets or lengths.
    #[inline(always)]
    fn number(&self, table: usize, i: usize) -> usize {
        if self.has(WIDE) {
            let b = &self.bytes[table + 4 * i..][..4];
            u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize
        } else {
            let b = &self.bytes[table + 2 * i..][..2];
            u16::from_le_bytes([b[0], b[1]]) as usize
        }
    }

    /// Returns entry offset `i` of a block with offsets.
    #[inline(always)]
    fn offset(&self, i: usize) -> usize {
        self.number(self.entry_offsets(), i)
    }

    #[inline(always)]
    fn trailers(&self) -> usize {
        HEADER_BYTES + HEAD_BYTES * self.count()
    }

    #[inline(always)]
    fn entry_offsets(&self) -> usize {
        self.trailers() + if self.all_visible() { 0 } else { TRAILER_BYTES * self.count() }
    }

    /// Number of entries, at least 1.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// The bytes of the block.
    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The common prefix of all keys.
    #[inline(always)]
    pub(super) fn prefix(&self) -> &[u8] {
        &self.bytes[self.prefix as usize..self.entries as usize]
    }

    /// Returns whether all entries are puts of sequence number 0.
    #[inline(always)]
    pub(super) fn all_visible(&self) -> bool {
        self.has(ALL_VISIBLE)
    }

    #[inline(always)]
    fn heads(&self) -> &[[u8; 4]] {
        self.bytes[HEADER_BYTES..HEADER_BYTES + HEAD_BYTES * self.count()].as_chunks().0
    }

    #[inline(always)]
    fn trailer(&self, i: usize) -> u64 {
        let b = self.bytes[self.trailers() + TRAILER_BYTES * i..]
            .first_chunk()
            .expect("sstable_block.1: trailers lie inside");
        u64::from_le_bytes(*b)
    }

    /// Sequence number of entry `i`.
    #[inline(always)]
    pub(super) fn seq(&self, i: usize) -> SeqNo {
        if self.all_visible() { SeqNo::ZERO } else { SeqNo::new(self.trailer(i) >> 8) }
    }

    /// Kind of entry `i`.
    #[inline(always)]
    pub(super) fn kind(&self, i: usize) -> Kind {
        if self.all_visible() {
            return Kind::PUT;
        }
        Kind::from_u8(self.trailer(i) as u8).expect("sstable_block.1: each trailer means something")
    }

    #[inline(always)]
    fn rest_start(&self, i: usize) -> usize {
        let offset = match self.flags & (FIXED_KEYS | FIXED_VALUES | SPLIT) {
            s if s == FIXED_KEYS | FIXED_VALUES => (self.rest_len as usize + self.value_len as usize) * i,
            s if s & (FIXED_KEYS | SPLIT) == FIXED_KEYS | SPLIT => self.rest_len as usize * i,
            _ => self.offset(i),
        };
        self.entries as usize + offset
    }

    #[inline(always)]
    fn rest_len(&self, i: usize) -> usize {
        if self.has(FIXED_KEYS) {
            return self.rest_len as usize;
        }
        match (self.has(SPLIT), self.has(FIXED_VALUES)) {
            (true, _) => self.offset(i + 1) - self.offset(i),
            (false, true) => self.offset(i + 1) - self.offset(i) - self.value_len as usize,
            (false, false) => self.number(self.second as usize, i),
        }
    }

    /// The stored part of key `i`: after the prefix and, with [`HEADED`], after the head.
    #[inline(always)]
    fn rest(&self, i: usize) -> &[u8] {
        &self.bytes[self.rest_start(i)..][..self.rest_len(i)]
    }

    /// Returns the position of the value of entry `i` in the block.
    #[inline(always)]
    pub(super) fn value_range(&self, i: usize) -> std::ops::Range<usize> {
        let (values, second) = (self.values as usize, self.second as usize);
        let start = match (self.has(SPLIT), self.has(FIXED_VALUES)) {
            (false, _) => self.rest_start(i) + self.rest_len(i),
            (true, true) => values + self.value_len as usize * i,
            (true, false) => values + self.number(second, i),
        };
        let end = match (self.has(SPLIT), self.has(FIXED_VALUES)) {
            (_, true) => start + self.value_len as usize,
            (true, false) => values + self.number(second, i + 1),
            (false, false) => self.entries as usize + self.offset(i + 1),
        };
        start..end
    }

    /// Value of entry `i`.
    #[inline(always)]
    pub(super) fn value(&self, i: usize) -> &[u8] {
        &self.bytes[self.value_range(i)]
    }

    /// Prefetches what an iterator that starts at entry `i` reads first.
    #[inline(always)]
    pub(super) fn prefetch_walk(&self, i: usize, bytes: usize) {
        if i < self.count() {
            prefetch(self.bytes(), self.rest_start(i), bytes / 64);
        }
    }

    /// Prefetches as many bytes as entry `i` is long, at a distance of `bytes` after it.
    #[inline(always)]
    pub(super) fn prefetch_behind(&self, i: usize, bytes: usize) {
        let start = self.rest_start(i);
        let next = if i + 1 < self.count() { self.rest_start(i + 1) } else { start };
        prefetch(self.bytes(), start + bytes, (next - start).div_ceil(64).min(8));
    }

    /// Prefetches as many bytes as entry `i` is long, at a distance of `bytes` before it.
    #[inline(always)]
    pub(super) fn prefetch_before(&self, i: usize, bytes: usize) {
        let start = self.rest_start(i);
        let next = if i + 1 < self.count() { self.rest_start(i + 1) } else { start };
        prefetch(self.bytes(), start.saturating_sub(bytes), (next - start).div_ceil(64).min(8));
    }

    /// Returns key `i`.
    pub(super) fn key(&self, i: usize) -> Vec<u8> {
        let mut key = self.prefix().to_vec();
        self.push_suffix(i, &mut key);
        key
    }

    /// Returns the parts of key `i`: prefix, head (copied to `head` if the block stores it separately) and
    /// rest.
    #[inline(always)]
    pub(super) fn key_parts<'a>(&'a self, i: usize, head: &'a mut [u8; 4]) -> [&'a [u8]; 3] {
        if !self.has(HEADED) {
            return [self.prefix(), &[], self.rest(i)];
        }
        *head = u32::from_le_bytes(self.heads()[i]).to_be_bytes();
        [self.prefix(), head, self.rest(i)]
    }

    /// Appends key `i` without the prefix.
    #[inline(always)]
    pub(super) fn push_suffix(&self, i: usize, out: &mut Vec<u8>) {
        if self.has(HEADED) {
            let head = u32::from_le_bytes(self.heads()[i]);
            out.extend_from_slice(&head.to_be_bytes());
        }
        out.extend_from_slice(self.rest(i));
    }

    /// Returns whether entries `i` and `i + 1` are versions of one key.
    #[inline]
    pub(super) fn same_key_as_next(&self, i: usize) -> bool {
        !self.all_visible() && self.heads()[i] == self.heads()[i + 1] && self.rest(i) == self.rest(i + 1)
    }

    /// Returns whether the head of entry `i` matches its key.
    pub(super) fn head_fits(&self, i: usize) -> bool {
        self.has(HEADED) || u32::from_le_bytes(self.heads()[i]) == head4(self.rest(i))
    }

    /// Returns the first entry with a key `>= key`, and whether its key equals `key`.
    #[inline]
    pub(super) fn lower_bound(&self, key: &[u8], simd: Simd) -> (usize, bool) {
        let prefix = self.prefix();
        let Some(wanted) = key.strip_prefix(prefix) else {
            return if key < prefix { (0, false) } else { (self.count(), false) };
        };
        let head = head4(wanted);
        let heads = self.heads();
        let first = simd.heads_below(heads, head);
        if first == heads.len() || u32::from_le_bytes(heads[first]) != head {
            return (first, false);
        }
        if heads.get(first + 1) != Some(&heads[first]) {
            return match self.compare(first, wanted) {
                Ordering::Less => (first + 1, false),
                order => (first, order == Ordering::Equal),
            };
        }
        self.lower_bound_among_equal_heads(first, wanted, simd)
    }

    #[cold]
    fn lower_bound_among_equal_heads(&self, first: usize, wanted: &[u8], simd: Simd) -> (usize, bool) {
        let head = head4(wanted);
        let (mut low, mut high) = (
            first,
            match head.checked_add(1) {
                Some(above) => simd.heads_below(self.heads(), above),
                None => self.count(),
            },
        );
        let end = high;
        while low < high {
            let middle = low + (high - low) / 2;
            if self.compare(middle, wanted) == Ordering::Less { low = middle + 1 } else { high = middle }
        }
        (low, low < end && self.compare(low, wanted) == Ordering::Equal)
    }

    /// Compares key `i` with a key of the same prefix and head, both without the prefix.
    #[inline(always)]
    fn compare(&self, i: usize, wanted: &[u8]) -> Ordering {
        if !self.has(HEADED) {
            return self.rest(i).cmp(wanted);
        }
        match wanted.get(HEAD_BYTES..) {
            Some(wanted) => self.rest(i).cmp(wanted),
            // Padded with zeros, `wanted` has the head of key `i`, so it is a proper prefix of that key.
            None => Ordering::Greater,
        }
    }
}

// SAFETY: `parse` sets the bytes and nothing changes them; the memory of a `PageBuf` does not move with it.
unsafe impl SharedBytes for Block {
    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} entries, {} bytes, flags {:#x})", self.count, self.bytes.len(), self.flags)
    }
}

#[cfg(test)]
mod tests;
