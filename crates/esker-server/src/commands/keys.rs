//! Commands for keys of any type.

use crate::base::events::Event;
use crate::command::spec::Group::Generic;
use crate::resp::Request;
use crate::resp::fail::{Done, NO_INTEGER, NO_KEY, SYNTAX};
use crate::resp::numbers::{int, parse_int};
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::registry::row::*;
use crate::store::record::Due;
use crate::store::{Order, Span};
use crate::types::{Collection, Kind, Main};
use std::ops::ControlFlow;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("copy", -3, WRITE | DENY_OOM, FIRST_TWO, Generic, "from to [db number] [replace]", "Copies a key.", copy).uses(Uses::STORE_SECOND),
    command("del", -2, WRITE, ALL, Generic, "key ...", "Removes keys.", del).each(KeyUse::REMOVE),
    command("exists", -2, READ | FAST | NO_ACCESS, ALL, Generic, "key ...", "Counts how many of the keys exist.", exists).each(KeyUse::LOOK),
    command("move", 3, WRITE | FAST, FIRST, Generic, "key number", "Moves a key to another database.", move_key).each(KeyUse::TAKE),
    command("object", -2, READ | NO_ACCESS, Keys::At(2, 2, 1), Generic, "encoding key | refcount key | idletime key | freq key", "Shows how Redis would store a key; with track-accesses also when and how often it was accessed.", object).each(KeyUse::LOOK),
    command("randomkey", 1, READ, NO_KEYS, Generic, "", "Returns a random key.", randomkey),
    command("rename", 3, WRITE, FIRST_TWO, Generic, "from to", "Renames a key.", rename).uses(Uses::First(KeyUse::SHOW_UPDATE, KeyUse::SET)),
    command("renamenx", 3, WRITE | FAST, FIRST_TWO, Generic, "from to", "Renames a key if the new name does not exist.", renamenx).uses(Uses::First(KeyUse::SHOW_UPDATE, KeyUse::SET)),
    command("touch", -2, READ | FAST, ALL, Generic, "key ...", "Counts how many of the keys exist, and counts as an access to each.", exists).each(KeyUse::LOOK),
    command("type", 2, READ | FAST | ONE | NO_ACCESS, FIRST, Generic, "key", "Returns the type of a key.", type_of).each(KeyUse::LOOK),
    command("unlink", -2, WRITE | FAST, ALL, Generic, "key ...", "Same as DEL.", del).each(KeyUse::REMOVE),
];

fn del(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut removed = 0;
    for key in request.from(1) {
        if let Some(main) = cx.main(key)? {
            cx.remove_key(key, &main)?;
            cx.event(Event::Generic, "del", key);
            removed += 1;
        }
    }
    cx.out.int(removed);
    Ok(())
}

fn exists(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut found = 0;
    for key in request.from(1) {
        found += i64::from(cx.main(key)?.is_some());
    }
    cx.out.int(found);
    Ok(())
}

fn type_of(cx: &mut Cx<'_>, request: &Request) -> Done {
    let kind = cx.main(&request[1])?.map_or("none", |main| main.kind.name());
    cx.out.simple(kind);
    Ok(())
}

fn rename(cx: &mut Cx<'_>, request: &Request) -> Done {
    let main = cx.main(&request[1])?.ok_or(NO_KEY)?;
    if request[1] != request[2] {
        move_name(cx, &request[1], &main, &request[2])?;
    }
    cx.out.ok();
    Ok(())
}

fn renamenx(cx: &mut Cx<'_>, request: &Request) -> Done {
    let main = cx.main(&request[1])?.ok_or(NO_KEY)?;
    if cx.main(&request[2])?.is_some() {
        cx.out.int(0);
        return Ok(());
    }
    move_name(cx, &request[1], &main, &request[2])?;
    cx.out.int(1);
    Ok(())
}

fn move_name(cx: &mut Cx<'_>, from: &[u8], main: &Main, to: &[u8]) -> Done {
    cx.rename_key(from, main, to)?;
    cx.event(Event::Generic, "rename_from", from);
    cx.event(Event::Generic, "rename_to", to);
    cx.filled(to);
    Ok(())
}

/// Writes a copy of a key to a database, replacing an existing key.
fn copy_to(cx: &mut Cx<'_>, key: &[u8], main: &Main, to: &[u8], number: usize) -> Done {
    // Every collection gets its own version, even a small one, because it may grow.
    let parts = match main.kind {
        Kind::String => None,
        _ => Some(Collection::of(key, main)?.copied(cx)?),
    };
    cx.in_database(number, |cx| {
        let old = cx.main(to)?;
        match parts {
            None => cx.put_main(to, old.as_ref(), Due::key(main.expires), main.raw())?,
            Some(parts) => {
                if let Some(old) = &old {
                    cx.remove_key(to, old)?;
                }
                Collection::save_copy(cx, to, main, &parts)?;
            }
        }
        cx.filled(to);
        Ok(())
    })
}

fn database_number(cx: &Cx<'_>, word: &[u8]) -> Done<usize> {
    let number = usize::try_from(int(word)?).map_err(|_| "ERR DB index is out of range")?;
    if number >= cx.server.databases_max() {
        return Err("ERR DB index is out of range".into());
    }
    Ok(number)
}

fn copy(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (from, to) = (&request[1], &request[2]);
    let (mut number, mut replaces) = (cx.session.db, false);
    let mut at = 3;
    while at < request.len() {
        if request.is(at, "replace") {
            replaces = true;
            at += 1;
        } else if request.is(at, "db") && at + 1 < request.len() {
            number = database_number(cx, &request[at + 1])?;
            at += 2;
        } else {
            return Err(SYNTAX.into());
        }
    }
    if from == to && number == cx.session.db {
        return Err("ERR source and destination objects are the same".into());
    }
    let Some(main) = cx.main(from)? else {
        cx.out.int(0);
        return Ok(());
    };
    let is_taken = cx.in_database(number, |cx| Ok(cx.main(to)?.is_some()))?;
    if is_taken && !replaces {
        cx.out.int(0);
        return Ok(());
    }
    copy_to(cx, from, &main, to, number)?;
    cx.in_database(number, |cx| {
        cx.event(Event::Generic, "copy_to", to);
        Ok(())
    })?;
    cx.out.int(1);
    Ok(())
}

fn move_key(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    let number = int(&request[2]).map_err(|_| NO_INTEGER)?;
    let number = usize::try_from(number).ok().filter(|number| *number < cx.server.databases_max());
    let number = number.ok_or("ERR DB index is out of range")?;
    if number == cx.session.db {
        return Err("ERR source and destination objects are the same".into());
    }
    let Some(main) = cx.main(key)? else {
        cx.out.int(0);
        return Ok(());
    };
    if cx.in_database(number, |cx| Ok(cx.main(key)?.is_some()))? {
        cx.out.int(0);
        return Ok(());
    }
    copy_to(cx, key, &main, key, number)?;
    cx.remove_key(key, &main)?;
    cx.event(Event::Generic, "move_from", key);
    cx.in_database(number, |cx| {
        cx.event(Event::Generic, "move_to", key);
        Ok(())
    })?;
    cx.out.int(1);
    Ok(())
}

/// Up to this number of keys, each is chosen with the same probability.
const FAIR_MAX: u64 = 1000;

fn randomkey(cx: &mut Cx<'_>, _: &Request) -> Done {
    for _ in 0..20 {
        let Some(key) = any_key(cx)? else { break };
        if cx.main(&key)?.is_some() {
            cx.out.bulk(&key);
            return Ok(());
        }
    }
    cx.out.null();
    Ok(())
}

/// Chooses a random key, expired or not. With many keys, it skips a few keys from a random point between the
/// first and the last key.
fn any_key(cx: &Cx<'_>) -> Done<Option<Vec<u8>>> {
    let (reads, space) = (cx.access.reads(), &cx.session.data.main);
    let take = |span: Span<'_>, order: Order, skip: u64| -> Done<Option<Vec<u8>>> {
        let (mut left, mut found) = (skip, None);
        reads.range(space, span, order, &mut |key, _| {
            if left == 0 {
                found = Some(key.to_vec());
                return ControlFlow::Break(());
            }
            left -= 1;
            ControlFlow::Continue(())
        })?;
        Ok(found)
    };
    let len = reads.len(space)?;
    if len <= FAIR_MAX {
        return take(Span::ALL, Order::Up, fastrand::u64(0..len.max(1)));
    }
    let (Some(first), Some(last)) = (take(Span::ALL, Order::Up, 0)?, take(Span::ALL, Order::Down, 0)?) else {
        return Ok(None);
    };
    let shared = first.iter().zip(&last).take_while(|(a, b)| a == b).count();
    let head = |key: &[u8]| {
        let mut head = [0; 8];
        let rest = &key[shared.min(key.len())..];
        head[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
        u64::from_be_bytes(head)
    };
    let place = fastrand::u64(head(&first)..=head(&last)).to_be_bytes();
    let probe = [&first[..shared], &place].concat();
    let skip = fastrand::u64(0..100);
    match take(Span::from(&probe), Order::Up, skip)? {
        Some(key) => Ok(Some(key)),
        None => take(Span::ALL, Order::Down, skip),
    }
}

/// Returns the name of the encoding that Redis would use for this value.
pub(super) fn encoding(cx: &Cx<'_>, key: &[u8], main: &Main) -> Done<&'static str> {
    if main.kind == Kind::String {
        let text = main.text();
        return Ok(match text.len() {
            ..=20 if parse_int(text).is_some() => "int",
            ..=44 => "embstr",
            _ => "raw",
        });
    }
    let shape = main.shape()?;
    let limit = |name: &str| cx.server.config.number(name).max(0) as u64;
    let (kind, small, large) = match main.kind {
        Kind::Hash => ("hash", "listpack", "hashtable"),
        Kind::SortedSet => ("zset", "listpack", "skiplist"),
        Kind::Set => ("set", "listpack", "hashtable"),
        Kind::List => return Ok("quicklist"),
        _ => return Ok("stream"),
    };
    if main.kind == Kind::Set && shape.len <= limit("set-max-intset-entries") {
        let parts = Collection::of(key, main)?.parts(cx)?;
        if parts.iter().all(|(member, _)| parse_int(member).is_some()) {
            return Ok("intset");
        }
        return Ok("hashtable");
    }
    if main.kind == Kind::Set
        || shape.len > limit(&format!("{kind}-max-listpack-entries"))
        || main.has_parts()
    {
        return Ok(large);
    }
    let longest = limit(&format!("{kind}-max-listpack-value")) as usize;
    let head = if main.kind == Kind::SortedSet { 9 } else { 0 };
    let parts = Collection::of(key, main)?.parts(cx)?;
    let is_long = |(sub, value): &(Vec<u8>, Vec<u8>)| sub.len() > longest + head || value.len() > longest;
    let small = if shape.deadlines.is_some() { "listpackex" } else { small };
    Ok(if parts.iter().any(is_long) { large } else { small })
}

const NO_ACCESS_TIMES: &str =
    "ERR accesses to keys are not tracked: turn it on by CONFIG SET track-accesses 16mb";

fn object(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.len() != 3 {
        return Err(unknown_subcommand(request));
    }
    let sub = request[1].to_ascii_lowercase();
    if !matches!(&*sub, b"encoding" | b"refcount" | b"idletime" | b"freq") {
        return Err(unknown_subcommand(request));
    }
    let Some(main) = cx.main(&request[2])? else {
        cx.out.null();
        return Ok(());
    };
    let seen = || {
        let accesses = &cx.server.config.accesses;
        accesses.seen(cx.session.data.main.name(), &request[2], cx.now).ok_or(NO_ACCESS_TIMES)
    };
    match &*sub {
        b"encoding" => {
            let encoding = encoding(cx, &request[2], &main)?;
            cx.out.bulk(encoding.as_bytes());
        }
        b"refcount" => cx.out.int(1),
        b"idletime" => {
            let idle = seen()?.idle;
            cx.out.int(idle as i64);
        }
        _ => {
            let count = seen()?.count;
            cx.out.int(count.into());
        }
    }
    Ok(())
}
