//! Delivers [events](Event) to the program's callback.
//!
//! ```text
//!   flush, compaction, stall ... --report--> queue --thread "esker-events"--> callback
//! ```
//!
//! - The engine never waits for the callback, and holds no lock while it runs. A callback that blocks
//!   delays further events only. Once [`QUEUE_MAX`] of them wait, newer ones are dropped and counted.
//! - A panic of the callback ends neither the thread nor the database.
//! - Closing delivers what is queued, unless the callback blocks for [`PATIENCE`].
//!
//! Without background threads the thread that does the work calls the callback. Without a callback an event
//! costs one comparison. The queue's lock is a leaf: no other lock is taken while it is held.

use std::collections::VecDeque;
use std::fmt;
use std::mem::Discriminant;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use esker_env::{Env, Threads};
use parking_lot::{Condvar, Mutex};

use super::event::{Event, StallCause};
use super::health::{Health, Work};
use super::options::Options;
use crate::types::{Error, Result};

/// Maximum number of events that wait for the callback.
const QUEUE_MAX: usize = 1024;
/// How long closing waits for a callback that blocks.
const PATIENCE: Duration = Duration::from_secs(1);

/// The program's callback.
#[derive(Clone)]
pub(crate) struct Listener(pub(crate) Arc<dyn Fn(&Event) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// Delivers the events of one database, if anything listens.
#[derive(Clone, Default)]
pub(crate) struct Events(Option<Arc<Channel>>);

struct Channel {
    listener: Listener,
    /// Whether a thread calls the listener.
    has_thread: bool,
    /// The process that opened the database. In the child of a fork the thread does not exist (handle.3).
    process: u32,
    threads: Arc<dyn Threads>,
    queue: Mutex<Queue>,
    filled: Condvar,
    ended: Condvar,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    /// Events dropped since the last queued one.
    missed: u64,
    /// The thread, once it runs.
    thread: Option<ThreadId>,
    is_over: bool,
    has_ended: bool,
}

/// What the listener knows.
#[derive(Default)]
struct Seen {
    health: Option<HealthKind>,
    memtables: Stall,
    compaction: Stall,
}

/// What makes two states of health differ.
type HealthKind = (Discriminant<Health>, Option<Work>);

/// Writers that wait for one cause.
#[derive(Default)]
struct Stall {
    writers: u64,
    since: Duration,
}

impl Events {
    /// Starts the delivery of the events of the database in `dir`.
    pub(in crate::engine) fn start(options: &Options, env: &Env, dir: &Path) -> Result<Events> {
        let Some(listener) = options.listener().cloned() else { return Ok(Events::default()) };
        let has_thread = options.has_threads();
        let channel = Arc::new(Channel {
            listener,
            has_thread,
            process: env.threads.process_id(),
            threads: env.threads.clone(),
            queue: Mutex::default(),
            filled: Condvar::new(),
            ended: Condvar::new(),
            seen: Mutex::default(),
        });
        if has_thread {
            let delivers = channel.clone();
            let spawned = env.threads.spawn("esker-events", Box::new(move || delivers.deliver()));
            spawned.map_err(|error| Error::io("start a thread for", dir, error))?;
        }
        Ok(Events(Some(channel)))
    }

    /// Returns whether anything listens.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Reports an event, which is made only if anything listens.
    #[inline]
    pub(crate) fn report(&self, event: impl FnOnce() -> Event) {
        if let Some(channel) = &self.0 {
            channel.take(event());
        }
    }

    /// Reports the health if it differs from what was last reported.
    pub(in crate::engine) fn note_health(&self, health: &Health) {
        let Some(channel) = &self.0 else { return };
        let work = match health {
            Health::NoSpace(failing) | Health::Retrying(failing) => Some(failing.work),
            _ => None,
        };
        let kind = Some((std::mem::discriminant(health), work));
        let before = std::mem::replace(&mut channel.seen.lock().health, kind);
        if before != kind && (before.is_some() || *health != Health::Ok) {
            channel.take(Event::Health(health.clone()));
        }
    }

    /// Records that a writer begins to wait.
    pub(in crate::engine) fn stall_begins(&self, cause: StallCause, now: Duration) {
        let Some(channel) = &self.0 else { return };
        let mut seen = channel.seen.lock();
        let stall = seen.of(cause);
        stall.writers += 1;
        if stall.writers == 1 {
            stall.since = now;
            channel.take(Event::StallBegun { cause });
        }
    }

    /// Records that a writer no longer waits.
    pub(in crate::engine) fn stall_ends(&self, cause: StallCause, now: Duration) {
        let Some(channel) = &self.0 else { return };
        let mut seen = channel.seen.lock();
        let stall = seen.of(cause);
        stall.writers = stall.writers.saturating_sub(1);
        if stall.writers == 0 {
            let time = now.saturating_sub(stall.since);
            channel.take(Event::StallEnded { cause, time });
        }
    }

    /// Delivers what is queued and ends the thread.
    pub(in crate::engine) fn end(&self) {
        let Some(channel) = self.0.as_ref().filter(|channel| channel.has_thread) else { return };
        let mut queue = channel.queue.lock();
        queue.is_over = true;
        channel.filled.notify_one();
        // The callback itself may close the database.
        if queue.thread != Some(std::thread::current().id()) {
            channel.ended.wait_while_for(&mut queue, |queue| !queue.has_ended, PATIENCE);
        }
    }
}

impl Seen {
    fn of(&mut self, cause: StallCause) -> &mut Stall {
        match cause {
            StallCause::Memtables => &mut self.memtables,
            StallCause::Compaction => &mut self.compaction,
        }
    }
}

impl Channel {
    /// Queues an event, or delivers it at once if there is no thread.
    fn take(&self, event: Event) {
        if self.threads.process_id() != self.process {
            return;
        }
        if !self.has_thread {
            return self.call(&event);
        }
        let mut queue = self.queue.lock();
        if queue.events.len() >= QUEUE_MAX {
            queue.missed += 1;
            return;
        }
        if let Some(missed) = queue.take_missed() {
            queue.events.push_back(missed);
        }
        queue.events.push_back(event);
        self.filled.notify_one();
    }

    fn call(&self, event: &Event) {
        // The panic hook has shown the message.
        let _ = catch_unwind(AssertUnwindSafe(|| (self.listener.0)(event)));
    }

    /// Body of the thread.
    fn deliver(&self) {
        self.queue.lock().thread = Some(std::thread::current().id());
        loop {
            let mut queue = self.queue.lock();
            self.filled.wait_while(&mut queue, |queue| queue.is_empty() && !queue.is_over);
            let Some(event) = queue.events.pop_front().or_else(|| queue.take_missed()) else {
                queue.has_ended = true;
                self.ended.notify_all();
                return;
            };
            drop(queue);
            self.call(&event);
        }
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.missed == 0
    }

    fn take_missed(&mut self) -> Option<Event> {
        let events = std::mem::take(&mut self.missed);
        (events > 0).then_some(Event::Missed { events })
    }
}
