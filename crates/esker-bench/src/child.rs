//! The child process: runs one suite once on one engine, in a directory of its own.
//!
//!   runner --arguments--> child --Message lines on stdout--> runner

use std::path::Path;

use crate::parent::{self, step};
use crate::recorder::Recorder;
use crate::row::Row;
use crate::scale::Scale;
use crate::suites::{Suite, Turn};
use esker_bench_api::results::{Better, Counts, Message, Record, Setting, Unit, Usage};
use esker_bench_api::{Engine, Result};

/// One run of one engine.
pub(crate) struct Job<'a> {
    pub(crate) suite: &'static Suite,
    pub(crate) engine: &'static dyn Engine,
    pub(crate) scale: Scale,
    pub(crate) run: u32,
    /// The group of rows to run.
    pub(crate) group: usize,
    /// Description of the memory limit, for the record.
    pub(crate) memory_limit: &'a str,
    pub(crate) commit: &'a str,
}

impl Job<'_> {
    /// Returns the rows of this job's group.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let rows = self.suite.rows(self.scale).into_iter();
        rows.filter(|row| row.group == self.group).collect()
    }

    /// Returns a record of this run, without measurements.
    pub(crate) fn blank(&self) -> Record {
        Record {
            suite: self.suite.name.to_owned(),
            row: String::new(),
            engine: self.engine.name().to_owned(),
            scale: self.scale.name().to_owned(),
            run: self.run,
            setting: Setting {
                version: self.engine.version(),
                commit: self.commit.to_owned(),
                memory_limit: self.memory_limit.to_owned(),
                started_unix_ms: 0,
            },
            value: None,
            unit: Unit::Seconds,
            better: Better::Lower,
            counts: Counts { ops: 1, ..Counts::default() },
            passes: Vec::new(),
            usage: Usage::default(),
            detail: None,
            note: String::new(),
            error: None,
        }
    }
}

/// Runs `job` in `dir` and prints a [`Message`] for every step.
pub(crate) fn run(job: &Job<'_>, dir: &Path, traced: bool) -> Result<()> {
    parent::die_with_the_runner();
    raise_open_files();
    job.engine.start()?;
    let rows = job.rows();
    let mut recorder =
        Recorder::new(rows, job.blank(), dir, Box::new(std::io::stdout()), traced, job.scale.idle_window())
            .within(step());
    let turn = Turn { engine: job.engine, scale: job.scale, group: job.group, recorder: &mut recorder };
    job.suite.run(turn)?;
    recorder.finish()
}

/// Raises the limit of open files as far as this process may, as the runtime of Go does. Some engines keep
/// files open for each keyspace.
#[cfg(target_os = "linux")]
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        eprintln!("the limit of open files stays as it is: {error}");
    }
}

#[cfg(not(target_os = "linux"))]
fn raise_open_files() {}

/// Parses a line that a child printed. Other output of the child is ignored.
pub(crate) fn message(line: &str) -> Option<Message> {
    serde_json::from_str(line).ok()
}
