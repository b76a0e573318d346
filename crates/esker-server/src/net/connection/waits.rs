//! Waits of a connection other than for requests: for a password check, a pause, other servers or its job.
//! The connection reads ahead in the meantime.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use super::{AHEAD_BYTES_MAX, Connection, Precedes, READ_BYTES, read_some, send};
use crate::base::clock;
use crate::commands;
use crate::observe::trace;
use crate::resp::Out;
use crate::run::dispatch;
use crate::run::queue::{Job, Woken};
use crate::run::registry::Command;

/// Delay of the first reply to a wrong password, and the maximum delay. The delay doubles with each wrong
/// password.
pub(super) const REFUSED_DELAY: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Checks the password of a request, if it has one. Each wrong one delays the reply longer.
    pub(super) async fn check_password(&mut self, job: &mut Job, command: Option<&'static Command>) {
        let given = command.and_then(|command| command.credentials_of(&self.request));
        let Some((user, password)) = given.map(|(user, word)| (user.to_vec(), word.to_vec())) else { return };
        let (server, end) = (self.server.clone(), Notify::new());
        let delay = self.refused_delay;
        let looked = async {
            server.acl.prove(&user, &password).await;
            let is_right = server.acl.log_in(&user, &password).is_some();
            if !is_right {
                tokio::time::sleep(delay).await;
            }
            is_right
        };
        let ended = async {
            tokio::select! {
                is_right = looked => Some(is_right),
                () = end.notified() => None,
            }
        };
        // Replies to earlier requests may wait, or the job may have requests that are not submitted yet.
        self.precedes = Precedes::Replies;
        let looked = self.meanwhile(ended, &end).await;
        self.precedes = Precedes::Nothing;
        match looked {
            (Some(true), false) => self.refused_delay = REFUSED_DELAY[0],
            (Some(false), false) => self.refused_delay = (2 * delay).min(REFUSED_DELAY[1]),
            _ => job.session.is_over = true,
        }
    }

    /// Reads ahead until a future completes. Returns its output, and whether the client has disconnected.
    /// Notifies `end` when the future should stop waiting.
    pub(super) async fn meanwhile<T>(&mut self, done: impl Future<Output = T>, end: &Notify) -> (T, bool) {
        tokio::pin!(done);
        let mut is_gone = false;
        loop {
            let may_read = !is_gone && self.input.unread().len() < AHEAD_BYTES_MAX;
            tokio::select! {
                biased;
                done = &mut done => return (done, is_gone),
                () = self.client.wake.notified() => {
                    if self.woken().await {
                        end.notify_one();
                    }
                }
                read = read_some(&mut self.stream, &mut self.input, READ_BYTES), if may_read => {
                    self.has_more = true;
                    let n = read.unwrap_or(0);
                    self.server.observed.stats.bytes_in.add(n as u64);
                    self.client.traffic.bytes_in.add(n as u64);
                    if n == 0 {
                        is_gone = true;
                        self.server.sequencer.end_wait(&self.client, Woken::Gone);
                        end.notify_one();
                    }
                }
            }
        }
    }

    /// Waits until no pause holds the current command.
    pub(super) async fn await_pause(
        &mut self,
        mut job: Box<Job>,
        command: Option<&'static Command>,
    ) -> Option<Box<Job>> {
        job = self.run_job(job).await?;
        job.session.is_over |= self.flush(&mut job).await.is_err();
        let (server, end) = (self.server.clone(), Notify::new());
        while !job.session.is_over
            && let Some(until) =
                server.clients.pause.holds(command.map(|command| &**command), job.session.queues_writes())
        {
            let held = async {
                tokio::select! {
                    () = server.clients.pause.wait(until, clock::now_ms()) => {}
                    () = end.notified() => {}
                }
            };
            let ((), is_gone) = self.meanwhile(held, &end).await;
            job.session.is_over |= is_gone || self.client.is_killed();
        }
        Some(job)
    }

    /// Waits until enough replicas have on their disks what the job has written (`write-quorum`). If they do
    /// not have it in time, the replies to its writes become errors.
    ///
    /// replies.1. While `write-quorum` is set, no reply to a write is sent unless that many replicas have
    ///     reported its commit as durable, or the reply says that they have not.
    pub(super) async fn confirm(&mut self, job: &mut Job) {
        if job.out.unconfirmed.is_empty() {
            return;
        }
        let (server, client, end) = (self.server.clone(), self.client.clone(), Notify::new());
        let (replication, safety, (term, seq)) = (&server.replication, &server.config.safety, self.committed);
        let is_primary = || replication.is_primary_since(term);
        let count = || if is_primary() { replication.confirmed(seq, true) } else { 0 };
        let is_over = || count() >= safety.quorum() || !is_primary() || server.is_stopping();
        let ms = safety.quorum_ms();
        if !is_over() {
            client.state.is_blocked.store(true, Ordering::Relaxed);
            let ended = async {
                tokio::select! {
                    () = replication.wait(ms, is_over) => {}
                    () = end.notified() => {}
                }
            };
            self.held = job.out.take();
            self.precedes = Precedes::Replies;
            let ((), is_gone) = self.meanwhile(ended, &end).await;
            self.precedes = Precedes::Nothing;
            job.out = self.held.take();
            client.state.is_blocked.store(false, Ordering::Relaxed);
            job.session.is_over |= is_gone;
        }
        let (count, quorum) = (count(), safety.quorum());
        if count >= quorum {
            job.out.unconfirmed.clear();
            return;
        }
        let text = format!(
            "UNCONFIRMED the write is made here, but {count} of {quorum} replicas have confirmed it: it may be lost with this server"
        );
        let Out { bytes, unconfirmed, .. } = &mut job.out;
        let replaced = unconfirmed.replace(bytes, format!("-{text}\r\n").as_bytes());
        (0..replaced).for_each(|_| server.observed.stats.note_error(&text));
        trace::warn("writes are not confirmed", Some(&client), &text);
    }

    /// Runs a command that waits for other servers, after its condition holds or its time is over.
    pub(super) async fn await_others(
        &mut self,
        mut job: Box<Job>,
        command: Option<&'static Command>,
    ) -> Option<Box<Job>> {
        if self.flush(&mut job).await.is_err() {
            job.session.is_over = true;
            return Some(job);
        }
        let (server, client, end) = (self.server.clone(), self.client.clone(), Notify::new());
        let is_allowed = command
            .is_some_and(|command| dispatch::is_allowed(&server, &job.session, command, &self.request));
        let awaited = commands::awaited(&server, &job.session, &self.request);
        if let Some(awaited) = awaited.filter(|_| is_allowed) {
            job.session.turn.awaited = Some(awaited.from);
            client.state.is_blocked.store(true, Ordering::Relaxed);
            let ended = async {
                tokio::select! {
                    fed = awaited.wait(&server) => fed,
                    () = end.notified() => None,
                }
            };
            let (fed, is_gone) = self.meanwhile(ended, &end).await;
            client.state.is_blocked.store(false, Ordering::Relaxed);
            job.session.turn.fed = fed;
            job.session.is_over |= is_gone;
        }
        job = self.run_here(job, command).await?;
        (job.session.turn.awaited, job.session.turn.fed) = (None, None);
        Some(job)
    }

    /// Handles a wake-up while the job runs. Returns whether the job should stop waiting.
    async fn woken(&mut self) -> bool {
        let unblock = self.client.take_unblock();
        match unblock {
            Some(true) => self.server.sequencer.end_wait(&self.client, Woken::Unblocked),
            Some(false) => self.server.sequencer.end_wait(&self.client, Woken::Timeout),
            None => {}
        }
        // Replies are added before a waiting job allows invalidations: they are taken after those. Messages
        // do not overtake replies either, such as the one to SUBSCRIBE.
        let has_held = !self.held.bytes.is_empty();
        let messages = match self.precedes {
            Precedes::Nothing => self.client.outbox.take_all(),
            _ if has_held => Vec::new(),
            Precedes::Job => self.client.outbox.take_while_waiting(),
            Precedes::Replies => self.client.outbox.take_messages(),
        };
        let early = self.take_early();
        if has_held && self.held.bytes.is_empty() {
            // Nothing precedes them any more.
            self.client.wake.notify_one();
        }
        for bytes in [early, messages] {
            if !bytes.is_empty() {
                self.client.traffic.bytes_out.add(bytes.len() as u64);
                // If this fails, it kills the connection.
                let _ = send(&self.server, &self.client, &mut self.stream, &bytes).await;
            }
        }
        if self.client.is_killed() {
            self.server.sequencer.end_wait(&self.client, Woken::Gone);
        }
        unblock.is_some() || self.client.is_killed()
    }

    /// Takes the replies that the sequencer sends early, behind all earlier ones. Those of a killed
    /// connection stay with its job: a stopping server sends them last.
    fn take_early(&mut self) -> Vec<u8> {
        if self.client.is_killed() {
            return Vec::new();
        }
        let mut early = self.client.outbox.take_early();
        if early.bytes.is_empty() {
            return early.bytes;
        }
        self.held.append(&mut early);
        // Replies that replicas have to confirm are sent with those of the job.
        if self.held.unconfirmed.is_empty() { self.held.take().bytes } else { Vec::new() }
    }
}
