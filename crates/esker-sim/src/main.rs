//! The `esker-sim` tool: runs and replays simulations, sweeps and damage campaigns.
//!
//! ```text
//!   run     seeds until one fails, all are done, or time is up
//!   replay  one seed, twice, to check that it is deterministic; a failure is shrunk
//!   sweep   a fault at every single call of a fixed workload, or at one of them
//!   damage  seeds, or one of them: a database whose files are damaged
//! ```

use std::fmt::Debug;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use esker_env::{Clock, SystemClock};
use esker_sim::damage::{self, Figures, RunOptions};
use esker_sim::report::{describe, describe_position};
use esker_sim::runner::{Sabotage, run_seed};
use esker_sim::sweep::{Kind, sample};
use esker_world::Failure;
use esker_world::budget::{Budget, Progress};
use esker_world::world::Tally;

const EXAMPLES: &str = "\
A seed decides everything: sizes, operations, the order of background work, faults, crashes and what they leave.
The database runs whole, in one thread, on a file system in memory, next to a model that must agree with it.

Examples:
  esker-sim run --seconds 60              as many seeds as fit into a minute, from seed 0
  esker-sim run --seeds 1000..2000        these seeds
  esker-sim run --ops 5000 --seeds 0..50  fewer, longer ones
  esker-sim replay 17 --ops 500           one seed again; a failure is made as short as it can be
  esker-sim sweep                         everything at every call: two to three hours
  esker-sim sweep deaths --sample 500     one kind, 500 positions
  esker-sim sweep deaths --at 17          one position again
  esker-sim damage --seconds 60           databases with harmed files, as many as fit into a minute
  esker-sim damage 17                     one again; a failure is made as short as it can be
";

/// Proves by simulation that no acknowledged commit is lost.
#[derive(Parser)]
#[command(name = "esker-sim", version, about, after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run seeds until one fails, all are done, or time is up
    Run {
        /// Range of seeds, without B
        #[arg(long, value_name = "A..B", value_parser = seeds, default_value = "0..1000000000")]
        seeds: Range<u64>,
        /// Operations per seed
        #[arg(long, value_name = "N", default_value_t = 500)]
        ops: usize,
        /// Stop after this many seconds [default: 60 without --seeds]
        #[arg(long, value_name = "S")]
        seconds: Option<u64>,
    },
    /// Run one seed twice, and explain and shrink a failure
    Replay {
        /// The seed
        seed: u64,
        /// Number of operations
        #[arg(long, value_name = "N", default_value_t = 500)]
        ops: usize,
    },
    /// Inject a fault at every single call of a workload that uses all kinds of files
    Sweep {
        /// Kinds: deaths, deaths-in-recovery, fails-once, fails-forever, fails-late, lost-syncs,
        /// fails-in-recovery, short-writes, disk-full, dir-syncs, misreads, panics [default: all]
        #[arg(value_name = "KIND", value_parser = kind)]
        kinds: Vec<Kind>,
        /// Run a sample of this many positions per kind
        #[arg(long, value_name = "N")]
        sample: Option<u64>,
        /// Run only this position, twice, to check that it is deterministic
        #[arg(long, value_name = "N", requires = "kinds", conflicts_with = "sample")]
        at: Option<u64>,
    },
    /// Damage the files of databases, and judge all operations on them
    Damage {
        /// Run only this seed, twice, to check that it is deterministic
        #[arg(value_name = "SEED", conflicts_with_all = ["seeds", "seconds"])]
        seed: Option<u64>,
        /// Range of seeds, without B
        #[arg(long, value_name = "A..B", value_parser = seeds)]
        seeds: Option<Range<u64>>,
        /// Stop after this many seconds [default: 60 without --seeds]
        #[arg(long, value_name = "S")]
        seconds: Option<u64>,
        /// Operations that create each database
        #[arg(long, value_name = "N", default_value_t = 300)]
        ops: usize,
    },
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (start, end) = text.split_once("..").ok_or("two numbers with .. between them, as in 0..1000")?;
    let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text:?}: {e}"));
    let range = number(start)?..number(end)?;
    if range.is_empty() {
        Err("no seeds: the first must be smaller than the end".to_owned())
    } else {
        Ok(range)
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    let names = || Kind::ALL.map(Kind::name).join(", ");
    Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| format!("one of {}", names()))
}

fn main() -> ExitCode {
    let passed = match Args::parse().command {
        Command::Run { seeds, ops, seconds } => {
            let endless = seeds == (0..1_000_000_000) && seconds.is_none();
            run(seeds, ops, if endless { Some(60) } else { seconds })
        }
        Command::Replay { seed, ops } => {
            let run = || run_seed(seed, ops, Sabotage::default());
            replay(&format!("seed {seed}"), run, |failure| describe(seed, ops, failure))
        }
        Command::Sweep { kinds, at: Some(at), .. } => kinds.into_iter().all(|kind| replay_position(kind, at)),
        Command::Sweep { kinds, sample, at: None } => {
            let kinds = if kinds.is_empty() { Kind::ALL.to_vec() } else { kinds };
            kinds.into_iter().all(|kind| sweep(kind, sample))
        }
        Command::Damage { seed: Some(seed), ops, .. } => replay_damage(seed, ops),
        Command::Damage { seed: None, seeds, seconds, ops } => {
            let seconds = seconds.or(seeds.is_none().then_some(60));
            damage(seeds.unwrap_or(0..1_000_000_000), ops, seconds)
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn per_minute(count: u64, time: Duration) -> u64 {
    (count as f64 * 60.0 / time.as_secs_f64().max(1e-9)) as u64
}

fn print(tally: &Tally, time: Duration) {
    println!("{tally}{} operations a minute", per_minute(tally.ops, time));
}

/// Runs seeds until one fails, all are done, or time is up. Returns the elapsed time if none failed. `each`
/// returns a message for the progress bar, or the report of a failure.
fn campaign(
    seeds: Range<u64>,
    seconds: Option<u64>,
    mut each: impl FnMut(u64, Duration) -> Result<String, String>,
) -> Option<Duration> {
    let time = seconds.map(Duration::from_secs);
    // Without progress by seeds, the bar shows the time.
    let rounds = seconds.is_none().then_some(seeds.end - seeds.start);
    let mut progress = Progress::new(Budget { rounds, time });
    let first = seeds.start;
    for seed in seeds {
        if !progress.goes_on() {
            break;
        }
        match each(seed, progress.elapsed()) {
            Ok(message) => progress.advance(|| format!("seed {seed}, {message}")),
            Err(failure) => {
                drop(progress);
                println!("{failure}");
                return None;
            }
        }
    }
    let (count, time) = (progress.done(), progress.elapsed());
    drop(progress);
    println!("{count} seeds from {first} on, all well, in {:.1} s", time.as_secs_f64());
    Some(time)
}

fn run(seeds: Range<u64>, ops: usize, seconds: Option<u64>) -> bool {
    let mut total = Tally::default();
    let time = campaign(seeds, seconds, |seed, elapsed| {
        let tally = run_seed(seed, ops, Sabotage::default());
        total.add(&tally.map_err(|failure| describe(seed, ops, &failure))?);
        Ok(format!("{} operations a minute", per_minute(total.ops, elapsed)))
    });
    time.inspect(|time| print(&total, *time)).is_some()
}

fn damage(seeds: Range<u64>, ops: usize, seconds: Option<u64>) -> bool {
    let mut total = Figures::default();
    let time = campaign(seeds, seconds, |seed, elapsed| {
        let figures = damage::run(seed, ops, RunOptions::default());
        total.add(&figures.map_err(|failure| damage::report::describe(seed, ops, &failure))?);
        Ok(format!("{} databases a minute", per_minute(total.databases, elapsed)))
    });
    time.inspect(|_| println!("  {total}")).is_some()
}

/// Runs twice and returns the result, or `None` if the results differ.
fn twice<T: PartialEq + Debug>(what: &str, run: impl Fn() -> T) -> Option<T> {
    let (one, two) = (run(), run());
    if one != two {
        println!("{what} is not deterministic:\n  {one:?}\n  {two:?}");
        return None;
    }
    Some(one)
}

fn replay_damage(seed: u64, ops: usize) -> bool {
    let run = || (damage::harms(seed, ops), damage::run(seed, ops, RunOptions::default()));
    match twice(&format!("seed {seed}"), run) {
        Some((harms, Ok(figures))) => {
            println!("seed {seed}: no failure, deterministic, with these harms:");
            harms.iter().flatten().for_each(|harm| println!("  {harm}"));
            println!("  {figures}");
            true
        }
        Some((_, Err(failure))) => {
            println!("{}", damage::report::describe(seed, ops, &failure));
            false
        }
        None => false,
    }
}

fn replay(
    what: &str,
    run: impl Fn() -> Result<Tally, Failure>,
    describe: impl Fn(&Failure) -> String,
) -> bool {
    let clock = SystemClock::new();
    match twice(what, run) {
        Some(Ok(tally)) => {
            println!("{what}: no failure, deterministic, fingerprint {:016x}", tally.fingerprint);
            print(&tally, clock.monotonic() / 2);
            true
        }
        Some(Err(failure)) => {
            println!("{}", describe(&failure));
            false
        }
        None => false,
    }
}

/// Returns the number of positions of a sweep, or `None` if its workload fails without a fault.
fn positions(kind: Kind) -> Option<u64> {
    let counted = kind.positions();
    counted.inspect_err(|failure| println!("the workload fails on its own: {}", failure.cause)).ok()
}

fn replay_position(kind: Kind, at: u64) -> bool {
    let Some(n) = positions(kind) else { return false };
    if at == 0 || at > n {
        println!("{} has the positions 1 to {n}", kind.name());
        return false;
    }
    let run = || kind.run(at, Sabotage::default());
    replay(&format!("{} at {at}", kind.name()), run, |failure| describe_position(kind, at, failure))
}

fn sweep(kind: Kind, size: Option<u64>) -> bool {
    let Some(n) = positions(kind) else { return false };
    let positions = sample(n, size);
    let mut progress = Progress::new(Budget { rounds: Some(positions.len() as u64), time: None });
    let mut total = Tally::default();
    for at in &positions {
        match kind.run(*at, Sabotage::default()) {
            Ok(tally) => total.add(&tally),
            Err(failure) => {
                drop(progress);
                println!("{}", describe_position(kind, *at, &failure));
                return false;
            }
        }
        progress.advance(|| kind.name().to_owned());
    }
    let time = progress.elapsed();
    drop(progress);
    println!("{}: {} positions, all well, in {:.1} s", kind.name(), positions.len(), time.as_secs_f64());
    print(&total, time);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_a_failure_prints_replays_it() {
        let failure = Failure::new("x");
        for kind in Kind::ALL {
            let text = describe_position(kind, 17, &failure);
            let command = text.lines().find_map(|line| line.strip_prefix("replay: ")).expect("a command");
            let parsed = Args::try_parse_from(command.split(' ')).map(|args| args.command);
            let Ok(Command::Sweep { kinds, at: Some(17), sample: None }) = parsed else {
                panic!("{command}")
            };
            assert_eq!(kinds, [kind]);
        }
        assert!(Args::try_parse_from(["esker-sim", "sweep", "--at", "17"]).is_err(), "--at requires a kind");
    }

    #[test]
    fn the_command_that_a_failed_damage_prints_replays_it() {
        let failure = Failure::new("x");
        let text = damage::report::describe(17, 20, &failure);
        let command = text.lines().find_map(|line| line.strip_prefix("replay: ")).expect("a command");
        let parsed = Args::try_parse_from(command.split(' ')).map(|args| args.command);
        let is_it = matches!(parsed, Ok(Command::Damage { seed: Some(17), ops: 20, .. }));
        assert!(is_it && text.contains("the harms:\n  "), "{text}");
        assert!(Args::try_parse_from(["esker-sim", "damage", "17", "--seconds", "5"]).is_err());
    }
}
