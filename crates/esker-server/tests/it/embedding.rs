//! A program that writes to the database beside the server that it embeds. No write of either side is lost,
//! and commits do not rely on data that the other side has changed.

use std::time::Duration;

use esker::Db;

use crate::harness::TestServer;
use crate::wire::Wire;

/// Sends a line until its commit does not conflict.
fn say(wire: &mut Wire, line: &str) -> String {
    loop {
        let reply = wire.say(line);
        if !reply.starts_with("-TRYAGAIN") && !reply.starts_with("-CONFLICT") {
            return reply;
        }
    }
}

/// Returns the number in a string's record: a byte, then digits.
fn number(record: &[u8]) -> u64 {
    std::str::from_utf8(&record[1..]).unwrap().parse().unwrap()
}

/// Adds to a number in database 0 like an embedding program.
fn add(db: &Db, key: &str, n: u64) {
    let strings = db.open_keyspace("r0").unwrap();
    let added = db.transact(|t| -> esker::Result<()> {
        let old = t.get(&strings, key)?.unwrap();
        let new = [&old[..1], (number(&old) + n).to_string().as_bytes()].concat();
        t.put(&strings, key, new)
    });
    added.unwrap();
}

#[test]
fn increments_of_clients_and_of_the_program_are_all_there() {
    let server = TestServer::start();
    for key in ["n", "pipelined"] {
        server.wire().say(&format!("SET {key} 0"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| (0..300).for_each(|_| add(&server.db, "n", 1)));
        scope.spawn(|| (0..300).for_each(|_| add(&server.db, "pipelined", 1)));
        for _ in 0..2 {
            let mut wire = server.wire();
            scope.spawn(move || (0..300).for_each(|_| assert!(say(&mut wire, "INCR n").starts_with(':'))));
        }
        let mut wire = server.wire();
        scope.spawn(move || {
            for _ in 0..30 {
                wire.send_bytes(&b"INCR pipelined\r\n".repeat(10));
                (0..10).for_each(|_| assert!(format!("{:?}", wire.reply()).starts_with(':')));
            }
        });
    });
    assert_eq!(server.wire().say("GET n"), "\"900\"");
    assert_eq!(server.wire().say("GET pipelined"), "\"600\"");
}

/// The program sets `a` unless `b` is set, and a client sets `b` unless `a` is set. Checks that exactly one
/// gets set.
fn never_both_are_set(set_b_unless_a: fn(&mut Wire)) {
    let server = TestServer::start();
    for _ in 0..100 {
        let mut wire = server.wire();
        wire.say("MSET a 0 b 0");
        let strings = server.db.open_keyspace("r0").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let set = server.db.transact(|t| -> esker::Result<()> {
                    let (a, b) = (t.get(&strings, "a")?.unwrap(), t.get(&strings, "b")?.unwrap());
                    match number(&b) {
                        0 => t.put(&strings, "a", [&a[..1], b"1"].concat()),
                        _ => Ok(()),
                    }
                });
                set.unwrap();
            });
            let mut wire = server.wire();
            scope.spawn(move || set_b_unless_a(&mut wire));
        });
        let set = wire.say("MGET a b");
        assert!(set == "*[\"0\", \"1\"]" || set == "*[\"1\", \"0\"]", "{set}");
    }
}

#[test]
#[cfg(feature = "lua")]
fn a_script_relies_on_nothing_that_the_program_changes_before_its_commit() {
    const SCRIPT: &str = "if redis.call('GET', 'a') == '0' then redis.call('SET', 'b', '1') end";
    never_both_are_set(
        |wire| {
            while format!("{:?}", wire.call(&["EVAL", SCRIPT, "0"])).starts_with("-TRYAGAIN") {}
        },
    );
}

#[test]
fn a_held_transaction_relies_on_nothing_that_the_program_changes_before_its_commit() {
    never_both_are_set(set_unless);
}

/// Sets `b` in a transaction if `a` is not set.
fn set_unless(wire: &mut Wire) {
    loop {
        wire.say("ES.BEGIN");
        if wire.say("ES.GET a") == "\"0\"" {
            wire.say("ES.SET b 1");
        }
        if wire.say("ES.COMMIT") == "+OK" {
            return;
        }
    }
}

/// The program clears `a` unless `b` is set, and a client copies `a` to `b` in a long pipeline. In any order,
/// both keys end equal.
#[test]
fn a_command_relies_on_no_key_that_the_program_changes_before_its_commit() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("MSET a 1 b 0");
    let strings = server.db.open_keyspace("r0").unwrap();
    for round in 0..100 {
        wire.say("MSET a 1 b 0");
        let mut pipeline = b"COPY a b REPLACE\r\n".to_vec();
        pipeline.extend((0..500).flat_map(|i| format!("SET k{i} 1\r\n").into_bytes()));
        wire.send_bytes(&pipeline);
        std::thread::sleep(Duration::from_micros(20 * round));
        let cleared = server.db.transact(|t| -> esker::Result<()> {
            let (a, b) = (t.get(&strings, "a")?.unwrap(), t.get(&strings, "b")?.unwrap());
            if number(&b) == 0 { t.put(&strings, "a", [&a[..1], b"0"].concat()) } else { Ok(()) }
        });
        cleared.unwrap();
        (0..501).for_each(|_| drop(wire.reply()));
        let both = wire.say("MGET a b");
        assert!(both == "*[\"0\", \"0\"]" || both == "*[\"1\", \"1\"]", "round {round}: {both}");
    }
}

/// The program gives a keyspace a default lifetime. Values that clients set expire after it, in a transaction
/// or not, counted from the command.
#[test]
fn values_of_held_transactions_expire_like_others() {
    let server = TestServer::start();
    let mut wire = server.wire();
    assert_eq!(wire.say("ES.KS CREATE short"), "+OK");
    let short = server.db.open_keyspace("short").unwrap();
    short.set_default_ttl(Some(Duration::from_secs(1000))).unwrap();
    assert_eq!(wire.say("ES.KS USE short"), "+OK");
    for (line, in_between) in [("ES.SET alone 1", false), ("ES.SET held 1", true)] {
        if in_between {
            wire.say("ES.BEGIN");
        }
        assert_eq!(wire.say(line), "+OK");
        if in_between {
            // The commit keeps the lifetime of the moment of the command.
            short.set_default_ttl(None).unwrap();
            assert_eq!(wire.say("ES.COMMIT"), "+OK");
        }
    }
    for key in ["alone", "held"] {
        let ttl = short.ttl(key).unwrap();
        let seconds = |left: Duration| (900..=1000).contains(&left.as_secs());
        assert!(matches!(ttl, Some(esker::Ttl::Left(left)) if seconds(left)), "{key}: {ttl:?}");
    }
}

#[test]
fn clients_and_the_program_have_the_same_locks() {
    let server = TestServer::start();
    let (mut wire, mut owner) = (server.wire(), server.db.lock_owner());
    assert_eq!(wire.say("ES.LOCK x"), "+OK");
    let mut try_lock = || owner.try_lock("r0", b"x", esker::LockMode::Exclusive, None).unwrap();
    assert!(!try_lock());
    assert_eq!((wire.say("ES.UNLOCK x"), try_lock()), (":1".to_owned(), true));
    assert!(wire.say("ES.LOCK x WAIT 0").starts_with("-LOCKTIMEOUT"));
    drop(owner);
    assert_eq!(wire.say("ES.LOCK x"), "+OK");
}
