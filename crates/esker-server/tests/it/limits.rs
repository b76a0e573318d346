//! Clients that do not read, send endlessly, or wait: their resources are bounded, and they can be ended.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use esker::Db;
use esker_server::{Options, Stopper, serve};

use crate::harness::{TestServer, until};
use crate::node::Node;
use crate::wire::{Reply, Wire, encode};

/// A client that requests more than the buffers of the system hold, and does not read.
fn deaf(server: &TestServer) -> Wire {
    let mut wire = server.wire();
    wire.send_bytes(&encode(&["GET", "large"]).repeat(30));
    wire
}

fn with_large_value() -> (TestServer, Wire) {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.call(&[b"SET".as_slice(), b"large", &vec![b'x'; 8 << 20]]);
    (server, wire)
}

#[test]
fn connection_3_clients_that_do_not_read_can_be_killed() {
    let (server, mut wire) = with_large_value();
    let deaf: Vec<_> = (0..5).map(|_| deaf(&server)).collect();
    let mut monitor = server.wire();
    monitor.say("MONITOR");
    until(|| {
        server.server.clients.list().iter().filter(|client| client.outbox.waiting() > 1 << 20).count() == 5
    });
    assert_eq!(wire.say("CLIENT KILL TYPE normal"), ":6");
    until(|| server.server.clients.len() == 1);
    drop(deaf);
    // A client that waits and does not read its earlier replies.
    let mut waiting = server.wire();
    waiting.send_bytes(&[encode(&["GET", "large"]).repeat(30), encode(&["BLPOP", "q", "0"])].concat());
    until(|| server.server.clients.len() == 2);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(wire.say("CLIENT KILL TYPE normal"), ":1");
    until(|| server.server.clients.len() == 1 && server.server.sequencer.waiters() == 0);
}

#[test]
fn clients_that_do_not_read_are_ended_by_the_timeout() {
    let (server, mut wire) = with_large_value();
    assert_eq!(wire.say("CONFIG SET timeout 1"), "+OK");
    let _deaf: Vec<_> = (0..3).map(|_| deaf(&server)).collect();
    let mut subscriber = server.wire();
    subscriber.say("SUBSCRIBE channel");
    let start = Instant::now();
    until(|| wire.say("PING") == "+PONG" && server.server.clients.len() == 2);
    assert!(start.elapsed() < Duration::from_secs(6));
    // A subscriber sends nothing, and must not be ended for that.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(server.wire().say("PUBLISH channel text"), ":1");
}

#[test]
fn clients_that_do_not_read_are_ended_by_the_output_limit() {
    let (server, mut wire) = with_large_value();
    assert_eq!(
        wire.say("CONFIG GET client-output-buffer-limit"),
        "*[\"client-output-buffer-limit\", \"normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60\"]"
    );
    let set = |wire: &mut Wire, limits: &str| {
        wire.call(&["CONFIG", "SET", "client-output-buffer-limit", limits]);
    };
    set(&mut wire, "pubsub 1mb 0 0");
    let deaf: Vec<_> = (0..4)
        .map(|n| {
            let mut wire = server.wire();
            wire.say(["SUBSCRIBE channel", "PSUBSCRIBE ch*", "SSUBSCRIBE channel", "MONITOR"][n]);
            wire
        })
        .collect();
    let text = "v".repeat(100_000);
    until(|| {
        wire.call(&["PUBLISH", "channel", &text]);
        wire.call(&["SPUBLISH", "channel", &text]);
        server.server.clients.len() == 1
    });
    drop(deaf);
    // The soft limit, while the client reads nothing.
    set(&mut wire, "normal 0 1mb 1");
    let _slow = self::deaf(&server);
    until(|| server.server.clients.len() == 1);
    // A single reply beyond the hard limit. EXEC still runs its commands.
    set(&mut wire, "normal 1mb 0 0");
    let mut other = server.wire();
    for line in ["MULTI", "GET large", "SET done yes"] {
        other.say(line);
    }
    other.send(&["EXEC"]);
    assert!(other.try_reply().is_none());
    assert_eq!(wire.say("GET done"), "\"yes\"");
    for wrong in ["normal 1", "other 1 2 3", "normal x 1 1"] {
        let refused = wire.call(&["CONFIG", "SET", "client-output-buffer-limit", wrong]);
        assert!(format!("{refused:?}").starts_with("-ERR CONFIG SET failed"), "{wrong}");
    }
}

#[test]
fn the_soft_limit_counts_messages_that_wait_and_those_on_their_way() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.call(&["CONFIG", "SET", "client-output-buffer-limit", "pubsub 32mb 1mb 1"]);
    let mut subscriber = server.wire();
    subscriber.say("SUBSCRIBE channel");
    let text = "v".repeat(500_000);
    for _ in 0..50 {
        // One at a time, so that the output in flight stays below the limit.
        wire.call(&["PUBLISH", "channel", &text]);
        std::thread::sleep(Duration::from_millis(5));
    }
    // The lower limit applies to output that is already waiting, without another message.
    until(|| server.server.clients.len() == 1);
    drop(subscriber);
}

#[test]
fn a_timeout_that_is_set_holds_for_connections_that_are_idle_already() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let mut idle: Vec<_> = (0..3).map(|_| server.wire()).collect();
    let mut subscriber = server.wire();
    subscriber.say("SUBSCRIBE channel");
    idle.iter_mut().for_each(|other| assert_eq!(other.say("PING"), "+PONG"));
    assert_eq!(wire.say("CONFIG SET timeout 1"), "+OK");
    until(|| wire.say("PING") == "+PONG" && server.server.clients.len() == 2);
    // After the option is reset, idle connections stay open.
    let mut idle = server.wire();
    assert_eq!(idle.say("PING"), "+PONG");
    assert_eq!(wire.say("CONFIG SET timeout 0"), "+OK");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(idle.say("PING"), "+PONG");
}

#[test]
fn commands_that_wait_for_exec_are_bounded() {
    let server = TestServer::start();
    let mut wire = server.wire();
    assert!(wire.say("CONFIG SET client-query-buffer-limit 5").starts_with("-ERR CONFIG SET failed"));
    assert_eq!(wire.say("CONFIG SET client-query-buffer-limit 2mb"), "+OK");
    for request in [vec!["SET", "k", "v"], vec!["PING"]] {
        let mut other = server.wire();
        assert_eq!(other.say("MULTI"), "+OK");
        let bytes = encode(&request).repeat(10_000);
        let mut reader = other.stream.get_ref().try_clone().unwrap();
        let reading = std::thread::spawn(move || reader.read_to_end(&mut Vec::new()));
        let sent = (0..50).all(|_| other.stream.get_mut().write_all(&bytes).is_ok());
        let _ = reading.join();
        assert!(!sent || other.try_reply().is_none());
        until(|| server.server.clients.len() == 1);
    }
    assert_eq!(wire.say("SET k v"), "+OK");
}

#[test]
fn requests_of_all_connections_are_bounded_together() {
    let options = Options { requests_bytes_max: 4 << 20, ..Options::default() };
    let server = TestServer::start_with(Db::in_memory().unwrap(), options);
    let value = "v".repeat(500_000);
    let mut clients: Vec<_> = (0..20).map(|_| server.wire()).collect();
    let mut largest = server.wire();
    largest.say("MULTI");
    (0..4).for_each(|_| _ = largest.call(&["SET", "k", &value]));
    for client in &mut clients {
        client.say("MULTI");
        assert_eq!(format!("{:?}", client.call(&["SET", "small", "v"])), "+QUEUED");
    }
    // The connections that hold most are ended, and the others are not.
    for client in &mut clients[..10] {
        client.send(&["SET", "k", &value]);
        client.try_reply();
    }
    until(|| server.server.clients.len() <= 18);
    assert!(server.server.clients.len() >= 12);
    largest.send(&["EXEC"]);
    assert!(largest.try_reply().is_none());
    for client in &mut clients[10..] {
        assert_eq!(client.say("EXEC"), "*[+OK]");
    }
    drop(clients);
    until(|| server.server.clients.is_empty());
    // An incomplete request counts as well.
    let (mut endless, mut text) = (server.wire(), server.wire());
    endless.send_bytes(b"*2\r\n$4\r\nECHO\r\n$100000000\r\n");
    endless.send_bytes(&vec![b'x'; 3 << 20]);
    until(|| text.say("CLIENT LIST").contains(" qbuf=314"));
    drop(endless);
    // Completed requests no longer count.
    for _ in 0..20 {
        assert_eq!(format!("{:?}", text.call(&["SET", "k", &value])), "+OK");
    }
    // A refused transaction takes no memory.
    text.say("MULTI");
    text.say("NONE");
    for _ in 0..20 {
        assert_eq!(format!("{:?}", text.call(&["SET", "k", &value])), "+QUEUED");
    }
    assert!(text.say("EXEC").starts_with("-EXECABORT"));
}

#[test]
fn listeners_are_clients_of_type_pubsub() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for line in ["ES.LISTEN topic", "ES.WATCH KEY k", "ES.WATCH PREFIX p"] {
        let mut listener = server.wire();
        assert_eq!(listener.say(line), "+OK");
        assert!(wire.say("CLIENT LIST TYPE pubsub").contains("flags=P"), "{line}");
        assert_eq!(wire.say("CLIENT KILL TYPE pubsub"), ":1", "{line}");
        assert!(listener.try_reply().is_none(), "{line}");
    }
    let mut former = server.wire();
    for line in ["ES.LISTEN topic", "ES.UNLISTEN"] {
        former.say(line);
    }
    assert_eq!(wire.say("CLIENT KILL TYPE pubsub"), ":0");
}

#[test]
fn large_replies_of_a_pipeline_come_in_parts() {
    let (server, mut wire) = with_large_value();
    let mut other = server.wire();
    let mut bytes = Vec::new();
    for n in 0..20 {
        bytes.extend(encode(&["SET".to_owned(), "n".to_owned(), n.to_string()]));
        bytes.extend(encode(&["GET", "large"]));
        bytes.extend(encode(&["GET", "n"]));
    }
    other.send_bytes(&bytes);
    until(|| wire.say("GET n") != "null");
    std::thread::sleep(Duration::from_millis(50));
    let waiting: usize = server.server.clients.list().iter().map(|client| client.outbox.waiting()).sum();
    assert!(waiting < 32 << 20, "{waiting} bytes wait");
    for n in 0..20 {
        assert_eq!(format!("{:?}", other.reply()), "+OK");
        assert_eq!(format!("{:?}", other.reply()).len(), (8 << 20) + 2);
        assert_eq!(format!("{:?}", other.reply()), format!("\"{n}\""));
    }
}

#[test]
fn slow_clients_do_not_delay_health() {
    let options = Options { http: Some("127.0.0.1:0".to_owned()), ..Options::default() };
    let server = TestServer::start_with(Db::in_memory().unwrap(), options);
    let port = server.server.ports.http.load(Ordering::Relaxed) as u16;
    let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let slow: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = connect();
            stream.write_all(b"GET /hea").unwrap();
            stream
        })
        .collect();
    let ask = |request: &str| {
        let mut stream = connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let start = Instant::now();
    assert!(ask("GET /health HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nok\n"));
    assert!(start.elapsed() < Duration::from_secs(2));
    let head = ask("HEAD /health HTTP/1.1\r\n\r\n");
    assert!(head.contains("\r\nContent-Length: 3\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    drop(slow);
}

#[test]
fn wrong_passwords_are_answered_ever_later() {
    let options = Options { password: "right".to_owned(), ..Options::default() };
    let server = TestServer::start_with(Db::in_memory().unwrap(), options);
    let mut wire = server.wire();
    let start = Instant::now();
    for _ in 0..5 {
        assert!(wire.say("AUTH wrong").starts_with("-WRONGPASS"));
    }
    assert!(start.elapsed() >= Duration::from_millis(20 + 40 + 80 + 160 + 320));
    assert_eq!(wire.say("AUTH right"), "+OK");
    assert!(server.wire().say("HELLO 3 AUTH default wrong").starts_with("-WRONGPASS"));
}

#[test]
fn descriptors_are_kept_for_the_engine() {
    let options = Options { descriptors: Some(220), ..Options::default() };
    let server = TestServer::start_with(Db::in_memory().unwrap(), options);
    let mut wire = server.wire();
    assert_eq!(wire.say("CONFIG GET maxclients"), "*[\"maxclients\", \"55\"]");
    assert_eq!(
        wire.say("CONFIG SET maxclients 56"),
        "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to \
         handle the specified number of clients, try with 55"
    );
    let others: Vec<_> = (0..54).map(|_| server.wire()).collect();
    until(|| server.server.clients.len() == 55);
    assert_eq!(format!("{:?}", server.wire().reply()), "-ERR max number of clients reached");
    drop(others);
}

/// The newest commit of a server.
fn at(node: &Node) -> (String, u64) {
    let Reply::List(_, words) = node.wire().call(&["ES.POSITION"]) else { panic!("no position") };
    let [epoch, seq] = &words[..] else { panic!("no position") };
    (format!("{epoch:?}").trim_matches('"').to_owned(), format!("{seq:?}")[1..].parse().unwrap())
}

#[test]
fn clients_that_wait_are_released_when_their_server_becomes_a_replica() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (primary, other) = (Node::start(&a.path().join("a")), Node::start(&b.path().join("b")));
    let (epoch, seq) = at(&primary);
    let commands = [
        "BLPOP list 0".to_owned(),
        "BZPOPMIN sorted 0".to_owned(),
        "XREAD BLOCK 0 STREAMS stream $".to_owned(),
        "WAIT 1 0".to_owned(),
        "WAITAOF 1 1 0".to_owned(),
        "BLMOVE list to LEFT RIGHT 0".to_owned(),
        format!("ES.READ AFTER {epoch} {} 0", seq + 1000),
        format!("ES.FEED {epoch} {seq} BLOCK 0"),
    ];
    let mut waiting: Vec<_> = commands.iter().map(|command| (primary.wire(), command)).collect();
    for (wire, command) in &mut waiting {
        wire.send(&command.split(' ').collect::<Vec<_>>());
    }
    until(|| primary.say("CLIENT LIST").matches("flags=b").count() == commands.len());
    assert!(primary.say("HELLO").contains("\"role\", \"master\""));
    for host in ["127.0.0.1", "localhost"] {
        let refused = primary.say(&format!("REPLICAOF {host} {}", primary.port()));
        assert_eq!(refused, "-ERR this is the server itself: it cannot be its own primary");
    }
    assert_eq!(primary.say(&format!("REPLICAOF 127.0.0.1 {}", other.port())), "+OK");
    for (wire, command) in &mut waiting {
        let text =
            "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
        assert_eq!(format!("{:?}", wire.reply()), text, "{command}");
        assert!(wire.try_reply().is_none(), "{command}: it looks for the primary");
    }
    assert!(primary.say("HELLO").contains("\"role\", \"replica\""));
}

#[test]
fn replicas_are_a_type_of_clients() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let primary = Node::start(&a.path().join("a"));
    let replica = Node::replica_of(&b.path().join("b"), primary.port());
    until(|| replica.info("master_link_status") == "up");
    let listed = primary.say("CLIENT LIST TYPE replica");
    assert!(listed.contains("flags=S") && listed.matches("id=").count() == 1, "{listed}");
    assert!(!primary.say("CLIENT LIST TYPE normal").contains("flags=S"));
    let id = listed.split("id=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    primary.say("CLIENT KILL TYPE normal");
    assert!(primary.say("CLIENT LIST TYPE slave").contains(&format!("id={id} ")));
    assert_eq!(primary.say("CLIENT KILL TYPE replica"), ":1");
    until(|| {
        let listed = primary.say("CLIENT LIST TYPE replica");
        listed.contains("flags=S") && !listed.contains(&format!("id={id} "))
    });
}

#[test]
fn a_stop_is_not_lost_at_any_moment() {
    // Number of the `open` call that requests the stop; 0 requests it before the first.
    for stop_at in 0..3 {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let primary = Node::start(&a.path().join("a"));
        primary.say("SET k v");
        let dir = b.path().join("b");
        let replica_of = Some(crate::node::source(primary.port()));
        let options = Options { port: Some(0), dir: dir.clone(), replica_of, ..Options::default() };
        let stopper = Stopper::default();
        if stop_at == 0 {
            stopper.stop();
        }
        let mut opened = 0;
        let open = || {
            opened += 1;
            if opened == stop_at {
                stopper.stop();
            }
            Db::builder().memory(32 << 20).open(&dir)
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let serving = serve(open, 32 << 20, options, &stopper, |_: &Arc<_>, _| {});
        let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), serving).await });
        ended.unwrap().unwrap();
        assert_eq!(opened, stop_at);
    }
}

#[test]
fn the_memory_of_all_connections_is_bounded_but_not_by_those_that_are_kept() {
    let (server, mut wire) = with_large_value();
    for wrong in ["101%", "-1", "x%", "much"] {
        let reply = wire.say(&format!("CONFIG SET maxmemory-clients {wrong}"));
        assert!(reply.starts_with("-ERR CONFIG SET failed"), "{wrong}: {reply}");
    }
    assert_eq!(wire.say("CLIENT NO-EVICT maybe"), "-ERR syntax error");
    // Output that is not read counts, and so does a request that is not complete. The largest is kept.
    let mut kept = server.wire();
    assert_eq!(kept.say("CLIENT NO-EVICT ON"), "+OK");
    kept.send_bytes(&encode(&["GET", "large"]).repeat(40));
    let id = wire.say("CLIENT ID");
    until(|| wire.say("CLIENT LIST").contains("flags=e"));
    let _deaf: Vec<_> = (0..3).map(|_| deaf(&server)).collect();
    until(|| {
        server.server.clients.list().iter().filter(|client| client.outbox.waiting() > 1 << 20).count() == 4
    });
    assert_eq!(wire.say("CONFIG SET maxmemory-clients 2mb"), "+OK");
    until(|| server.server.clients.len() == 2);
    assert_eq!((wire.say("CLIENT ID"), wire.say("CONFIG SET maxmemory-clients 50%")), (id, "+OK".to_owned()));
    assert!(wire.say("INFO stats").contains("evicted_clients:3"));
    assert!(format!("{:?}", kept.reply()).ends_with("xx\""), "its replies still arrive");
    // Requests are bounded at once.
    drop(kept);
    until(|| server.server.clients.len() == 1);
    wire.say("CONFIG SET maxmemory-clients 2mb");
    let mut large = server.wire();
    large.send_bytes(b"*2\r\n$4\r\nECHO\r\n$100000000\r\n");
    let _ = large.stream.get_mut().write_all(&vec![b'x'; 3 << 20]);
    assert!(large.try_reply().is_none());
    assert_eq!(wire.say("PING"), "+PONG");
}

#[test]
fn connections_of_an_address_are_bounded() {
    let server = TestServer::start();
    let mut wire = server.wire();
    assert_eq!(wire.say("CONFIG SET maxclients-per-address 3"), "+OK");
    let mut others: Vec<_> = (0..2).map(|_| server.wire()).collect();
    others.iter_mut().for_each(|other| assert_eq!(other.say("PING"), "+PONG"));
    let mut refused = server.wire();
    let reply = refused.try_reply().map(|reply| format!("{reply:?}"));
    assert_eq!(reply.as_deref(), Some("-ERR max number of clients of this address reached"));
    // Each that ends makes room.
    drop(others.pop());
    until(|| server.server.clients.len() == 2);
    assert_eq!(server.wire().say("PING"), "+PONG");
    assert_eq!(wire.say("CONFIG SET maxclients-per-address 0"), "+OK");
    let mut many: Vec<_> = (0..5).map(|_| server.wire()).collect();
    many.iter_mut().for_each(|other| assert_eq!(other.say("PING"), "+PONG"));
}
