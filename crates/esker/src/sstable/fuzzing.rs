//! Entries for fuzzers: each decoder of bytes from disk, on any bytes. None may panic.

use super::block::Block;
use super::block_search::Simd;
use super::footer::{FOOTER_BYTES, Footer};
use super::index::Index;
use super::properties::{Properties, decode_tombstones};
use super::stored;
use crate::encoding::bloom::BlockedBloom;

/// A data block: if it is taken, everything in it can be read and searched.
pub fn block(bytes: &[u8]) {
    let Ok(block) = Block::parse(bytes.to_vec()) else { return };
    let mut key = Vec::new();
    for i in 0..block.count() {
        key.clear();
        key.extend_from_slice(block.prefix());
        block.push_suffix(i, &mut key);
        let _ = (block.seq(i), block.kind(i), block.value(i), block.head_fits(i));
        let _ = i + 1 < block.count() && block.same_key_as_next(i);
        let (place, found) = block.lower_bound(&key, Simd::detect());
        assert!(place <= block.count() && (!found || place < block.count()));
    }
}

/// The stored form of a block or part.
pub fn stored_part(bytes: &[u8]) {
    let _ = stored::open(bytes.to_vec());
}

/// An index: if it is taken, it can be searched.
pub fn index(bytes: &[u8]) {
    let Ok(index) = Index::decode(bytes) else { return };
    for block in 0..index.len() {
        let (prefix, suffix) = index.separator(block);
        let found = index.find(&[prefix, suffix].concat());
        assert!(found < index.len() && index.extent(found).end <= index.blocks_end());
    }
    index.find(bytes);
}

/// A footer.
pub fn footer(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<FOOTER_BYTES>() {
        let _ = Footer::decode(bytes, FOOTER_BYTES as u64);
    }
}

/// Properties, range tombstones, filter: the rest of a table.
pub fn other_parts(bytes: &[u8]) {
    let _ = Properties::decode(bytes);
    let _ = decode_tombstones(bytes);
    if let Ok(filter) = BlockedBloom::decode(bytes) {
        filter.may_contain(bytes.len() as u64);
    }
}
