//! Consumer groups of streams. Each entry goes to one consumer and stays pending until that consumer
//! acknowledges it.

use super::stream_claims::claim_idle;
use super::stream_info::AddedCount;
use super::streams::{Reading, bound, count, id, reading};
use crate::base::events::Event;
use crate::command::spec::Group::Stream as Streams;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX, Wait};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::registry::row::*;
use crate::store::Order;
use crate::types::{Group, Pending, Stream, StreamId};

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("xack", -4, WRITE | FAST, FIRST, Streams, "key group id ...", "Acknowledges entries.", xack).each(KeyUse::DELETE),
    command("xgroup", -2, WRITE | DENY_OOM, Keys::At(2, 2, 1), Streams, "create key group id [mkstream] [entriesread n] | setid key group id [entriesread n] | destroy key group | createconsumer key group consumer | delconsumer key group consumer", "Creates, changes and removes groups and consumers.", xgroup),
    command("xpending", -3, READ, FIRST, Streams, "key group [[idle ms] from to count [consumer]]", "Returns the entries that are not acknowledged.", xpending),
    command("xreadgroup", -7, WRITE | BLOCKING, Keys::Streams, Streams, "group name consumer [count n] [block ms] [claim idle-ms] [noack] streams key ... id ...", "Returns entries that no other consumer of the group gets, with CLAIM also those that are pending for a time, and waits for some.", xreadgroup).each(KeyUse::SHOW),
];

/// An entry in the reply of `XREADGROUP`.
pub(super) struct Delivery {
    pub id: StreamId,
    /// None if the entry was removed.
    pub fields: Option<Vec<Vec<u8>>>,
    /// With `CLAIM`: milliseconds since the previous delivery, and number of previous deliveries.
    pub before: Option<[u64; 2]>,
}

/// What a consumer gets from a stream.
struct Delivered {
    entries: Vec<Delivery>,
    /// When the next pending entry can be claimed, in Unix milliseconds.
    next: Option<u64>,
}

fn no_group(key: &[u8], group: &[u8]) -> Fail {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Fail::NoGroup(format!("No such key '{}' or consumer group '{}'", text(key), text(group)))
}

/// Opens a stream and one of its groups.
pub(super) fn open(cx: &mut Cx<'_>, key: &[u8], name: &[u8]) -> Done<(Stream, Group)> {
    let stream = Stream::open(cx, key)?.ok_or_else(|| no_group(key, name))?;
    let group = stream.group(cx, name)?.ok_or_else(|| no_group(key, name))?;
    Ok((stream, group))
}

fn xgroup(cx: &mut Cx<'_>, request: &Request) -> Done {
    let sub = request[1].to_ascii_lowercase();
    let is_known = matches!(
        (&*sub, request.len()),
        (b"create", 5..=8) | (b"setid", 5 | 7) | (b"destroy", 4) | (b"createconsumer" | b"delconsumer", 5)
    );
    if !is_known {
        return Err(unknown_subcommand(request));
    }
    let (key, name) = (&request[2], &request[3]);
    let (mut makes, mut read) = (false, None);
    let mut at = if matches!(&*sub, b"create" | b"setid") { 5 } else { request.len() };
    while at < request.len() {
        if request.is(at, "mkstream") && &*sub == b"create" {
            makes = true;
            at += 1;
        } else if request.is(at, "entriesread") && at + 1 < request.len() {
            let n = int(&request[at + 1])?;
            if n < -1 {
                return Err("ERR value for ENTRIESREAD must be positive or -1".into());
            }
            read = u64::try_from(n).ok();
            at += 2;
        } else {
            return Err(SYNTAX.into());
        }
    }
    let found = Stream::open(cx, key)?;
    let mut stream = match found {
        Some(stream) => stream,
        None if makes => Stream::open_or_new(cx, key)?,
        None => {
            return Err("ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.".into());
        }
    };
    let group = stream.group(cx, name)?;
    if group.is_none() && !matches!(&*sub, b"create" | b"destroy") {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        return Err(Fail::NoGroup(format!(
            "No such consumer group '{}' for key name '{}'",
            text(name),
            text(key)
        )));
    }
    let has_changed = match &*sub {
        b"create" | b"setid" => {
            let last = match &request[4] {
                b"$" => stream.last_id(),
                // Only SETID takes these bounds, like in Redis 7.0.
                b"-" if &*sub == b"setid" => StreamId::default(),
                b"+" if &*sub == b"setid" => StreamId::MAX,
                word => id(word, 0)?,
            };
            if group.is_some() && &*sub == b"create" {
                return Err("BUSYGROUP Consumer Group name already exists".into());
            }
            stream.put_group(cx, name, Group { last, read, pending: 0 })?;
            cx.out.ok();
            true
        }
        b"destroy" => {
            if group.is_some() {
                stream.remove_group(cx, name)?;
            }
            cx.out.int(i64::from(group.is_some()));
            group.is_some()
        }
        b"createconsumer" => {
            let is_new = stream.consumer(cx, name, &request[4])?.is_none();
            if is_new {
                stream.put_consumer(cx, name, &request[4], cx.now, 0)?;
            }
            cx.out.int(i64::from(is_new));
            is_new
        }
        _ => {
            let was_there = stream.consumer(cx, name, &request[4])?.is_some();
            let pending = stream.remove_consumer(cx, name, &request[4])?;
            cx.out.count(pending);
            was_there
        }
    };
    stream.save_groups(cx)?;
    if has_changed {
        cx.event(Event::Stream, &format!("xgroup-{}", String::from_utf8_lossy(&sub)), key);
    }
    // Wake the clients that wait for this group: it may be gone.
    cx.filled(key);
    Ok(())
}

/// Records a request of a consumer. Creates the consumer if needed, and updates its active time if it got
/// entries.
pub(super) fn note_consumer(
    cx: &mut Cx<'_>,
    stream: &mut Stream,
    key: &[u8],
    group: &[u8],
    name: &[u8],
    got: bool,
) -> Done {
    let before = stream.consumer(cx, group, name)?;
    if before.is_none() {
        cx.event(Event::Stream, "xgroup-createconsumer", key);
    }
    let active = if got { cx.now } else { before.map_or(0, |before| before.active) };
    stream.put_consumer(cx, group, name, cx.now, active)
}

/// Returns the error for a waiting reader whose group is gone.
fn why_unblocked(cx: &mut Cx<'_>, key: &[u8]) -> &'static str {
    match Stream::open(cx, key) {
        Ok(Some(_)) => "NOGROUP the consumer group this client was blocked on no longer exists",
        _ => "UNBLOCKED the stream key no longer exists",
    }
}

fn xreadgroup(cx: &mut Cx<'_>, request: &Request) -> Done {
    if !request.is(1, "group") {
        return Err(SYNTAX.into());
    }
    let reader = (&request[2], &request[3]);
    let reading = reading(request, 4)?;
    let (mut found, mut again_at) = (Vec::new(), None::<u64>);
    let (mut waits, keys) = (true, request.from(reading.first).take(reading.len).collect::<Vec<_>>());
    for (n, key) in keys.iter().copied().enumerate() {
        let word = &request[reading.first + reading.len + n];
        let (mut stream, group) = open(cx, key, reader.0).map_err(|fail| match fail {
            fail if fail.is_reply() && cx.session.turn.is_again => Fail::Final(why_unblocked(cx, key).into()),
            Fail::NoGroup(what) => {
                Fail::NoGroup(format!("{what} in XREADGROUP with GROUP option")).ends_wait()
            }
            other => other.ends_wait(),
        })?;
        if word == b"$" {
            return Err("ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.".into());
        }
        let entries = if word == b">" {
            let Delivered { entries, next } = deliver(cx, &mut stream, (group, key), reader, &reading)?;
            again_at = again_at.into_iter().chain(next).min();
            Some(entries).filter(|entries| !entries.is_empty())
        } else {
            waits = false;
            let Some(from) = id(word, 0)?.next() else { continue };
            Some(deliver_again(cx, &mut stream, (from, key), reader, reading.count)?)
        };
        found.extend(entries.map(|entries| (key, entries)));
        stream.save_groups(cx)?;
    }
    match reading.block {
        Some(ms) if waits && found.is_empty() => {
            let keys = keys.into_iter().map(<[u8]>::to_vec).collect();
            // Readers that claim at other times get other entries.
            let claim = reading.claim.map_or(String::new(), |least| format!("claim {least} "));
            let class = Some([claim.as_bytes(), b"group ", reader.0].concat());
            let wait = Wait { keys, ms, instead: None, class, minds_changes: true, again_at };
            return Err(Fail::Blocks(Box::new(wait)));
        }
        _ if found.is_empty() => cx.out.null_array(),
        _ => put_deliveries(cx, found),
    }
    Ok(())
}

/// Names of a group and of a consumer.
pub(super) type Reader<'r> = (&'r [u8], &'r [u8]);

/// Delivers entries to a consumer: with `CLAIM` those that are idle, then new ones, which become pending.
fn deliver(
    cx: &mut Cx<'_>,
    stream: &mut Stream,
    (mut group, key): (Group, &[u8]),
    (name, consumer): Reader<'_>,
    reading: &Reading,
) -> Done<Delivered> {
    let (mut found, next) = match reading.claim {
        Some(least) if group.pending > 0 => claim_idle(cx, stream, (name, consumer), least, reading.count)?,
        _ => (Vec::new(), None),
    };
    let left = reading.count - found.len();
    let entries = match group.last.next() {
        Some(from) => stream.entries(cx, from, StreamId::MAX, Order::Up, left)?,
        None => Vec::new(),
    };
    note_consumer(cx, stream, key, name, consumer, !(entries.is_empty() && found.is_empty()))?;
    if let Some((last, _)) = entries.last() {
        let added = AddedCount::of(cx, stream)?;
        let ids = entries.iter().map(|(id, _)| *id);
        group.read = ids.fold(group.read, |read, id| added.read_after(read, id));
        group.last = *last;
        stream.put_group(cx, name, group)?;
    }
    for (id, _) in entries.iter().filter(|_| !reading.no_ack) {
        let pending = Pending { id: *id, consumer: consumer.to_vec(), delivered: cx.now, count: 1 };
        stream.put_pending(cx, name, &pending)?;
    }
    let before = reading.claim.map(|_| [0, 0]);
    found.extend(entries.into_iter().map(|(id, fields)| Delivery { id, fields: Some(fields), before }));
    Ok(Delivered { entries: found, next })
}

/// Delivers pending entries to their consumer again, starting at an id.
fn deliver_again(
    cx: &mut Cx<'_>,
    stream: &mut Stream,
    (from, key): (StreamId, &[u8]),
    (name, consumer): Reader<'_>,
    count: usize,
) -> Done<Vec<Delivery>> {
    let mut entries = Vec::new();
    for mut pending in stream.pending_of(cx, (name, consumer), (from, StreamId::MAX), count)? {
        let fields = stream.entry(cx, pending.id)?;
        if fields.is_some() {
            pending.delivered = cx.now;
            pending.count += 1;
            stream.put_pending(cx, name, &pending)?;
        }
        entries.push(Delivery { id: pending.id, fields, before: None });
    }
    note_consumer(cx, stream, key, name, consumer, !entries.is_empty())?;
    Ok(entries)
}

fn put_deliveries(cx: &mut Cx<'_>, found: Vec<(&[u8], Vec<Delivery>)>) {
    cx.out.begin_lists(found.len());
    for (key, entries) in found {
        cx.out.begin_list_of(key);
        cx.out.array(entries.len());
        for Delivery { id, fields, before } in entries {
            cx.out.array(if before.is_some() { 4 } else { 2 });
            cx.out.bulk(id.to_string().as_bytes());
            match fields {
                Some(fields) => {
                    cx.out.array(fields.len());
                    fields.iter().for_each(|field| cx.out.bulk(field));
                }
                None => cx.out.null_array(),
            }
            before.into_iter().flatten().for_each(|n| cx.out.int(n as i64));
        }
    }
}

fn xack(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut acknowledged = 0;
    if let Some(mut stream) = Stream::open(cx, &request[1])?
        && stream.group(cx, &request[2])?.is_some()
    {
        let ids: Done<Vec<_>> = request.from(3).map(|word| id(word, 0)).collect();
        for id in ids? {
            acknowledged += i64::from(stream.acknowledge(cx, &request[2], id)?);
        }
        if acknowledged > 0 {
            stream.save_groups(cx)?;
        }
    }
    cx.out.int(acknowledged);
    Ok(())
}

fn xpending(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (key, name) = (&request[1], &request[2]);
    if request.len() == 3 {
        let (stream, _) = open(cx, key, name)?;
        return summary(cx, &stream, name);
    }
    let mut at = 3;
    let mut idle = 0;
    if request.is(at, "idle") {
        idle = int(request.get(at + 1).ok_or(SYNTAX)?)?.max(0) as u64;
        at += 2;
    }
    if !(at + 3..=at + 4).contains(&request.len()) {
        return Err(SYNTAX.into());
    }
    let (from, to) = (bound(&request[at], true)?, bound(&request[at + 1], false)?);
    let limit = count(&request[at + 2])?;
    let consumer = request.get(at + 3);
    let (stream, _) = open(cx, key, name)?;
    let now = cx.now;
    let is_idle = |pending: &Pending| now.saturating_sub(pending.delivered) >= idle;
    let found = match consumer {
        None => stream.pending_between(cx, name, (from, to, Order::Up), limit, is_idle)?,
        Some(consumer) => {
            // With an idle time, all entries of the consumer have to be read.
            let most = if idle == 0 { limit } else { usize::MAX };
            let mut own = stream.pending_of(cx, (name, consumer), (from, to), most)?;
            own.retain(is_idle);
            own.truncate(limit);
            own
        }
    };
    cx.out.array(found.len());
    for pending in found {
        cx.out.array(4);
        cx.out.bulk(pending.id.to_string().as_bytes());
        cx.out.bulk(&pending.consumer);
        cx.out.int(now.saturating_sub(pending.delivered) as i64);
        cx.out.int(pending.count as i64);
    }
    Ok(())
}

fn summary(cx: &mut Cx<'_>, stream: &Stream, name: &[u8]) -> Done {
    let count = stream.group(cx, name)?.map_or(0, |group| group.pending);
    let end =
        |order| stream.pending_between(cx, name, (StreamId::default(), StreamId::MAX, order), 1, |_| true);
    let ends = [end(Order::Up)?, end(Order::Down)?];
    cx.out.array(4);
    cx.out.int(count as i64);
    let [Some(first), Some(last)] = ends.each_ref().map(|end| end.first()) else {
        (0..2).for_each(|_| cx.out.null());
        cx.out.null_array();
        return Ok(());
    };
    cx.out.bulk(first.id.to_string().as_bytes());
    cx.out.bulk(last.id.to_string().as_bytes());
    let mut consumers = stream.consumers(cx, name)?;
    consumers.retain(|consumer| consumer.pending > 0);
    cx.out.array(consumers.len());
    for consumer in consumers {
        cx.out.array(2);
        cx.out.bulk(&consumer.name);
        cx.out.bulk(consumer.pending.to_string().as_bytes());
    }
    Ok(())
}
