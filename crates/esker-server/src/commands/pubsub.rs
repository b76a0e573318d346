//! Channels: who is subscribed, and what is said.

use std::sync::atomic::Ordering;

use super::table::{Command, Group::PubSub, NO_KEYS, command, flag::*};
use super::unknown_subcommand;
use crate::cx::Cx;
use crate::fail::Done;
use crate::resp::Request;
use crate::server::Server;
use crate::session::Session;

const OWN: u32 = PUBSUB | NO_SCRIPT | WHILE_SUBSCRIBED;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("psubscribe", -2, OWN, NO_KEYS, PubSub, "pattern ...", "Subscribes to all channels that match.", psubscribe),
    command("publish", 3, PUBSUB | FAST, NO_KEYS, PubSub, "channel message", "Says something on a channel.", publish),
    command("spublish", 3, PUBSUB | FAST, NO_KEYS, PubSub, "channel message", "As PUBLISH: there are no shards.", publish),
    command("pubsub", -2, PUBSUB, NO_KEYS, PubSub, "channels [pattern] | numsub [channel ...] | numpat", "Tells of subscriptions.", pubsub),
    command("punsubscribe", -1, OWN, NO_KEYS, PubSub, "[pattern ...]", "Ends subscriptions to patterns.", punsubscribe),
    command("subscribe", -2, OWN, NO_KEYS, PubSub, "channel ...", "Subscribes to channels.", subscribe),
    command("unsubscribe", -1, OWN, NO_KEYS, PubSub, "[channel ...]", "Ends subscriptions to channels.", unsubscribe),
];

fn count(session: &Session) {
    let counts = &session.client.counts;
    counts[0].store(session.channels.len(), Ordering::Relaxed);
    counts[1].store(session.patterns.len(), Ordering::Relaxed);
}

fn tell(cx: &mut Cx<'_>, what: &str, name: Option<&[u8]>) {
    count(cx.session);
    cx.out.push(3);
    cx.out.bulk(what.as_bytes());
    cx.out.bulk_or_null(name);
    cx.out.count(cx.session.subscriptions());
}

/// Replies here, one for each word, are not those of a script or a transaction.
fn check_outside(cx: &Cx<'_>) -> Done {
    if cx.session.is_inside && !cx.out.is_resp3 {
        return Err("ERR (un)subscribing is not allowed here".into());
    }
    Ok(())
}

fn subscribe(cx: &mut Cx<'_>, request: &Request) -> Done {
    check_outside(cx)?;
    for channel in request.from(1) {
        cx.server.pubsub.subscribe(channel, &cx.session.client);
        cx.session.channels.insert(channel.to_vec());
        tell(cx, "subscribe", Some(channel));
    }
    Ok(())
}

fn psubscribe(cx: &mut Cx<'_>, request: &Request) -> Done {
    check_outside(cx)?;
    for pattern in request.from(1) {
        cx.server.pubsub.subscribe_pattern(pattern, &cx.session.client);
        cx.session.patterns.insert(pattern.to_vec());
        tell(cx, "psubscribe", Some(pattern));
    }
    Ok(())
}

fn unsubscribe(cx: &mut Cx<'_>, request: &Request) -> Done {
    let channels: Vec<Vec<u8>> = match request.len() {
        1 => cx.session.channels.iter().cloned().collect(),
        _ => request.from(1).map(<[u8]>::to_vec).collect(),
    };
    for channel in &channels {
        cx.session.channels.remove(channel);
        cx.server.pubsub.unsubscribe(channel, &cx.session.client);
        tell(cx, "unsubscribe", Some(channel));
    }
    if channels.is_empty() {
        tell(cx, "unsubscribe", None);
    }
    Ok(())
}

fn punsubscribe(cx: &mut Cx<'_>, request: &Request) -> Done {
    let patterns: Vec<Vec<u8>> = match request.len() {
        1 => cx.session.patterns.iter().cloned().collect(),
        _ => request.from(1).map(<[u8]>::to_vec).collect(),
    };
    for pattern in &patterns {
        cx.session.patterns.remove(pattern);
        cx.server.pubsub.unsubscribe_pattern(pattern, &cx.session.client);
        tell(cx, "punsubscribe", Some(pattern));
    }
    if patterns.is_empty() {
        tell(cx, "punsubscribe", None);
    }
    Ok(())
}

/// A connection has ended, or begins anew.
pub(super) fn unsubscribe_all(server: &Server, session: &mut Session) {
    for channel in std::mem::take(&mut session.channels) {
        server.pubsub.unsubscribe(&channel, &session.client);
    }
    for pattern in std::mem::take(&mut session.patterns) {
        server.pubsub.unsubscribe_pattern(&pattern, &session.client);
    }
    count(session);
}

fn publish(cx: &mut Cx<'_>, request: &Request) -> Done {
    let hearers = cx.server.pubsub.hearers(&request[1]);
    if hearers > 0 {
        cx.effects.messages.push((request[1].to_vec(), request[2].to_vec()));
    }
    cx.out.count(hearers);
    Ok(())
}

fn pubsub(cx: &mut Cx<'_>, request: &Request) -> Done {
    let table = &cx.server.pubsub;
    if request.is(1, "channels") && request.len() <= 3 {
        let channels = table.channels(request.get(2));
        cx.out.array(channels.len());
        channels.iter().for_each(|channel| cx.out.bulk(channel));
    } else if request.is(1, "shardchannels") && request.len() <= 3 {
        cx.out.array(0);
    } else if request.is(1, "numsub") || request.is(1, "shardnumsub") {
        cx.out.array(2 * (request.len() - 2));
        for channel in request.from(2) {
            cx.out.bulk(channel);
            cx.out.count(table.subscribers(channel));
        }
    } else if request.is(1, "numpat") && request.len() == 2 {
        cx.out.count(table.patterns());
    } else {
        return Err(unknown_subcommand(request));
    }
    Ok(())
}
