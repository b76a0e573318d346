//! The library `struct`: packs and unpacks numbers and texts by a format, like R. Ierusalimschy's library of
//! this name.
//!
//! | letter | meaning |
//! |---|---|
//! | `<` `>` `=` | byte order from here on: little, big, native |
//! | `!n` | numbers are aligned to their size, at most to n (8) |
//! | `b` `h` `i` `l` `T`, `in` | integers of 1, 2, 4, 8, 8, n bytes; unsigned in capitals |
//! | `f` `d` | floating-point numbers of 4 and 8 bytes |
//! | `s` | a text and a zero byte |
//! | `cn` | n bytes; `c0`: as many as the number before says, or the whole text |
//! | `x` | a zero byte without meaning |

use mlua::{Lua, LuaString, MultiValue, Table, Value, Variadic};

use super::limits::{self, Limits, VALUES_MAX};

/// Maximum size of the result.
const BYTES_MAX: usize = 64 << 20;
/// Maximum number of digits in a format's number.
const DIGITS_MAX: usize = 20;

fn wrong<T>(why: impl std::fmt::Display) -> mlua::Result<T> {
    Err(mlua::Error::runtime(why))
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Item {
    Int { size: usize, signed: bool },
    Float { size: usize },
    Text,
    Chars { len: usize },
    Pad,
}

/// Reads a format item by item.
struct Format<'a> {
    limits: &'a Limits,
    rest: &'a [u8],
    is_little: bool,
    align_max: usize,
}

impl<'a> Format<'a> {
    fn new(limits: &'a Limits, text: &'a [u8]) -> Self {
        Format { limits, rest: text, is_little: cfg!(target_endian = "little"), align_max: 1 }
    }

    /// Parses the number that follows, or returns `otherwise`.
    fn number(&mut self, otherwise: usize) -> mlua::Result<usize> {
        let digits = self.rest.iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit()).count();
        if digits > DIGITS_MAX {
            return wrong("format: a number is too large");
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if number.is_empty() {
            return Ok(otherwise);
        }
        match std::str::from_utf8(number).ok().and_then(|text| text.parse().ok()) {
            Some(n) if n <= BYTES_MAX => Ok(n),
            _ => wrong("format: a number is too large"),
        }
    }

    fn next(&mut self) -> mlua::Result<Option<Item>> {
        loop {
            self.limits.step()?;
            let Some((letter, rest)) = self.rest.split_first() else { return Ok(None) };
            self.rest = rest;
            let int = |size, signed| Ok(Some(Item::Int { size, signed }));
            return match letter {
                b'<' | b'>' | b'=' => {
                    self.is_little = match letter {
                        b'=' => cfg!(target_endian = "little"),
                        letter => *letter == b'<',
                    };
                    continue;
                }
                b'!' => {
                    self.align_max = self.number(8)?;
                    if !self.align_max.is_power_of_two() || self.align_max > 16 {
                        return wrong("alignment is not a power of 2");
                    }
                    continue;
                }
                b' ' => continue,
                b'b' | b'B' => int(1, *letter == b'b'),
                b'h' | b'H' => int(2, *letter == b'h'),
                b'l' | b'L' => int(8, *letter == b'l'),
                b'T' => int(8, false),
                b'i' | b'I' => match self.number(4)? {
                    size @ 1..=8 => int(size, *letter == b'i'),
                    size => wrong(format_args!("integral size {size} is larger than limit of 8")),
                },
                b'f' => Ok(Some(Item::Float { size: 4 })),
                b'd' => Ok(Some(Item::Float { size: 8 })),
                b's' => Ok(Some(Item::Text)),
                b'c' => Ok(Some(Item::Chars { len: self.number(1)? })),
                b'x' => Ok(Some(Item::Pad)),
                other => wrong(format_args!("invalid format option '{}'", other.escape_ascii())),
            };
        }
    }

    /// Returns the padding before an item that would start at `at`.
    fn padding(&self, item: Item, at: usize) -> usize {
        let (Item::Int { size, .. } | Item::Float { size }) = item else { return 0 };
        let align = size.min(self.align_max);
        if align.is_power_of_two() { at.wrapping_neg() & (align - 1) } else { 0 }
    }

    fn put(&self, to: &mut Vec<u8>, little: [u8; 8], size: usize) {
        let bytes = &little[..size];
        if self.is_little { to.extend(bytes) } else { to.extend(bytes.iter().rev()) }
    }

    fn take(&self, bytes: &[u8]) -> [u8; 8] {
        let mut little = [0; 8];
        for (at, byte) in bytes.iter().enumerate() {
            little[if self.is_little { at } else { bytes.len() - 1 - at }] = *byte;
        }
        little
    }
}

fn number(value: Option<&Value>) -> mlua::Result<f64> {
    match value {
        Some(Value::Integer(n)) => Ok(*n as f64),
        Some(Value::Number(n)) => Ok(*n),
        Some(Value::String(text)) => match text.to_str()?.trim().parse() {
            Ok(n) => Ok(n),
            Err(_) => wrong("number expected, got string"),
        },
        _ => wrong("number expected"),
    }
}

fn pack(limits: &Limits, format: &[u8], values: &[Value]) -> mlua::Result<Vec<u8>> {
    let mut format = Format::new(limits, format);
    let mut bytes = Vec::new();
    let mut values = values.iter();
    while let Some(item) = format.next()? {
        bytes.resize(bytes.len() + format.padding(item, bytes.len()), 0);
        match item {
            Item::Int { size, .. } => {
                let n = number(values.next())?;
                let whole = if n < 0.0 { n as i64 as u64 } else { n as u64 };
                format.put(&mut bytes, whole.to_le_bytes(), size);
            }
            Item::Float { size: 4 } => {
                let mut little = [0; 8];
                little[..4].copy_from_slice(&(number(values.next())? as f32).to_le_bytes());
                format.put(&mut bytes, little, 4);
            }
            Item::Float { size } => format.put(&mut bytes, number(values.next())?.to_le_bytes(), size),
            Item::Pad => bytes.push(0),
            Item::Text | Item::Chars { .. } => {
                let Some(Value::String(text)) = values.next() else { return wrong("string expected") };
                let text = text.as_bytes();
                match item {
                    Item::Chars { len } if len > text.len() => return wrong("string too short"),
                    Item::Chars { len } if len > 0 => bytes.extend_from_slice(&text[..len]),
                    _ => bytes.extend_from_slice(&text),
                }
                if item == Item::Text {
                    bytes.push(0);
                }
            }
        }
        if bytes.len() > BYTES_MAX {
            return wrong("the result is too long");
        }
    }
    Ok(bytes)
}

/// Unpacks values. The last result is the position of the next byte, counted from 1.
fn unpack(lua: &Lua, format: &[u8], data: &[u8], from: usize) -> mlua::Result<MultiValue> {
    let limits = limits::of(lua)?;
    let mut format = Format::new(&limits, format);
    let mut at = from.saturating_sub(1);
    let mut values: Vec<Value> = Vec::new();
    while let Some(item) = format.next()? {
        if values.len() >= VALUES_MAX {
            return wrong("too many results to unpack");
        }
        at += format.padding(item, at);
        let mut take = |len: usize| match data.get(at..).and_then(|rest| rest.get(..len)) {
            Some(bytes) => {
                at += len;
                Ok(bytes)
            }
            None => wrong("data string too short"),
        };
        match item {
            Item::Int { size, signed } => {
                let n = u64::from_le_bytes(format.take(take(size)?));
                let unused = 64 - 8 * size as u32;
                let n = if signed { (((n << unused) as i64) >> unused) as f64 } else { n as f64 };
                values.push(Value::Number(n));
            }
            Item::Float { size } => {
                let little = format.take(take(size)?);
                let n = match size {
                    4 => f64::from(f32::from_le_bytes([little[0], little[1], little[2], little[3]])),
                    _ => f64::from_le_bytes(little),
                };
                values.push(Value::Number(n));
            }
            Item::Pad => drop(take(1)?),
            Item::Chars { len: 0 } => {
                let len = match values.pop() {
                    Some(Value::Number(n)) if n >= 0.0 => n as usize,
                    _ => return wrong("format 'c0' needs a previous size"),
                };
                values.push(Value::String(limits.text(lua, take(len)?)?));
            }
            Item::Chars { len } => values.push(Value::String(limits.text(lua, take(len)?)?)),
            Item::Text => {
                let rest = data.get(at..).unwrap_or_default();
                let Some(len) = rest.iter().position(|byte| *byte == 0) else {
                    return wrong("unfinished string in data");
                };
                values.push(Value::String(limits.text(lua, &rest[..len])?));
                at += len + 1;
            }
        }
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values.into_iter().collect())
}

fn size(limits: &Limits, format: &[u8]) -> mlua::Result<usize> {
    let mut format = Format::new(limits, format);
    let mut total = 0usize;
    while let Some(item) = format.next()? {
        total += format.padding(item, total);
        total += match item {
            Item::Int { size, .. } | Item::Float { size } => size,
            Item::Pad => 1,
            Item::Text => return wrong("variable-size format in 's'"),
            Item::Chars { len: 0 } => return wrong("variable-length format in 'c0'"),
            Item::Chars { len } => len,
        };
        if total > BYTES_MAX {
            return wrong("the result is too long");
        }
    }
    Ok(total)
}

pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let packing = lua.create_function(|lua, (format, values): (LuaString, Variadic<Value>)| {
        let limits = limits::of(lua)?;
        limits.text(lua, pack(&limits, &format.as_bytes(), &values)?)
    })?;
    library.set("pack", packing)?;
    let unpacking =
        lua.create_function(|lua, (format, data, from): (LuaString, LuaString, Option<usize>)| {
            unpack(lua, &format.as_bytes(), &data.as_bytes(), from.unwrap_or(1))
        })?;
    library.set("unpack", unpacking)?;
    library.set(
        "size",
        lua.create_function(|lua, format: LuaString| size(&*limits::of(lua)?, &format.as_bytes()))?,
    )?;
    Ok(library)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn lua_2_formats_are_read_in_steps_and_numbers_are_short() {
        let killed = Limits::new(Arc::new(true.into()));
        assert!(size(&killed, b"  b").is_err());
        let limits = Limits::new(Arc::default());
        assert_eq!(size(&limits, b" <c00000000012 i4").unwrap(), 16);
        let long = ["c", &"1".repeat(1 << 20)].concat();
        let mut format = Format::new(&limits, long.as_bytes());
        assert!(format.next().is_err());
        assert_eq!(format.rest.len(), 1 << 20, "the digits are not all looked at");
    }
}
