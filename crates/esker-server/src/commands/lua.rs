//! Runs scripts in Luau, with the library names of Lua 5.1 and the commands of the server.
//!
//! ```text
//!   EVAL --> Machine (one, kept) --redis.call--> dispatch::run --> the script's transaction
//! ```

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use mlua::{Lua, MultiValue, Table, Value};

use crate::command::flag;
use crate::lua::convert;
use crate::lua::errors::plain;
use crate::lua::limits::{self, Limits};
use crate::lua::machine::{self, FUNCTION_NAME, Machine, PRELUDE_NAME, SCRIPT_NAME};
use crate::resp::fail::{Done, Fail};
use crate::resp::{Out, Request};
use crate::run::cx::Cx;
use crate::run::dispatch;
use crate::run::leave::timed_out;
use crate::run::scripts::Script;

/// Bytes of the stack on which scripts run. Nested library calls, sources and values fit within their limits
/// of depth.
const STACK: usize = 32 << 20;

/// Checks that a script can be compiled.
///
/// # Errors
/// Fails if it cannot.
pub fn check(source: &[u8]) -> Done {
    stacker::maybe_grow(STACK, STACK, || {
        let (_, source) = header(source)?;
        machine::check_len(&source).map_err(|error| unreadable(&error))?;
        let lua = Lua::new_with(mlua::StdLib::NONE, mlua::LuaOptions::default());
        let lua = lua.map_err(|error| unreadable(&error))?;
        let chunk = lua.load(&*source).set_name(SCRIPT_NAME).set_mode(mlua::chunk::ChunkMode::Text);
        chunk.into_function().map(drop).map_err(|error| unreadable(&error))
    })
}

/// Checks the length of a script before it is compiled.
///
/// # Errors
/// Fails if it is too long.
pub fn check_len(source: &[u8]) -> Done {
    machine::check_len(source).map_err(|error| unreadable(&error))
}

/// Runs `body` with enough stack for scripts.
pub fn with_stack<T>(body: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(STACK, STACK, body)
}

fn unreadable(error: &mlua::Error) -> Fail {
    Fail::text(format!("ERR Error compiling script (new function): {}", plain(error)))
}

/// Parses a first line that starts with `#!`. Returns whether the script only reads, and the script without
/// the line.
fn header(source: &[u8]) -> Done<(bool, std::borrow::Cow<'_, [u8]>)> {
    let Some(rest) = source.strip_prefix(b"#!") else { return Ok((false, source.into())) };
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or("ERR Invalid script shebang")?;
    let line = String::from_utf8_lossy(&rest[..end]).into_owned();
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "lua" {
        return Err(Fail::text(format!("ERR Unexpected engine in script shebang: #!{engine}")));
    }
    let mut only_reads = false;
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(Fail::text(format!("ERR Unknown lua shebang option: {word}")));
        };
        for flag in flags.split(',') {
            match flag {
                "no-writes" => only_reads = true,
                "" | "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                _ => return Err(Fail::text(format!("ERR Unexpected flag in script shebang: {flag}"))),
            }
        }
    }
    Ok((only_reads, source[2 + end..].into()))
}

/// Runs a script and replies with its result.
///
/// # Errors
/// Fails if the script cannot be compiled, or fails.
pub fn run(cx: &mut Cx<'_>, script: &Script<'_>) -> Done {
    with_stack(|| run_here(cx, script))
}

fn run_here(cx: &mut Cx<'_>, script: &Script<'_>) -> Done {
    let server = cx.server.clone();
    let (is_reader, source) = match script.libraries {
        Some(_) => (false, script.source.into()),
        None => header(script.source)?,
    };
    let script = &Script { source: &source, only_reads: script.only_reads || is_reader, ..*script };
    let mut slot = server.scripts.machine.lock();
    let mut machine = match slot.take() {
        Some(machine) => machine,
        None => Machine::new(server.scripts.kill.clone())
            .map_err(|error| Fail::text(format!("ERR {}", plain(&error))))?,
    };
    let limits = machine.limits.clone();
    limits.begin();
    let done = match evaluate(&mut machine, &limits, cx, script) {
        Ok(done) => done,
        Err(error @ mlua::Error::SyntaxError { .. }) => Err(unreadable(&error)),
        Err(error) => {
            Err(Fail::text(format!("ERR {} script: {}, on @user_script", plain(&error), script.digest)))
        }
    };
    if limits.has_ended() {
        // Discard the interpreter, and undo the writes (lua.2).
        cx.effects.has_ended_script = true;
    } else if machine.is_small() {
        // Keep a small interpreter for the next script.
        *slot = Some(machine);
    }
    done
}

fn list(lua: &Lua, words: &[&[u8]]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(words.len(), 0)?;
    for (at, word) in words.iter().enumerate() {
        table.raw_set(at + 1, lua.create_string(word)?)?;
    }
    Ok(table)
}

/// Returns where an error was raised: the innermost Lua function, not counting functions of the server.
fn error_location(lua: &Lua) -> Option<String> {
    let frame = |level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let name = source.source.map(|name| name.into_owned()).unwrap_or_default();
            let is_script = source.what != "C" && name != PRELUDE_NAME;
            is_script.then(|| {
                let name = match &*name {
                    SCRIPT_NAME => "user_script",
                    FUNCTION_NAME => "user_function",
                    name => name,
                };
                format!("{name}:{}", frame.current_line().unwrap_or(0))
            })
        })
    };
    (1..).map_while(frame).flatten().next()
}

fn evaluate(
    machine: &mut Machine,
    limits: &Limits,
    cx: &mut Cx<'_>,
    script: &Script<'_>,
) -> mlua::Result<Done> {
    let chunk = code(machine, cx, script)?;
    let lua = &machine.lua;
    machine.globals.set_readonly(false);
    let words = [Value::Table(list(lua, script.keys)?), Value::Table(list(lua, script.arguments)?)];
    // A function gets them as arguments.
    let is_function = script.libraries.is_some();
    for (name, list) in ["KEYS", "ARGV"].iter().zip(&words) {
        machine.globals.raw_set(*name, if is_function { &Value::Nil } else { list })?;
    }
    machine.globals.set_readonly(true);
    let mut script_resp3 = false;
    let raised_at = RefCell::new(None);
    let cell = RefCell::new((&mut *cx, &mut script_resp3));
    let within = || mlua::Error::runtime("a command within a command");
    let returned = lua.scope(|scope| {
        let held = &cell;
        let run_command = move |lua: &Lua, words: &MultiValue| {
            let mut pair = held.try_borrow_mut().map_err(|_| within())?;
            let (cx, is_resp3) = &mut *pair;
            limits.long_step()?;
            let reply = call(lua, cx, words, **is_resp3, script.only_reads);
            limits.long_step()?;
            reply
        };
        let call_or_fail = scope
            .create_function(move |lua, words: MultiValue| raise_error_reply(run_command(lua, &words)?))?;
        let call_or_table = scope.create_function(move |lua, words: MultiValue| run_command(lua, &words))?;
        let set_version = scope.create_function(move |_, words: MultiValue| {
            let mut pair = held.try_borrow_mut().map_err(|_| within())?;
            *pair.1 = chosen_version(&words)? == 3;
            Ok(())
        })?;
        let may_call = scope.create_function(move |_, words: MultiValue| {
            let pair = held.try_borrow().map_err(|_| within())?;
            may_call(pair.0, &words, limits)
        })?;
        machine.calls.set_readonly(false);
        machine.calls.raw_set("call", call_or_fail)?;
        machine.calls.raw_set("pcall", call_or_table)?;
        machine.calls.raw_set("setresp", set_version)?;
        machine.calls.raw_set("acl_check_cmd", may_call)?;
        machine.calls.set_readonly(true);
        let note = scope.create_function(|lua, error: Value| {
            *raised_at.borrow_mut() = error_location(lua);
            Ok(error)
        })?;
        let mut call = vec![Value::Function(chunk), Value::Function(note)];
        call.extend(words.iter().filter(|_| is_function).cloned());
        machine.protect.call::<MultiValue>(MultiValue::from_vec(call))
    });
    let mut returned = returned?.into_iter();
    let is_done = matches!(returned.next(), Some(Value::Boolean(true)));
    let value = returned.next().unwrap_or(Value::Nil);
    if !is_done {
        return Ok(Err(Fail::text(convert::error_text(&value, script.digest, raised_at.take().as_deref()))));
    }
    let mark = cx.out.mark();
    let mut putter = convert::Putter { out: cx.out, limits, is_resp3: script_resp3, mark };
    if let Err(error) = putter.put(&value, 0) {
        cx.out.truncate(mark);
        return Err(error);
    }
    Ok(Ok(()))
}

/// Returns what to run: a script, or a function of a library.
fn code(machine: &mut Machine, cx: &Cx<'_>, script: &Script<'_>) -> mlua::Result<mlua::Function> {
    let Some(libraries) = script.libraries else {
        let chunk = machine.compile(script.digest, script.source)?;
        cx.server.scripts.add(script.digest, script.whole);
        return Ok(chunk);
    };
    let sources = libraries.all.iter().map(|library| &*library.source);
    let found = machine.function(&libraries.generation, sources, script.digest);
    found.ok_or_else(|| mlua::Error::runtime("the function's library cannot be loaded"))
}

/// Parses the argument of `redis.setresp`.
fn chosen_version(words: &MultiValue) -> mlua::Result<i64> {
    let [word] = words.iter().collect::<Vec<_>>()[..] else {
        return Err(convert::script_error("ERR redis.setresp() requires one argument."));
    };
    match convert::number(word) {
        Some(n) if n as i64 == 2 || n as i64 == 3 => Ok(n as i64),
        _ => Err(convert::script_error("ERR RESP version must be 2 or 3.")),
    }
}

/// Returns the reply of a command. Raises it if it is an error reply.
fn raise_error_reply(reply: Value) -> mlua::Result<Value> {
    match reply.as_table().map(|table| table.raw_get::<Option<mlua::LuaString>>("err")).transpose()?.flatten()
    {
        Some(text) => Err(convert::script_error(text.to_string_lossy())),
        None => Ok(reply),
    }
}

/// Converts arguments to a request. Returns none if an argument is neither text nor a number.
fn request_of(words: &MultiValue, limits: &Limits) -> mlua::Result<Option<Request>> {
    let mut request = Request::default();
    for word in words {
        limits.add(request.bytes() + limits::len_of(word))?;
        match word {
            Value::String(text) => request.push(&text.as_bytes()),
            Value::Integer(n) => request.push(n.to_string().as_bytes()),
            Value::Number(n) => request.push(convert::number_text(*n).as_bytes()),
            _ => return Ok(None),
        }
    }
    Ok(Some(request))
}

/// Returns whether the user of the script may run a command.
fn may_call(cx: &Cx<'_>, words: &MultiValue, limits: &Limits) -> mlua::Result<bool> {
    let request = request_of(words, limits)?.filter(|request| !request.is_empty());
    let found = request.and_then(|request| Some((cx.server.commands.find(&request[0])?, request)));
    let Some((command, request)) = found else {
        return Err(mlua::Error::runtime("Invalid command passed to redis.acl_check_cmd()"));
    };
    Ok(dispatch::is_allowed(cx.server, cx.session, command, &request))
}

/// Runs a command for a script.
fn call(
    lua: &Lua,
    cx: &mut Cx<'_>,
    words: &MultiValue,
    is_resp3: bool,
    only_reads: bool,
) -> mlua::Result<Value> {
    let limits = limits::of(lua)?;
    let Some(request) = request_of(words, &limits)? else {
        return convert::error(lua, "ERR Lua redis lib command arguments must be strings or integers");
    };
    if request.is_empty() {
        return convert::error(lua, "ERR Please specify at least one argument for this redis lib call");
    }
    let Some(command) = cx.server.commands.find(&request[0]) else {
        return convert::error(lua, "ERR Unknown Redis command called from script");
    };
    if command.is(flag::NO_SCRIPT) {
        return convert::error(lua, "ERR This Redis command is not allowed from script");
    }
    if only_reads && command.may_write() {
        return convert::error(lua, "ERR Write commands are not allowed from read-only scripts.");
    }
    if !command.fits(&request) {
        return convert::error(lua, "ERR Wrong number of args calling Redis command from script");
    }
    // Replies to the script do not go to its client.
    let bytes_max = cx.server.commands.memory.script_reply.load(Ordering::Relaxed);
    let mut own = Out::new(is_resp3);
    own.bytes_max = bytes_max;
    let outer = std::mem::replace(cx.out, own);
    let multi = cx.session.multi.take();
    let mode = std::mem::take(&mut cx.session.reply);
    let done = dispatch::run(cx, &request);
    if let Err(Fail::Blocks(_)) = done {
        timed_out(cx.server, &request, cx.out);
    }
    cx.session.multi = multi;
    cx.session.reply = mode;
    let reply = std::mem::replace(cx.out, outer);
    convert::reply(lua, &limits, &mut reply.bytes.as_slice())
}
