//! Statistics of this process from the operating system. Without `/proc` they are 0.

/// Page size on systems with `/proc/self/statm`.
const PAGE: u64 = 4096;
/// Ticks a second in `/proc/self/stat`, fixed by the interface.
const TICKS: f64 = 100.0;

fn read(name: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "a figure of the system, no file of the database")]
    let text = std::fs::read(format!("/proc/self/{name}")).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the resident memory in bytes.
pub fn memory() -> u64 {
    let pages = read("statm").split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE
}

/// Returns the peak resident memory in bytes.
pub fn memory_peak() -> u64 {
    let status = read("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Returns the seconds of CPU time: system, user, and the same of ended child processes.
pub fn cpu_seconds() -> [f64; 4] {
    let stat = read("stat");
    // The program's name is in parentheses and may contain anything. The third field follows it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<f64> = rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
    let seconds = |number: usize| fields.get(number - 3).copied().unwrap_or(0.0) / TICKS;
    [seconds(15), seconds(14), seconds(17), seconds(16)]
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn figures_grow_with_what_the_process_does() {
        let before = cpu_seconds();
        let mut bytes = vec![1_u8; 64 << 20];
        while cpu_seconds()[1] < before[1] + 0.05 {
            bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_mul(3));
        }
        assert!(memory() > 64 << 20 && bytes.len() == 64 << 20);
        drop(bytes);
        // Not compared with `memory`: the system rounds the two numbers differently.
        assert!(memory_peak() > 64 << 20);
    }
}
