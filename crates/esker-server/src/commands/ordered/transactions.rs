//! Transactions over ordered keys, and named locks.

use super::super::held;
use super::super::words::Words;
use crate::command::spec::Group::Esker;
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::resp::numbers::int;
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::store::{Durability, Isolation, LockMode};

const OWN: u32 = NO_SCRIPT | NO_MULTI | TAKES_PART;

#[rustfmt::skip]
pub(in super::super) const TABLE: &[Command] = &[
    command("es.begin", -1, OWN | BEGINS, NO_KEYS, Esker, "[serializable|snapshot] [sync os|disk]", "Begins a transaction, or a nested one. Returns its number.", begin),
    command("es.commit", 1, OWN | SEQUENCED | COMMITS, NO_KEYS, Esker, "", "Commits the innermost transaction.", |cx, _| held::commit(cx)),
    command("es.lock", -2, OWN | BLOCKING | SEQUENCED | LOCKS, FIRST, Esker, "name [shared] [wait milliseconds]", "Locks a name until the transaction ends, or until ES.UNLOCK if there is none. Waits for it if asked to.", lock).uses(Uses::Asked(uses::of_lock)),
    command("es.rollback", -1, OWN, NO_KEYS, Esker, "[to savepoint]", "Rolls back the innermost transaction, or rolls back to one of its savepoints, which is kept.", rollback),
    command("es.savepoint", 2, OWN, NO_KEYS, Esker, "name", "Sets a savepoint for ES.ROLLBACK TO.", savepoint),
    command("es.unlock", 2, OWN, FIRST, Esker, "name", "Releases a lock taken outside of transactions. Returns 1, or 0 if the connection does not hold it.", unlock),
];

fn begin(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (mut asked, mut durability) = (None, Durability::None);
    let mut words = Words::new(request, 1);
    while !words.is_over() {
        if words.takes("snapshot") {
            asked = Some(Isolation::Snapshot);
        } else if words.takes("sync") {
            durability = held::read_durability(&mut words)?;
        } else {
            words.expect("serializable")?;
            asked = Some(Isolation::Serializable);
        }
    }
    let outer = held::held(cx)?.map(|held| held.isolation);
    if asked.is_some_and(|asked| outer.is_some_and(|outer| outer != asked)) {
        return Err("ERR the outer transaction has another isolation: omit it in a nested ES.BEGIN".into());
    }
    let isolation = asked.or(outer).unwrap_or(Isolation::Serializable);
    let place = cx.session.namespace().name();
    held::begin(cx, &place, isolation, outer.is_none(), durability)
}

fn rollback(cx: &mut Cx<'_>, request: &Request) -> Done {
    if request.len() == 1 {
        return held::rollback(cx);
    }
    if !request.is(1, "to") || request.len() != 3 {
        return Err(SYNTAX.into());
    }
    held::transaction(cx)?.with(cx.now, |state| state.return_to(&request[2]))?;
    cx.out.ok();
    Ok(())
}

fn savepoint(cx: &mut Cx<'_>, request: &Request) -> Done {
    held::transaction(cx)?.with(cx.now, |state| state.save(&*cx.server.store, &request[1]))?;
    cx.out.ok();
    Ok(())
}

fn lock(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (mut mode, mut ms) = (LockMode::Exclusive, Some(0));
    let mut words = Words::new(request, 2);
    while !words.is_over() {
        if words.takes("shared") {
            mode = LockMode::Shared;
        } else {
            words.expect("wait")?;
            let wait = u64::try_from(int(words.next()?)?).map_err(|_| "ERR WAIT can't be negative")?;
            ms = (wait > 0).then_some(wait);
        }
    }
    let name = (cx.session.namespace().name(), request[1].to_vec());
    held::lock(cx, vec![name], mode, ms)
}

fn unlock(cx: &mut Cx<'_>, request: &Request) -> Done {
    let name = (cx.session.namespace().name(), request[1].to_vec());
    let was_held = cx.server.holdings.locks.unlock(cx.session.client.id, &name)?;
    cx.out.int(i64::from(was_held));
    Ok(())
}
