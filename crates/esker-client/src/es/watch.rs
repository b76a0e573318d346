//! Changes of watched keys, which the server sends without a request for each.

use redis::Msg;

use crate::{Bytes, Request, reply};

/// Keys to watch. Created by [`watch`].
#[derive(Debug)]
#[must_use = "nothing is watched until the request is run"]
pub struct Watch {
    request: Request<()>,
}

/// Watches keys of the connection's keyspace or database: add some with [`key`](Watch::key) and
/// [`prefix`](Watch::prefix). [`Client::changes`](crate::Client::changes) runs it and reads the changes.
pub fn watch() -> Watch {
    Watch { request: Request::new("ES.WATCH", reply::done) }
}

/// Ends all watches of the connection in its keyspace or database.
pub fn unwatch() -> Request<()> {
    Request::new("ES.UNWATCH", reply::done)
}

impl Watch {
    /// Adds a key.
    pub fn key(self, key: impl AsRef<[u8]>) -> Self {
        Watch { request: self.request.word("KEY").word(key) }
    }

    /// Adds all keys with a prefix.
    pub fn prefix(self, prefix: impl AsRef<[u8]>) -> Self {
        Watch { request: self.request.word("PREFIX").word(prefix) }
    }

    /// Returns the request, for a connection whose messages the program reads itself.
    pub fn request(self) -> Request<()> {
        self.request
    }
}

/// A change of watched keys. It arrives after the commit; a read then finds it, or a newer state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyEvent {
    /// The key has another value.
    Set(Bytes),
    /// The key was removed or has expired.
    Delete(Bytes),
    /// Keys from this one on were removed.
    DeleteRange(Bytes),
    /// All watched keys may have changed.
    All,
}

impl KeyEvent {
    /// Reads a message of the connection. `None`: it is of another kind, such as that of a channel.
    pub fn of(message: &Msg) -> Option<KeyEvent> {
        message.from_pattern().then_some(())?;
        let key: Bytes = message.get_channel().ok()?;
        match message.get_payload_bytes() {
            b"set" => Some(KeyEvent::Set(key)),
            b"del" => Some(KeyEvent::Delete(key)),
            b"delrange" => Some(KeyEvent::DeleteRange(key)),
            b"all" => Some(KeyEvent::All),
            _ => None,
        }
    }
}
