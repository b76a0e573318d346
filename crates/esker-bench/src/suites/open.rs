//! Suite `open`: the time of opening, after a clean close and after the process was killed while it wrote.
//!
//! ```text
//! other process: load, rest, close  -> read all files -> open, first get         row: open clean
//!                      rest, close  -> drop the page cache -> open, first get    row: open clean, cold
//! other process: load, write more, wait to be killed
//!                                   -> settle the disk, read all files
//!                                   -> open, first get                           row: open after kill
//! ```
//!
//! - A clean close happens when the engine has no pending background work. Otherwise the timed opening would
//!   have to finish it.
//! - Data of the writer is on the device before an opening, so that no opening competes with writeback. This
//!   includes the opening after a kill: the process dies but not the machine, so the files have the data in
//!   either case.
//!
//! After each row an untimed scan reads everything. Closed or synced data must be there, byte for byte, and
//! nothing else.
//!
//! The process that opens for the first row has not used the engine before, so the processor's caches have
//! neither its code nor its data. The files are in the page cache, as far as the memory limit of the suite
//! allows. Before the cold row the page cache is empty.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use esker_bench_api::generate::items::{Items, KEY_BYTES};
use esker_bench_api::{Durability, Engine, Failure, Feature, OpenOptions, Result, Store};

use crate::machine;
use crate::measure::{idle_wait_max, wait_until_idle};
use crate::parent::{self, die_with_the_runner, step};
use crate::recorder::{Outcome, Recorder};
use crate::row::Row;
use crate::scale::Scale;
use crate::suites::page_cache::NOT_COLD;
use crate::suites::plan::Part;
use crate::suites::works::expect;
use crate::suites::{Stream, Suite, Turn};

const SEED: u64 = 23;
const CACHE_BYTES: u64 = 512 << 20;
const MEMORY_BYTES_MAX: u64 = 4 << 30;
const BATCH: u64 = 1000;
const CLEAN: &str = "open clean";
const CLEAN_COLD: &str = "open clean, cold";
const KILLED: &str = "open after kill";
/// What the other process prints when it has written everything, and when it closed an engine that did not
/// become idle.
const READY: &str = "ready";
const READY_RESTLESS: &str = "ready, without rest";
const RESTLESS_NOTE: &str = "background work went on when the writer closed";

pub(crate) static SUITE: Suite = Suite {
    name: "open",
    summary: "opening a database of items of 24 + 150 B: closed cleanly, and killed while it was being written",
    memory_bytes_max: |_| Some(MEMORY_BYTES_MAX),
    disk_bytes_max: |scale, _| items(scale) * 2000,
    streams: || vec![Stream::new("items", format!("items::Items, seed {SEED}"))],
    parts,
    ..Suite::EMPTY
};

/// Number of items loaded. A tenth as many are then written without a sync.
fn items(scale: Scale) -> u64 {
    match scale {
        Scale::Quick => 200_000,
        Scale::Seed => 2_000_000,
        Scale::Full => 10_000_000,
        Scale::Test => 2_000,
    }
}

fn parts(scale: Scale) -> Vec<Part> {
    let items = items(scale);
    let clean = vec![
        Row::time(
            CLEAN,
            format!("{items} items, at rest and closed; all files read once before; open and first get"),
        ),
        Row::time(CLEAN_COLD, "the same, closed once more; page cache dropped; open and first get"),
    ];
    let killed = format!(
        "{items} items synced, {} more not, process killed; what it left in the page cache written, all files read once \
         before; open and first get",
        items / 10
    );
    vec![
        Part::Program(clean, |turn| run(turn, End::Close)),
        Part::Program(vec![Row::time(KILLED, killed)], |turn| {
            let outlives_the_process = [Feature::SyncCommits, Feature::AsyncCommits];
            match outlives_the_process.map(|feature| turn.engine.cannot(feature)) {
                [Some(why), Some(_)] => Err(Failure::Unsupported(why.to_owned())),
                _ => run(turn, End::Kill),
            }
        }),
    ]
}

fn run(turn: Turn<'_>, end: End) -> Result<()> {
    let Turn { engine, scale, recorder, .. } = turn;
    let (dir, count) = (recorder.dir().to_path_buf(), items(scale));
    let left = write_elsewhere(engine, &dir, count, end)?;
    run_on(left, &machine::drop_page_cache, engine, count, end, recorder)
}

/// Runs the rows on a database that another process left.
fn run_on(
    left: Left,
    drop_page_cache: &dyn Fn() -> bool,
    engine: &dyn Engine,
    count: u64,
    end: End,
    recorder: &mut Recorder,
) -> Result<()> {
    let dir = recorder.dir().to_path_buf();
    let (row, written) = match end {
        End::Close => (CLEAN, count),
        End::Kill => (KILLED, count + count / 10),
    };
    let note = if left == Left::Restless { RESTLESS_NOTE } else { "" };
    machine::settle_disk();
    read_files(&dir)?;
    open_row(recorder, row, engine, count, written, || Ok(note))?;
    if end == End::Kill {
        return Ok(());
    }
    let is_cold = drop_page_cache();
    open_row(recorder, CLEAN_COLD, engine, count, written, || {
        if is_cold { Ok(note) } else { Err(Failure::NotRun(NOT_COLD.to_owned())) }
    })
}

/// Runs a row: opens, gets and checks. Then the store becomes idle and is closed. `begins` is the note of the
/// row, or the reason why it has no value.
fn open_row(
    recorder: &mut Recorder,
    row: &str,
    engine: &dyn Engine,
    count: u64,
    written: u64,
    begins: impl Fn() -> Result<&'static str>,
) -> Result<()> {
    let dir = recorder.dir().to_path_buf();
    let mut opened = None;
    recorder.row(row, || {
        let note = begins()?.to_owned();
        let (outcome, store) = open(engine, &dir, count)?;
        opened = Some(store);
        Ok(Outcome { note, ..outcome })
    })?;
    let Some(store) = opened else { return Ok(()) };
    // The details have the work that the opening deferred.
    recorder.drain_by(|deadline| store.drain(deadline))?;
    recorder.check(|| check(&*store, count, written))
}

/// Reads all files under `dir` except holes, so that the page cache has as much as it can hold.
fn read_files(dir: &Path) -> io::Result<()> {
    let mut block = vec![0; 1 << 20];
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            read_files(&entry.path())?;
        } else {
            read_data(&mut File::open(entry.path())?, &mut block)?;
        }
    }
    Ok(())
}

/// Reads a file to its end. Some engines leave sparse files of gigabytes.
fn read_data(file: &mut File, block: &mut [u8]) -> io::Result<u64> {
    let mut bytes = 0;
    let mut at = 0;
    while let Some((from, to)) = next_data(file, at)? {
        at = from;
        file.seek(SeekFrom::Start(from))?;
        while at < to {
            let most = block.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
            let read = file.read(&mut block[..most])?;
            if read == 0 {
                return Ok(bytes);
            }
            at += read as u64;
            bytes += read as u64;
        }
    }
    Ok(bytes)
}

/// Returns the next part of a file from `at` on that is not a hole.
#[cfg(target_os = "linux")]
fn next_data(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;
    match seek(file, SeekFrom::Data(at)) {
        Ok(from) => Ok(Some((from, seek(file, SeekFrom::Hole(from))?))),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn next_data(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    let end = file.metadata()?.len();
    Ok((at < end).then_some((at, end)))
}

/// State in which the other process left its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Killed, or closed when the engine had no pending background work.
    AsAsked,
    /// Closed while background work went on, after a long wait.
    Restless,
}

/// How the other process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum End {
    Close,
    Kill,
}

fn options(engine: &dyn Engine) -> OpenOptions {
    let durability = engine.first_of(&[Durability::Sync, Durability::Async]);
    OpenOptions {
        durability: durability.unwrap_or(Durability::NoSync),
        ..OpenOptions::with_cache(CACHE_BYTES)
    }
}

fn load(engine: &dyn Engine, dir: &Path, count: u64) -> Result<Box<dyn Store>> {
    let store = engine.open(dir, &options(engine))?;
    put(&*store, 0, count)?;
    Ok(store)
}

fn put(store: &dyn Store, from: u64, to: u64) -> Result<()> {
    let items = Items::new(SEED);
    (from..to).step_by(BATCH as usize).try_for_each(|first| {
        let last = (first + BATCH).min(to);
        store.write(&mut |writer| (first..last).try_for_each(|i| writer.put(&items.key(i), &items.value(i))))
    })
}

/// Opens and reads one of the synced items, timed as one operation.
fn open(engine: &dyn Engine, dir: &Path, count: u64) -> Result<(Outcome, Box<dyn Store>)> {
    let (items, i) = (Items::new(SEED), count / 2);
    let mut got = Vec::new();
    let start = Instant::now();
    let store = engine.open(dir, &options(engine))?;
    store.get(&items.key(i), &mut |value| got.extend_from_slice(value))?;
    let seconds = start.elapsed().as_secs_f64();
    expect("the first get is right", u64::from(got == items.value(i)), 1)?;
    Ok((Outcome { seconds: Some(seconds), ..Outcome::default() }, store))
}

/// Reads everything. The first `kept` items must all be there, and every item must be one of the first
/// `written`, byte for byte.
fn check(store: &dyn Store, kept: u64, written: u64) -> Result<()> {
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

/// Runs [`write()`] in another process, to its end or until it reports that everything is written.
fn write_elsewhere(engine: &dyn Engine, dir: &Path, count: u64, end: End) -> Result<Left> {
    let end_name = end.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let arguments = ["open-writer", engine.name(), &count.to_string(), &end_name];
    let left_it = |line: &str| match line {
        READY => Some(Left::AsAsked),
        READY_RESTLESS => Some(Left::Restless),
        _ => None,
    };
    let (left, status) = parent::write_elsewhere(&arguments, dir, end == End::Kill, left_it)?;
    match left {
        None => Err(Failure::Engine(format!("the writing process ended by itself ({status})"))),
        Some(_) if end == End::Close && !status.success() => {
            Err(Failure::Engine(format!("the writing process did not close the database ({status})")))
        }
        Some(left) => Ok(left),
    }
}

/// Runs in the other process: loads `count` items. Then it becomes idle and closes, or writes a tenth more
/// without a sync and waits.
pub(crate) fn write(engine: &dyn Engine, dir: &Path, count: u64, end: End) -> Result<()> {
    die_with_the_runner();
    if end == End::Close {
        let left = load_and_close(engine, dir, count, Scale::Seed.idle_window(), idle_wait_max(step()))?;
        println!("{}", if left == Left::Restless { READY_RESTLESS } else { READY });
        return Ok(());
    }
    let mut store = load(engine, dir, count)?;
    if let Some(fast) = engine.first_of(&[Durability::Async, Durability::NoSync]) {
        store.set_durability(fast)?;
    }
    put(&*store, count, count + count / 10)?;
    println!("{READY}");
    loop {
        std::thread::park();
    }
}

/// Loads, waits until the engine has no background work, and closes.
fn load_and_close(
    engine: &dyn Engine,
    dir: &Path,
    count: u64,
    window: Duration,
    most: Duration,
) -> Result<Left> {
    let store = load(engine, dir, count)?;
    let deadline = Instant::now() + most;
    store.drain(deadline)?;
    let left = deadline.saturating_duration_since(Instant::now());
    let waited = wait_until_idle(window, left);
    drop(store);
    Ok(if waited.is_idle { Left::AsAsked } else { Left::Restless })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate;
    use crate::suites::tests::Rehearsed;

    const COUNT: u64 = 50;

    #[test]
    fn the_writer_waits_for_rest_before_it_closes() {
        let _open = gate::no_child_starts();
        let dir = tempfile::tempdir().unwrap();
        let engine = Rehearsed::default();
        let start = Instant::now();
        let window = Duration::from_millis(20);
        // Other tests keep this process busy, so this test does not wait long for it to be idle. Three idle
        // windows do not fit into the second time limit.
        load_and_close(&engine, dir.path(), COUNT, window, 50 * window).unwrap();
        assert!(start.elapsed() >= 3 * window);
        let left = load_and_close(&engine, dir.path(), COUNT, window, 2 * window).unwrap();
        assert_eq!((left, *engine.drained.lock().unwrap()), (Left::Restless, 2));
    }

    #[test]
    fn the_cold_row_opens_again_and_rows_say_what_was_not_so() {
        for (left, is_cold) in [(Left::AsAsked, true), (Left::Restless, true), (Left::AsAsked, false)] {
            let engine = Rehearsed::default();
            let records = engine.records(&SUITE, 0, |recorder| {
                drop(load(&engine, recorder.dir(), COUNT)?);
                run_on(left, &|| is_cold, &engine, COUNT, End::Close, recorder)
            });
            let note = if left == Left::Restless { RESTLESS_NOTE } else { "" };
            assert_eq!((records[0].note.as_str(), &records[0].error), (note, &None));
            let error = (!is_cold).then(|| format!("not run: {NOT_COLD}"));
            assert_eq!(records[1].error, error);
            if is_cold {
                assert_eq!(engine.opened_in(), ["", CLEAN, CLEAN_COLD]);
                assert_eq!(records[1].note, note);
            }
        }
    }

    #[test]
    fn files_are_read_to_their_end_without_their_holes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        fs::write(&path, vec![1; 3 << 20]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        file.sync_all().unwrap();
        let bytes = read_data(&mut File::open(&path).unwrap(), &mut vec![0; 1 << 20]).unwrap();
        assert!(bytes >= 3 << 20);
        if cfg!(target_os = "linux") {
            assert!(bytes < 4 << 20, "{bytes}");
        }
        read_files(dir.path()).unwrap();
    }
}
