//! Claims of pending entries: `XCLAIM`, `XAUTOCLAIM` and `XREADGROUP` with `CLAIM`.

use super::stream_groups::{Delivery, Reader, note_consumer, open};
use super::streams::{BAD_ID, bound, id, put_entries};
use crate::command::spec::Group::Stream as Streams;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::{int, parse_int};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::Order;
use crate::types::{Entry, Pending, Stream, StreamId};

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("xautoclaim", -6, WRITE | FAST, FIRST, Streams, "key group consumer idle-ms from [count n] [justid]", "Takes over entries that another consumer has not acknowledged for a time.", xautoclaim),
    command("xclaim", -6, WRITE | FAST, FIRST, Streams, "key group consumer idle-ms id ... [idle ms] [time ms] [retrycount n] [force] [justid] [lastid id]", "Takes over entries of another consumer.", xclaim),
];

/// Claims the entries of a group that have been pending for `least` milliseconds, longest idle first. Returns
/// them, and when the next one will be. Entries that were removed stay pending.
pub(super) fn claim_idle(
    cx: &mut Cx<'_>,
    stream: &mut Stream,
    (name, consumer): Reader<'_>,
    least: u64,
    count: usize,
) -> Done<(Vec<Delivery>, Option<u64>)> {
    let idle = stream.idle(cx, name, least)?;
    let mut claimed = Vec::new();
    for (delivered, id) in idle.entries {
        if claimed.len() == count {
            break;
        }
        let (Some(fields), Some(pending)) = (stream.entry(cx, id)?, stream.pending(cx, name, id)?) else {
            continue;
        };
        let taken = Pending { id, consumer: consumer.to_vec(), delivered: cx.now, count: pending.count + 1 };
        stream.put_pending(cx, name, &taken)?;
        let before = Some([cx.now.saturating_sub(delivered), pending.count]);
        claimed.push(Delivery { id, fields: Some(fields), before });
    }
    Ok((claimed, idle.next))
}

/// Replies with claimed entries, or only with their ids.
fn put_claimed(cx: &mut Cx<'_>, claimed: &[Entry], only_ids: bool) {
    if !only_ids {
        return put_entries(cx, claimed);
    }
    cx.out.array(claimed.len());
    claimed.iter().for_each(|(id, _)| cx.out.bulk(id.to_string().as_bytes()));
}

fn xclaim(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (key, name, consumer) = (&request[1], &request[2], &request[3]);
    let least = int(&request[4]).map_err(|_| "ERR Invalid min-idle-time argument for XCLAIM")?.max(0) as u64;
    let mut ids = Vec::new();
    let mut at = 5;
    while let Some(id) = request.get(at).and_then(|word| StreamId::parse(word, 0)) {
        ids.push(id);
        at += 1;
    }
    let (mut delivered, mut retries, mut force, mut only_ids) = (cx.now, None, false, false);
    let mut delivered_last = None;
    while at < request.len() {
        let value =
            || parse_int(request.get(at + 1).unwrap_or_default()).ok_or(crate::resp::fail::NO_INTEGER);
        match request[at].to_ascii_lowercase().as_slice() {
            b"force" => force = true,
            b"justid" => only_ids = true,
            b"idle" => {
                delivered = cx.now.saturating_sub(value()?.max(0) as u64);
                at += 1;
            }
            b"time" => {
                delivered = (value()?.max(0) as u64).min(cx.now);
                at += 1;
            }
            b"retrycount" => {
                retries = u64::try_from(value()?).ok();
                at += 1;
            }
            b"lastid" => {
                delivered_last = Some(id(request.get(at + 1).unwrap_or_default(), 0)?);
                at += 1;
            }
            _ if ids.is_empty() => return Err(BAD_ID.into()),
            _ => {
                let word = String::from_utf8_lossy(&request[at]).into_owned();
                return Err(Fail::text(format!("ERR Unrecognized XCLAIM option '{word}'")));
            }
        }
        at += 1;
    }
    let (mut stream, _) = open(cx, key, name)?;
    stream.advance_group(cx, name, delivered_last)?;
    let mut claimed = Vec::new();
    for id in ids {
        let fields = stream.entry(cx, id)?;
        let pending = match (stream.pending(cx, name, id)?, &fields) {
            (Some(pending), _) => pending,
            (None, Some(_)) if force => Pending { id, consumer: consumer.to_vec(), delivered: 0, count: 1 },
            (None, _) => continue,
        };
        let Some(fields) = fields else {
            stream.acknowledge(cx, name, id)?;
            continue;
        };
        if cx.now.saturating_sub(pending.delivered) < least {
            continue;
        }
        let count = retries.unwrap_or(pending.count + u64::from(!only_ids));
        let taken = Pending { id, consumer: consumer.to_vec(), delivered, count };
        stream.put_pending(cx, name, &taken)?;
        claimed.push((id, fields));
    }
    note_consumer(cx, &mut stream, key, name, consumer, !claimed.is_empty())?;
    stream.save_groups(cx)?;
    put_claimed(cx, &claimed, only_ids);
    Ok(())
}

/// Maximum count of `XAUTOCLAIM`.
const COUNT_MAX: usize = usize::MAX >> 5;

fn xautoclaim(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (key, name, consumer) = (&request[1], &request[2], &request[3]);
    let least =
        int(&request[4]).map_err(|_| "ERR Invalid min-idle-time argument for XAUTOCLAIM")?.max(0) as u64;
    let from = bound(&request[5], true)?;
    let (mut limit, mut only_ids) = (100, false);
    let mut at = 6;
    while at < request.len() {
        if request.is(at, "justid") {
            only_ids = true;
            at += 1;
        } else if request.is(at, "count") && at + 1 < request.len() {
            let given = int(&request[at + 1]).ok().and_then(|n| usize::try_from(n).ok());
            limit = given.filter(|n| (1..=COUNT_MAX).contains(n)).ok_or("ERR COUNT must be > 0")?;
            at += 2;
        } else {
            return Err(SYNTAX.into());
        }
    }
    let (mut stream, _) = open(cx, key, name)?;
    let (mut claimed, mut gone, mut next) = (Vec::new(), Vec::new(), StreamId::default());
    let (mut looked_at, most) = (0, limit * 10);
    let range = (from, StreamId::MAX, Order::Up);
    for pending in stream.pending_between(cx, name, range, most + 1, |_| true)? {
        // Removed entries count as well, because the reply lists them.
        if claimed.len() + gone.len() == limit || looked_at == most {
            next = pending.id;
            break;
        }
        looked_at += 1;
        let Some(fields) = stream.entry(cx, pending.id)? else {
            stream.acknowledge(cx, name, pending.id)?;
            gone.push(pending.id);
            continue;
        };
        if cx.now.saturating_sub(pending.delivered) < least {
            continue;
        }
        let count = pending.count + u64::from(!only_ids);
        let taken = Pending { id: pending.id, consumer: consumer.to_vec(), delivered: cx.now, count };
        stream.put_pending(cx, name, &taken)?;
        claimed.push((pending.id, fields));
    }
    note_consumer(cx, &mut stream, key, name, consumer, !claimed.is_empty())?;
    stream.save_groups(cx)?;
    cx.out.array(3);
    cx.out.bulk(next.to_string().as_bytes());
    put_claimed(cx, &claimed, only_ids);
    cx.out.array(gone.len());
    gone.iter().for_each(|id| cx.out.bulk(id.to_string().as_bytes()));
    Ok(())
}
