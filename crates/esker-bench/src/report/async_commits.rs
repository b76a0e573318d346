//! Describes the async commits of the engines of a suite, because such commits differ in durability.
//!
//! The description is that of the engines as they ran in this suite, from its own run.json. For an old
//! run.json without it, the page states that.

use crate::context::{AsyncContext, EngineContext, NO_ASYNC_COMMITS};
use crate::report::runs::Runs;
use crate::report::summary::Summary;
use crate::row::Commits;
use crate::suites;
use esker_bench_api::Reached;

const NOT_NOTED: &str = "not noted in these results (docs/benchmarking.md has it)";
/// The levels, from the weakest to the strongest.
const LEVELS: [&str; 4] = [Reached::Process.name(), Reached::System.name(), NO_ASYNC_COMMITS, NOT_NOTED];

/// The rows of a suite with async commits, and how far those commits of each engine have come.
pub(super) struct AsyncRows {
    rows: Vec<String>,
    /// For each of [`LEVELS`] with engines: the engines, each with what happens after the commit.
    levels: Vec<(&'static str, Vec<(String, String)>)>,
}

impl AsyncRows {
    /// Returns `None` for a suite without such rows.
    pub(super) fn of(summary: &Summary, runs: &Runs) -> Option<Self> {
        let rows = suites::rows_of(&summary.suite, &summary.scale).into_iter();
        let rows = rows.filter(|row| matches!(row.commits, Commits::Async(_)));
        let measured = |name: &String| summary.rows.iter().any(|row| row.name == *name);
        let rows: Vec<String> = rows.map(|row| row.name).filter(measured).collect();
        let all = runs.engines();
        let ran = |known: &&EngineContext| known.suites.is_empty() || known.suites.contains(&summary.suite);
        let said = |engine: &str| -> Option<AsyncContext> {
            all.iter().filter(ran).find(|known| known.name == engine)?.async_commits.clone()
        };
        let of_engines: Vec<_> = summary.engines.iter().map(|(name, _)| (name.clone(), said(name))).collect();
        let at_level = |level: &'static str| {
            let there = of_engines.iter().filter_map(|(name, said)| match said {
                Some(said) => (said.reached == level).then(|| (name.clone(), said.then.clone())),
                None => (level == NOT_NOTED).then(|| (name.clone(), String::new())),
            });
            (level, there.collect::<Vec<_>>())
        };
        let levels = LEVELS.map(at_level).into_iter().filter(|(_, engines)| !engines.is_empty()).collect();
        (!rows.is_empty()).then_some(Self { rows, levels })
    }

    pub(super) fn has(&self, row: &str) -> bool {
        self.rows.iter().any(|name| name == row)
    }

    /// The engines of each level in one line, for each row.
    pub(super) fn short(&self) -> String {
        let levels = self.levels.iter().map(|(level, engines)| {
            let names: Vec<&str> = engines.iter().map(|(name, _)| name.as_str()).collect();
            format!("{level}: {}", names.join(", "))
        });
        format!("An async commit is, when it returns, {}.", levels.collect::<Vec<_>>().join("; "))
    }

    /// The same, with the rows and what happens after the commit.
    pub(super) fn full(&self) -> String {
        let levels = self.levels.iter().map(|(level, engines)| {
            let engines = engines.iter().map(|(name, then)| match then.as_str() {
                "" => name.clone(),
                then => format!("{name} ({then})"),
            });
            format!("{level}: {}", engines.collect::<Vec<_>>().join(", "))
        });
        // A commit of unknown level may be in the process only.
        let has = |level: &str| self.levels.iter().any(|(known, _)| *known == level);
        let lost = if has(Reached::Process.name()) && !has(NOT_NOTED) {
            " What is in the process alone is lost if that is killed."
        } else {
            ""
        };
        format!(
            "Rows of async commits ({}) are not of equal durability. An async commit is, when it returns, {}.{lost}",
            self.rows.join("; "),
            levels.collect::<Vec<_>>().join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tests::{context, of_class};
    use crate::engines;
    use crate::report::summary::tests::record;
    use esker_bench_api::Isolation;
    use esker_bench_api::results::Record;

    fn of(suite: &str, rows: &[&str], engines: &[(&str, bool)]) -> Option<AsyncRows> {
        let records = engines.iter().flat_map(|(engine, _)| {
            rows.iter().map(|row| Record { suite: suite.to_owned(), ..record(engine, row, 1, Some(1.0)) })
        });
        let summary = Summary::new(&records.collect::<Vec<_>>());
        let noted = engines.iter().map(|(name, is_noted)| EngineContext {
            async_commits: is_noted.then(|| AsyncContext::of(engines::find(name).unwrap())),
            suites: vec![suite.to_owned()],
            ..of_class(name, Isolation::Snapshot)
        });
        AsyncRows::of(&summary, &Runs::new(vec![context("", noted.collect())]))
    }

    #[test]
    fn rows_of_async_commits_say_how_far_those_of_each_engine_get() {
        let engines = [("esker", true), ("redb", true), ("bbolt", true), ("lmdb", false)];
        let rows = of("ycsb", &["load (async)", "C read only (async)", "load (sync)"], &engines).unwrap();
        assert!(rows.has("load (async)") && !rows.has("load (sync)"));
        let short = rows.short();
        assert!(
            short.contains("returns, in the process alone: redb; handed to the operating system: esker; no such mode: bbolt; not noted"),
            "{short}"
        );
        assert!(short.contains("docs/benchmarking.md has it): lmdb."), "{short}");
        let full = rows.full();
        assert!(full.contains("(load (async)) are not"), "{full}");
        assert!(full.contains("esker (synced every 100 ms by a thread)"), "{full}");
        assert!(full.ends_with("docs/benchmarking.md has it): lmdb."), "{full}");
        let full = |engines: &[(&str, bool)]| of("ycsb", &["load (async)"], engines).unwrap().full();
        assert!(full(&[("redb", true), ("esker", true)]).ends_with("is lost if that is killed."));
        assert!(full(&[("esker", true)]).ends_with("by a thread)."), "none of it is in the process alone");
        assert!(full(&[("redb", false)]).ends_with("has it): redb."), "as in old results");
        assert!(of("int", &["bulk load"], &engines).is_none(), "none of its commits is async");
        assert!(of("redb", &["nosync writes"], &engines).is_none(), "a mode of its own");
    }
}
