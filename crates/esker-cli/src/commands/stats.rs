//! `esker stats`: prints the engine's statistics, once or periodically.
//!
//! ```text
//!   Db --Look::take--> Look --figures.rs--> groups for people | JSON | one line with rates
//! ```

mod figures;
mod tables;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use esker::{Db, Health, KeyspaceStats, Stats};

use crate::Answer;
use crate::database::Session;
use crate::failure::Result;
use crate::output;

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// `esker stats`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatsArgs {
    /// Repeat after each interval, with rates; without a terminal, one line each time
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    watch: Option<Duration>,
    /// Stop after N repetitions
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
    /// Print one line for each table instead: its run, size, keys, commits and keyspaces
    #[arg(long, conflicts_with = "watch")]
    tables: bool,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let positive = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    let interval = positive.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    interval.ok_or_else(|| "a positive number of seconds".to_owned())
}

/// All statistics of a database at one moment.
pub(crate) struct Look {
    at: Instant,
    health: Health,
    stats: Stats,
    keyspaces: Vec<KeyspaceStats>,
}

impl Look {
    /// Reads the statistics.
    pub(crate) fn take(db: &Db) -> Self {
        Look { at: Instant::now(), health: db.health(), stats: db.stats(), keyspaces: db.keyspace_stats() }
    }

    /// Prints the statistics, with rates if there is an earlier look.
    fn print(&self, before: Option<&Look>, format: &Format) -> Result<()> {
        let mut out = output::stdout();
        match format {
            Format::Json => writeln!(out, "{}", figures::json(self, before))?,
            Format::Groups => figures::write_groups(&mut out, self, before)?,
            Format::Screen => {
                write!(out, "{CLEAR}")?;
                figures::write_groups(&mut out, self, before)?;
            }
            Format::Lines => writeln!(out, "{}", figures::line(self, before))?,
        }
        Ok(out.flush()?)
    }
}

/// Output format.
enum Format {
    Json,
    Groups,
    Screen,
    Lines,
}

pub(super) fn run(session: &Session<'_>, stats: &StatsArgs) -> Result<Answer> {
    let how = match (session.common.json, stats.watch) {
        (true, _) => Format::Json,
        (false, None) => Format::Groups,
        (false, Some(_)) if io::stdout().is_terminal() => Format::Screen,
        (false, Some(_)) => Format::Lines,
    };
    let mut database = session.open_to_read()?;
    database.say_whose_figures();
    if stats.tables {
        return tables::print(&database.db, session.common.json);
    }
    let mut before: Option<Look> = None;
    let mut left = if stats.watch.is_some() { stats.count } else { Some(1) };
    while left != Some(0) {
        if let (Some(interval), Some(_)) = (stats.watch, &before) {
            std::thread::sleep(interval);
            database.catch_up()?;
        }
        let look = Look::take(&database.db);
        look.print(before.as_ref(), &how)?;
        before = Some(look);
        left = left.map(|left| left - 1);
    }
    Ok(Answer::Yes)
}
