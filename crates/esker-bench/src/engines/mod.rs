//! The engines under test: one file each, listed here.
//!
//! To add one, write `engines/NAME.rs` with a type that implements `esker_bench_api::Engine`, and add it to
//! [`ENGINES`]. The tests below then run it through the same small correctness test as the rest. An engine
//! with a heavy build has a crate of its own instead. docs/benchmarking.md has the rules.

#[cfg(feature = "peers")]
mod bf_tree;
mod canary;
#[cfg(feature = "peers")]
mod canopydb;
mod esker;
#[cfg(feature = "peers")]
mod fjall;
pub(crate) mod go;
#[cfg(feature = "peers")]
mod libmdbx;
#[cfg(feature = "peers")]
mod lmdb;
#[cfg(feature = "peers")]
mod persy;
mod redb;
mod redis;
#[cfg(feature = "peers")]
mod sanakirja;
#[cfg(feature = "peers")]
mod sled;
#[cfg(feature = "peers")]
mod surrealkv;

use canary::Canary;

use esker_bench_api::Engine;

/// The engines, in the order of their turns and in tables.
pub(crate) static ENGINES: &[&dyn Engine] = &[
    &esker::Esker,
    #[cfg(feature = "peers")]
    &lmdb::Lmdb,
    #[cfg(feature = "peers")]
    &libmdbx::Libmdbx,
    &redb::Redb,
    #[cfg(feature = "peers")]
    &canopydb::Canopydb,
    #[cfg(feature = "peers")]
    &fjall::Fjall,
    #[cfg(feature = "peers")]
    &surrealkv::SurrealKv,
    #[cfg(feature = "peers")]
    &sled::Sled,
    #[cfg(feature = "peers")]
    &sanakirja::Sanakirja,
    #[cfg(feature = "peers")]
    &persy::Persy,
    #[cfg(feature = "peers")]
    &bf_tree::BfTree,
    #[cfg(feature = "rocksdb")]
    &esker_bench_rocksdb::RocksDb,
    &go::GoPeer("badger"),
    &go::GoPeer("pebble"),
    &go::GoPeer("bbolt"),
    &go::GoPeer("goleveldb"),
    &redis::Redis,
    &Canary::Wrong,
    &Canary::Crash,
    &Canary::Hang,
    &Canary::Debt,
    &Canary::Drop,
    &Canary::Boast,
    #[cfg(feature = "peers")]
    &Canary::Modest,
];

/// Returns the engine with this name; hidden ones too.
pub(crate) fn find(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.name() == name)
}

/// Returns the engines of this build, including those in Go.
pub(crate) fn shown() -> impl Iterator<Item = &'static dyn Engine> {
    ENGINES.iter().copied().filter(|engine| !engine.hidden())
}

/// Returns the engines that run by default: all but those in Go, which have to be built first.
pub(crate) fn default() -> impl Iterator<Item = &'static dyn Engine> {
    shown().filter(|engine| !go::is_peer(engine.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate;
    use esker_bench_api::{Feature, conformance};

    #[test]
    fn every_adapter_is_correct() {
        for engine in default() {
            println!("{}", engine.name());
            let _open = gate::no_child_starts();
            conformance::check_engine(engine, tempfile::tempdir().unwrap().path(), 0);
            conformance::check_keyspaces(engine, tempfile::tempdir().unwrap().path());
            conformance::check_transactions(engine, tempfile::tempdir().unwrap().path());
            conformance::check_expiring(engine, tempfile::tempdir().unwrap().path());
        }
    }

    /// Some engines store values apart from 1 KiB on, others from 4 KiB on.
    #[test]
    fn every_adapter_is_correct_with_large_values() {
        for engine in default().filter(|engine| engine.cannot(Feature::LargeValues).is_none()) {
            println!("{}", engine.name());
            let _open = gate::no_child_starts();
            conformance::check_engine(engine, tempfile::tempdir().unwrap().path(), 4 << 10);
        }
    }

    #[test]
    fn every_engine_with_async_commits_says_what_they_have_done() {
        for engine in shown() {
            let said = engine.async_commits();
            assert_eq!(said.is_some(), engine.cannot(Feature::AsyncCommits).is_none(), "{}", engine.name());
            if let Some(said) = said {
                assert!(!said.then.is_empty() && !said.pointer.is_empty(), "{}", engine.name());
            }
        }
    }

    /// Also checks rows with several engines, which have one class each. An engine that is not on the page
    /// cannot differ from it.
    #[test]
    fn the_page_on_peers_has_the_classes_that_the_adapters_state() {
        let mut compared = Vec::new();
        for line in include_str!("../../../../docs/peers.md").lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            // | engine | version | transactions | build | in |
            let [_, names, _, classes, _, _, _] = cells[..] else { continue };
            for (name, class) in names.split(", ").zip(classes.split(", ")) {
                let name = name.split(" (").next().unwrap();
                let Some(engine) = shown().find(|engine| engine.name() == name) else { continue };
                assert_eq!(class, engine.isolation().name(), "{name}");
                compared.push(name);
            }
        }
        assert!(["esker", "redb", "goleveldb"].iter().all(|name| compared.contains(name)), "{compared:?}");
    }

    #[test]
    fn names_are_unique_and_versions_known() {
        for engine in ENGINES {
            assert_eq!(ENGINES.iter().filter(|other| other.name() == engine.name()).count(), 1);
            // Redis is a program of the machine.
            let version = engine.version();
            assert!(version.contains('.') || version == "not installed", "{} {version}", engine.name());
        }
    }
}
