//! `DUMP`: a key as bytes that `RESTORE` of this server, of Redis and of Valkey takes. `esker_rdb` has the
//! format.

use esker_rdb::{Consumer, Dump, Entry, Group, Pending, StreamId as Id};

use super::restore::restore;
use crate::command::spec::Group::Generic;
use crate::resp::Request;
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::{Order, Span};
use crate::types::{Collection, Kind, Main, SortedSet, Stream, StreamId, ZSpan};
use std::ops::ControlFlow;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("dump", 2, READ, FIRST, Generic, "key", "Returns a key as bytes for RESTORE of this server or Redis.", dump),
    command("restore", -4, WRITE | DENY_OOM | DANGEROUS, FIRST, Generic, "key milliseconds bytes [replace] [absttl] [idletime s] [freq n]", "Creates a key from the bytes returned by DUMP, also by that of Redis.", restore).each(KeyUse::SET),
];

fn dump(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    let Some(main) = cx.main(key)? else {
        cx.out.null();
        return Ok(());
    };
    let dump = match main.kind {
        Kind::String => {
            let mut dump = Dump::string();
            dump.text(main.text());
            dump
        }
        Kind::Hash => hash(cx, &Collection::of(key, &main)?)?,
        Kind::Stream => stream(cx, key)?,
        Kind::List | Kind::Set | Kind::SortedSet => elements(cx, key, &main)?,
    };
    cx.out.bulk(&dump.finish());
    Ok(())
}

/// Adds the next element of a collection, unless the reply would be too large.
fn add(cx: &Cx<'_>, dump: &mut Dump, element: &[u8]) -> Done<ControlFlow<()>> {
    dump.text(element);
    match dump.size() > cx.out.bytes_max {
        true => Err(cx.out.too_large()),
        false => Ok(ControlFlow::Continue(())),
    }
}

fn elements(cx: &mut Cx<'_>, key: &[u8], main: &Main) -> Done<Dump> {
    let collection = Collection::of(key, main)?;
    let len = collection.len();
    let mut dump;
    match main.kind {
        Kind::SortedSet => {
            dump = Dump::sorted_set(len);
            let set = SortedSet::of(collection);
            set.try_walk(cx, &ZSpan::all(), Order::Up, &mut |member, score| {
                let flow = add(cx, &mut dump, member)?;
                dump.score(score);
                Ok(flow)
            })?;
        }
        Kind::List => {
            dump = Dump::list(len);
            collection.try_range(cx, Span::ALL, Order::Up, &mut |_, element| add(cx, &mut dump, element))?;
        }
        _ => {
            dump = Dump::set(len);
            collection.try_range(cx, Span::ALL, Order::Up, &mut |member, _| add(cx, &mut dump, member))?;
        }
    }
    Ok(dump)
}

/// A hash, without the fields that have expired.
fn hash(cx: &Cx<'_>, hash: &Collection) -> Done<Dump> {
    let (len, deadlines) = (hash.count_fields(cx)?, hash.deadlines(cx)?);
    let first = deadlines.iter().map(|(_, at)| *at).min();
    let mut dump = first.map_or_else(|| Dump::hash(len), |first| Dump::hash_with_deadlines(len, first));
    let mut deadlines = deadlines.into_iter().peekable();
    hash.try_range(cx, Span::ALL, Order::Up, &mut |field, value| {
        if first.is_some() {
            // Both are in the order of fields.
            let own = deadlines.next_if(|(name, _)| name == field);
            dump.deadline(own.map_or(0, |(_, at)| at));
        }
        dump.text(field);
        add(cx, &mut dump, value)
    })?;
    Ok(dump)
}

fn id(id: StreamId) -> Id {
    Id { ms: id.ms, seq: id.seq }
}

fn stream(cx: &mut Cx<'_>, key: &[u8]) -> Done<Dump> {
    let stream = Stream::open_or_new(cx, key)?;
    let mut copy = esker_rdb::Stream {
        last_id: id(stream.last_id()),
        max_deleted_id: id(stream.max_removed()),
        added: stream.added(),
        ..esker_rdb::Stream::default()
    };
    let (from, to) = (StreamId::default(), StreamId::MAX);
    let entries = stream.entries(cx, from, to, Order::Up, usize::MAX)?;
    copy.entries = entries.into_iter().map(|(at, fields)| Entry { id: id(at), fields }).collect();
    for (name, group) in stream.groups(cx)? {
        let mut consumers = Vec::new();
        for consumer in stream.consumers(cx, &name)? {
            let pending = stream.pending_of(cx, (&name, &consumer.name), (from, to), usize::MAX)?;
            let pending = pending.into_iter().map(|one| Pending {
                id: id(one.id),
                delivered_ms: one.delivered,
                count: one.count,
            });
            consumers.push(Consumer {
                name: consumer.name,
                seen_ms: consumer.seen,
                active_ms: Some(consumer.active),
                pending: pending.collect(),
            });
        }
        copy.groups.push(Group { name, last_id: id(group.last), read: group.read, consumers });
    }
    let dump = Dump::stream(&copy);
    if dump.size() > cx.out.bytes_max { Err(cx.out.too_large()) } else { Ok(dump) }
}
