//! Defines the arguments and help texts of `esker keys`.

use std::path::PathBuf;

use clap::Subcommand;

/// The commands on keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
    /// Wrap the keys of the database with the first master key of the file
    #[command(after_help = "\
The file must also have the master key that wrapped them so far. Afterwards it is not needed any more. Every
command that opens the database to write does the same. No data is rewritten: new files get new keys, and
`--data` writes the old ones again.

Examples:
  (openssl rand -hex 32; cat old.keys) > new.keys
  esker --key-file new.keys keys rotate
  esker --key-file new.keys keys rotate --data
  esker --key-file new.keys keys rotate --backups /backup/data")]
    Rotate {
        /// Write all data again with new keys, by a compaction
        #[arg(long)]
        data: bool,
        /// Wrap the keys of the backups in this directory, and not those of a database
        #[arg(long, value_name = "DIR", conflicts_with = "data")]
        backups: Option<PathBuf>,
    },
}
