//! Tests of the public table API.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use esker_env::{Env, FaultAction, FaultFs, FaultRule, MemFs, OpKind};

use super::*;
use crate::sstable::{TableCompression, TableOptions};
use crate::{Error, Result};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn memory() -> Env {
    Env::simulated(Arc::new(MemFs::new()), 1)
}

fn table(env: &Env, path: &str, map: &Map) -> Reader {
    let options = TableOptions { block_bytes: 100, ..TableOptions::default() };
    let mut writer = Writer::create_in(env, path, options).unwrap();
    map.iter().for_each(|(k, v)| writer.put(k, v).unwrap());
    assert_eq!(writer.len(), map.len() as u64);
    writer.finish().unwrap();
    Reader::open_in(env, path, 1 << 20).unwrap()
}

fn random_map(rng: &mut fastrand::Rng) -> Map {
    (0..rng.usize(..120))
        .map(|_| (vec![rng.u8(..9); rng.usize(..6)], vec![rng.u8(..); rng.usize(..40)]))
        .collect()
}

fn pairs(range: impl Iterator<Item = Result<(Vec<u8>, crate::Value)>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    range.map(|entry| entry.map(|(k, v)| (k, v.to_vec())).unwrap()).collect()
}

fn random_bound(rng: &mut fastrand::Rng) -> Bound<Vec<u8>> {
    let key = vec![rng.u8(..9); rng.usize(..6)];
    [Bound::Included(key.clone()), Bound::Excluded(key), Bound::Unbounded][rng.usize(..3)].clone()
}

#[test]
fn a_small_cache_keeps_the_root_of_a_table_with_pages() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let options = TableOptions { block_bytes: 100, page_blocks: 3, ..TableOptions::default() };
    let mut writer = Writer::create_in(&env, "t.sst", options).unwrap();
    let key = |n: u16| [&n.to_be_bytes()[..], &[7; 200], &n.to_be_bytes()].concat();
    let twins = |n: u16| [key(n), [&key(n)[..], b"x"].concat()];
    (0..400).flat_map(twins).for_each(|key| writer.put(&key, &[8; 90]).unwrap());
    writer.finish().unwrap();
    let reader = Reader::open_in(&env, "t.sst", 0).unwrap();
    let before = faults.read_bytes();
    (0..400).for_each(|n| assert!(reader.get(&key(n)).unwrap().is_some()));
    let each = (faults.read_bytes() - before) / 400;
    assert!(each < 2000, "a get reads {each} bytes");
}

#[test]
fn ranges_from_both_ends_agree_with_a_map() {
    for seed in 0..150 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let map = random_map(&mut rng);
        let reader = table(&memory(), "t.sst", &map);
        assert_eq!(reader.len(), map.len() as u64);
        assert_eq!(pairs(reader.iter()), map.clone().into_iter().collect::<Vec<_>>());
        for (key, value) in &map {
            assert_eq!(reader.get(key).unwrap().unwrap(), value);
            assert!(reader.contains(key).unwrap());
        }
        assert!(!reader.contains(b"absent").unwrap());
        for _ in 0..40 {
            let bounds = (random_bound(&mut rng), random_bound(&mut rng));
            let inside = |key: &[u8]| {
                (match &bounds.0 {
                    Bound::Included(low) => key >= &low[..],
                    Bound::Excluded(low) => key > &low[..],
                    Bound::Unbounded => true,
                }) && match &bounds.1 {
                    Bound::Included(high) => key <= &high[..],
                    Bound::Excluded(high) => key < &high[..],
                    Bound::Unbounded => true,
                }
            };
            let expected: Vec<_> = map.clone().into_iter().filter(|(k, _)| inside(k)).collect();
            assert_eq!(pairs(reader.range(bounds.clone())), expected, "{bounds:?}");
            let mut range = reader.range(bounds);
            let (mut front, mut back) = (Vec::new(), Vec::new());
            loop {
                let (next, end) =
                    if rng.bool() { (range.next(), &mut front) } else { (range.next_back(), &mut back) };
                let Some(entry) = next else { break };
                end.push(entry.map(|(k, v)| (k, v.to_vec())).unwrap());
            }
            back.reverse();
            assert_eq!([front, back].concat(), expected);
            assert!(range.next().is_none() && range.next_back().is_none());
        }
    }
}

#[test]
fn a_merge_reduces_values_newest_first() {
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let env = memory();
        let maps: Vec<Map> = (0..rng.usize(..5)).map(|_| random_map(&mut rng)).collect();
        let readers: Vec<_> =
            maps.iter().enumerate().map(|(i, m)| table(&env, &format!("{i}.sst"), m)).collect();
        let mut writer = Writer::create_in(&env, "merged.sst", TableOptions::default()).unwrap();
        merge(&readers, &mut writer, |key, values| (key.len() != 3).then(|| values.concat())).unwrap();
        writer.finish().unwrap();
        let mut expected = Map::new();
        for (key, value) in maps.iter().flatten().filter(|(key, _)| key.len() != 3) {
            expected.entry(key.clone()).or_default().extend(value);
        }
        let merged = Reader::open_in(&env, "merged.sst", 0).unwrap();
        assert_eq!(pairs(merged.iter()), expected.into_iter().collect::<Vec<_>>());
        merged.verify().unwrap();
    }
}

#[test]
fn one_long_key_does_not_make_a_table_look_large() {
    let env = memory();
    let options =
        TableOptions { block_bytes: 512, compression: TableCompression::None, ..TableOptions::default() };
    let mut writer = Writer::create_in(&env, "t.sst", options).unwrap();
    for i in 0..2000 {
        writer.put(format!("{i:06}").as_bytes(), &[7; 100]).unwrap();
    }
    // Adjacent keys that differ only at their ends, in separate blocks: their separators in the index are
    // equally long.
    for end in ["a", "b", "c"] {
        writer.put(format!("9{}{end}", "x".repeat(20_000)).as_bytes(), &[7; 1000]).unwrap();
    }
    let estimated = writer.estimated_bytes();
    let bytes = writer.finish().unwrap();
    assert!((bytes / 2..bytes * 3 / 2).contains(&estimated), "{estimated}, {bytes}");
}

#[test]
fn a_dropped_writer_leaves_no_file() {
    let env = memory();
    let mut writer = Writer::create_in(&env, "t.sst", TableOptions::default()).unwrap();
    writer.put(b"a", b"1").unwrap();
    assert!(matches!(writer.put(b"a", b"2"), Err(Error::OutOfOrder(_))));
    assert!(matches!(writer.put(&[0; 65_536], b""), Err(Error::KeyTooLong { len: 65_536 })));
    assert!(writer.estimated_bytes() > 0 && !writer.is_empty());
    drop(writer);
    assert!(!env.fs.exists(Path::new("t.sst")).unwrap());
}

#[test]
fn a_writer_that_cannot_finish_leaves_no_file() {
    let fail = FaultAction::Fail(std::io::ErrorKind::Other);
    // With `Open`, fails the second open: a direct file is opened a second time, for reading.
    for kind in [OpKind::Write, OpKind::SyncData, OpKind::SyncDir, OpKind::Open] {
        let faulty = FaultFs::new(Arc::new(MemFs::new()));
        let env = Env::simulated(Arc::new(faulty.clone()), 1);
        let write = || {
            let options = TableOptions { direct_io: kind == OpKind::Open, ..TableOptions::default() };
            let mut writer = Writer::create_in(&env, "t.sst", options)?;
            writer.put(b"a", b"1")?;
            writer.finish()
        };
        faulty.add(FaultRule::new(&[kind], fail));
        assert!(matches!(write(), Err(Error::Io { .. })), "{kind:?}");
        assert!(!env.fs.exists(Path::new("t.sst")).unwrap(), "{kind:?}");
        write().unwrap();
        assert_eq!(Reader::open_in(&env, "t.sst", 0).unwrap().get(b"a").unwrap().unwrap(), b"1");
    }
}

#[test]
fn a_table_is_finished_in_a_directory_that_may_not_be_read() {
    let faulty = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faulty.clone()), 1);
    let denied = FaultAction::Fail(std::io::ErrorKind::PermissionDenied);
    faulty.add(FaultRule::new(&[OpKind::SyncDir], denied).forever());
    let mut writer = Writer::create_in(&env, "t.sst", TableOptions::default()).unwrap();
    writer.put(b"a", b"1").unwrap();
    writer.finish().unwrap();
    assert!(faulty.fired() > 0, "the directory was to be synced");
    assert_eq!(Reader::open_in(&env, "t.sst", 0).unwrap().get(b"a").unwrap().unwrap(), b"1");
}

#[test]
fn a_finished_table_survives_a_power_loss() {
    let fs = MemFs::new();
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let mut writer = Writer::create_in(&env, "t.sst", TableOptions::default()).unwrap();
    writer.put(b"a", b"1").unwrap();
    writer.finish().unwrap();
    let env = Env::simulated(Arc::new(fs.crash_strict()), 1);
    assert_eq!(Reader::open_in(&env, "t.sst", 0).unwrap().get(b"a").unwrap().unwrap(), b"1");
}

#[test]
fn metadata_says_what_is_inside() {
    let map: Map = (0..50u8).map(|n| (vec![n], vec![n; 10])).collect();
    let reader = table(&memory(), "t.sst", &map);
    let metadata = reader.metadata();
    assert_eq!((metadata.keys, metadata.key_bytes, metadata.value_bytes), (50, 50, 500));
    assert_eq!(metadata.key_range, Some((vec![0], vec![49])));
    let empty = table(&memory(), "t.sst", &Map::new());
    assert!(empty.is_empty() && empty.metadata().key_range.is_none() && empty.iter().next().is_none());
}

#[test]
fn tables_of_a_database_with_removals_are_not_merged() {
    let fs = Arc::new(MemFs::new());
    let env = Env::simulated(fs.clone(), 1);
    let dir = Path::new("db");
    let db = crate::Db::builder().background(false).env(env.clone()).open(dir).unwrap();
    let map = db.default_keyspace();
    let tables = || -> Vec<Reader> {
        let names = esker_env::Fs::list_dir(&*fs, dir).unwrap();
        let tables = names.iter().filter(|name| name.ends_with(".sst"));
        tables.map(|name| Reader::open_in(&env, dir.join(name), 1 << 20).unwrap()).collect()
    };
    let merged = |name: &str, tables: &[Reader]| {
        let mut writer = Writer::create_in(&env, name, TableOptions::default()).unwrap();
        merge(tables, &mut writer, |_, values| Some(values[0].to_vec()))?;
        writer.finish()
    };
    map.put("a", "1").unwrap();
    db.flush().unwrap();
    let put = tables();
    map.delete("a").unwrap();
    db.flush().unwrap();
    let both = tables();
    assert_eq!((put.len(), both.len()), (1, 2));
    assert!(matches!(merged("both.sst", &both), Err(Error::Invalid(_))));
    let removal: Vec<_> = both.into_iter().filter(Reader::has_removals_of_database).collect();
    assert_eq!(removal.len(), 1);
    merged("put.sst", &put).unwrap();
    merged("removal.sst", &removal).unwrap();
}

#[test]
fn tombstones_hide_values_of_older_tables_in_a_merge() {
    for seed in 0..100 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (env, mut model) = (memory(), Map::new());
        let mut tables = Vec::new();
        for n in 0..3 {
            let name = format!("{n}.sst");
            let mut writer = Writer::create_in(&env, &name, TableOptions::default()).unwrap();
            for key in 0..20_u8 {
                match rng.u32(..4) {
                    0 => {
                        writer.delete(&[key]).unwrap();
                        model.remove(&vec![key]);
                    }
                    1 => {
                        writer.put(&[key], &[n]).unwrap();
                        model.insert(vec![key], vec![n]);
                    }
                    _ => {}
                }
            }
            writer.finish().unwrap();
            tables.insert(0, Reader::open_in(&env, &name, 1 << 20).unwrap());
        }
        let mut writer = Writer::create_in(&env, "merged.sst", TableOptions::default()).unwrap();
        merge(&tables, &mut writer, |_, values| Some(values[0].to_vec())).unwrap();
        writer.finish().unwrap();
        let merged = Reader::open_in(&env, "merged.sst", 1 << 20).unwrap();
        assert_eq!(pairs(merged.iter()), model.into_iter().collect::<Vec<_>>(), "seed {seed}");
        assert!(merged.entries(..).all(|entry| entry.unwrap().1 != crate::types::Entry::Deleted));
    }
}
