//! The command line: what can be said, and the help that teaches it.

mod backups;
mod command;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::failure::{Failure, Result};
use crate::text::{self, ByteForm, shown};

pub(crate) use self::backups::Backups;
pub(crate) use self::command::*;

/// Where the help of a command lists the options that all commands have.
const COMMON: &str = "Common options";

/// The keyspace that every database has.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";

const AFTER_HELP: &str = "\
Examples:
  export ESKER_DB=data                   which database, once for all commands
  esker put ann 'Ann Smith'              set a key; creates the database
  esker get ann                          print its value
  esker import words.txt                 a word list: each line becomes a key
  esker scan --prefix app --limit 10     the first ten keys that start with \"app\"
  esker export --format csv > all.csv    everything, as a table
  esker shell                            look around, command by command
  esker keyspaces list                   the maps in the database, with their numbers of keys

Bytes:
  Keys and values are bytes. On the command line they are taken as they are. In the output, text
  stays as it is, and all else is an escape: \\n \\t \\r \\0 \\\\ or \\xHH. With `--escapes` the
  command line takes these, too:  esker get --escapes 'a\\tb'
  `--bytes hex` and `--bytes raw` are for other needs. What starts with a dash, and is no number,
  goes behind `--`:  esker get -- -x

Exit codes:
  0  done, or found
  1  not found (get, ttl, versions, del, shell), not sound (check, dump, backup), something
     lost (repair), or a question answered by no (keyspaces)
  2  an error; the message says what to do";

/// Look into, fill, empty and check an Esker database.
///
/// An Esker database is a directory. It holds keyspaces: named, ordered maps from keys to values.
#[derive(Debug, Parser)]
#[command(name = "esker", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) opening: Opening,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which database, and how it is opened.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Opening {
    /// Directory of the database
    #[arg(short, long, global = true, help_heading = COMMON, value_name = "DIR", env = "ESKER_DB")]
    pub(crate) db: Option<PathBuf>,
    /// What each commit waits for; when the command ends, closing has made all of them durable
    #[arg(long, global = true, help_heading = COMMON, value_name = "LEVEL", default_value = "sync")]
    pub(crate) durability: Durability,
    /// How long to wait for a database that is in use [default: 0]
    #[arg(long, global = true, help_heading = COMMON, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) wait: Option<Duration>,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a number of seconds, such as 10 or 0.5".to_owned())
}

/// What a command works on, and how it reads and writes bytes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Common {
    /// Keyspace to work in; several where a command only reads, and for `del` and `load` [default: default]
    #[arg(short, long = "keyspace", global = true, help_heading = COMMON, value_name = "NAME")]
    keyspaces: Vec<String>,
    /// How keys and values are written in the output and in files; hex counts for arguments, too [default: escaped; raw in CSV files]
    #[arg(short, long, global = true, help_heading = COMMON, value_name = "FORM")]
    pub(crate) bytes: Option<ByteForm>,
    /// Arguments that are keys and values have escapes: \n \t \r \0 \\ \xHH
    #[arg(short, long, global = true, help_heading = COMMON)]
    escapes: bool,
    /// Answer in JSON
    #[arg(long, global = true, help_heading = COMMON)]
    pub(crate) json: bool,
}

impl Common {
    /// What is said here, and, where nothing is, what `outer` says.
    pub(crate) fn within(self, outer: &Common) -> Self {
        Common {
            keyspaces: if self.keyspaces.is_empty() { outer.keyspaces.clone() } else { self.keyspaces },
            bytes: self.bytes.or(outer.bytes),
            escapes: self.escapes || outer.escapes,
            json: self.json || outer.json,
        }
    }

    /// Works in one keyspace from now on.
    pub(crate) fn use_keyspace(&mut self, name: String) {
        self.keyspaces = vec![name];
    }

    /// The names of the keyspaces.
    pub(crate) fn keyspaces(&self) -> Vec<&str> {
        match self.keyspaces.is_empty() {
            true => vec![DEFAULT_KEYSPACE],
            false => self.keyspaces.iter().map(String::as_str).collect(),
        }
    }

    /// Whether an answer has to tell of which keyspace it is.
    pub(crate) fn has_several(&self) -> bool {
        self.keyspaces.len() > 1
    }

    /// The name of the keyspace, for commands that write to one.
    pub(crate) fn keyspace(&self) -> Result<&str> {
        match self.keyspaces() {
            names if names.len() > 1 => {
                Err(Failure::message("this command works in one keyspace: say -k once"))
            }
            names => Ok(names[0]),
        }
    }

    /// Whether the user names a keyspace.
    pub(crate) fn names_keyspace(&self) -> bool {
        !self.keyspaces.is_empty()
    }

    /// The form of bytes in the terminal.
    pub(crate) fn form(&self) -> ByteForm {
        self.bytes.unwrap_or(ByteForm::Escaped)
    }

    /// The bytes that an argument stands for.
    pub(crate) fn decode(&self, argument: &OsString) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let given = argument.as_encoded_bytes();
        let decoded = match (self.bytes, self.escapes) {
            (Some(ByteForm::Hex), true) => Err("--escapes and --bytes hex: which one?".to_owned()),
            (Some(ByteForm::Hex), false) => text::unhex(given, &mut bytes),
            (_, true) => text::unescape(given, &mut bytes),
            (_, false) => {
                bytes.extend_from_slice(given);
                Ok(())
            }
        };
        match decoded {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}
