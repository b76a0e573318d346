//! Ends the wait of a command, and cleans up after a connection.

use std::sync::atomic::Ordering;

use crate::clients::pubsub::Hearing;
use crate::command::flag;
use crate::resp::fail::{LOCK_TIMEOUT, UNBLOCKED};
use crate::resp::{Out, Request};
use crate::run::queue::Woken;
use crate::run::server::Server;
use crate::run::session::Session;

/// Updates the counters of a command whose wait has ended.
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

/// Replies to a command whose timeout has passed.
pub fn timed_out(server: &Server, request: &Request, out: &mut Out) {
    if server.commands.has_flag(request, flag::LOCKS) {
        out.error(LOCK_TIMEOUT);
    } else {
        out.null_array();
    }
}

/// Releases everything that belongs to a connection that has ended.
pub fn leave(server: &Server, session: &mut Session) {
    unwatch(server, session);
    unsubscribe_all(server, session);
    server.holdings.leave(&mut session.own, session.client.id);
    session.client.counts.listens.store(0, Ordering::Relaxed);
    session.places.rows = None;
    server.clients.tracking.end(&session.client);
}

/// Stops watching all keys of a session.
pub fn unwatch(server: &Server, session: &mut Session) {
    if let Some(watch) = session.watch.take() {
        session.client.counts.watched.store(0, Ordering::Relaxed);
        server.watches.remove(&watch);
    }
}

/// Removes all subscriptions of a connection that has ended or was reset.
fn unsubscribe_all(server: &Server, session: &mut Session) {
    for from in [Hearing::Channel, Hearing::Pattern, Hearing::Shard] {
        for name in std::mem::take(&mut session.subscribed[from as usize]) {
            server.clients.pubsub.unsubscribe(from, &name, &session.client);
        }
    }
    session.count_subscriptions();
}
