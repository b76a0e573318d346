//! Moves data sets between Redis and a server of Esker.
//!
//! ```text
//!   dump.rdb ------------------------> load --keys--> commands --.
//!   Redis --link--> receive: snapshot ---^                        |--> target: a server of Esker, or Redis
//!                          `-- stream: spool --> apply -----------'
//!   Esker --SCAN, reads by type--> export --keys--> commands --> target: Redis
//! ```
//!
//! migration.1. Nothing is left out silently: what the target refuses ends the command, with its name.
//! migration.2. Bytes of the stream count as applied once the target has confirmed the commands in them. A
//! transaction counts as a whole.

pub(crate) mod apply;
pub(crate) mod commands;
pub(crate) mod export;
pub(crate) mod follow;
mod link;
pub(crate) mod load;
mod receive;
mod spool;
mod stream;
pub(crate) mod target;

use std::path::Path;

use crate::failure::{Failure, Result};
use crate::text::shown;

/// The words of a command.
pub(crate) type Words = Vec<Vec<u8>>;

/// Appends a command in the form of the protocol.
pub(crate) fn encode<W: AsRef<[u8]>>(words: &[W], into: &mut Vec<u8>) {
    into.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        into.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        into.extend_from_slice(word);
        into.extend_from_slice(b"\r\n");
    }
}

/// Names a command and its key.
pub(crate) fn describe<W: AsRef<[u8]>>(words: &[W]) -> String {
    const SHOWN: usize = 60;
    let word = |at: usize| words.get(at).map(AsRef::as_ref).unwrap_or_default();
    let name = String::from_utf8_lossy(word(0)).to_uppercase();
    if words.len() < 2 {
        return shown(name);
    }
    let second = word(1);
    let cut = &second[..second.len().min(SHOWN)];
    shown(format!("{name} '{}'", cut.escape_ascii()))
}

/// The address of a server, and the login there.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
}

impl Server {
    /// Returns the words of the login, if there is one.
    fn login(&self) -> Option<Vec<&str>> {
        let password = self.password.as_deref()?;
        // Servers before version 6 know no names of users.
        Some(if self.user == "default" { vec!["AUTH", password] } else { vec!["AUTH", &self.user, password] })
    }
}

/// Reads a password from the first line of a file.
pub(crate) fn password_of(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|e| Failure::file("read", file, &e))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(Failure::message(format!("{}: no password in the first line", shown(file.display())))),
    }
}
