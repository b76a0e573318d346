//! Who is told of commits: watchers of keys, listeners to topics.
//!
//! ```text
//!   commit --published--> Watchers --of its keys, of its topics--> queue of each --next--> the watcher
//! ```
//!
//! watchers.1. Commits are told in their order, once they are visible, and wait for nobody: who does not keep up is told that it has missed some.
//! watchers.2. Nobody watching costs a commit one load.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::commit::CommitRequest;
use crate::types::expiry::value_of;
use crate::types::key::decode_key;
use crate::types::key_range::{End, KeyRange};
use crate::types::{SeqNo, Value};

/// So many events wait for a watcher.
const QUEUED_MAX: usize = 16 << 10;

/// What a watcher is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A key has this value; none: it has one that is in a blob file, or is made of operands.
    Put(Vec<u8>, Option<Value>),
    /// A key is gone.
    Removed(Vec<u8>),
    /// A key has expired.
    Expired(Vec<u8>),
    /// All keys from one on, and before another, are gone.
    RangeRemoved(Vec<u8>, Vec<u8>),
    /// Somebody has said something under a topic.
    Notice(Arc<str>, Value),
    /// Some events, up to this commit, are not told.
    Missed,
}

/// What somebody wants to be told.
#[derive(Debug)]
pub(crate) enum Interest {
    /// Changes of keys in a range.
    Keys(KeyRange),
    /// What is said under topics that begin so; `true`: under this one alone.
    Topics(String, bool),
}

impl Interest {
    fn takes(&self, topic: &str) -> bool {
        match self {
            Interest::Topics(name, true) => topic == name,
            Interest::Topics(prefix, false) => topic.starts_with(&**prefix),
            Interest::Keys(_) => false,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<(SeqNo, Event)>,
    /// Of each key the commit whose event counts, if events are to be few.
    newest: Option<HashMap<Vec<u8>, SeqNo>>,
    /// The database is closed.
    is_ended: bool,
}

impl Queue {
    fn push(&mut self, seq: SeqNo, event: Event) {
        if matches!(self.events.back(), Some((last, Event::Missed)) if *last == seq) {
            return;
        }
        if let (Some(newest), Event::Put(key, _) | Event::Removed(key) | Event::Expired(key)) =
            (&mut self.newest, &event)
        {
            newest.insert(key.clone(), seq);
            if self.events.len() >= QUEUED_MAX {
                let is_newest = |(seq, event): &(SeqNo, Event)| match event {
                    Event::Put(key, _) | Event::Removed(key) | Event::Expired(key) => {
                        newest.get(key) == Some(seq)
                    }
                    _ => true,
                };
                self.events.retain(is_newest);
            }
        }
        if self.events.len() >= QUEUED_MAX {
            self.events.clear();
            self.newest.iter_mut().for_each(HashMap::clear);
            self.events.push_back((seq, Event::Missed));
        } else {
            self.events.push_back((seq, event));
        }
    }

    fn pop(&mut self) -> Option<(SeqNo, Event)> {
        loop {
            let (seq, event) = self.events.pop_front()?;
            match (&mut self.newest, &event) {
                (Some(newest), Event::Put(key, _) | Event::Removed(key) | Event::Expired(key)) => {
                    if newest.get(key) == Some(&seq) {
                        newest.remove(key);
                        return Some((seq, event));
                    }
                }
                _ => return Some((seq, event)),
            }
        }
    }
}

/// One who is told.
#[derive(Debug)]
pub(crate) struct Watcher {
    interest: Interest,
    queue: Mutex<Queue>,
    told: Condvar,
}

impl Watcher {
    /// The next event; none if there is none within this time, or for ever if the database is closed.
    pub(crate) fn next(&self, patience: Option<Duration>) -> Option<(SeqNo, Event)> {
        let mut queue = self.queue.lock();
        let is_idle = |queue: &mut Queue| queue.events.is_empty() && !queue.is_ended;
        match patience {
            Some(patience) => drop(self.told.wait_while_for(&mut queue, is_idle, patience)),
            None => self.told.wait_while(&mut queue, is_idle),
        }
        queue.pop()
    }

    /// Whether the database is closed.
    pub(crate) fn is_ended(&self) -> bool {
        self.queue.lock().is_ended
    }
}

/// All of a database.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// Relaxed: who begins to watch is told of commits that begin later.
    count: AtomicUsize,
    all: Mutex<Vec<Weak<Watcher>>>,
}

impl Watchers {
    /// Begins to watch. `is_coalesced`: of the events of a key that wait only the newest counts.
    pub(crate) fn add(&self, interest: Interest, is_coalesced: bool) -> Arc<Watcher> {
        let queue = Queue { newest: is_coalesced.then(HashMap::new), ..Queue::default() };
        let watcher = Arc::new(Watcher { interest, queue: Mutex::new(queue), told: Condvar::new() });
        let mut all = self.all.lock();
        all.push(Arc::downgrade(&watcher));
        self.count.store(all.len(), Ordering::Relaxed);
        watcher
    }

    /// Whether anybody is to be told (watchers.2).
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn each(&self, mut tell: impl FnMut(&Interest, &mut Queue)) {
        let mut all = self.all.lock();
        all.retain(|watcher| {
            let Some(watcher) = watcher.upgrade() else { return false };
            tell(&watcher.interest, &mut watcher.queue.lock());
            watcher.told.notify_all();
            true
        });
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// A commit is visible. For the one who commits (watchers.1).
    pub(super) fn committed(&self, request: &CommitRequest, seq: SeqNo) {
        self.each(|interest, queue| {
            for (topic, text) in request.notices.iter().filter(|(topic, _)| interest.takes(topic)) {
                queue.push(seq, Event::Notice(topic.clone(), text.clone()));
            }
            let Interest::Keys(range) = interest else { return };
            if !request.layers.is_empty() {
                // It has no list of its keys.
                let of_range = decode_key(&range.start).map(|(id, _)| id);
                if request.keyspaces.iter().any(|keyspace| Some(keyspace.id) == of_range) {
                    queue.push(seq, Event::Missed);
                }
                return;
            }
            let set = &request.set;
            for (start, end) in set.ranges() {
                let removed = KeyRange { start: start.clone(), end: End::Excluded(end.clone()) };
                if removed.overlaps(range) {
                    queue.push(seq, Event::RangeRemoved(start.clone(), end.clone()));
                }
            }
            for entry in set.entries_from(&range.start, seq).take_while(|entry| range.end.admits(entry.key)) {
                let key = entry.key.to_vec();
                let is_elsewhere = entry.kind.needs_fetch() || entry.kind.is_operand();
                let event = match (entry.kind.is_live(), is_elsewhere) {
                    (true, true) => Event::Put(key, None),
                    (true, false) => Event::Put(key, Some(Value::copy_of(value_of(entry.kind, entry.value)))),
                    (false, _) if entry.kind.is_sweep() => Event::Expired(key),
                    (false, _) => Event::Removed(key),
                };
                queue.push(seq, event);
            }
        });
    }

    /// The database is closed: nobody is told anything more.
    pub(crate) fn end(&self) {
        self.each(|_, queue| queue.is_ended = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str) -> Event {
        Event::Put(key.into(), None)
    }

    fn drained(queue: &mut Queue) -> Vec<(u64, Event)> {
        std::iter::from_fn(|| queue.pop()).map(|(seq, event)| (seq.get(), event)).collect()
    }

    #[test]
    fn watchers_1_who_does_not_keep_up_is_told_so_once() {
        let mut queue = Queue::default();
        for n in 0..QUEUED_MAX as u64 + 2 {
            queue.push(SeqNo::new(n), put("a"));
        }
        let last = QUEUED_MAX as u64;
        assert_eq!(drained(&mut queue), [(last, Event::Missed), (last + 1, put("a"))], "watchers.1");
    }

    #[test]
    fn of_the_events_of_a_key_the_newest_counts_if_asked() {
        let mut queue = Queue { newest: Some(HashMap::new()), ..Queue::default() };
        for (n, key) in ["a", "b", "a", "c", "b"].into_iter().enumerate() {
            queue.push(SeqNo::new(n as u64), put(key));
        }
        assert_eq!(drained(&mut queue), [(2, put("a")), (3, put("c")), (4, put("b"))]);
        for n in 0..4 * QUEUED_MAX as u64 {
            queue.push(SeqNo::new(n), put(if n % 2 == 0 { "a" } else { "b" }));
        }
        assert_eq!(drained(&mut queue).len(), 2, "a few keys are never too many events");
    }
}
