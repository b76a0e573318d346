//! Ordered commands: held transactions, locks and notifications.

use crate::harness::{TestServer, until};
use crate::wire::{Reply, Wire};

fn say(wire: &mut Wire, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        let said = wire.say(line);
        match reply.strip_suffix("..") {
            Some(begins) => assert!(said.starts_with(begins), "{line}: {said}"),
            None => assert_eq!(said, *reply, "{line}"),
        }
    }
}

/// Opens connections that use a keyspace of plain keys.
fn in_keyspace<const N: usize>(server: &TestServer) -> [Wire; N] {
    server.wire().say("ES.KS CREATE plain");
    std::array::from_fn(|_| {
        let mut wire = server.wire();
        say(&mut wire, &[("ES.KS USE plain", "+OK")]);
        wire
    })
}

#[test]
fn a_transaction_lasts_over_requests_and_commits_as_a_whole() {
    let server = TestServer::start();
    let both = [in_keyspace::<2>(&server), [server.wire(), server.wire()]];
    for [mut a, mut b] in both {
        say(
            &mut a,
            &[
                ("ES.SET a 1", "+OK"),
                ("ES.SET c 3", "+OK"),
                ("ES.BEGIN SNAPSHOT", ":.."),
                ("ES.SET b 2", "+OK"),
                ("ES.DEL c x c", ":1"),
                ("ES.CAS a EQ 1 SET 10", ":1"),
                ("ES.CAS b NONE SET 9", ":0"),
                ("ES.GET a", "\"10\""),
                ("ES.RANGE '' ''", "*[\"a\", \"10\", \"b\", \"2\"]"),
                ("ES.PREFIX b REV LIMIT 1 KEYS", "*[\"b\"]"),
                ("ES.COUNT", ":2"),
                ("ES.COUNT b z", ":1"),
                ("ES.FIRST", "*[\"a\", \"10\"]"),
                ("ES.PREV z", "*[\"b\", \"2\"]"),
            ],
        );
        // Its writes are invisible, and no other client waits for it.
        say(&mut b, &[("ES.RANGE '' ''", "*[\"a\", \"1\", \"c\", \"3\"]"), ("ES.SET other 1", "+OK")]);
        say(
            &mut a,
            &[("ES.GET other", "null"), ("ES.COMMIT", "+OK"), ("ES.COMMIT", "-ERR no transaction..")],
        );
        say(
            &mut b,
            &[
                ("ES.RANGE a c", "*[\"a\", \"10\", \"b\", \"2\"]"),
                ("ES.BEGIN SNAPSHOT", ":.."),
                ("ES.DELRANGE '' ''", ":3"),
                ("ES.SET new 1", "+OK"),
                ("ES.RANGE '' ''", "*[\"new\", \"1\"]"),
                ("ES.ROLLBACK", "+OK"),
                ("ES.COUNT", ":3"),
                ("ES.BEGIN", ":.."),
                ("ES.DELRANGE b ''", ":2"),
                ("ES.COMMIT", "+OK"),
                ("ES.RANGE '' ''", "*[\"a\", \"10\"]"),
            ],
        );
    }
}

#[test]
fn isolation_is_what_was_chosen() {
    let server = TestServer::start();
    let [mut a, mut b] = in_keyspace(&server);
    let conflict = "-CONFLICT another commit has changed what the transaction has read or written: ..";
    // The command of the transaction, that of another client, and whether they conflict with `snapshot` and
    // with `serializable`.
    let cases = [
        ("ES.SET k 1", "ES.SET k 2", [true, true]),
        ("ES.DEL k", "ES.SET k 2", [true, true]),
        ("ES.DELRANGE a m", "ES.SET ka 2", [true, true]),
        ("ES.DELRANGE a m", "ES.SET z 2", [false, false]),
        ("ES.SET k 1", "ES.SET other 2", [false, false]),
        ("ES.GET k", "ES.SET k 2", [false, true]),
        ("ES.GET missing", "ES.SET missing 2", [false, true]),
        ("ES.RANGE a z LIMIT 1", "ES.SET p 2", [false, false]),
        ("ES.RANGE a z LIMIT 1", "ES.SET b 2", [false, true]),
        ("ES.PREFIX k", "ES.SET kk 2", [false, true]),
        ("ES.LAST", "ES.SET y 2", [false, true]),
        ("ES.COUNT", "ES.SET y 2", [false, true]),
        ("ES.MERGE n 1", "ES.MERGE n 2", [false, false]),
    ];
    say(&mut a, &[("ES.KS OPERATOR plain append", "+OK")]);
    for (own, other, expected) in cases {
        for (isolation, is_conflict) in ["SNAPSHOT", "SERIALIZABLE"].into_iter().zip(expected) {
            say(&mut b, &[("ES.DELRANGE '' ''", ":.."), ("ES.SET k 0", "+OK"), ("ES.SET x 0", "+OK")]);
            say(&mut a, &[(&format!("ES.BEGIN {isolation}"), ":.."), ("ES.SET mark 1", "+OK")]);
            a.say(own);
            say(&mut b, &[(other, "+OK")]);
            let reply = a.say("ES.COMMIT");
            let shown = format!("{own}, {other}, {isolation}: {reply}");
            assert_eq!(reply.starts_with(conflict.trim_end_matches("..")), is_conflict, "{shown}");
            assert_eq!(b.say("ES.GET mark") == "null", is_conflict, "{shown}");
            say(&mut a, &[("ES.ROLLBACK", "-ERR no transaction..")]);
        }
    }
    // Reads see the state at the beginning, and a read-only transaction commits.
    say(&mut a, &[("ES.BEGIN", ":.."), ("ES.GET k", "\"0\"")]);
    say(&mut b, &[("ES.SET k 5", "+OK"), ("ES.SET l 5", "+OK")]);
    say(&mut a, &[("ES.GET k", "\"0\""), ("ES.GET l", "null"), ("ES.COMMIT", "+OK")]);
    // Write skew: each transaction reads what the other writes.
    for (isolation, last) in [("SNAPSHOT", "+OK"), ("SERIALIZABLE", conflict)] {
        for (wire, key) in [(&mut a, "k"), (&mut b, "l")] {
            say(wire, &[(&format!("ES.BEGIN {isolation}"), ":.."), (&format!("ES.GET {key}"), "\"..")]);
        }
        say(&mut a, &[("ES.SET l 1", "+OK"), ("ES.COMMIT", "+OK")]);
        say(
            &mut b,
            &[("ES.SET k 1", "+OK"), ("ES.COMMIT", last), ("ES.SET l 7", "+OK"), ("ES.SET k 7", "+OK")],
        );
    }
}

#[test]
fn many_increments_lose_nothing() {
    let server = TestServer::start();
    server.wire().say("SET n 0");
    std::thread::scope(|scope| {
        for isolation in ["SNAPSHOT", "SERIALIZABLE"] {
            let server = &server;
            scope.spawn(move || {
                let (mut wire, mut done) = (server.wire(), 0);
                while done < 50 {
                    wire.say(&format!("ES.BEGIN {isolation}"));
                    let old: u32 = wire.say("ES.GET n").trim_matches('"').parse().unwrap();
                    wire.say(&format!("ES.SET n {}", old + 1));
                    done += u32::from(wire.say("ES.COMMIT") == "+OK");
                }
            });
        }
    });
    assert_eq!(server.wire().say("GET n"), "\"100\"");
}

#[test]
fn what_is_inside_is_undone_alone() {
    let server = TestServer::start();
    let [mut a, mut b] = in_keyspace(&server);
    say(
        &mut a,
        &[
            ("ES.BEGIN SNAPSHOT", ":.."),
            ("ES.SET a 1", "+OK"),
            ("ES.BEGIN SERIALIZABLE", "-ERR the outer transaction has another isolation.."),
            ("ES.BEGIN", ":.."),
            ("ES.SET b 1", "+OK"),
            ("ES.SAVEPOINT s", "+OK"),
            ("ES.SET a 2", "+OK"),
            ("ES.DELRANGE '' ''", ":2"),
            ("ES.SAVEPOINT t", "+OK"),
            ("ES.ROLLBACK TO s", "+OK"),
            ("ES.RANGE '' ''", "*[\"a\", \"1\", \"b\", \"1\"]"),
            ("ES.ROLLBACK TO t", "-ERR the transaction has no such savepoint"),
            ("ES.SET c 1", "+OK"),
            ("ES.ROLLBACK TO s", "+OK"),
            ("ES.SET d 1", "+OK"),
            ("ES.COMMIT", "+OK"),
            ("ES.ROLLBACK TO s", "-ERR the transaction has no such savepoint"),
            ("ES.BEGIN", ":.."),
            ("ES.KS USE", "+OK"),
            ("ES.SET a of-database", "+OK"),
            ("ES.ROLLBACK", "+OK"),
            ("ES.SET e of-database", "+OK"),
        ],
    );
    say(&mut b, &[("ES.COUNT", ":0")]);
    // One transaction over keyspaces, databases and rows.
    say(
        &mut a,
        &[("OB.PUT t k c 1", "+OK"), ("SELECT 1", "+OK"), ("ES.SET f 1", "+OK"), ("ES.COMMIT", "+OK")],
    );
    say(
        &mut b,
        &[
            ("ES.RANGE '' ''", "*[\"a\", \"1\", \"b\", \"1\", \"d\", \"1\"]"),
            ("KEYS *", "*[\"e\"]"),
            ("OB.GET t k", "*[\"c\", \"1\"]"),
            ("SELECT 1", "+OK"),
            ("GET f", "\"1\""),
        ],
    );
}

#[test]
fn databases_keep_their_types_and_expiry() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    say(&mut b, &[("HSET h f v", ":1"), ("SET s 1 PX 400", "+OK"), ("SET w 1", "+OK"), ("WATCH w", "+OK")]);
    say(
        &mut a,
        &[
            ("ES.BEGIN", ":.."),
            ("ES.RANGE a t", "*[\"h\", null, \"s\", \"1\"]"),
            ("ES.SET h text", "+OK"),
            ("ES.SET w 2", "+OK"),
        ],
    );
    std::thread::sleep(std::time::Duration::from_millis(500));
    // The transaction sees the state at its beginning, including the key that has expired since.
    say(&mut a, &[("ES.GET s", "\"1\""), ("ES.COMMIT", "-CONFLICT.."), ("GET s", "null")]);
    say(
        &mut a,
        &[("ES.BEGIN", ":.."), ("ES.SET h text", "+OK"), ("ES.SET w 2", "+OK"), ("ES.COMMIT", "+OK")],
    );
    say(&mut b, &[("GET h", "\"text\""), ("MULTI", "+OK"), ("GET w", "+QUEUED"), ("EXEC", "null")]);
    say(&mut a, &[("ES.BEGIN", ":.."), ("ES.SET h 2", "+OK")]);
    say(&mut b, &[("SWAPDB 0 1", "+OK")]);
    say(&mut a, &[("ES.COMMIT", "-CONFLICT..")]);
}

#[test]
fn merges_in_a_transaction_are_seen_by_it() {
    let server = TestServer::start();
    let [mut a, mut b] = in_keyspace(&server);
    say(&mut a, &[("ES.BEGIN", ":.."), ("ES.MERGE k x", "-ERR.."), ("ES.ROLLBACK", "+OK")]);
    say(&mut a, &[("ES.KS OPERATOR plain append", "+OK"), ("ES.MERGE k 1", "+OK"), ("ES.BEGIN", ":..")]);
    say(&mut a, &[("ES.MERGE k 2", "+OK"), ("ES.SAVEPOINT s", "+OK"), ("ES.MERGE k 3", "+OK")]);
    say(&mut a, &[("ES.MERGE new 1", "+OK"), ("ES.RANGE '' ''", "*[\"k\", \"123\", \"new\", \"1\"]")]);
    say(&mut a, &[("ES.ROLLBACK TO s", "+OK"), ("ES.SET put 1", "+OK"), ("ES.MERGE put 2", "+OK")]);
    say(&mut a, &[("ES.GET k", "\"12\""), ("ES.COMMIT", "+OK")]);
    say(&mut b, &[("ES.RANGE '' ''", "*[\"k\", \"12\", \"put\", \"12\"]")]);
}

#[test]
fn what_a_transaction_cannot_do_fails_at_once() {
    let server = TestServer::start();
    let [mut a, mut b] = in_keyspace(&server);
    // Read committed: the commit checks no conflicts.
    say(&mut a, &[("OB.BEGIN", ":.."), ("MULTI", "+OK"), ("ES.SET k 1", "+QUEUED")]);
    assert!(a.say("EXEC").contains("MULTI and scripts cannot take part"));
    let long = "x".repeat(70_000);
    assert!(a.say(&format!("ES.SET {long} 1")).starts_with("-ERR"));
    say(
        &mut a,
        &[
            ("ES.SET k 1", "+OK"),
            ("ES.SAVEPOINT", "-ERR wrong number.."),
            ("ES.ROLLBACK x y", "-ERR syntax.."),
        ],
    );
    say(&mut b, &[("ES.SAVEPOINT s", "-ERR no transaction.."), ("ES.KS DROP plain", "+OK")]);
    // Other commands share the commit. They must not get the error.
    a.send_bytes(b"SET other 1\r\nES.COMMIT\r\n");
    assert_eq!(format!("{:?}", a.reply()), "+OK");
    assert!(matches!(a.reply(), Reply::Error(_)));
    say(&mut b, &[("ES.KS USE", "+OK"), ("CONFIG SET transaction-timeout 1", "+OK"), ("ES.BEGIN", ":..")]);
    until(|| server.wire().say("OB.TXLIST") == "*[]");
    say(&mut b, &[("ES.SET k 1", "-TXTIMEOUT.."), ("ES.COMMIT", "-TXTIMEOUT.."), ("ES.SET k 1", "+OK")]);
}

#[test]
fn names_are_locked_with_and_without_a_transaction() {
    let server = TestServer::start();
    let [mut a, mut b, mut c] = std::array::from_fn(|_| server.wire());
    let waiters = |n: usize| until(|| server.server.sequencer.waiters() == n);
    say(&mut a, &[("ES.LOCK x", "+OK"), ("ES.UNLOCK y", ":0"), ("ES.LOCK y SHARED", "+OK")]);
    say(
        &mut b,
        &[
            ("ES.LOCK x WAIT 0", "-LOCKTIMEOUT.."),
            ("ES.LOCK x SHARED WAIT 20", "-LOCKTIMEOUT.."),
            ("ES.LOCK y WAIT -1", "-ERR WAIT.."),
            ("ES.LOCK y SHARED", "+OK"),
            ("ES.UNLOCK y", ":1"),
        ],
    );
    b.send(&["ES.LOCK", "x"]);
    waiters(1);
    say(&mut a, &[("ES.UNLOCK x", ":1")]);
    assert_eq!(format!("{:?}", b.reply()), "+OK");
    // Locks of a transaction end with it. Earlier locks of the connection stay.
    say(&mut b, &[("ES.BEGIN", ":.."), ("ES.LOCK z", "+OK"), ("ES.UNLOCK z", "-ERR the transaction..")]);
    c.send(&["ES.LOCK", "z"]);
    waiters(1);
    say(&mut b, &[("ES.ROLLBACK", "+OK")]);
    assert_eq!(format!("{:?}", c.reply()), "+OK");
    say(&mut a, &[("ES.LOCK x WAIT 0", "-LOCKTIMEOUT..")]);
    // Both families share one table of locks, so a cycle over both is found.
    say(&mut c, &[("OB.BEGIN", ":.."), ("OB.LOCK exclusive 0 t", "+OK")]);
    b.send(&["ES.LOCK", "z"]);
    waiters(1);
    say(&mut c, &[("ES.LOCK x", "-DEADLOCK.."), ("OB.COMMIT", "-DEADLOCK.."), ("ES.UNLOCK z", ":1")]);
    assert_eq!(format!("{:?}", b.reply()), "+OK");
    // A connection that ends releases all of its locks.
    c.send(&["ES.LOCK", "x"]);
    waiters(1);
    drop(b);
    assert_eq!(format!("{:?}", c.reply()), "+OK");
}

#[test]
fn topics_and_changes_are_announced_with_the_commit() {
    let server = TestServer::start();
    let [mut a, mut b] = in_keyspace(&server);
    say(&mut a, &[("HELLO 3", "%..")]);
    say(
        &mut a,
        &[("ES.LISTEN jobs news", "+OK"), ("ES.WATCH KEY k PREFIX user:", "+OK"), ("ES.WATCH k", "-ERR..")],
    );
    say(
        &mut b,
        &[
            ("ES.BEGIN", ":.."),
            ("ES.NOTIFY jobs one", "+OK"),
            ("ES.SET k 1", "+OK"),
            ("ES.SET other 1", "+OK"),
        ],
    );
    say(&mut b, &[("ES.SAVEPOINT s", "+OK"), ("ES.NOTIFY jobs lost", "+OK"), ("ES.ROLLBACK TO s", "+OK")]);
    say(&mut a, &[("PING", "+PONG")]);
    say(&mut b, &[("ES.COMMIT", "+OK")]);
    let next = |wire: &mut Wire| format!("{:?}", wire.reply());
    assert_eq!(next(&mut a), ">[\"message\", \"jobs\", \"one\"]");
    assert_eq!(next(&mut a), ">[\"pmessage\", \"k\", \"k\", \"set\"]");
    say(
        &mut b,
        &[
            ("ES.SET user:7 1", "+OK"),
            ("ES.DELRANGE t v", ":1"),
            ("ES.DEL k", ":1"),
            ("ES.NOTIFY news ''", "+OK"),
        ],
    );
    for event in [
        "[\"pmessage\", \"user:\", \"user:7\", \"set\"]",
        "[\"pmessage\", \"user:\", \"user:\", \"delrange\"]",
        "[\"pmessage\", \"k\", \"k\", \"del\"]",
        "[\"message\", \"news\", \"\"]",
    ] {
        assert_eq!(next(&mut a), format!(">{event}"));
    }
    say(&mut a, &[("ES.UNWATCH KEY k", "+OK"), ("ES.UNLISTEN", "+OK")]);
    say(&mut b, &[("ES.SET k 2", "+OK"), ("ES.NOTIFY jobs x", "+OK"), ("ES.SET user:8 1", "+OK")]);
    assert_eq!(next(&mut a), ">[\"pmessage\", \"user:\", \"user:8\", \"set\"]");
    say(&mut a, &[("ES.UNWATCH", "+OK"), ("ES.KS USE", "+OK"), ("ES.WATCH PREFIX h", "+OK")]);
    // In a database, every command and expiry is reported. In protocol version 2, the client counts as
    // subscribed.
    say(&mut b, &[("ES.KS USE", "+OK"), ("ES.WATCH KEY h", "+OK"), ("GET h", "-ERR Can't execute 'get'..")]);
    let mut c = server.wire();
    say(&mut c, &[("HSET h f v", ":1"), ("PEXPIRE h 5", ":1")]);
    for event in ["set", "set", "del"] {
        assert_eq!(next(&mut a), format!(">[\"pmessage\", \"h\", \"h\", \"{event}\"]"));
        assert_eq!(next(&mut b), format!("*[\"pmessage\", \"h\", \"h\", \"{event}\"]"));
    }
    say(&mut c, &[("FLUSHDB", "+OK")]);
    assert_eq!(next(&mut a), ">[\"pmessage\", \"h\", \"\", \"all\"]");
    assert_eq!(next(&mut b), "*[\"pmessage\", \"h\", \"\", \"all\"]");
    say(&mut b, &[("ES.UNWATCH", "+OK"), ("GET h", "null")]);
}

#[test]
fn users_need_rights_for_what_these_name() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let dry = |wire: &mut Wire, command: &str| wire.say(&format!("ACL DRYRUN ann {command}")) == "+OK";
    wire.say("ACL SETUSER ann on +@all ~a:* %R~r:* &news");
    for (command, is_allowed) in [
        ("ES.LOCK a:1", true),
        ("ES.LOCK r:1", false),
        ("ES.LOCK r:1 SHARED", true),
        ("ES.LOCK b", false),
        ("ES.NOTIFY news x", true),
        ("ES.NOTIFY jobs x", false),
        ("ES.LISTEN news", true),
        ("ES.LISTEN news jobs", false),
        ("ES.WATCH KEY a:1", true),
        ("ES.WATCH KEY b", false),
        ("ES.FEED 1-0 1", false),
        ("ES.BEGIN", true),
        ("ES.MERGE a:1 x", true),
    ] {
        assert_eq!(dry(&mut wire, command), is_allowed, "{command}");
    }
    wire.say("ACL SETUSER ann %R~*");
    assert!(dry(&mut wire, "ES.WATCH KEY a:1") && dry(&mut wire, "ES.FEED 1-0 1"));
    wire.say("ACL SETUSER ann -@pubsub -es.begin");
    assert!(!dry(&mut wire, "ES.NOTIFY news x") && !dry(&mut wire, "ES.BEGIN"));
}
