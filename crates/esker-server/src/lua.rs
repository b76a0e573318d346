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
use crate::resp::{Out, Request};

/// A script that runs longer fails (lua.2).
const TIME_MAX: Duration = Duration::from_secs(5);
/// Lua instructions between two checks whether the script has to end.
const STEPS: u32 = 100_000;
/// Memory that all values of scripts may take.
const BYTES_MAX: usize = 512 << 20;

/// What scripts find, beside what Lua has.
const PRELUDE: &str = r#"
local raw, sha1hex = ...
redis = {
    pcall = raw,
    sha1hex = function(...)
        if select('#', ...) ~= 1 then error({err = 'ERR wrong number of arguments'}, 0) end
        return sha1hex(...)
    end,
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REPL_NONE = 0, REPL_SLAVE = 1, REPL_REPLICA = 1, REPL_AOF = 2, REPL_ALL = 3,
    REDIS_VERSION = '7.0.15', REDIS_VERSION_NUM = 0x07000f,
}
redis.call = function(...)
    local reply = raw(...)
    if type(reply) == 'table' and reply.err then error(reply, 0) end
    return reply
end
redis.error_reply = function(text)
    if type(text) ~= 'string' then error({err = 'ERR wrong number or type of arguments'}, 0) end
    if text:sub(1, 1) == '-' then text = text:sub(2) elseif not text:find(' ') then text = 'ERR ' .. text end
    return {err = text}
end
redis.status_reply = function(text) return {ok = text} end
redis.log = function() end
redis.breakpoint = function() return false end
redis.debug = function() end
redis.replicate_commands = function() return true end
redis.set_repl = function() end
os = {clock = os.clock}
loadfile, dofile, print, newproxy, collectgarbage, require, module, package, rawset, getfenv = nil

-- Scripts see tables in place of these that read through to them, and cannot be changed (lua.1).
local set_meta, type_of, set_env, concat = setmetatable, type, setfenv, table.concat
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
return calls, globals
"#;

/// Where the machine keeps the table of commands, and what scripts have for globals.
const CALLS: &str = "calls";
const GLOBALS: &str = "globals";

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
    let read = lua.load(source).set_name("=user_script").into_function();
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
    let ran = evaluate(lua, cx, source, keys, arguments, only_reads);
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

fn evaluate(
    lua: &Lua,
    cx: &mut Cx<'_>,
    source: &[u8],
    keys: &[&[u8]],
    arguments: &[&[u8]],
    only_reads: bool,
) -> mlua::Result<Done> {
    let chunk = lua.load(source).set_name("=user_script").into_function()?;
    let globals = lua.globals();
    globals.raw_set("KEYS", list(lua, keys)?)?;
    globals.raw_set("ARGV", list(lua, arguments)?)?;
    let mut script_resp3 = false;
    let is_client_resp3 = cx.out.is_resp3;
    let cell = RefCell::new((&mut *cx, &mut script_resp3));
    let returned = lua.scope(|scope| {
        let call = scope.create_function(|lua, words: MultiValue| {
            let mut pair = cell.try_borrow_mut().map_err(|_| mlua::Error::runtime("a command within a command"))?;
            let (cx, is_resp3) = &mut *pair;
            call(lua, cx, &words, **is_resp3, only_reads)
        })?;
        let set_version = scope.create_function(|_, version: i64| {
            let mut pair = cell.try_borrow_mut().map_err(|_| mlua::Error::runtime("a command within a command"))?;
            *pair.1 = version == 3;
            Ok(())
        })?;
        let may_call = scope.create_function(|_, words: MultiValue| {
            let pair = cell.try_borrow().map_err(|_| mlua::Error::runtime("a command within a command"))?;
            may_call(pair.0, &words)
        })?;
        let digest = lua.create_function(|_, text: mlua::LuaString| Ok(crate::sha1::hex(&text.as_bytes())))?;
        if lua.named_registry_value::<Value>(CALLS)?.is_nil() {
            let made = lua.load(PRELUDE).set_name("=prelude").call::<(Table, Table)>((call.clone(), digest))?;
            lua.set_named_registry_value(CALLS, made.0)?;
            lua.set_named_registry_value(GLOBALS, made.1)?;
        }
        chunk.set_environment(lua.named_registry_value(GLOBALS)?)?;
        let redis: Table = lua.named_registry_value(CALLS)?;
        redis.raw_set("pcall", call.clone())?;
        redis.raw_set("setresp", set_version)?;
        redis.raw_set("acl_check_cmd", may_call)?;
        // `redis.call` has the function of its first script: it gets this one's.
        let make: mlua::Function = lua
            .load("local raw = ... return function(...) local reply = raw(...) if type(reply) == 'table' and reply.err then error(reply, 0) end return reply end")
            .set_name("=call")
            .into_function()?;
        redis.raw_set("call", make.call::<mlua::Function>(call)?)?;
        let protect: mlua::Function = globals.raw_get("pcall")?;
        protect.call::<MultiValue>(chunk)
    });
    let mut returned = returned?.into_iter();
    let is_done = matches!(returned.next(), Some(Value::Boolean(true)));
    let value = returned.next().unwrap_or(Value::Nil);
    if !is_done {
        return Ok(Err(convert::error_of(&value)));
    }
    let mark = cx.out.mark();
    if let Err(error) = convert::put(cx.out, &value, is_client_resp3, 0) {
        cx.out.truncate(mark);
        return Err(error);
    }
    Ok(Ok(()))
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
        return convert::error(lua, "ERR Please specify at least one argument for this redis.call() call");
    }
    let Some(command) = cx.server.commands.find(&request[0]) else {
        return convert::error(lua, "ERR Unknown Redis command called from script");
    };
    if command.flags & commands::flag::NO_SCRIPT != 0 {
        return convert::error(lua, "ERR This Redis command is not allowed from script");
    }
    if only_reads && command.flags & commands::flag::WRITE != 0 {
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
