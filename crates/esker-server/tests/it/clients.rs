//! Clients: the crate `redis`, and raw connections.

use std::collections::{BTreeMap, BTreeSet};

use esker::Db;
use esker_server::{Fsync, Options};
use redis::{Commands, RedisResult};

use crate::harness::{TestServer, until};
use crate::wire::{Reply, encode};

#[test]
fn a_client_library_works_with_all_types() -> RedisResult<()> {
    let server = TestServer::start();
    let mut c = server.redis();
    let _: () = c.set("text", "hello")?;
    assert_eq!(c.get::<_, String>("text")?, "hello");
    assert_eq!(c.incr::<_, _, i64>("n", 5)?, 5);
    let _: () = c.hset_multiple("hash", &[("a", "1"), ("b", "2")])?;
    let hash: BTreeMap<String, i64> = c.hgetall("hash")?;
    assert_eq!(hash, [("a".to_owned(), 1), ("b".to_owned(), 2)].into());
    let _: () = c.rpush("list", &["x", "y", "z"])?;
    assert_eq!(c.lrange::<_, Vec<String>>("list", 0, -1)?, ["x", "y", "z"]);
    let _: () = c.sadd("set", &["m", "n"])?;
    assert_eq!(c.smembers::<_, BTreeSet<String>>("set")?.len(), 2);
    let _: () = c.zadd_multiple("sorted", &[(2.5, "late"), (1.0, "early")])?;
    assert_eq!(c.zrange::<_, Vec<String>>("sorted", 0, -1)?, ["early", "late"]);
    let (a, b): (i64, String) = redis::pipe().atomic().incr("n", 1).get("text").query(&mut c)?;
    assert_eq!((a, b.as_str()), (6, "hello"));
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut c)?, 6);
    assert_eq!(c.del::<_, i64>(&["text", "n", "none"])?, 2);
    Ok(())
}

#[test]
fn what_was_written_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    for fsync in [Fsync::Always, Fsync::EverySecond, Fsync::Never] {
        let options = Options { fsync, ..Options::default() };
        {
            let db = Db::open(dir.path()).unwrap();
            let server = TestServer::start_with(db, options.clone());
            let mut wire = server.wire();
            wire.say("SELECT 3");
            wire.say("SET key value PX 100000");
            for n in 0..300 {
                wire.say(&format!("ZADD many {n} member{n}"));
            }
        }
        let db = Db::open(dir.path()).unwrap();
        let server = TestServer::start_with(db, options);
        let mut wire = server.wire();
        assert_eq!(wire.say("SELECT 3"), "+OK");
        assert_eq!(wire.say("GET key"), "\"value\"");
        assert_eq!(wire.say("ZRANGE many -2 -1"), "*[\"member298\", \"member299\"]");
        assert_eq!(wire.say("FLUSHALL"), "+OK");
        assert_eq!(wire.say("DBSIZE"), ":0");
    }
}

#[test]
fn transactions_are_whole_and_watches_are_kept() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    assert_eq!(a.say("MULTI"), "+OK");
    assert_eq!(a.say("SET k 1"), "+QUEUED");
    assert_eq!(a.say("LPUSH k 1"), "+QUEUED");
    assert_eq!(b.say("EXISTS k"), ":0");
    let reply = a.say("EXEC");
    assert!(reply.starts_with("*[+OK, -WRONGTYPE"), "{reply}");
    for (change, outcome) in
        [("SET k 2", "null"), ("SET other 1", "*[+OK]"), ("DEL k", "null"), ("TOUCH k", "*[+OK]")]
    {
        assert_eq!(a.say("WATCH k"), "+OK");
        b.say(change);
        a.say("MULTI");
        a.say("SET k 3");
        assert_eq!(a.say("EXEC"), outcome, "{change}");
    }
    assert_eq!(a.say("MULTI"), "+OK");
    assert!(a.say("NOPE").starts_with("-ERR unknown command 'NOPE'"));
    assert!(a.say("EXEC").starts_with("-EXECABORT"));
    assert!(a.say("EXEC").starts_with("-ERR EXEC without MULTI"));
    assert_eq!(a.say("MULTI"), "+OK");
    assert_eq!(a.say("BLPOP none 0"), "+QUEUED");
    assert_eq!(a.say("SELECT 1"), "+QUEUED");
    assert_eq!(a.say("SET in-1 x"), "+QUEUED");
    assert_eq!(a.say("EXEC"), "*[null, +OK, +OK]");
    assert_eq!((a.say("DBSIZE"), b.say("DBSIZE")), (":1".to_owned(), ":2".to_owned()));
}

#[test]
fn flushing_changes_watched_keys_that_are_there() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    for (flush, key, outcome) in [
        ("FLUSHALL", "k", "null"),
        ("FLUSHDB", "k", "null"),
        ("FLUSHALL", "absent", "*[+OK]"),
        ("FLUSHDB", "absent", "*[+OK]"),
    ] {
        a.say("SET k 1");
        a.say(&format!("WATCH {key}"));
        b.say(flush);
        a.say("MULTI");
        a.say("SET k 3");
        assert_eq!(a.say("EXEC"), outcome, "{flush} {key}");
    }
}

#[test]
fn streams_are_trimmed_to_nothing_and_groups_may_be_ahead() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("XADD s 1-1 f v");
    wire.say("XGROUP CREATE s g 0");
    assert_eq!(wire.say("XGROUP SETID s g 1-1 ENTRIESREAD 2"), "+OK");
    assert!(wire.say("XINFO GROUPS s").contains("\"lag\", :-1"));
    assert_eq!(wire.say("XGROUP SETID s g -"), "+OK");
    assert!(wire.say("XINFO GROUPS s").contains("\"last-delivered-id\", \"0-0\""));
    assert_eq!((wire.say("XTRIM s MAXLEN ~ 0"), wire.say("XLEN s")), (":1".to_owned(), ":0".to_owned()));
}

#[test]
fn a_group_goes_at_once_with_all_it_has() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (stream, entries) in [("small", 3), ("large", 300)] {
        (0..entries).for_each(|_| _ = wire.call(&["XADD", stream, "*", "field", "value of some length"]));
        for group in ["a", "b", "aa"] {
            wire.call(&["XGROUP", "CREATE", stream, group, "0"]);
            wire.call(&["XREADGROUP", "GROUP", group, "reader", "STREAMS", stream, ">"]);
        }
        let all = format!("*[:{entries}, ");
        // Destroy and recreate the group in one transaction.
        for line in [
            "MULTI",
            "XGROUP DESTROY _ a",
            "XGROUP CREATE _ a 0",
            "XREADGROUP GROUP a new COUNT 1 STREAMS _ >",
        ] {
            wire.say(&line.replace('_', stream));
        }
        wire.say("EXEC");
        assert!(wire.say(&format!("XPENDING {stream} a")).starts_with("*[:1, "), "{stream}");
        assert!(!wire.say(&format!("XINFO CONSUMERS {stream} a")).contains("reader"), "{stream}");
        assert_eq!(wire.say(&format!("XGROUP DESTROY {stream} a")), ":1");
        assert_eq!(wire.say(&format!("XGROUP DESTROY {stream} a")), ":0");
        for group in ["b", "aa"] {
            assert!(wire.say(&format!("XPENDING {stream} {group}")).starts_with(&all), "{stream}");
        }
    }
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
}

#[test]
fn keys_expire_and_are_swept() {
    let server = TestServer::start();
    let (mut wire, mut hearer) = (server.wire(), server.wire());
    assert_eq!(wire.say("CONFIG SET notify-keyspace-events Ex"), "+OK");
    hearer.say("SUBSCRIBE __keyevent@0__:expired");
    for n in 0..700 {
        wire.say(&format!("SET k{n} v PX 80"));
    }
    wire.say("SET stays v PX 60000");
    assert_eq!(wire.say("PERSIST stays"), ":1");
    until(|| wire.say("DBSIZE") == ":1");
    assert_eq!(wire.say("KEYS *"), "*[\"stays\"]");
    let Reply::List(_, message) = hearer.reply() else { panic!("a message") };
    assert_eq!(format!("{:?}", &message[..2]), "[\"message\", \"__keyevent@0__:expired\"]");
    until(|| server.db.open_keyspace("r0.t").unwrap().is_empty().unwrap());
}

#[test]
fn a_new_key_is_announced_once() {
    let server = TestServer::start();
    let (mut wire, mut hearer) = (server.wire(), server.wire());
    assert_eq!(wire.say("CONFIG SET notify-keyspace-events En"), "+OK");
    hearer.say("PSUBSCRIBE *");
    for command in ["SET a 1", "SET a 2", "LPUSH b x", "LPUSH b y", "RENAME b c", "DEL a", "SADD a x"] {
        wire.say(command);
    }
    for key in ["a", "b", "c", "a"] {
        let event = format!("*[\"pmessage\", \"*\", \"__keyevent@0__:new\", \"{key}\"]");
        assert_eq!(format!("{:?}", hearer.reply()), event);
    }
}

#[test]
fn a_large_collection_goes_by_one_small_commit_and_a_sweep() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for start in (0..3000).step_by(100) {
        let fields: Vec<String> = (start..start + 100).map(|n| format!("field{n} value{n}")).collect();
        wire.say(&format!("HSET large {}", fields.join(" ")));
    }
    let parts = server.db.open_keyspace("r0.s").unwrap();
    assert_eq!(parts.iter().count(), 3000);
    assert_eq!(wire.say("RENAME large other"), "+OK");
    assert_eq!(wire.say("HLEN other"), ":3000");
    assert_eq!(wire.say("SET other text"), "+OK");
    assert_eq!(wire.say("DBSIZE"), ":1");
    until(|| parts.iter().count() == 0);
    until(|| server.db.open_keyspace("r0.g").unwrap().iter().count() == 0);
}

#[test]
fn subscribers_hear_what_is_published_after_its_commit() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    assert_eq!(a.say("SUBSCRIBE news"), "*[\"subscribe\", \"news\", :1]");
    assert_eq!(a.say("PSUBSCRIBE n*"), "*[\"psubscribe\", \"n*\", :2]");
    assert!(a.say("GET k").starts_with("-ERR Can't execute 'get'"));
    assert_eq!(b.say("PUBLISH news hello"), ":2");
    assert_eq!(format!("{:?}", a.reply()), "*[\"message\", \"news\", \"hello\"]");
    assert_eq!(format!("{:?}", a.reply()), "*[\"pmessage\", \"n*\", \"news\", \"hello\"]");
    assert_eq!(a.say("UNSUBSCRIBE"), "*[\"unsubscribe\", \"news\", :1]");
    assert_eq!(a.say("PUNSUBSCRIBE"), "*[\"punsubscribe\", \"n*\", :0]");
    assert_eq!(a.say("GET k"), "null");
    b.say("MULTI");
    b.say("SET k v");
    b.say("PUBLISH news x");
    assert_eq!(b.say("EXEC"), "*[+OK, :0]");
    a.say("HELLO 3");
    a.say("SUBSCRIBE news");
    assert_eq!(a.say("GET k"), "\"v\"");
    b.say("PUBLISH news again");
    assert_eq!(format!("{:?}", a.reply()), ">[\"message\", \"news\", \"again\"]");
    // Shard channels are separate from other channels.
    assert_eq!(a.say("SSUBSCRIBE news"), ">[\"ssubscribe\", \"news\", :1]");
    assert_eq!((b.say("SPUBLISH news s"), b.say("SPUBLISH other s")), (":1".into(), ":0".into()));
    assert_eq!(format!("{:?}", a.reply()), ">[\"smessage\", \"news\", \"s\"]");
    assert_eq!(b.say("PUBSUB SHARDNUMSUB news"), "*[\"news\", :1]");
    assert_eq!(a.say("SUNSUBSCRIBE"), ">[\"sunsubscribe\", \"news\", :0]");
    assert_eq!((b.say("SPUBLISH news s"), b.say("PUBLISH news x")), (":0".into(), ":1".into()));
}

#[test]
fn a_password_is_asked_for() {
    let options = Options { password: "secret".to_owned(), ..Options::default() };
    let server = TestServer::start_with(Db::in_memory().unwrap(), options);
    let mut wire = server.wire();
    assert!(wire.say("GET k").starts_with("-NOAUTH"));
    assert!(wire.say("AUTH wrong").starts_with("-WRONGPASS"));
    assert!(wire.say("HELLO 3").starts_with("-NOAUTH"));
    assert_eq!(wire.say("AUTH secret"), "+OK");
    assert_eq!(wire.say("GET k"), "null");
    let mut other = server.wire();
    assert!(other.say("HELLO 3 AUTH default secret SETNAME me").starts_with("%["));
    assert_eq!(other.say("CLIENT GETNAME"), "\"me\"");
}

#[test]
fn the_ordered_family() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for key in ["a", "b", "c", "d"] {
        wire.say(&format!("SET {key} {key}{key}"));
    }
    wire.say("RPUSH bx 1");
    assert_eq!(wire.say("ES.RANGE b d"), "*[\"b\", \"bb\", \"bx\", null, \"c\", \"cc\"]");
    assert_eq!(wire.say("ES.RANGE b '' EXCL KEYS LIMIT 2"), "*[\"bx\", \"c\"]");
    assert_eq!(wire.say("ES.RANGE '' c INCL REV VALUES"), "*[\"cc\", null, \"bb\", \"aa\"]");
    assert_eq!(wire.say("ES.PREFIX b KEYS"), "*[\"b\", \"bx\"]");
    assert_eq!(wire.say("ES.PREFIX b AFTER b KEYS"), "*[\"bx\"]");
    assert_eq!((wire.say("ES.COUNT"), wire.say("ES.COUNT b d")), (":5".to_owned(), ":3".to_owned()));
    assert_eq!(
        (wire.say("ES.FIRST"), wire.say("ES.LAST")),
        ("*[\"a\", \"aa\"]".into(), "*[\"d\", \"dd\"]".into())
    );
    assert_eq!((wire.say("ES.NEXT bb"), wire.say("ES.PREV a")), ("*[\"bx\", null]".into(), "null".into()));
    assert_eq!(wire.say("ES.SNAP OPEN"), ":1");
    assert_eq!(wire.say("ES.CAS a EQ aa SET new"), ":1");
    assert_eq!(wire.say("ES.CAS a EQ aa SET newer"), ":0");
    assert_eq!(wire.say("ES.CAS z NONE SET z"), ":1");
    assert_eq!(wire.say("ES.CAS z EQ z DEL"), ":1");
    assert_eq!((wire.say("ES.GET a"), wire.say("ES.GET a SNAP 1")), ("\"new\"".into(), "\"aa\"".into()));
    assert_eq!(wire.say("ES.DELRANGE b c"), ":2");
    assert_eq!((wire.say("ES.COUNT"), wire.say("ES.SNAP CLOSE 1")), (":3".to_owned(), ":1".to_owned()));

    assert_eq!(wire.say("ES.KS CREATE users"), "+OK");
    assert_eq!(wire.say("ES.KS USE users"), "+OK");
    assert_eq!(wire.say("ES.SET ann 1"), "+OK");
    assert_eq!(server.db.open_keyspace("users").unwrap().get("ann").unwrap().as_deref(), Some(&b"1"[..]));
    server.db.open_keyspace("users").unwrap().put("bob", "2").unwrap();
    assert_eq!(wire.say("ES.RANGE '' ''"), "*[\"ann\", \"1\", \"bob\", \"2\"]");
    assert_eq!(wire.say("ES.DELRANGE a b"), ":1");
    assert_eq!(wire.say("ES.DEL bob none"), ":1");
    assert!(wire.say("ES.KS USE r0").starts_with("-ERR"));
    assert_eq!(wire.say("ES.KS LIST"), "*[\"default\", \"users\"]");
    assert_eq!(wire.say("ES.KS USE"), "+OK");
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
}

#[test]
fn many_connections_share_commits() {
    let server = TestServer::start();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut wire = server.wire();
                for _ in 0..200 {
                    wire.send(&["INCR", "n"]);
                    wire.send(&["GET", "n"]);
                    let (Reply::Int(n), Reply::Bulk(seen)) = (wire.reply(), wire.reply()) else { panic!() };
                    let seen: i64 = String::from_utf8(seen).unwrap().parse().unwrap();
                    assert!(seen >= n, "a connection reads what it has written");
                }
            });
        }
    });
    assert_eq!(server.wire().say("GET n"), "\"1600\"");
}

#[test]
fn databases_are_apart_and_can_be_exchanged() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    a.say("SET k zero");
    b.say("SELECT 1");
    b.say("RPUSH list x y");
    assert_eq!(a.say("SWAPDB 0 1"), "+OK");
    assert_eq!((a.say("GET k"), b.say("GET k")), ("null".into(), "\"zero\"".into()));
    assert_eq!(a.say("LRANGE list 0 -1"), "*[\"x\", \"y\"]");
    assert_eq!(a.say("COPY list other DB 5"), ":1");
    assert_eq!(a.say("MOVE list 2"), ":1");
    assert_eq!(a.say("SELECT 2"), "+OK");
    assert_eq!(a.say("LRANGE list 0 -1"), "*[\"x\", \"y\"]");
    assert!(a.say("SELECT 99").starts_with("-ERR DB index"));
}

#[test]
fn what_is_not_built_says_so() {
    let server = TestServer::start();
    let mut wire = server.wire();
    assert!(wire.say("BF.ADD k m").starts_with("-ERR BF.ADD is not supported by this server: "));
    assert!(wire.say("MIGRATE f 0").contains("use DUMP and RESTORE"));
    assert!(wire.say("NOSUCH a").starts_with("-ERR unknown command 'NOSUCH'"));
}

#[test]
fn subcommands_are_named_where_clients_look() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let id = wire.say("CLIENT ID").trim_start_matches(':').to_owned();
    assert!(wire.say(&format!("CLIENT LIST ID {id}")).contains("cmd=client|list"));
    assert_eq!(
        wire.say("COMMAND LIST FILTERBY PATTERN config|*re*"),
        "*[\"config|resetstat\", \"config|rewrite\"]"
    );
    assert!(wire.say("COMMAND INFO config|get").starts_with("*[*[\"config|get\""));
    assert_eq!(wire.say("COMMAND INFO get|key"), "*[null]");
    assert!(wire.say("OBJECT HELP").contains("encoding key"));
    assert_eq!(wire.say("OBJECT HELP x"), "-ERR wrong number of arguments for 'object|help' command");
    assert!(wire.say("CONFIG SET hz 5 hz 6").contains("duplicate parameter"));
    assert!(wire.say("CONFIG SET notify-keyspace-events KEA$e").starts_with("+OK"));
    assert_eq!(wire.say("CONFIG GET notify-keyspace-events"), "*[\"notify-keyspace-events\", \"AKE\"]");
    // CLIENT REPLY OFF does not suppress confirmations of subscriptions.
    wire.send(&["CLIENT", "REPLY", "OFF"]);
    assert_eq!(wire.say("SUBSCRIBE news"), "*[\"subscribe\", \"news\", :1]");
}

#[test]
fn what_was_done_before_the_server_stops_is_answered() {
    let db = Db::in_memory().unwrap();
    for round in 0..5 {
        let server = TestServer::start_with(db.clone(), Options::default());
        let (mut wire, mut other) = (server.wire(), server.wire());
        assert_eq!(other.say("SET n 0"), "+OK");
        wire.send_bytes(&encode(&["INCR", "n"]).repeat(5_000));
        until(|| other.say("GET n") != "\"0\"");
        std::thread::sleep(std::time::Duration::from_millis(round));
        assert!(server.end().is_none());
        let mut last = 0;
        while let Some(reply) = wire.try_reply() {
            last += 1;
            assert_eq!(format!("{reply:?}"), format!(":{last}"));
        }
        let server = TestServer::start_with(db.clone(), Options::default());
        assert_eq!(server.wire().say("GET n"), format!("\"{last}\""), "{round}");
    }
}

#[test]
fn databases_are_exchanged_behind_other_writes_of_the_same_commit() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let commands = [
        ("SET k 0", "+OK"),
        ("SWAPDB 0 1", "+OK"),
        ("GET k", "null"),
        ("SET k 1", "+OK"),
        ("MULTI", "+OK"),
        ("SWAPDB 0 1", "+QUEUED"),
        ("GET k", "+QUEUED"),
        ("EXEC", "*[+OK, \"0\"]"),
    ];
    // Sent together, the commands arrive in one job and would share one commit.
    let words = commands.map(|(command, _)| encode(&command.split(' ').collect::<Vec<_>>()));
    wire.send_bytes(&words.concat());
    for (command, expected) in commands {
        assert_eq!(format!("{:?}", wire.reply()), expected, "{command}");
    }
}
