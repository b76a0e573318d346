//! Tests what the adapters say of the async commits of their engines. It kills a process that has just made
//! some, and counts those that are there when the database is opened again.
//!
//! ```text
//! check --starts--> async-writer: commits of one item each, `ready` --SIGKILL
//!       --starts--> async-survivors: opens, reads everything, prints how many are there
//! ```
//!
//! - The surviving commits are the first ones, byte for byte: a commit never survives without those before
//!   it.
//! - A commit that was handed to the operating system survives. Of commits that stay in the process some are
//!   lost, in at least one of [`KILLS_MAX`] kills. One kill is not enough, because a thread may have written
//!   just before it.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use esker_bench_api::generate::items::Items;
use esker_bench_api::{Durability, Engine, Failure, Feature, OpenOptions, Reached, Result};

use crate::parent::{self, die_with_the_runner};
use crate::runner::Scratch;

const SEED: u64 = 29;
const CACHE_BYTES: u64 = 64 << 20;
/// Not a multiple of the number of commits after which any adapter syncs.
const COMMITS: u64 = 1_500;
const KILLS_MAX: usize = 5;
const READY: &str = "ready";

/// What was found for one engine.
pub(crate) enum Found {
    /// It has no async commits, with the reason.
    NoSuchMode(&'static str),
    /// The claim of its adapter, the number of surviving commits after each kill, and whether they agree.
    Counted { said: Reached, there: Vec<u64>, agrees: bool },
}

impl Found {
    /// Returns a line for the terminal.
    pub(crate) fn line(&self, engine: &str) -> String {
        match self {
            Self::NoSuchMode(why) => format!("{engine}: no such mode: {why}"),
            Self::Counted { said, there, agrees } => {
                let there: Vec<String> = there.iter().map(u64::to_string).collect();
                let verdict = if *agrees { "as its adapter says" } else { "AGAINST what its adapter says" };
                format!(
                    "{engine}: {} of {COMMITS} there after a kill, {verdict}: {}",
                    there.join(", "),
                    said.name()
                )
            }
        }
    }

    pub(crate) fn is_sound(&self) -> bool {
        !matches!(self, Self::Counted { agrees: false, .. })
    }
}

/// Kills processes of `engine` in directories under `dir`, which are removed.
pub(crate) fn check(engine: &dyn Engine, dir: &Path) -> Result<Found> {
    let Some(said) = engine.async_commits() else {
        return Ok(Found::NoSuchMode(engine.cannot(Feature::AsyncCommits).unwrap_or_default()));
    };
    engine.prepare()?;
    let program = std::env::current_exe()?;
    let mut there = Vec::new();
    while agrees(said.reached, &there).is_none() {
        there.push(survivors_of_a_kill(&program, engine.name(), dir)?);
    }
    let agrees = agrees(said.reached, &there).unwrap_or_default();
    Ok(Found::Counted { said: said.reached, there, agrees })
}

/// Returns whether the surviving commits agree with the claim, or `None` if more kills are needed.
fn agrees(said: Reached, there: &[u64]) -> Option<bool> {
    let is_lossy = there.iter().any(|count| *count < COMMITS);
    match said {
        Reached::System => (!there.is_empty()).then_some(!is_lossy),
        Reached::Process if is_lossy => Some(true),
        Reached::Process => (there.len() >= KILLS_MAX).then_some(false),
    }
}

fn survivors_of_a_kill(program: &Path, engine: &str, dir: &Path) -> Result<u64> {
    let database = Scratch::new(dir, "esker-bench-async-commits")?;
    let arguments = ["async-writer", engine, &COMMITS.to_string()];
    let is_ready = |line: &str| (line == READY).then_some(());
    let (ready, status) = parent::write_elsewhere(&arguments, &database.path, true, is_ready)?;
    if ready.is_none() {
        return Err(Failure::Engine(format!("the writing process of {engine} ended by itself ({status})")));
    }
    let mut reader = Command::new(program);
    reader.args(["async-survivors", engine, &COMMITS.to_string()]).arg(&database.path);
    let output = reader.output()?;
    let reported = String::from_utf8_lossy(&output.stdout).trim().parse();
    reported.map_err(|_| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Failure::Engine(format!("{engine}, opened after a kill: {} ({})", stderr.trim(), output.status))
    })
}

fn options() -> OpenOptions {
    OpenOptions { durability: Durability::Async, ..OpenOptions::with_cache(CACHE_BYTES) }
}

/// Runs in the process that is killed.
pub(crate) fn write(engine: &dyn Engine, dir: &Path, commits: u64) -> Result<()> {
    die_with_the_runner();
    let (store, items) = (engine.open(dir, &options())?, Items::new(SEED));
    for i in 0..commits {
        store.write(&mut |writer| writer.put(&items.key(i), &items.value(i)))?;
    }
    println!("{READY}");
    loop {
        std::thread::park();
    }
}

/// Runs in the process that counts how many of the first `commits` survived.
pub(crate) fn survivors(engine: &dyn Engine, dir: &Path, commits: u64) -> Result<u64> {
    let (store, items) = (engine.open(dir, &options())?, Items::new(SEED));
    let mut there = BTreeMap::new();
    store.reader()?.range(&[], u64::MAX, &mut |key, value| {
        there.insert(key.to_vec(), value.to_vec());
    })?;
    let is_there = |i: &u64| there.get(&items.key(*i)[..]).is_some_and(|value| value[..] == items.value(*i));
    let first = (0..commits).take_while(is_there).count() as u64;
    if first == there.len() as u64 {
        return Ok(first);
    }
    Err(Failure::Wrong(format!("{} items are there, and only the first {first} commits", there.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines;
    use crate::gate;

    #[test]
    fn what_was_there_is_held_against_what_is_said() {
        let all = [COMMITS; KILLS_MAX];
        assert_eq!(agrees(Reached::System, &[]), None);
        assert_eq!(agrees(Reached::System, &all[..1]), Some(true));
        assert_eq!(agrees(Reached::System, &[COMMITS - 1]), Some(false));
        assert_eq!(agrees(Reached::Process, &all[..KILLS_MAX - 1]), None);
        assert_eq!(agrees(Reached::Process, &all), Some(false));
        assert_eq!(agrees(Reached::Process, &[COMMITS, COMMITS - 1]), Some(true));
    }

    #[test]
    fn a_commit_without_one_before_it_is_wrong() {
        let _open = gate::no_child_starts();
        let dir = tempfile::tempdir().unwrap();
        let (engine, items) = (engines::find("redb").unwrap(), Items::new(SEED));
        let put = |numbers: &[u64]| {
            let sync = OpenOptions { durability: Durability::Sync, ..options() };
            let store = engine.open(dir.path(), &sync).unwrap();
            store
                .write(&mut |writer| {
                    numbers.iter().try_for_each(|i| writer.put(&items.key(*i), &items.value(*i)))
                })
                .unwrap();
        };
        put(&[0, 1]);
        assert_eq!(survivors(engine, dir.path(), 4).unwrap(), 2);
        put(&[3]);
        let wrong = survivors(engine, dir.path(), 4).unwrap_err().to_string();
        assert!(wrong.contains("3 items are there, and only the first 2 commits"), "{wrong}");
        put(&[2]);
        assert_eq!(survivors(engine, dir.path(), 4).unwrap(), 4);
    }
}
