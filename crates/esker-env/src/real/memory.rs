//! Determines the memory available to the page cache.
//!
//! ```text
//!   /proc/meminfo: MemAvailable ----------------------------------------------.
//!   /proc/self/cgroup --each group up to the root--> limit - use + its files --`--> the smallest of all
//! ```
//!
//! Pages in the cache count as available, because they can be evicted. A missing or unreadable file sets no
//! limit. Without `MemAvailable` the result is unknown.

use std::path::{Path, PathBuf};

/// The file names of a version of control groups.
struct Names {
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    files: [&'static str; 2],
}

const V2: Names = Names {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    files: ["inactive_file", "active_file"],
};
const V1: Names = Names {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    files: ["total_inactive_file", "total_active_file"],
};

/// Returns the bytes of memory available to the page cache for this process, if known.
pub(super) fn page_cache_room() -> Option<u64> {
    room(|path| std::fs::read_to_string(path).ok())
}

fn room(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let kib = number_of(&read("/proc/meminfo".as_ref())?, "MemAvailable:")?;
    let groups = read("/proc/self/cgroup".as_ref()).unwrap_or_default();
    let limits = groups.lines().filter_map(group).flat_map(|(names, group)| {
        let dirs: Vec<_> = group.ancestors().map(|dir| (names, dir.to_owned())).collect();
        dirs.into_iter().filter_map(|(names, dir)| room_of_group(names, &dir, &read))
    });
    Some(limits.fold(kib.saturating_mul(1 << 10), u64::min))
}

/// Returns the memory control group in a line of `/proc/self/cgroup`, relative to the root of its version.
fn group(line: &str) -> Option<(&'static Names, PathBuf)> {
    let (_, line) = line.split_once(':')?;
    let (controllers, path) = line.split_once(':')?;
    let names = match controllers {
        "" => &V2,
        _ if controllers.split(',').any(|controller| controller == "memory") => &V1,
        _ => return None,
    };
    Some((names, path.trim_start_matches('/').into()))
}

fn room_of_group(names: &Names, group: &Path, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let dir = Path::new(names.root).join(group);
    let number = |name: &str| read(&dir.join(name))?.trim().parse::<u64>().ok();
    // "max" is not a number.
    let (limit, used) = (number(names.limit)?, number(names.used)?);
    let stat = read(&dir.join("memory.stat")).unwrap_or_default();
    let files: u64 = names.files.iter().filter_map(|name| number_of(&stat, name)).sum();
    Some(limit.saturating_sub(used.saturating_sub(files)))
}

/// Returns the number after `name` in lines of the form "name number ...".
fn number_of(text: &str, name: &str) -> Option<u64> {
    let mut words = text.lines().map(str::split_whitespace);
    words.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room_with(files: &[(&str, &str)]) -> Option<u64> {
        let find = |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path);
        room(|path| find(path).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn the_smallest_limit_counts() {
        let system = ("/proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   80 kB\n");
        assert_eq!((room_with(&[]), room_with(&[system])), (None, Some(80 << 10)));
        let second = [
            system,
            ("/proc/self/cgroup", "4:cpu:/x\n0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/memory.current", "1\n"),
            ("/sys/fs/cgroup/a/memory.max", "5000\n"),
            ("/sys/fs/cgroup/a/memory.current", "4000\n"),
            ("/sys/fs/cgroup/a/memory.stat", "anon 3000\ninactive_file 600\nactive_file 300\n"),
        ];
        assert_eq!(room_with(&second), Some(1900));
        let first = [
            system,
            ("/proc/self/cgroup", "4:cpu,memory:/a\n0::/\n"),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n"),
            ("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "7000\n"),
            ("/sys/fs/cgroup/memory/a/memory.stat", "active_file 1\ntotal_active_file 500\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "7000\n"),
        ];
        assert_eq!(room_with(&first), Some(0));
    }
}
