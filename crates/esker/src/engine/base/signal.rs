//! Signals between threads: work to do, its end, and its failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::types::{Error, Result};

/// How often threads look for work without a signal.
pub(in crate::engine) const TICK: Duration = Duration::from_millis(20);
/// The shortest pause after a failed flush, even if a writer asks for another attempt (engine_background.7).
pub(in crate::engine) const ASKED_PAUSE: Duration = Duration::from_millis(100);

/// How threads and writers report work, its end and its failure to each other.
#[derive(Default)]
pub(crate) struct Signal {
    pub(in crate::engine) state: Mutex<SignalState>,
    work: Condvar,
    flush_work: Condvar,
    log_work: Condvar,
    progress: Condvar,
    stopped: Condvar,
    /// Same as `SignalState::stop`, for work that checks without a lock. Relaxed: it orders no other access.
    stop_flag: AtomicBool,
    /// Whether `SignalState::dead` is set. Relaxed: the cause is read under the lock.
    dead_flag: AtomicBool,
}

#[derive(Default)]
pub(in crate::engine) struct SignalState {
    stop: bool,
    /// Counts calls of `wake`.
    wakes: u64,
    /// Counts calls of `wake`, `wake_flush` and `wake_log`.
    flush_wakes: u64,
    /// Counts calls of `wake_log`.
    log_wakes: u64,
    /// Writers that wait for a flush (engine_background.9).
    waiting: usize,
    /// Counts finished steps and failures.
    pub(in crate::engine) steps: u64,
    /// Error of the last flush, if it failed.
    pub(in crate::engine) failure: Option<Arc<Error>>,
    /// Free bytes when a flush had failed for want of space and had removed what it wrote.
    free_at_failure: Option<u64>,
    /// Counts requests for another attempt of a flush (engine_background.7).
    asked: u64,
    /// How many of the requests have been answered by an attempt.
    answered: u64,
    /// Set when a background thread, or a flush or compaction in another thread, has panicked.
    dead: Option<Arc<Error>>,
}

impl Signal {
    /// Wakes all threads: there may be work.
    pub(crate) fn wake(&self) {
        self.state.lock().wakes += 1;
        self.work.notify_all();
        self.wake_flush();
    }

    /// Wakes the flush thread: there may be something to flush.
    pub(crate) fn wake_flush(&self) {
        self.state.lock().flush_wakes += 1;
        self.flush_work.notify_all();
    }

    /// Wakes the log thread, and the flush thread, which may still have to start it: the log needs files.
    pub(crate) fn wake_log(&self) {
        self.state.lock().log_wakes += 1;
        self.log_work.notify_all();
        self.wake_flush();
    }

    /// Ends all loops.
    pub(crate) fn stop(&self) {
        self.stop_flag.store(true, Ordering::Relaxed);
        self.state.lock().stop = true;
        self.work.notify_all();
        self.flush_work.notify_all();
        self.log_work.notify_all();
        self.progress.notify_all();
        self.stopped.notify_all();
    }

    pub(crate) fn stopping(&self) -> bool {
        self.state.lock().stop
    }

    /// A flag that is set when all work is to end.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop_flag
    }

    /// Waits for `wake`, at most for a tick. Returns false when the loop has to end.
    pub(in crate::engine) fn wait_for_work(&self, seen: &mut u64) -> bool {
        self.wait_for_wake(&self.work, |state| state.wakes, seen, TICK)
    }

    /// Same as `wait_for_work`, for `wake_flush`.
    pub(in crate::engine) fn wait_for_flush_work(&self, seen: &mut u64) -> bool {
        self.wait_for_wake(&self.flush_work, |state| state.flush_wakes, seen, TICK)
    }

    /// Same as `wait_for_work`, for `wake_log` and with this timeout.
    pub(in crate::engine) fn wait_for_log_work(&self, seen: &mut u64, timeout: Duration) -> bool {
        self.wait_for_wake(&self.log_work, |state| state.log_wakes, seen, timeout)
    }

    fn wait_for_wake(
        &self,
        woken: &Condvar,
        wakes: impl Fn(&SignalState) -> u64,
        seen: &mut u64,
        timeout: Duration,
    ) -> bool {
        let mut state = self.state.lock();
        if !state.stop && wakes(&state) == *seen {
            woken.wait_for(&mut state, timeout);
        }
        *seen = wakes(&state);
        !state.stop
    }

    /// Pauses. Returns false when the loop has to end.
    pub(in crate::engine) fn pause(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        self.stopped.wait_while_for(&mut state, |state| !state.stop, timeout);
        !state.stop
    }

    /// Pauses until the timeout, a successful flush, or a writer's request for another attempt
    /// (engine_background.7).
    pub(in crate::engine) fn pause_flushing(&self, timeout: Duration) {
        let mut state = self.state.lock();
        let is_due = |state: &SignalState| !state.stop && state.failure.is_some();
        let at_least = timeout.min(ASKED_PAUSE);
        self.stopped.wait_while_for(&mut state, |state| is_due(state), at_least);
        let goes_on = |state: &mut SignalState| is_due(state) && state.asked == state.answered;
        self.stopped.wait_while_for(&mut state, goes_on, timeout - at_least);
    }

    /// Number of writers that wait for a flush (engine_background.9).
    pub(in crate::engine) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Number of requests for an attempt so far. A flush that starts now answers them.
    pub(in crate::engine) fn asked(&self) -> u64 {
        self.state.lock().asked
    }

    /// Records that the attempt which answers this number of requests has ended.
    pub(in crate::engine) fn answer(&self, asked: u64) {
        self.state.lock().answered = asked;
        self.progress.notify_all();
    }

    /// Records the panic of a thread (engine_background.2).
    pub(in crate::engine) fn die(&self, cause: Arc<Error>) {
        self.state.lock().dead.get_or_insert(cause);
        self.dead_flag.store(true, Ordering::Relaxed);
        self.progress.notify_all();
    }

    /// Fails once a thread has panicked.
    #[inline]
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.dead_flag.load(Ordering::Relaxed) { self.state.lock().check_alive() } else { Ok(()) }
    }

    /// Free bytes when the last flush found no space, if known.
    pub(crate) fn free_at_failure(&self) -> Option<u64> {
        self.state.lock().free_at_failure
    }

    /// Records the end of a flush (engine_background.6), and the free bytes if it found no space
    /// (engine_background.7).
    pub(in crate::engine) fn note(&self, outcome: Result<(), Arc<Error>>, free: Option<u64>) {
        let mut state = self.state.lock();
        state.steps += 1;
        state.free_at_failure = free;
        let was_failing = state.failure.is_some();
        state.failure = outcome.err();
        let is_over = was_failing && state.failure.is_none();
        drop(state);
        self.progress.notify_all();
        if is_over {
            self.stopped.notify_all();
        }
    }

    /// Waits until background work makes `ready` true. Fails when the work fails.
    pub(crate) fn wait_until(&self, ready: impl FnMut() -> bool) -> Result<()> {
        self.wait_since(0, ready)
    }

    /// Same as `wait_until`, but asks for another attempt first and fails only if that attempt does
    /// (engine_background.7).
    pub(crate) fn wait_for_another_try(&self, ready: impl FnMut() -> bool) -> Result<()> {
        let asked = {
            let mut state = self.state.lock();
            state.asked += 1;
            state.asked
        };
        self.stopped.notify_all();
        self.wait_since(asked, ready)
    }

    /// Waits until `ready` is true. Failures count once the request `asked` has been answered.
    fn wait_since(&self, asked: u64, ready: impl FnMut() -> bool) -> Result<()> {
        let mut state = self.state.lock();
        state.waiting += 1;
        let waited = self.wait_locked(&mut state, asked, ready);
        state.waiting -= 1;
        waited
    }

    fn wait_locked(
        &self,
        state: &mut MutexGuard<'_, SignalState>,
        asked: u64,
        mut ready: impl FnMut() -> bool,
    ) -> Result<()> {
        loop {
            if ready() {
                return Ok(());
            }
            if state.stop {
                return Err(Error::Closed);
            }
            state.check_alive()?;
            if let Some(cause) = state.failure.as_ref().filter(|_| state.answered >= asked) {
                return Err((**cause).clone());
            }
            self.progress.wait_for(state, TICK);
        }
    }
}

impl SignalState {
    fn check_alive(&self) -> Result<()> {
        self.dead.as_ref().map_or(Ok(()), |cause| Err(Error::Poisoned(cause.clone())))
    }
}
