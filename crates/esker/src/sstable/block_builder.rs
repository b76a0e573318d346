//! Builds the bytes of a data block, and knows before each entry how large the block would become.
//!
//! ```text
//!   add(entry) ... --> keys, values, trailers --finish--> the smallest layout of block.rs for these entries
//! ```
//!
//! `has_room` is exact, so that the writer ends blocks exactly at the desired size. The common prefix, which
//! is that of the first and the last key, is looked for only where the size depends on it.
//!
//! A block of two or more entries has fewer than 2^32 bytes; a larger entry gets a block of its own.

use super::block::{
    ALL_VISIBLE, FIXED_KEYS, FIXED_VALUES, HEAD_BYTES, HEADED, HEADER_BYTES, SPLIT, TRAILER_BYTES, WIDE,
    pack_trailer,
};
use crate::types::SeqNo;
use crate::types::entry::EntryRef;
use crate::types::key::{common_prefix_len, head4};

/// Collects the entries of one block.
#[derive(Default)]
pub(super) struct BlockBuilder {
    keys: Vec<u8>,
    values: Vec<u8>,
    spans: Vec<Span>,
    trailers: Vec<u64>,
    shape: Shape,
}

/// Ends of the key and the value of an entry in the buffers of the builder.
#[derive(Clone, Copy, Default)]
struct Span {
    key_end: usize,
    value_end: usize,
}

/// Everything that determines the size of a block, except the common prefix of its keys.
#[derive(Clone, Copy, Default)]
struct Shape {
    count: usize,
    key_len_min: usize,
    key_len_max: usize,
    value_len_min: usize,
    value_len_max: usize,
    key_bytes: usize,
    value_bytes: usize,
    some_hidden: bool,
}

impl Shape {
    #[inline(always)]
    fn with(mut self, entry: &EntryRef<'_>) -> Self {
        let (key_len, value_len) = (entry.key.len(), entry.value.len());
        if self.count == 0 {
            (self.key_len_min, self.value_len_min) = (key_len, value_len);
        }
        self.count += 1;
        self.key_len_min = self.key_len_min.min(key_len);
        self.key_len_max = self.key_len_max.max(key_len);
        self.value_len_min = self.value_len_min.min(value_len);
        self.value_len_max = self.value_len_max.max(value_len);
        self.key_bytes += key_len;
        self.value_bytes += value_len;
        self.some_hidden |= !entry.kind.is_plain() || entry.seq != SeqNo::ZERO;
        self
    }

    /// Returns the length of the stored prefix. A single key keeps 4 bytes for its head.
    fn stored_prefix(&self, first_key: &[u8], last_key: &[u8]) -> usize {
        if self.count == 1 {
            first_key.len().saturating_sub(HEAD_BYTES)
        } else {
            common_prefix_len(first_key, last_key)
        }
    }

    fn is_wide(&self) -> bool {
        self.key_bytes + self.value_bytes > usize::from(u16::MAX)
    }

    fn flags(&self, stored_prefix: usize, split_values_over: usize) -> u8 {
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        flag(self.key_len_min == self.key_len_max, FIXED_KEYS)
            | flag(self.value_len_min == self.value_len_max, FIXED_VALUES)
            | flag(!self.some_hidden, ALL_VISIBLE)
            | flag(self.value_bytes / self.count > split_values_over, SPLIT)
            | flag(self.key_len_min >= stored_prefix + HEAD_BYTES, HEADED)
            | flag(self.is_wide(), WIDE)
    }

    /// Returns a size that no block of this shape exceeds, whatever the prefix.
    fn size_max(&self) -> usize {
        let fixed = [self.key_len_min == self.key_len_max, self.value_len_min == self.value_len_max];
        let tables = fixed.into_iter().filter(|is_fixed| !is_fixed).count();
        HEADER_BYTES
            + self.count * (HEAD_BYTES + if self.some_hidden { TRAILER_BYTES } else { 0 })
            + tables * (self.count + 1) * if self.is_wide() { 4 } else { 2 }
            + self.key_bytes
            + self.value_bytes
    }

    fn size(&self, stored_prefix: usize, flags: u8) -> usize {
        let width = if flags & WIDE != 0 { 4 } else { 2 };
        let (fixed_keys, fixed_values) = (flags & FIXED_KEYS != 0, flags & FIXED_VALUES != 0);
        let tables = if flags & SPLIT != 0 {
            (usize::from(!fixed_keys) + usize::from(!fixed_values)) * (self.count + 1)
        } else {
            let offsets = if fixed_keys && fixed_values { 0 } else { self.count + 1 };
            offsets + if fixed_keys || fixed_values { 0 } else { self.count }
        };
        let trailers = if flags & ALL_VISIBLE != 0 { 0 } else { self.count * TRAILER_BYTES };
        HEADER_BYTES + self.count * HEAD_BYTES + trailers + tables * width + stored_prefix + self.key_bytes
            - self.count * skipped(stored_prefix, flags)
            + self.value_bytes
    }
}

/// Returns the number of bytes of each key that are not stored with the entry.
fn skipped(stored_prefix: usize, flags: u8) -> usize {
    stored_prefix + if flags & HEADED != 0 { HEAD_BYTES } else { 0 }
}

impl BlockBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    fn key(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.spans[i - 1].key_end };
        &self.keys[start..self.spans[i].key_end]
    }

    fn value(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.spans[i - 1].value_end };
        &self.values[start..self.spans[i].value_end]
    }

    /// Approximate bytes of the current block.
    pub(super) fn data_bytes(&self) -> u64 {
        (self.keys.len() + self.values.len() + self.spans.len() * HEAD_BYTES) as u64
    }

    /// Returns whether the block has at most `bytes` with this entry added. It has entries.
    #[inline]
    pub(super) fn has_room(&self, entry: &EntryRef<'_>, split_values_over: usize, bytes: usize) -> bool {
        let shape = self.shape.with(entry);
        shape.size_max() <= bytes || {
            let prefix = shape.stored_prefix(self.key(0), entry.key);
            shape.size(prefix, shape.flags(prefix, split_values_over)) <= bytes
        }
    }

    /// Adds an entry, which must follow the previous one in order.
    #[inline]
    pub(super) fn add(&mut self, entry: &EntryRef<'_>) {
        self.shape = self.shape.with(entry);
        self.keys.extend_from_slice(entry.key);
        self.values.extend_from_slice(entry.value);
        self.spans.push(Span { key_end: self.keys.len(), value_end: self.values.len() });
        self.trailers.push(pack_trailer(entry.seq, entry.kind));
    }

    /// Replaces `out` by the bytes of the block and starts the next block.
    pub(super) fn finish(&mut self, split_values_over: usize, out: &mut Vec<u8>) {
        assert!(!self.is_empty(), "sstable_block.1: a block has an entry");
        let shape = self.shape;
        let prefix_len = shape.stored_prefix(self.key(0), self.key(shape.count - 1));
        let flags = shape.flags(prefix_len, split_values_over);
        let size = shape.size(prefix_len, flags);
        assert!(shape.count == 1 || size <= u32::MAX as usize, "a block of several entries is below 4 GiB");
        out.clear();
        out.reserve_exact(size);
        let skipped = skipped(prefix_len, flags);
        let fixed_or_zero = |flag: u8, len: usize| if flags & flag != 0 { len as u32 } else { 0 };
        for number in [
            shape.count as u32,
            (prefix_len as u32) << 8 | u32::from(flags),
            fixed_or_zero(FIXED_KEYS, shape.key_len_max - skipped.min(shape.key_len_max)),
            fixed_or_zero(FIXED_VALUES, shape.value_len_max),
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let all = 0..shape.count;
        for i in all.clone() {
            out.extend_from_slice(&head4(&self.key(i)[prefix_len..]).to_le_bytes());
        }
        if flags & ALL_VISIBLE == 0 {
            self.trailers.iter().for_each(|t| out.extend_from_slice(&t.to_le_bytes()));
        }
        self.push_tables(flags, skipped, out);
        out.extend_from_slice(&self.key(0)[..prefix_len]);
        if flags & SPLIT != 0 {
            all.for_each(|i| out.extend_from_slice(&self.key(i)[skipped..]));
            out.extend_from_slice(&self.values);
        } else {
            for i in all {
                out.extend_from_slice(&self.key(i)[skipped..]);
                out.extend_from_slice(self.value(i));
            }
        }
        assert!(out.len() == size);
        self.keys.clear();
        self.values.clear();
        self.spans.clear();
        self.trailers.clear();
        self.shape = Shape::default();
    }

    fn push_tables(&self, flags: u8, skipped: usize, out: &mut Vec<u8>) {
        let all = 0..self.shape.count;
        let push = |out: &mut Vec<u8>, number: usize| {
            let bytes = (number as u32).to_le_bytes();
            out.extend_from_slice(&bytes[..if flags & WIDE != 0 { 4 } else { 2 }]);
        };
        let mut push_offsets = |lens: &mut dyn Iterator<Item = usize>| {
            let mut offset = 0;
            push(out, 0);
            for len in lens {
                offset += len;
                push(out, offset);
            }
        };
        let rest_len = |i: usize| self.key(i).len() - skipped;
        let (fixed_keys, fixed_values) = (flags & FIXED_KEYS != 0, flags & FIXED_VALUES != 0);
        if flags & SPLIT != 0 {
            if !fixed_keys {
                push_offsets(&mut all.clone().map(rest_len));
            }
            if !fixed_values {
                push_offsets(&mut all.map(|i| self.value(i).len()));
            }
            return;
        }
        if !fixed_keys || !fixed_values {
            push_offsets(&mut all.clone().map(|i| rest_len(i) + self.value(i).len()));
        }
        if !fixed_keys && !fixed_values {
            all.for_each(|i| push(out, rest_len(i)));
        }
    }
}
