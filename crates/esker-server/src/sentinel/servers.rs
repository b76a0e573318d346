//! Questions and orders to the servers, each on a connection that lasts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::{
    Client, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisError,
};

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

/// Why there is no answer to a question.
pub(super) enum Failed {
    /// The server cannot be reached, or is slow.
    Silent(String),
    /// It has answered something else.
    Refused(String),
}

impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Self {
        let is_silent = error.is_io_error() || error.is_timeout() || error.is_connection_dropped();
        let why = error.to_string();
        if is_silent { Failed::Silent(why) } else { Failed::Refused(why) }
    }
}

impl From<Failed> for String {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Silent(why) | Failed::Refused(why) => why,
        }
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
    fn ask<T: redis::FromRedisValue>(&self, words: &[&str], patience: Duration) -> Result<T, Failed> {
        let mut held = self.connection.lock();
        let mut connection = match held.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let limits = connection.set_read_timeout(Some(patience));
        limits.and_then(|()| connection.set_write_timeout(Some(patience)))?;
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        let reply: redis::RedisResult<T> = command.query(&mut connection);
        let reply = reply.map_err(Failed::from);
        if !matches!(reply, Err(Failed::Silent(_))) {
            *held = Some(connection);
            *self.answered.lock() = clock::moment();
        }
        reply
    }

    fn connect(&self) -> Result<Connection, Failed> {
        let source = parse_source(&self.name);
        let source = source.ok_or_else(|| Failed::Refused("its address has no port".to_owned()))?;
        let info: ConnectionInfo = ConnectionAddr::Tcp(source.host, source.port).into_connection_info()?;
        let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some((user, password)) = &self.login {
            login = login.set_username(user).set_password(password);
        }
        let client = Client::open(info.set_redis_settings(login))?;
        Ok(client.get_connection_with_timeout(ANSWER)?)
    }

    /// Asks for its state.
    pub(super) fn status(&self) -> Result<Status, Failed> {
        let figures: HashMap<String, String> = self.ask(&["ES.BALLOT"], ANSWER)?;
        Status::parse(&figures)
            .ok_or_else(|| Failed::Refused(format!("{figures:?} is no answer to ES.BALLOT")))
    }

    /// Has it promise a ballot. A server that was silent gets less time, as an election goes on without it.
    pub(super) fn fence(&self, ballot: u32, was_silent: bool) -> Result<Fenced<String>, String> {
        let patience = if was_silent { ANSWER } else { ORDER };
        let ballot = ballot.to_string();
        let (before, epoch, seq): (u32, String, u64) = self.ask(&["ES.ELECT", "FENCE", &ballot], patience)?;
        let epoch: Epoch = epoch.parse().map_err(|()| format!("{epoch} is no epoch"))?;
        Ok(Fenced { server: self.name.clone(), before, at: Position { epoch, seq } })
    }

    /// Sends an order that is answered with OK.
    pub(super) fn order(&self, words: &[&str]) -> Result<(), String> {
        Ok(self.ask(words, ORDER)?)
    }
}
