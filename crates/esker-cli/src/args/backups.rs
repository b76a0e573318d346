//! The commands on backups: their arguments, and the help that teaches them.

use std::path::PathBuf;

use clap::Subcommand;

/// What to do with backups.
#[derive(Debug, Subcommand)]
pub(crate) enum Backups {
    /// Back the database up: what is new since the last backup is copied
    #[command(after_help = "\
The directory is made by the first one. It may hold the backups of several databases. If this fails
or is killed, the earlier backups are as they were.

Examples:
  esker backup create /backup/data
  esker -d other backup create /backup/data --json")]
    Create {
        /// The directory of backups
        directory: PathBuf,
    },
    /// Keep what was committed since the last call, or the first backup: to restore moments between backups
    #[command(after_help = "\
For this the database has to keep its commits: esker feed --keep 1000000000 begins that. A server keeps them, up
to --backlog, and archives them by ES.BACKUP FEED. A backup comes first.

Examples:
  esker feed --keep 1000000000 && esker backup create /backup/data
  esker backup feed /backup/data               each minute, say")]
    Feed {
        /// The directory of backups
        directory: PathBuf,
    },
    /// Print the backups, oldest first, then what `feed` has kept; exit code 1 if the record of one is damaged
    #[command(after_help = "\
ID <tab> TIME <tab> COMMIT <tab> SIZE <tab> what it had to copy <tab> DATABASE

Examples:
  esker backup list /backup/data
  esker backup list /backup/data --json        an object a line")]
    List {
        /// The directory of backups
        directory: PathBuf,
    },
    /// Read all files of all backups and compare their digests; exit code 1 if something is damaged
    #[command(after_help = "\
Examples:
  esker backup verify /backup/data && echo sound
  esker backup verify /backup/data --json      {\"problems\":[...],\"damaged\":[3], ...}")]
    Verify {
        /// The directory of backups
        directory: PathBuf,
    },
    /// Remove all backups but the newest of each database, and the files that no other needs
    #[command(after_help = "Examples:\n  esker backup prune /backup/data --keep 14")]
    Prune {
        /// The directory of backups
        directory: PathBuf,
        /// How many stay
        #[arg(long, value_name = "N")]
        keep: usize,
    },
    /// Make a database of a backup, in a new directory
    #[command(after_help = "\
Digests are compared while files are copied: nothing is restored from damaged ones. Needs no --db.

Examples:
  esker backup restore /backup/data restored            the newest
  esker backup restore /backup/data restored --id 7
  esker backup restore /backup/data restored --to-time 2026-11-26T20:24:00Z
  esker backup restore /backup/data restored --to-commit 88231
  esker -d restored check && mv data data-damaged && mv restored data")]
    Restore {
        /// The directory of backups
        directory: PathBuf,
        /// The directory of the database, which is not there yet
        target: PathBuf,
        /// The number of the backup, as `list` prints it [default: the newest before the moment asked for]
        #[arg(long, value_name = "ID")]
        id: Option<u64>,
        /// The state right after this commit, by what `feed` has kept
        #[arg(long, value_name = "COMMIT", alias = "to-position", conflicts_with = "to_time")]
        to_commit: Option<u64>,
        /// What was backed up or kept by `feed` by then: 2026-11-26T20:24:00Z, or seconds since 1970
        #[arg(long, value_name = "TIME", value_parser = crate::moment::parse)]
        to_time: Option<u64>,
    },
}
