//! The commands that make a key.
//!
//! ```text
//!   string: SET        list: RPUSH ...      set: SADD ...       sorted set: ZADD ...
//!   hash: HSET ..., HPEXPIREAT              stream: XADD ..., XGROUP, XCLAIM, XDEL, XSETID
//!   then PEXPIREAT, if the key expires
//! ```
//!
//! A consumer may wait for entries that are deleted. Only an entry that is there can become pending, so it is
//! added, claimed, and deleted again.

use std::collections::BTreeMap;

use esker_rdb::{Field, Group, Key, Stream, StreamId, Value};

use crate::failure::Result;

/// Elements of a command.
const ELEMENTS_MAX: usize = 512;
/// Bytes of elements from which on a command takes no further element.
const BYTES_MAX: usize = 256 << 10;
/// Scores beyond are written with an exponent.
const PLAIN_MAX: f64 = 1e17;

/// Takes a command.
pub(crate) type Push<'p> = dyn FnMut(&[&[u8]]) -> Result<()> + 'p;

/// Passes the commands to `push` that make this key, which must not exist.
pub(crate) fn make(key: &Key, push: &mut Push<'_>) -> Result<()> {
    let name = key.name.as_slice();
    match &key.value {
        Value::String(value) => push(&[b"SET", name, value])?,
        Value::List(all) => in_parts(b"RPUSH", name, all.iter().map(|one| [one.as_slice()]), push)?,
        Value::Set(all) => in_parts(b"SADD", name, all.iter().map(|one| [one.as_slice()]), push)?,
        Value::SortedSet(all) => {
            let scores: Vec<String> = all.iter().map(|(_, score)| number(*score)).collect();
            let pairs =
                all.iter().zip(&scores).map(|((member, _), score)| [score.as_bytes(), member.as_slice()]);
            in_parts(b"ZADD", name, pairs, push)?;
        }
        Value::Hash(fields) => hash(name, fields, push)?,
        Value::Stream(stream) => self::stream(name, stream, push)?,
    }
    match key.expires_ms {
        0 => Ok(()),
        at => push(&[b"PEXPIREAT", name, at.to_string().as_bytes()]),
    }
}

/// Passes commands with some of the elements each.
fn in_parts<'e, const N: usize>(
    command: &[u8],
    key: &[u8],
    elements: impl Iterator<Item = [&'e [u8]; N]>,
    push: &mut Push<'_>,
) -> Result<()> {
    let mut words: Vec<&[u8]> = vec![command, key];
    let mut bytes = 0;
    for element in elements {
        bytes += element.iter().map(|word| word.len()).sum::<usize>();
        words.extend(element);
        if bytes >= BYTES_MAX || words.len() >= N * ELEMENTS_MAX {
            push(&words)?;
            words.truncate(2);
            bytes = 0;
        }
    }
    if words.len() > 2 { push(&words) } else { Ok(()) }
}

fn number(score: f64) -> String {
    match score.abs() {
        _ if score.is_infinite() => if score > 0.0 { "+inf" } else { "-inf" }.to_owned(),
        size if size >= PLAIN_MAX || size < 1.0 / PLAIN_MAX && size > 0.0 => format!("{score:e}"),
        _ => score.to_string(),
    }
}

fn hash(key: &[u8], fields: &[Field], push: &mut Push<'_>) -> Result<()> {
    let pairs = fields.iter().map(|field| [field.name.as_slice(), field.value.as_slice()]);
    in_parts(b"HSET", key, pairs, push)?;
    let mut deadlines: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    for field in fields.iter().filter(|field| field.expires_ms != 0) {
        deadlines.entry(field.expires_ms).or_default().push(&field.name);
    }
    for (at, names) in deadlines {
        let at = at.to_string();
        for names in names.chunks(ELEMENTS_MAX) {
            let count = names.len().to_string();
            let mut words: Vec<&[u8]> = vec![b"HPEXPIREAT", key, at.as_bytes(), b"FIELDS", count.as_bytes()];
            words.extend(names);
            push(&words)?;
        }
    }
    Ok(())
}

/// Fields of an entry that is deleted again.
static NO_FIELDS: [Vec<u8>; 2] = [Vec::new(), Vec::new()];

fn stream(key: &[u8], stream: &Stream, push: &mut Push<'_>) -> Result<()> {
    let mut entries: BTreeMap<StreamId, &[Vec<u8>]> =
        stream.entries.iter().map(|entry| (entry.id, entry.fields.as_slice())).collect();
    let pending =
        stream.groups.iter().flat_map(|group| &group.consumers).flat_map(|consumer| &consumer.pending);
    let mut deleted: Vec<StreamId> =
        pending.map(|pending| pending.id).filter(|id| !entries.contains_key(id)).collect();
    deleted.sort_unstable();
    deleted.dedup();
    entries.extend(deleted.iter().map(|id| (*id, &NO_FIELDS[..])));
    if entries.is_empty() {
        push(&[b"XGROUP", b"CREATE", key, b"esker-import", b"0", b"MKSTREAM"])?;
        push(&[b"XGROUP", b"DESTROY", key, b"esker-import"])?;
    }
    for (id, fields) in &entries {
        let id = id.to_string();
        let mut words: Vec<&[u8]> = vec![b"XADD", key, id.as_bytes()];
        words.extend(fields.iter().map(Vec::as_slice));
        push(&words)?;
    }
    for group in &stream.groups {
        self::group(key, group, push)?;
    }
    for id in &deleted {
        push(&[b"XDEL", key, id.to_string().as_bytes()])?;
    }
    let (last, max_deleted) = (stream.last_id.to_string(), stream.max_deleted_id.to_string());
    let added = stream.added.to_string();
    push(&[
        b"XSETID",
        key,
        last.as_bytes(),
        b"ENTRIESADDED",
        added.as_bytes(),
        b"MAXDELETEDID",
        max_deleted.as_bytes(),
    ])
}

fn group(key: &[u8], group: &Group, push: &mut Push<'_>) -> Result<()> {
    let (last, read) = (group.last_id.to_string(), group.read.map(|read| read.to_string()));
    let mut words: Vec<&[u8]> = vec![b"XGROUP", b"CREATE", key, &group.name, last.as_bytes()];
    if let Some(read) = &read {
        words.extend([&b"ENTRIESREAD"[..], read.as_bytes()]);
    }
    push(&words)?;
    for consumer in &group.consumers {
        push(&[b"XGROUP", b"CREATECONSUMER", key, &group.name, &consumer.name])?;
        for pending in &consumer.pending {
            let (id, time) = (pending.id.to_string(), pending.delivered_ms.to_string());
            let count = pending.count.to_string();
            push(&[
                b"XCLAIM",
                key,
                &group.name,
                &consumer.name,
                b"0",
                id.as_bytes(),
                b"TIME",
                time.as_bytes(),
                b"RETRYCOUNT",
                count.as_bytes(),
                b"FORCE",
                b"JUSTID",
            ])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use esker_rdb::{Consumer, Entry, Pending};

    use super::*;

    fn lines(key: &Key) -> Vec<String> {
        let mut lines = Vec::new();
        let mut push = |words: &[&[u8]]| {
            lines
                .push(words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" "));
            Ok(())
        };
        make(key, &mut push).unwrap();
        lines
    }

    #[test]
    fn a_deleted_entry_stays_pending() {
        let id = |ms| StreamId { ms, seq: 1 };
        let pending = Pending { id: id(2), delivered_ms: 7, count: 3 };
        let consumer = Consumer { name: b"c".to_vec(), pending: vec![pending], ..Consumer::default() };
        let group = Group { name: b"g".to_vec(), last_id: id(3), read: Some(2), consumers: vec![consumer] };
        let entries = vec![Entry { id: id(3), fields: vec![b"f".to_vec(), b"v".to_vec()] }];
        let stream = Stream { entries, last_id: id(9), max_deleted_id: id(2), added: 4, groups: vec![group] };
        let key = Key { name: b"s".to_vec(), value: Value::Stream(Box::new(stream)), expires_ms: 5 };
        let wanted = [
            "XADD s 2-1  ",
            "XADD s 3-1 f v",
            "XGROUP CREATE s g 3-1 ENTRIESREAD 2",
            "XGROUP CREATECONSUMER s g c",
            "XCLAIM s g c 0 2-1 TIME 7 RETRYCOUNT 3 FORCE JUSTID",
            "XDEL s 2-1",
            "XSETID s 9-1 ENTRIESADDED 4 MAXDELETEDID 2-1",
            "PEXPIREAT s 5",
        ];
        assert_eq!(lines(&key), wanted);
    }

    #[test]
    fn large_collections_take_several_commands() {
        let all: Vec<Vec<u8>> = (0..1300).map(|n: u32| n.to_string().into_bytes()).collect();
        let key = Key { name: b"l".to_vec(), value: Value::List(all), expires_ms: 0 };
        let lines = lines(&key);
        assert_eq!(lines.len(), 3);
        let elements: Vec<&str> = lines.iter().flat_map(|line| line.split(' ').skip(2)).collect();
        assert!(elements.len() == 1300 && elements.is_sorted_by_key(|n| n.parse::<u32>().unwrap()));
        for (score, text) in [(1e300, "1e300"), (-0.5, "-0.5"), (3.0, "3"), (f64::NEG_INFINITY, "-inf")] {
            assert_eq!(number(score), text);
        }
    }
}
