//! Topics: who listens, and what was said and not fetched yet.
//!
//! topics.1. A topic is kept once for a listener that fetches, however often it was said before.
//! topics.2. A message names no key outside of what is watched: if a removed range begins before it, the message has the watched prefix or key.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::clients::Client;
use crate::clients::pubsub;
use crate::store::spans::Stretch;

/// So many bytes of topics may wait for one listener. Then the rest is lost, and it is told so.
const BYTES_MAX: usize = 1 << 20;

/// What was said to one connection.
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
    /// Keeps a topic (topics.1).
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

    /// What was said since the last time; none: more was said than is kept.
    pub fn take(&self) -> Option<BTreeSet<Vec<u8>>> {
        let said = std::mem::take(&mut *self.said.lock());
        (!said.has_lost).then_some(said.topics)
    }
}

/// What is listened to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Interest {
    /// A topic.
    Topic(Vec<u8>),
    /// All topics that begin with this.
    Prefix(Vec<u8>),
}

impl Interest {
    /// The names it is about.
    fn stretch(&self) -> Stretch {
        match self {
            Interest::Topic(name) => Stretch::point(name),
            Interest::Prefix(prefix) => Stretch::prefix(prefix),
        }
    }
}

/// Something that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saying {
    /// The name of the place where it is said.
    pub place: String,
    /// The topic.
    pub topic: Vec<u8>,
    /// What is said; of commands that say topics alone it is nothing.
    pub message: Vec<u8>,
}

/// A change that those are told of who watch keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Of a key: the topic; the message is how.
    Key(Saying),
    /// Of a stretch of keys in a place of this name, and how.
    Stretch(String, Stretch, &'static str),
}

impl Saying {
    /// How much memory it takes.
    pub fn bytes(&self) -> usize {
        self.topic.len() + self.message.len()
    }
}

/// How a listener hears.
#[derive(Clone)]
pub enum Ear {
    /// It fetches topics.
    Inbox(Arc<Inbox>),
    /// It is sent topics and what is said, as messages of a channel.
    Messages(Arc<Client>),
    /// The same, as messages of a pattern: with what it listens to.
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
    /// How long prefixes are that somebody listens to, and how many of each length.
    lengths: BTreeMap<usize, usize>,
}

/// Listeners, by place.
#[derive(Default)]
pub struct Topics {
    table: Mutex<Table>,
    /// How many interests there are. Relaxed: who begins to listen hears what is said later.
    len: AtomicUsize,
}

impl Topics {
    /// A connection listens from now on.
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

    /// A connection listens no more.
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

    /// Whether nobody listens.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }

    /// Says something. The connections that have it to fetch.
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

    /// Tells of a change.
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
                // topics.2
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
    fn topics_1_a_topic_is_heard_once() {
        let (topics, inbox) = (Topics::default(), Arc::new(Inbox::default()));
        let (exact, prefix) = (Interest::Topic(b"jobs/7".to_vec()), Interest::Prefix(b"jobs/".to_vec()));
        for interest in [&exact, &prefix, &prefix] {
            topics.listen("a", interest.clone(), 1, Ear::Inbox(inbox.clone()));
        }
        assert_eq!(say(&topics, "a", b"jobs/7"), [1, 1]);
        assert_eq!(say(&topics, "a", b"jobs/8"), [1]);
        assert_eq!((say(&topics, "a", b"jobs"), say(&topics, "b", b"jobs/7")), (vec![], vec![]));
        assert_eq!(inbox.take(), Some([b"jobs/7".to_vec(), b"jobs/8".to_vec()].into()), "topics.1");
        assert_eq!(inbox.take(), Some(BTreeSet::new()));
        topics.unlisten("a", &exact, 1);
        topics.unlisten("a", &prefix, 1);
        assert!(say(&topics, "a", b"jobs/7").is_empty() && topics.is_empty());
        assert!(topics.table.lock().lengths.is_empty());
    }

    #[test]
    fn who_is_sent_what_is_said_need_not_fetch() {
        let (topics, client) = (Topics::default(), Arc::new(Client::default()));
        topics.listen("a", Interest::Topic(b"t".to_vec()), 1, Ear::Messages(client.clone()));
        assert!(say(&topics, "a", b"t").is_empty());
        assert_eq!(client.outbox.take_messages(), b"*3\r\n$7\r\nmessage\r\n$1\r\nt\r\n$4\r\ntext\r\n");
        topics.listen("b", Interest::Prefix(b"".to_vec()), 1, Ear::Matches(client.clone()));
        topics.listen("b", Interest::Prefix(b"x".to_vec()), 1, Ear::Matches(client.clone()));
        topics.tell(&Change::Stretch("b".to_owned(), Stretch::range(b"own", b"z"), "delrange"));
        let said = String::from_utf8(client.outbox.take_messages()).unwrap();
        assert_eq!(said.matches("$3\r\nown\r\n$8\r\ndelrange").count(), 1, "topics.2");
        assert_eq!(said.matches("$1\r\nx\r\n$1\r\nx\r\n$8\r\ndelrange").count(), 1, "topics.2");
        topics.tell(&Change::Stretch("b".to_owned(), Stretch::range(b"", b"x"), "all"));
        assert_eq!(
            client.outbox.take_messages(),
            b"*4\r\n$8\r\npmessage\r\n$0\r\n\r\n$0\r\n\r\n$3\r\nall\r\n"
        );
    }

    #[test]
    fn who_does_not_fetch_is_told_of_the_loss() {
        let inbox = Inbox::default();
        (0..2000_u32).for_each(|n| inbox.add(&[&n.to_be_bytes()[..], &[0; 1000]].concat()));
        assert_eq!((inbox.take(), inbox.take()), (None, Some(BTreeSet::new())));
    }
}
