//! Strings as arrays of bits. Bit 0 is the highest bit of the first byte.

use super::strings::STRING_BYTES_MAX;
use crate::base::events::Event;
use crate::command::spec::Group::Bitmap;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::types::Main;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("bitcount", -2, READ, FIRST, Bitmap, "key [start end [byte|bit]]", "Counts the bits that are 1.", bitcount),
    command("bitfield", -2, WRITE | DENY_OOM, FIRST, Bitmap, "key [get type at] [overflow wrap|sat|fail] [set type at n] [incrby type at n] ...", "Reads and writes integers of any width in a string.", |cx, r| super::bit_fields::bitfield(cx, r, false)).uses(Uses::Asked(uses::of_bitfield)),
    command("bitfield_ro", -2, READ | FAST, FIRST, Bitmap, "key [get type at] ...", "Reads integers of any width in a string.", |cx, r| super::bit_fields::bitfield(cx, r, true)),
    command("bitop", -4, WRITE | DENY_OOM, Keys::At(2, -1, 1), Bitmap, "and|or|xor|not|diff|diff1|andor|one to key ...", "Combines strings bit by bit.", bitop).uses(Uses::STORE_FIRST),
    command("bitpos", -3, READ, FIRST, Bitmap, "key 0|1 [start [end [byte|bit]]]", "Returns the position of the first bit with this value.", bitpos),
    command("getbit", 3, READ | FAST | ONE, FIRST, Bitmap, "key at", "Returns a bit.", getbit),
    command("setbit", 4, WRITE | DENY_OOM, FIRST, Bitmap, "key at 0|1", "Sets a bit and returns its old value.", setbit).each(KeyUse::SHOW_UPDATE),
];

impl Cx<'_> {
    /// Reads a string: its main record, if it exists, and its bytes.
    pub(super) fn bytes(&mut self, key: &[u8]) -> Done<(Option<Main>, Vec<u8>)> {
        let main = self.string(key)?;
        let bytes = main.as_ref().map_or(Vec::new(), |main| main.text().to_vec());
        Ok((main, bytes))
    }
}

/// Parses the number of a bit within the maximum size of a string.
fn bit_offset(word: &[u8]) -> Done<usize> {
    let offset = int(word).ok().and_then(|n| usize::try_from(n).ok()).filter(|n| *n < STRING_BYTES_MAX * 8);
    offset.ok_or("ERR bit offset is not an integer or out of range".into())
}

fn bit(bytes: &[u8], at: usize) -> bool {
    bytes.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1)
}

fn getbit(cx: &mut Cx<'_>, request: &Request) -> Done {
    let at = bit_offset(&request[2])?;
    let is_set = cx.string(&request[1])?.is_some_and(|main| bit(main.text(), at));
    cx.out.int(i64::from(is_set));
    Ok(())
}

fn setbit(cx: &mut Cx<'_>, request: &Request) -> Done {
    let at = bit_offset(&request[2])?;
    let on = match &request[3] {
        b"0" => false,
        b"1" => true,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let (old, mut bytes) = cx.bytes(&request[1])?;
    let was_on = bit(&bytes, at);
    if was_on == on && at / 8 < bytes.len() {
        cx.out.int(i64::from(was_on));
        return Ok(());
    }
    if bytes.len() <= at / 8 {
        bytes.resize(at / 8 + 1, 0);
    }
    let mask = 1 << (7 - at % 8);
    if on {
        bytes[at / 8] |= mask
    } else {
        bytes[at / 8] &= !mask
    }
    let expires = old.as_ref().map_or(0, |old| old.expires);
    cx.put_string(&request[1], old.as_ref(), &bytes, expires)?;
    cx.event(Event::String, "setbit", &request[1]);
    cx.out.int(i64::from(was_on));
    Ok(())
}

/// Parses a range of bytes or bits. Returns its first bit and the bit after its last, or none if it is empty.
fn bit_range(request: &Request, at: usize, bytes: usize) -> Done<Option<(usize, usize)>> {
    let is_bits = match request.get(at + 2) {
        None => false,
        Some(_) if request.is(at + 2, "bit") => true,
        Some(_) if request.is(at + 2, "byte") => false,
        Some(_) => return Err(SYNTAX.into()),
    };
    let unit = if is_bits { 1 } else { 8 };
    let len = (bytes * 8 / unit) as i64;
    let start = request.get(at).map_or(Ok(0), int)?;
    let end = request.get(at + 1).map_or(Ok(-1), int)?;
    let from_end = |n: i64| if n < 0 { n.saturating_add(len).max(0) } else { n };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    Ok((start <= end).then(|| (start as usize * unit, (end as usize + 1) * unit)))
}

fn count_ones(cx: &Cx<'_>, bytes: &[u8]) -> Done<u64> {
    let mut count = 0;
    for piece in bytes.chunks(PIECE) {
        cx.step(piece.len())?;
        count += piece.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
    }
    Ok(count)
}

fn bitcount(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (main, bytes) = cx.bytes(&request[1])?;
    if main.is_none() {
        cx.out.int(0);
        return Ok(());
    }
    if request.len() == 3 || request.len() > 5 {
        return Err(SYNTAX.into());
    }
    if request.len() > 3 {
        let (start, end) = (int(&request[2])?, int(&request[3])?);
        if start < 0 && end < 0 && start > end {
            cx.out.int(0);
            return Ok(());
        }
    }
    let count = match bit_range(request, 2, bytes.len())? {
        None => 0,
        Some((from, to)) if from % 8 == 0 && to % 8 == 0 => count_ones(cx, &bytes[from / 8..to / 8])?,
        Some((from, to)) => {
            // Count single bits in the first and the last byte, and whole bytes in between.
            let (first, last) = (from.next_multiple_of(8).min(to), to / 8 * 8);
            let some = |bits: std::ops::Range<usize>| bits.filter(|at| bit(&bytes, *at)).count() as u64;
            match first < last {
                true => some(from..first) + count_ones(cx, &bytes[first / 8..last / 8])? + some(last..to),
                false => some(from..to),
            }
        }
    };
    cx.out.int(count as i64);
    Ok(())
}

fn bitpos(cx: &mut Cx<'_>, request: &Request) -> Done {
    let wanted = match &request[2] {
        b"0" => false,
        b"1" => true,
        other => {
            int(other)?;
            return Err("ERR The bit argument must be 1 or 0.".into());
        }
    };
    let (main, bytes) = cx.bytes(&request[1])?;
    if main.is_none() {
        cx.out.int(if wanted { -1 } else { 0 });
        return Ok(());
    }
    if request.len() > 6 {
        return Err(SYNTAX.into());
    }
    let range = bit_range(request, 3, bytes.len())?;
    let has_end = request.len() > 4;
    let found = range.and_then(|(from, to)| {
        // Skip whole bytes without the bit.
        let other = if wanted { 0 } else { 0xFF };
        let mut at = from;
        while at < to {
            if at % 8 == 0 && bytes[at / 8] == other {
                at += 8;
            } else if bit(&bytes, at) == wanted {
                return Some(at as i64);
            } else {
                at += 1;
            }
        }
        None
    });
    // After the end of the string all bits count as 0, unless the request gives an end.
    let behind = range.filter(|_| !wanted && !has_end).map(|(_, to)| to as i64);
    cx.out.int(found.or(behind).unwrap_or(-1));
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    And,
    Or,
    Xor,
    Not,
    /// Bits of the first that no other has.
    Diff,
    /// Bits of the others that the first does not have.
    Diff1,
    /// Bits that the first and one of the others have.
    AndOr,
    /// Bits that exactly one has.
    One,
}

impl Op {
    fn named(word: &[u8]) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_slice() {
            b"and" => Op::And,
            b"or" => Op::Or,
            b"xor" => Op::Xor,
            b"not" => Op::Not,
            b"diff" => Op::Diff,
            b"diff1" => Op::Diff1,
            b"andor" => Op::AndOr,
            b"one" => Op::One,
            _ => return None,
        })
    }
}

/// Bytes that are combined between two checks of a script's time limit.
const PIECE: usize = 1 << 18;

/// Combines a string with another one. The shorter one is padded with zeros.
fn combine(cx: &Cx<'_>, bytes: &mut Vec<u8>, other: &[u8], op: Op) -> Done {
    if bytes.len() < other.len() {
        bytes.resize(other.len(), 0);
    }
    let (shared, behind) = bytes.split_at_mut(other.len());
    if op == Op::And {
        behind.fill(0);
    }
    for (to, from) in shared.chunks_mut(PIECE).zip(other.chunks(PIECE)) {
        cx.step(to.len())?;
        let pairs = to.iter_mut().zip(from);
        match op {
            Op::And => pairs.for_each(|(to, from)| *to &= from),
            Op::Or => pairs.for_each(|(to, from)| *to |= from),
            Op::Diff => pairs.for_each(|(to, from)| *to &= !from),
            _ => pairs.for_each(|(to, from)| *to ^= from),
        }
    }
    Ok(())
}

/// Combines the strings of a request. Only one input besides results is in memory at a time
/// (command_memory.1).
fn combined(cx: &mut Cx<'_>, request: &Request, op: Op) -> Done<Vec<u8>> {
    // What combines the others, and then the result with the first.
    let (each, last) = match op {
        Op::Diff1 => (Op::Or, Some(Op::Diff)),
        Op::AndOr => (Op::Or, Some(Op::And)),
        op => (op, None),
    };
    let first = if last.is_some() { 4 } else { 3 };
    let mut bytes = cx.bytes(&request[first])?.1;
    let mut several = Vec::new();
    for key in request.from(first + 1) {
        let other = cx.string(key)?;
        let other = other.as_ref().map_or(b"".as_slice(), Main::text);
        if op == Op::One {
            cx.gather(other.len())?;
            let mut shared = bytes.clone();
            combine(cx, &mut shared, other, Op::And)?;
            combine(cx, &mut several, &shared, Op::Or)?;
            combine(cx, &mut bytes, other, Op::Or)?;
            combine(cx, &mut bytes, &several, Op::Diff)?;
        } else {
            combine(cx, &mut bytes, other, each)?;
        }
    }
    if let Some(last) = last {
        let other = cx.string(&request[3])?;
        combine(cx, &mut bytes, other.as_ref().map_or(b"", Main::text), last)?;
    }
    if op == Op::Not {
        for piece in bytes.chunks_mut(PIECE) {
            cx.step(piece.len())?;
            piece.iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
    Ok(bytes)
}

fn bitop(cx: &mut Cx<'_>, request: &Request) -> Done {
    let to = &request[2];
    let Some(op) = Op::named(&request[1]) else {
        request.from(3).try_for_each(|key| cx.string(key).map(drop))?;
        return Err(SYNTAX.into());
    };
    if op == Op::Not && request.len() > 4 {
        request.from(3).try_for_each(|key| cx.string(key).map(drop))?;
        return Err("ERR BITOP NOT must be called with a single source key.".into());
    }
    if matches!(op, Op::Diff | Op::Diff1 | Op::AndOr) && request.len() < 5 {
        let name = String::from_utf8_lossy(&request[1]).to_uppercase();
        return Err(Fail::text(format!("ERR BITOP {name} must be called with at least two source keys.")));
    }
    let bytes = combined(cx, request, op)?;
    let old = cx.main(to)?;
    match (&old, bytes.is_empty()) {
        (_, false) => {
            cx.put_string(to, old.as_ref(), &bytes, 0)?;
            cx.event(Event::String, "set", to);
        }
        (Some(old), true) => {
            cx.remove_key(to, old)?;
            cx.event(Event::Generic, "del", to);
        }
        (None, true) => {}
    }
    cx.out.count(bytes.len());
    Ok(())
}
