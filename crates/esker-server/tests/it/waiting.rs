//! Commands that wait.

use std::time::Duration;

use crate::harness::{TestServer, until};
use crate::wire::{Wire, encode};

fn waiters(server: &TestServer) -> usize {
    server.server.sequencer.waiters()
}

#[test]
fn first_come_first_served() {
    let server = TestServer::start();
    let mut waiting: Vec<_> = (0..3).map(|_| server.wire()).collect();
    for (n, wire) in waiting.iter_mut().enumerate() {
        wire.send(&["BLPOP", "none", "queue", "0"]);
        until(|| waiters(&server) == n + 1);
    }
    let mut other = server.wire();
    assert_eq!(other.say("RPUSH queue 1 2"), ":2");
    assert_eq!(format!("{:?}", waiting[0].reply()), "*[\"queue\", \"1\"]");
    assert_eq!(format!("{:?}", waiting[1].reply()), "*[\"queue\", \"2\"]");
    assert_eq!((other.say("LLEN queue"), waiters(&server)), (":0".to_owned(), 1));
    other.say("SET queue text");
    other.say("DEL queue");
    other.say("MULTI");
    other.say("LPUSH queue a");
    other.say("LPUSH queue b");
    other.say("EXEC");
    // The writes of a transaction become visible together.
    assert_eq!(format!("{:?}", waiting[2].reply()), "*[\"queue\", \"b\"]");
    assert_eq!(other.say("LRANGE queue 0 -1"), "*[\"a\"]");
}

#[test]
fn a_wait_ends_by_time_by_others_and_with_its_connection() {
    let server = TestServer::start();
    let mut wire = server.wire();
    assert_eq!(wire.say("BLPOP q 0.05"), "null");
    assert_eq!(wire.say("BZPOPMIN q 0.01"), "null");
    assert_eq!(wire.say("BLMOVE q r LEFT RIGHT 0.01"), "null");
    let id = wire.say("CLIENT ID").trim_start_matches(':').to_owned();
    let mut other = server.wire();
    for (how, reply) in [("TIMEOUT", "null"), ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK")] {
        wire.send(&["BRPOP", "q", "0"]);
        until(|| waiters(&server) == 1);
        assert_eq!(other.say(&format!("CLIENT UNBLOCK {id} {how}")), ":1");
        assert_eq!(format!("{:?}", wire.reply()), reply);
    }
    wire.send(&["BRPOP", "q", "0"]);
    until(|| waiters(&server) == 1);
    drop(wire);
    until(|| waiters(&server) == 0);
    assert_eq!(other.say("RPUSH q x"), ":1");
    assert_eq!(other.say("LLEN q"), ":1");
}

#[test]
fn what_waits_is_served_by_other_waits() {
    let server = TestServer::start();
    let (mut a, mut b, mut c) = (server.wire(), server.wire(), server.wire());
    a.send(&["BLMOVE", "q", "r", "LEFT", "RIGHT", "0"]);
    until(|| waiters(&server) == 1);
    b.send(&["BLPOP", "r", "0"]);
    // A request after a waiting command runs after it.
    b.send(&["SET", "done", "1"]);
    until(|| waiters(&server) == 2);
    assert_eq!(c.say("GET done"), "null");
    assert_eq!(c.say("RPUSH q x"), ":1");
    assert_eq!(format!("{:?}", a.reply()), "\"x\"");
    assert_eq!(format!("{:?}", b.reply()), "*[\"r\", \"x\"]");
    assert_eq!(format!("{:?}", b.reply()), "+OK");
    c.send(&["BZPOPMAX", "z", "0"]);
    until(|| waiters(&server) == 1);
    a.say("ZADD z 1 one 2 two");
    assert_eq!(format!("{:?}", c.reply()), "*[\"z\", \"two\", \"2\"]");
}

#[test]
fn a_move_that_waited_fails_if_its_target_is_no_list() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    b.say("SET target text");
    a.send(&["BRPOPLPUSH", "source", "target", "0"]);
    until(|| waiters(&server) == 1);
    // The key has another type: the command continues to wait.
    b.say("SET source text");
    b.say("DEL source");
    assert_eq!((b.say("RPUSH source x"), waiters(&server)), (":1".to_owned(), 0));
    assert!(format!("{:?}", a.reply()).starts_with("-WRONGTYPE"));
    assert_eq!(b.say("LRANGE source 0 -1"), "*[\"x\"]");
}

#[test]
fn replies_wait_for_no_command_that_waits() {
    let server = TestServer::start();
    let (mut first, mut wire, mut other) = (server.wire(), server.wire(), server.wire());
    first.send(&["BLPOP", "q", "0"]);
    until(|| waiters(&server) == 1);
    let requests =
        [vec!["GET", "none"], vec!["LPUSH", "q", "1"], vec!["BLPOP", "q", "0"], vec!["ECHO", "end"]];
    wire.send_bytes(&requests.map(|words| encode(&words)).concat());
    // The reply of the read, then that of the write, which served another client.
    assert_eq!(format!("{:?} {:?}", wire.reply(), wire.reply()), "null :1");
    assert_eq!(format!("{:?}", first.reply()), "*[\"q\", \"1\"]");
    until(|| waiters(&server) == 1);
    other.say("LPUSH q 2");
    assert_eq!(format!("{:?} {:?}", wire.reply(), wire.reply()), "*[\"q\", \"2\"] \"end\"");
}

const GONE: &str = "-UNBLOCKED the stream key no longer exists";

#[test]
fn readers_of_a_group_fail_when_it_is_gone() {
    let server = TestServer::start();
    let (mut one, mut two, mut other) = (server.wire(), server.wire(), server.wire());
    let wait = |wire: &mut Wire, n: usize| {
        wire.send(&["XREADGROUP", "GROUP", "g", "me", "BLOCK", "0", "STREAMS", "s", ">"]);
        until(|| waiters(&server) == n);
    };
    for (gone, error) in [
        (vec!["DEL s"], GONE),
        (vec!["PEXPIRE s 50"], GONE),
        (
            vec!["XGROUP DESTROY s g"],
            "-NOGROUP the consumer group this client was blocked on no longer exists",
        ),
        (vec!["FLUSHALL"], GONE),
        (vec!["SET s text"], GONE),
        (vec!["MULTI", "DEL s", "SADD s member", "EXEC"], GONE),
    ] {
        other.say("DEL s");
        assert_eq!(other.say("XGROUP CREATE s g $ MKSTREAM"), "+OK");
        wait(&mut one, 1);
        gone.iter().for_each(|command| drop(other.say(command)));
        assert_eq!(format!("{:?}", one.reply()), error, "{gone:?}");
    }
    // Two clients wait for the same entry. One gets it, and they do not wake each other endlessly.
    other.say("DEL s");
    other.say("XGROUP CREATE s g $ MKSTREAM");
    wait(&mut one, 1);
    wait(&mut two, 2);
    other.say("XADD s 1-1 f v");
    assert_eq!(format!("{:?}", one.reply()), "*[*[\"s\", *[*[\"1-1\", *[\"f\", \"v\"]]]]]");
    assert_eq!((other.say("PING"), waiters(&server)), ("+PONG".to_owned(), 1));
    assert!(other.say("INFO clients").contains("total_blocking_keys_on_nokey:1"));
    // Removed entries count like claimed ones, and a count that is too large is refused.
    for command in ["DEL s", "XADD s 1-0 f v", "XADD s 2-0 f v", "XGROUP CREATE s g 0"] {
        other.say(command);
    }
    other.say("XREADGROUP GROUP g me STREAMS s >");
    other.say("XDEL s 1-0");
    assert_eq!(other.say("XAUTOCLAIM s g you 0 0-0 COUNT 1"), "*[\"2-0\", *[], *[\"1-0\"]]");
    assert_eq!(other.say("XAUTOCLAIM s g you 0 0-0 COUNT 9223372036854775807"), "-ERR COUNT must be > 0");
}

#[test]
fn a_pause_holds_what_it_names_until_it_ends() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    a.say("SET brief v PX 300");
    assert_eq!(a.say("CLIENT PAUSE 600000 WRITE"), "+OK");
    assert_eq!(a.say("CLIENT PAUSE 1 WRITE"), "+OK");
    b.send(&["SET", "k", "v"]);
    (0..100).for_each(|_| assert_eq!(a.say("GET k"), "null"));
    until(|| a.say("INFO clients").contains("blocked_clients:1\\r"));
    until(|| a.say("GET brief") == "null");
    std::thread::sleep(Duration::from_millis(250));
    assert!(a.say("INFO stats").contains("expired_keys:0"));
    assert!(a.say("SET k").starts_with("-ERR wrong number"));
    let reads = ["MULTI", "GET k", "EXEC"].map(|line| a.say(line));
    assert_eq!(reads, ["+OK", "+QUEUED", "*[null]"]);
    assert_eq!(a.say("CLIENT UNPAUSE"), "+OK");
    assert_eq!(format!("{:?}", b.reply()), "+OK");
    assert_eq!(a.say("GET k"), "\"v\"");
    until(|| a.say("INFO stats").contains("expired_keys:1"));

    let begun = std::time::Instant::now();
    assert_eq!(a.say("CLIENT PAUSE 60"), "+OK");
    assert_eq!((b.say("PING"), a.say("GET k")), ("+PONG".to_owned(), "\"v\"".to_owned()));
    assert!(begun.elapsed().as_millis() >= 50, "it holds all, and ends by itself");

    assert_eq!(a.say("CLIENT PAUSE 600000 WRITE"), "+OK");
    b.send(&["SET", "k", "w"]);
    assert_eq!(a.say("CLIENT KILL TYPE normal SKIPME yes"), ":1");
    assert!(b.try_reply().is_none(), "a held client can be ended");
    assert_eq!(a.say("GET k"), "\"v\"");
    for refused in ["CLIENT PAUSE x", "CLIENT PAUSE -1", "CLIENT PAUSE 1 some"] {
        assert!(a.say(refused).starts_with("-ERR"), "{refused}");
    }
}
