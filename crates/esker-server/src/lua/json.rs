//! The library `cjson`. Strings are bytes, so text that is not UTF-8 passes through.

use mlua::{Lua, LuaString, Table, Value};

use super::limits::{self, Limits, PIECE};

/// Maximum depth of nesting.
const DEPTH_MAX: usize = 1000;

fn wrong<T>(text: impl Into<String>) -> mlua::Result<T> {
    Err(mlua::Error::runtime(text.into()))
}

pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let json = lua.create_table()?;
    json.set("null", Value::NULL)?;
    json.set(
        "encode",
        lua.create_function(|lua, value: Value| {
            let (mut text, limits) = (Vec::new(), limits::of(lua)?);
            encode(&mut text, &limits, &value, 0)?;
            limits.text(lua, text)
        })?,
    )?;
    json.set(
        "decode",
        lua.create_function(|lua, text: mlua::LuaString| {
            let bytes = text.as_bytes();
            let limits = limits::of(lua)?;
            let mut reader = Reader { limits: &limits, bytes: &bytes, at: 0 };
            let value = reader.value(lua, 0)?;
            reader.skip_spaces()?;
            if reader.at < reader.bytes.len() {
                return wrong(format!(
                    "Expected the end but found invalid token at character {}",
                    reader.at + 1
                ));
            }
            Ok(value)
        })?,
    )?;
    for name in [
        "encode_keep_buffer",
        "encode_max_depth",
        "decode_max_depth",
        "encode_sparse_array",
        "encode_invalid_numbers",
        "decode_invalid_numbers",
        "encode_number_precision",
    ] {
        json.set(name, lua.create_function(|_, _: mlua::MultiValue| Ok(()))?)?;
    }
    Ok(json)
}

fn put_text(out: &mut Vec<u8>, limits: &Limits, text: &[u8]) -> mlua::Result<()> {
    out.push(b'"');
    for piece in text.chunks(PIECE) {
        limits.add(out.len() + piece.len())?;
        let mut rest = piece;
        while let Some((byte, after)) = rest.split_first() {
            let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | b'/' | 0..=31 | 127);
            let plain = rest.iter().take_while(|byte| is_plain(byte)).count();
            if plain > 0 {
                out.extend_from_slice(&rest[..plain]);
                rest = &rest[plain..];
                continue;
            }
            put_escape(out, *byte);
            rest = after;
        }
    }
    out.push(b'"');
    Ok(())
}

fn put_escape(out: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' | b'\\' | b'/' => out.extend([b'\\', byte]),
        8 => out.extend_from_slice(b"\\b"),
        12 => out.extend_from_slice(b"\\f"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
        }
    }
}

fn number(n: f64) -> mlua::Result<String> {
    if !n.is_finite() {
        return wrong("Cannot serialise number: must not be NaN or Inf");
    }
    if n.fract() == 0.0 && n.abs() < 1e14 {
        return Ok(format!("{}", n as i64));
    }
    // Fourteen digits, like `%.14g`.
    let text = format!("{n:.13e}");
    let rounded: f64 = text.parse().unwrap_or(n);
    Ok(crate::resp::format_double(rounded))
}

/// Returns the length of a table as a list. `None` if it is not a list.
fn list_len(limits: &Limits, table: &Table) -> mlua::Result<Option<usize>> {
    let (mut count, mut max) = (0usize, 0usize);
    for pair in table.pairs::<Value, Value>() {
        limits.step()?;
        let at = match pair?.0 {
            Value::Integer(n) => usize::try_from(n).unwrap_or(0),
            Value::Number(n) if n.fract() == 0.0 && n >= 1.0 => n as usize,
            _ => 0,
        };
        if at == 0 {
            return Ok(None);
        }
        count += 1;
        max = max.max(at);
    }
    if max > 10 && max > 2 * count {
        return wrong("Cannot serialise table: excessively sparse array");
    }
    Ok((count > 0).then_some(max))
}

fn encode(out: &mut Vec<u8>, limits: &Limits, value: &Value, depth: usize) -> mlua::Result<()> {
    limits.add(out.len() + limits::len_of(value))?;
    if depth > DEPTH_MAX {
        return wrong("Cannot serialise, excessive depth");
    }
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(_) => out.extend_from_slice(b"null"),
        Value::Boolean(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
        Value::Integer(n) => out.extend_from_slice(n.to_string().as_bytes()),
        Value::Number(n) => out.extend_from_slice(number(*n)?.as_bytes()),
        Value::String(text) => put_text(out, limits, &text.as_bytes())?,
        Value::Table(table) => match list_len(limits, table)? {
            Some(len) => {
                for at in 1..=len {
                    out.push(if at == 1 { b'[' } else { b',' });
                    encode(out, limits, &table.raw_get::<Value>(at)?, depth + 1)?;
                }
                out.push(b']');
            }
            None => {
                out.push(b'{');
                let mut is_first = true;
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair?;
                    if !std::mem::take(&mut is_first) {
                        out.push(b',');
                    }
                    limits.add(out.len() + limits::len_of(&key))?;
                    match key {
                        Value::String(text) => put_text(out, limits, &text.as_bytes())?,
                        Value::Integer(n) => put_text(out, limits, n.to_string().as_bytes())?,
                        Value::Number(n) => put_text(out, limits, number(n)?.as_bytes())?,
                        _ => return wrong("Cannot serialise table: table key must be a number or string"),
                    }
                    out.push(b':');
                    encode(out, limits, &value, depth + 1)?;
                }
                out.push(b'}');
            }
        },
        other => return wrong(format!("Cannot serialise {}: type not supported", other.type_name())),
    }
    Ok(())
}

/// Maximum length of a number.
const NUMBER_MAX: usize = 4096;

struct Reader<'b> {
    limits: &'b Limits,
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn skip_spaces(&mut self) -> mlua::Result<()> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default().iter().take(PIECE);
            let spaces = rest.take_while(|byte| byte.is_ascii_whitespace()).count();
            self.at += spaces;
            if spaces < PIECE {
                return Ok(());
            }
            self.limits.step()?;
        }
    }

    fn unexpected<T>(&self) -> mlua::Result<T> {
        wrong(format!("Expected value but found invalid token at character {}", self.at + 1))
    }

    fn word(&mut self, word: &[u8], value: Value) -> mlua::Result<Value> {
        if !self.bytes[self.at..].starts_with(word) {
            return self.unexpected();
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self, lua: &Lua, depth: usize) -> mlua::Result<Value> {
        self.limits.step()?;
        if depth > DEPTH_MAX {
            return wrong("Found too many nested data structures");
        }
        self.skip_spaces()?;
        match self.bytes.get(self.at) {
            Some(b'{') => self.object(lua, depth),
            Some(b'[') => self.list(lua, depth),
            Some(b'"') => Ok(Value::String(self.text(lua)?)),
            Some(b't') => self.word(b"true", Value::Boolean(true)),
            Some(b'f') => self.word(b"false", Value::Boolean(false)),
            Some(b'n') => self.word(b"null", Value::NULL),
            Some(b'-' | b'0'..=b'9') => {
                let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let rest = &self.bytes[self.at..];
                let len = rest.iter().take(NUMBER_MAX + 1).take_while(|byte| is_part(byte)).count();
                if len > NUMBER_MAX {
                    return self.unexpected();
                }
                let end = self.at + len;
                let text = std::str::from_utf8(&self.bytes[self.at..end]).unwrap_or_default();
                let Ok(n) = text.parse::<f64>() else { return self.unexpected() };
                self.at = end;
                Ok(Value::Number(n))
            }
            _ => self.unexpected(),
        }
    }

    /// Called after an element. Returns whether another one follows.
    fn goes_on(&mut self, end: u8) -> mlua::Result<bool> {
        self.skip_spaces()?;
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        match byte {
            Some(b',') => Ok(true),
            Some(byte) if byte == end => Ok(false),
            _ => {
                self.at -= 1;
                wrong(format!("Expected comma or end but found invalid token at character {}", self.at + 1))
            }
        }
    }

    fn is_empty(&mut self, end: u8) -> mlua::Result<bool> {
        self.at += 1;
        self.skip_spaces()?;
        let is_empty = self.bytes.get(self.at) == Some(&end);
        self.at += usize::from(is_empty);
        Ok(is_empty)
    }

    fn list(&mut self, lua: &Lua, depth: usize) -> mlua::Result<Value> {
        let list = lua.create_table()?;
        if !self.is_empty(b']')? {
            let mut len = 0;
            loop {
                len += 1;
                list.raw_set(len, self.value(lua, depth + 1)?)?;
                if !self.goes_on(b']')? {
                    break;
                }
            }
        }
        Ok(Value::Table(list))
    }

    fn object(&mut self, lua: &Lua, depth: usize) -> mlua::Result<Value> {
        let object = lua.create_table()?;
        if !self.is_empty(b'}')? {
            loop {
                self.skip_spaces()?;
                if self.bytes.get(self.at) != Some(&b'"') {
                    return wrong(format!("Expected object key string at character {}", self.at + 1));
                }
                let key = self.text(lua)?;
                self.skip_spaces()?;
                if self.bytes.get(self.at) != Some(&b':') {
                    return wrong(format!("Expected colon at character {}", self.at + 1));
                }
                self.at += 1;
                object.raw_set(key, self.value(lua, depth + 1)?)?;
                if !self.goes_on(b'}')? {
                    break;
                }
            }
        }
        Ok(Value::Table(object))
    }

    fn hex(&mut self) -> mlua::Result<u32> {
        let digits = self.bytes.get(self.at..self.at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(code) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else {
            return wrong("Expected string but found invalid unicode escape");
        };
        self.at += 4;
        Ok(code)
    }

    fn text(&mut self, lua: &Lua) -> mlua::Result<LuaString> {
        let mut text = Vec::new();
        self.at += 1;
        loop {
            let rest = self.bytes[self.at.min(self.bytes.len())..].iter().take(PIECE);
            let plain = rest.take_while(|byte| !matches!(byte, b'"' | b'\\')).count();
            self.limits.step()?;
            text.extend_from_slice(&self.bytes[self.at..self.at + plain]);
            self.at += plain;
            if plain == PIECE {
                continue;
            }
            let byte = self.bytes.get(self.at).copied();
            self.at += 1;
            match byte {
                None => return wrong("Expected string but found unexpected end of string"),
                Some(b'"') => return self.limits.text(lua, text),
                Some(b'\\') => {
                    let escaped = self.bytes.get(self.at).copied();
                    self.at += 1;
                    match escaped {
                        Some(byte @ (b'"' | b'\\' | b'/')) => text.push(byte),
                        Some(b'b') => text.push(8),
                        Some(b'f') => text.push(12),
                        Some(b'n') => text.push(b'\n'),
                        Some(b'r') => text.push(b'\r'),
                        Some(b't') => text.push(b'\t'),
                        Some(b'u') => {
                            let mut code = self.hex()?;
                            if (0xD800..0xDC00).contains(&code) && self.bytes[self.at..].starts_with(b"\\u") {
                                self.at += 2;
                                let low = self.hex()?;
                                code = 0x10000 + ((code - 0xD800) << 10) + (low & 0x3FF);
                            }
                            let c = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                            text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                        }
                        _ => return wrong("Expected string but found invalid escape code"),
                    }
                }
                Some(byte) => text.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn lua_2_spaces_are_passed_over_in_steps() {
        let limits = Limits::new(Arc::new(true.into()));
        let mut few = Reader { limits: &limits, bytes: b"  1", at: 0 };
        assert!(few.skip_spaces().is_ok() && few.at == 2);
        let bytes = vec![b' '; 3 * PIECE];
        let mut many = Reader { limits: &limits, bytes: &bytes, at: 0 };
        assert!(many.skip_spaces().is_err() && many.at == PIECE);
        let limits = Limits::new(Arc::default());
        let mut many = Reader { limits: &limits, bytes: &bytes, at: 0 };
        assert!(many.skip_spaces().is_ok() && many.at == bytes.len());
    }
}
