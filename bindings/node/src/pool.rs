//! Threads for calls that can wait.
//!
//! - [`READS`] runs jobs that wait for files only, in a few threads.
//! - [`WAITS`] runs jobs that may wait for a lock or for a transaction. It starts threads as needed, so that
//!   the job that ends a wait finds one.
//! - A [`Lane`] is a thread of its own for jobs in order. Each exclusive transaction has one: the engine
//!   counts such a transaction as that of the thread that used it last, and lets this thread pass.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Jobs that wait for files only.
pub(crate) static READS: Pool = Pool::new("esker-read", 8);
/// Jobs that may wait for each other.
pub(crate) static WAITS: Pool = Pool::new("esker-wait", 512);

/// How long a thread waits for another job.
const IDLE: Duration = Duration::from_secs(5);

pub(crate) struct Pool {
    name: &'static str,
    threads_max: usize,
    state: Mutex<State>,
    filled: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Pool {
    const fn new(name: &'static str, threads_max: usize) -> Pool {
        let state = Mutex::new(State { jobs: VecDeque::new(), threads: 0, idle: 0 });
        Pool { name, threads_max, state, filled: Condvar::new() }
    }

    pub(crate) fn run(&'static self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        state.jobs.push_back(Box::new(job));
        if state.idle >= state.jobs.len() || state.threads >= self.threads_max {
            self.filled.notify_one();
            return;
        }
        let started = std::thread::Builder::new().name(self.name.to_owned()).spawn(|| self.work());
        state.threads += usize::from(started.is_ok());
        let job = (state.threads == 0).then(|| state.jobs.pop_back()).flatten();
        drop(state);
        // The system refuses even a first thread.
        job.into_iter().for_each(guarded);
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                guarded(job);
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            let is_over = self.filled.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if is_over && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// Runs a job. Jobs report their own panics: this one keeps the thread.
fn guarded(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}

/// A thread that runs jobs in order, and ends after this is dropped.
pub(crate) struct Lane(Mutex<Sender<Job>>);

impl Lane {
    /// Starts a thread.
    ///
    /// # Errors
    /// That of the operating system.
    pub(crate) fn start(name: &str) -> std::io::Result<Lane> {
        let (sender, jobs) = channel::<Job>();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || jobs.iter().for_each(guarded))?;
        Ok(Lane(Mutex::new(sender)))
    }

    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The thread receives as long as there is a sender.
        let _ = self.0.lock().send(Box::new(job));
    }

    /// Runs a job and waits for its result. `None`: it panicked.
    pub(crate) fn run_and_wait<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> Option<R> {
        let (sender, result) = channel();
        self.run(move || {
            let _ = sender.send(job());
        });
        result.recv().ok()
    }
}
