//! Payloads of `RESTORE` that `DUMP` never makes, and the reports of `ES.VERIFY`.

use esker_server::Options;

use crate::harness::TestServer;
use crate::wire::{Reply, Wire};

const WRONG: &str = "ERR DUMP payload version or checksum are wrong";
const BAD: &str = "ERR Bad data format";

/// A checksum of 0 is none: the decoder has to notice what is wrong.
fn unsummed(body: &[u8]) -> Vec<u8> {
    [body, &[0; 8]].concat()
}

fn dump(wire: &mut Wire, key: &str) -> Vec<u8> {
    match wire.call(&["DUMP", key]) {
        Reply::Bulk(bytes) => bytes,
        other => panic!("{key}: {other:?}"),
    }
}

/// Creates a small and a large key of each type. Returns their names.
fn make_all(wire: &mut Wire) -> Vec<&'static str> {
    for n in 0..60 {
        for size in ["small", "large"] {
            if size == "small" && n > 4 {
                continue;
            }
            let long = "x".repeat(if size == "small" { 3 } else { 40 });
            wire.say(&format!("RPUSH {size}l {n}{long}"));
            wire.say(&format!("HSET {size}h {n}{long} v"));
            wire.say(&format!("SADD {size}t {n}{long}"));
            wire.say(&format!("ZADD {size}z {n} {n}{long}"));
            wire.say(&format!("XADD {size}x {}-1 f {long}", n + 1));
        }
    }
    wire.say("SET s text");
    for key in ["smallx", "largex"] {
        wire.say(&format!("XGROUP CREATE {key} g 0"));
        for consumer in ["a", "b"] {
            wire.say(&format!("XREADGROUP GROUP g {consumer} COUNT 2 STREAMS {key} >"));
        }
        wire.say(&format!("XACK {key} g 1-1"));
    }
    vec![
        "s", "smalll", "largel", "smallh", "largeh", "smallt", "larget", "smallz", "largez", "smallx",
        "largex",
    ]
}

/// Commands that read and change all of a key, whatever its type.
const USES: &[&str] = &[
    "TYPE k",
    "OBJECT ENCODING k",
    "MEMORY USAGE k",
    "STRLEN k",
    "APPEND k x",
    "LRANGE k 0 -1",
    "LPUSH k a",
    "RPUSH k b",
    "LINSERT k BEFORE a c",
    "LPOP k",
    "LTRIM k 1 3",
    "HGETALL k",
    "HSET k f v",
    "HDEL k f",
    "SMEMBERS k",
    "SADD k m",
    "SPOP k 3",
    "SRANDMEMBER k 3",
    "ZRANGE k 0 -1 WITHSCORES",
    "ZADD k 1 m",
    "ZPOPMIN k 2",
    "ZINCRBY k 1 m",
    "XRANGE k - +",
    "XADD k * f v",
    "XINFO STREAM k FULL",
    "XREADGROUP GROUP g a COUNT 2 STREAMS k >",
    "XREADGROUP GROUP g a STREAMS k 0",
    "XPENDING k g",
    "XPENDING k g - + 10",
    "XAUTOCLAIM k g b 0 0",
    "XREADGROUP GROUP g b CLAIM 0 STREAMS k >",
    "XACKDEL k g ACKED IDS 1 3-1",
    "XDELEX k DELREF IDS 2 3-1 4-1",
    "XACK k g 2-1",
    "XTRIM k MAXLEN 1",
    "XGROUP DELCONSUMER k g a",
    "XGROUP DESTROY k g",
    "COPY k k2 REPLACE",
    "RENAME k k3",
    "DEL k3",
];

#[test]
fn payloads_are_restored_as_they_were_or_refused() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let keys = make_all(&mut wire);
    let mut random = fastrand::Rng::with_seed(8);
    let mut taken = 0;
    for key in keys {
        let payload = dump(&mut wire, key);
        assert_eq!(
            wire.call(&[&b"RESTORE"[..], b"same", b"0", &payload[..], b"REPLACE"]),
            Reply::Simple("OK".into()),
            "{key}"
        );
        assert_eq!(dump(&mut wire, "same").len(), payload.len());
        for _ in 0..150 {
            let mut body = payload[..payload.len() - 8].to_vec();
            let at = random.usize(1..body.len() - 2);
            match random.u8(0..4) {
                0 => body[at] = random.u8(..),
                1 => body[at] ^= 1 << random.u8(0..8),
                2 => drop(body.drain(at..(at + random.usize(1..20)).min(body.len()))),
                _ => {
                    let end = (at + 8).min(body.len());
                    body[at..end].fill([0, 0xFF, 0x40][random.usize(0..3)]);
                }
            }
            let reply = wire.call(&[&b"RESTORE"[..], b"k", b"0", &unsummed(&body)[..], b"REPLACE"]);
            if reply == Reply::Simple("OK".into()) {
                taken += 1;
                assert_eq!(wire.say("ES.VERIFY"), "*[]", "{key}: {}", body.escape_ascii());
                for line in USES {
                    let reply = wire.say(line);
                    assert!(
                        !reply.contains("internal error"),
                        "{key}: {line}: {reply}: {}",
                        body.escape_ascii()
                    );
                }
                assert_eq!(wire.say("ES.VERIFY"), "*[]", "{key} once used: {}", body.escape_ascii());
            } else {
                let Reply::Error(why) = reply else { panic!("{key}: {reply:?}") };
                assert!(why == BAD || why == WRONG, "{key}: {why}");
            }
        }
    }
    assert!(taken > 100, "{taken}: other bytes in values are no damage");
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
}

#[test]
fn rows_and_records_of_replication_are_verified() {
    let db = esker::Db::in_memory().unwrap();
    let server = TestServer::start_with(db.clone(), Options::default());
    let mut wire = server.wire();
    for line in ["OB.PUT users ann age 42 town Oslo", "ES.KS CREATE other", "ES.KS USE other", "ES.SET k v"] {
        wire.say(line);
    }
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
    let names = ["ob.default", "es.repl", "es.none"].map(|name| db.keyspace(name).unwrap());
    let [rows, records, nothing] = &names;
    let long = vec![0; 8];
    for (space, key, value, what) in [
        (
            rows,
            &b"\xFF\0"[..],
            &b"\xFF"[..],
            "keyspace ob.default, \\\\xff\\\\x00: its key is not that of a column",
        ),
        (rows, b"\x01t\0\x01k\0\x01c\0\x01d\0", &long, "its key is not that of a column"),
        (rows, b"\x01t\0\x01k\0\x02c\0", &long, "its key is not that of a column"),
        (rows, b"\x01t\0\x01k\0\x01c\0", b"short", "its value has no timestamp"),
        (records, b"\xFF\0", b"\xFF", "keyspace es.repl, \\\\xff\\\\x00: no record has this key"),
        (records, b"e\0\0\0\x07", b"short", "es.repl, e\\\\x00\\\\x00\\\\x00\\\\x07: "),
        (records, b"p", b"short", "es.repl, p: "),
        (records, b"sname", b"short", "es.repl, sname: "),
        (records, b"s../x", &[0; 28], "es.repl, s../x: "),
        (records, b"i", b"../x", "es.repl, i: "),
        (nothing, b"k", b"v", "es.none, k: nothing belongs here"),
    ] {
        let before = space.get(key).unwrap();
        space.put(key, value).unwrap();
        let reply = wire.say("ES.VERIFY");
        assert!(reply.contains(what), "{what}: {reply}");
        match before {
            Some(before) => space.put(key, before).map(drop),
            None => space.delete(key).map(drop),
        }
        .unwrap();
    }
    let role = records.get(b"r").unwrap().unwrap();
    records.put(b"r", b"\x09").unwrap();
    assert!(wire.say("ES.VERIFY").contains("es.repl, r: "));
    records.put(b"r", role).unwrap();
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let db = esker::Db::in_memory().unwrap();
    let server = TestServer::start_with(db.clone(), Options::default());
    let mut wire = server.wire();
    make_all(&mut wire);
    wire.say("SET expiring v EX 1000");
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
    let spaces = ["r0", "r0.s", "r0.t", "r0.g"].map(|name| db.keyspace(name).unwrap());
    let [main, sub, ttl, garbage] = &spaces;
    let first = |space: &esker::Keyspace| space.iter().next().unwrap().unwrap();
    let mut reports = |what: &str| {
        let reply = wire.say("ES.VERIFY");
        assert!(reply.contains(what), "{what}: {reply}");
    };
    let (entry, _) = first(ttl);
    ttl.delete(&entry).unwrap();
    reports("its expiry is not noted");
    // The expiry is far in the future, so that the sweeper does not remove it.
    ttl.put([&(1_u64 << 50).to_be_bytes()[..], b"none"].concat(), b"").unwrap();
    reports("an expiry is noted that the key does not have");
    let (part, _) = first(sub);
    garbage.put(&part[..8], b"").unwrap();
    reports("parts that a key has are noted as garbage");
    garbage.delete(&part[..8]).unwrap();
    sub.delete(&part).unwrap();
    reports("is not the number of");
    sub.put([&1_u64.to_be_bytes()[..], b"lost"].concat(), b"").unwrap();
    reports("parts that no key has");
    main.put("bad", b"\x0F").unwrap();
    reports("its kind is unknown");
    main.delete("bad").unwrap();
}

/// Keys as `DUMP` of Redis 7.0 returns them, a command that reads each, and its reply.
const OF_REDIS: &[(&[u8], &str, &str)] = &[
    (b"\x00\x05hello\x0a\x00cr\xdfve4 \x0a", "GET k", "\"hello\""),
    (
        b"\x12\x01\x02\x10\x10\x00\x00\x00\x03\x00\x81a\x02\x82bb\x03\x03\x01\xff\x0a\x00\xcd\xee\xecy\xa7a\xa1\xab",
        "LRANGE k 0 -1",
        "*[\"a\", \"bb\", \"3\"]",
    ),
    (b"\x02\x02\x01y\x01x\x0a\x00\x0c\xdfk=\xb30\xbc\xf0", "SMISMEMBER k x y z", "*[:1, :1, :0]"),
    (
        b"\x11\x15\x15\x00\x00\x00\x04\x00\x81n\x02\xdf\xfe\x02\x81m\x02\x831.5\x04\xff\x0a\x00:\xab&v\xca\xcef`",
        "ZRANGE k 0 -1 WITHSCORES",
        "*[\"n\", \"-2\", \"m\", \"1.5\"]",
    ),
    (
        b"\x10\x13\x13\x00\x00\x00\x04\x00\x81f\x02\x81v\x02\x81g\x02\x81w\x02\xff\x0a\x00\xd9\xde\xc5\xc9\x16\x0f\xb25",
        "HGETALL k",
        "*[\"f\", \"v\", \"g\", \"w\"]",
    ),
    (
        b"\x13\x01\x10\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x01&&\x00\x00\x00\x0f\x00\x02\x01\
\x00\x01\x01\x01\x81a\x02\x00\x01\x02\x01\x00\x01\x00\x01\x01\x01\x04\x01\x02\x01\x01\x01\x00\x01\x02\x01\x04\x01\xff\
\x02\x06\x01\x05\x01\x00\x00\x02\x01\x01g\x05\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\
\x01\x5c\xc7\x910\xa2\x01\x00\x00\x01\x01\x01c\x5c\xc7\x910\xa2\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x05\x00\
\x00\x00\x00\x00\x00\x00\x01\x0a\x00\xb5U\x1fa\x9e\xa8B\x18",
        "XPENDING k g",
        "*[:1, \"5-1\", \"5-1\", *[*[\"c\", \"1\"]]]",
    ),
];

#[test]
fn payloads_of_redis_are_restored_or_refused() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let mut random = fastrand::Rng::with_seed(9);
    let restore = |wire: &mut Wire, payload: &[u8], options: &[&str]| {
        let words = [&b"RESTORE"[..], b"k", options[0].as_bytes(), payload];
        let more = options[1..].iter().map(|word| word.as_bytes());
        format!("{:?}", wire.call(&words.into_iter().chain(more).collect::<Vec<_>>()))
    };
    for &(payload, read, value) in OF_REDIS {
        assert_eq!(restore(&mut wire, payload, &["0", "REPLACE"]), "+OK", "{read}");
        assert_eq!(wire.say(read), value);
        assert!(restore(&mut wire, payload, &["0"]).starts_with("-BUSYKEY"));
        // In a transaction and with an expiry.
        wire.say("MULTI");
        restore(&mut wire, payload, &["90000", "REPLACE"]);
        wire.say("EXEC");
        assert_eq!((wire.say(read), wire.say("PTTL k").len()), (value.to_owned(), 6));
        assert_eq!(wire.say("ES.VERIFY"), "*[]", "{read}");
        assert_eq!(restore(&mut wire, payload, &["1", "REPLACE", "ABSTTL"]), "+OK");
        assert_eq!(wire.say("EXISTS k"), ":0");
        let wrong = format!("-{WRONG}");
        for at in 0..payload.len() {
            let mut damaged = payload.to_vec();
            damaged[at] ^= 0x80;
            assert_eq!(restore(&mut wire, &damaged, &["0"]), wrong, "{read}: {at}");
            assert_eq!(restore(&mut wire, &payload[..at], &["0"]), wrong, "{read}: {at}");
        }
        for _ in 0..300 {
            let mut damaged = unsummed(&payload[..payload.len() - 8]);
            damaged[random.usize(..payload.len() - 10)] = random.u8(..);
            let reply = restore(&mut wire, &damaged, &["0", "REPLACE"]);
            assert!(reply == "+OK" || reply == format!("-{BAD}"), "{read}: {reply}");
            assert_eq!(wire.say("ES.VERIFY"), "*[]", "{read}: {}", damaged.escape_ascii());
        }
        wire.say("DEL k");
    }
}
