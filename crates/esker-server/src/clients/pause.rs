//! `CLIENT PAUSE`: holds commands back, so that an operator can move clients to another server.
//!
//! - A pause holds all commands, including `CLIENT UNPAUSE`, or only those that may write. Running commands
//!   continue. No expired data is removed during a pause, so the database does not change.
//! - Pauses never shorten each other. The later end counts, and a pause of all commands takes precedence over
//!   a pause of writes.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::base::clock;
use crate::command::flag;
use crate::command::spec::Spec;

/// A pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    until_ms: u64,
    all: bool,
}

/// The state of `CLIENT PAUSE`.
#[derive(Default)]
pub struct Pause {
    held: Mutex<Option<Held>>,
    /// Relaxed: a command that does not see the pause counts as begun before it.
    may_hold: AtomicBool,
    ended: Notify,
    /// Relaxed: only a statistic.
    waiting: AtomicUsize,
}

impl Pause {
    /// Holds commands until a time in Unix milliseconds: all commands, or only writes.
    pub fn begin(&self, until_ms: u64, all: bool, now_ms: u64) {
        let mut held = self.held.lock();
        let old = held.filter(|held| held.until_ms > now_ms);
        *held = Some(Held {
            until_ms: old.map_or(until_ms, |old| old.until_ms.max(until_ms)),
            all: all || old.is_some_and(|old| old.all),
        });
        self.may_hold.store(true, Ordering::Relaxed);
    }

    /// Ends all pauses.
    pub fn end(&self) {
        *self.held.lock() = None;
        self.may_hold.store(false, Ordering::Relaxed);
        self.ended.notify_waiters();
    }

    /// Returns until when a command is held, if it is. `has_writes`: the transaction that it runs may write.
    #[inline]
    pub fn holds(&self, command: Option<&Spec>, has_writes: bool) -> Option<u64> {
        if !self.may_hold.load(Ordering::Relaxed) {
            return None;
        }
        let held = (*self.held.lock())?;
        if held.until_ms <= clock::now_ms() {
            self.end();
            return None;
        }
        let exec = |command: &Spec| has_writes && command.is(flag::RUNS_QUEUE);
        let is_held = held.all || command.is_some_and(|command| command.may_write() || exec(command));
        is_held.then_some(held.until_ms)
    }

    /// Returns whether a pause is active.
    pub fn is_on(&self, now_ms: u64) -> bool {
        self.may_hold.load(Ordering::Relaxed) && self.held.lock().is_some_and(|held| held.until_ms > now_ms)
    }

    /// Waits until this time, or until pauses are ended.
    pub async fn wait(&self, until_ms: u64, now_ms: u64) {
        let left = std::time::Duration::from_millis(until_ms.saturating_sub(now_ms));
        let ended = self.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if self.may_hold.load(Ordering::Relaxed) {
            let _waiting = Waiting::begin(&self.waiting);
            let _ = tokio::time::timeout(left, ended).await;
        }
    }

    /// Returns the number of connections that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

/// Counts a waiting connection until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_do_not_shorten_each_other() {
        let pause = Pause::default();
        let held = || pause.held.lock().map(|held| (held.until_ms, held.all));
        pause.begin(100, true, 10);
        pause.begin(50, false, 20);
        assert_eq!(held(), Some((100, true)));
        pause.begin(300, false, 100);
        assert_eq!(held(), Some((300, false)), "the first one is over");
        pause.end();
        assert_eq!(held(), None);
    }
}
