//! The runs behind a page: which suite ran where, when, at which commit, and how.
//!
//! ```text
//! run.json of each file of results -> Runs --of a suite--> lines under its heading, limits, command
//! ```
//!
//! - The text of a suite describes its own runs only: their machine, commit and dates.
//! - If runs of one suite come from several machines, the text says so, and figures of one machine are not a
//!   limit for the other.

use std::collections::BTreeMap;

use clap::ValueEnum as _;

use crate::cli::{self, RunArguments};
use crate::context::{Context, EngineContext, add_engines};
use crate::report::summary::{Cell, Summary};
use crate::report::units::date;
use crate::scale::Scale;

/// The contexts of all results of a page.
pub(crate) struct Runs {
    contexts: Vec<Context>,
}

impl Runs {
    /// Takes contexts whose suites are noted.
    pub(crate) fn new(contexts: Vec<Context>) -> Self {
        Self { contexts }
    }

    /// Returns all contexts, in the order of the files.
    pub(super) fn all(&self) -> &[Context] {
        &self.contexts
    }

    /// Returns the contexts of a suite.
    fn of<'a>(&'a self, suite: &'a str) -> impl Iterator<Item = &'a Context> {
        self.contexts.iter().filter(move |context| context.suites.iter().any(|name| name == suite))
    }

    /// Returns the engines, one entry for each set of options.
    pub(super) fn engines(&self) -> Vec<EngineContext> {
        let mut engines = Vec::new();
        self.contexts.iter().for_each(|context| add_engines(&mut engines, context.engines.clone()));
        engines
    }

    /// Returns a line for each machine, with the suites that ran there.
    pub(super) fn machines(&self) -> Vec<(String, Vec<&str>)> {
        let mut machines: Vec<(&Context, Vec<&str>)> = Vec::new();
        for context in &self.contexts {
            let suites = context.suites.iter().map(String::as_str);
            match machines.iter_mut().find(|(known, _)| known.machine.may_be(&context.machine)) {
                Some((known, of_machine)) => {
                    let new: Vec<_> = suites.filter(|suite| !of_machine.contains(suite)).collect();
                    of_machine.extend(new);
                    // The longest description is kept.
                    if context.machine.line().len() > known.machine.line().len() {
                        *known = context;
                    }
                }
                None => machines.push((context, suites.collect())),
            }
        }
        machines.into_iter().map(|(context, suites)| (context.machine.line(), suites)).collect()
    }

    /// Number of cores of the machine of a suite.
    pub(super) fn cores(&self, suite: &str) -> usize {
        self.of(suite).map(|context| context.machine.cores).min().unwrap_or(1)
    }

    /// Returns whether all runs of both suites may come from one machine.
    pub(super) fn share_a_machine(&self, suite: &str, other: &str) -> bool {
        self.of(suite).all(|one| self.of(other).all(|two| one.machine.may_be(&two.machine)))
    }

    /// Returns the calls that ran a suite, as far as this program can parse their commands.
    pub(super) fn calls(&self, suite: &str) -> Vec<RunArguments> {
        let calls = self.of(suite).flat_map(Context::calls);
        let read = calls.filter_map(|call| cli::run_arguments(&call.command));
        read.filter(|call| call.suites.iter().any(|name| name == suite || name == "all")).collect()
    }

    /// Returns a line for each source of the suite's work, or none if that was not noted.
    pub(super) fn streams(&self, summary: &Summary) -> Vec<String> {
        let mut lines = Vec::new();
        let workloads = self.of(&summary.suite).flat_map(|context| &context.workloads);
        for workload in workloads.filter(|known| known.suite == summary.suite && known.scale == summary.scale)
        {
            for [what, generator] in &workload.streams {
                let line = format!("{what}: {generator}");
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
        }
        lines
    }

    /// Returns what a reader must know of a suite's runs: machine, kernel, disk, commit, dates, runs, time
    /// limit and memory limit.
    pub(super) fn lines(&self, summary: &Summary) -> Vec<String> {
        let mut lines = Vec::new();
        for context in self.of(&summary.suite) {
            let disk = &context.machine.disk;
            let ahead = if disk.contains("read-ahead") { "" } else { ", read-ahead not noted" };
            let dates: Vec<String> = context.calls().map(|call| date(call.started_unix_s)).collect();
            lines.push(format!("Machine: {}{ahead}; device: {}.", context.machine.line(), context.device));
            lines.push(format!("Commit {}, {}.", context.commit, dates_text(dates)));
        }
        lines.push(format!("Runs: {}. Time limit of a step: {}.", summary.runs, self.time_limit(summary)));
        lines.extend(memory(summary));
        lines
    }

    fn time_limit(&self, summary: &Summary) -> String {
        let default = Scale::from_str(&summary.scale, false).map_or(0, Scale::seconds_max);
        let limits = self.calls(&summary.suite).into_iter().map(|call| call.timeout.unwrap_or(default));
        let mut limits: Vec<String> = limits.map(|seconds| format!("{seconds} s")).collect();
        limits.dedup();
        if limits.is_empty() { "not noted".to_owned() } else { limits.join(", then ") }
    }
}

/// Formats the first date, and those of later calls.
fn dates_text(mut dates: Vec<String>) -> String {
    dates.dedup();
    let (first, later) = dates.split_first().map_or(("", &[][..]), |(first, later)| (first.as_str(), later));
    if later.is_empty() {
        format!("begun {first}")
    } else {
        format!("begun {first}, resumed {}", later.join(", "))
    }
}

/// Describes how memory was limited, and where that differs.
fn memory(summary: &Summary) -> Option<String> {
    let mut ways: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in &summary.rows {
        for value in row.cells.iter().filter_map(Cell::value) {
            let way = value.last().setting.memory_limit.as_str();
            let rows = ways.entry(way).or_default();
            if !way.is_empty() && rows.last() != Some(&row.name.as_str()) {
                rows.push(&row.name);
            }
        }
    }
    ways.retain(|way, _| !way.is_empty());
    let is_mixed = summary
        .rows
        .iter()
        .any(|row| ways.values().filter(|rows| rows.contains(&row.name.as_str())).count() > 1);
    let mixed = if is_mixed {
        " Rows that stand twice hold engines of unlike limits against each other."
    } else {
        ""
    };
    let limits: Vec<String> = match ways.len() {
        1 => ways.into_keys().map(str::to_owned).collect(),
        _ => ways.into_iter().map(|(way, rows)| format!("{way} ({})", rows.join("; "))).collect(),
    };
    (!limits.is_empty()).then(|| format!("Memory is limited by {}.{mixed}", limits.join("; by ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Call;
    use crate::context::tests::context;
    use crate::report::summary::tests::record;
    use esker_bench_api::results::{Record, Setting};

    #[test]
    fn a_suite_has_its_own_machine_commit_and_date() {
        let mut here = context("esker-bench run redb --timeout 7", Vec::new());
        here.machine.disk = "ext4 on a disk".to_owned();
        let later = Call {
            started_unix_s: here.first.started_unix_s + 86_400,
            command: "esker-bench run redb --resume --timeout 9".to_owned(),
        };
        let mut there = context("esker-bench run int", Vec::new());
        there.machine.cpu = "another machine".to_owned();
        there.machine.disk = "ext4 on a disk, read-ahead 128 KiB".to_owned();
        (there.commit, there.suites) = ("def".to_owned(), vec!["int".to_owned()]);
        let mut also_here = here.clone();
        also_here.machine.disk += ", read-ahead 64 KiB";
        also_here.suites = vec!["limits".to_owned()];
        here.resumed.push(later);
        let runs = Runs::new(vec![here, there, also_here]);
        let of = |suite: &str, memory: &[&str]| {
            let records = memory.iter().zip(["bulk load", "reads"]).map(|(memory, row)| Record {
                suite: suite.to_owned(),
                setting: Setting { memory_limit: (*memory).to_owned(), ..Setting::default() },
                ..record("esker", row, 1, Some(1.0))
            });
            runs.lines(&Summary::new(&records.collect::<Vec<_>>()))
        };
        let redb = of("redb", &["cgroup v2: 8 MiB", "only the cache"]);
        assert!(redb[0].contains("read-ahead not noted; device: as earlier"), "{redb:?}");
        assert_eq!(
            redb[1..],
            [
                "Commit abc, begun 2026-11-22, resumed 2026-11-23.",
                "Runs: 1. Time limit of a step: 7 s, then 9 s.",
                "Memory is limited by cgroup v2: 8 MiB (bulk load); by only the cache (reads)."
            ]
        );
        let int = of("int", &["only the cache", "only the cache"]);
        assert!(
            int[0].contains("another machine")
                && int[0].contains("read-ahead 128 KiB")
                && !int[0].contains("not noted"),
            "{int:?}"
        );
        assert_eq!(
            int[1..],
            [
                "Commit def, begun 2026-11-22.",
                "Runs: 1. Time limit of a step: 120 s.",
                "Memory is limited by only the cache."
            ]
        );
        let machines = runs.machines();
        assert_eq!(machines.len(), 2);
        assert!(machines[0].0.contains("read-ahead 64 KiB"), "{machines:?}");
        assert_eq!(
            (machines[0].1.as_slice(), machines[1].1.as_slice()),
            (&["redb", "limits"][..], &["int"][..])
        );
        assert!(runs.share_a_machine("redb", "limits") && !runs.share_a_machine("int", "limits"));
    }
}
