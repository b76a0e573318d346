//! A running server as a source, by `ES.FEED`.
//!
//! ```text
//!   ES.FEED epoch number --> commits of the keyspace, next position --> Batch
//! ```
//!
//! A lost connection is opened again, and the feed goes on after the last commit that was received.

use std::time::Duration;

use redis::{ConnectionAddr, RedisError, Value};

use super::change::{Batch, Change, Described, Position};
use super::source::{Filled, Source, Tried, Trouble, gap};
use crate::failure::Failure;
use crate::text::shown;

/// Milliseconds that a request waits for commits.
const BLOCK_MS: u64 = 2000;
/// How long a reply may take beyond that.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Errors of the server that pass by themselves.
const PASSING: [&str; 6] = ["BUSY", "LOADING", "MASTERDOWN", "MISCONF", "TRYAGAIN", "UNBLOCKED"];

/// Which server, and what of it.
pub(super) struct Address<'a> {
    pub(super) server: &'a str,
    pub(super) login: Option<(&'a str, &'a str)>,
    pub(super) keyspace: &'a str,
}

/// The feed of a server.
pub(super) struct ServerSource<'a> {
    address: Address<'a>,
    connection: Option<redis::Connection>,
    at: Option<Position>,
    all_hex: bool,
    /// Whether to wait for commits.
    is_following: bool,
}

impl<'a> ServerSource<'a> {
    pub(super) fn new(address: Address<'a>, all_hex: bool, is_following: bool) -> Self {
        ServerSource { address, connection: None, at: None, all_hex, is_following }
    }

    fn connect(&self) -> Tried<redis::Connection> {
        let server = self.address.server;
        let client = match server.strip_prefix("unix:") {
            Some(path) => redis::Client::open(ConnectionAddr::Unix(path.into())),
            None => redis::Client::open(format!("redis://{server}/")),
        };
        let client = client.map_err(|error| Trouble::stop(format!("{}: {error}", shown(server))))?;
        let connected = client.get_connection_with_timeout(CONNECT_TIMEOUT);
        let mut connection = connected.map_err(|error| self.trouble(&error))?;
        let timeout = Duration::from_millis(BLOCK_MS) + REPLY_TIMEOUT;
        connection.set_read_timeout(Some(timeout)).map_err(|error| self.trouble(&error))?;
        if let Some((user, password)) = self.address.login {
            self.ask_on(&mut connection, &["AUTH", user, password])?;
        }
        let keyspace = self.address.keyspace;
        match crate::commands::shell::remote::database(keyspace) {
            Some(number) => self.ask_on(&mut connection, &["SELECT", number])?,
            None => self.ask_on(&mut connection, &["ES.KS", "USE", keyspace])?,
        };
        Ok(connection)
    }

    fn ask(&mut self, words: &[&str]) -> Tried<Value> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        // After an error the next request opens a new connection.
        let reply = self.ask_on(&mut connection, words)?;
        self.connection = Some(connection);
        Ok(reply)
    }

    fn ask_on(&self, connection: &mut redis::Connection, words: &[&str]) -> Tried<Value> {
        let mut request = redis::Cmd::new();
        for word in words {
            request.arg(*word);
        }
        request.query(connection).map_err(|error| self.trouble(&error))
    }

    fn trouble(&self, error: &RedisError) -> Trouble {
        let server = shown(self.address.server);
        let Some(code) = error.code() else { return Trouble::Retry(format!("{server}: {}", shown(error))) };
        let text = format!("{server}: {code} {}", shown(error.detail().unwrap_or_default()));
        match &self.at {
            _ if PASSING.contains(&code) => Trouble::Retry(text),
            Some(position) if ["TRUNCATED", "FORKED"].contains(&code) => gap(position, &text),
            Some(position) if code == "TOOLARGE" => gap(position, &text),
            _ => Trouble::Stop(Failure::message(text)),
        }
    }

    fn push_commit(&self, batch: &mut Batch, commit: Value) -> Tried<()> {
        let Ok([epoch, number, changes]) = <[Value; 3]>::try_from(items(commit)?) else {
            return unexpected();
        };
        let at = position(epoch, number)?;
        let changes = items(changes)?;
        let last = changes.len().saturating_sub(1);
        for (n, change) in changes.into_iter().enumerate() {
            let described = self.described(change)?;
            let change = Change::new(at.clone(), n as u64, described, self.all_hex);
            batch.push(change.map_err(|error| Trouble::stop(error.to_string()))?.seal(n == last));
        }
        Ok(())
    }

    fn described(&self, change: Value) -> Tried<Described> {
        let mut words = items(change)?.into_iter().map(bytes);
        let named = |what| Described::new(what, self.address.keyspace);
        let (name, key) = match (words.next(), words.next()) {
            (Some(Some(name)), None) if *name == *b"all" => return Ok(named("all")),
            (Some(Some(name)), Some(Some(key))) => (name, key),
            _ => return unexpected(),
        };
        Ok(match &*name {
            b"set" => {
                let mut put = named("put").with("key", key);
                put.fields.push(("value".to_owned(), words.next().flatten()));
                put
            }
            b"del" => named("removed").with("key", key),
            b"merge" => {
                let operands: Vec<_> = words.flatten().collect();
                named("merge").with("key", key).with_operands(operands.iter().map(Vec::as_slice))
            }
            b"delrange" => {
                let range = named("removed-range").with("from", key);
                match words.next().flatten() {
                    Some(end) if !end.is_empty() => range.with("to", end),
                    _ => range,
                }
            }
            _ => return unexpected(),
        })
    }
}

impl Source for ServerSource<'_> {
    fn begin(&mut self, after: Option<Position>) -> Tried<Position> {
        let at = match after {
            Some(position) => position,
            None => {
                let reply = self.ask(&["ES.POSITION"])?;
                let Ok([epoch, number]) = <[Value; 2]>::try_from(items(reply)?) else { return unexpected() };
                position(epoch, number)?
            }
        };
        self.at = Some(at.clone());
        Ok(at)
    }

    fn fill(&mut self, batch: &mut Batch) -> Tried<Filled> {
        let before = self.at.clone().expect("begin sets it");
        let (number, count) = (before.commit.to_string(), batch.len_max().to_string());
        let block = BLOCK_MS.to_string();
        let request = ["ES.FEED", &before.history, &number, "COUNT", &count, "BLOCK", &block];
        let words = if self.is_following { &request[..] } else { &request[..5] };
        let reply = self.ask(words)?;
        let Ok([epoch, number, commits]) = <[Value; 3]>::try_from(items(reply)?) else {
            return unexpected();
        };
        let (at, commits) = (position(epoch, number)?, items(commits)?);
        let is_at_end = commits.is_empty() && at == before;
        for commit in commits {
            self.push_commit(batch, commit)?;
        }
        batch.end = Some(at.clone());
        self.at = Some(at);
        Ok(if is_at_end { Filled::AtEnd } else { Filled::More })
    }
}

fn unexpected<T>() -> Tried<T> {
    Err(Trouble::stop("unexpected reply: is this an Esker server?"))
}

fn items(reply: Value) -> Tried<Vec<Value>> {
    match reply {
        Value::Array(items) => Ok(items),
        _ => unexpected(),
    }
}

fn bytes(reply: Value) -> Option<Vec<u8>> {
    match reply {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

fn position(epoch: Value, number: Value) -> Tried<Position> {
    let (Value::BulkString(epoch), Value::Int(number)) = (epoch, number) else { return unexpected() };
    match (String::from_utf8(epoch), u64::try_from(number)) {
        (Ok(epoch), Ok(commit)) => Ok(Position { history: epoch.into(), commit }),
        _ => unexpected(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_that_are_none_of_this_server_stop() {
        let address = Address { server: "here", login: None, keyspace: "r0" };
        let source = ServerSource::new(address, false, true);
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let mut batch = Batch::new(10);
        let changes = Value::Array(vec![Value::Array(vec![text("set"), text("k"), Value::Nil])]);
        let commit = Value::Array(vec![text("1-a"), Value::Int(7), changes]);
        assert!(source.push_commit(&mut batch, commit).is_ok());
        let line = String::from_utf8(batch.lines()).unwrap();
        assert!(line.ends_with(",\"key\":\"k\",\"value\":null,\"last\":true}\n"), "{line}");
        for wrong in [
            Value::Nil,
            Value::Array(vec![text("1-a"), Value::Int(-1), Value::Array(Vec::new())]),
            Value::Array(vec![
                text("1-a"),
                Value::Int(7),
                Value::Array(vec![Value::Array(vec![text("set")])]),
            ]),
        ] {
            assert!(matches!(source.push_commit(&mut batch, wrong), Err(Trouble::Stop(_))));
        }
    }
}
