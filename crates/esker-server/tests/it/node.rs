//! Replicating servers in this process, each with its own directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use esker::Db;
use esker_server::{Failed, Options, Server, Source, Stopper, finish_copy, serve};
use parking_lot::Mutex;

use crate::harness::until;
use crate::wire::Wire;

/// A server that stops when this is dropped.
pub struct Node {
    dir: PathBuf,
    options: Options,
    backlog: u64,
    /// Maximum bytes retained for slots.
    slot_limit: u64,
    server: Arc<Mutex<Option<Arc<Server>>>>,
    thread: Option<JoinHandle<Result<(), Failed>>>,
}

impl Node {
    /// Starts a server in this directory, on any port.
    pub fn start(dir: &Path) -> Self {
        Self::start_with(dir, Options::default(), 64 << 20)
    }

    pub fn start_with(dir: &Path, options: Options, backlog: u64) -> Self {
        Self::start_holding(dir, options, backlog, 0)
    }

    /// Starts a server with limits on the backlog and on slots.
    pub fn start_holding(dir: &Path, options: Options, backlog: u64, slot_limit: u64) -> Self {
        let options = Options { port: Some(0), dir: dir.to_path_buf(), ..options };
        let server = Arc::default();
        let mut node = Node { dir: dir.to_path_buf(), options, backlog, slot_limit, server, thread: None };
        node.restart();
        node
    }

    /// Starts a replica of the server on this port.
    pub fn replica_of(dir: &Path, port: u16) -> Self {
        Self::start_with(dir, Options { replica_of: Some(source(port)), ..Options::default() }, 64 << 20)
    }

    /// Restarts the server on the same port.
    pub fn restart(&mut self) {
        self.stop();
        let (server, dir, options) = (self.server.clone(), self.dir.clone(), self.options.clone());
        let (backlog, slot_limit) = (self.backlog, self.slot_limit);
        self.thread = Some(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            finish_copy(&dir).unwrap();
            let builder = Db::builder().memory(32 << 20).feed_retention(backlog, Duration::MAX);
            let open = || builder.clone().tuning(|t| t.feed_hold(slot_limit)).open(&dir);
            let begin = |new: &Arc<Server>, _: &_| *server.lock() = Some(new.clone());
            runtime.unwrap().block_on(serve(open, 32 << 20, options, &Stopper::default(), begin))
        }));
        let mut port = 0;
        until(|| {
            port = self
                .server
                .lock()
                .as_ref()
                .map_or(0, |server| server.ports.plain.load(std::sync::atomic::Ordering::Relaxed));
            port != 0
        });
        self.options.port = Some(port as u16);
        // The database keeps the role that it had when it stopped. An election's decision comes first anyway.
        self.options.replica_of = self.options.replica_of.take().filter(Source::is_unset);
    }

    pub fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            if let Some(server) = &*self.server.lock() {
                server.stop_now();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        *self.server.lock() = None;
        let ended = thread.join();
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }

    pub fn port(&self) -> u16 {
        self.options.port.unwrap()
    }

    #[cfg(feature = "tls")]
    pub fn tls_port(&self) -> u16 {
        let server = self.server.lock().clone().unwrap();
        server.ports.tls.load(std::sync::atomic::Ordering::Relaxed) as u16
    }

    /// Opens a connection. Tries again while a copy replaces the database.
    pub fn wire(&self) -> Wire {
        let mut found = None;
        until(|| {
            let mut wire = Wire::connect(self.port());
            wire.send(&["PING"]);
            found = wire.try_reply().map(|_| wire);
            found.is_some()
        });
        found.unwrap()
    }

    /// Returns the reply to one command on a new connection.
    pub fn say(&self, text: &str) -> String {
        let mut found = None;
        until(|| {
            let mut wire = self.wire();
            wire.send(&text.split(' ').collect::<Vec<_>>());
            found = wire.try_reply();
            found.is_some()
        });
        format!("{:?}", found.unwrap())
    }

    /// Returns a value of `INFO replication`.
    pub fn info(&self, name: &str) -> String {
        let text = self.say("INFO replication");
        let at = text.find(&format!("\\r\\n{name}:")).map(|at| at + name.len() + 5);
        at.map_or(String::new(), |at| text[at..].split("\\r\\n").next().unwrap_or_default().to_owned())
    }

    /// The position of the server: epoch and number.
    pub fn position(&self) -> String {
        self.say("ES.POSITION")
    }

    /// The database, as a program that embeds the server gets it.
    pub fn db(&self) -> Db {
        let server = self.server.lock().clone().unwrap();
        server.local().unwrap().clone()
    }

    /// Returns everything that is stored, except what differs between servers.
    pub fn contents(&self) -> Vec<(String, Vec<u8>, Vec<u8>)> {
        let db = self.db();
        let mut all = Vec::new();
        for name in db.keyspaces().unwrap() {
            let keyspace = db.open_keyspace(&name).unwrap();
            all.push((name.clone(), b"options".to_vec(), format!("{:?}", keyspace.options()).into_bytes()));
            for entry in keyspace.iter() {
                let (key, value) = entry.unwrap();
                // Skip the role and the position.
                if name != "es.repl" || key.first() == Some(&b'e') {
                    all.push((name.clone(), key.to_vec(), value.to_vec()));
                }
            }
        }
        all
    }

    pub fn check(&self) {
        let report = self.db().check().unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn source(port: u16) -> Source {
    Source { host: "127.0.0.1".to_owned(), port }
}

/// Waits until a replica has caught up with its primary, and compares their contents.
pub fn assert_same(primary: &Node, replica: &Node) {
    let (mut a, mut b) = Default::default();
    until(|| {
        let at = primary.position();
        if replica.position() != at {
            return false;
        }
        (a, b) = (primary.contents(), replica.contents());
        primary.position() == at
    });
    assert_eq!(a.len(), b.len());
    if let Some(at) = (0..a.len()).find(|at| a[*at] != b[*at]) {
        panic!("{:?} and {:?} differ", a[at], b[at]);
    }
    replica.check();
}
