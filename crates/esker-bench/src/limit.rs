//! Limits the memory of a child process by a control group, where the machine allows it: page cache of its files included.
//!
//! ```text
//! cgroup v2   /sys/fs/cgroup/NAME/memory.max                          memory.events: oom_kill
//! cgroup v1   /sys/fs/cgroup/memory/NAME/memory.limit_in_bytes        memory.oom_control: oom_kill
//! ```
//!
//! L1. The group is empty again and gone when the limit is dropped after the child's end.

use std::fs;
use std::path::{Path, PathBuf};

/// A control group for one child.
pub(crate) struct Limit {
    dir: PathBuf,
    /// The file that counts kills.
    events: &'static str,
    /// For reports.
    pub(crate) description: String,
}

impl Limit {
    /// A group with this limit; `None` where the machine has no group that this process may make.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let name = format!("esker-bench-{}", std::process::id());
        let v2 = (Path::new("/sys/fs/cgroup"), "memory.max", "memory.events", "cgroup v2");
        let v1 =
            (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.oom_control", "cgroup v1");
        [v2, v1].into_iter().find_map(|(root, file, events, version)| {
            let dir = root.join(&name);
            fs::create_dir(&dir).ok()?;
            let limit = Self {
                dir,
                events,
                description: format!("{version}: {} MiB for the process and its page cache", bytes >> 20),
            };
            let path = limit.dir.join(file);
            // A directory in a tree without the memory controller has no such file, and writing must not make one.
            (path.exists() && fs::write(path, bytes.to_string()).is_ok()).then_some(limit)
        })
    }

    /// Puts the process into the group.
    pub(crate) fn take_in(&self, process: u32) -> std::io::Result<()> {
        fs::write(self.dir.join("cgroup.procs"), process.to_string())
    }

    /// Whether a process of the group was killed because of the limit.
    pub(crate) fn has_killed(&self) -> bool {
        let events = fs::read_to_string(self.dir.join(self.events)).unwrap_or_default();
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.and_then(|kills| kills.trim().parse().ok()).is_some_and(|kills: u64| kills > 0)
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // L1. A group that is still busy stays behind, empty and harmless.
        drop(fs::remove_dir(&self.dir));
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn l1_a_process_beyond_its_limit_is_killed_and_the_group_goes() {
        let Some(limit) = Limit::new(16 << 20) else {
            println!("no control group can be made here");
            return;
        };
        assert!(!limit.has_killed());
        // tail keeps what it will print: far more than the limit.
        let hungry = "sleep 0.3; head -c 300m /dev/zero | tail -c 200m > /dev/null";
        let mut child = Command::new("sh").args(["-c", hungry]).spawn().unwrap();
        limit.take_in(child.id()).unwrap();
        child.wait().unwrap();
        assert!(limit.has_killed());
        let dir = limit.dir.clone();
        // The kernel empties a group a little after its last process has ended.
        thread::sleep(Duration::from_millis(100));
        drop(limit);
        assert!(!dir.exists());
    }
}
