//! Runs the fuzz targets one after the other and reports the results.
//!
//! ```text
//!   cargo xtask fuzz --> cargo fuzz build --> each target: output --report.rs--> progress, a row, findings
//!                                              |  ^
//!                     target/fuzz/corpus/NAME <-'  '- fuzz/corpus/NAME: read only, except with --minimise
//! ```
//!
//! Missing tools are reported, not installed. See docs/testing.md

mod plan;
mod report;

use std::fs;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use self::plan::Plan;
use self::report::Report;
use crate::cargo;

/// Maximum size of inputs. For `operations`, the simulator uses at most `INPUT_BYTES_MAX` of
/// esker-world/src/generate.rs.
const INPUT_BYTES_MAX: usize = 65_536;
const OPERATIONS_BYTES_MAX: usize = 4_096;
/// Maximum size and number of inputs per target in the repository.
const KEPT_BYTES_MAX: usize = 8_192;
const KEPT_INPUTS_MAX: usize = 40;
/// Limits of a call in seconds and MiB, for all targets. Memory left to the epochs at the end of the process
/// is not a leak.
const LIMITS: [&str; 3] = ["-timeout=25", "-rss_limit_mb=2048", "-detect_leaks=0"];

/// Runs the targets. Returns whether nothing was found.
pub(crate) fn run(args: &[&str]) -> Result<bool, String> {
    let all = targets()?;
    let plan = Plan::parse(args, &all)?;
    let host = host()?;
    let dir = cargo::target_dir().join("fuzz");
    let built = cargo::program("cargo")
        .args(["+nightly", "fuzz", "build", "--target-dir"])
        .arg(&dir)
        .status()
        .map_err(|e| format!("cargo cannot be started: {e}"))?;
    if !built.success() {
        return Err("the targets cannot be built".to_owned());
    }
    let folders = Folders {
        binaries: dir.join(host).join("release"),
        corpus: plan.corpus.clone().unwrap_or_else(|| dir.join("corpus")),
        artifacts: dir.join("artifacts"),
    };
    if plan.minimise {
        plan.targets.iter().try_for_each(|name| folders.minimise(name))?;
        return Ok(true);
    }
    println!("{}", Report::HEAD);
    let mut findings = Vec::new();
    for name in &plan.targets {
        let report = folders.fuzz(name, plan.seconds)?;
        println!("{}", report.row(name));
        findings.extend(report.finding(name));
    }
    findings.iter().for_each(|finding| println!("\n{finding}"));
    Ok(findings.is_empty())
}

/// Returns the names of the targets.
fn targets() -> Result<Vec<String>, String> {
    let folder = cargo::root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let names = entries.flatten().map(|entry| entry.path());
    let mut names: Vec<_> =
        names.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect();
    names.sort();
    Ok(names)
}

/// Returns the host triple of the nightly compiler. The error names a missing tool.
fn host() -> Result<String, String> {
    let says = |program: &str, args: &[&str]| {
        let output = cargo::program(program).args(args).output().ok().filter(|o| o.status.success())?;
        String::from_utf8(output.stdout).ok()
    };
    let compiler = says("rustc", &["+nightly", "-vV"])
        .ok_or("no nightly compiler: rustup toolchain install nightly --profile minimal")?;
    says("cargo", &["+nightly", "fuzz", "--version"])
        .ok_or("no cargo-fuzz: cargo install cargo-fuzz --locked")?;
    let host = compiler.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.ok_or("rustc does not name its host")?.to_owned())
}

/// Returns the corpus of a target in the repository.
fn kept(name: &str) -> PathBuf {
    cargo::root().join("fuzz/corpus").join(name)
}

struct Folders {
    binaries: PathBuf,
    corpus: PathBuf,
    artifacts: PathBuf,
}

impl Folders {
    /// Fuzzes one target for this time, or until something is found.
    fn fuzz(&self, name: &str, seconds: u64) -> Result<Report, String> {
        let corpus = self.corpus.join(name);
        let artifacts = self.artifacts.join(name);
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        let bytes_max = if name == "operations" { OPERATIONS_BYTES_MAX } else { INPUT_BYTES_MAX };
        let (start, cpu) = (Instant::now(), cpu_of_children());
        let mut child = cargo::program(&self.binaries.join(name).to_string_lossy())
            .args([&corpus, &kept(name)])
            .args(LIMITS)
            .arg(format!("-max_len={bytes_max}"))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg("-print_final_stats=1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{name} cannot be started: {e}"))?;
        let mut report = Report::default();
        let mut progress = Progress::new(name, seconds);
        let lines = BufReader::new(child.stderr.take().expect("it is piped"));
        // The lines may contain arbitrary bytes of a failing input.
        for line in lines.split(b'\n') {
            let line = line.map_err(|e| format!("{name}: {e}"))?;
            report.read(&String::from_utf8_lossy(&line));
            progress.show(&report);
        }
        progress.clear();
        report.failed = !child.wait().map_err(|e| format!("{name}: {e}"))?.success();
        report.wall = start.elapsed();
        report.cpu = cpu_of_children().zip(cpu).map(|(after, before)| after.saturating_sub(before));
        report.inputs = fs::read_dir(&corpus).map_or(0, |entries| entries.count());
        Ok(report)
    }

    /// Writes a minimal set of small inputs with the coverage of all known ones into the repository. If there
    /// are too many, keeps those that add the most coverage.
    fn minimise(&self, name: &str) -> Result<(), String> {
        let merged = self.corpus.join(format!("{name}.merged"));
        let at = |path: &Path, e| format!("{}: {e}", path.display());
        if merged.exists() {
            fs::remove_dir_all(&merged).map_err(|e| at(&merged, e))?;
        }
        fs::create_dir_all(&merged).map_err(|e| at(&merged, e))?;
        let folders = [kept(name), self.corpus.join(name)];
        let status = cargo::program(&self.binaries.join(name).to_string_lossy())
            .arg("-set_cover_merge=1")
            // One input per edge, regardless of how often it is taken.
            .arg("-use_counters=0")
            .arg(format!("-max_len={KEPT_BYTES_MAX}"))
            .args(LIMITS)
            .arg(&merged)
            .args(folders.iter().filter(|folder| folder.exists()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|e| format!("{name} cannot be started: {e}"))?;
        let inputs = oldest_first(&merged)?;
        if !status.success() || inputs.is_empty() {
            return Err(format!("{name}: the corpus cannot be merged; fuzz it to see why"));
        }
        let kept = kept(name);
        if kept.exists() {
            fs::remove_dir_all(&kept).map_err(|e| at(&kept, e))?;
        }
        fs::create_dir_all(&kept).map_err(|e| at(&kept, e))?;
        let mut size = 0;
        // The fuzzer writes inputs that add the most coverage first.
        let inputs = &inputs[..inputs.len().min(KEPT_INPUTS_MAX)];
        for input in inputs {
            let to = kept.join(input.file_name().unwrap_or_default());
            size += fs::copy(input, &to).map_err(|e| at(&to, e))?;
        }
        println!("{name}: {} inputs, {size} bytes", inputs.len());
        fs::remove_dir_all(&merged).map_err(|e| at(&merged, e))
    }
}

/// Returns the files of a directory, oldest first.
fn oldest_first(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<_> = entries
        .flatten()
        .map(|entry| (entry.metadata().and_then(|file| file.modified()).ok(), entry.path()))
        .collect();
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Returns the CPU time of ended children, on Linux.
fn cpu_of_children() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // After the program's name in parentheses follow fields 3 and later. The children's times are fields 16
    // and 17.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(13)?.parse::<u64>().ok()? + fields.get(14)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

/// A progress line for one target.
struct Progress<'a> {
    name: &'a str,
    seconds: u64,
    start: Instant,
    shown: Option<Instant>,
    someone_looks: bool,
}

impl<'a> Progress<'a> {
    fn new(name: &'a str, seconds: u64) -> Self {
        let someone_looks = std::io::stdout().is_terminal();
        Progress { name, seconds, start: Instant::now(), shown: None, someone_looks }
    }

    fn show(&mut self, report: &Report) {
        let due = self.shown.is_none_or(|shown| shown.elapsed() > Duration::from_millis(500));
        if !self.someone_looks || !due {
            return;
        }
        self.shown = Some(Instant::now());
        let at = self.start.elapsed().as_secs();
        print!(
            "\r{} {at}/{} s, {} executions, {} edges\x1b[K",
            self.name, self.seconds, report.executions, report.edges
        );
        // Failing to show the line is not an error.
        let _ = std::io::stdout().flush();
    }

    fn clear(&self) {
        if self.someone_looks {
            print!("\r\x1b[K");
        }
    }
}
