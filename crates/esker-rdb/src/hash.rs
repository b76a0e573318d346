//! Hashes: plain ones, and those some of whose fields expire.

use std::io::Read;

use crate::error::Result;
use crate::input::Input;
use crate::packed;
use crate::value::{Field, pack, strings};

pub(crate) fn read<R: Read>(input: &mut Input<R>, number: u8) -> Result<Vec<Field>> {
    let all = match number {
        4 => strings(input, 2)?,
        9 => pack(input, packed::zipmap)?,
        13 => pack(input, packed::ziplist)?,
        16 => pack(input, packed::listpack)?,
        22 | 24 => return with_deadlines(input, number == 24),
        _ => return packed_with_deadlines(input, number == 25),
    };
    if all.len() % 2 != 0 {
        return Err(input.damaged("a field has no value"));
    }
    let mut fields = Vec::with_capacity(all.len() / 2);
    let mut all = all.into_iter();
    while let (Some(name), Some(value)) = (all.next(), all.next()) {
        fields.push(Field { name, value, expires_ms: 0 });
    }
    Ok(fields)
}

/// Reads fields, each behind its deadline. If the first deadline comes first, the others are relative to it,
/// plus one.
fn with_deadlines<R: Read>(input: &mut Input<R>, has_first: bool) -> Result<Vec<Field>> {
    let first = if has_first { input.u64()? } else { 1 };
    let mut fields = Vec::new();
    for _ in 0..input.length()? {
        let expires_ms = match input.length()? {
            0 => 0,
            after => first
                .checked_add(after - 1)
                .ok_or_else(|| input.damaged("the deadline of a field is too large"))?,
        };
        fields.push(Field { name: input.string()?, value: input.string()?, expires_ms });
    }
    Ok(fields)
}

/// Reads a listpack of names, values and deadlines.
fn packed_with_deadlines<R: Read>(input: &mut Input<R>, has_first: bool) -> Result<Vec<Field>> {
    if has_first {
        input.u64()?;
    }
    let mut all = pack(input, packed::listpack)?.into_iter();
    let mut fields = Vec::with_capacity(all.len() / 3);
    while let Some(name) = all.next() {
        let (value, deadline) = (all.next(), all.next());
        let deadline = deadline.and_then(|text| String::from_utf8(text).ok()?.parse().ok());
        let (Some(value), Some(expires_ms)) = (value, deadline) else {
            return Err(input.damaged("a field has no value or no deadline"));
        };
        fields.push(Field { name, value, expires_ms });
    }
    Ok(fields)
}
