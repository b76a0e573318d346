//! Channels, patterns and their subscribers.
//!
//! Shard channels are separate from the others. This server is the only shard, so only the names differ.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::base::glob;
use crate::clients::Client;
use crate::resp::Out;

/// What a client can subscribe to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// A channel.
    Channel,
    /// All channels that match a pattern.
    Pattern,
    /// A shard channel.
    Shard,
}

impl Hearing {
    /// Number of kinds.
    pub const COUNT: usize = 3;
}

/// A published message.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    /// `Channel` or `Shard`.
    pub on: Hearing,
    /// The channel.
    pub channel: Vec<u8>,
    /// The message.
    pub text: Vec<u8>,
}

type Hearers = BTreeMap<u64, Arc<Client>>;
type Table = [HashMap<Vec<u8>, Hearers>; Hearing::COUNT];

/// All subscriptions.
#[derive(Default)]
pub struct PubSub {
    table: Mutex<Table>,
}

/// Sends a client a message that answers no request.
pub fn send(client: &Client, words: &[&[u8]]) {
    let mut out = Out::new(client.state.is_resp3.load(Ordering::Relaxed));
    out.push(words.len());
    words.iter().for_each(|word| out.bulk(word));
    client.send(&out.bytes);
}

/// Returns the patterns that match a channel, with their subscribers.
fn matching<'t>(table: &'t Table, channel: &[u8]) -> impl Iterator<Item = (&'t Vec<u8>, &'t Hearers)> {
    table[Hearing::Pattern as usize].iter().filter(|(pattern, _)| glob::matches(pattern, channel))
}

impl PubSub {
    /// Subscribes to a channel or a pattern.
    pub fn subscribe(&self, to: Hearing, name: &[u8], client: &Arc<Client>) {
        let mut table = self.table.lock();
        table[to as usize].entry(name.to_vec()).or_default().insert(client.id, client.clone());
    }

    /// Ends a subscription.
    pub fn unsubscribe(&self, from: Hearing, name: &[u8], client: &Client) {
        let places = &mut self.table.lock()[from as usize];
        if let Some(hearers) = places.get_mut(name) {
            hearers.remove(&client.id);
            if hearers.is_empty() {
                places.remove(name);
            }
        }
    }

    /// Sends a message to all of its subscribers.
    pub fn publish(&self, Said { on, channel, text }: &Said) {
        let table = self.table.lock();
        let kind: &[u8] = if *on == Hearing::Shard { b"smessage" } else { b"message" };
        for client in table[*on as usize].get(channel).into_iter().flat_map(BTreeMap::values) {
            send(client, &[kind, channel, text]);
        }
        if *on == Hearing::Channel {
            for (pattern, hearers) in matching(&table, channel) {
                hearers.values().for_each(|client| send(client, &[b"pmessage", pattern, channel, text]));
            }
        }
    }

    /// Returns the number of clients that a message on a channel would reach.
    pub fn hearers(&self, on: Hearing, channel: &[u8]) -> usize {
        let table = self.table.lock();
        let by_pattern = match on {
            Hearing::Channel => matching(&table, channel).map(|(_, hearers)| hearers.len()).sum(),
            _ => 0,
        };
        table[on as usize].get(channel).map_or(0, Hearers::len) + by_pattern
    }

    /// Returns the channels with subscribers that match a pattern.
    pub fn channels(&self, kind: Hearing, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let table = self.table.lock();
        let is_meant = |channel: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, channel));
        table[kind as usize].keys().filter(is_meant).cloned().collect()
    }

    /// Returns the number of subscribers of the channel itself.
    pub fn subscribers(&self, kind: Hearing, channel: &[u8]) -> usize {
        self.table.lock()[kind as usize].get(channel).map_or(0, Hearers::len)
    }

    /// Returns the number of patterns with subscribers.
    pub fn patterns(&self) -> usize {
        self.table.lock()[Hearing::Pattern as usize].len()
    }
}
