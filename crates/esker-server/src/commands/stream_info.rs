//! `XINFO`: information about a stream, its groups and their consumers.

use crate::command::spec::Group::Stream as Streams;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, NO_KEY, SYNTAX};
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::registry::row::*;
use crate::store::Order;
use crate::types::{Consumer, Group, Stream, StreamId};

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("xinfo", -2, READ, Keys::At(2, 2, 1), Streams, "stream key [full [count n]] | groups key | consumers key group", "Shows the state of a stream.", xinfo),
];

fn xinfo(cx: &mut Cx<'_>, request: &Request) -> Done {
    match (request[1].to_ascii_lowercase().as_slice(), request.len()) {
        (b"stream", 3) => short(cx, request),
        (b"stream", 4 | 6) if request.is(3, "full") => full(cx, request),
        (b"groups", 3) => groups(cx, request),
        (b"consumers", 4) => consumers(cx, request),
        _ => Err(unknown_subcommand(request)),
    }
}

fn name(cx: &mut Cx<'_>, name: &str) {
    cx.out.bulk(name.as_bytes());
}

fn put_id(cx: &mut Cx<'_>, title: &str, id: StreamId) {
    name(cx, title);
    cx.out.bulk(id.to_string().as_bytes());
}

fn put_int(cx: &mut Cx<'_>, title: &str, n: u64) {
    name(cx, title);
    cx.out.int(n as i64);
}

fn put_head(cx: &mut Cx<'_>, stream: &Stream) -> Done {
    put_int(cx, "length", stream.len());
    // Number of nodes that Redis would have with this option.
    let entries = cx.server.config.number("stream-node-max-entries").max(1) as u64;
    let keys = stream.len().div_ceil(entries);
    put_int(cx, "radix-tree-keys", keys);
    put_int(cx, "radix-tree-nodes", keys + 1);
    put_id(cx, "last-generated-id", stream.last_id());
    put_id(cx, "max-deleted-entry-id", stream.max_removed());
    put_int(cx, "entries-added", stream.added());
    let first = stream.first_id(cx)?.unwrap_or_default();
    put_id(cx, "recorded-first-entry-id", first);
    Ok(())
}

fn put_fields(cx: &mut Cx<'_>, entry: Option<&crate::types::Entry>) {
    match entry {
        None => cx.out.null(),
        Some((id, fields)) => {
            cx.out.array(2);
            cx.out.bulk(id.to_string().as_bytes());
            cx.out.array(fields.len());
            fields.iter().for_each(|field| cx.out.bulk(field));
        }
    }
}

fn short(cx: &mut Cx<'_>, request: &Request) -> Done {
    let stream = Stream::open(cx, &request[2])?.ok_or(NO_KEY)?;
    cx.out.map(10);
    put_head(cx, &stream)?;
    let groups = stream.groups(cx)?.len();
    put_int(cx, "groups", groups as u64);
    for (title, order) in [("first-entry", Order::Up), ("last-entry", Order::Down)] {
        let found = stream.entries(cx, StreamId::default(), StreamId::MAX, order, 1)?;
        name(cx, title);
        put_fields(cx, found.first());
    }
    Ok(())
}

/// Computes how many entries were added up to an id, as far as removed entries allow it.
pub(super) struct AddedCount<'s> {
    stream: &'s Stream,
    first: Option<StreamId>,
}

impl<'s> AddedCount<'s> {
    pub(super) fn of(cx: &Cx<'_>, stream: &'s Stream) -> Done<Self> {
        Ok(AddedCount { stream, first: stream.first_id(cx)? })
    }

    /// Returns whether entries between remaining ones, from this id on, may have been removed.
    fn has_gaps_from(&self, id: StreamId) -> bool {
        let removed = self.stream.max_removed();
        removed != StreamId::default() && self.first.is_some_and(|first| removed >= id.max(first))
    }

    /// Returns the number of entries added up to this id, including removed ones. None if it is unknown.
    fn count_up_to(&self, id: StreamId) -> Option<u64> {
        let added = self.stream.added();
        match self.first {
            _ if added == 0 => Some(0),
            None if id <= self.stream.last_id() => Some(added),
            _ if id == self.stream.last_id() => Some(added),
            Some(first) if id <= first && !self.has_gaps_from(first) => {
                Some(added - self.stream.len() + u64::from(id == first))
            }
            _ => None,
        }
    }

    /// Returns the number of entries that a group has read, once it has read this one too.
    pub(super) fn read_after(&self, read: Option<u64>, id: StreamId) -> Option<u64> {
        read.filter(|_| !self.has_gaps_from(id)).map(|read| read + 1).or_else(|| self.count_up_to(id))
    }

    /// Returns the number of entries that a group has not read. None if it is unknown. Negative if
    /// `ENTRIESREAD` was set too high.
    fn lag(&self, group: &Group) -> Option<i64> {
        let read = match group.read {
            _ if self.stream.added() == 0 => return Some(0),
            Some(read) if !self.has_gaps_from(group.last) => Some(read),
            _ => self.count_up_to(group.last),
        };
        read.map(|read| self.stream.added().wrapping_sub(read) as i64)
    }
}

fn put_optional(cx: &mut Cx<'_>, title: &str, n: Option<i64>) {
    name(cx, title);
    match n {
        Some(n) => cx.out.int(n),
        None => cx.out.null(),
    }
}

fn groups(cx: &mut Cx<'_>, request: &Request) -> Done {
    let stream = Stream::open(cx, &request[2])?.ok_or(NO_KEY)?;
    let groups = stream.groups(cx)?;
    cx.out.array(groups.len());
    for (group_name, group) in groups {
        let consumers = stream.consumers(cx, &group_name)?.len();
        cx.out.map(6);
        name(cx, "name");
        cx.out.bulk(&group_name);
        put_int(cx, "consumers", consumers as u64);
        put_int(cx, "pending", group.pending);
        put_id(cx, "last-delivered-id", group.last);
        put_optional(cx, "entries-read", group.read.map(|read| read as i64));
        let lag = AddedCount::of(cx, &stream)?.lag(&group);
        put_optional(cx, "lag", lag);
    }
    Ok(())
}

fn consumers(cx: &mut Cx<'_>, request: &Request) -> Done {
    let stream = Stream::open(cx, &request[2])?.ok_or(NO_KEY)?;
    let group = &request[3];
    if stream.group(cx, group)?.is_none() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (group, key) = (text(group), text(&request[2]));
        return Err(Fail::NoGroup(format!("No such consumer group '{group}' for key name '{key}'")));
    }
    let consumers = stream.consumers(cx, group)?;
    cx.out.array(consumers.len());
    for Consumer { name: consumer, seen, active, pending } in consumers {
        cx.out.map(4);
        name(cx, "name");
        cx.out.bulk(&consumer);
        put_int(cx, "pending", pending);
        put_int(cx, "idle", cx.now.saturating_sub(seen));
        name(cx, "inactive");
        cx.out.int(if active == 0 { -1 } else { cx.now.saturating_sub(active) as i64 });
    }
    Ok(())
}

fn full(cx: &mut Cx<'_>, request: &Request) -> Done {
    let limit = match request.len() {
        4 => 10,
        _ if request.is(4, "count") => super::streams::count(&request[5])?,
        _ => return Err(SYNTAX.into()),
    };
    let limit = if limit == 0 { usize::MAX } else { limit };
    let stream = Stream::open(cx, &request[2])?.ok_or(NO_KEY)?;
    cx.out.map(9);
    put_head(cx, &stream)?;
    name(cx, "entries");
    let entries = stream.entries(cx, StreamId::default(), StreamId::MAX, Order::Up, limit)?;
    super::streams::put_entries(cx, &entries);
    name(cx, "groups");
    let groups = stream.groups(cx)?;
    cx.out.array(groups.len());
    for (group_name, group) in groups {
        let all = (StreamId::default(), StreamId::MAX, Order::Up);
        let pending = stream.pending_between(cx, &group_name, all, limit, |_| true)?;
        cx.out.map(7);
        name(cx, "name");
        cx.out.bulk(&group_name);
        put_id(cx, "last-delivered-id", group.last);
        put_optional(cx, "entries-read", group.read.map(|read| read as i64));
        let lag = AddedCount::of(cx, &stream)?.lag(&group);
        put_optional(cx, "lag", lag);
        put_int(cx, "pel-count", group.pending);
        name(cx, "pending");
        cx.out.array(pending.len());
        for pending in &pending {
            cx.out.array(4);
            cx.out.bulk(pending.id.to_string().as_bytes());
            cx.out.bulk(&pending.consumer);
            cx.out.int(pending.delivered as i64);
            cx.out.int(pending.count as i64);
        }
        name(cx, "consumers");
        let consumers = stream.consumers(cx, &group_name)?;
        cx.out.array(consumers.len());
        for Consumer { name: consumer, seen, active, pending } in consumers {
            let all = (StreamId::default(), StreamId::MAX);
            let own = stream.pending_of(cx, (&group_name, &consumer), all, limit)?;
            cx.out.map(5);
            name(cx, "name");
            cx.out.bulk(&consumer);
            put_int(cx, "seen-time", seen);
            put_int(cx, "active-time", active);
            put_int(cx, "pel-count", pending);
            name(cx, "pending");
            cx.out.array(own.len());
            for pending in &own {
                cx.out.array(3);
                cx.out.bulk(pending.id.to_string().as_bytes());
                cx.out.int(pending.delivered as i64);
                cx.out.int(pending.count as i64);
            }
        }
    }
    Ok(())
}
