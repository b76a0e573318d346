//! What runs scripts: Lua 5.1, with the commands of the server in it.
//!
//! ```text
//!   EVAL --> Machine (one, kept) --redis.call--> commands::run --> the script's transaction
//! ```
//!
//! lua.1. A script sees no files, no clock but that of the processor, no other script's variables.
//! lua.2. A script ends: after a time it fails, and nothing that shares its commit is there.

mod bit;
mod convert;
mod json;
mod msgpack;
mod structs;

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mlua::{HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};

use crate::clock;
use crate::commands;
use crate::cx::Cx;
use crate::fail::{Done, Fail};
use crate::pause;
use crate::resp::{Out, Request};

/// A script that runs longer fails (lua.2).
const TIME_MAX: Duration = Duration::from_secs(5);
/// Lua instructions between two checks whether the script has to end.
const STEPS: u32 = 100_000;
/// Memory that all values of scripts may take.
const BYTES_MAX: usize = 512 << 20;

/// What scripts find, beside what Lua has.
const PRELUDE: &str = r#"
local sha1hex, log, caught = ...
redis = {
    sha1hex = sha1hex, log = log,
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_SLAVE = 1, REPL_REPLICA = 1, REPL_AOF = 2, REPL_ALL = 3,
    REDIS_VERSION = '7.0.15', REDIS_VERSION_NUM = 0x07000f,
}
local wrong_words = 'ERR wrong number or type of arguments'
redis.error_reply = function(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then return {err = wrong_words} end
    if text:sub(1, 1) == '-' then text = text:sub(2) elseif not text:find(' ') then text = 'ERR ' .. text end
    return {err = text}
end
redis.status_reply = function(...)
    local text = ...
    if select('#', ...) ~= 1 or type(text) ~= 'string' then return {err = wrong_words} end
    return {ok = text}
end
redis.breakpoint = function() return false end
redis.debug = function() end
redis.replicate_commands = function() return true end
redis.set_repl = function() end
os = {clock = os.clock}
loadfile, dofile, print, newproxy, collectgarbage, require, module, package, rawset, getfenv = nil

-- Scripts see tables in place of these that read through to them, and cannot be changed (lua.1).
local set_meta, type_of, set_env, concat = setmetatable, type, setfenv, table.concat
local protect, protect_with = pcall, xpcall
local sealed = set_meta({}, {__mode = 'k'})
local function refuse() error('Attempt to modify a readonly table', 2) end
local function seal(inner)
    local outer = {}
    local meta = {__index = inner, __newindex = refuse}
    sealed[outer] = true
    -- What getmetatable shows of it.
    meta.__metatable = set_meta({}, {__index = meta, __newindex = refuse, __metatable = false})
    return set_meta(outer, meta)
end
setmetatable = function(table, meta)
    if sealed[table] then refuse() end
    return set_meta(table, meta)
end
set_meta(_G, {
    __index = function(_, name) error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2) end,
})
-- Compiled code is not loaded: nobody checks it.
string.dump = nil
for _, name in ipairs({'cjson', 'cmsgpack', 'bit', 'struct', 'table', 'math', 'string', 'os'}) do
    _G[name] = seal(_G[name])
end
local calls = redis
redis = seal(calls)
server = redis
getmetatable('').__metatable = false
local globals = seal(_G)
_G._G = globals
local load_text = loadstring
local function inside(chunk, message)
    if chunk then set_env(chunk, globals) end
    return chunk, message
end
loadstring = function(text, name)
    if tostring(text):byte() == 27 then return nil, 'compiled code is not loaded' end
    return inside(load_text(text, name))
end
load = function(pieces, name)
    local all = {}
    for piece in pieces do
        if piece == '' then break end
        all[#all + 1] = piece
    end
    return loadstring(concat(all), name or '=(load)')
end
setfenv = function(where, table)
    if type_of(where) == 'function' then return set_env(where, table) end
    error('setfenv: only for functions', 2)
end
-- What scripts catch is text, and tables for handlers of their own.
local function texts(is_done, value, ...)
    if not is_done then value = caught(value, false) end
    return is_done, value, ...
end
pcall = function(...) return texts(protect(...)) end
xpcall = function(run, handler, ...)
    return protect_with(run, function(value) return handler(caught(value, true)) end, ...)
end
return calls, globals
"#;

/// What the errors of the prelude are said to come from: nothing that users have written.
const PRELUDE_NAME: &str = "=prelude";
/// The same of scripts.
const SCRIPT_NAME: &str = "=user_script";

/// Where the machine keeps the table of commands, what scripts have for globals, and what runs them.
const CALLS: &str = "calls";
const GLOBALS: &str = "globals";
const PROTECT: &str = "protect";

/// The machine that runs scripts.
pub struct Machine {
    lua: Lua,
}

fn failed(error: &mlua::Error) -> Fail {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    Fail::text(format!("ERR {first}"))
}

impl Machine {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(BYTES_MAX)?;
        let globals = lua.globals();
        globals.set("cjson", json::library(&lua)?)?;
        globals.set("cmsgpack", msgpack::library(&lua)?)?;
        globals.set("bit", bit::library(&lua)?)?;
        globals.set("struct", structs::library(&lua)?)?;
        Ok(Machine { lua })
    }
}

/// Whether a script can be read.
///
/// # Errors
/// It cannot.
pub fn check(source: &[u8]) -> Done {
    let lua = Lua::new();
    let read = lua.load(source).set_name(SCRIPT_NAME).into_function();
    read.map(drop)
        .map_err(|error| Fail::text(format!("ERR Error compiling script (new function): {}", plain(&error))))
}

fn plain(error: &mlua::Error) -> String {
    match error {
        mlua::Error::SyntaxError { message, .. } | mlua::Error::RuntimeError(message) => message.clone(),
        mlua::Error::CallbackError { cause, .. } => plain(cause),
        other => other.to_string(),
    }
    .lines()
    .next()
    .unwrap_or_default()
    .to_owned()
}

/// Runs a script, and replies what it returns.
///
/// # Errors
/// It cannot be read, or has failed.
pub fn run(
    cx: &mut Cx<'_>,
    digest: &str,
    source: &[u8],
    keys: &[&[u8]],
    arguments: &[&[u8]],
    only_reads: bool,
) -> Done {
    let server = cx.server.clone();
    let mut slot = server.scripts.machine.lock();
    let machine = match slot.take() {
        Some(machine) => machine,
        None => Machine::new().map_err(|error| failed(&error))?,
    };
    // A machine in which a script was broken off is not used again.
    let (done, is_whole) = run_in(&machine.lua, cx, digest, source, keys, arguments, only_reads);
    if is_whole {
        *slot = Some(machine);
    }
    done
}

fn run_in(
    lua: &Lua,
    cx: &mut Cx<'_>,
    digest: &str,
    source: &[u8],
    keys: &[&[u8]],
    arguments: &[&[u8]],
    only_reads: bool,
) -> (Done, bool) {
    let start = clock::moment();
    let server = cx.server.clone();
    let triggers = HookTriggers::new().every_nth_instruction(STEPS);
    let hooked = lua.set_hook(triggers, move |lua, _| {
        let why = match (server.scripts.kill.load(Ordering::Relaxed), start.elapsed() > TIME_MAX) {
            (true, _) => "Script killed by user with SCRIPT KILL",
            (false, true) => "Script took too long",
            (false, false) => return Ok(VmState::Continue),
        };
        // From now on each step fails: a script that catches the error gets no further.
        let each_step = HookTriggers::new().every_nth_instruction(1);
        lua.set_hook(each_step, move |_, _| Err(mlua::Error::runtime(why)))?;
        Err(mlua::Error::runtime(why))
    });
    if let Err(error) = hooked {
        return (Err(failed(&error)), false);
    }
    let ran = evaluate(lua, cx, digest, source, keys, arguments, only_reads);
    lua.remove_hook();
    let was_broken_off = cx.server.scripts.kill.load(Ordering::Relaxed) || start.elapsed() > TIME_MAX;
    if was_broken_off {
        // lua.2
        cx.effects.has_ended_script = true;
    }
    let done = match ran {
        Ok(Ok(())) => Ok(()),
        Ok(Err(fail)) => Err(fail),
        Err(error @ mlua::Error::SyntaxError { .. }) => {
            Err(Fail::text(format!("ERR Error compiling script (new function): {}", plain(&error))))
        }
        Err(error) => Err(Fail::text(format!("ERR {} script: {digest}, on @user_script", plain(&error)))),
    };
    (done, !was_broken_off)
}

fn list(lua: &Lua, words: &[&[u8]]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(words.len(), 0)?;
    for (at, word) in words.iter().enumerate() {
        table.raw_set(at + 1, lua.create_string(word)?)?;
    }
    Ok(table)
}

/// Where an error was raised: what Lua runs below its handler, without functions of ours. As Redis writes it.
fn place(lua: &Lua) -> Option<String> {
    let frame = |level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let name = source.source.map(|name| name.into_owned()).unwrap_or_default();
            let is_script = source.what != "C" && name != PRELUDE_NAME;
            is_script.then(|| {
                let name = if name == SCRIPT_NAME { "@user_script" } else { &name };
                format!("{name}:{}", frame.current_line().unwrap_or(0))
            })
        })
    };
    (1..).map_while(frame).flatten().next()
}

fn evaluate(
    lua: &Lua,
    cx: &mut Cx<'_>,
    digest: &str,
    source: &[u8],
    keys: &[&[u8]],
    arguments: &[&[u8]],
    only_reads: bool,
) -> mlua::Result<Done> {
    let chunk = lua.load(source).set_name(SCRIPT_NAME).into_function()?;
    cx.server.scripts.add(digest, source);
    let globals = lua.globals();
    globals.raw_set("KEYS", list(lua, keys)?)?;
    globals.raw_set("ARGV", list(lua, arguments)?)?;
    let mut script_resp3 = false;
    let raised_at = RefCell::new(None);
    let cell = RefCell::new((&mut *cx, &mut script_resp3));
    let returned = lua.scope(|scope| {
        let held = &cell;
        let run_command = move |lua: &Lua, words: &MultiValue| {
            let mut pair =
                held.try_borrow_mut().map_err(|_| mlua::Error::runtime("a command within a command"))?;
            let (cx, is_resp3) = &mut *pair;
            call(lua, cx, words, **is_resp3, only_reads)
        };
        let call_or_fail =
            scope.create_function(move |lua, words: MultiValue| fail_as_told(run_command(lua, &words)?))?;
        let call_or_table = scope.create_function(move |lua, words: MultiValue| run_command(lua, &words))?;
        let set_version = scope.create_function(|_, words: MultiValue| {
            let mut pair =
                cell.try_borrow_mut().map_err(|_| mlua::Error::runtime("a command within a command"))?;
            *pair.1 = chosen_version(&words)? == 3;
            Ok(())
        })?;
        let may_call = scope.create_function(|_, words: MultiValue| {
            let pair = cell.try_borrow().map_err(|_| mlua::Error::runtime("a command within a command"))?;
            may_call(pair.0, &words)
        })?;
        if lua.named_registry_value::<Value>(CALLS)?.is_nil() {
            lua.set_named_registry_value(PROTECT, globals.raw_get::<Value>("xpcall")?)?;
            let (calls, for_scripts) = prelude(lua)?;
            lua.set_named_registry_value(CALLS, calls)?;
            lua.set_named_registry_value(GLOBALS, for_scripts)?;
        }
        chunk.set_environment(lua.named_registry_value(GLOBALS)?)?;
        let redis: Table = lua.named_registry_value(CALLS)?;
        redis.raw_set("call", call_or_fail)?;
        redis.raw_set("pcall", call_or_table)?;
        redis.raw_set("setresp", set_version)?;
        redis.raw_set("acl_check_cmd", may_call)?;
        let note = scope.create_function(|lua, error: Value| {
            *raised_at.borrow_mut() = place(lua);
            Ok(error)
        })?;
        let protect: mlua::Function = lua.named_registry_value(PROTECT)?;
        protect.call::<MultiValue>((chunk, note))
    });
    let mut returned = returned?.into_iter();
    let is_done = matches!(returned.next(), Some(Value::Boolean(true)));
    let value = returned.next().unwrap_or(Value::Nil);
    if !is_done {
        let text = convert::error_text(&value);
        let place = raised_at.take().map(|place| format!(" script: {digest}, on {place}."));
        return Ok(Err(Fail::text(text + &place.unwrap_or_default())));
    }
    let mark = cx.out.mark();
    if let Err(error) = convert::put(cx.out, &value, script_resp3, 0) {
        cx.out.truncate(mark);
        return Err(error);
    }
    Ok(Ok(()))
}

/// What scripts have besides commands: the table of these, and the globals.
fn prelude(lua: &Lua) -> mlua::Result<(Table, Table)> {
    let digest = lua.create_function(|_, words: MultiValue| match words.len() {
        1 => Ok(crate::sha1::hex(&words[0].to_string()?.into_bytes())),
        _ => Err(convert::told("ERR wrong number of arguments")),
    })?;
    let log = lua.create_function(|_, words: MultiValue| check_log(&words))?;
    let caught =
        lua.create_function(|lua, (value, as_table): (Value, bool)| convert::caught(lua, value, as_table))?;
    lua.load(PRELUDE).set_name(PRELUDE_NAME).call((digest, log, caught))
}

/// The version that `redis.setresp` is given.
fn chosen_version(words: &MultiValue) -> mlua::Result<i64> {
    let [word] = words.iter().collect::<Vec<_>>()[..] else {
        return Err(convert::told("ERR redis.setresp() requires one argument."));
    };
    match convert::number(word) {
        Some(n) if n as i64 == 2 || n as i64 == 3 => Ok(n as i64),
        _ => Err(convert::told("ERR RESP version must be 2 or 3.")),
    }
}

/// Whether `redis.log` is given a level and a text. Nothing is written.
fn check_log(words: &MultiValue) -> mlua::Result<()> {
    let wrong = match words.front().map(convert::number) {
        _ if words.len() < 2 => "ERR redis.log() requires two arguments or more.",
        Some(Some(level)) if (0.0..4.0).contains(&level) => return Ok(()),
        Some(Some(_)) => "ERR Invalid debug level.",
        _ => "ERR First argument must be a number (log level).",
    };
    Err(convert::told(wrong))
}

/// The reply to a command, or its error, which the script has to catch.
fn fail_as_told(reply: Value) -> mlua::Result<Value> {
    match reply.as_table().map(|table| table.raw_get::<Option<mlua::LuaString>>("err")).transpose()?.flatten()
    {
        Some(text) => Err(convert::told(text.to_string_lossy())),
        None => Ok(reply),
    }
}

/// The words of a command; none if one is no word.
fn request_of(words: &MultiValue) -> Option<Request> {
    let mut request = Request::default();
    for word in words {
        match word {
            Value::String(text) => request.push(&text.as_bytes()),
            Value::Integer(n) => request.push(n.to_string().as_bytes()),
            Value::Number(n) => request.push(convert::number_text(*n).as_bytes()),
            _ => return None,
        }
    }
    Some(request)
}

/// Whether the user of the script may run a command.
fn may_call(cx: &Cx<'_>, words: &MultiValue) -> mlua::Result<bool> {
    let request = request_of(words).filter(|request| !request.is_empty());
    let found = request.and_then(|request| Some((cx.server.commands.find(&request[0])?, request)));
    let Some((command, request)) = found else {
        return Err(mlua::Error::runtime("ERR Invalid command passed to redis.acl_check_cmd()"));
    };
    Ok(commands::is_allowed(cx.server, cx.session, command, &request))
}

/// Runs a command of a script.
fn call(
    lua: &Lua,
    cx: &mut Cx<'_>,
    words: &MultiValue,
    is_resp3: bool,
    only_reads: bool,
) -> mlua::Result<Value> {
    let Some(request) = request_of(words) else {
        return convert::error(lua, "ERR Lua redis lib command arguments must be strings or integers");
    };
    if request.is_empty() {
        return convert::error(lua, "ERR Please specify at least one argument for this redis lib call");
    }
    let Some(command) = cx.server.commands.find(&request[0]) else {
        return convert::error(lua, "ERR Unknown Redis command called from script");
    };
    if command.flags & commands::flag::NO_SCRIPT != 0 {
        return convert::error(lua, "ERR This Redis command is not allowed from script");
    }
    if only_reads && pause::may_write(command) {
        return convert::error(lua, "ERR Write commands are not allowed from read-only scripts.");
    }
    if !command.fits(&request) {
        return convert::error(lua, "ERR Wrong number of args calling Redis command from script");
    }
    // Replies of the script's commands are not those of its client.
    let outer = std::mem::replace(cx.out, Out::new(is_resp3));
    let multi = cx.session.multi.take();
    let mode = std::mem::take(&mut cx.session.reply);
    let done = commands::run(cx, &request);
    if let Err(Fail::Blocks(_)) = done {
        commands::timed_out(&request, cx.out);
    }
    cx.session.multi = multi;
    cx.session.reply = mode;
    let reply = std::mem::replace(cx.out, outer);
    convert::reply(lua, &mut reply.bytes.as_slice())
}
