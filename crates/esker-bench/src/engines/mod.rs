//! The engines under test: one file each, listed here.
//!
//! To add one, write `engines/NAME.rs` with a type that implements `esker_bench_api::Engine`, and add it to [`ENGINES`]. The tests below
//! then run it through the same small correctness test as the rest. An engine with a heavy build has a crate of its own instead. docs/benchmarking.md has the rules.

mod canary;
mod esker;
mod lmdb;
mod redb;

use canary::Canary;

use esker_bench_api::Engine;

/// In the order in which they take turns and stand in tables.
pub(crate) static ENGINES: &[&dyn Engine] =
    &[&esker::Esker, &lmdb::Lmdb, &redb::Redb, &Canary::Wrong, &Canary::Crash, &Canary::Hang];

/// The engine of that name, hidden ones included.
pub(crate) fn find(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.name() == name)
}

/// The engines that run when none is named.
pub(crate) fn shown() -> impl Iterator<Item = &'static dyn Engine> {
    ENGINES.iter().copied().filter(|engine| !engine.hidden())
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_bench_api::conformance;

    #[test]
    fn every_adapter_is_correct() {
        for engine in shown().filter(|engine| engine.program().unwrap().is_none()) {
            println!("{}", engine.name());
            conformance::check_engine(engine, tempfile::tempdir().unwrap().path());
        }
    }

    #[test]
    fn names_are_unique_and_versions_known() {
        for engine in ENGINES {
            assert_eq!(ENGINES.iter().filter(|other| other.name() == engine.name()).count(), 1);
            assert!(engine.version().contains('.'), "{} {}", engine.name(), engine.version());
        }
    }
}
