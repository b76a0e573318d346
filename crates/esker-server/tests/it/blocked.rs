//! Compares two things with Redis: replies to blocked readers whose keys change, and `RESTORE` of `DUMP`
//! payloads.

use std::time::Duration;

use crate::differential::Redis;
use crate::harness::TestServer;
use crate::wire::{Reply, Wire};

/// Commands that change a key that a reader waits for.
const CHANGES: &[&[&str]] = &[
    &["DEL k"],
    &["UNLINK k"],
    &["SET k v"],
    &["RENAME k k2"],
    &["FLUSHALL"],
    &["PEXPIRE k 30"],
    &["PEXPIREAT k 1"],
    &["MULTI", "DEL k", "EXEC"],
    &["XGROUP DESTROY k g"],
    &["XADD k 9-1 f v"],
    &["DEL k", "XADD k 9-1 f v"],
    &["RPUSH k a"],
    &["RPUSH k a b c", "LPOP k"],
    &["ZADD k 1 m"],
    &["MULTI", "RPUSH k a", "DEL k", "EXEC", "RPUSH k b"],
];

const READERS: &[&str] = &[
    "XREAD BLOCK 600 STREAMS k $",
    "XREADGROUP GROUP g c BLOCK 600 STREAMS k >",
    "BLPOP k 0.6",
    "BLMOVE k to LEFT RIGHT 0.6",
    "BLMOVE k string LEFT RIGHT 0.6",
    "BLMPOP 0.6 2 other k LEFT COUNT 2",
    "BZPOPMIN k other 0.6",
    "BZMPOP 0.6 1 k MAX",
];

/// Returns the reply of a blocked reader, and the replies to changes that another client makes after `pause`.
fn hear(port: u16, reader: &str, changes: &[&str], pause: Duration) -> (String, Vec<String>) {
    let (mut blocked, mut wire) = (Wire::connect(port), Wire::connect(port));
    wire.say("FLUSHALL");
    wire.say("SET string x");
    if reader.starts_with('X') {
        wire.say("XADD k 1-1 f v");
        wire.say("XGROUP CREATE k g $");
    }
    let words: Vec<_> = reader.split(' ').collect();
    blocked.send(&words);
    std::thread::sleep(pause);
    let replies: Vec<_> = changes.iter().map(|change| wire.say(change)).collect();
    let heard = format!("{:?}", blocked.reply());
    (heard, replies)
}

#[test]
fn blocked_readers_hear_what_redis_tells() {
    let Some(redis) = Redis::start() else { return };
    let server = TestServer::start();
    let ports = [server.port(), redis.port];
    let mut differences = Vec::new();
    for reader in READERS {
        // Both servers run at once, because most of the time is waiting.
        let pause = Duration::from_millis(60);
        let hear_all =
            |port| CHANGES.iter().map(|changes| hear(port, reader, changes, pause)).collect::<Vec<_>>();
        let [ours, theirs] = std::thread::scope(|scope| {
            ports.map(|port| scope.spawn(move || hear_all(port))).map(|thread| thread.join().unwrap())
        });
        let pairs = CHANGES.iter().zip(ours.into_iter().zip(theirs));
        for (changes, _) in pairs.filter(|(_, (ours, theirs))| ours != theirs) {
            // A busy machine may be late: try again with more time.
            let patient = reader.replace("0.6", "4").replace("600", "4000");
            let [ours, theirs] = ports.map(|port| hear(port, &patient, changes, Duration::from_millis(1000)));
            if ours != theirs {
                differences.push(format!("{reader} + {changes:?}: {ours:?}, {theirs:?}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Reads everything that a key holds.
fn read_all(wire: &mut Wire, key: &str) -> Vec<Reply> {
    let reads: &[&[&str]] = &[
        &["TYPE"],
        &["PTTL"],
        &["GET"],
        &["LRANGE", "0", "-1"],
        &["HLEN"],
        &["SCARD"],
        &["ZRANGE", "0", "-1", "WITHSCORES"],
        &["XRANGE", "-", "+"],
        &["XPENDING", "g"],
    ];
    let mut replies: Vec<_> =
        reads.iter().map(|words| wire.call(&[&[words[0], key], &words[1..]].concat())).collect();
    for list in ["HGETALL", "SMEMBERS"] {
        if let Reply::List(_, mut items) = wire.call(&[list, key]) {
            items.sort();
            replies.extend(items);
        }
    }
    replies
}

/// Dumps a key, restores the payload intact and damaged, and returns the replies.
fn restored(wire: &mut Wire, key: &str, damage: usize) -> Vec<Reply> {
    let payload = match wire.call(&["DUMP", key]) {
        Reply::Bulk(payload) => payload,
        other => return vec![other],
    };
    let mut damaged = payload.clone();
    let at = damage % damaged.len();
    damaged[at] ^= 0x10;
    let mut restore = |ttl: &str, payload: &[u8], more: &[&str]| {
        let head: [&[u8]; 4] = [b"RESTORE", b"copy", ttl.as_bytes(), payload];
        let more = more.iter().map(|word| word.as_bytes());
        let mut replies = vec![wire.call(&head.into_iter().chain(more).collect::<Vec<_>>())];
        replies.extend(read_all(wire, "copy"));
        replies
    };
    let replies = [
        restore("5", &payload, &["REPLACE", "ABSTTL"]),
        restore("0", &payload, &[]),
        restore("0", &payload, &[]),
        restore("-1", &payload, &["REPLACE"]),
        restore("0", &payload[..at], &["REPLACE"]),
        restore("0", &damaged, &["REPLACE"]),
        restore("0", b"", &["REPLACE"]),
    ];
    replies.concat()
}

#[test]
fn own_payloads_are_restored_and_damaged_ones_refused_as_by_redis() {
    let Some(redis) = Redis::start() else { return };
    let server = TestServer::start();
    let mut random = fastrand::Rng::with_seed(12);
    let (mut ours, mut theirs) = (server.wire(), Wire::connect(redis.port));
    for n in 0..60 {
        for line in [
            format!("RPUSH l {n}"),
            format!("HSET h f{n} {n}"),
            format!("SADD t m{n}"),
            format!("ZADD z {n} m{n}"),
            format!("XADD x {}-1 f v", n + 1),
            "XGROUP CREATE x g 0".to_owned(),
            "XREADGROUP GROUP g c COUNT 1 STREAMS x >".to_owned(),
            format!("SET s {n}"),
        ] {
            assert_eq!(ours.say(&line), theirs.say(&line), "{line}");
        }
        for key in ["s", "l", "h", "t", "z", "x", "none"] {
            let damage = random.usize(..);
            let replies = [&mut ours, &mut theirs].map(|wire| restored(wire, key, damage));
            assert_eq!(replies[0], replies[1], "{key} {n}");
            // Each server takes the payload of the other.
            let payloads = [&mut ours, &mut theirs].map(|wire| wire.call(&["DUMP", key]));
            let [Reply::Bulk(own), Reply::Bulk(other)] = payloads else { continue };
            for (wire, payload) in [(&mut ours, other), (&mut theirs, own)] {
                let taken = wire.call(&[&b"RESTORE"[..], b"copy", b"0", &payload, b"REPLACE"]);
                assert_eq!(taken, Reply::Simple("OK".into()), "{key} {n}: {}", payload.escape_ascii());
                assert_eq!(read_all(wire, "copy"), read_all(wire, key), "{key} {n}");
            }
        }
    }
}

#[test]
fn a_wait_that_ends_without_an_element_obeys_the_reply_mode() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let cases: [(&[&str], &[&str]); 2] = [
        (&["CLIENT REPLY SKIP", "BLPOP none 0.01", "PING"], &["+PONG"]),
        (
            &[
                "CLIENT REPLY OFF",
                "BLPOP none 0.01",
                "XREAD BLOCK 10 STREAMS none $",
                "CLIENT REPLY ON",
                "PING",
            ],
            &["+OK", "+PONG"],
        ),
    ];
    for (lines, replies) in cases {
        for line in lines {
            wire.send(&line.split(' ').collect::<Vec<_>>());
        }
        let seen: Vec<_> = replies.iter().map(|_| format!("{:?}", wire.reply())).collect();
        assert_eq!(seen, replies, "{lines:?}");
    }
    assert_eq!(wire.say("ECHO end"), "\"end\"");
}
