//! Isolation: what concurrent transactions may do, by the anomalies of the literature; locks.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::collections::BTreeMap;
use std::time::Duration;

use esker::{Blobs, Builder, Contended, Db, Error, Isolation, Keyspace, LockMode, Result, Transaction};

fn db() -> (Db, Keyspace) {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    for key in ["a", "b", "c"] {
        map.put(key, "1").unwrap();
    }
    (db, map)
}

/// Marks a result as read.
fn seen<T>(_: T) {}

fn is_conflict<T>(outcome: std::result::Result<T, impl Into<Error>>) -> bool {
    matches!(outcome.map_err(Into::into), Err(Error::Conflict { .. }))
}

/// Two transactions, each of which reads by the first function and writes by the second. Returns whether the
/// second to commit conflicts.
fn skew(
    isolation: Isolation,
    reads: impl Fn(&Transaction, &Keyspace),
    writes: [fn(&mut Transaction, &Keyspace) -> Result<()>; 2],
) -> bool {
    let (db, map) = db();
    let mut both =
        [db.transaction().isolation(isolation).begin(), db.transaction().isolation(isolation).begin()];
    for (t, write) in both.iter_mut().zip(writes) {
        reads(t, &map);
        write(t, &map).unwrap();
    }
    let [first, last] = both;
    first.commit().unwrap();
    is_conflict(last.commit())
}

#[test]
fn read_set_1_serializable_transactions_do_not_skew_and_snapshots_may() {
    let on_both: [fn(&mut Transaction, &Keyspace) -> Result<()>; 2] =
        [|t, map| t.put(map, "a", "2"), |t, map| t.put(map, "b", "2")];
    type Reading = fn(&Transaction, &Keyspace);
    let kinds: [(&str, Reading); 8] = [
        ("keys", |t, map| seen((t.get(map, "a").unwrap(), t.get(map, "b").unwrap()))),
        ("presence", |t, map| seen((t.contains(map, "a").unwrap(), t.contains(map, "b").unwrap()))),
        ("many keys", |t, map| seen(t.multi_get(map, &["a", "b"]).unwrap())),
        ("a walk", |t, map| seen(t.range(map, "a".."c").collect::<Result<Vec<_>>>().unwrap())),
        ("a walk backwards", |t, map| seen(t.iter(map).rev().collect::<Result<Vec<_>>>().unwrap())),
        ("keys of a walk", |t, map| seen(t.keys(map, ..).collect::<Result<Vec<_>>>().unwrap())),
        ("a cursor", |t, map| {
            let mut cursor = t.cursor(map).unwrap();
            while cursor.next().unwrap() {}
        }),
        ("a cursor that turns", |t, map| {
            let mut cursor = t.cursor(map).unwrap();
            assert!(cursor.seek("b").unwrap() && cursor.prev().unwrap());
        }),
    ];
    for (kind, reads) in kinds {
        assert!(skew(Isolation::Serializable, reads, on_both), "read_set.1: {kind}");
        assert!(!skew(Isolation::Snapshot, reads, on_both), "{kind}");
    }
}

#[test]
fn read_set_1_what_was_not_there_and_lengths_count_and_what_was_not_read_does_not() {
    let phantom: [fn(&mut Transaction, &Keyspace) -> Result<()>; 2] =
        [|t, map| t.put(map, "bb", "2"), |t, map| t.put(map, "x", "2")];
    let serializable = |reads: fn(&Transaction, &Keyspace)| skew(Isolation::Serializable, reads, phantom);
    assert!(serializable(|t, map| seen(t.get(map, "bb").unwrap())), "a key that was not there");
    assert!(serializable(|t, map| seen(t.range(map, "b"..).count())), "a gap");
    assert!(serializable(|t, map| seen(t.prefix(map, "b").count())), "behind the last of a prefix");
    assert!(serializable(|t, map| seen(t.len(map).unwrap())), "a length");
    // Only as far as it was walked.
    assert!(!serializable(|t, map| seen(t.range(map, "a"..).take(2).count())), "read_set.1: not behind b");
    assert!(!serializable(|t, map| seen(t.range(map, "c"..).count())));
    assert!(!serializable(|t, map| seen(t.get(map, "b").unwrap())), "a neighbour");
    assert!(!serializable(|t, map| seen(t.first(map).unwrap())));
    // A length that returns to its old value.
    let same: [fn(&mut Transaction, &Keyspace) -> Result<()>; 2] =
        [|t, map| t.put(map, "a", "2"), |t, map| t.put(map, "x", "2")];
    assert!(!skew(Isolation::Serializable, |t, map| seen(t.len(map).unwrap()), same));
}

#[test]
fn a_transaction_without_writes_never_conflicts_and_errors_name_the_keyspace() {
    let (db, map) = db();
    let reader = db.begin();
    assert_eq!(reader.range(&map, ..).count(), 3);
    map.put("b", "2").unwrap();
    reader.commit().unwrap();
    let mut writer = db.begin();
    assert_eq!(writer.range(&map, "a".."c").count(), 2);
    writer.put(&map, "z", "1").unwrap();
    map.put("b", "3").unwrap();
    let conflict = Error::from(writer.commit().unwrap_err());
    let Error::Conflict { keyspace, contended: Contended::Range { start, .. } } = conflict else {
        panic!("{conflict}")
    };
    assert_eq!((keyspace.as_str(), &start[..]), ("default", &b"a"[..]));
}

/// Several threads move money between accounts in transactions that read all of them. The sum must not fall
/// below zero.
#[test]
fn serializable_transactions_keep_what_each_of_them_keeps() {
    for isolation in [Isolation::Serializable, Isolation::Exclusive] {
        let db = Builder::default().isolation(isolation).open_in_memory().unwrap();
        let map = db.default_keyspace();
        for n in 0..8_u8 {
            map.put([n], 10_i64.to_le_bytes()).unwrap();
        }
        let balance = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (db, map) = (&db, &map);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    for _ in 0..100 {
                        let account = rng.u8(0..8);
                        // Takes 30 from an account if all together have as much. A single account may fall
                        // below zero.
                        db.transact(|t| -> Result<()> {
                            let sum: i64 = t.range(map, ..).map(|e| balance(&e.unwrap().1)).sum();
                            let add = if sum >= 30 { -30 } else { 25 };
                            let old = balance(&t.get(map, [account])?.unwrap());
                            t.put(map, [account], (old + add).to_le_bytes())
                        })
                        .unwrap();
                        let all: BTreeMap<_, _> = map.snapshot_sum();
                        assert!(all.values().map(|v| balance(v)).sum::<i64>() >= 0, "{isolation:?}");
                    }
                });
            }
        });
    }
}

trait Sum {
    fn snapshot_sum(&self) -> BTreeMap<Vec<u8>, Vec<u8>>;
}

impl Sum for Keyspace {
    fn snapshot_sum(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.iter().map(|entry| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
    }
}

#[test]
fn others_wait_while_an_exclusive_transaction_is_open() {
    let (db, map) = db();
    let mut exclusive = db.transaction().isolation(Isolation::Exclusive).begin();
    assert_eq!(exclusive.get(&map, "a").unwrap().as_deref(), Some(&b"1"[..]));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| map.put("a", "other").unwrap());
        std::thread::sleep(Duration::from_millis(20));
        assert!(!other.is_finished(), "exclusive_turn.1");
        exclusive.put(&map, "a", "mine").unwrap();
        exclusive.commit().unwrap();
        other.join().unwrap();
    });
    assert_eq!(map.get("a").unwrap().as_deref(), Some(&b"other"[..]));
}

#[test]
fn a_transaction_that_locks_what_it_writes_waits_and_does_not_conflict() {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    let conflicts = std::thread::scope(|scope| {
        let count = || {
            let mut conflicts = 0;
            for _ in 0..100 {
                let mut t = db.begin();
                let old = t.get_for_update(&map, "n").unwrap();
                let old = old.map_or(0, |old| u64::from_le_bytes((*old).try_into().unwrap()));
                t.put(&map, "n", (old + 1).to_le_bytes()).unwrap();
                conflicts += u32::from(is_conflict(t.commit()));
            }
            conflicts
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>()
    });
    let n = u64::from_le_bytes((*map.get("n").unwrap().unwrap()).try_into().unwrap());
    assert_eq!((n, conflicts), (300, 0));
}

#[test]
fn a_lock_on_a_key_that_has_changed_since_the_transaction_reads_is_a_conflict_at_once() {
    let (db, map) = db();
    let mut t = db.begin();
    t.get(&map, "b").unwrap();
    map.put("a", "2").unwrap();
    assert!(is_conflict(t.lock(&map, "a", LockMode::Exclusive)));
    let mut other = db.begin();
    let short = Duration::from_millis(1);
    let refused = other.lock_for(&map, "a", LockMode::Shared, short);
    assert!(
        matches!(&refused, Err(Error::LockTimeout { lock, .. }) if lock.contains("\"a\"")),
        "{refused:?}"
    );
    drop(t);
    other.lock_for(&map, "a", LockMode::Shared, short).unwrap();
    let guard = db.lock_for("report", LockMode::Exclusive, short).unwrap();
    assert!(other.lock_name_for("report", LockMode::Shared, short).is_err());
    drop(guard);
    other.lock_name_for("report", LockMode::Shared, short).unwrap();
    assert!(db.lock_for("report", LockMode::Exclusive, short).is_err());
    other.rollback();
    db.lock_for("report", LockMode::Exclusive, short).unwrap();
}

#[test]
fn an_exclusive_transaction_may_create_keyspaces_while_others_want_to() {
    let (db, map) = db();
    let mut exclusive = db.transaction().isolation(Isolation::Exclusive).begin();
    let new = exclusive.create_keyspace("new").unwrap();
    exclusive.put(&new, "a", "1").unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| db.create_keyspace("other").unwrap());
        let options = scope.spawn(|| map.set_blobs(Blobs::From(1 << 20)).unwrap());
        std::thread::sleep(Duration::from_millis(20));
        exclusive.commit().unwrap();
        other.join().unwrap();
        options.join().unwrap();
    });
    assert_eq!(db.keyspaces().unwrap(), ["default", "new", "other"]);
}

#[test]
fn writers_of_keys_that_share_a_block_do_not_conflict() {
    // 8 writers with adjacent keys in a table with one block: 4,000 commits, each of which reads and writes
    // its key and walks over it. The neighbours change all the time.
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    for key in 0..8_u8 {
        map.put([key], 0_u32.to_le_bytes()).unwrap();
    }
    db.compact().unwrap();
    std::thread::scope(|scope| {
        for key in 0..8_u8 {
            let (db, map) = (&db, &map);
            scope.spawn(move || {
                for n in 1..=500_u32 {
                    let mut t = db.begin();
                    let before = t.get(map, [key]).unwrap().unwrap();
                    assert_eq!(before.as_ref(), (n - 1).to_le_bytes());
                    seen(t.range(map, [key]..[key + 1]).collect::<Result<Vec<_>>>().unwrap());
                    t.put(map, [key], n.to_le_bytes()).unwrap();
                    t.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(db.stats().conflicts, 0);
}

#[test]
fn a_length_asked_for_above_writes_that_are_undone_is_a_read_of_their_keys() {
    for (is_large, is_range) in [(false, false), (false, true), (true, false)] {
        let builder = Db::builder().background(false).memory(2 << 20).tuning(|t| t.memtable_bytes(256 << 10));
        let db = builder.open_in_memory().unwrap();
        let map = db.default_keyspace();
        map.put("a", "1").unwrap();
        // Whether "a" exists, without its value.
        let mut probe = db.begin();
        let point = probe.savepoint();
        match is_range {
            true => probe.delete_range(&map, "a".."b").unwrap(),
            false => probe.put(&map, "a", "2").unwrap(),
        }
        if is_large {
            (0..200_u32).for_each(|n| probe.put(&map, n.to_be_bytes(), [7; 10_000]).unwrap());
        }
        seen(probe.len(&map).unwrap());
        probe.rollback_to(&point).unwrap();
        probe.put(&map, "x", "a is there").unwrap();
        // Replaces one key by another, so the length stays.
        let mut swap = db.begin();
        assert!(swap.get(&map, "x").unwrap().is_none());
        swap.delete(&map, "a").unwrap();
        swap.put(&map, "b", "1").unwrap();
        swap.put(&map, "c", "1").unwrap();
        swap.delete(&map, "c").unwrap();
        swap.commit().unwrap();
        assert!(is_conflict(probe.commit()), "{is_large} {is_range}");
    }
}

#[test]
fn a_name_of_a_keyspace_that_was_asked_for_is_a_read() {
    type Look = fn(&mut Transaction);
    let looks: [(Look, bool); 4] = [
        (|t| assert!(t.open_keyspace("new").is_err()), false),
        (|t| assert!(t.drop_keyspace("new").is_err()), false),
        (|t| assert!(t.create_keyspace("new").is_err()), true),
        (|t| drop(t.nested(|t| t.create_keyspace("new").and(Err::<(), _>(Error::Closed)))), false),
    ];
    for (look, is_there) in looks {
        let (db, map) = db();
        if is_there {
            db.create_keyspace("new").unwrap();
        }
        let (mut first, mut second) = (db.begin(), db.begin());
        look(&mut first);
        first.put(&map, "flag", "1").unwrap();
        assert!(second.get(&map, "flag").unwrap().is_none());
        match is_there {
            true => second.drop_keyspace("new").unwrap(),
            false => drop(second.create_keyspace("new").unwrap()),
        }
        second.commit().unwrap();
        assert!(is_conflict(first.commit()), "read_set.1");
        // Another name does not concern it.
        let mut third = db.begin();
        seen(third.open_keyspace("new").is_ok());
        third.put(&map, "flag", "2").unwrap();
        db.create_keyspace("other").unwrap();
        third.commit().unwrap();
    }
}

#[test]
fn a_drop_conflicts_with_options_that_others_set_and_says_whose_they_are() {
    let db = Db::in_memory().unwrap();
    let map = db.keyspace("map").unwrap();
    let mut transaction = db.begin();
    transaction.drop_keyspace("map").unwrap();
    map.set_merge_operator("append").unwrap();
    let mut later = db.begin();
    later.drop_keyspace("map").unwrap();
    map.set_counting(esker::Counting::Lazy).unwrap();
    let failed = later.commit().unwrap_err().error;
    assert!(matches!(&failed, Error::Conflict { keyspace, .. } if keyspace == "map"), "{failed}");
    transaction.rollback();
}
