//! Estimated sizes and split points, with data in memtables, tables and blob files.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::ops::Bound;
use std::sync::Arc;

use esker::{Builder, Db, Keyspace};
use esker_env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};

use crate::common::dir;

fn simulated() -> Env {
    Env::simulated(Arc::new(MemFs::new()), 1)
}

fn stepped(env: &Env) -> Builder {
    Db::builder().stepped().env(env.clone())
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Puts random values, which do not compress.
fn fill(map: &Keyspace, keys: impl Iterator<Item = u64>, value_bytes: usize) {
    let mut rng = fastrand::Rng::with_seed(7);
    for n in keys {
        let value: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(value_bytes).collect();
        map.put(key(n), value).unwrap();
    }
}

/// Cuts into parts and returns the smallest and the largest number of entries of a part.
fn extremes(map: &Keyspace, parts: usize) -> (usize, usize) {
    let points = map.split_points(.., parts).unwrap();
    assert_eq!(points.len(), parts - 1);
    assert!(points.is_sorted_by(|a, b| a < b));
    let starts = std::iter::once(Bound::Unbounded).chain(points.iter().map(Bound::Included));
    let ends = points.iter().map(Bound::Excluded).chain([Bound::Unbounded]);
    let counts: Vec<_> = starts.zip(ends).map(|part| map.range(part).count()).collect();
    assert_eq!(counts.iter().sum::<usize>() as u64, map.len().unwrap());
    (*counts.iter().min().unwrap(), *counts.iter().max().unwrap())
}

fn is_near(bytes: u64, expected: u64) -> bool {
    bytes.abs_diff(expected) * 10 <= expected
}

#[test]
fn ranges_have_sizes_wherever_their_entries_are() {
    let db = stepped(&simulated()).open(dir()).unwrap();
    let (map, other) = (db.keyspace("map").unwrap(), db.keyspace("other").unwrap());
    let size = |map: &Keyspace, from: u64, to: u64| map.approximate_size(key(from)..key(to)).unwrap();
    assert_eq!(map.approximate_size(..).unwrap(), 0);
    assert!(map.split_points(.., 4).unwrap().is_empty());
    fill(&map, 0..20_000, 100);
    let in_memtable = map.approximate_size(..).unwrap();
    assert!((20_000 * 108..20_000 * 200).contains(&in_memtable), "{in_memtable}");
    assert!((in_memtable / 6..in_memtable / 3).contains(&size(&map, 5000, 10_000)));
    fill(&other, 0..20_000, 100);
    db.flush().unwrap();
    for db_is_compact in [false, true] {
        if db_is_compact {
            db.compact().unwrap();
        }
        let all = map.approximate_size(..).unwrap();
        assert!(is_near(all, 20_000 * 112), "{all}");
        assert!(is_near(size(&map, 5000, 10_000), all / 4));
        assert_eq!(size(&map, 20_000, 30_000), 0);
        assert_eq!(map.approximate_size(key(9)..key(5)).unwrap(), 0);
        assert!(map.split_points(key(9)..key(5), 3).unwrap().is_empty());
        // A second version of each key of half of the range, in a memtable.
        fill(&map, 0..10_000, 100);
        assert!(size(&map, 0, 10_000) > size(&map, 10_000, 20_000) * 2);
        db.flush().unwrap();
        assert!(is_near(size(&map, 0, 10_000), size(&map, 10_000, 20_000) * 2));
    }
    db.drop_keyspace("map").unwrap();
    assert!(matches!(map.approximate_size(..), Err(esker::Error::KeyspaceNotFound(_))));
}

#[test]
fn values_in_blob_files_count() {
    let db = stepped(&simulated())
        .tuning(|t| t.block_bytes(256))
        .blobs(esker::Blobs::From(1000))
        .open(dir())
        .unwrap();
    let map = db.default_keyspace();
    fill(&map, 0..1000, 5000);
    let halves = || [map.approximate_size(..key(500)).unwrap(), map.approximate_size(key(500)..).unwrap()];
    let in_memtable: u64 = halves().iter().sum();
    assert!(is_near(in_memtable, 1000 * 5050), "{in_memtable}");
    db.compact().unwrap();
    assert!(halves().iter().all(|bytes| is_near(*bytes, 500 * 5020)), "{:?}", halves());
}

#[test]
fn parts_are_about_equal_wherever_the_entries_are() {
    let db = stepped(&simulated()).tuning(|t| t.memtable_bytes(1 << 20)).open(dir()).unwrap();
    let (map, other) = (db.keyspace("map").unwrap(), db.keyspace("other").unwrap());
    fill(&other, 0..10_000, 50);
    let random = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    fill(&map, (0..3000).map(random), 100);
    let is_even = |parts: usize| {
        let (least, most) = extremes(&map, parts);
        assert!(most < least * 2, "{parts} parts: {least} to {most}");
    };
    is_even(8);
    fill(&map, (3000..20_000).map(random), 100);
    for parts in [1, 2, 3, 8, 40] {
        is_even(parts);
    }
    db.compact().unwrap();
    for parts in [1, 2, 3, 8, 40] {
        is_even(parts);
    }
    // Many more parts than blocks: as many as there are.
    let points = map.split_points(.., usize::MAX).unwrap();
    assert!((100..5000).contains(&points.len()), "{}", points.len());
    let some = map.split_points(key(1 << 62)..key(1 << 63), 4).unwrap();
    assert!(
        some.len() == 3 && some.iter().all(|point| **point > key(1 << 62)[..] && **point < key(1 << 63)[..])
    );
}

#[test]
fn split_points_lie_inside_a_range_that_ends_between_blocks() {
    let db = stepped(&simulated()).tuning(|t| t.block_bytes(64)).open(dir()).unwrap();
    let (map, next) = (db.keyspace("map").unwrap(), db.keyspace("next").unwrap());
    fill(&map, 0..400, 60);
    fill(&next, 0..400, 60);
    db.compact().unwrap();
    // The keys of the next keyspace begin with a block.
    let points = map.split_points(.., 300).unwrap();
    assert!(points.len() > 290 && points.is_sorted_by(|a, b| a < b), "{points:?}");
    for end in 390..400 {
        let points = map.split_points(key(10)..key(end), usize::MAX).unwrap();
        assert!(
            points.len() > 300 && points.iter().all(|point| **point > key(10)[..] && **point < key(end)[..])
        );
    }
}

#[test]
fn a_table_that_cannot_be_read_is_an_error() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let db = stepped(&env).open(dir()).unwrap();
    fill(&db.default_keyspace(), 0..1000, 100);
    db.compact().unwrap();
    db.close().unwrap();
    let db = stepped(&env).open(dir()).unwrap();
    let map = db.default_keyspace();
    let failure = FaultAction::Fail(std::io::ErrorKind::Other);
    faults.add(FaultRule::new(&[OpKind::Open, OpKind::Read], failure).on_path(".sst").forever());
    assert!(map.approximate_size(..).is_ok(), "the manifest knows the size of a whole table");
    assert!(matches!(map.approximate_size(key(10)..), Err(esker::Error::Io { .. })));
    assert!(map.split_points(.., 3).is_err());
}
