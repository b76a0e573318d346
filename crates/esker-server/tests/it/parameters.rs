//! Parameters that change while the server runs.

use esker::Db;
use esker_server::{Fsync, Options};

use crate::harness::TestServer;

#[test]
fn passwords_are_set_and_taken_away_at_run_time() {
    let options = Options { password: "2024".to_owned(), ..Options::default() };
    let server = TestServer::start_with(Db::in_memory().unwrap(), options);
    let mut wire = server.wire();
    assert_eq!(wire.say("AUTH 2024"), "+OK");
    let mut before = "2024";
    for password in ["s3cret", "yes", "7", "no", "everysec", "42"] {
        assert_eq!(wire.say(&format!("CONFIG SET requirepass {password}")), "+OK");
        assert!(server.wire().say(&format!("AUTH {before}")).starts_with("-WRONGPASS"), "{before}");
        assert_eq!(server.wire().say(&format!("AUTH {password}")), "+OK");
        before = password;
    }
    for password in ["2024", "s3cret", "yes", "word", "''"] {
        assert_eq!(wire.say(&format!("CONFIG SET masterauth {password}")), "+OK", "{password}");
    }
    // A password that is not UTF-8 would be altered.
    let refused = wire.call(&[&b"CONFIG"[..], b"SET", b"requirepass", b"\xFF"]);
    assert!(format!("{refused:?}").starts_with("-ERR CONFIG SET failed"), "{refused:?}");
    assert_eq!(server.wire().say("AUTH 42"), "+OK");
    assert_eq!(wire.say("CONFIG SET requirepass ''"), "+OK");
    assert_eq!(server.wire().say("PING"), "+PONG");
}

#[test]
fn durability_changes_at_run_time() {
    for fsync in [Fsync::Never, Fsync::EverySecond, Fsync::Always] {
        let options = Options { fsync, ..Options::default() };
        let server = TestServer::start_with(Db::in_memory().unwrap(), options);
        let mut wire = server.wire();
        for name in ["no", "always", "everysec", "no", "everysec", "always", "no"] {
            assert_eq!(wire.say(&format!("CONFIG SET appendfsync {name}")), "+OK", "{name}");
            assert_eq!(wire.say("CONFIG GET appendfsync"), format!("*[\"appendfsync\", \"{name}\"]"));
        }
        assert!(wire.say("CONFIG SET appendfsync yes").starts_with("-ERR CONFIG SET failed"));
    }
}

#[test]
fn values_that_mean_nothing_are_refused() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for wrong in [
        "timeout -1",
        "timeout 2147483648",
        "transaction-timeout -1",
        "replica-sync-ms -1",
        "latency-monitor-threshold -1",
        "busy-reply-threshold -1",
        "slowlog-max-len -1",
        "acllog-max-len -1",
        "acl-pubsub-default allchannels",
        "acl-pubsub-default 1",
        "protected-mode 1",
        "loglevel loud",
    ] {
        let reply = wire.say(&format!("CONFIG SET {wrong}"));
        assert!(reply.starts_with("-ERR CONFIG SET failed"), "{wrong}: {reply}");
    }
    for right in ["timeout 0", "slowlog-log-slower-than -1", "acl-pubsub-default resetchannels", "save ''"] {
        assert_eq!(wire.say(&format!("CONFIG SET {right}")), "+OK", "{right}");
    }
}

#[test]
fn the_log_of_refusals_is_cut_when_its_length_is_set() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("ACL SETUSER ann on nopass ~*");
    let mut ann = server.wire();
    ann.say("AUTH ann x");
    for line in ["GET k", "SET k v", "DEL k"] {
        assert!(ann.say(line).starts_with("-NOPERM"));
    }
    assert_eq!(wire.say("CONFIG SET acllog-max-len 1"), "+OK");
    let log = wire.say("ACL LOG");
    assert_eq!(log.matches("\"count\"").count(), 1, "{log}");
}

#[test]
fn subcommands_that_are_not_known_are_errors() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for line in ["DEBUG NOPE", "DEBUG SLEEPS 1", "DEBUG SLEEP"] {
        assert!(wire.say(line).starts_with("-ERR"), "{line}");
    }
    for line in ["DEBUG JMAP", "DEBUG SET-ACTIVE-EXPIRE 0", "DEBUG SLEEP 0"] {
        assert_eq!(wire.say(line), "+OK", "{line}");
    }
}

#[test]
fn dropping_a_keyspace_is_dangerous() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("ES.KS CREATE mine");
    wire.say("ACL SETUSER ann on nopass ~* &* +@all -@dangerous");
    let mut ann = server.wire();
    ann.say("AUTH ann x");
    for line in ["ES.KS DROP mine", "OB.KS DROP mine"] {
        assert!(ann.say(line).starts_with("-NOPERM"), "{line}");
    }
    assert_eq!(ann.say("ES.KS USE mine"), "+OK");
    assert_eq!(wire.say("ES.KS DROP mine"), "+OK");
}
