//! The transaction that a connection holds, as the commands of both families begin it, work in it and end it.

use std::sync::Arc;

use super::ordered::write_string;

use super::words::Words;
use crate::base::fail::{Done, Fail, LOCK_TIMEOUT, SYNTAX, Wait};
use crate::run::cx::Cx;
use crate::store::holdings::held_transaction::{Held, IDLE, Isolation};
use crate::store::holdings::named_locks::{Mode, Name, Until};
use crate::store::holdings::overlay::{Entry, Writes};
use crate::store::holdings::place::Place;
use crate::store::holdings::topics::Saying;
use crate::store::{Durability, Snapshot, Value};
use crate::types::Main;

/// The transaction that the connection holds, if it does.
///
/// # Errors
/// It does, and the command runs inside of `MULTI` or a script.
pub(super) fn held(cx: &Cx<'_>) -> Done<Option<Arc<Held>>> {
    match &cx.session.own.transaction {
        Some(_) if cx.session.turn.is_inside => {
            Err("ERR the connection holds a transaction: MULTI and scripts cannot take part in it".into())
        }
        held => Ok(held.clone()),
    }
}

/// The same; it has to hold one.
///
/// # Errors
/// It does not.
pub(super) fn transaction(cx: &Cx<'_>) -> Done<Arc<Held>> {
    Ok(held(cx)?.ok_or("ERR no transaction: begin one")?)
}

/// Reads `os` or `disk`, behind the word `sync`.
pub(super) fn read_durability(words: &mut Words<'_>) -> Done<Durability> {
    match words.next()?.to_ascii_lowercase().as_slice() {
        b"os" => Ok(Durability::Buffered),
        b"disk" => Ok(Durability::Sync),
        _ => Err(SYNTAX.into()),
    }
}

/// Begins a transaction in a place, or one inside of the one that the connection holds. Its number is the reply.
///
/// # Errors
/// There are too many one in another.
pub(super) fn begin(
    cx: &mut Cx<'_>,
    began_in: &str,
    isolation: Isolation,
    snapshot: Option<Arc<dyn Snapshot>>,
    durability: Durability,
) -> Done {
    let held = match held(cx)? {
        Some(held) => held,
        None => {
            let client = cx.session.client.id;
            let held = cx.server.holdings.begin(client, began_in.to_owned(), isolation, cx.now);
            cx.session.own.transaction = Some(held.clone());
            held
        }
    };
    held.enter(cx.now, snapshot, durability)?;
    cx.out.int(held.id as i64);
    Ok(())
}

/// Commits the innermost transaction.
///
/// # Errors
/// Why nothing was committed. Then it has ended, too.
pub(super) fn commit(cx: &mut Cx<'_>) -> Done {
    let held = transaction(cx)?;
    if !matches!(held.leave(cx.now, true), Ok(true)) {
        cx.session.own.transaction = None;
        let done = finish(cx, &held);
        let server = cx.server.clone();
        server.holdings.end(&held, &server.sequencer);
        done?;
    }
    cx.out.ok();
    Ok(())
}

fn finish(cx: &mut Cx<'_>, held: &Held) -> Done {
    let state = held.take().ok_or(IDLE)?;
    state.check((cx.access.reads(), cx.now), cx.server.generation())?;
    for (place, _) in state.writes() {
        // A keyspace that was dropped shows here, before anything is written.
        cx.access.reads().get(&place.space, b"")?;
    }
    for (place, writes) in state.writes() {
        apply(cx, place, writes)?;
    }
    cx.effects.durability = cx.effects.durability.max(Some(state.durability()));
    cx.effects.said.extend(state.said());
    Ok(())
}

/// Makes writes to a place.
///
/// # Errors
/// The store's. Writes that were made by then are undone with the command (commands.2).
pub(super) fn apply(cx: &mut Cx<'_>, place: &Place, writes: &Writes) -> Done {
    if let Some(number) = place.database {
        return cx.in_database(number, |cx| {
            for (key, entry) in writes.entries() {
                let main = match entry {
                    Entry::Put(raw) => Some(Main::decode(Value::from(raw.as_slice()))?),
                    _ => None,
                };
                write_string(cx, key, main.as_ref().map(Main::text))?;
            }
            Ok(())
        });
    }
    writes.apply(&place.space, cx.access.transaction()?)?;
    cx.effects.changes += writes.len() as u64;
    for stretch in writes.removed() {
        cx.removed(place, stretch);
    }
    for (key, entry) in writes.entries() {
        cx.changed(place, key, if matches!(entry, Entry::Removed) { "del" } else { "set" });
    }
    Ok(())
}

/// Rolls back the innermost transaction.
///
/// # Errors
/// There is none.
pub(super) fn rollback(cx: &mut Cx<'_>) -> Done {
    let held = transaction(cx)?;
    // One that was left alone for too long is gone already, and this is how its client says that it knows.
    if !matches!(held.leave(cx.now, false), Ok(true)) {
        cx.session.own.transaction = None;
        cx.server.holdings.end(&held, &cx.server.sequencer);
    }
    cx.out.ok();
    Ok(())
}

/// Locks names, until the transaction ends if the connection holds one. `ms`: how long it waits for them; 0: for ever; none: not at all.
///
/// # Errors
/// A deadlock; it was not given back in time; too many locks.
pub(super) fn lock(cx: &mut Cx<'_>, mut names: Vec<Name>, mode: Mode, ms: Option<u64>) -> Done {
    let held = held(cx)?;
    if let Some(held) = &held {
        held.with(cx.now, |_| Ok(()))?;
    }
    // In one order, so that two that ask for the same names at once do not wait for each other.
    names.sort_unstable();
    let until = if held.is_some() { Until::TransactionEnd } else { Until::Unlock };
    let client = cx.session.client.id;
    match (cx.server.holdings.locks.acquire(client, &names, mode, until), ms) {
        (Ok(true), _) => {}
        (Ok(false), Some(ms)) => {
            return Err(Fail::Blocks(Wait {
                keys: Vec::new(),
                ms,
                instead: None,
                class: None,
                minds_changes: false,
            }));
        }
        (Ok(false), None) => {
            cx.server.holdings.stop_waiting(client, &cx.server.sequencer);
            return Err(LOCK_TIMEOUT.into());
        }
        (Err(why), _) => {
            if let Some(held) = held {
                // A commit that was sent together with this must not happen without the lock.
                held.with(cx.now, |state| {
                    state.refuse(why);
                    Ok(())
                })?;
            }
            return Err(why.into());
        }
    }
    cx.out.ok();
    Ok(())
}

/// Says something once the transaction of the connection has committed; without one, once this command has.
///
/// # Errors
/// The transaction says too much.
pub(super) fn say(cx: &mut Cx<'_>, sayings: Vec<Saying>) -> Done {
    match held(cx)? {
        Some(held) => {
            held.with(cx.now, |state| sayings.into_iter().try_for_each(|saying| state.say(saying)))?;
        }
        // Without a listener there is nothing to say.
        None if cx.server.holdings.has_no_listeners() => {}
        None => cx.effects.say(sayings, cx.effects_max())?,
    }
    cx.out.ok();
    Ok(())
}
