//! Many keys at once: from memory, and from the disk with several threads.

use esker::{Blobs, Db};

fn small(dir: &std::path::Path) -> Db {
    let builder = Db::builder().memory(1 << 20).tuning(|t| t.block_bytes(512).table_bytes(64 << 10));
    builder.blobs(Blobs::From(1000)).open(dir).expect("it opens")
}

fn key(n: u32) -> String {
    format!("key {n:05}")
}

#[test]
fn many_1_many_3_answers_stand_in_the_order_of_the_keys_wherever_they_come_from() {
    let dir = tempfile::tempdir().unwrap();
    // Twice as much as the memory, which leaves none for blocks.
    let db = small(dir.path());
    let map = db.default_keyspace();
    let value = |n: u32| vec![n as u8; if n.is_multiple_of(50) { 3000 } else { 300 }];
    let mut batch = db.batch();
    (0..6000).for_each(|n| batch.put(&map, key(n), value(n)).unwrap());
    batch.commit().unwrap();
    map.delete_range(key(1000)..key(1100)).unwrap();
    map.put(key(1050), "new").unwrap();
    db.flush().unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    for count in [0, 1, 3, 9, 700] {
        let keys: Vec<_> = (0..count).map(|_| key(rng.u32(..7000))).collect();
        let one_by_one: Vec<_> = keys.iter().map(|key| map.get(key).unwrap()).collect();
        assert_eq!(map.multi_get(&keys).unwrap(), one_by_one, "{count} keys");
        assert_eq!(db.snapshot().multi_get(&map, &keys).unwrap(), one_by_one);
        let mut t = db.begin();
        keys.iter().step_by(3).for_each(|key| t.put(&map, key, "own").unwrap());
        keys.iter().skip(1).step_by(5).for_each(|key| t.delete(&map, key).unwrap());
        let one_by_one: Vec<_> = keys.iter().map(|key| t.get(&map, key).unwrap()).collect();
        assert_eq!(t.multi_get(&map, &keys).unwrap(), one_by_one, "{count}");
    }
}

#[test]
fn values_beyond_the_limit_are_left_for_the_next_call() {
    let dir = tempfile::tempdir().unwrap();
    let db = small(dir.path());
    let map = db.default_keyspace();
    for n in 0..2000 {
        map.put(key(n), vec![n as u8; 2000]).unwrap();
    }
    db.flush().unwrap();
    let mut t = db.begin();
    (0..2000).step_by(3).for_each(|n| t.put(&map, key(n), vec![1; 2000]).unwrap());
    let snapshot = db.snapshot();
    let mut rng = fastrand::Rng::with_seed(8);
    // Half of them are absent.
    let keys: Vec<_> = (0..400).map(|_| key(rng.u32(..4000))).collect();
    for bytes_max in [0, 1, 10_000, 100_000, usize::MAX] {
        type Read<'a> = &'a dyn Fn(&[String]) -> Vec<Option<esker::Value>>;
        let reads: [Read<'_>; 3] = [
            &|keys| map.multi_get_within(keys, bytes_max).unwrap(),
            &|keys| snapshot.multi_get_within(&map, keys, bytes_max).unwrap(),
            &|keys| t.multi_get_within(&map, keys, bytes_max).unwrap(),
        ];
        for (which, read) in reads.into_iter().enumerate() {
            let (mut all, mut calls) = (Vec::new(), 0);
            while all.len() < keys.len() {
                let some = read(&keys[all.len()..]);
                assert!(!some.is_empty());
                // Each of sixteen threads may hold a value when the limit is reached.
                let bytes: usize = some.iter().flatten().map(|value| value.len()).sum();
                assert!(bytes <= bytes_max.saturating_add(17 * 2000), "{which}: {bytes} of {bytes_max}");
                all.extend(some);
                calls += 1;
            }
            let whole = if which == 2 { t.multi_get(&map, &keys) } else { map.multi_get(&keys) };
            assert_eq!(all, whole.unwrap(), "{which}: {bytes_max}");
            assert_eq!(calls == 1, bytes_max == usize::MAX, "{which}: {bytes_max}");
        }
    }
}

#[test]
fn what_a_transaction_looks_up_with_others_conflicts_like_any_other_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    let map = db.default_keyspace();
    let mut t = db.begin();
    assert_eq!(t.multi_get(&map, &["a", "b"]).unwrap(), [None, None]);
    t.put(&map, "c", "").unwrap();
    map.put("b", "another's").unwrap();
    assert!(matches!(t.commit().unwrap_err().error, esker::Error::Conflict { .. }));
}
