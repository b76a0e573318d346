//! The ordered family of commands: ranges of keys, neighbours and compare-and-set, as the engine has them.
//!
//! ```text
//!   command --reads---> a snapshot held by the connection | its transaction | the newest state
//!           --writes--> its transaction | the sequencer's
//! ```
//!
//! The commands work in the connection's database or in a keyspace chosen by `ES.KS USE`. In a database, only
//! strings have values; other keys appear without one. A keyspace holds plain keys and values, which are the
//! same for programs that embed the engine.

mod feed;
mod messages;
mod spaces;
mod transactions;

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

pub(super) use self::feed::{FeedRequest, TABLE as FEED, feed_request};
pub(super) use self::messages::TABLE as MESSAGES;
pub(super) use self::spaces::TABLE as SPACES;
pub(super) use self::transactions::TABLE as TRANSACTIONS;
use super::held::{held, write as write_to};
use crate::base::events::Event;
use crate::command::flag;
use crate::command::spec::Group::Esker;
use crate::holdings::held_transaction::State;
use crate::holdings::namespace::Namespace;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::database::Database;
use crate::store::record::{Kind, Main};
use crate::store::{Order, Reads, Span, Value, Write, prefix_end};
use crate::types::{absent_from, is_absent};

const READ: u32 = flag::READ | flag::TAKES_PART;
const WRITE: u32 = flag::WRITE | flag::TAKES_PART;
const ADD: u32 = WRITE | flag::DENY_OOM;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("es.cas", -5, ADD, FIRST, Esker, "key eq old|none set new|del", "Sets or removes a key if it has the expected value, or does not exist.", cas).each(KeyUse::SHOW_UPDATE),
    command("es.count", -1, READ, NO_KEYS, Esker, "[from to]", "Counts all keys, or those in a range.", count),
    command("es.del", -2, WRITE, ALL, Esker, "key ...", "Removes keys.", del),
    command("es.delrange", 3, WRITE, NO_KEYS, Esker, "from to", "Removes the keys of a range.", delrange),
    command("es.first", -1, READ, NO_KEYS, Esker, "[snap id]", "Returns the first key and its value.", |cx, r| neighbour(cx, r, None, Order::Up)),
    command("es.get", -2, READ, FIRST, Esker, "key [snap id]", "Returns the value of a key.", get),
    command("es.last", -1, READ, NO_KEYS, Esker, "[snap id]", "Returns the last key and its value.", |cx, r| neighbour(cx, r, None, Order::Down)),
    command("es.merge", 3, ADD | flag::FAST, FIRST, Esker, "key operand", "Merges an operand into a key with the operator of the keyspace chosen by ES.KS USE.", merge),
    command("es.next", -2, READ, NO_KEYS, Esker, "key [snap id]", "Returns the key after this one, and its value.", |cx, r| neighbour(cx, r, Some(1), Order::Up)),
    command("es.prefix", -2, READ, NO_KEYS, Esker, "prefix [after key] [rev] [limit n] [keys|values] [snap id]", "Returns the keys that begin with a prefix, and their values.", prefix),
    command("es.prev", -2, READ, NO_KEYS, Esker, "key [snap id]", "Returns the key before this one, and its value.", |cx, r| neighbour(cx, r, Some(1), Order::Down)),
    command("es.range", -3, READ, NO_KEYS, Esker, "from to [excl] [incl] [rev] [limit n] [keys|values] [snap id]", "Returns the keys in a range, and their values.", range),
    command("es.set", 3, ADD, FIRST, Esker, "key value", "Sets a key.", set),
];

/// What a command sees of the namespace in which it works.
struct Seen<'a> {
    reads: &'a dyn Reads,
    namespace: &'a Namespace,
    now: u64,
    /// Transaction held by the connection.
    held: Option<&'a State>,
    /// The database, if the namespace is one.
    data: Option<Arc<Database>>,
}

/// Reads a snapshot held by the connection, its transaction, or the newest state.
fn read<T>(cx: &Cx<'_>, snapshot: Option<u64>, read: impl FnOnce(&Seen<'_>) -> Done<T>) -> Done<T> {
    let namespace = &cx.session.namespace();
    let data = namespace.database.map(|number| cx.server.database(number)).transpose()?;
    if let Some(id) = snapshot {
        let snapshot = cx.session.places.snapshots.get(&id).ok_or("ERR no such snapshot")?;
        return read(&Seen { reads: &**snapshot, namespace, now: cx.now, held: None, data });
    }
    match held(cx)? {
        Some(held) => held.with(cx.now, |state| {
            state.begin_read();
            let state = &*state;
            read(&Seen { reads: state.reads(), namespace, now: state.clock(cx.now), held: Some(state), data })
        }),
        None => read(&Seen { reads: cx.access.reads(), namespace, now: cx.now, held: None, data }),
    }
}

/// A key as the commands show it.
enum Shown {
    /// It does not exist, or has expired.
    Absent,
    /// It exists, but has no value of its own.
    NoValue,
    Value(Value),
}

impl Shown {
    fn value(self) -> Option<Value> {
        match self {
            Shown::Value(value) => Some(value),
            Shown::Absent | Shown::NoValue => None,
        }
    }
}

impl Seen<'_> {
    /// Returns what to show for a stored value.
    fn show(&self, raw: &[u8]) -> Done<Shown> {
        let Some(data) = &self.data else { return Ok(Shown::Value(Value::from(raw))) };
        let main = Main::decode(Value::from(raw))?;
        if is_absent(self.reads, &data.sub, &main, self.now)? {
            return Ok(Shown::Absent);
        }
        if let Some(held) = self.held
            && let Some(from) = absent_from(self.reads, &data.sub, &main)?
        {
            held.note_expiry(from);
        }
        Ok(if main.kind == Kind::String { Shown::Value(Value::from(main.text())) } else { Shown::NoValue })
    }

    fn key(&self, key: &[u8]) -> Done<Shown> {
        match self.reads.get(&self.namespace.space, key)? {
            Some(raw) => self.show(&raw),
            None => Ok(Shown::Absent),
        }
    }

    /// Passes keys and their values to the caller.
    fn walk(
        &self,
        span: Span<'_>,
        order: Order,
        mut visit: impl FnMut(&[u8], Option<&[u8]>) -> ControlFlow<()>,
    ) -> Done {
        if span.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        self.reads.range(&self.namespace.space, span, order, &mut |key, raw| match self.show(raw) {
            Ok(Shown::Absent) => ControlFlow::Continue(()),
            Ok(shown) => visit(key, shown.value().as_deref()),
            Err(fail) => {
                failed = Some(fail);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }
}

/// Options of range commands.
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
    let mark = cx.out.mark();
    let mut out = std::mem::take(cx.out);
    let mut count = 0;
    let walked = read(cx, query.snapshot, |seen| match query.limit {
        0 => Ok(()),
        limit => seen.walk(span, query.order, |key, value| {
            count += 1;
            if query.keys {
                out.bulk(key);
            }
            if query.values {
                out.bulk_or_null(value);
            }
            if count < limit && !out.is_cut() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }),
    });
    *cx.out = out;
    walked?;
    cx.out.array_at(mark, if query.keys && query.values { 2 * count } else { count });
    Ok(())
}

/// Returns the upper bound at a key. An empty key means the end.
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
    let count = read(cx, None, |seen| match request.len() {
        1 => Ok(seen.reads.len(&seen.namespace.space)?),
        3 => {
            let span = Span { lower: Bound::Included(&request[1]), upper: upper(&request[2], false) };
            let mut count = 0;
            seen.walk(span, Order::Up, |_, _| {
                count += 1;
                ControlFlow::Continue(())
            })?;
            Ok(count)
        }
        _ => Err(SYNTAX.into()),
    })?;
    cx.out.int(count as i64);
    Ok(())
}

fn neighbour(cx: &mut Cx<'_>, request: &Request, key: Option<usize>, order: Order) -> Done {
    let options = query(request, 1 + usize::from(key.is_some()))?;
    let mut span = Span::ALL;
    if let Some(key) = key.and_then(|at| request.get(at)) {
        match order {
            Order::Up => span.lower = Bound::Excluded(key),
            Order::Down => span.upper = Bound::Excluded(key),
        }
    }
    let found = read(cx, options.snapshot, |seen| {
        let mut found = None;
        seen.walk(span, order, |key, value| {
            found = Some((key.to_vec(), value.map(<[u8]>::to_vec)));
            ControlFlow::Break(())
        })?;
        Ok(found)
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
    let value = read(cx, options.snapshot, |seen| seen.key(&request[1]))?.value();
    cx.out.bulk_or_null(value.as_deref());
    Ok(())
}

/// Writes to the namespace of the connection, directly or in the transaction that it holds.
fn write(cx: &mut Cx<'_>, writes: &[Write<'_>]) -> Done {
    write_to(cx, &cx.session.namespace(), writes)
}

/// Sets a key of the database to a string, or removes it.
pub(super) fn write_string(cx: &mut Cx<'_>, key: &[u8], value: Option<&[u8]>) -> Done {
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
    write(cx, &[Write::Put { key: &request[1], value: &request[2] }])?;
    cx.out.ok();
    Ok(())
}

fn removals<K: AsRef<[u8]>>(keys: &BTreeSet<K>) -> Vec<Write<'_>> {
    keys.iter().map(|key| Write::Remove { key: key.as_ref() }).collect()
}

fn del(cx: &mut Cx<'_>, request: &Request) -> Done {
    let there: Done<Vec<bool>> = read(cx, None, |seen| {
        request.from(1).map(|key| Ok(!matches!(seen.key(key)?, Shown::Absent))).collect()
    });
    let keys: BTreeSet<&[u8]> =
        request.from(1).zip(there?).filter(|(_, is_there)| *is_there).map(|(key, _)| key).collect();
    write(cx, &removals(&keys))?;
    cx.out.count(keys.len());
    Ok(())
}

fn delrange(cx: &mut Cx<'_>, request: &Request) -> Done {
    let span = Span { lower: Bound::Included(&request[1]), upper: upper(&request[2], false) };
    let (mut keys, mut failed) = (BTreeSet::new(), None);
    let cx_seen = &*cx;
    read(cx, None, |seen| {
        seen.walk(span, Order::Up, |key, _| {
            if let Err(fail) = cx_seen.gather(key.len()) {
                failed = Some(fail);
                return ControlFlow::Break(());
            }
            keys.insert(key.to_vec());
            ControlFlow::Continue(())
        })
    })?;
    failed.map_or(Ok(()), Err)?;
    match cx.session.namespace().database {
        Some(_) => write(cx, &removals(&keys))?,
        None => {
            let (from, to) = (&request[1], &request[2]);
            let is_empty = !to.is_empty() && from >= to;
            let removal = Write::RemoveRange { from, to: (!to.is_empty()).then_some(to) };
            write(cx, if is_empty { &[] } else { std::slice::from_ref(&removal) })?;
        }
    }
    cx.out.count(keys.len());
    Ok(())
}

fn merge(cx: &mut Cx<'_>, request: &Request) -> Done {
    if cx.session.places.space.is_none() {
        return Err("ERR ES.MERGE works in a keyspace: ES.KS CREATE name, ES.KS OPERATOR name operator, ES.KS USE name".into());
    }
    write(cx, &[Write::Merge { key: &request[1], operand: &request[2] }])?;
    cx.out.ok();
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
    let found = read(cx, None, |seen| seen.key(&request[1]))?;
    let is_as_expected = match (expected, &found) {
        (None, Shown::Absent) => true,
        (Some(expected), Shown::Value(found)) => **found == *expected,
        _ => false,
    };
    if is_as_expected {
        let key = &request[1];
        write(cx, &[new.map_or(Write::Remove { key }, |value| Write::Put { key, value })])?;
    }
    cx.out.int(i64::from(is_as_expected));
    Ok(())
}
