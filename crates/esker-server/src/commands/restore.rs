//! `RESTORE`: a key from the bytes that `DUMP` of this server, of Redis or of Valkey returned.
//!
//! Any client can forge a payload: what it states is checked before anything is stored.

use std::collections::BTreeSet;

use esker_rdb::{Error, Field, StreamId as Id, Value, value_of_dump};

use crate::base::accesses::Note;
use crate::base::events::Event;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::store::record::Due;
use crate::types::{Collection, End, Group, Kind, List, Pending, SortedSet, Stream, StreamId};

const BAD: &str = "ERR Bad data format";

const WRONG: &str = "ERR DUMP payload version or checksum are wrong";

pub(super) fn restore(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    let (mut replaces, mut is_absolute, mut used) = (false, false, None);
    let mut at = 4;
    while at < request.len() {
        match request[at].to_ascii_lowercase().as_slice() {
            b"replace" => replaces = true,
            b"absttl" => is_absolute = true,
            b"idletime" if at + 1 < request.len() && used.is_none() => {
                let idle = u64::try_from(int(&request[at + 1])?);
                used = Some(Note::Idle(idle.map_err(|_| "ERR Invalid IDLETIME value, must be >= 0")?));
                at += 1;
            }
            b"freq" if at + 1 < request.len() && used.is_none() => {
                let count = u8::try_from(int(&request[at + 1])?);
                used =
                    Some(Note::Count(count.map_err(|_| "ERR Invalid FREQ value, must be >= 0 and <= 255")?));
                at += 1;
            }
            _ => return Err(SYNTAX.into()),
        }
        at += 1;
    }
    let ttl = u64::try_from(int(&request[2])?).map_err(|_| "ERR Invalid TTL value, must be >= 0")?;
    let old = cx.main(key)?;
    if old.is_some() && !replaces {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let value = decode(cx, &request[3])?;
    let expires = match (ttl, is_absolute) {
        (0, _) => 0,
        (ttl, true) => ttl,
        (ttl, false) => cx.now.saturating_add(ttl),
    };
    if let Some(old) = &old {
        cx.remove_key(key, old)?;
    }
    if (expires == 0 || expires > cx.expiry_now()) && save(cx, key, value, expires)? {
        used.into_iter().for_each(|note| cx.note_access(key, note));
        cx.event(Event::Generic, "restore", key);
        cx.filled(key);
    }
    cx.out.ok();
    Ok(())
}

/// Decodes a payload.
fn decode(cx: &Cx<'_>, payload: &[u8]) -> Done<Value> {
    value_of_dump(payload, cx.gather_left()).map_err(|error| refused(cx, &error, payload))
}

/// The reply to a payload that cannot be decoded.
pub(super) fn refused(cx: &Cx<'_>, error: &Error, payload: &[u8]) -> Fail {
    match error {
        Error::TooLarge { .. } => cx.gathered_too_much(),
        Error::Checksum { .. } | Error::Version(_) => WRONG.into(),
        _ if payload.len() < 10 => WRONG.into(),
        _ => BAD.into(),
    }
}

/// Stores a value at a key that holds nothing. Returns whether there is something to store: fields of a hash
/// may have expired.
fn save(cx: &mut Cx<'_>, key: &[u8], value: Value, expires: u64) -> Done<bool> {
    match value {
        Value::String(text) => {
            let record = crate::store::record::string_record(&text, expires);
            cx.put_main(key, None, Due::key(expires), &record)?;
            return Ok(true);
        }
        Value::List(all) if !all.is_empty() => {
            let mut list = List::open_or_new(cx, key)?;
            all.iter().try_for_each(|element| list.push(cx, End::Right, element))?;
            list.save(cx)?;
        }
        Value::Set(all) if !all.is_empty() => {
            let mut set = Collection::new(cx, key, Kind::Set)?;
            for member in unique(&all, |member| member)? {
                set.put(cx, member, b"")?;
                set.shape.len += 1;
            }
            set.save(cx)?;
        }
        Value::SortedSet(all) if !all.is_empty() => {
            let mut set = SortedSet::new(cx, key)?;
            for (member, score) in unique(&all, |(member, _)| member)? {
                if score.is_nan() {
                    return Err(BAD.into());
                }
                set.put(cx, member, None, *score)?;
            }
            set.save(cx)?;
        }
        Value::Hash(fields) if !fields.is_empty() => {
            if !save_hash(cx, key, &fields)? {
                return Ok(false);
            }
        }
        Value::Stream(stream) => save_stream(cx, key, &stream)?,
        _ => return Err(BAD.into()),
    }
    if let Some(made) = cx.main(key)?.filter(|_| expires != 0) {
        cx.set_expiry(key, &made, expires)?;
    }
    Ok(true)
}

/// Fails if two elements have the same name.
fn unique<'e, T>(all: &'e [T], name: impl Fn(&'e T) -> &'e Vec<u8>) -> Done<std::slice::Iter<'e, T>> {
    let names: BTreeSet<_> = all.iter().map(name).collect();
    if names.len() == all.len() { Ok(all.iter()) } else { Err(BAD.into()) }
}

fn save_hash(cx: &mut Cx<'_>, key: &[u8], fields: &[Field]) -> Done<bool> {
    let now = cx.expiry_now();
    let mut hash = Collection::new(cx, key, Kind::Hash)?;
    for field in unique(fields, |field| &field.name)? {
        if field.expires_ms != 0 && field.expires_ms <= now {
            continue;
        }
        hash.put(cx, &field.name, &field.value)?;
        hash.shape.len += 1;
        hash.set_deadline(cx, &field.name, field.expires_ms)?;
    }
    let is_any = !hash.is_empty();
    if is_any {
        hash.save(cx)?;
    }
    Ok(is_any)
}

fn id(id: Id) -> StreamId {
    StreamId { ms: id.ms, seq: id.seq }
}

fn save_stream(cx: &mut Cx<'_>, key: &[u8], source: &esker_rdb::Stream) -> Done {
    let mut stream = Stream::open_or_new(cx, key)?;
    let mut last = StreamId::default();
    for entry in &source.entries {
        if id(entry.id) <= last || entry.fields.is_empty() || entry.fields.len() % 2 != 0 {
            return Err(BAD.into());
        }
        last = id(entry.id);
        stream.add(cx, last, entry.fields.iter().map(Vec::as_slice))?;
    }
    let (last_id, max_deleted) = (id(source.last_id), id(source.max_deleted_id));
    if last_id < last || last_id < max_deleted || source.added < source.entries.len() as u64 {
        return Err(BAD.into());
    }
    stream.set_last_id(last_id);
    stream.set_added(source.added);
    stream.set_max_removed(max_deleted);
    for group in unique(&source.groups, |group| &group.name)? {
        let new = Group { last: id(group.last_id), read: group.read, pending: 0 };
        stream.put_group(cx, &group.name, new)?;
        for consumer in unique(&group.consumers, |consumer| &consumer.name)? {
            // Before Redis 7.2 payloads do not say when a consumer was last active.
            let received = || consumer.pending.iter().map(|pending| pending.delivered_ms).max();
            let active = consumer.active_ms.or_else(received).unwrap_or(0);
            stream.put_consumer(cx, &group.name, &consumer.name, consumer.seen_ms, active)?;
            for pending in &consumer.pending {
                let pending = Pending {
                    id: id(pending.id),
                    consumer: consumer.name.clone(),
                    delivered: pending.delivered_ms,
                    count: pending.count,
                };
                stream.put_pending(cx, &group.name, &pending)?;
            }
        }
    }
    stream.save(cx)
}
