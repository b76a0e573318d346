//! Groups engines by what their transactions guarantee. A chart shows each class under its name, so that a
//! reader sees which engines promise less.

use crate::context::EngineContext;
use crate::report::runs::Runs;
use crate::report::summary::Summary;
use esker_bench_api::Isolation;

/// The classes, from the strongest to the weakest.
const ORDER: [Isolation; 4] =
    [Isolation::Serializable, Isolation::Snapshot, Isolation::Batch, Isolation::Operation];

/// Returns the classes of a suite's engines, each with the positions of its engines, in the order of the
/// suite. If nothing is known, there is one class without a name.
pub(super) fn classes(summary: &Summary, runs: &Runs) -> Vec<(&'static str, Vec<usize>)> {
    let engines: Vec<&str> = summary.engines.iter().map(|(engine, _)| engine.as_str()).collect();
    of_engines(&engines, &[summary.suite.as_str()], runs)
}

/// The same for engines that ran in any of these suites.
pub(super) fn of_engines(engines: &[&str], suites: &[&str], runs: &Runs) -> Vec<(&'static str, Vec<usize>)> {
    let ran = |known: &EngineContext| {
        known.suites.is_empty() || known.suites.iter().any(|suite| suites.contains(&suite.as_str()))
    };
    let all = runs.engines();
    let name_of = |engine: &str| {
        let known = all.iter().find(|known| known.name == engine && ran(known))?;
        ORDER.into_iter().map(Isolation::name).find(|name| *name == known.isolation)
    };
    let of_engines: Vec<_> = engines.iter().map(|engine| name_of(engine).unwrap_or("")).collect();
    let places = |class: &'static str| {
        let places = (0..of_engines.len()).filter(|at| of_engines[*at] == class);
        (class, places.collect::<Vec<_>>())
    };
    let classes = ORDER.into_iter().map(Isolation::name).chain([""]).map(places);
    classes.filter(|(_, places)| !places.is_empty()).collect()
}

/// Returns a class as one word, for narrow cells.
pub(super) fn short(class: &str) -> &'static str {
    match ORDER.into_iter().find(|known| known.name() == class) {
        Some(Isolation::Serializable) => "serial",
        Some(Isolation::Snapshot) => "snapshot",
        Some(Isolation::Batch) => "batch",
        Some(Isolation::Operation) => "single",
        None => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tests::{context, of_class};
    use crate::report::summary::tests::record;

    #[test]
    fn each_engine_stands_in_its_class_strongest_first() {
        let records =
            ["esker", "sled", "lmdb", "unknown", "redb"].map(|engine| record(engine, "len()", 1, Some(1.0)));
        let summary = Summary::new(&records);
        let known = [
            ("esker", Isolation::Snapshot),
            ("sled", Isolation::Batch),
            ("lmdb", Isolation::Serializable),
            ("redb", Isolation::Serializable),
        ];
        let known = known.map(|(name, isolation)| of_class(name, isolation)).to_vec();
        let runs = Runs::new(vec![context("", known.clone())]);
        let at = |name: &str| summary.engines.iter().position(|(engine, _)| engine == name).unwrap();
        let expected = [
            ("serializable", vec![at("lmdb"), at("redb")]),
            ("snapshot isolation", vec![at("esker")]),
            ("atomic batches", vec![at("sled")]),
            ("", vec![at("unknown")]),
        ];
        assert_eq!(classes(&summary, &runs), expected);
        // Options of another suite say nothing about this one.
        let other = EngineContext { suites: vec!["int".to_owned()], ..of_class("esker", Isolation::Batch) };
        let runs = Runs::new(vec![context("", [vec![other], known].concat())]);
        assert_eq!(classes(&summary, &runs), expected);
    }
}
