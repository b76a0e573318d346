//! Damaged tables: the lost content is reported with its position.

use std::io::ErrorKind;

use esker_env::{FaultAction, FaultFs, FaultRule, OpKind};

use super::*;
use crate::sstable::footer::FOOTER_BYTES;
use crate::types::range_tombstone::RangeTombstone;

/// Writes a table of 40 entries and a range tombstone over other keys.
fn table(env: &Env) {
    let options =
        TableOptions { compression: TableCompression::None, block_bytes: 200, ..TableOptions::default() };
    let mut writer = TableWriter::create(env, Path::new(PATH), options).unwrap();
    (0..40).for_each(|n| writer.add(Entry::put([0, n], 7, [n; 30]).borrowed()).unwrap());
    writer.add_range_tombstone(&RangeTombstone { start: vec![1], end: vec![2], seq: SeqNo::new(9) });
    writer.finish(None).unwrap();
}

#[test]
fn a_table_without_footer_or_index_is_lost_and_reported() {
    let env = memory();
    table(&env);
    let bytes = file_bytes(&env);
    let len = bytes.len() as u64;
    let parts = SalvageTable::open(&env, Path::new(PATH)).unwrap().parts();
    let part = |wanted| parts.iter().find(|(name, _)| *name == wanted).unwrap().1.clone();
    let (blocks, all) = (0..part("range tombstones").start, LostContent::Keys(None, None));
    let cases = [
        ("footer", 0..len, all.clone(), 0),
        ("index", blocks, all.clone(), 1),
        ("range tombstones", part("range tombstones"), all, 0),
        ("properties", part("properties"), LostContent::Nothing, 1),
        ("filter", part("filter"), LostContent::Nothing, 1),
    ];
    for (damaged, lost, content, tombstones) in cases {
        let mut bytes = bytes.clone();
        bytes[part(damaged).end as usize - 1] ^= 1;
        put_file(&env, &bytes);
        let found = SalvageTable::open(&env, Path::new(PATH)).unwrap();
        let damage: Vec<_> = found.damage.iter().map(|d| (d.start, d.bytes, d.lost.clone())).collect();
        assert_eq!(damage, [(lost.start, lost.end - lost.start, content)], "{damaged}");
        assert_eq!(found.tombstones.fragments().len(), tombstones, "{damaged}");
        let mut scan = found.scan();
        let entries = std::iter::from_fn(|| scan.advance().then_some(())).count();
        let is_lost = damaged == "footer" || damaged == "index";
        assert_eq!(entries, if is_lost { 0 } else { 40 }, "{damaged}");
    }
}

#[test]
fn what_cannot_be_read_is_reported_with_its_place() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    table(&env);
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
    let failed = opened
        .block_of_walk(&index(&opened), 2, &mut WalkWindow::new(false), &pin)
        .err()
        .expect("it cannot be read");
    let mut scan = sound.scan();
    while scan.advance() {}
    faults.clear();
    faults.add(fails(footer + 1));
    let mut found = SalvageTable::open(&env, Path::new(PATH)).unwrap();
    let (of_block, of_footer) = (scan.damage.remove(0), found.damage.remove(0));
    assert_eq!(
        (of_block.start, of_footer.start),
        (block.start, 0),
        "all of the table is lost with its footer"
    );
    for (error, at) in [(failed, block.start), (of_block.error, block.start), (of_footer.error, footer)] {
        let text = error.to_string();
        assert!(text.contains("injected fault") && text.contains(&format!(" at offset {at})")), "{text}");
        let crate::Error::Io { source, .. } = error else { panic!("{text}") };
        assert_eq!(source.kind(), ErrorKind::PermissionDenied);
    }
}
