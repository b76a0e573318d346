//! Defines the commands: their arguments and help texts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::{Backups, Count, Export, FeedArgs, Import, Keyspaces, RangeArgs, Split, seconds};
#[cfg(feature = "server")]
use crate::commands::copy::{self, CopyArgs};
use crate::commands::past::CommitNo;
#[cfg(feature = "server")]
use crate::commands::sentinel::{self, SentinelArgs};
#[cfg(feature = "server")]
use crate::commands::serve::ServeArgs;
use crate::commands::shell::ShellArgs;
use crate::commands::stats::StatsArgs;
#[cfg(feature = "server")]
use crate::commands::top::TopArgs;
use crate::numbers::NumberForm;

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Set a key. Creates the database and the keyspace if they do not exist
    #[command(after_help = "\
Examples:
  esker put ann 'Ann Smith'
  esker put balance -5
  esker put --escapes 'line\\x00two' 'a\\tb'   with escapes; otherwise a backslash is literal
  esker put --ttl 3600 session:7 ann     expires after an hour
  esker put --as i64 visits 0            a number that `merge` can add to
  esker put photo < photo.jpg            the value from standard input, unchanged")]
    Put(Put),
    /// Apply the merge operator of the keyspace to a key, without reading it
    #[command(after_help = "\
Set the merge operator of a keyspace with `esker keyspaces operator`. Available are add-i64, add-u64,
add-f64, append, min, max, bit-or, bit-and and set-union.

Examples:
  esker keyspaces operator counts add-i64
  esker merge -k counts --as i64 visits 1
  esker get -k counts --as i64 visits         1")]
    Merge(Merge),
    /// Print the value of a key; exit code 1 if the key does not exist
    #[command(after_help = "\
Examples:
  esker get ann
  esker get --bytes raw photo > photo.jpg    the value and nothing else: no escapes, no line end
  esker get --json ann                       {\"key\":\"ann\",\"value\":\"Ann Smith\"}
  esker get --escapes 'a\\tb'                 a key as `scan` prints it
  esker get --as i64 visits                  an 8-byte number, as `merge` uses it
  esker get --at 1200 ann                    the value as of commit 1200, in a keyspace with history
  esker get -k users -k mails ann            NAME <tab> VALUE for each keyspace that has it")]
    Get(Get),
    /// Print how many seconds remain until a key expires, or `unlimited`; exit code 1 if it does not exist
    #[command(after_help = "\
Examples:
  esker ttl session:7
  esker ttl -k users -k mails ann            NAME <tab> SECONDS for each keyspace that has it")]
    Ttl(crate::commands::ttl::TtlArgs),
    /// Remove keys, or all keys of a range; exit code 1 if nothing was removed
    #[command(after_help = "\
Examples:
  esker del ann bob
  esker del --prefix session:
  esker del -k users -k mails ann            in both keyspaces, in one commit
  esker del --from 2023- --to 2024-          the key `2024-` itself stays")]
    Del(Del),
    /// Print entries in key order, KEY <tab> VALUE
    #[command(after_help = "\
Bytes that are not text are printed as escapes; `esker get --escapes KEY` accepts a key as printed here.

Examples:
  esker scan
  esker scan --prefix app --limit 10
  esker scan --from m --to n --keys-only     from m up to, but not including, n
  esker scan --reverse --limit 1             the last entry
  esker scan --json                          one JSON object per line, as `export --format jsonl`
  esker scan --at 1200                       the state as of commit 1200
  esker scan --since 1200                    changes since commit 1200: COMMIT <tab> put <tab> KEY <tab> VALUE,
                                             removed KEY, removed-range FROM TO; at the end COMMIT <tab> end
  esker scan -k users -k mails               one keyspace after the other, each line with its name")]
    Scan(Scan),
    /// Print the versions of a key, newest first; exit code 1 if there are none
    #[command(after_help = "\
A keyspace keeps older versions once `esker keyspaces history` has turned that on.

Examples:
  esker versions ann                         COMMIT <tab> put <tab> VALUE, or COMMIT <tab> removed
  esker versions ann --limit 3 --json        {\"commit\":1200,\"what\":\"put\",\"value\":\"Ann\"}")]
    Versions(Versions),
    /// Print what each commit changed, send it elsewhere, or configure how many commits the database retains
    #[command(after_help = super::FEED_HELP)]
    Feed(FeedArgs),
    /// Print the number of entries. Counting a whole keyspace reads no entries
    #[command(after_help = "\
Examples:
  esker count
  esker count --prefix app
  esker count -k users --json                {\"entries\":3}
  esker count -k users -k mails              NAME <tab> NUMBER for each")]
    Count(Count),
    /// Estimate the bytes on disk of the entries of a range, without reading them
    #[command(after_help = "\
Counts all versions stored, in tables, blob files and the log, removed and overwritten ones included.

Examples:
  esker size
  esker size --prefix app
  esker size -k users -k mails --json        {\"keyspace\":\"users\",\"bytes\":4096}, and one for `mails`")]
    Size(Count),
    /// Print keys that cut a range into N parts of about equal size, without reading entries
    #[command(after_help = "\
Prints N-1 keys or fewer, ascending. They need not exist.

Examples:
  esker split 4
  esker split 16 --prefix app --json         {\"key\":\"app:7\"}, one object per line")]
    Split(Split),
    /// Read entries from a file: TSV, CSV, JSON or a word list
    #[command(after_help = "\
The format follows from the name of the file (.tsv .tab .csv .jsonl .ndjson .json .txt
.words, each also with .gz); standard input is TSV unless --format says otherwise.

  tsv     KEY <tab> VALUE; the value is everything after the first tab
  csv     the first line names the columns; the first column is the key, the second the value
  jsonl   {\"key\":\"...\",\"value\":\"...\"}, one object per line, or an array of objects; key_hex and
          value_hex hold bytes that are not UTF-8
  words   each line is a key with an empty value

Without --value, the value in a table is the rest of the line after the key. A JSON object
without the value field is a bad line; with --key and without --value, the whole object is the
value. A null field counts as missing.

A CSV row with more fields than the header is a bad line; without --value, so is a row with fewer.

Blank lines are skipped; in a word list a blank line is the empty key. Files are UTF-8, with or
without a byte order mark. Other encodings, compressed files except .gz, and lines that end with CR
alone are refused with a message that says how to convert them.

A JSON object with a `keyspace` field, as `export` writes it for several keyspaces, goes into that
keyspace, which is created if missing. With -k, an object that names another keyspace is a bad line.
With --key or --value, `keyspace` is an ordinary field.

A bad line stops the import and is reported with its number; earlier batches stay. Importing the
file again is safe.

With --sorted, keys must be in ascending byte order without duplicates, as `LC_ALL=C sort` and
`export` write them. A key out of order stops the import, even with --skip-bad, and nothing is
imported. All rows go into one keyspace in one commit.

Examples:
  esker import words.txt
  esker import --format words - < words
  esker import users.csv --key email --value name
  esker import table.tsv --key 2 --value 5 --skip-bad
  esker import UnicodeData.txt --format tsv --delimiter ';' --value 2
  esker import words.txt.gz
  LC_ALL=C sort -u big.txt | esker import --sorted --format words
  esker import events.jsonl --key id           each whole line becomes the value of its id
  esker import --durability none big.tsv       commits are durable only at the end
  esker -d a export | esker -d b import        copy a keyspace (in scripts use `set -o pipefail`:
                                               if export fails, import sees only a cut line)")]
    Import(Import),
    /// Write entries to a file or to standard output, in a format that `import` reads back exactly
    #[command(after_help = "\
`import` with the same options reads the file back. A word list restores only keys. Several keyspaces
(JSON lines only) are restored without -k.

The format follows from the name of the file, as for `import`; standard output is TSV, or
JSON lines with --json, unless --format says otherwise. A file appears under its name when it is complete; pipes
and devices are written directly.

Examples:
  esker export all.jsonl
  esker export --format csv --prefix user: > users.csv
  esker export --format words > keys.txt       keys only
  esker export -k users -k mails all.jsonl     JSON lines only: each object names its keyspace")]
    Export(Export),
    /// Read commands line by line: get, put, scan, transactions and more, with history and completion
    #[command(after_help = "\
The database stays open between commands; other processes cannot open it meanwhile.
`help` in the shell lists its commands. Output is shown page by page.

From a pipe or a file, the shell reads one command per line and skips blank lines and lines that start with #.
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
    /// List, create, drop, rename, clear and copy keyspaces; set their merge operators and history
    #[command(
        subcommand,
        after_help = "\
Examples:
  esker keyspaces list
  esker keyspaces copy users users-before
  esker keyspaces drop users-before --yes"
    )]
    Keyspaces(Keyspaces),
    /// Print the options in force, and the keyspaces with their entry counts
    #[command(after_help = "Examples:\n  esker info\n  esker info --json")]
    Info,
    /// Print the engine's statistics: health, sizes, latencies, background work, keyspaces
    #[command(after_help = "\
Counters start at zero when this command opens the database. No other process can have it open, so
--watch shows how background work settles.

Examples:
  esker stats
  esker stats --json
  esker stats --tables                         one line for each table
  esker stats --watch                          again every second
  esker stats --watch 10 --count 6 --json      six JSON objects, ten seconds apart")]
    Stats(StatsArgs),
    /// Read and verify everything; exit code 1 if something is wrong
    #[command(after_help = "\
Verifies every checksum and the order of keys, that files, manifest and log agree, that newer runs hold
newer versions, and that counts are right. A database that cannot be opened is checked offline: file by
file, listing all damage with its location and changing nothing.

Examples:
  esker check && echo sound
  esker check --offline                        without opening it; works on any damage
  esker check --json                           {\"problems\":[...], ...}")]
    Check(Check),
    /// Salvage the readable part of a damaged database into a new one; exit code 1 if something was lost
    #[command(after_help = "\
The damaged database is only read. The new one holds the newest readable version of each key, and is
checked. Losses are listed with file, offset and affected keys.

Examples:
  esker repair data repaired
  esker repair data repaired --json            {\"losses\":[...], ...}")]
    Repair(Repair),
    /// Show the contents of a file of a database, or of all its files; exit code 1 if something is damaged
    #[command(after_help = "\
Prints one line per piece: its offset, kind and fields. Keys are shown as stored, prefixed with
the id of their keyspace.

Examples:
  esker dump data/000007.sst
  esker dump data/000012.wal --json
  esker dump data --no-entries                 every file, without keys and values")]
    Dump(Dump),
    /// Compact everything or a range into one run, dropping removed and overwritten versions
    #[command(after_help = "\
Without -k and a range, compacts the whole database. Otherwise rewrites the tables that hold keys of
the range, in each keyspace given by -k, or in `default`.

Examples:
  esker compact
  esker -k users compact
  esker -k logs compact --prefix 2024-
  esker -k logs compact --from 2024-01 --to 2024-03")]
    Compact(RangeArgs),
    /// Copy the database into a new directory, using hard links where possible
    #[command(after_help = "\
The copy is an independent database as of one moment. Files that never change are linked, so it costs
little time and space; on another file system they are copied. The copy is complete or absent.

For incremental copies on another disk, use `esker backup`.

Examples:
  esker checkpoint data-before-upgrade
  esker checkpoint /backup/data-$(date +%F) --json")]
    Checkpoint {
        /// Directory of the copy, which must not exist
        directory: PathBuf,
    },
    /// Create, list, verify, restore and remove backups
    #[command(
        subcommand,
        after_help = "\
A directory of backups holds each file of the database once. Each backup copies only what is new, and
can be restored by itself.

Examples:
  esker backup create /backup/data            each night
  esker backup list /backup/data
  esker backup verify /backup/data            each week
  esker backup prune /backup/data --keep 14
  esker backup restore /backup/data restored"
    )]
    Backup(Backups),
    /// Change the master key of an encrypted database or of encrypted backups
    #[cfg(feature = "encryption")]
    #[command(
        subcommand,
        after_help = "\
A file of master keys is text. Each line has 64 hexadecimal digits, optionally after an id and a space. The first
key is the current one. With the file anyone can read the database; without it the data is lost.

Examples:
  openssl rand -hex 32 > data.keys && chmod 600 data.keys
  esker -d data --key-file data.keys put ann 1      creates an encrypted database
  export ESKER_KEY_FILE=data.keys"
    )]
    Keys(super::Keys),
    /// Write the database, or some keyspaces, to one file that any version of Esker can load
    #[command(after_help = "\
Without -k, unloads all keyspaces as of one moment: values, expiry times and keyspace options. The
file is written as FILE.partial. If interrupted, the same command resumes, unless something was
committed since.

For files that people and other programs read, use `esker export`.

Examples:
  esker unload all.unload
  esker -k users -k mails unload some.unload
  esker unload all.unload && esker -d copy load all.unload")]
    Unload {
        /// The file, which must not exist, or `-` for standard output
        file: PathBuf,
        /// Do not encrypt the file of an encrypted database
        #[arg(long)]
        plain: bool,
    },
    /// Load a file written by `unload`. Creates the database and its keyspaces
    #[command(after_help = "\
The keyspaces of the file must be missing or empty in the database. If interrupted, the same command
resumes; until then there is a keyspace `esker.load`.

Examples:
  esker -d copy load all.unload
  esker -d copy -k users load all.unload      only this keyspace of the file
  esker unload - | zstd | ssh host 'zstd -d | esker -d copy load -'")]
    Load {
        /// The file, or `-` for standard input
        file: PathBuf,
    },
    /// Serve the database to clients of the Redis protocol, until SIGTERM or Ctrl-C
    #[cfg(feature = "server")]
    #[command(after_help = "\
Creates the database if it does not exist. No other process can open it meanwhile.

Examples:
  esker -d data serve
  esker -d data serve --fsync always --memory 4gb
  esker -d data serve --bind 0.0.0.0 --requirepass secret
  esker -d data serve --tls-port 6380 --tls-cert-file cert.pem --tls-key-file key.pem
  esker -d data serve --http 127.0.0.1:9121
  esker -d data serve --no-port --unix-socket esker.sock")]
    Serve(Box<ServeArgs>),
    /// Copy all data between databases and other stores
    #[cfg(feature = "server")]
    #[command(after_help = copy::HELP)]
    Copy(CopyArgs),
    /// Watch a group of servers, and have a replica take over if the primary fails
    #[cfg(feature = "server")]
    #[command(after_help = sentinel::HELP)]
    Sentinel(Box<SentinelArgs>),
    /// Show the activity of a server until Ctrl-C
    #[cfg(feature = "server")]
    #[command(after_help = "\
Examples:
  esker top
  esker top --server 10.0.0.7:6379 --user ann --password secret
  esker top --once")]
    Top(TopArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Do not open the database: read its files and report all damage
    #[arg(long)]
    pub(crate) offline: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Repair {
    /// Directory of the damaged database
    pub(crate) source: PathBuf,
    /// Directory of the new one: missing or empty, and outside the damaged one
    pub(crate) target: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Dump {
    /// A file of a database, or its directory
    pub(crate) path: PathBuf,
    /// Omit the entries of tables and the operations of commits
    #[arg(long)]
    pub(crate) no_entries: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Put {
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
    /// The value [default: standard input, unchanged]
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
    /// The operand
    #[arg(allow_negative_numbers = true)]
    pub(crate) operand: OsString,
    /// The operand is a number, stored in 8 bytes
    #[arg(long = "as", value_name = "NUMBER")]
    pub(crate) number: Option<NumberForm>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(crate) key: OsString,
    /// Read the state as of this commit
    #[arg(long, value_name = "COMMIT")]
    pub(crate) at: Option<CommitNo>,
    /// The value is an 8-byte number: print it in decimal
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
    /// Scan from the last key to the first
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Stop after this many entries per keyspace
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Print keys only. Values stored in tables are still read from disk
    #[arg(long)]
    pub(crate) keys_only: bool,
    /// Read the state as of this commit
    #[arg(long, value_name = "COMMIT", conflicts_with = "since")]
    pub(crate) at: Option<CommitNo>,
    /// Print what has changed since this commit
    #[arg(long, value_name = "COMMIT", conflicts_with = "reverse")]
    pub(crate) since: Option<CommitNo>,
}
