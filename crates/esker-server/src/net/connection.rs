//! Serves one connection: parses requests, runs them or hands them to the sequencer, and sends replies.
//!
//! ```text
//!   socket --> Input --> requests --read --> on this task
//!                                 `-write--> with all requests after it, to the sequencer as one job
//! ```
//!
//! Replies are in the order of requests. The memory of a connection is bounded: it does not read on until the
//! requests that it has read are answered. A killed connection ends even if it waits; only a running command
//! completes first.

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
use crate::net::replica;
use crate::observe::trace;
use crate::resp::{Input, Limits, Out, Parser, Request};
use crate::run::cx::{Access, Cx};
use crate::run::dispatch;
use crate::run::effects::Effects;
use crate::run::leave::leave as leave_all;
use crate::run::queue::Job;
use crate::run::registry::Command;
use crate::run::server::Server;
use crate::run::session::Session;

/// Minimum buffer size for a read.
const READ_BYTES: usize = 16 << 10;
/// Replies beyond this size are sent before more requests are parsed.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Maximum number of commands in a job, and of their bytes.
const JOB_REQUESTS_MAX: usize = 1000;
const JOB_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes to read ahead while a job runs.
const AHEAD_BYTES_MAX: usize = 64 << 10;
/// Maximum number of request buffers kept for reuse.
const SPARE_MAX: usize = 64;

/// Where a request runs.
enum Route {
    Here,
    /// Here, after all earlier requests are done.
    Alone,
    /// Here, after other servers have caught up or a time has passed.
    Waits,
    Sequencer,
}

/// What invalidations of a connection have to wait for, while it waits for something else (tracking.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precedes {
    Nothing,
    /// Its job, unless that waits for a key.
    Job,
    /// Replies that are not sent yet.
    Replies,
}

struct Connection<S> {
    server: Arc<Server>,
    client: Arc<Client>,
    stream: S,
    input: Input,
    parser: Parser,
    /// The request that is being parsed.
    request: Request,
    spare: Vec<Request>,
    /// Whether bytes arrived while a job ran.
    has_more: bool,
    /// Whether the sequencer has run requests since the last replies were sent.
    has_submitted: bool,
    /// Replies from before the job that runs, or those that wait for replicas. They precede replies that the
    /// sequencer sends early, and messages.
    held: Out,
    /// What precedes invalidations.
    precedes: Precedes,
    /// The moment after the last write. Replies to writes may wait until replicas have it.
    committed: (u64, u64),
    /// Delay of the reply to the next wrong password.
    refused_delay: Duration,
    /// The newest state, for reads on this task.
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
        has_submitted: false,
        held: Out::default(),
        precedes: Precedes::Nothing,
        committed: (0, 0),
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

/// Ends the connections with the largest sizes until the others have at most this much together.
pub fn end_largest(server: &Server, bytes_max: usize, size: fn(&Client) -> usize, why: &str) {
    for ended in server.clients.end_largest(bytes_max, size) {
        server.observed.stats.ended_for_memory.add(1);
        trace::warn("a connection is ended", Some(&ended), why);
    }
}

/// Removes a client from the table. A stopping server waits until the table is empty.
pub fn leave(server: &Server, client: &Client) {
    server.clients.remove(client);
    if server.is_stopping() {
        server.sequencer.wake();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Serves requests. Returns the job at the end, unless it was lost with the sequencer.
    async fn run(&mut self, mut job: Box<Job>) -> Option<Box<Job>> {
        loop {
            job = self.answer(job).await?;
            if !std::mem::take(&mut self.has_submitted) && !job.out.bytes.is_empty() {
                // Requests that have arrived on other connections run first. So their clients wake up once.
                tokio::task::yield_now().await;
            }
            if self.client.is_killed() && self.server.is_stopping() {
                // Send the replies of completed requests.
                self.confirm(&mut job).await;
                send_last(&mut self.stream, &job.out.bytes).await;
                return Some(job);
            }
            if let Some(link) = job.session.link.take() {
                let input = std::mem::take(&mut self.input);
                let (server, client) = (self.server.clone(), self.client.clone());
                replica::sender::serve(server, &client, &mut self.stream, input, link).await;
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

    /// Returns whether the connection must end because of the request bytes that it holds. If all connections
    /// together hold too much, the largest ones are ended.
    fn holds_too_much(&self, bytes: usize) -> bool {
        let server = &self.server;
        let all = server.clients.hold(&self.client, bytes);
        if bytes > server.config.connections.query_bytes() {
            trace::warn("a connection is ended", Some(&self.client), "client-query-buffer-limit");
            return true;
        }
        let requests_max = server.config.connections.requests_bytes();
        if all > requests_max {
            let why = "the requests that all connections hold take more than --memory or maxmemory-clients";
            end_largest(server, requests_max, Client::held, why);
        }
        self.client.is_killed()
    }

    /// Begins the replies to requests with the invalidations that wait (tracking.1).
    fn begin_answer(&self, job: &mut Job) {
        self.client.active.store(clock::now_ms(), Ordering::Relaxed);
        if self.server.clients.tracking.is_active() && job.out.bytes.is_empty() {
            job.out.bytes.append(&mut self.client.outbox.take_pushes());
        }
    }

    /// Runs all requests that have arrived. The replies are in the job.
    async fn answer(&mut self, mut job: Box<Job>) -> Option<Box<Job>> {
        let mut bytes = 0;
        self.begin_answer(&mut job);
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
            let command = self.server.commands.note_command(&mut self.request);
            self.check_password(&mut job, command).await;
            // A malformed request is refused immediately, unless a pause holds all commands.
            let held = command.filter(|command| command.fits(&self.request));
            if self
                .server
                .clients
                .pause
                .holds(held.map(|command| &**command), job.session.queues_writes())
                .is_some()
            {
                job = self.await_pause(job, held).await?;
                bytes = 0;
                if job.session.is_over {
                    break;
                }
            }
            if !job.requests.is_empty() && self.begins_job(command, &job.session) {
                job = self.run_job(job).await?;
                bytes = 0;
            }
            let is_here = job.requests.is_empty();
            // While a script runs for long, most commands are refused. The refusal does not wait for the
            // script.
            let is_busy = is_here && self.server.scripts.is_busy(self.server.config.busy_ms());
            match if is_busy { Route::Here } else { route(command, &job.session) } {
                Route::Waits => {
                    job = self.run_job(job).await?;
                    job = self.await_others(job, command).await?;
                    bytes = 0;
                }
                Route::Here | Route::Alone if is_here => job = self.run_here(job, command).await?,
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

    /// Runs the current request on this task, or on a reader thread if it may read from the disk.
    async fn run_here(&mut self, mut job: Box<Job>, command: Option<&'static Command>) -> Option<Box<Job>> {
        let server = &self.server;
        let flags = command.map_or(0, |command| command.flags);
        // tracking.2
        job.session.turn.rounds = server.clients.tracking.rounds();
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
        if !job.out.unconfirmed.is_empty() {
            self.committed = self.server.replication.moment();
        }
        self.effects.messages.drain(..).for_each(|said| self.server.clients.pubsub.publish(&said));
        self.effects.filled.clear();
        Some(job)
    }

    /// Runs the requests of a job in the sequencer, if there are any.
    async fn run_job(&mut self, mut job: Box<Job>) -> Option<Box<Job>> {
        while !job.requests.is_empty() {
            job = self.run_part(job).await?;
            // The replies are large: send them before more requests run.
            if !job.requests.is_empty() && (job.session.is_over || self.flush(&mut job).await.is_err()) {
                job.session.is_over = true;
                job.requests.clear();
            }
        }
        Some(job)
    }

    /// Runs requests of a job in the sequencer: all of them, unless their replies are large.
    async fn run_part(&mut self, mut job: Box<Job>) -> Option<Box<Job>> {
        let cold = if self.server.is_in_memory() { Vec::new() } else { self.cold_keys(&job) };
        if !cold.is_empty() {
            // Read ahead, so that the sequencer does not wait for the disk. An error is ignored: a command
            // that needs the key gets it again.
            let (store, space) = (self.server.store.clone(), job.session.data.main.clone());
            self.server
                .databases
                .readers
                .run(move || cold.iter().for_each(|key| _ = store.get(&space, key)))
                .await?;
        }
        job.begin();
        // A waiting command must not delay the replies before it.
        if !job.out.bytes.is_empty() && self.may_wait(&job) && self.flush(&mut job).await.is_err() {
            job.session.is_over = true;
            job.requests.clear();
            return Some(job);
        }
        // An empty buffer stays with the job.
        if !job.out.bytes.is_empty() {
            self.held = job.out.take();
        }
        self.has_submitted = true;
        let back = self.server.sequencer.submit(job);
        self.precedes = Precedes::Job;
        let (job, is_gone) = self.meanwhile(back, &Notify::new()).await;
        self.precedes = Precedes::Nothing;
        let mut job = job.ok()?;
        job.session.is_over |= is_gone;
        let mut before = self.held.take();
        before.append(&mut self.client.outbox.take_early());
        if !before.bytes.is_empty() {
            job.out.prepend(before);
        }
        if !job.out.unconfirmed.is_empty() {
            self.committed = self.server.replication.moment();
        }
        for mut request in job.requests.drain(..job.done) {
            if self.spare.len() < SPARE_MAX {
                request.clear();
                self.spare.push(request);
            }
        }
        Some(job)
    }

    /// Returns whether all earlier requests have to be done before a command. If replies to writes wait for
    /// replicas, they do so before a command that waits for a key.
    fn begins_job(&self, command: Option<&'static Command>, session: &Session) -> bool {
        let is_blocking = || command.is_some_and(|command| command.is(flag::BLOCKING));
        let waits = || self.server.config.safety.quorum() > 0 && is_blocking();
        matches!(route(command, session), Route::Alone) || waits()
    }

    /// Returns whether a request of a job may have to wait.
    fn may_wait(&self, job: &Job) -> bool {
        let command = |request: &Request| self.server.commands.find(&request[0]);
        job.requests.iter().filter_map(command).any(|command| command.is(flag::BLOCKING))
    }

    /// Returns the keys that a job will write and that are not in memory.
    fn cold_keys(&self, job: &Job) -> Vec<Vec<u8>> {
        let space = &job.session.data.main;
        let command = |request: &Request| self.server.commands.find(&request[0]);
        let requests = job.requests.iter().filter_map(|request| Some((command(request)?, request)));
        let keys = requests.flat_map(|(command, request)| command.keys_of(request));
        keys.filter(|key| !self.server.is_cached(space, key)).map(<[u8]>::to_vec).collect()
    }

    /// Sends the replies.
    async fn flush(&mut self, job: &mut Job) -> io::Result<()> {
        self.confirm(job).await;
        let bytes = &mut job.out.bytes;
        if !bytes.is_empty() {
            self.server.observed.stats.bytes_out.add(bytes.len() as u64);
            self.client.traffic.bytes_out.add(bytes.len() as u64);
            let sent = send(&self.server, &self.client, &mut self.stream, bytes).await;
            // Some of the bytes may be sent already.
            bytes.clear();
            sent?;
            if bytes.capacity() > OUT_BYTES_MAX {
                *bytes = Vec::new();
            }
        }
        // This includes messages that its own commands have published.
        self.send_messages().await
    }

    async fn send_messages(&mut self) -> io::Result<()> {
        let messages = self.client.outbox.take_all();
        match messages.is_empty() {
            true => Ok(()),
            false => send(&self.server, &self.client, &mut self.stream, &messages).await,
        }
    }

    /// Waits for bytes, and sends messages in the meantime. Fails if the connection has to end.
    async fn receive(&mut self, may_be_idle: bool) -> io::Result<()> {
        let mut since = None;
        loop {
            // A change of the option `timeout` wakes all connections.
            let idle = if may_be_idle { 0 } else { self.server.config.connections.idle_seconds() };
            if self.client.is_killed() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let wanted = self.parser.wanted().saturating_sub(self.input.unread().len());
            // Without a limit the clock is not read.
            let timeout = async {
                let since = since.get_or_insert_with(clock::moment);
                tokio::time::sleep(Duration::from_secs(idle).saturating_sub(since.elapsed())).await;
            };
            tokio::select! {
                biased;
                read = read_some(&mut self.stream, &mut self.input, wanted.clamp(READ_BYTES, OUT_BYTES_MAX)) => {
                    let n = read?;
                    self.server.observed.stats.bytes_in.add(n as u64);
                    self.client.traffic.bytes_in.add(n as u64);
                    return if n == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) };
                }
                () = self.client.wake.notified() => self.send_messages().await?,
                () = timeout, if idle > 0 => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }
}

/// Reads at least one byte, unless the stream has ended.
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
    // If the command fails, its error reply is written already.
    let _ = dispatch::run_caught(&mut cx, request);
}

/// Decides where a command of a connection runs.
fn route(command: Option<&'static Command>, session: &Session) -> Route {
    match command {
        Some(command) if session.multi.is_some() && !command.is(flag::NO_MULTI) => {
            if command.is(flag::ENDS_MULTI) { Route::Sequencer } else { Route::Here }
        }
        Some(command) if command.is_alone(session.own.transaction.is_some()) => Route::Alone,
        Some(command) if command.is(flag::WAITS) && session.login.is_known => Route::Waits,
        Some(command) if command.is(flag::WRITE | flag::SEQUENCED) => Route::Sequencer,
        _ => Route::Here,
    }
}

/// Returns whether a command that reads only one key finds it in memory.
fn is_cached(server: &Server, session: &Session, flags: u32, request: &Request) -> bool {
    let Some(key) = request.get(1) else { return true };
    flags & flag::ONE != 0 && server.is_cached(&session.data.main, key)
}
