//! What ties a child, and what it starts, to the lab that started it.

use std::time::Duration;

/// In the environment of a child, and of what it starts: seconds that one step may take (bench_runner.5 of the runner).
pub(crate) const STEP_SECONDS: &str = "ESKER_BENCH_STEP_SECONDS";

/// What [`STEP_SECONDS`] says; none where no runner has started this process.
pub(crate) fn step() -> Option<Duration> {
    std::env::var(STEP_SECONDS).ok()?.parse().ok().map(Duration::from_secs)
}

/// Ends this process with the one that started it: an interrupted lab leaves no engine running.
#[cfg(target_os = "linux")]
pub(crate) fn die_with_the_runner() {
    use rustix::process::{Signal, set_parent_process_death_signal};
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("this process may outlive an interrupted run: {error}");
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn die_with_the_runner() {}
