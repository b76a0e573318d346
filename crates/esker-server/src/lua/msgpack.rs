//! The library `cmsgpack`: <https://github.com/msgpack/msgpack/blob/master/spec.md>

use mlua::{Lua, MultiValue, Table, Value, Variadic};

use super::limits::{self, Limits, VALUES_MAX};

/// Deeper tables are packed as nil, and refused when unpacking.
const DEPTH_MAX: usize = 16;

pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let msgpack = lua.create_table()?;
    msgpack.set(
        "pack",
        lua.create_function(|lua, values: Variadic<Value>| {
            let (mut bytes, limits) = (Vec::new(), limits::of(lua)?);
            for value in values.iter() {
                pack(&mut bytes, &limits, value, 0)?;
            }
            limits.text(lua, bytes)
        })?,
    )?;
    msgpack.set(
        "unpack",
        lua.create_function(|lua, text: mlua::LuaString| {
            let mut values = unpack_some(lua, &text.as_bytes(), Some(usize::MAX), None)?;
            values.pop_front();
            Ok(values)
        })?,
    )?;
    msgpack.set(
        "unpack_one",
        lua.create_function(|lua, (text, offset): (mlua::LuaString, Option<i64>)| {
            unpack_some(lua, &text.as_bytes(), Some(1), offset)
        })?,
    )?;
    msgpack.set(
        "unpack_limit",
        lua.create_function(|lua, (text, limit, offset): (mlua::LuaString, i64, Option<i64>)| {
            unpack_some(lua, &text.as_bytes(), usize::try_from(limit).ok(), offset)
        })?,
    )?;
    Ok(msgpack)
}

/// Unpacks values from an offset on. The first result is the offset of the next value, or -1 at the end.
fn unpack_some(
    lua: &Lua,
    bytes: &[u8],
    limit: Option<usize>,
    offset: Option<i64>,
) -> mlua::Result<MultiValue> {
    let start = usize::try_from(offset.unwrap_or(0)).ok().filter(|start| *start <= bytes.len());
    let start = start.ok_or_else(|| mlua::Error::runtime("Start offset greater than input length."))?;
    let limit =
        limit.ok_or_else(|| mlua::Error::runtime("Invalid request to unpack with a negative limit."))?;
    let mut rest = &bytes[start..];
    let mut values = vec![Value::Nil];
    let limits = limits::of(lua)?;
    while !rest.is_empty() && values.len() <= limit {
        if values.len() > VALUES_MAX {
            return Err(mlua::Error::runtime("too many results to unpack"));
        }
        values.push(unpack(lua, &limits, &mut rest, 0)?);
    }
    let next = if rest.is_empty() { -1.0 } else { (bytes.len() - rest.len()) as f64 };
    values[0] = Value::Number(next);
    Ok(MultiValue::from_vec(values))
}

/// Writes a length: in the mark itself if it is small, otherwise after a mark in 1, 2 or 4 bytes.
fn put_len(bytes: &mut Vec<u8>, len: usize, small: Option<(usize, u8)>, marks: [Option<u8>; 3]) {
    match (small, marks) {
        (Some((max, mark)), _) if len <= max => bytes.push(mark | len as u8),
        (_, [Some(mark), ..]) if len <= 0xFF => bytes.extend([mark, len as u8]),
        (_, [_, Some(mark), _]) if len <= 0xFFFF => {
            bytes.push(mark);
            bytes.extend((len as u16).to_be_bytes());
        }
        (_, [.., mark]) => {
            bytes.push(mark.unwrap_or(0xC0));
            bytes.extend((len as u32).to_be_bytes());
        }
    }
}

fn put_int(bytes: &mut Vec<u8>, n: i64) {
    match n {
        0..=0x7F => bytes.push(n as u8),
        -32..=-1 => bytes.push(n as u8),
        0x80..=0xFF => bytes.extend([0xCC, n as u8]),
        0x100..=0xFFFF => {
            bytes.push(0xCD);
            bytes.extend((n as u16).to_be_bytes());
        }
        0x1_0000..=0xFFFF_FFFF => {
            bytes.push(0xCE);
            bytes.extend((n as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            bytes.push(0xCF);
            bytes.extend((n as u64).to_be_bytes());
        }
        -0x80..=-33 => bytes.extend([0xD0, n as u8]),
        -0x8000..=-0x81 => {
            bytes.push(0xD1);
            bytes.extend((n as i16).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            bytes.push(0xD2);
            bytes.extend((n as i32).to_be_bytes());
        }
        _ => {
            bytes.push(0xD3);
            bytes.extend(n.to_be_bytes());
        }
    }
}

/// Returns whether the keys of a table are exactly 1 to its length.
fn is_list(limits: &Limits, table: &Table) -> mlua::Result<bool> {
    let (mut count, mut max) = (0usize, 0.0f64);
    for pair in table.pairs::<Value, Value>() {
        limits.step()?;
        let n = match pair?.0 {
            Value::Integer(n) => n as f64,
            Value::Number(n) => n,
            _ => return Ok(false),
        };
        if n < 1.0 || n.fract() != 0.0 {
            return Ok(false);
        }
        count += 1;
        max = max.max(n);
    }
    Ok(max == count as f64)
}

fn pack(bytes: &mut Vec<u8>, limits: &Limits, value: &Value, depth: usize) -> mlua::Result<()> {
    limits.add(bytes.len() + limits::len_of(value))?;
    match value {
        Value::String(text) => {
            let text = text.as_bytes();
            put_len(bytes, text.len(), Some((31, 0xA0)), [Some(0xD9), Some(0xDA), Some(0xDB)]);
            bytes.extend_from_slice(&text);
        }
        Value::Boolean(yes) => bytes.push(if *yes { 0xC3 } else { 0xC2 }),
        Value::Integer(n) => put_int(bytes, *n),
        Value::Number(n) if n.fract() == 0.0 && n.abs() < 9.2e18 => put_int(bytes, *n as i64),
        Value::Number(n) if f64::from(*n as f32) == *n => {
            bytes.push(0xCA);
            bytes.extend((*n as f32).to_be_bytes());
        }
        Value::Number(n) => {
            bytes.push(0xCB);
            bytes.extend(n.to_be_bytes());
        }
        Value::Table(_) if depth >= DEPTH_MAX => bytes.push(0xC0),
        Value::Table(table) if is_list(limits, table)? => {
            let len = table.raw_len();
            put_len(bytes, len, Some((15, 0x90)), [None, Some(0xDC), Some(0xDD)]);
            for at in 1..=len {
                pack(bytes, limits, &table.raw_get::<Value>(at)?, depth + 1)?;
            }
        }
        Value::Table(table) => {
            // One pair at a time: Lua's stack has room for some thousand values.
            let len = table.pairs::<Value, Value>().count();
            put_len(bytes, len, Some((15, 0x80)), [None, Some(0xDE), Some(0xDF)]);
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                pack(bytes, limits, &key, depth + 1)?;
                pack(bytes, limits, &value, depth + 1)?;
            }
        }
        _ => bytes.push(0xC0),
    }
    Ok(())
}

fn missing() -> mlua::Error {
    mlua::Error::runtime("Missing bytes in input.")
}

fn take<'b, const N: usize>(rest: &mut &'b [u8]) -> mlua::Result<&'b [u8; N]> {
    let (taken, after) = rest.split_first_chunk::<N>().ok_or_else(missing)?;
    *rest = after;
    Ok(taken)
}

fn text(lua: &Lua, limits: &Limits, rest: &mut &[u8], len: usize) -> mlua::Result<Value> {
    let (text, after) = rest.split_at_checked(len).ok_or_else(missing)?;
    *rest = after;
    Ok(Value::String(limits.text(lua, text)?))
}

fn list(lua: &Lua, limits: &Limits, rest: &mut &[u8], len: usize, depth: usize) -> mlua::Result<Value> {
    let list = lua.create_table()?;
    for at in 1..=len {
        list.raw_set(at, unpack(lua, limits, rest, depth + 1)?)?;
    }
    Ok(Value::Table(list))
}

fn map(lua: &Lua, limits: &Limits, rest: &mut &[u8], len: usize, depth: usize) -> mlua::Result<Value> {
    let map = lua.create_table()?;
    for _ in 0..len {
        let (key, value) = (unpack(lua, limits, rest, depth + 1)?, unpack(lua, limits, rest, depth + 1)?);
        map.raw_set(key, value)?;
    }
    Ok(Value::Table(map))
}

fn unpack(lua: &Lua, limits: &Limits, rest: &mut &[u8], depth: usize) -> mlua::Result<Value> {
    limits.step()?;
    if depth > DEPTH_MAX {
        return Err(mlua::Error::runtime("Found too many nested data structures"));
    }
    let [mark] = *take::<1>(rest)?;
    let number = |n: f64| Ok(Value::Number(n));
    match mark {
        0..=0x7F => number(mark.into()),
        0x80..=0x8F => map(lua, limits, rest, usize::from(mark & 15), depth),
        0x90..=0x9F => list(lua, limits, rest, usize::from(mark & 15), depth),
        0xA0..=0xBF => text(lua, limits, rest, usize::from(mark & 31)),
        0xC0 => Ok(Value::Nil),
        0xC2 | 0xC3 => Ok(Value::Boolean(mark == 0xC3)),
        0xC4 | 0xD9 => {
            let len = u8::from_be_bytes(*take(rest)?);
            text(lua, limits, rest, len.into())
        }
        0xC5 | 0xDA => {
            let len = u16::from_be_bytes(*take(rest)?);
            text(lua, limits, rest, len.into())
        }
        0xC6 | 0xDB => {
            let len = u32::from_be_bytes(*take(rest)?);
            text(lua, limits, rest, len as usize)
        }
        0xCA => number(f32::from_be_bytes(*take(rest)?).into()),
        0xCB => number(f64::from_be_bytes(*take(rest)?)),
        0xCC => number(u8::from_be_bytes(*take(rest)?).into()),
        0xCD => number(u16::from_be_bytes(*take(rest)?).into()),
        0xCE => number(u32::from_be_bytes(*take(rest)?).into()),
        0xCF => number(u64::from_be_bytes(*take(rest)?) as f64),
        0xD0 => number(i8::from_be_bytes(*take(rest)?).into()),
        0xD1 => number(i16::from_be_bytes(*take(rest)?).into()),
        0xD2 => number(i32::from_be_bytes(*take(rest)?).into()),
        0xD3 => number(i64::from_be_bytes(*take(rest)?) as f64),
        0xDC => {
            let len = u16::from_be_bytes(*take(rest)?);
            list(lua, limits, rest, len.into(), depth)
        }
        0xDD => {
            let len = u32::from_be_bytes(*take(rest)?);
            list(lua, limits, rest, len as usize, depth)
        }
        0xDE => {
            let len = u16::from_be_bytes(*take(rest)?);
            map(lua, limits, rest, len.into(), depth)
        }
        0xDF => {
            let len = u32::from_be_bytes(*take(rest)?);
            map(lua, limits, rest, len as usize, depth)
        }
        0xE0.. => number((mark as i8).into()),
        _ => Err(mlua::Error::runtime("Bad data format in input.")),
    }
}
