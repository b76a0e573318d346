//! The `esker-torture` tool: runs campaigns that try to lose acknowledged commits.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
#[cfg(target_os = "linux")]
use esker_torture::block::BlockCampaign;
use esker_torture::history::{self, HistoryCampaign, HistoryJob, run_history_child};
use esker_torture::kill::{Canary, ChildJob, KillCampaign, run_child};
use esker_torture::power::PowerCampaign;
use esker_torture::storm::{StormCampaign, StormJob, run_storm_child};
use esker_torture::{Budget, Result};

/// Try to lose acknowledged commits of Esker; see docs/testing.md
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Kill a process that works on a database, repeatedly, and verify the remaining files
    Kill {
        /// Number of kills; 200 without any limit
        #[arg(long, value_name = "N")]
        rounds: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Record databases, simulate power losses at many points, and verify possible states as real files
    Power {
        /// Number of databases, each with several lives; 100 without any limit
        #[arg(long, value_name = "N")]
        runs: Option<u64>,
        /// Power losses per life
        #[arg(long, value_name = "M", default_value_t = 20)]
        moments: usize,
        #[command(flatten)]
        common: Common,
    },
    /// Record a block device below ext4, simulate power losses, mount possible states, and verify them
    /// (Linux, root)
    #[cfg(target_os = "linux")]
    Block {
        /// Number of drives, each with several lives; 50 without any limit
        #[arg(long, value_name = "N")]
        runs: Option<u64>,
        /// Power losses per life
        #[arg(long, value_name = "M", default_value_t = 10)]
        moments: usize,
        #[command(flatten)]
        common: Common,
    },
    /// Record the observations of concurrent clients, across crashes, and check linearizability and isolation
    History {
        /// Number of histories; 200 without any limit
        #[arg(long, value_name = "N")]
        histories: Option<u64>,
        /// Number of concurrent clients
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=64))]
        threads: u8,
        #[command(flatten)]
        common: Common,
    },
    /// Use all features at once in several threads, with kills; compare copies by commit number
    Storm {
        /// Number of processes; 100 without any limit
        #[arg(long, value_name = "N")]
        rounds: Option<u64>,
        /// Do not compare the results of merges and updates on expiring keys
        #[arg(long)]
        skip_folded_expiry: bool,
        #[command(flatten)]
        common: Common,
    },
    /// The process that `storm` starts and kills
    #[command(hide = true)]
    StormChild {
        dir: PathBuf,
        seed: u64,
        workers: usize,
        millis: u64,
        #[arg(long)]
        skip_folded_expiry: bool,
    },
    /// The process that `kill` starts and kills
    #[command(hide = true)]
    KillChild {
        dir: PathBuf,
        seed: u64,
        #[arg(long)]
        names: Vec<String>,
        #[arg(long)]
        canary: Option<String>,
    },
    /// The process that `history` starts and kills
    #[command(hide = true)]
    HistoryChild {
        dir: PathBuf,
        notes: PathBuf,
        seed: u64,
        life: u64,
        clock: u64,
        threads: usize,
        #[arg(long)]
        sync: bool,
        #[arg(long)]
        full: bool,
        #[arg(long)]
        has_money: bool,
        #[arg(long)]
        canary: Option<String>,
    },
}

#[derive(Args)]
struct Common {
    /// Maximum duration in seconds
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
    /// Seed [default: random; a failure reports it]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Directory on the file system to test. Its subdirectories db, copy, left, storm, as-killed and as-lost
    /// are deleted first [default: a temporary one, kept after a failure]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Common {
    fn budget(&self, rounds: Option<u64>, default: u64) -> Budget {
        let rounds = rounds.or(self.seconds.is_none().then_some(default));
        Budget { rounds, time: self.seconds.map(Duration::from_secs) }
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| fastrand::u64(..1 << 32))
    }

    /// Runs a campaign in its directory and prints its counters.
    #[expect(
        clippy::disallowed_methods,
        reason = "removes the directory that this program made, and says how long it took"
    )]
    fn run<T: Display>(&self, campaign: impl FnOnce(PathBuf) -> Result<T>) -> Result<()> {
        let start = Instant::now();
        let dir = match &self.dir {
            Some(dir) => dir.clone(),
            None => tempfile::Builder::new().prefix("esker-torture-").tempdir()?.keep(),
        };
        println!("{}{:.1} s", campaign(dir.clone())?, start.elapsed().as_secs_f64());
        if self.dir.is_none() {
            std::fs::remove_dir_all(dir)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("esker-torture: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Kill { rounds, common } => common.run(|dir| {
            let (seed, budget) = (common.seed(), common.budget(rounds, 200));
            KillCampaign { program: std::env::current_exe()?, dir, seed, budget, canary: None }.run()
        }),
        Command::Power { runs, moments, common } => common.run(|dir| {
            let (seed, budget) = (common.seed(), common.budget(runs, 100));
            PowerCampaign { dir, seed, budget, moments, canary: None }.run()
        }),
        #[cfg(target_os = "linux")]
        Command::Block { runs, moments, common } => common.run(|dir| {
            let (seed, budget) = (common.seed(), common.budget(runs, 50));
            BlockCampaign { dir, seed, budget, moments, canary: None }.run()
        }),
        Command::History { histories, threads, common } => common.run(|dir| {
            let (seed, budget) = (common.seed(), common.budget(histories, 200));
            let (program, threads) = (std::env::current_exe()?, threads.into());
            HistoryCampaign { program, dir, seed, budget, threads, canary: None }.run()
        }),
        Command::Storm { rounds, skip_folded_expiry: skips_folded_expiry, common } => common.run(|dir| {
            let (seed, budget) = (common.seed(), common.budget(rounds, 100));
            let program = std::env::current_exe()?;
            StormCampaign { program, dir, seed, budget, skips_folded_expiry }.run()
        }),
        Command::StormChild { dir, seed, workers, millis, skip_folded_expiry: skips_folded_expiry } => {
            run_storm_child(&StormJob { dir, seed, workers, millis, skips_folded_expiry })
        }
        Command::KillChild { dir, seed, names, canary } => {
            let canary = canary.as_deref().and_then(Canary::named);
            run_child(&ChildJob { dir, seed, names, canary })
        }
        Command::HistoryChild { dir, notes, seed, life, clock, threads, sync, full, has_money, canary } => {
            let canary = canary.as_deref().and_then(history::Canary::named);
            run_history_child(&HistoryJob {
                dir,
                notes,
                seed,
                life,
                clock,
                threads,
                sync,
                full,
                has_money,
                canary,
            })
        }
    }
}
