//! Transactions held by a connection: isolation, locks, watches, topics.

use esker_tuple::bytes_of;

use super::super::held::{self, transaction};
use super::super::words::Words;
use super::namespace;
use super::slices::read_part;
use crate::command::spec::Group::Rows;
use crate::holdings::held_transaction::State;
use crate::holdings::topics::{Ear, Interest, Saying};
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::resp::numbers::{int, timeout};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::spans::{Spans, Stretch};
use crate::store::{Durability, Isolation, LockMode, Order, Write};
use crate::types::rows::codec::{behind, cell_key, first_part, prefix};
use crate::types::rows::walk::stored_stretch;

const OWN: u32 = NO_SCRIPT | NO_MULTI;

#[rustfmt::skip]
pub(in super::super) const TABLE: &[Command] = &[
    command("ob.abort", 1, OWN, NO_KEYS, Rows, "", "Rolls back the innermost transaction.", |cx, _| held::rollback(cx)),
    command("ob.await", 2, OWN | BLOCKING | SEQUENCED, NO_KEYS, Rows, "seconds", "Returns the topics notified since the last call, and waits for one.", wait),
    command("ob.begin", -1, OWN | BEGINS, NO_KEYS, Rows, "[rc|rr] [sync os|disk]", "Begins a transaction, or a nested one. Returns its number.", begin),
    command("ob.changed", -1, OWN, NO_KEYS, Rows, "[transaction]", "Returns the tables changed by a transaction.", changed),
    command("ob.commit", 1, OWN | SEQUENCED | COMMITS, NO_KEYS, Rows, "", "Commits the innermost transaction.", |cx, _| held::commit(cx)),
    command("ob.listen", -2, OWN, NO_KEYS, Rows, "topic ...", "Subscribes to topics.", |cx, r| listen(cx, r, Interest::Topic)).reaches(reach::channels),
    command("ob.lock", -4, OWN | BLOCKING | SEQUENCED | LOCKS, NO_KEYS, Rows, "shared|exclusive seconds name ...", "Locks names until the transaction ends. Waits for them.", lock),
    command("ob.notify", -2, SEQUENCED | PAUSED, NO_KEYS, Rows, "topic ...", "Notifies topics once the transaction has committed.", notify).reaches(reach::channels),
    command("ob.plisten", -2, OWN, NO_KEYS, Rows, "prefix ...", "Subscribes to all topics that begin with a prefix.", |cx, r| listen(cx, r, Interest::Prefix)).reaches(reach::prefixes),
    command("ob.punlisten", -1, OWN, NO_KEYS, Rows, "[prefix ...]", "Ends subscriptions to prefixes of topics.", |cx, r| unlisten(cx, r, Interest::Prefix)),
    command("ob.txid", 1, OWN, NO_KEYS, Rows, "", "Returns the number of the transaction, if there is one.", txid),
    command("ob.txlist", 1, OWN, NO_KEYS, Rows, "", "Shows all transactions, with the locks that they hold and wait for.", txlist),
    command("ob.unlisten", -1, OWN, NO_KEYS, Rows, "[topic ...]", "Ends subscriptions to topics.", |cx, r| unlisten(cx, r, Interest::Topic)),
    command("ob.watch", -4, OWN, NO_KEYS, Rows, "table [range from to] [prefix p] [keys n key ...] [cols key n column ...] ...", "Makes the commit fail if one of these keys or columns changes before it.", watch),
];

fn begin(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (mut isolation, mut durability) = (Isolation::ReadCommitted, Durability::None);
    let mut words = Words::new(request, 1);
    while !words.is_over() {
        if words.takes("rr") {
            isolation = Isolation::RepeatableRead;
        } else if words.takes("sync") {
            durability = held::read_durability(&mut words)?;
        } else {
            words.expect("rc")?;
        }
    }
    let place = namespace(cx)?.name();
    held::begin(cx, &place, isolation, isolation == Isolation::RepeatableRead, durability)
}

fn lock(cx: &mut Cx<'_>, request: &Request) -> Done {
    transaction(cx)?;
    let mode = match request[1].to_ascii_lowercase().as_slice() {
        b"shared" => LockMode::Shared,
        b"exclusive" => LockMode::Exclusive,
        _ => return Err(SYNTAX.into()),
    };
    let ms = timeout(&request[2])?;
    let place = namespace(cx)?.name();
    let names = request.from(3).map(|name| (place.clone(), name.to_vec())).collect();
    held::lock(cx, names, mode, Some(ms))
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
    let place = namespace(cx)?;
    let stretches: Vec<_> = stored.into_iter().map(|(from, to)| Stretch { from, to: Some(to) }).collect();
    held.with(cx.now, |state| state.watch(&*cx.server.store, &place, &stretches))?;
    cx.out.ok();
    Ok(())
}

fn notify(cx: &mut Cx<'_>, request: &Request) -> Done {
    let place = namespace(cx)?.name();
    let say = |topic: &[u8]| Saying { place: place.clone(), topic: topic.to_vec(), message: Vec::new() };
    held::say(cx, request.from(1).map(say).collect())
}

/// Maximum number of topics that a connection listens to.
const INTERESTS_MAX: usize = 10_000;

fn listen(cx: &mut Cx<'_>, request: &Request, interest: fn(Vec<u8>) -> Interest) -> Done {
    let place = namespace(cx)?.name();
    let own = &mut cx.session.own;
    if own.fetched.len() + request.len() > INTERESTS_MAX {
        return Err("ERR the connection has too many subscriptions".into());
    }
    for topic in request.from(1) {
        let interest = interest(topic.to_vec());
        let ear = Ear::Inbox(own.inbox.clone());
        cx.server.holdings.fetched.listen(&place, interest.clone(), cx.session.client.id, ear);
        own.fetched.insert((place.clone(), interest));
    }
    cx.out.ok();
    Ok(())
}

fn unlisten(cx: &mut Cx<'_>, request: &Request, interest: fn(Vec<u8>) -> Interest) -> Done {
    let place = namespace(cx)?.name();
    let named: Vec<_> = request.from(1).map(|topic| interest(topic.to_vec())).collect();
    let is_of_kind =
        |other: &Interest| std::mem::discriminant(other) == std::mem::discriminant(&interest(Vec::new()));
    let is_meant = |(of, other): &(String, Interest)| {
        *of == place && if named.is_empty() { is_of_kind(other) } else { named.contains(other) }
    };
    let client = cx.session.client.id;
    cx.session.own.fetched.retain(|known| {
        if is_meant(known) {
            cx.server.holdings.fetched.unlisten(&known.0, &known.1, client);
        }
        !is_meant(known)
    });
    cx.out.ok();
    Ok(())
}

fn wait(cx: &mut Cx<'_>, request: &Request) -> Done {
    let ms = timeout(&request[1])?;
    let said = cx
        .session
        .own
        .inbox
        .take()
        .ok_or("OVERFLOW some topics were dropped because too many were waiting: read the data again")?;
    if said.is_empty() {
        return Err(Fail::waits(ms));
    }
    cx.out.array(said.len());
    said.iter().for_each(|topic| cx.out.bulk(topic));
    Ok(())
}

fn txid(cx: &mut Cx<'_>, _: &Request) -> Done {
    match held::held(cx)? {
        Some(held) => cx.out.int(held.id as i64),
        None => cx.out.null(),
    }
    Ok(())
}

fn changed(cx: &mut Cx<'_>, request: &Request) -> Done {
    let held = match request.len() {
        1 => transaction(cx)?,
        2 => cx.server.holdings.transaction(int(&request[1])? as u64).ok_or("ERR no such transaction")?,
        _ => return Err(SYNTAX.into()),
    };
    let tables = held.look(changed_tables)??;
    cx.out.array(tables.len());
    tables.iter().for_each(|table| cx.out.bulk(table));
    Ok(())
}

/// Returns the tables that a transaction has changed.
fn changed_tables(state: &State) -> Done<Vec<Vec<u8>>> {
    let mut tables: Vec<Vec<u8>> = Vec::new();
    for place in state.namespaces().filter(|place| place.name().starts_with(super::PREFIX)) {
        state.visit_writes(place, &mut |write| {
            let (Write::RemoveRange { from: key, .. }
            | Write::Put { key, .. }
            | Write::PutUntil { key, .. }
            | Write::Remove { key }
            | Write::Merge { key, .. }) = write;
            let table = first_part(key).filter(|table| tables.last().is_none_or(|last| last != table));
            tables.extend(table.map(<[u8]>::to_vec));
        })?;
    }
    tables.sort_unstable();
    tables.dedup();
    Ok(tables.iter().map(|table| bytes_of(table).into_owned()).collect())
}

fn txlist(cx: &mut Cx<'_>, _: &Request) -> Done {
    let transactions = cx.server.holdings.transactions();
    cx.out.array(transactions.len());
    for held in transactions {
        let (has, wants) = cx.server.holdings.locks.of(held.client);
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
        cx.out.bulk(held.began_in.strip_prefix(super::PREFIX).unwrap_or(&held.began_in).as_bytes());
        for (name, locks) in [("holds", has), ("wants", wants.into_iter().collect())] {
            cx.out.bulk(name.as_bytes());
            cx.out.array(2 * locks.len());
            for (lock, mode) in locks {
                cx.out.bulk(&lock);
                let mode = if mode == LockMode::Shared { "shared" } else { "exclusive" };
                cx.out.bulk(mode.as_bytes());
            }
        }
    }
    Ok(())
}
