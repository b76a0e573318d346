//! Commits that JavaScript awaits, in the order in which it made them.
//!
//! ```text
//!   write --small, and nothing waits--> the engine: at once, or in its commit thread
//!         --otherwise--> a lane, which waits for room there
//! ```
//!
//! commits.1. A commit goes through the lane while an earlier one is in it, so the order stays.
//! - The JavaScript thread never waits for the engine's queue: an exclusive transaction that holds up the
//!   queue may be waiting for this thread to continue it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::completion::{BoxFuture, Completions, drive};
use crate::error::Failure;
use crate::pool::Lane;

/// Bytes of commits in the engine's queue, half of what it takes before callers wait.
const QUEUED_MAX: usize = 32 << 20;
/// Larger commits are prepared in the lane.
const LARGE: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Commits {
    lane: Mutex<State>,
    queued: AtomicUsize,
}

#[derive(Default)]
struct State {
    lane: Option<Arc<Lane>>,
    /// Commits in the lane.
    waiting: usize,
}

impl Commits {
    /// Makes a commit of about `size` bytes. `begin` hands it to the engine. Returns the outcome if the
    /// commit is made at once: if it waits neither for the disk nor for other commits.
    pub(crate) fn submit(
        self: &Arc<Self>,
        done: &Arc<Completions>,
        number: u32,
        size: usize,
        begin: impl FnOnce() -> BoxFuture + Send + 'static,
    ) -> Option<crate::completion::Result> {
        let commits = self.clone();
        let queued = self.queued.fetch_add(size, Ordering::Relaxed) + size;
        let begin = move || -> BoxFuture {
            let future = begin();
            Box::pin(async move {
                let outcome = future.await;
                commits.queued.fetch_sub(size, Ordering::Relaxed);
                outcome
            })
        };
        let mut state = self.lane.lock();
        if state.waiting == 0 && size < LARGE && queued <= QUEUED_MAX {
            drop(state);
            return drive(done.clone(), number, begin());
        }
        let lane = match &state.lane {
            Some(lane) => lane.clone(),
            None => match Lane::start("esker-write") {
                Ok(lane) => state.lane.insert(Arc::new(lane)).clone(),
                Err(error) => {
                    let why = Failure::invalid(format!("no thread can be started: {error}"));
                    return Some(Err(why));
                }
            },
        };
        // commits.1
        state.waiting += 1;
        drop(state);
        let (commits, done) = (self.clone(), done.clone());
        lane.run(move || {
            if let Some(outcome) = drive(done.clone(), number, begin()) {
                done.push(number, outcome);
            }
            commits.lane.lock().waiting -= 1;
        });
        None
    }
}
