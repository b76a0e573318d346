//! The peers written in Go: one program under `bench/go` does the work of suites on them.
//!
//! ```text
//! engines.json --name, isolation, what it cannot, options--> list, reports      (no Go needed)
//! go build bench/go --> prepare() --> start() --> process.rs: Remote, Piped
//! ```
//!
//! The program is built when an engine in Go is asked to run. If Go is missing, its rows fail with the
//! reason.

mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, OnceLock};

use esker_bench_api::{
    AsyncCommits, Engine, EngineOption, Failure, Feature, Isolation, OpenOptions, Result, Store,
    TransactionKind,
};
use serde::Deserialize;

use crate::suites::items::Source;
use process::Piped;
pub(crate) use process::Remote;

/// Written by the program in Go. Its tests compare this file with the adapters.
const ENGINES: &str = include_str!("../../../../bench/go/engines.json");
const GO_MOD: &str = include_str!("../../../../bench/go/go.mod");
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/go");
const PROGRAM: &str = "esker-bench-go";

/// An engine in Go, by name.
pub(crate) struct GoPeer(pub(crate) &'static str);

/// Returns whether this engine is in Go.
pub(crate) fn is_peer(name: &str) -> bool {
    all().iter().any(|engine| engine.name == name)
}

/// Description of an engine. It lives as long as the process.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'static"))]
struct Described {
    name: String,
    module: String,
    isolation: Isolation,
    async_commits: Option<AsyncCommits>,
    cannot: BTreeMap<String, String>,
    options: Vec<EngineOption>,
    transactions: Vec<TransactionKind>,
}

fn all() -> &'static [Described] {
    static ALL: LazyLock<Vec<Described>> = LazyLock::new(|| {
        serde_json::from_str(ENGINES).expect("engines.json is compiled in, and a test reads it")
    });
    &ALL
}

fn known(name: &str) -> &'static Described {
    let known = all().iter().find(|engine| engine.name == name);
    known.expect("a test holds the names against engines.json")
}

impl Engine for GoPeer {
    fn name(&self) -> &'static str {
        self.0
    }

    fn version(&self) -> String {
        let module = &known(self.0).module;
        let line = GO_MOD.lines().find_map(|line| line.trim().strip_prefix(module.as_str()));
        line.map_or("unknown", |version| version.trim().trim_start_matches('v')).to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        &known(self.0).options
    }

    fn isolation(&self) -> Isolation {
        known(self.0).isolation
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        known(self.0).async_commits
    }

    fn cannot(&self, feature: Feature) -> Option<&'static str> {
        known(self.0).cannot.get(&format!("{feature:?}")).map(String::as_str)
    }

    fn prepare(&self) -> Result<()> {
        static BUILT: OnceLock<Result<PathBuf>> = OnceLock::new();
        BUILT.get_or_init(build).clone().map(drop)
    }

    fn start(&self) -> Result<()> {
        process::start(&program_path()?)
    }

    fn transaction_kinds(&self) -> &'static [TransactionKind] {
        &known(self.0).transactions
    }

    fn open(&self, dir: &Path, options: &OpenOptions) -> Result<Box<dyn Store>> {
        self.start()?;
        Ok(Box::new(Piped::open(self.0, dir, options)?))
    }
}

/// Starts an engine in Go that does nothing, for the work of a mix. Fails with [`Failure::NotRun`] if
/// the program has not been built.
pub(crate) fn echo(source: Source, dir: &Path) -> Result<Remote> {
    let program = program_path()?;
    if !program.exists() {
        let why = "the program with the peers in Go is built when one of them first runs, and none has";
        return Err(Failure::NotRun(why.to_owned()));
    }
    build()?;
    process::start(&program)?;
    Remote::new("echo", source, None, dir)
}

fn program_path() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(PROGRAM))
}

/// Builds the program beside this one. Go rebuilds only what has changed.
fn build() -> Result<PathBuf> {
    let program = program_path()?;
    if !program.exists() {
        eprintln!("building the peers in Go, which takes minutes the first time");
    }
    let output =
        Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(SOURCES).output();
    match output {
        Ok(output) if output.status.success() => Ok(program),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            Err(Failure::Engine(format!("go build in {SOURCES} failed: {}", stderr.trim())))
        }
        Err(error) => Err(Failure::NotRun(format!(
            "this engine is in Go and `go` could not be started ({error}): install Go 1.26 or newer, or leave the engine out"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines;

    #[test]
    fn every_peer_in_go_is_described() {
        let names: Vec<&str> = all().iter().map(|engine| engine.name.as_str()).collect();
        let listed = engines::shown().map(|engine| engine.name()).filter(|name| is_peer(name));
        assert_eq!(listed.collect::<Vec<_>>(), names);
        for name in names {
            let peer = engines::find(name).unwrap();
            assert!(peer.version().contains('.'), "{name}");
            assert!(peer.options().iter().all(|option| !option.reason.is_empty()), "{name}");
            assert_ne!(peer.isolation(), Isolation::Operation);
        }
        assert!(GoPeer("bbolt").cannot(Feature::AsyncCommits).is_some());
        assert!(GoPeer("pebble").cannot(Feature::AsyncCommits).is_none());
        assert_eq!(GoPeer("badger").transaction_kinds(), [TransactionKind::Optimistic]);
    }
}
