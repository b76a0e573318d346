//! A server in this process, on its own port.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use esker::Db;
use esker_server::store::{Error, LocalStore, Result, Store};
use esker_server::{Listeners, Options, Server, run};

use crate::wire::Wire;

/// A server that stops when this is dropped.
pub struct TestServer {
    pub server: Arc<Server>,
    pub db: Db,
    thread: Option<JoinHandle<Result<()>>>,
}

impl TestServer {
    /// Starts a server with an empty database in memory.
    pub fn start() -> Self {
        Self::start_with(Db::in_memory().unwrap(), Options::default())
    }

    /// Starts a server with this database.
    pub fn start_with(db: Db, options: Options) -> Self {
        if std::env::var_os("ESKER_TEST_KV").is_some() {
            let kv = esker_kv::local::Local::new(db.clone());
            let store = esker_server::store::RemoteStore::open(Arc::new(kv), false).unwrap();
            return Self::start_on(Arc::new(store), db, None, options);
        }
        Self::start_on(Arc::new(LocalStore::new(db.clone(), 1 << 30)), db.clone(), Some(db), options)
    }

    /// Starts a server with a store that keeps its data in this database. `local`: the database that the
    /// server gets beside the store.
    pub fn start_on(store: Arc<dyn Store>, db: Db, local: Option<Db>, options: Options) -> Self {
        let options = Options { port: Some(0), ..options };
        let server = Server::new(store, local, options).unwrap();
        let thread = std::thread::spawn({
            let server = server.clone();
            move || {
                // Every other server has one thread only.
                static STARTED: AtomicUsize = AtomicUsize::new(0);
                let workers = 1 + STARTED.fetch_add(1, Ordering::Relaxed) % 2;
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
                let runtime = runtime.unwrap();
                runtime.block_on(async {
                    let listeners = Listeners::bind(&server).await.unwrap();
                    run(server, &listeners).await.map(drop)
                })
            }
        });
        until(|| server.ports.plain.load(Ordering::Relaxed) != 0);
        TestServer { server, db, thread: Some(thread) }
    }

    pub fn port(&self) -> u16 {
        self.server.ports.plain.load(Ordering::Relaxed) as u16
    }

    /// Opens a raw connection.
    pub fn wire(&self) -> Wire {
        Wire::connect(self.port())
    }

    /// Stops the server. Returns the error if it could not make everything durable.
    pub fn end(mut self) -> Option<Error> {
        self.server.stop_now();
        self.thread.take()?.join().unwrap().err()
    }

    /// Opens a connection with the crate `redis`.
    pub fn redis(&self) -> redis::Connection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.port())).unwrap();
        client.get_connection().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.server.stop_now();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
                let report = self.db.check().unwrap();
                assert!(report.is_sound(), "{:?}", report.problems);
            }
        }
    }
}

/// Waits until a condition holds.
pub fn until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "it took too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}
