//! Rows, and transactions that connections hold.

use esker::Db;
use esker_server::Options;

use crate::harness::{TestServer, until};
use crate::wire::{Reply, Wire};

fn say(wire: &mut Wire, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        assert_eq!(wire.say(line), *reply, "{line}");
    }
}

fn begin(wire: &mut Wire, how: &str) {
    let reply = wire.say(&format!("OB.BEGIN {how}"));
    assert!(reply.starts_with(':'), "{reply}");
}

#[test]
fn rows_lie_in_a_keyspace_that_programs_can_read() {
    let server = TestServer::start();
    let mut wire = server.wire();
    say(
        &mut wire,
        &[
            ("OB.MPUT users ROW ann 2 name Ann age 7 AT 5 ROW bob 1 name Bob AT -1", "+OK"),
            (
                "OB.SLICE users COLS 1 name TS",
                "*[null, *[*[\"ann\", *[\"name\", \"Ann\", :5]], *[\"bob\", *[\"name\", \"Bob\", :-1]]]]",
            ),
            ("OB.GET users ann age none", "*[\"7\", null]"),
            ("OB.GET users ann", "*[\"age\", \"7\", \"name\", \"Ann\"]"),
            ("OB.SLICE users WHERE age BETWEEN 7 8 MAXCOLS 1", "*[null, *[*[\"ann\", *[\"age\", \"7\"]]]]"),
            ("OB.KS LIST", "*[\"default\"]"),
        ],
    );
    let space = server.db.open_keyspace("ob.default").unwrap();
    let cells: Vec<[Vec<u8>; 3]> = space
        .iter()
        .map(|entry| esker_tuple::decode::<(_, _, _)>(&entry.unwrap().0).unwrap().into())
        .collect();
    assert_eq!(cells[2], [&b"users"[..], b"bob", b"name"]);
    let bytes: usize =
        space.iter().map(|entry| entry.unwrap()).map(|(key, value)| key.len() + value.len()).sum();
    assert_eq!(wire.say("OB.SIZE users"), format!(":{bytes}"));
    assert!(wire.say("OB.SIZE users a b") != ":0" && wire.say("OB.SIZE users c d") == ":0");
    space.put("junk", "").unwrap();
    assert!(wire.say("OB.TABLES").starts_with("-ERR the keyspace holds a key that is no row's"));
    say(&mut wire, &[("OB.KS USE other", "+OK"), ("OB.TABLES", "*[]"), ("OB.KS DROP default", "+OK")]);
    for wrong in [
        "OB.PUT t k c",
        "OB.SLICE t MAXKEYS 0",
        "OB.SLICE t KEYS 9 a",
        "OB.DELKEYS t rev x",
        "OB.MPUT t ROW k 2 a b c",
        "OB.SLICE t WHERE c IS 1",
        "OB.KS USE",
    ] {
        assert!(wire.say(wrong).starts_with("-ERR"), "{wrong}");
    }
}

#[test]
fn wide_rows_are_passed_by() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for key in ["a", "b", "c"] {
        let pairs: Vec<String> = (100..200).map(|n| format!("{n} {key}{n}")).collect();
        wire.say(&format!("OB.PUT t {key} {}", pairs.join(" ")));
    }
    let row = |key: &str, columns: [u32; 2]| {
        format!("*[\"{key}\", *[{}]]", columns.map(|n| format!("\"{n}\", \"{key}{n}\"")).join(", "))
    };
    let rows = |keys: [&str; 3], columns: [u32; 2]| {
        format!("*[null, *[{}]]", keys.map(|key| row(key, columns)).join(", "))
    };
    for begun in [false, true] {
        if begun {
            begin(&mut wire, "RR");
        }
        let (up, down) = (["a", "b", "c"], ["c", "b", "a"]);
        assert_eq!(wire.say("OB.SLICE t MAXCOLS 2"), rows(up, [100, 101]));
        assert_eq!(wire.say("OB.SLICE t MAXCOLS 2 REV"), rows(down, [199, 198]));
        assert_eq!(wire.say("OB.SLICE t COLS 2 120 180"), rows(up, [120, 180]));
        assert_eq!(wire.say("OB.SLICE t COLRANGE 150 151 COLS 1 180 REV"), rows(down, [180, 150]));
        assert_eq!(
            (wire.say("OB.KEYS t"), wire.say("OB.COUNT t")),
            ("*[null, *[\"a\", \"b\", \"c\"]]".into(), ":3".into())
        );
    }
}

#[test]
fn isolation_is_what_was_chosen() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    say(&mut b, &[("OB.PUT t k c 1", "+OK")]);
    for (how, second) in [("RC", "*[\"2\"]"), ("RR", "*[\"1\"]")] {
        say(&mut b, &[("OB.PUT t k c 1", "+OK"), ("OB.DEL t new", "+OK")]);
        begin(&mut a, how);
        say(&mut a, &[("OB.GET t k c", "*[\"1\"]"), ("OB.PUT t own c x", "+OK")]);
        // No dirty reads, and no client waits for an idle transaction.
        say(
            &mut b,
            &[
                ("OB.EXISTS t own", "*[:0]"),
                ("OB.PUT t k c 2", "+OK"),
                ("OB.PUT t new c x", "+OK"),
                ("SET other 1", "+OK"),
            ],
        );
        say(&mut a, &[("OB.GET t k c", second), ("OB.GET t own c", "*[\"x\"]")]);
        let keys = a.say("OB.KEYS t");
        assert_eq!(keys.contains("new"), how == "RC", "a phantom is seen by {how}: {keys}");
        // A repeatable-read transaction inside another one.
        begin(&mut a, "RR");
        say(&mut b, &[("OB.PUT t k c 3", "+OK")]);
        say(&mut a, &[("OB.GET t k c", second), ("OB.PUT t own d y", "+OK"), ("OB.ABORT", "+OK")]);
        say(&mut a, &[("OB.GET t own c d", "*[\"x\", null]"), ("OB.COMMIT", "+OK")]);
        say(&mut b, &[("OB.GET t own c d", "*[\"x\", null]"), ("OB.DEL t own", "+OK")]);
    }
    // A transaction sees the writes that were sent before it in the same pipeline.
    for words in [
        &["OB.PUT", "t", "k", "c", "4"][..],
        &["OB.BEGIN", "RR"],
        &["OB.GET", "t", "k", "c"],
        &["OB.COMMIT"],
        &["OB.TXID"],
    ] {
        a.send(words);
    }
    let replies: Vec<String> = (0..5).map(|_| format!("{:?}", a.reply())).collect();
    assert_eq!((&*replies[2], &*replies[3], &*replies[4]), ("*[\"4\"]", "+OK", "null"));
}

#[test]
fn a_watch_prevents_lost_updates_write_skew_and_phantoms() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    let dirty = "-DIRTY watched data has changed: nothing was committed; run the transaction again";
    say(&mut b, &[("OB.PUT acct x n 1 m 1", "+OK"), ("OB.PUT acct y n 1", "+OK")]);
    let cases = [
        // The watch, the command of the other client, and whether it changes what is watched.
        ("KEYS 1 x", "OB.PUT acct x n 2", true),
        ("KEYS 1 x", "OB.DEL acct x", true),
        ("KEYS 2 x y", "OB.PUT acct z n 2", false),
        ("COLS x 1 n", "OB.PUT acct x m 2", false),
        ("COLS x 2 n q", "OB.PUT acct x q 2", true),
        ("PREFIX y", "OB.PUT acct yy n 2", true),
        ("PREFIX yy/", "OB.PUT acct y n 2", false),
        ("RANGE a c COLS x 1 n", "OB.PUT acct b n 2", true),
        ("KEYS 1 x", "OB.PUT other x n 2", false),
    ];
    for how in ["RC", "RR"] {
        for (watched, change, is_change) in cases {
            begin(&mut a, how);
            say(&mut a, &[(&format!("OB.WATCH acct {watched}"), "+OK"), ("OB.PUT out k c 1", "+OK")]);
            say(&mut b, &[(change, "+OK")]);
            say(&mut a, &[("OB.COMMIT", if is_change { dirty } else { "+OK" }), ("OB.TXID", "null")]);
            say(
                &mut b,
                &[("OB.EXISTS out k", if is_change { "*[:0]" } else { "*[:1]" }), ("OB.DEL out k", "+OK")],
            );
            say(&mut b, &[("OB.DEL acct yy", "+OK"), ("OB.DEL acct b", "+OK"), ("OB.DEL acct x q", "+OK")]);
        }
    }
    // A repeatable-read transaction reads its snapshot, so a change since then counts as well.
    begin(&mut a, "RR");
    say(&mut b, &[("OB.PUT acct x n 9", "+OK")]);
    say(&mut a, &[("OB.WATCH acct KEYS 1 x", "+OK"), ("OB.PUT out k c 1", "+OK"), ("OB.COMMIT", dirty)]);
    // Write skew: each transaction reads what the other writes.
    for (wire, watched) in [(&mut a, "x"), (&mut b, "y")] {
        begin(wire, "RC");
        say(wire, &[(&format!("OB.WATCH acct KEYS 1 {watched}"), "+OK")]);
    }
    say(&mut a, &[("OB.PUT acct y n 0", "+OK"), ("OB.COMMIT", "+OK")]);
    say(&mut b, &[("OB.PUT acct x n 0", "+OK"), ("OB.COMMIT", dirty)]);
    // Programs that embed the engine may write to the keyspace, too.
    begin(&mut a, "RC");
    say(&mut a, &[("OB.WATCH acct KEYS 1 x", "+OK"), ("OB.PUT out k c 1", "+OK")]);
    server.db.open_keyspace("ob.default").unwrap().clear().unwrap();
    say(&mut a, &[("OB.COMMIT", dirty)]);
    // Without a watch the last write wins, as in obigstore. A read-only transaction commits.
    begin(&mut a, "RR");
    say(&mut a, &[("OB.WATCH acct KEYS 1 x", "+OK"), ("OB.PUT acct w n 1", "+OK"), ("OB.ABORT", "+OK")]);
    begin(&mut a, "RC");
    say(&mut a, &[("OB.WATCH acct KEYS 1 x", "+OK")]);
    say(&mut b, &[("OB.PUT acct x n 5", "+OK")]);
    say(&mut a, &[("OB.COMMIT", "+OK")]);
    assert!(a.say("OB.WATCH acct KEYS 1 x").starts_with("-ERR no transaction"));
}

#[test]
fn many_watched_increments_lose_nothing() {
    let server = TestServer::start();
    server.wire().say("OB.PUT t n n 0");
    let conflicts: u32 = std::thread::scope(|scope| {
        let work = |n: u32| {
            let mut wire = server.wire();
            let (mut done, mut conflicts) = (0, 0);
            while done < 50 {
                begin(&mut wire, if n.is_multiple_of(2) { "RC" } else { "RR" });
                say(&mut wire, &[("OB.WATCH t KEYS 1 n", "+OK")]);
                let Reply::List(_, values) = wire.call(&["OB.GET", "t", "n", "n"]) else { panic!() };
                let old: u32 = format!("{:?}", values[0]).trim_matches('"').parse().unwrap();
                say(&mut wire, &[(&format!("OB.PUT t n n {}", old + 1), "+OK")]);
                match wire.say("OB.COMMIT").as_str() {
                    "+OK" => done += 1,
                    reply => {
                        assert!(reply.starts_with("-DIRTY"), "{reply}");
                        conflicts += 1;
                    }
                }
            }
            conflicts
        };
        let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || work(n))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(server.wire().say("OB.GET t n n"), "*[\"200\"]", "after {conflicts} conflicts");
}

#[test]
fn locks_are_waited_for_and_given_back() {
    let server = TestServer::start();
    let [mut a, mut b, mut c] = [server.wire(), server.wire(), server.wire()];
    let waiters = |n: usize| until(|| server.server.sequencer.waiters() == n);
    assert!(a.say("OB.LOCK shared 0 x").starts_with("-ERR no transaction"));
    [&mut a, &mut b, &mut c].into_iter().for_each(|wire| begin(wire, "RC"));
    say(&mut a, &[("OB.LOCK exclusive 0 x y", "+OK"), ("OB.LOCK shared 0 x", "+OK")]);
    let timeout = "-LOCKTIMEOUT a lock was not released in time; locks that were free are held";
    say(&mut b, &[("OB.LOCK exclusive 0.05 x", timeout)]);
    b.send(&["OB.LOCK", "shared", "0", "x"]);
    // Requests after the lock run once it is acquired, and see the commits of its last holder.
    b.send(&["OB.GET", "t", "k", "c"]);
    waiters(1);
    let list = c.say("OB.TXLIST");
    assert!(list.contains("\"holds\", *[\"x\", \"exclusive\", \"y\", \"exclusive\"]"), "{list}");
    assert!(list.contains("\"wants\", *[\"x\", \"shared\"]"), "{list}");
    say(&mut a, &[("OB.PUT t k c 1", "+OK"), ("OB.CHANGED", "*[\"t\"]"), ("OB.COMMIT", "+OK")]);
    assert_eq!((format!("{:?}", b.reply()), format!("{:?}", b.reply())), ("+OK".into(), "*[\"1\"]".into()));
    // A waiting connection that ends leaves the queue. A holder that ends releases its locks.
    say(&mut c, &[("OB.LOCK shared 0 x", "+OK"), ("OB.PUT t gone c 1", "+OK")]);
    begin(&mut a, "RC");
    say(&mut a, &[("OB.PUT t gone c 1", "+OK")]);
    a.send(&["OB.LOCK", "exclusive", "0", "x"]);
    waiters(1);
    let mut d = server.wire();
    begin(&mut d, "RC");
    d.send(&["OB.LOCK", "exclusive", "0", "x"]);
    waiters(2);
    a.send(&["OB.COMMIT"]);
    drop(a);
    waiters(1);
    drop(c);
    say(&mut b, &[("OB.ABORT", "+OK")]);
    assert_eq!(format!("{:?}", d.reply()), "+OK");
    say(&mut d, &[("OB.EXISTS t gone", "*[:0]"), ("RESET", "+RESET")]);
    assert_eq!(b.say("OB.TXLIST"), "*[]");
}

#[test]
fn a_deadlock_is_an_error_of_its_own() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    for (wire, name) in [(&mut a, "x"), (&mut b, "y")] {
        begin(wire, "RC");
        say(wire, &[(&format!("OB.LOCK exclusive 0 {name}"), "+OK")]);
    }
    a.send(&["OB.LOCK", "exclusive", "0", "y"]);
    until(|| server.server.sequencer.waiters() == 1);
    let reply = b.say("OB.LOCK shared 0 x");
    assert!(reply.starts_with("-DEADLOCK "), "{reply}");
    assert_eq!(b.say("OB.PUT t k c lost"), "+OK");
    assert!(b.say("OB.COMMIT").starts_with("-DEADLOCK "), "it has not got the lock");
    assert_eq!(format!("{:?}", a.reply()), "+OK");
    say(&mut a, &[("OB.COMMIT", "+OK"), ("OB.TABLES", "*[]")]);
}

#[test]
fn topics_are_said_with_the_commit() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    say(&mut a, &[("OB.LISTEN news", "+OK"), ("OB.PLISTEN jobs/", "+OK"), ("OB.AWAIT 0.01", "null")]);
    a.send(&["OB.AWAIT", "0"]);
    a.send(&["OB.GET", "t", "k", "c"]);
    until(|| server.server.sequencer.waiters() == 1);
    begin(&mut b, "RC");
    say(&mut b, &[("OB.NOTIFY jobs/1 news", "+OK"), ("OB.PUT t k c 1", "+OK")]);
    begin(&mut b, "RC");
    say(&mut b, &[("OB.NOTIFY jobs/lost", "+OK"), ("OB.ABORT", "+OK")]);
    assert_eq!(server.server.sequencer.waiters(), 1);
    say(&mut b, &[("OB.COMMIT", "+OK")]);
    assert_eq!(format!("{:?}", a.reply()), "*[\"jobs/1\", \"news\"]");
    assert_eq!(format!("{:?}", a.reply()), "*[\"1\"]", "a listener finds what the message names");
    say(&mut b, &[("OB.NOTIFY news jobs/2 jobs/2 other", "+OK")]);
    say(
        &mut a,
        &[("OB.AWAIT 1", "*[\"jobs/2\", \"news\"]"), ("OB.PUNLISTEN", "+OK"), ("OB.UNLISTEN other", "+OK")],
    );
    say(&mut b, &[("OB.NOTIFY jobs/3", "+OK"), ("OB.NOTIFY news", "+OK")]);
    say(&mut a, &[("OB.AWAIT 1", "*[\"news\"]"), ("OB.UNLISTEN", "+OK")]);
    say(&mut b, &[("OB.NOTIFY news", "+OK"), ("OB.KS USE other", "+OK")]);
    say(&mut a, &[("OB.AWAIT 0.01", "null")]);
}

#[test]
fn what_a_connection_holds_is_bounded() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.wire(), server.wire());
    say(&mut b, &[("CONFIG SET transaction-timeout 1", "+OK")]);
    begin(&mut a, "RR");
    say(&mut a, &[("OB.PUT t k c 1", "+OK"), ("OB.LOCK exclusive 0 x", "+OK")]);
    begin(&mut b, "RC");
    // The waiting client is not idle. It waits until the other one is idle for too long.
    say(&mut b, &[("OB.LOCK exclusive 0 x", "+OK"), ("OB.COMMIT", "+OK")]);
    for command in ["OB.GET t k c", "OB.PUT t k c 2", "OB.BEGIN", "OB.COMMIT"] {
        assert!(a.say(command).starts_with("-TXTIMEOUT"), "{command}");
    }
    say(&mut a, &[("OB.GET t k c", "*[null]"), ("CONFIG SET transaction-timeout 0", "+OK")]);
    for _ in 0..64 {
        begin(&mut a, "RC");
    }
    assert!(a.say("OB.BEGIN").starts_with("-ERR transactions and savepoints are nested too deeply"));
    let large = vec![b'x'; 16 << 20];
    let replies: Vec<_> = (0..6).map(|n| a.call(&[b"OB.PUT", &b"t"[..], &[n], b"c", &large])).collect();
    assert!(format!("{:?}", replies[5]).starts_with("-ERR the transaction has written more than 64 MiB"));
    for command in ["OB.PUT t k c 1", "OB.KS USE other"] {
        say(
            &mut a,
            &[
                ("MULTI", "+OK"),
                (
                    command,
                    if command.starts_with("OB.KS") {
                        "-ERR Command not allowed inside a transaction"
                    } else {
                        "+QUEUED"
                    },
                ),
            ],
        );
        assert!(a.say("EXEC").contains("-E"), "{command}");
    }
    assert!(b.say("OB.KS DROP default").starts_with("-ERR a transaction is open"));
    drop(a);
    until(|| b.say("OB.TXLIST") == "*[]");
    say(&mut b, &[("OB.TABLES", "*[]")]);
}

#[test]
fn commits_survive_and_share_the_queue_with_others() {
    let dir = tempfile::tempdir().unwrap();
    {
        let server = TestServer::start_with(Db::open(dir.path()).unwrap(), Options::default());
        std::thread::scope(|scope| {
            for n in 0..4 {
                let server = &server;
                scope.spawn(move || {
                    let mut wire = server.wire();
                    for at in 0..25 {
                        begin(&mut wire, "RC SYNC disk");
                        say(&mut wire, &[(&format!("OB.PUT t {n} c{at} 1"), "+OK"), ("OB.COMMIT", "+OK")]);
                        wire.say("INCR n");
                    }
                });
            }
        });
    }
    let server = TestServer::start_with(Db::open(dir.path()).unwrap(), Options::default());
    let mut wire = server.wire();
    say(&mut wire, &[("GET n", "\"100\""), ("OB.COUNT t", ":4")]);
    assert!(wire.say("OB.GET t 3").contains("c24"));
}
