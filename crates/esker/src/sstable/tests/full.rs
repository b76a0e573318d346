//! Tests of tables with the largest possible index.

use super::model::{check_gets, check_scan};
use super::*;
use crate::encoding::bytes::ByteReader;
use crate::sstable::footer::Footer;
use crate::sstable::index::{Index, PagePosition};
use crate::sstable::stored::PartOpener;

#[test]
fn what_the_index_has_no_room_for_is_refused_and_the_rest_can_be_read() {
    let rooms =
        [(1, u64::MAX), (7, u64::MAX), (u64::MAX, 0), (u64::MAX, 30), (u64::MAX, 31), (3, 1_000), (70, 100)];
    for (blocks, separator_bytes) in rooms {
        let room = IndexLimits { blocks, separator_bytes };
        for versions in [1, 5] {
            let env = memory();
            let options = TableOptions { block_bytes: 100, ..TableOptions::default() };
            let mut writer = TableWriter::create(&env, Path::new(PATH), options).unwrap();
            writer.limit_index(room);
            let mut added = Vec::new();
            let all =
                (0..2_000_u16).flat_map(|n| (0..versions).rev().map(move |seq| (n / 3 * 3 % 251, n, seq)));
            let refused = all.into_iter().find_map(|(pad, n, seq)| {
                let key = [&n.to_be_bytes()[..], &vec![7; usize::from(pad)]].concat();
                let entry = Entry::put(key, seq, "value");
                let outcome = writer.add(entry.borrowed());
                added.extend(outcome.is_ok().then_some(entry));
                outcome.err()
            });
            let said = refused.expect("the table is full").to_string();
            assert!(said.contains("the table is full") && !added.is_empty(), "{said}");
            assert_eq!(writer.entries(), added.len() as u64);
            assert_eq!(writer.finish(None).unwrap().counts.entries, added.len() as u64);
            let table = open(&env, &cache(1 << 20)).unwrap();
            table.verify().unwrap();
            assert!(table.properties().blocks <= blocks);
            let mut rng = fastrand::Rng::with_seed(1);
            check_scan(&mut rng, &table, &added);
            check_gets(&mut rng, &table, &added, 9);
            // A reader with the same limits reads it too.
            let file = env.fs.open(Path::new(PATH), esker_env::OpenOptions::read()).unwrap();
            let bytes = esker_env::read_range(&*file, 0, file.len().unwrap() as usize).unwrap();
            let footer = Footer::decode(bytes.last_chunk().unwrap(), bytes.len() as u64).unwrap();
            let stored = &bytes[footer.index.start as usize..footer.index.end as usize];
            let opener = PartOpener { salt: footer.salt, ..PartOpener::default() };
            let index = opener.open(stored, footer.index.start).unwrap();
            let mut reader = ByteReader::new(&index);
            Index::decode_within(&mut reader, PagePosition::default(), room)
                .expect("the writer stays within the limits");
        }
    }
}
