//! `ES.FEED`: the changes of commits.

use std::time::Duration;

use esker::Db;
use esker_server::Options;

use crate::harness::{TestServer, until};
use crate::wire::{Reply, Wire};

fn start() -> TestServer {
    let db = Db::builder().feed_retention(64 << 20, Duration::from_secs(3600)).open_in_memory().unwrap();
    TestServer::start_with(db, Options::default())
}

/// The current position of the server, as arguments of `ES.FEED`.
fn position(wire: &mut Wire) -> String {
    let said = wire.say("ES.POSITION");
    said.trim_matches(['*', '[', ']']).replace([',', '"', ':'], "")
}

/// Returns the position to continue from, and the changes of each commit.
fn feed(wire: &mut Wire, request: &str) -> (String, Vec<String>) {
    let Reply::List(_, mut items) = wire.call(&request.split(' ').collect::<Vec<_>>()) else {
        panic!("{request}")
    };
    let Some(Reply::List(_, commits)) = items.pop() else { panic!() };
    let at = format!("{items:?}").replace([',', '"', ':'], "");
    let commits = commits.into_iter().map(|commit| {
        let Reply::List(_, mut commit) = commit else { panic!() };
        assert!(matches!(&commit[..2], [Reply::Bulk(_), Reply::Int(_)]));
        format!("{:?}", commit.pop().unwrap())
    });
    (at.trim_matches(['[', ']']).to_owned(), commits.collect())
}

#[test]
fn commits_come_in_order_and_each_once() {
    let server = start();
    let mut wire = server.wire();
    wire.say("ES.KS CREATE plain");
    wire.say("ES.KS OPERATOR plain append");
    wire.say("ES.KS USE plain");
    let begin = position(&mut wire);
    assert_eq!(feed(&mut wire, &format!("ES.FEED {begin}")), (begin.clone(), vec![]));
    for command in [
        "ES.SET a 1",
        "SET other 1",
        "ES.MERGE a 2",
        "ES.BEGIN",
        "ES.SET b 1",
        "ES.DEL a",
        "ES.COMMIT",
        "DEL other",
        "ES.DELRANGE b ''",
    ] {
        wire.say(command);
    }
    let expected = [
        "*[*[\"set\", \"a\", \"1\"]]",
        "*[*[\"merge\", \"a\", \"2\"]]",
        "*[*[\"del\", \"a\"], *[\"set\", \"b\", \"1\"]]",
        "*[*[\"delrange\", \"b\", \"\"]]",
    ];
    let (at, all) = feed(&mut wire, &format!("ES.FEED {begin}"));
    assert_eq!(all, expected, "commits that change nothing here are left out");
    assert_eq!(at, position(&mut wire));
    let (mut at, mut paged) = (begin.clone(), Vec::new());
    loop {
        let (next, mut commits) = feed(&mut wire, &format!("ES.FEED {at} COUNT 1"));
        assert!(commits.len() <= 1);
        at = next;
        match commits.pop() {
            Some(commit) => paged.push(commit),
            None => break,
        }
    }
    assert_eq!(paged, expected);
    // In a database, strings have values.
    wire.say("ES.KS USE");
    let at = position(&mut wire);
    wire.say("HSET h f v");
    wire.say("APPEND s 1");
    wire.say("DEL h");
    let all = feed(&mut wire, &format!("ES.FEED {at}")).1;
    assert_eq!(all, ["*[*[\"set\", \"h\", null]]", "*[*[\"set\", \"s\", \"1\"]]", "*[*[\"del\", \"h\"]]"]);
}

#[test]
fn a_name_that_another_keyspace_gets_is_announced() {
    let server = start();
    let mut wire = server.wire();
    let begin = position(&mut wire);
    for command in ["SET a 1", "SWAPDB 0 1", "SET b 1", "SELECT 1", "SET c 1", "SELECT 0", "ES.SYNC"] {
        wire.say(command);
    }
    let (at, all) = feed(&mut wire, &format!("ES.FEED {begin}"));
    // What came before is of the keyspace that has the name last.
    assert_eq!(all, ["*[*[\"all\"]]", "*[*[\"set\", \"b\", \"1\"]]"]);
    wire.say("FLUSHDB");
    assert_eq!(feed(&mut wire, &format!("ES.FEED {at}")).1, ["*[*[\"delrange\", \"\", \"\"]]"]);
    for command in ["ES.KS CREATE old", "ES.KS CREATE new", "ES.KS USE new"] {
        wire.say(command);
    }
    let at = position(&mut wire);
    for command in
        ["ES.SET k 1", "ES.KS DROP old", "ES.KS RENAME new old", "ES.KS USE old", "ES.SET k 2", "ES.SYNC"]
    {
        wire.say(command);
    }
    let all = feed(&mut wire, &format!("ES.FEED {at}")).1;
    let set = |value| format!("*[*[\"set\", \"k\", \"{value}\"]]");
    assert_eq!(all, [set(1), "*[*[\"all\"]]".to_owned(), set(2)]);
}

#[test]
fn a_reader_that_asks_to_wait_waits_for_what_concerns_it() {
    let server = start();
    let (mut a, mut b) = (server.wire(), server.wire());
    b.say("ES.KS CREATE plain");
    let at = position(&mut a);
    assert_eq!(feed(&mut a, &format!("ES.FEED {at} BLOCK 20")).1, [] as [String; 0]);
    a.send_bytes(format!("ES.FEED {at} BLOCK 0\r\nPING\r\n").as_bytes());
    until(|| b.say("CLIENT LIST").contains("flags=b"));
    b.say("ES.KS USE plain");
    b.say("ES.SET k other");
    std::thread::sleep(Duration::from_millis(30));
    assert!(b.say("CLIENT LIST").contains("flags=b"), "a change of another keyspace is nothing to it");
    b.say("SET k 1");
    let reply = format!("{:?}", a.reply());
    assert!(reply.contains("*[\"set\", \"k\", \"1\"]"), "{reply}");
    assert_eq!(format!("{:?}", a.reply()), "+PONG");
    // A waiting feed can be woken and killed.
    let id = a.say("CLIENT ID").replace(':', "");
    let at = position(&mut a);
    a.send_bytes(format!("ES.FEED {at} BLOCK 0\r\n").as_bytes());
    until(|| b.say(&format!("CLIENT UNBLOCK {id}")) == ":1");
    let reply = format!("{:?}", a.reply());
    assert!(reply.ends_with("*[]]"), "{reply}");
}

#[test]
fn a_position_that_is_not_kept_or_of_another_history_is_refused() {
    let server = start();
    let mut wire = server.wire();
    let at = position(&mut wire);
    let (epoch, number) = at.split_once(' ').unwrap();
    for (request, reply) in [
        (format!("ES.FEED {epoch} {}", number.parse::<u64>().unwrap() + 1), "-FORKED"),
        (format!("ES.FEED 1-00000000000000aa {number}"), "-FORKED"),
        (format!("ES.FEED {at} BLOCK -1"), "-ERR BLOCK"),
        (format!("ES.FEED {at} COUNT 0"), "-ERR"),
        ("ES.FEED x 1".to_owned(), "-ERR invalid epoch"),
    ] {
        let said = wire.say(&request);
        assert!(said.starts_with(reply), "{request}: {said}");
    }
    let without = TestServer::start();
    let mut wire = without.wire();
    let at = position(&mut wire);
    assert!(wire.say(&format!("ES.FEED {at}")).starts_with("-ERR"));
    // Reopened without retention, the database drops the retained commits.
    let dir = tempfile::tempdir().unwrap();
    let open = |bytes| {
        let builder = Db::builder().feed_retention(bytes, Duration::from_secs(3600));
        builder.open(dir.path()).unwrap()
    };
    let at = {
        let server = TestServer::start_with(open(64 << 20), Options::default());
        let mut wire = server.wire();
        let at = position(&mut wire);
        wire.say("SET k 1");
        assert_eq!(feed(&mut wire, &format!("ES.FEED {at}")).1.len(), 1);
        at
    };
    let db = open(0);
    db.compact().unwrap();
    db.close().unwrap();
    let server = TestServer::start_with(open(64 << 20), Options::default());
    let said = server.wire().say(&format!("ES.FEED {at} BLOCK 0"));
    assert!(said.starts_with("-TRUNCATED commits behind"), "{said}");
}
