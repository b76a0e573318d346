//! Tests of blocks: layouts, searches, damage.

use super::super::block_builder::BlockBuilder;
use super::*;
use crate::types::entry::EntryRef;

fn build(entries: &[(&[u8], u64, &[u8])], split_values_over: usize) -> Block {
    let all = entries.iter().map(|&(key, seq, value)| EntryRef {
        key,
        seq: SeqNo::new(seq),
        kind: Kind::PUT,
        value,
    });
    let mut builder = BlockBuilder::default();
    let mut bytes = Vec::new();
    all.clone().for_each(|entry| builder.add(&entry));
    builder.finish(split_values_over, &mut bytes);
    if let (Some(last), before @ 1..) = (all.clone().next_back(), entries.len() - 1) {
        all.take(before).for_each(|entry| builder.add(&entry));
        let fits = |size| builder.has_room(&last, split_values_over, size);
        assert_eq!((fits(bytes.len() - 1), fits(bytes.len())), (false, true));
    }
    Block::parse(PageBuf::copy_of(&bytes)).unwrap()
}

#[test]
fn layouts_are_as_small_as_the_entries_allow() {
    // 16 bytes of header and 4 per head. Of "abcd1" only "d1" follows the prefix "abc", too short to be
    // stored as a head only.
    let uniform = build(&[(b"abcd1", 0, b"v"), (b"abce2", 0, b"w")], 256);
    assert_eq!(uniform.bytes().len(), 16 + 2 * 4 + 3 + 2 * (2 + 1));
    let headed = build(&[(b"abcd1234", 0, b"v"), (b"abce1234", 0, b"w")], 256);
    assert_eq!(headed.bytes().len(), 16 + 2 * 4 + 3 + 2 * (1 + 1));
    let versions = build(&[(b"abcd1234", 7, b"v"), (b"abce1234", 0, b"w")], 256);
    assert_eq!(versions.bytes().len(), headed.bytes().len() + 2 * 8);
    let values = build(&[(b"abcd1234", 0, b"v"), (b"abce1234", 0, b"")], 256);
    assert_eq!(values.bytes().len(), headed.bytes().len() - 1 + 3 * 2);
    let single = build(&[(b"abcd1234", 0, b"v")], 256);
    assert_eq!(single.bytes().len(), 16 + 4 + 4 + 1);
    assert_eq!(single.lower_bound(b"abcd1234", Simd::detect()), (0, true));
}

#[test]
fn short_keys_and_padded_heads_are_distinguished() {
    let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0\0\0", b"\0\0\0\0\0", b"a", b"a\0", b"a\0\0\0\0"];
    let entries: Vec<_> = keys.iter().map(|&k| (k, 0, k)).collect();
    for split_values_over in [0, 256] {
        let block = build(&entries, split_values_over);
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(block.lower_bound(key, Simd::detect()), (i, true));
            assert_eq!(block.value(i), *key);
        }
        assert_eq!(block.lower_bound(b"\0\0", Simd::detect()), (2, false));
        assert_eq!(block.lower_bound(b"b", Simd::detect()), (7, false));
    }
}

#[test]
fn large_blocks_use_wide_offsets() {
    let values = [vec![1; 40_000], vec![2; 40_001], vec![3; 5]];
    for split_values_over in [0, 1 << 20] {
        let block =
            build(&[(b"a", 0, &values[0]), (b"bb", 1, &values[1]), (b"c", 2, &values[2])], split_values_over);
        for (i, value) in values.iter().enumerate() {
            assert_eq!((block.value(i), block.seq(i).get()), (&value[..], i as u64));
        }
    }
}

/// Sequence numbers that do not fit in four bytes, up to the largest.
#[test]
fn large_numbers_come_back_whole_with_their_kinds() {
    let numbers = [SeqNo::MAX.get(), 1 << 40, (1 << 32) + 7, 1 << 32];
    for n in numbers {
        for kind in [Kind::REMOVE, Kind::PUT] {
            let trailer = pack_trailer(SeqNo::new(n), kind);
            assert_eq!(unpack_trailer(trailer), Some((SeqNo::new(n), kind)), "{n:#x}");
        }
    }
    for split_values_over in [0, 256] {
        let block = build(&numbers.map(|n| (&b"key"[..], n, &b"value"[..])), split_values_over);
        for (i, n) in numbers.into_iter().enumerate() {
            assert_eq!((block.seq(i).get(), block.kind(i)), (n, Kind::PUT), "{n:#x}");
        }
    }
}
