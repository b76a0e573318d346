//! Converts replies to Lua values, and Lua values to replies.

use std::borrow::Cow;
use std::fmt;

use mlua::{Lua, LuaString, Table, Value};

use super::errors::{plain, without_prelude};
use super::limits::{self, Limits};
use crate::resp::{ERROR_BYTES_MAX, Mark, Out};

/// Maximum depth of nested tables.
const DEPTH_MAX: usize = 64;

/// Returns a table that represents an error.
pub(crate) fn error(lua: &Lua, text: &str) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    Ok(Value::Table(table))
}

/// An error whose text becomes the reply of the script, unless the script catches it.
#[derive(Debug)]
struct ScriptError(String);

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScriptError {}

pub(crate) fn script_error(text: impl Into<String>) -> mlua::Error {
    mlua::Error::external(ScriptError(text.into()))
}

/// Returns the text of a server error or a Lua error.
fn text_of(error: &mlua::Error) -> Cow<'_, str> {
    match error.downcast_ref::<ScriptError>() {
        Some(ScriptError(text)) => Cow::Borrowed(text),
        None => Cow::Owned(plain(error)),
    }
}

/// Returns the text of a Luau error without the line of the prelude, if that differs. No program depends on
/// the line.
fn in_words_of_redis(text: &str) -> Option<String> {
    let own = without_prelude(text);
    let own = own.replace("attempt to modify a readonly table", "Attempt to modify a readonly table");
    (own != text).then_some(own)
}

/// Returns the part of a text that an error shows. The rest may be long and is not read.
fn beginning(text: &LuaString) -> String {
    let bytes = text.as_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(ERROR_BYTES_MAX)]).into_owned()
}

/// Returns an error as scripts see it: a table, or the text of an error.
pub(crate) fn caught(lua: &Lua, value: Value, as_table: bool) -> mlua::Result<Value> {
    match &value {
        Value::Error(failed) if as_table => error(lua, &text_of(failed)),
        Value::Error(failed) => Ok(Value::String(lua.create_string(text_of(failed).as_bytes())?)),
        Value::Table(table) if !as_table => match table.raw_get::<Value>("err")? {
            text @ Value::String(_) => Ok(text),
            _ => Ok(value),
        },
        // Errors of the interpreter are short.
        Value::String(text) if text.as_bytes().len() > ERROR_BYTES_MAX => Ok(value),
        Value::String(text) => match in_words_of_redis(&text.to_string_lossy()) {
            Some(text) => Ok(Value::String(lua.create_string(text)?)),
            None => Ok(value),
        },
        _ => Ok(value),
    }
}

/// Returns the reply for an error that a script did not catch, with the place where it was raised.
pub(crate) fn error_text(value: &Value, digest: &str, place: Option<&str>) -> String {
    let behind = place.map(|place| format!(" script: {digest}, on @{place}.")).unwrap_or_default();
    let of_lua = |text: &str| {
        let own = without_prelude(text);
        // Functions of the prelude report errors of the script that called them.
        let before = if own.len() < text.len() { place.map(|place| format!("{place}: ")) } else { None };
        let own = in_words_of_redis(own).unwrap_or_else(|| own.to_owned());
        format!("ERR {}{own}{behind}", before.unwrap_or_default())
    };
    match value {
        Value::Table(table) => match table.raw_get::<Value>("err") {
            Ok(Value::String(text)) => beginning(&text) + &behind,
            _ => of_lua("unknown error"),
        },
        Value::String(text) => of_lua(&beginning(text)),
        Value::Error(error) => match error.downcast_ref::<ScriptError>() {
            Some(ScriptError(text)) => format!("{text}{behind}"),
            None => of_lua(&plain(error)),
        },
        other => of_lua(other.type_name()),
    }
}

/// Converts a value to a number, like Lua.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(n) => Some(*n as f64),
        Value::Number(n) => Some(*n),
        Value::String(text) => crate::resp::numbers::parse_float(&text.as_bytes()),
        _ => None,
    }
}

/// Formats a number as an argument of a command. Integers have no fraction.
pub(crate) fn number_text(n: f64) -> String {
    if n.fract() == 0.0 && n.abs() < 1e17 { format!("{}", n as i64) } else { crate::resp::format_double(n) }
}

fn line<'b>(bytes: &mut &'b [u8]) -> &'b [u8] {
    // A line contains no '\r'.
    let end = memchr::memchr(b'\r', bytes).unwrap_or(bytes.len());
    let line = &bytes[..end];
    *bytes = bytes.get(end + 2..).unwrap_or_default();
    line
}

fn count(text: &[u8]) -> i64 {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(-1)
}

fn tagged(lua: &Lua, name: &str, value: Value) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

/// Converts the next reply.
pub(crate) fn reply(lua: &Lua, limits: &Limits, bytes: &mut &[u8]) -> mlua::Result<Value> {
    limits.step()?;
    let head = line(bytes);
    let Some((kind, text)) = head.split_first() else { return Ok(Value::Boolean(false)) };
    match kind {
        b'+' => tagged(lua, "ok", Value::String(lua.create_string(text)?)),
        b'-' => tagged(lua, "err", Value::String(lua.create_string(text)?)),
        b':' => Ok(Value::Number(count_int(text) as f64)),
        b',' => {
            let n = crate::resp::numbers::parse_float(text).unwrap_or(f64::NAN);
            tagged(lua, "double", Value::Number(n))
        }
        b'#' => Ok(Value::Boolean(text == b"t")),
        b'_' => Ok(Value::Nil),
        b'$' | b'=' => match usize::try_from(count(text)) {
            Err(_) => Ok(Value::Boolean(false)),
            Ok(len) => {
                let text = bytes.get(..len).unwrap_or_default();
                *bytes = bytes.get(len + 2..).unwrap_or_default();
                Ok(Value::String(limits.text(lua, text)?))
            }
        },
        b'%' => {
            let map = lua.create_table()?;
            for _ in 0..count(text) {
                let (key, value) = (reply(lua, limits, bytes)?, reply(lua, limits, bytes)?);
                map.raw_set(key, value)?;
            }
            tagged(lua, "map", Value::Table(map))
        }
        b'~' => {
            let set = lua.create_table()?;
            for _ in 0..count(text) {
                set.raw_set(reply(lua, limits, bytes)?, true)?;
            }
            tagged(lua, "set", Value::Table(set))
        }
        _ => {
            let Ok(len) = usize::try_from(count(text)) else { return Ok(Value::Boolean(false)) };
            let list = lua.create_table_with_capacity(len.min(1 << 16), 0)?;
            for at in 0..len {
                list.raw_set(at + 1, reply(lua, limits, bytes)?)?;
            }
            Ok(Value::Table(list))
        }
    }
}

fn count_int(text: &[u8]) -> i64 {
    crate::resp::numbers::parse_int(text).unwrap_or(0)
}

/// Writes values of a script as replies.
pub(crate) struct Putter<'a> {
    pub out: &'a mut Out,
    pub limits: &'a Limits,
    /// Whether the script has chosen RESP3, which distinguishes false from null.
    pub is_resp3: bool,
    /// Start of its reply.
    pub mark: Mark,
}

impl Putter<'_> {
    pub(crate) fn put(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.limits.add(self.out.since(self.mark).len() + limits::len_of(value))?;
        if depth > DEPTH_MAX {
            self.out.error("ERR reached lua stack limit");
            return Ok(());
        }
        match value {
            Value::String(text) => self.out.bulk(&text.as_bytes()),
            Value::Integer(n) => self.out.int(*n),
            Value::Number(n) => self.out.int(*n as i64),
            Value::Boolean(true) if !self.is_resp3 => self.out.int(1),
            Value::Boolean(false) if !self.is_resp3 => self.out.null(),
            Value::Boolean(yes) => self.out.bool(*yes),
            Value::Table(table) => return self.put_table(table, depth),
            _ => self.out.null(),
        }
        Ok(())
    }

    fn put_table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        if let Value::String(text) = table.raw_get::<Value>("err")? {
            self.add_text(&text)?;
            self.out.error(&beginning(&text));
            return Ok(());
        }
        if let Value::String(text) = table.raw_get::<Value>("ok")? {
            self.add_text(&text)?;
            return self.out.long_simple(&text.as_bytes(), || self.limits.step());
        }
        match table.raw_get::<Value>("double")? {
            Value::Number(n) => {
                self.out.double(n);
                return Ok(());
            }
            Value::Integer(n) => {
                self.out.double(n as f64);
                return Ok(());
            }
            _ => {}
        }
        let mark = self.out.mark();
        let mut len = 0;
        if let Value::Table(map) = table.raw_get::<Value>("map")? {
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.put(&key, depth + 1)?;
                self.put(&value, depth + 1)?;
                len += 1;
            }
            self.out.map_at(mark, len);
            return Ok(());
        }
        if let Value::Table(set) = table.raw_get::<Value>("set")? {
            for pair in set.pairs::<Value, Value>() {
                self.put(&pair?.0, depth + 1)?;
                len += 1;
            }
            self.out.set_at(mark, len);
            return Ok(());
        }
        loop {
            let item = table.raw_get::<Value>(len + 1)?;
            if item.is_nil() {
                break;
            }
            self.put(&item, depth + 1)?;
            len += 1;
        }
        self.out.array_at(mark, len);
        Ok(())
    }

    fn add_text(&self, text: &mlua::LuaString) -> mlua::Result<()> {
        self.limits.add(self.out.since(self.mark).len() + text.as_bytes().len())
    }
}
