//! How threads and writers hear of work, of its end, and of its failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::types::{Error, Result};

/// How often the threads look for work without being woken.
pub(in crate::engine) const TICK: Duration = Duration::from_millis(20);
/// The shortest pause after a failed flush, even if another try is asked for (engine_background.7).
pub(in crate::engine) const ASKED_PAUSE: Duration = Duration::from_millis(100);

/// How threads and writers tell each other of work, its end, and its failure.
#[derive(Default)]
pub(crate) struct Signal {
    pub(in crate::engine) state: Mutex<SignalState>,
    work: Condvar,
    flush_work: Condvar,
    log_work: Condvar,
    progress: Condvar,
    stopped: Condvar,
    /// The same as `SignalState::stop`, for work that looks without a lock. Relaxed: it orders nothing.
    stop_flag: AtomicBool,
    /// Whether there is `SignalState::dead`. Relaxed: the lock orders what it says.
    dead_flag: AtomicBool,
}

#[derive(Default)]
pub(in crate::engine) struct SignalState {
    stop: bool,
    /// Counts calls of `wake`.
    wakes: u64,
    /// Counts these and those of `wake_flush`.
    flush_wakes: u64,
    /// Counts calls of `wake_log`.
    log_wakes: u64,
    /// Writers that wait for room (engine_background.9).
    waiting: usize,
    /// Counts finished steps and failures.
    pub(in crate::engine) steps: u64,
    /// The last flush failed with this, and none has succeeded since.
    pub(in crate::engine) failure: Option<Arc<Error>>,
    /// What was free when it had failed for want of space, and removed what it had written.
    free_at_failure: Option<u64>,
    /// Counts those who have asked for another try of a flush (engine_background.7).
    asked: u64,
    /// Those of them whose try has ended.
    answered: u64,
    /// A thread has panicked, or a flush or compaction in another one.
    dead: Option<Arc<Error>>,
}

impl Signal {
    /// There may be work.
    pub(crate) fn wake(&self) {
        self.state.lock().wakes += 1;
        self.work.notify_all();
        self.wake_flush();
    }

    /// There may be something to flush.
    pub(crate) fn wake_flush(&self) {
        self.state.lock().flush_wakes += 1;
        self.flush_work.notify_all();
    }

    /// The log wants files.
    pub(crate) fn wake_log(&self) {
        self.state.lock().log_wakes += 1;
        self.log_work.notify_all();
    }

    /// End all loops.
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

    /// Set when all work is to end.
    pub(crate) fn stop_flag(&self) -> &AtomicBool {
        &self.stop_flag
    }

    /// Waits for `wake`, a tick at the most; false when it is time to end.
    pub(in crate::engine) fn wait_for_work(&self, seen: &mut u64) -> bool {
        self.wait_for_wake(&self.work, |state| state.wakes, seen, TICK)
    }

    /// The same for `wake_flush`.
    pub(in crate::engine) fn wait_for_flush_work(&self, seen: &mut u64) -> bool {
        self.wait_for_wake(&self.flush_work, |state| state.flush_wakes, seen, TICK)
    }

    /// The same for `wake_log`, this long at the most.
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

    /// Waits this long; false when it is time to end.
    pub(in crate::engine) fn pause(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        self.stopped.wait_while_for(&mut state, |state| !state.stop, timeout);
        !state.stop
    }

    /// Waits this long, or until any flush has succeeded, or a writer asks for another try (engine_background.7).
    pub(in crate::engine) fn pause_flushing(&self, timeout: Duration) {
        let mut state = self.state.lock();
        let is_due = |state: &SignalState| !state.stop && state.failure.is_some();
        let at_least = timeout.min(ASKED_PAUSE);
        self.stopped.wait_while_for(&mut state, |state| is_due(state), at_least);
        let goes_on = |state: &mut SignalState| is_due(state) && state.asked == state.answered;
        self.stopped.wait_while_for(&mut state, goes_on, timeout - at_least);
    }

    /// Writers that wait for room now (engine_background.9).
    pub(in crate::engine) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// The requests for a try that a flush which begins now answers.
    pub(in crate::engine) fn asked(&self) -> u64 {
        self.state.lock().asked
    }

    /// The try that answers this number of requests has ended.
    pub(in crate::engine) fn answer(&self, asked: u64) {
        self.state.lock().answered = asked;
        self.progress.notify_all();
    }

    /// A thread has panicked (engine_background.2).
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

    /// What was free when the last flush had found no space, as far as that could be found out.
    pub(crate) fn free_at_failure(&self) -> Option<u64> {
        self.state.lock().free_at_failure
    }

    /// Notes the end of a flush (engine_background.6), and what is free if it has found no space (engine_background.7).
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

    /// Waits until `ready` holds, which a step brings about; fails when steps fail.
    pub(crate) fn wait_until(&self, ready: impl FnMut() -> bool) -> Result<()> {
        self.wait_since(0, ready)
    }

    /// The same after a flush that failed: has it tried again, and fails only if that try does (engine_background.7).
    pub(crate) fn wait_for_another_try(&self, ready: impl FnMut() -> bool) -> Result<()> {
        let asked = {
            let mut state = self.state.lock();
            state.asked += 1;
            state.asked
        };
        self.stopped.notify_all();
        self.wait_since(asked, ready)
    }

    /// Waits until `ready` holds; fails when steps fail, after an answer to this one who has asked.
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
                return Err(cause.duplicate());
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
