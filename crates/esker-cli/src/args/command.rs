//! The commands: their arguments, and the help that teaches them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::{Backups, Common};
use crate::bounds::Bounds;
use crate::commands::past::{CommitNo, Span};
#[cfg(feature = "server")]
use crate::commands::serve::ServeArgs;
use crate::commands::shell::ShellArgs;
use crate::commands::stats::StatsArgs;
#[cfg(feature = "server")]
use crate::commands::top::TopArgs;
use crate::failure::Result;
use crate::formats::{Column, Delimiter};
use crate::numbers::NumberForm;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set a key; creates the database and the keyspace where there are none
    #[command(after_help = "\
Examples:
  esker put ann 'Ann Smith'
  esker put balance -5
  esker put --escapes 'line\\x00two' 'a\\tb'   with escapes; else a backslash is a backslash
  esker put --ttl 3600 session:7 ann     gone after an hour
  esker put --as i64 visits 0            a number, as `merge` adds to it
  esker put photo < photo.jpg            the value from standard input, byte by byte")]
    Put(Put),
    /// Merge an operand into a key by the merge operator of its keyspace, without reading it
    #[command(after_help = "\
A keyspace has a merge operator once `esker keyspaces operator` has given it one: add-i64, add-u64,
add-f64, append, min, max, bit-or, bit-and, set-union.

Examples:
  esker keyspaces operator counts add-i64
  esker merge -k counts --as i64 visits 1
  esker get -k counts --as i64 visits         1")]
    Merge(Merge),
    /// Print the value of a key; exit code 1 if there is none
    #[command(after_help = "\
Examples:
  esker get ann
  esker get --bytes raw photo > photo.jpg    the value and nothing else: no escapes, no line end
  esker get --json ann                       {\"key\":\"ann\",\"value\":\"Ann Smith\"}
  esker get --escapes 'a\\tb'                 a key as `scan` prints it
  esker get --as i64 visits                  8 bytes as the number that `merge` counts with
  esker get --at 1200 ann                    as it was at commit 1200, in a keyspace that keeps history
  esker get -k users -k mails ann            NAME <tab> VALUE for each keyspace that has it")]
    Get(Get),
    /// Print for how many more seconds a key is there, or `unlimited`; exit code 1 if it is not
    #[command(after_help = "\
Examples:
  esker ttl session:7
  esker ttl -k users -k mails ann            NAME <tab> SECONDS for each keyspace that has it")]
    Ttl(crate::commands::ttl::TtlArgs),
    /// Remove keys, or all keys of a range; exit code 1 if there was nothing to remove
    #[command(after_help = "\
Examples:
  esker del ann bob
  esker del --prefix session:
  esker del -k users -k mails ann            in both keyspaces, in one commit
  esker del --from 2023- --to 2024-          `--to` itself stays")]
    Del(Del),
    /// Print entries in key order, KEY <tab> VALUE
    #[command(after_help = "\
What is no text is printed as an escape; `esker get --escapes KEY` takes a key as it is printed here.

Examples:
  esker scan
  esker scan --prefix app --limit 10
  esker scan --from m --to n --keys-only     from m up to, not including, n
  esker scan --reverse --limit 1             the last entry
  esker scan --json                          one JSON object a line, as `export --format jsonl`
  esker scan --at 1200                       as it was at commit 1200
  esker scan --since 1200                    what has changed since: COMMIT <tab> put <tab> KEY <tab> VALUE,
                                             removed KEY, removed-range FROM TO; at the end COMMIT <tab> end
  esker scan -k users -k mails               one keyspace after the other, its name in front")]
    Scan(Scan),
    /// Print what a key was, newest first; exit code 1 if nothing is known of it
    #[command(after_help = "\
A keyspace keeps older versions once `esker keyspaces history` has told it to.

Examples:
  esker versions ann                         COMMIT <tab> put <tab> VALUE, or COMMIT <tab> removed
  esker versions ann --limit 3 --json        {\"commit\":1200,\"what\":\"put\",\"value\":\"Ann\"}")]
    Versions(Versions),
    /// Print what each commit has changed, in order, or have the database keep commits for that
    #[command(after_help = "\
A database begins to keep commits with `--keep BYTES`, and stops with `--keep 0`.

Examples:
  esker feed --keep 1000000000 --for 7d      from now on: up to this many bytes of the log, and 7 days
  esker feed                                 COMMIT <tab> put <tab> KEYSPACE <tab> KEY <tab> VALUE,
                                             merge, removed, expired, removed-range, named, unnamed; at the
                                             end COMMIT <tab> end
  esker feed --since 1200 --json             what came behind commit 1200, an object a line
  esker feed -k users --limit 100            of 100 commits, what they changed in `users`")]
    Feed(FeedArgs),
    /// Print how many entries there are; the whole keyspace is counted without reading it
    #[command(after_help = "\
Examples:
  esker count
  esker count --prefix app
  esker count -k users --json                {\"entries\":3}
  esker count -k users -k mails              NAME <tab> NUMBER for each")]
    Count(Count),
    /// Read entries from a file: TSV, CSV, JSON or a word list
    #[command(after_help = "\
The format follows from the name of the file (.tsv .tab .csv .jsonl .ndjson .json .txt
.words, and .gz behind any of them); standard input is TSV unless --format says otherwise.

  tsv     KEY <tab> VALUE; the value is all that follows the first tab
  csv     the first line names the columns; the first column is the key, the second the value
  jsonl   {\"key\":\"...\",\"value\":\"...\"}, an object a line, or an array of objects; key_hex and
          value_hex hold bytes that are not UTF-8
  words   each line is a key, the value is empty

Without --value, a table with more columns gives the rest of the line behind the key as the
value. A JSON object without the field of the value is a bad line; with --key and no --value it
is the value itself, as it stands. A field that is null counts as missing.

In CSV a row with more fields than the header names is a bad line; without --value, one with
fewer, too.

Blank lines are skipped; in a word list a blank line is the empty key. Files are UTF-8, with or
without a byte order mark. Other encodings, compressed files except .gz, and lines that end with CR alone, are
refused, and the message says how to convert them.

An object that names its `keyspace`, as `export` writes it for several, goes into that one, which is
created if it is not there. With -k an object of another keyspace is a bad line. With --key or
--value that field is one as any other.

A bad line stops the import, with its number; the batches before it stay. Importing again
does no harm.

With --sorted the keys ascend, byte by byte, each once, as `LC_ALL=C sort` and `export` write them.
A key that does not ascend stops the import, also with --skip-bad, and nothing is imported. All
rows go into one keyspace, in one commit.

Examples:
  esker import words.txt
  esker import --format words - < words
  esker import users.csv --key email --value name
  esker import table.tsv --key 2 --value 5 --skip-bad
  esker import UnicodeData.txt --format tsv --delimiter ';' --value 2
  esker import words.txt.gz
  LC_ALL=C sort -u big.txt | esker import --sorted --format words
  esker import events.jsonl --key id           each whole line becomes the value of its id
  esker import --durability none big.tsv       batches wait for nothing, the end for the disk
  esker -d a export | esker -d b import        copy a keyspace (in a script with `set -o pipefail`:
                                               where export fails, import knows only of a cut line)")]
    Import(Import),
    /// Write entries to a file or to standard output, in a form that `import` reads back exactly
    #[command(after_help = "\
`import` with the same options reads it back: of a word list the keys, of several keyspaces (JSON
lines alone) without -k.

The format follows from the name of the file, as for `import`; standard output is TSV, or
JSON lines with --json, unless --format says otherwise. The file appears under its name when it is complete; pipes and devices
are written as they are.

Examples:
  esker export all.jsonl
  esker export --format csv --prefix user: > users.csv
  esker export --format words > keys.txt       keys only
  esker export -k users -k mails all.jsonl     JSON lines alone: each object names its keyspace")]
    Export(Export),
    /// Read commands line by line: get, put, scan, transactions and more, with history and completion
    #[command(after_help = "\
The database stays open, so a command takes no time to open it; other processes are refused meanwhile.
`help` in the shell lists its commands. What a command prints comes page by page.

From a pipe or a file it reads a command a line; blank lines and lines that start with # are skipped.
It stops at the first command that fails, with exit code 2; the exit code is 1 if a command found
nothing, or if a transaction was not committed.

History is kept in the file that ESKER_HISTORY names, or in ~/.local/state/esker/history; with an
empty ESKER_HISTORY, or for lines that begin with a space, not at all.

With --server it speaks to a running server in place of a directory. The commands are the same, without
those for the past and for copies. Without -k it works in database 0, whose name is
r0: `use r1` is database 1, and `use users` the keyspace users. Keys that are no strings have no value.

Examples:
  esker shell
  esker -k users shell
  esker shell --server 127.0.0.1:6379
  printf 'begin\\nput a 1\\nput b 2\\ncommit\\n' | esker shell")]
    Shell(ShellArgs),
    /// List, create, drop, rename, clear and copy keyspaces; their merge operators, what they keep of the past
    #[command(
        subcommand,
        after_help = "\
Examples:
  esker keyspaces list
  esker keyspaces copy users users-before
  esker keyspaces drop users-before --yes"
    )]
    Keyspaces(Keyspaces),
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
    /// Copy the database into a new directory, by links where the file system has them
    #[command(after_help = "\
The copy is a database of its own, of one moment. Files that never change are linked, so it costs
little time and space; on another file system they are copied. It is there as a whole, or not at all.

For copies on another disk, of which each holds only what is new, use `esker backup`.

Examples:
  esker checkpoint data-before-upgrade
  esker checkpoint /backup/data-$(date +%F) --json")]
    Checkpoint {
        /// The directory, which is not there yet
        directory: PathBuf,
    },
    /// Make, list, verify and remove backups, and restore them
    #[command(
        subcommand,
        after_help = "\
A directory of backups holds each file of the database once. So each backup copies only what is new,
and each can be restored by itself.

Examples:
  esker backup create /backup/data            each night
  esker backup list /backup/data
  esker backup verify /backup/data            each week
  esker backup prune /backup/data --keep 14
  esker backup restore /backup/data restored"
    )]
    Backup(Backups),
    /// Write the database, or some keyspaces, to one file that any version of Esker can load
    #[command(after_help = "\
Without -k all keyspaces, of one moment: values, how long they last, and the options of the
keyspaces. The file grows as FILE.partial. If this is stopped, the same command goes on where it was,
if nothing was committed since.

For files that people and other programs read, use `esker export`.

Examples:
  esker unload all.unload
  esker -k users -k mails unload some.unload
  esker unload all.unload && esker -d copy load all.unload")]
    Unload {
        /// The file, which is not there yet
        file: PathBuf,
    },
    /// Load a file that `unload` has written; creates the database and its keyspaces
    #[command(after_help = "\
Keyspaces of the file have to be missing or empty here. If this is stopped, the same command goes on
where it was: until then there is a keyspace `esker.load`.

Examples:
  esker -d copy load all.unload
  esker -d copy -k users load all.unload      only this keyspace of the file")]
    Load {
        /// The file
        file: PathBuf,
    },
    /// Serve the database to clients of the Redis protocol, until SIGTERM or Ctrl-C
    #[cfg(feature = "server")]
    #[command(after_help = "\
Creates the database where there is none. No other process has it open meanwhile.

Examples:
  esker -d data serve
  esker -d data serve --fsync always --memory 4gb
  esker -d data serve --bind 0.0.0.0 --requirepass secret
  esker -d data serve --tls-port 6380 --tls-cert-file cert.pem --tls-key-file key.pem
  esker -d data serve --http 127.0.0.1:9121
  esker -d data serve --no-port --unix-socket esker.sock")]
    Serve(Box<ServeArgs>),
    /// Show what a server does, until Ctrl-C
    #[cfg(feature = "server")]
    #[command(after_help = "\
Examples:
  esker top
  esker top --server 10.0.0.7:6379 --user ann --password secret
  esker top --once")]
    Top(TopArgs),
}

/// Which keys.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RangeArgs {
    /// Only keys that start with this
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    prefix: Option<OsString>,
    /// Only keys from this one on
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    from: Option<OsString>,
    /// Only keys below this one
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    to: Option<OsString>,
}

impl RangeArgs {
    /// The keys that start with `prefix`.
    pub(crate) fn prefix(prefix: OsString) -> Self {
        RangeArgs { prefix: Some(prefix), ..RangeArgs::default() }
    }

    /// The bounds, decoded.
    pub(crate) fn bounds(&self, common: &Common) -> Result<Bounds> {
        let decode = |given: &Option<OsString>| given.as_ref().map(|text| common.decode(text)).transpose();
        Ok(Bounds::new(decode(&self.prefix)?, decode(&self.from)?, decode(&self.to)?))
    }
}

/// What a keyspace keeps of the past.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// The name
    pub(crate) name: String,
    /// The newest N versions of each key, removals counted
    #[arg(long, value_name = "N", conflicts_with_all = ["span", "none"])]
    pub(crate) versions: Option<u32>,
    /// All that was there at any time since so long ago: 90s, 15m, 12h, 7d
    #[arg(long = "for", value_name = "TIME", conflicts_with = "none")]
    pub(crate) span: Option<Span>,
    /// Nothing
    #[arg(long)]
    pub(crate) none: bool,
}

/// What to do with keyspaces.
#[derive(Debug, Subcommand)]
pub(crate) enum Keyspaces {
    /// Print the names, NAME <tab> NUMBER OF KEYS
    #[command(after_help = "\
Examples:
  esker keyspaces list
  esker keyspaces list --json                  {\"keyspace\":\"users\",\"entries\":3}")]
    List,
    /// Create a keyspace, which must not be there; the database has to be
    #[command(after_help = "Examples:\n  esker keyspaces create users")]
    Create {
        /// The name
        name: String,
    },
    /// Drop a keyspace with all it holds; asks first on a terminal
    #[command(after_help = "\
Examples:
  esker keyspaces drop users
  esker keyspaces drop users --yes")]
    Drop {
        /// The name; not `default`, which can only be cleared
        name: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Give a keyspace another name
    #[command(after_help = "Examples:\n  esker keyspaces rename users people")]
    Rename {
        /// The name it has; not `default`
        from: String,
        /// The name it gets
        to: String,
    },
    /// Remove all keys of a keyspace; asks first on a terminal
    #[command(after_help = "\
Examples:
  esker keyspaces clear default
  esker keyspaces clear users --yes")]
    Clear {
        /// The name
        name: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Print what a keyspace keeps of the past, or have it keep that from now on
    #[command(after_help = "\
Examples:
  esker keyspaces history users
  esker keyspaces history users --versions 10
  esker keyspaces history users --for 7d
  esker keyspaces history users --none")]
    History(HistoryArgs),
    /// Print a keyspace's merge operator, or give it one, for good
    #[command(after_help = "\
Built in are add-i64, add-u64, add-f64 (numbers of 8 bytes, see `esker merge`), append, min, max,
bit-or, bit-and and set-union.

Examples:
  esker keyspaces operator counts
  esker keyspaces operator counts add-i64")]
    Operator {
        /// The name of the keyspace
        name: String,
        /// The name of the operator
        operator: Option<String>,
    },
    /// Copy all entries of a keyspace into another one, which is missing or empty
    #[command(after_help = "\
The copy is of one moment, and is written in batches. If it fails, what was copied is
removed, if the database can still be written.

Examples:
  esker keyspaces copy users users-before")]
    Copy {
        /// The name of the original
        from: String,
        /// The name of the copy
        to: String,
    },
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
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
    /// The value [default: all of standard input, as it is]
    #[arg(allow_negative_numbers = true)]
    pub(crate) value: Option<OsString>,
    /// Seconds until the entry expires [default: the keyspace's default, or never]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) ttl: Option<Duration>,
    /// The value is a number, stored in 8 bytes
    #[arg(long = "as", value_name = "NUMBER")]
    pub(crate) number: Option<NumberForm>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Merge {
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
    /// What is merged into its value
    #[arg(allow_negative_numbers = true)]
    pub(crate) operand: OsString,
    /// The operand is a number, stored in 8 bytes
    #[arg(long = "as", value_name = "NUMBER")]
    pub(crate) number: Option<NumberForm>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FeedArgs {
    /// Only commits behind this one [default: all that are kept]
    #[arg(long, value_name = "COMMIT")]
    pub(crate) since: Option<CommitNo>,
    /// Stop after this many commits
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Print nothing: keep commits from now on, at most these many bytes of the log; 0 ends it
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["since", "limit"])]
    pub(crate) keep: Option<u64>,
    /// And no longer than so: 90s, 15m, 12h, 7d [default: as long as the bytes allow]
    #[arg(long = "for", value_name = "TIME", requires = "keep")]
    pub(crate) span: Option<Span>,
}

/// A number of seconds, which may have a fraction.
fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
    /// As it was at this commit
    #[arg(long, value_name = "COMMIT")]
    pub(crate) at: Option<CommitNo>,
    /// The value is a number in 8 bytes: print it in decimal
    #[arg(long = "as", value_name = "NUMBER", conflicts_with = "json")]
    pub(crate) number: Option<NumberForm>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Versions {
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
    /// Stop after this many versions
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Del {
    /// The keys
    #[arg(required_unless_present_any = ["prefix", "from", "to"], conflicts_with_all = ["prefix", "from", "to"], allow_negative_numbers = true)]
    pub(crate) keys: Vec<OsString>,
    #[command(flatten)]
    pub(crate) range: RangeArgs,
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) range: RangeArgs,
    /// From the last key to the first
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Stop after this many entries of a keyspace
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Leave out the values; those in tables are read from the disk all the same
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// As it was at this commit
    #[arg(long, value_name = "COMMIT", conflicts_with = "since")]
    pub(crate) at: Option<CommitNo>,
    /// What has changed since this commit
    #[arg(long, value_name = "COMMIT", conflicts_with = "reverse")]
    pub(crate) since: Option<CommitNo>,
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
    /// What stands between columns of TSV and CSV: one character, or `tab`
    #[arg(long, value_name = "CHAR", allow_hyphen_values = true)]
    pub(crate) delimiter: Option<Delimiter>,
    /// Report bad lines, leave them out and go on
    #[arg(long)]
    pub(crate) skip_bad: bool,
    /// Rows per commit; 0 commits all of them at once, or none
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) batch: usize,
    /// The rows are sorted by key, each key once: load them faster, all in one commit, or none
    #[arg(long, conflicts_with = "batch")]
    pub(crate) sorted: bool,
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
    /// What stands between columns of TSV and CSV: one character, or `tab`
    #[arg(long, value_name = "CHAR", allow_hyphen_values = true)]
    pub(crate) delimiter: Option<Delimiter>,
}
