//! Topics that commits publish, and keys whose changes are reported. Clients receive both without a request
//! for each message.
//!
//! Messages have the form of Redis's pub/sub, so that client libraries understand them. A message on a topic
//! looks like that of a channel, a change like that of a pattern. A RESP2 client that receives them counts as
//! subscribed.

use std::sync::atomic::Ordering;

use super::super::held;
use crate::command::spec::Group::Esker;
use crate::holdings::topics::{Ear, Interest, Saying, Topics};
use crate::holdings::{Holdings, Interests};
use crate::resp::Request;
use crate::resp::fail::{Done, SYNTAX};
use crate::run::cx::Cx;
use crate::run::registry::row::*;
use crate::run::session::Session;

const OWN: u32 = NO_SCRIPT | NO_MULTI | PUBSUB | WHILE_SUBSCRIBED;

#[rustfmt::skip]
pub(in super::super) const TABLE: &[Command] = &[
    command("es.listen", -2, OWN, NO_KEYS, Esker, "topic ...", "Subscribes the connection to topics. Their messages arrive like those of channels.", listen).reaches(reach::channels),
    command("es.notify", 3, PUBSUB | SEQUENCED | TAKES_PART | PAUSED, NO_KEYS, Esker, "topic message", "Publishes a message on a topic once the transaction has committed.", notify).reaches(reach::channel),
    command("es.unlisten", -1, OWN, NO_KEYS, Esker, "[topic ...]", "Ends subscriptions to topics.", unlisten),
    command("es.unwatch", -1, OWN, NO_KEYS, Esker, "[key|prefix name ...]", "Stops watching keys.", unwatch),
    command("es.watch", -3, OWN | READ, NO_KEYS, Esker, "key|prefix name ...", "Sends the connection the changes of keys, or of keys with a prefix. They arrive like messages of patterns.", watch).reaches(reach::watched),
];

/// Maximum number of topics per connection, and maximum number of watched keys and prefixes.
const INTERESTS_MAX: usize = 10_000;

/// One of the two kinds: topics or watched keys.
struct Kind {
    topics: fn(&Holdings) -> &Topics,
    interests: fn(&mut Session) -> &mut Interests,
    ear: fn(&Session) -> Ear,
}

const TOPICS: Kind = Kind {
    topics: |holdings| &holdings.sent,
    interests: |session| &mut session.own.sent,
    ear: |session| Ear::Messages(session.client.clone()),
};
const KEYS: Kind = Kind {
    topics: |holdings| &holdings.changes,
    interests: |session| &mut session.own.watched,
    ear: |session| Ear::Matches(session.client.clone()),
};

fn add(cx: &mut Cx<'_>, kind: &Kind, interests: Vec<Interest>) -> Done {
    let (place, ear) = (cx.session.namespace().name(), (kind.ear)(cx.session));
    let client = cx.session.client.id;
    let own = (kind.interests)(cx.session);
    if own.len() + interests.len() > INTERESTS_MAX {
        return Err("ERR the connection has too many subscriptions or watched keys".into());
    }
    for interest in interests {
        (kind.topics)(&cx.server.holdings).listen(&place, interest.clone(), client, ear.clone());
        own.insert((place.clone(), interest));
    }
    note(cx.session);
    cx.out.ok();
    Ok(())
}

/// Removes interests in the place of the connection. An empty list removes all of them.
fn remove(cx: &mut Cx<'_>, kind: &Kind, interests: &[Interest]) {
    let place = cx.session.namespace().name();
    let client = cx.session.client.id;
    (kind.interests)(cx.session).retain(|(of, interest)| {
        let is_meant = *of == place && (interests.is_empty() || interests.contains(interest));
        if is_meant {
            (kind.topics)(&cx.server.holdings).unlisten(of, interest, client);
        }
        !is_meant
    });
    note(cx.session);
    cx.out.ok();
}

/// Publishes the number of interests to other connections.
fn note(session: &Session) {
    session.client.counts.listens.store(session.own.subscriptions(), Ordering::Relaxed);
}

fn topics(request: &Request) -> Vec<Interest> {
    request.from(1).map(|topic| Interest::Topic(topic.to_vec())).collect()
}

fn keys(request: &Request) -> Done<Vec<Interest>> {
    let words = request.tail(1);
    let (pairs, []) = words.as_chunks::<2>() else { return Err(SYNTAX.into()) };
    let interest = |[kind, name]: &[&[u8]; 2]| match kind.to_ascii_lowercase().as_slice() {
        b"key" => Ok(Interest::Topic(name.to_vec())),
        b"prefix" => Ok(Interest::Prefix(name.to_vec())),
        _ => Err(SYNTAX.into()),
    };
    pairs.iter().map(interest).collect()
}

fn notify(cx: &mut Cx<'_>, request: &Request) -> Done {
    let (topic, message) = (request[1].to_vec(), request[2].to_vec());
    let place = cx.session.namespace().name();
    held::say(cx, vec![Saying { place, topic, message }])
}

fn listen(cx: &mut Cx<'_>, request: &Request) -> Done {
    add(cx, &TOPICS, topics(request))
}

fn unlisten(cx: &mut Cx<'_>, request: &Request) -> Done {
    remove(cx, &TOPICS, &topics(request));
    Ok(())
}

fn watch(cx: &mut Cx<'_>, request: &Request) -> Done {
    let interests = keys(request)?;
    add(cx, &KEYS, interests)
}

fn unwatch(cx: &mut Cx<'_>, request: &Request) -> Done {
    let interests = keys(request)?;
    remove(cx, &KEYS, &interests);
    Ok(())
}
