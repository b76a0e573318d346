//! Windows of walks: fewer reads, no error for damage that the walk does not reach, limited memory.

use std::io::ErrorKind;

use esker_env::{FaultAction, FaultFs, FaultRule, OpKind};

use super::*;
use crate::cache::BudgetKind;
use crate::types::cursor::SourceCursor;

const BLOCKS: u8 = 60;
/// Too little for reads around a block, enough for windows of 32 KiB.
const MEMORY: u64 = 512 << 10;

fn table(compression: TableCompression) -> (FaultFs, Env, Vec<std::ops::Range<u64>>) {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let options = TableOptions { block_bytes: 4096, compression, ..TableOptions::default() };
    let entries: Vec<_> = (0..BLOCKS).map(|n| Entry::put(vec![b'k', n], 7, vec![n; 4000])).collect();
    write(&env, &options, &entries);
    let extents = extents(&open(&env, &cache(0)).unwrap());
    assert_eq!(extents.len(), usize::from(BLOCKS));
    (faults, env, extents)
}

#[test]
fn a_walk_reads_many_blocks_at_once_in_both_directions() {
    for fill in [false, true] {
        let (faults, env, _) = table(TableCompression::None);
        let (reads, cache) = (|| faults.count(OpKind::Read), cache(MEMORY));
        let table = open(&env, &cache).unwrap();
        let mut cursor = table.cursor(SeqNo::MAX, fill);
        let before = reads();
        cursor.seek_first().unwrap();
        assert_eq!(reads() - before, 1, "a walk may end after one block");
        for n in 0..BLOCKS {
            assert_eq!((cursor.key(), cursor.share().beside().to_vec()), (&[b'k', n][..], vec![n; 4000]));
            cursor.next().unwrap();
        }
        let forward = reads() - before;
        assert!((8..16).contains(&forward), "{forward} reads");
        let windows = cache.budget().reserved_bytes(BudgetKind::Window);
        assert!((1..=MEMORY / 16).contains(&windows), "{windows} bytes");
        cursor.seek_last().unwrap();
        (0..BLOCKS - 1).for_each(|_| cursor.prev().unwrap());
        assert_eq!(cursor.key(), [b'k', 0]);
        assert!(reads() - before - forward < 16, "{} reads backward", reads() - before - forward);
        drop(cursor);
        assert_eq!(cache.budget().reserved_bytes(BudgetKind::Window), 0);
        assert!(cache.used_bytes() <= MEMORY && (cache.used_bytes() > 0) == fill);
    }
}

#[test]
fn a_walk_meets_the_damage_that_it_reaches_and_no_other() {
    for (compression, fill) in [(TableCompression::None, true), (TableCompression::Lz4, false)] {
        let (faults, env, extents) = table(compression);
        let mut bytes = file_bytes(&env);
        bytes[extents[35].start as usize + 9] ^= 1;
        put_file(&env, &bytes);
        let failing = FaultRule::new(&[OpKind::Read], FaultAction::Fail(ErrorKind::Other));
        faults.add(failing.on_bytes(extents[40].start + 1..extents[40].start + 2).forever());
        let table = open(&env, &cache(MEMORY)).unwrap();
        let mut cursor = table.cursor(SeqNo::MAX, fill);
        let start = |error: crate::Error| match error {
            crate::Error::Corrupt { path, offset, .. } => {
                assert_eq!(path, Path::new(PATH));
                offset
            }
            error => panic!("{error}"),
        };
        let is_near = |offset| extents[35].contains(&offset);
        cursor.seek_first().unwrap();
        (0..34).for_each(|_| cursor.next().unwrap());
        assert!(is_near(start(cursor.next().unwrap_err())) && !cursor.valid());
        cursor.seek(&[b'k', 36]).unwrap();
        (36..39).for_each(|_| cursor.next().unwrap());
        assert!(matches!(cursor.next().unwrap_err(), crate::Error::Io { .. }));
        cursor.seek_last().unwrap();
        (41..BLOCKS - 1).for_each(|_| cursor.prev().unwrap());
        assert!(matches!(cursor.prev().unwrap_err(), crate::Error::Io { .. }));
        cursor.seek(&[b'k', 39]).unwrap();
        (36..39).for_each(|_| cursor.prev().unwrap());
        assert!(is_near(start(cursor.prev().unwrap_err())));
    }
}

#[test]
fn windows_of_many_walks_keep_to_their_part() {
    let (_, env, _) = table(TableCompression::None);
    let cache = cache(MEMORY);
    let table = open(&env, &cache).unwrap();
    let mut cursors: Vec<_> = (0..20).map(|_| table.cursor(SeqNo::MAX, true)).collect();
    for cursor in &mut cursors {
        cursor.seek_first().unwrap();
        (1..BLOCKS).for_each(|_| cursor.next().unwrap());
        assert!(cache.budget().reserved_bytes(BudgetKind::Window) <= MEMORY / 16);
    }
}
