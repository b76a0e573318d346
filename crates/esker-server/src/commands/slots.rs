//! Slots of replicas, for which the log is retained.

use super::replication::slot_name;
use crate::command::spec::Group::Esker;
use crate::replication::{Position, Slot};
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::run::server::Server;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("es.slot", 3, ADMIN | NO_SCRIPT | NO_MULTI, NO_KEYS, Esker, "drop name", "Drops a replication slot, so that no log is kept for its replica.", drop_slot),
    command("es.slots", 1, NO_SCRIPT, NO_KEYS, Esker, "", "Shows the replication slots, with the commit from which each keeps the log, and the size of that log.", slots),
];

fn slots(cx: &mut Cx<'_>, _: &Request) -> Done {
    let shown = shown_slots(cx.server);
    cx.out.array(shown.len());
    for slot in shown {
        cx.out.map(6);
        cx.out.bulk(b"name");
        cx.out.bulk(slot.name.as_bytes());
        cx.out.bulk(b"connections");
        cx.out.count(slot.connections);
        cx.out.bulk(b"epoch");
        cx.out.bulk(slot.at.epoch.to_string().as_bytes());
        cx.out.bulk(b"number");
        cx.out.int(slot.at.seq as i64);
        cx.out.bulk(b"behind");
        cx.out.int(slot.behind as i64);
        cx.out.bulk(b"bytes");
        cx.out.int(slot.bytes as i64);
    }
    Ok(())
}

/// A slot in the form shown to operators.
pub struct ShownSlot {
    /// Its name.
    pub name: String,
    /// Number of connected replicas that use it.
    pub connections: usize,
    /// The commit after which everything is retained.
    pub at: Position,
    /// Number of retained commits.
    pub behind: u64,
    /// Bytes of the retained log.
    pub bytes: u64,
}

/// Returns all slots.
pub fn shown_slots(server: &Server) -> Vec<ShownSlot> {
    let replication = &server.replication;
    let newest = replication.position().seq;
    let show = |(name, slot): (String, Slot)| ShownSlot {
        connections: replication.replicas.with_slot(&name),
        at: slot.at,
        behind: newest.saturating_sub(slot.at.seq),
        bytes: replication.slot_bytes(&slot),
        name,
    };
    replication.slots().into_iter().map(show).collect()
}

fn drop_slot(cx: &mut Cx<'_>, request: &Request) -> Done {
    if !request.is(1, "drop") {
        return Err(SYNTAX.into());
    }
    let (replication, name) = (&cx.server.replication, slot_name(request, 2)?);
    if replication.replicas.with_slot(&name) > 0 {
        return Err(Fail::text(format!("ERR the slot {name} is in use: stop its replica first")));
    }
    if !tokio::task::block_in_place(|| replication.drop_slot(&name))? {
        return Err(Fail::text(format!("ERR there is no slot {name}: ES.SLOTS lists them")));
    }
    cx.out.ok();
    Ok(())
}
