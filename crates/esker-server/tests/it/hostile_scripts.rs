//! Hostile scripts. Each of them is ended and leaves nothing behind.

use std::time::{Duration, Instant};

use crate::harness::{TestServer, until};
use crate::wire::Wire;

fn eval(wire: &mut Wire, script: &str, words: &[&str]) -> String {
    let words: Vec<&str> = ["EVAL", script, "0"].into_iter().chain(words.iter().copied()).collect();
    format!("{:?}", wire.call(&words))
}

/// Scripts that do not end by themselves, or only after minutes.
const ENDLESS: &[&str] = &[
    "local f = coroutine.wrap(function() while true do pcall(function() while true do end end) end end)
     while true do pcall(f) end",
    "local function h() while true do end end while true do xpcall(function() error('x') end, h) end",
    "local function f() while true do xpcall(f, f) end end f()",
    "local function f() pcall(f) pcall(f) return f() end f()",
    "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
    "return string.find(string.rep('a', 3e5), string.rep('.-', 6) .. 'b')",
    "return string.find(string.rep('a', 60), string.rep('a?', 60) .. string.rep('a', 60) .. 'b')",
    "return string.gsub(string.rep('a', 3e5), string.rep('.-', 6) .. 'b', '')",
    "for _ in string.gmatch(string.rep('a', 3e5), string.rep('.-', 6) .. 'b') do end",
    "return string.match(string.rep('a', 3e5), string.rep('.-', 6) .. '%1?b')",
    "for i = 1, 1e9 do string.rep('', 2147483647) end",
    "for i = 1, 1e9 do pcall(string.rep, 'x', 1e9) end",
    "while true do pcall(redis.call, 'PING') end",
    "while true do redis.pcall('NONE') end",
    "local n = 0 for i = 1, 1e9 do n = n + #redis.call('SMEMBERS', 'big') end",
    "local t = {} t[1] = t t[2] = t return t",
    "local t = {} t.map = t t[1] = t t.x = t return {t, t, t}",
    "local t = {} for i = 1, 20 do t[i] = t end while true do pcall(cmsgpack.pack, t) end",
    "local t = {} for i = 1, 20 do t[i] = t end return #cmsgpack.pack(t)",
    "local t = {} for i = 1, 20 do t['k' .. i] = t end while true do pcall(cjson.encode, t) end",
    "local t = setmetatable({}, {__index = function(t, k) return t[k] end}) while true do pcall(function() return t.x end) end",
    "local t = {} for i = 1, 1e4 do t[i] = i end while true do pcall(table.sort, t, function() return true end) end",
    "local x = string.rep('a', 1e7) local a, b = x .. 'a', x .. 'b' local t = {}
     for i = 1, 1e5 do t[i] = i % 2 == 0 and a or b end table.sort(t)",
    "local o = setmetatable({}, {__tostring = function() while true do end end}) while true do pcall(tostring, o) end",
    "load(function() return ' ' end)",
    "while true do pcall(loadstring('while true do end')) end",
    "while true do loadstring(string.rep('x=1 ', 1e5)) end",
    "local k = {} for i = 1, 7000 do k[i] = 'big' end return redis.call('SINTERCARD', 7000, unpack(k))",
    "local a = string.rep('a', 1e6) while true do string.find(a, string.rep('a', 5e5) .. 'b', 1, true) end",
];

#[test]
fn lua_2_every_script_can_be_killed() {
    let server = TestServer::start();
    let (mut wire, mut other) = (server.wire(), server.wire());
    for from in 0..200 {
        let members: Vec<String> = (0..100).map(|at| format!("member{}", from * 100 + at)).collect();
        let words: Vec<&str> = ["SADD", "big"].into_iter().chain(members.iter().map(|m| &**m)).collect();
        wire.call(&words);
    }
    for script in ENDLESS {
        wire.send(&["EVAL", script, "0"]);
        std::thread::sleep(Duration::from_millis(60));
        // Some end with an error by themselves. A running one must be killed long before its time limit.
        let start = Instant::now();
        loop {
            let said = other.say("SCRIPT KILL");
            if said == "+OK" || said.contains("NOTBUSY") && start.elapsed() > Duration::from_millis(500) {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(3), "{script} is not killed: {said}");
        }
        let reply = format!("{:?}", wire.reply());
        let took = start.elapsed();
        let begin = &reply[..reply.len().min(200)];
        assert!(took < Duration::from_secs(4), "{script} ran until its time was over: {took:?}: {begin}");
        assert!(reply.starts_with('-') || reply.contains("not enough memory"), "{script}: {begin}");
    }
    assert_eq!(wire.say("SET k v"), "+OK");
}

#[test]
fn long_texts_of_errors_and_of_statuses_are_quick() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let long = "local s = string.rep('x', 5e7) ";
    for (script, least, most) in [
        ("error(s)", 60_000, 70_000),
        ("error({err = s})", 60_000, 70_000),
        ("return {err = s}", 60_000, 70_000),
        ("return redis.error_reply(s)", 60_000, 70_000),
        ("return cjson.decode(s)", 1, 1000),
        ("return cjson.decode('1' .. string.rep('0', 1e7))", 1, 1000),
        ("return struct.size('c' .. string.rep('1', 5e7))", 1, 1000),
        ("return {ok = s .. '\\r'}", 50_000_002, 50_000_002),
    ] {
        let reply = eval(&mut wire, &format!("{long}{script}"), &[]);
        let range = least..=most;
        assert!(range.contains(&reply.len()), "{script}: {}", reply.len());
    }
    // A script that catches its own error gets the whole text.
    assert_eq!(eval(&mut wire, &format!("{long} local _, e = pcall(error, s) return #e"), &[]), ":50000000");
}

#[test]
fn lua_2_scripts_end_after_their_time() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let start = Instant::now();
    let script = "redis.call('SET', 'half', 1) local function h() while true do end end
        while true do pcall(function() while true do xpcall(h, h) end end) end";
    assert!(eval(&mut wire, script, &[]).starts_with('-'));
    assert!((4..9).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(wire.say("EXISTS half"), ":0");
}

#[test]
fn memory_is_bounded_and_none_is_kept() {
    let server = TestServer::start();
    let mut wire = server.wire();
    let scripts = [
        "local s = string.rep('x', 1e7) local t = {} for i = 1, 500 do t[i] = s end return #cjson.encode(t)",
        "local s = string.rep('x', 1e7) local t = {} for i = 1, 500 do t[i] = s end return #cmsgpack.pack(t)",
        "local s = string.rep('x', 1e7) local t = {} for i = 1, 500 do t[i] = s end return table.concat(t)",
        "local s = string.rep('x', 1e7) local t = {} for i = 1, 500 do t[i] = s end return t",
        "local s = string.rep('x', 1e7) local t = {} for i = 1, 500 do t[i] = s end return redis.call('MSET', unpack(t))",
        "local s = string.rep('x', 1e7) return struct.pack(string.rep('s', 500), s, s, s, s, s, s, s, s, s, s, s, s, s, s, s)",
        "local s = string.rep('x', 1e7) return string.format(string.rep('%s', 40), unpack((function() local t = {} for i = 1, 40 do t[i] = s end return t end)()))",
        "return string.rep('x', 2e9)",
        "return cjson.encode(string.rep('\\0', 1e8))",
        "return cjson.encode({[string.rep('\\0', 1e8)] = 1})",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} for i = 1, 1e9 do t[i] = {i} end",
        "local t = {} for i = 1, 1e9 do t[i] = coroutine.create(function() end) end",
        "return ('x'):rep(1e6):gsub('x', ('y'):rep(1e6))",
        "return {unpack({}, 1, 1e6)}",
        "return {cmsgpack.unpack(string.rep('a', 1e6))}",
        "return {struct.unpack(string.rep('b', 1e5), string.rep('a', 1e5))}",
        "return {string.byte(string.rep('a', 1e6), 1, -1)}",
        "return cjson.decode(string.rep('[', 1e6))",
        "return #cjson.decode('[' .. string.rep('1,', 3e7) .. '1]')",
        "local t = {} for i = 1, 1e6 do t = {t} end return cjson.encode(t)",
    ];
    // Each takes about a second. With the number of a commit, a third of them, others for the next commit.
    let row = std::env::var("ESKER_SEED_ROW").map(|row| row.parse::<usize>().expect("a number") % 3);
    let (first, step) = row.map_or((0, 1), |row| (row, 3));
    for script in scripts.into_iter().skip(first).step_by(step) {
        let start = Instant::now();
        let reply = eval(&mut wire, script, &[]);
        assert!(reply.starts_with('-'), "{script}: {}", &reply[..reply.len().min(200)]);
        assert!(start.elapsed() < Duration::from_secs(8), "{script}: {:?}", start.elapsed());
        assert_eq!(eval(&mut wire, "return #string.rep('x', 5e7)", &[]), ":50000000", "after {script}");
    }
}

#[test]
fn garbage_of_large_texts_takes_no_memory() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (make, times) in [
        ("text .. i", 14),
        ("string.upper(text .. i)", 7),
        ("table.concat({text, text, i})", 5),
        ("string.format('%s%s%d', text, text, i)", 5),
        ("string.rep('x', 4e7 + i)", 7),
        ("redis.call('ECHO', text .. i)", 7),
        ("struct.unpack('s', struct.pack('s', text .. i))", 5),
        ("cmsgpack.unpack(cmsgpack.pack(text .. i))", 5),
        ("coroutine.wrap(function() coroutine.yield(text .. i) end)()", 14),
    ] {
        let script = format!(
            "local text, made = string.rep('x', 2e7) for i = 1, {times} do made = {make} end return 1"
        );
        let reply = eval(&mut wire, &script, &[]);
        // A busy machine may run into the time limit.
        assert!(reply == ":1" || reply.contains("after 5 seconds"), "{make}: {reply}");
    }
}

#[test]
fn sources_are_bounded_for_the_compiler() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (before, part, after, count) in [
        ("return ", "(", "1", 500_000),
        ("return ", "{", "", 500_000),
        ("return ", "-", "1", 500_000),
        ("return ", "not ", "1", 200_000),
        ("return 1", "+1", "", 400_000),
        ("return ''", "..''", "", 200_000),
        ("return ''", "..x", "", 200_000),
        ("return f", "()", "", 400_000),
        ("return f", ".a", "", 400_000),
        ("", "if a then ", "", 90_000),
        ("if a then ", "elseif b then ", "end", 60_000),
        ("", "function f() ", "", 70_000),
        ("", "do ", "", 300_000),
        ("local a=1 ", "a=1 ", "", 200_000),
        ("return {", "1,", "}", 500_000),
        ("return {", "'a',", "}", 250_000),
        ("return {", "x=1,", "}", 250_000),
        ("local a: ", "{", "", 500_000),
        ("local a: ", "(a)->", "", 150_000),
        ("return f(", "a,", "a)", 400_000),
        ("return `", "{`", "", 400_000),
        ("", "local a ", "", 120_000),
    ] {
        let script = format!("{before}{}{after}", part.repeat(count));
        let start = Instant::now();
        wire.call(&["SCRIPT", "LOAD", &script]);
        // On an idle machine, this takes a second or two.
        assert!(start.elapsed() < Duration::from_secs(15), "{part}: {:?}", start.elapsed());
    }
    assert!(eval(&mut wire, &" ".repeat(2 << 20), &[]).contains("at most"));
    let nested = |n: usize| format!("return {}1{}", "(".repeat(n), ")".repeat(n));
    assert_eq!(eval(&mut wire, &nested(100), &[]), ":1");
}

#[test]
fn nothing_is_left_for_others() {
    let server = TestServer::start();
    let mut wire = server.wire();
    wire.send(&["EVAL", "return loadstring(ARGV[1])", "0", "\u{1b}Lua"]);
    assert!(!format!("{:?}", wire.reply()).starts_with('-'), "nil and a text");
    for code in ["\u{1b}Lua", "\u{3}\u{3}abc", "\u{6}", "\u{9}\u{1}", "\u{b}\u{3}x"] {
        assert!(eval(&mut wire, code, &[]).starts_with("-ERR Error compiling script"), "{code:?}");
        assert!(format!("{:?}", wire.call(&["SCRIPT", "LOAD", code])).starts_with("-ERR"), "{code:?}");
        assert_eq!(eval(&mut wire, "return tostring(loadstring(ARGV[1]))", &[code]), "\"nil\"");
    }
    for script in [
        "coroutine.create = 1",
        "table.insert(cjson, 1)",
        "table.insert(redis, 1)",
        "table.insert(_G, 1)",
        "table.insert(string, 1)",
        "table.remove(KEYS) table.remove(_G)",
        "table.sort(_G) rawset(_G, 'x', 1)",
        "rawset(cjson, 'x', 1)",
        "rawset(getmetatable(''), '__index', {})",
        "getmetatable('').__index.rep = nil",
        "getmetatable(_G).__index = nil",
        "setmetatable(_G, nil)",
        "setmetatable(redis, {})",
        "setmetatable(getmetatable(''), {})",
        "redis.call = nil",
        "redis.error_reply = nil",
        "KEYS = {}",
        "setfenv(redis.error_reply, {})",
        "return getfenv(1)",
        "return debug",
        "return newproxy",
        "return require",
        "return buffer",
        "return table.create",
        "return string.pack(1)",
        "return string.dump(function() end)",
    ] {
        let reply = eval(&mut wire, script, &[]);
        assert!(reply.starts_with("-ERR") || reply == "null", "{script}: {reply}");
    }
    let seeded = "math.randomseed(0) return {math.random(1000), math.random(1000)}";
    assert_eq!(eval(&mut wire, seeded, &[]), "*[:171, :750]", "the numbers of Redis");
    assert_ne!(
        eval(&mut wire, "return math.random(1e9)", &[]),
        eval(&mut wire, "return math.random(1e9)", &[])
    );
    assert_eq!(
        eval(&mut wire, "return {tostring(rawget(_G, 'x')), redis.error_reply('a').err}", &[]),
        "*[\"nil\", \"ERR a\"]"
    );
}

/// docs/server.md has a table of them.
#[test]
fn published_faults_of_scripts_are_not_here() {
    let server = TestServer::start();
    let mut wire = server.wire();
    for (script, expected) in [
        ("return tostring(rawget(_G, 'package')) .. tostring(rawget(_G, 'require'))", "\"nilnil\""),
        ("return bit.tohex(65535, -2147483648)", "\"0000FFFF\""),
        ("return {unpack({1, 2, 3}, -2, 2147483647)}", "-ERR user_script:1: too many results to unpack"),
        ("return {unpack({1, 2, 3}, -2147483648, 2147483647)}", "-ERR user_script:1: too many results"),
        ("return #loadstring('return [' .. ('='):rep(1e5) .. '[x]' .. ('='):rep(1e5) .. ']')()", ":1"),
        ("return tostring(loadstring('return [='))", "\"nil\""),
        ("return tostring(getmetatable(1)) .. tostring(getmetatable(nil))", "\"nilnil\""),
        ("return struct.pack('>I2147483648', 10)", "-ERR format: a number is too large"),
        ("return struct.unpack('i', 'abcd', 2147483647)", "-ERR data string too short"),
        ("return struct.unpack('dc0', struct.pack('d', 2^63) .. 'abc')", "-ERR data string too short"),
        ("return {cmsgpack.unpack(('\\145'):rep(1e5))}", "-ERR Found too many nested data structures"),
        ("return {cmsgpack.unpack('\\221\\255\\255\\255\\255')}", "-ERR Missing bytes in input."),
        ("return 1 end function f() return 2", "-ERR Error compiling script"),
        ("return redis.error_reply('A b\\r\\n+OK')", "-A b  +OK"),
        ("return redis.status_reply('a\\r\\n:1')", "+a  :1"),
        ("return {err = 'x\\r\\n:1'}", "-x  :1"),
        ("error('x\\r\\n:1')", "-ERR user_script:1: x  :1"),
    ] {
        let reply = eval(&mut wire, script, &[]);
        assert!(reply.starts_with(expected), "{script}: {reply}");
        assert_eq!(wire.say("ECHO next"), "\"next\"", "{script}");
    }
}

#[test]
fn a_script_that_is_ended_takes_nothing_from_others() {
    let server = TestServer::start();
    let (mut wire, mut other, mut killer) = (server.wire(), server.wire(), server.wire());
    let mut heard = server.wire();
    heard.say("SUBSCRIBE said");
    wire.say("RPUSH l a");
    let endless = "redis.call('SET', 'x', '1') redis.call('RPUSH', 'l', 'b') redis.call('INCR', 'n')
        redis.call('PUBLISH', 'said', 'by the script') while true do end";
    let ended = "-ERR Script killed by user with SCRIPT KILL";
    for round in 0..3 {
        // All three arrive together, and share a commit with the writes of other clients.
        wire.send(&["INCR", "n"]);
        wire.send(&["EVAL", endless, "0"]);
        wire.send(&["INCR", "n"]);
        other.send(&["SET", "other", &round.to_string()]);
        until(|| killer.say("SCRIPT KILL") == "+OK");
        assert_eq!(format!("{:?}", wire.reply()), format!(":{}", 2 * round + 1));
        assert!(format!("{:?}", wire.reply()).starts_with(ended));
        assert_eq!(format!("{:?}", wire.reply()), format!(":{}", 2 * round + 2));
        assert_eq!(format!("{:?}", other.reply()), "+OK");
        assert_eq!(wire.say("MGET x other"), format!("*[null, \"{round}\"]"));
        assert_eq!(wire.say("LRANGE l 0 -1"), "*[\"a\"]");
    }
    // With EXEC, everything is undone.
    for words in [&["MULTI"][..], &["SET", "before", "1"], &["EVAL", endless, "0"], &["SET", "behind", "1"]] {
        wire.send(words);
        wire.reply();
    }
    wire.send(&["EXEC"]);
    other.send(&["INCR", "others"]);
    until(|| killer.say("SCRIPT KILL") == "+OK");
    assert!(format!("{:?}", wire.reply()).starts_with(ended));
    assert_eq!(format!("{:?}", other.reply()), ":1");
    assert_eq!(wire.say("EXISTS before behind x"), ":0");
    wire.say("PUBLISH said last");
    assert_eq!(format!("{:?}", heard.reply()), "*[\"message\", \"said\", \"last\"]");
}
