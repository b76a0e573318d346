//! Tables that have lost their footer: what a part is follows from its place, and nothing is forgotten in silence.

use std::io::ErrorKind;

use esker_env::{FaultAction, FaultFs, FaultRule, OpKind};

use super::*;
use crate::sstable::footer::FOOTER_BYTES;
use crate::sstable::index::Index;
use crate::sstable::properties::{Properties, encode_tombstones};
use crate::types::range_tombstone::{RangeTombstone, RangeTombstones};

/// Range tombstones whose stored form can be read as that of another part.
fn of_two_meanings() -> Vec<RangeTombstone> {
    let number = |keyspace: u8, n: u64| [&[keyspace][..], &n.to_be_bytes()].concat();
    let short = |keyspace: u8, n: u32| [&[keyspace][..], &n.to_be_bytes()].concat();
    let one = |start: Vec<u8>, end: Vec<u8>, seq| RangeTombstone { start, end, seq: SeqNo::new(seq) };
    let all = vec![
        one(number(1, 6), number(1, 9), 100),
        one(number(1, 7), number(1, 200), 300),
        one(short(1, 0), short(1, 256), 20_000),
        one(short(2, 266), short(2, 512), 20_000),
    ];
    for tombstone in &all {
        let mut bytes = Vec::new();
        encode_tombstones(&RangeTombstones::new([tombstone.clone()]), &mut bytes);
        let other = Properties::decode(&bytes).is_ok() || Index::decode(&bytes).is_ok();
        assert!(other, "{tombstone:?} has one meaning");
    }
    all
}

/// A table of so many entries, which the range tombstone does not touch.
fn table(env: &Env, entries: u8, tombstone: &RangeTombstone) {
    let options =
        TableOptions { compression: TableCompression::None, block_bytes: 200, ..TableOptions::default() };
    let mut writer = TableWriter::create(env, Path::new(PATH), options).unwrap();
    (0..entries).for_each(|n| writer.add(Entry::put([0, n], 7, [n; 30]).borrowed()).unwrap());
    writer.add_range_tombstone(tombstone);
    writer.finish(None).unwrap();
}

/// Damages a byte.
fn flip(env: &Env, at: usize) {
    let mut bytes = file_bytes(env);
    bytes[at] ^= 1;
    put_file(env, &bytes);
}

fn loses_tombstones(table: &SalvageTable) -> bool {
    table.damage.iter().any(|damage| damage.lost == LostContent::RangeTombstones)
}

#[test]
fn search_4_range_tombstones_without_a_footer_are_those_that_were_written() {
    for tombstone in of_two_meanings() {
        for entries in [0, 1, 40] {
            let env = memory();
            table(&env, entries, &tombstone);
            flip(&env, file_bytes(&env).len() - 1);
            let found = SalvageTable::open(&env, Path::new(PATH)).unwrap();
            let expected = RangeTombstones::new([tombstone.clone()]);
            assert_eq!(found.tombstones, expected, "search.4: {entries} entries");
            assert!(!loses_tombstones(&found), "search.4: {tombstone:?}: {:?}", found.damage);
            let properties = found.properties.as_ref().expect("search.4: they are sound");
            assert_eq!(
                (properties.counts.entries, properties.counts.range_tombstones),
                (u64::from(entries), 1),
                "search.4"
            );
            assert_eq!(found.found_entries, Some(u64::from(entries)), "search.4");
        }
    }
}

#[test]
fn a_table_of_range_tombstones_alone_is_found_too() {
    let env = memory();
    table(&env, 0, &of_two_meanings()[0]);
    let mut bytes = file_bytes(&env);
    let footer = bytes.len() - FOOTER_BYTES;
    bytes[footer..].fill(0);
    put_file(&env, &bytes);
    let found = SalvageTable::open(&env, Path::new(PATH)).unwrap();
    assert_eq!(found.tombstones.fragments().len(), 1);
    assert!(!loses_tombstones(&found), "{:?}", found.damage);
}

/// A table of 1 MiB whose entries have kept their numbers, around 100,000; the extents of its blocks.
fn table_of_numbers(env: &Env) -> Vec<std::ops::Range<u64>> {
    let key = |n: u64| [&[1][..], &n.to_be_bytes()].concat();
    let entries: Vec<_> = (0..20_000).map(|n| Entry::put(key(n), 100_000 + n, [b'v'; 40])).collect();
    let options = TableOptions { compression: TableCompression::None, ..TableOptions::default() };
    write(env, &options, &entries);
    let table = SalvageTable::open(env, Path::new(PATH)).unwrap();
    assert!(table.damage.is_empty() && table.blocks() > 100);
    (0..table.blocks()).map(|number| table.extent(number)).collect()
}

#[test]
fn search_6_one_damaged_block_does_not_cost_those_behind_it() {
    let env = memory();
    let mut extents = table_of_numbers(&env);
    flip(&env, extents[5].start as usize + 20);
    flip(&env, file_bytes(&env).len() - 1);
    let found = SalvageTable::open(&env, Path::new(PATH)).unwrap();
    let gap = extents.remove(5);
    let blocks: Vec<_> = (0..found.blocks()).map(|number| found.extent(number)).collect();
    assert!(blocks == extents, "search.6: {} of {} blocks", blocks.len(), extents.len());
    assert_eq!(found.damage.len(), 2, "search.6: the footer, and the block: {:?}", found.damage);
    assert_eq!((found.damage[1].start, found.damage[1].bytes), (gap.start, gap.end - gap.start), "search.6");
}

#[test]
fn nothing_is_missing_if_the_blocks_end_where_the_footer_says() {
    let env = memory();
    let extents = table_of_numbers(&env);
    let parts = SalvageTable::open(&env, Path::new(PATH)).unwrap().parts();
    let index = &parts.iter().find(|(name, _)| *name == "index").unwrap().1;
    flip(&env, index.end as usize - 1);
    let found = SalvageTable::open(&env, Path::new(PATH)).unwrap();
    assert_eq!((found.blocks(), found.found_entries), (extents.len(), Some(20_000)));
    let damage: Vec<_> = found.damage.iter().map(|damage| (damage.start, &damage.lost)).collect();
    assert_eq!(damage, [(index.start, &LostContent::Nothing)], "{:?}", found.damage);
    // The last block missing is a gap.
    flip(&env, extents[extents.len() - 1].end as usize - 1);
    let found = SalvageTable::open(&env, Path::new(PATH)).unwrap();
    assert!(found.blocks() == extents.len() - 1 && found.damage.len() > 1, "{:?}", found.damage);
}

#[test]
fn what_cannot_be_read_is_told_with_its_place() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    table(&env, 40, &of_two_meanings()[0]);
    let footer = (file_bytes(&env).len() - FOOTER_BYTES) as u64;
    let sound = SalvageTable::open(&env, Path::new(PATH)).unwrap();
    let opened = open(&env, &cache(0)).unwrap();
    let block = sound.extent(2);
    let fails = |at: u64| {
        let fails = FaultRule::new(&[OpKind::Read], FaultAction::Fail(ErrorKind::PermissionDenied));
        fails.on_bytes(at..at + 1).forever()
    };
    faults.add(fails(block.start + 1));
    let pin = crate::cache::pin();
    let failed = opened.block(2, false, &pin).err().expect("it cannot be read");
    let mut scan = sound.scan();
    while scan.advance() {}
    faults.clear();
    faults.add(fails(footer + 1));
    let mut found = SalvageTable::open(&env, Path::new(PATH)).unwrap();
    let (of_block, of_footer) = (scan.damage.remove(0), found.damage.remove(0));
    assert_eq!((of_block.start, of_footer.start), (block.start, footer));
    for (error, at) in [(failed, block.start), (of_block.error, block.start), (of_footer.error, footer)] {
        let text = error.to_string();
        assert!(text.contains("injected fault") && text.contains(&format!(" at offset {at})")), "{text}");
        let crate::Error::Io { source, .. } = error else { panic!("{text}") };
        assert_eq!(source.kind(), ErrorKind::PermissionDenied);
    }
}

#[test]
fn an_index_ends_the_damage_of_the_last_block() {
    for entries in [5, 250] {
        let env = memory();
        let key = |n: u64| [&[1][..], &n.to_be_bytes()].concat();
        let entries: Vec<_> = (0..entries).map(|n| Entry::put(key(n), n + 1, b"")).collect();
        let options =
            TableOptions { compression: TableCompression::None, block_bytes: 200, ..TableOptions::default() };
        write(&env, &options, &entries);
        let sound = SalvageTable::open(&env, Path::new(PATH)).unwrap();
        let index = sound.parts().into_iter().find(|(name, _)| *name == "index").unwrap().1;
        flip(&env, sound.extent(sound.blocks() - 1).end as usize - 1);
        flip(&env, file_bytes(&env).len() - 1);
        let found = SalvageTable::open(&env, Path::new(PATH)).unwrap();
        assert_eq!(found.properties, sound.properties, "they stand behind the index");
        let ends = found.damage.iter().filter(|damage| damage.start < index.start);
        assert!(ends.clone().all(|damage| damage.start + damage.bytes <= index.start), "{:?}", found.damage);
        assert!(ends.count() > 0 && loses_tombstones(&found), "{:?}", found.damage);
    }
}
