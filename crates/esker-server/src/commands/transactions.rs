//! `MULTI`, `EXEC` and `WATCH`.
//!
//! The sequencer runs the commands of an `EXEC` in order, in one commit. It compares the watched keys before.

use std::sync::atomic::Ordering;

use crate::command::spec::Group::Transactions;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail};
use crate::run::cx::Cx;
use crate::run::dispatch;
use crate::run::leave::{timed_out, unwatch};
use crate::run::registry::row::*;
use crate::run::session::Multi;
use crate::run::watches::Watched;
use crate::types::{Collection, Kind};

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("discard", 1, NO_SCRIPT | FAST | ENDS_MULTI | WHILE_BUSY, NO_KEYS, Transactions, "", "Discards the commands queued since MULTI.", discard),
    command("exec", 1, NO_SCRIPT | ENDS_MULTI | SEQUENCED | RUNS_QUEUE, NO_KEYS, Transactions, "", "Runs the commands queued since MULTI in one commit.", exec),
    command("multi", 1, NO_SCRIPT | FAST | ENDS_MULTI | WHILE_BUSY, NO_KEYS, Transactions, "", "Starts to queue commands.", multi),
    command("unwatch", 1, NO_SCRIPT | FAST | WHILE_BUSY, NO_KEYS, Transactions, "", "Stops watching all keys.", unwatch_all),
    command("watch", -2, NO_SCRIPT | FAST | NO_MULTI | SEQUENCED | BEFORE_MULTI | NO_ACCESS, ALL, Transactions, "key ...", "Makes EXEC do nothing if one of the keys changes before it.", watch).each(KeyUse::LOOK),
];

fn multi(cx: &mut Cx<'_>, _: &Request) -> Done {
    if cx.session.multi.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    cx.session.multi = Some(Multi::default());
    cx.session.client.counts.queued.store(1, Ordering::Relaxed);
    cx.out.ok();
    Ok(())
}

fn discard(cx: &mut Cx<'_>, _: &Request) -> Done {
    cx.session.take_multi().ok_or("ERR DISCARD without MULTI")?;
    unwatch(cx.server, cx.session);
    cx.out.ok();
    Ok(())
}

fn exec(cx: &mut Cx<'_>, _: &Request) -> Done {
    let multi = cx.session.take_multi().ok_or("ERR EXEC without MULTI")?;
    let is_spoilt = has_changed(cx)?;
    unwatch(cx.server, cx.session);
    if multi.has_failed {
        return Err("EXECABORT Transaction discarded because of previous errors.".into());
    }
    if is_spoilt {
        cx.out.null_array();
        return Ok(());
    }
    let start = cx.out.mark();
    cx.out.array(multi.queue.len());
    cx.session.turn.is_inside = true;
    let (limits, class) = (cx.server.config.output_limits(), cx.session.client.class());
    let mut is_dropped = false;
    for request in &multi.queue {
        if let Err(Fail::Blocks(_)) = dispatch::run(cx, request) {
            timed_out(cx.server, request, cx.out);
        }
        if cx.effects.has_ended_script {
            break;
        }
        is_dropped |= limits.is_over_hard(class, cx.out.bytes.len());
        if is_dropped {
            // The remaining commands run as well, but the connection ends without a reply.
            cx.out.truncate(start);
            cx.session.is_over = true;
        }
    }
    cx.session.turn.is_inside = false;
    Ok(())
}

/// Returns whether a watched key has changed, or if it or one of its fields has expired.
fn has_changed(cx: &mut Cx<'_>) -> Done<bool> {
    let Some(watch) = cx.session.watch.take() else { return Ok(false) };
    let mut has_changed = watch.has_changed();
    for ((db, key), was) in &watch.keys {
        if *was != Watched::Absent && !has_changed {
            has_changed = cx.in_database(*db, |cx| Ok(watched(cx, key)? != *was))?;
        }
    }
    cx.session.watch = Some(watch);
    Ok(has_changed)
}

fn watched(cx: &mut Cx<'_>, key: &[u8]) -> Done<Watched> {
    let Some(main) = cx.main(key)? else { return Ok(Watched::Absent) };
    let expired_fields = match main.kind {
        Kind::Hash => Collection::of(key, &main)?.count_expired(cx)?,
        _ => 0,
    };
    Ok(Watched::There { expired_fields })
}

fn watch(cx: &mut Cx<'_>, request: &Request) -> Done {
    for key in request.from(1) {
        let was = watched(cx, key)?;
        let mut watch = cx.session.watch.take().unwrap_or_default();
        cx.server.watches.add(&mut watch, cx.session.db, key, was);
        cx.session.client.counts.watched.store(watch.keys.len(), Ordering::Relaxed);
        cx.session.watch = Some(watch);
    }
    cx.out.ok();
    Ok(())
}

fn unwatch_all(cx: &mut Cx<'_>, _: &Request) -> Done {
    unwatch(cx.server, cx.session);
    cx.out.ok();
    Ok(())
}
