//! A command that fails changes nothing, and walks with cursors end.

use std::collections::BTreeSet;

use esker::Db;
use esker_server::Options;

use crate::generator::{command, templates};
use crate::harness::TestServer;
use crate::wire::{Reply, Wire};

#[test]
fn commands_2_a_read_of_groups_that_fails_has_delivered_nothing() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for line in ["XADD a 1-1 f v", "XADD b 1-1 f v", "XGROUP CREATE a g 0", "SET str x"] {
        wire.say(line);
    }
    for keys in ["a none > >", "a b > >", "a str > >", "a a > x", "a a > $"] {
        let read = format!("XREADGROUP GROUP g c STREAMS {keys}");
        assert!(wire.say(&read).starts_with('-'), "{keys}");
        wire.say("MULTI");
        wire.say("SET beside 1");
        wire.say(&read);
        assert!(wire.say("EXEC").starts_with("*[+OK, -"), "{keys}");
        assert_eq!(wire.say("XPENDING a g"), "*[:0, null, null, null]", "{keys}");
        assert!(wire.say("XINFO GROUPS a").contains("\"last-delivered-id\", \"0-0\""), "{keys}");
    }
    assert_eq!(wire.say("GET beside"), "\"1\"");
    #[cfg(feature = "lua")]
    {
        let script = "redis.pcall('XREADGROUP','GROUP','g','c','STREAMS','a','none','>','>')return(redis.call('XPENDING','a','g')[1])";
        assert_eq!(wire.say(&format!("EVAL {script} 2 a none")), ":0");
    }
    assert!(wire.say("XREADGROUP GROUP g c STREAMS a >").contains("1-1"));
}

#[test]
fn a_held_transaction_with_a_refused_write_cannot_commit() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let large = "x".repeat(1 << 20);
    wire.say("ES.BEGIN");
    let mut refused = 0;
    for n in 0..80 {
        refused +=
            usize::from(wire.call(&["ES.SET", &format!("k{n}"), &large]) != Reply::Simple("OK".into()));
    }
    assert!(refused > 0);
    assert!(wire.say("ES.COMMIT").starts_with("-EXECABORT"));
    assert_eq!(wire.say("DBSIZE"), ":0");
    for (wrong, begin, commit) in [
        ("ES.SET k", "ES.BEGIN", "ES.COMMIT"),
        ("ES.CAS k eq", "ES.BEGIN", "ES.COMMIT"),
        ("OB.PUT t k c", "OB.BEGIN", "OB.COMMIT"),
    ] {
        wire.say(begin);
        wire.say("ES.SET first 1");
        assert!(wire.say(wrong).starts_with('-'), "{wrong}");
        assert!(wire.say(commit).starts_with("-EXECABORT"), "{wrong}");
        assert_eq!(wire.say("ES.GET first"), "null");
    }
    // Undoing the failed write leaves the rest intact.
    for line in [
        "ES.BEGIN",
        "ES.SET a 1",
        "ES.SAVEPOINT s",
        "ES.SET b",
        "ES.ROLLBACK TO s",
        "ES.BEGIN",
        "ES.SET c",
        "ES.ROLLBACK",
    ] {
        wire.say(line);
    }
    assert_eq!(wire.say("ES.COMMIT"), "+OK");
    // A failed write in an inner transaction does not affect the outer one.
    for line in ["ES.BEGIN", "ES.SET a 2", "ES.BEGIN", "ES.SET b", "ES.COMMIT"] {
        wire.say(line);
    }
    assert!(wire.say("ES.COMMIT").starts_with("-EXECABORT"));
    assert_eq!(wire.say("ES.GET a"), "\"1\"");
}

/// Runs one step of a walk. Returns the cursor and the elements.
fn step(wire: &mut Wire, words: &[&str]) -> (String, Vec<Reply>) {
    let Reply::List(_, items) = wire.call(words) else { panic!("no walk") };
    let [Reply::Bulk(cursor), Reply::List(_, found)] = &items[..] else { panic!("{items:?}") };
    (String::from_utf8(cursor.clone()).unwrap(), found.clone())
}

#[test]
fn cursors_are_kept_exactly_as_doubles_and_walks_end_with_writers_beside() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for n in 0..200 {
        wire.say(&format!("SET key:{n} v"));
        wire.say(&format!("HSET hash f{n} v"));
        wire.say(&format!("SADD set f{n}"));
        wire.say(&format!("ZADD sorted {n} f{n}"));
    }
    for walk in [&["SCAN"][..], &["HSCAN", "hash"], &["SSCAN", "set"], &["ZSCAN", "sorted"]] {
        let (mut cursor, mut all, mut steps) = ("0".to_owned(), BTreeSet::new(), 0);
        loop {
            let exact = cursor.parse::<f64>().unwrap() as u64;
            let text = exact.to_string();
            let (next, found) = step(&mut wire, &[walk, &[&text, "COUNT", "7"]].concat());
            all.extend(found);
            steps += 1;
            for n in 0..3 {
                wire.say(&format!("SET new{steps}:{n} v"));
                wire.say(&format!("DEL new{}:{n}", steps - 1));
                wire.say(&format!("SADD set x{steps}:{n}"));
            }
            if next == "0" {
                break;
            }
            cursor = next;
            assert!(steps < 1000, "{walk:?}");
        }
        let prefix = if walk.len() == 1 { "key:" } else { "f" };
        for n in 0..200 {
            assert!(all.contains(&Reply::Bulk(format!("{prefix}{n}").into_bytes())), "{walk:?} {n}");
        }
    }
}

#[test]
fn a_walk_never_ends_early_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let open = || TestServer::start_with(Db::open(dir.path()).unwrap(), Options::default());
    let server = open();
    let mut wire = server.wire();
    for n in 0..100 {
        wire.say(&format!("SET key:{n} v"));
        wire.say(&format!("HSET hash f{n} v"));
        wire.say(&format!("SADD set f{n}"));
        wire.say(&format!("ZADD sorted {n} f{n}"));
    }
    let walks = [&["SCAN"][..], &["HSCAN", "hash"], &["SSCAN", "set"], &["ZSCAN", "sorted"]];
    let refused = "-ERR the cursor is not known: begin again with cursor 0";
    let ask = |wire: &mut Wire, walk: &[&str], cursor: &str| {
        format!("{:?}", wire.call(&[walk, &[cursor, "COUNT", "5"]].concat()))
    };
    let mut held = Vec::new();
    for walk in walks {
        // Cursors that were never issued, and cursors far behind the progress of their walk.
        for unknown in ["77", "9007199254740991", "18446744073709551615"] {
            assert_eq!(ask(&mut wire, walk, unknown), refused, "{walk:?} {unknown}");
        }
        let mut cursors = vec!["0".to_owned()];
        for _ in 0..8 {
            let cursor = cursors.last().unwrap().as_str();
            let (next, found) = step(&mut wire, &[walk, &[cursor, "COUNT", "5"]].concat());
            assert!(!found.is_empty());
            cursors.push(next);
        }
        for old in &cursors[1..5] {
            assert_eq!(ask(&mut wire, walk, old), refused, "{walk:?}");
        }
        for kept in &cursors[5..] {
            assert!(ask(&mut wire, walk, kept).starts_with("*["), "{walk:?}");
        }
        held.push(cursors.pop().unwrap());
    }
    // An empty collection has no valid cursors either.
    assert_eq!(ask(&mut wire, &["HSCAN", "none"], "77"), refused);
    assert_eq!(ask(&mut wire, &["HSCAN", "none"], "0"), "*[\"0\", *[]]");
    #[cfg(feature = "lua")]
    {
        let in_script = wire.call(&["EVAL", "return redis.call('scan', '77')", "0"]);
        assert!(format!("{in_script:?}").starts_with(refused), "{in_script:?}");
    }
    drop(wire);
    drop(server);
    let server = open();
    let mut wire = server.wire();
    for (walk, cursor) in walks.into_iter().zip(&held) {
        assert_eq!(ask(&mut wire, walk, cursor), refused, "after a restart: {walk:?}");
    }
}

/// The data layer checks that a command uses only keys derived from its words (`Session::named`).
#[test]
fn commands_use_no_keys_but_those_they_name() {
    let server = TestServer::start();
    let (mut wire, mut random) = (server.wire(), fastrand::Rng::with_seed(16));
    let mut templates = templates();
    templates.extend([
        "SORT kl BY|GET|STORE|LIMIT f|STORE|kl0 GET|STORE|BY kt1 STORE|ALPHA kl2",
        "GEORADIUS geo o a r km COUNT|STORE 3|STORE STORE|STOREDIST kz0",
        "XREADGROUP GROUP streams|g c|streams STREAMS kx kx > >",
        "XREADGROUP GROUP g c NOACK|COUNT|BLOCK 1 STREAMS|streams kx STREAMS > 0",
        "XREAD COUNT|BLOCK 1 STREAMS streams kx 0 0",
        "LMPOP 2|1|0|-1|9 kl kl LEFT",
        "BLMPOP 0.001 2|1|3 kl kl RIGHT COUNT 1",
        "BZMPOP 0.001 2 kz kz MIN",
        "BZPOPMIN kz kz 0.001",
        "OBJECT ENCODING|FREQ k",
        "MEMORY USAGE k",
        "RESTORE k 0 v",
        "MOVE k 1",
    ]);
    for step in 0..20_000 {
        let mut words = command(&mut random, &templates);
        match random.u8(0..4) {
            0 => {
                let (from, to) = (random.usize(0..words.len()), random.usize(0..words.len()));
                if from * to > 0 {
                    words.swap(from, to);
                }
            }
            1 if words.len() > 1 => {
                let at = random.usize(1..words.len());
                words[at] = words[random.usize(0..words.len())].clone();
            }
            2 if words.len() > 2 => drop(words.remove(random.usize(1..words.len()))),
            _ => {}
        }
        let forbidden = ["CLIENT", "SUBSCRIBE", "CONFIG", "RESET"];
        if !forbidden.contains(&words[0].as_str())
            && !words.iter().any(|word| word == "BLOCK" || word == "0.001")
        {
            let reply = format!("{:?}", wire.call(&words));
            assert!(!reply.contains("internal error"), "step {step}: {words:?} -> {reply}");
        }
    }
}

#[test]
fn figures_of_groups_do_not_take_time_for_what_is_pending() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("XGROUP CREATE s g 0 MKSTREAM");
    for n in 1..=300 {
        wire.say(&format!("XADD s {n}-1 f v"));
    }
    wire.say("XREADGROUP GROUP g a COUNT 200 STREAMS s >");
    wire.say("XREADGROUP GROUP g b STREAMS s >");
    assert_eq!(
        wire.say("XPENDING s g"),
        "*[:300, \"1-1\", \"300-1\", *[*[\"a\", \"200\"], *[\"b\", \"100\"]]]"
    );
    // The counts follow each change: acknowledged, claimed, delivered again, removed.
    assert_eq!(wire.say("XACK s g 1-1 2-1 299-1 299-1"), ":3");
    assert!(wire.say("XCLAIM s g b 0 3-1 4-1 JUSTID").contains("4-1"));
    assert_eq!(
        wire.say("XPENDING s g"),
        "*[:297, \"3-1\", \"300-1\", *[*[\"a\", \"196\"], *[\"b\", \"101\"]]]"
    );
    wire.say("XGROUP SETID s g 0");
    wire.say("XREADGROUP GROUP g a COUNT 4 STREAMS s >");
    assert_eq!(
        wire.say("XPENDING s g"),
        "*[:299, \"1-1\", \"300-1\", *[*[\"a\", \"200\"], *[\"b\", \"99\"]]]"
    );
    wire.say("XDEL s 10-1");
    assert!(
        wire.say("XAUTOCLAIM s g c 0 9-1 COUNT 3 JUSTID")
            .starts_with("*[\"12-1\", *[\"9-1\", \"11-1\"], *[\"10-1\"]]")
    );
    // Idle times vary, so they are not compared.
    for pending in [wire.say("XPENDING s g - + 2 c"), wire.say("XPENDING s g 9-1 11-1 2")] {
        assert!(pending.contains(r#"*["9-1", "c","#) && pending.contains(r#"*["11-1", "c","#), "{pending}");
    }
    assert_eq!(
        wire.say("XREADGROUP GROUP g c COUNT 1 STREAMS s 9-1"),
        "*[*[\"s\", *[*[\"11-1\", *[\"f\", \"v\"]]]]]"
    );
    assert!(wire.say("XINFO GROUPS s").contains("\"pending\", :298"));
    assert_eq!(wire.say("XGROUP DELCONSUMER s g a"), ":197");
    assert_eq!(wire.say("XPENDING s g"), "*[:101, \"9-1\", \"300-1\", *[*[\"b\", \"99\"], *[\"c\", \"2\"]]]");
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
    wire.say("XGROUP DESTROY s g");
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
}
