//! The library `bit`: operations on 32-bit numbers.

use mlua::{Lua, Table, Variadic};

type Op = fn(u32, u32) -> u32;

/// Returns a number modulo 2^32.
fn word(n: f64) -> u32 {
    n.rem_euclid(4_294_967_296.0) as u64 as u32
}

fn signed(n: u32) -> i32 {
    n as i32
}

pub(crate) fn library(lua: &Lua) -> mlua::Result<Table> {
    let bit = lua.create_table()?;
    let folds: [(&str, Op); 3] = [("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
    for (name, op) in folds {
        let fold = lua.create_function(move |_, words: Variadic<f64>| {
            let mut words = words.iter().map(|n| word(*n));
            let first = words.next().ok_or_else(|| mlua::Error::runtime("number expected, got no value"))?;
            Ok(signed(words.fold(first, op)))
        })?;
        bit.set(name, fold)?;
    }
    let shifts: [(&str, Op); 5] = [
        ("lshift", |a, n| a << n),
        ("rshift", |a, n| a >> n),
        ("arshift", |a, n| ((a as i32) >> n) as u32),
        ("rol", u32::rotate_left),
        ("ror", u32::rotate_right),
    ];
    for (name, op) in shifts {
        bit.set(
            name,
            lua.create_function(move |_, (a, n): (f64, f64)| Ok(signed(op(word(a), word(n) & 31))))?,
        )?;
    }
    bit.set("bnot", lua.create_function(|_, a: f64| Ok(signed(!word(a))))?)?;
    bit.set("tobit", lua.create_function(|_, a: f64| Ok(signed(word(a))))?)?;
    bit.set("bswap", lua.create_function(|_, a: f64| Ok(signed(word(a).swap_bytes())))?)?;
    let to_hex = lua.create_function(|_, (a, digits): (f64, Option<i64>)| {
        let digits = digits.unwrap_or(8);
        let text = format!("{:08x}", word(a));
        let text = text[8 - (digits.unsigned_abs() as usize).clamp(1, 8)..].to_owned();
        Ok(if digits < 0 { text.to_uppercase() } else { text })
    })?;
    bit.set("tohex", to_hex)?;
    Ok(bit)
}
