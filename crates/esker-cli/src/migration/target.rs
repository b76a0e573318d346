//! The server that gets the data: sends commands in pipelines and checks every reply.
//!
//! ```text
//!   command --> buffer --full, or flush--> server --replies--> each compared with its command
//! ```

use redis::{RedisError, Value};

use super::{Server, Words, describe, encode};
use crate::failure::{Failure, Result};
use crate::text::shown;

/// Bytes of commands that are sent together.
const BUFFER_BYTES: usize = 256 << 10;
/// Commands that are sent together. Their replies have to fit into the buffers of sockets.
const COMMANDS_MAX: usize = 1_000;

/// A connection to the server.
pub(crate) struct Target {
    inner: redis::Connection,
    address: String,
    buffer: Vec<u8>,
    /// The commands in the buffer.
    names: Vec<String>,
    database: Option<u64>,
}

impl Target {
    /// Connects and logs in.
    pub(crate) fn open(server: &Server) -> Result<Self> {
        let failed =
            |error: RedisError| Failure::message(format!("{}: {}", shown(&server.address), shown(&error)));
        let client = redis::Client::open(format!("redis://{}/", server.address)).map_err(failed)?;
        let inner = client.get_connection().map_err(failed)?;
        let address = server.address.clone();
        let mut target = Target { inner, address, buffer: Vec::new(), names: Vec::new(), database: None };
        if let Some(words) = server.login() {
            target.ask(&words)?;
        }
        Ok(target)
    }

    /// Sends a command and returns its reply.
    pub(crate) fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Value> {
        self.flush()?;
        let mut bytes = Vec::new();
        encode(words, &mut bytes);
        self.inner.send_packed_command(&bytes).map_err(|e| self.failed(&e))?;
        // The name of a login's second word is a secret.
        let name = describe(&words[..1]);
        self.reply(&name)
    }

    /// Sends commands together and returns their replies.
    pub(crate) fn ask_all(&mut self, all: &[Words]) -> Result<Vec<Value>> {
        self.flush()?;
        let mut replies = Vec::with_capacity(all.len());
        for some in all.chunks(COMMANDS_MAX) {
            let mut bytes = Vec::new();
            some.iter().for_each(|words| encode(words, &mut bytes));
            self.inner.send_packed_command(&bytes).map_err(|e| self.failed(&e))?;
            for words in some {
                replies.push(self.reply(&describe(words))?);
            }
        }
        Ok(replies)
    }

    /// Sends a command at the latest with the next flush.
    pub(crate) fn push<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<()> {
        encode(words, &mut self.buffer);
        self.names.push(describe(words));
        match self.buffer.len() >= BUFFER_BYTES || self.names.len() >= COMMANDS_MAX {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Has the commands that follow work in this database.
    pub(crate) fn select(&mut self, database: u64) -> Result<()> {
        if self.database != Some(database) {
            self.push(&["SELECT", &database.to_string()])?;
            self.database = Some(database);
        }
        Ok(())
    }

    /// Sends the commands in the buffer and awaits their replies.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        self.inner.send_packed_command(&self.buffer).map_err(|e| self.failed(&e))?;
        self.buffer.clear();
        // After a refusal the others are still read, so that the connection stays usable.
        let mut ended = Ok(());
        for name in std::mem::take(&mut self.names) {
            let reply = self.reply(&name);
            ended = ended.and(reply.map(drop));
        }
        ended
    }

    fn reply(&mut self, name: &str) -> Result<Value> {
        let reply = match self.inner.recv_response() {
            Ok(reply) => reply,
            Err(error) => {
                return Err(match error.code() {
                    Some(code) => refused(&self.address, name, code, error.detail()),
                    None => self.failed(&error),
                });
            }
        };
        match first_error(&reply) {
            Some(error) => Err(refused(&self.address, name, error.code(), error.details())),
            None => Ok(reply),
        }
    }

    fn failed(&self, error: &RedisError) -> Failure {
        Failure::message(format!("{}: {}", shown(&self.address), shown(error)))
    }

    /// Returns the numbers of the databases that have keys.
    pub(crate) fn databases(&mut self) -> Result<Vec<u64>> {
        let Value::BulkString(text) = self.ask(&["INFO", "keyspace"])? else { return Ok(Vec::new()) };
        let text = String::from_utf8_lossy(&text).into_owned();
        let number = |line: &str| line.strip_prefix("db")?.split_once(':')?.0.parse().ok();
        Ok(text.lines().filter_map(number).collect())
    }

    /// Sends a command about libraries of functions. `None`: the server is built without them.
    pub(crate) fn ask_functions(&mut self, words: &[&str]) -> Result<Option<Value>> {
        match self.ask(words) {
            Err(error) if error.to_string().contains("unknown command") => Ok(None),
            reply => reply.map(Some),
        }
    }

    /// Makes the target empty, or refuses it if it has keys.
    pub(crate) fn prepare(&mut self, replaces: bool) -> Result<()> {
        if replaces {
            self.ask(&["FLUSHALL"])?;
            self.ask_functions(&["FUNCTION", "FLUSH"])?;
            return Ok(());
        }
        match self.databases()?.first() {
            None => Ok(()),
            Some(first) => Err(Failure::message(format!(
                "{}: database {first} has keys\n  import into an empty server, or remove all of its data first \
                 with --replace",
                shown(&self.address)
            ))),
        }
    }
}

/// Returns the first error in a reply: that of the command, or of a command in a transaction.
fn first_error(reply: &Value) -> Option<&redis::ServerError> {
    match reply {
        Value::ServerError(error) => Some(error),
        Value::Array(replies) => replies.iter().find_map(first_error),
        _ => None,
    }
}

fn refused(address: &str, name: &str, code: &str, detail: Option<&str>) -> Failure {
    Failure::message(format!(
        "{} refuses {name}: {code} {}",
        shown(address),
        shown(detail.unwrap_or_default())
    ))
}
