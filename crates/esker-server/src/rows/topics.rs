//! Topics: who listens, and what was said and not fetched yet.
//!
//! topics.1. A topic is kept once for a listener, however often it was said before it is fetched.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

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

type Listeners = BTreeMap<u64, Arc<Inbox>>;

/// All listeners, by keyspace.
#[derive(Default)]
pub struct Topics {
    listeners: Mutex<HashMap<(String, Interest), Listeners>>,
}

impl Topics {
    /// A connection listens from now on.
    pub fn listen(&self, keyspace: &str, interest: Interest, client: u64, inbox: &Arc<Inbox>) {
        let mut listeners = self.listeners.lock();
        listeners.entry((keyspace.to_owned(), interest)).or_default().insert(client, inbox.clone());
    }

    /// A connection listens no more.
    pub fn unlisten(&self, keyspace: &str, interest: &Interest, client: u64) {
        let mut listeners = self.listeners.lock();
        let place = (keyspace.to_owned(), interest.clone());
        if let Some(of_place) = listeners.get_mut(&place) {
            of_place.remove(&client);
            if of_place.is_empty() {
                listeners.remove(&place);
            }
        }
    }

    /// Says a topic. The connections that hear it.
    pub fn say(&self, keyspace: &str, topic: &[u8]) -> Vec<u64> {
        let listeners = self.listeners.lock();
        if listeners.is_empty() {
            return Vec::new();
        }
        let prefixes = (0..=topic.len()).map(|len| Interest::Prefix(topic[..len].to_vec()));
        let mut heard = Vec::new();
        for interest in prefixes.chain([Interest::Topic(topic.to_vec())]) {
            for (client, inbox) in listeners.get(&(keyspace.to_owned(), interest)).into_iter().flatten() {
                inbox.add(topic);
                heard.push(*client);
            }
        }
        heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_1_a_topic_is_heard_once() {
        let (topics, inbox) = (Topics::default(), Arc::new(Inbox::default()));
        let (exact, prefix) = (Interest::Topic(b"jobs/7".to_vec()), Interest::Prefix(b"jobs/".to_vec()));
        topics.listen("a", exact.clone(), 1, &inbox);
        topics.listen("a", prefix.clone(), 1, &inbox);
        assert_eq!(topics.say("a", b"jobs/7"), [1, 1]);
        assert_eq!(topics.say("a", b"jobs/8"), [1]);
        assert_eq!((topics.say("a", b"jobs"), topics.say("b", b"jobs/7")), (vec![], vec![]));
        assert_eq!(inbox.take(), Some([b"jobs/7".to_vec(), b"jobs/8".to_vec()].into()), "topics.1");
        assert_eq!(inbox.take(), Some(BTreeSet::new()));
        topics.unlisten("a", &exact, 1);
        topics.unlisten("a", &prefix, 1);
        assert!(topics.say("a", b"jobs/7").is_empty() && topics.listeners.lock().is_empty());
    }

    #[test]
    fn who_does_not_fetch_is_told_of_the_loss() {
        let inbox = Inbox::default();
        (0..2000_u32).for_each(|n| inbox.add(&[&n.to_be_bytes()[..], &[0; 1000]].concat()));
        assert_eq!((inbox.take(), inbox.take()), (None, Some(BTreeSet::new())));
    }
}
