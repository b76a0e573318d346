//! What a server demands of its replicas: `min-replicas-to-write`, `write-quorum`.

use std::path::Path;
use std::time::{Duration, Instant};

use esker_server::{Fsync, Options};

use crate::harness::until;
use crate::node::{Node, assert_same, source};
use crate::proxy::Proxy;
use crate::wire::{Wire, encode};

/// Starts a primary with these parameters.
fn primary(dir: &Path, parameters: &[(&str, &str)]) -> Node {
    let mut options = Options::default();
    let pairs = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    options.given.parameters = pairs.collect();
    Node::start_with(dir, options, 64 << 20)
}

/// Starts a replica that syncs each commit, and waits until it receives commits.
fn replica(dir: &Path, primary: &Node, port: u16) -> Node {
    let before: usize = primary.info("connected_slaves").parse().unwrap();
    let options = Options { fsync: Fsync::Always, replica_of: Some(source(port)), ..Options::default() };
    let replica = Node::start_with(dir, options, 64 << 20);
    until(|| {
        let online = |n: usize| primary.info(&format!("slave{n}")).contains("state=online");
        (0..=before).all(online) && replica.info("master_link_status") == "up"
    });
    replica
}

/// Sends commands together and returns their replies.
fn pipeline(wire: &mut Wire, lines: &[&str]) -> Vec<String> {
    let words = |line: &&str| encode(&line.split(' ').collect::<Vec<_>>());
    wire.send_bytes(&lines.iter().flat_map(words).collect::<Vec<_>>());
    lines.iter().map(|_| format!("{:?}", wire.reply())).collect()
}

const NO_REPLICAS: &str = "-NOREPLICAS Not enough good replicas to write.";
const UNCONFIRMED: &str = "-UNCONFIRMED the write is made here, but 0 of 1 replicas have confirmed it: it may be lost \
                           with this server";

/// Checks that a script reads `k` and cannot write it.
fn check_scripts(wire: &mut Wire) {
    let mut eval = |script: &str| format!("{:?}", wire.call(&["EVAL", script, "0"]));
    if cfg!(feature = "lua") {
        assert!(eval("return redis.call('set', 'k', 2)").contains("NOREPLICAS"));
        assert_eq!(eval("return redis.call('get', 'k')"), "\"1\"");
        let library = "#!lua name=a\nredis.register_function('f', function() return 1 end)";
        for words in
            [&["FUNCTION", "LOAD", library][..], &["FUNCTION", "DELETE", "a"], &["FUNCTION", "FLUSH"]]
        {
            assert_eq!(format!("{:?}", wire.call(words)), NO_REPLICAS, "{words:?}");
        }
        assert!(!wire.say("FUNCTION STATS").starts_with('-'));
    }
}

#[test]
fn nothing_is_written_without_enough_replicas() {
    let dir = tempfile::tempdir().unwrap();
    let primary = primary(&dir.path().join("a"), &[]);
    let mut wire = primary.wire();
    for line in ["SET k 1", "ES.KS CREATE plain", "OB.PUT t key c v", "RPUSH list a b"] {
        assert!(!wire.say(line).starts_with('-'), "{line}");
    }
    assert_eq!(wire.say("CONFIG SET min-replicas-to-write 1"), "+OK");
    assert_eq!(wire.say("CONFIG GET min-slaves-to-write"), "*[\"min-slaves-to-write\", \"1\"]");
    assert_eq!(primary.info("min_slaves_good_slaves"), "0");
    for line in [
        "SET k 2",
        "DEL k",
        "LPOP list",
        "BLPOP list 1",
        "SWAPDB 0 1",
        "FLUSHALL",
        "ES.SET k 2",
        "ES.DELRANGE a z",
        "ES.KS CREATE other",
        "ES.KS DROP plain",
        "OB.PUT t key c w",
        "OB.DEL t key",
        "OB.KS USE new",
        "OB.KS DROP default",
    ] {
        assert_eq!(wire.say(line), NO_REPLICAS, "{line}");
    }
    for line in ["GET k", "LRANGE list 0 -1", "ES.GET k", "OB.KS LIST", "PUBLISH a b"] {
        assert!(!wire.say(line).starts_with('-'), "{line}");
    }
    check_scripts(&mut wire);
    // A refused command spoils the transaction.
    assert_eq!(wire.say("MULTI"), "+OK");
    assert_eq!(wire.say("SET k 3"), NO_REPLICAS);
    assert!(wire.say("EXEC").starts_with("-EXECABORT"));

    let mut follower = replica(&dir.path().join("b"), &primary, primary.port());
    assert_eq!(wire.say("SET k 4"), "+OK");
    assert_eq!(primary.info("min_slaves_good_slaves"), "1");
    assert_eq!(wire.say("MULTI"), "+OK");
    assert_eq!(wire.say("SET k 5"), "+QUEUED");
    let mut held = primary.wire();
    for line in ["ES.BEGIN", "ES.SET held 1"] {
        assert!(!held.say(line).starts_with('-'), "{line}");
    }
    let mut reader = primary.wire();
    for line in ["ES.BEGIN", "ES.GET k"] {
        assert!(!reader.say(line).starts_with('-'));
    }
    follower.stop();
    until(|| primary.info("connected_slaves") == "0");
    assert_eq!(
        wire.say("EXEC"),
        format!("-EXECABORT Transaction discarded because of: {}", &NO_REPLICAS[1..])
    );
    assert_eq!(held.say("ES.COMMIT"), NO_REPLICAS);
    assert_eq!(reader.say("ES.COMMIT"), "+OK", "it has only read");
    assert_eq!(wire.say("GET k"), "\"4\"");
    follower.restart();
    until(|| primary.info("min_slaves_good_slaves") == "1");
    assert_eq!(held.say("ES.COMMIT"), "+OK", "the transaction was not lost");
    assert_eq!(wire.say("GET held"), "\"1\"");
    assert_eq!(wire.say("CONFIG SET min-slaves-to-write 2"), "+OK");
    assert_eq!(wire.say("SET k 6"), NO_REPLICAS);
    assert_eq!(wire.say("CONFIG SET min-replicas-max-lag 0"), "+OK");
    assert_eq!(wire.say("SET k 6"), "+OK");
}

#[test]
fn writes_without_a_quorum_are_never_plainly_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let parameters = [("write-quorum", "1"), ("write-quorum-timeout", "150")];
    let primary = primary(&dir.path().join("a"), &parameters);
    let mut wire = primary.wire();
    for line in [
        "SET k 1",
        "ES.SET e 1",
        "OB.PUT t key c v",
        "ES.KS CREATE plain",
        "OB.KS USE rows",
        "OB.KS DROP rows",
        "ES.KS DROP plain",
        "RPUSH list a b",
        "BLPOP list 1",
        "SWAPDB 0 1",
        "SWAPDB 0 1",
    ] {
        assert_eq!(wire.say(line), UNCONFIRMED, "{line}");
    }
    assert_eq!(wire.say("GET k"), "\"1\"", "the write is made here");
    #[cfg(feature = "lua")]
    assert_eq!(format!("{:?}", wire.call(&["EVAL", "return redis.call('set', 'k', 2)", "0"])), UNCONFIRMED);
    // What writes nothing does not wait.
    let start = Instant::now();
    for line in ["SET k 3 NX", "DEL missing", "XADD missing NOMKSTREAM * a b", "CONFIG SET hz 11", "GET k"] {
        for _ in 0..20 {
            assert_ne!(wire.say(line), UNCONFIRMED, "{line}");
        }
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    // A transaction is one write, whatever is in it.
    assert_eq!(pipeline(&mut wire, &["MULTI", "SET k 4", "GET k", "EXEC"])[3], UNCONFIRMED);
    for line in ["ES.BEGIN", "ES.SET k 5"] {
        assert!(!wire.say(line).starts_with('-'), "{line} commits nothing");
    }
    assert_eq!(wire.say("ES.COMMIT"), UNCONFIRMED);
    assert_eq!(wire.say("GET k"), "\"5\"");
    assert_eq!(wire.say("CONFIG SET write-quorum 0"), "+OK");
    assert_eq!(wire.say("SET k 6"), "+OK");
    assert!(wire.say("INFO errorstats").contains("UNCONFIRMED"));
}

#[test]
fn pipelined_writes_wait_together_and_others_do_not_wait() {
    let dir = tempfile::tempdir().unwrap();
    let primary = primary(&dir.path().join("a"), &[("write-quorum", "1"), ("write-quorum-timeout", "2000")]);
    let mut wire = primary.wire();
    let start = Instant::now();
    let lines = ["GET none", "SET a 1", "GET a", "PING", "INCR n", "GET n"];
    let words = |line: &&str| encode(&line.split(' ').collect::<Vec<_>>());
    wire.send_bytes(&lines.iter().flat_map(words).collect::<Vec<_>>());
    let mut other = primary.wire();
    until(|| other.say("GET n") == "\"1\"");
    assert!(start.elapsed() < Duration::from_millis(1900), "a read of another client waited");
    let replies: Vec<_> = lines.iter().map(|_| format!("{:?}", wire.reply())).collect();
    assert_eq!(replies, ["null", UNCONFIRMED, "\"1\"", "+PONG", UNCONFIRMED, "\"1\""]);
    let took = start.elapsed();
    assert!((Duration::from_millis(2000)..Duration::from_millis(3900)).contains(&took), "{took:?}");
    // Replies to writes before a command that waits, or that begins a commit, are not sent early.
    assert_eq!(wire.say("CONFIG SET write-quorum-timeout 100"), "+OK");
    assert_eq!(pipeline(&mut wire, &["SET a 2", "BLPOP none 0.1"]), [UNCONFIRMED, "null"]);
    assert_eq!(pipeline(&mut wire, &["SET a 3", "SWAPDB 3 4", "GET a"]), [UNCONFIRMED, UNCONFIRMED, "\"3\""]);
    let lines = ["SET a 4", "MULTI", "SWAPDB 3 4", "EXEC", "SET a 5"];
    let replies = pipeline(&mut wire, &lines);
    assert_eq!(replies, [UNCONFIRMED, "+OK", "+QUEUED", UNCONFIRMED, UNCONFIRMED]);
    #[cfg(feature = "lua")]
    {
        let lines = ["SET a 6", "EVAL return(redis.call('swapdb',3,4)) 0", "SET a 7"];
        assert_eq!(pipeline(&mut wire, &lines), [UNCONFIRMED; 3]);
        let library = "#!lua name=swap\nredis.register_function('swap', function() return redis.call('swapdb', 3, 4) end)";
        assert_eq!(format!("{:?}", wire.call(&["FUNCTION", "LOAD", library])), UNCONFIRMED);
        assert_eq!(pipeline(&mut wire, &["SET a 8", "FCALL swap 0", "SET a 9"]), [UNCONFIRMED; 3]);
    }
    // More than one job.
    let many: Vec<_> = (0..2500).map(|n| format!("SET many{n} x")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert!(pipeline(&mut wire, &many).iter().all(|reply| reply == UNCONFIRMED));
    // A client that leaves while it waits harms no other client.
    assert_eq!(wire.say("CONFIG SET write-quorum-timeout 60000"), "+OK");
    let mut leaves = primary.wire();
    leaves.send(&["SET", "left", "1"]);
    until(|| wire.say("GET left") == "\"1\"");
    drop(leaves);
    // A stop does not wait for the timeout, and does not acknowledge either.
    let mut waits = primary.wire();
    waits.send(&["SET", "last", "1"]);
    until(|| wire.say("GET last") == "\"1\"");
    wire.send(&["SHUTDOWN"]);
    let last = waits.try_reply().map_or_else(String::new, |reply| format!("{reply:?}"));
    assert!(last.is_empty() || last == UNCONFIRMED, "{last}");
}

#[test]
fn acknowledged_writes_are_durable_at_a_quorum() {
    let dir = tempfile::tempdir().unwrap();
    let primary = primary(&dir.path().join("a"), &[("write-quorum", "1"), ("write-quorum-timeout", "20000")]);
    let proxy = Proxy::to(primary.port());
    let mut first = replica(&dir.path().join("b"), &primary, proxy.port());
    let mut wire = primary.wire();
    for n in 0..50 {
        assert_eq!(wire.say(&format!("SET k{n} {n}")), "+OK");
        assert_eq!(first.say(&format!("GET k{n}")), format!("\"{n}\""));
    }
    let (at, slave) = (primary.info("master_repl_offset"), primary.info("slave0"));
    assert!(slave.contains(&format!("durable={at}")), "{slave}: {at}");
    // A slow link.
    proxy.delay(60);
    let start = Instant::now();
    assert_eq!(wire.say("SET slow 1"), "+OK");
    assert!(start.elapsed() >= Duration::from_millis(60), "{:?}", start.elapsed());
    proxy.delay(0);
    // One of two is not enough for two.
    assert_eq!(wire.say("CONFIG SET write-quorum 2 write-quorum-timeout 200"), "+OK");
    assert_eq!(wire.say("SET k 1"), UNCONFIRMED.replace("0 of 1", "1 of 2"));
    let second = replica(&dir.path().join("c"), &primary, primary.port());
    assert_eq!(wire.say("CONFIG SET write-quorum-timeout 20000"), "+OK");
    assert_eq!(wire.say("SET k 2"), "+OK");
    first.stop();
    until(|| primary.info("connected_slaves") == "1");
    wire.send(&["SET", "k", "3"]);
    until(|| second.say("GET k") == "\"3\"");
    // The reply comes when the other replica is back.
    first.restart();
    assert_eq!(format!("{:?}", wire.reply()), "+OK");
    assert_same(&primary, &first);
    // A server that becomes a replica while a write waits does not acknowledge it.
    first.stop();
    until(|| primary.info("connected_slaves") == "1");
    wire.send(&["SET", "k", "4"]);
    until(|| second.say("GET k") == "\"4\"");
    assert_eq!(second.say("REPLICAOF NO ONE"), "+OK");
    assert_eq!(primary.say(&format!("REPLICAOF 127.0.0.1 {}", second.port())), "+OK");
    let reply = wire.try_reply().map_or_else(String::new, |reply| format!("{reply:?}"));
    assert!(reply.is_empty() || reply.starts_with("-UNCONFIRMED"), "{reply}");
}

#[test]
fn a_replica_neither_creates_nor_removes_keyspaces_of_rows() {
    let dir = tempfile::tempdir().unwrap();
    let primary = primary(&dir.path().join("a"), &[]);
    let follower = replica(&dir.path().join("b"), &primary, primary.port());
    let read_only = "-READONLY You can't write against a read only replica.";
    // A read before the primary has the keyspace creates none.
    assert!(!follower.say("OB.COUNT t").starts_with('-'));
    assert_eq!(follower.say("OB.KS USE other"), read_only);
    let mut wire = primary.wire();
    assert_eq!(wire.say("OB.KS USE other"), "+OK");
    assert!(!wire.say("OB.PUT t key c v").starts_with('-'));
    assert!(!primary.say("OB.PUT t key c v").starts_with('-'));
    assert_same(&primary, &follower);
    assert_eq!(follower.say("OB.KS DROP other"), read_only);
    assert_eq!(follower.say("OB.KS USE other"), "+OK");
    assert_eq!(follower.say("OB.KS LIST"), "*[\"default\", \"other\"]");
    assert_same(&primary, &follower);
}
