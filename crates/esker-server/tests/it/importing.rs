//! `import-mode` and `CLIENT IMPORT-SOURCE`, and what replication streams of Redis need of `XCLAIM`.

use std::time::Duration;

use crate::harness::{TestServer, until};
use crate::wire::Wire;

fn expect(wire: &mut Wire, lines: &[(&str, &str)]) {
    for (line, reply) in lines {
        assert_eq!(wire.say(line), *reply, "{line}");
    }
}

#[test]
fn an_import_meets_keys_and_fields_after_their_end() {
    let server = TestServer::start();
    let (mut import, mut client) = (server.wire(), server.wire());
    assert!(import.say("CLIENT IMPORT-SOURCE ON").contains("not in import mode"));
    let (past, future) = ("1000000000000", "4000000000000");
    expect(&mut client, &[("CONFIG SET import-mode yes", "+OK"), ("SET short v PX 1", "+OK")]);
    expect(
        &mut import,
        &[
            ("CLIENT IMPORT-SOURCE ON", "+OK"),
            ("MSET k v gone v", "+OK"),
            ("HSET h f 1 g 2", ":2"),
            ("RPUSH l a", ":1"),
            (&format!("PEXPIREAT k {past}"), ":1"),
            (&format!("PEXPIREAT gone {past}"), ":1"),
            (&format!("PEXPIREAT l {past}"), ":1"),
            (&format!("HPEXPIREAT h {past} FIELDS 2 f g"), "*[:1, :1]"),
        ],
    );
    // Others do not see them, and nothing removes them.
    expect(&mut client, &[("MGET k gone short", "*[null, null, null]"), ("HLEN h", ":0"), ("LLEN l", ":0")]);
    std::thread::sleep(Duration::from_millis(400));
    expect(
        &mut import,
        &[
            ("GET k", "\"v\""),
            ("PTTL k", ":0"),
            ("HMGET h f g", "*[\"1\", \"2\"]"),
            ("MULTI", "+OK"),
            ("RPUSH l b", "+QUEUED"),
            (&format!("PEXPIREAT l {future}"), "+QUEUED"),
            ("EXEC", "*[:2, :1]"),
            (&format!("PEXPIREAT k {future}"), ":1"),
            (&format!("HPEXPIREAT h {future} FIELDS 1 f"), "*[:1]"),
        ],
    );
    expect(&mut client, &[("GET k", "\"v\""), ("HGETALL h", "*[\"f\", \"1\"]"), ("LLEN l", ":2")]);
    assert_eq!(client.say("ES.VERIFY"), "*[]");
    assert_eq!(client.say("CONFIG SET import-mode no"), "+OK");
    until(|| client.say("DBSIZE") == ":3");
    assert_eq!(import.say("RESET"), "+RESET");
    expect(&mut import, &[(&format!("PEXPIREAT k {past}"), ":1"), ("EXISTS k", ":0")]);
    assert_eq!(client.say("ES.VERIFY"), "*[]");
}

#[test]
fn claims_advance_a_group() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let last = |wire: &mut Wire| {
        wire.say("XINFO GROUPS s").split("\"last-delivered-id\", ").nth(1).map(str::to_owned)
    };
    expect(
        &mut wire,
        &[
            ("XADD s 1-1 a b", "\"1-1\""),
            ("XADD s 2-1 a b", "\"2-1\""),
            ("XGROUP CREATE s g 0", "+OK"),
            ("XCLAIM s g c 0 1-1 TIME 5 RETRYCOUNT 3 FORCE JUSTID LASTID 2-1", "*[\"1-1\"]"),
        ],
    );
    assert!(last(&mut wire).is_some_and(|rest| rest.starts_with("\"2-1\"")));
    assert_eq!(wire.say("XCLAIM s g c 0 1-1 JUSTID LASTID 1-1"), "*[\"1-1\"]");
    assert!(last(&mut wire).is_some_and(|rest| rest.starts_with("\"2-1\"")));
    assert_eq!(wire.say("XREADGROUP GROUP g c STREAMS s >"), "null");
    assert!(wire.say("XCLAIM s g c 0 1-1 LASTID x").starts_with("-ERR"));
    assert!(wire.say("XCLAIM s g c 0 1-1 LASTID").starts_with("-ERR"));
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
}
