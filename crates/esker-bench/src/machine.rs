//! Describes the machine and the code, so that a figure can be judged and repeated.
//!
//!   /proc, /sys, statvfs, git -> Machine, commit -> context.rs -> run.json

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use esker_bench_api::{Failure, Result};
use serde::{Deserialize, Serialize};

use crate::scale::Scale;

/// Setting of a device's read-ahead, in KiB.
const READ_AHEAD: &str = "read_ahead_kb";
/// Default of Linux.
const READ_AHEAD_KIB: u64 = 128;
/// Highest read-ahead without a warning. More of it changes random reads through a map into another workload.
/// Published results need the default.
const READ_AHEAD_KIB_MAX: u64 = 512;

/// The machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// File system and device of the database directory.
    pub(crate) disk: String,
    /// Frequency governor and turbo; empty in old results.
    #[serde(default)]
    pub(crate) clock: String,
}

impl Machine {
    /// Describes this machine. `dir` is the directory for the databases.
    pub(crate) fn describe(dir: &Path) -> Self {
        let cpu =
            file_field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let memory = file_field("/proc/meminfo", "MemTotal").unwrap_or_default();
        let memory_kib: u64 = memory.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
        let kernel = read_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
        Self {
            cpu,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib * 1024,
            kernel: format!("{} {kernel}", std::env::consts::OS),
            disk: disk_of(dir).unwrap_or_else(|| "unknown".to_owned()),
            clock: clock(),
        }
    }

    /// Returns one line for the head of a table.
    pub(crate) fn line(&self) -> String {
        let memory_gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let machine = [&self.kernel, &self.disk, &self.clock].map(String::as_str);
        let known: Vec<_> = machine.into_iter().filter(|text| !text.is_empty()).collect();
        format!("{} cores of {}, {memory_gib:.0} GiB, {}", self.cores, self.cpu, known.join(", "))
    }

    /// Returns whether both descriptions may be of one machine. Fields that one of them lacks are ignored.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        // Older descriptions end before the read-ahead.
        let disks = self.disk.starts_with(&other.disk) || other.disk.starts_with(&self.disk);
        disks && self.may_be_with_another_disk(other)
    }

    /// Does the same without comparing the disks.
    pub(crate) fn may_be_with_another_disk(&self, other: &Self) -> bool {
        let gib = |machine: &Self| machine.memory_bytes.saturating_add(1 << 29) >> 30;
        let clocks = [&self.clock, &other.clock];
        self.cpu == other.cpu
            && self.cores == other.cores
            && gib(self) == gib(other)
            && self.kernel == other.kernel
            && (clocks.iter().any(|clock| clock.is_empty()) || clocks[0] == clocks[1])
    }
}

/// Returns a warning if the device below `dir` reads ahead too far. At a scale whose results are published,
/// that is an error, unless `any` is set.
pub(crate) fn judge_read_ahead(dir: &Path, scale: Scale, any: bool) -> Result<Option<String>> {
    let queue = mount_of(dir).and_then(|(device, _)| Queue::of(&device));
    let Some(queue) = queue else { return Ok(None) };
    let Some(kib) = queue.setting(READ_AHEAD) else { return Ok(None) };
    judge(&kib, &queue.device, scale, any)
}

/// Does the same for a device called `name` with this read-ahead.
fn judge(kib: &str, name: &str, scale: Scale, any: bool) -> Result<Option<String>> {
    let is_published = matches!(scale, Scale::Seed | Scale::Full);
    if !is_published || any {
        return Ok(warning_of(kib, name, READ_AHEAD_KIB_MAX));
    }
    warning_of(kib, name, READ_AHEAD_KIB).map_or(Ok(None), |why| {
        Err(Failure::Engine(format!(
            "{why}. With --any-read-ahead the run begins all the same, and says what it was"
        )))
    })
}

fn warning_of(kib: &str, name: &str, most: u64) -> Option<String> {
    let kib: u64 = kib.parse().ok()?;
    (kib > most).then(|| {
        format!(
            "{name} reads {kib} KiB ahead: engines that map their file and never advise (Badger, sanakirja) read so much for each page that is missing. \
             The kernel's default: echo {READ_AHEAD_KIB} > /sys/block/{name}/queue/{READ_AHEAD} (as root)"
        )
    })
}

/// Name and settings of a block device. A partition has the settings of the whole device.
struct Queue {
    device: String,
    dir: PathBuf,
}

impl Queue {
    /// Finds the settings of `device`, a path below /dev.
    fn of(device: &str) -> Option<Self> {
        let name = device.rsplit('/').next()?;
        let whole = fs::canonicalize(format!("/sys/class/block/{name}")).ok()?;
        let whole = whole.ancestors().take(2).find(|dir| dir.join("queue").is_dir())?;
        Some(Self { device: whole.file_name()?.to_str()?.to_owned(), dir: whole.join("queue") })
    }

    fn setting(&self, name: &str) -> Option<String> {
        Some(fs::read_to_string(self.dir.join(name)).ok()?.trim().to_owned())
    }
}

/// Returns the bytes that are free under `dir`, if known.
#[cfg(unix)]
pub(crate) fn disk_bytes_free(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail * stat.f_frsize)
}

#[cfg(not(unix))]
pub(crate) fn disk_bytes_free(_dir: &Path) -> Option<u64> {
    None
}

/// Syncs all file systems, so that the next engine does not wait for earlier writes.
pub(crate) fn settle_disk() {
    #[cfg(unix)]
    rustix::fs::sync();
}

/// Trims the file system that holds `dir`, or returns why that failed.
pub(crate) fn trim(dir: &Path) -> Result<(), String> {
    let output = Command::new("fstrim").arg(dir).output().map_err(|error| format!("fstrim: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

/// Drops the page cache, so that the next reads come from the device. Returns false if this process may not.
pub(crate) fn drop_page_cache() -> bool {
    settle_disk();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub(crate) fn unix_milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the commit of this program's sources, or `unknown` outside a clone.
pub(crate) fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]).unwrap_or_default();
    if changes.is_empty() { head } else { format!("{head}-dirty") }
}

fn read_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn file_field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns frequency governor and turbo, as far as Linux knows them.
fn clock() -> String {
    let cpu = |name: &str| read_line(&format!("/sys/devices/system/cpu/{name}"));
    let governor = cpu("cpu0/cpufreq/scaling_governor");
    let turbo = match (cpu("intel_pstate/no_turbo").as_deref(), cpu("cpufreq/boost").as_deref()) {
        (Some("0"), _) | (None, Some("1")) => "turbo on",
        (Some(_), _) | (None, Some(_)) => "turbo off",
        (None, None) => "turbo unknown",
    };
    match governor {
        Some(governor) => format!("governor {governor}, {turbo}"),
        None => format!("governor unknown, {turbo}"),
    }
}

/// Describes file system, device, write cache and read-ahead of the mount that holds `dir`.
fn disk_of(dir: &Path) -> Option<String> {
    let (device, file_system) = mount_of(dir)?;
    let setting = |name| Queue::of(&device)?.setting(name);
    let cache = setting("write_cache");
    let cache = cache.map(|cache| format!(", {cache} cache")).unwrap_or_default();
    let ahead = setting(READ_AHEAD);
    let ahead = ahead.map(|ahead| format!(", read-ahead {ahead} KiB")).unwrap_or_default();
    Some(format!("{file_system} on {device}{cache}{ahead}"))
}

/// Returns device and file system of the mount that holds `dir`.
fn mount_of(dir: &Path) -> Option<(String, String)> {
    let dir = fs::canonicalize(dir).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let (_, device, file_system) = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (device, place, file_system) = (fields.next()?, fields.next()?, fields.next()?);
            dir.starts_with(place).then_some((place.len(), device, file_system))
        })
        .max()?;
    Some((device.to_owned(), file_system.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let machine = Machine::describe(&std::env::temp_dir());
        assert!(machine.cores > 0 && machine.line().contains("cores of"));
        assert!(machine.line().contains("governor") && machine.clock.contains("turbo"));
        let before_it_was_noted = Machine { clock: String::new(), ..machine };
        assert!(
            !before_it_was_noted.line().contains("governor") && !before_it_was_noted.line().ends_with(' ')
        );
        if cfg!(target_os = "linux") {
            assert!(before_it_was_noted.memory_bytes > 0);
            assert!(disk_bytes_free(&std::env::temp_dir()).unwrap() > 0);
        }
    }

    #[test]
    fn a_device_that_reads_far_ahead_is_warned_of() {
        for kib in ["0", "128", "512", "unknown"] {
            assert_eq!(judge(kib, "vda", Scale::Quick, false).unwrap(), None, "{kib}");
        }
        let warning = judge("4096", "vda", Scale::Quick, false).unwrap().unwrap();
        let command = "echo 128 > /sys/block/vda/queue/read_ahead_kb (as root)";
        assert!(warning.starts_with("vda reads 4096 KiB ahead") && warning.ends_with(command), "{warning}");
        // The description contains the setting that the warning is about.
        let dir = std::env::temp_dir();
        let described = Machine::describe(&dir).disk;
        let ahead = described.split("read-ahead ").nth(1).and_then(|ahead| ahead.strip_suffix(" KiB"));
        let warned = judge_read_ahead(&dir, Scale::Quick, false).unwrap().is_some();
        assert_eq!(warned, ahead.is_some_and(|kib| kib.parse::<u64>().unwrap() > READ_AHEAD_KIB_MAX));
    }

    #[test]
    fn a_scale_that_is_published_is_refused_on_a_device_that_reads_further_ahead_than_by_default() {
        for scale in [Scale::Seed, Scale::Full] {
            for kib in ["0", "128", "unknown"] {
                assert_eq!(judge(kib, "vda", scale, false).unwrap(), None, "{kib}");
            }
            let refusal = judge("256", "vda", scale, false).unwrap_err().to_string();
            let command = "echo 128 > /sys/block/vda/queue/read_ahead_kb (as root)";
            assert!(refusal.contains(command) && refusal.contains("--any-read-ahead"), "{refusal}");
            assert_eq!(judge("256", "vda", scale, true).unwrap(), None);
            assert!(judge("4096", "vda", scale, true).unwrap().unwrap().contains(command));
        }
    }

    #[test]
    fn what_was_not_noted_does_not_make_another_machine() {
        let now = Machine::describe(&std::env::temp_dir());
        let now = Machine { disk: format!("{}, and more", now.disk), ..now };
        let before =
            Machine { clock: String::new(), disk: now.disk.replace(", and more", ""), ..now.clone() };
        assert!(now.may_be(&before) && before.may_be(&now) && now.may_be(&now));
        for other in [
            Machine { cpu: "another".to_owned(), ..now.clone() },
            Machine { cores: now.cores + 1, ..now.clone() },
            Machine { memory_bytes: now.memory_bytes + (1 << 30), ..now.clone() },
            Machine { kernel: "another".to_owned(), ..now.clone() },
            Machine { disk: "another".to_owned(), ..now.clone() },
            Machine { clock: "another".to_owned(), ..now.clone() },
        ] {
            assert!(!now.may_be(&other) && !other.may_be(&now), "{}", other.line());
        }
    }
}
