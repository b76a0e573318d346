//! Libraries of functions: their first line, and the functions that their code registers.

use std::cell::RefCell;

use mlua::{Function, MultiValue, Table, Value};

use super::convert::{self, script_error};
use super::errors::plain;
use super::limits;
use super::machine::Machine;

/// Flags of functions. Except for the first one they have no effect.
const FLAGS: [&str; 5] = ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

const WRONG_NAME: &str = "ERR Library names can only contain letters, numbers, or underscores(_) and must be at \
                          least one character long";

/// A function that a library has registered.
pub(crate) struct Registered {
    pub name: String,
    pub description: Option<Vec<u8>>,
    pub flags: Vec<&'static str>,
    pub run: Function,
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Parses the first line of a library, `#!lua name=NAME`. Returns the name, and the code after the line.
///
/// # Errors
/// What is wrong, as an error reply.
pub(crate) fn header(source: &[u8]) -> Result<(String, &[u8]), String> {
    let rest = source.strip_prefix(b"#!").ok_or("ERR Missing library metadata")?;
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or("ERR Invalid library metadata")?;
    let line = String::from_utf8_lossy(&rest[..end]).into_owned();
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    let mut name = None;
    for word in words {
        let Some(given) = word.strip_prefix("name=") else {
            return Err(format!("ERR Invalid metadata value given: {word}"));
        };
        if name.replace(given.to_owned()).is_some() {
            return Err("ERR Invalid metadata value, name argument was given multiple times".to_owned());
        }
    }
    let name = name.ok_or("ERR Library name was not given")?;
    match (is_name(&name), engine.eq_ignore_ascii_case("lua")) {
        (false, _) => Err(WRONG_NAME.to_owned()),
        (_, false) => Err(format!("ERR Engine '{engine}' not found")),
        _ => Ok((name, &rest[end..])),
    }
}

/// Runs the code of a library, and returns the functions that it registers.
///
/// # Errors
/// What is wrong, as an error reply.
pub(crate) fn load(machine: &Machine, code: &[u8]) -> Result<Vec<Registered>, String> {
    let chunk = machine.compile_library(code).map_err(|error| match &error {
        mlua::Error::SyntaxError { .. } => format!("ERR Error compiling function: {}", plain(&error)),
        _ => format!("ERR {}", plain(&error)),
    })?;
    let all = RefCell::new(Vec::new());
    let outcome = machine.lua.scope(|scope| {
        let register = scope.create_function(|_, words: MultiValue| {
            let new = registered(&words)?;
            let mut all = all.borrow_mut();
            if all.iter().any(|known: &Registered| known.name == new.name) {
                return Err(script_error("ERR Function already exists in the library"));
            }
            all.push(new);
            Ok(())
        })?;
        machine.calls.set_readonly(false);
        for name in ["call", "pcall", "setresp", "acl_check_cmd"] {
            machine.calls.raw_set(name, Value::Nil)?;
        }
        machine.calls.raw_set("register_function", register)?;
        machine.calls.set_readonly(true);
        let note = scope.create_function(|_, error: Value| Ok(error))?;
        let returned = machine.protect.call::<MultiValue>((chunk, note));
        machine.calls.set_readonly(false);
        machine.calls.raw_set("register_function", Value::Nil)?;
        machine.calls.set_readonly(true);
        returned
    });
    let failed = match outcome {
        Ok(returned) => {
            let mut returned = returned.into_iter();
            let is_done = matches!(returned.next(), Some(Value::Boolean(true)));
            let error = returned.next().unwrap_or(Value::Nil);
            (!is_done).then(|| convert::error_text(&error, "", None))
        }
        Err(error) => Some(format!("ERR {}", plain(&error))),
    };
    match failed {
        Some(failed) => Err(format!("ERR Error registering functions: {failed}")),
        None if all.borrow().is_empty() => Err("ERR No functions registered".to_owned()),
        None => Ok(all.into_inner()),
    }
}

/// Returns a text or a number as a name.
fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        Value::Integer(n) => Some(n.to_string().into_bytes()),
        Value::Number(n) => Some(convert::number_text(*n).into_bytes()),
        _ => None,
    }
}

/// Reads the arguments of `redis.register_function`: a name and a function, or a table.
fn registered(words: &MultiValue) -> mlua::Result<Registered> {
    let words: Vec<_> = words.iter().collect();
    let new = match words[..] {
        [Value::Table(table)] => of_table(table)?,
        [_] => {
            return Err(script_error(
                "ERR calling redis.register_function with a single argument is only applicable to Lua table \
                 (representing named arguments).",
            ));
        }
        [name, run] => {
            let name = text(name).ok_or_else(|| {
                script_error("ERR first argument to redis.register_function must be a string")
            })?;
            let Value::Function(run) = run else {
                return Err(script_error(
                    "ERR second argument to redis.register_function must be a function",
                ));
            };
            Registered {
                name: String::from_utf8_lossy(&name).into_owned(),
                description: None,
                flags: Vec::new(),
                run: run.clone(),
            }
        }
        _ => return Err(script_error("ERR wrong number of arguments to redis.register_function")),
    };
    if is_name(&new.name) { Ok(new) } else { Err(script_error(WRONG_NAME)) }
}

fn of_table(table: &Table) -> mlua::Result<Registered> {
    let (mut name, mut run, mut description, mut flags) = (None, None, None, Vec::new());
    let string = |what: &str, value: &Value| {
        let wrong =
            || script_error(format!("ERR {what} argument given to redis.register_function must be a string"));
        text(value).ok_or_else(wrong)
    };
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let key = text(&key).unwrap_or_default();
        match key.as_slice() {
            b"function_name" => name = Some(string("function_name", &value)?),
            b"description" => description = Some(string("description", &value)?),
            b"callback" => match value {
                Value::Function(given) => run = Some(given),
                _ => {
                    return Err(script_error(
                        "ERR callback argument given to redis.register_function must be a function",
                    ));
                }
            },
            b"flags" => match value {
                Value::Table(given) => flags = flags_of(&given)?,
                _ => {
                    return Err(script_error(
                        "ERR flags argument to redis.register_function must be a table representing function flags",
                    ));
                }
            },
            _ => return Err(script_error("ERR unknown argument given to redis.register_function")),
        }
    }
    let missing =
        |what: &str| script_error(format!("ERR redis.register_function must get a {what} argument"));
    let name = name.ok_or_else(|| missing("function name"))?;
    let run = run.ok_or_else(|| missing("callback"))?;
    Ok(Registered { name: String::from_utf8_lossy(&name).into_owned(), description, flags, run })
}

fn flags_of(given: &Table) -> mlua::Result<Vec<&'static str>> {
    let mut flags = Vec::new();
    for at in 1..=limits::VALUES_MAX {
        let word = match given.raw_get::<Value>(at)? {
            Value::Nil => break,
            value => text(&value).unwrap_or_default(),
        };
        let flag = FLAGS.iter().find(|flag| flag.as_bytes() == word);
        flags.push(*flag.ok_or_else(|| script_error("ERR unknown flag given"))?);
    }
    flags.sort_unstable();
    flags.dedup();
    Ok(flags)
}
