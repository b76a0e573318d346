//! Client side caching: the commands of `CLIENT TRACKING`, and every kind of change.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use esker::{Db, SeqNo};
use esker_server::Options;
use esker_server::store::LocalStore;

use crate::harness::{TestServer, until};
use crate::node::Node;
use crate::wire::{Reply, Wire};

/// A connection of version 3 of the protocol, whose invalidations are kept apart from replies.
pub struct Cached {
    wire: Wire,
    /// Invalidations since the last look. `None`: of all keys.
    stale: Vec<Option<BTreeSet<String>>>,
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

/// Returns what a message invalidates, if it is an invalidation.
pub fn invalidated(reply: &Reply) -> Option<Option<BTreeSet<String>>> {
    let Reply::List('>', items) = reply else { return None };
    assert_eq!(text(&items[0]), "invalidate", "{reply:?}");
    Some(match &items[1] {
        Reply::List(_, keys) => Some(keys.iter().map(text).collect()),
        _ => None,
    })
}

impl Cached {
    fn new(mut wire: Wire, options: &str) -> Self {
        wire.send(&["HELLO", "3"]);
        wire.reply();
        let mut cached = Cached { wire, stale: Vec::new() };
        assert_eq!(cached.say(format!("CLIENT TRACKING ON {options}").trim_end()), "+OK");
        cached
    }

    fn say(&mut self, line: &str) -> String {
        self.wire.send(&line.split(' ').collect::<Vec<_>>());
        loop {
            let reply = self.wire.reply();
            match invalidated(&reply) {
                Some(stale) => self.stale.push(stale),
                None => return format!("{reply:?}"),
            }
        }
    }

    /// Returns the keys of the invalidations since the last call; `*`: all keys.
    fn stale(&mut self) -> Vec<String> {
        self.say("PING");
        let stale = std::mem::take(&mut self.stale).into_iter();
        let mut keys: Vec<_> = stale
            .flat_map(|stale| stale.map_or(vec!["*".to_owned()], |keys| keys.into_iter().collect()))
            .collect();
        keys.sort();
        keys
    }
}

/// Lines with their replies. `#` is the number of another connection.
const OPTIONS: &str = r#"CLIENT GETREDIR => :-1
CLIENT TRACKINGINFO => *["flags", *["off"], "redirect", :-1, "prefixes", *[]]
CLIENT CACHING YES => -ERR CLIENT CACHING can be called only when the client is in tracking mode
CLIENT TRACKING ON PREFIX a => -ERR PREFIX option requires BCAST mode to be enabled
CLIENT TRACKING ON BCAST OPTIN => -ERR OPTIN and OPTOUT are not compatible with BCAST
CLIENT TRACKING ON OPTIN OPTOUT => -ERR You can't specify both OPTIN mode and OPTOUT mode
CLIENT TRACKING ON REDIRECT 99999 => -ERR The client ID you want redirect to does not exist
CLIENT TRACKING ON REDIRECT x => -ERR value is not an integer or out of range
CLIENT TRACKING ON REDIRECT # REDIRECT # => -ERR A client can only redirect to a single other client
CLIENT TRACKING foo => -ERR syntax error
CLIENT TRACKING ON foo => -ERR syntax error
CLIENT TRACKING ON REDIRECT => -ERR syntax error
CLIENT TRACKING OFF foo => -ERR syntax error
CLIENT TRACKING => -ERR wrong number of arguments for 'client|tracking' command
CLIENT CACHING => -ERR wrong number of arguments for 'client|caching' command
CLIENT TRACKING ON BCAST PREFIX a PREFIX ab => -ERR Prefix 'a' overlaps with another provided prefix 'ab'.
CLIENT TRACKING OFF => +OK
CLIENT TRACKINGINFO => *["flags", *["off"], "redirect", :-1, "prefixes", *[]]
CLIENT TRACKING ON => +OK
CLIENT GETREDIR => :0
CLIENT TRACKING ON BCAST => -ERR You can't switch BCAST mode on/off before disabling tracking for this client,
CLIENT TRACKING ON OPTIN => +OK
CLIENT TRACKING ON OPTOUT => -ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client,
CLIENT CACHING NO => -ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.
CLIENT CACHING X => -ERR syntax error
CLIENT CACHING YES => +OK
CLIENT TRACKINGINFO => *["flags", *["on", "optin", "caching-yes"], "redirect", :0, "prefixes", *[]]
PING => +PONG
CLIENT TRACKINGINFO => *["flags", *["on", "optin"], "redirect", :0, "prefixes", *[]]
CLIENT TRACKING OFF => +OK
CLIENT TRACKING ON OPTOUT NOLOOP => +OK
CLIENT CACHING YES => -ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.
CLIENT CACHING NO => +OK
CLIENT TRACKINGINFO => *["flags", *["on", "optout", "caching-no", "noloop"], "redirect", :0, "prefixes", *[]]
RESET => +RESET
CLIENT TRACKINGINFO => *["flags", *["off"], "redirect", :-1, "prefixes", *[]]
CLIENT TRACKING ON BCAST PREFIX u: PREFIX v: REDIRECT # => +OK
CLIENT TRACKING ON BCAST PREFIX u:1 => -ERR Prefix 'u:1' overlaps with an existing prefix 'u:'. Prefixes for a
CLIENT GETREDIR => :#
CLIENT TRACKINGINFO => *["flags", *["on", "bcast"], "redirect", :#, "prefixes", *["u:", "v:"]]"#;

#[test]
fn options_and_errors_are_those_of_redis() {
    let server = TestServer::start();
    let (mut wire, mut other) = (server.wire(), server.wire());
    let id = other.say("CLIENT ID");
    let id = id.trim_start_matches(':');
    for line in OPTIONS.lines() {
        let (line, reply) = line.split_once(" => ").unwrap();
        let (line, reply) = (line.replace('#', id), reply.replace('#', id));
        let said = wire.say(&line);
        let is_right = if reply.starts_with('-') { said.starts_with(&reply) } else { said == reply };
        assert!(is_right, "{line}: {said}");
    }
    let shown = wire.say("CLIENT INFO");
    assert!(shown.contains("flags=tB") && shown.contains(&format!("redir={id}")), "{shown}");
    let info = other.say("INFO");
    for figure in ["tracking_clients:1", "tracking_total_keys:0", "tracking_total_prefixes:2"] {
        assert!(info.contains(figure), "{figure}");
    }
    drop(wire);
    until(|| other.say("INFO clients").contains("tracking_clients:0"));
}

#[test]
fn invalidations_go_to_the_connection_of_the_redirection() {
    let server = TestServer::start();
    let (mut reader, mut listener, mut writer) = (server.wire(), server.wire(), server.wire());
    let id = listener.say("CLIENT ID");
    listener.say("SUBSCRIBE __redis__:invalidate");
    reader.say(&format!("CLIENT TRACKING ON REDIRECT {}", id.trim_start_matches(':')));
    assert_eq!(reader.say("MGET x y"), "*[null, null]");
    writer.say("MSET x 1 y 1 z 1");
    // Libraries depend on a message for each key.
    for key in ["x", "y"] {
        let heard = format!("{:?}", listener.reply());
        assert_eq!(heard, format!("*[\"message\", \"__redis__:invalidate\", *[{key:?}]]"));
    }
    reader.say("GET x");
    writer.say("FLUSHALL");
    assert_eq!(format!("{:?}", listener.reply()), "*[\"message\", \"__redis__:invalidate\", null]");

    // Of version 3, the reader learns that the connection has gone.
    let mut reader = Cached::new(server.wire(), &format!("REDIRECT {}", id.trim_start_matches(':')));
    reader.say("GET x");
    drop(listener);
    until(|| !writer.say("CLIENT LIST").contains(&format!("id={} ", id.trim_start_matches(':'))));
    writer.say("SET x 2");
    let broken = format!(">[\"tracking-redir-broken\", {id}]");
    assert_eq!(format!("{:?}", reader.wire.reply()), broken);
    let info = reader.say("CLIENT TRACKINGINFO");
    assert!(info.contains("broken_redirect"), "{info}");
    assert!(reader.say("CLIENT INFO").contains("flags=tR"));
}

#[test]
fn modes_choose_what_is_reported() {
    let server = TestServer::start();
    let mut writer = server.wire();
    let mut opt_in = Cached::new(server.wire(), "OPTIN");
    let mut opt_out = Cached::new(server.wire(), "OPTOUT");
    let mut bcast = Cached::new(server.wire(), "BCAST PREFIX k PREFIX user:");
    let mut quiet = Cached::new(server.wire(), "NOLOOP");
    for cached in [&mut opt_in, &mut opt_out] {
        cached.say("GET k1");
    }
    opt_in.say("CLIENT CACHING YES");
    opt_out.say("CLIENT CACHING NO");
    for cached in [&mut opt_in, &mut opt_out] {
        cached.say("GET k2");
        cached.say("GET k3");
        cached.say("MULTI");
        cached.say("GET k4");
        cached.say("EXEC");
    }
    quiet.say("MGET k1 k2");
    quiet.say("SET k1 own");
    // The key stays tracked: the client may have read it again in the same commit.
    assert_eq!(quiet.stale(), [] as [&str; 0]);
    quiet.say("MULTI");
    quiet.say("SET k2 own");
    quiet.say("GET k2");
    quiet.say("EXEC");
    writer.say("MSET k1 1 k2 1 k3 1 k4 1 other 1 user:7 1");
    assert_eq!(opt_in.stale(), ["k2"]);
    assert_eq!(opt_out.stale(), ["k1", "k3", "k4"]);
    assert_eq!(bcast.stale(), ["k1", "k1", "k2", "k2", "k3", "k4", "user:7"]);
    assert_eq!(quiet.stale(), ["k1", "k2"]);
    // `CLIENT CACHING` before `MULTI` holds for all commands of the transaction.
    opt_in.say("CLIENT CACHING YES");
    opt_in.say("MULTI");
    opt_in.say("GET k1");
    opt_in.say("GET k2");
    opt_in.say("EXEC");
    opt_in.say("GET k3");
    // Each key is reported once, until it is read again. A writer gets its own invalidations.
    opt_in.say("MSET k1 2 k2 2 k3 2");
    opt_in.say("SET k1 3");
    assert_eq!(opt_in.stale(), ["k1", "k2"]);
    opt_in.say("CLIENT TRACKING OFF");
    bcast.say("CLIENT TRACKING OFF");
    writer.say("SET k4 4");
    assert_eq!((opt_in.stale(), bcast.stale().len()), (vec![], 4));
}

/// What each command invalidates of the keys `s`, `h`, `l`, `z`, `x` and `absent`, which were read before.
const CHANGES: &[(&str, &[&str])] = &[
    ("SET s 2", &["s"]),
    ("APPEND s x", &["s"]),
    ("GETDEL s", &["s"]),
    ("GETEX s PX 1000000", &["s"]),
    ("SET absent 1", &["absent"]),
    ("SETRANGE s 1 x", &["s"]),
    ("HSET h f 2", &["h"]),
    ("HSET h new 1", &["h"]),
    ("HDEL h f", &["h"]),
    ("HINCRBY big f5 1", &["big"]),
    ("HPEXPIRE h 1 FIELDS 1 f", &["h"]),
    ("RPUSH l b", &["l"]),
    ("LPOP l", &["l"]),
    ("LMOVE l absent LEFT LEFT", &["absent", "l"]),
    ("ZADD z 2 m", &["z"]),
    ("XADD x 2-1 f v", &["x"]),
    ("XGROUP CREATE x g 0", &["x"]),
    ("PFADD absent a", &["absent"]),
    ("SETBIT s 1 1", &["s"]),
    ("DEL s h", &["h", "s"]),
    ("UNLINK s", &["s"]),
    ("EXPIRE s 100", &["s"]),
    ("PEXPIRE s 1", &["s"]),
    ("PEXPIREAT s 1", &["s"]),
    ("RENAME s absent", &["absent", "s"]),
    ("COPY s absent", &["absent"]),
    ("COPY s s DB 3", &["s"]),
    ("MOVE s 3", &["s"]),
    ("SORT l ALPHA STORE absent", &["absent"]),
    ("FLUSHDB", &["*"]),
    ("FLUSHALL", &["*"]),
    ("SWAPDB 0 3", &["*"]),
    ("ES.SET s 5", &["s"]),
    ("ES.DEL s", &["s"]),
    ("GET s", &[]),
    ("SET other 1", &[]),
    ("DEL absent", &[]),
    ("SET s x NX", &[]),
];

fn fill(wire: &mut Wire) {
    wire.say("FLUSHALL");
    for line in ["SET s 1", "HSET h f 1", "RPUSH l a", "ZADD z 1 m", "XADD x 1-1 f v"] {
        assert!(!wire.say(line).starts_with('-'), "{line}");
    }
    let fields: Vec<_> = (0..300).map(|n| format!("f{n} {n}")).collect();
    wire.say(&format!("HSET big {}", fields.join(" ")));
}

/// Waits until a replica has sent the invalidations of all commits of the primary so far. It sends them in
/// the order of the commits, some time after `WAIT` has returned. `marks` receives those of keys that begin
/// with `mark`.
fn settle(marks: &mut Cached, writer: &mut Wire) {
    let mut mark = 0;
    until(|| {
        mark += 1;
        let name = format!("mark{mark}");
        writer.say(&format!("SET {name} 1"));
        assert_eq!(writer.say("WAIT 1 0"), ":1");
        // It may be among those that are replaced by an invalidation of everything. Then another one follows.
        let start = Instant::now();
        let mut is_found = false;
        while !is_found && start.elapsed() < Duration::from_millis(300) {
            is_found = marks.stale().contains(&name);
        }
        is_found
    });
}

/// Reads all keys of `fill`. Invalidations of earlier changes are dropped.
fn read(cached: &mut Cached) {
    for line in
        ["GET s", "HGETALL h", "LRANGE l 0 -1", "ZRANGE z 0 -1", "XRANGE x - +", "HGETALL big", "GET absent"]
    {
        cached.say(line);
    }
    cached.stale();
}

#[test]
fn every_kind_of_change_is_reported_before_the_reply_to_its_writer() {
    let server = TestServer::start();
    let (mut writer, mut cached) = (server.wire(), Cached::new(server.wire(), ""));
    for (line, keys) in CHANGES {
        fill(&mut writer);
        read(&mut cached);
        let reply = writer.say(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
        let stale = cached.stale();
        let mut stale: Vec<_> = stale.iter().map(String::as_str).collect();
        // An expiry is reported when it is set and when it happens.
        stale.dedup();
        // Both databases are flushed, and both are swapped.
        assert_eq!(stale, *keys, "{line}");
    }
    // In a transaction of the connection, of `MULTI`, and in scripts.
    fill(&mut writer);
    read(&mut cached);
    for line in ["ES.BEGIN", "ES.SET s 3"] {
        writer.say(line);
        assert_eq!(cached.stale(), [] as [&str; 0]);
    }
    assert_eq!(writer.say("ES.COMMIT"), "+OK");
    assert_eq!(cached.stale(), ["s"]);
    read(&mut cached);
    for line in ["MULTI", "SET s 1", "HSET h f 5"] {
        writer.say(line);
        assert_eq!(cached.stale(), [] as [&str; 0]);
    }
    writer.say("EXEC");
    assert_eq!(cached.stale(), ["h", "s"]);
    #[cfg(feature = "lua")]
    {
        read(&mut cached);
        writer.call(&["EVAL", "redis.call('INCR', 's') return redis.call('DEL', 'h')", "0"]);
        assert_eq!(cached.stale(), ["h", "s"]);
        // Keys that a script reads are those of its client.
        cached.wire.send(&["EVAL", "return redis.call('GET', 's')", "0"]);
        assert_eq!(text(&cached.wire.reply()), "2");
        writer.say("SET s 9");
        assert_eq!(cached.stale(), ["s"]);
    }
}

#[test]
fn expired_keys_and_fields_are_reported() {
    let server = TestServer::start();
    let (mut writer, mut cached) = (server.wire(), Cached::new(server.wire(), "NOLOOP"));
    writer.say("SET s 1 PX 100");
    writer.say("HSET h f 1 g 1");
    writer.say("HPEXPIRE h 100 FIELDS 1 f");
    cached.say("GET s");
    cached.say("HGETALL h");
    let mut stale = BTreeSet::new();
    until(|| {
        stale.extend(cached.stale());
        stale.len() == 2
    });
    assert_eq!(cached.say("HGETALL h"), "%[\"g\", \"1\"]");
    // The reader itself finds that the key has expired, in a command that writes.
    for _ in 0..20 {
        writer.say("SET s 1 PX 3");
        cached.say("GET s");
        std::thread::sleep(std::time::Duration::from_millis(4));
        cached.say("APPEND other x");
        cached.say("SETNX s-other 1");
        until(|| cached.stale().contains(&"s".to_owned()));
    }
}

#[test]
fn changes_of_the_embedding_program_are_reported() {
    let server = TestServer::start();
    let (mut writer, mut cached) = (server.wire(), Cached::new(server.wire(), ""));
    let mut bcast = Cached::new(server.wire(), "BCAST PREFIX l");
    fill(&mut writer);
    bcast.stale();
    let strings = server.db.open_keyspace("r0").unwrap();
    let mut expect = |change: &dyn Fn() -> esker::Result<SeqNo>, keys: &[&str], by_prefix: &[&str]| {
        read(&mut cached);
        change().unwrap();
        for (cached, keys) in [(&mut cached, keys), (&mut bcast, by_prefix)] {
            let mut stale = Vec::new();
            until(|| {
                stale.extend(cached.stale());
                stale.len() >= keys.len()
            });
            assert_eq!(stale, keys);
        }
    };
    expect(&|| strings.put("s", b"\0new"), &["s"], &[]);
    expect(&|| strings.delete("l"), &["l"], &["l"]);
    expect(&|| strings.delete_range("h".."m"), &["h", "l"], &["*"]);
    expect(&|| strings.delete_range(..), &["*"], &["*"]);
    // A database that is new to the server.
    writer.say("SELECT 7");
    cached.say("SELECT 7");
    cached.say("GET there");
    server.db.open_keyspace("r7").unwrap().put("there", b"\0new").unwrap();
    until(|| cached.stale() == ["there"]);
    // More changes in one commit than are kept.
    cached.say("GET there");
    server
        .db
        .transact(|t| -> esker::Result<()> {
            (0..40_000).try_for_each(|n| t.put(&strings, format!("k{n}"), b"\0v"))
        })
        .unwrap();
    until(|| cached.stale() == ["*"]);
}

#[test]
fn a_replica_reports_the_changes_of_its_primary() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Node::start(&dir.path().join("a"));
    let replica = Node::replica_of(&dir.path().join("b"), primary.port());
    let mut writer = primary.wire();
    // A new database invalidates everything.
    writer.say("SELECT 3");
    writer.say("SELECT 0");
    fill(&mut writer);
    assert_eq!(writer.say("WAIT 1 0"), ":1");
    let mut cached = Cached::new(replica.wire(), "");
    // Its invalidation follows that of `cached`.
    let mut marks = Cached::new(replica.wire(), "BCAST PREFIX mark");
    for (line, keys) in CHANGES {
        fill(&mut writer);
        settle(&mut marks, &mut writer);
        read(&mut cached);
        assert!(!writer.say(line).starts_with('-'), "{line}");
        settle(&mut marks, &mut writer);
        let stale: BTreeSet<_> = cached.stale().into_iter().collect();
        assert_eq!(stale.into_iter().collect::<Vec<_>>(), *keys, "{line}");
    }
    // A database that is new.
    cached.say("SELECT 9");
    cached.say("GET there");
    writer.say("SELECT 9");
    writer.say("SET there 1");
    until(|| !cached.stale().is_empty());
    until(|| cached.say("GET there") == "\"1\"");
    cached.stale();
    cached.say("GET there");
    writer.say("SET there 2");
    let mut stale = BTreeSet::new();
    until(|| {
        stale.extend(cached.stale());
        !stale.is_empty()
    });
    assert_eq!(stale.into_iter().collect::<Vec<_>>(), ["there"]);
}

#[test]
fn reads_of_older_states_are_not_kept() {
    let server = TestServer::start();
    let (mut writer, mut cached) = (server.wire(), Cached::new(server.wire(), ""));
    writer.say("SET s 1");
    let id = cached.say("ES.SNAP OPEN");
    writer.say("SET s 2");
    assert_eq!(cached.stale(), [] as [&str; 0]);
    assert_eq!(cached.say(&format!("ES.GET s SNAP {}", id.trim_start_matches(':'))), "\"1\"");
    assert_eq!(cached.stale(), ["s"]);
    cached.say("ES.BEGIN");
    writer.say("SET s 3");
    assert_eq!(cached.say("ES.GET s"), "\"2\"");
    assert_eq!(cached.stale(), ["s"]);
    cached.say("ES.ROLLBACK");
    // Keys of keyspaces are not tracked.
    cached.say("ES.KS CREATE plain");
    cached.say("ES.KS USE plain");
    cached.say("ES.GET s");
    writer.say("SET s 4");
    assert_eq!(cached.stale(), [] as [&str; 0]);
}

#[test]
fn tracking_1_invalidations_come_after_the_replies_they_concern() {
    let server = TestServer::start();
    let (mut writer, mut cached) = (server.wire(), Cached::new(server.wire(), ""));
    writer.say("SET s 1");
    writer.say("SET t 1");
    // The replies to `GET` wait until the commit of `SET`, which others change in the meantime.
    for _ in 0..200 {
        writer.send_bytes(b"INCR s\r\nINCR t\r\n");
        cached.wire.send_bytes(b"GET s\r\nSET own x\r\nGET t\r\n");
        let (mut replies, mut values, mut stale) = (0, [None, None], BTreeSet::new());
        while replies < 3 {
            let reply = cached.wire.reply();
            match invalidated(&reply) {
                Some(keys) => {
                    for key in keys.unwrap() {
                        values[usize::from(key == "t")] = None;
                        stale.insert(key);
                    }
                }
                None => {
                    if replies != 1 {
                        values[replies / 2] = Some(text(&reply));
                    }
                    replies += 1;
                }
            }
        }
        writer.reply();
        writer.reply();
        for key in cached.stale() {
            values[usize::from(key == "t")] = None;
        }
        for (key, value) in ["s", "t"].iter().zip(&values) {
            if let Some(value) = value {
                assert_eq!(writer.say(&format!("GET {key}")), format!("{value:?}"), "tracking.1");
            }
        }
    }
    // A command that waits does not hold them back, but the replies before it come first.
    cached.stale();
    cached.wire.send_bytes(b"GET s\r\nSET own y\r\nGET t\r\nBLPOP none 0\r\n");
    let before = [cached.wire.reply(), cached.wire.reply(), cached.wire.reply()];
    assert!(before.iter().all(|reply| invalidated(reply).is_none()), "{before:?}");
    writer.say("INCR s");
    assert_eq!(invalidated(&cached.wire.reply()), Some(Some(["s".to_owned()].into())));
    writer.say("RPUSH none x");
    assert_eq!(format!("{:?}", cached.wire.reply()), "*[\"none\", \"x\"]");
}

#[test]
fn a_table_of_limited_size_reports_what_it_drops() {
    let server = TestServer::start();
    let (mut writer, mut cached) = (server.wire(), Cached::new(server.wire(), ""));
    writer.say("CONFIG SET tracking-table-max-keys 10");
    let mut kept = BTreeSet::new();
    for n in 0..100 {
        cached.say(&format!("GET k{n}"));
        kept.insert(format!("k{n}"));
        cached.stale().iter().for_each(|key| assert!(kept.remove(key)));
    }
    assert_eq!(kept.len(), 10);
    assert!(writer.say("INFO stats").contains("tracking_total_items:10\\r"));
    for n in 0..100 {
        writer.say(&format!("SET k{n} 1"));
    }
    assert_eq!(cached.stale().into_iter().collect::<BTreeSet<_>>(), kept);
}

#[test]
fn tracking_ends_with_the_last_client_and_begins_again() {
    let server = TestServer::start();
    let mut writer = server.wire();
    for _ in 0..3 {
        let mut cached = Cached::new(server.wire(), "");
        cached.say("GET k");
        writer.say("SET k 1");
        assert_eq!(cached.stale(), ["k"]);
        cached.say("GET k");
        drop(cached);
        until(|| writer.say("INFO").contains("tracking_clients:0"));
        assert!(writer.say("INFO").contains("tracking_total_keys:0"));
    }
    // A user needs only the right to the command. Keys that may not be read are not tracked.
    writer.say("ACL SETUSER ann on nopass ~mine:* +@all");
    let mut cached = Cached::new(server.wire(), "");
    cached.say("AUTH ann x");
    assert!(cached.say("GET other").starts_with("-NOPERM"));
    cached.say("GET mine:1");
    writer.say("MSET other 1 mine:1 1");
    assert_eq!(cached.stale(), ["mine:1"]);
    writer.say("ACL SETUSER ann -client|tracking");
    assert!(cached.say("CLIENT TRACKING OFF").starts_with("-NOPERM"));
}

#[test]
fn a_server_with_a_small_budget_loses_no_change() {
    let db = Db::builder().memory(8 << 20).open_in_memory().unwrap();
    let store = std::sync::Arc::new(LocalStore::new(db.clone(), 8 << 20));
    let server = TestServer::start_on(store, db.clone(), Some(db), Options::default());
    let (mut writer, mut cached) = (server.wire(), Cached::new(server.wire(), ""));
    cached.say("GET k");
    writer.call(&["MSET", "k", &"x".repeat(300_000), "other", &"y".repeat(300_000)]);
    let stale = cached.stale();
    assert!(stale == ["k"] || stale == ["*"], "{stale:?}");
}
