//! `Subscriber`: the changes of keys with a prefix, in commit order.
//!
//! A change of the engine's watch becomes an event. sled makes writers wait for a slow subscriber; here a
//! subscriber that is too far behind ends, so that it cannot miss events without notice.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use esker::{Change, EventStream};
use futures_core::Stream;

use crate::IVec;
use crate::tree::{Inner, Tree};

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// The key was set.
    Insert {
        /// The key.
        key: IVec,
        /// The new value. If it is too large to be queued: the value at the time when the event is taken.
        value: IVec,
    },
    /// The key was removed.
    Remove {
        /// The key.
        key: IVec,
    },
}

impl Event {
    /// Returns the key.
    pub fn key(&self) -> &IVec {
        match self {
            Event::Insert { key, .. } | Event::Remove { key } => key,
        }
    }
}

/// The events of keys with a prefix: an iterator that waits for the next event, and a future of the next
/// event. It ends when the database is closed, and when it is so far behind that events were lost.
pub struct Subscriber {
    /// `None` once it has ended.
    changes: Option<EventStream<Change>>,
    tree: Weak<Inner>,
    ready: VecDeque<Event>,
}

impl Subscriber {
    pub(crate) fn new(changes: Option<EventStream<Change>>, tree: &Tree) -> Self {
        Subscriber { changes, tree: tree.downgrade(), ready: VecDeque::new() }
    }

    /// Waits up to `timeout` for the next event.
    ///
    /// # Errors
    /// `Timeout` if there was none, `Disconnected` after the end.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Event, RecvTimeoutError> {
        let end = Instant::now().checked_add(timeout);
        self.wait(end).ok_or(RecvTimeoutError::Timeout)?.ok_or(RecvTimeoutError::Disconnected)
    }

    /// Waits until a moment, or for ever. `Some(None)`: it has ended.
    fn wait(&mut self, end: Option<Instant>) -> Option<Option<Event>> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(event) = pin!(&mut *self).poll(&mut context) {
                return Some(event);
            }
            match end {
                None => std::thread::park(),
                Some(end) => {
                    let left = end.checked_duration_since(Instant::now())?;
                    std::thread::park_timeout(left);
                }
            }
        }
    }

    /// Queues the events of a change. Returns whether events were lost.
    fn queue(&mut self, change: Change) -> bool {
        match change {
            Change::Put { key, value: Some(value) } => {
                self.ready.push_back(Event::Insert { key: key.into(), value: value.into() });
            }
            Change::Put { key, value: None } => {
                // If the key is gone the event of that follows.
                let now = self.tree.upgrade().map(|tree| Tree::from(tree).get(&key));
                match now {
                    Some(Ok(Some(value))) => {
                        self.ready.push_back(Event::Insert { key: key.into(), value });
                    }
                    Some(Ok(None)) => {}
                    Some(Err(_)) | None => return true,
                }
            }
            Change::Delete { key } | Change::Expire { key } => {
                self.ready.push_back(Event::Remove { key: key.into() });
            }
            _ => return true,
        }
        false
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Iterator for Subscriber {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.wait(None).flatten()
    }
}

impl Future for Subscriber {
    type Output = Option<Event>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(event));
            }
            let Some(changes) = &mut self.changes else { return Poll::Ready(None) };
            match Pin::new(changes).poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => self.changes = None,
                Poll::Ready(Some((_, change))) => {
                    if self.queue(change) {
                        self.changes = None;
                    }
                }
            }
        }
    }
}
