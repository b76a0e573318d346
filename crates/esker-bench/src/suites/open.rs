//! Suite `open`: how long opening takes, after a clean close and after the process was killed while it wrote.
//!
//! ```text
//! load, drain, close -> open, first get                         row: open clean
//! another process loads the same, then writes until it is killed -> open, first get, everything synced is there
//! ```

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use esker_bench_api::generate::items::Items;
use esker_bench_api::{Durability, Engine, Failure, OpenOptions, Store};

use crate::recorder::{Outcome, Recorder};
use crate::scale::Scale;
use crate::suites::verify::expect;
use crate::suites::{Row, Suite};

const SEED: u64 = 23;
const CACHE_BYTES: u64 = 512 << 20;
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
        if group == 0 {
            let store = load(engine, &dir, count)?;
            store.drain()?;
            drop(store);
            recorder.row("open clean", || open(engine, &dir, count).map(|(outcome, _)| outcome))
        } else {
            killed_writer(engine, &dir, count)?;
            recorder.row("open after kill", || {
                let (outcome, store) = open(engine, &dir, count)?;
                let len = store.reader()?.len()?;
                if !(count..=count + count / 10).contains(&len) {
                    return Err(Failure::Wrong(format!("{len} items after the kill, {count} were synced")));
                }
                Ok(outcome)
            })
        }
    }
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

/// Starts another process that runs [`write_until_killed`], and kills it when it says that it has written everything.
fn killed_writer(engine: &dyn Engine, dir: &Path, count: u64) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::engine)?;
    let mut writer = Command::new(program)
        .args(["killed-writer", engine.name(), &count.to_string()])
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Failure::engine)?;
    let stdout = writer.stdout.take().ok_or_else(|| Failure::engine("a process without stdout"))?;
    let is_ready = BufReader::new(stdout).lines().map_while(Result::ok).any(|line| line == READY);
    writer.kill().and_then(|()| writer.wait()).map_err(Failure::engine)?;
    if is_ready { Ok(()) } else { Err(Failure::engine("the process to be killed ended by itself")) }
}

/// The other process: loads `count` items, writes a tenth more without a sync, says so, and waits for its end.
pub(crate) fn write_until_killed(engine: &dyn Engine, dir: &Path, count: u64) -> Result<(), Failure> {
    let mut store = load(engine, dir, count)?;
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
