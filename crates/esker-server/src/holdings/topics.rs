//! Topics: their listeners, and the messages that listeners have not fetched yet.
//!
//! - A listener that fetches has each topic at most once, however often the topic was notified.
//! - A message names no key outside of what the listener watches. If a removed range begins before that, the
//!   message names the watched prefix or key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::clients::Client;
use crate::clients::pubsub;
use crate::store::spans::Stretch;

/// Maximum bytes of topics kept for one listener. Beyond it, further topics are dropped and the listener
/// learns that some were lost.
const BYTES_MAX: usize = 1 << 20;

/// Topics to be fetched by one connection.
#[derive(Debug, Default)]
pub struct Inbox {
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    topics: BTreeSet<Vec<u8>>,
    bytes: usize,
    has_lost: bool,
}

impl Inbox {
    /// Adds a topic.
    fn add(&self, topic: &[u8]) {
        let mut said = self.said.lock();
        if said.topics.contains(topic) {
            return;
        }
        if said.bytes + topic.len() > BYTES_MAX {
            said.has_lost = true;
            return;
        }
        said.bytes += topic.len();
        said.topics.insert(topic.to_vec());
    }

    /// Takes the topics since the last call. `None` if topics were dropped.
    pub fn take(&self) -> Option<BTreeSet<Vec<u8>>> {
        let said = std::mem::take(&mut *self.said.lock());
        (!said.has_lost).then_some(said.topics)
    }
}

/// What a connection listens to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interest {
    /// A topic.
    Topic(Vec<u8>),
    /// All topics that begin with this prefix.
    Prefix(Vec<u8>),
}

impl Interest {
    /// Returns the range of names that it covers.
    fn stretch(&self) -> Stretch {
        match self {
            Interest::Topic(name) => Stretch::point(name),
            Interest::Prefix(prefix) => Stretch::prefix(prefix),
        }
    }
}

/// A message on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saying {
    /// Name of the place of the topic.
    pub place: String,
    /// The topic.
    pub topic: Vec<u8>,
    /// The message. Empty for commands that only name topics.
    pub message: Vec<u8>,
}

/// A change to report to connections that watch keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The change of one key. The topic is the key, and the message says how it changed.
    Key(Saying),
    /// The change of a range of keys: the name of their place, the range, and how they changed.
    Stretch(String, Stretch, &'static str),
}

impl Saying {
    /// Returns the memory that it uses, in bytes.
    pub fn bytes(&self) -> usize {
        self.topic.len() + self.message.len()
    }
}

/// How a listener receives messages.
#[derive(Clone)]
pub enum Ear {
    /// It fetches topics from this inbox.
    Inbox(Arc<Inbox>),
    /// The server sends it topics and messages like those of a channel.
    Messages(Arc<Client>),
    /// The server sends it topics and messages like those of a pattern, with the watched key or prefix.
    Matches(Arc<Client>),
}

impl Ear {
    fn hear(&self, interest: &Interest, said: &Saying) {
        let (Interest::Topic(wanted) | Interest::Prefix(wanted)) = interest;
        match self {
            Ear::Inbox(inbox) => inbox.add(&said.topic),
            Ear::Messages(client) => pubsub::send(client, &[b"message", &said.topic, &said.message]),
            Ear::Matches(client) => pubsub::send(client, &[b"pmessage", wanted, &said.topic, &said.message]),
        }
    }
}

type Listeners = BTreeMap<u64, Ear>;

#[derive(Default)]
struct Table {
    listeners: HashMap<(String, Interest), Listeners>,
    /// Number of watched prefixes by their length.
    lengths: BTreeMap<usize, usize>,
}

/// Listeners by place.
#[derive(Default)]
pub struct Topics {
    table: Mutex<Table>,
    /// Number of interests. Relaxed: a new listener receives only later messages.
    len: AtomicUsize,
}

impl Topics {
    /// Adds a listener.
    pub fn listen(&self, place: &str, interest: Interest, client: u64, ear: Ear) {
        let table = &mut *self.table.lock();
        if let Interest::Prefix(prefix) = &interest
            && !table.listeners.contains_key(&(place.to_owned(), interest.clone()))
        {
            *table.lengths.entry(prefix.len()).or_default() += 1;
        }
        table.listeners.entry((place.to_owned(), interest)).or_default().insert(client, ear);
        self.len.store(table.listeners.len(), Ordering::Relaxed);
    }

    /// Removes a listener.
    pub fn unlisten(&self, place: &str, interest: &Interest, client: u64) {
        let table = &mut *self.table.lock();
        let place = (place.to_owned(), interest.clone());
        let Some(of_place) = table.listeners.get_mut(&place) else { return };
        of_place.remove(&client);
        if !of_place.is_empty() {
            return;
        }
        table.listeners.remove(&place);
        self.len.store(table.listeners.len(), Ordering::Relaxed);
        if let Interest::Prefix(prefix) = interest
            && let Some(count) = table.lengths.get_mut(&prefix.len())
        {
            *count -= 1;
            if *count == 0 {
                table.lengths.remove(&prefix.len());
            }
        }
    }

    /// Returns whether there are no listeners.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Delivers a message. Returns the connections that have it to fetch.
    pub fn say(&self, said: &Saying) -> Vec<u64> {
        let mut heard = Vec::new();
        if self.is_empty() {
            return heard;
        }
        let table = self.table.lock();
        let topic = &said.topic;
        let prefixes = table.lengths.range(..=topic.len());
        let prefixes = prefixes.map(|(len, _)| Interest::Prefix(topic[..*len].to_vec()));
        for interest in prefixes.chain([Interest::Topic(topic.clone())]) {
            let place = (said.place.clone(), interest);
            for (client, ear) in table.listeners.get(&place).into_iter().flatten() {
                ear.hear(&place.1, said);
                heard.extend(matches!(ear, Ear::Inbox(_)).then_some(*client));
            }
        }
        heard
    }

    /// Reports a change to the connections that watch its keys.
    pub fn tell(&self, change: &Change) {
        let (place, stretch, how) = match change {
            Change::Key(said) => return drop(self.say(said)),
            Change::Stretch(place, stretch, how) => (place, stretch, how),
        };
        if self.is_empty() {
            return;
        }
        for ((of, interest), listeners) in &self.table.lock().listeners {
            let watched = interest.stretch();
            if of == place && watched.meets(stretch) {
                let from =
                    if *how == "delrange" { (&stretch.from).max(&watched.from) } else { &stretch.from };
                let (topic, message) = (from.clone(), how.as_bytes().to_vec());
                let said = Saying { place: place.clone(), topic, message };
                listeners.values().for_each(|ear| ear.hear(interest, &said));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn say(topics: &Topics, place: &str, topic: &[u8]) -> Vec<u64> {
        topics.say(&Saying { place: place.to_owned(), topic: topic.to_vec(), message: b"text".to_vec() })
    }

    #[test]
    fn a_topic_is_heard_once() {
        let (topics, inbox) = (Topics::default(), Arc::new(Inbox::default()));
        let (exact, prefix) = (Interest::Topic(b"jobs/7".to_vec()), Interest::Prefix(b"jobs/".to_vec()));
        for interest in [&exact, &prefix, &prefix] {
            topics.listen("a", interest.clone(), 1, Ear::Inbox(inbox.clone()));
        }
        assert_eq!(say(&topics, "a", b"jobs/7"), [1, 1]);
        assert_eq!(say(&topics, "a", b"jobs/8"), [1]);
        assert_eq!((say(&topics, "a", b"jobs"), say(&topics, "b", b"jobs/7")), (vec![], vec![]));
        assert_eq!(inbox.take(), Some([b"jobs/7".to_vec(), b"jobs/8".to_vec()].into()));
        assert_eq!(inbox.take(), Some(BTreeSet::new()));
        topics.unlisten("a", &exact, 1);
        topics.unlisten("a", &prefix, 1);
        assert!(say(&topics, "a", b"jobs/7").is_empty() && topics.is_empty());
        assert!(topics.table.lock().lengths.is_empty());
    }

    #[test]
    fn listeners_that_are_sent_messages_need_not_fetch() {
        let (topics, client) = (Topics::default(), Arc::new(Client::default()));
        topics.listen("a", Interest::Topic(b"t".to_vec()), 1, Ear::Messages(client.clone()));
        assert!(say(&topics, "a", b"t").is_empty());
        assert_eq!(client.outbox.take_messages(), b"*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$4\r\ntext\r\n");
        topics.listen("b", Interest::Prefix(b"".to_vec()), 1, Ear::Matches(client.clone()));
        topics.listen("b", Interest::Prefix(b"x".to_vec()), 1, Ear::Matches(client.clone()));
        topics.tell(&Change::Stretch("b".to_owned(), Stretch::range(b"own", b"z"), "delrange"));
        let said = String::from_utf8(client.outbox.take_messages()).unwrap();
        assert_eq!(said.matches("$3\r\nown\r\n$8\r\ndelrange").count(), 1);
        assert_eq!(said.matches("$1\r\nx\r\n$1\r\nx\r\n$8\r\ndelrange").count(), 1);
        topics.tell(&Change::Stretch("b".to_owned(), Stretch::range(b"", b"x"), "all"));
        assert_eq!(
            client.outbox.take_messages(),
            b"*4\r\n$8\r\npmessage\r\n$0\r\n\r\n$0\r\n\r\n$3\r\nall\r\n"
        );
    }

    #[test]
    fn a_listener_that_does_not_fetch_learns_of_the_loss() {
        let inbox = Inbox::default();
        (0..2000_u32).for_each(|n| inbox.add(&[&n.to_be_bytes()[..], &[0; 1000]].concat()));
        assert_eq!((inbox.take(), inbox.take()), (None, Some(BTreeSet::new())));
    }
}
