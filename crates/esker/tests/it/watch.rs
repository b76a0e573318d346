//! Watches of keys, and notices under topics.

#![expect(clippy::disallowed_methods, reason = "tests with real threads")]

use std::collections::BTreeMap;
use std::time::Duration;

use esker::{Change, Db, Notice};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn shown(change: &Change) -> String {
    match change {
        Change::Put { key, value } => {
            format!("{}={}", text(key), value.as_ref().map_or("?".to_owned(), |v| text(v)))
        }
        Change::Delete { key } => format!("-{}", text(key)),
        Change::DeleteRange { start, end } => {
            format!("-{}..{}", text(start), end.as_ref().map_or(String::new(), |end| text(end)))
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn watchers_1_watchers_of_changed_keys_get_commits_in_order() {
    let db = Db::in_memory().unwrap();
    let (map, other) = (db.create_keyspace("map").unwrap(), db.create_keyspace("other").unwrap());
    let mut watch = map.watch("b".."m").unwrap();
    let mut prefix = map.watch_prefix("c").unwrap();
    map.put("a", "0").unwrap();
    other.put("c", "0").unwrap();
    let mut batch = db.batch();
    for (key, value) in [("c2", "1"), ("z", "2"), ("b", "3"), ("c2", "4")] {
        batch.put(&map, key, value).unwrap();
    }
    let seq = batch.commit().unwrap();
    map.delete("l").unwrap();
    map.delete_range("k".."x").unwrap();
    map.put("large", vec![7; 10_000]).unwrap();
    map.clear().unwrap();
    let mut all = Vec::new();
    while let Some((number, change)) = watch.try_next() {
        all.push((number.get() - seq.get(), shown(&change)));
    }
    let reported = |list: &[(u64, &str)]| list.iter().map(|(n, t)| (*n, (*t).to_owned())).collect::<Vec<_>>();
    assert_eq!(
        all,
        reported(&[(0, "b=3"), (0, "c2=4"), (1, "-l"), (2, "-k..x"), (3, "large=?"), (4, "-..")])
    );
    assert_eq!(shown(&prefix.next().unwrap().1), "c2=4");
    assert_eq!(shown(&prefix.next().unwrap().1), "-..");
    assert!(prefix.next_within(Duration::from_millis(1)).is_none());
    db.close().unwrap();
    assert!(prefix.next().is_none() && prefix.is_ended(), "it ends with the database");
}

#[test]
fn watching_and_reading_once_tells_what_is_there() {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    let mut watch = map.watch_newest(..).unwrap();
    let writer = {
        let map = map.clone();
        std::thread::spawn(move || {
            let mut rng = fastrand::Rng::with_seed(3);
            for n in 0..20_000_u32 {
                let key = [rng.u8(0..50)];
                match rng.u8(0..4) {
                    0 => map.delete(key).unwrap(),
                    _ => map.put(key, n.to_be_bytes()).unwrap(),
                };
            }
        })
    };
    let snapshot = db.snapshot();
    let mut known: BTreeMap<Vec<u8>, Vec<u8>> =
        snapshot.keyspace(&map).iter().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    writer.join().unwrap();
    let mut last = 0;
    while let Some((seq, change)) = watch.try_next() {
        assert!(seq.get() > last, "watchers.1");
        last = seq.get();
        match change {
            _ if seq <= snapshot.seqno() => {}
            Change::Put { key, value } => drop(known.insert(key.to_vec(), value.unwrap().to_vec())),
            Change::Delete { key } => drop(known.remove(&*key)),
            other => panic!("{other:?}"),
        }
    }
    let there: BTreeMap<Vec<u8>, Vec<u8>> =
        map.iter().map(|e| e.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect();
    assert_eq!(known, there);
}

#[test]
fn what_a_transaction_says_is_heard_when_it_commits() {
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    let (mut jobs, mut all) = (db.listen("jobs").unwrap(), db.listen_prefix("").unwrap());
    let mut t = db.begin();
    t.put(&map, "job 7", "todo").unwrap();
    t.notify("jobs", "7");
    t.notify("jobs of ann", "8");
    assert!(jobs.try_next().is_none(), "it has not committed");
    let mut rolled_back = db.begin();
    rolled_back.notify("jobs", "never");
    rolled_back.rollback();
    let seq = t.commit().unwrap();
    let mut alone = db.begin();
    alone.notify("jobs", "nothing written");
    alone.commit().unwrap();
    let said = |notice: Notice| match notice {
        Notice::Said { topic, text: said } => format!("{topic}: {}", text(&said)),
        other => format!("{other:?}"),
    };
    assert_eq!(jobs.try_next().map(|(n, notice)| (n, said(notice))), Some((seq, "jobs: 7".to_owned())));
    assert_eq!(jobs.try_next().map(|(_, notice)| said(notice)).as_deref(), Some("jobs: nothing written"));
    assert_eq!(all.by_ref().take(3).map(|(_, n)| said(n)).collect::<Vec<_>>().len(), 3);
    assert!(all.try_next().is_none() && jobs.try_next().is_none());
}

#[cfg(feature = "tokio")]
#[test]
fn streams_of_events_miss_none_whatever_is_cancelled() {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    const COUNT: u32 = 5000;
    let db = Db::in_memory().unwrap();
    let map = db.default_keyspace();
    let (mut changes, mut newest) =
        (map.watch(..).unwrap().into_stream(), map.watch_newest(..).unwrap().into_stream());
    let mut notices = db.listen("topic").unwrap().into_stream();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let seen = tokio::spawn(async move {
            let mut seen = Vec::new();
            loop {
                // Polled once by another task and dropped.
                let polled = std::pin::pin!(changes.next()).poll(&mut Context::from_waker(Waker::noop()));
                let next = match polled {
                    Poll::Ready(next) => next,
                    Poll::Pending => changes.next().await,
                };
                match next {
                    Some((_, change)) => seen.push(shown(&change)),
                    None => return seen,
                }
            }
        });
        let last = tokio::spawn(async move {
            let mut last = None;
            while let Some((_, change)) = newest.next().await {
                last = Some(shown(&change));
            }
            last
        });
        let heard = tokio::spawn(async move {
            let mut heard = 0;
            while let Some((_, notice)) = notices.next().await {
                assert!(matches!(notice, Notice::Said { .. }));
                heard += 1;
            }
            heard
        });
        let write = move || {
            for n in 0..COUNT {
                let mut transaction = db.begin();
                transaction.put(&map, "k", n.to_string()).unwrap();
                transaction.notify("topic", "");
                transaction.commit_with(esker::Durability::Buffered).unwrap();
            }
            map.remove("k").unwrap();
            db.close().unwrap();
        };
        tokio::task::spawn_blocking(write).await.unwrap();
        let mut expected: Vec<_> = (0..COUNT).map(|n| format!("k={n}")).collect();
        expected.push("-k".to_owned());
        assert_eq!(seen.await.unwrap(), expected);
        assert_eq!(last.await.unwrap().as_deref(), Some("-k"));
        assert_eq!(heard.await.unwrap(), COUNT);
    });
}
