//! Tests of maps without a database.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::AtomicBool;

use esker_env::{Env, MemFs};

use super::*;
use crate::sstable::{Reader, TableOptions};

type Model = BTreeMap<Vec<u8>, Entry>;

fn key(rng: &mut fastrand::Rng) -> Vec<u8> {
    vec![rng.u8(..9); rng.usize(..6)]
}

fn bound(rng: &mut fastrand::Rng) -> Bound<Vec<u8>> {
    [Bound::Included(key(rng)), Bound::Excluded(key(rng)), Bound::Unbounded][rng.usize(..3)].clone()
}

fn in_range(model: &Model, bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<(Vec<u8>, Entry)> {
    let inside = model.iter().filter(|(key, _)| std::ops::RangeBounds::contains(bounds, *key));
    inside.map(|(key, entry)| (key.clone(), entry.clone())).collect()
}

/// Takes items from both ends in random order, and returns them in order.
fn from_both_ends<T>(rng: &mut fastrand::Rng, mut items: impl DoubleEndedIterator<Item = T>) -> Vec<T> {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let is_front = rng.bool();
        let Some(item) = (if is_front { items.next() } else { items.next_back() }) else { break };
        if is_front { front.push(item) } else { back.push(item) }
    }
    assert!(items.next().is_none() && items.next_back().is_none());
    front.extend(back.into_iter().rev());
    front
}

#[test]
fn maps_and_their_tables_agree_with_a_model() {
    for seed in 0..if cfg!(miri) { 3 } else { 200 } {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (map, mut model) = (Map::new(), Model::new());
        assert!(map.is_empty());
        let mut old = None;
        for n in 0..rng.usize(..200) {
            let key = key(&mut rng);
            if rng.u32(..3) == 0 {
                map.delete(&key).unwrap();
                model.insert(key, Entry::Deleted);
            } else {
                let value = vec![rng.u8(..); rng.usize(..40)];
                map.put(&key, &value).unwrap();
                model.insert(key, Entry::Value(value.into()));
            }
            if n == 50 {
                let bounds = (bound(&mut rng), bound(&mut rng));
                old = Some((map.entries(&bounds), in_range(&model, &bounds)));
            }
        }
        if let Some((entries, expected)) = old {
            assert_eq!(from_both_ends(&mut rng, entries), expected, "seed {seed}: as of the call");
        }
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let options = TableOptions { block_bytes: 100, ..TableOptions::default() };
        map.flush_to(Writer::create_in(&env, "t.sst", options).unwrap()).unwrap();
        let table = Reader::open_in(&env, "t.sst", 1 << 20).unwrap();
        table.verify().unwrap();
        for _ in 0..20 {
            let (key, bounds) = (key(&mut rng), (bound(&mut rng), bound(&mut rng)));
            let entry = model.get(&key).cloned();
            assert_eq!(map.entry(&key), entry);
            assert_eq!(table.entry(&key).unwrap(), entry);
            let value = entry.and_then(Entry::into_value);
            assert_eq!(table.contains(&key).unwrap(), value.is_some());
            assert_eq!((map.get(&key), table.get(&key).unwrap()), (value.clone(), value));
            let expected = in_range(&model, &bounds);
            assert_eq!(from_both_ends(&mut rng, map.entries(&bounds)), expected, "seed {seed}: {bounds:?}");
            let entries = table.entries(&bounds).map(Result::unwrap);
            assert_eq!(from_both_ends(&mut rng, entries), expected, "seed {seed}: {bounds:?}");
            let live: Vec<_> =
                expected.into_iter().filter_map(|(k, entry)| Some((k, entry.into_value()?))).collect();
            let range = table.range(&bounds).map(Result::unwrap);
            assert_eq!(from_both_ends(&mut rng, range), live, "seed {seed}: {bounds:?}");
        }
    }
}

#[test]
fn readers_see_whole_writes_in_order_while_a_thread_writes() {
    let (map, done) = (Map::new(), AtomicBool::new(false));
    let writes = if cfg!(miri) { 50 } else { 20_000_u64 };
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let mut seen = 0;
                while !done.load(Ordering::Acquire) {
                    let number = |value: &[u8]| u64::from_be_bytes(value.try_into().unwrap());
                    // `a` is written before `b`, so an older iterator never shows a newer `b`.
                    let shown: Vec<u64> = map
                        .entries(..)
                        .filter_map(|(_, entry)| entry.into_value())
                        .map(|value| number(&value))
                        .collect();
                    assert!(matches!(shown[..], [] | [_]) || shown[0] - shown[1] <= 1, "{shown:?}");
                    let newest = map.get(b"b").map_or(0, |value| number(&value));
                    assert!(newest >= seen);
                    seen = newest;
                }
            });
        }
        for n in 1..=writes {
            map.put(b"a", &n.to_be_bytes()).unwrap();
            map.put(b"b", &n.to_be_bytes()).unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert!(map.size_bytes() > 0);
    let too_long = vec![0; KEY_BYTES_MAX + 1];
    assert!(matches!(map.delete(&too_long), Err(Error::KeyTooLong { .. })));
}
