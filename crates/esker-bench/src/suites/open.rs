//! Suite `open`: how long opening takes, after a clean close and after the process was killed while it wrote.
//!
//! ```text
//! another process: load, drain, close                 -> open, first get   row: open clean
//! another process: load, write more, wait to be killed -> open, first get   row: open after kill
//! ```
//!
//! After each row an untimed walk reads everything: what was closed or synced is there, byte for byte, and nothing that was not written.
//!
//! The process that opens has never used the engine: nothing of its code or of the data is in the processor's caches, the
//! files are in the page cache.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::ValueEnum;
use esker_bench_api::generate::items::{Items, KEY_BYTES};
use esker_bench_api::{Durability, Engine, Failure, Feature, OpenOptions, Store};

use crate::child::{die_with_the_runner, step};
use crate::measure::idle_wait_max;
use crate::recorder::{Outcome, Recorder};
use crate::scale::Scale;
use crate::suites::verify::expect;
use crate::suites::{Row, Suite};

const SEED: u64 = 23;
const CACHE_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 30;
const BATCH: u64 = 1000;
const READY: &str = "ready";

pub(crate) struct OpenSuite;

/// Items loaded; a tenth as many are then written without a sync.
fn items(scale: Scale) -> u64 {
    match scale {
        Scale::Quick => 200_000,
        Scale::Seed => 2_000_000,
        Scale::Full => 10_000_000,
        Scale::Test => 2_000,
    }
}

impl Suite for OpenSuite {
    fn name(&self) -> &'static str {
        "open"
    }

    fn summary(&self) -> &'static str {
        "opening a database of items of 24 + 150 B: closed cleanly, and killed while it was being written"
    }

    fn memory_bytes_max(&self, _group: usize) -> Option<u64> {
        Some(MEMORY_BYTES_MAX)
    }

    fn disk_bytes_max(&self, scale: Scale) -> u64 {
        items(scale) * 2000
    }

    fn rows(&self, scale: Scale) -> Vec<Row> {
        let items = items(scale);
        vec![
            Row::time("open clean", format!("{items} items, drained and closed; open and first get")),
            Row {
                group: 1,
                ..Row::time(
                    "open after kill",
                    format!(
                        "{items} items synced, {} more not, process killed; open and first get",
                        items / 10
                    ),
                )
            },
        ]
    }

    fn run(
        &self,
        engine: &dyn Engine,
        scale: Scale,
        group: usize,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        let (dir, count) = (recorder.dir().to_path_buf(), items(scale));
        let (row, end, written) = match group {
            0 => ("open clean", End::Close, count),
            _ => ("open after kill", End::Kill, count + count / 10),
        };
        let outlives_the_process = [Feature::SyncCommits, Feature::AsyncCommits];
        if let (End::Kill, [Some(why), Some(_)]) =
            (end, outlives_the_process.map(|feature| engine.cannot(feature)))
        {
            return recorder.cannot(row, why);
        }
        write_elsewhere(engine, &dir, count, end)?;
        let mut opened = None;
        recorder.row(row, || {
            let (outcome, store) = open(engine, &dir, count)?;
            opened = Some(store);
            Ok(outcome)
        })?;
        opened.map_or(Ok(()), |store| recorder.check(|| check(&*store, count, written)))
    }
}

/// How the other process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum End {
    Close,
    Kill,
}

fn options(engine: &dyn Engine) -> OpenOptions {
    let modes = [Durability::Sync, Durability::Async];
    let durability = modes.into_iter().find(|mode| engine.cannot(mode.feature()).is_none());
    OpenOptions {
        durability: durability.unwrap_or(Durability::NoSync),
        ..OpenOptions::with_cache(CACHE_BYTES)
    }
}

fn load(engine: &dyn Engine, dir: &Path, count: u64) -> Result<Box<dyn Store>, Failure> {
    let store = engine.open(dir, &options(engine))?;
    put(&*store, 0, count)?;
    Ok(store)
}

fn put(store: &dyn Store, from: u64, to: u64) -> Result<(), Failure> {
    let items = Items::new(SEED);
    (from..to).step_by(BATCH as usize).try_for_each(|first| {
        let last = (first + BATCH).min(to);
        store.write(&mut |writer| (first..last).try_for_each(|i| writer.put(&items.key(i), &items.value(i))))
    })
}

/// Opens and reads one item of the synced ones, timed as one.
fn open(engine: &dyn Engine, dir: &Path, count: u64) -> Result<(Outcome, Box<dyn Store>), Failure> {
    let (items, i) = (Items::new(SEED), count / 2);
    let mut got = Vec::new();
    let start = Instant::now();
    let store = engine.open(dir, &options(engine))?;
    store.get(&items.key(i), &mut |value| got.extend_from_slice(value))?;
    let seconds = start.elapsed().as_secs_f64();
    expect("the first get is right", u64::from(got == items.value(i)), 1)?;
    Ok((Outcome { seconds: Some(seconds), ..Outcome::default() }, store))
}

/// Reads everything: the first `kept` items are all there, and nothing is that is not one of the first `written`, byte for byte.
fn check(store: &dyn Store, kept: u64, written: u64) -> Result<(), Failure> {
    let items = Items::new(SEED);
    let mut expected: Vec<([u8; KEY_BYTES], u64)> = (0..written).map(|i| (items.key(i), i)).collect();
    expected.sort_unstable();
    let mut left = expected.iter().peekable();
    let (mut missing, mut wrong) = (0, 0);
    let mut reader = store.reader()?;
    let seen = reader.range(&[], u64::MAX, &mut |key, value| {
        let mut is_right = false;
        while let Some((next, i)) = left.next_if(|(next, _)| next[..] <= *key) {
            if next[..] == *key {
                is_right = items.value(*i)[..] == *value;
            } else {
                missing += u64::from(*i < kept);
            }
        }
        wrong += u64::from(!is_right);
    })?;
    missing += left.filter(|(_, i)| *i < kept).count() as u64;
    expect("items that are missing", missing, 0)?;
    expect("items that are not as they were written", wrong, 0)?;
    expect("number of items by len()", reader.len()?, seen)?;
    Ok(())
}

/// Runs [`write()`] in another process, to its end or until it says that it has written everything.
fn write_elsewhere(engine: &dyn Engine, dir: &Path, count: u64, end: End) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::engine)?;
    let end_name = end.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut writer = Command::new(program)
        .args(["open-writer", engine.name(), &count.to_string(), &end_name])
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Failure::engine)?;
    let stdout = writer.stdout.take().ok_or_else(|| Failure::engine("a process without stdout"))?;
    let is_ready = BufReader::new(stdout).lines().map_while(Result::ok).any(|line| line == READY);
    if end == End::Kill {
        writer.kill().map_err(Failure::engine)?;
    }
    let status = writer.wait().map_err(Failure::engine)?;
    match end {
        _ if !is_ready => Err(Failure::Engine(format!("the writing process ended by itself ({status})"))),
        End::Close if !status.success() => {
            Err(Failure::Engine(format!("the writing process did not close the database ({status})")))
        }
        _ => Ok(()),
    }
}

/// The other process: loads `count` items; then drains and closes, or writes a tenth more without a sync and waits.
pub(crate) fn write(engine: &dyn Engine, dir: &Path, count: u64, end: End) -> Result<(), Failure> {
    die_with_the_runner();
    let mut store = load(engine, dir, count)?;
    if end == End::Close {
        store.drain(Instant::now() + idle_wait_max(step()))?;
        println!("{READY}");
        return Ok(());
    }
    let fast = [Durability::Async, Durability::NoSync].into_iter();
    if let Some(fast) = fast.into_iter().find(|mode| engine.cannot(mode.feature()).is_none()) {
        store.set_durability(fast)?;
    }
    put(&*store, count, count + count / 10)?;
    println!("{READY}");
    loop {
        std::thread::park();
    }
}
