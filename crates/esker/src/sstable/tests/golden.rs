//! The bytes of every version, read as ever, and those of the newest, written as ever.

use super::*;
use crate::encoding::checksum::crc32c;
use crate::types::range_tombstone::RangeTombstone;

/// A table of format version 1 with everything in it.
const VERSION_1: &str = "
    0200000004030000000000000000000000656c706f63697200000600110003000500016170706c657265647269636f74
    6f72616e6765006cc16a1702000000010700000000000000000000000000000000000001090000000000000004000000
    0000000000060006000162616e616e6179656c6c6f77006476bf7b010000002706000000000000040000007972726501
    626c756562626c756500783d1eed01020163020164010700dc33df480020400008000000000000002000100008000000
    00800000100020110000000000000004000001010000004000000000010012000000800400000000020020100600f963
    18310101037600800101624602626c003df6155c0504010126130009030006016170706c650002016400c533cb649e00
    0000000000000e00000000000000ac000000000000004600000000000000f20000000000000012000000000000000401
    0000000000001a0000000000000001000000c481f62365736b6572535354
";

/// The same of version 2.
const VERSION_2: &str = "
    0200000004030000000000000000000000656c706f63697200000600110003000500016170706c657265647269636f74
    6f72616e6765006cc16a1702000000010700000000000000000000000000000000000001090000000000000004000000
    0000000000060006000162616e616e6179656c6c6f77006476bf7b010000002706000000000000040000007972726501
    626c756562626c756500783d1eed01020163020164010700dc33df480020400008000000000000002000100008000000
    00800000100020110000000000000004000001010000004000000000010012000000800400000000020020100600f963
    18310101037600800101624602626c003df6155c0504010126130009030006016170706c65000201648afc30730076c9
    2bec9e000000000000000e00000000000000ac000000000000004600000000000000f200000000000000120000000000
    000004010000000000001e00000000000000020000003d58138465736b6572535354
";

/// The same of version 3.
const VERSION_3: &str = "
    0200000004030000000000000000000000656c706f63697200000600110003000500016170706c657265647269636f74
    6f72616e6765009d76d55b02000000010700000000000000000000000000000000000001090000000000000004000000
    0000000000060006000162616e616e6179656c6c6f77004b0d530c010000002706000000000000040000007972726501
    626c756562626c756500b15efaf2010201630201640107007adaa8920020400008000000000000002000100008000000
    00800000100020110000000000000004000001010000004000000000010012000000800400000000020020100600075d
    080e0101037600800101624602626c002061d92f0504010126130009030006016170706c6500020164b2f8c68200156c
    f3e69e000000000000000e00000000000000460000000000000012000000000000001e000000000000003ad1dc8d0000
    000000000000000000000000000000000000030000006ac3fd2065736b6572535354
";

/// The same of version 4; docs/formats/sstable.md takes it apart.
const VERSION_4: &str = "
    0200000004030000000000000000000000656c706f63697200000600110003000500016170706c657265647269636f74
    6f72616e6765009d76d55b02000000010700000000000000000000000000000000000001090000000000000004000000
    0000000000060006000162616e616e6179656c6c6f77004b0d530c010000002706000000000000040000007972726501
    626c756562626c756500b15efaf2010201630201640107007adaa8920020400008000000000000002000100008000000
    00800000100020110000000000000004000001010000004000000000010012000000800400000000020020100600075d
    080e0101037600800101624602626c002061d92f0504010126130009030006016170706c6500020164b2f8c68200156c
    f3e69e000000000000000e00000000000000460000000000000012000000000000001e000000000000003ad1dc8d0900
    000000000000000000000000000000000000040000006b00914365736b6572535354
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

#[test]
fn version_4_is_written_as_ever() {
    let env = memory();
    write_example(&env);
    let written = file_bytes(&env);
    let lines: Vec<_> = written.chunks(48).map(hex).collect();
    assert_eq!(written, unhex(VERSION_4), "\n{}", lines.join("\n"));
}

#[test]
fn every_version_is_read_as_ever() {
    let all = [(VERSION_1, false), (VERSION_2, true), (VERSION_3, true), (VERSION_4, true)];
    for (bytes, has_fingerprint) in all {
        let env = memory();
        put_file(&env, &unhex(bytes));
        let table = open(&env, &cache(1 << 20)).unwrap();
        table.verify().unwrap();
        let mut scan = table.scan();
        for entry in example() {
            assert_eq!(scan.next().unwrap(), Some(entry.borrowed()));
        }
        assert_eq!(scan.next().unwrap(), None);
        assert_eq!(table.range_tombstones().cover(b"\x01cherry", SeqNo::MAX), SeqNo::new(7));
        assert_eq!(table.properties().blocks, 3);
        assert_eq!(table.meta().fingerprint.is_some(), has_fingerprint);
        // Before version 4: the largest number in it.
        assert_eq!(table.newest_commit(), SeqNo::new(9));
        assert_eq!(stated_newest_commit(&env, Path::new(PATH)).unwrap(), Some(SeqNo::new(9)));
    }
}

#[test]
fn a_fingerprint_that_does_not_fit_its_version_or_its_parts_is_refused() {
    let bytes = unhex(VERSION_2);
    let footer = bytes.len() - 80;
    let seal = |part: &mut [u8]| {
        let (covered, stored) = part.split_last_chunk_mut::<4>().unwrap();
        *stored = crc32c(covered).to_le_bytes();
    };
    let env = memory();
    // Version 1, and yet a fingerprint.
    let mut older = bytes.clone();
    older[footer + 64] = 1;
    seal(&mut older[footer..footer + 72]);
    put_file(&env, &older);
    let error = open(&env, &cache(1 << 20)).unwrap_err().to_string();
    assert!(error.contains("a fingerprint in a table of version 1"), "{error}");
    // Another fingerprint: the table can be read, and a check tells.
    let mut other = bytes;
    other[footer - 6] ^= 1;
    seal(&mut other[260..footer]);
    put_file(&env, &other);
    let error = open(&env, &cache(1 << 20)).unwrap().verify().unwrap_err().to_string();
    assert!(error.contains("add up to fingerprint"), "{error}");
}
