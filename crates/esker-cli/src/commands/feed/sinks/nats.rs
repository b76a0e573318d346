//! Changes as messages of NATS JetStream, one message each.
//!
//! ```text
//!   change --Nats-Msg-Id: ID, Nats-Expected-Last-Msg-Id: the ID before--> stream --> acknowledgement
//! ```
//!
//! feed_nats.1. No message is stored without its predecessors. Messages that are sent together name them, so
//!     the server refuses what follows a lost message. The rest is then sent singly: each message waits for
//!     the acknowledgement of its predecessor.
//! - The server drops a message whose ID it has seen in the stream's window for duplicates.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{Context, ContextBuilder};
use async_nats::{Client, ConnectOptions};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::super::change::{Batch, Change};
use super::super::source::{Tried, Trouble};
use super::{FeedSink, Settings};
use crate::failure::{Failure, Result};
use crate::text::shown;

/// Messages whose acknowledgements are awaited at a time.
const IN_FLIGHT_MAX: usize = 256;
/// How long to wait for a connection or an acknowledgement.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A subject of a stream.
pub(super) struct Nats {
    runtime: Runtime,
    servers: Vec<String>,
    subject: String,
    options: ConnectOptions,
    timeout: Duration,
    context: Option<Context>,
}

impl Nats {
    pub(super) fn open(servers: &str, subject: &str, mut settings: Settings) -> Result<Self> {
        let mut options = ConnectOptions::new().name("esker feed");
        let (user, password) = (settings.take("user"), settings.take("password"));
        options = match (user, password) {
            (Some(user), Some(password)) => options.user_and_password(user, password),
            (None, None) => options,
            _ => {
                return Err(Failure::message(
                    "the sink nats needs both settings, user and password, or none",
                ));
            }
        };
        if let Some(token) = settings.take("token") {
            options = options.token(token);
        }
        if let Some(path) = settings.take("credentials") {
            let path = Path::new(&path);
            let failed = |error| Failure::file("read", path, &error);
            let text = std::fs::read_to_string(path).map_err(failed)?;
            options = options.credentials(&text).map_err(failed)?;
        }
        if let Some(path) = settings.take("ca") {
            options = options.add_root_certificates(path.into()).require_tls(true);
        }
        let patience = settings.take_seconds("timeout", TIMEOUT)?;
        settings.finish("nats", "user, password, token, credentials=FILE, ca=FILE and timeout=SECONDS")?;
        let servers = servers.split(',').map(|server| format!("nats://{server}")).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| Failure::message(format!("start a thread: {error}")))?;
        let options = options.connection_timeout(patience);
        let subject = subject.to_owned();
        Ok(Nats { runtime, servers, subject, options, timeout: patience, context: None })
    }

    async fn connect(servers: &[String], options: ConnectOptions, patience: Duration) -> Tried<Context> {
        let failed = |why: String| Trouble::Retry(format!("{}: {}", servers.join(","), shown(why)));
        let client: Client = match timeout(patience, options.connect(servers)).await {
            Ok(connected) => connected.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed("no connection in time".to_owned())),
        };
        Ok(ContextBuilder::new().timeout(patience).build(client))
    }
}

impl FeedSink for Nats {
    fn deliver(&mut self, batch: &Batch) -> Tried<()> {
        let Nats { runtime, servers, subject, options, timeout, context } = self;
        runtime.block_on(async {
            if context.is_none() {
                *context = Some(Self::connect(servers, options.clone(), *timeout).await?);
            }
            let context = context.as_ref().expect("it was just made");
            let stream = Stream { context, subject, timeout: *timeout };
            let stored = stream.send_together(&batch.changes).await?;
            stream.send_singly(&batch.changes[stored..]).await
        })
    }
}

/// The receiving side of a batch.
struct Stream<'a> {
    context: &'a Context,
    subject: &'a str,
    timeout: Duration,
}

impl Stream<'_> {
    /// Sends messages without waiting for each. Returns how many of the first are stored: all, unless one did
    /// not follow its predecessor.
    async fn send_together(&self, changes: &[Change]) -> Tried<usize> {
        let mut waiting = VecDeque::new();
        let (mut sent, mut last) = (0, None);
        for stored in 0..changes.len() {
            while sent < changes.len() && waiting.len() < IN_FLIGHT_MAX {
                let id = changes[sent].id();
                waiting.push_back(self.send(&changes[sent], &id, last.as_deref()).await?);
                (sent, last) = (sent + 1, Some(id));
            }
            let next = waiting.pop_front().expect("it was sent");
            match next.await {
                Ok(_) => {}
                Err(error) if error.kind() == PublishErrorKind::WrongLastMessageId => return Ok(stored),
                Err(error) => return Err(self.trouble(&error)),
            }
        }
        Ok(changes.len())
    }

    /// Sends each message once the one before it is stored.
    async fn send_singly(&self, changes: &[Change]) -> Tried<()> {
        for change in changes {
            let sent = self.send(change, &change.id(), None).await?;
            sent.await.map_err(|error| self.trouble(&error))?;
        }
        Ok(())
    }

    async fn send(&self, change: &Change, id: &str, after: Option<&str>) -> Tried<PublishAckFuture> {
        let mut message = PublishMessage::build().payload(change.line.clone().into()).message_id(id);
        if let Some(after) = after {
            message = message.expected_last_message_id(after);
        }
        // While there is no connection, the client's queue fills up.
        match timeout(self.timeout, self.context.send_publish(self.subject.to_owned(), message)).await {
            Ok(sent) => sent.map_err(|error| self.trouble(&error)),
            Err(_) => Err(Trouble::Retry(format!("{}: the server takes no messages", shown(self.subject)))),
        }
    }

    fn trouble(&self, error: &PublishError) -> Trouble {
        let subject = shown(self.subject);
        let text = format!("{subject}: {}", shown(error));
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => Trouble::stop(format!(
                "{text}\n  raise max_payload of the NATS server: a message has one change"
            )),
            PublishErrorKind::StreamNotFound => Trouble::Retry(format!(
                "{text} (a stream must take it: `nats stream add CHANGES --subjects {subject}`)"
            )),
            _ => Trouble::Retry(text),
        }
    }
}
