//! Questions and orders to the servers, each on a connection that lasts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{Client, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use super::choice::Fenced;
use super::record::parse_source;
use crate::base::clock;
use crate::replication::{Epoch, Position};

/// How long a server may take to answer.
pub(super) const ANSWER: Duration = Duration::from_secs(1);
/// How long it may take to change its role: it may have to write and sync much.
const ORDER: Duration = Duration::from_secs(5);

/// What a server says of itself (`ES.BALLOT`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) ballot: u32,
    pub(super) role: String,
    pub(super) primary: String,
    pub(super) at: Position,
    pub(super) durable: u64,
    pub(super) has_link: bool,
    /// Time since something came from its primary.
    pub(super) silent: Option<Duration>,
    pub(super) run: String,
}

impl Status {
    fn parse(figures: &HashMap<String, String>) -> Option<Self> {
        let text = |name: &str| figures.get(name).cloned();
        let number = |name: &str| figures.get(name)?.parse::<u64>().ok();
        Some(Status {
            ballot: number("ballot")? as u32,
            role: text("role")?,
            primary: text("primary")?,
            at: Position { epoch: text("epoch")?.parse().ok()?, seq: number("number")? },
            durable: number("durable")?,
            has_link: text("link")? == "up",
            silent: number("silent").map(Duration::from_millis),
            run: text("run")?,
        })
    }
}

/// A server.
pub(super) struct Node {
    /// `host:port`.
    pub(super) name: String,
    login: Option<(String, String)>,
    connection: Mutex<Option<Connection>>,
    /// When it last answered.
    answered: Mutex<Instant>,
}

impl Node {
    pub(super) fn new(name: String, login: Option<(String, String)>) -> Self {
        Node { name, login, connection: Mutex::default(), answered: Mutex::new(clock::moment()) }
    }

    /// Returns the time since it last answered.
    pub(super) fn silent(&self) -> Duration {
        self.answered.lock().elapsed()
    }

    /// Sends a command and returns the reply. A connection that fails is not used again.
    fn ask<T: redis::FromRedisValue>(&self, words: &[&str], patience: Duration) -> Result<T, String> {
        let mut held = self.connection.lock();
        let mut connection = match held.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let limits = connection.set_read_timeout(Some(patience));
        limits.and_then(|()| connection.set_write_timeout(Some(patience))).map_err(text)?;
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        let reply: redis::RedisResult<T> = command.query(&mut connection);
        match reply {
            Err(error) if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() => {
                Err(text(error))
            }
            reply => {
                *held = Some(connection);
                *self.answered.lock() = clock::moment();
                reply.map_err(text)
            }
        }
    }

    fn connect(&self) -> Result<Connection, String> {
        let source = parse_source(&self.name).ok_or("the address has no port")?;
        let info: ConnectionInfo =
            ConnectionAddr::Tcp(source.host, source.port).into_connection_info().map_err(text)?;
        let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some((user, password)) = &self.login {
            login = login.set_username(user).set_password(password);
        }
        let client = Client::open(info.set_redis_settings(login)).map_err(text)?;
        client.get_connection_with_timeout(ANSWER).map_err(text)
    }

    /// Asks for its state.
    pub(super) fn status(&self) -> Result<Status, String> {
        let figures: HashMap<String, String> = self.ask(&["ES.BALLOT"], ANSWER)?;
        Status::parse(&figures).ok_or_else(|| format!("{figures:?} is no answer to ES.BALLOT"))
    }

    /// Has it promise a ballot.
    pub(super) fn fence(&self, ballot: u32) -> Result<Fenced<String>, String> {
        let ballot = ballot.to_string();
        let (before, epoch, seq): (u32, String, u64) = self.ask(&["ES.ELECT", "FENCE", &ballot], ORDER)?;
        let epoch: Epoch = epoch.parse().map_err(|()| format!("{epoch} is no epoch"))?;
        Ok(Fenced { server: self.name.clone(), before, at: Position { epoch, seq } })
    }

    /// Sends an order that is answered with OK.
    pub(super) fn order(&self, words: &[&str]) -> Result<(), String> {
        self.ask(words, ORDER)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
