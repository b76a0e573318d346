//! Channels: subscriptions and messages.

use crate::clients::pubsub::{Hearing, Said};
use crate::command::spec::Group::PubSub;
use crate::resp::Request;
use crate::resp::fail::Done;
use crate::run::cx::Cx;
use crate::run::dispatch::unknown_subcommand;
use crate::run::registry::row::*;

const OWN: u32 = PUBSUB | NO_SCRIPT | WHILE_SUBSCRIBED;

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("psubscribe", -2, OWN, NO_KEYS, PubSub, "pattern ...", "Subscribes to all channels that match.", |cx, r| subscribe(cx, r, Hearing::Pattern)).reaches(reach::patterns),
    command("publish", 3, PUBSUB | FAST | PAUSED, NO_KEYS, PubSub, "channel message", "Publishes a message on a channel.", |cx, r| publish(cx, r, Hearing::Channel)).reaches(reach::channel),
    command("pubsub", -2, PUBSUB, NO_KEYS, PubSub, "channels [pattern] | numsub [channel ...] | numpat | shardchannels [pattern] | shardnumsub [channel ...]", "Shows subscriptions.", pubsub),
    command("punsubscribe", -1, OWN, NO_KEYS, PubSub, "[pattern ...]", "Ends subscriptions to patterns.", |cx, r| unsubscribe(cx, r, Hearing::Pattern)),
    command("spublish", 3, PUBSUB | FAST | PAUSED, NO_KEYS, PubSub, "channel message", "Publishes a message on a shard channel. The server is the only shard.", |cx, r| publish(cx, r, Hearing::Shard)).reaches(reach::channel),
    command("ssubscribe", -2, OWN, NO_KEYS, PubSub, "channel ...", "Subscribes to shard channels.", |cx, r| subscribe(cx, r, Hearing::Shard)).reaches(reach::channels),
    command("subscribe", -2, OWN, NO_KEYS, PubSub, "channel ...", "Subscribes to channels.", |cx, r| subscribe(cx, r, Hearing::Channel)).reaches(reach::channels),
    command("sunsubscribe", -1, OWN, NO_KEYS, PubSub, "[channel ...]", "Ends subscriptions to shard channels.", |cx, r| unsubscribe(cx, r, Hearing::Shard)),
    command("unsubscribe", -1, OWN, NO_KEYS, PubSub, "[channel ...]", "Ends subscriptions to channels.", |cx, r| unsubscribe(cx, r, Hearing::Channel)),
];

fn tell(cx: &mut Cx<'_>, kind: Hearing, what: &str, name: Option<&[u8]>) {
    cx.session.count_subscriptions();
    let letter = match kind {
        Hearing::Channel => "",
        Hearing::Pattern => "p",
        Hearing::Shard => "s",
    };
    let of = |kind: Hearing| cx.session.subscribed[kind as usize].len();
    let left = match kind {
        Hearing::Shard => of(Hearing::Shard),
        _ => of(Hearing::Channel) + of(Hearing::Pattern),
    };
    cx.out.push(3);
    cx.out.bulk(format!("{letter}{what}").as_bytes());
    cx.out.bulk_or_null(name);
    cx.out.count(left);
}

fn subscribe(cx: &mut Cx<'_>, request: &Request, to: Hearing) -> Done {
    // Each word has a reply of its own, but a transaction has only one for each command.
    if cx.session.turn.is_inside && !cx.out.is_resp3 && request.len() > 2 {
        return Err("ERR subscribe to one name in each command of a transaction".into());
    }
    for name in request.from(1) {
        cx.server.clients.pubsub.subscribe(to, name, &cx.session.client);
        cx.session.subscribed[to as usize].insert(name.to_vec());
        tell(cx, to, "subscribe", Some(name));
    }
    Ok(())
}

fn unsubscribe(cx: &mut Cx<'_>, request: &Request, from: Hearing) -> Done {
    let names: Vec<Vec<u8>> = match request.len() {
        1 => cx.session.subscribed[from as usize].iter().cloned().collect(),
        _ => request.from(1).map(<[u8]>::to_vec).collect(),
    };
    for name in &names {
        cx.session.subscribed[from as usize].remove(name);
        cx.server.clients.pubsub.unsubscribe(from, name, &cx.session.client);
        tell(cx, from, "unsubscribe", Some(name));
    }
    if names.is_empty() {
        tell(cx, from, "unsubscribe", None);
    }
    Ok(())
}

fn publish(cx: &mut Cx<'_>, request: &Request, on: Hearing) -> Done {
    let hearers = cx.server.clients.pubsub.hearers(on, &request[1]);
    if hearers > 0 {
        let said = Said { on, channel: request[1].to_vec(), text: request[2].to_vec() };
        cx.effects.publish(said, cx.effects_max())?;
    }
    cx.out.count(hearers);
    Ok(())
}

fn pubsub(cx: &mut Cx<'_>, request: &Request) -> Done {
    let table = &cx.server.clients.pubsub;
    let kind = |word: &str| if request.is(1, word) { Hearing::Shard } else { Hearing::Channel };
    if (request.is(1, "channels") || request.is(1, "shardchannels")) && request.len() <= 3 {
        let channels = table.channels(kind("shardchannels"), request.get(2));
        cx.out.array(channels.len());
        channels.iter().for_each(|channel| cx.out.bulk(channel));
    } else if request.is(1, "numsub") || request.is(1, "shardnumsub") {
        cx.out.array(2 * (request.len() - 2));
        for channel in request.from(2) {
            cx.out.bulk(channel);
            cx.out.count(table.subscribers(kind("shardnumsub"), channel));
        }
    } else if request.is(1, "numpat") && request.len() == 2 {
        cx.out.count(table.patterns());
    } else {
        return Err(unknown_subcommand(request));
    }
    Ok(())
}
