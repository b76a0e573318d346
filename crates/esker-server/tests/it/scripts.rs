//! Scripts.

use std::time::Duration;

use crate::harness::{TestServer, until};
use crate::node::{Node, assert_same};
use crate::wire::{Reply, Wire};

fn eval(wire: &mut Wire, script: &str, words: &[&str]) -> String {
    let words: Vec<&str> = ["EVAL", script].into_iter().chain(words.iter().copied()).collect();
    format!("{:?}", wire.call(&words))
}

#[test]
fn values_become_replies_and_replies_values() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let cases = [
        ("return 3.99", ":3"),
        ("return {1, 'two', {3}, false, nil, 6}", "*[:1, \"two\", *[:3], null]"),
        ("return true", ":1"),
        ("return redis.status_reply('FINE')", "+FINE"),
        ("return redis.error_reply('MY own')", "-MY own"),
        ("return {KEYS[1], ARGV[1]}", "*[\"k\", \"v\"]"),
        ("return redis.call('SET', KEYS[1], ARGV[1])", "+OK"),
        ("return redis.call('GET', KEYS[1])", "\"v\""),
        ("return redis.call('GET', 'none')", "null"),
        ("return type(redis.call('INCR', 'n'))", "\"number\""),
        ("return redis.pcall('INCR', KEYS[1]).err", "\"ERR value is not an integer or out of range\""),
        (
            "local ok, e = pcall(redis.call, 'INCR', KEYS[1]) return {ok and 1 or 0, e}",
            "*[:0, \"ERR value is not an integer or out of range\"]",
        ),
        ("return redis.sha1hex('abc')", "\"a9993e364706816aba3e25717850c26c9cd0d89d\""),
        ("return cjson.encode({1, {a = 'x\"y'}, cjson.null})", "\"[1,{\\\"a\\\":\\\"x\\\\\\\"y\\\"},null]\""),
        ("return cjson.decode('{\"a\": [1, 2.5, \"\\\\u00e9\"]}').a[3]", "\"\u{e9}\""),
        (
            "local t = cmsgpack.unpack(cmsgpack.pack({1, -300, 'x', {k = 2.5}})) return {t[1], t[2], t[3], tostring(t[4].k)}",
            "*[:1, :-300, \"x\", \"2.5\"]",
        ),
        (
            "return {bit.band(12, 10), bit.bor(12, 10), bit.lshift(1, 31), bit.tohex(255)}",
            "*[:8, :14, :-2147483648, \"000000ff\"]",
        ),
        (
            "return tostring(os.execute) .. tostring(io == nil)",
            "-ERR user_script:1: Script attempted to access nonexistent global variable 'io'",
        ),
    ];
    for (script, reply) in cases {
        let found = eval(&mut wire, script, &["1", "k", "v"]);
        assert!(found == reply || found.starts_with(reply) && reply.starts_with('-'), "{script}: {found}");
    }
    assert!(
        eval(&mut wire, "return redis.call('INCR', KEYS[1])", &["1", "k"])
            .starts_with("-ERR value is not an integer")
    );
    assert!(eval(&mut wire, "x = 1", &["0"]).contains("Attempt to modify a readonly table"));
    assert!(eval(&mut wire, "return (", &["0"]).starts_with("-ERR Error compiling script"));
    assert!(
        eval(&mut wire, "return redis.call('EVAL', 'return 1', 0)", &["0"])
            .contains("not allowed from script")
    );
}

#[test]
fn errors_name_the_script_and_the_line() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.say("LPUSH list x");
    for (script, text) in [
        (
            "return redis.call('GET', 'list')",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("return redis.call()", "ERR Please specify at least one argument for this redis lib call"),
        ("error({err = 'MY own'})", "MY own"),
        ("error('bad', 0)", "ERR bad"),
        ("return none.x", "ERR user_script:2: Script attempted to access nonexistent global variable 'none'"),
        ("return redis.setresp(4)", "ERR RESP version must be 2 or 3."),
    ] {
        let script = format!("\n{script}");
        let digest = digest_of(&mut wire, &script);
        let reply = eval(&mut wire, &script, &["0"]);
        assert_eq!(reply, format!("-{text} script: {digest}, on @user_script:2."));
    }
    // A script catches errors as text. Its own handler gets a table.
    let caught = "return {pcall(redis.call, 'none')}";
    assert_eq!(eval(&mut wire, caught, &["0"]), "*[null, \"ERR Unknown Redis command called from script\"]");
    let handled = "return select(2, xpcall(function() redis.call('none') end, function(e) return e.err end))";
    assert_eq!(eval(&mut wire, handled, &["0"]), "\"ERR Unknown Redis command called from script\"");
    assert_eq!(
        eval(&mut wire, "return redis.pcall('GET', 'list').err", &["0"]),
        "\"WRONGTYPE Operation against a key holding the wrong kind of value\""
    );
    let deep = eval(&mut wire, "local function f() return 1 + f() end return f()", &["0"]);
    assert!(deep.starts_with("-ERR user_script:1: stack overflow"), "{deep}");
}

#[test]
fn scripts_that_cannot_run_are_not_known_and_false_is_nothing_without_setresp() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (script, words) in [("return (", ["0"]), ("return 42", ["x"])] {
        let digest = digest_of(&mut wire, script);
        eval(&mut wire, script, &words);
        assert_eq!(wire.say(&format!("SCRIPT EXISTS {digest}")), "*[:0]", "{script}");
    }
    wire.say("HELLO 3");
    assert_eq!(eval(&mut wire, "return {true, false}", &["0"]), "*[:1, null]");
    assert_eq!(eval(&mut wire, "redis.setresp(3) return {true, false}", &["0"]), "*[#t, #f]");
}

fn digest_of(wire: &mut Wire, script: &str) -> String {
    eval(wire, "return redis.sha1hex(ARGV[1])", &["0", script]).trim_matches('"').to_owned()
}

#[test]
fn scripts_are_known_by_their_digests_and_are_whole() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let Reply::Bulk(digest) = wire.call(&["SCRIPT", "LOAD", "return redis.call('INCRBY', KEYS[1], ARGV[1])"])
    else {
        panic!("a digest")
    };
    let digest = String::from_utf8(digest).unwrap();
    assert_eq!(wire.say(&format!("EVALSHA {digest} 1 n 5")), ":5");
    assert_eq!(wire.say(&format!("EVALSHA {} 1 n 5", digest.to_uppercase())), ":10");
    assert_eq!(wire.say(&format!("SCRIPT EXISTS {digest} none")), "*[:1, :0]");
    assert_eq!(wire.say("SCRIPT FLUSH"), "+OK");
    assert!(wire.say(&format!("EVALSHA {digest} 1 n 5")).starts_with("-NOSCRIPT"));
    for command in ["'SET','a',1", "'PUBLISH','a',1", "'ES.NOTIFY','a',1", "'OB.NOTIFY','a'"] {
        assert!(wire.say(&format!("EVAL_RO redis.call({command}) 0")).contains("read-only scripts"));
    }
    // A script leaves its connection in the same database. Other clients see all of its writes or none.
    assert_eq!(
        eval(&mut wire, "redis.call('SELECT', 3) redis.call('SET', 'there', 1) return 1", &["0"]),
        ":1"
    );
    assert_eq!(wire.say("EXISTS there"), ":0");
    let mut waiting = server.wire();
    waiting.send(&["BLPOP", "q", "0"]);
    until(|| server.server.sequencer.waiters() == 1);
    assert_eq!(eval(&mut wire, "return redis.call('RPUSH', 'q', 'a', 'b')", &["0"]), ":2");
    assert_eq!(format!("{:?}", waiting.reply()), "*[\"q\", \"a\"]");
}

#[test]
fn a_script_without_end_is_ended_and_leaves_nothing() {
    let server = TestServer::start();
    let (mut wire, mut other) = (server.wire(), server.wire());
    assert!(other.say("SCRIPT KILL").starts_with("-NOTBUSY"));
    wire.send(&["EVAL", "redis.call('SET', 'half', 1) while true do end", "0"]);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(other.say("GET half"), "null", "reads go on");
    until(|| other.say("SCRIPT KILL") == "+OK");
    assert!(format!("{:?}", wire.reply()).starts_with("-"));
    assert_eq!((wire.say("EXISTS half"), wire.say("SET k v")), (":0".to_owned(), "+OK".to_owned()));
}

#[test]
fn the_first_line_of_a_script_has_flags() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (script, reply) in [
        ("#!lua\nreturn 1", ":1"),
        ("#!lua flags=allow-oom,no-cluster\nreturn redis.call('SET', 'a', 1)", "+OK"),
        (
            "#!lua flags=no-writes\nreturn redis.call('SET', 'a', 1)",
            "-ERR Write commands are not allowed from read-only",
        ),
        ("#!lua flags=other\nreturn 1", "-ERR Unexpected flag in script shebang: other"),
        ("#!lua name=x\nreturn 1", "-ERR Unknown lua shebang option: name=x"),
        ("#!js\nreturn 1", "-ERR Unexpected engine in script shebang: #!js"),
        ("#!lua", "-ERR Invalid script shebang"),
        (
            "#!lua\n\nreturn none",
            "-ERR user_script:3: Script attempted to access nonexistent global variable 'none'",
        ),
    ] {
        let found = eval(&mut wire, script, &["0"]);
        assert!(found.starts_with(reply), "{script}: {found}");
    }
}

#[test]
fn replicas_run_scripts_that_only_read() {
    let dir = tempfile::tempdir().unwrap();
    let primary = Node::start(&dir.path().join("a"));
    primary.say("SET k v");
    let replica = Node::replica_of(&dir.path().join("b"), primary.port());
    assert_same(&primary, &replica);
    let read = "return(redis.call('GET',KEYS[1]))";
    let digest = replica.say(&format!("SCRIPT LOAD {read}"));
    let digest = digest.trim_matches('"');
    for command in ["EVAL", "EVAL_RO"] {
        assert_eq!(replica.say(&format!("{command} {read} 1 k")), "\"v\"");
    }
    for command in ["EVALSHA", "EVALSHA_RO"] {
        assert_eq!(replica.say(&format!("{command} {digest} 1 k")), "\"v\"");
    }
    assert!(replica.say("EVAL return(redis.call('SET',KEYS[1],1)) 1 k").starts_with("-READONLY"));
    assert!(replica.say("EVAL return(redis.pcall('DEL',KEYS[1]).err) 1 k").contains("READONLY"));
    // The replica must treat the key as expired.
    primary.say("SET short v PX 40");
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(replica.say(&format!("EVAL {read} 1 short")), "null");
    assert_same(&primary, &replica);
}

#[test]
fn struct_packs_and_unpacks() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (script, reply) in [
        ("return struct.pack('>I2hB', 258, 2, 7)", "\"\\u{1}\\u{2}\\0\\u{2}\\u{7}\""),
        ("return struct.pack('<i4', 1)", "\"\\u{1}\\0\\0\\0\""),
        ("return {struct.unpack('>I2h', struct.pack('>I2h', 258, -2))}", "*[:258, :-2, :5]"),
        ("return {struct.unpack('<i3L', struct.pack('<i3L', -5, 9))}", "*[:-5, :9, :12]"),
        ("return {struct.unpack('sBc0', struct.pack('sBc0', 'ab', 2, 'cd'))}", "*[\"ab\", \"cd\", :7]"),
        ("return tostring(struct.unpack('d', struct.pack('d', 1.5)))", "\"1.5\""),
        ("return struct.pack('!4bi4', 1, 2)", "\"\\u{1}\\0\\0\\0\\u{2}\\0\\0\\0\""),
        ("return struct.size('!8bd')", ":16"),
        ("return struct.size('c10x')", ":11"),
    ] {
        wire.send(&["EVAL", script, "0"]);
        assert_eq!(format!("{:?}", wire.reply()), reply, "{script}");
    }
    for script in [
        "return struct.unpack('i4', 'abc')",
        "return struct.pack('q', 1)",
        "return struct.pack('i99', 1)",
        "return struct.pack('c99999999999999999999', 'a')",
        "return {struct.unpack('s', 'abc')}",
        "return struct.unpack('Bc0', string.char(200))",
        "return struct.unpack('b', 'a', 100)",
    ] {
        wire.send(&["EVAL", script, "0"]);
        assert!(format!("{:?}", wire.reply()).starts_with("-ERR"), "{script}");
    }
}

#[test]
fn a_script_that_catches_its_end_is_ended_and_others_get_busy() {
    let server = TestServer::start();
    let (mut wire, mut other) = (server.wire(), server.wire());
    assert_eq!(other.say("CONFIG SET lua-time-limit 20"), "+OK");
    wire.send(&["EVAL", "local f = function() while true do end end while true do pcall(f) end", "0"]);
    until(|| other.say("GET k").starts_with("-BUSY"));
    assert_eq!(
        (other.say("MULTI"), &*other.say("SET k v")),
        (
            "+OK".to_owned(),
            "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
        )
    );
    assert!(other.say("EXEC").starts_with("-EXECABORT Transaction discarded because of: BUSY"));
    assert_eq!(other.say("SCRIPT KILL"), "+OK");
    assert!(format!("{:?}", wire.reply()).starts_with("-ERR Script killed by user with SCRIPT KILL"));
    assert_eq!(other.say("SET k v"), "+OK");
}

#[test]
fn scripts_do_not_change_what_others_find() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for script in [
        "redis.call = nil",
        "server = nil",
        "string.rep = nil",
        "rawget(_G, '_G')",
        "_G.cjson = 1",
        "setmetatable(_G, {})",
        "getmetatable(_G).__index = {}",
        "getmetatable('').__index.rep = nil",
        "loadstring('redis = nil')()",
        "setfenv(1, {})",
    ] {
        let reply = eval(&mut wire, script, &["0"]);
        assert!(reply.starts_with("-ERR") || script.starts_with("rawget"), "{script}: {reply}");
    }
    // Compiled code is not loaded.
    assert_eq!(eval(&mut wire, "return tostring(loadstring('\\27Lua'))", &["0"]), "\"nil\"");
    assert_eq!(eval(&mut wire, "return loadstring('return ARGV[1] .. #KEYS')()", &["0", "x"]), "\"x0\"");
    assert_eq!(
        eval(&mut wire, "return {server.call('ECHO', 'x'), ('ab'):rep(2)}", &["0"]),
        "*[\"x\", \"abab\"]"
    );
    // Large tables can be packed. Recursive tables are replied up to a maximum depth.
    let script = "local t = {} for n = 1, 20000 do t['k' .. n] = n end
        local offset, back = cmsgpack.unpack_one(cmsgpack.pack(t, 1)) return {back.k20000, offset > 0}";
    assert_eq!(eval(&mut wire, script, &["0"]), "*[:20000, :1]");
    assert!(
        eval(&mut wire, "local t = {} t[1] = t return t", &["0"]).contains("-ERR reached lua stack limit")
    );
}
