//! Changes for clients that track keys or watch them.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Waker;

use esker_kv::buffer::{Buffer, Write};
use parking_lot::Mutex;

use super::history::{key_of, number_of_key, range_of};
use crate::store::{Changed, Changes};

/// Changes that wait for a subscriber. A subscriber that is further behind learns only that there were some.
const WAITING_MAX: usize = 10_000;

/// The subscribers of all spaces.
#[derive(Default)]
pub(super) struct Subscribers {
    list: Mutex<Vec<(u32, Weak<Mutex<Queue>>)>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u64, Changed)>,
    waker: Option<Waker>,
}

impl Queue {
    fn push(&mut self, commit: u64, changed: Changed) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((commit, changed));
        } else {
            self.waiting.clear();
            self.waiting.push_back((commit, Changed::Any));
        }
    }
}

impl Subscribers {
    /// Subscribes to the changes of the space of this number.
    pub(super) fn add(&self, number: u32) -> Box<dyn Changes> {
        let queue = Arc::default();
        let mut list = self.list.lock();
        list.retain(|(_, queue)| queue.strong_count() > 0);
        list.push((number, Arc::downgrade(&queue)));
        Box::new(Subscription(queue))
    }

    /// Notifies subscribers of a commit.
    pub(super) fn notify(&self, commit: u64, writes: &Buffer) {
        self.each(|number, queue| {
            let (from, to) = range_of(number);
            if !writes.touches(&from, &to) {
                return false;
            }
            for write in writes.writes() {
                let changed = match &write {
                    Write::Put(key, _) | Write::Remove(key) if number_of_key(key) == number => {
                        Changed::Key(key_of(key).to_vec())
                    }
                    Write::RemoveRange(from, end) if number_of_key(from) == number => {
                        Changed::Range(key_of(from).to_vec(), (*end != to).then(|| key_of(end).to_vec()))
                    }
                    _ => continue,
                };
                queue.push(commit, changed);
            }
            true
        });
    }

    /// Notifies all subscribers that anything may have changed.
    pub(super) fn notify_all(&self, commit: u64) {
        self.each(|_, queue| {
            queue.push(commit, Changed::Any);
            true
        });
    }

    /// Calls `add` with each queue, and wakes its subscriber if that returns true.
    fn each(&self, mut add: impl FnMut(u32, &mut Queue) -> bool) {
        let list: Vec<_> = self.list.lock().clone();
        for (number, queue) in list {
            let Some(queue) = queue.upgrade() else { continue };
            let mut queue = queue.lock();
            let waker = if add(number, &mut queue) { queue.waker.take() } else { None };
            drop(queue);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

struct Subscription(Arc<Mutex<Queue>>);

impl Changes for Subscription {
    fn next(&mut self, waker: &Waker) -> Option<(u64, Changed)> {
        let mut queue = self.0.lock();
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.waker = Some(waker.clone());
        }
        next
    }
}
