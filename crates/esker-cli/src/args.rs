//! The command line: what can be said, and the help that teaches it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::bounds::Bounds;
use crate::commands::stats::StatsArgs;
use crate::failure::{Failure, Result};
use crate::formats::Column;
use crate::text::{ByteForm, shown};

/// Where the help of a command lists the options that all commands have.
const COMMON: &str = "Common options";

const AFTER_HELP: &str = "\
Examples:
  export ESKER_DB=data                   which database, once for all commands
  esker put ann 'Ann Smith'              set a key; creates the database
  esker get ann                          print its value
  esker import words.txt                 a word list: each line becomes a key
  esker scan --prefix app --limit 10     the first ten keys that start with \"app\"
  esker export --format csv > all.csv    everything, as a table

Bytes:
  Keys and values are bytes. In the default form, `escaped`, text stays as it is, and all
  else is \\n \\t \\r \\0 \\\\ or \\xHH. `--bytes hex` and `--bytes raw` are for other needs.
  A key that starts with a dash goes behind `--`:  esker get -- -5

Exit codes:
  0  done, or found
  1  not found (get, del), not sound (check, dump), or something lost (repair)
  2  an error; the message says what to do";

/// Look into, fill, empty and check an Esker database.
///
/// An Esker database is a directory. It holds keyspaces: named, ordered maps from keys to values.
#[derive(Debug, Parser)]
#[command(name = "esker", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    /// Directory of the database
    #[arg(short, long, global = true, help_heading = COMMON, value_name = "DIR", env = "ESKER_DB")]
    pub(crate) db: Option<PathBuf>,
    /// Keyspace to work in
    #[arg(short, long, global = true, help_heading = COMMON, value_name = "NAME", default_value = "default")]
    pub(crate) keyspace: String,
    /// How keys and values are written, here and in the output [default: escaped; raw in CSV files]
    #[arg(short, long, global = true, help_heading = COMMON, value_name = "FORM")]
    pub(crate) bytes: Option<ByteForm>,
    /// Answer in JSON
    #[arg(long, global = true, help_heading = COMMON)]
    pub(crate) json: bool,
    /// What each commit waits for; when the command ends, closing has made all of them durable
    #[arg(long, global = true, help_heading = COMMON, value_name = "LEVEL", default_value = "sync")]
    pub(crate) durability: Durability,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// The form of bytes on the command line and in the terminal.
    pub(crate) fn form(&self) -> ByteForm {
        self.bytes.unwrap_or(ByteForm::Escaped)
    }

    /// The bytes that an argument stands for.
    pub(crate) fn decode(&self, argument: &OsString) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.form().decode(argument.as_encoded_bytes(), &mut bytes) {
            Ok(()) => Ok(bytes),
            Err(reason) => Err(Failure::message(format!("{}: {reason}", shown(argument.display())))),
        }
    }
}

/// When a commit counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// The disk
    Sync,
    /// The operating system; a power failure before the command ends may lose the last moments
    Buffered,
    /// Nothing; a kill or a power failure before the command ends may lose the last moments
    None,
}

impl From<Durability> for esker::Durability {
    fn from(level: Durability) -> Self {
        match level {
            Durability::Sync => esker::Durability::Sync,
            Durability::Buffered => esker::Durability::Buffered,
            Durability::None => esker::Durability::None,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set a key; creates the database and the keyspace where there are none
    #[command(after_help = "\
Examples:
  esker put ann 'Ann Smith'
  esker put 'line\\x00two' 'a\\tb'        with escapes
  esker put photo < photo.jpg            the value from standard input, byte by byte")]
    Put(Put),
    /// Print the value of a key; exit code 1 if there is none
    #[command(after_help = "\
Examples:
  esker get ann
  esker get --bytes raw photo > photo.jpg    the value and nothing else: no escapes, no line end
  esker get --json ann                       {\"key\":\"ann\",\"value\":\"Ann Smith\"}")]
    Get(Get),
    /// Remove keys, or all keys of a range; exit code 1 if there was nothing to remove
    #[command(after_help = "\
Examples:
  esker del ann bob
  esker del --prefix session:
  esker del --from 2023- --to 2024-          `--to` itself stays")]
    Del(Del),
    /// Print entries in key order, KEY <tab> VALUE
    #[command(after_help = "\
Examples:
  esker scan
  esker scan --prefix app --limit 10
  esker scan --from m --to n --keys-only     from m up to, not including, n
  esker scan --reverse --limit 1             the last entry
  esker scan --json                          one JSON object a line, as `export --format jsonl`")]
    Scan(Scan),
    /// Print how many entries there are; the whole keyspace is counted without reading it
    #[command(after_help = "\
Examples:
  esker count
  esker count --prefix app
  esker count -k users --json                {\"entries\":3}")]
    Count(Count),
    /// Read entries from a file: TSV, CSV, JSON lines or a word list
    #[command(after_help = "\
The format follows from the name of the file (.tsv .tab .csv .jsonl .ndjson .json .txt
.words); standard input is TSV unless --format says otherwise.

  tsv     KEY <tab> VALUE; the value is all that follows the first tab
  csv     the first line names the columns; the first column is the key, the second the value
  jsonl   {\"key\":\"...\",\"value\":\"...\"}; key_hex and value_hex hold bytes that are not UTF-8
  words   each line is a key, the value is empty

Without --value, a table with more columns gives the rest of the line behind the key as the
value; a JSON object without the field \"value\" is the value itself, as it stands.

A bad line stops the import, with its number; the batches before it stay. Importing again
does no harm.

Examples:
  esker import words.txt
  esker import --format words - < words
  esker import users.csv --key email --value name
  esker import table.tsv --key 2 --value 5 --skip-bad
  esker import events.jsonl --key id           each whole line becomes the value of its id
  esker import --durability none big.tsv       batches wait for nothing, the end for the disk
  esker -d a export | esker -d b import        copy a keyspace (in a script with `set -o pipefail`:
                                               where export fails, import knows only of a cut line)")]
    Import(Import),
    /// Write entries to a file or to standard output, in a form that `import` reads back exactly
    #[command(after_help = "\
The format follows from the name of the file, as for `import`; standard output is TSV unless
--format says otherwise. The file appears under its name when it is complete; pipes and devices
are written as they are.

Examples:
  esker export all.jsonl
  esker export --format csv --prefix user: > users.csv
  esker export --format words > keys.txt       keys only")]
    Export(Export),
    /// Print the options in force and the keyspaces with their numbers of entries
    #[command(after_help = "Examples:\n  esker info\n  esker info --json")]
    Info,
    /// Print what the engine tells of itself: health, sizes, latencies, work done, keyspaces
    #[command(after_help = "\
Counts are since this command has opened the database, which no other process has open then: with
--watch they show how its background work settles.

Examples:
  esker stats
  esker stats --json
  esker stats --watch                          again every second
  esker stats --watch 10 --count 6 --json      six JSON objects, ten seconds apart")]
    Stats(StatsArgs),
    /// Read everything and verify it; exit code 1 if something is wrong
    #[command(after_help = "\
Checks every checksum and every order, that files, manifest and log agree, that newer runs hold
newer versions, and that the counts are right. A database that cannot be opened is checked
offline: file by file, all damage listed with its place, nothing changed.

Examples:
  esker check && echo sound
  esker check --offline                        without opening it; works on any damage
  esker check --json                           {\"problems\":[...], ...}")]
    Check(Check),
    /// Salvage what can be read of a damaged database into a new one; exit code 1 if something was lost
    #[command(after_help = "\
The damaged database is only read. The new one holds the newest version of each key that can be
read, and is checked. What was lost is listed: file, offset, and the keys it is about.

Examples:
  esker repair data repaired
  esker repair data repaired --json            {\"losses\":[...], ...}")]
    Repair(Repair),
    /// Show what is in a file of a database, or in all of them; exit code 1 if something is damaged
    #[command(after_help = "\
A line for each piece: its offset, what it is, its parts. Keys are shown as they are stored, with
the number of their keyspace in front.

Examples:
  esker dump data/000007.sst
  esker dump data/000012.wal --json
  esker dump data --no-entries                 every file, without keys and values")]
    Dump(Dump),
    /// Merge everything into one run and drop what is removed or overwritten
    #[command(after_help = "Examples:\n  esker compact")]
    Compact,
}

/// Which keys.
#[derive(Debug, clap::Args)]
pub(crate) struct RangeArgs {
    /// Only keys that start with this
    #[arg(long, value_name = "KEY")]
    prefix: Option<OsString>,
    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Only keys below this one
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
}

impl RangeArgs {
    /// The bounds, decoded.
    pub(crate) fn bounds(&self, args: &Args) -> Result<Bounds> {
        let decode = |given: &Option<OsString>| given.as_ref().map(|text| args.decode(text)).transpose();
        Ok(Bounds::new(decode(&self.prefix)?, decode(&self.from)?, decode(&self.to)?))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Do not open the database: read its files and report everything that is wrong with them
    #[arg(long)]
    pub(crate) offline: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Repair {
    /// Directory of the damaged database
    pub(crate) source: PathBuf,
    /// Directory of the new one: missing, or empty, and not in the damaged one
    pub(crate) target: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Dump {
    /// A file of a database, or its directory
    pub(crate) path: PathBuf,
    /// Leave out entries of tables and ops of commits
    #[arg(long)]
    pub(crate) no_entries: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Put {
    /// The key
    pub(crate) key: OsString,
    /// The value [default: all of standard input, as it is]
    pub(crate) value: Option<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// The key
    pub(crate) key: OsString,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Del {
    /// The keys
    #[arg(required_unless_present_any = ["prefix", "from", "to"], conflicts_with_all = ["prefix", "from", "to"])]
    pub(crate) keys: Vec<OsString>,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// From the last key to the first
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Stop after this many entries
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Leave out the values; they are read from the disk all the same
    #[arg(long)]
    pub(crate) keys_only: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Count {
    #[command(flatten)]
    pub(crate) range: RangeArgs,
}

/// What a file of rows looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileFormat {
    /// Tab-separated
    Tsv,
    /// Comma-separated, with quotes
    Csv,
    /// A JSON object a line
    Jsonl,
    /// A key a line
    Words,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum YesNo {
    Yes,
    No,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The file; `-` is standard input
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Format of the file [default: by its name]
    #[arg(short, long)]
    pub(crate) format: Option<FileFormat>,
    /// Column of the key: its number from 1, or its name in the header; in JSON the field
    #[arg(long, value_name = "COLUMN")]
    pub(crate) key: Option<Column>,
    /// Column of the value
    #[arg(long, value_name = "COLUMN")]
    pub(crate) value: Option<Column>,
    /// Whether the first line names the columns [default: yes in CSV, no in TSV]
    #[arg(long, value_name = "YES_NO")]
    pub(crate) header: Option<YesNo>,
    /// Report bad lines, leave them out and go on
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Rows per commit; 0 commits all of them at once, or none
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) batch: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The file; `-` is standard output
    #[arg(default_value = "-")]
    pub(crate) file: PathBuf,
    /// Format of the file [default: by its name]
    #[arg(short, long)]
    pub(crate) format: Option<FileFormat>,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// Whether the first line names the columns [default: yes in CSV, no in TSV]
    #[arg(long, value_name = "YES_NO")]
    pub(crate) header: Option<YesNo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
