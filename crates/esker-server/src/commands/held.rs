//! The transaction that a connection holds: how the commands of both families begin it, use it and end it.

use std::sync::Arc;

use super::ordered::write_string;

use super::words::Words;
use crate::holdings::held_transaction::{Held, IDLE};
use crate::holdings::named_locks::{Name, Until};
use crate::holdings::namespace::Namespace;
use crate::holdings::topics::Saying;
use crate::resp::fail::{Done, Fail, LOCK_TIMEOUT, SYNTAX};
use crate::run::cx::Cx;
use crate::store::spans::Stretch;
use crate::store::{Durability, Isolation, LockMode, Value, Write};
use crate::types::Main;

/// Returns the transaction that the connection holds, if there is one.
///
/// # Errors
/// Fails if there is one and the command runs inside `MULTI` or a script.
pub(super) fn held(cx: &Cx<'_>) -> Done<Option<Arc<Held>>> {
    match &cx.session.own.transaction {
        Some(_) if cx.session.turn.is_inside => {
            Err("ERR the connection holds a transaction: MULTI and scripts cannot take part in it".into())
        }
        held => Ok(held.clone()),
    }
}

/// Returns the transaction that the connection holds.
///
/// # Errors
/// Fails if there is none.
pub(super) fn transaction(cx: &Cx<'_>) -> Done<Arc<Held>> {
    Ok(held(cx)?.ok_or("ERR no transaction: begin one")?)
}

/// Parses `os` or `disk` after the word `sync`.
pub(super) fn read_durability(words: &mut Words<'_>) -> Done<Durability> {
    match words.next()?.to_ascii_lowercase().as_slice() {
        b"os" => Ok(Durability::Buffered),
        b"disk" => Ok(Durability::Sync),
        _ => Err(SYNTAX.into()),
    }
}

/// Begins a transaction in a namespace, or a nested one inside the transaction that the connection holds.
/// Replies with its number.
///
/// # Errors
/// Fails if transactions are nested too deeply.
pub(super) fn begin(
    cx: &mut Cx<'_>,
    began_in: &str,
    isolation: Isolation,
    is_repeatable: bool,
    durability: Durability,
) -> Done {
    let held = match held(cx)? {
        Some(held) => held,
        None => {
            let client = cx.session.client.id;
            let (holdings, store) = (&cx.server.holdings, &*cx.server.store);
            let held = holdings.begin(store, client, began_in.to_owned(), isolation, cx.now);
            cx.session.own.transaction = Some(held.clone());
            held
        }
    };
    held.enter(cx.now, &*cx.server.store, is_repeatable, durability)?;
    cx.out.int(held.id as i64);
    Ok(())
}

/// Commits the innermost transaction.
///
/// # Errors
/// Returns why nothing was committed. The transaction has ended in this case, too.
pub(super) fn commit(cx: &mut Cx<'_>) -> Done {
    let held = transaction(cx)?;
    if !matches!(held.leave(cx.now, true), Ok(true)) {
        cx.session.own.transaction = None;
        let done = finish(cx, &held);
        cx.server.holdings.end(&held);
        done?;
    }
    cx.out.ok();
    Ok(())
}

fn finish(cx: &mut Cx<'_>, held: &Held) -> Done {
    let state = held.take().ok_or(IDLE)?;
    state.admit(cx.access.transaction()?, cx.now, cx.server.generation())?;
    for namespace in state.namespaces() {
        let mut done = Ok(());
        state.visit_writes(namespace, &mut |write| {
            if done.is_ok() {
                done = apply_stored(cx, namespace, write);
            }
        })?;
        done?;
    }
    cx.effects.durability = cx.effects.durability.max(Some(state.durability()));
    cx.effects.said.extend(state.said());
    Ok(())
}

/// Applies a write of a held transaction. In databases, its values are complete records.
fn apply_stored(cx: &mut Cx<'_>, namespace: &Namespace, write: Write<'_>) -> Done {
    match write {
        Write::Put { key, value } | Write::PutUntil { key, value, .. } if namespace.database.is_some() => {
            let main = Main::decode(Value::from(value))?;
            apply(cx, namespace, Write::Put { key, value: main.text() })
        }
        other if namespace.database.is_some() => apply(cx, namespace, other),
        other => {
            cx.access.transaction()?.repeat(&namespace.space, other)?;
            announce(cx, namespace, other);
            Ok(())
        }
    }
}

/// Writes to a namespace directly, or in the transaction that the connection holds.
///
/// # Errors
/// Fails if the store fails. The writes made until then are undone with the command (commands.2).
pub(super) fn write(cx: &mut Cx<'_>, namespace: &Namespace, writes: &[Write<'_>]) -> Done {
    match held(cx)? {
        Some(held) => held.with(cx.now, |state| state.write(namespace, writes, cx.server.generation())),
        None => writes.iter().try_for_each(|write| apply(cx, namespace, *write)),
    }
}

/// Applies a write to a namespace.
fn apply(cx: &mut Cx<'_>, namespace: &Namespace, write: Write<'_>) -> Done {
    if let Some(number) = namespace.database {
        return cx.in_database(number, |cx| match write {
            Write::Put { key, value } => write_string(cx, key, Some(value)),
            Write::Remove { key } => write_string(cx, key, None),
            Write::RemoveRange { .. } | Write::Merge { .. } | Write::PutUntil { .. } => {
                Err("ERR a database does not support this write".into())
            }
        });
    }
    cx.access.transaction()?.write(&namespace.space, write)?;
    announce(cx, namespace, write);
    Ok(())
}

/// Counts and announces a write to a keyspace.
fn announce(cx: &mut Cx<'_>, namespace: &Namespace, write: Write<'_>) {
    cx.effects.changes += 1;
    match write {
        Write::RemoveRange { from, to } => {
            cx.removed(namespace, Stretch { from: from.to_vec(), to: to.map(<[u8]>::to_vec) });
        }
        Write::Remove { key } => cx.changed(namespace, key, "del"),
        Write::Put { key, .. } | Write::PutUntil { key, .. } | Write::Merge { key, .. } => {
            cx.changed(namespace, key, "set");
        }
    }
}

/// Rolls back the innermost transaction.
///
/// # Errors
/// Fails if there is none.
pub(super) fn rollback(cx: &mut Cx<'_>) -> Done {
    let held = transaction(cx)?;
    // The transaction may have ended for being idle. Its client still ends it with a rollback.
    if !matches!(held.leave(cx.now, false), Ok(true)) {
        cx.session.own.transaction = None;
        cx.server.holdings.end(&held);
    }
    cx.out.ok();
    Ok(())
}

/// Locks names, until the transaction ends if the connection holds one. `ms` is the maximum wait in
/// milliseconds: 0 means no limit, `None` no wait.
///
/// # Errors
/// Fails on a deadlock, on a timeout, and if the connection holds too many locks.
pub(super) fn lock(cx: &mut Cx<'_>, mut names: Vec<Name>, mode: LockMode, ms: Option<u64>) -> Done {
    let held = held(cx)?;
    if let Some(held) = &held {
        held.with(cx.now, |_| Ok(()))?;
    }
    // Locks are taken in one order, so that two connections that ask for the same names do not block each
    // other.
    names.sort_unstable();
    let until = if held.is_some() { Until::TransactionEnd } else { Until::Unlock };
    let client = cx.session.client.id;
    let (locks, store) = (&cx.server.holdings.locks, &*cx.server.store);
    let waker = ms.map(|_| cx.server.sequencer.waker(client));
    match (locks.acquire(store, client, &names, (mode, until), waker.as_ref()), ms) {
        (Ok(true), _) => {}
        (Ok(false), Some(ms)) => return Err(Fail::waits(ms)),
        (Ok(false), None) => return Err(LOCK_TIMEOUT.into()),
        (Err(why), _) => {
            if let Some(held) = held {
                // A commit that the client sent together with this command must not happen without the lock.
                held.with(cx.now, |state| {
                    state.refuse(why.message().into_owned());
                    Ok(())
                })?;
            }
            return Err(why);
        }
    }
    cx.out.ok();
    Ok(())
}

/// Publishes messages after the commit of the connection's transaction, or after this command if there is
/// none.
///
/// # Errors
/// Fails if the transaction publishes too much.
pub(super) fn say(cx: &mut Cx<'_>, sayings: Vec<Saying>) -> Done {
    match held(cx)? {
        Some(held) => {
            held.with(cx.now, |state| sayings.into_iter().try_for_each(|saying| state.say(saying)))?;
        }
        // Without a listener, the messages are dropped.
        None if cx.server.holdings.has_no_listeners() => {}
        None => cx.effects.say(sayings, cx.effects_max())?,
    }
    cx.out.ok();
    Ok(())
}
