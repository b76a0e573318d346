//! Merges: every reader sees what a map with immediate updates would hold, whatever is flushed, compacted,
//! replayed or kept by snapshots.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::damage::one_in;
use esker::env::{Env, ManualClock, MemFs};
use esker::{
    BackgroundStep, Blobs, Builder, Counting, Db, Error, FeedChange, History, Keyspace, Reads, Snapshot, Ttl,
    Value, WriteBatch,
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// `append` under another name, without `combine`.
fn concat(existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
    Ok(existing.into_iter().chain(operands.iter().copied()).flatten().copied().collect())
}

fn builder(fs: &MemFs) -> Builder {
    let env = Env::simulated(Arc::new(fs.clone()), 1);
    let small = Db::builder()
        .tuning(|t| t.memtable_bytes(8 << 10).table_bytes(2 << 10).block_bytes(128))
        .memory(1 << 20);
    small.tuning(|t| t.transaction_memory(4 << 10)).stepped().env(env).merge_operator("concat", concat)
}

fn key(rng: &mut fastrand::Rng) -> Vec<u8> {
    format!("key {:02}", rng.u8(..40)).into_bytes()
}

/// A write.
enum Change {
    Put(Vec<u8>, Vec<u8>),
    Merge(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    RemoveRange(Vec<u8>, Vec<u8>),
}

/// Chooses a write and applies it to the model.
fn draw(rng: &mut fastrand::Rng, model: &mut Map) -> Change {
    let (key, value) = (key(rng), vec![rng.u8(b'a'..=b'z'); rng.usize(..12)]);
    match rng.u8(..20) {
        0..3 => {
            let value = value.repeat(rng.usize(1..6));
            model.insert(key.clone(), value.clone());
            Change::Put(key, value)
        }
        3..5 => {
            model.remove(&key);
            Change::Remove(key)
        }
        5 if rng.bool() => {
            let end = [&key[..key.len() - 1], b"~"].concat();
            model.retain(|k, _| *k < key || *k >= end);
            Change::RemoveRange(key, end)
        }
        _ => {
            model.entry(key.clone()).or_default().extend(&value);
            Change::Merge(key, value)
        }
    }
}

fn content(state: &impl Reads) -> Map {
    state.iter().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
}

/// Asserts that all ways to read agree with the map.
fn check_reads(state: &impl Reads, expected: &Map, context: &str) {
    assert_eq!(content(state), *expected, "{context}");
    let mut backwards: Vec<_> =
        state.iter().rev().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    backwards.reverse();
    assert!(backwards.iter().map(|(k, v)| (k, v)).eq(expected), "{context}");
    let keys: Vec<_> = state.keys(..).map(|key| key.unwrap().to_vec()).collect();
    assert!(keys.iter().eq(expected.keys()), "{context}");
    assert_eq!(state.len().unwrap(), expected.len() as u64, "{context}");
    let all: Vec<_> = (0..40).map(|n| format!("key {n:02}").into_bytes()).collect();
    let many = state.multi_get(&all).unwrap();
    for (key, found) in all.iter().zip(many) {
        let wanted = expected.get(key).map(Vec::as_slice);
        assert_eq!(found.as_deref(), wanted, "{context}");
        assert_eq!(state.get(key).unwrap().as_deref(), wanted, "{context}");
        assert_eq!(state.contains(key).unwrap(), wanted.is_some(), "{context}");
        let mut reader = state.reader(key).unwrap();
        let read = reader.as_mut().map(|reader| reader.read_range(0..u64::MAX).unwrap());
        assert_eq!(read.as_deref(), wanted, "{context}");
    }
    let mut cursor = state.cursor().unwrap();
    for (key, value) in expected {
        assert!(cursor.next().unwrap());
        assert_eq!(cursor.peek().unwrap(), Some((&**key, &**value)), "{context}");
        assert_eq!(cursor.value_handle().unwrap(), value, "{context}");
    }
    let pair = |entry: Option<(esker::Key, Value)>| entry.map(|(k, v)| (k.to_vec(), v.to_vec()));
    let ends = [expected.first_key_value(), expected.last_key_value()];
    let ends = ends.map(|end| end.map(|(k, v)| (k.clone(), v.clone())));
    assert_eq!([pair(state.first().unwrap()), pair(state.last().unwrap())], ends, "{context}");
}

fn single(map: &Keyspace, rng: &mut fastrand::Rng, model: &mut Map) {
    let written = match draw(rng, model) {
        Change::Put(k, v) => map.put(k, v).map(drop),
        Change::Merge(k, v) => map.merge(k, v).map(drop),
        Change::Remove(k) => map.delete(k).map(drop),
        Change::RemoveRange(from, to) => map.delete_range(from..to).map(drop),
    };
    written.unwrap();
}

fn batch(db: &Db, map: &Keyspace, rng: &mut fastrand::Rng, model: &mut Map) {
    let mut batch = db.batch();
    let most = [10, 300][rng.usize(..2)];
    for _ in 0..rng.u16(..most) {
        let written = match draw(rng, model) {
            Change::Put(k, v) => batch.put(map, k, v),
            Change::Merge(k, v) => batch.merge(map, k, v),
            Change::Remove(k) => batch.delete(map, k),
            Change::RemoveRange(from, to) => batch.delete_range(map, from..to),
        };
        written.unwrap();
    }
    batch.commit().unwrap();
}

fn transaction(db: &Db, map: &Keyspace, rng: &mut fastrand::Rng, model: &mut Map, context: &str) {
    let (mut t, mut own, mut point) = (db.begin(), model.clone(), None);
    let most = [10, 400][rng.usize(..2)];
    for _ in 0..rng.u16(..most) {
        let written = match draw(rng, &mut own) {
            Change::Put(k, v) => t.put(map, k, v),
            Change::Merge(k, v) => t.merge(map, k, v),
            Change::Remove(k) => t.delete(map, k),
            Change::RemoveRange(from, to) => t.delete_range(map, from..to),
        };
        written.unwrap();
        match rng.u8(..100) {
            0 => check_reads(&t.keyspace(map), &own, context),
            1..4 => point = Some((t.savepoint(), own.clone())),
            4..6 => {
                let Some((point, then)) = point.take() else { continue };
                t.rollback_to(&point).unwrap();
                own = then;
            }
            _ => {}
        }
    }
    check_reads(&t.keyspace(map), &own, context);
    if rng.u8(..4) > 0 {
        t.commit().unwrap();
        *model = own;
    }
}

#[test]
fn fold_1_every_reader_sees_what_a_map_would_hold() {
    for seed in one_in(2, 0..60) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let fs = MemFs::new();
        let blobs = [Blobs::Never, Blobs::From(20), Blobs::From(40)][rng.usize(..3)];
        let operator = ["append", "concat"][rng.usize(..2)];
        let open = || builder(&fs).blobs(blobs).open(Path::new("db")).unwrap();
        let mut db = open();
        let mut map = db.keyspace("map").unwrap();
        map.set_merge_operator(operator).unwrap();
        if rng.u8(..3) == 0 {
            map.set_counting(Counting::Lazy).unwrap();
        }
        let mut model = Map::new();
        let mut snapshots: Vec<(Snapshot, Map)> = Vec::new();
        for round in 0..40 {
            let context = format!("seed {seed}, round {round}");
            match rng.u8(..12) {
                0..4 => (0..rng.u8(..60)).for_each(|_| single(&map, &mut rng, &mut model)),
                4 => batch(&db, &map, &mut rng, &mut model),
                5 | 6 => transaction(&db, &map, &mut rng, &mut model, &context),
                7 => db.flush().unwrap(),
                8 => while db.step(BackgroundStep::Compact { idle: rng.bool() }).unwrap() {},
                9 if rng.bool() => db.compact().unwrap(),
                10 => match snapshots.len() {
                    0..3 => snapshots.push((db.snapshot(), model.clone())),
                    _ => drop(snapshots.remove(rng.usize(..3))),
                },
                _ if rng.bool() => {
                    snapshots.clear();
                    db.close().unwrap();
                    db = open();
                    map = db.open_keyspace("map").unwrap();
                    assert_eq!(map.merge_operator().as_deref(), Some(operator));
                }
                _ => {}
            }
            check_reads(&map, &model, &context);
            for (snapshot, then) in &snapshots {
                check_reads(&snapshot.keyspace(&map), then, &context);
            }
            let report = db.check().unwrap();
            assert!(report.is_sound(), "{context}: {:?}", report.problems);
        }
        snapshots.clear();
        db.compact().unwrap();
        check_reads(&map, &model, "at the end");
        db.close().unwrap();
        let report = builder(&fs).check_offline("db").unwrap();
        assert!(report.is_sound(), "seed {seed}: {:?}", report.problems);
    }
}

#[test]
fn operators_1_a_database_says_which_operator_it_lacks() {
    let fs = MemFs::new();
    let db = builder(&fs).open("db").unwrap();
    let map = db.keyspace("texts").unwrap();
    assert!(map.merge("k", "v").unwrap_err().to_string().contains("\"texts\" has no merge operator"));
    assert!(matches!(map.set_merge_operator("no such"), Err(Error::MergeOperatorMissing { .. })));
    map.set_merge_operator("concat").unwrap();
    map.set_merge_operator("concat").unwrap();
    assert!(matches!(map.set_merge_operator("append"), Err(Error::Invalid(_))), "operators.1");
    map.put("k", "a").unwrap();
    map.merge("k", "b").unwrap();
    db.rename_keyspace("texts", "renamed").unwrap();
    db.close().unwrap();
    let without = || {
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        Db::builder().background(false).env(env)
    };
    let refused = without().open("db").unwrap_err();
    let Error::MergeOperatorMissing { keyspace, operator } = &refused else { panic!("{refused}") };
    assert_eq!((&**keyspace, &**operator), ("renamed", "concat"), "operators.1");
    let tool = without().allow_missing_merge_operators(true).open("db").unwrap();
    let map = tool.open_keyspace("renamed").unwrap();
    tool.compact().unwrap();
    assert!(matches!(map.get("k"), Err(Error::MergeOperatorMissing { .. })));
    assert!(matches!(map.iter().next(), Some(Err(Error::MergeOperatorMissing { .. }))));
    assert!(map.contains("k").unwrap() && map.len().unwrap() == 1);
    assert!(tool.check().unwrap().is_sound());
    tool.close().unwrap();
    assert!(without().check_offline("db").unwrap().is_sound());
    let db = builder(&fs).open("db").unwrap();
    assert_eq!(db.open_keyspace("renamed").unwrap().get("k").unwrap().as_deref(), Some(&b"ab"[..]));
    db.drop_keyspace("renamed").unwrap();
    db.close().unwrap();
    without().open("db").unwrap();
}

#[test]
fn what_an_operator_cannot_merge_is_an_error_that_names_the_key_and_can_be_overwritten() {
    let fs = MemFs::new();
    let db = builder(&fs).open("db").unwrap();
    let map = db.keyspace("sums").unwrap();
    map.set_merge_operator("add-i64").unwrap();
    let one = 1_i64.to_le_bytes();
    let text = map.merge("k", "one").unwrap_err().to_string();
    assert!(
        text.contains("key \"k\" of keyspace \"sums\" by \"add-i64\": the operand has 3 bytes"),
        "{text}"
    );
    map.put("k", "text").unwrap();
    map.merge("k", one).unwrap();
    map.merge("l", one).unwrap();
    for _ in 0..2 {
        assert!(matches!(map.get("k"), Err(Error::Merge { ref key, .. }) if key == b"k"));
        assert!(matches!(map.first(), Err(Error::Merge { .. })));
        assert_eq!(map.get("l").unwrap().as_deref(), Some(&one[..]));
        assert_eq!(map.len().unwrap(), 2);
        db.compact().unwrap();
    }
    let mut batch = db.batch();
    batch.put(&map, "m", "text").unwrap();
    let merged = batch.merge(&map, "m", one).and_then(|()| Ok(batch.commit()?)).and_then(|_| map.get("m"));
    assert!(matches!(merged, Err(Error::Merge { .. })), "{merged:?}");
    map.delete("k").unwrap();
    map.merge("k", one).unwrap();
    assert_eq!(map.get("k").unwrap().as_deref(), Some(&one[..]));
}

#[test]
fn merges_conflict_as_writes_do_in_transactions_and_never_outside() {
    let fs = MemFs::new();
    let db = builder(&fs).open("db").unwrap();
    let map = db.default_keyspace();
    map.set_merge_operator("append").unwrap();
    let (mut a, mut b) = (db.begin(), db.begin());
    a.merge(&map, "k", "a").unwrap();
    b.merge(&map, "k", "b").unwrap();
    a.commit().unwrap();
    assert!(matches!(b.commit().unwrap_err().into(), Error::Conflict { .. }));
    map.merge("k", "c").unwrap();
    assert_eq!(map.get("k").unwrap().as_deref(), Some(&b"ac"[..]));
    // The transaction did not read the key. So it does not depend on the old value, but on whether the key
    // was written.
    let mut c = db.begin();
    c.merge(&map, "l", "c").unwrap();
    map.put("other", "x").unwrap();
    c.commit().unwrap();
}

#[test]
fn compaction_operands_merges_into_one_put() {
    let fs = MemFs::new();
    let db = builder(&fs).open("db").unwrap();
    let map = db.default_keyspace();
    map.set_merge_operator("add-u64").unwrap();
    for n in 0..1000_u64 {
        map.merge("k", n.to_le_bytes()).unwrap();
        if n % 100 == 0 {
            db.flush().unwrap();
        }
    }
    db.compact().unwrap();
    assert_eq!(map.get("k").unwrap().as_deref(), Some(&499_500_u64.to_le_bytes()[..]));
    let dumped = db.stats();
    assert_eq!(dumped.items, 1);
    let mut batch = db.batch();
    for n in 0..1000_u64 {
        batch.merge(&map, "l", n.to_le_bytes()).unwrap();
    }
    assert!(
        batch.byte_len() < 100,
        "operands of one length are combined where they stand: {}",
        batch.byte_len()
    );
    batch.commit().unwrap();
    assert_eq!(map.get_if_cached("l").unwrap().value().as_deref(), Some(&499_500_u64.to_le_bytes()[..]));
}

#[test]
fn fold_3_operands_end_with_the_value_that_they_were_merged_into() {
    let (fs, clock) = (MemFs::new(), Arc::new(ManualClock::new()));
    let env = Env { clock: clock.clone(), ..Env::simulated(Arc::new(fs), 1) };
    let db = Db::builder().stepped().env(env).open("db").unwrap();
    let map = db.default_keyspace();
    map.set_merge_operator("append").unwrap();
    let ways: [&dyn Fn(); 3] = [&|| (), &|| db.flush().unwrap(), &|| db.compact().unwrap()];
    for (n, between) in ways.iter().enumerate() {
        for (m, behind) in ways.iter().enumerate() {
            let key = [n as u8, m as u8];
            map.put_with_ttl(key, "a", Duration::from_secs(10)).unwrap();
            between();
            map.merge(key, "b").unwrap();
            behind();
            let get = || map.get(key).unwrap().map(|value| value.to_vec());
            let walked = || map.iter().last().unwrap().unwrap().1.to_vec();
            assert_eq!((get(), walked()), (Some(b"ab".to_vec()), b"ab".to_vec()), "{key:?}");
            clock.advance(Duration::from_secs(11));
            assert_eq!((get(), map.ttl(key).unwrap()), (None, None), "{key:?}");
            map.merge(key, "c").unwrap();
            assert_eq!((get(), walked()), (Some(b"c".to_vec()), b"c".to_vec()), "{key:?}");
            assert_eq!((db.sweep().unwrap(), map.ttl(key).unwrap()), (0, Some(Ttl::Unlimited)));
            db.compact().unwrap();
            assert_eq!((get(), walked()), (Some(b"c".to_vec()), b"c".to_vec()), "{key:?}");
        }
    }
    let mut transaction = db.begin();
    transaction.put_with_ttl(&map, "t", "a", Duration::from_secs(10)).unwrap();
    transaction.merge(&map, "t", "b").unwrap();
    assert_eq!(transaction.get(&map, "t").unwrap().as_deref(), Some(&b"ab"[..]));
    transaction.commit().unwrap();
    clock.advance(Duration::from_secs(11));
    assert_eq!(map.get("t").unwrap(), None, "one commit made it all");
    assert_eq!(map.len().unwrap(), 10);
    assert_eq!((db.sweep().unwrap(), map.len().unwrap()), (1, 9));
}

#[test]
fn the_feed_has_the_operands_of_commits_small_and_large() {
    let fs = MemFs::new();
    let keep = |builder: Builder| builder.feed_retention(u64::MAX, Duration::from_secs(3600));
    let db = keep(builder(&fs)).adoption_bytes(1 << 10).open("db").unwrap();
    let map = db.default_keyspace();
    map.set_merge_operator("concat").unwrap();
    let from = map.put("k", "a").unwrap();
    map.merge("k", "b").unwrap();
    for puts_below in [false, true] {
        let mut large = db.begin();
        for n in 0..40 {
            large.merge(&map, "k", vec![b'c' + n % 3; 200]).unwrap();
            large.put(&map, [b'z', n], [n; 100]).unwrap();
            if n == 20 && puts_below {
                large.put(&map, "new", "x").unwrap();
            }
            large.merge(&map, "new", [n]).unwrap();
        }
        large.commit().unwrap();
    }
    db.sync().unwrap();
    let mut copy = Map::new();
    let mut feed = db.feed_after(from.prev()).unwrap();
    let mut lists = Vec::new();
    while let Some(mut commit) = feed.try_next().unwrap() {
        let mut merges = 0;
        while let Some(change) = commit.next_change().unwrap() {
            match change {
                FeedChange::Put { key, value, .. } => {
                    copy.insert(key.to_vec(), value.read().unwrap().to_vec());
                }
                FeedChange::Merge { key, operands, .. } => {
                    merges += 1;
                    let bytes = operands.iter().flat_map(|operand| operand.bytes().to_vec());
                    copy.entry(key.to_vec()).or_default().extend(bytes);
                }
                other => panic!("{other:?}"),
            }
        }
        lists.push(merges);
    }
    assert_eq!(copy, content(&map));
    assert!(lists[..2] == [0, 1] && lists[2] > 2, "{lists:?}: of several runs");
    assert_eq!(lists[3], 1, "of one run, with a put instead of operands");
}

/// A commit has either operands or another op for a key. A table could not hold both.
#[test]
fn what_a_large_transaction_merges_into_its_own_values_is_computed_when_it_commits() {
    let fs = MemFs::new();
    let open = |has_operator: bool| {
        let small = builder(&fs).tuning(|t| t.transaction_memory(400)).adoption_bytes(400);
        let sum = |base: Option<&[u8]>, operands: &[&[u8]]| match base {
            Some(b"no number") => Err("no number".to_owned()),
            base => concat(base, operands),
        };
        let small = if has_operator { small.merge_operator("sum", sum) } else { small };
        small.allow_missing_merge_operators(true).open("db").unwrap()
    };
    let db = open(true);
    let map = db.keyspace("m").unwrap();
    map.set_merge_operator("sum").unwrap();
    // Numbers stay, so a compaction could not give the value an older one than its operands have.
    map.set_history(History::Versions(2)).unwrap();
    map.put("a", "before").unwrap();
    let commit = |own: Option<&str>, is_hidden: bool| {
        let mut batch = db.batch();
        let fill = |batch: &mut WriteBatch| {
            (0..9_u8).for_each(|n| batch.put(&map, [n], [n; 100]).unwrap());
        };
        match own {
            Some(own) => batch.put(&map, "a", own).unwrap(),
            None => batch.delete(&map, "a").unwrap(),
        }
        fill(&mut batch);
        batch.merge(&map, "a", "b").unwrap();
        fill(&mut batch);
        if is_hidden {
            batch.put(&map, "a", "hides both").unwrap();
            fill(&mut batch);
        }
        batch.commit().map_err(Error::from)
    };
    let error = commit(Some("no number"), false).unwrap_err();
    assert!(matches!(error, Error::Merge { .. }), "{error}");
    assert_eq!((map.get("a").unwrap().as_deref(), db.stats().adoptions), (Some(&b"before"[..]), 0));
    for (own, is_hidden, expected) in
        [(Some("no number"), true, "hides both"), (None, false, "b"), (Some("a"), false, "ab")]
    {
        commit(own, is_hidden).unwrap();
        assert_eq!(map.get("a").unwrap().as_deref(), Some(expected.as_bytes()));
    }
    assert_eq!(db.stats().adoptions, 3);
    drop((map, db));
    let db = open(false);
    db.compact().unwrap();
    let found: Vec<_> = db.keyspace("m").unwrap().versions("a").unwrap().map(Result::unwrap).collect();
    assert_eq!(found.iter().map(|v| v.value.as_deref().unwrap()).collect::<Vec<_>>(), [&b"ab"[..], b"b"]);
    assert!(db.check().unwrap().is_sound());
}
