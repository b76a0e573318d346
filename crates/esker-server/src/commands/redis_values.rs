//! Values that `DUMP` of Redis or Valkey has made, for `RESTORE`.

use std::collections::BTreeSet;

use esker_rdb::{Error, Field, StreamId as Id, Value, value_of_dump};

use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::store::record::Due;
use crate::types::{Collection, End, Group, Kind, List, Pending, SortedSet, Stream, StreamId};

const BAD: &str = "ERR Bad data format";

/// Decodes a payload. `wrong`: the reply if its version or checksum is wrong.
pub(super) fn decode(cx: &Cx<'_>, payload: &[u8], wrong: &'static str) -> Done<Value> {
    cx.gather(payload.len())?;
    let value = value_of_dump(payload).map_err(|error| match error {
        Error::Checksum { .. } | Error::Version(_) => wrong,
        _ if payload.len() < 10 => wrong,
        _ => BAD,
    })?;
    // Lengths of elements may be compressed: what they take is counted once it is known.
    each_piece(&value, &mut |piece| cx.gather(piece.len()))?;
    Ok(value)
}

fn each_piece(value: &Value, note: &mut dyn FnMut(&[u8]) -> Done) -> Done {
    match value {
        Value::String(text) => note(text),
        Value::List(all) | Value::Set(all) => all.iter().try_for_each(|one| note(one)),
        Value::SortedSet(all) => all.iter().try_for_each(|(member, _)| note(member)),
        Value::Hash(fields) => {
            fields.iter().try_for_each(|field| note(&field.name).and_then(|()| note(&field.value)))
        }
        Value::Stream(stream) => {
            stream.entries.iter().flat_map(|entry| &entry.fields).try_for_each(|field| note(field))
        }
    }
}

/// Stores a value at a key that holds nothing. Returns whether there is something to store: fields of a hash
/// may have expired.
pub(super) fn save(cx: &mut Cx<'_>, key: &[u8], value: Value, expires: u64) -> Done<bool> {
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
            let active = consumer.pending.iter().map(|pending| pending.delivered_ms).max();
            let seen = active.unwrap_or(cx.now);
            stream.put_consumer(cx, &group.name, &consumer.name, seen, active.unwrap_or(0))?;
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
