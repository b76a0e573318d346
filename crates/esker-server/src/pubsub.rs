//! Channels, patterns, and who hears what is said there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::clients::Client;
use crate::glob;
use crate::resp::Out;

type Hearers = BTreeMap<u64, Arc<Client>>;

#[derive(Default)]
struct Table {
    channels: HashMap<Vec<u8>, Hearers>,
    patterns: HashMap<Vec<u8>, Hearers>,
}

/// All subscriptions.
#[derive(Default)]
pub struct PubSub {
    table: Mutex<Table>,
}

fn leave(places: &mut HashMap<Vec<u8>, Hearers>, name: &[u8], client: &Client) {
    if let Some(hearers) = places.get_mut(name) {
        hearers.remove(&client.id);
        if hearers.is_empty() {
            places.remove(name);
        }
    }
}

/// Sends a client a message that answers no request.
pub fn send(client: &Client, words: &[&[u8]]) {
    let mut out = Out::new(client.is_resp3.load(Ordering::Relaxed));
    out.push(words.len());
    words.iter().for_each(|word| out.bulk(word));
    client.send(&out.bytes);
}

impl PubSub {
    /// Subscribes to a channel.
    pub fn subscribe(&self, channel: &[u8], client: &Arc<Client>) {
        self.table.lock().channels.entry(channel.to_vec()).or_default().insert(client.id, client.clone());
    }

    /// Subscribes to all channels that match a pattern.
    pub fn subscribe_pattern(&self, pattern: &[u8], client: &Arc<Client>) {
        self.table.lock().patterns.entry(pattern.to_vec()).or_default().insert(client.id, client.clone());
    }

    /// The opposite of `subscribe`.
    pub fn unsubscribe(&self, channel: &[u8], client: &Client) {
        leave(&mut self.table.lock().channels, channel, client);
    }

    /// The opposite of `subscribe_pattern`.
    pub fn unsubscribe_pattern(&self, pattern: &[u8], client: &Client) {
        leave(&mut self.table.lock().patterns, pattern, client);
    }

    /// Says something on a channel. How many hear it.
    pub fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let table = self.table.lock();
        let mut heard = 0;
        if let Some(hearers) = table.channels.get(channel) {
            hearers.values().for_each(|client| send(client, &[b"message", channel, message]));
            heard += hearers.len();
        }
        for (pattern, hearers) in &table.patterns {
            if glob::matches(pattern, channel) {
                hearers.values().for_each(|client| send(client, &[b"pmessage", pattern, channel, message]));
                heard += hearers.len();
            }
        }
        heard
    }

    /// How many would hear something on a channel.
    pub fn hearers(&self, channel: &[u8]) -> usize {
        let table = self.table.lock();
        let patterns = table.patterns.iter().filter(|(pattern, _)| glob::matches(pattern, channel));
        table.channels.get(channel).map_or(0, Hearers::len)
            + patterns.map(|(_, hearers)| hearers.len()).sum::<usize>()
    }

    /// Channels with hearers that match a pattern.
    pub fn channels(&self, pattern: Option<&[u8]>) -> Vec<Vec<u8>> {
        let table = self.table.lock();
        let is_meant = |channel: &&Vec<u8>| pattern.is_none_or(|pattern| glob::matches(pattern, channel));
        table.channels.keys().filter(is_meant).cloned().collect()
    }

    /// How many are subscribed to a channel itself.
    pub fn subscribers(&self, channel: &[u8]) -> usize {
        self.table.lock().channels.get(channel).map_or(0, Hearers::len)
    }

    /// How many patterns have subscribers.
    pub fn patterns(&self) -> usize {
        self.table.lock().patterns.len()
    }
}
