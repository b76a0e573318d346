//! `TableCompression::Auto`, and blocks larger than the maximum that is compressed.

use super::*;
use crate::encoding::Compression;
use crate::sstable::stored::COMPRESSED_BYTES_MAX;

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> EntryRef<'a> {
    EntryRef { key, seq: SeqNo::new(7), kind: Kind::PUT, value }
}

#[test]
fn blocks_wait_for_the_codec_only_up_to_a_number_of_bytes() {
    let env = memory();
    let mut value = vec![0_u8; COMPRESSED_BYTES_MAX / 8 * 3];
    fastrand::Rng::with_seed(6).fill(&mut value);
    let mut writer = TableWriter::create(&env, Path::new(PATH), TableOptions::default()).unwrap();
    // Each value is a block of its own, which ends when the next one is added.
    (0..4_u8).for_each(|n| writer.add(put(&[n], &value)).unwrap());
    let written = env.fs.file_size(Path::new(PATH)).unwrap();
    assert!(written > COMPRESSED_BYTES_MAX as u64, "{written} bytes are written, the others wait");
    writer.finish(None).unwrap();
    open(&env, &cache(0)).unwrap().verify().unwrap();
}

#[test]
fn a_block_too_large_to_be_compressed_says_nothing_about_others() {
    let large = vec![0_u8; COMPRESSED_BYTES_MAX + 1];
    let small = b"words and words ".repeat(20);
    for small_before in [0_u8, 20, 30] {
        let env = memory();
        let mut writer = TableWriter::create(&env, Path::new(PATH), TableOptions::default()).unwrap();
        (0..small_before).for_each(|n| writer.add(put(&[1, n], &small)).unwrap());
        writer.add(put(&[2], &large)).unwrap();
        (0..200_u8).for_each(|n| writer.add(put(&[3, n], &small)).unwrap());
        let meta = writer.finish(None).unwrap();
        let table = open(&env, &cache(0)).unwrap();
        table.verify().unwrap();
        assert_eq!(table.properties().compression, Compression::Lz4, "{small_before} before it");
        let others = meta.file_bytes - large.len() as u64;
        assert!(others < 200 * small.len() as u64 / 2, "{small_before} before it: {others} bytes");
    }
}
