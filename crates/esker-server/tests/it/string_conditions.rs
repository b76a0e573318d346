//! Strings that are set or removed only if they have a value, or a digest of it.

use crate::harness::TestServer;

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const WRONG_DIGEST: &str = "-ERR digest must be exactly 16 hexadecimal characters";

#[test]
fn set_compares_the_old_value() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (line, reply) in [
        ("SET a v1 IFEQ x", "null"),
        ("EXISTS a", ":0"),
        ("SET a v1 IFDEQ short", "null"),
        ("SET a v0 IFDNE short", "+OK"),
        ("DEL a", ":1"),
        ("SET a v1 IFNE x", "+OK"),
        ("SET a v2 IFNE v1", "null"),
        ("SET a v2 ifeq v1 PX 100000", "+OK"),
        ("TTL a", ":100"),
        ("SET a v3 IFEQ none EX 5", "null"),
        ("TTL a", ":100"),
        ("SET a v3 KEEPTTL IFEQ v2", "+OK"),
        ("TTL a", ":100"),
        ("SET a v4 IFEQ v3 GET", "\"v3\""),
        ("SET a v5 GET IFEQ v3", "\"v4\""),
        ("GET a", "\"v4\""),
        ("TTL a", ":-1"),
        ("SET a hello", "+OK"),
        ("DIGEST a", "\"9555e8555c62dcfd\""),
        ("SET a x IFDNE 9555e8555c62dcfd", "null"),
        ("SET a x IFDEQ 0000000000000000", "null"),
        ("SET a 0123 IFDEQ 9555E8555C62DCFD", "+OK"),
        ("SET a x IFEQ 123", "null"),
        ("SET a x IFDEQ 12", WRONG_DIGEST),
        ("SET a x IFDNE 12345678901234567", WRONG_DIGEST),
        ("GET a", "\"0123\""),
        ("SET a x IFEQ", "-ERR syntax error"),
        ("SET a x IFEQ 0123 NX", "-ERR syntax error"),
        ("SET a x XX IFEQ 0123", "-ERR syntax error"),
        ("SET a x IFEQ 0123 IFNE y", "-ERR syntax error"),
        ("SET a x IFEQ 0123 IFEQ 0123", "-ERR syntax error"),
        ("RPUSH list a", ":1"),
        ("SET list x IFEQ a", WRONG_TYPE),
        ("SET list x IFDNE a", WRONG_TYPE),
        ("SET list x GET IFEQ a", WRONG_TYPE),
        ("TYPE list", "+list"),
    ] {
        assert_eq!(wire.say(line), reply, "{line}");
    }
}

#[test]
fn delex_removes_what_fits() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let arity = "-ERR wrong number of arguments for 'delex' command";
    for (line, reply) in [
        ("DELEX none", ":0"),
        ("DELEX none FOO x", ":0"),
        ("DELEX none IFNE x", ":0"),
        ("DELEX none IFEQ", arity),
        ("DELEX none IFEQ a b", arity),
        ("SET a hello", "+OK"),
        ("DELEX a FOO x", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"),
        ("DELEX a IFEQ other", ":0"),
        ("DELEX a IFNE hello", ":0"),
        ("DELEX a IFDEQ zzzzzzzzzzzzzzzz", ":0"),
        ("DELEX a IFDNE 9555e8555c62dcfd", ":0"),
        ("DELEX a IFDEQ short", WRONG_DIGEST),
        ("DELEX a IFDNE ''", WRONG_DIGEST),
        ("GET a", "\"hello\""),
        ("DELEX a IFDEQ 9555E8555C62DCFD", ":1"),
        ("EXISTS a", ":0"),
        ("SET a 0123 EX 100", "+OK"),
        ("DELEX a IFEQ 123", ":0"),
        ("DELEX a IFNE 123", ":1"),
        ("RPUSH list a", ":1"),
        ("DELEX list IFEQ a", "-ERR Key should be of string type if conditions are specified"),
        ("DELEX list FOO a", "-ERR Key should be of string type if conditions are specified"),
        ("DIGEST list", WRONG_TYPE),
        ("DIGEST none", "null"),
        ("DELEX list", ":1"),
        ("DBSIZE", ":0"),
        ("ES.VERIFY", "*[]"),
    ] {
        assert_eq!(wire.say(line), reply, "{line}");
    }
}

#[test]
fn msetex_sets_all_or_none() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let time = "-ERR invalid expire time in 'msetex' command";
    for (line, reply) in [
        ("MSETEX 2 a 1 b 2", ":1"),
        ("MGET a b", "*[\"1\", \"2\"]"),
        ("TTL a", ":-1"),
        ("MSETEX 2 a 3 c 3 NX", ":0"),
        ("MSETEX 2 a 3 c 3 XX", ":0"),
        ("MGET a b c", "*[\"1\", \"2\", null]"),
        ("MSETEX 2 a 3 b 4 XX EX 100", ":1"),
        ("MSETEX 1 c 5 PX 200000 NX", ":1"),
        ("MGET a b c", "*[\"3\", \"4\", \"5\"]"),
        ("TTL a", ":100"),
        ("TTL b", ":100"),
        ("TTL c", ":200"),
        ("MSETEX 2 a 6 d 7 KEEPTTL", ":1"),
        ("TTL a", ":100"),
        ("TTL d", ":-1"),
        ("MSETEX 2 a 8 a 9 EXAT 60000000000", ":1"),
        ("GET a", "\"9\""),
        ("EXPIRETIME a", ":60000000000"),
        ("MSETEX 1 b 4", ":1"),
        ("TTL b", ":-1"),
        ("RPUSH list x", ":1"),
        ("MSETEX 1 list text XX", ":1"),
        ("GET list", "\"text\""),
        ("MSETEX 0 a 1", "-ERR invalid numkeys value"),
        ("MSETEX x a 1", "-ERR invalid numkeys value"),
        ("MSETEX 2 a 1", "-ERR wrong number of key-value pairs"),
        ("MSETEX 1 a 1 b 2", "-ERR syntax error"),
        ("MSETEX 1 a 1 NX XX", "-ERR syntax error"),
        ("MSETEX 1 a 1 EX", "-ERR syntax error"),
        ("MSETEX 1 a 1 EX 1 KEEPTTL", "-ERR syntax error"),
        ("MSETEX 1 a 1 PERSIST", "-ERR syntax error"),
        ("MSETEX 1 a 1 EX 0", time),
        ("GET a", "\"9\""),
        ("COMMAND GETKEYS MSETEX 2 a 1 b 2 EX 5", "*[\"a\", \"b\"]"),
        ("ES.VERIFY", "*[]"),
    ] {
        assert_eq!(wire.say(line), reply, "{line}");
    }
}
