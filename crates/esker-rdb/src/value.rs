//! The values of keys, from all encodings that Redis has had for their types.

use std::io::Read;

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::hash;
use crate::input::Input;
use crate::packed;
use crate::stream::{self, Stream};

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// The elements of a list, in order.
    List(Vec<Vec<u8>>),
    /// The members of a set.
    Set(Vec<Vec<u8>>),
    /// The members of a sorted set, with their scores.
    SortedSet(Vec<(Vec<u8>, f64)>),
    /// The fields of a hash.
    Hash(Vec<Field>),
    /// A stream.
    Stream(Box<Stream>),
}

/// A field of a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The field's name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// When it expires, in Unix milliseconds; 0: never.
    pub expires_ms: u64,
}

/// The number of a module's values before version 4.0 was released.
const MODULE_EARLY: u8 = 6;
/// The number of a module's values.
pub(crate) const MODULE: u8 = 7;

/// Reads a value of the type with this number.
pub(crate) fn read<R: Read>(input: &mut Input<R>, number: u8) -> Result<Value> {
    let offset = input.offset();
    match number {
        0 => input.string().map(Value::String),
        1 => strings(input, 1).map(Value::List),
        2 => strings(input, 1).map(Value::Set),
        3 => sorted_set(input, old_score),
        4 | 9 | 13 | 16 | 22..=25 => hash::read(input, number).map(Value::Hash),
        5 => sorted_set(input, |input| Ok(f64::from_bits(input.u64()?))),
        10 => pack(input, packed::ziplist).map(Value::List),
        11 => pack(input, packed::intset).map(Value::Set),
        12 => pack(input, packed::ziplist).and_then(|all| scored(input, all)),
        14 | 18 => quicklist(input, number == 18).map(Value::List),
        15 | 19 | 21 => stream::read(input, number).map(|stream| Value::Stream(Box::new(stream))),
        17 => pack(input, packed::listpack).and_then(|all| scored(input, all)),
        20 => pack(input, packed::listpack).map(Value::Set),
        MODULE => {
            let id = input.length()?;
            Err(Error::Type { offset, number, module: Some(module_name(id)) })
        }
        MODULE_EARLY => Err(Error::Type { offset, number, module: Some("unknown".to_owned()) }),
        _ => Err(Error::Type { offset, number, module: None }),
    }
}

/// Reads a string that holds a collection.
pub(crate) fn pack<R: Read>(
    input: &mut Input<R>,
    unpack: impl FnOnce(&[u8], &mut Budget) -> Option<Vec<Vec<u8>>>,
) -> Result<Vec<Vec<u8>>> {
    let bytes = input.string()?;
    unpack(&bytes, input.budget()).ok_or_else(|| input.damaged("a packed collection is damaged"))
}

/// Reads a number, and that number of groups of `each` strings.
pub(crate) fn strings<R: Read>(input: &mut Input<R>, each: u64) -> Result<Vec<Vec<u8>>> {
    let len = input.length()?;
    let len = len.checked_mul(each).ok_or_else(|| input.damaged("a length is too large"))?;
    let mut all = Vec::new();
    for _ in 0..len {
        all.push(input.string()?);
    }
    Ok(all)
}

fn quicklist<R: Read>(input: &mut Input<R>, has_containers: bool) -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for _ in 0..input.length()? {
        let container = if has_containers { input.length()? } else { 0 };
        match container {
            0 => all.extend(pack(input, packed::ziplist)?),
            1 => all.push(input.string()?),
            2 => all.extend(pack(input, packed::listpack)?),
            _ => return Err(input.damaged("an unknown part of a list")),
        }
    }
    Ok(all)
}

fn sorted_set<R: Read>(
    input: &mut Input<R>,
    mut score: impl FnMut(&mut Input<R>) -> Result<f64>,
) -> Result<Value> {
    let mut members = Vec::new();
    for _ in 0..input.length()? {
        let member = input.string()?;
        let score = score(input)?;
        if score.is_nan() {
            return Err(input.damaged("a score is no number"));
        }
        members.push((member, score));
    }
    Ok(Value::SortedSet(members))
}

/// Reads a score as text with its length in a byte, or one of three bytes that stand for themselves.
fn old_score<R: Read>(input: &mut Input<R>) -> Result<f64> {
    match input.byte()? {
        253 => Ok(f64::NAN),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        len => {
            let text = input.bytes(u64::from(len))?;
            parse_score(&text).ok_or_else(|| input.damaged("a score is no number"))
        }
    }
}

fn parse_score(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok().filter(|score: &f64| !score.is_nan())
}

/// Pairs members with the scores behind them.
fn scored<R: Read>(input: &Input<R>, all: Vec<Vec<u8>>) -> Result<Value> {
    let mut members = Vec::with_capacity(all.len() / 2);
    let mut all = all.into_iter();
    while let Some(member) = all.next() {
        let score = all.next().as_deref().and_then(parse_score);
        members.push((member, score.ok_or_else(|| input.damaged("a score is no number"))?));
    }
    Ok(Value::SortedSet(members))
}

/// Returns the name in the id of a module: nine characters of 6 bits each, then the version in 10 bits.
pub(crate) fn module_name(id: u64) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    (0..9).map(|at| char::from(CHARACTERS[(id >> (58 - 6 * at) & 63) as usize])).collect()
}
