//! Subscriptions to commits: watchers of keys, listeners to topics.
//!
//! ```text
//!   commit --published--> Watchers --matching keys or topics--> queue of each --next--> the watcher
//! ```
//!
//! watchers.1. Events are delivered in commit order, once the commit is visible. Commits never wait for a
//!     watcher: a slow watcher receives an event that some were missed.
//!
//! The queued events of all watchers of a database use at most `1 / MEMORY_PART` of its memory budget, shared
//! equally, and are counted in it. Each watcher may always use [`BYTES_MIN`] bytes. Without watchers a commit
//! pays for one load.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::request::CommitRequest;
use crate::cache::{BudgetKind, MemoryBudget, Reservation};
use crate::types::expiry::value_of;
use crate::types::key::decode_key;
use crate::types::key_range::{End, KeyRange};
use crate::types::{SeqNo, Value};

/// Maximum number of events queued for a watcher.
const QUEUED_MAX: usize = 16 << 10;
/// The events of all watchers use at most `1 / MEMORY_PART` of the memory budget.
const MEMORY_PART: u64 = 8;
const BYTES_MIN: u64 = 64 << 10;
/// Memory of an event besides its key and value.
const EVENT_BYTES: usize = 96;

/// An event delivered to a watcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A key was put. The value is `None` if it is in a blob file or must be computed from operands.
    Put(Vec<u8>, Option<Value>),
    /// A key was removed.
    Removed(Vec<u8>),
    /// A key has expired.
    Expired(Vec<u8>),
    /// All keys in a range were removed: start (included) and end (excluded).
    RangeRemoved(Vec<u8>, Vec<u8>),
    /// A notice was published under a topic.
    Notice(Arc<str>, Value),
    /// Some events up to this commit were dropped.
    Missed,
}

impl Event {
    /// Returns the memory used by the event.
    fn bytes(&self) -> u64 {
        let own = match self {
            Event::Put(key, value) => key.len() + value.as_ref().map_or(0, |value| value.len()),
            Event::Removed(key) | Event::Expired(key) => key.len(),
            Event::RangeRemoved(start, end) => start.len() + end.len(),
            Event::Notice(topic, text) => topic.len() + text.len(),
            Event::Missed => 0,
        };
        (own + EVENT_BYTES) as u64
    }
}

/// What a watcher subscribes to.
#[derive(Debug)]
pub(crate) enum Interest {
    /// Changes of keys in a range.
    Keys(KeyRange),
    /// Notices under topics with this prefix, or, if `true`, under exactly this topic.
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

#[derive(Debug)]
struct Queue {
    events: VecDeque<(SeqNo, Event)>,
    /// Bytes of the events.
    bytes: u64,
    /// The reserved part of the memory budget.
    memory: Reservation,
    /// For a coalescing queue: the newest queued commit of each key.
    newest: Option<HashMap<Vec<u8>, SeqNo>>,
    /// The task that waits for the next event.
    waker: Option<Waker>,
    /// Whether the database is closed.
    is_ended: bool,
}

impl Queue {
    fn new(is_coalesced: bool, budget: &Arc<MemoryBudget>) -> Self {
        Queue {
            events: VecDeque::new(),
            bytes: 0,
            memory: budget.reserve(BudgetKind::Event, 0),
            newest: is_coalesced.then(HashMap::new),
            waker: None,
            is_ended: false,
        }
    }

    /// Adds an event. `share` is the number of bytes that may be queued.
    fn push(&mut self, seq: SeqNo, event: Event, share: u64) {
        self.push_unreserved(seq, event, share);
        self.memory.resize(self.bytes);
    }

    fn push_unreserved(&mut self, seq: SeqNo, event: Event, share: u64) {
        if matches!(self.events.back(), Some((last, Event::Missed)) if *last == seq) {
            return;
        }
        let mut is_crowded = false;
        if let (Some(newest), Event::Put(key, _) | Event::Removed(key) | Event::Expired(key)) =
            (&mut self.newest, &event)
        {
            newest.insert(key.clone(), seq);
            if self.events.len() >= QUEUED_MAX || self.bytes + event.bytes() > share {
                let is_newest = |(seq, event): &(SeqNo, Event)| match event {
                    Event::Put(key, _) | Event::Removed(key) | Event::Expired(key) => {
                        newest.get(key) == Some(seq)
                    }
                    _ => true,
                };
                self.events.retain(is_newest);
                self.bytes = self.events.iter().map(|(_, event)| event.bytes()).sum();
                // Otherwise each of the next events would scan the whole queue again.
                is_crowded = self.events.len() > QUEUED_MAX / 4 * 3 || self.bytes > share / 4 * 3;
            }
        }
        let mut event = event;
        if let Event::Put(_, value) = &mut event
            && value.as_ref().is_some_and(|value| value.len() as u64 > share / 4)
        {
            // The watcher reads a large value itself.
            *value = None;
        }
        if is_crowded || self.events.len() >= QUEUED_MAX || self.bytes + event.bytes() > share {
            self.events.clear();
            self.newest.iter_mut().for_each(HashMap::clear);
            self.bytes = 0;
            event = Event::Missed;
        }
        self.bytes += event.bytes();
        self.events.push_back((seq, event));
    }

    fn pop(&mut self) -> Option<(SeqNo, Event)> {
        let popped = self.pop_unreserved();
        self.memory.resize(self.bytes);
        popped
    }

    fn pop_unreserved(&mut self) -> Option<(SeqNo, Event)> {
        loop {
            let (seq, event) = self.events.pop_front()?;
            self.bytes -= event.bytes();
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

/// A watcher and its queue.
#[derive(Debug)]
pub(crate) struct Watcher {
    interest: Interest,
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Watcher {
    /// Returns the next event. `None` if there is none within `patience`, or if the database is closed and
    /// the queue is empty.
    pub(crate) fn next(&self, patience: Option<Duration>) -> Option<(SeqNo, Event)> {
        let mut queue = self.queue.lock();
        let is_idle = |queue: &mut Queue| queue.events.is_empty() && !queue.is_ended;
        match patience {
            Some(patience) => drop(self.wake.wait_while_for(&mut queue, is_idle, patience)),
            None => self.wake.wait_while(&mut queue, is_idle),
        }
        queue.pop()
    }

    /// Same as [`next`](Self::next), but wakes a task instead of waiting.
    pub(crate) fn poll_next(&self, waker: &Waker) -> Poll<Option<(SeqNo, Event)>> {
        let mut queue = self.queue.lock();
        let popped = queue.pop();
        if popped.is_none() && !queue.is_ended {
            queue.waker = Some(waker.clone());
            return Poll::Pending;
        }
        Poll::Ready(popped)
    }

    /// Returns whether the database is closed.
    pub(crate) fn is_ended(&self) -> bool {
        self.queue.lock().is_ended
    }
}

/// All watchers of a database.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// Relaxed: a new watcher receives commits that start later.
    count: AtomicUsize,
    /// Maximum bytes of queued events. Relaxed: a single number.
    bytes_max: AtomicU64,
    all: Mutex<Vec<Weak<Watcher>>>,
}

impl Watchers {
    /// Adds a watcher. If `is_coalesced`, only the newest queued event of each key is delivered.
    pub(crate) fn add(
        &self,
        interest: Interest,
        is_coalesced: bool,
        budget: &Arc<MemoryBudget>,
    ) -> Arc<Watcher> {
        let queue = Mutex::new(Queue::new(is_coalesced, budget));
        let watcher = Arc::new(Watcher { interest, queue, wake: Condvar::new() });
        let mut all = self.all.lock();
        all.retain(|watcher| watcher.strong_count() > 0);
        all.push(Arc::downgrade(&watcher));
        self.bytes_max.store(budget.capacity_bytes() / MEMORY_PART, Ordering::Relaxed);
        self.count.store(all.len(), Ordering::Relaxed);
        watcher
    }

    /// Returns whether there are watchers.
    #[inline]
    pub(crate) fn are_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn each(&self, mut tell: impl FnMut(&Interest, &mut Queue, u64)) {
        let mut wakers = Vec::new();
        let mut all = self.all.lock();
        let share = self.bytes_max.load(Ordering::Relaxed) / (all.len() as u64).max(1);
        let share = share.max(BYTES_MIN);
        all.retain(|watcher| {
            let Some(watcher) = watcher.upgrade() else { return false };
            let mut queue = watcher.queue.lock();
            tell(&watcher.interest, &mut queue, share);
            if !queue.events.is_empty() || queue.is_ended {
                wakers.extend(queue.waker.take());
            }
            drop(queue);
            watcher.wake.notify_all();
            true
        });
        self.count.store(all.len(), Ordering::Relaxed);
        drop(all);
        // A waker may run code of the program, which may use the database.
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Delivers the events of a visible commit. Called by the leader (watchers.1).
    pub(super) fn committed(&self, request: &CommitRequest, seq: SeqNo) {
        self.each(|interest, queue, share| {
            for (topic, text) in request.notices.iter().filter(|(topic, _)| interest.takes(topic)) {
                queue.push(seq, Event::Notice(topic.clone(), text.clone()), share);
            }
            let Interest::Keys(range) = interest else { return };
            if !request.layers.is_empty() {
                // A large transaction has no list of its keys.
                let of_range = decode_key(&range.start).map(|(id, _)| id);
                if request.keyspaces.iter().any(|keyspace| Some(keyspace.id) == of_range) {
                    queue.push(seq, Event::Missed, share);
                }
                return;
            }
            let set = &request.set;
            for (start, end) in set.ranges() {
                let removed = KeyRange { start: start.clone(), end: End::Excluded(end.clone()) };
                if removed.overlaps(range) {
                    queue.push(seq, Event::RangeRemoved(start.clone(), end.clone()), share);
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
                queue.push(seq, event, share);
            }
        });
    }

    /// Ends all subscriptions because the database is closed.
    pub(crate) fn end(&self) {
        self.each(|_, queue, _| queue.is_ended = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::layers::Layers;
    use crate::txn::request::Durability;

    fn put(key: &str) -> Event {
        Event::Put(key.into(), None)
    }

    const MANY: u64 = 1 << 30;

    fn queue(is_coalesced: bool) -> Queue {
        Queue::new(is_coalesced, &MemoryBudget::new(MANY))
    }

    fn drained(queue: &mut Queue) -> Vec<(u64, Event)> {
        std::iter::from_fn(|| queue.pop()).map(|(seq, event)| (seq.get(), event)).collect()
    }

    #[test]
    fn watchers_1_a_slow_watcher_gets_missed_once() {
        let mut queue = queue(false);
        for n in 0..QUEUED_MAX as u64 + 2 {
            queue.push(SeqNo::new(n), put("a"), MANY);
        }
        let last = QUEUED_MAX as u64;
        assert_eq!(drained(&mut queue), [(last, Event::Missed), (last + 1, put("a"))], "watchers.1");
    }

    #[test]
    fn of_the_events_of_a_key_the_newest_counts_if_asked() {
        let mut queue = queue(true);
        for (n, key) in ["a", "b", "a", "c", "b"].into_iter().enumerate() {
            queue.push(SeqNo::new(n as u64), put(key), MANY);
        }
        assert_eq!(drained(&mut queue), [(2, put("a")), (3, put("c")), (4, put("b"))]);
        for n in 0..4 * QUEUED_MAX as u64 {
            queue.push(SeqNo::new(n), put(if n % 2 == 0 { "a" } else { "b" }), MANY);
        }
        assert_eq!(drained(&mut queue).len(), 2, "a few keys are never too many events");
    }

    #[test]
    fn watchers_3_what_waits_is_bounded_in_bytes_and_counted() {
        let budget = MemoryBudget::new(8 << 20);
        let watchers = Watchers::default();
        let listeners: Vec<_> =
            (0..4).map(|_| watchers.add(Interest::Topics("t".to_owned(), true), false, &budget)).collect();
        let reserved = || budget.reserved_bytes(BudgetKind::Event);
        let notices = vec![(Arc::from("t"), Value::copy_of(&[7; 10_000]))];
        let plain = CommitRequest::of(Arc::default(), Layers::default(), Durability::Sync);
        let request = CommitRequest { notices, ..plain };
        for n in 1..100 {
            watchers.committed(&request, SeqNo::new(n));
            assert!(reserved() <= 1 << 20);
        }
        assert!(reserved() > 100_000);
        let events: Vec<_> = std::iter::from_fn(|| listeners[0].next(Some(Duration::ZERO))).collect();
        assert!(matches!(events[0], (_, Event::Missed)) && events.len() > 5, "watchers.1");
        assert!(events[1..].iter().all(|(_, event)| *event != Event::Missed), "watchers.1");
        drop(listeners);
        assert_eq!(reserved(), 0);
        // A value larger than the share is read by the watcher.
        let mut queue = queue(false);
        queue.push(SeqNo::new(1), Event::Put(b"k".into(), Some(Value::copy_of(&[0; 5000]))), 10_000);
        assert_eq!(queue.pop(), Some((SeqNo::new(1), put("k"))));
    }
}
