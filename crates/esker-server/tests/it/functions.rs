//! Libraries of functions: `FUNCTION` and `FCALL`.

use std::time::Duration;

use esker::Db;
use esker_server::Options;

use crate::harness::{TestServer, until};
use crate::node::Node;
use crate::wire::{Reply, Wire};

const LIBRARY: &str = "#!lua name=mylib
local calls = 0
redis.register_function('set', function(keys, args)
    calls = calls + 1
    return redis.call('SET', keys[1], args[1])
end)
redis.register_function{function_name = 'get', callback = function(keys) return redis.call('GET', keys[1]) end,
    flags = {'no-writes', 'allow-stale'}, description = 'reads'}
redis.register_function('calls', function() return calls end)
redis.register_function('bad', function() redis.call('LPUSH', 'text', 1) end)
redis.register_function('globals', function() return KEYS end)
redis.register_function{function_name = 'lies', callback = function(keys) return redis.call('DEL', keys[1]) end,
    flags = {'no-writes'}}
redis.register_function('spin', function(keys) redis.call('SET', keys[1], 'spun') while true do end end)";

/// Returns a library with one function that returns a number.
fn numbered(library: &str, function: &str, n: u32) -> String {
    format!("#!lua name={library}\nredis.register_function('{function}', function() return {n} end)")
}

fn load(wire: &mut Wire, source: &str) -> String {
    format!("{:?}", wire.call(&["FUNCTION", "LOAD", source]))
}

fn replace(wire: &mut Wire, source: &str) -> String {
    format!("{:?}", wire.call(&["FUNCTION", "LOAD", "REPLACE", source]))
}

#[test]
fn functions_are_called_by_their_names() {
    let server = TestServer::start();
    let mut wire = server.wire();
    assert_eq!(load(&mut wire, LIBRARY), "\"mylib\"");
    for (line, reply) in [
        ("FCALL set 1 k v", "+OK"),
        ("FCALL get 1 k", "\"v\""),
        ("FCALL_RO get 1 k", "\"v\""),
        ("FCALL calls 0", ":1"),
        ("FCALL_RO set 1 k v", "-ERR Can not execute a script with write flag using *_ro command."),
        ("FCALL none 0", "-ERR Function not found"),
        ("FCALL get x", "-ERR Bad number of keys provided"),
        ("FCALL get -1", "-ERR Number of keys can't be negative"),
        ("FCALL get 2 k", "-ERR Number of keys can't be greater than number of args"),
        (
            "FCALL lies 1 k",
            "-ERR Write commands are not allowed from read-only scripts. script: lies, on @user_function:",
        ),
        (
            "FCALL globals 0",
            "-ERR user_function:11: Script attempted to access nonexistent global variable 'KEYS'",
        ),
        (
            "FUNCTION STATS",
            "*[\"running_script\", null, \"engines\", *[\"LUA\", *[\"libraries_count\", :1, \"functions_count\", :7]]]",
        ),
        ("FUNCTION KILL", "-NOTBUSY No scripts in execution right now."),
        ("FUNCTION DELETE none", "-ERR Library not found"),
        ("FUNCTION FLUSH x", "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
        ("FUNCTION RESTORE xx", "-ERR DUMP payload version or checksum are wrong"),
        (
            "FUNCTION RESTORE xx foo",
            "-ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
        ),
        ("FUNCTION LIST LIBRARYNAME", "-ERR library name argument was not given"),
        ("FUNCTION LIST foo", "-ERR Unknown argument foo"),
        ("FUNCTION LIST LIBRARYNAME no*", "*[]"),
        ("FUNCTION LOAD REPLAC x", "-ERR Unknown option given: REPLAC"),
        ("FUNCTION foo", "-ERR unknown subcommand 'foo'. Try FUNCTION HELP."),
    ] {
        let said = wire.say(line);
        assert!(said == reply || reply.starts_with('-') && said.starts_with(reply), "{line}: {said}");
    }
    wire.say("SET text 1");
    assert!(wire.say("FCALL bad 0").starts_with("-WRONGTYPE"));
    // A script before leaves nothing to a function.
    wire.call(&["EVAL", "return 1", "1", "key"]);
    assert!(wire.say("FCALL globals 0").starts_with("-ERR user_function"));
    let list = wire.say("FUNCTION LIST LIBRARYNAME my* WITHCODE");
    assert!(
        list.contains("\"library_name\", \"mylib\", \"engine\", \"LUA\"")
            && list.contains("#!lua name=mylib")
    );
    assert!(list.contains(
        "*[\"name\", \"get\", \"description\", \"reads\", \"flags\", *[\"allow-stale\", \"no-writes\"]]"
    ));
    assert_eq!(wire.say("FUNCTION DELETE mylib"), "+OK");
    assert_eq!(
        (wire.say("FCALL get 1 k"), wire.say("FUNCTION LIST")),
        ("-ERR Function not found".into(), "*[]".into())
    );
    assert_eq!(wire.say("ES.VERIFY"), "*[]");
}

#[test]
fn faulty_libraries_are_refused_with_the_errors_of_redis() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (source, error) in [
        ("return 1", "Missing library metadata"),
        ("#!lua\nreturn 1", "Library name was not given"),
        ("#!lua name=a", "Invalid library metadata"),
        ("#!js name=a\nx", "Engine 'js' not found"),
        (
            "#!lua name=a-b\nx",
            "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long",
        ),
        ("#!lua name=a foo=b\nx", "Invalid metadata value given: foo=b"),
        ("#!lua name=a name=b\nx", "Invalid metadata value, name argument was given multiple times"),
        ("#!lua name=a\nreturn 1", "No functions registered"),
        ("#!lua name=a\nreturn return", "Error compiling function: user_function:2: "),
    ] {
        let said = load(&mut wire, source);
        assert!(said.starts_with(&format!("-ERR {error}")), "{source}: {said}");
    }
    for (code, error) in [
        (
            "('a')",
            "calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
        ),
        ("()", "wrong number of arguments to redis.register_function"),
        ("('a', 'b')", "second argument to redis.register_function must be a function"),
        ("({}, function() end)", "first argument to redis.register_function must be a string"),
        ("('a-b', function() end)", "Library names can only contain letters"),
        ("{function_name = 'a'}", "redis.register_function must get a callback argument"),
        ("{callback = function() end}", "redis.register_function must get a function name argument"),
        (
            "{function_name = 'a', callback = function() end, x = 1}",
            "unknown argument given to redis.register_function",
        ),
        ("{function_name = 'a', callback = function() end, flags = {'foo'}}", "unknown flag given"),
        (
            "{function_name = 'a', callback = function() end, flags = 'x'}",
            "flags argument to redis.register_function must be a table representing function flags",
        ),
        (
            "{function_name = 'a', callback = 1}",
            "callback argument given to redis.register_function must be a function",
        ),
        (
            "('a', function() end) redis.register_function('a', function() end)",
            "Function already exists in the library",
        ),
    ] {
        let said = load(&mut wire, &format!("#!lua name=a\nredis.register_function{code}"));
        assert!(
            said.starts_with(&format!("-ERR Error registering functions: ERR {error}")),
            "{code}: {said}"
        );
    }
}

#[test]
fn libraries_are_loaded_and_replaced_whole() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for code in ["redis.call('GET', 'x')", "x = 1", "local t = redis; t.call = 1", "error_('x')"] {
        let said = load(&mut wire, &format!("#!lua name=a\n{code}"));
        assert!(
            said.starts_with("-ERR Error registering functions: ERR user_function:2: "),
            "{code}: {said}"
        );
    }
    assert_eq!(load(&mut wire, &numbered("a", "f", 1)), "\"a\"");
    assert_eq!(load(&mut wire, &numbered("a", "g", 1)), "-ERR Library 'a' already exists");
    assert_eq!(load(&mut wire, &numbered("b", "f", 1)), "-ERR Function f already exists");
    assert_eq!(replace(&mut wire, &numbered("a", "g", 2)), "\"a\"");
    assert_eq!(
        (wire.say("FCALL f 0"), wire.say("FCALL g 0")),
        ("-ERR Function not found".into(), ":2".into())
    );
    // A replacement that fails leaves the old library.
    assert!(replace(&mut wire, "#!lua name=a\nreturn 1").starts_with("-ERR"));
    assert_eq!(wire.say("FCALL g 0"), ":2");
    let large = format!("#!lua name=large\n--{}", "x".repeat(2 << 20));
    assert!(load(&mut wire, &large).starts_with("-ERR"));
}

#[test]
fn dumps_are_restored_by_three_policies() {
    let server = TestServer::start();
    let mut wire = server.wire();
    load(&mut wire, &numbered("a", "f", 1));
    load(&mut wire, &numbered("b", "g", 2));
    let Reply::Bulk(dump) = wire.call(&["FUNCTION", "DUMP"]) else { panic!("no dump") };
    let restore = |wire: &mut Wire, dump: &[u8], policy: &str| {
        let mut words: Vec<&[u8]> = vec![b"FUNCTION", b"RESTORE", dump];
        words.extend((!policy.is_empty()).then_some(policy.as_bytes()));
        format!("{:?}", wire.call(&words))
    };
    replace(&mut wire, &numbered("a", "f", 3));
    load(&mut wire, &numbered("c", "h", 4));
    for policy in ["", "APPEND"] {
        assert_eq!(restore(&mut wire, &dump, policy), "-ERR Library a already exists");
    }
    assert_eq!(restore(&mut wire, &dump, "REPLACE"), "+OK");
    assert_eq!((wire.say("FCALL f 0"), wire.say("FCALL h 0")), (":1".into(), ":4".into()));
    assert_eq!(restore(&mut wire, &dump, "FLUSH"), "+OK");
    assert_eq!(wire.say("FCALL h 0"), "-ERR Function not found");
    assert_eq!(wire.say("FUNCTION FLUSH"), "+OK");
    assert_eq!(restore(&mut wire, &dump, ""), "+OK");
    assert_eq!((wire.say("FCALL f 0"), wire.say("FCALL g 0")), (":1".into(), ":2".into()));
    for at in [0, 5, dump.len() / 2, dump.len() - 1] {
        let mut broken = dump.clone();
        broken[at] ^= 1;
        assert!(restore(&mut wire, &broken, "REPLACE").starts_with("-ERR DUMP payload"), "byte {at}");
        assert!(restore(&mut wire, &dump[..at], "REPLACE").starts_with("-ERR DUMP payload"), "length {at}");
    }
}

#[test]
fn libraries_are_changed_and_used_in_transactions() {
    let server = TestServer::start();
    let (mut wire, mut other) = (server.wire(), server.wire());
    for words in [
        &["MULTI"][..],
        &["FUNCTION", "LOAD", &numbered("a", "f", 1)],
        &["FCALL", "f", "0"],
        &["FUNCTION", "LOAD", "REPLACE", &numbered("a", "f", 2)],
        &["FCALL", "f", "0"],
        &["SET", "k", "1"],
    ] {
        wire.call(words);
    }
    assert_eq!(other.say("FCALL f 0"), "-ERR Function not found");
    assert_eq!(wire.say("EXEC"), "*[\"a\", :1, \"a\", :2, +OK]");
    assert_eq!(other.say("FCALL f 0"), ":2");
    // A transaction that is ended leaves the libraries as they were.
    replace(&mut other, LIBRARY);
    wire.say("MULTI");
    wire.call(&["FUNCTION", "LOAD", "REPLACE", &numbered("a", "f", 3)]);
    wire.say("FCALL f 0");
    wire.say("FCALL spin 1 k");
    wire.send(&["EXEC"]);
    until(|| other.say("SCRIPT KILL") == "+OK");
    let reply = format!("{:?}", wire.reply());
    assert!(reply.starts_with("-ERR") || reply.starts_with("-"), "{reply}");
    assert_eq!((other.say("FCALL f 0"), other.say("GET k")), (":2".into(), "\"1\"".into()));
    assert_eq!(other.say("FLUSHALL"), "+OK");
    assert_eq!(other.say("FCALL f 0"), ":2", "functions are no keys");
}

#[test]
fn a_function_that_runs_for_long_is_shown_and_killed() {
    let server = TestServer::start();
    let (mut wire, mut other) = (server.wire(), server.wire());
    load(&mut wire, LIBRARY);
    wire.say("CONFIG SET busy-reply-threshold 50");
    wire.send(&["FCALL", "spin", "1", "k"]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(other.say("GET k").starts_with("-BUSY"));
    let stats = other.say("FUNCTION STATS");
    assert!(
        stats.contains("\"name\", \"spin\", \"command\", *[\"FCALL\", \"spin\", \"1\", \"k\"]"),
        "{stats}"
    );
    assert_eq!(other.say("FUNCTION KILL"), "+OK");
    assert!(format!("{:?}", wire.reply()).starts_with("-ERR"));
    assert_eq!((other.say("GET k"), other.say("FCALL set 1 k v")), ("null".into(), "+OK".into()));
}

#[test]
fn rights_are_those_of_the_user_who_calls() {
    let server = TestServer::start();
    let (mut wire, mut ann) = (server.wire(), server.wire());
    load(&mut wire, LIBRARY);
    wire.say("ACL SETUSER ann on nopass ~mine:* +fcall +fcall_ro +get +function|list");
    ann.say("AUTH ann x");
    assert_eq!(ann.say("FCALL get 1 mine:1"), "null");
    assert!(ann.say("FCALL get 1 other").starts_with("-NOPERM"));
    let denied = ann.say("FCALL set 1 mine:1 v");
    assert!(denied.contains("NOPERM") || denied.contains("permissions"), "{denied}");
    assert!(ann.say("FUNCTION FLUSH").starts_with("-NOPERM"));
    assert!(ann.say("FUNCTION LIST").contains("mylib"));
    let categories = wire.say("COMMAND INFO fcall function");
    assert!(categories.contains("@scripting"), "{categories}");
    assert!(wire.say("ACL CAT scripting").contains("fcall_ro"));
    assert!(wire.say("COMMAND DOCS fcall").contains("Runs a function of a library."));
}

const RIGHTS: &str = "#!lua name=rights
redis.register_function{function_name = 'peek', flags = {'no-writes'},
    callback = function(keys, args) return redis.call('GET', args[1]) end}
redis.register_function('poke', function(keys, args) return redis.call('SET', args[1], 'x') end)
redis.register_function('say', function(keys, args) return redis.call('PUBLISH', args[1], 'x') end)
redis.register_function('both', function(keys, args)
    redis.call('SET', args[1], 'y')
    return redis.call('SET', args[2], 'y')
end)";

#[test]
fn commands_inside_functions_need_the_rights_of_the_user_who_calls() {
    let server = TestServer::start();
    let (mut wire, mut ann) = (server.wire(), server.wire());
    load(&mut wire, RIGHTS);
    wire.say("MSET mine:1 m read:1 r other o");
    wire.say(
        "ACL SETUSER ann on nopass ~mine:* %R~read:* resetchannels &news +fcall +fcall_ro +get +set +publish +@transaction",
    );
    ann.say("AUTH ann x");
    // Whether the function names its keys or not.
    for (line, reply) in [
        ("FCALL peek 0 mine:1", "\"m\""),
        ("FCALL peek 0 read:1", "\"r\""),
        ("FCALL_RO peek 1 read:1 read:1", "\"r\""),
        ("FCALL poke 1 mine:1 mine:1", "+OK"),
        ("FCALL say 0 news", ":0"),
        ("FCALL peek 0 other", "denied"),
        ("FCALL peek 1 mine:1 other", "denied"),
        ("FCALL peek 1 other mine:1", "denied"),
        ("FCALL_RO peek 0 other", "denied"),
        ("FCALL poke 0 read:1", "denied"),
        ("FCALL poke 0 other", "denied"),
        ("FCALL poke 1 read:1 mine:1", "denied"),
        ("FCALL say 0 secrets", "denied"),
        // The commands before the one that fails keep their changes, as in Redis.
        ("FCALL both 0 mine:2 other", "denied"),
        ("FUNCTION DUMP", "denied"),
        ("FUNCTION DELETE rights", "denied"),
    ] {
        let said = ann.say(line);
        let is_denied = said.starts_with('-') && (said.contains("NOPERM") || said.contains("permissions"));
        assert!(if reply == "denied" { is_denied } else { said == reply }, "{line}: {said}");
    }
    assert_eq!(wire.say("MGET mine:1 mine:2 read:1 other"), "*[\"x\", \"y\", \"r\", \"o\"]");
    let log = wire.say("ACL LOG");
    for (context, object) in [("lua", "other"), ("lua", "secrets"), ("toplevel", "read:1")] {
        let entry = format!("\"context\", {context:?}, \"object\", {object:?}");
        assert!(log.contains(&entry), "{entry}: {log}");
    }
    // In a transaction, and after the rights have changed.
    ann.say("MULTI");
    ann.say("FCALL poke 0 other");
    let said = ann.say("EXEC");
    assert!(said.starts_with("*[-") && (said.contains("NOPERM") || said.contains("permissions")), "{said}");
    wire.say("ACL SETUSER ann -get");
    assert!(ann.say("FCALL peek 0 mine:1").starts_with('-'));
    wire.say("ACL SETUSER ann -fcall");
    assert!(ann.say("FCALL poke 0 mine:1").starts_with("-NOPERM"));
    assert_eq!(wire.say("GET other"), "\"o\"");
}

#[test]
fn libraries_survive_restarts_and_are_replicated() {
    let dir = tempfile::tempdir().unwrap();
    {
        let server = TestServer::start_with(Db::open(dir.path().join("c")).unwrap(), Options::default());
        load(&mut server.wire(), LIBRARY);
    }
    let server = TestServer::start_with(Db::open(dir.path().join("c")).unwrap(), Options::default());
    assert_eq!(server.wire().say("FCALL set 1 k v"), "+OK");
    drop(server);

    let mut primary = Node::start(&dir.path().join("a"));
    let mut wire = primary.wire();
    load(&mut wire, LIBRARY);
    wire.say("SET k v");
    let replica = Node::replica_of(&dir.path().join("b"), primary.port());
    until(|| replica.say("FCALL get 1 k") == "\"v\"");
    assert!(replica.say("FCALL set 1 k v").starts_with("-READONLY"));
    assert!(replica.say("FUNCTION FLUSH").starts_with("-READONLY"));
    // A change follows as other commits do.
    for n in 0..5 {
        replace(
            &mut wire,
            &format!(
                "#!lua name=n\nredis.register_function{{function_name = 'n', callback = function() return {n} end, flags = {{'no-writes'}}}}"
            ),
        );
        assert_eq!(wire.say("WAIT 1 0"), ":1");
        assert_eq!(replica.say("FCALL n 0"), format!(":{n}"));
    }
    wire.say("FUNCTION DELETE n");
    assert_eq!(wire.say("WAIT 1 0"), ":1");
    assert_eq!(replica.say("FCALL n 0"), "-ERR Function not found");
    primary.restart();
    assert_eq!(primary.say("FCALL set 1 k w"), "+OK");
    assert_eq!(primary.say("FUNCTION STATS"), replica.say("FUNCTION STATS"));
    assert_eq!(replica.say("REPLICAOF NO ONE"), "+OK");
    assert_eq!(replica.say("FCALL set 1 k x"), "+OK");
}
