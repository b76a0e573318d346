//! Copies the keys of a server to Redis.
//!
//! ```text
//!   SCAN --names--> TYPE --> MULTI, PEXPIRETIME, GET | LRANGE | ..., EXEC --> Key --commands--> target
//! ```
//!
//! A key is read as of one moment, and different keys at different moments.

use esker_rdb::{Consumer, Entry, Field, Group, Key, Pending, Stream, StreamId, Value};
use redis::Value as Reply;

use super::load::Loaded;
use super::target::Target;
use super::{Words, commands};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::text::shown;

/// Names asked for at a time.
const PAGE: &str = "128";

/// Copies all databases and libraries of functions.
pub(crate) fn export(source: &mut Target, target: &mut Target, progress: &Progress) -> Result<Loaded> {
    let mut exported = Loaded { libraries: libraries(source, target)?, ..Loaded::default() };
    for database in source.databases()? {
        source.ask(&["SELECT", &database.to_string()])?;
        target.select(database)?;
        let mut cursor = b"0".to_vec();
        loop {
            let page = source.ask(&[&b"SCAN"[..], &cursor, b"COUNT", PAGE.as_bytes()])?;
            let [next, names] = parts(page)?;
            cursor = bytes(next)?;
            let names: Vec<Vec<u8>> = items(names)?.into_iter().map(bytes).collect::<Result<_>>()?;
            for key in read(source, names)? {
                commands::make(&key, &mut |words| target.push(words))?;
                exported.keys += 1;
            }
            progress.set(exported.keys, || format!("{} keys", output::count(exported.keys)));
            if cursor == b"0" {
                break;
            }
        }
    }
    target.flush()?;
    Ok(exported)
}

/// Copies the libraries of functions, and returns how many there are.
fn libraries(source: &mut Target, target: &mut Target) -> Result<u64> {
    let Some(reply) = source.ask_functions(&["FUNCTION", "LIST", "WITHCODE"])? else { return Ok(0) };
    let mut count = 0;
    for library in items(reply)? {
        let code = pairs(library)?.into_iter().find(|(name, _)| name == b"library_code");
        let code = bytes(code.map(|(_, code)| code).ok_or_else(unexpected)?)?;
        target.push(&[b"FUNCTION", &b"LOAD"[..], &code])?;
        count += 1;
    }
    Ok(count)
}

fn unexpected() -> Failure {
    Failure::message("unexpected reply: is this an Esker server?")
}

fn bytes(reply: Reply) -> Result<Vec<u8>> {
    match reply {
        Reply::BulkString(bytes) => Ok(bytes),
        Reply::SimpleString(text) => Ok(text.into_bytes()),
        Reply::Int(number) => Ok(number.to_string().into_bytes()),
        _ => Err(unexpected()),
    }
}

fn items(reply: Reply) -> Result<Vec<Reply>> {
    match reply {
        Reply::Array(items) => Ok(items),
        _ => Err(unexpected()),
    }
}

fn parts<const N: usize>(reply: Reply) -> Result<[Reply; N]> {
    items(reply)?.try_into().map_err(|_| unexpected())
}

fn strings(reply: Reply) -> Result<Vec<Vec<u8>>> {
    items(reply)?.into_iter().map(bytes).collect()
}

/// Pairs names with the values behind them.
fn pairs(reply: Reply) -> Result<Vec<(Vec<u8>, Reply)>> {
    let mut all = items(reply)?.into_iter();
    let mut pairs = Vec::new();
    while let Some(name) = all.next() {
        pairs.push((bytes(name)?, all.next().ok_or_else(unexpected)?));
    }
    Ok(pairs)
}

fn number<T: std::str::FromStr>(reply: Reply) -> Result<T> {
    let text = bytes(reply)?;
    std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()).ok_or_else(unexpected)
}

fn id(reply: Reply) -> Result<StreamId> {
    let text = String::from_utf8(bytes(reply)?).map_err(|_| unexpected())?;
    let (ms, seq) = text.split_once('-').ok_or_else(unexpected)?;
    match (ms.parse(), seq.parse()) {
        (Ok(ms), Ok(seq)) => Ok(StreamId { ms, seq }),
        _ => Err(unexpected()),
    }
}

/// Reads keys. Keys that are gone meanwhile are left out.
fn read(source: &mut Target, names: Vec<Vec<u8>>) -> Result<Vec<Key>> {
    let types: Vec<Words> = names.iter().map(|name| vec![b"TYPE".to_vec(), name.clone()]).collect();
    let types = source.ask_all(&types)?;
    let mut asked: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut requests: Vec<Words> = Vec::new();
    for (name, kind) in names.into_iter().zip(types) {
        let kind = bytes(kind)?;
        let words: &[&[u8]] = match kind.as_slice() {
            b"string" => &[b"GET", &name],
            b"list" => &[b"LRANGE", &name, b"0", b"-1"],
            b"set" => &[b"SMEMBERS", &name],
            b"zset" => &[b"ZRANGE", &name, b"0", b"-1", b"WITHSCORES"],
            b"hash" => &[b"HGETALL", &name],
            b"stream" => &[b"XINFO", b"STREAM", &name, b"FULL", b"COUNT", b"0"],
            b"none" => continue,
            _ => {
                let text = format!("key '{}' has the type {}", name.escape_ascii(), kind.escape_ascii());
                return Err(Failure::message(shown(text)));
            }
        };
        let owned = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
        requests.push(owned(&[b"MULTI"]));
        requests.push(owned(&[b"PEXPIRETIME", &name]));
        requests.push(owned(words));
        requests.push(owned(&[b"EXEC"]));
        asked.push((name, kind));
    }
    let mut replies = source.ask_all(&requests)?.into_iter().skip(3).step_by(4);
    let mut keys = Vec::new();
    for (name, kind) in asked {
        let [expires, reply] = parts(replies.next().ok_or_else(unexpected)?)?;
        let expires_ms = match number::<i64>(expires)? {
            -2 => continue,
            at => u64::try_from(at).unwrap_or(0),
        };
        let mut value = value(&kind, reply)?;
        if let Value::Hash(fields) = &mut value {
            deadlines(source, &name, fields)?;
        }
        keys.push(Key { name, value, expires_ms });
    }
    Ok(keys)
}

fn value(kind: &[u8], reply: Reply) -> Result<Value> {
    Ok(match kind {
        b"string" => Value::String(bytes(reply)?),
        b"list" => Value::List(strings(reply)?),
        b"set" => Value::Set(strings(reply)?),
        b"zset" => {
            let scored = pairs(reply)?.into_iter().map(|(member, score)| Ok((member, number(score)?)));
            Value::SortedSet(scored.collect::<Result<_>>()?)
        }
        b"hash" => {
            let field = |(name, value)| Ok(Field { name, value: bytes(value)?, expires_ms: 0 });
            Value::Hash(pairs(reply)?.into_iter().map(field).collect::<Result<_>>()?)
        }
        _ => Value::Stream(Box::new(stream(reply)?)),
    })
}

/// Asks when the fields of a hash expire. A field that is gone meanwhile is left out.
fn deadlines(source: &mut Target, name: &[u8], fields: &mut Vec<Field>) -> Result<()> {
    let count = fields.len().to_string();
    let mut words: Vec<&[u8]> = vec![b"HPEXPIRETIME", name, b"FIELDS", count.as_bytes()];
    words.extend(fields.iter().map(|field| field.name.as_slice()));
    let Reply::Array(replies) = source.ask(&words)? else { return Ok(()) };
    let mut times = replies.into_iter().map(number::<i64>).collect::<Result<Vec<_>>>()?.into_iter();
    fields.retain_mut(|field| {
        let at = times.next().unwrap_or(-1);
        field.expires_ms = u64::try_from(at).unwrap_or(0);
        at != -2
    });
    Ok(())
}

fn stream(reply: Reply) -> Result<Stream> {
    let mut stream = Stream::default();
    for (name, value) in pairs(reply)? {
        match name.as_slice() {
            b"last-generated-id" => stream.last_id = id(value)?,
            b"max-deleted-entry-id" => stream.max_deleted_id = id(value)?,
            b"entries-added" => stream.added = number(value)?,
            b"entries" => {
                for entry in items(value)? {
                    let [at, fields] = parts(entry)?;
                    stream.entries.push(Entry { id: id(at)?, fields: strings(fields)? });
                }
            }
            b"groups" => stream.groups = items(value)?.into_iter().map(group).collect::<Result<_>>()?,
            _ => {}
        }
    }
    Ok(stream)
}

fn group(reply: Reply) -> Result<Group> {
    let mut group =
        Group { name: Vec::new(), last_id: StreamId::default(), read: None, consumers: Vec::new() };
    for (name, value) in pairs(reply)? {
        match (name.as_slice(), value) {
            (b"name", value) => group.name = bytes(value)?,
            (b"last-delivered-id", value) => group.last_id = id(value)?,
            (b"entries-read", Reply::Int(read)) => group.read = u64::try_from(read).ok(),
            (b"consumers", value) => {
                group.consumers = items(value)?.into_iter().map(consumer).collect::<Result<_>>()?;
            }
            _ => {}
        }
    }
    Ok(group)
}

fn consumer(reply: Reply) -> Result<Consumer> {
    let mut consumer = Consumer::default();
    for (name, value) in pairs(reply)? {
        match name.as_slice() {
            b"name" => consumer.name = bytes(value)?,
            b"pel" | b"pending" => {
                for pending in items(value)? {
                    let [at, delivered, count] = parts(pending)?;
                    let (delivered_ms, count) = (number(delivered)?, number(count)?);
                    consumer.pending.push(Pending { id: id(at)?, delivered_ms, count });
                }
            }
            _ => {}
        }
    }
    Ok(consumer)
}
