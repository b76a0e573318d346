//! Measures one piece of work: time, processor time, memory, bytes moved, bytes on disk.
//!
//!   Meter::measure(dir, work) -> (what work returned, its seconds, its Usage)
//!
//! - Only `work` is timed: counters are read before the clock starts and after it has stopped.
//! - The peak of resident memory belongs to this piece of work. The kernel's mark is reset before it, if the
//!   kernel allows that.
//! - Looking at the files during the work costs little of its time, however many files there are. After a
//!   walk there is a pause of 20 times its duration, in which its result is used again.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use esker_bench_api::results::Usage;

const WATCH_EVERY: Duration = Duration::from_millis(50);
/// Number of looks at the process for each look at the files.
const LOOKS_PER_WALK: u32 = 10;
/// Pause after a walk, as a multiple of its duration.
const REST_PER_WALK: u32 = 20;
const IDLE_WINDOWS: u32 = 3;
/// Part of a window that an idle process may spend computing.
const IDLE_SHARE: f64 = 0.03;
/// Longest wait for an engine that never becomes idle.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(600);

/// Id of the measured process; 0 is this one. It is set before anything is measured, so `Relaxed` is enough.
static MEASURED: AtomicU32 = AtomicU32::new(0);

/// Measures another process from now on, in which an engine runs.
pub(crate) fn measure_process(id: u32) {
    MEASURED.store(id, Ordering::Relaxed);
}

/// Returns the path of a file of /proc of the measured process.
fn proc_path(file: &str) -> String {
    match MEASURED.load(Ordering::Relaxed) {
        0 => format!("/proc/self/{file}"),
        id => format!("/proc/{id}/{file}"),
    }
}

fn proc_file(file: &str) -> String {
    fs::read_to_string(proc_path(file)).unwrap_or_default()
}

/// Returns the longest wait for an idle engine, given the time limit of a step. It is at most a quarter of
/// the limit: one step may contain two waits, after a load and after an opening. So the wait ends before the
/// lab stops the engine.
pub(crate) fn idle_wait_max(step: Option<Duration>) -> Duration {
    step.map_or(IDLE_WAIT_MAX, |step| IDLE_WAIT_MAX.min(step / 4))
}

/// Result of one piece of work, its seconds and its usage.
pub(crate) struct Measured<T> {
    pub(crate) result: T,
    pub(crate) seconds: f64,
    pub(crate) usage: Usage,
}

/// Runs `work` and measures it. `dir` is the database whose files are sized afterwards.
pub(crate) fn measure<T>(dir: &Path, work: impl FnOnce() -> T) -> Measured<T> {
    reset_peak_rss();
    let before = Usages::now(dir);
    let ((result, seconds), peaks) = watched(dir, || {
        let start = Instant::now();
        let result = work();
        (result, start.elapsed().as_secs_f64())
    });
    let mut usage = Usage::default();
    before.add_since(dir, &mut usage);
    let status = status_bytes();
    let disk = disk_bytes(dir);
    let usage = Usage {
        peak_rss_bytes: status.peak,
        rss_anon_bytes: status.anon,
        rss_file_bytes: status.file,
        disk_bytes: disk.lengths,
        disk_allocated_bytes: disk.allocated,
        peak_anon_bytes: peaks.anon_bytes.max(status.anon),
        peak_file_bytes: peaks.file_bytes.max(status.file),
        peak_disk_bytes: peaks.disk_bytes.max(disk.allocated),
        ..usage
    };
    Measured { result, seconds, usage }
}

/// Totals of the process and of the device of a database so far.
pub(crate) struct Usages {
    cpu_s: f64,
    process: Io,
    device: Io,
}

impl Usages {
    /// Reads the totals. `dir` is the database.
    pub(crate) fn now(dir: &Path) -> Self {
        Self { cpu_s: cpu_seconds(), process: io_bytes(), device: device_bytes(dir) }
    }

    /// Adds the usage since then to `usage`.
    pub(crate) fn add_since(&self, dir: &Path, usage: &mut Usage) {
        let now = Self::now(dir);
        usage.cpu_s += now.cpu_s - self.cpu_s;
        usage.written_bytes += now.process.written.saturating_sub(self.process.written);
        usage.read_bytes += now.process.read.saturating_sub(self.process.read);
        usage.device_written_bytes += now.device.written.saturating_sub(self.device.written);
        usage.device_read_bytes += now.device.read.saturating_sub(self.device.read);
    }
}

/// Highest values seen during a piece of work.
#[derive(Clone, Copy, Default)]
pub(crate) struct Peaks {
    /// Resident anonymous memory.
    pub(crate) anon_bytes: u64,
    /// Resident file pages.
    pub(crate) file_bytes: u64,
    /// Bytes that the files occupied.
    pub(crate) disk_bytes: u64,
}

impl Peaks {
    fn see(&mut self, status: &Status) {
        self.anon_bytes = self.anon_bytes.max(status.anon);
        self.file_bytes = self.file_bytes.max(status.file);
    }
}

/// Runs `work`, and looks at the process and at the files under `dir` at intervals meanwhile.
pub(crate) fn watched<T>(dir: &Path, work: impl FnOnce() -> T) -> (T, Peaks) {
    // `Relaxed` is enough, because joining the thread orders its results.
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(dir, &stop));
        let result = {
            // Stops the watcher even if `work` panics, because the scope waits for its threads.
            let _guard = Stop { mark: &stop, watcher: watcher.thread() };
            work()
        };
        let peaks = watcher.join().unwrap_or_default();
        (result, peaks)
    })
}

/// Stops the watcher when dropped.
struct Stop<'a> {
    mark: &'a AtomicBool,
    watcher: &'a thread::Thread,
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.mark.store(true, Ordering::Relaxed);
        self.watcher.unpark();
    }
}

fn watch(dir: &Path, stop: &AtomicBool) -> Peaks {
    let mut peaks = Peaks::default();
    peaks.see(&status_bytes());
    let mut walks = Walks::default();
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        thread::park_timeout(WATCH_EVERY);
        peaks.see(&status_bytes());
        looks += 1;
        if looks % LOOKS_PER_WALK == 0 {
            peaks.disk_bytes = peaks.disk_bytes.max(walks.allocated(dir));
        }
    }
    peaks
}

/// Walks through the directory of a working engine.
#[derive(Default)]
pub(crate) struct Walks {
    allocated: u64,
    not_before: Option<Instant>,
}

impl Walks {
    /// Returns the bytes that the files under `dir` occupied at the last walk.
    fn allocated(&mut self, dir: &Path) -> u64 {
        self.walked(Instant::now, || disk_bytes(dir).allocated)
    }

    fn walked(&mut self, now: impl Fn() -> Instant, walk: impl FnOnce() -> u64) -> u64 {
        let start = now();
        if self.not_before.is_none_or(|time| start >= time) {
            self.allocated = walk();
            let end = now();
            self.not_before = Some(end + (end - start) * REST_PER_WALK);
        }
        self.allocated
    }
}

/// A look at the process and its database.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) rss_bytes: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// Takes a sample. Looks at the files as often as `walks` allows.
pub(crate) fn sample(dir: &Path, walks: &mut Walks) -> Sample {
    let status = status_bytes();
    Sample {
        rss_bytes: status.anon + status.file,
        disk_bytes: walks.allocated(dir),
        written_bytes: io_bytes().written,
    }
}

/// Result of a wait for background work.
pub(crate) struct Waited {
    /// Seconds until the process became idle.
    pub(crate) busy_s: f64,
    /// Whether it became idle.
    pub(crate) is_idle: bool,
}

/// Waits until the measured process has neither computed nor moved bytes for three windows, for at most
/// `most`.
pub(crate) fn wait_until_idle(window: Duration, most: Duration) -> Waited {
    let start = Instant::now();
    let mut busy_until = start;
    let mut quiet = 0;
    while quiet < IDLE_WINDOWS && start.elapsed() < most {
        let (cpu, io) = (cpu_seconds(), io_bytes());
        thread::sleep(window);
        let io_now = io_bytes();
        let is_quiet = cpu_seconds() - cpu < IDLE_SHARE * window.as_secs_f64()
            && io_now.read == io.read
            && io_now.written == io.written;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if !is_quiet {
            busy_until = Instant::now();
        }
    }
    Waited { busy_s: busy_until.duration_since(start).as_secs_f64(), is_idle: quiet == IDLE_WINDOWS }
}

/// Returns the bytes that the device under `dir` has moved so far, from /sys, in sectors of 512 bytes.
/// Returns zero if the device is unknown.
#[cfg(target_os = "linux")]
fn device_bytes(dir: &Path) -> Io {
    use std::os::unix::fs::MetadataExt as _;
    let device = fs::metadata(dir).map_or(0, |metadata| metadata.dev());
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).unwrap_or_default();
    let sectors = |n| stat.split_whitespace().nth(n).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Io { read: sectors(2) * 512, written: sectors(6) * 512 }
}

#[cfg(not(target_os = "linux"))]
fn device_bytes(_dir: &Path) -> Io {
    Io { read: 0, written: 0 }
}

/// Returns the processor time of all threads of the measured process so far. For another process, Linux gives
/// it in hundredths of a second.
fn cpu_seconds() -> f64 {
    if MEASURED.load(Ordering::Relaxed) != 0 {
        let stat = proc_file("stat");
        // The name may contain blanks. After it, the state is the third field, and user and system time are
        // the 14th and 15th.
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        return ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    }
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Resets the peak of resident memory. On Linux, 5 in clear_refs resets VmHWM and nothing else. Elsewhere the
/// peak is that of the whole process.
fn reset_peak_rss() {
    let _not_there_elsewhere = fs::write(proc_path("clear_refs"), "5");
}

struct Io {
    read: u64,
    written: u64,
}

fn io_bytes() -> Io {
    let text = proc_file("io");
    Io { read: field(&text, "read_bytes:"), written: field(&text, "write_bytes:") }
}

struct Status {
    peak: u64,
    anon: u64,
    file: u64,
}

fn status_bytes() -> Status {
    let text = proc_file("status");
    let bytes = |name| field(&text, name) * 1024;
    Status { peak: bytes("VmHWM:"), anon: bytes("RssAnon:"), file: bytes("RssFile:") }
}

/// Returns the number after `name` at the start of a line, or 0.
fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Size of a directory's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskBytes {
    /// Sum of the lengths.
    pub(crate) lengths: u64,
    /// Bytes that they occupy.
    pub(crate) allocated: u64,
}

/// Sizes all files under `dir`. A file that background work removes meanwhile counts nothing.
pub(crate) fn disk_bytes(dir: &Path) -> DiskBytes {
    let mut sum = DiskBytes::default();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            let inner = disk_bytes(&entry.path());
            sum.lengths += inner.lengths;
            sum.allocated += inner.allocated;
        } else {
            sum.lengths += metadata.len();
            sum.allocated += allocated(&metadata);
        }
    }
    sum
}

#[cfg(unix)]
fn allocated(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) * 512
}

#[cfg(not(unix))]
fn allocated(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("inner")).unwrap();
        let measured = measure(dir.path(), || {
            let block = vec![1_u8; 32 << 20];
            fs::write(dir.path().join("inner/file"), &block[..1 << 20]).unwrap();
            // Kept until everything is measured, because other tests of this process reset the peak.
            block
        });
        assert_eq!(measured.result.len(), 32 << 20);
        assert!(measured.seconds > 0.0 && measured.usage.cpu_s > 0.0);
        assert_eq!(measured.usage.disk_bytes, 1 << 20);
        if cfg!(target_os = "linux") {
            assert!(measured.usage.peak_rss_bytes > 32 << 20);
            let usage = measured.usage;
            assert!(usage.rss_file_bytes > 0 && usage.peak_file_bytes >= usage.rss_file_bytes, "{usage:?}");
        }
    }

    #[test]
    fn between_two_walks_lies_twenty_times_the_first() {
        use std::cell::Cell;
        let (start, at_ms, walked) = (Instant::now(), Cell::new(0), Cell::new(0));
        let mut walks = Walks::default();
        let mut look = |after_ms: u64| {
            at_ms.set(at_ms.get() + after_ms);
            let now = || start + Duration::from_millis(at_ms.get());
            let seen = walks.walked(now, || {
                at_ms.set(at_ms.get() + 300);
                walked.set(walked.get() + 1);
                walked.get()
            });
            (seen, walked.get())
        };
        assert_eq!(look(0), (1, 1));
        assert_eq!([look(500), look(5_000), look(499)], [(1, 1); 3], "the last figure stands");
        assert_eq!(look(1), (2, 2));
        assert_eq!([look(5_999), look(1)], [(2, 2), (3, 3)]);
    }

    #[test]
    fn a_temporary_file_shows_in_the_peak() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let is_seen = |walks: u32| {
            let measured = measure(dir.path(), || {
                fs::write(&file, vec![1_u8; 8 << 20]).unwrap();
                thread::sleep(WATCH_EVERY * LOOKS_PER_WALK * walks);
                fs::remove_file(&file).unwrap();
            });
            assert_eq!(measured.usage.disk_allocated_bytes, 0);
            measured.usage.peak_disk_bytes >= 8 << 20
        };
        // On a busy machine the watcher looks seldom, and a slow walk is followed by a long pause.
        assert!([4, 40, 400].into_iter().any(is_seen));
    }

    #[test]
    fn work_that_panics_ends() {
        let dir = tempfile::tempdir().unwrap();
        let panics = || -> u64 { panic!("an engine's assertion") };
        let outcome = std::panic::catch_unwind(|| watched(dir.path(), panics).0);
        assert!(outcome.is_err());
    }

    #[test]
    fn two_waits_for_rest_leave_half_of_the_step() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert_eq!(idle_wait_max(None), minutes(10));
        assert_eq!(idle_wait_max(Some(minutes(60))), minutes(10));
        assert_eq!(idle_wait_max(Some(minutes(5))), minutes(5) / 4);
    }

    #[test]
    fn the_peak_is_that_of_the_row() {
        let dir = tempfile::tempdir().unwrap();
        let is_so = || {
            let big = measure(dir.path(), || drop(std::hint::black_box(vec![1_u8; 256 << 20])));
            let small = measure(dir.path(), || ());
            small.usage.peak_rss_bytes + (128 << 20) < big.usage.peak_rss_bytes
        };
        if cfg!(target_os = "linux") {
            // Other tests of this process reset the mark, too, at times just before it is read. Were it never
            // reset, it would never be so.
            assert!((0..100).any(|_| is_so()));
        }
    }
}
