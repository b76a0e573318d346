//! Users, from the point of view of clients.

use esker::Db;
use esker_server::{Options, Upstream};

use crate::harness::{TestServer, until};
use crate::node::{Node, assert_same, source};

const NOT_COMMAND: &str = "-NOPERM this user has no permissions to run";
const NOT_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments";

#[test]
fn a_user_may_do_what_the_rules_say() {
    let server = TestServer::start();
    let (mut admin, mut ann) = (server.wire(), server.wire());
    assert_eq!(admin.say("ACL WHOAMI"), "\"default\"");
    assert_eq!(admin.say("ACL SETUSER ann on >secret ~a* %R~r* &news +@all -flushall"), "+OK");
    assert!(ann.say("AUTH ann wrong").starts_with("-WRONGPASS"));
    assert!(ann.say("AUTH zoe secret").starts_with("-WRONGPASS"));
    assert_eq!(ann.say("ACL WHOAMI"), "\"default\"");
    assert_eq!(ann.say("AUTH ann secret"), "+OK");
    assert_eq!(ann.say("ACL WHOAMI"), "\"ann\"");
    assert_eq!(ann.say("SET a1 v"), "+OK");
    assert_eq!(ann.say("SET b1 v"), NOT_KEY);
    assert_eq!(ann.say("SET r1 v"), NOT_KEY);
    assert_eq!(ann.say("GET r1"), "null");
    for walks in ["ES.RANGE '' ''", "OB.TABLES", "ES.KS DROP x", "OB.KS DROP x"] {
        assert_eq!(ann.say(walks), NOT_KEY, "{walks}");
    }
    assert!(ann.say("FLUSHALL").starts_with(NOT_COMMAND));
    assert!(ann.say("SUBSCRIBE other").contains("channels"));
    ann.say("MULTI");
    assert_eq!(ann.say("SET b1 v"), NOT_KEY);
    assert!(ann.say("EXEC").starts_with("-EXECABORT"));
    // The right existed when the command was queued, but not when it runs (acl.1).
    ann.say("MULTI");
    assert_eq!(ann.say("SET a2 v"), "+QUEUED");
    assert_eq!(admin.say("ACL SETUSER ann -set"), "+OK");
    assert!(ann.say("EXEC").starts_with("*[-NOPERM"));
    if cfg!(feature = "lua") {
        ann.send(&["EVAL", "return redis.call('SET', 'a3', 'v')", "0"]);
        assert!(format!("{:?}", ann.reply()).contains("NOPERM"));
    }
    assert_eq!(admin.say("EXISTS a2 a3 b1"), ":0");
    let log = admin.say("ACL LOG 100");
    let inside = "\"command\", \"context\", \"multi\", \"object\", \"set\"";
    for part in ["\"auth\"", "\"key\"", "\"channel\"", inside, "user=ann"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert_eq!(admin.say("ACL DRYRUN ann GET a1"), "+OK");
    assert_eq!(admin.say("ACL DRYRUN ann GET z"), "\"This user has no permissions to access the 'z' key\"");
    assert!(admin.say("CLIENT LIST").contains("user=ann"));
    admin.say("CONFIG SET slowlog-log-slower-than 0");
    admin.say("ACL SETUSER bob on >hidden");
    admin.say("AUTH bob hidden");
    let slow = ann.say("SLOWLOG GET 100");
    assert!(slow.contains("SETUSER") && slow.contains("AUTH") && !slow.contains("hidden"), "{slow}");
    assert_eq!(server.wire().say("ACL DELUSER ann zoe"), ":1");
    assert!(ann.try_reply().is_none());
}

#[test]
fn users_are_kept_in_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("users.acl");
    let options = Options { acl_file: Some(path.clone()), ..Options::default() };
    {
        let server = TestServer::start_with(Db::in_memory().unwrap(), options.clone());
        let mut admin = server.wire();
        assert_eq!(admin.say("ACL SETUSER ann on >secret ~* +@read"), "+OK");
        assert_eq!(admin.say("ACL SETUSER default >main"), "+OK");
        assert_eq!(admin.say("ACL SAVE"), "+OK");
        assert_eq!(admin.say("ACL SETUSER bob on nopass +@all"), "+OK");
        assert_eq!(admin.say("ACL LOAD"), "+OK");
        assert_eq!(admin.say("ACL USERS"), "*[\"ann\", \"default\"]");
    }
    let server = TestServer::start_with(Db::in_memory().unwrap(), options.clone());
    let mut ann = server.wire();
    assert_eq!(ann.say("GET k"), "-NOAUTH Authentication required.");
    assert!(ann.say("HELLO 3 AUTH ann secret").starts_with("%["));
    assert_eq!(ann.say("GET k"), "null");
    assert!(ann.say("SET k v").starts_with(NOT_COMMAND));
    std::fs::write(&path, "user ann on nosuchrule\n").unwrap();
    let mut admin = server.wire();
    assert_eq!(admin.say("AUTH main"), "+OK");
    assert!(admin.say("ACL LOAD").contains("users.acl:1"));
    assert_eq!(ann.say("GET k"), "null");
}

#[test]
fn rights_go_by_the_keys_that_a_command_uses() {
    let server = TestServer::start();
    let (mut root, mut wire) = (server.wire(), server.wire());
    for line in [
        "ACL SETUSER app on >pw ~app:* ~STREAMS +@all",
        "XADD secret 1-1 f v",
        "XGROUP CREATE secret streams 0",
        "XADD app:x 1-1 f v",
        "XGROUP CREATE app:x streams 0",
        "RPUSH app:list a",
    ] {
        root.say(line);
    }
    wire.say("AUTH app pw");
    for refused in [
        "XREADGROUP GROUP streams app:c STREAMS secret >",
        "XREADGROUP GROUP streams app:c COUNT 1 STREAMS secret app:x > >",
        "SORT app:list STORE secret",
        "SORT app:list BY x STORE secret",
        "SORT app:list GET app:*",
    ] {
        assert!(wire.say(refused).starts_with("-NOPERM"), "{refused}");
    }
    assert!(wire.say("XREADGROUP GROUP streams c STREAMS app:x >").contains("1-1"));
    assert_eq!(wire.say("SORT app:list BY x STORE app:by"), ":1");
    assert_eq!(wire.say("COMMAND GETKEYS XREADGROUP GROUP streams c STREAMS a >"), "*[\"a\"]");
    assert_eq!(wire.say("ACL SETUSER ''"), "-ERR Usernames can't be empty");
}

#[test]
fn a_user_has_a_bounded_number_of_slow_passwords() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let mut words = vec!["ACL".to_owned(), "SETUSER".to_owned(), "ann".to_owned()];
    // Hashes of low cost: a new password is compared with all of them.
    let hash =
        |n: u8| format!("#$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ${}{}", char::from(b'A' + n), "A".repeat(42));
    words.extend((0..25).map(hash));
    words.extend((25..31).map(|n| hash(n + 7)));
    words.extend([">p31".to_owned(), ">p32".to_owned()]);
    let reply = format!("{:?}", wire.call(&words));
    assert_eq!(reply, "-ERR Error in ACL SETUSER modifier '>': The user has 32 passwords: remove some");
    assert_eq!(wire.say("ACL GETUSER ann"), "null");
    words.pop();
    assert_eq!(format!("{:?}", wire.call(&words)), "+OK", "32 passwords are allowed");
    assert_eq!(wire.say("ACL SETUSER ann reset >p0 >p1 >p0 <p1 on ~* +@all"), "+OK");
    assert_eq!(wire.say("AUTH ann p0"), "+OK");
    assert!(wire.say("AUTH ann p1").starts_with("-WRONGPASS"));
}

#[test]
fn a_replica_logs_in_as_a_user() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Node::start(&dir.path().join("a"));
    assert_eq!(primary.say("ACL SETUSER copier on >word +es.replicate +ping"), "+OK");
    assert_eq!(primary.say("SET k v"), "+OK");
    let upstream =
        Upstream { user: "copier".to_owned(), password: "wrong".to_owned(), ..Upstream::default() };
    let options = Options { upstream, replica_of: Some(source(primary.port())), ..Options::default() };
    let replica = Node::start_with(&dir.path().join("b"), options, 64 << 20);
    until(|| replica.info("master_link_error").contains("WRONGPASS"));
    assert_eq!(replica.say("CONFIG SET timeout 77"), "+OK");
    assert_eq!(replica.say("ACL SETUSER local on >own +@all"), "+OK");
    assert_eq!(replica.say("CONFIG SET masterauth word"), "+OK");
    assert_same(&primary, &replica);
    assert_eq!(replica.say("CONFIG GET masteruser"), "*[\"masteruser\", \"copier\"]");
    // It has restarted with a copy, and keeps its parameters and users.
    until(|| replica.info("master_link_status") == "up");
    until(|| primary.say("CLIENT LIST TYPE replica").contains("user=copier"));
    let line = primary.say("CLIENT LIST TYPE replica");
    assert!(line.contains("flags=S") && line.contains("cmd=es.replicate"), "{line}");
    assert_eq!(replica.say("CONFIG GET timeout"), "*[\"timeout\", \"77\"]");
    assert_eq!(replica.say("AUTH local own"), "+OK");
}
