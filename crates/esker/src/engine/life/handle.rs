//! Ownership of an open database, and how it closes.
//!
//! ```text
//!   Db, Keyspace, Snapshot ... --Arc--> Handle --owns--> threads
//!                                          `--Arc--> Core <--Arc-- threads
//! ```
//!
//! handle.1. When the lock is given back nothing changes the directory any more: flushes and compactions have ended, and later
//!      ones are refused before they change anything.
//! handle.2. Every call of close returns once the database is closed, with the outcome of the first call.
//! handle.3. A child of a fork changes nothing: it has the parent's files, log position and lock, but not its threads, and locks that those held are
//!      never free. So it is refused before it takes any, and neither closes nor gives back anything when its handles drop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::engine::core::Core;
use crate::types::{Error, Result};

/// Owns the database on behalf of all its handles: closes it when the last one drops.
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    /// The lock makes others wait for the first who closes (handle.2).
    ending: Mutex<Ending>,
}

struct Ending {
    /// Taken by the first who closes.
    threads: Vec<esker_env::ThreadHandle>,
    /// The thread that commits for others, once it has begun.
    committer: Option<esker_env::ThreadHandle>,
    /// How closing went; none before it begins.
    outcome: Option<Result<()>>,
}

impl Handle {
    pub(crate) fn new(core: Arc<Core>, threads: Vec<esker_env::ThreadHandle>) -> Arc<Self> {
        Arc::new(Handle { core, ending: Mutex::new(Ending { threads, committer: None, outcome: None }) })
    }

    /// Has closing wait for the thread that commits for others.
    pub(in crate::engine) fn join_at_close(&self, thread: esker_env::ThreadHandle) -> Result<()> {
        let mut ending = self.ending.lock();
        if ending.outcome.is_some() {
            self.core.committer.end();
            return Err(Error::Closed);
        }
        ending.committer = Some(thread);
        Ok(())
    }

    /// Stops the threads, makes the log durable and tidy, gives the lock back. Later calls do nothing, and
    /// have the first one's outcome.
    pub(crate) fn close(&self) -> Result<()> {
        let core = &self.core;
        core.check_process()?;
        let mut ending = self.ending.lock();
        if let Some(outcome) = &ending.outcome {
            return outcome.as_ref().copied().map_err(Error::duplicate);
        }
        // What a panic leaves.
        ending.outcome = Some(Err(Error::Invalid("closing the database ended in a panic".into())));
        // What waits for the committer is committed first, unless it waits for an exclusive transaction; nothing more comes.
        // engine_sweep.2; what keeps it from being stored, closing tells itself.
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
        let threads = ending.threads.drain(..).map(esker_env::ThreadHandle::join);
        for ended in committer.into_iter().chain(threads) {
            if let Err(panic) = ended {
                failure = Some(Error::Invalid(format!("a background thread panicked: {panic}")));
            }
        }
        // Callers of `flush` and `compact`, and writers that do background work, are no threads of ours (handle.1).
        let turns = (core.turns.compact.lock(), core.turns.flush.lock());
        let closed = match core.pipeline.poisoned() {
            Some(cause) => Err(Error::Poisoned(cause)),
            None => {
                // Memtables that cannot be flushed are no failure of closing: the log has them.
                let _ = core.shorten_replay(&turns.1);
                core.pipeline.close().map(|()| core.note_end_of_log())
            }
        };
        // The files of tables that were replaced last: the directory is to be free for its owner to unmount or delete. And the memory of
        // their blocks, and of flushed memtables, before the next database wants as much.
        core.view.reclaim_all();
        core.lock.give_back();
        let outcome = failure.map_or(closed, Err);
        ending.outcome = Some(outcome.as_ref().copied().map_err(Error::duplicate));
        outcome
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.core.lock.is_ours() {
            // handle.3: they are not there.
            let ending = self.ending.get_mut();
            std::mem::forget((std::mem::take(&mut ending.threads), ending.committer.take()));
            return;
        }
        // There is no one left to report to. What was acknowledged is in the log either way.
        // A panic here, while another one unwinds, would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| self.close()));
    }
}
