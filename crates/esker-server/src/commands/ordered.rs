//! The ordered family: ranges of keys, neighbours, compare-and-set, snapshots and keyspaces, as the engine has them.
//!
//! They work in the connection's database, whose strings have values and whose other keys have none, or in a keyspace that `ES.KS USE` chose. That
//! one holds plain keys and values: programs that embed the engine see the same.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::table::{ALL, Command, FIRST, Group::Esker, NO_KEYS, command, flag::*};
use crate::cx::Cx;
use crate::data::{Kind, Main};
use crate::effects::Event;
use crate::fail::{Done, Fail, SYNTAX};
use crate::numbers::int;
use crate::resp::Request;
use crate::store::{Order, Reads, Snapshot, Space, Span, Value, prefix_end};

const ADD: u32 = WRITE | DENY_OOM;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("es.cas", -5, ADD, FIRST, Esker, "key eq old|none set new|del", "Sets or removes a key if it has this value, or is not there.", cas),
    command("es.count", -1, READ, NO_KEYS, Esker, "[from to]", "How many keys there are, or lie in a range.", count),
    command("es.del", -2, WRITE, ALL, Esker, "key ...", "Removes keys.", del),
    command("es.delrange", 3, WRITE, NO_KEYS, Esker, "from to", "Removes the keys of a range.", delrange),
    command("es.first", -1, READ, NO_KEYS, Esker, "[snap id]", "The first key and its value.", |cx, r| neighbour(cx, r, None, Order::Up)),
    command("es.get", -2, READ, FIRST, Esker, "key [snap id]", "The value of a key.", get),
    command("es.last", -1, READ, NO_KEYS, Esker, "[snap id]", "The last key and its value.", |cx, r| neighbour(cx, r, None, Order::Down)),
    command("es.next", -2, READ, NO_KEYS, Esker, "key [snap id]", "The key behind this one, and its value.", |cx, r| neighbour(cx, r, Some(1), Order::Up)),
    command("es.prefix", -2, READ, NO_KEYS, Esker, "prefix [after key] [rev] [limit n] [keys|values] [snap id]", "Keys that begin with this, and their values.", prefix),
    command("es.prev", -2, READ, NO_KEYS, Esker, "key [snap id]", "The key before this one, and its value.", |cx, r| neighbour(cx, r, Some(1), Order::Down)),
    command("es.range", -3, READ, NO_KEYS, Esker, "from to [excl] [incl] [rev] [limit n] [keys|values] [snap id]", "Keys from one on, up to another, and their values.", range),
    command("es.set", 3, ADD, FIRST, Esker, "key value", "Sets a key.", set),
];

/// Commands about what keys lie in, and the engine.
#[rustfmt::skip]
pub(super) const SPACES: &[Command] = &[
    command("es.compact", 1, ADMIN | NO_SCRIPT, NO_KEYS, Esker, "", "Merges all data into one run.", compact),
    command("es.ks", -2, NO_SCRIPT | SEQUENCED, NO_KEYS, Esker, "list | use [name] | create name | drop name | rename old new | operator name operator", "Keyspaces, and which one the connection works in.", keyspaces),
    command("es.snap", -2, NO_SCRIPT, NO_KEYS, Esker, "open | close id | list", "Snapshots that the connection holds.", snap),
    command("es.stats", 1, 0, NO_KEYS, Esker, "", "Figures of the engine.", stats),
    command("es.sync", 1, 0, NO_KEYS, Esker, "", "Makes all that was written durable.", sync),
    command("es.verify", 1, ADMIN | NO_SCRIPT, NO_KEYS, Esker, "", "What is wrong with what is stored: nothing, as a rule.", verify),
];

/// Where a command works.
struct Place {
    space: Space,
    /// A database: its values are main records.
    is_database: bool,
    snapshot: Option<Arc<dyn Snapshot>>,
    now: u64,
}

impl Place {
    fn of(cx: &Cx<'_>, snapshot: Option<u64>) -> Done<Self> {
        let space = cx.session.space.clone();
        let snapshot = match snapshot {
            Some(id) => Some(cx.session.snapshots.get(&id).cloned().ok_or("ERR no such snapshot")?),
            None => None,
        };
        Ok(Place {
            is_database: space.is_none(),
            space: space.unwrap_or_else(|| cx.session.data.main.clone()),
            snapshot,
            now: cx.now,
        })
    }

    fn reads<'a>(&'a self, cx: &'a Cx<'_>) -> &'a dyn Reads {
        match &self.snapshot {
            Some(snapshot) => &**snapshot,
            None => cx.access.reads(),
        }
    }

    /// What is shown of a stored value: none if the key is not there any more; then whether it has a value of its own.
    fn show(&self, raw: &[u8]) -> Done<Option<Option<Value>>> {
        if !self.is_database {
            return Ok(Some(Some(Value::from(raw))));
        }
        let main = Main::decode(Value::from(raw))?;
        if main.has_expired(self.now) {
            return Ok(None);
        }
        Ok(Some((main.kind == Kind::String).then(|| Value::from(main.text()))))
    }

    fn value(&self, cx: &Cx<'_>, key: &[u8]) -> Done<Option<Option<Value>>> {
        match self.reads(cx).get(&self.space, key)? {
            Some(raw) => self.show(&raw),
            None => Ok(None),
        }
    }

    /// Shows keys and their values.
    fn walk(
        &self,
        cx: &Cx<'_>,
        span: Span<'_>,
        order: Order,
        mut visit: impl FnMut(&[u8], Option<&[u8]>) -> ControlFlow<()>,
    ) -> Done {
        if span.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        self.reads(cx).range(&self.space, span, order, &mut |key, raw| match self.show(raw) {
            Ok(Some(value)) => visit(key, value.as_deref()),
            Ok(None) => ControlFlow::Continue(()),
            Err(fail) => {
                failed = Some(fail);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }
}

/// The options of ranges.
struct Query<'r> {
    order: Order,
    limit: usize,
    keys: bool,
    values: bool,
    excludes_from: bool,
    includes_to: bool,
    after: Option<&'r [u8]>,
    snapshot: Option<u64>,
}

fn query(request: &Request, first: usize) -> Done<Query<'_>> {
    let mut query = Query {
        order: Order::Up,
        limit: usize::MAX,
        keys: true,
        values: true,
        excludes_from: false,
        includes_to: false,
        after: None,
        snapshot: None,
    };
    let mut at = first;
    while at < request.len() {
        let next = request.get(at + 1);
        match request[at].to_ascii_lowercase().as_slice() {
            b"rev" => query.order = Order::Down,
            b"excl" => query.excludes_from = true,
            b"incl" => query.includes_to = true,
            b"keys" => query.values = false,
            b"values" => query.keys = false,
            b"limit" => {
                let limit = int(next.ok_or(SYNTAX)?)?;
                query.limit = usize::try_from(limit).map_err(|_| "ERR LIMIT can't be negative")?;
                at += 1;
            }
            b"after" => {
                query.after = Some(next.ok_or(SYNTAX)?);
                at += 1;
            }
            b"snap" => {
                query.snapshot = Some(int(next.ok_or(SYNTAX)?)? as u64);
                at += 1;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    if !query.keys && !query.values {
        return Err(SYNTAX.into());
    }
    Ok(query)
}

fn put_range(cx: &mut Cx<'_>, query: &Query<'_>, span: Span<'_>) -> Done {
    let place = Place::of(cx, query.snapshot)?;
    let mark = cx.out.mark();
    let mut out = std::mem::take(cx.out);
    let mut count = 0;
    let walked = match query.limit {
        0 => Ok(()),
        limit => place.walk(cx, span, query.order, |key, value| {
            count += 1;
            if query.keys {
                out.bulk(key);
            }
            if query.values {
                out.bulk_or_null(value);
            }
            if count < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }),
    };
    *cx.out = out;
    walked?;
    cx.out.array_at(mark, if query.keys && query.values { 2 * count } else { count });
    Ok(())
}

/// Up to a key; an empty one: to the end.
fn upper(to: &[u8], is_included: bool) -> Bound<&[u8]> {
    match (to, is_included) {
        ([], _) => Bound::Unbounded,
        (to, true) => Bound::Included(to),
        (to, false) => Bound::Excluded(to),
    }
}

fn range(cx: &mut Cx<'_>, request: &Request) -> Done {
    let query = query(request, 3)?;
    let from = &request[1];
    let lower = if query.excludes_from { Bound::Excluded(from) } else { Bound::Included(from) };
    put_range(cx, &query, Span { lower, upper: upper(&request[2], query.includes_to) })
}

fn prefix(cx: &mut Cx<'_>, request: &Request) -> Done {
    let query = query(request, 2)?;
    let prefix = &request[1];
    let end = prefix_end(prefix);
    let mut span = Span {
        lower: Bound::Included(prefix),
        upper: end.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
    };
    match (query.after, query.order) {
        (Some(after), Order::Up) if after >= prefix => span.lower = Bound::Excluded(after),
        (Some(after), Order::Down) if end.as_deref().is_none_or(|end| after < end) => {
            span.upper = Bound::Excluded(after);
        }
        _ => {}
    }
    put_range(cx, &query, span)
}

fn count(cx: &mut Cx<'_>, request: &Request) -> Done {
    let place = Place::of(cx, None)?;
    let count = match request.len() {
        1 => cx.access.reads().len(&place.space)?,
        3 => {
            let span = Span { lower: Bound::Included(&request[1]), upper: upper(&request[2], false) };
            let mut count = 0;
            place.walk(cx, span, Order::Up, |_, _| {
                count += 1;
                ControlFlow::Continue(())
            })?;
            count
        }
        _ => return Err(SYNTAX.into()),
    };
    cx.out.int(count as i64);
    Ok(())
}

fn neighbour(cx: &mut Cx<'_>, request: &Request, key: Option<usize>, order: Order) -> Done {
    let options = query(request, 1 + usize::from(key.is_some()))?;
    let place = Place::of(cx, options.snapshot)?;
    let mut span = Span::ALL;
    if let Some(key) = key.and_then(|at| request.get(at)) {
        match order {
            Order::Up => span.lower = Bound::Excluded(key),
            Order::Down => span.upper = Bound::Excluded(key),
        }
    }
    let mut found = None;
    place.walk(cx, span, order, |key, value| {
        found = Some((key.to_vec(), value.map(<[u8]>::to_vec)));
        ControlFlow::Break(())
    })?;
    match found {
        Some((key, value)) => {
            cx.out.array(2);
            cx.out.bulk(&key);
            cx.out.bulk_or_null(value.as_deref());
        }
        None => cx.out.null_array(),
    }
    Ok(())
}

fn get(cx: &mut Cx<'_>, request: &Request) -> Done {
    let options = query(request, 2)?;
    let value = Place::of(cx, options.snapshot)?.value(cx, &request[1])?.flatten();
    cx.out.bulk_or_null(value.as_deref());
    Ok(())
}

fn write(cx: &mut Cx<'_>, key: &[u8], value: Option<&[u8]>) -> Done {
    if let Some(space) = cx.session.space.clone() {
        let transaction = cx.access.transaction()?;
        match value {
            Some(value) => transaction.put(&space, key, value)?,
            None => transaction.remove(&space, key)?,
        }
        return Ok(());
    }
    let old = cx.main(key)?;
    match (value, &old) {
        (Some(value), old) => {
            cx.put_string(key, old.as_ref(), value, 0)?;
            cx.event(Event::String, "set", key);
        }
        (None, Some(old)) => {
            cx.remove_key(key, old)?;
            cx.event(Event::Generic, "del", key);
        }
        (None, None) => {}
    }
    Ok(())
}

fn set(cx: &mut Cx<'_>, request: &Request) -> Done {
    write(cx, &request[1], Some(&request[2]))?;
    cx.out.ok();
    Ok(())
}

fn del(cx: &mut Cx<'_>, request: &Request) -> Done {
    let place = Place::of(cx, None)?;
    let mut removed = 0;
    for key in request.from(1) {
        if place.value(cx, key)?.is_some() {
            write(cx, key, None)?;
            removed += 1;
        }
    }
    cx.out.int(removed);
    Ok(())
}

fn delrange(cx: &mut Cx<'_>, request: &Request) -> Done {
    let place = Place::of(cx, None)?;
    let span = Span { lower: Bound::Included(&request[1]), upper: upper(&request[2], false) };
    let mut keys = Vec::new();
    place.walk(cx, span, Order::Up, |key, _| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    if place.is_database {
        for key in &keys {
            write(cx, key, None)?;
        }
    } else if !span.is_empty() {
        cx.access.transaction()?.remove_range(&place.space, span)?;
    }
    cx.out.count(keys.len());
    Ok(())
}

fn cas(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (expected, next) = if request.is(2, "none") {
        (None, 3)
    } else if request.is(2, "eq") {
        (Some(&request[3]), 4)
    } else {
        return Err(SYNTAX.into());
    };
    let new = if request.is(next, "set") && request.len() == next + 2 {
        Some(&request[next + 1])
    } else if request.is(next, "del") && request.len() == next + 1 {
        None
    } else {
        return Err(SYNTAX.into());
    };
    let found = Place::of(cx, None)?.value(cx, &request[1])?;
    let is_as_expected = match (expected, &found) {
        (None, None) => true,
        (Some(expected), Some(Some(found))) => **found == *expected,
        _ => false,
    };
    if is_as_expected {
        write(cx, &request[1], new)?;
    }
    cx.out.int(i64::from(is_as_expected));
    Ok(())
}

fn snap(cx: &mut Cx<'_>, request: &Request) -> Done {
    let held = &mut cx.session.snapshots;
    if request.is(1, "open") && request.len() == 2 {
        let id = held.last_key_value().map_or(1, |(last, _)| last + 1);
        held.insert(id, cx.server.store.snapshot());
        cx.out.int(id as i64);
    } else if request.is(1, "close") && request.len() == 3 {
        let id = int(&request[2])? as u64;
        let was_held = held.remove(&id).is_some();
        cx.out.int(i64::from(was_held));
    } else if request.is(1, "list") && request.len() == 2 {
        cx.out.array(held.len());
        held.keys().for_each(|id| cx.out.int(*id as i64));
    } else {
        return Err(super::unknown_subcommand(request));
    }
    Ok(())
}

/// The name of a keyspace that is not one of a database's.
fn own_name(word: &[u8]) -> Done<&str> {
    let name = std::str::from_utf8(word).map_err(|_| "ERR names of keyspaces are UTF-8")?;
    let digits = name.strip_prefix('r').map(|rest| rest.split('.').next().unwrap_or_default());
    if digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(Fail::text(format!("ERR the keyspace '{name}' is a part of a database: use SELECT")));
    }
    if name.starts_with(crate::replication::OWN_PREFIX) {
        return Err(Fail::text(format!("ERR the keyspace '{name}' is the server's own")));
    }
    Ok(name)
}

fn keyspaces(cx: &mut Cx<'_>, request: &Request) -> Done {
    let is_change = !request.is(1, "list") && !request.is(1, "use");
    if is_change && cx.server.replication.is_replica() {
        return Err(super::READ_ONLY.into());
    }
    let store = &cx.server.store;
    let missing = |name: &str| Fail::text(format!("ERR no such keyspace '{name}'"));
    match (request[1].to_ascii_lowercase().as_slice(), request.len()) {
        (b"list", 2) => {
            let mut names = store.spaces()?;
            names.retain(|name| own_name(name.as_bytes()).is_ok());
            cx.out.array(names.len());
            names.iter().for_each(|name| cx.out.bulk(name.as_bytes()));
            return Ok(());
        }
        (b"use", 2) => cx.session.space = None,
        (b"use", 3) => {
            let name = own_name(&request[2])?;
            cx.session.space = Some(store.find_space(name)?.ok_or_else(|| missing(name))?);
        }
        (b"create", 3) => {
            store.space(own_name(&request[2])?, true)?;
        }
        (b"drop", 3) => {
            let name = own_name(&request[2])?;
            store.find_space(name)?.ok_or_else(|| missing(name))?;
            store.drop_space(name)?;
        }
        (b"operator", 4) => {
            let name = own_name(&request[2])?;
            let operator = String::from_utf8_lossy(&request[3]);
            let space = store.find_space(name)?.ok_or_else(|| missing(name))?;
            store.set_merge_operator(&space, &operator)?;
        }
        (b"rename", 4) => store.rename_spaces(&[(own_name(&request[2])?, own_name(&request[3])?)])?,
        _ => return Err(super::unknown_subcommand(request)),
    }
    cx.out.ok();
    Ok(())
}

fn compact(cx: &mut Cx<'_>, _: &Request) -> Done {
    let store = &cx.server.store;
    tokio::task::block_in_place(|| store.compact())?;
    cx.out.ok();
    Ok(())
}

fn sync(cx: &mut Cx<'_>, _: &Request) -> Done {
    let store = &cx.server.store;
    tokio::task::block_in_place(|| store.sync())?;
    cx.out.ok();
    Ok(())
}

fn stats(cx: &mut Cx<'_>, _: &Request) -> Done {
    let figures = cx.server.store.figures();
    cx.out.map(figures.len());
    for (name, value) in figures {
        cx.out.bulk(name.as_bytes());
        cx.out.bulk(value.as_bytes());
    }
    Ok(())
}

fn verify(cx: &mut Cx<'_>, _: &Request) -> Done {
    let store = &cx.server.store;
    let problems = tokio::task::block_in_place(|| store.check())?;
    cx.out.array(problems.len());
    problems.iter().for_each(|problem| cx.out.bulk(problem.as_bytes()));
    Ok(())
}
