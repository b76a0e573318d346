//! Streams: adding, reading, trimming. Consumer groups are in `stream_groups.rs`.

use super::stream_trim::Trim;
use crate::base::events::Event;
use crate::command::spec::Group::Stream as Streams;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX, Wait};
use crate::resp::numbers::{int, timeout_ms};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::Order;
use crate::types::{Entry, Stream, StreamId, parse_count};

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("xadd", -5, WRITE | DENY_OOM | FAST, FIRST, Streams, "key [nomkstream] [keepref|delref|acked] [maxlen|minid [=|~] n [limit n]] *|id field value ...", "Adds an entry.", xadd),
    command("xdel", -3, WRITE | FAST, FIRST, Streams, "key id ...", "Removes entries.", xdel).each(KeyUse::DELETE),
    command("xlen", 2, READ | FAST | ONE, FIRST, Streams, "key", "Returns the number of entries.", xlen).each(KeyUse::LOOK),
    command("xrange", -4, READ, FIRST, Streams, "key from to [count n]", "Returns the entries of a range.", |cx, r| xrange(cx, r, Order::Up)),
    command("xread", -4, BLOCKING | SEQUENCED, Keys::Streams, Streams, "[count n] [block ms] streams key ... id ...", "Returns the entries after the given ids, and waits for some.", xread).in_categories(&["stream", "read"]),
    command("xrevrange", -4, READ, FIRST, Streams, "key to from [count n]", "Returns the entries of a range, last first.", |cx, r| xrange(cx, r, Order::Down)),
    command("xsetid", -3, WRITE | DENY_OOM | FAST, FIRST, Streams, "key id [entriesadded n] [maxdeletedid id]", "Sets the last id of a stream.", xsetid),
    command("xtrim", -4, WRITE, FIRST, Streams, "key maxlen|minid [=|~] n [limit n] [keepref|delref|acked]", "Removes the oldest entries.", xtrim).each(KeyUse::DELETE),
];

pub(super) const BAD_ID: &str = "ERR Invalid stream ID specified as stream command argument";
const SMALL_ID: &str = "ERR The ID specified in XADD is equal or smaller than the target stream top item";

/// Parses an id. `seq` is the sequence number if the argument has none.
pub(super) fn id(word: &[u8], seq: u64) -> Done<StreamId> {
    StreamId::parse(word, seq).ok_or(BAD_ID.into())
}

fn xadd(cx: &mut Cx<'_>, request: &Request) -> Done {
    let key = &request[1];
    let (mut at, mut makes, mut trim) = (2, true, Trim::default());
    loop {
        if request.is(at, "nomkstream") {
            makes = false;
            at += 1;
        } else if let Some(words) = trim.option(request, at)? {
            at += words;
        } else {
            break;
        }
    }
    let word = request.get(at).unwrap_or(b"*");
    let given = match word {
        b"*" => Given::Now,
        _ => match word.strip_suffix(b"-*") {
            Some(ms) => Given::Ms(id(ms, 0)?.ms),
            None => Given::Id(id(word, 0)?),
        },
    };
    trim.check()?;
    let fields = request.len().saturating_sub(at + 1);
    if fields == 0 || !fields.is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'xadd' command".into());
    }
    if matches!(given, Given::Id(id) if id == StreamId::default()) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let mut stream = match Stream::open(cx, key)? {
        Some(stream) => stream,
        None if !makes => {
            cx.out.null();
            return Ok(());
        }
        None => Stream::open_or_new(cx, key)?,
    };
    let last = stream.last_id();
    if last == StreamId::MAX {
        return Err("ERR The stream has exhausted the last possible ID, unable to add more items".into());
    }
    let new = match given {
        Given::Now if cx.now > last.ms => Some(StreamId { ms: cx.now, seq: 0 }),
        Given::Now => last.next(),
        Given::Ms(ms) if ms > last.ms => Some(StreamId { ms, seq: 0 }),
        Given::Ms(ms) if ms == last.ms => last.seq.checked_add(1).map(|seq| StreamId { ms, seq }),
        Given::Ms(_) => None,
        Given::Id(id) => Some(id),
    };
    let new = new.filter(|new| *new > last).ok_or(SMALL_ID)?;
    stream.add(cx, new, request.from(at + 1))?;
    let trimmed = trim.run(cx, &mut stream)?;
    stream.save(cx)?;
    cx.event(Event::Stream, "xadd", key);
    if trimmed > 0 {
        cx.event(Event::Stream, "xtrim", key);
    }
    cx.filled(key);
    cx.out.bulk(new.to_string().as_bytes());
    Ok(())
}

/// The id argument of `XADD`.
#[derive(Clone, Copy)]
enum Given {
    Now,
    Ms(u64),
    Id(StreamId),
}

fn xtrim(cx: &mut Cx<'_>, request: &Request) -> Done {
    let trim = Trim::of(request, 2)?;
    let mut trimmed = 0;
    if let Some(mut stream) = Stream::open(cx, &request[1])? {
        trimmed = trim.run(cx, &mut stream)?;
        if trimmed > 0 {
            stream.save(cx)?;
            cx.event(Event::Stream, "xtrim", &request[1]);
        }
    }
    cx.out.int(trimmed as i64);
    Ok(())
}

fn xlen(cx: &mut Cx<'_>, request: &Request) -> Done {
    let len = Stream::open(cx, &request[1])?.map_or(0, |stream| stream.len());
    cx.out.int(len as i64);
    Ok(())
}

fn xdel(cx: &mut Cx<'_>, request: &Request) -> Done {
    let mut removed = 0;
    if let Some(mut stream) = Stream::open(cx, &request[1])? {
        let ids: Done<Vec<_>> = request.from(2).map(|word| id(word, 0)).collect();
        for id in ids? {
            if stream.remove(cx, id)? {
                removed += 1;
                stream.set_max_removed(stream.max_removed().max(id));
            }
        }
        if removed > 0 {
            stream.save(cx)?;
            cx.event(Event::Stream, "xdel", &request[1]);
        }
    }
    cx.out.int(removed);
    Ok(())
}

/// Parses a bound of a range of ids. Returns it as an inclusive bound.
pub(super) fn bound(word: &[u8], is_lower: bool) -> Done<StreamId> {
    let seq = if is_lower { 0 } else { u64::MAX };
    match word.split_first() {
        Some((b'-', [])) => Ok(StreamId::default()),
        Some((b'+', [])) => Ok(StreamId::MAX),
        Some((b'(', rest)) => {
            let id = id(rest, seq)?;
            let inside = if is_lower { id.next() } else { id.previous() };
            let side = if is_lower { "start" } else { "end" };
            inside.ok_or_else(|| Fail::text(format!("ERR invalid {side} ID for the interval")))
        }
        _ => id(word, seq),
    }
}

/// Replies with entries.
pub(super) fn put_entries(cx: &mut Cx<'_>, entries: &[Entry]) {
    cx.out.array(entries.len());
    for (id, fields) in entries {
        cx.out.array(2);
        cx.out.bulk(id.to_string().as_bytes());
        cx.out.array(fields.len());
        fields.iter().for_each(|field| cx.out.bulk(field));
    }
}

fn xrange(cx: &mut Cx<'_>, request: &Request, order: Order) -> Done {
    let (first, last) = if order == Order::Up { (2, 3) } else { (3, 2) };
    let (from, to) = (bound(&request[first], true)?, bound(&request[last], false)?);
    let count = match request.len() {
        4 => usize::MAX,
        6 if request.is(4, "count") => usize::try_from(int(&request[5])?).unwrap_or(0),
        _ => return Err(SYNTAX.into()),
    };
    let stream = Stream::open(cx, &request[1])?;
    if count == 0 && stream.is_some() {
        cx.out.null_array();
        return Ok(());
    }
    let found = match stream {
        Some(stream) => stream.entries(cx, from, to, order, count)?,
        None => Vec::new(),
    };
    put_entries(cx, &found);
    Ok(())
}

/// The options of `XREAD` and `XREADGROUP`.
pub(super) struct Reading {
    pub count: usize,
    pub block: Option<u64>,
    pub no_ack: bool,
    /// The idle time, in milliseconds, from which pending entries are claimed.
    pub claim: Option<u64>,
    /// Position of the first key, and number of keys.
    pub first: usize,
    pub len: usize,
}

pub(super) fn reading(request: &Request, mut at: usize) -> Done<Reading> {
    let (mut count, mut block, mut no_ack, mut claim) = (usize::MAX, None, false, None);
    while !request.is(at, "streams") {
        let value = request.get(at + 1);
        if request.is(at, "count") {
            count = usize::try_from(int(value.ok_or(SYNTAX)?)?).ok().filter(|n| *n > 0).unwrap_or(usize::MAX);
            at += 2;
        } else if request.is(at, "block") {
            block = Some(timeout_ms(value.ok_or(SYNTAX)?)?);
            at += 2;
        } else if request.is(at, "claim") {
            let idle = int(value.ok_or(SYNTAX)?).map_err(|_| "ERR min-idle-time is not an integer")?;
            claim = Some(u64::try_from(idle).map_err(|_| "ERR min-idle-time must be a positive integer")?);
            at += 2;
        } else if request.is(at, "noack") {
            no_ack = true;
            at += 1;
        } else {
            return Err(SYNTAX.into());
        }
    }
    debug_assert_eq!(streams_at(request), Some(at), "rights go by the same word");
    let words = request.len() - at - 1;
    if words == 0 || !words.is_multiple_of(2) {
        let name = String::from_utf8_lossy(&request[0]).to_lowercase();
        let what = if name == "xread" { "'$'" } else { "'>'" };
        return Err(Fail::text(format!(
            "ERR Unbalanced '{name}' list of streams: for each stream key an ID or {what} must be specified."
        )));
    }
    Ok(Reading { count, block, no_ack, claim, first: at + 1, len: words / 2 })
}

/// Replies with pairs of keys and entries.
pub(super) fn put_streams(cx: &mut Cx<'_>, found: &[(&[u8], Vec<Entry>)]) {
    cx.out.begin_lists(found.len());
    for (key, entries) in found {
        cx.out.begin_list_of(key);
        put_entries(cx, entries);
    }
}

fn xread(cx: &mut Cx<'_>, request: &Request) -> Done {
    let reading = reading(request, 1)?;
    if reading.no_ack {
        return Err("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.".into());
    }
    if reading.claim.is_some() {
        return Err("ERR The CLAIM option is only supported by XREADGROUP. You called XREAD instead.".into());
    }
    let mut found = Vec::new();
    let mut words = request.tail(0).iter().map(|word| word.to_vec()).collect::<Vec<_>>();
    for n in 0..reading.len {
        let (key, at) = (&request[reading.first + n], reading.first + reading.len + n);
        let stream = Stream::open(cx, key)?;
        if let (Some(stream), b"+") = (&stream, &request[at]) {
            let newest = stream.entries(cx, StreamId::default(), StreamId::MAX, Order::Down, 1)?;
            if !newest.is_empty() {
                found.push((key, newest));
                continue;
            }
        }
        let after = match &request[at] {
            b"$" | b"+" => stream.as_ref().map_or_else(StreamId::default, Stream::last_id),
            b">" => {
                return Err("ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.".into());
            }
            word => id(word, 0)?,
        };
        // A request that waits reads the entries added since now, so `$` and `+` are resolved here.
        words[at] = after.to_string().into_bytes();
        if let (Some(stream), Some(from)) = (stream, after.next()) {
            let entries = stream.entries(cx, from, StreamId::MAX, Order::Up, reading.count)?;
            if !entries.is_empty() {
                found.push((key, entries));
            }
        }
    }
    if !found.is_empty() {
        put_streams(cx, &found);
        return Ok(());
    }
    match reading.block {
        Some(ms) => {
            let keys = request.from(reading.first).take(reading.len).map(<[u8]>::to_vec).collect();
            let instead = Some(Request::of(words));
            Err(Fail::Blocks(Box::new(Wait { keys, ms, instead, ..Wait::default() })))
        }
        None => {
            cx.out.null_array();
            Ok(())
        }
    }
}

fn xsetid(cx: &mut Cx<'_>, request: &Request) -> Done {
    let last = id(&request[2], 0)?;
    let (mut added, mut removed) = (None, None);
    for at in (3..request.len()).step_by(2) {
        let value = request.get(at + 1).ok_or(SYNTAX)?;
        if request.is(at, "entriesadded") {
            let n = int(value)?;
            added = Some(u64::try_from(n).map_err(|_| "ERR entries_added must be positive")?);
        } else if request.is(at, "maxdeletedid") {
            let max = id(value, 0)?;
            if last < max {
                return Err(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id".into(),
                );
            }
            removed = Some(max);
        } else {
            return Err(SYNTAX.into());
        }
    }
    let mut stream = Stream::open(cx, &request[1])?.ok_or(crate::resp::fail::NO_KEY)?;
    let newest = stream.entries(cx, StreamId::default(), StreamId::MAX, Order::Down, 1)?;
    if newest.first().is_some_and(|newest| last < newest.0) {
        return Err("ERR The ID specified in XSETID is smaller than the target stream top item".into());
    }
    if last < stream.max_removed() {
        return Err("ERR The ID specified in XSETID is smaller than current max_deleted_entry_id".into());
    }
    if added.is_some_and(|added| added < stream.len()) {
        return Err(
            "ERR The entries_added specified in XSETID is smaller than the target stream length".into()
        );
    }
    stream.set_last_id(last);
    added.into_iter().for_each(|added| stream.set_added(added));
    removed.into_iter().for_each(|removed| stream.set_max_removed(removed));
    stream.save(cx)?;
    cx.event(Event::Stream, "xsetid", &request[1]);
    cx.out.ok();
    Ok(())
}

/// Parses a count. A count that is too large is capped.
pub(super) fn count(word: &[u8]) -> Done<usize> {
    let n = parse_count(word).ok_or(crate::resp::fail::NO_INTEGER)?;
    Ok(usize::try_from(n).unwrap_or(usize::MAX))
}
