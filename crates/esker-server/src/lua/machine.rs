//! An interpreter with the environment of scripts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value, VmState};

use super::errors::plain;
use super::limits::{self, Limits, MEMORY_MAX, SOURCE_MAX};
use super::{bit, convert, json, library, msgpack, structs};

const PRELUDE: &str = include_str!("prelude.luau");
/// Source name in errors of the prelude, which is not users' code.
pub(crate) const PRELUDE_NAME: &str = "=prelude";
/// Source name in errors of scripts.
pub(crate) const SCRIPT_NAME: &str = "=user_script";
/// Source name in errors of functions.
pub(crate) const FUNCTION_NAME: &str = "=user_function";
/// Maximum bytes of sources kept in compiled form.
const COMPILED_MAX: usize = 1 << 20;
/// An interpreter that holds more memory after a script is not reused.
const KEPT_MAX: usize = 16 << 20;
/// Maximum length of a source's name in errors.
const NAME_MAX: usize = 60;

/// Runs scripts.
pub struct Machine {
    pub(crate) lua: Lua,
    pub(crate) limits: Arc<Limits>,
    /// The table `redis`. It is read-only except while commands are added.
    pub(crate) calls: Table,
    pub(crate) globals: Table,
    /// The interpreter's own `xpcall`.
    pub(crate) protect: Function,
    compiled: HashMap<String, Function>,
    compiled_bytes: usize,
    /// The functions of the libraries of a generation.
    functions: Option<(Vec<u8>, HashMap<String, Function>)>,
}

impl Machine {
    /// Creates an interpreter. `kill` is set to end the current script.
    pub(crate) fn new(kill: Arc<AtomicBool>) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS | StdLib::COROUTINE;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        lua.set_memory_limit(MEMORY_MAX)?;
        let prelude = lua.load(PRELUDE).set_name(PRELUDE_NAME).set_mode(ChunkMode::Text);
        let (calls, globals, protect): (Table, Table, Function) = prelude.call(host(&lua)?)?;
        // Chunks that scripts compile have the same globals.
        lua.set_named_registry_value(GLOBALS, &globals)?;
        let limits = Arc::new(Limits::new(kill));
        lua.set_app_data(limits.clone());
        let at_step = limits.clone();
        lua.set_interrupt(move |lua| {
            at_step.step()?;
            at_step.collect(lua, 0)?;
            Ok(VmState::Continue)
        });
        Ok(Machine {
            lua,
            limits,
            calls,
            globals,
            protect,
            compiled: HashMap::new(),
            compiled_bytes: 0,
            functions: None,
        })
    }

    /// Returns whether it may be reused: no script has left much in it.
    pub(crate) fn is_small(&self) -> bool {
        self.lua.used_memory() <= KEPT_MAX
    }

    /// Compiles a script to a function.
    pub(crate) fn compile(&mut self, digest: &str, source: &[u8]) -> mlua::Result<Function> {
        if let Some(function) = self.compiled.get(digest) {
            return Ok(function.clone());
        }
        let function = load(&self.lua, source, SCRIPT_NAME, &self.globals)?;
        if self.compiled_bytes + source.len() > COMPILED_MAX {
            self.compiled.clear();
            self.compiled_bytes = 0;
        }
        self.compiled_bytes += source.len();
        self.compiled.insert(digest.to_owned(), function.clone());
        Ok(function)
    }
}

impl Machine {
    /// Compiles the code of a library.
    pub(crate) fn compile_library(&self, code: &[u8]) -> mlua::Result<Function> {
        load(&self.lua, code, FUNCTION_NAME, &self.globals)
    }

    /// Returns a function of the libraries of a generation. `sources` are all of them, to load them first if
    /// the machine has those of another generation.
    pub(crate) fn function<'s>(
        &mut self,
        generation: &[u8],
        sources: impl Iterator<Item = &'s [u8]>,
        name: &str,
    ) -> Option<Function> {
        if self.functions.as_ref().is_none_or(|(known, _)| known != generation) {
            let codes = sources.filter_map(|source| Some(library::header(source).ok()?.1));
            // A library that does not load has no functions.
            let loaded = codes.filter_map(|code| library::load(self, code).ok()).flatten();
            let functions = loaded.map(|new| (new.name, new.run)).collect();
            self.functions = Some((generation.to_vec(), functions));
        }
        self.functions.as_ref().and_then(|(_, functions)| functions.get(name).cloned())
    }
}

const GLOBALS: &str = "globals";

/// Refuses sources that are too long for the compiler.
pub(crate) fn check_len(source: &[u8]) -> mlua::Result<()> {
    if source.len() <= SOURCE_MAX {
        return Ok(());
    }
    let message = format!("user_script:1: a script has at most {SOURCE_MAX} bytes");
    Err(mlua::Error::SyntaxError { message, incomplete_input: false })
}

/// Compiles text. Compiled code is refused, because the interpreter does not check it.
fn load(lua: &Lua, source: &[u8], name: &str, globals: &Table) -> mlua::Result<Function> {
    check_len(source)?;
    let chunk = lua.load(source).set_name(name).set_mode(ChunkMode::Text);
    chunk.set_environment(globals.clone()).into_function()
}

/// Implements `loadstring`: returns a function, or nil and an error.
fn load_text(
    lua: &Lua,
    (source, name): (LuaString, Option<LuaString>),
) -> mlua::Result<(Option<Function>, Option<String>)> {
    limits::of(lua)?.long_step()?;
    let name = match name {
        Some(name) => name.to_string_lossy(),
        None => source.to_string_lossy(),
    };
    let name: String = name.chars().take_while(|c| *c != '\0').take(NAME_MAX).collect();
    let globals = lua.named_registry_value(GLOBALS)?;
    match load(lua, &source.as_bytes(), &name, &globals) {
        Ok(function) => Ok((Some(function), None)),
        Err(error @ mlua::Error::SyntaxError { .. }) => Ok((None, Some(plain(&error)))),
        Err(error) => Err(error),
    }
}

/// Implements `string.find` of plain text. The time grows with the sum of the lengths, not with their
/// product.
fn search(lua: &Lua, (text, part, first): (LuaString, LuaString, Option<f64>)) -> mlua::Result<MultiValue> {
    limits::of(lua)?.long_step()?;
    let (text, part) = (text.as_bytes(), part.as_bytes());
    let first = first.unwrap_or(1.0) as i64;
    let start = match first {
        1.. => first as usize - 1,
        0 => 0,
        _ => text.len().saturating_sub(first.unsigned_abs() as usize),
    };
    let found = text.get(start..).and_then(|rest| memchr::memmem::find(rest, &part));
    Ok(match found {
        Some(at) => {
            let at = start + at;
            [at + 1, at + part.len()].into_iter().map(|n| Value::Number(n as f64)).collect()
        }
        None => MultiValue::from_iter([Value::Nil]),
    })
}

/// Implements `string.rep`. The interpreter's own function takes a step for each repetition, even of an empty
/// text, and cannot be interrupted.
fn repeat(lua: &Lua, (text, count): (LuaString, f64)) -> mlua::Result<LuaString> {
    let limits = limits::of(lua)?;
    limits.long_step()?;
    let text = text.as_bytes();
    let count = if text.is_empty() { 0 } else { count as usize };
    limits.add(text.len().saturating_mul(count))?;
    limits.text(lua, text.repeat(count))
}

/// Functions for the prelude.
fn host(lua: &Lua) -> mlua::Result<Table> {
    let host = lua.create_table()?;
    host.set("cjson", json::library(lua)?)?;
    host.set("cmsgpack", msgpack::library(lua)?)?;
    host.set("bit", bit::library(lua)?)?;
    host.set("struct", structs::library(lua)?)?;
    let digest = lua.create_function(|lua, words: MultiValue| match words.front() {
        Some(Value::String(text)) if words.len() == 1 => {
            let limits = limits::of(lua)?;
            crate::base::sha1::hex_by_pieces(&text.as_bytes(), || limits.step())
        }
        Some(word) if words.len() == 1 => Ok(crate::base::sha1::hex(&word.to_string()?.into_bytes())),
        _ => Err(convert::script_error("ERR wrong number of arguments")),
    })?;
    host.set("sha1hex", digest)?;
    host.set("log", lua.create_function(|_, words: MultiValue| check_log(&words))?)?;
    let caught =
        lua.create_function(|lua, (value, as_table): (Value, bool)| convert::caught(lua, value, as_table))?;
    host.set("caught", caught)?;
    host.set("compile", lua.create_function(load_text)?)?;
    host.set("search", lua.create_function(search)?)?;
    host.set("repeat", lua.create_function(repeat)?)?;
    host.set("random", lua.create_function(|lua, ()| Ok(limits::of(lua)?.random()))?)?;
    host.set(
        "seed",
        lua.create_function(|lua, n: f64| limits::of(lua).map(|limits| limits.seed(n as i64 as u32)))?,
    )?;
    Ok(host)
}

/// Checks the arguments of `redis.log`. Nothing is logged.
fn check_log(words: &MultiValue) -> mlua::Result<()> {
    let wrong = match words.front().map(convert::number) {
        _ if words.len() < 2 => "ERR redis.log() requires two arguments or more.",
        Some(Some(level)) if (0.0..4.0).contains(&level) => return Ok(()),
        Some(Some(_)) => "ERR Invalid debug level.",
        _ => "ERR First argument must be a number (log level).",
    };
    Err(convert::script_error(wrong))
}
