//! Limits the memory of a child process, including the page cache of its files, with a control group.
//!
//! ```text
//! cgroup v2   /sys/fs/cgroup/NAME/memory.max                          memory.events: oom_kill
//! cgroup v1   /sys/fs/cgroup/memory/NAME/memory.limit_in_bytes        memory.oom_control: oom_kill
//! ```
//!
//! - Dropping the limit after the child's end removes the group. If the kernel has not emptied it yet, the
//!   group stays and does no harm: no two groups of a lab have the same name.
//! - On a machine without control groups the lab runs without a limit, and reports that. If creating a group
//!   fails for another reason, the lab stops with an error.
//! - The name of an existing group, left by an earlier process with the same id, is skipped. A run first
//!   removes the groups of labs that have ended.
//! - The limit includes swap.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Directories of control groups: v2, v1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
/// First part of a group's name; the id of the lab's process and the group's number follow.
const NAME: &str = "esker-bench-";
/// Number of existing groups that are skipped before creating one fails.
const SKIPPED_MAX: u32 = 10_000;

/// A control group for one child.
pub(crate) struct Limit {
    dir: PathBuf,
    /// File that counts kills.
    events: &'static str,
    /// Description for reports.
    pub(crate) description: String,
}

impl Limit {
    /// Creates a group with this limit. Returns `None` if this process cannot create groups.
    pub(crate) fn new(bytes: u64) -> std::io::Result<Option<Self>> {
        /// Number of groups created; a plain count, so `Relaxed` is enough.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let v2 = (ROOTS[0], "memory.max", ("memory.swap.max", 0), "memory.events", "cgroup v2");
        // In v1 the second limit is that of memory and swap together.
        let both = ("memory.memsw.limit_in_bytes", bytes);
        let v1 = (ROOTS[1], "memory.limit_in_bytes", both, "memory.oom_control", "cgroup v1");
        for (root, file, (swap, swap_bytes), events, version) in [v2, v1] {
            let dir = match make_group(Path::new(root), &MADE) {
                Ok(dir) => dir,
                Err(error) if is_refusal(error.kind()) => continue,
                Err(error) => return Err(error),
            };
            let limit = Self {
                dir,
                events,
                description: format!("{version}: {} MiB for the process and its page cache", bytes >> 20),
            };
            let path = limit.dir.join(file);
            // Without the memory controller the file is missing, and writing must not create it.
            if path.exists() {
                fs::write(path, bytes.to_string())?;
                // A kernel that does not count swap lacks the file.
                let swap = limit.dir.join(swap);
                if swap.exists() {
                    fs::write(swap, swap_bytes.to_string())?;
                }
                return Ok(Some(limit));
            }
        }
        Ok(None)
    }

    /// Puts the process into the group.
    pub(crate) fn take_in(&self, process: u32) -> std::io::Result<()> {
        fs::write(self.dir.join("cgroup.procs"), process.to_string())
    }

    /// Returns whether a process of the group was killed because of the limit.
    pub(crate) fn has_killed(&self) -> bool {
        let events = fs::read_to_string(self.dir.join(self.events)).unwrap_or_default();
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|kills| kills.trim().parse().ok()).is_some_and(|kills: u64| kills > 0)
    }
}

/// Creates a group under `root`, with the next free number.
fn make_group(root: &Path, made: &AtomicU64) -> std::io::Result<PathBuf> {
    let mut skipped = 0;
    loop {
        let number = made.fetch_add(1, Ordering::Relaxed);
        let dir = root.join(format!("{NAME}{}-{number}", std::process::id()));
        match fs::create_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && skipped < SKIPPED_MAX => skipped += 1,
            made => return made.map(|()| dir),
        }
    }
}

/// Removes the groups that no living lab owns.
pub(crate) fn remove_stale() {
    ROOTS.iter().for_each(|root| remove_stale_of(Path::new(root)));
}

fn remove_stale_of(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let numbers = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split_once('-'));
        let Some((process, _)) = numbers.filter(|(process, _)| process.parse::<u32>().is_ok()) else {
            continue;
        };
        if !Path::new("/proc").join(process).exists() {
            // Fails for a busy group and for a group of another user.
            drop(fs::remove_dir(entry.path()));
        }
    }
}

/// Returns whether this error means that the process cannot create groups.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

impl Drop for Limit {
    fn drop(&mut self) {
        // A group that is still busy stays.
        drop(fs::remove_dir(&self.dir));
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::gate;

    fn started(command: &mut Command) -> Child {
        let _shut = gate::no_database_is_open();
        command.spawn().unwrap()
    }

    #[test]
    fn a_process_beyond_its_limit_is_killed_and_the_group_goes() {
        // The kernel empties a group some time after its last process has ended.
        let is_gone = |wait: Duration| {
            let Some(limit) = Limit::new(16 << 20).unwrap() else {
                println!("no control group can be made here");
                return true;
            };
            assert!(!limit.has_killed());
            // It begins when it reads a line, in its group. tail keeps its output: far more than the limit.
            let hungry = "read go; head -c 300m /dev/zero | tail -c 200m > /dev/null";
            let mut child = started(Command::new("sh").args(["-c", hungry]).stdin(Stdio::piped()));
            limit.take_in(child.id()).unwrap();
            // It reads the end of its input.
            drop(child.stdin.take());
            child.wait().unwrap();
            assert!(limit.has_killed());
            let dir = limit.dir.clone();
            thread::sleep(wait);
            drop(limit);
            let is_gone = !dir.exists();
            drop(fs::remove_dir(dir));
            is_gone
        };
        assert!([100, 1_000, 10_000, 60_000].map(Duration::from_millis).into_iter().any(is_gone));
    }

    #[test]
    fn swap_is_no_way_around_the_limit() {
        let Some(limit) = Limit::new(16 << 20).unwrap() else {
            println!("no control group can be made here");
            return;
        };
        for (file, most) in [("memory.swap.max", 0_u64), ("memory.memsw.limit_in_bytes", 16 << 20)] {
            match fs::read_to_string(limit.dir.join(file)) {
                Ok(text) => assert_eq!(text.trim().parse(), Ok(most), "{file}"),
                Err(_) => println!("no {file} here"),
            }
        }
    }

    #[test]
    fn a_group_that_is_there_is_skipped() {
        let root = tempfile::tempdir().unwrap();
        let path = |number| root.path().join(format!("{NAME}{}-{number}", std::process::id()));
        [0, 1, 3].into_iter().for_each(|number| fs::create_dir(path(number)).unwrap());
        let made = AtomicU64::new(0);
        assert_eq!(make_group(root.path(), &made).unwrap(), path(2));
        assert_eq!(make_group(root.path(), &made).unwrap(), path(4));
        let error = make_group(&root.path().join("missing"), &made).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn groups_of_labs_that_have_ended_go() {
        let root = tempfile::tempdir().unwrap();
        // No process has such a large id.
        let ended = format!("{NAME}{}-0", u32::MAX);
        let alive = format!("{NAME}{}-0", std::process::id());
        let others =
            [format!("{NAME}data-0"), format!("other-{}-0", u32::MAX), format!("{NAME}{}", u32::MAX)];
        [&ended, &alive]
            .into_iter()
            .chain(&others)
            .for_each(|name| fs::create_dir(root.path().join(name)).unwrap());
        remove_stale_of(root.path());
        assert!(!root.path().join(ended).exists());
        assert!([&alive].into_iter().chain(&others).all(|name| root.path().join(name).exists()));
    }

    #[test]
    fn a_group_that_stays_behind_does_not_take_the_limit_of_the_next() {
        let Some(first) = Limit::new(64 << 20).unwrap() else {
            println!("no control group can be made here");
            return;
        };
        // A living process keeps its group busy when the limit is dropped.
        let mut child = started(Command::new("sleep").arg("60"));
        first.take_in(child.id()).unwrap();
        let dir = first.dir.clone();
        drop(first);
        assert!(dir.exists());
        let second = Limit::new(64 << 20).unwrap();
        assert!(second.is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        let mut waits = [10, 100, 1_000, 10_000, 60_000].map(Duration::from_millis).into_iter();
        assert!(waits.any(|wait| {
            thread::sleep(wait);
            fs::remove_dir(&dir).is_ok()
        }));
    }
}
