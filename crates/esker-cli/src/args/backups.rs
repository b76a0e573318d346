//! Defines the arguments and help texts of `esker backup`.

use std::path::PathBuf;

use clap::Subcommand;

/// The commands on backups.
#[derive(Debug, Subcommand)]
pub(crate) enum Backups {
    /// Back up the database, copying only what is new since the last backup
    #[command(after_help = "\
The first backup creates the directory. A directory may hold backups of several databases. A backup that
fails or is killed leaves the earlier ones unchanged.

Examples:
  esker backup create /backup/data
  esker backup create s3://bucket/data         settings by AWS_REGION, AWS_ACCESS_KEY_ID, AWS_ENDPOINT, ...
  esker -d other backup create /backup/data --json")]
    Create {
        /// Directory of the backups, or s3://BUCKET/PREFIX
        directory: PathBuf,
    },
    /// Archive the commits since the last call, or since the first backup, to restore points between backups
    #[command(after_help = "\
The database must retain its commits: `esker feed --keep 1000000000` turns that on. A server retains up to
--backlog bytes of them and archives them with ES.BACKUP FEED. Make a backup first.

Examples:
  esker feed --keep 1000000000 && esker backup create /backup/data
  esker backup feed /backup/data               each minute, say")]
    Feed {
        /// Directory of the backups, or s3://BUCKET/PREFIX
        directory: PathBuf,
    },
    /// List the backups, oldest first, then the archived commits; exit code 1 if a backup's record is damaged
    #[command(after_help = "\
ID <tab> TIME <tab> COMMIT <tab> SIZE <tab> BYTES COPIED <tab> DATABASE

Examples:
  esker backup list /backup/data
  esker backup list /backup/data --json        an object a line")]
    List {
        /// Directory of the backups, or s3://BUCKET/PREFIX
        directory: PathBuf,
    },
    /// Read all files of all backups and verify their checksums; exit code 1 if something is damaged
    #[command(after_help = "\
Examples:
  esker backup verify /backup/data && echo sound
  esker backup verify /backup/data --json      {\"problems\":[...],\"damaged\":[3], ...}")]
    Verify {
        /// Directory of the backups, or s3://BUCKET/PREFIX
        directory: PathBuf,
    },
    /// Remove all but the newest backups of each database, and files that no remaining backup uses
    #[command(after_help = "Examples:\n  esker backup prune /backup/data --keep 14")]
    Prune {
        /// Directory of the backups, or s3://BUCKET/PREFIX
        directory: PathBuf,
        /// Number of backups to keep
        #[arg(long, value_name = "N")]
        keep: usize,
    },
    /// Restore a backup into a new directory
    #[command(after_help = "\
Restoring verifies the checksum of each file while copying it and refuses damaged files. Needs no --db.

Examples:
  esker backup restore /backup/data restored            the newest
  esker backup restore /backup/data restored --id 7
  esker backup restore /backup/data restored --to-time 2026-11-26T20:24:00Z
  esker backup restore /backup/data restored --to-commit 88231
  esker -d restored check && mv data data-damaged && mv restored data")]
    Restore {
        /// Directory of the backups, or s3://BUCKET/PREFIX
        directory: PathBuf,
        /// Directory of the restored database, which must not exist
        target: PathBuf,
        /// Number of the backup, as `list` prints it [default: the newest, or the newest before the requested
        /// point]
        #[arg(long, value_name = "ID")]
        id: Option<u64>,
        /// Restore the state right after this commit, using archived commits
        #[arg(long, value_name = "COMMIT", alias = "to-position", conflicts_with = "to_time")]
        to_commit: Option<u64>,
        /// Restore what was backed up or archived by this time: 2026-11-26T20:24:00Z, or seconds since 1970
        #[arg(long, value_name = "TIME", value_parser = crate::moment::parse)]
        to_time: Option<u64>,
        /// Also read the whole restored database before it gets its name
        #[arg(long)]
        verify: bool,
    },
    /// Write the database to standard output, without a directory of backups or a temporary copy
    #[command(after_help = "\
Writes the state of one commit, history included, in the storage format of this version. `esker unload -` writes
a form that any version can load. Checksums cover every byte; a stream that is cut off restores nothing.

Examples:
  esker backup send | zstd > data.zst && zstd -dc data.zst | esker backup receive restored
  esker backup send | ssh host esker backup receive restored")]
    Send,
    /// Make a database in a new directory of what `send` writes, read from standard input
    #[command(after_help = "\
The directory appears once everything has arrived and is durable. Needs no --db.

Examples:
  ssh host esker -d data backup send | esker backup receive restored
  esker backup receive restored --verify < data.stream")]
    Receive {
        /// Directory of the new database, which must not exist
        target: PathBuf,
        /// Also read the whole new database before it gets its name
        #[arg(long)]
        verify: bool,
    },
}
