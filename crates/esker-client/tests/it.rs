//! Tests the clients against a server in this process.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start threads of their own, and fail where something does"
)]

#[path = "../examples/rows.rs"]
#[allow(dead_code, reason = "its main function")]
mod example;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use esker_client::ob::{self, Isolation, LockMode, Sync};
use esker_client::{AsyncClient, Client, Error, Names, Retry, Test, es, key};
use esker_server::store::LocalStore;
use esker_server::{Listeners, Options, Server, run};

/// A server that stops when dropped.
struct TestServer {
    server: Arc<Server>,
    db: esker::Db,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    fn start() -> Self {
        let hour = Duration::from_secs(3600);
        let db = esker::Db::builder().feed_retention(64 << 20, hour).open_in_memory().unwrap();
        let store = Arc::new(LocalStore::new(db.clone(), 1 << 30));
        let server =
            Server::new(store, Some(db.clone()), Options { port: Some(0), ..Options::default() }).unwrap();
        let thread = std::thread::spawn({
            let server = server.clone();
            move || {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
                runtime.unwrap().block_on(async {
                    let listeners = Listeners::bind(&server).await.unwrap();
                    run(server, &listeners).await.unwrap();
                });
            }
        });
        while server.ports.plain.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        TestServer { server, db, thread: Some(thread) }
    }

    fn url(&self, query: &str) -> String {
        format!("redis://127.0.0.1:{}/{query}", self.server.ports.plain.load(Ordering::Relaxed))
    }

    fn client(&self) -> Client {
        Client::connect(&self.url("")).unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.server.stop_now();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

#[test]
fn the_example_shows_what_it_should() {
    let shown = example::run(&TestServer::start().url("")).unwrap();
    let expected =
        ["bob is 7", "cid is 9", "ann at 7: /early", "ann at 1000: /late", "cid has 5", "bob has 4"];
    assert_eq!(shown, expected);
}

#[test]
fn rows_of_both_versions_of_the_protocol() {
    let server = TestServer::start();
    for query in ["", "?protocol=resp3"] {
        let mut client = Client::connect(&server.url(query)).unwrap();
        let rows = ob::put_rows("t").row("a", [("x", "1"), ("y", "2")]).row_at("b", [("x", "3")], -5);
        client.run(rows.request()).unwrap();
        assert_eq!(
            client.run(ob::row("t", "a")).unwrap(),
            [(b"x".to_vec(), b"1".to_vec()), (b"y".to_vec(), b"2".to_vec())]
        );
        let page = client.run(ob::slice("t").reverse().max_keys(1).max_columns(1).request()).unwrap();
        assert_eq!((page.last.as_deref(), page.rows[0].columns[0].micros), (Some(&b"b"[..]), -5));
        let all = client.pages(ob::slice("t").max_keys(1)).map(|row| row.unwrap().key).collect::<Vec<_>>();
        assert_eq!(all, [b"a", b"b"]);
        let none = ob::slice("t").keys(Names::new().list([""; 0])).matching("x", Test::Exists);
        assert!(client.run(none.request()).unwrap().rows.is_empty(), "of an empty list it is none");
        assert_eq!(client.run(ob::keys(&ob::slice("t"))).unwrap().rows, [b"a", b"b"]);
        assert_eq!(client.run(ob::exist("t", ["a", "c"])).unwrap(), [true, false]);
        assert_eq!(client.run(ob::count("t", &Names::new().range("a", "b"))).unwrap(), 1);
        let sizes =
            [client.run(ob::size("t")), client.run(ob::range_size("t", "a", "b"))].map(|size| size.unwrap());
        assert!(sizes[0] > sizes[1] && sizes[1] > 0);
        client.run(ob::delete_columns("t", "a", "x", ["z"])).unwrap();
        assert_eq!(client.run(ob::get("t", "a", ["x", "y"])).unwrap(), [None, Some(b"2".to_vec())]);
        client.run(ob::delete("t", "a")).unwrap();
        assert_eq!(client.run(ob::tables()).unwrap(), [b"t"]);
        client.run(ob::delete_keys("t", &Names::new().list([""; 0]))).unwrap();
        assert_eq!(client.run(ob::count("t", &Names::new())).unwrap(), 1);
        client.run(ob::delete_keys("t", &Names::new())).unwrap();
        assert!(client.run(ob::tables()).unwrap().is_empty());
        assert_eq!(client.run(ob::keyspaces()).unwrap(), ["default"]);

        let begin = ob::begin().isolation(Isolation::RepeatableRead).sync(Sync::Disk);
        let id = client.run(begin.request()).unwrap();
        client.run(ob::lock(LockMode::Exclusive, Duration::ZERO, ["l"])).unwrap();
        client.run(ob::put("t", "k", [("c", "v")])).unwrap();
        let infos = server.client().run(ob::transactions()).unwrap();
        assert_eq!((infos[0].id, infos[0].writes, &*infos[0].holds), (id, 1, &[(b"l".to_vec(), true)][..]));
        assert_eq!(server.client().run(ob::changed_tables(id)).unwrap(), [b"t"]);
        let mut other = server.client();
        other.run(ob::begin().request()).unwrap();
        let refused = other.run(ob::lock(LockMode::Shared, Duration::from_millis(10), ["l"]));
        assert!(matches!(refused, Err(Error::LockTimeout)), "{refused:?}");
        client.run(ob::abort()).unwrap();
        assert_eq!(client.run(ob::transaction_id()).unwrap(), None);
        assert!(matches!(client.run(ob::commit()), Err(Error::Server { .. })));
    }
}

#[test]
fn a_transaction_begins_again_after_a_conflict() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    let mut runs = 0;
    let begin = ob::begin();
    let done = client.transact(begin, |client| {
        runs += 1;
        client.run(ob::watch("t").columns("k", ["n"]).request())?;
        if runs == 1 {
            other.run(ob::put("t", "k", [("n", "1")]))?;
        }
        client.run(ob::put("t", "k", [("n", "2")]))
    });
    assert!(done.is_ok() && runs == 2, "{done:?} {runs}");
    let failed: Result<(), _> = client.transact(begin, |client| {
        client.run(ob::put("t", "k", [("n", "3")]))?;
        Err(Error::Key(key::KeyError::Ended))
    });
    assert!(matches!(failed, Err(Error::Key(_))));
    assert_eq!(client.run(ob::get("t", "k", ["n"])).unwrap(), [Some(b"2".to_vec())]);
    // Ordered keys and rows in one transaction, kept isolated without watches.
    for (isolation, expected) in [(Isolation::Snapshot, 1), (Isolation::Serializable, 2)] {
        let mut runs = 0;
        let done = client.transact(ob::begin().isolation(isolation).sync(Sync::Os), |client| {
            runs += 1;
            let n = client.run(ob::get("t", "k", ["n"]))?.remove(0).unwrap_or_default();
            if runs == 1 {
                other.run(ob::put("t", "k", [("n", "5")]))?;
            }
            client.run(es::set("copy", n))
        });
        assert!(done.is_ok() && runs == expected, "{done:?} {runs}");
        client.run(ob::put("t", "k", [("n", "2")])).unwrap();
    }
    assert_eq!(client.run(es::get("copy")).unwrap(), Some(b"5".to_vec()));
}

#[test]
fn ordered_keys_and_stored_keys() {
    let server = TestServer::start();
    let mut client = server.client();
    client.run(ob::put("t\0", "k", [("c", "v")])).unwrap();
    let stored = server.db.open_keyspace("ob.default").unwrap().first().unwrap().unwrap();
    let parts = key::decode_stored(&stored.0).unwrap();
    assert_eq!(parts, (b"t\0".to_vec(), b"k".to_vec(), b"c".to_vec()));
    client.run(es::create_keyspace("plain")).unwrap();
    client.run(es::use_keyspace("plain")).unwrap();
    for name in ["a", "b", "bb", "c"] {
        client.run(es::set(name, name)).unwrap();
    }
    let entry = |name: &str| (name.as_bytes().to_vec(), Some(name.as_bytes().to_vec()));
    assert_eq!(client.run(es::range("a", "c").exclusive().limit(1).request()).unwrap(), [entry("b")]);
    assert_eq!(client.run(es::prefix("b").reverse().request()).unwrap(), [entry("bb"), entry("b")]);
    assert_eq!(client.run(es::next("b")).unwrap(), Some(entry("bb")));
    assert_eq!(
        (client.run(es::previous("a")).unwrap(), client.run(es::last()).unwrap()),
        (None, Some(entry("c")))
    );
    assert!(client.run(es::compare_and_set("a", Some(b"a"), None)).unwrap());
    assert!(!client.run(es::compare_and_set("b", None, Some(b"x"))).unwrap());
    assert_eq!(
        (client.run(es::first()).unwrap(), client.run(es::get("a")).unwrap()),
        (Some(entry("b")), None)
    );
    assert!(client.run(es::delete("b")).unwrap());
    assert_eq!(client.run(es::count("", "")).unwrap(), 2);
    assert_eq!(client.run(es::delete_range("", "")).unwrap(), 2);
}

#[tokio::test]
async fn the_async_client_listens_and_runs_transactions() {
    let server = TestServer::start();
    let mut listener = AsyncClient::connect(&server.url("")).await.unwrap();
    listener.run(ob::listen_prefix("jobs/")).await.unwrap();
    listener.run(ob::listen("news")).await.unwrap();
    let heard = tokio::spawn(async move {
        let topics = listener.run(ob::await_topics(Duration::ZERO)).await?;
        listener.run(ob::unlisten_prefix("jobs/")).await?;
        listener.run(ob::unlisten("news")).await?;
        let later = listener.run(ob::await_topics(Duration::from_millis(10))).await?;
        Ok::<_, Error>((topics, later))
    });
    let (mut client, mut other) = (AsyncClient::connect(&server.url("")).await.unwrap(), server.client());
    // Waits until the server has registered the listener.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut runs = 0;
    let done = client.transact(ob::begin(), async |client| {
        runs += 1;
        client.run(ob::watch("t").key("k").request()).await?;
        if runs == 1 {
            other.run(ob::put("t", "k", [("n", "1")]))?;
        }
        client.run(ob::notify(["jobs/7"])).await?;
        client.run(ob::put("t", "k", [("n", "2")])).await
    });
    done.await.unwrap();
    assert_eq!(runs, 2);
    assert_eq!(heard.await.unwrap().unwrap(), (vec![b"jobs/7".to_vec()], vec![]));
    let refused = client.transact(ob::begin(), async |_| Err::<(), _>(Error::Overflow)).await;
    assert!(matches!(refused, Err(Error::Overflow)));
    assert_eq!(client.run(ob::transaction_id()).await.unwrap(), None);
}

#[test]
fn a_transaction_that_always_conflicts_is_given_up() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    let day = Duration::from_secs(86_400);
    let retries = [
        (Retry::new().attempts(3).deadline(day), 3),
        (Retry::new().attempts(0), 1),
        (Retry::new().deadline(Duration::ZERO), 1),
    ];
    let begin = ob::begin().isolation(Isolation::Serializable);
    for (retry, expected) in retries {
        let mut runs = 0;
        let done = client.transact_with(begin, retry, |client| {
            runs += 1;
            client.run(es::get("k"))?;
            other.run(es::set("k", runs.to_string()))?;
            client.run(es::set("k", "mine"))
        });
        assert!(matches!(done, Err(Error::Conflict)) && runs == expected, "{done:?} {runs}");
    }
    assert_eq!(client.run(ob::transaction_id()).unwrap(), None);
}

#[test]
fn locks_snapshots_and_savepoints() {
    let server = TestServer::start();
    let (mut client, mut other) = (server.client(), server.client());
    client.run(es::lock("l").shared().request()).unwrap();
    other.run(es::lock("l").shared().wait(Duration::ZERO).request()).unwrap();
    let refused = other.run(es::lock("l").wait(Duration::from_millis(5)).request());
    assert!(matches!(refused, Err(Error::LockTimeout)), "{refused:?}");
    assert!(client.run(es::unlock("l")).unwrap() && !client.run(es::unlock("l")).unwrap());
    other.run(es::lock("l").wait(Duration::ZERO).request()).unwrap();

    client.run(es::set("a", "1")).unwrap();
    let snapshot = client.run(es::open_snapshot()).unwrap();
    client.run(es::set("a", "2")).unwrap();
    client.run(es::set("b", "2")).unwrap();
    let entry = |key: &str, value: &str| (key.as_bytes().to_vec(), Some(value.as_bytes().to_vec()));
    assert_eq!(client.run(es::at(snapshot, es::get("a"))).unwrap(), Some(b"1".to_vec()));
    assert_eq!(client.run(es::at(snapshot, es::last())).unwrap(), Some(entry("a", "1")));
    let walk = es::range("", "").limit(9).request();
    assert_eq!(client.run(es::at(snapshot, walk)).unwrap(), [entry("a", "1")]);
    assert_eq!(client.run(es::snapshots()).unwrap(), [snapshot]);
    assert!(client.run(es::close_snapshot(snapshot)).unwrap());
    assert!(!client.run(es::close_snapshot(snapshot)).unwrap());

    client.run(ob::begin().isolation(Isolation::Serializable).request()).unwrap();
    client.run(es::set("a", "3")).unwrap();
    client.run(es::savepoint("s")).unwrap();
    client.run(es::set("b", "3")).unwrap();
    client.run(es::rollback_to("s")).unwrap();
    client.run(ob::commit()).unwrap();
    assert_eq!(client.run(es::range("", "").request()).unwrap(), [entry("a", "3"), entry("b", "2")]);
}

#[test]
fn the_feed_and_watches_show_changes_in_both_versions_of_the_protocol() {
    let server = TestServer::start();
    server.client().run(es::create_keyspace("plain")).unwrap();
    for query in ["", "?protocol=resp3"] {
        let [mut client, mut watcher] = [(); 2].map(|()| {
            let mut client = Client::connect(&server.url(query)).unwrap();
            client.run(es::use_keyspace("plain")).unwrap();
            client
        });
        let at = client.run(es::position()).unwrap();
        watcher.run(es::get("k")).unwrap();
        let mut events = watcher.changes(es::watch().key("k").prefix("user:")).unwrap();
        client.run(es::set("k", "1")).unwrap();
        client.run(es::set("other", "1")).unwrap();
        client.run(es::delete("k")).unwrap();
        client.run(es::set("user:1", "1")).unwrap();
        client.run(es::delete_range("user:", "")).unwrap();
        let (mut next, mut commits) = (at.clone(), Vec::new());
        while commits.len() < 5 {
            let feed = es::feed(&next).count(2);
            let feed =
                if commits.is_empty() { feed.wait(Duration::from_secs(60)) } else { feed.wait_forever() };
            let page = client.run(feed.request()).unwrap();
            assert!(page.commits.len() <= 2);
            next = page.next;
            commits.extend(page.commits);
        }
        assert_eq!(commits[4].position, next);
        let changes: Vec<_> = commits.into_iter().flat_map(|commit| commit.changes).collect();
        let set = |key: &str| es::Change::Set(key.into(), Some(b"1".to_vec()));
        let removed = es::Change::DeleteRange(b"user:".to_vec(), Vec::new());
        assert_eq!(changes, [set("k"), set("other"), es::Change::Delete("k".into()), set("user:1"), removed]);
        let ahead = es::Position { number: next.number + 9, ..next };
        let lost = client.run(es::feed(&ahead).request());
        assert!(matches!(lost, Err(Error::PositionLost(_))), "{lost:?}");
        let seen: Vec<_> = events.by_ref().take(4).map(Result::unwrap).collect();
        let (set, deleted) = (es::KeyEvent::Set, es::KeyEvent::Delete);
        let removed = es::KeyEvent::DeleteRange("user:".into());
        assert_eq!(seen, [set("k".into()), deleted("k".into()), set("user:1".into()), removed]);
    }
}
