//! Commands that would take much more memory than their requests. Each fails before it does.

use std::sync::atomic::Ordering;

use crate::harness::TestServer;
use crate::wire::Wire;

/// A server with keys of about 1.3 MB each, in parts of 6,500 bytes.
fn with_collections() -> (TestServer, Wire) {
    let server = TestServer::start();
    let mut wire = server.wire();
    let text = "x".repeat(6500);
    wire.call(&["SET", "b0", &text.repeat(200)]);
    wire.say("XGROUP CREATE stream g 0 MKSTREAM");
    let members: Vec<String> = (0..200).map(|n| format!("{n:03}{text}")).collect();
    for (n, member) in members.iter().enumerate() {
        let n = n.to_string();
        wire.call(&["HSET", "hash", &n, member]);
        wire.call(&["HSET", "fields", member, &n]);
        wire.call(&["RPUSH", "list", member]);
        wire.call(&["SADD", "set", member]);
        wire.call(&["SADD", "other", &format!("{member}o")]);
        wire.call(&["ZADD", "sorted", &n, member]);
        wire.call(&["GEOADD", "geo", "13.4", "52.5", member]);
        wire.call(&["XADD", "stream", "*", "f", member]);
        wire.call(&["OB.PUT", "t", "row", &n, member]);
        wire.call(&["SET", &format!("weight{n}"), member]);
        wire.call(&["RPUSH", "numbers", &n]);
    }
    (server, wire)
}

/// Commands with replies of at least 1.3 MB.
const REPLIES: &[&str] = &[
    "GET b0",
    "MGET b0 b0 b0 b0",
    "GETRANGE b0 0 -1",
    "HMGET hash 1 FIELDS",
    "HGETALL hash",
    "HVALS hash",
    "HKEYS fields",
    "HSCAN hash 0 COUNT 1000000000",
    "HRANDFIELD fields -100000",
    "HRANDFIELD fields 1000",
    "LRANGE list 0 -1",
    "SMEMBERS set",
    "SUNION set other",
    "SINTER set set",
    "SDIFF set numbers0",
    "SRANDMEMBER set -100000",
    "SRANDMEMBER set 1000",
    "SSCAN set 0 COUNT 1000000",
    "ZRANGE sorted 0 -1 WITHSCORES",
    "ZREVRANGE sorted 0 -1",
    "ZRANGEBYSCORE sorted -inf +inf",
    "ZRANGEBYLEX sorted - +",
    "ZUNION 2 sorted sorted",
    "ZRANDMEMBER sorted -100000",
    "ZSCAN sorted 0 COUNT 1000000",
    "XRANGE stream - +",
    "XREVRANGE stream + -",
    "XREAD STREAMS stream 0",
    "XREADGROUP GROUP g c STREAMS stream >",
    "XINFO STREAM stream FULL COUNT 0",
    "SORT list ALPHA",
    "SORT numbers BY weight* ALPHA GET weight*",
    "SORT_RO numbers BY nosort GET weight*",
    "GEORADIUS geo 13.4 52.5 100 km",
    "GEOSEARCH geo FROMLONLAT 13.4 52.5 BYRADIUS 100 km WITHCOORD",
    "DUMP b0",
    "DUMP hash",
    "ES.RANGE b z VALUES",
    "ES.PREFIX weight",
    "ES.GET b0",
    "LPOP list 1000",
    "SPOP set 1000",
    "ZPOPMIN sorted 1000",
    "LMPOP 1 list LEFT COUNT 1000",
    "ZMPOP 1 sorted MIN COUNT 1000",
];

/// Commands that gather as much but have small replies.
const GATHER: &[&str] = &[
    "SUNIONSTORE to set other",
    "SINTERSTORE to set set",
    "SDIFFSTORE to set numbers0",
    "SINTERCARD 2 set set",
    "ZUNIONSTORE to 2 sorted sorted",
    "ZINTERCARD 2 sorted sorted",
    "ZRANGESTORE to sorted 0 -1",
    "ZREMRANGEBYRANK sorted 0 -1",
    "SORT list ALPHA STORE to",
    "SORT numbers BY weight* ALPHA",
    "SORT numbers BY nosort GET weight* STORE to",
    "GEORADIUS geo 13.4 52.5 100 km STORE to",
    "COPY hash to",
    "MOVE set 1",
    "LREM list 0 none",
];

const TOO_LARGE: &str = "-ERR the reply is larger than 1 MiB: ask for less at a time";
const TOO_MUCH: &str = "-ERR the command would use more than 1 MiB of memory: split it into parts";

fn refused(wire: &mut Wire, line: &str, why: &str) {
    let reply = wire.say(line);
    assert!(reply == why, "{line}: {}", &reply[..reply.len().min(200)]);
}

#[test]
fn command_memory_1_replies_are_bounded_while_they_are_made() {
    let (server, mut wire) = with_collections();
    let limits = &server.server.commands.memory;
    limits.reply.store(1 << 20, Ordering::Relaxed);
    let fields = "1 ".repeat(200);
    let replies: Vec<_> = REPLIES.iter().map(|line| line.replace("FIELDS", fields.trim_end())).collect();
    for line in &replies {
        refused(&mut wire, line, TOO_LARGE);
    }
    assert_eq!(wire.say("LLEN list"), ":200", "commands.2");
    let columns: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let words: Vec<&str> = ["OB.GET", "t", "row"].into_iter().chain(columns.iter().map(|c| &**c)).collect();
    assert_eq!(format!("{:?}", wire.call(&words)), TOO_LARGE);
    // In a transaction, the limit applies to all replies together.
    for line in ["MULTI", "LRANGE list 0 120", "LRANGE list 0 120", "PING"] {
        wire.say(line);
    }
    let all = format!("{:?}", wire.call(&["EXEC"]));
    assert!(all.contains(TOO_LARGE) && all.ends_with("+PONG]"), "{}", &all[all.len() - 200..]);
    if cfg!(not(feature = "lua")) {
        return;
    }
    limits.reply.store(1 << 30, Ordering::Relaxed);
    limits.script_reply.store(1 << 20, Ordering::Relaxed);
    for line in &replies {
        let words: Vec<_> = line.split(' ').map(|word| format!("'{word}'")).collect();
        let script = format!("return redis.call({})", words.join(", "));
        let reply = format!("{:?}", wire.call(&["EVAL", &script, "0"]));
        assert!(reply.starts_with(TOO_LARGE), "{line}: {}", &reply[..reply.len().min(200)]);
    }
}

#[test]
fn command_memory_1_what_commands_gather_is_bounded() {
    let (server, mut wire) = with_collections();
    server.server.commands.memory.gathered.store(1 << 20, Ordering::Relaxed);
    for line in GATHER {
        refused(&mut wire, line, TOO_MUCH);
    }
    assert_eq!(wire.say("EXISTS to"), ":0", "commands.2");
    // Small parts take more memory than their bytes, even in a dump.
    let many: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let words: Vec<&str> = ["SADD", "many"].into_iter().chain(many.iter().map(|n| &**n)).collect();
    wire.call(&words);
    refused(&mut wire, "SUNION many none", TOO_MUCH);
    let crate::wire::Reply::Bulk(dump) = wire.call(&["DUMP", "many"]) else { panic!("no dump") };
    assert!(dump.len() < 300_000);
    assert_eq!(format!("{:?}", wire.call(&[b"RESTORE".as_slice(), b"to", b"0", &dump])), TOO_MUCH);
    // Other commands continue to work.
    assert_eq!(wire.say("HGET hash 1").len(), 6505);
}

#[test]
fn what_scripts_and_transactions_tell_is_bounded() {
    let server = TestServer::start();
    let (mut wire, mut hearer) = (server.wire(), server.wire());
    server.server.commands.memory.effects.store(1 << 20, Ordering::Relaxed);
    hearer.say("SUBSCRIBE c");
    let error = "-ERR the script or transaction would publish more than 1 MiB: split it into parts";
    let text = "x".repeat(100_000);
    // A single message may have any size. Without a subscriber there is no message.
    assert_eq!(wire.say(&format!("PUBLISH c {}", text.repeat(20))), ":1");
    assert_eq!(format!("{:?}", hearer.reply()).len(), 2_000_000 + 21);
    let ways = [("PUBLISH", "none"), ("ES.NOTIFY", "none"), ("OB.NOTIFY", "none"), ("PUBLISH", "c")];
    for (command, channel) in ways {
        let many = |wire: &mut Wire, command: &str| {
            wire.say("MULTI");
            for _ in 0..30 {
                match command {
                    "OB.NOTIFY" => wire.call(&[command, &text]),
                    _ => wire.call(&[command, channel, &text]),
                };
            }
            wire.say("SET done 1");
            format!("{:?}", wire.call(&["EXEC"]))
        };
        let replies = many(&mut wire, command);
        assert_eq!(
            replies.matches(error).count(),
            if channel == "c" { 20 } else { 0 },
            "{command} {channel}"
        );
        assert!(replies.ends_with("+OK]"));
    }
    (0..10).for_each(|_| assert!(format!("{:?}", hearer.reply()).contains("xxx")));
    // Each request starts with an empty budget, even in a pipeline.
    let script = "local s = string.rep('x', 1e5) local n = 0 for i = 1, 30 do
        if type(redis.pcall('PUBLISH', 'c', s)) == 'table' then n = n + 1 end end return n";
    if cfg!(feature = "lua") {
        wire.send(&["EVAL", script, "0"]);
        wire.send(&["EVAL", script, "0"]);
        assert_eq!(format!("{:?} {:?}", wire.reply(), wire.reply()), ":20 :20");
        (0..20).for_each(|_| assert!(format!("{:?}", hearer.reply()).contains("xxx")));
    }
    // Topics with a listener, and keyspace events.
    let mut listener = server.wire();
    assert_eq!(listener.say("ES.LISTEN t"), "+OK");
    wire.say("MULTI");
    (0..30).for_each(|_| drop(wire.call(&["ES.NOTIFY", "t", &text])));
    assert_eq!(format!("{:?}", wire.call(&["EXEC"])).matches(error).count(), 20);
    (0..10).for_each(|_| assert!(format!("{:?}", listener.reply()).contains("xxx")));
    assert_eq!(wire.say("CONFIG SET notify-keyspace-events KEA"), "+OK");
    let keys: Vec<String> = (0..40).map(|n| format!("{n}{}", "k".repeat(20_000))).collect();
    wire.say("MULTI");
    keys.iter().for_each(|key| drop(wire.call(&["SET", key, "1"])));
    let replies = format!("{:?}", wire.call(&["EXEC"]));
    let failed = replies.matches(error).count();
    assert!((10..30).contains(&failed), "{failed}");
    assert_eq!(wire.say("DBSIZE"), format!(":{}", 1 + 40 - failed), "commands.2");
}
