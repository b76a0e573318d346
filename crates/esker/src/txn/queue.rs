//! Group commit: the first caller becomes the leader and executes the requests of all callers that wait.
//!
//! ```text
//!   submit --no leader--> lead: [own request] + [all waiting] --> outcomes, then the next one leads
//!          `-leader runs-> wait: until the request is done, or this caller has to lead
//! ```
//!
//! queue.1. There is at most one leader at a time. Requests are executed in the order of submission.
//! queue.2. Every caller gets the outcome of its own request. If a leader panics, its followers panic too.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::fault::{self, Fault};
use crate::sync::{Condvar, Mutex};
use crate::types::parts::{Part, timed};

/// Maximum number of requests in a group.
const GROUP_MAX: usize = 1024;

/// A queue of requests `R` with outcomes `O`.
pub struct GroupQueue<R, O> {
    inner: Mutex<Inner<R, O>>,
}

struct Inner<R, O> {
    leading: bool,
    waiting: VecDeque<Arc<Ticket<R, O>>>,
}

struct Ticket<R, O> {
    state: Mutex<State<R, O>>,
    wake: Condvar,
}

enum State<R, O> {
    /// In the queue.
    Waiting(R),
    /// Taken by a leader.
    Taken,
    /// At the head of the queue without a leader: the caller must lead.
    Lead(R),
    /// Done.
    Done(O),
    /// The leader panicked.
    Abandoned,
}

impl<R, O> Default for GroupQueue<R, O> {
    fn default() -> Self {
        GroupQueue { inner: Mutex::new(Inner { leading: false, waiting: VecDeque::new() }) }
    }
}

impl<R, O> GroupQueue<R, O> {
    /// Executes a request, alone or in a group. `lead` executes a group and returns the outcomes in the same
    /// order.
    pub fn submit(&self, request: R, lead: impl FnOnce(Vec<R>) -> Vec<O>) -> O {
        let mut inner = self.inner.lock();
        let own = if inner.leading && !fault::is_on(Fault::SecondLeader) {
            let ticket =
                Arc::new(Ticket { state: Mutex::new(State::Waiting(request)), wake: Condvar::new() });
            inner.waiting.push_back(ticket.clone());
            drop(inner);
            match timed(Part::Wait, || ticket.wait()) {
                Ok(outcome) => return outcome,
                Err(request) => request,
            }
        } else {
            inner.leading = true;
            drop(inner);
            request
        };
        let mut term = Term { queue: self, followers: self.take_waiting() };
        let mut group = Vec::with_capacity(1 + term.followers.len());
        group.push(own);
        group.extend(term.followers.iter().map(|ticket| ticket.take()));
        let mut outcomes = lead(group).into_iter();
        let own = outcomes.next().expect("an outcome for each request");
        let followers = std::mem::take(&mut term.followers);
        // The next leader starts before the followers wake, because other callers wait for its work.
        drop(term);
        for ticket in followers {
            ticket.set(State::Done(outcomes.next().expect("an outcome for each request")));
        }
        own
    }

    fn take_waiting(&self) -> Vec<Arc<Ticket<R, O>>> {
        let mut inner = self.inner.lock();
        let n = inner.waiting.len().min(GROUP_MAX - 1);
        inner.waiting.drain(..n).collect()
    }
}

impl<R, O> Ticket<R, O> {
    /// Waits for the outcome, or for the duty to lead with the returned request.
    fn wait(&self) -> Result<O, R> {
        let mut state = self.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Taken) {
                State::Done(outcome) => return Ok(outcome),
                State::Lead(request) => return Err(request),
                State::Abandoned => panic!("the leader of this group commit panicked"),
                other => *state = other,
            }
            self.wake.wait(&mut state);
        }
    }

    fn take(&self) -> R {
        match std::mem::replace(&mut *self.state.lock(), State::Taken) {
            State::Waiting(request) => request,
            _ => unreachable!("queue.1: only one leader takes a ticket out of the queue"),
        }
    }

    fn set(&self, state: State<R, O>) {
        *self.state.lock() = state;
        self.wake.notify_one();
    }
}

/// The term of a leader. Dropping it starts the next leader.
struct Term<'a, R, O> {
    queue: &'a GroupQueue<R, O>,
    /// Followers without an outcome.
    followers: Vec<Arc<Ticket<R, O>>>,
}

impl<R, O> Drop for Term<'_, R, O> {
    fn drop(&mut self) {
        for ticket in self.followers.drain(..) {
            ticket.set(State::Abandoned);
        }
        let mut inner = self.queue.inner.lock();
        match inner.waiting.pop_front() {
            Some(next) => {
                let request = next.take();
                next.set(State::Lead(request));
            }
            None => inner.leading = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn queue_1_queue_2_each_gets_its_own_outcome_and_one_leads() {
        let queue = GroupQueue::<u64, u64>::default();
        let each = if cfg!(miri) { 20 } else { 2_000 };
        let (leading, groups, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (queue, leading, groups, done) = (&queue, &leading, &groups, &done);
                scope.spawn(move || {
                    for i in 0..each {
                        let request = thread * 10_000 + i;
                        let outcome = queue.submit(request, |group| {
                            assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0);
                            groups.fetch_add(1, Ordering::Relaxed);
                            done.fetch_add(group.len() as u64, Ordering::Relaxed);
                            let outcomes = group.iter().map(|r| r + 1).collect();
                            leading.fetch_sub(1, Ordering::SeqCst);
                            outcomes
                        });
                        assert_eq!(outcome, request + 1);
                    }
                });
            }
        });
        assert_eq!(done.load(Ordering::Relaxed), 8 * each);
        assert!(groups.load(Ordering::Relaxed) <= 8 * each);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test joins threads that panic")]
    fn queue_2_a_panic_does_not_leave_others_waiting() {
        let queue = Arc::new(GroupQueue::<bool, ()>::default());
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let queue = queue.clone();
                std::thread::spawn(move || {
                    for _ in 0..if cfg!(miri) { 5 } else { 200 } {
                        queue.submit(i == 0, |group| {
                            assert!(!group.contains(&true), "canary");
                            vec![(); group.len()]
                        });
                    }
                })
            })
            .collect();
        let failed = threads.into_iter().filter_map(|t| t.join().err()).count();
        assert!(failed >= 1, "the canary panicked");
        queue.submit(false, |group| vec![(); group.len()]);
    }
}
