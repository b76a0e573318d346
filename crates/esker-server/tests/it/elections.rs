//! Elections of the primary: the commands, and `esker sentinel` with an etcd of this test.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use esker_server::{Fsync, Options, SentinelOptions, Source, run_sentinel};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::until;
use crate::node::{Node, assert_same, source};
use crate::wire::Wire;

/// The part of etcd that a sentinel uses: one member, in memory.
#[derive(Default)]
struct Etcd {
    revision: i64,
    /// Value, revision, lease.
    keys: BTreeMap<Vec<u8>, (Vec<u8>, i64, i64)>,
    leases: BTreeMap<i64, (Duration, Instant)>,
}

impl Etcd {
    fn start() -> (String, Arc<AtomicBool>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (state, is_up) = (Arc::new(Mutex::new(Etcd::default())), Arc::new(AtomicBool::new(true)));
        let up = is_up.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, up) = (state.clone(), up.clone());
                std::thread::spawn(move || serve(&stream, &state, &up));
            }
        });
        (address, is_up)
    }

    fn answer(&mut self, path: &str, request: &Value) -> Value {
        let now = Instant::now();
        self.leases.retain(|_, (_, end)| *end > now);
        let leases = &self.leases;
        self.keys.retain(|_, (_, _, lease)| *lease == 0 || leases.contains_key(lease));
        let number = |value: &Value| value.as_str().unwrap_or("0").parse::<i64>().unwrap();
        let bytes = |value: &Value| BASE64.decode(value.as_str().unwrap_or_default()).unwrap();
        match path {
            "/v3/kv/range" => {
                let (from, to) = (bytes(&request["key"]), bytes(&request["range_end"]));
                let is_meant =
                    |key: &Vec<u8>| if to.is_empty() { *key == from } else { *key >= from && *key < to };
                let found = self.keys.iter().filter(|(key, _)| is_meant(key));
                let found: Vec<_> = found
                    .map(|(_, (value, revision, _))| {
                        json!({ "value": BASE64.encode(value), "mod_revision": revision.to_string() })
                    })
                    .collect();
                json!({ "kvs": found })
            }
            "/v3/kv/txn" => {
                let (compare, put) = (&request["compare"][0], &request["success"][0]["request_put"]);
                let key = bytes(&compare["key"]);
                let is_so = self.keys.get(&key).map_or(0, |key| key.1) == number(&compare["mod_revision"]);
                if is_so {
                    self.revision += 1;
                    let lease = number(&put["lease"]);
                    self.keys.insert(key, (bytes(&put["value"]), self.revision, lease));
                }
                json!({ "succeeded": is_so, "header": { "revision": self.revision.to_string() } })
            }
            "/v3/lease/grant" => {
                self.revision += 1;
                let length = Duration::from_secs(number(&request["TTL"]) as u64);
                self.leases.insert(self.revision, (length, now + length));
                json!({ "ID": self.revision.to_string() })
            }
            "/v3/lease/keepalive" => {
                let lease = self.leases.get_mut(&number(&request["ID"]));
                let left = lease.map_or(0, |(length, end)| {
                    *end = now + *length;
                    length.as_secs()
                });
                json!({ "result": { "TTL": left.to_string() } })
            }
            "/v3/lease/revoke" => {
                self.leases.remove(&number(&request["ID"]));
                json!({})
            }
            other => panic!("{other}"),
        }
    }
}

/// Answers requests of a connection while etcd is up.
fn serve(stream: &TcpStream, state: &Mutex<Etcd>, is_up: &AtomicBool) {
    let mut input = BufReader::new(stream);
    loop {
        let (mut path, mut len, mut line) = (String::new(), 0, String::new());
        while input.read_line(&mut line).is_ok_and(|n| n > 2) {
            if let Some(rest) = line.strip_prefix("POST ") {
                path = rest.split(' ').next().unwrap().to_owned();
            }
            if let Some(rest) = line.to_lowercase().strip_prefix("content-length:") {
                len = rest.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; len];
        if path.is_empty() || input.read_exact(&mut body).is_err() || !is_up.load(Ordering::Relaxed) {
            return;
        }
        let answer = state.lock().answer(&path, &serde_json::from_slice(&body).unwrap()).to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
        if (&*stream).write_all((head + &answer).as_bytes()).is_err() {
            return;
        }
    }
}

/// A sentinel in this process.
struct Sentinel {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Sentinel {
    fn start(etcd: &str, ports: &[u16], primary: Option<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let announce = listener.local_addr().unwrap();
        let options = SentinelOptions {
            name: "main".to_owned(),
            servers: ports.iter().map(|port| source(*port)).collect(),
            quorum: 1,
            primary: primary.map(source),
            etcd: etcd.split(',').map(str::to_owned).collect(),
            down_after: Duration::from_millis(600),
            interval: Duration::from_millis(30),
            login: None,
            announce,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || run_sentinel(options, listener, &stop)
        });
        Sentinel { port: announce.port(), stop, thread: Some(thread) }
    }

    /// Returns the port of the primary, if there is one.
    fn primary(&self) -> Option<u16> {
        let reply = Wire::connect(self.port).say("SENTINEL GET-MASTER-ADDR-BY-NAME main");
        reply.split('"').nth(3)?.parse().ok()
    }

    fn say(&self, text: &str) -> String {
        Wire::connect(self.port).say(text)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.unwrap().is_ok());
    }
}

fn nodes(dir: &std::path::Path) -> Vec<Node> {
    nodes_of(dir, None)
}

fn nodes_of(dir: &std::path::Path, replica_of: Option<Source>) -> Vec<Node> {
    let options = || Options { fsync: Fsync::Always, replica_of: replica_of.clone(), ..Options::default() };
    ["a", "b", "c"].map(|name| Node::start_with(&dir.join(name), options(), 64 << 20)).into()
}

/// Returns a figure of `ES.BALLOT`.
fn figure(node: &Node, name: &str) -> String {
    let reply = node.say("ES.BALLOT");
    let words: Vec<_> = reply.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    words.chunks(2).find(|pair| pair[0] == name).unwrap()[1].clone()
}

#[test]
fn a_replica_takes_over_and_the_old_primary_follows_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = nodes(dir.path());
    let ports: Vec<u16> = nodes.iter().map(Node::port).collect();
    nodes[0].say("SET before 1");
    let (etcd, is_up) = Etcd::start();
    let sentinel = Sentinel::start(&etcd, &ports, Some(ports[0]));
    let other = Sentinel::start(&etcd, &ports, Some(ports[0]));
    until(|| sentinel.primary() == Some(ports[0]));
    until(|| nodes.iter().all(|node| figure(node, "ballot") != "0"));
    assert!(nodes[1].say("REPLICAOF NO ONE").contains("esker sentinel"));
    let mut listener = Wire::connect(other.port);
    assert_eq!(listener.say("SUBSCRIBE +switch-master"), "*[\"subscribe\", \"+switch-master\", :1]");

    let write = |node: &Node, key: &str| {
        let mut reply = String::new();
        until(|| {
            reply = node.say(&format!("SET {key} 1"));
            reply == "+OK"
        });
    };
    write(&nodes[0], "first");
    nodes[0].stop();
    until(|| sentinel.primary().is_some_and(|port| port != ports[0]));
    let message = format!("{:?}", listener.reply());
    let now = ports.iter().position(|port| Some(*port) == sentinel.primary()).unwrap();
    assert!(message.contains(&format!("main 127.0.0.1 {} 127.0.0.1 {}", ports[0], ports[now])), "{message}");
    until(|| other.primary() == Some(ports[now]));
    assert_eq!(nodes[now].say("MGET before first"), "*[\"1\", \"1\"]");
    write(&nodes[now], "second");

    nodes[0].restart();
    until(|| figure(&nodes[0], "role") == "replica" && figure(&nodes[0], "link") == "up");
    write(&nodes[now], "third");
    assert_same(&nodes[now], &nodes[0]);
    assert!(figure(&nodes[now], "ballot").parse::<u32>().unwrap() > 1);
    until(|| sentinel.say("SENTINEL CKQUORUM main").starts_with("+OK"));

    // Asked for, the primary changes without a failure.
    let acting = [&sentinel, &other].map(|sentinel| sentinel.say("SENTINEL FAILOVER main") == "+OK");
    assert_eq!(acting.iter().filter(|is_acting| **is_acting).count(), 1);
    until(|| sentinel.primary().is_some_and(|port| port != ports[now]));
    let led = ports.iter().position(|port| Some(*port) == sentinel.primary()).unwrap();
    write(&nodes[led], "fourth");

    // Without etcd the primary goes on, and nothing is decided.
    is_up.store(false, Ordering::Relaxed);
    write(&nodes[led], "fifth");
    until(|| sentinel.say("SENTINEL CKQUORUM main").starts_with("-NOQUORUM etcd"));
    is_up.store(true, Ordering::Relaxed);
    for n in (0..3).filter(|n| *n != led) {
        until(|| figure(&nodes[n], "link") == "up");
        write(&nodes[led], "last");
        assert_same(&nodes[led], &nodes[n]);
    }
}

#[test]
fn a_server_keeps_its_promise_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = nodes(dir.path());
    assert!(nodes[0].say("ES.ELECT FENCE 1").contains("it has to join"));
    assert_eq!(nodes[0].say("ES.ELECT BEGIN 3 1"), "+OK");
    assert_eq!(nodes[0].say("ES.ELECT BEGIN 3 1"), "+OK", "it may be repeated");
    assert!(nodes[0].say("SET k v").starts_with("-UNCONFIRMED"), "no replica has it");
    // A replica without a ballot does not count; it joins once it has caught up.
    let (port, epoch) = (nodes[0].port(), figure(&nodes[0], "epoch"));
    nodes[1].say(&format!("REPLICAOF 127.0.0.1 {port}"));
    until(|| figure(&nodes[1], "number") == figure(&nodes[0], "number"));
    assert_eq!(nodes[0].say("WAIT 1 50"), ":0");
    let number: u64 = figure(&nodes[1], "number").parse().unwrap();
    assert!(nodes[1].say(&format!("ES.ELECT JOIN 3 {epoch} {}", number + 1)).contains("has not caught up"));
    assert_eq!(nodes[1].say(&format!("ES.ELECT JOIN 3 {epoch} {number}")), "+OK");
    until(|| nodes[0].say("SET k v") == "+OK");

    // The promise: nothing is confirmed for the old primary, and nothing of it is followed.
    let promised = nodes[1].say("ES.ELECT FENCE 5");
    assert!(promised.starts_with(&format!("*[:3, \"{epoch}\"")), "{promised}");
    assert!(nodes[0].say("SET k w").starts_with("-UNCONFIRMED"));
    for (request, why) in [
        ("ES.ELECT FENCE 4", "has promised ballot 5"),
        ("ES.ELECT LEAD 4 1", "has promised ballot 5"),
        ("ES.ELECT FOLLOW 4 127.0.0.1 1", "has promised ballot 5"),
        ("ES.ELECT FENCE 0", "from 1 to"),
        ("ES.ELECT FENCE 9999999", "from 1 to"),
        ("ES.ELECT WHAT", "syntax"),
        ("SET k x", "-READONLY"),
    ] {
        let reply = nodes[1].say(request);
        assert!(reply.contains(why), "{request}: {reply}");
    }
    nodes[1].restart();
    assert_eq!(["ballot", "role"].map(|name| figure(&nodes[1], name)), ["5", "waiting"]);
    assert_eq!(nodes[1].say("ES.ELECT FENCE 5"), promised.replacen(":3", ":5", 1), "it may be repeated");

    // It leads, also after restarts, in epochs of its own. The old primary follows, without its last write.
    assert_eq!(nodes[1].say("ES.ELECT LEAD 5 1"), "+OK");
    assert!(nodes[1].say("ES.ELECT FENCE 5").contains("has promised ballot 5"));
    nodes[1].restart();
    assert!(figure(&nodes[1], "epoch").starts_with(&format!("{}-", 5 * 4096 + 1)));
    let port = nodes[1].port();
    assert!(nodes[0].say("ES.ELECT FENCE 5").starts_with("*[:3,"));
    assert_eq!(nodes[0].say(&format!("ES.ELECT FOLLOW 5 127.0.0.1 {port}")), "+OK");
    until(|| nodes[1].say("SET l 1") == "+OK");
    assert_same(&nodes[1], &nodes[0]);
    assert_eq!(nodes[0].say("GET k"), "\"v\"");
    assert_eq!(["ballot", "role"].map(|name| figure(&nodes[0], name)), ["5", "replica"]);

    // A server that has lost its data cannot replace that of others.
    nodes[1].stop();
    std::fs::remove_dir_all(dir.path().join("b")).unwrap();
    nodes[1].restart();
    until(|| nodes[0].info("master_link_error").contains("has promised ballot 5"));
    assert_eq!(nodes[0].say("GET k"), "\"v\"");
    assert_eq!(nodes[0].say("ES.ELECT LEAVE"), "+OK");
    assert_eq!(nodes[0].say("REPLICAOF NO ONE"), "+OK");
    assert_eq!(nodes[0].say("SET k y"), "+OK", "without a ballot there is no quorum");
}

#[test]
fn a_primary_that_lost_its_data_confirms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = nodes_of(dir.path(), Some(Source::unset()));
    assert!(nodes[0].say("SET k v").starts_with("-READONLY"), "it waits");
    let ports: Vec<u16> = nodes.iter().map(Node::port).collect();
    let (etcd, _) = Etcd::start();
    let sentinel = Sentinel::start(&etcd, &ports, Some(ports[0]));
    until(|| nodes.iter().all(|node| figure(node, "ballot") != "0"));
    until(|| nodes[0].say("SET k v") == "+OK");

    nodes[0].stop();
    std::fs::remove_dir_all(dir.path().join("a")).unwrap();
    nodes[0].restart();
    // Clients may still ask it.
    let reply = nodes[0].say("SET l 1");
    assert!(reply.starts_with("-READONLY"), "{reply}");
    until(|| sentinel.primary().is_some_and(|port| port != ports[0]));
    until(|| figure(&nodes[0], "link") == "up" && figure(&nodes[0], "ballot") != "0");
    nodes[0].restart();
    until(|| figure(&nodes[0], "link") == "up");
    assert_eq!(nodes[0].say("GET k"), "\"v\"");
}

#[test]
fn the_first_member_of_etcd_may_hang() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = nodes(dir.path());
    let ports: Vec<u16> = nodes.iter().map(Node::port).collect();
    let (etcd, _) = Etcd::start();
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let etcd = format!("http://{},{etcd}", hangs.local_addr().unwrap());
    let sentinel = Sentinel::start(&etcd, &ports, Some(ports[0]));
    let start = Instant::now();
    until(|| sentinel.primary() == Some(ports[0]));
    assert!(
        start.elapsed() < Duration::from_secs(9),
        "{:?}: the time limit was awaited twice",
        start.elapsed()
    );
}

#[test]
fn a_group_that_etcd_has_forgotten_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = nodes(dir.path());
    let ports: Vec<u16> = nodes.iter().map(Node::port).collect();
    let (etcd, _) = Etcd::start();
    let sentinel = Sentinel::start(&etcd, &ports, Some(ports[0]));
    until(|| nodes.iter().all(|node| figure(node, "ballot") != "0"));
    nodes[0].stop();
    until(|| sentinel.primary().is_some_and(|port| port != ports[0]));
    let led = ports.iter().position(|port| Some(*port) == sentinel.primary()).unwrap();
    until(|| nodes[led].say("SET k v") == "+OK");
    drop(sentinel);

    // The new etcd has nothing, and the options name the primary of long ago.
    nodes[0].restart();
    let (etcd, _) = Etcd::start();
    let sentinel = Sentinel::start(&etcd, &ports, Some(ports[0]));
    until(|| sentinel.primary() == Some(ports[led]));
    until(|| figure(&nodes[0], "link") == "up");
    assert_eq!(nodes[0].say("GET k"), "\"v\"");
}
