//! Deadlines of the fields of hashes.

use std::time::Duration;
#[cfg(feature = "lua")]
use std::time::Instant;

use crate::harness::{TestServer, until};
use crate::node::{Node, assert_same};
use crate::wire::{Reply, Wire};

/// Sends lines and compares the replies.
fn expect(wire: &mut Wire, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        assert_eq!(wire.say(line), *reply, "{line}");
    }
}

/// Stops a server whose data has to be consistent, with no record left of deadlines and parts.
fn end_empty(server: TestServer) {
    let mut wire = server.wire();
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
    wire.say("FLUSHALL");
    drop(wire);
    end_without_parts(server);
}

fn end_without_parts(server: TestServer) {
    for name in ["r0.s", "r0.t", "r0.g"] {
        let space = server.db.open_keyspace(name).unwrap();
        until(|| space.iter().count() == 0);
    }
    assert_eq!(server.wire().say("ES.VERIFY"), "*[]");
}

fn pass(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[test]
fn fields_get_and_lose_deadlines() {
    let server = TestServer::start();
    let mut wire = server.wire();
    expect(
        &mut wire,
        &[
            ("HEXPIRE h 10 FIELDS 2 a b", "*[:-2, :-2]"),
            ("HTTL h FIELDS 1 a", "*[:-2]"),
            ("HPERSIST h FIELDS 1 a", "*[:-2]"),
            ("HSET h a 1 b 2 c 3", ":3"),
            ("HTTL h FIELDS 2 a x", "*[:-1, :-2]"),
            ("HPERSIST h FIELDS 2 a x", "*[:-1, :-2]"),
            ("HEXPIRE h 10 XX FIELDS 1 a", "*[:0]"),
            ("HEXPIRE h 10 GT FIELDS 1 a", "*[:0]"),
            ("HEXPIRE h 100 NX FIELDS 3 a b x", "*[:1, :1, :-2]"),
            ("HEXPIRE h 100 nx FIELDS 1 a", "*[:0]"),
            ("HEXPIRE h 50 GT FIELDS 1 a", "*[:0]"),
            ("HEXPIRE h 200 GT FIELDS 1 a", "*[:1]"),
            ("HEXPIRE h 300 LT FIELDS 2 a c", "*[:0, :1]"),
            ("HTTL h FIELDS 4 a b c x", "*[:200, :100, :300, :-2]"),
            ("OBJECT ENCODING h", "\"listpackex\""),
            ("HPEXPIREAT h 70000000000000 FIELDS 1 a", "*[:1]"),
            ("HPEXPIRETIME h FIELDS 1 a", "*[:70000000000000]"),
            ("HEXPIREAT h 60000000000 XX FIELDS 1 a", "*[:1]"),
            ("HEXPIRETIME h FIELDS 2 a x", "*[:60000000000, :-2]"),
            ("HINCRBY h a 5", ":6"),
            ("HINCRBYFLOAT h a 0.5", "\"6.5\""),
            ("HEXPIRETIME h FIELDS 1 a", "*[:60000000000]"),
            ("HSETNX h a 9", ":0"),
            ("HEXPIRETIME h FIELDS 1 a", "*[:60000000000]"),
            ("HSET h a 7", ":0"),
            ("HTTL h FIELDS 1 a", "*[:-1]"),
            ("HPERSIST h FIELDS 3 a b x", "*[:-1, :1, :-2]"),
            ("HTTL h FIELDS 1 b", "*[:-1]"),
            // A time in the past removes the field, and the key with its last field.
            ("HEXPIRE h 0 FIELDS 2 a x", "*[:2, :-2]"),
            ("HPEXPIREAT h 1 NX FIELDS 2 b c", "*[:2, :0]"),
            ("HKEYS h", "*[\"c\"]"),
            ("HEXPIREAT h 1 FIELDS 1 c", "*[:2]"),
            ("EXISTS h", ":0"),
        ],
    );
    end_without_parts(server);
}

#[test]
fn words_of_the_commands_are_checked() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let missing = "-ERR Mandatory argument FIELDS is missing or not at the right position";
    let count = "-ERR The `numfields` parameter must match the number of arguments";
    let positive = "-ERR Number of fields must be a positive integer";
    expect(
        &mut wire,
        &[
            ("SET s text", "+OK"),
            ("HSET h f v", ":1"),
            ("HEXPIRE s 1 FIELDS 1 f", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("HTTL s FIELDS 1 f", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("HGETEX s FIELDS 1 f", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("HSETEX s FIELDS 1 f v", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("HGETDEL s FIELDS 1 f", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("HEXPIRE h 1 FIELDS 1", "-ERR wrong number of arguments for 'hexpire' command"),
            ("HEXPIRE h x FIELDS 1 f", "-ERR value is not an integer or out of range"),
            ("HEXPIRE h -1 FIELDS 1 f", "-ERR invalid expire time, must be >= 0"),
            ("HEXPIRE h 9223372036854775 FIELDS 1 f", "-ERR invalid expire time in 'hexpire' command"),
            ("HPEXPIREAT h 70368744177664 FIELDS 1 f", "-ERR invalid expire time in 'hpexpireat' command"),
            ("HPEXPIREAT h 70368744177663 FIELDS 1 none", "*[:-2]"),
            ("HEXPIRE h 1 NX XX FIELDS 1 f", missing),
            ("HEXPIRE h 1 fields 0 f", "-ERR Parameter `numFields` should be greater than 0"),
            ("HEXPIRE h 1 FIELDS x f", "-ERR Parameter `numFields` should be greater than 0"),
            ("HEXPIRE h 1 FIELDS 2 f", count),
            ("HEXPIRE h 1 FIELDS 1 f g", count),
            ("HTTL h x 1 f", missing),
            ("HTTL h FIELDS 0 f", positive),
            ("HPTTL h FIELDS 2 f", count),
            ("HPERSIST h FIELDS -1 f", positive),
            ("HGETDEL h FIELDS 0 f", positive),
            ("HGETDEL h f 1 f", missing),
            ("HGETEX h EX 0 FIELDS 2 f", count),
            ("HGETEX h EX x FIELDS 1 f", "-ERR value is not an integer or out of range"),
            ("HGETEX h EX -1 FIELDS 1 f", "-ERR invalid expire time, must be >= 0"),
            ("HGETEX h KEEPTTL FIELDS 1 f", missing),
            (
                "HSETEX h EX 1 PX 1 FIELDS 1 f v",
                "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
            ),
            (
                "HSETEX h KEEPTTL EX 1 FIELDS 1 f v",
                "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
            ),
            ("HSETEX h FXX FNX FIELDS 1 f v", "-ERR Only one of FXX or FNX arguments can be specified"),
            ("HSETEX h NX FIELDS 1 f v", "-ERR unknown argument: NX"),
            ("HSETEX h FIELDS 0 f v", "-ERR invalid number of fields"),
            ("HSETEX h FIELDS 2 f v", "-ERR wrong number of arguments for 'hsetex' command"),
            ("HSETEX h FIELDS 1 f v w", "-ERR wrong number of arguments for 'hsetex' command"),
            (
                "HSETEX h FNX EX 1 KEEPTTL FIELDS",
                "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
            ),
            ("HSETEX h FNX EX 1 FIELDS 1", "-ERR wrong number of arguments for 'hsetex' command"),
            ("HSETEX h FNX PX 1 a b", "-ERR unknown argument: a"),
            ("HSETEX h FNX FXX1 PX 1 EX", "-ERR unknown argument: FXX1"),
            ("HSETEX h FNX KEEPTTL FNX1 b EX", "-ERR unknown argument: FNX1"),
            ("HGETALL h", "*[\"f\", \"v\"]"),
            ("HTTL h FIELDS 1 f", "*[:-1]"),
        ],
    );
    end_empty(server);
}

#[test]
fn fields_are_got_and_set_with_their_deadlines() {
    let server = TestServer::start();
    let mut wire = server.wire();
    expect(
        &mut wire,
        &[
            ("HGETDEL h FIELDS 2 a b", "*[null, null]"),
            ("HGETEX h EX 10 FIELDS 2 a b", "*[null, null]"),
            ("HSETEX h FXX FIELDS 1 a 1", ":0"),
            ("EXISTS h", ":0"),
            ("HSETEX h FNX EX 100 FIELDS 2 a 1 b 2", ":1"),
            ("HSETEX h FNX FIELDS 2 c 3 a 9", ":0"),
            ("HSETEX h FXX PX 200000 FIELDS 2 a 3 c 9", ":0"),
            ("HMGET h a b c", "*[\"1\", \"2\", null]"),
            ("HTTL h FIELDS 2 a b", "*[:100, :100]"),
            ("HSETEX h KEEPTTL FXX FIELDS 1 a 4", ":1"),
            ("HTTL h FIELDS 1 a", "*[:100]"),
            ("HSETEX h FIELDS 1 a 5", ":1"),
            ("HTTL h FIELDS 1 a", "*[:-1]"),
            ("HGETEX h FIELDS 2 a b", "*[\"5\", \"2\"]"),
            ("HTTL h FIELDS 2 a b", "*[:-1, :100]"),
            ("HGETEX h EXAT 60000000000 FIELDS 2 a x", "*[\"5\", null]"),
            ("HEXPIRETIME h FIELDS 1 a", "*[:60000000000]"),
            ("HGETEX h PERSIST FIELDS 1 a", "*[\"5\"]"),
            ("HTTL h FIELDS 1 a", "*[:-1]"),
            ("HGETEX h PX 0 FIELDS 1 a", "*[\"5\"]"),
            ("HGETALL h", "*[\"b\", \"2\"]"),
            // Fields that are set with a time in the past are removed.
            ("HSETEX h PXAT 1 FIELDS 2 a 1 b 2", ":1"),
            ("EXISTS h", ":0"),
            ("HSETEX h EX 0 FIELDS 1 a 1", ":1"),
            ("EXISTS h", ":0"),
            ("HSETEX h EX 100 FIELDS 3 a 1 b 2 a 3", ":1"),
            ("HLEN h", ":2"),
            ("HGETDEL h FIELDS 3 a a x", "*[\"3\", null, null]"),
            ("HGETDEL h FIELDS 1 b", "*[\"2\"]"),
            ("EXISTS h", ":0"),
        ],
    );
    end_without_parts(server);
}

#[test]
fn an_expired_field_is_absent_to_all_and_goes_with_its_key() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let long = "x".repeat(700);
    for key in ["small", "large"] {
        wire.say(&format!("HSET {key} a 1 b 2 c 3 d 4"));
        if key == "large" {
            wire.say(&format!("HSET {key} b {long} c {long}"));
        }
        wire.say(&format!("HPEXPIRE {key} 40 FIELDS 2 a c"));
    }
    wire.say("HSETEX all PX 40 FIELDS 2 a 1 b 2");
    // The sweeper does not run meanwhile, so the fields are still stored.
    wire.say("CLIENT PAUSE 100000 WRITE");
    pass(45);
    for key in ["small", "large"] {
        let b = if key == "small" { "2" } else { &long };
        for (line, reply) in [
            ("HLEN k", ":2".to_owned()),
            ("HGET k a", "null".to_owned()),
            ("HEXISTS k a", ":0".to_owned()),
            ("HSTRLEN k a", ":0".to_owned()),
            ("HMGET k a b d", format!("*[null, \"{b}\", \"4\"]")),
            ("HGETALL k", format!("*[\"b\", \"{b}\", \"d\", \"4\"]")),
            ("HKEYS k", "*[\"b\", \"d\"]".to_owned()),
            ("HVALS k", format!("*[\"{b}\", \"4\"]")),
            ("HSCAN k 0 NOVALUES", "*[\"0\", *[\"b\", \"d\"]]".to_owned()),
            ("HRANDFIELD k 9", "*[\"b\", \"d\"]".to_owned()),
            ("HTTL k FIELDS 2 a b", "*[:-2, :-1]".to_owned()),
            ("EXISTS k", ":1".to_owned()),
        ] {
            assert_eq!(wire.say(&line.replace(" k", &format!(" {key}"))), reply, "{line}");
        }
    }
    expect(
        &mut wire,
        &[
            ("HLEN all", ":0"),
            ("EXISTS all", ":0"),
            ("TYPE all", "+none"),
            ("TTL all", ":-2"),
            ("DUMP all", "null"),
            ("OBJECT ENCODING all", "null"),
            ("KEYS *", "*[\"large\", \"small\"]"),
            ("SCAN 0 TYPE hash", "*[\"0\", *[\"large\", \"small\"]]"),
            ("ES.RANGE '' '' KEYS", "*[\"large\", \"small\"]"),
            ("DBSIZE", ":3"),
            ("ES.VERIFY", "*[]"),
        ],
    );
    wire.say("CLIENT UNPAUSE");
    until(|| wire.say("DBSIZE") == ":2");
    expect(&mut wire, &[("HLEN small", ":2"), ("HLEN large", ":2"), ("HTTL large FIELDS 1 b", "*[:-1]")]);
    assert!(wire.say("INFO stats").contains("expired_subkeys:6\\r\\n"));
    // Without deadlines it is as it was before.
    assert_eq!(wire.say("OBJECT ENCODING small"), "\"listpack\"");
    end_empty(server);
}

#[test]
fn expired_fields_that_are_still_stored_are_written_as_new_ones() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let long = "x".repeat(700);
    for n in 0..3 {
        for (at, fields) in
            ["a 1 b 2 c 3".to_owned(), format!("a {long} b {long} c {long}")].iter().enumerate()
        {
            let key = format!("k{n}{at}");
            wire.say(&format!("HSET {key} {fields}"));
            // The sweeper rarely runs in these few milliseconds, and the replies are the same if it does.
            let changes = [
                format!("HSET {key} a 5"),
                format!("HINCRBY {key} a 5"),
                format!("HSETEX {key} FNX KEEPTTL FIELDS 1 a 5"),
            ];
            wire.say(&format!("HPEXPIRE {key} 1 FIELDS 2 a b"));
            pass(3);
            for line in [
                "MULTI",
                &changes[n],
                &format!("HDEL {key} b"),
                &format!("HMGET {key} a b"),
                &format!("HTTL {key} FIELDS 2 a b"),
                &format!("HLEN {key}"),
            ] {
                wire.say(line);
            }
            let replies = wire.say("EXEC");
            assert!(replies.ends_with(", :0, *[\"5\", null], *[:-1, :-2], :2]"), "{key}: {replies}");
            assert_eq!(wire.say("ES.VERIFY"), "*[]");
        }
    }
    end_empty(server);
}

#[test]
fn many_fields_expire_in_several_commits() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for start in (0..2000).step_by(100) {
        let fields: Vec<String> = (start..start + 100).map(|n| format!("field{n} value{n}")).collect();
        wire.say(&format!("HSETEX large PX 400 FIELDS 100 {}", fields.join(" ")));
        wire.say(&format!("HSETEX gone PX 400 FIELDS 100 {}", fields.join(" ")));
    }
    wire.say("HSET large stays v");
    let mut seen = 2001;
    until(|| {
        let Reply::Int(len) = wire.call(&["HLEN", "large"]) else { panic!() };
        assert!(len <= seen);
        seen = len;
        len == 1
    });
    until(|| wire.say("DBSIZE") == ":1");
    let parts = server.db.open_keyspace("r0.s").unwrap();
    until(|| parts.iter().count() == 1);
    assert_eq!(wire.say("HGETALL large"), "*[\"stays\", \"v\"]");
    end_empty(server);
}

#[test]
fn copies_have_the_deadlines() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let long = "x".repeat(700);
    for value in ["1", &long] {
        wire.say("FLUSHALL");
        wire.say(&format!("HSET h a {value} b {value} c {value}"));
        let all = "*[:60000000000, :-1, :50000000000]";
        expect(
            &mut wire,
            &[
                ("HEXPIREAT h 60000000000 FIELDS 1 a", "*[:1]"),
                ("HEXPIREAT h 50000000000 FIELDS 1 c", "*[:1]"),
                ("COPY h copy", ":1"),
                ("HEXPIRETIME copy FIELDS 3 a b c", all),
                ("COPY h copy REPLACE", ":1"),
                ("COPY h other DB 3", ":1"),
                ("RENAME copy renamed", "+OK"),
                ("EXPIRE renamed 1000", ":1"),
                ("RENAME renamed again", "+OK"),
                ("HEXPIRETIME again FIELDS 3 a b c", all),
                ("PERSIST again", ":1"),
                ("HEXPIRETIME again FIELDS 3 a b c", all),
                ("HDEL h a", ":1"),
                ("HEXPIRETIME again FIELDS 3 a b c", all),
                ("MOVE again 4", ":1"),
                ("ES.VERIFY", "*[]"),
                ("SWAPDB 3 4", "+OK"),
                ("SELECT 3", "+OK"),
                ("HEXPIRETIME again FIELDS 3 a b c", all),
                ("SELECT 4", "+OK"),
                ("HEXPIRETIME other FIELDS 3 a b c", all),
                ("SELECT 0", "+OK"),
                ("ES.VERIFY", "*[]"),
                ("SELECT 4", "+OK"),
            ],
        );
        let Reply::Bulk(payload) = wire.call(&["DUMP", "other"]) else { panic!("a payload") };
        let restored = wire.call(&[&b"RESTORE"[..], b"restored", b"0", &payload]);
        assert_eq!(restored, Reply::Simple("OK".into()));
        wire.say("FLUSHDB");
        let restored = wire.call(&[&b"RESTORE"[..], b"restored", b"5000", &payload]);
        assert_eq!(restored, Reply::Simple("OK".into()));
        expect(
            &mut wire,
            &[
                ("HEXPIRETIME restored FIELDS 3 a b c", all),
                ("HLEN restored", ":3"),
                ("TTL restored", ":5"),
                ("SET restored text", "+OK"),
                ("ES.VERIFY", "*[]"),
                ("SELECT 0", "+OK"),
            ],
        );
    }
    end_empty(server);
}

#[test]
fn payloads_lose_what_expires_before_they_are_restored() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("HSETEX h PX 30 FIELDS 2 a 1 b 2");
    let Reply::Bulk(all) = wire.call(&["DUMP", "h"]) else { panic!("a payload") };
    wire.say("HSET h c 3");
    let Reply::Bulk(some) = wire.call(&["DUMP", "h"]) else { panic!("a payload") };
    pass(35);
    wire.say("SET gone text");
    for (key, payload) in [("gone", all), ("left", some)] {
        let reply = wire.call(&[b"RESTORE", key.as_bytes(), b"0", &payload, b"REPLACE"]);
        assert_eq!(reply, Reply::Simple("OK".into()));
    }
    expect(&mut wire, &[("EXISTS gone", ":0"), ("HGETALL left", "*[\"c\", \"3\"]"), ("HLEN left", ":1")]);
    end_empty(server);
}

#[test]
fn events_are_those_of_redis() {
    let server = TestServer::start();
    let (mut wire, mut hearer) = (server.wire(), server.wire());
    assert_eq!(wire.say("CONFIG SET notify-keyspace-events KA"), "+OK");
    hearer.say("PSUBSCRIBE *");
    for (line, events) in [
        ("HSET h a 1 b 2", "hset"),
        ("HEXPIRE h 10 FIELDS 1 a", "hexpire"),
        ("HEXPIRE h 10 NX FIELDS 1 a", ""),
        ("HPERSIST h FIELDS 2 a b", "hpersist"),
        ("HPERSIST h FIELDS 1 a", ""),
        ("HGETEX h FIELDS 1 a", ""),
        ("HGETEX h PERSIST FIELDS 1 a", ""),
        ("HGETEX h EX 10 FIELDS 1 a", "hexpire"),
        ("HGETEX h PERSIST FIELDS 1 a", "hpersist"),
        ("HGETEX h EX 0 FIELDS 1 a", "hdel"),
        ("HSETEX h EX 10 FIELDS 1 a 1", "hset hexpire"),
        ("HSETEX h KEEPTTL FIELDS 1 a 1", "hset"),
        ("HSETEX h EX 0 FIELDS 1 a 1", "hset hdel"),
        ("HGETDEL h FIELDS 1 x", ""),
        ("HGETDEL h FIELDS 1 b", "hdel del"),
        ("HSETEX h EX 0 FIELDS 1 a 1", "hset hdel del"),
        ("HSET h a 1 b 2", "hset"),
        ("HEXPIRE h 0 FIELDS 1 a", "hdel"),
        ("HEXPIREAT h 1 FIELDS 1 b", "hdel del"),
        ("HSETEX h PX 5 FIELDS 1 a 1", "hset hexpire hexpired del"),
        ("HSET h b 1", "hset"),
        ("HSETEX h PX 5 FIELDS 1 a 1", "hset hexpire hexpired"),
    ] {
        wire.say(line);
        for event in events.split(' ').filter(|event| !event.is_empty()) {
            let heard = format!("*[\"pmessage\", \"*\", \"__keyspace@0__:h\", \"{event}\"]");
            assert_eq!(format!("{:?}", hearer.reply()), heard, "{line}");
        }
    }
    end_empty(server);
}

#[test]
fn an_expired_field_is_a_change_of_a_watched_key() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (ms, kept) in [(60, false), (100_000, true)] {
        for other in ["HSET h b 2", "PING"] {
            wire.say("DEL h");
            wire.say(&format!("HSETEX h PX {ms} FIELDS 1 a 1"));
            wire.say(other);
            wire.say("WATCH h");
            pass(if kept { 5 } else { 80 });
            wire.say("MULTI");
            wire.say("PING");
            let reply = wire.say("EXEC");
            assert_eq!(reply != "null", kept, "{ms}, {other}: {reply}");
        }
    }
    end_empty(server);
}

#[test]
#[cfg(feature = "lua")]
fn no_field_expires_while_a_script_runs() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let wait = "redis.call('HSETEX', KEYS[1], 'PX', '20', 'FIELDS', '1', 'a', '1') \
                local n = 0 \
                for i = 1, tonumber(ARGV[1]) do n = n + i end \
                return {redis.call('HLEN', KEYS[1]), redis.call('HGET', KEYS[1], 'a'), redis.call('EXISTS', KEYS[1])}";
    let mut steps = 1_000_000;
    loop {
        let start = Instant::now();
        let reply = wire.call(&["EVAL", wait, "1", "h", &steps.to_string()]);
        assert_eq!(format!("{reply:?}"), "*[:1, \"1\", :1]");
        // The script has to run beyond the deadline. A script of 5 seconds is ended.
        if start.elapsed() > Duration::from_millis(40) {
            break;
        }
        steps *= 2;
    }
    assert_eq!(wire.say("HGET h a"), "null");
    until(|| wire.say("DBSIZE") == ":0");
    end_without_parts(server);
}

#[test]
fn replicas_show_no_expired_field_and_remove_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut primary = Node::start(&dir.path().join("a"));
    let replica = Node::replica_of(&dir.path().join("b"), primary.port());
    primary.say("HSET h a 1 b 2");
    primary.say("HPEXPIRE h 300 FIELDS 1 a");
    primary.say("HSETEX all PX 300 FIELDS 2 a 1 b 2");
    primary.say("HSETEX later EX 1000 FIELDS 1 a 1");
    assert_same(&primary, &replica);
    // The deadlines are still there after a restart.
    primary.restart();
    primary.stop();
    until(|| replica.say("EXISTS all") == ":0");
    assert_eq!(replica.say("HGETALL h"), "*[\"b\", \"2\"]");
    assert_eq!(replica.say("HLEN h"), ":1");
    assert_eq!(replica.say("KEYS *"), "*[\"h\", \"later\"]");
    pass(250);
    assert_eq!(replica.say("DBSIZE"), ":3");
    primary.restart();
    until(|| primary.say("DBSIZE") == ":2");
    assert_same(&primary, &replica);
    assert_eq!(replica.say("DBSIZE"), ":2");
    // A promoted replica removes what expires.
    primary.say("HSETEX all PX 100 FIELDS 2 a 1 b 2");
    assert_same(&primary, &replica);
    primary.stop();
    assert_eq!(replica.say("REPLICAOF NO ONE"), "+OK");
    until(|| replica.say("DBSIZE") == ":2");
    assert_eq!(replica.say("ES.VERIFY"), "*[]");
}

#[test]
fn what_does_not_fit_a_hash_with_deadlines_is_reported() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("HSETEX h EX 10000 FIELDS 2 a 1 b 2");
    wire.say("HSETEX h EX 20000 FIELDS 1 c 3");
    let sub = server.db.open_keyspace("r0.s").unwrap();
    let entries: Vec<_> = sub.iter().map(|entry| entry.unwrap()).collect();
    assert_eq!(entries.len(), 7, "one by the first deadline, three by field, three by deadline");
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
    let problems = [
        "its first deadline is not noted",
        "the number of deadlines is not that of fields with a deadline",
        "the number of deadlines is not that of fields with a deadline",
        "the number of deadlines is not that of fields with a deadline",
        "the order of deadlines is not that of the deadlines",
        "the order of deadlines is not that of the deadlines",
        "the order of deadlines is not that of the deadlines",
    ];
    for ((key, value), problem) in entries.iter().zip(problems) {
        sub.delete(key).unwrap();
        let report = wire.say("ES.VERIFY");
        assert!(report.contains(problem), "{problem}: {report}");
        sub.put(key, value).unwrap();
    }
    let noted = [&0_u64.to_be_bytes()[..], &(1_u64 << 50).to_be_bytes(), b"none"].concat();
    sub.put(&noted, b"").unwrap();
    assert!(wire.say("ES.VERIFY").contains("a first deadline is noted that the key does not have"));
    sub.delete(&noted).unwrap();
    // A field without a value.
    let lost = [&entries[1].0[..9], b"x"].concat();
    sub.delete(&entries[1].0).unwrap();
    sub.put(&lost, &entries[1].1).unwrap();
    assert!(wire.say("ES.VERIFY").contains("a field that does not exist has a deadline"));
    sub.delete(&lost).unwrap();
    sub.put(&entries[1].0, &entries[1].1).unwrap();
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
    end_empty(server);
}
