//! Events: what a program learns about the work of the engine, and that its callback cannot harm the engine.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests with real threads and time")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use crate::common::{dir, tiny};
use esker::{Builder, Db, Durability, Event, Health, History, Operation, Part, StallCause, Work};
use esker_env::{Clock, Env, FaultAction, FaultFs, FaultRule, ManualClock, MemFs, OpKind};

/// Adds a callback that collects the events.
fn collecting(builder: Builder) -> (Builder, Arc<Mutex<Vec<Event>>>) {
    let events = Arc::<Mutex<Vec<Event>>>::default();
    let to = events.clone();
    (builder.on_event(move |event| to.lock().unwrap().push(event.clone())), events)
}

/// Commits with everything that flushes, compactions and collections treat in a way of its own.
fn use_all_features(db: &Db) {
    let map = db.default_keyspace();
    let (sums, old) = (db.keyspace("sums").unwrap(), db.keyspace("old").unwrap());
    sums.set_merge_operator("add-i64").unwrap();
    old.set_history(History::Versions(3)).unwrap();
    for round in 0..6_u64 {
        for n in 0..200_u64 {
            map.put(n.to_be_bytes(), vec![round as u8; 100]).unwrap();
            sums.merge((n % 7).to_be_bytes(), 1_i64.to_le_bytes()).unwrap();
            old.put((n % 5).to_be_bytes(), round.to_be_bytes()).unwrap();
        }
        let soon = Duration::from_millis(1);
        map.put_with_ttl(format!("expires {round}"), "1", soon).unwrap();
        map.put("large", vec![round as u8; 30_000]).unwrap();
        let mut transaction = db.begin();
        for n in 1000..1200_u64 {
            transaction.put(&map, n.to_be_bytes(), vec![7; 200]).unwrap();
        }
        transaction.commit().unwrap();
        if round % 2 == 1 {
            map.delete_range(1000_u64.to_be_bytes()..1200_u64.to_be_bytes()).unwrap();
        }
        db.flush().unwrap();
        db.compact().unwrap();
    }
}

/// Checks that each event that begins work is followed by the event that ends it, before work of the same
/// kind begins again.
fn assert_pairs(events: &[Event], kind: &str) {
    let of_kind: Vec<_> = events.iter().filter(|event| event.name().starts_with(kind)).collect();
    assert!(of_kind.len().is_multiple_of(2), "{kind}: {of_kind:?}");
    for (n, event) in of_kind.iter().enumerate() {
        assert_eq!(event.name().ends_with("ended"), n % 2 == 1, "{kind}: {of_kind:?}");
    }
}

#[test]
fn events_and_statistics_agree_with_all_features() {
    for has_threads in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let small = |t: esker::Tuning| t.memtable_bytes(64 << 10).compactions(1);
        let builder = Db::builder().tuning(small).adoption_bytes(16 << 10);
        let (builder, events) = collecting(builder.background(has_threads));
        let db = builder.open(dir.path().join("db")).unwrap();
        use_all_features(&db);
        let copy = dir.path().join("copy");
        let made = db.checkpoint(&copy).unwrap();
        db.checkpoint(&copy).unwrap_err();
        let map = db.default_keyspace();
        let stats = loop {
            let stats = db.stats();
            std::thread::sleep(Duration::from_millis(200));
            if db.stats().compactions == stats.compactions && db.stats().flushes == stats.flushes {
                break stats;
            }
        };
        assert_eq!(map.len().unwrap(), 201 + map.prefix("expires").count() as u64);
        db.close().unwrap();
        let events = events.lock().unwrap();
        ["flush", "compaction", "collection", "checkpoint"]
            .iter()
            .for_each(|kind| assert_pairs(&events, kind));
        let (mut flushed, mut compacted, mut dropped, mut collected) = ((0, 0), (0, 0, 0), 0, (0, 0));
        for event in &*events {
            match event {
                Event::FlushEnded { bytes_written, error: None, .. } => {
                    flushed = (flushed.0 + 1, flushed.1 + bytes_written);
                }
                Event::CompactionEnded { bytes_read, bytes_written, error: None, .. } => {
                    let (n, read, written) = compacted;
                    compacted = (n + 1, read + bytes_read, written + bytes_written);
                }
                Event::TablesDropped { tables, .. } => dropped += *tables as u64,
                Event::CollectionEnded { files, bytes_written, error: None, .. } => {
                    collected = (collected.0 + *files as u64, collected.1 + bytes_written);
                }
                _ => {}
            }
        }
        // Closing may flush once more.
        assert!(
            flushed.0 >= stats.flushes && flushed.1 >= stats.flush_bytes_written,
            "{flushed:?} {stats:?}"
        );
        let expected = (stats.compactions, stats.compaction_bytes_read, stats.compaction_bytes_written);
        assert_eq!(compacted, expected);
        assert_eq!((dropped, collected.0), (stats.tables_dropped, stats.collections));
        assert!(stats.collections > 0 && collected.1 == stats.collection_bytes_written, "{stats:?}");
        let copied = |event: &Event| match event {
            Event::CheckpointEnded { seqno, error, .. } => Some((*seqno == made.seqno, error.is_some())),
            _ => None,
        };
        assert_eq!(events.iter().filter_map(copied).collect::<Vec<_>>(), [(true, false), (false, true)]);
        assert!(matches!(events.first(), Some(Event::Opened { commits: 0, .. })), "{:?}", events.first());
        assert!(matches!(events.last(), Some(Event::Health(Health::Closed))), "{:?}", events.last());
    }
}

#[test]
fn a_callback_that_panics_or_blocks_or_uses_the_database_does_no_harm() {
    let (unblock, blocked) = mpsc::channel::<()>();
    let (blocked, missed) = (Mutex::new(blocked), Arc::new(Mutex::new(0)));
    let own = Arc::new(OnceLock::<Db>::new());
    let (of_callback, missed_by) = (own.clone(), missed.clone());
    let builder = Db::builder().tuning(|t| t.memtable_bytes(64 << 10)).on_event(move |event| match event {
        Event::Opened { .. } => panic!("canary"),
        Event::FlushBegun { .. } => drop(blocked.lock().unwrap().recv()),
        Event::CheckpointBegun { .. } => {
            of_callback.get().unwrap().default_keyspace().put("by the callback", "1").unwrap();
            of_callback.get().unwrap().flush().unwrap();
        }
        Event::Missed { events, .. } => *missed_by.lock().unwrap() += events,
        _ => {}
    });
    let db = builder.open_in_memory().unwrap();
    own.set(db.clone()).unwrap();
    let map = db.default_keyspace();
    for n in 0..700_u32 {
        map.put(n.to_be_bytes(), [7; 100]).unwrap();
        db.flush().unwrap();
    }
    assert!(db.stats().flushes >= 700);
    drop(unblock);
    // While the queue is full, the event of a checkpoint is missed, too.
    for n in 0.. {
        db.checkpoint(format!("copy {n}")).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        if map.get("by the callback").unwrap().is_some() {
            break;
        }
    }
    assert!(*missed.lock().unwrap() > 300, "{missed:?}");
    db.close().unwrap();
}

#[test]
fn a_callback_may_close_the_database_and_closing_does_not_wait_for_a_blocked_callback() {
    let own = Arc::new(OnceLock::<Db>::new());
    let (of_callback, is_closed) = (own.clone(), Arc::new(AtomicBool::new(false)));
    let closed = is_closed.clone();
    let builder = Db::builder().on_event(move |event| {
        if let (Event::FlushEnded { .. }, Some(db)) = (event, of_callback.get()) {
            db.clone().close().unwrap();
            closed.store(true, Ordering::SeqCst);
            // For ever, as far as the test is concerned.
            std::thread::sleep(Duration::from_secs(3600));
        }
    });
    let db = builder.open_in_memory().unwrap();
    own.set(db.clone()).unwrap();
    db.default_keyspace().put("a", "1").unwrap();
    let _ = db.flush();
    while !is_closed.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
    db.close().unwrap();
}

#[test]
fn health_is_reported_when_it_changes() {
    let faults = FaultFs::new(Arc::new(MemFs::new()));
    let env = Env::simulated(Arc::new(faults.clone()), 1);
    let (builder, events) = collecting(tiny(env).stepped());
    let db = builder.open(dir()).unwrap();
    db.default_keyspace().put("a", "1").unwrap();
    faults.add(
        FaultRule::new(&[OpKind::Create], FaultAction::Fail(io::ErrorKind::Other)).on_path(".sst").forever(),
    );
    db.flush().unwrap_err();
    db.flush().unwrap_err();
    faults.clear();
    db.flush().unwrap();
    faults.add(
        FaultRule::new(&[OpKind::SyncData], FaultAction::Fail(io::ErrorKind::Other))
            .on_path(".wal")
            .forever(),
    );
    db.default_keyspace().put("b", "1").unwrap_err();
    db.default_keyspace().put("c", "1").unwrap_err();
    let _ = db.close();
    let events = events.lock().unwrap();
    let states = events.iter().filter_map(|event| match event {
        Event::Health(Health::Ok) => Some("ok"),
        Event::Health(Health::Retrying(failing)) if failing.work == Work::Flush => Some("flush fails"),
        Event::Health(Health::Poisoned { .. }) => Some("poisoned"),
        Event::Health(Health::Closed) => Some("closed"),
        Event::Health(other) => panic!("{other:?}"),
        _ => None,
    });
    assert_eq!(states.collect::<Vec<_>>(), ["flush fails", "ok", "poisoned", "closed"]);
    assert_eq!(events.iter().filter(|event| event.error().is_some()).count(), 2, "{events:?}");
}

#[test]
fn stalls_begin_and_end() {
    let (builder, events) =
        collecting(Db::builder().tuning(|t| t.memtable_bytes(20_000)).durability(Durability::None));
    let db = builder.open_in_memory().unwrap();
    let map = db.default_keyspace();
    let mut n = 0_u32;
    while db.stats().stalls == 0 {
        map.put(n.to_be_bytes(), [7; 1000]).unwrap();
        n += 1;
    }
    db.flush().unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let events = events.lock().unwrap();
    for cause in [StallCause::Memtables, StallCause::Compaction] {
        let stalls: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::StallBegun { cause: of, .. } if *of == cause => Some(true),
                Event::StallEnded { cause: of, .. } if *of == cause => Some(false),
                _ => None,
            })
            .collect();
        assert!(stalls.iter().enumerate().all(|(n, begins)| *begins == (n % 2 == 0)), "{stalls:?}");
        assert!(stalls.len().is_multiple_of(2), "{cause}: {stalls:?}");
    }
}

/// A clock that advances whenever it is read.
#[derive(Debug, Default)]
struct Ticking(ManualClock);

impl Clock for Ticking {
    fn monotonic(&self) -> Duration {
        self.0.advance(Duration::from_millis(40));
        self.0.monotonic()
    }
    fn unix_time(&self) -> Duration {
        self.0.unix_time()
    }
    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

#[test]
fn a_long_opening_reports_its_progress() {
    let fs = MemFs::new();
    let open = |fs: MemFs, builder: Builder| {
        let env = Env { clock: Arc::new(Ticking::default()), ..Env::simulated(Arc::new(fs), 1) };
        builder
            .stepped()
            .blobs(esker::Blobs::Never)
            .memory(256 << 20)
            .adoption_bytes(1 << 30)
            .env(env)
            .open(dir())
            .unwrap()
    };
    let db = open(fs.clone(), Db::builder());
    let map = db.default_keyspace();
    for n in 0..40_u8 {
        map.put([n], vec![n; 4000]).unwrap();
        map.put_with_ttl([n, 0], vec![n; 500_000], Duration::from_secs(1 << 20)).unwrap();
        map.delete_range([n]..=[n]).unwrap();
    }
    let (builder, events) = collecting(Db::builder());
    // As after a kill: nothing was flushed.
    let killed = open(fs.crash_keep_all(), builder);
    let events = events.lock().unwrap();
    let mut last = (0, 0);
    for event in &*events {
        let Event::Opening { done_bytes, total_bytes, commits, time, .. } = event else { continue };
        assert!((*done_bytes, *commits) > last && done_bytes <= total_bytes && !time.is_zero(), "{event:?}");
        last = (*done_bytes, *commits);
    }
    assert!(last.0 > 10 << 20, "{events:?}");
    assert!(matches!(events.last(), Some(Event::Opened { commits: 120, torn_bytes: 0, .. })), "{events:?}");
    assert_eq!(killed.default_keyspace().iter().count(), map.iter().count());
}

#[test]
fn slow_operations_say_where_their_time_went() {
    let env = Env { clock: Arc::new(Ticking::default()), ..Env::simulated(Arc::new(MemFs::new()), 1) };
    let builder = tiny(env).blobs(esker::Blobs::From(2000)).slow_after(Duration::from_nanos(1));
    let (builder, events) = collecting(builder);
    let db = builder.open(dir()).unwrap();
    let map = db.keyspace("users").unwrap();
    for n in 0..20_u8 {
        map.put_with_ttl([n], vec![n; 300], Duration::from_secs(1 << 30)).unwrap();
        map.put([n, 0], vec![n; 3000]).unwrap();
    }
    map.delete_range([5]..[6]).unwrap();
    db.compact().unwrap();
    events.lock().unwrap().clear();
    assert!(map.get([1, 0]).unwrap().is_some());
    assert_eq!(map.multi_get(&[[2], [3]]).unwrap().len(), 2);
    assert_eq!(map.iter().count(), 38);
    let mut transaction = db.begin();
    assert!(transaction.get(&map, [4]).unwrap().is_some());
    transaction.put(&map, [200], vec![1; 3000]).unwrap();
    transaction.commit().unwrap();
    let events = events.lock().unwrap();
    let slow = |of: Operation| {
        let of_kind = events.iter().find_map(|event| match event {
            Event::Slow(slow) if slow.operation == of => Some(slow),
            _ => None,
        });
        let slow = of_kind.unwrap();
        assert!(slow.parts.iter().map(|part| part.time).sum::<Duration>() < slow.time, "{slow}");
        (slow.keyspace.as_deref(), slow.items, slow.parts.iter().map(|part| part.part).collect::<Vec<_>>())
    };
    let (keyspace, items, parts) = slow(Operation::Get);
    assert_eq!((keyspace, items), (Some("users"), 1));
    assert!(parts.contains(&Part::BlobRead), "{parts:?}");
    assert_eq!((slow(Operation::MultiGet).1, slow(Operation::Scan).1), (2, 38));
    let (keyspace, items, parts) = slow(Operation::Commit);
    assert_eq!((keyspace, items), (None, 1));
    for part in [Part::BlobWrite, Part::LogWrite, Part::LogSync, Part::Memtable] {
        assert!(parts.contains(&part), "{part} in {parts:?}");
    }
}
