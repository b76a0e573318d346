//! When and how often keys were accessed (`track-accesses`).

use crate::harness::TestServer;
use crate::wire::{Reply, Wire};

fn int(reply: &str) -> i64 {
    reply.trim_start_matches(':').parse().unwrap_or_else(|_| panic!("{reply}"))
}

fn restore(wire: &mut Wire, payload: &[u8], words: &[&str]) {
    let words = words.iter().map(|word| word.as_bytes());
    let request: Vec<_> = [b"RESTORE".as_slice(), b"old", b"0", payload].into_iter().chain(words).collect();
    assert_eq!(wire.call(&request), Reply::Simple("OK".into()));
}

#[test]
fn accesses_are_shown_once_they_are_tracked() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("SET k v");
    for line in ["OBJECT IDLETIME k", "OBJECT FREQ k"] {
        assert!(wire.say(line).ends_with("CONFIG SET track-accesses 16mb"), "{line}");
    }
    for wrong in ["1", "x", "-1", "65gb"] {
        assert!(
            wire.say(&format!("CONFIG SET track-accesses {wrong}")).starts_with("-ERR CONFIG SET failed")
        );
    }
    assert_eq!(wire.say("CONFIG SET track-accesses 1mb"), "+OK");
    assert_eq!(wire.say("CONFIG SET track-accesses 1048576"), "+OK");
    assert!(
        wire.say("CONFIG SET track-accesses 2mb").contains("the table has 1048576 bytes until a restart")
    );
    assert_eq!((wire.say("OBJECT FREQ k"), wire.say("OBJECT FREQ none")), (":0".into(), "null".into()));
    let Reply::Bulk(payload) = wire.call(&["DUMP", "k"]) else { panic!("a payload") };
    let restore = |words: &[&str]| restore(&mut server.wire(), &payload, words);
    // Look-ups do not count. What a command does with its keys does, in transactions and databases, too.
    for (line, counts) in [
        ("TYPE old", false),
        ("TTL old", false),
        ("EXISTS old", false),
        ("OBJECT ENCODING old", false),
        ("OBJECT FREQ old", false),
        ("MEMORY USAGE old", false),
        ("WATCH old", false),
        ("SCAN 0 TYPE string", false),
        ("KEYS old", false),
        ("GET old", true),
        ("MGET none old", true),
        ("TOUCH none old", true),
        ("STRLEN old", true),
        ("SET old w", true),
        ("APPEND old w", true),
        ("EXPIRE old 100", true),
        ("COPY old copy REPLACE", true),
        ("HGET old f", true),
    ] {
        restore(&["REPLACE", "IDLETIME", "1000"]);
        assert!((1000..1003).contains(&int(&wire.say("OBJECT IDLETIME old"))));
        wire.say(line);
        assert_eq!(int(&wire.say("OBJECT IDLETIME old")) < 1000, counts, "{line}");
        restore(&["REPLACE", "IDLETIME", "1000"]);
        ["MULTI", line, "EXEC"].iter().for_each(|line| drop(wire.say(line)));
        assert_eq!(int(&wire.say("OBJECT IDLETIME old")) < 1000, counts, "MULTI, {line}");
    }
}

#[test]
fn new_keys_and_other_databases_begin_at_the_first_count() {
    let server = TestServer::start();
    let mut wire = server.wire();
    assert_eq!(wire.say("CONFIG SET track-accesses 1mb"), "+OK");
    wire.say("SET new v");
    let Reply::Bulk(payload) = wire.call(&["DUMP", "new"]) else { panic!("a payload") };
    let restore = |words: &[&str]| restore(&mut server.wire(), &payload, words);
    restore(&["FREQ", "200"]);
    assert_eq!(wire.say("OBJECT FREQ old"), ":200");
    assert_eq!(wire.say("RENAME old new"), "+OK");
    assert_eq!(wire.say("OBJECT FREQ new"), ":200");
    assert_eq!(wire.say("SELECT 1"), "+OK");
    assert_eq!((wire.say("SET new v"), wire.say("OBJECT FREQ new")), ("+OK".into(), ":5".into()));
    assert_eq!((wire.say("SELECT 0"), wire.say("OBJECT FREQ new")), ("+OK".into(), ":200".into()));
    assert_eq!(wire.say("SWAPDB 0 1"), "+OK");
    assert_eq!(wire.say("OBJECT FREQ new"), ":5");
    assert_eq!(wire.say("SWAPDB 0 1"), "+OK");
    ["DEL new", "LPUSH new a"].iter().for_each(|line| drop(wire.say(line)));
    assert_eq!(wire.say("OBJECT FREQ new"), ":5");
    // A connection may look without being seen.
    restore(&["REPLACE", "IDLETIME", "1000"]);
    let mut other = server.wire();
    assert_eq!(other.say("CLIENT NO-TOUCH ON"), "+OK");
    assert!(other.say("CLIENT INFO").contains("flags=T"));
    other.say("GET old");
    assert!(int(&wire.say("OBJECT IDLETIME old")) >= 1000);
    other.say("TOUCH old");
    assert!(int(&wire.say("OBJECT IDLETIME old")) < 1000);
    assert_eq!(other.say("RESET"), "+RESET");
    assert!(other.say("CLIENT INFO").contains("flags=N"));
    // Turned off and on again, it knows nothing of what was before.
    assert_eq!(wire.say("CONFIG SET track-accesses 0"), "+OK");
    assert!(wire.say("OBJECT FREQ old").starts_with("-ERR accesses"));
    assert_eq!(wire.say("CONFIG SET track-accesses 1mb"), "+OK");
    assert_eq!((wire.say("OBJECT FREQ old"), wire.say("OBJECT IDLETIME old")), (":0".into(), ":0".into()));
}

#[cfg(feature = "lua")]
#[test]
fn accesses_of_scripts_count() {
    let mut options = esker_server::Options::default();
    options.given.parameters.push(("track-accesses".to_owned(), "64kb".to_owned()));
    let server = TestServer::start_with(esker::Db::in_memory().unwrap(), options);
    let mut wire = server.wire();
    wire.say("SET k v");
    let script =
        "for n = 1, 1000 do redis.call('GET', KEYS[1]) end return redis.call('OBJECT', 'FREQ', KEYS[1])";
    let Reply::Int(count) = wire.call(&["EVAL", script, "1", "k"]) else { panic!("a number") };
    assert!((8..60).contains(&count), "{count}");
    // With another factor each access counts.
    wire.say("CONFIG SET lfu-log-factor 0 lfu-decay-time 0");
    wire.call(&["EVAL", script, "1", "k"]);
    assert_eq!(wire.say("OBJECT FREQ k"), ":255");
}
