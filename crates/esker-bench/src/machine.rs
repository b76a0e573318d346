//! Describes the machine and the code, so that a figure can be judged and repeated.
//!
//!   /proc, /sys, statvfs, git, the command line -> Context -> run.json, the head of every report

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use esker_bench_api::results::Record;
use serde::{Deserialize, Serialize};

/// Where, when and how the results of a run came about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Context {
    pub(crate) machine: Machine,
    /// In what state the engines found the device.
    #[serde(default = "not_trimmed")]
    pub(crate) device: String,
    /// Commit of this repository, with `-dirty` when files differ from it.
    pub(crate) commit: String,
    /// Seconds since 1970, UTC.
    pub(crate) started_unix_s: u64,
    /// The command that repeats the run.
    pub(crate) command: String,
    pub(crate) engines: Vec<EngineContext>,
}

/// [`Context::device`] of a run with `--trim`.
const TRIMMED: &str = "trimmed before each turn";
/// [`Context::device`] of a run without.
const NOT_TRIMMED: &str = "as earlier runs left it, not trimmed";

/// What it was before there was `--trim`.
fn not_trimmed() -> String {
    NOT_TRIMMED.to_owned()
}

/// [`Context::device`] of a run with or without `--trim`.
pub(crate) fn device(trim: bool) -> String {
    if trim { TRIMMED } else { NOT_TRIMMED }.to_owned()
}

impl Context {
    /// Notes which suites each engine ran, from the records of the run.
    pub(crate) fn note_suites(&mut self, records: &[Record]) {
        for engine in &mut self.engines {
            engine.suites.clear();
            for record in records.iter().filter(|record| record.engine == engine.name) {
                if !engine.suites.contains(&record.suite) {
                    engine.suites.push(record.suite.clone());
                }
            }
        }
    }

    /// Adds the engines and the command of another run. An engine stands once for each way in which it was run.
    pub(crate) fn add(&mut self, other: Self) {
        for engine in other.engines {
            match self.engines.iter_mut().find(|known| known.ran_like(&engine)) {
                Some(known) => {
                    let new = engine.suites.into_iter().filter(|suite| !known.suites.contains(suite));
                    let new: Vec<String> = new.collect();
                    known.suites.extend(new);
                }
                None => self.engines.push(engine),
            }
        }
        if !self.command.lines().any(|known| known == other.command) {
            self.command += &format!("\n{}", other.command);
        }
        if !self.commit.split(", ").any(|known| known == other.commit) {
            self.commit += &format!(", {}", other.commit);
        }
        if !self.device.split(", or ").any(|known| known == other.device) {
            self.device += &format!(", or {}", other.device);
        }
        // What one of them did not note does not make it another machine.
        if self.machine.clock.is_empty() {
            self.machine.clock.clone_from(&other.machine.clock);
        }
        let line = other.machine.line();
        if !self.machine.line().starts_with(&line) && !self.machine.cpu.contains(&line) {
            self.machine.cpu += &format!(" (and another machine: {line})");
        }
    }
}

/// An engine as it was run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EngineContext {
    pub(crate) name: String,
    pub(crate) version: String,
    /// What its transactions guarantee.
    pub(crate) isolation: String,
    /// Option, value, reason, pointer.
    pub(crate) options: Vec<[String; 4]>,
    /// The suites that it ran so, as the records beside a run.json tell; empty until they are asked.
    #[serde(skip)]
    pub(crate) suites: Vec<String>,
}

impl EngineContext {
    /// Whether both are one engine with the same guarantees and the same values of its options, whatever the reasons that are given.
    fn ran_like(&self, other: &Self) -> bool {
        let values = |engine: &Self| -> Vec<[String; 2]> {
            engine.options.iter().map(|[option, value, ..]| [option.clone(), value.clone()]).collect()
        };
        self.name == other.name
            && self.version == other.version
            && self.isolation == other.isolation
            && values(self) == values(other)
    }
}

/// The machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    /// File system and device of the database directory.
    pub(crate) disk: String,
    /// Who chooses the clock's speed, and whether it may exceed the nominal one; empty in results that were made before this
    /// was noted.
    #[serde(default)]
    pub(crate) clock: String,
}

impl Machine {
    /// The machine as it is now; `dir` is where databases are made.
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

    /// One line for the head of a table.
    pub(crate) fn line(&self) -> String {
        let memory_gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let machine = [&self.kernel, &self.disk, &self.clock].map(String::as_str);
        let known: Vec<_> = machine.into_iter().filter(|text| !text.is_empty()).collect();
        format!("{} cores of {}, {memory_gib:.0} GiB, {}", self.cores, self.cpu, known.join(", "))
    }
}

/// Bytes that can still be written under `dir`, where the system tells.
#[cfg(unix)]
pub(crate) fn disk_bytes_free(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail * stat.f_frsize)
}

#[cfg(not(unix))]
pub(crate) fn disk_bytes_free(_dir: &Path) -> Option<u64> {
    None
}

/// Writes what other programs left unwritten, so that the next engine does not wait for it.
pub(crate) fn settle_disk() {
    #[cfg(unix)]
    rustix::fs::sync();
}

/// Tells the device which blocks of the file system that holds `dir` are free, or says why that cannot be done.
pub(crate) fn trim(dir: &Path) -> Result<(), String> {
    let output = Command::new("fstrim").arg(dir).output().map_err(|error| format!("fstrim: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

/// Makes Linux forget what it has cached of files, so that the next reads come from the device; false where this process may not.
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

/// The commit this program's sources stand at, or `unknown` outside a clone.
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

/// Frequency governor and turbo, as far as Linux tells.
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

/// File system, device, write cache and read-ahead of the mount that holds `dir`.
fn disk_of(dir: &Path) -> Option<String> {
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
    let name = device.rsplit('/').next().unwrap_or(device);
    let cache = read_line(&format!("/sys/class/block/{name}/queue/write_cache"));
    let cache = cache.map(|cache| format!(", {cache} cache")).unwrap_or_default();
    let ahead = read_line(&format!("/sys/class/block/{name}/queue/read_ahead_kb"));
    let ahead = ahead.map(|ahead| format!(", read-ahead {ahead} KiB")).unwrap_or_default();
    Some(format!("{file_system} on {device}{cache}{ahead}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::tests::record;

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
    fn an_engine_that_ran_with_other_options_stands_twice() {
        let run = |suite: &str, cache: &str, isolation: &str, reason: &str| {
            let engine = EngineContext {
                name: "esker".to_owned(),
                version: "1.0".to_owned(),
                isolation: isolation.to_owned(),
                options: vec![["cache", cache, reason, ""].map(str::to_owned)],
                suites: Vec::new(),
            };
            let mut run = Context {
                machine: Machine::describe(&std::env::temp_dir()),
                device: String::new(),
                commit: String::new(),
                started_unix_s: 0,
                command: String::new(),
                engines: vec![engine],
            };
            run.note_suites(&[Record { suite: suite.to_owned(), ..record("esker", "load", 1, Some(1.0)) }]);
            run
        };
        let mut all = run("int", "1 GiB", "snapshot isolation", "its default");
        all.add(run("large", "2 GiB", "snapshot isolation", "its default"));
        all.add(run("redb", "1 GiB", "snapshot isolation", "in other words"));
        all.add(run("open", "1 GiB", "atomic batches", "its default"));
        all.add(run("int", "1 GiB", "snapshot isolation", "its default"));
        let sets = all.engines.iter().map(|engine| (engine.options[0][1].as_str(), engine.suites.join(", ")));
        let expected = [("1 GiB", "int, redb"), ("2 GiB", "large"), ("1 GiB", "open")];
        assert_eq!(sets.collect::<Vec<_>>(), expected.map(|(cache, suites)| (cache, suites.to_owned())));
    }

    #[test]
    fn runs_of_one_machine_are_of_one_machine_and_name_all_commits() {
        let machine = Machine::describe(&std::env::temp_dir());
        let run = |commit: &str, machine: &Machine| Context {
            machine: machine.clone(),
            device: device(commit == "b"),
            commit: commit.to_owned(),
            started_unix_s: 0,
            command: String::new(),
            engines: Vec::new(),
        };
        let before_it_was_noted = Machine { clock: String::new(), ..machine.clone() };
        let mut all = run("a", &before_it_was_noted);
        all.add(run("b", &machine));
        all.add(run("a", &before_it_was_noted));
        assert_eq!((all.machine.line(), all.commit.as_str()), (machine.line(), "a, b"));
        assert_eq!(all.device, format!("{NOT_TRIMMED}, or {TRIMMED}"));
        let faster = Machine { cores: 1000, ..machine.clone() };
        all.add(run("b", &faster));
        all.add(run("b", &faster));
        assert_eq!(all.machine.line().matches("1000 cores").count(), 1);
    }
}
