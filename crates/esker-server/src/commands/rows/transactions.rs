//! Transactions that a connection holds: isolation, locks, watches, topics.

use std::sync::Arc;

use super::super::table::{Command, Group::Rows, NO_KEYS, command, flag::*};
use super::slices::read_part;
use super::words::Words;
use super::{held, place};
use crate::cx::Cx;
use crate::fail::{Done, Fail, SYNTAX, Wait};
use crate::numbers::{int, timeout};
use crate::resp::Request;
use crate::rows::codec::{behind, cell_key, prefix};
use crate::rows::held_transaction::{Held, IDLE, Watched};
use crate::rows::named_locks::{Mode, Name};
use crate::rows::spans::Spans;
use crate::rows::topics::Interest;
use crate::rows::walk::stored_stretch;
use crate::store::{Durability, Order};

const OWN: u32 = NO_SCRIPT | NO_MULTI;

#[rustfmt::skip]
pub(in super::super) const TABLE: &[Command] = &[
    command("ob.abort", 1, OWN, NO_KEYS, Rows, "", "Rolls back the innermost transaction.", abort),
    command("ob.await", 2, OWN | BLOCKING | SEQUENCED, NO_KEYS, Rows, "seconds", "The topics that were said since the last time; waits for one.", wait),
    command("ob.begin", -1, OWN, NO_KEYS, Rows, "[rc|rr] [sync os|disk]", "Begins a transaction, or one inside of another; its number.", begin),
    command("ob.changed", -1, OWN, NO_KEYS, Rows, "[transaction]", "The tables that a transaction has changed.", changed),
    command("ob.commit", 1, OWN | SEQUENCED, NO_KEYS, Rows, "", "Commits the innermost transaction.", commit),
    command("ob.listen", -2, OWN, NO_KEYS, Rows, "topic ...", "Listens to topics.", |cx, r| listen(cx, r, Interest::Topic)),
    command("ob.lock", -4, OWN | BLOCKING | SEQUENCED, NO_KEYS, Rows, "shared|exclusive seconds name ...", "Locks names until the transaction ends; waits for them.", lock),
    command("ob.notify", -2, SEQUENCED, NO_KEYS, Rows, "topic ...", "Says topics, once the transaction has committed.", notify),
    command("ob.plisten", -2, OWN, NO_KEYS, Rows, "prefix ...", "Listens to all topics that begin so.", |cx, r| listen(cx, r, Interest::Prefix)),
    command("ob.punlisten", -1, OWN, NO_KEYS, Rows, "[prefix ...]", "Listens no more to topics that begin so.", |cx, r| unlisten(cx, r, Interest::Prefix)),
    command("ob.txid", 1, OWN, NO_KEYS, Rows, "", "The number of the transaction, if there is one.", txid),
    command("ob.txlist", 1, OWN, NO_KEYS, Rows, "", "All transactions, with the locks that they hold and want.", txlist),
    command("ob.unlisten", -1, OWN, NO_KEYS, Rows, "[topic ...]", "Listens no more to topics.", |cx, r| unlisten(cx, r, Interest::Topic)),
    command("ob.watch", -4, OWN, NO_KEYS, Rows, "table [range from to] [prefix p] [keys n key ...] [cols key n column ...] ...", "Has the transaction not commit if one of these changes before.", watch),
];

/// The transaction that the connection holds; it has to.
fn transaction(cx: &Cx<'_>) -> Done<Arc<Held>> {
    Ok(held(cx)?.ok_or("ERR no transaction: OB.BEGIN one")?)
}

fn begin(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (mut is_repeatable, mut durability) = (false, Durability::None);
    let mut words = Words::new(request, 1);
    while !words.is_over() {
        if words.takes("rr") {
            is_repeatable = true;
        } else if words.takes("sync") {
            durability = match words.next()?.to_ascii_lowercase().as_slice() {
                b"os" => Durability::Buffered,
                b"disk" => Durability::Sync,
                _ => return Err(SYNTAX.into()),
            };
        } else {
            words.expect("rc")?;
        }
    }
    let snapshot = is_repeatable.then(|| cx.server.store.snapshot());
    let held = match held(cx)? {
        Some(held) => {
            held.enter(cx.now, snapshot, durability)?;
            held
        }
        None => {
            let (keyspace, space) = place(cx)?;
            let held = cx.server.rows.begin(cx.session.client.id, &keyspace, space, cx.now);
            cx.session.rows.held = Some(held.clone());
            held.enter(cx.now, snapshot, durability)?;
            held
        }
    };
    cx.out.int(held.id as i64);
    Ok(())
}

fn commit(cx: &mut Cx<'_>, _: &Request) -> Done {
    let held = transaction(cx)?;
    if !matches!(held.leave(cx.now, true), Ok(true)) {
        cx.session.rows.held = None;
        let done = finish(cx, &held);
        let server = cx.server.clone();
        server.rows.end(&held, &server.sequencer);
        done?;
    }
    cx.out.ok();
    Ok(())
}

fn finish(cx: &mut Cx<'_>, held: &Held) -> Done {
    let state = held.take().ok_or(IDLE)?;
    // A keyspace that was dropped shows here, before anything is written.
    cx.access.reads().get(&held.space, b"")?;
    let done = state.commit(&held.space, cx.access.transaction()?);
    if matches!(done, Err(Fail::Store(_))) {
        cx.effects.must_not_commit = true;
    }
    done?;
    cx.effects.changes += held.writes() as u64;
    cx.effects.durability = cx.effects.durability.max(Some(state.durability()));
    cx.effects.said.push((held.keyspace.clone(), state.topics()));
    Ok(())
}

fn abort(cx: &mut Cx<'_>, _: &Request) -> Done {
    let held = transaction(cx)?;
    // One that was left alone for too long is gone already, and this is how its client says that it knows.
    if !matches!(held.leave(cx.now, false), Ok(true)) {
        cx.session.rows.held = None;
        cx.server.rows.end(&held, &cx.server.sequencer);
    }
    cx.out.ok();
    Ok(())
}

fn lock(cx: &mut Cx<'_>, request: &Request) -> Done {
    let held = transaction(cx)?;
    let mode = match request[1].to_ascii_lowercase().as_slice() {
        b"shared" => Mode::Shared,
        b"exclusive" => Mode::Exclusive,
        _ => return Err(SYNTAX.into()),
    };
    let ms = timeout(&request[2])?;
    held.with(cx.now, |_| Ok(()))?;
    let mut names: Vec<Name> = request.from(3).map(|name| (held.keyspace.clone(), name.to_vec())).collect();
    // In one order, so that two that ask for the same names at once do not wait for each other.
    names.sort_unstable();
    match cx.server.rows.locks.acquire(held.id, &names, mode) {
        Ok(true) => {}
        Ok(false) => return Err(Fail::Blocks(Wait { keys: Vec::new(), ms, instead: None })),
        Err(why) => {
            // A commit that was sent together with this must not happen without the lock.
            held.with(cx.now, |state| {
                state.refuse(why);
                Ok(())
            })?;
            return Err(why.into());
        }
    }
    cx.out.ok();
    Ok(())
}

fn watch(cx: &mut Cx<'_>, request: &Request) -> Done {
    let held = transaction(cx)?;
    let table = &request[1];
    let (mut keys, mut stored) = (Vec::new(), Vec::new());
    let mut words = Words::new(request, 2);
    while !words.is_over() {
        if let Some(parts) = read_part(&mut words, ["range", "prefix", "keys"])? {
            keys.extend(parts);
        } else {
            words.expect("cols")?;
            let key = words.next()?;
            for column in words.list(1)? {
                cell_key(table, key, column)?;
                let cell = prefix(&[table, key, column]);
                stored.push((cell.clone(), behind(cell)));
            }
        }
    }
    stored.extend(Spans::of(keys).in_order(Order::Up).map(|stretch| stored_stretch(table, stretch)));
    let newest = cx.server.store.snapshot();
    held.with(cx.now, |state| {
        let at = state.snapshot().unwrap_or(&newest).clone();
        state.watch(stored.into_iter().map(|(lower, upper)| Watched { lower, upper, at: at.clone() }))
    })?;
    cx.out.ok();
    Ok(())
}

fn notify(cx: &mut Cx<'_>, request: &Request) -> Done {
    match held(cx)? {
        Some(held) => held.with(cx.now, |state| request.from(1).try_for_each(|topic| state.say(topic)))?,
        None => {
            let (keyspace, _) = place(cx)?;
            cx.effects.said.push((keyspace, request.from(1).map(<[u8]>::to_vec).collect()));
        }
    }
    cx.out.ok();
    Ok(())
}

/// A connection listens to so much at the most.
const INTERESTS_MAX: usize = 10_000;

fn listen(cx: &mut Cx<'_>, request: &Request, interest: fn(Vec<u8>) -> Interest) -> Done {
    let (keyspace, _) = place(cx)?;
    if cx.session.rows.interests.len() + request.len() > INTERESTS_MAX {
        return Err("ERR the connection listens to too much".into());
    }
    let rows = &mut cx.session.rows;
    for topic in request.from(1) {
        let interest = interest(topic.to_vec());
        cx.server.rows.topics.listen(&keyspace, interest.clone(), cx.session.client.id, &rows.inbox);
        rows.interests.insert((keyspace.clone(), interest));
    }
    cx.out.ok();
    Ok(())
}

fn unlisten(cx: &mut Cx<'_>, request: &Request, interest: fn(Vec<u8>) -> Interest) -> Done {
    let (keyspace, _) = place(cx)?;
    let named: Vec<_> = request.from(1).map(|topic| interest(topic.to_vec())).collect();
    let is_of_kind =
        |other: &Interest| std::mem::discriminant(other) == std::mem::discriminant(&interest(Vec::new()));
    let is_meant = |(of, other): &(String, Interest)| {
        *of == keyspace && if named.is_empty() { is_of_kind(other) } else { named.contains(other) }
    };
    let client = cx.session.client.id;
    cx.session.rows.interests.retain(|place| {
        if is_meant(place) {
            cx.server.rows.topics.unlisten(&place.0, &place.1, client);
        }
        !is_meant(place)
    });
    cx.out.ok();
    Ok(())
}

fn wait(cx: &mut Cx<'_>, request: &Request) -> Done {
    let ms = timeout(&request[1])?;
    let said = cx.session.rows.inbox.take().ok_or(
        "OVERFLOW more was said than is kept for a connection: read again what you were waiting for",
    )?;
    if said.is_empty() {
        return Err(Fail::Blocks(Wait { keys: Vec::new(), ms, instead: None }));
    }
    cx.out.array(said.len());
    said.iter().for_each(|topic| cx.out.bulk(topic));
    Ok(())
}

fn txid(cx: &mut Cx<'_>, _: &Request) -> Done {
    match held(cx)? {
        Some(held) => cx.out.int(held.id as i64),
        None => cx.out.null(),
    }
    Ok(())
}

fn changed(cx: &mut Cx<'_>, request: &Request) -> Done {
    let held = match request.len() {
        1 => transaction(cx)?,
        2 => cx.server.rows.transaction(int(&request[1])? as u64).ok_or("ERR no such transaction")?,
        _ => return Err(SYNTAX.into()),
    };
    let tables = held.tables()?;
    cx.out.array(tables.len());
    tables.iter().for_each(|table| cx.out.bulk(table));
    Ok(())
}

fn txlist(cx: &mut Cx<'_>, _: &Request) -> Done {
    let transactions = cx.server.rows.transactions();
    cx.out.array(transactions.len());
    for held in transactions {
        let (has, wants) = cx.server.rows.locks.of(held.id);
        let numbers = [
            ("id", held.id),
            ("client", held.client),
            ("age-ms", cx.now.saturating_sub(held.started_ms)),
            ("writes", held.writes() as u64),
        ];
        cx.out.map(numbers.len() + 3);
        for (name, number) in numbers {
            cx.out.bulk(name.as_bytes());
            cx.out.int(number as i64);
        }
        cx.out.bulk(b"keyspace");
        cx.out.bulk(held.keyspace.as_bytes());
        for (name, locks) in [("holds", has), ("wants", wants.into_iter().collect())] {
            cx.out.bulk(name.as_bytes());
            cx.out.array(2 * locks.len());
            for (lock, mode) in locks {
                cx.out.bulk(&lock);
                cx.out.bulk(mode.name().as_bytes());
            }
        }
    }
    Ok(())
}
