//! One connection: requests in, replies and messages out.
//!
//! ```text
//!   socket --> Input --> requests --reads---> here, on this task
//!                                 `-a write-> it, and all behind it, to the sequencer as one job
//! ```
//!
//! connection.1. Replies come in the order of requests.
//! connection.2. What a connection takes of memory is bounded: it reads no more before what it has read is
//!     answered.
//! connection.3. A connection that is killed ends, whatever it waits for: only a command that runs is waited
//!     for.

mod send;
mod waits;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::Notify;

pub use self::send::{close, send, send_last};
use self::waits::REFUSED_DELAY;
use crate::base::clock;
use crate::clients::Client;
use crate::command::flag;
use crate::observe::trace;
use crate::replication;
use crate::resp::{Input, Limits, Parser, Request};
use crate::run::cx::{Access, Cx};
use crate::run::dispatch;
use crate::run::effects::Effects;
use crate::run::leave::leave as leave_all;
use crate::run::queue::Job;
use crate::run::registry::Command;
use crate::run::server::Server;
use crate::run::session::Session;

/// Bytes are read in pieces of at least this size.
const READ_BYTES: usize = 16 << 10;
/// Replies of more bytes are sent before more requests are looked at.
const OUT_BYTES_MAX: usize = 1 << 20;
/// A job has no more commands, and of no more bytes.
const JOB_REQUESTS_MAX: usize = 1000;
const JOB_BYTES_MAX: usize = 1 << 20;
/// So much is read ahead while a job is done.
const AHEAD_BYTES_MAX: usize = 64 << 10;
/// So many requests are kept to be used again.
const SPARE_MAX: usize = 64;

/// Where a request runs.
enum Place {
    Here,
    /// Here, once all before it is done.
    Alone,
    /// Here, once others are so far.
    Waits,
    Sequencer,
}

struct Connection<S> {
    server: Arc<Server>,
    client: Arc<Client>,
    stream: S,
    input: Input,
    parser: Parser,
    /// The request that comes.
    request: Request,
    spare: Vec<Request>,
    /// Bytes have come while a job was done.
    has_more: bool,
    /// How long the reply to the next wrong password waits.
    refused_delay: Duration,
    /// The newest state, for reads here.
    now: Access,
    effects: Effects,
}

/// Serves a connection until it ends.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(server: Arc<Server>, client: Arc<Client>, stream: S) {
    let Ok(data) = server.database(0) else { return };
    let mut session = Session::new(client.clone(), data, false);
    session.login.users_generation = server.acl.generation();
    session.become_user(server.acl.stranger());
    let mut connection = Connection {
        now: Access::Now(server.store.clone()),
        effects: Effects::default(),
        input: Input::default(),
        parser: Parser::default(),
        request: Request::default(),
        spare: Vec::new(),
        has_more: false,
        refused_delay: REFUSED_DELAY[0],
        client: client.clone(),
        server: server.clone(),
        stream,
    };
    let job = connection.run(Job::new(session)).await;
    if let Some(mut job) = job {
        leave_all(&server, &mut job.session);
    }
    leave(&server, &client);
}

/// Takes a client out of the table. A server that stops waits for the last one.
pub fn leave(server: &Server, client: &Client) {
    server.clients.remove(client);
    if server.is_stopping() {
        server.sequencer.wake();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Gives the job back at its end, unless the sequencer has gone with it.
    async fn run(&mut self, mut job: Box<Job>) -> Option<Box<Job>> {
        loop {
            job = self.answer(job).await?;
            if self.client.is_killed() && self.server.is_stopping() {
                // What was done is answered.
                send_last(&mut self.stream, &job.out.bytes).await;
                return Some(job);
            }
            if let Some(link) = job.session.link.take() {
                let input = std::mem::take(&mut self.input);
                let (server, client) = (self.server.clone(), self.client.clone());
                replication::serve(server, &client, &mut self.stream, input, link).await;
                return Some(job);
            }
            if self.flush(&mut job).await.is_err() || job.session.is_over {
                if !self.client.is_killed() {
                    close(&mut self.stream).await;
                }
                return Some(job);
            }
            let held = job.session.multi.as_ref().map_or(0, |multi| multi.bytes) + self.request.bytes();
            if self.holds_too_much(held + self.input.unread().len()) {
                return Some(job);
            }
            let may_be_idle =
                job.session.is_subscribed() || self.client.state.is_monitor.load(Ordering::Relaxed);
            if !std::mem::take(&mut self.has_more) && self.receive(may_be_idle).await.is_err() {
                return Some(job);
            }
        }
    }

    /// Whether the connection is to end because of the bytes that it holds of requests. If all connections
    /// hold too much, those that hold most are ended.
    fn holds_too_much(&self, bytes: usize) -> bool {
        let server = &self.server;
        let all = server.clients.hold(&self.client, bytes);
        if bytes > server.config.query_bytes_max() {
            trace::warn("a connection is ended", Some(&self.client), "client-query-buffer-limit");
            return true;
        }
        if all > server.options.requests_bytes_max {
            for ended in server.clients.end_largest(server.options.requests_bytes_max) {
                let why = "the requests that all connections hold take more than --memory";
                trace::warn("a connection is ended", Some(&ended), why);
            }
        }
        self.client.is_killed()
    }

    /// Answers all requests that have come. Replies are in the job.
    async fn answer(&mut self, mut job: Box<Job>) -> Option<Box<Job>> {
        let mut bytes = 0;
        self.client.active.store(clock::now_ms(), Ordering::Relaxed);
        while !job.session.is_over && job.session.link.is_none() && !self.client.is_killed() {
            let limits = match job.session.login.is_known {
                true => Limits { words: 1 << 20, word_bytes: 512 << 20 },
                false => Limits::STRANGER,
            };
            match self.parser.parse(&mut self.input, &mut self.request, limits) {
                Ok(false) => break,
                Ok(true) if self.request.is_empty() => continue,
                Ok(true) => {}
                Err(wrong) => {
                    job = self.run_job(job).await?;
                    job.out.error(&format!("ERR Protocol error: {}", wrong.0));
                    job.session.is_over = true;
                    break;
                }
            }
            let command = self.server.commands.find(&self.request[0]);
            self.check_password(&mut job, command).await;
            // What makes no sense is refused at once, unless all is held.
            let held = command.filter(|command| command.fits(&self.request));
            if self
                .server
                .clients
                .pause
                .holds(held.map(|command| &**command), job.session.queues_writes(), clock::now_ms())
                .is_some()
            {
                job = self.await_pause(job, held).await?;
                bytes = 0;
                if job.session.is_over {
                    break;
                }
            }
            if !job.requests.is_empty() && matches!(place(command, &job.session), Place::Alone) {
                job = self.run_job(job).await?;
                bytes = 0;
            }
            let is_here = job.requests.is_empty();
            // While a script takes long all but what ends it is refused, and need not wait for it.
            let is_busy = is_here && self.server.scripts.is_busy(self.server.config.busy_ms());
            match if is_busy { Place::Here } else { place(command, &job.session) } {
                Place::Waits => {
                    job = self.run_job(job).await?;
                    job = self.await_others(job, command).await?;
                    bytes = 0;
                }
                Place::Here | Place::Alone if is_here => job = self.run_here(job, command).await?,
                _ => {
                    bytes += self.request.bytes();
                    let next = self.spare.pop().unwrap_or_default();
                    job.requests.push(std::mem::replace(&mut self.request, next));
                    if job.requests.len() >= JOB_REQUESTS_MAX || bytes >= JOB_BYTES_MAX {
                        job = self.run_job(job).await?;
                        bytes = 0;
                    }
                }
            }
            if job.out.bytes.len() > OUT_BYTES_MAX
                && job.requests.is_empty()
                && self.flush(&mut job).await.is_err()
            {
                job.session.is_over = true;
            }
        }
        self.run_job(job).await
    }

    /// Runs the request that has come on this task, or by a reader if it may read the disk.
    async fn run_here(&mut self, mut job: Box<Job>, command: Option<&'static Command>) -> Option<Box<Job>> {
        let server = &self.server;
        let flags = command.map_or(0, |command| command.flags);
        let is_read = flags & flag::READ != 0 && job.session.multi.is_none();
        let mut snapshot = match is_read && flags & flag::ONE == 0 {
            true => Some(Access::At(server.store.snapshot())),
            false => None,
        };
        let takes_part =
            command.is_some_and(|command| command.is_alone(job.session.own.transaction.is_some()));
        let may_wait = (is_read || takes_part)
            && !server.is_in_memory()
            && (takes_part || !is_cached(server, &job.session, flags, &self.request));
        if may_wait {
            let (server, request) = (server.clone(), std::mem::take(&mut self.request));
            let mut access = snapshot.unwrap_or_else(|| Access::Now(server.store.clone()));
            let mut effects = std::mem::take(&mut self.effects);
            let run = move || {
                run(&server, &mut job, &request, &mut access, &mut effects);
                (job, request, effects)
            };
            (job, self.request, self.effects) = self.server.databases.readers.run(run).await?;
        } else {
            let Connection { server, request, now, effects, .. } = self;
            run(server, &mut job, request, snapshot.as_mut().unwrap_or(now), effects);
        }
        self.effects.messages.drain(..).for_each(|said| self.server.clients.pubsub.publish(&said));
        self.effects.filled.clear();
        Some(job)
    }

    /// Has the sequencer run the requests of a job, if there are any.
    async fn run_job(&mut self, mut job: Box<Job>) -> Option<Box<Job>> {
        while !job.requests.is_empty() {
            job = self.run_part(job).await?;
            // Many replies have come: they are sent before more requests are run.
            if !job.requests.is_empty() && (job.session.is_over || self.flush(&mut job).await.is_err()) {
                job.session.is_over = true;
                job.requests.clear();
            }
        }
        Some(job)
    }

    /// Has the sequencer run requests of a job: all, unless their replies are large.
    async fn run_part(&mut self, mut job: Box<Job>) -> Option<Box<Job>> {
        let cold = if self.server.is_in_memory() { Vec::new() } else { self.cold_keys(&job) };
        if !cold.is_empty() {
            // Read ahead, so that the sequencer need not wait for the disk. A command that needs the key
            // meets the error again.
            let (store, space) = (self.server.store.clone(), job.session.data.main.clone());
            self.server
                .databases
                .readers
                .run(move || cold.iter().for_each(|key| _ = store.get(&space, key)))
                .await?;
        }
        job.begin();
        // Replies wait for no command that waits.
        if !job.out.bytes.is_empty() && self.may_wait(&job) && self.flush(&mut job).await.is_err() {
            job.session.is_over = true;
            job.requests.clear();
            return Some(job);
        }
        let mut before = std::mem::take(&mut job.out.bytes);
        let back = self.server.sequencer.submit(job);
        let (job, is_gone) = self.meanwhile(back, &Notify::new()).await;
        let mut job = job.ok()?;
        job.session.is_over |= is_gone;
        before.extend_from_slice(&self.client.outbox.take_early());
        if !before.is_empty() {
            let after = std::mem::replace(&mut job.out.bytes, before);
            job.out.bytes.extend_from_slice(&after);
        }
        for mut request in job.requests.drain(..job.done) {
            if self.spare.len() < SPARE_MAX {
                request.clear();
                self.spare.push(request);
            }
        }
        Some(job)
    }

    /// Whether one of the requests of a job may have to wait.
    fn may_wait(&self, job: &Job) -> bool {
        let command = |request: &Request| self.server.commands.find(&request[0]);
        job.requests.iter().filter_map(command).any(|command| command.is(flag::BLOCKING))
    }

    /// Keys that a job is about to write and memory does not know.
    fn cold_keys(&self, job: &Job) -> Vec<Vec<u8>> {
        let (store, space) = (&self.server.store, &job.session.data.main);
        let command = |request: &Request| self.server.commands.find(&request[0]);
        let requests = job.requests.iter().filter_map(|request| Some((command(request)?, request)));
        let keys = requests.flat_map(|(command, request)| command.keys_of(request));
        keys.filter(|key| matches!(store.get_if_cached(space, key), Ok(None))).map(<[u8]>::to_vec).collect()
    }

    /// Sends the replies.
    async fn flush(&mut self, job: &mut Job) -> io::Result<()> {
        let bytes = &mut job.out.bytes;
        if !bytes.is_empty() {
            self.server.observed.stats.bytes_out.add(bytes.len() as u64);
            self.client.traffic.bytes_out.add(bytes.len() as u64);
            let sent = send(&self.server, &self.client, &mut self.stream, bytes).await;
            // A part may have been sent.
            bytes.clear();
            sent?;
            if bytes.capacity() > OUT_BYTES_MAX {
                *bytes = Vec::new();
            }
        }
        // What was sent to it by its own commands, too.
        self.send_messages().await
    }

    async fn send_messages(&mut self) -> io::Result<()> {
        let messages = self.client.outbox.take_messages();
        match messages.is_empty() {
            true => Ok(()),
            false => send(&self.server, &self.client, &mut self.stream, &messages).await,
        }
    }

    /// Waits for bytes, and sends messages meanwhile. An error if the connection is to end.
    async fn receive(&mut self, may_be_idle: bool) -> io::Result<()> {
        let since = clock::moment();
        loop {
            // A change of `timeout` wakes all connections.
            let idle = if may_be_idle { 0 } else { self.server.config.idle_seconds() };
            let left = Duration::from_secs(idle).saturating_sub(since.elapsed());
            if self.client.is_killed() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let wanted = self.parser.wanted().saturating_sub(self.input.unread().len());
            tokio::select! {
                read = read_some(&mut self.stream, &mut self.input, wanted.clamp(READ_BYTES, OUT_BYTES_MAX)) => {
                    let n = read?;
                    self.server.observed.stats.bytes_in.add(n as u64);
                    self.client.traffic.bytes_in.add(n as u64);
                    return if n == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) };
                }
                () = self.client.wake.notified() => self.send_messages().await?,
                () = tokio::time::sleep(left), if idle > 0 => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }
}

/// Reads what has come, at least some.
async fn read_some(
    stream: &mut (impl AsyncRead + Unpin),
    input: &mut Input,
    room: usize,
) -> io::Result<usize> {
    let tail = input.tail();
    tail.reserve(room);
    stream.read_buf(tail).await
}

/// Runs a request of a job.
fn run(server: &Arc<Server>, job: &mut Job, request: &Request, access: &mut Access, effects: &mut Effects) {
    let Job { session, out, .. } = job;
    let mut cx = Cx { server, session, access, effects, out, now: clock::now_ms() };
    // Whatever waits has written its reply.
    let _ = dispatch::run_caught(&mut cx, request);
}

/// Where a command of a connection runs.
fn place(command: Option<&'static Command>, session: &Session) -> Place {
    match command {
        Some(command) if session.multi.is_some() && !command.is(flag::NO_MULTI) => {
            if command.is(flag::ENDS_MULTI) { Place::Sequencer } else { Place::Here }
        }
        Some(command) if command.is_alone(session.own.transaction.is_some()) => Place::Alone,
        Some(command) if command.is(flag::WAITS) && session.login.is_known => Place::Waits,
        Some(command) if command.is(flag::WRITE | flag::SEQUENCED) => Place::Sequencer,
        _ => Place::Here,
    }
}

/// Whether memory knows what a command reads that reads one key.
fn is_cached(server: &Server, session: &Session, flags: u32, request: &Request) -> bool {
    let Some(key) = request.get(1) else { return true };
    flags & flag::ONE != 0 && matches!(server.store.get_if_cached(&session.data.main, key), Ok(Some(_)))
}
