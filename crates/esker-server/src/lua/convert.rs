//! Replies as values of Lua, and values of Lua as replies.

use std::borrow::Cow;
use std::fmt;

use mlua::{Lua, Table, Value};

use crate::resp::Out;

/// Tables in tables, no deeper.
const DEPTH_MAX: usize = 64;

/// A table that means an error.
pub(super) fn error(lua: &Lua, text: &str) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    Ok(Value::Table(table))
}

/// An error whose text is the reply of the script, if it does not catch it.
#[derive(Debug)]
struct Told(String);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Told {}

pub(super) fn told(text: impl Into<String>) -> mlua::Error {
    mlua::Error::external(Told(text.into()))
}

/// The text of an error of ours, or of Lua's.
fn text_of(error: &mlua::Error) -> Cow<'_, str> {
    match error.downcast_ref::<Told>() {
        Some(Told(text)) => Cow::Borrowed(text),
        None => Cow::Owned(super::plain(error)),
    }
}

/// An error as scripts see it: a table, or the text of one.
pub(super) fn caught(lua: &Lua, value: Value, as_table: bool) -> mlua::Result<Value> {
    match &value {
        Value::Error(failed) if as_table => error(lua, &text_of(failed)),
        Value::Error(failed) => Ok(Value::String(lua.create_string(text_of(failed).as_bytes())?)),
        Value::Table(table) if !as_table => match table.get::<Value>("err")? {
            text @ Value::String(_) => Ok(text),
            _ => Ok(value),
        },
        _ => Ok(value),
    }
}

/// What a client is told of an error that a script has not caught.
pub(super) fn error_text(value: &Value) -> String {
    let text = match value {
        Value::Table(table) => match table.raw_get::<Value>("err") {
            Ok(Value::String(text)) => return text.to_string_lossy(),
            _ => "unknown error".to_owned(),
        },
        Value::String(text) => text.to_string_lossy(),
        Value::Error(error) => match error.downcast_ref::<Told>() {
            Some(Told(text)) => return text.clone(),
            None => super::plain(error),
        },
        other => format!("{other:?}"),
    };
    format!("ERR {text}")
}

/// A value as a number, as Lua takes it for one.
pub(super) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(n) => Some(*n as f64),
        Value::Number(n) => Some(*n),
        Value::String(text) => crate::numbers::parse_float(&text.as_bytes()),
        _ => None,
    }
}

/// A number as a word of a command: whole ones without a fraction.
pub(super) fn number_text(n: f64) -> String {
    if n.fract() == 0.0 && n.abs() < 1e17 { format!("{}", n as i64) } else { crate::resp::format_double(n) }
}

fn line<'b>(bytes: &mut &'b [u8]) -> &'b [u8] {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n").unwrap_or(bytes.len());
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

/// The next reply of some bytes.
pub(super) fn reply(lua: &Lua, bytes: &mut &[u8]) -> mlua::Result<Value> {
    let head = line(bytes);
    let Some((kind, text)) = head.split_first() else { return Ok(Value::Boolean(false)) };
    match kind {
        b'+' => tagged(lua, "ok", Value::String(lua.create_string(text)?)),
        b'-' => tagged(lua, "err", Value::String(lua.create_string(text)?)),
        b':' => Ok(Value::Number(count_int(text) as f64)),
        b',' => {
            let n = crate::numbers::parse_float(text).unwrap_or(f64::NAN);
            tagged(lua, "double", Value::Number(n))
        }
        b'#' => Ok(Value::Boolean(text == b"t")),
        b'_' => Ok(Value::Nil),
        b'$' | b'=' => match usize::try_from(count(text)) {
            Err(_) => Ok(Value::Boolean(false)),
            Ok(len) => {
                let text = bytes.get(..len).unwrap_or_default();
                *bytes = bytes.get(len + 2..).unwrap_or_default();
                Ok(Value::String(lua.create_string(text)?))
            }
        },
        b'%' => {
            let map = lua.create_table()?;
            for _ in 0..count(text) {
                let (key, value) = (reply(lua, bytes)?, reply(lua, bytes)?);
                map.raw_set(key, value)?;
            }
            tagged(lua, "map", Value::Table(map))
        }
        b'~' => {
            let set = lua.create_table()?;
            for _ in 0..count(text) {
                set.raw_set(reply(lua, bytes)?, true)?;
            }
            tagged(lua, "set", Value::Table(set))
        }
        _ => {
            let Ok(len) = usize::try_from(count(text)) else { return Ok(Value::Boolean(false)) };
            let list = lua.create_table_with_capacity(len.min(1 << 16), 0)?;
            for at in 0..len {
                list.raw_set(at + 1, reply(lua, bytes)?)?;
            }
            Ok(Value::Table(list))
        }
    }
}

fn count_int(text: &[u8]) -> i64 {
    crate::numbers::parse_int(text).unwrap_or(0)
}

/// Replies a value. `is_resp3`: the script has chosen version 3, so that it tells false from nothing.
pub(super) fn put(out: &mut Out, value: &Value, is_resp3: bool, depth: usize) -> mlua::Result<()> {
    if depth > DEPTH_MAX {
        out.error("ERR reached lua stack limit");
        return Ok(());
    }
    match value {
        Value::String(text) => out.bulk(&text.as_bytes()),
        Value::Integer(n) => out.int(*n),
        Value::Number(n) => out.int(*n as i64),
        Value::Boolean(true) if !is_resp3 => out.int(1),
        Value::Boolean(false) if !is_resp3 => out.null(),
        Value::Boolean(yes) => out.bool(*yes),
        Value::Table(table) => return put_table(out, table, is_resp3, depth),
        _ => out.null(),
    }
    Ok(())
}

fn put_table(out: &mut Out, table: &Table, is_resp3: bool, depth: usize) -> mlua::Result<()> {
    if let Value::String(text) = table.raw_get::<Value>("err")? {
        out.error(&text.to_string_lossy());
        return Ok(());
    }
    if let Value::String(text) = table.raw_get::<Value>("ok")? {
        out.simple(&text.to_string_lossy().replace(['\r', '\n'], " "));
        return Ok(());
    }
    if let Value::Number(n) = table.raw_get::<Value>("double")? {
        out.double(n);
        return Ok(());
    }
    if let Value::Table(map) = table.raw_get::<Value>("map")? {
        let mark = out.mark();
        let mut len = 0;
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair?;
            put(out, &key, is_resp3, depth + 1)?;
            put(out, &value, is_resp3, depth + 1)?;
            len += 1;
        }
        out.map_at(mark, len);
        return Ok(());
    }
    if let Value::Table(set) = table.raw_get::<Value>("set")? {
        let mark = out.mark();
        let mut len = 0;
        for pair in set.pairs::<Value, Value>() {
            put(out, &pair?.0, is_resp3, depth + 1)?;
            len += 1;
        }
        out.set_at(mark, len);
        return Ok(());
    }
    let mark = out.mark();
    let mut len = 0;
    loop {
        let item = table.raw_get::<Value>(len + 1)?;
        if item.is_nil() {
            break;
        }
        put(out, &item, is_resp3, depth + 1)?;
        len += 1;
    }
    out.array_at(mark, len);
    Ok(())
}
