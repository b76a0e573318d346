//! Defines the command line and its help texts.

mod backups;
mod command;
mod feed;
mod files;
#[cfg(feature = "encryption")]
mod keys;
mod keyspaces;
mod range;
#[cfg(feature = "server")]
mod redis;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::failure::{Failure, Result};
use crate::text::{self, ByteForm, shown};

pub(crate) use self::backups::Backups;
pub(crate) use self::command::*;
pub(crate) use self::feed::*;
pub(crate) use self::files::*;
#[cfg(feature = "encryption")]
pub(crate) use self::keys::Keys;
pub(crate) use self::keyspaces::*;
pub(crate) use self::range::*;
#[cfg(feature = "server")]
pub(crate) use self::redis::*;

/// Heading under which the help of a command lists the options shared by all commands.
const COMMON: &str = "Common options";

/// Name of the keyspace that every database has.
pub(crate) const DEFAULT_KEYSPACE: &str = "default";

const AFTER_HELP: &str = "\
Examples:
  export ESKER_DB=data                   select the database for all commands
  esker put ann 'Ann Smith'              set a key; creates the database
  esker get ann                          print its value
  esker import words.txt                 import a word list: each line becomes a key
  esker scan --prefix app --limit 10     the first ten keys that start with \"app\"
  esker export --format csv > all.csv    export everything as a table
  esker shell                            run commands interactively
  esker keyspaces list                   list the keyspaces with their numbers of keys

Bytes:
  Keys and values are bytes. Arguments are taken literally. In the output, text is printed as it
  is and all other bytes as escapes: \\n \\t \\r \\0 \\\\ or \\xHH. With `--escapes`, arguments may
  contain these escapes, too:  esker get --escapes 'a\\tb'
  `--bytes hex` and `--bytes raw` select other forms. An argument that starts with a dash and is
  not a number goes after `--`:  esker get -- -x

Exit codes:
  0  done, or found
  1  not found (get, ttl, versions, del, shell), not sound (check, dump, backup), something
     lost (repair), or a confirmation denied (keyspaces)
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

/// Selects the database and how it is opened.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Opening {
    /// Directory of the database
    #[arg(short, long, alias = "dir", global = true, help_heading = COMMON, value_name = "DIR", env = "ESKER_DB")]
    pub(crate) db: Option<PathBuf>,
    /// What a commit waits for. Closing the database at the end of the command makes every commit durable
    #[arg(long, global = true, help_heading = COMMON, value_name = "LEVEL", default_value = "sync")]
    pub(crate) durability: Durability,
    /// How long to wait for a database that is in use [default: 0]
    #[arg(long, global = true, help_heading = COMMON, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) wait: Option<Duration>,
    /// File with the master keys of an encrypted database: lines of 64 hexadecimal digits, the current one
    /// first. A database that the command creates is encrypted. See `esker keys`
    #[cfg(feature = "encryption")]
    #[arg(long, global = true, help_heading = COMMON, value_name = "FILE", env = "ESKER_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

/// Parses a number of seconds, which may have a fraction.
fn seconds(text: &str) -> std::result::Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a number of seconds, such as 10 or 0.5".to_owned())
}

/// Selects keyspaces and the form of bytes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Common {
    /// Keyspace to work in. Reading commands, `del` and `load` accept several [default: default]
    #[arg(short, long = "keyspace", global = true, help_heading = COMMON, value_name = "NAME")]
    keyspaces: Vec<String>,
    /// Form of keys and values in the output and in files. Hex also applies to arguments [default: escaped;
    /// raw in CSV files]
    #[arg(short, long, global = true, help_heading = COMMON, value_name = "FORM")]
    pub(crate) bytes: Option<ByteForm>,
    /// Arguments that are keys or values contain escapes: \n \t \r \0 \\ \xHH
    #[arg(short, long, global = true, help_heading = COMMON)]
    escapes: bool,
    /// Answer in JSON
    #[arg(long, global = true, help_heading = COMMON)]
    pub(crate) json: bool,
}

impl Common {
    /// Returns these options, with those of `outer` where an option is not given.
    pub(crate) fn within(self, outer: &Common) -> Self {
        Common {
            keyspaces: if self.keyspaces.is_empty() { outer.keyspaces.clone() } else { self.keyspaces },
            bytes: self.bytes.or(outer.bytes),
            escapes: self.escapes || outer.escapes,
            json: self.json || outer.json,
        }
    }

    /// Makes `name` the only selected keyspace.
    pub(crate) fn use_keyspace(&mut self, name: String) {
        self.keyspaces = vec![name];
    }

    /// Returns the names of the selected keyspaces.
    pub(crate) fn keyspaces(&self) -> Vec<&str> {
        match self.keyspaces.is_empty() {
            true => vec![DEFAULT_KEYSPACE],
            false => self.keyspaces.iter().map(String::as_str).collect(),
        }
    }

    /// Returns whether each line of an answer must name its keyspace.
    pub(crate) fn has_several(&self) -> bool {
        self.keyspaces.len() > 1
    }

    /// Returns the selected keyspace, for commands that work in one. Fails if several are selected.
    pub(crate) fn keyspace(&self) -> Result<&str> {
        match self.keyspaces() {
            names if names.len() > 1 => {
                Err(Failure::message("this command works in one keyspace: give -k once"))
            }
            names => Ok(names[0]),
        }
    }

    /// Returns the names of the keyspaces that the user selected.
    #[cfg(feature = "server")]
    pub(crate) fn chosen(&self) -> &[String] {
        &self.keyspaces
    }

    /// Returns whether the user selected a keyspace.
    pub(crate) fn names_keyspace(&self) -> bool {
        !self.keyspaces.is_empty()
    }

    /// Returns the form of bytes in the terminal.
    pub(crate) fn form(&self) -> ByteForm {
        self.bytes.unwrap_or(ByteForm::Escaped)
    }

    /// Decodes an argument into the bytes that it stands for.
    pub(crate) fn decode(&self, argument: &OsString) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let given = argument.as_encoded_bytes();
        let decoded = match (self.bytes, self.escapes) {
            (Some(ByteForm::Hex), true) => Err("--escapes and --bytes hex exclude each other".to_owned()),
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

/// What a commit waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// The disk
    Sync,
    /// The operating system. A power failure before the command ends may lose the last commits
    Buffered,
    /// Nothing. A kill or a power failure before the command ends may lose the last commits
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
