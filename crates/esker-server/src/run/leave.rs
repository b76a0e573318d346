//! What follows when a command waits no more, and when a connection ends.

use std::sync::atomic::Ordering;

use crate::base::fail::{LOCK_TIMEOUT, UNBLOCKED};
use crate::clients::pubsub::Hearing;
use crate::command::flag;
use crate::resp::{Out, Request};
use crate::run::queue::Woken;
use crate::run::server::Server;
use crate::run::session::Session;

/// Keeps account of a command that waits no more.
pub fn note_end_of_wait(server: &Server, session: &Session, request: &Request, woken: Woken) {
    let Some((_, at)) = server.commands.entry(&request[0]) else { return };
    let stats = server.commands.stats_at(at);
    for counter in [&stats.calls, &server.observed.stats.commands, &session.client.traffic.commands] {
        counter.add(1);
    }
    if matches!(woken, Woken::Unblocked | Woken::Demoted) {
        stats.failed.add(1);
        server.observed.stats.note_error(UNBLOCKED);
    }
}

/// Replies to a command whose time is over.
pub fn timed_out(server: &Server, request: &Request, out: &mut Out) {
    if server.commands.has_flag(request, flag::LOCKS) {
        out.error(LOCK_TIMEOUT);
    } else {
        out.null_array();
    }
}

/// A connection has ended: nothing of it is left behind.
pub fn leave(server: &Server, session: &mut Session) {
    unwatch(server, session);
    unsubscribe_all(server, session);
    server.holdings.leave(&mut session.own, session.client.id);
    session.client.counts.listens.store(0, Ordering::Relaxed);
    session.places.rows = None;
}

/// A session watches no keys any more.
pub fn unwatch(server: &Server, session: &mut Session) {
    if let Some(watch) = session.watch.take() {
        session.client.counts.watched.store(0, Ordering::Relaxed);
        server.watches.remove(&watch);
    }
}

/// A connection has ended, or begins anew.
fn unsubscribe_all(server: &Server, session: &mut Session) {
    for from in [Hearing::Channel, Hearing::Pattern, Hearing::Shard] {
        for name in std::mem::take(&mut session.subscribed[from as usize]) {
            server.clients.pubsub.unsubscribe(from, &name, &session.client);
        }
    }
    session.count_subscriptions();
}
