//! Tests of the interface, of what a kill and a power loss leave, and of threads.

#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use esker_sled::transaction::{ConflictableTransactionError, TransactionError, TransactionResult, abort};
use esker_sled::{Batch, CompareAndSwapError, Config, Db, Error, Event, IVec, Transactional};

fn temporary() -> Db {
    Config::new().temporary(true).cache_capacity(16 << 20).open().unwrap()
}

fn text(bytes: &IVec) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn points_return_what_was_there() {
    let db = temporary();
    assert_eq!(db.insert("a", "1"), Ok(None));
    assert_eq!(db.insert("a", vec![b'2']), Ok(Some("1".into())));
    assert_eq!(db.compare_and_swap("a", Some("2"), Some("3")), Ok(Ok(())));
    let found = CompareAndSwapError { current: Some("3".into()), proposed: Some("5".into()) };
    assert_eq!(db.compare_and_swap("a", None::<&str>, Some("5")), Ok(Err(found)));
    assert_eq!(db.compare_and_swap("b", None::<&str>, Some("x")), Ok(Ok(())));
    assert_eq!(db.compare_and_swap("b", Some("x"), None::<&str>), Ok(Ok(())));
    assert_eq!(db.contains_key("b"), Ok(false));
    let longer = |old: Option<&[u8]>| Some([old.unwrap_or_default(), b"!"].concat());
    assert_eq!(db.update_and_fetch("a", longer), Ok(Some("3!".into())));
    assert_eq!(db.fetch_and_update("a", longer), Ok(Some("3!".into())));
    assert_eq!(db.fetch_and_update("a", |_| None::<Vec<u8>>), Ok(Some("3!!".into())));
    assert_eq!((db.get("a"), db.remove("a"), db.len()), (Ok(None), Ok(None), 0));
    let long = db.insert(vec![0; 70_000], "");
    assert!(matches!(long, Err(Error::Unsupported(_))), "{long:?}");
    // Such a key does not exist.
    let long = vec![0; 70_000];
    assert_eq!((db.get(&long), db.remove(&long), db.contains_key(&long)), (Ok(None), Ok(None), Ok(false)));
    assert_eq!(
        db.transaction::<_, _, ()>(|db| Ok((db.get(&long)?, db.remove(&long[..])?))),
        Ok((None, None))
    );
    assert_eq!((db.range(&*long..).next(), db.get_lt(&long), db.get_gt(&long)), (None, Ok(None), Ok(None)));
    assert!(matches!(
        db.transaction::<_, _, ()>(|db| Ok(db.insert(&long[..], "")?)),
        Err(TransactionError::Storage(_))
    ));
}

#[test]
fn walks_go_both_ways_and_keep_their_state() {
    let db = temporary();
    for key in ["a", "b1", "b2", "c"] {
        db.insert(key, key.to_uppercase().as_str()).unwrap();
    }
    let walk = db.iter();
    db.clear().unwrap();
    let all: Vec<_> = walk.map(|entry| text(&entry.unwrap().0).to_owned()).collect();
    assert_eq!(all, ["a", "b1", "b2", "c"]);
    assert!(db.is_empty());
    for key in all {
        db.insert(&key, &*key).unwrap();
    }
    let keys =
        |iter: esker_sled::Iter| iter.keys().map(|key| text(&key.unwrap()).to_owned()).collect::<Vec<_>>();
    assert_eq!(keys(db.scan_prefix("b")), ["b1", "b2"]);
    assert_eq!(keys(db.range("b"..="c")), ["b1", "b2", "c"]);
    assert_eq!(keys(db.range::<&str, _>(.."b")), ["a"]);
    assert_eq!(db.range("c".."a").next(), None);
    assert_eq!(db.iter().values().next_back(), Some(Ok("c".into())));
    assert_eq!(db.get_lt("b1").unwrap().unwrap().0, "a");
    assert_eq!(db.get_gt("b1").unwrap().unwrap().0, "b2");
    assert_eq!(db.first().unwrap().unwrap().0, "a");
    assert_eq!(db.pop_max().unwrap().unwrap().0, "c");
    assert_eq!(db.pop_min().unwrap().unwrap().0, "a");
    assert_eq!((&*db).into_iter().count(), 2);
}

#[test]
fn trees_are_apart_and_their_names_are_bytes() {
    let db = temporary();
    let names = [&b"plain"[..], b"\xff\x00", b"a b%"];
    for name in names {
        db.open_tree(name).unwrap().insert("key", name).unwrap();
    }
    assert_eq!(db.tree_names().len(), 4);
    for name in names {
        assert_eq!(db.open_tree(name).unwrap().get("key").unwrap().unwrap(), name);
        assert_eq!(db.open_tree(name).unwrap().name(), name);
    }
    let tree = db.open_tree("plain").unwrap();
    assert_eq!((db.drop_tree("plain"), db.drop_tree("plain")), (Ok(true), Ok(false)));
    assert_eq!(tree.get("key"), Err(Error::CollectionNotFound("plain".into())));
    assert_eq!(tree.iter().next(), Some(Err(Error::CollectionNotFound("plain".into()))));
    assert!(matches!(db.drop_tree(db.name()), Err(Error::Unsupported(_))));
    assert!(db.open_tree("plain").unwrap().is_empty());
    assert!(db.size_on_disk().unwrap() > 0);
}

#[test]
fn merges_use_the_operator_of_all_handles() {
    let db = temporary();
    let tree = db.open_tree("sums").unwrap();
    assert!(matches!(tree.merge("k", "x"), Err(Error::Unsupported(_))));
    tree.set_merge_operator(|_: &[u8], old: Option<&[u8]>, new: &[u8]| {
        (new != b"stop").then(|| [old.unwrap_or_default(), new].concat())
    });
    let other = db.open_tree("sums").unwrap();
    assert_eq!(other.merge("k", "ab"), Ok(Some("ab".into())));
    assert_eq!(other.merge("k", "c"), Ok(Some("abc".into())));
    assert_eq!((other.merge("k", "stop"), tree.get("k")), (Ok(None), Ok(None)));
}

#[test]
fn transactions_over_trees_commit_together_or_abort() {
    let db = temporary();
    let (todo, done) = (db.open_tree("todo").unwrap(), db.open_tree("done").unwrap());
    todo.insert("job", "x").unwrap();
    let moved: TransactionResult<IVec> = (&todo, &done).transaction(|(todo, done)| {
        let job = todo.remove("job")?.unwrap();
        done.insert("job", &job)?;
        assert_eq!((todo.get("job")?, done.get("job")?), (None, Some("x".into())));
        done.flush();
        Ok(job)
    });
    assert_eq!(moved, Ok("x".into()));
    let given_up: TransactionResult<(), String> = [todo.clone(), done.clone()][..].transaction(|trees| {
        trees[1].insert("other", "y")?;
        abort("no".to_owned())
    });
    assert_eq!(given_up, Err(TransactionError::Abort("no".to_owned())));
    assert_eq!((todo.len(), done.len()), (0, 1));

    let mut batch = Batch::default();
    batch.insert("b", "1");
    batch.remove("job");
    done.transaction::<_, _, ()>(|done| Ok(done.apply_batch(&batch)?)).unwrap();
    todo.apply_batch(batch).unwrap();
    assert_eq!((todo.get("b").unwrap(), done.get("job").unwrap()), (Some("1".into()), None));

    let other = temporary();
    let mixed: TransactionResult<()> = (&todo, &*other).transaction(|_| Ok(()));
    assert!(matches!(mixed, Err(TransactionError::Storage(Error::Unsupported(_)))), "{mixed:?}");
    // A view that outlives its transaction.
    let kept = std::cell::RefCell::new(None);
    todo.transaction::<_, _, ()>(|todo| {
        kept.replace(Some(todo.clone()));
        Ok(())
    })
    .unwrap();
    assert!(kept.take().unwrap().get("b").is_err());
    // An attempt that meets a conflict runs again.
    let attempts = std::cell::Cell::new(0);
    let again: TransactionResult<i32> = todo.transaction(|_| {
        attempts.set(attempts.get() + 1);
        if attempts.get() < 3 { Err(ConflictableTransactionError::Conflict) } else { Ok(attempts.get()) }
    });
    assert_eq!(again, Ok(3));
}

#[test]
fn concurrent_transactions_lose_nothing() {
    let db = temporary();
    let (a, b) = (db.open_tree("a").unwrap(), db.open_tree("b").unwrap());
    let number = |bytes: Option<IVec>| bytes.map_or(0_u32, |bytes| text(&bytes).parse().unwrap());
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (a, b) = (a.clone(), b.clone());
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let added: TransactionResult<()> = (&a, &b).transaction(|(a, b)| {
                        let next = number(a.get("n")?) + 1;
                        assert_eq!(number(b.get("n")?) + 1, next);
                        a.insert("n", &*next.to_string())?;
                        b.insert("n", &*next.to_string())?;
                        Ok(())
                    });
                    added.unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((number(a.get("n").unwrap()), number(b.get("n").unwrap())), (800, 800));
    db.esker().check().unwrap();
}

#[test]
fn subscribers_get_the_changes_of_their_prefix_in_order() {
    let db = temporary();
    let mut all = db.watch_prefix("");
    let mut some = db.watch_prefix("b");
    db.insert("a", "1").unwrap();
    db.insert("b", vec![7; 10_000]).unwrap();
    db.transaction::<_, _, ()>(|db| Ok(db.remove("b").map(drop)?)).unwrap();
    db.insert("bc", "2").unwrap();
    db.clear().unwrap();
    let wait = Duration::from_secs(10);
    let mut seen = Vec::new();
    while seen.len() < 6 {
        match all.next_timeout(wait).unwrap() {
            Event::Insert { key, .. } => seen.push(format!("+{}", text(&key))),
            Event::Remove { key } => seen.push(format!("-{}", text(&key))),
        }
        // The value of `b` is too large for the queue, and is gone: only its removal is seen.
        if seen == ["+a", "-b"] {
            seen.insert(1, "+b".to_owned());
        }
    }
    assert_eq!(seen, ["+a", "+b", "-b", "+bc", "-a", "-bc"]);
    assert_eq!(all.next_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
    assert!(some.next().unwrap().key().starts_with(b"b"));
    drop(db);
    while let Ok(event) = some.next_timeout(wait) {
        assert!(event.key().starts_with(b"b"));
    }
    assert_eq!(some.next_timeout(wait), Err(RecvTimeoutError::Disconnected));
    assert_eq!(all.next(), None);
}

#[test]
fn a_subscriber_waits_on_another_thread_and_as_a_future() {
    let db = temporary();
    let (mut blocking, mut future) = (db.watch_prefix(""), db.watch_prefix(""));
    let waiter = std::thread::spawn(move || blocking.next());
    std::thread::sleep(Duration::from_millis(50));
    db.insert("k", "v").unwrap();
    let expected = Some(Event::Insert { key: "k".into(), value: "v".into() });
    assert_eq!(waiter.join().unwrap(), expected);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let poll = std::future::Future::poll(std::pin::Pin::new(&mut future), &mut context);
    assert_eq!(poll, std::task::Poll::Ready(expected));
    let poll = std::future::Future::poll(std::pin::Pin::new(&mut future), &mut context);
    assert!(poll.is_pending());
}

#[test]
fn a_subscriber_that_is_too_far_behind_ends() {
    let db = temporary();
    let mut behind = db.watch_prefix("");
    for number in 0..200_000_u32 {
        db.insert(number.to_be_bytes(), &[0; 100]).unwrap();
    }
    let seen = behind.by_ref().take(200_000).count();
    assert!(seen < 200_000, "{seen}");
    assert_eq!(behind.next_timeout(Duration::ZERO), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn writes_survive_a_drop_and_flushed_ones_a_copy_of_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new().path(dir.path().join("db")).cache_capacity(16 << 20).flush_every_ms(None);
    let db = config.open().unwrap();
    assert!(!db.was_recovered());
    let ids: Vec<u64> = (0..5).map(|_| db.generate_id().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b));
    db.insert("flushed", "1").unwrap();
    db.flush().unwrap();
    db.insert("dropped", "2").unwrap();
    // The files as a kill leaves them.
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(dir.path().join("db")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let killed = Config::new().path(&copy).cache_capacity(16 << 20).open().unwrap();
    assert_eq!(killed.get("flushed"), Ok(Some("1".into())));
    assert_eq!(killed.get("dropped"), Ok(Some("2".into())));
    assert!(killed.generate_id().unwrap() > ids[4]);

    assert!(matches!(config.open(), Err(Error::Io(_))), "it is open");
    drop(db);
    let db = config.open().unwrap();
    assert!(db.was_recovered());
    assert_eq!(db.get("dropped"), Ok(Some("2".into())));
    assert!(db.generate_id().unwrap() > ids[4]);
    drop(db);
    assert!(matches!(config.create_new(true).open(), Err(Error::Io(_))));
}

#[test]
fn a_temporary_database_goes_with_its_last_handle() {
    let config = Config::new().temporary(true).cache_capacity(16 << 20);
    let path = config.get_path();
    let db = config.open().unwrap();
    db.insert("k", "v").unwrap();
    let iter = db.iter();
    drop(db);
    let db = {
        drop(iter);
        config.open().unwrap()
    };
    assert_eq!(db.get("k"), Ok(Some("v".into())));
    drop(config);
    assert!(path.exists());
    let iter = db.iter();
    drop(db);
    assert!(path.exists());
    drop(iter);
    assert!(!path.exists());
}

#[test]
fn threads_share_handles() {
    let db = temporary();
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4_u32)
        .map(|thread| {
            let (db, barrier) = (db.clone(), barrier.clone());
            std::thread::spawn(move || {
                barrier.wait();
                for number in 0..500_u32 {
                    let tree = db.open_tree(format!("tree {}", number % 5)).unwrap();
                    tree.insert([thread.to_be_bytes(), number.to_be_bytes()].concat(), "v").unwrap();
                    db.update_and_fetch("n", |old| Some(vec![old.map_or(0, |old| old[0]).wrapping_add(1)]))
                        .unwrap();
                }
                (0..100).map(|_| db.generate_id().unwrap()).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut ids: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 400);
    assert_eq!(db.get("n").unwrap().unwrap(), [(2000 % 256) as u8]);
    let total: usize = (0..5).map(|tree| db.open_tree(format!("tree {tree}")).unwrap().len()).sum();
    assert_eq!(total, 2000);
    db.esker().check().unwrap();
}

#[test]
fn errors_keep_their_source() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new().path(dir.path().join("db")).cache_capacity(16 << 20);
    let _open = config.open().unwrap();
    let error = config.open().unwrap_err();
    let Error::Io(inner) = &error else { panic!("{error:?}") };
    let source = inner.get_ref().and_then(|source| source.downcast_ref::<esker::Error>());
    assert!(matches!(source, Some(esker::Error::Locked { .. })), "{error:?}");
    assert!(std::error::Error::source(&error).is_some());
    assert!(std::io::Error::from(error).get_ref().is_some_and(|source| source.is::<esker::Error>()));
}
