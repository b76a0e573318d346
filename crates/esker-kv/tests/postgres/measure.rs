//! Figures for `docs/stores.md`.

use std::time::Instant;

use esker_kv::local::Local;
use esker_kv::postgres::Options;
use esker_kv::{Kv, Query, Span, transact};

use super::open;
use super::server::Server;

const KEYS: u32 = 100_000;

fn micros(calls: u32, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..calls).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}

/// Transactions a second, each of which reads a key and writes it.
fn transactions(kv: &dyn Kv, threads: u32, each: u32) -> f64 {
    let space = kv.space("measure").unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let space = space.clone();
            scope.spawn(move || {
                for n in 0..each {
                    let key = (thread * KEYS / threads + n).to_be_bytes();
                    transact(kv, |transaction| {
                        let value = transaction.get_for_update(&space, &key)?.unwrap();
                        transaction.put(&space, &key, &value)
                    })
                    .unwrap();
                }
            });
        }
    });
    f64::from(threads * each) / start.elapsed().as_secs_f64()
}

fn measure(name: &str, kv: &dyn Kv) {
    let space = kv.space("measure").unwrap();
    // Without a wish for figures, enough to see that this works.
    let share = if std::env::var_os("ESKER_FIGURES").is_some() { 1 } else { 20 };
    for part in 0..KEYS / 5_000 {
        transact(kv, |transaction| {
            (part * 5_000..(part + 1) * 5_000)
                .try_for_each(|n| transaction.put(&space, &n.to_be_bytes(), &[7; 100]))
        })
        .unwrap();
    }
    let mut random = fastrand::Rng::with_seed(1);
    let mut key = || random.u32(..KEYS - 100).to_be_bytes();
    let get = micros(5_000 / share, || assert!(kv.get(&space, &key()).unwrap().is_some()));
    let page = micros(2_000 / share, || {
        let page = kv.page(&space, Query::new(Span::from(&key())).entries(100)).unwrap();
        assert_eq!(page.entries.len(), 100);
    });
    let (one, four) = (transactions(kv, 1, 1_000 / share), transactions(kv, 4, 1_000 / share));
    println!(
        "{name}: get {get:.1} us, page of 100 {page:.1} us, {one:.0}/s with 1 thread, {four:.0}/s with 4"
    );
}

#[test]
fn figures() {
    let dir = tempfile::tempdir().unwrap();
    measure("Local", &Local::new(esker::Db::open(dir.path()).unwrap()));
    let Some(server) = Server::start(&[]) else { return };
    let store = open(&server, Options::default()).unwrap();
    measure("PostgreSQL", &store.kv);
}
