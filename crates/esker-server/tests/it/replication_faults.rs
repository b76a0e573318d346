//! Replication over failing links, and between servers that are killed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::Db;
use esker_server::{Options, Server, Stopper, finish_copy, serve};

use crate::harness::until;
use crate::node::{Node, assert_same, source};
use crate::proxy::Proxy;
use crate::wire::{Reply, Wire};

#[test]
fn links_that_are_cut_and_slow_lose_nothing_and_repeat_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Node::start(&dir.path().join("a"));
    let mut wire = primary.wire();
    let text = |n: u64| format!("{n}-{}", "v".repeat(n as usize % 700));
    for n in 0..500 {
        wire.say(&format!("SET before{n} {}", text(n)));
    }
    let proxy = Proxy::to(primary.port());
    // The link also fails during the copy, which is larger than one connection can carry.
    proxy.cut_after(8_000);
    let replica = Node::replica_of(&dir.path().join("b"), proxy.port());
    until(|| proxy.cuts() > 3);
    proxy.cut_after(0);
    until(|| replica.info("master_link_status") == "up");
    let cuts = proxy.cuts();
    for n in 0..3000_u64 {
        if n % 500 == 0 {
            proxy.delay(n / 500 % 3);
            proxy.cut_after([20_000, 3_000, 60_000][n as usize / 500 % 3]);
        }
        if n % 50 == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        match n % 5 {
            0 => wire.say(&format!("INCR counter{}", n % 50)),
            1 => wire.say(&format!("RPUSH list{} {}", n % 7, text(n))),
            2 => wire.say(&format!("ZADD sorted {n} member{}", n % 100)),
            3 => wire.say(&format!("DEL before{}", n % 400)),
            _ => wire.say(&format!("HSET hash{} field{n} {}", n % 3, text(n))),
        };
    }
    proxy.cut_after(0);
    proxy.delay(0);
    assert_same(&primary, &replica);
    assert!(proxy.cuts() > cuts + 3, "it was cut {} times", proxy.cuts() - cuts);
}

#[test]
fn a_link_that_is_silent_is_soon_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Node::start(&dir.path().join("a"));
    let proxy = Proxy::to(primary.port());
    let replica = Node::replica_of(&dir.path().join("b"), proxy.port());
    until(|| replica.info("master_link_status") == "up");
    // What is on its way stays there, and new connections are fast.
    proxy.delay(12_000);
    std::thread::sleep(Duration::from_millis(500));
    proxy.delay(0);
    let start = Instant::now();
    assert_eq!(primary.say("SET k v"), "+OK");
    until(|| replica.say("GET k") == "\"v\"");
    assert!(start.elapsed() < Duration::from_secs(7), "{:?}", start.elapsed());
}

const CHILD: &str = "ESKER_TEST_CHILD";

/// Runs in child processes. It tests nothing by itself.
#[test]
fn child() {
    let Ok(words) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = words.split('|').collect();
    let dir = PathBuf::from(words[0]);
    let replica_of = words.get(2).map(|port| source(port.parse().unwrap()));
    let options =
        Options { port: Some(words[1].parse().unwrap()), dir: dir.clone(), replica_of, ..Options::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    finish_copy(&dir).unwrap();
    let open = || Db::builder().memory(32 << 20).feed_retention(64 << 20, Duration::MAX).open(&dir);
    let begin = |_: &Arc<Server>, _: &_| {};
    runtime.block_on(serve(open, 32 << 20, options, &Stopper::default(), begin)).unwrap();
}

/// A server in its own process.
struct Process {
    dir: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Process {
    fn start(dir: &Path, replica_of: Option<u16>) -> Self {
        // Usually no other process takes a port that was free a moment ago.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut process = Process { dir: dir.to_path_buf(), port, process: None };
        process.begin(replica_of);
        process
    }

    fn begin(&mut self, replica_of: Option<u16>) {
        let of = replica_of.map_or(String::new(), |port| format!("|{port}"));
        let words = format!("{}|{}{of}", self.dir.display(), self.port);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "replication_faults::child"])
            .env(CHILD, words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.process = Some(child.unwrap());
        until(|| self.wire().is_some());
    }

    /// Kills the process, like kill -9.
    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    fn wire(&self) -> Option<Wire> {
        std::net::TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        Some(Wire::connect(self.port))
    }

    fn ask(&self, words: &[&str]) -> Option<Reply> {
        let mut wire = self.wire()?;
        wire.stream.get_ref().write_all_words(words);
        wire.try_reply()
    }
}

/// Writes to a server that may have been killed.
trait Words {
    fn write_all_words(&self, words: &[&str]);
}

impl Words for std::net::TcpStream {
    fn write_all_words(&self, words: &[&str]) {
        use std::io::Write;
        // The reader of the reply notices an error.
        let _ = (&*self).write_all(&crate::wire::encode(words));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn what_wait_1_has_acknowledged_is_on_the_replica_after_either_server_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut primary = Process::start(&dir.path().join("a"), None);
    let mut replica = Process::start(&dir.path().join("b"), Some(primary.port));
    let mut acknowledged = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(35);
    for round in 0..6 {
        let writes = rng.u64(20..120);
        let mut wire = primary.wire().unwrap();
        // Wait for a replica that has just started.
        let mut is_cut = false;
        std::thread::scope(|scope| {
            let (victim, wait) = if round % 2 == 0 { (&mut primary, 30) } else { (&mut replica, 60) };
            let wait = Duration::from_millis(wait + rng.u64(0..150));
            scope.spawn(move || {
                std::thread::sleep(wait);
                victim.kill();
            });
            for n in 0..writes {
                let (key, value) = (format!("key{}", n % 40), format!("{round}-{n}"));
                wire.stream.get_ref().write_all_words(&["SET", &key, &value]);
                wire.stream.get_ref().write_all_words(&["WAIT", "1", "200"]);
                let (Some(_), Some(got)) = (wire.try_reply(), wire.try_reply()) else {
                    // The write may have been stored or not.
                    acknowledged.remove(&key);
                    is_cut = true;
                    return;
                };
                match got {
                    Reply::Int(1) => acknowledged.insert(key, value),
                    _ => acknowledged.remove(&key),
                };
            }
        });
        let (is_primary_gone, is_replica_gone) = (primary.process.is_none(), replica.process.is_none());
        assert!(is_cut || is_replica_gone || writes < 120);
        if is_replica_gone {
            replica.begin(None);
        }
        // Acknowledged writes are on the replica, even while the primary is down.
        for (key, value) in &acknowledged {
            let found = replica.ask(&["GET", key]).expect("the replica answers");
            assert_eq!(format!("{found:?}"), format!("{value:?}"), "round {round}: {key}");
        }
        if is_primary_gone {
            primary.begin(None);
        }
    }
    let settle = |a: &Process, b: &Process| {
        until(|| {
            let at = a.ask(&["ES.POSITION"]);
            at.is_some() && at == b.ask(&["ES.POSITION"])
        });
        assert_eq!(a.ask(&["ES.RANGE", "", ""]), b.ask(&["ES.RANGE", "", ""]));
    };
    settle(&primary, &replica);
    primary.kill();
    assert_eq!(replica.ask(&["REPLICAOF", "NO", "ONE"]), Some(Reply::Simple("OK".to_owned())));
    assert_eq!(replica.ask(&["SET", "new", "1"]), Some(Reply::Simple("OK".to_owned())));
    primary.begin(Some(replica.port));
    // The replica began no epoch of its own in any restart, so its data is a prefix of the new history.
    settle(&replica, &primary);
}

#[test]
fn servers_stop_at_once_whatever_their_links_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut primary = Node::start(&dir.path().join("a"));
    primary.say("SET k v");
    let proxy = Proxy::to(primary.port());
    proxy.cut_after(300);
    let stop = |node: &mut Node| {
        let start = std::time::Instant::now();
        node.stop();
        assert!(start.elapsed() < Duration::from_secs(4), "it took {:?}", start.elapsed());
    };
    let mut replica = Node::replica_of(&dir.path().join("b"), proxy.port());
    until(|| proxy.cuts() > 2);
    stop(&mut replica);
    proxy.cut_after(0);
    replica.restart();
    until(|| replica.info("master_link_status") == "up");
    stop(&mut replica);
    replica.restart();
    until(|| replica.info("master_link_status") == "up");
    stop(&mut primary);
    stop(&mut replica);
}
