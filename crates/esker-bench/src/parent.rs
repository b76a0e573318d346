//! Ties a child, and the processes that it starts, to the lab that started it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use esker_bench_api::{Failure, Result};

/// Environment variable of a child and its children: time limit of one step, in seconds.
pub(crate) const STEP_SECONDS: &str = "ESKER_BENCH_STEP_SECONDS";

/// Returns the value of [`STEP_SECONDS`], or `None` if no runner started this process.
pub(crate) fn step() -> Option<Duration> {
    std::env::var(STEP_SECONDS).ok()?.parse().ok().map(Duration::from_secs)
}

/// Ends this process with its parent, so that an interrupted lab leaves no engine running.
#[cfg(target_os = "linux")]
pub(crate) fn die_with_the_runner() {
    use rustix::process::{Signal, set_parent_process_death_signal};
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("this process may outlive an interrupted run: {error}");
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn die_with_the_runner() {}

/// Runs this program with `arguments` and the directory of a database, until it prints a line that `ready`
/// accepts. Then the process is killed, or left to end by itself. Returns what `ready` made of the line.
pub(crate) fn write_elsewhere<T>(
    arguments: &[&str],
    dir: &Path,
    is_killed: bool,
    ready: impl FnMut(&str) -> Option<T>,
) -> Result<(Option<T>, ExitStatus)> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut writer = command.args(arguments).arg(dir).stdout(Stdio::piped()).spawn()?;
    let stdout = writer.stdout.take().ok_or_else(|| Failure::engine("a process without stdout"))?;
    let mut ready = ready;
    let made = BufReader::new(stdout).lines().map_while(Result::ok).find_map(|line| ready(&line));
    let helpers = children(writer.id());
    if is_killed {
        writer.kill()?;
    }
    let status = writer.wait()?;
    await_end(&helpers);
    Ok((made, status))
}

/// Returns the children of a process. An engine in another language runs in one, and ends when its parent is
/// killed.
fn children(process: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    listed.unwrap_or_default().split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

/// Waits until processes have ended and released their locks, for ten seconds at most.
fn await_end(processes: &[u32]) {
    let runs = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // A zombie has ended.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    for _ in 0..1000 {
        if !processes.iter().any(runs) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
