//! `XDELEX` and `XACKDEL`: removals of entries that regard consumer groups.

use super::stream_trim::Removal;
use super::streams::id;
use crate::base::events::Event;
use crate::command::spec::Group::Stream as Streams;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::parse_int;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::types::{References, Stream, StreamId};

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("xackdel", -6, WRITE | FAST, FIRST, Streams, "key group [keepref|delref|acked] ids n id ...", "Acknowledges entries, and removes those that other groups do not need.", xackdel).each(KeyUse::DELETE),
    command("xdelex", -5, WRITE | FAST, FIRST, Streams, "key [keepref|delref|acked] ids n id ...", "Removes entries, as far as consumer groups do not need them.", xdelex).each(KeyUse::DELETE),
];

/// What happened to an entry, as a number of the reply.
#[derive(Clone, Copy)]
enum Outcome {
    /// There is no such entry.
    Missing = -1,
    /// It was removed.
    Removed = 1,
    /// A group still refers to it.
    Kept = 2,
}

/// The options of a removal.
struct Asked {
    removal: Removal,
    ids: Vec<StreamId>,
}

/// Parses options and ids, which may come in any order.
fn asked(request: &Request, first: usize) -> Done<Asked> {
    let (mut removal, mut ids, mut at) = (None, None, first);
    while at < request.len() {
        if let Some(named) = Removal::named(&request[at]).filter(|_| removal.is_none()) {
            removal = Some(named);
            at += 1;
        } else if request.is(at, "ids") && ids.is_none() && at + 1 < request.len() {
            let count = parse_int(&request[at + 1]).and_then(|n| usize::try_from(n).ok());
            let count = count.filter(|n| *n > 0).ok_or("ERR Number of IDs must be a positive integer")?;
            at += 2;
            if count > request.len() - at {
                return Err("ERR The `numids` parameter must match the number of arguments".into());
            }
            let given: Done<Vec<_>> = request.from(at).take(count).map(|word| id(word, 0)).collect();
            ids = Some(given?);
            at += count;
        } else {
            return Err(SYNTAX.into());
        }
    }
    let ids = ids.ok_or("ERR IDS option is required")?;
    Ok(Asked { removal: removal.unwrap_or(Removal::KeepReferences), ids })
}

/// Removes an entry, and updates the largest removed id. Returns whether it existed.
fn remove(cx: &mut Cx<'_>, stream: &mut Stream, id: StreamId) -> Done<bool> {
    let existed = stream.remove(cx, id)?;
    if existed {
        stream.set_max_removed(stream.max_removed().max(id));
    }
    Ok(existed)
}

/// Stores a stream and replies, once all entries are dealt with.
fn finish(cx: &mut Cx<'_>, key: &[u8], stream: Stream, before: u64, outcomes: &[Outcome]) -> Done {
    if stream.len() < before {
        stream.save(cx)?;
        cx.event(Event::Stream, "xdel", key);
    } else if stream.has_changed_groups() {
        stream.save_groups(cx)?;
    }
    put_outcomes(cx, outcomes);
    Ok(())
}

fn put_outcomes(cx: &mut Cx<'_>, outcomes: &[Outcome]) {
    cx.out.array(outcomes.len());
    outcomes.iter().for_each(|outcome| cx.out.int(*outcome as i64));
}

fn xdelex(cx: &mut Cx<'_>, request: &Request) -> Done {
    let Asked { removal, ids } = asked(request, 2)?;
    let Some(mut stream) = Stream::open(cx, &request[1])? else {
        put_outcomes(cx, &vec![Outcome::Missing; ids.len()]);
        return Ok(());
    };
    let (references, before) = (stream.references(cx)?, stream.len());
    let mut outcomes = Vec::with_capacity(ids.len());
    for id in ids {
        outcomes.push(delete(cx, &mut stream, &references, removal, id)?);
    }
    finish(cx, &request[1], stream, before, &outcomes)
}

fn delete(
    cx: &mut Cx<'_>,
    stream: &mut Stream,
    references: &References,
    removal: Removal,
    id: StreamId,
) -> Done<Outcome> {
    if removal == Removal::Acknowledged && stream.is_referenced(cx, references, id)? {
        return Ok(if stream.entry(cx, id)?.is_some() { Outcome::Kept } else { Outcome::Missing });
    }
    if removal == Removal::RemoveReferences {
        // Also those to an entry that is gone already.
        stream.acknowledge_everywhere(cx, references, id)?;
    }
    Ok(if remove(cx, stream, id)? { Outcome::Removed } else { Outcome::Missing })
}

fn xackdel(cx: &mut Cx<'_>, request: &Request) -> Done {
    let Asked { removal, ids } = asked(request, 3)?;
    let group = &request[2];
    let stream = Stream::open(cx, &request[1])?;
    let found = match &stream {
        Some(stream) => stream.group(cx, group)?,
        None => None,
    };
    let (Some(mut stream), Some(_)) = (stream, found) else {
        put_outcomes(cx, &vec![Outcome::Missing; ids.len()]);
        return Ok(());
    };
    let (references, before) = (stream.references(cx)?, stream.len());
    let mut outcomes = Vec::with_capacity(ids.len());
    for id in ids {
        let outcome = match stream.acknowledge(cx, group, id)? {
            true => settle(cx, &mut stream, &references, removal, id)?,
            false => {
                if removal == Removal::RemoveReferences && stream.entry(cx, id)?.is_none() {
                    stream.acknowledge_everywhere(cx, &references, id)?;
                }
                Outcome::Missing
            }
        };
        outcomes.push(outcome);
    }
    finish(cx, &request[1], stream, before, &outcomes)
}

/// Removes an entry that was just acknowledged, if the option allows it.
fn settle(
    cx: &mut Cx<'_>,
    stream: &mut Stream,
    references: &References,
    removal: Removal,
    id: StreamId,
) -> Done<Outcome> {
    match removal {
        Removal::Acknowledged if stream.is_referenced(cx, references, id)? => return Ok(Outcome::Kept),
        Removal::RemoveReferences => _ = stream.acknowledge_everywhere(cx, references, id)?,
        _ => {}
    }
    remove(cx, stream, id)?;
    Ok(Outcome::Removed)
}
