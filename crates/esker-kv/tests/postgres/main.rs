//! The store on a PostgreSQL server that the tests start.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

mod bank;
mod measure;
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use esker_kv::postgres::{Isolation, Options, Postgres};
use esker_kv::{Blocking, Error, Kv, Order, Query, Reads, Span, collect, conformance, transact};
use tokio::runtime::Runtime;

use self::server::Server;

/// A crash of the server's processes loses nothing that was written to files.
const FAST: &[&str] = &["fsync=off", "autovacuum=off"];

/// A store with the threads that it needs.
pub(crate) struct Store {
    kv: Blocking<Postgres>,
    runtime: Runtime,
}

pub(crate) fn open(server: &Server, options: Options) -> Result<Store, Error> {
    open_url(&server.url(), options)
}

fn open_url(url: &str, options: Options) -> Result<Store, Error> {
    let runtime = Runtime::new().unwrap();
    let postgres = runtime.block_on(Postgres::connect(url, options))?;
    Ok(Store { kv: Blocking::new(Arc::new(postgres), runtime.handle().clone()), runtime })
}

/// Runs SQL beside the store. Returns a number of the first row.
pub(crate) fn sql(server: &Server, runtime: &Runtime, text: &str) -> i64 {
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.query_one(text, &[]).await.unwrap().get(0)
    })
}

#[test]
fn conforms() {
    let Some(server) = Server::start(FAST) else { return };
    let store = open(&server, Options::default()).unwrap();
    conformance(&store.kv).unwrap();
}

#[test]
fn a_serializable_store_commits_what_was_read_at_one_time() {
    let Some(server) = Server::start(FAST) else { return };
    let options = Options { isolation: Isolation::Serializable, ..Options::default() };
    let store = open(&server, options).unwrap();
    let space = store.kv.space("skew").unwrap();
    let (mut first, mut second) = (store.kv.begin().unwrap(), store.kv.begin().unwrap());
    for (transaction, reads, writes) in [(&mut first, b"a", b"b"), (&mut second, b"b", b"a")] {
        transaction.get(&space, reads).unwrap();
        transaction.put(&space, writes, b"1").unwrap();
    }
    first.commit().unwrap();
    assert!(matches!(second.commit(), Err(Error::Conflict)));
}

#[test]
fn options_and_urls_that_are_wrong_are_refused() {
    let Some(server) = Server::start(FAST) else { return };
    let runtime = Runtime::new().unwrap();
    let connect = |url: &str, table: &str| {
        let options = Options { table: table.to_owned(), ..Options::default() };
        runtime.block_on(Postgres::connect(url, options)).map(|_| ())
    };
    let url = server.url();
    let cases = [
        (url.clone() + "?sslmode=require", "t", "invalid"),
        ("redis://somewhere".to_owned(), "t", "invalid"),
        (url.clone(), "t; DROP TABLE t", "invalid"),
        (url.replace("secret", "wrong"), "t", "other"),
        (url.replace("/postgres", "/missing"), "t", "other"),
        (url.clone(), "missing.t", "other"),
        ("postgres://esker@127.0.0.1:1/postgres".to_owned(), "t", "unavailable"),
    ];
    for (url, table, expected) in cases {
        let error = connect(&url, table).unwrap_err();
        let is = match error {
            Error::Invalid(_) => "invalid",
            Error::Unavailable(_) => "unavailable",
            _ => "other",
        };
        assert_eq!(is, expected, "{url} {table}: {error}");
    }
    connect(&url, "public.t").unwrap();
}

#[test]
fn connections_are_bounded_and_given_back() {
    let Some(server) = Server::start(FAST) else { return };
    let wait = Duration::from_millis(300);
    let options = Options { connections_max: 2, wait, lock_wait: wait, ..Options::default() };
    let store = open(&server, options).unwrap();
    let space = store.kv.space("s").unwrap();
    transact(&store.kv, |transaction| transaction.put(&space, b"k", b"1")).unwrap();
    let (mut first, mut second) = (store.kv.begin().unwrap(), store.kv.begin().unwrap());
    assert!(matches!(store.kv.get(&space, b"k"), Err(Error::Unavailable(_))));
    first.get_for_update(&space, b"k").unwrap();
    assert!(matches!(second.get_for_update(&space, b"k"), Err(Error::Conflict)), "lock_wait is over");
    assert!(matches!(second.commit(), Err(Error::Conflict)), "the transaction is over, too");
    drop(first);
    for n in 0..100_u8 {
        let snapshot = store.kv.snapshot().unwrap();
        let mut dropped = store.kv.begin().unwrap();
        dropped.get_for_update(&space, b"k").unwrap();
        dropped.put(&space, b"k", b"2").unwrap();
        drop(dropped);
        transact(&store.kv, |transaction| transaction.put(&space, b"n", &[n])).unwrap();
        assert_eq!(snapshot.get(&space, b"k").unwrap().as_deref(), Some(&b"1"[..]));
    }
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'esker-kv'";
    assert_eq!(sql(&server, &store.runtime, sessions), 2);
}

#[test]
fn writes_of_keys_that_another_transaction_inserts_conflict() {
    let Some(server) = Server::start(FAST) else { return };
    let store = open(&server, Options::default()).unwrap();
    let space = store.kv.space("s").unwrap();
    for writes_it in [false, true] {
        let mut late = store.kv.begin().unwrap();
        match writes_it {
            true => assert_eq!(late.get(&space, b"new").unwrap(), None),
            false => assert_eq!(late.get_for_update(&space, b"new").unwrap(), None),
        }
        transact(&store.kv, |transaction| transaction.put(&space, b"new", b"1")).unwrap();
        match writes_it {
            true => late.remove(&space, b"new").unwrap(),
            false => late.put(&space, b"other", b"1").unwrap(),
        }
        assert!(matches!(late.commit(), Err(Error::Conflict)), "{writes_it}");
        transact(&store.kv, |transaction| transaction.remove(&space, b"new")).unwrap();
    }
    let rows = "SELECT count(*) FROM esker_kv WHERE length(v) = 0";
    assert_eq!(sql(&server, &store.runtime, rows), 0, "rows that were inserted to find conflicts");
}

/// The server waits for a standby that is not there between a commit and its answer.
#[test]
fn a_commit_whose_answer_is_lost_has_an_unknown_outcome() {
    let Some(server) = Server::start(&["fsync=off", "synchronous_standby_names=missing"]) else { return };
    let url = format!("{}?options=-c%20synchronous_commit%3Dlocal", server.url());
    let local = open_url(&url, Options::default()).unwrap();
    let timeout = Duration::from_secs(1);
    let space = local.kv.space("s").unwrap();
    for key in [b"cut", b"out"] {
        let timeout = if key == b"out" { timeout } else { timeout * 60 };
        let store = open(&server, Options { timeout, ..Options::default() }).unwrap();
        let cut = || {
            let text = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                        WHERE wait_event = 'SyncRep'";
            sql(&server, &local.runtime, text)
        };
        let done = std::thread::scope(|scope| {
            let commit = scope.spawn(|| {
                let space = store.kv.find_space("s")?.unwrap();
                transact(&store.kv, |transaction| transaction.put(&space, key, b"1"))
            });
            let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            while sql(&server, &local.runtime, waits) == 0 {}
            if key == b"cut" {
                cut();
            }
            commit.join().unwrap()
        });
        assert!(matches!(done, Err(Error::OutcomeUnknown(_))), "{done:?}");
        if key == b"out" {
            // The server still waits. Others do not see the commit until then.
            assert_eq!(local.kv.get(&space, key).unwrap(), None);
            cut();
        }
        while local.kv.get(&space, key).unwrap().is_none() {}
    }
}

#[test]
fn a_server_that_hangs_is_not_waited_for() {
    let Some(server) = Server::start(FAST) else { return };
    let second = Duration::from_secs(1);
    let options = Options { timeout: second, wait: second, connections_max: 4, ..Options::default() };
    let store = open(&server, options).unwrap();
    let space = store.kv.space("s").unwrap();
    let mut transaction = store.kv.begin().unwrap();
    assert_eq!(transaction.get(&space, b"k").unwrap(), None);
    server.signal_all("-STOP");
    transaction.put(&space, b"k", b"1").unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Unavailable(_))), "no COMMIT was sent");
    for _ in 0..8 {
        assert!(matches!(store.kv.get(&space, b"k"), Err(Error::Unavailable(_))));
    }
    server.signal_all("-CONT");
    let start = Instant::now();
    while store.kv.get(&space, b"k").is_err() {
        assert!(start.elapsed() < Duration::from_secs(10), "calls work again");
    }
    assert_eq!(store.kv.get(&space, b"k").unwrap(), None);
}

#[test]
fn stores_that_open_at_the_same_time_make_one_table() {
    let Some(server) = Server::start(FAST) else { return };
    std::thread::scope(|scope| {
        for n in 0..8_u8 {
            let server = &server;
            scope.spawn(move || {
                let store = open(server, Options::default()).unwrap();
                let space = store.kv.space("s").unwrap();
                transact(&store.kv, |transaction| transaction.put(&space, &[n], b"1")).unwrap();
            });
        }
    });
    let store = open(&server, Options::default()).unwrap();
    let space = store.kv.find_space("s").unwrap().unwrap();
    assert_eq!(store.kv.count(&space, Span::ALL).unwrap(), 8);
}

#[test]
fn pages_read_the_index_in_order_before_the_first_analyze() {
    let Some(server) = Server::start(FAST) else { return };
    let store = open(&server, Options::default()).unwrap();
    let space = store.kv.space("s").unwrap();
    // The planner takes a range of these for fewer entries than a page has.
    transact(&store.kv, |transaction| {
        (0..5_000_u32).try_for_each(|n| transaction.put(&space, &n.to_be_bytes(), &[7; 100]))
    })
    .unwrap();
    let fetched = "SELECT COALESCE(idx_tup_fetch, 0) + seq_tup_read FROM pg_stat_user_tables";
    // Statistics are complete once the connections have ended.
    drop(store);
    std::thread::sleep(Duration::from_millis(500));
    let store = open(&server, Options::default()).unwrap();
    let space = store.kv.space("s").unwrap();
    let before = sql(&server, &store.runtime, fetched);
    for order in [Order::Up, Order::Down] {
        for _ in 0..10 {
            let page = store.kv.page(&space, Query::new(Span::ALL).order(order).entries(100)).unwrap();
            assert_eq!(page.entries.len(), 100);
        }
    }
    drop(store);
    std::thread::sleep(Duration::from_millis(500));
    let runtime = Runtime::new().unwrap();
    let rows = sql(&server, &runtime, fetched) - before;
    assert!((2_000..2_500).contains(&rows), "{rows} rows were read for 20 pages of 100");
}

#[test]
fn large_values_and_large_commits() {
    let Some(server) = Server::start(FAST) else { return };
    let store = open(&server, Options::default()).unwrap();
    let space = store.kv.space("s").unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let mut value = vec![0; 1 << 20];
    random.fill(&mut value);
    let put = |numbers: std::ops::Range<u16>| {
        transact(&store.kv, |transaction| {
            numbers.clone().try_for_each(|n| transaction.put(&space, &n.to_be_bytes(), &value))
        })
    };
    put(0..40).unwrap();
    let start = Instant::now();
    for _ in 0..10 {
        let page = store.kv.page(&space, Query::new(Span::ALL)).unwrap();
        assert_eq!((page.entries.len(), page.has_more), (1, true));
    }
    let pages = start.elapsed();
    let start = Instant::now();
    assert_eq!(collect(&store.kv, &space, Query::new(Span::ALL).bytes(1 << 30)).unwrap().len(), 40);
    let all = start.elapsed();
    assert!(pages < all * 2, "10 pages of one value took {pages:?}, all 40 values {all:?}");
    // A commit in parts is there whole or not at all.
    let mut late = store.kv.begin().unwrap();
    late.get(&space, &[0, 39]).unwrap();
    (0..40_u16).for_each(|n| late.put(&space, &n.to_be_bytes(), b"late").unwrap());
    (40..60_u16).for_each(|n| late.put(&space, &n.to_be_bytes(), &value).unwrap());
    put(39..40).unwrap();
    assert!(matches!(late.commit(), Err(Error::Conflict)));
    assert_eq!(store.kv.count(&space, Span::ALL).unwrap(), 40);
    let largest = vec![1; store.kv.limits().value_bytes];
    transact(&store.kv, |transaction| transaction.put(&space, b"largest", &largest)).unwrap();
    assert_eq!(store.kv.get(&space, b"largest").unwrap().unwrap(), largest);
}
