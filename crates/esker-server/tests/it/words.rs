//! Requests with wrong words get the errors of Redis, before a command is queued or run.

use crate::harness::{TestServer, until};

#[test]
fn subcommands_are_looked_at_before_they_are_queued() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (wrong, reply) in [
        ("OBJECT FOO k", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP."),
        ("OBJECT FREQ", "-ERR wrong number of arguments for 'object|freq' command"),
        ("XGROUP CREATE k", "-ERR wrong number of arguments for 'xgroup|create' command"),
        ("CONFIG RESETSTAT x", "-ERR wrong number of arguments for 'config|resetstat' command"),
        ("MEMORY DOCTOR x", "-ERR wrong number of arguments for 'memory|doctor' command"),
    ] {
        assert_eq!(wire.say(wrong), reply);
        assert_eq!(wire.say("MULTI"), "+OK");
        assert_eq!(wire.say(wrong), reply);
        assert!(wire.say("EXEC").starts_with("-EXECABORT"), "{wrong}");
    }
    // A subcommand with any number of words validates them itself.
    assert_eq!(wire.say("MEMORY USAGE k SAMPLES"), "-ERR syntax error");
    wire.say("MULTI");
    wire.say("SET k 1");
    assert!(wire.say("EXEC now").starts_with("-EXECABORT Transaction discarded because of: wrong number"));
    assert_eq!(wire.say("GET k"), "null", "the transaction is over");
    let info = wire.say("COMMAND INFO config");
    assert!(info.contains("\"config|set\", :-4") && info.contains("\"config|rewrite\", :2"), "{info}");
}

#[test]
fn a_connection_subscribes_in_a_transaction() {
    let server = TestServer::start();
    let (mut hearer, mut other) = (server.wire(), server.wire());
    for command in ["MULTI", "SUBSCRIBE a", "SET k 1", "UNSUBSCRIBE a", "SUBSCRIBE b c", "PSUBSCRIBE d*"] {
        hearer.say(command);
    }
    assert_eq!(
        hearer.say("EXEC"),
        "*[*[\"subscribe\", \"a\", :1], +OK, *[\"unsubscribe\", \"a\", :0], \
         -ERR subscribe to one name in each command of a transaction, *[\"psubscribe\", \"d*\", :1]]"
    );
    assert_eq!(other.say("PUBLISH dd x"), ":1");
    assert_eq!(format!("{:?}", hearer.reply()), "*[\"pmessage\", \"d*\", \"dd\", \"x\"]");
    assert!(hearer.say("GET k").starts_with("-ERR Can't execute 'get'"));
}

#[test]
fn zeros_have_no_sign_and_infinite_scores_are_added_in_the_order_of_redis() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("ZADD zeros -0 a");
    assert_eq!(wire.say("ZSCORE zeros a"), "\"0\"");
    wire.say("ZADD up inf x");
    wire.say("ZADD down -inf x 0 y");
    wire.say("ZUNIONSTORE sum 3 up down up");
    assert_eq!(wire.say("ZSCORE sum x"), "\"0\"");
    wire.say("ZINTERSTORE sum 2 up up WEIGHTS 1 0");
    assert_eq!(wire.say("ZSCORE sum x"), "\"0\"");
}

#[test]
fn claims_count_deliveries_and_lags_as_in_redis() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for n in 1..=10 {
        wire.say(&format!("XADD s {n}-1 f v"));
    }
    wire.say("XGROUP CREATE s g 1-1");
    let groups = |wire: &mut crate::wire::Wire| wire.say("XINFO GROUPS s");
    assert!(groups(&mut wire).ends_with("\"entries-read\", null, \"lag\", :9]]"));
    wire.say("XGROUP SETID s g 50");
    assert!(groups(&mut wire).ends_with("\"lag\", null]]"), "behind an id that is not there yet");
    let count = |wire: &mut crate::wire::Wire, claim: &str| {
        wire.say(&format!("XCLAIM s g c 0 2-1 {claim}"));
        wire.say("XPENDING s g 2-1 2-1 1").rsplit(' ').next().unwrap_or_default().to_owned()
    };
    assert_eq!(count(&mut wire, "FORCE"), ":2]]");
    assert_eq!(count(&mut wire, "RETRYCOUNT 7"), ":7]]");
    assert_eq!(count(&mut wire, "RETRYCOUNT -1"), ":8]]");
    assert_eq!(count(&mut wire, "JUSTID"), ":8]]");
    let last = u64::MAX;
    wire.say(&format!("XADD full {last}-{last} f v"));
    assert!(wire.say("XADD full * f v").starts_with("-ERR The stream has exhausted the last possible ID"));
}

#[test]
fn plus_reads_the_last_entry_of_a_stream() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (line, reply) in [
        ("XREAD STREAMS a +", "null"),
        ("XADD a 1-1 f v", "\"1-1\""),
        ("XADD a 2-1 f w", "\"2-1\""),
        ("XREAD COUNT 5 BLOCK 1 STREAMS a b + +", "*[*[\"a\", *[*[\"2-1\", *[\"f\", \"w\"]]]]]"),
        ("XDEL a 2-1", ":1"),
        ("XREAD STREAMS a +", "*[*[\"a\", *[*[\"1-1\", *[\"f\", \"v\"]]]]]"),
        ("XDEL a 1-1", ":1"),
        ("XREAD STREAMS a +", "null"),
        ("XREAD BLOCK 1 STREAMS a +", "null"),
    ] {
        assert_eq!(wire.say(line), reply, "{line}");
    }
    // A request that waits gets what is added behind the last id.
    wire.send(&["XREAD", "BLOCK", "0", "STREAMS", "a", "+"]);
    let mut other = server.wire();
    until(|| !other.say("INFO clients").contains("blocked_clients:0"));
    other.say("XADD a 3-1 f x");
    assert_eq!(format!("{:?}", wire.reply()), "*[*[\"a\", *[*[\"3-1\", *[\"f\", \"x\"]]]]]");
}
