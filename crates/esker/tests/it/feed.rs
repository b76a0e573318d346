//! The change feed: what it shows, to whom, and for how long.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use esker::env::{Env, FaultAction, FaultFs, FaultRule, ManualClock, MemFs, OpKind};
use esker::{BackgroundStep, Builder, Db, Durability, Error, Feed, FeedChange, KeyspaceId, SeqNo};

const DAY: Duration = Duration::from_secs(86_400);
/// Keyspaces and keys, with their values.
type State = BTreeMap<(KeyspaceId, Vec<u8>), Vec<u8>>;

fn small(env: &Env) -> Builder {
    let builder =
        Db::builder().stepped().memory(4 << 20).tuning(|t| t.memtable_bytes(32 << 10)).env(env.clone());
    builder.feed_retention(1 << 30, DAY)
}

fn simulated(fs: &MemFs) -> Env {
    Env::simulated(Arc::new(fs.clone()), 1)
}

/// What is in the database, in all keyspaces.
fn contents(db: &Db) -> State {
    let mut state = State::new();
    for name in db.keyspaces().unwrap() {
        let keyspace = db.open_keyspace(&name).unwrap();
        for entry in keyspace.iter() {
            let (key, value) = entry.unwrap();
            state.insert((keyspace.id(), key.to_vec()), value.to_vec());
        }
    }
    state
}

/// Applies all available commits. Returns their numbers.
fn apply(feed: &mut Feed, state: &mut State) -> Vec<u64> {
    let mut seqnos = Vec::new();
    while let Some(mut commit) = feed.try_next().unwrap() {
        seqnos.push(commit.seqno().get());
        while let Some(change) = commit.next_change().unwrap() {
            match change {
                FeedChange::Put { keyspace, key, value } => {
                    let bytes = value.read().unwrap();
                    assert_eq!(value.size().unwrap(), bytes.len() as u64);
                    state.insert((keyspace, key.to_vec()), bytes.to_vec());
                }
                FeedChange::Delete { keyspace, key } | FeedChange::Expire { keyspace, key } => {
                    drop(state.remove(&(keyspace, key.to_vec())))
                }
                FeedChange::DeleteRange { keyspace, start, end } => state.retain(|(id, key), _| {
                    *id != keyspace || &**key < start || end.is_some_and(|end| &**key >= end)
                }),
                _ => {}
            }
        }
    }
    seqnos
}

fn truncated(result: esker::Result<impl Sized>) -> SeqNo {
    match result.map(drop) {
        Err(Error::FeedTruncated { oldest }) => oldest,
        other => panic!("{other:?}"),
    }
}

/// Everything that a commit can do.
fn write_all_kinds(db: &Db) {
    let (map, users) = (db.default_keyspace(), db.keyspace("users").unwrap());
    map.put("a", "1").unwrap();
    map.put("big", vec![7; 10_000]).unwrap();
    let mut batch = db.batch();
    batch.put(&users, "gone", "soon").unwrap();
    batch.delete_prefix(&users, "g").unwrap();
    batch.put(&users, "ann", "2").unwrap();
    batch.delete(&map, "a").unwrap();
    batch.commit().unwrap();
    let mut large = db.batch();
    for n in 0..2000_u32 {
        large.put(&users, n.to_be_bytes(), [n as u8; 100]).unwrap();
    }
    large.put(&users, "huge", vec![9; 20_000]).unwrap();
    large.delete_range(&users, 10_u32.to_be_bytes()..20_u32.to_be_bytes()).unwrap();
    large.commit().unwrap();
    db.keyspace("tmp").unwrap().put("x", "y").unwrap();
    db.rename_keyspace("tmp", "tmp2").unwrap();
    db.drop_keyspace("tmp2").unwrap();
    db.sync().unwrap();
}

#[test]
fn feed_1_applying_it_gives_the_database() {
    let fs = MemFs::new();
    let env = simulated(&fs);
    let db = small(&env).open("db").unwrap();
    write_all_kinds(&db);
    assert!(db.stats().adoptions > 0, "a large transaction is in it");
    let mut feed = db.feed_after(SeqNo::ZERO).unwrap();
    let mut state = State::new();
    let seqnos = apply(&mut feed, &mut state);
    let last = db.snapshot().seqno().get();
    assert_eq!(seqnos, (1..=last).collect::<Vec<_>>(), "feed.1");
    assert_eq!(state, contents(&db), "changes.1");
    let names = db.feed_after(SeqNo::ZERO).unwrap().take(last as usize).flat_map(|commit| {
        let (mut commit, mut names) = (commit.unwrap(), Vec::new());
        while let Some(change) = commit.next_change().unwrap() {
            match change {
                FeedChange::Named { name, .. } => names.push(format!("+{name}")),
                FeedChange::Unnamed { name } => names.push(format!("-{name}")),
                _ => {}
            }
        }
        names
    });
    assert_eq!(names.collect::<Vec<_>>(), ["+users", "+tmp", "-tmp", "+tmp2", "-tmp2"]);
}

#[test]
fn feed_3_it_goes_on_after_a_restart_with_tables_and_blobs_that_nothing_else_needs() {
    let fs = MemFs::new();
    let env = simulated(&fs);
    let db = small(&env).open("db").unwrap();
    write_all_kinds(&db);
    let mut state = State::new();
    let mut feed = db.feed_after(SeqNo::ZERO).unwrap();
    let half = db.snapshot().seqno();
    db.default_keyspace().clear().unwrap();
    db.open_keyspace("users").unwrap().clear().unwrap();
    for n in 0..1000_u32 {
        db.default_keyspace().put(n.to_be_bytes(), [1; 200]).unwrap();
    }
    db.compact().unwrap();
    while db.step(BackgroundStep::Compact { idle: true }).unwrap() {}
    let last = db.snapshot().seqno().get();
    assert_eq!(apply(&mut feed, &mut state).len() as u64, last);
    assert_eq!(state, contents(&db), "feed.3");
    drop(feed);
    db.close().unwrap();
    for _ in 0..2 {
        let db = small(&env).open("db").unwrap();
        let mut again = State::new();
        assert_eq!(apply(&mut db.feed_after(SeqNo::ZERO).unwrap(), &mut again).len() as u64, last);
        assert_eq!(again, state);
        assert!(db.check().unwrap().problems.is_empty());
        let first = db.feed_after(half).unwrap().next().unwrap().unwrap();
        assert_eq!(first.seqno(), half.next());
        db.close().unwrap();
        let report = Db::builder().env(env.clone()).check_offline("db").unwrap();
        assert!(report.problems.is_empty() && report.notes.is_empty(), "{report:?}");
    }
    // An opening that cannot read a segment fails, and gives up no commit.
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let failing = Env::simulated(Arc::new(faults.clone()), 1);
    let fails = FaultAction::Fail(std::io::ErrorKind::Other);
    let mut failed = 0;
    loop {
        let nth = failed + 1;
        faults.add(FaultRule::new(&[OpKind::Read], fails).on_path(".wal").nth(nth));
        match small(&failing).open("db") {
            Ok(db) if faults.fired() > failed => db.close().unwrap(),
            Ok(db) => break db.close().unwrap(),
            Err(error) => assert!(matches!(error, Error::Io { .. }), "{error:?}"),
        }
        failed = faults.fired();
        faults.clear();
        let db = small(&env).open("db").unwrap();
        assert_eq!(db.feed_after(half.prev()).unwrap().next().unwrap().unwrap().seqno(), half, "read {nth}");
        db.close().unwrap();
    }
    assert!(failed > 3);
    // An opening that does not set the option keeps it. Once switched off, there is nothing to return to.
    let db = Db::builder().stepped().env(env.clone()).open("db").unwrap();
    assert_eq!(db.feed_after(half.prev()).unwrap().next().unwrap().unwrap().seqno(), half);
    db.close().unwrap();
    let db = small(&env).feed_retention(0, DAY).open("db").unwrap();
    assert!(matches!(db.feed_after(half.prev()), Err(Error::NoFeed)));
    db.close().unwrap();
    let db = small(&env).open("db").unwrap();
    assert_eq!(truncated(db.feed_after(half.prev())), SeqNo::new(last + 1));
    db.default_keyspace().put("new", "1").unwrap();
    let next = db.feed_after(SeqNo::new(last)).unwrap().next().unwrap().unwrap();
    assert_eq!(next.seqno().get(), last + 1);
}

#[test]
fn retention_by_bytes_refuses_what_is_gone_and_readers_hold_nothing() {
    let fs = MemFs::new();
    let env = simulated(&fs);
    let db = small(&env).feed_retention(200 << 10, DAY).open("db").unwrap();
    let map = db.default_keyspace();
    let mut slow = db.feed_after(SeqNo::ZERO).unwrap();
    assert!(slow.try_next().unwrap().is_none());
    let fill = |from: u32| {
        for n in from..from + 2000 {
            map.put(n.to_be_bytes(), [3; 200]).unwrap();
            while db.step(BackgroundStep::Flush).unwrap() {}
        }
    };
    fill(0);
    let wal_bytes = || {
        let names = fs_names(&env);
        let sizes =
            names.iter().map(|name| env.fs.file_size(&std::path::Path::new("db").join(name)).unwrap());
        sizes.sum::<u64>()
    };
    assert!(wal_bytes() < 400 << 10, "{} bytes of log", wal_bytes());
    let oldest = truncated(db.feed_after(SeqNo::new(0)));
    assert!(oldest > SeqNo::new(500));
    assert_eq!(truncated(slow.try_next()), oldest);
    let mut state = State::new();
    let mut feed = db.feed_after(oldest.prev()).unwrap();
    let seqnos = apply(&mut feed, &mut state);
    assert_eq!(seqnos, (oldest.get()..=2000).collect::<Vec<_>>());
    // A reader that has read everything gets no such error.
    let mut quick = db.feed_after(SeqNo::new(2000)).unwrap();
    for n in 0..2000_u32 {
        map.put(n.to_be_bytes(), [4; 200]).unwrap();
        assert!(quick.try_next().unwrap().is_some());
        if n % 500 == 499 {
            db.flush().unwrap();
            assert!(quick.try_next().unwrap().is_none());
        }
    }
    // It stands on a segment whose file has been reused.
    assert!(truncated(feed.try_next()) > SeqNo::new(2000));
    db.close().unwrap();
    let db = small(&env).feed_retention(200 << 10, DAY).open("db").unwrap();
    assert!(truncated(db.feed_after(oldest.prev())) > SeqNo::new(2000));
}

#[test]
fn what_is_held_stays_over_openings_up_to_its_limit() {
    let fs = MemFs::new();
    let env = simulated(&fs);
    let open =
        || small(&env).feed_retention(100 << 10, DAY).tuning(|t| t.feed_hold(600 << 10)).open("db").unwrap();
    let fill = |db: &Db| {
        for n in 0..1500_u32 {
            db.default_keyspace().put(n.to_be_bytes(), [3; 200]).unwrap();
            while db.step(BackgroundStep::Flush).unwrap() {}
        }
        while db.step(BackgroundStep::PrepareLog).unwrap() {}
    };
    let db = open();
    let first = db.snapshot().seqno().next();
    fill(&db);
    assert!(db.feed_after(first.prev()).is_ok(), "without a position, it holds everything");
    assert!(db.feed_bytes_after(first.prev()).unwrap() > 300 << 10);
    db.close().unwrap();
    let db = open();
    while db.step(BackgroundStep::PrepareLog).unwrap() {}
    assert!(db.feed_after(first.prev()).is_ok(), "an opening takes nothing");
    db.hold_feed_after(Some(SeqNo::new(699)));
    while db.step(BackgroundStep::PrepareLog).unwrap() {}
    let oldest = truncated(db.feed_after(first.prev()));
    assert!(oldest > SeqNo::new(100) && oldest <= SeqNo::new(700), "{oldest}");
    assert!(db.feed_bytes_after(SeqNo::new(1199)).unwrap() < db.feed_bytes_after(SeqNo::new(699)).unwrap());
    fill(&db);
    fill(&db);
    assert!(truncated(db.feed_after(SeqNo::new(699))) > SeqNo::new(1500), "it was more than may be held");
    assert!(db.feed_bytes_after(SeqNo::ZERO).unwrap() > 400 << 10);
    db.hold_feed_after(None);
    while db.step(BackgroundStep::PrepareLog).unwrap() {}
    assert!(db.feed_bytes_after(SeqNo::ZERO).unwrap() < 200 << 10, "nothing is held");
}

fn fs_names(env: &Env) -> Vec<String> {
    let mut names = env.fs.list_dir("db".as_ref()).unwrap();
    names.retain(|name| name.ends_with(".wal"));
    names
}

#[test]
fn retention_by_age_goes_by_the_clock_across_restarts() {
    let fs = MemFs::new();
    let clock = Arc::new(ManualClock::new());
    let env = Env { clock: clock.clone(), ..simulated(&fs) };
    let open = || small(&env).feed_retention(u64::MAX, 2 * DAY).open("db").unwrap();
    let db = open();
    db.default_keyspace().put("a", "1").unwrap();
    db.flush().unwrap();
    clock.advance(DAY);
    db.close().unwrap();
    let db = open();
    db.default_keyspace().put("b", "1").unwrap();
    db.flush().unwrap();
    assert!(db.feed_after(SeqNo::new(0)).is_ok());
    clock.advance(DAY);
    while db.step(BackgroundStep::PrepareLog).unwrap() {}
    assert_eq!(truncated(db.feed_after(SeqNo::new(0))), SeqNo::new(2));
    clock.advance(DAY);
    while db.step(BackgroundStep::PrepareLog).unwrap() {}
    assert_eq!(truncated(db.feed_after(SeqNo::new(1))), SeqNo::new(3));
    assert!(db.feed_after(SeqNo::new(2)).unwrap().try_next().unwrap().is_none());
    for after in [SeqNo::new(3), SeqNo::MAX] {
        assert!(matches!(db.feed_after(after), Err(Error::FeedAhead { .. })));
    }
    assert_eq!(db.feed_bytes_after(SeqNo::MAX).unwrap(), 0);
}

#[test]
fn follow_2_nothing_is_shown_before_it_is_durable() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let db = small(&env).open("db").unwrap();
    let map = db.default_keyspace();
    let mut feed = db.feed_after(SeqNo::ZERO).unwrap();
    map.with(Durability::Buffered).put("a", "1").unwrap();
    map.with(Durability::None).put("b", "1").unwrap();
    assert!(feed.try_next().unwrap().is_none(), "follow.2");
    db.step(BackgroundStep::SyncLog).unwrap();
    let mut state = State::new();
    assert_eq!(apply(&mut feed, &mut state), [1, 2]);
    map.with(Durability::Buffered).put("c", "1").unwrap();
    faults.add(FaultRule::new(&[OpKind::SyncData], FaultAction::Fail(std::io::ErrorKind::Other)).forever());
    assert!(map.put("d", "1").is_err());
    faults.clear();
    assert!(matches!(feed.try_next(), Err(Error::Poisoned(_))), "nothing new comes");
}

#[test]
fn wal_9_the_end_of_a_segment_that_only_the_feed_needs_survives_a_power_loss() {
    let fs = MemFs::new();
    let faults = FaultFs::new(Arc::new(fs.clone()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let db = small(&env).open("db").unwrap();
    db.default_keyspace().put("a", "1").unwrap();
    // The process is killed after it has written the end of its segment, and before it has synced it.
    let freeze = FaultRule::new(&[OpKind::SyncData], FaultAction::Freeze { keep: 0 });
    faults.add(freeze.on_path(".wal"));
    assert!(db.flush().is_err());
    drop(db);
    // The next process flushes the commit. Its log has a new segment only when it writes.
    let fs = fs.kill();
    let db = small(&simulated(&fs)).open("db").unwrap();
    db.flush().unwrap();
    let fs = fs.crash_strict();
    drop(db);
    let db = small(&simulated(&fs)).open("db").unwrap();
    db.default_keyspace().put("b", "2").unwrap();
    let mut feed = db.feed_after(SeqNo::ZERO).unwrap();
    assert_eq!(apply(&mut feed, &mut State::new()), [1, 2]);
    assert!(db.check().unwrap().is_sound());
}

#[test]
fn readers_wait_for_writers_and_not_the_other_way_round() {
    let db = Db::builder().feed_retention(1 << 30, DAY).open_in_memory().unwrap();
    let map = db.default_keyspace();
    let feeds: Vec<_> = (0..3).map(|_| db.feed_after(SeqNo::ZERO).unwrap()).collect();
    let _stalled = db.feed_after(SeqNo::ZERO).unwrap();
    let commits = 2000_u64;
    std::thread::scope(|scope| {
        let read = |feed: Feed| feed.map(|commit| commit.unwrap().seqno().get()).take(commits as usize);
        let readers: Vec<_> =
            feeds.into_iter().map(|feed| scope.spawn(move || read(feed).collect::<Vec<_>>())).collect();
        for n in 0..commits {
            let durability = if n % 2 == 0 { Durability::Sync } else { Durability::Buffered };
            map.with(durability).put(n.to_be_bytes(), [5; 300]).unwrap();
        }
        for reader in readers {
            assert_eq!(reader.join().unwrap(), (1..=commits).collect::<Vec<_>>());
        }
    });
    let mut waiting = db.feed_after(SeqNo::new(commits)).unwrap();
    std::thread::scope(|scope| {
        let ended = scope.spawn(move || waiting.next().is_none());
        db.close().unwrap();
        assert!(ended.join().unwrap(), "it ends when the database is closed");
    });
}

#[cfg(feature = "tokio")]
#[test]
fn streams_give_everything_in_order_whatever_is_cancelled() {
    let db = Db::builder().feed_retention(1 << 30, DAY).open_in_memory().unwrap();
    let map = db.default_keyspace();
    let mut batch = db.batch();
    (0..5000_u32).for_each(|n| batch.put(&map, n.to_be_bytes(), [1; 200]).unwrap());
    batch.commit().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut entries, mut keys) = (map.iter().into_stream(), Vec::new());
        loop {
            // Polled once and dropped.
            let polled = {
                let cancelled = std::pin::pin!(entries.next());
                Future::poll(cancelled, &mut std::task::Context::from_waker(std::task::Waker::noop()))
            };
            match polled {
                std::task::Poll::Ready(Some(entry)) => keys.push(entry.unwrap().0.to_vec()),
                std::task::Poll::Ready(None) => break,
                std::task::Poll::Pending => {}
            }
            if let Some(entry) = entries.next().await {
                keys.push(entry.unwrap().0.to_vec());
            }
        }
        assert_eq!(keys, (0..5000_u32).map(|n| n.to_be_bytes().to_vec()).collect::<Vec<_>>());
        let mut commits = db.feed_after(SeqNo::new(1)).unwrap().into_stream();
        let reader = tokio::spawn(async move {
            let mut seqnos = Vec::new();
            while seqnos.len() < 100 {
                seqnos.push(commits.next().await.unwrap().unwrap().seqno().get());
            }
            (commits, seqnos)
        });
        for n in 0..100_u32 {
            map.put(n.to_be_bytes(), "2").unwrap();
            tokio::task::yield_now().await;
        }
        let (mut commits, seqnos) = reader.await.unwrap();
        assert_eq!(seqnos, (2..102).collect::<Vec<_>>());
        let waiting = tokio::spawn(async move { commits.next().await.is_none() });
        tokio::task::yield_now().await;
        drop(map);
        tokio::task::spawn_blocking(move || db.close()).await.unwrap().unwrap();
        assert!(waiting.await.unwrap(), "it ends when the database is closed");
    });
}

#[cfg(feature = "tokio")]
#[test]
fn streams_of_history_have_the_items_of_the_iterators() {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    map.set_history(esker::History::Versions(1000)).unwrap();
    let first = map.put("key", [0; 500]).unwrap();
    // More than two batches, and more bytes than one of them may have.
    for n in 1..900_u32 {
        map.put("key", [n as u8; 500]).unwrap();
        map.put(n.to_be_bytes(), [1; 500]).unwrap();
    }
    map.delete(7_u32.to_be_bytes()).unwrap();
    map.delete_range(100_u32.to_be_bytes()..150_u32.to_be_bytes()).unwrap();
    let versions: Vec<_> = map.versions("key").unwrap().map(Result::unwrap).collect();
    let changes: Vec<_> = map.since(first).unwrap().map(Result::unwrap).collect();
    // 50 of 900 keys went with the range.
    assert_eq!((versions.len(), changes.len()), (900, 851));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut stream = map.versions("key").unwrap().into_stream();
        for version in versions {
            assert_eq!(stream.next().await.unwrap().unwrap(), version);
        }
        assert!(stream.next().await.is_none());
        let mut stream = map.since(first).unwrap().into_stream();
        for change in changes {
            assert_eq!(stream.next().await.unwrap().unwrap(), change);
        }
        assert!(stream.next().await.is_none());
        let mut failing = map.versions("key").unwrap().into_stream();
        tokio::task::spawn_blocking(move || db.close()).await.unwrap().unwrap();
        assert!(matches!(failing.next().await, Some(Err(Error::Closed))));
        assert!(failing.next().await.is_none(), "an iterator ends after an error");
    });
}
