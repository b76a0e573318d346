//! Prints how many calls a second a store does: `figures URL`, for all URLs that this build has a store for.
//!
//! `esker:DIR` is a database of this process whose commits are synced.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a program that measures, and ends at errors"
)]

use std::thread;
use std::time::{Duration, Instant};

use esker_kv::{Kv, Query, Retry, Span, Transaction};

fn main() {
    let url = std::env::args().nth(1).expect("usage: figures URL");
    let kv: Box<dyn Kv> = match url.split_once(':') {
        Some(("esker", dir)) => Box::new(esker_kv::local::Local::new(esker::Db::open(dir).unwrap())),
        #[cfg(feature = "slatedb")]
        Some(("slatedb", _)) => blocking(esker_kv::slatedb::open(&url)),
        #[cfg(feature = "tikv")]
        Some(("tikv", _)) => blocking(esker_kv::tikv::open(&url)),
        _ => panic!("this build has no store for {url:?}"),
    };
    measure(&*kv);
}

#[cfg(any(feature = "slatedb", feature = "tikv"))]
fn blocking<A: esker_kv::async_kv::AsyncKv + 'static>(
    opening: impl Future<Output = esker_kv::Result<A>>,
) -> Box<dyn Kv> {
    // Lives as long as the process.
    let runtime = Box::leak(Box::new(tokio::runtime::Runtime::new().unwrap()));
    let store = runtime.block_on(opening).unwrap();
    Box::new(esker_kv::Blocking::new(std::sync::Arc::new(store), runtime.handle().clone()))
}

/// Measures reads, and transactions of two keys of 10,000, by 1 and by 4 threads.
fn measure(kv: &dyn Kv) {
    let space = kv.space("figures").unwrap();
    let key = |n: u32| n.to_be_bytes();
    for start in (0..10_000).step_by(1_000) {
        let put = |transaction: &mut dyn Transaction| {
            (start..start + 1_000).try_for_each(|n| transaction.put(&space, &key(n), &[7; 100]))
        };
        Retry::default().run(kv, put).unwrap();
    }
    let rate = |what: &str, threads: u32, call: &(dyn Fn(&mut fastrand::Rng) + Sync)| {
        let (start, time) = (Instant::now(), Duration::from_secs(3));
        let calls: u64 = thread::scope(|scope| {
            let run = || {
                let mut random = fastrand::Rng::new();
                (1..).find(|_| {
                    call(&mut random);
                    start.elapsed() > time
                })
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).sum()
        });
        println!("{what}, {threads} threads: {:.0} a second", calls as f64 / start.elapsed().as_secs_f64());
    };
    for threads in [1, 4] {
        rate("get", threads, &|random| {
            assert!(kv.get(&space, &key(random.u32(..10_000))).unwrap().is_some());
        });
        rate("page of 100", threads, &|random| {
            let from = key(random.u32(..9_900));
            let page = kv.page(&space, Query::new(Span::from(&from)).entries(100)).unwrap();
            assert_eq!(page.entries.len(), 100);
        });
        rate("transaction", threads, &|random| {
            let (a, b) = (key(random.u32(..10_000)), key(random.u32(..10_000)));
            Retry { attempts: 1_000, ..Retry::default() }
                .run(kv, |transaction| {
                    let value = transaction.get(&space, &a)?.unwrap_or_default();
                    transaction.put(&space, &a, &value)?;
                    transaction.put(&space, &b, &value)
                })
                .unwrap();
        });
    }
}
