//! Golden tests: the bytes of a table never change.

use super::*;
use crate::encoding::Compression;
use crate::sstable::SalvageTable;
use crate::sstable::stored::{Salt, TRAILER_BYTES, trailer};
use crate::types::range_tombstone::RangeTombstone;

/// A table with all kinds of content; docs/formats/sstable.md explains its bytes.
const VERSION_1: &str = "
    0200000004030000000000000000000000656c706f63697200000600110003000500016170706c657265647269636f74
    6f72616e6765009d76d55b02000000010700000000000000000000000000000000000001090000000000000004000000
    0000000000060006000162616e616e6179656c6c6f77004b0d530c010000002706000000000000040000007972726501
    626c756562626c756500b15efaf2010201630201640107007adaa8920020400008000000000000002000100008000000
    00800000100020110000000000000004000001010000004000000000010012000000800400000000020020100600075d
    080e0101037600800101624602626c002061d92f0504010126130009030006016170706c6500020164b2f8c68200156c
    f3e69e000000000000000e00000000000000460000000000000012000000000000001e000000000000003ad1dc8d0900
    00000000000000000000000000000000000001000000209bf6e565736b6572535354
";

/// A table of five blocks with an index of three pages.
const VERSION_1_PAGES: &str = "
    01000000270200000000000003000000656c707001617265640015c99c2a01000000230300000000000006000000616e
    616e010900000000000001626179656c6c6f770097bcf00501000000230300000000000006000000616e616e01080000
    0000000001626179656c6c6f7700e983f19301000000230300000000000006000000616e616e01070000000000000162
    6179656c6c6f7700bd81fe4d010000002706000000000000040000007972726501626c756562626c756500d794552900
    023c0054020162002375368a0002540055070162616e616e61005f72732b000146000075261b100101031a0025066261
    6e616e611202626c0502485423001f7733b60503000025190009050006016170706c65010a01626c75656265727279fb
    fc2f0700efa32d13bf00000000000000000000000000000000000000000000001b000000000000002600000000000000
    3ad1dc8d0900000000000000000000002800000000000000010000005913d8a865736b6572535354
";

fn example() -> Vec<Entry> {
    vec![
        Entry::put("\u{1}apple", 0, "red"),
        Entry::put("\u{1}apricot", 0, "orange"),
        Entry::put("\u{1}banana", 9, "yellow"),
        Entry::tombstone("\u{1}banana", 4),
        Entry::put("\u{1}blueberry", 0, "blue"),
    ]
}

fn write_example(env: &Env) -> TableMeta {
    let options = TableOptions {
        block_bytes: 64,
        compression: TableCompression::None,
        filter_bits_per_key: 10,
        split_values_over: 256,
        direct_io: false,
        page_blocks: 64,
    };
    let mut writer = TableWriter::create(env, Path::new(PATH), options).unwrap();
    example().iter().for_each(|e| writer.add(e.borrowed()).unwrap());
    writer.add_range_tombstone(&RangeTombstone {
        start: b"\x01c".to_vec(),
        end: b"\x01d".to_vec(),
        seq: SeqNo::new(7),
    });
    writer.finish(None).unwrap()
}

/// Versions of one key start the second page.
fn paged_example() -> Vec<Entry> {
    let versions = [9, 8, 7].map(|seq| Entry::put("\u{1}banana", seq, "yellow"));
    let mut entries = vec![Entry::put("\u{1}apple", 0, "red"), Entry::put("\u{1}blueberry", 0, "blue")];
    entries.extend(versions);
    sort(&mut entries);
    entries
}

fn write_paged_example(env: &Env) -> TableMeta {
    let options = TableOptions {
        block_bytes: 1,
        compression: TableCompression::None,
        filter_bits_per_key: 0,
        split_values_over: 256,
        direct_io: false,
        page_blocks: 2,
    };
    write(env, &options, &paged_example())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

#[test]
fn tables_are_written_as_ever() {
    let env = memory();
    write_example(&env);
    let written = file_bytes(&env);
    let lines: Vec<_> = written.chunks(48).map(hex).collect();
    assert_eq!(written, unhex(VERSION_1), "\n{}", lines.join("\n"));
}

#[test]
fn tables_are_read_as_ever() {
    let env = memory();
    put_file(&env, &unhex(VERSION_1));
    let table = open(&env, &cache(1 << 20)).unwrap();
    table.verify().unwrap();
    let mut scan = table.scan();
    for entry in example() {
        assert_eq!(scan.next().unwrap(), Some(entry.borrowed()));
    }
    assert_eq!(scan.next().unwrap(), None);
    assert_eq!(table.range_tombstones().cover(b"\x01cherry", SeqNo::MAX), SeqNo::new(7));
    assert_eq!(table.properties().blocks, 3);
    assert_eq!(table.newest_commit().unwrap(), SeqNo::new(9));
    assert_eq!(stated_newest_commit(&env, Path::new(PATH)).unwrap(), Some(SeqNo::new(9)));
}

#[test]
fn tables_with_pages_are_written_and_read_as_ever() {
    let env = memory();
    write_paged_example(&env);
    let written = file_bytes(&env);
    let lines: Vec<_> = written.chunks(48).map(hex).collect();
    assert_eq!(written, unhex(VERSION_1_PAGES), "\n{}", lines.join("\n"));
    let table = open(&env, &cache(1 << 20)).unwrap();
    table.verify().unwrap();
    let mut scan = table.scan();
    for entry in paged_example() {
        assert_eq!(scan.next().unwrap(), Some(entry.borrowed()));
    }
    assert_eq!((scan.next().unwrap(), table.properties().blocks), (None, 5));
}

#[test]
fn a_fingerprint_that_does_not_fit_its_parts_is_reported_by_a_check() {
    let mut bytes = unhex(VERSION_1);
    let env = memory();
    put_file(&env, &bytes);
    let parts = SalvageTable::open(&env, Path::new(PATH)).unwrap().parts();
    let properties = &parts.iter().find(|(name, _)| *name == "properties").unwrap().1;
    let (start, end) = (properties.start as usize, properties.end as usize - TRAILER_BYTES);
    bytes[end - 1] ^= 1;
    let salt = Salt::of_file(Path::new(PATH));
    let sealed = trailer(&bytes[start..end], Compression::None, salt, properties.start);
    bytes[end..end + TRAILER_BYTES].copy_from_slice(&sealed);
    put_file(&env, &bytes);
    let error = open(&env, &cache(1 << 20)).unwrap().verify().unwrap_err().to_string();
    assert!(error.contains("add up to fingerprint"), "{error}");
}
