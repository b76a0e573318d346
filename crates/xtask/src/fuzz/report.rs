//! Parses the output of libFuzzer.

use std::time::Duration;

/// Number of final lines of a failed run that are shown.
const TAIL_LINES: usize = 12;

/// The result of fuzzing a target.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) executions: u64,
    /// Number of covered edges.
    pub(super) edges: u64,
    /// Number of files in the corpus.
    pub(super) inputs: usize,
    pub(super) wall: Duration,
    /// Unknown on some systems.
    pub(super) cpu: Option<Duration>,
    pub(super) failed: bool,
    memory_mib: u64,
    /// The file with the failing input.
    artifact: Option<String>,
    /// The output from the first line of the failure on.
    failure: Vec<String>,
}

impl Report {
    /// Header of the table.
    pub(super) const HEAD: &'static str =
        "target             executions   per s  CPU s  wall s  edges  inputs  peak MiB";

    /// Parses a line.
    pub(super) fn read(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix('#') {
            let executions = rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok());
            self.executions = executions.unwrap_or(self.executions);
            self.edges = number_behind(line, "cov: ").unwrap_or(self.edges);
        }
        self.executions = number_behind(line, "stat::number_of_executed_units:").unwrap_or(self.executions);
        self.memory_mib = number_behind(line, "stat::peak_rss_mb:").unwrap_or(self.memory_mib);
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.artifact = Some(path.trim().to_owned());
        }
        let begins = line.contains("panicked at") || line.contains("ERROR: ");
        if (begins || !self.failure.is_empty()) && self.failure.len() < TAIL_LINES {
            self.failure.push(line.to_owned());
        }
    }

    /// Returns the row of the table.
    pub(super) fn row(&self, name: &str) -> String {
        let cpu = self.cpu.map_or("?".to_owned(), |cpu| format!("{:.0}", cpu.as_secs_f64()));
        let rate = self.executions as f64 / self.wall.as_secs_f64().max(1e-9);
        format!(
            "{name:<16} {:>12} {rate:>7.0} {cpu:>6} {:>7.0} {:>6} {:>7} {:>9}{}",
            self.executions,
            self.wall.as_secs_f64(),
            self.edges,
            self.inputs,
            self.memory_mib,
            if self.failed { "  FAILED" } else { "" },
        )
    }

    /// Returns the failure with the commands that reproduce and minimize it.
    pub(super) fn finding(&self, name: &str) -> Option<String> {
        let lines: String = self.failure.iter().map(|line| format!("    {line}\n")).collect();
        self.failed.then(|| match &self.artifact {
            Some(path) => format!(
                "{name} fails:\n{lines}  replay:  cargo run -p esker-fuzz-targets -- replay {name} {path}\n  \
                 or:      cargo +nightly fuzz run {name} {path}\n  smaller: cargo +nightly fuzz tmin {name} {path}"
            ),
            None => format!("{name} fails, and wrote no input:\n{lines}"),
        })
    }
}

fn number_behind(line: &str, label: &str) -> Option<u64> {
    let rest = line.split_once(label)?.1.trim_start();
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &[&str]) -> Report {
        let mut report = Report::default();
        lines.iter().for_each(|line| report.read(line));
        report
    }

    #[test]
    fn figures_are_read() {
        let report = report(&[
            "#2\tINITED cov: 9 ft: 10 corp: 1/1b exec/s: 0 rss: 37Mb",
            "#65536\tpulse  cov: 163 ft: 684 corp: 134/2104b lim: 652 exec/s: 32768 rss: 100Mb",
            "Done 70001 runs in 3 second(s)",
            "stat::number_of_executed_units: 70001",
            "stat::peak_rss_mb:              187",
        ]);
        assert_eq!((report.executions, report.edges, report.memory_mib), (70_001, 163, 187));
        assert!(report.row("numbers").contains("70001"));
        assert_eq!(report.finding("numbers"), None);
    }

    #[test]
    fn a_finding_names_its_input_and_the_command() {
        let mut report = report(&[
            "#7\tNEW    cov: 9 ft: 10",
            "thread '<unnamed>' panicked at crates/esker/src/x.rs:1:2:",
            "index out of bounds",
            "artifact_prefix='a/'; Test unit written to a/crash-1",
        ]);
        report.failed = true;
        let finding = report.finding("table").unwrap();
        assert!(
            finding.contains("-- replay table a/crash-1") && finding.contains("out of bounds"),
            "{finding}"
        );
    }
}
