//! A request: a command and a function that reads its reply.

use redis::{Cmd, Value};

use crate::Result;

/// A command and a function that reads its reply. Run it with [`Client::run`](crate::Client::run) or
/// `AsyncClient::run`.
#[must_use = "a request does nothing until it is run"]
pub struct Request<T> {
    pub(crate) command: Cmd,
    pub(crate) read: fn(Value) -> Result<T>,
}

impl<T> Request<T> {
    pub(crate) fn new(name: &str, read: fn(Value) -> Result<T>) -> Self {
        Request { command: redis::cmd(name), read }
    }

    /// Adds an argument.
    pub(crate) fn word(mut self, word: impl AsRef<[u8]>) -> Self {
        self.command.arg(word.as_ref());
        self
    }

    /// Adds arguments.
    pub(crate) fn words<W: AsRef<[u8]>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        for word in words {
            self.command.arg(word.as_ref());
        }
        self
    }
}

impl<T> std::fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({})", String::from_utf8_lossy(&self.command.get_packed_command()).escape_debug())
    }
}
