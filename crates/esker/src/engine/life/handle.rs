//! Ownership of an open database, and how it closes.
//!
//! ```text
//!   Db, Keyspace, Snapshot ... --Arc--> Handle --owns--> threads
//!                                          `--Arc--> Core <--Arc-- threads
//! ```
//!
//! handle.1. Once the lock is released nothing changes the directory: flushes and compactions have ended, and
//!     later ones are refused before they change anything.
//! - Every call of `close` returns once the database is closed, with the outcome of the first call.
//!
//! handle.3. The child of a fork changes nothing. It has the parent's files, log position and lock, but not
//!     its threads. Locks that those held are never released. So the child is refused before it takes any
//!     lock. It neither closes nor releases anything when its handles drop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::background::Threads;
use crate::engine::core::Core;
use crate::types::{Error, Result};

/// Owns the database on behalf of all its handles: closes it when the last one drops.
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    /// Other callers of `close` wait for this lock.
    ending: Mutex<Ending>,
}

struct Ending {
    /// Joined by the first caller of `close`.
    threads: Threads,
    /// The thread of asynchronous commits, once started.
    committer: Option<esker_env::ThreadHandle>,
    /// Outcome of closing, once it has begun.
    outcome: Option<Result<()>>,
}

impl Handle {
    pub(crate) fn new(core: Arc<Core>, threads: Threads) -> Arc<Self> {
        Arc::new(Handle { core, ending: Mutex::new(Ending { threads, committer: None, outcome: None }) })
    }

    /// Registers the thread of asynchronous commits, which closing joins.
    pub(in crate::engine) fn join_at_close(&self, thread: esker_env::ThreadHandle) -> Result<()> {
        let mut ending = self.ending.lock();
        if ending.outcome.is_some() {
            self.core.committer.end();
            return Err(Error::Closed);
        }
        ending.committer = Some(thread);
        Ok(())
    }

    /// Stops the threads, makes the log durable and releases the lock. Later calls return the outcome of the
    /// first one.
    pub(crate) fn close(&self) -> Result<()> {
        let core = &self.core;
        core.check_process()?;
        let mut ending = self.ending.lock();
        if let Some(outcome) = &ending.outcome {
            return outcome.clone();
        }
        // The outcome if closing panics.
        ending.outcome = Some(Err(Error::Panicked("closing the database ended in a panic".into())));
        // Queued commits are made first, unless they wait for an exclusive transaction. No more are accepted.
        // engine_sweep.2; closing itself reports whatever prevents this commit.
        let _ = core.store_time();
        core.exclusive_turn.end();
        core.locks.end();
        core.committer.end();
        let committer = ending.committer.take().map(esker_env::ThreadHandle::join);
        core.closed.store(true, Ordering::Release);
        core.pipeline.watchers.end();
        core.feed.iter().for_each(|keeper| keeper.shelf.end());
        core.signal.stop();
        let mut failure = None;
        // The last one may be the flush thread, which adds others until it ends.
        let threads = std::iter::from_fn(|| ending.threads.lock().pop()).map(esker_env::ThreadHandle::join);
        for ended in committer.into_iter().chain(threads) {
            if let Err(panic) = ended {
                failure = Some(Error::Panicked(format!("a background thread panicked: {panic}")));
            }
        }
        // Callers of `flush` and `compact`, and writers that do background work, are not among the threads
        // (handle.1).
        let turns = (core.turns.compact.lock(), core.turns.flush.lock());
        let closed = match core.pipeline.poisoned() {
            Some(cause) => Err(Error::Poisoned(cause)),
            None if core.options.is_read_only() => Ok(()),
            // A panic elsewhere has stopped writes. The log has what was acknowledged.
            None if core.signal.check_alive().is_err() => {
                core.pipeline.close().and_then(|()| core.signal.check_alive())
            }
            None => {
                // A failed flush is no failure of closing: the log has the writes.
                let _ = core.shorten_replay(&turns.1);
                core.pipeline.close().map(|()| core.note_end_of_log())
            }
        };
        // Closes the files of replaced tables, so that the directory can be unmounted or deleted. Frees their
        // blocks and the flushed memtables before another database needs the memory.
        core.view.reclaim_all();
        core.lock.give_back();
        core.report_health();
        core.events.end();
        let outcome = failure.map_or(closed, Err);
        ending.outcome = Some(outcome.clone());
        outcome
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.core.lock.is_ours() {
            // handle.3: the threads do not exist in this process.
            let ending = self.ending.get_mut();
            std::mem::forget((std::mem::take(&mut ending.threads), ending.committer.take()));
            return;
        }
        // The outcome has no receiver. Acknowledged commits are in the log either way. A panic during the
        // unwinding of another one would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| self.close()));
    }
}
