//! Hashes: fields with values. Each field is a part of the collection.

use std::ops::ControlFlow;

use super::scan::{Step, put_cursor};
use super::strings::plain_float;
use crate::base::events::Event;
use crate::command::spec::Group::Hash;
use crate::resp::fail::{Done, Fail, SYNTAX, too_large};
use crate::resp::numbers::{decimal_sum, float, int, parse_float, parse_int};
use crate::resp::{REPLY_BYTES_MAX, Request, format_int};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::{Order, Span, Value};
use crate::types::{Collection, Kind};

const ADD: u32 = WRITE | DENY_OOM;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("hdel", -3, WRITE | FAST, FIRST, Hash, "key field ...", "Removes fields.", hdel).each(KeyUse::DELETE),
    command("hexists", 3, READ | FAST, FIRST, Hash, "key field", "Returns whether a field exists.", hexists).each(KeyUse::LOOK),
    command("hget", 3, READ | FAST, FIRST, Hash, "key field", "Returns the value of a field.", hget),
    command("hgetall", 2, READ, FIRST, Hash, "key", "Returns all fields with their values.", |cx, r| all(cx, r, true, true)),
    command("hincrby", 4, ADD | FAST, FIRST, Hash, "key field n", "Adds to the number in a field.", hincrby).each(KeyUse::SHOW_UPDATE),
    command("hincrbyfloat", 4, ADD | FAST, FIRST, Hash, "key field n", "Adds to the floating-point number in a field.", hincrbyfloat).each(KeyUse::SHOW_UPDATE),
    command("hkeys", 2, READ, FIRST, Hash, "key", "Returns all fields.", |cx, r| all(cx, r, true, false)),
    command("hlen", 2, READ | FAST, FIRST, Hash, "key", "Returns the number of fields.", hlen).each(KeyUse::LOOK),
    command("hmget", -3, READ | FAST, FIRST, Hash, "key field ...", "Returns the values of several fields.", hmget),
    command("hmset", -4, ADD | FAST, FIRST, Hash, "key field value ...", "Sets fields.", hmset),
    command("hrandfield", -2, READ, FIRST, Hash, "key [count [withvalues]]", "Returns random fields.", hrandfield),
    command("hscan", -3, READ, FIRST, Hash, "key cursor [match pattern] [count n] [novalues]", "Returns some fields, and a cursor to continue.", hscan),
    command("hset", -4, ADD | FAST, FIRST, Hash, "key field value ...", "Sets fields.", hset),
    command("hsetnx", 4, ADD | FAST, FIRST, Hash, "key field value", "Sets a field if it does not exist.", hsetnx).each(KeyUse::INSERT),
    command("hstrlen", 3, READ | FAST, FIRST, Hash, "key field", "Returns the length of a field's value.", hstrlen).each(KeyUse::LOOK),
    command("hvals", 2, READ, FIRST, Hash, "key", "Returns all values.", |cx, r| all(cx, r, false, true)),
];

pub(super) fn open(cx: &mut Cx<'_>, key: &[u8]) -> Done<Option<Collection>> {
    Collection::open(cx, key, Kind::Hash)
}

fn field(cx: &mut Cx<'_>, request: &Request) -> Done<Option<Value>> {
    match open(cx, &request[1])? {
        Some(hash) => hash.get(cx, &request[2]),
        None => Ok(None),
    }
}

fn hget(cx: &mut Cx<'_>, request: &Request) -> Done {
    let value = field(cx, request)?;
    cx.out.bulk_or_null(value.as_deref());
    Ok(())
}

fn hexists(cx: &mut Cx<'_>, request: &Request) -> Done {
    let is_there = field(cx, request)?.is_some();
    cx.out.int(i64::from(is_there));
    Ok(())
}

fn hstrlen(cx: &mut Cx<'_>, request: &Request) -> Done {
    let len = field(cx, request)?.map_or(0, |value| value.len());
    cx.out.count(len);
    Ok(())
}

fn hlen(cx: &mut Cx<'_>, request: &Request) -> Done {
    let len = match open(cx, &request[1])? {
        Some(hash) => hash.count_fields(cx)?,
        None => 0,
    };
    cx.out.int(len as i64);
    Ok(())
}

fn hmget(cx: &mut Cx<'_>, request: &Request) -> Done {
    let fields = request.tail(2);
    let hash = open(cx, &request[1])?;
    cx.out.array(fields.len());
    cx.with_reply(|cx, out| match hash {
        Some(hash) => hash.each_value(cx, &fields, |value| {
            out.bulk_or_null(value);
            out.check()
        }),
        None => {
            fields.iter().for_each(|_| out.null());
            Ok(())
        }
    })
}

/// Sets a field, which keeps its deadline. Returns whether it is new.
pub(super) fn put(cx: &mut Cx<'_>, hash: &mut Collection, field: &[u8], value: &[u8]) -> Done<bool> {
    let is_new = hash.is_new() && hash.is_empty() || hash.get(cx, field)?.is_none();
    hash.put(cx, field, value)?;
    hash.shape.len += u64::from(is_new);
    Ok(is_new)
}

fn set(cx: &mut Cx<'_>, request: &Request) -> Done<i64> {
    let name = String::from_utf8_lossy(&request[0]).to_lowercase();
    if !request.len().is_multiple_of(2) {
        return Err(Fail::text(format!("ERR wrong number of arguments for '{name}' command")));
    }
    let mut hash = Collection::open_or_new(cx, &request[1], Kind::Hash)?;
    let mut added = 0;
    for at in (2..request.len()).step_by(2) {
        added += i64::from(put(cx, &mut hash, &request[at], &request[at + 1])?);
        hash.set_deadline(cx, &request[at], 0)?;
    }
    hash.save(cx)?;
    cx.event(Event::Hash, "hset", &request[1]);
    Ok(added)
}

fn hset(cx: &mut Cx<'_>, request: &Request) -> Done {
    let added = set(cx, request)?;
    cx.out.int(added);
    Ok(())
}

fn hmset(cx: &mut Cx<'_>, request: &Request) -> Done {
    set(cx, request)?;
    cx.out.ok();
    Ok(())
}

fn hsetnx(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut hash = Collection::open_or_new(cx, &request[1], Kind::Hash)?;
    let is_free = hash.get(cx, &request[2])?.is_none();
    if is_free {
        put(cx, &mut hash, &request[2], &request[3])?;
        hash.save(cx)?;
        cx.event(Event::Hash, "hset", &request[1]);
    }
    cx.out.int(i64::from(is_free));
    Ok(())
}

fn hdel(cx: &mut Cx<'_>, request: &Request) -> Done {
    let Some(mut hash) = open(cx, &request[1])? else {
        cx.out.int(0);
        return Ok(());
    };
    let mut removed = 0;
    for field in request.from(2) {
        if hash.get(cx, field)?.is_some() {
            hash.remove(cx, field)?;
            hash.shape.len = hash.shape.len.saturating_sub(1);
            removed += 1;
        }
    }
    if removed > 0 {
        let is_empty = hash.is_gone(cx)?;
        hash.save(cx)?;
        cx.event(Event::Hash, "hdel", &request[1]);
        if is_empty {
            cx.event(Event::Generic, "del", &request[1]);
        }
    }
    cx.out.int(removed);
    Ok(())
}

fn hincrby(cx: &mut Cx<'_>, request: &Request) -> Done {
    let n = int(&request[3])?;
    let mut hash = Collection::open_or_new(cx, &request[1], Kind::Hash)?;
    let before = match hash.get(cx, &request[2])? {
        Some(value) => parse_int(&value).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let after = before.checked_add(n).ok_or("ERR increment or decrement would overflow")?;
    put(cx, &mut hash, &request[2], format_int(after, &mut [0; 20]))?;
    hash.save(cx)?;
    cx.event(Event::Hash, "hincrby", &request[1]);
    cx.out.int(after);
    Ok(())
}

fn hincrbyfloat(cx: &mut Cx<'_>, request: &Request) -> Done {
    let n = float(&request[3])?;
    if !n.is_finite() {
        return Err("ERR value is NaN or Infinity".into());
    }
    let mut hash = Collection::open_or_new(cx, &request[1], Kind::Hash)?;
    let old = hash.get(cx, &request[2])?;
    let written = old.as_deref().unwrap_or(b"0");
    let before = parse_float(written).ok_or("ERR hash value is not a float")?;
    let after = before + n;
    if !after.is_finite() {
        return Err("ERR increment would produce NaN or Infinity".into());
    }
    let text = decimal_sum(written, &request[3]).unwrap_or_else(|| plain_float(after));
    put(cx, &mut hash, &request[2], text.as_bytes())?;
    hash.save(cx)?;
    cx.event(Event::Hash, "hincrbyfloat", &request[1]);
    cx.out.bulk(text.as_bytes());
    Ok(())
}

fn all(cx: &mut Cx<'_>, request: &Request, fields: bool, values: bool) -> Done {
    let hash = open(cx, &request[1])?;
    let stored = hash.as_ref().map_or(0, Collection::len) as usize;
    let has_deadlines = hash.as_ref().is_some_and(|hash| hash.shape.deadlines.is_some());
    let mark = cx.out.mark();
    let mut found = 0;
    if let Some(hash) = hash {
        cx.with_reply(|cx, out| {
            hash.try_range(cx, Span::ALL, Order::Up, &mut |field, value| {
                found += 1;
                if fields {
                    out.bulk(field);
                }
                if values {
                    out.bulk(value);
                }
                out.check()?;
                Ok(ControlFlow::Continue(()))
            })
        })?;
    }
    debug_assert!(found == stored || has_deadlines && found < stored, "a hash knows how many fields it has");
    match fields && values {
        true => cx.out.map_at(mark, found),
        false => cx.out.array_at(mark, found),
    }
    Ok(())
}

fn hscan(cx: &mut Cx<'_>, request: &Request) -> Done {
    let step = Step::parse(cx, request, 2)?;
    let hash = open(cx, &request[1])?;
    let (last, found) = walk_step(cx, hash.as_ref(), &step)?;
    put_cursor(cx, &step, last.as_deref());
    cx.out.array(if step.without_values { found.len() } else { 2 * found.len() });
    for (field, value) in found {
        cx.out.bulk(&field);
        if !step.without_values {
            cx.out.bulk(&value);
        }
    }
    Ok(())
}

/// Sub-keys of a collection, with their values.
pub(super) type Parts = Vec<(Vec<u8>, Vec<u8>)>;

/// Runs one step of a walk over a collection whose parts are its elements. Returns the last sub-key, if there
/// are more, and the requested parts.
pub(super) fn walk_step(
    cx: &Cx<'_>,
    collection: Option<&Collection>,
    step: &Step,
) -> Done<(Option<Vec<u8>>, Parts)> {
    let (mut seen, mut last, mut found) = (0, None, Vec::new());
    if let Some(collection) = collection {
        collection.try_range(cx, step.span(), Order::Up, &mut |sub, value| {
            seen += 1;
            if seen > step.count {
                return Ok(ControlFlow::Break(()));
            }
            if seen == step.count {
                last = Some(sub.to_vec());
            }
            if step.wants(sub) {
                cx.gather(sub.len() + value.len())?;
                found.push((sub.to_vec(), value.to_vec()));
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok((last.filter(|_| seen > step.count), found))
}

/// Parses the count of `HRANDFIELD`, `SRANDMEMBER` or `ZRANDMEMBER`: the number of members, and whether a
/// member may repeat.
pub(super) fn random_count(request: &Request, at: usize, in_pairs: bool) -> Done<(usize, bool)> {
    let count = int(&request[at])?;
    if count == i64::MIN || in_pairs && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err("ERR value is out of range".into());
    }
    // A text takes at least six bytes of the reply.
    if count < 0 && count.unsigned_abs() > REPLY_BYTES_MAX as u64 / 6 {
        return Err(too_large(REPLY_BYTES_MAX));
    }
    Ok((count.unsigned_abs() as usize, count < 0))
}

/// Returns the number of indexes that [`random_places`] returns.
pub(super) fn random_len(len: usize, count: usize, repeats: bool) -> usize {
    if repeats && len > 0 { count } else { count.min(len) }
}

/// Chooses random indexes below `len`: `count` different ones in order, or ones that may repeat. Repeating
/// ones are produced lazily, because a client may request any number.
pub(super) fn random_places(len: usize, count: usize, repeats: bool) -> Box<dyn Iterator<Item = usize>> {
    if repeats && len > 0 {
        return Box::new((0..count).map(move |_| fastrand::usize(..len)));
    }
    Box::new(different_places(len, count).into_iter())
}

fn different_places(len: usize, count: usize) -> Vec<usize> {
    let count = count.min(len);
    let mut chosen = Vec::with_capacity(count);
    // Selection sampling (Knuth, algorithm S).
    for place in 0..len {
        if fastrand::usize(..len - place) < count - chosen.len() {
            chosen.push(place);
        }
    }
    chosen
}

fn hrandfield(cx: &mut Cx<'_>, request: &Request) -> Done {
    let with_values = match request.len() {
        2 | 3 => false,
        4 if request.is(3, "withvalues") => true,
        _ => return Err(SYNTAX.into()),
    };
    let count = (request.len() > 2).then(|| random_count(request, 2, with_values)).transpose()?;
    let hash = open(cx, &request[1])?;
    let Some((count, repeats)) = count else {
        let len = hash.as_ref().map_or(Ok(0), |hash| hash.count_fields(cx))? as usize;
        let (mut place, mut found) = (fastrand::usize(..len.max(1)), None);
        if let Some(hash) = hash {
            hash.range(cx, Span::ALL, Order::Up, &mut |field, _| match place.checked_sub(1) {
                Some(left) => {
                    place = left;
                    ControlFlow::Continue(())
                }
                None => {
                    found = Some(field.to_vec());
                    ControlFlow::Break(())
                }
            })?;
        }
        cx.out.bulk_or_null(found.as_deref());
        return Ok(());
    };
    let parts = match hash {
        Some(hash) if with_values => hash.parts(cx)?,
        Some(hash) => hash.subs(cx)?.into_iter().map(|field| (field, Vec::new())).collect(),
        None => Vec::new(),
    };
    let len = random_len(parts.len(), count, repeats);
    let is_nested = with_values && cx.out.is_resp3;
    cx.out.array(if with_values && !is_nested { 2 * len } else { len });
    for place in random_places(parts.len(), count, repeats) {
        if cx.out.is_cut() {
            break;
        }
        let (field, value) = &parts[place];
        if is_nested {
            cx.out.array(2);
        }
        cx.out.bulk(field);
        if with_values {
            cx.out.bulk(value);
        }
    }
    Ok(())
}
