//! Suite `limits`: what the machine can do without an engine, and what the lab itself costs. Other reports
//! draw the figures of the machine as lines.
//!
//! ```text
//! device: fdatasync after an append, sequential and random blocks
//! memory: copying, one dependent miss
//! lab:    an empty engine
//! ```

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use esker_bench_api::generate::fill;
use esker_bench_api::generate::order::Order;
use esker_bench_api::generate::rng::Rng;
use esker_bench_api::results::Unit;
use esker_bench_api::{AsyncCommits, Engine, EngineOption, Failure, Isolation, Result, Store};

use crate::machine;
use crate::recorder::Outcome;
use crate::row::Row;
use crate::scale::Scale;
use crate::suites::plan::Part;
use crate::suites::{Stream, Suite, Turn, echo};
use crate::track::Track;

const BLOCK: usize = 1 << 20;
const PAGE: usize = 4096;
const SMALL: usize = 200;
const QUEUE: u64 = 32;
const PERIOD: Duration = Duration::from_millis(250);
const SYNC_ROWS: [(&str, usize, bool); 4] = [
    ("fdatasync, append 200 B, growing file", SMALL, false),
    ("fdatasync, append 4 KiB, growing file", PAGE, false),
    ("fdatasync, append 200 B, preallocated file", SMALL, true),
    ("fdatasync, append 4 KiB, preallocated file", PAGE, true),
];
const WRITE_ROWS: [(&str, bool); 2] =
    [("sequential write, buffered", false), ("sequential write, O_DIRECT", true)];
const READ_ROWS: [(&str, bool); 2] =
    [("sequential read, buffered", false), ("sequential read, O_DIRECT", true)];
const RANDOM_ROWS: [(&str, u64); 2] =
    [("random 4 KiB reads, queue depth 1", 1), ("random 4 KiB reads, queue depth 32", QUEUE)];

/// Rows of an engine that does nothing, and their kinds of operations in per cent (`mix::KINDS`).
const LAB_ROWS: [(&str, [u32; 5]); 2] =
    [("the lab's own read", [100, 0, 0, 0, 0]), ("the lab's own write", [0, 0, 0, 100, 0])];

/// The same in the program of the engines in Go.
const LAB_ROWS_IN_GO: [(&str, [u32; 5]); 2] =
    [("the lab's own read, in Go", [100, 0, 0, 0, 0]), ("the lab's own write, in Go", [0, 0, 0, 100, 0])];

/// Seed of the order in which cache lines are visited.
const CHASE_SEED: u64 = 17;

pub(crate) static SUITE: Suite = Suite {
    name: "limits",
    summary: "what the machine can do: syncs, blocks, memory; and what the lab itself costs; no engine",
    // The pointer chase is larger than any cache.
    memory_bytes_max: |_| None,
    disk_bytes_max: |scale, _| sizes(scale).file_bytes * 2 + (1 << 30),
    streams: || {
        vec![
            Stream::new("random blocks", "rng::Rng, seed: the number of the thread"),
            Stream::new(
                "dependent misses",
                format!("order::Order from 0, shuffled by rng::Rng, seed {CHASE_SEED}"),
            ),
            Stream::new(
                "the lab's own operations",
                format!("storage::StorageItems, random, and rng::Rng, seed {} both; uniform", echo::SEED),
            ),
        ]
    },
    own_engine: Some(&Machine),
    parts: |scale| vec![Part::Program(rows(scale), run)],
    ..Suite::EMPTY
};

/// Takes the place of an engine.
struct Machine;

impl Engine for Machine {
    fn name(&self) -> &'static str {
        "machine"
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn options(&self) -> &'static [EngineOption] {
        &[]
    }

    fn hidden(&self) -> bool {
        true
    }

    fn isolation(&self) -> Isolation {
        Isolation::Operation
    }

    fn async_commits(&self) -> Option<AsyncCommits> {
        None
    }

    fn open(&self, _dir: &Path, _options: &esker_bench_api::OpenOptions) -> Result<Box<dyn Store>> {
        Err(Failure::Unsupported("the machine is not a database".to_owned()))
    }
}

struct Sizes {
    syncs: u64,
    file_bytes: u64,
    random_reads: u64,
    copy_bytes: usize,
    chase_bytes: usize,
    chase_steps: u64,
    lab_ops: u64,
}

fn sizes(scale: Scale) -> Sizes {
    match scale {
        Scale::Quick => Sizes {
            syncs: 1_000,
            file_bytes: 512 << 20,
            random_reads: 5_000,
            copy_bytes: 256 << 20,
            chase_bytes: 1 << 30,
            chase_steps: 2_000_000,
            lab_ops: 1_000_000,
        },
        Scale::Seed | Scale::Full => Sizes {
            syncs: 5_000,
            file_bytes: 4 << 30,
            random_reads: 50_000,
            copy_bytes: 1 << 30,
            chase_bytes: 1 << 30,
            chase_steps: 10_000_000,
            lab_ops: 10_000_000,
        },
        Scale::Test => Sizes {
            syncs: 5,
            file_bytes: 4 << 20,
            random_reads: 64,
            copy_bytes: 1 << 20,
            chase_bytes: 1 << 20,
            chase_steps: 1000,
            lab_ops: 1000,
        },
    }
}

fn rows(scale: Scale) -> Vec<Row> {
    let sizes = sizes(scale);
    let mib = sizes.file_bytes >> 20;
    let mut rows = Vec::new();
    for (name, _, _) in SYNC_ROWS {
        rows.push(Row {
            weight: 2,
            ..Row::time(name, format!("median of {} appends, each synced", sizes.syncs))
        });
    }
    for (name, _) in WRITE_ROWS {
        rows.push(Row {
            weight: 4,
            ..Row::rate(Unit::BytesPerSecond, name, format!("{mib} MiB in blocks of 1 MiB, sync included"))
        });
    }
    for (name, _) in READ_ROWS {
        rows.push(Row {
            weight: 4,
            ..Row::rate(
                Unit::BytesPerSecond,
                name,
                format!("{mib} MiB in blocks of 1 MiB, page cache dropped"),
            )
        });
    }
    for (name, _) in RANDOM_ROWS {
        let work = format!("{} reads of a {mib} MiB file, O_DIRECT", sizes.random_reads);
        rows.push(Row { weight: 3, ..Row::rate(Unit::OpsPerSecond, name, work) });
    }
    rows.push(Row {
        weight: 1,
        ..Row::rate(
            Unit::BytesPerSecond,
            "memcpy",
            format!("{} MiB to a second place, both touched before", sizes.copy_bytes >> 20),
        )
    });
    rows.push(Row {
        weight: 8,
        ..Row::time(
            "dependent cache miss",
            format!("a step of a pointer chase over {} MiB", sizes.chase_bytes >> 20),
        )
    });
    let lab_rows = LAB_ROWS.map(|(name, _)| name).into_iter().chain(LAB_ROWS_IN_GO.map(|(name, _)| name));
    for name in lab_rows {
        let work = format!("{} calls of an engine that does nothing, as the mixes make them", sizes.lab_ops);
        rows.push(Row { weight: 1, ..Row::time(name, work) });
    }
    rows
}

fn run(turn: Turn<'_>) -> Result<()> {
    let Turn { scale, recorder, .. } = turn;
    let sizes = sizes(scale);
    let dir = recorder.dir().to_path_buf();
    let path = dir.join("file");
    for (name, bytes, preallocated) in SYNC_ROWS {
        recorder.row(name, || syncs(&dir, bytes, sizes.syncs, preallocated))?;
    }
    for (name, direct) in WRITE_ROWS {
        recorder.row(name, || sequential_write(&path, sizes.file_bytes, direct))?;
    }
    for (name, direct) in READ_ROWS {
        let is_cold = machine::drop_page_cache();
        recorder.row(name, || {
            let mut outcome = sequential_read(&path, direct)?;
            if !is_cold && !direct {
                outcome.note = "the page cache could not be dropped: this is a read from memory".to_owned();
            }
            Ok(outcome)
        })?;
    }
    for (name, depth) in RANDOM_ROWS {
        recorder.row(name, || random_reads(&path, depth, sizes.random_reads))?;
    }
    recorder.row("memcpy", || Ok(copy(sizes.copy_bytes)))?;
    recorder.row("dependent cache miss", || Ok(chase(sizes.chase_bytes, sizes.chase_steps)))?;
    LAB_ROWS
        .into_iter()
        .try_for_each(|(name, percent)| recorder.row(name, || echo::cost(&dir, percent, sizes.lab_ops)))?;
    LAB_ROWS_IN_GO
        .into_iter()
        .try_for_each(|(name, percent)| recorder.row(name, || echo::cost_in_go(&dir, percent, sizes.lab_ops)))
}

fn open(path: &Path, options: &mut OpenOptions, direct: bool) -> Result<File> {
    if direct {
        options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
    }
    options.open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput if direct => {
            Failure::NotRun("this file system has no O_DIRECT".to_owned())
        }
        _ => Failure::engine(error),
    })
}

/// Memory aligned to a page, as O_DIRECT requires.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    fn new(len: usize) -> Self {
        let mut memory = vec![0; len + PAGE];
        fill(1, &mut memory);
        let start = memory.as_ptr().align_offset(PAGE);
        Self { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

/// Measures syncs. The value is the median; the details have percentiles.
fn syncs(dir: &Path, bytes: usize, count: u64, preallocated: bool) -> Result<Outcome> {
    let path = dir.join("synced");
    let file = open(&path, OpenOptions::new().write(true).create(true).truncate(true), false)?;
    if preallocated {
        // Written and not only reserved: the first write to a reserved block changes metadata, which the sync
        // then has to write too.
        let zeros = vec![0; BLOCK];
        let end = count * bytes as u64;
        for at in (0..end).step_by(BLOCK) {
            file.write_all_at(&zeros, at)?;
        }
        file.sync_all()?;
    }
    let mut record = vec![0; bytes];
    fill(2, &mut record);
    let mut track = Track::new(&["sync"], PERIOD, dir)?;
    for i in 0..count {
        let from = Instant::now();
        file.write_all_at(&record, i * bytes as u64)?;
        file.sync_data()?;
        track.record(0, from, Instant::now(), 1);
    }
    let detail = track.finish("closed");
    std::fs::remove_file(&path)?;
    Ok(Outcome {
        value: detail.latency.get("sync").map(|sync| sync.p50),
        detail: Some(detail),
        ..Outcome::default()
    })
}

fn sequential_write(path: &Path, bytes: u64, direct: bool) -> Result<Outcome> {
    drop(std::fs::remove_file(path));
    let file = open(path, OpenOptions::new().write(true).create(true).truncate(true), direct)?;
    let mut block = Aligned::new(BLOCK);
    let start = Instant::now();
    for at in (0..bytes).step_by(BLOCK) {
        file.write_all_at(block.bytes(), at)?;
    }
    file.sync_data()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Outcome { seconds: Some(seconds), user_written_bytes: bytes, ..Outcome::default() })
}

fn sequential_read(path: &Path, direct: bool) -> Result<Outcome> {
    let file = open(path, OpenOptions::new().read(true), direct)?;
    let mut block = Aligned::new(BLOCK);
    let bytes = file.metadata()?.len();
    let start = Instant::now();
    for at in (0..bytes).step_by(BLOCK) {
        file.read_exact_at(block.bytes(), at)?;
    }
    Ok(Outcome { value: Some(bytes as f64 / start.elapsed().as_secs_f64()), ..Outcome::default() })
}

/// Measures random reads. A queue of depth n is n threads with one read each at a time.
fn random_reads(path: &Path, depth: u64, count: u64) -> Result<Outcome> {
    let file = open(path, OpenOptions::new().read(true), true)?;
    let pages = file.metadata()?.len() / PAGE as u64;
    let start = Instant::now();
    thread::scope(|scope| {
        let file = &file;
        let readers: Vec<_> = (0..depth)
            .map(|thread| {
                scope.spawn(move || -> Result<()> {
                    let (mut rng, mut page) = (Rng::new(thread), Aligned::new(PAGE));
                    for _ in 0..count / depth {
                        file.read_exact_at(page.bytes(), rng.below(pages) * PAGE as u64)?;
                    }
                    Ok(())
                })
            })
            .collect();
        readers
            .into_iter()
            .try_for_each(|reader| reader.join().map_err(|_| Failure::engine("a reader thread panicked"))?)
    })?;
    let ops = count / depth * depth;
    Ok(Outcome {
        value: Some(ops as f64 / start.elapsed().as_secs_f64()),
        ops: Some(ops),
        ..Outcome::default()
    })
}

fn copy(bytes: usize) -> Outcome {
    const PASSES: usize = 4;
    let (from, mut to) = (vec![1_u8; bytes], vec![2_u8; bytes]);
    let start = Instant::now();
    for _ in 0..PASSES {
        std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
    }
    Outcome { value: Some((PASSES * bytes) as f64 / start.elapsed().as_secs_f64()), ..Outcome::default() }
}

/// Measures dependent cache misses. Each cache line names the next one, and the path visits all lines in an
/// order that no prefetcher predicts.
fn chase(bytes: usize, steps: u64) -> Outcome {
    const WORDS_PER_LINE: usize = 8;
    let lines = bytes / 64;
    let mut memory = vec![0_u64; lines * WORDS_PER_LINE];
    let mut order: Vec<u32> = Order::new(lines as u64, 0).map(|line| line as u32).take(lines).collect();
    let mut rng = Rng::new(CHASE_SEED);
    for i in (1..lines).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    for (i, line) in order.iter().enumerate() {
        memory[*line as usize * WORDS_PER_LINE] = u64::from(order[(i + 1) % lines]);
    }
    drop(order);
    let mut line = 0;
    let start = Instant::now();
    for _ in 0..steps {
        line = memory[line as usize * WORDS_PER_LINE];
    }
    let seconds = start.elapsed().as_secs_f64();
    std::hint::black_box(line);
    Outcome { value: Some(seconds / steps as f64), ..Outcome::default() }
}
