//! Replay of another database's commits.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker::env::{Env, ManualClock, MemFs};
use esker::replay::{Replay, encode};
use esker::{Blobs, Counting, Db, Durability, Error, Feed, History, KEY_BYTES_MAX, KeyspaceOptions, Ttl};

const DAY: Duration = Duration::from_secs(86_400);

/// Two databases with one clock. The second is a copy of the first.
struct Two {
    clock: Arc<ManualClock>,
    home: Db,
    copy: Db,
    replay: Replay,
    feed: Feed,
}

impl Two {
    fn begin() -> Two {
        let clock = Arc::new(ManualClock::new());
        let mut env = Env::simulated(Arc::new(MemFs::new()), 1);
        env.clock = clock.clone();
        let builder = Db::builder().stepped().blobs(Blobs::From(100)).env(env);
        let home = builder.clone().feed_retention(1 << 30, Duration::MAX).open("home").unwrap();
        let made = home.checkpoint("copy").unwrap();
        let copy = builder.open("copy").unwrap();
        let (replay, feed) = (Replay::new(&copy).unwrap(), home.feed_after(made.seqno).unwrap());
        Two { clock, home, copy, replay, feed }
    }

    /// Replays the original's new commits in the copy, in pieces of `piece` bytes.
    fn go_on(&mut self, piece: usize) -> esker::Result<()> {
        self.home.sync()?;
        while let Some(mut commit) = self.feed.try_next()? {
            let mut changes = Vec::new();
            while let Some(change) = commit.next_change()? {
                encode(&change, &mut changes)?;
            }
            changes.chunks(piece).try_for_each(|piece| self.replay.take(piece, |_, _| {}))?;
            self.replay.commit(Durability::Buffered)?;
        }
        Ok(())
    }

    fn assert_same(&self) {
        let all = |db: &Db| {
            let mut all = Vec::new();
            for name in db.keyspaces().unwrap() {
                let map = db.open_keyspace(&name).unwrap();
                all.push(format!("{name} {} {:?} {}", map.id(), map.options(), map.len().unwrap()));
                for entry in map.iter() {
                    let (key, value) = entry.unwrap();
                    all.push(format!("{name} {key:?} {value:?} {:?}", map.ttl(&key).unwrap()));
                }
            }
            all
        };
        assert_eq!(all(&self.home), all(&self.copy));
        assert!(self.copy.check().unwrap().is_sound());
    }
}

#[test]
fn the_copy_has_names_options_values_and_ends() {
    let mut two = Two::begin();
    let mut rng = fastrand::Rng::with_seed(35);
    for round in 0..600 {
        let names: Vec<String> = two.home.keyspaces().unwrap();
        let map = two.home.open_keyspace(&names[rng.usize(..names.len())]).unwrap();
        let key = |rng: &mut fastrand::Rng| format!("key{:02}", rng.u32(..40));
        match rng.u32(..20) {
            0 if names.len() < 9 => drop(two.home.keyspace(&format!("new{}", rng.u32(..9))).unwrap()),
            1 if map.name() != "default" => two.home.drop_keyspace(&map.name()).unwrap(),
            2 if map.name() != "default" => {
                two.home.rename_keyspace(&map.name(), &format!("renamed {round}")).unwrap();
            }
            3 => drop(map.set_merge_operator(["append", "max"][rng.usize(..2)])),
            4 => map.set_default_ttl(rng.bool().then_some(DAY)).unwrap(),
            5 => map
                .set_history([History::None, History::Versions(3), History::For(DAY)][rng.usize(..3)])
                .unwrap(),
            6 => map.set_counting([Counting::Exact, Counting::Lazy][rng.usize(..2)]).unwrap(),
            7 => map
                .set_blobs(
                    [None, Some(Blobs::Never), Some(Blobs::From(50)), Some(Blobs::From(500))][rng.usize(..4)],
                )
                .unwrap(),
            8 if map.merge_operator().is_some() => drop(map.merge(key(&mut rng), "m").unwrap()),
            9 => drop(map.delete_range(key(&mut rng)..key(&mut rng)).unwrap()),
            10 => drop(map.delete(key(&mut rng)).unwrap()),
            11 => drop(map.put_with_ttl(key(&mut rng), "ends", DAY / 2).unwrap()),
            12 => {
                // A keyspace replaces another, with its options.
                let mut batch = two.home.batch();
                let options = KeyspaceOptions::new().counting(Counting::Lazy).merge_operator("max");
                let new = batch.create_keyspace_with(&format!("in {round}"), options).unwrap();
                batch.put(&new, "a", "b").unwrap();
                if map.name() != "default" {
                    batch.drop_keyspace(&map.name()).unwrap();
                }
                batch.commit().unwrap();
            }
            13 => drop(two.home.batch().create_keyspace("comes to nothing").unwrap()),
            _ => drop(map.put(key(&mut rng), "v".repeat(rng.usize(..300))).unwrap()),
        }
        two.clock.advance(Duration::from_secs(rng.u64(..1000)));
        if rng.u32(..8) == 0 {
            two.go_on(rng.usize(1..200)).unwrap();
            two.assert_same();
        }
    }
    two.go_on(1 << 20).unwrap();
    two.assert_same();
}

#[test]
fn what_is_put_for_ever_stays_whatever_the_copy_has_for_a_default() {
    let mut two = Two::begin();
    let map = two.home.default_keyspace();
    map.set_default_ttl(Some(DAY)).unwrap();
    map.put("day", "1").unwrap();
    map.persist("day").unwrap();
    map.put_with_ttl("past", "1", Duration::ZERO).unwrap();
    two.go_on(7).unwrap();
    two.clock.advance(DAY * 2);
    assert_eq!(two.copy.default_keyspace().ttl("day").unwrap(), Some(Ttl::Unlimited));
    assert_eq!(two.copy.default_keyspace().get("past").unwrap(), None);
    two.assert_same();
    // To the millisecond, by hand.
    let end = SystemTime::UNIX_EPOCH + DAY * 30_000 + Duration::from_micros(1500);
    let mut batch = two.home.batch();
    batch.put_until(&map, "exact", "1", Some(end)).unwrap();
    batch.put_until(&map, "for ever", "1", None).unwrap();
    batch.commit().unwrap();
    assert_eq!(map.ttl("for ever").unwrap(), Some(Ttl::Unlimited));
    assert!(matches!(map.ttl("exact").unwrap(), Some(Ttl::Left(left)) if left > DAY * 9_000));
}

#[test]
fn replay_2_a_database_that_is_no_copy_is_distinguished_from_one() {
    let mut two = Two::begin();
    two.copy.keyspace("of its own").unwrap();
    two.replay.abandon().unwrap();
    two.home.keyspace("new").unwrap();
    let error = two.go_on(1000).unwrap_err();
    assert!(matches!(&error, Error::OtherHistory(text) if text.contains("of its own")), "{error}");
    assert!(two.copy.open_keyspace("new").is_err());

    // A replay that is broken off leaves the commit number free.
    let mut two = Two::begin();
    two.home.keyspace("new").unwrap();
    two.home.sync().unwrap();
    let mut changes = Vec::new();
    for mut commit in std::iter::from_fn(|| two.feed.try_next().unwrap()) {
        while let Some(change) = commit.next_change().unwrap() {
            encode(&change, &mut changes).unwrap();
        }
    }
    for _ in 0..3 {
        two.replay.take(&changes, |_, _| {}).unwrap();
        two.replay.abandon().unwrap();
    }
    two.replay.take(&changes, |_, _| {}).unwrap();
    two.replay.commit(Durability::Sync).unwrap();
    two.assert_same();
}

#[test]
fn options_that_a_batch_may_not_set_leave_nothing_of_it() {
    let db = Db::in_memory().unwrap();
    let map = db.keyspace("map").unwrap();
    map.set_merge_operator("max").unwrap();
    let before = map.options();
    let given = |change: &dyn Fn(&mut KeyspaceOptions)| {
        let mut options = before.clone();
        change(&mut options);
        let mut batch = db.batch();
        batch.set_options(&map, options).unwrap();
        batch.put(&map, "key", "value").unwrap();
        batch.commit().unwrap_err().error
    };
    assert!(matches!(given(&|o| o.merge_operator = None), Error::Invalid(_)));
    assert!(matches!(given(&|o| o.history = History::Versions(0)), Error::Invalid(_)));
    let unknown = given(&|o| o.merge_operator = Some("of another program".to_owned()));
    assert!(matches!(unknown, Error::Invalid(_) | Error::MergeOperatorMissing { .. }), "{unknown}");
    assert_eq!((map.options(), map.get("key").unwrap()), (before, None));
    // The last of two requests for options counts. Those of a dropped keyspace are forgotten.
    let mut batch = db.batch();
    let made = batch.create_keyspace("made").unwrap();
    for versions in [2, 5] {
        let mut options = made.options();
        options.history = History::Versions(versions);
        batch.set_options(&made, options).unwrap();
    }
    let gone = batch.create_keyspace("gone").unwrap();
    batch.set_options(&gone, made.options()).unwrap();
    batch.drop_keyspace("gone").unwrap();
    batch.commit().unwrap();
    assert_eq!(made.history(), History::Versions(5));
    let first = made.put("k", "1").unwrap();
    made.put("k", "2").unwrap();
    assert_eq!(made.get_at("k", first).unwrap().as_deref(), Some(&b"1"[..]));
}

/// Changes names, values and options in one commit, by a batch or a transaction. Refused changes are left
/// out.
fn change_names(db: &Db, rng: &mut fastrand::Rng) {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let (mut batch, mut transaction) = (db.batch(), db.begin());
    let by_batch = rng.bool();
    for _ in 0..rng.usize(1..6) {
        let (name, other) = (NAMES[rng.usize(..4)], NAMES[rng.usize(..4)]);
        let _ = match (rng.u8(..6), by_batch) {
            (0, true) => batch.drop_keyspace(name),
            (0, false) => transaction.drop_keyspace(name),
            (1, true) => batch.rename_keyspace(name, other),
            (1, false) => transaction.rename_keyspace(name, other),
            (2, true) => batch.create_keyspace(name).and_then(|map| batch.put(&map, other, "new")),
            (2, false) => transaction.create_keyspace(name).and_then(|map| {
                transaction.put(&map, other, "new")?;
                if rng.bool() { transaction.clear(&map) } else { Ok(()) }
            }),
            (3, true) => batch.create_keyspace(name).and_then(|map| batch.delete_range(&map, "a".."c")),
            (4, true) => db.open_keyspace(name).and_then(|map| {
                let mut options = map.options();
                options.default_ttl = rng.bool().then_some(DAY);
                batch.set_options(&map, options)
            }),
            (_, true) => db.open_keyspace(name).and_then(|map| batch.put(&map, other, name)),
            (_, false) => db.open_keyspace(name).and_then(|map| transaction.put(&map, other, name)),
        };
    }
    let committed = if by_batch {
        batch.commit().map(drop).map_err(Error::from)
    } else {
        transaction.commit().map(drop).map_err(Error::from)
    };
    match committed {
        Ok(()) | Err(Error::KeyspaceNotFound(_) | Error::Conflict { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_commit_may_drop_create_and_rename_a_keyspace_in_any_order() {
    let mut two = Two::begin();
    // One commit drops and creates again; one drops and renames onto the name; one swaps.
    for name in ["a", "b"] {
        two.home.keyspace(name).unwrap().put(name, name).unwrap();
    }
    let home = two.home.clone();
    let commit = |change: &dyn Fn(&mut esker::WriteBatch) -> esker::Result<()>| {
        let mut batch = home.batch();
        change(&mut batch).unwrap();
        batch.commit().unwrap();
    };
    commit(&|batch| batch.drop_keyspace("a").and_then(|()| batch.create_keyspace("a")).map(drop));
    two.go_on(1000).unwrap();
    two.assert_same();
    commit(&|batch| batch.drop_keyspace("a").and_then(|()| batch.rename_keyspace("b", "a")));
    two.go_on(1000).unwrap();
    two.assert_same();
    let mut ends = home.batch();
    let map = home.default_keyspace();
    map.set_default_ttl(Some(DAY)).unwrap();
    ends.put_until(&map, "epoch", "gone", Some(SystemTime::UNIX_EPOCH)).unwrap();
    ends.put_until(&map, "never", "there", None).unwrap();
    ends.put_with_ttl(&map, "last", "there", Duration::MAX).unwrap();
    ends.commit().unwrap();
    two.go_on(1000).unwrap();
    two.assert_same();
    let copied = two.copy.default_keyspace();
    let ttls = ["epoch", "never"].map(|key| copied.ttl(key).unwrap());
    assert_eq!((ttls, copied.len().unwrap()), ([None, Some(Ttl::Unlimited)], 3));
    for seed in 0..400 {
        change_names(&two.home, &mut fastrand::Rng::with_seed(seed));
        two.go_on(7).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        two.assert_same();
    }
}

#[test]
fn catalog_changes_3_a_keyspace_has_options_from_its_commit_on_and_not_before() {
    let mut two = Two::begin();
    // Nothing is left of a transaction that is rolled back.
    let mut undone = two.home.begin();
    let gone = undone.create_keyspace("gone").unwrap();
    for refused in [
        gone.set_default_ttl(Some(DAY)),
        gone.set_merge_operator("append"),
        gone.set_history(History::Versions(2)),
        gone.set_counting(Counting::Lazy),
        gone.set_blobs(Blobs::From(7)),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("does not exist yet") && refused.contains("set_options"), "{refused}");
    }
    let mut of_others = two.home.batch();
    of_others.set_options(&gone, KeyspaceOptions::default()).unwrap();
    assert!(of_others.commit().unwrap_err().to_string().contains("does not exist yet"));
    undone.rollback();
    let mut made = two.home.begin();
    for name in ["kept", "dropped again"] {
        let new = made.create_keyspace(name).unwrap();
        assert!(
            matches!(made.merge(&new, "a", "1"), Err(Error::NoMergeOperator { .. })),
            "it has no operator"
        );
        let mut options = new.options();
        options.merge_operator = Some("append".to_owned());
        options.default_ttl = Some(DAY);
        options.history = History::Versions(2);
        made.set_options(&new, options).unwrap();
        made.merge(&new, "a", "1").unwrap();
        made.merge(&new, "a", "2").unwrap();
        assert_eq!(made.get(&new, "a").unwrap().as_deref(), Some(&b"12"[..]));
    }
    made.drop_keyspace("dropped again").unwrap();
    made.commit().unwrap();
    let kept = two.home.open_keyspace("kept").unwrap();
    assert_eq!((kept.default_ttl(), kept.history()), (Some(DAY), History::Versions(2)));
    two.go_on(11).unwrap();
    two.assert_same();
    assert_eq!(two.copy.open_keyspace("kept").unwrap().get("a").unwrap().as_deref(), Some(&b"12"[..]));
}

#[test]
fn ranges_that_end_at_the_longest_keys_are_removed_again() {
    let mut two = Two::begin();
    let map = two.home.default_keyspace();
    let longest = |last: u8| [&[b'l'; KEY_BYTES_MAX - 1][..], &[last]].concat();
    let keys = [longest(1), longest(2), longest(0xFF), vec![b'm'], vec![0xFF; KEY_BYTES_MAX]];
    let (last, none) = (keys[4].clone(), Bound::Unbounded);
    let ranges = [
        ((none.clone(), Bound::Included(longest(1))), 4),
        ((Bound::Excluded(longest(1)), none.clone()), 1),
        ((Bound::Included(longest(2)), Bound::Included(longest(0xFF))), 3),
        ((Bound::Excluded(longest(0xFF)), Bound::Included(last.clone())), 3),
        ((Bound::Excluded(last), none), 5),
    ];
    for (range, left) in ranges {
        keys.iter().for_each(|key| map.put(key, "v").map(drop).unwrap());
        map.delete_range(range).unwrap();
        assert_eq!(map.len().unwrap(), left);
        two.home.flush().unwrap();
        two.go_on(usize::MAX).unwrap();
        two.assert_same();
        assert!(two.home.check().unwrap().is_sound());
    }
}
