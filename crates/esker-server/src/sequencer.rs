//! Runs the commands that write: one after the other, many in one commit.
//!
//! ```text
//!   connections --Job--> queue --take all--> one transaction: job 1, job 2, ... --commit--> publish, replies
//!                                               `-- key missing: the job waits --> waiters, by key
//! ```
//!
//! So no two clients' commands conflict, a hot key costs no more than a cold one, and all connections share
//! commits.
//!
//! sequencer.1. A job returns to its connection after the commit of everything that it wrote or read here.
//! - Jobs that wait for a key are served in order of arrival, right after the command that filled the key.
//! - If a commit fails, all of its jobs get the error, and none of their writes are stored. If it conflicts
//!   with a write of the embedding program, those jobs that only read and write data run again.
//! - The replies to the commands before a waiting command are sent before it waits, after their commit.

mod crowd;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::crowd::Crowd;
use crate::base::clock;
use crate::clients::Client;
use crate::command::flag;
use crate::observe::trace;
use crate::resp::fail::{BROKEN, DEMOTED, Done, Fail, READ_ONLY, UNBLOCKED};
use crate::resp::{Out, Request};
use crate::run::cx::{Access, Cx};
use crate::run::dispatch::{self, is_first_of_commit, suppress};
use crate::run::effects::Effects;
use crate::run::leave::{leave, note_end_of_wait, timed_out};
use crate::run::queue::{Job, Message, Replies, Woken};
use crate::run::server::Server;
use crate::run::session::Session;
use crate::run::waiters::Waiters;
use crate::store::{Durability, Error};
use crate::types::{expire_some, expire_some_fields, remove_garbage};

/// Maximum number of keys prefetched before the first command runs. They fit in the L2 cache.
const PREFETCHED_MAX: usize = 512;
/// Maximum time to remove keys from one database while commands wait.
const SWEEP_FOR: Duration = Duration::from_millis(10);
/// Bytes of replies after which a job returns before all of its commands are done.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Interval between searches for expired keys and garbage.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// Runs jobs until the server stops. Jobs that are queued by then are completed.
pub async fn run(server: Arc<Server>) {
    let mut turn = Turns { server: server.clone(), waiters: Waiters::default(), crowd: Crowd::default() };
    let mut sweep = tokio::time::interval(SWEEP_EVERY);
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut swept = clock::moment();
    loop {
        let deadline = turn.waiters.deadline().map(|ms| ms.saturating_sub(clock::now_ms()));
        let until = tokio::time::sleep(Duration::from_millis(deadline.unwrap_or(86_400_000)));
        tokio::select! {
            biased;
            () = server.sequencer.wake.notified() => {
                // Requests that other connections have received meanwhile join the commit.
                tokio::task::yield_now().await;
            }
            () = until, if deadline.is_some() => {}
            _ = sweep.tick() => swept = turn.sweep_at(&mut sweep),
        }
        loop {
            turn.crowd.gather(&server.sequencer).await;
            let messages = server.sequencer.take();
            if messages.is_empty() && turn.waiters.deadline().is_none_or(|at| at > clock::now_ms()) {
                break;
            }
            turn.take(messages);
            // A constant stream of commands does not delay sweeping.
            if swept.elapsed() >= SWEEP_EVERY {
                swept = turn.sweep_at(&mut sweep);
            }
            if server.sequencer.len() > 0 {
                tokio::task::yield_now().await;
            }
        }
        if server.is_stopping() && server.clients.is_empty() {
            return;
        }
    }
}

struct Turns {
    server: Arc<Server>,
    waiters: Waiters,
    crowd: Crowd,
}

/// How far a sweep of a database got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Swept {
    /// Nothing is left to remove.
    All,
    /// The time was over before everything was removed.
    Some,
    /// A commit failed: the next sweep comes after a pause.
    Failed,
}

/// A commit in progress.
struct Turn<'a> {
    server: &'a Arc<Server>,
    access: Access,
    effects: Effects,
    now: u64,
    #[expect(clippy::vec_box, reason = "jobs go from hand to hand")]
    done: Vec<Box<Job>>,
    /// Replies of jobs that began to wait, to be sent after the commit.
    early: Vec<Replies>,
    /// The connections of jobs that began to wait, and still do.
    waits: Vec<Arc<Client>>,
    /// Number of times that changes had been reported when the commit began (tracking.2).
    rounds: u64,
    /// Set when a command panicked in the middle of its writes: nothing may be committed.
    is_spoilt: bool,
}

impl<'a> Turn<'a> {
    /// Begins a turn. `rounds` was taken before the state that it reads.
    fn new(server: &'a Arc<Server>, rounds: u64, access: Access, jobs: usize) -> Self {
        Turn {
            server,
            access,
            effects: Effects::default(),
            now: clock::now_ms(),
            done: Vec::with_capacity(jobs),
            early: Vec::new(),
            waits: Vec::new(),
            rounds,
            is_spoilt: false,
        }
    }

    fn cx<'c>(&'c mut self, session: &'c mut Session, out: &'c mut Out) -> Cx<'c> {
        let Turn { server, access, effects, now, rounds, .. } = self;
        session.turn.rounds = *rounds;
        Cx { server, session, access, effects, out, now: *now }
    }

    fn attempt(&mut self, job: &mut Job) -> Result<(), Fail> {
        let Job { session, requests, done, out, .. } = job;
        match dispatch::run_caught(&mut self.cx(session, out), &requests[*done]) {
            Some(done) => done,
            None => {
                self.is_spoilt = true;
                Ok(())
            }
        }
    }
}

impl Turns {
    /// Begins a commit of about this many jobs.
    fn begin(server: &Arc<Server>, jobs: usize) -> Turn<'_> {
        let rounds = server.clients.tracking.rounds();
        Turn::new(server, rounds, Access::Write(server.store.begin()), jobs)
    }

    /// Prefetches the keys of several commands on one database. Otherwise each command would wait for memory
    /// in turn.
    fn prefetch(&self, messages: &[Message]) {
        let jobs =
            || messages.iter().filter_map(|m| if let Message::Run(job) = m { Some(job) } else { None });
        let Some(first) = jobs().next() else { return };
        let same = jobs().filter(|job| job.session.db == first.session.db);
        // The first argument of nearly all commands is a key.
        let keys = same.flat_map(|job| &job.requests[job.done..]).filter_map(|request| request.get(1));
        let keys: Vec<_> = keys.take(PREFETCHED_MAX).collect();
        if keys.len() > 1 {
            self.server.store.prefetch(&first.session.data.main, &keys);
        }
    }

    fn take(&mut self, messages: Vec<Message>) {
        self.prefetch(&messages);
        let server = self.server.clone();
        let mut turn = Self::begin(&server, messages.len());
        for message in messages {
            match message {
                Message::Run(job) => self.advance(&mut turn, job),
                Message::Filled(db, key) => {
                    turn.effects.filled.push((db, key));
                    self.serve(&mut turn);
                }
                Message::Wake(client, woken) => {
                    if let Some(job) = self.waiters.remove(client.id) {
                        self.end_wait(&mut turn, job, woken);
                    }
                }
                Message::Retry(id) => {
                    self.retry(&mut turn, id);
                }
                // The end of the commit tells them.
                Message::Changes => {}
                Message::EndWaits => {
                    for id in self.waiters.all() {
                        if let Some(job) = self.waiters.remove(id) {
                            self.end_wait(&mut turn, job, Woken::Demoted);
                        }
                    }
                }
            }
        }
        if self.server.clients.pause.is_on(turn.now) {
            self.waiters.hold_retries(turn.now);
        }
        while let Some(id) = self.waiters.take_retry(turn.now) {
            self.retry(&mut turn, id);
        }
        while let Some(job) = self.waiters.remove_due(turn.now) {
            self.end_wait(&mut turn, job, Woken::Timeout);
        }
        self.finish(turn);
    }

    /// Runs the commands of a job until all are done, or one has to wait.
    fn advance(&mut self, turn: &mut Turn<'_>, mut job: Box<Job>) {
        while job.done < job.requests.len() && !job.session.is_over {
            if is_first_of_commit(turn.server, &turn.access, &job.session, &job.requests[job.done]) {
                self.begin_again(turn, &mut job);
            }
            match turn.attempt(&mut job) {
                Err(Fail::Blocks(mut wait)) => {
                    if let Some(instead) = wait.instead.take() {
                        let at = job.done;
                        job.requests[at] = instead;
                    }
                    job.session.client.state.is_blocked.store(true, Ordering::Relaxed);
                    if job.answered < job.done {
                        turn.early.push(job.take_replies());
                    }
                    turn.waits.push(job.session.client.clone());
                    self.waiters.add(job, *wait, turn.now);
                    self.count_waiters();
                    return;
                }
                _ => job.done += 1,
            }
            self.serve(turn);
            // The connection sends these replies before it submits the rest again.
            if job.out.bytes.len() > OUT_BYTES_MAX {
                break;
            }
        }
        turn.done.push(job);
    }

    /// Commits everything before a command that must be the first of its commit, including earlier commands
    /// of the same connection. The next transaction begins after that: it sees what was committed, and does
    /// not conflict with it.
    fn begin_again<'a>(&mut self, turn: &mut Turn<'a>, job: &mut Job) {
        if job.answered < job.done {
            turn.early.push(job.take_replies());
        }
        let server = turn.server;
        let nothing = Turn::new(server, 0, Access::Now(server.store.clone()), 0);
        self.finish(std::mem::replace(turn, nothing));
        *turn = Self::begin(server, 1);
    }

    /// Serves the jobs that wait for keys that were just filled.
    fn serve(&mut self, turn: &mut Turn<'_>) {
        while let Some(db) = turn.effects.replaced.pop() {
            turn.effects.filled.extend(self.waiters.keys_of(db));
        }
        while !turn.effects.filled.is_empty() {
            let (db, key) = turn.effects.filled.remove(0);
            // Of the jobs that wait for the same thing, only one checks each change.
            let mut in_vain: Vec<(Vec<u8>, u64)> = Vec::new();
            for id in self.waiters.of(db, &key) {
                let class = self.waiters.class(id).map(<[u8]>::to_vec);
                if let Some((_, tried)) = in_vain.iter().find(|(known, _)| Some(known) == class.as_ref()) {
                    self.waiters.retry_with(id, *tried);
                } else if self.retry(turn, id) {
                    in_vain.extend(class.map(|class| (class, id)));
                }
            }
        }
    }

    /// Retries a waiting command. Returns whether it still has to wait.
    fn retry(&mut self, turn: &mut Turn<'_>, id: u64) -> bool {
        let Some(mut job) = self.waiters.take(id) else { return false };
        let mark = job.out.mark();
        job.session.turn.is_again = true;
        let attempt = turn.attempt(&mut job);
        job.session.turn.is_again = false;
        match attempt {
            Err(Fail::Blocks(wait)) => {
                self.waiters.put_back(job, wait.again_at);
                true
            }
            // A key of another type counts as missing.
            Err(Fail::WrongType) => {
                job.out.truncate(mark);
                self.waiters.put_back(job, None);
                false
            }
            _ => {
                self.waiters.forget(id);
                self.go_on(turn, job);
                false
            }
        }
    }

    /// Continues a job whose command has stopped waiting.
    fn go_on(&mut self, turn: &mut Turn<'_>, mut job: Box<Job>) {
        self.count_waiters();
        let client = &job.session.client;
        client.state.is_blocked.store(false, Ordering::Relaxed);
        client.outbox.set_may_push(false);
        turn.waits.retain(|waiting| waiting.id != client.id);
        job.done += 1;
        self.advance(turn, job);
    }

    fn end_wait(&mut self, turn: &mut Turn<'_>, mut job: Box<Job>, woken: Woken) {
        self.server.holdings.locks.stop_waiting(job.session.client.id);
        note_end_of_wait(&self.server, &job.session, &job.requests[job.done], woken);
        let mark = job.out.mark();
        match woken {
            Woken::Timeout => timed_out(&self.server, &job.requests[job.done], &mut job.out),
            Woken::Unblocked => {
                job.out.error(UNBLOCKED);
            }
            Woken::Demoted => {
                job.out.error(DEMOTED);
                job.session.is_over = true;
            }
            Woken::Gone => {
                job.session.is_over = true;
                // The commands after it must not commit without the lock that it did not get.
                leave(&self.server, &mut job.session);
            }
        }
        if !job.session.is_over {
            let Job { session, out, .. } = &mut *job;
            suppress(session, out, mark);
        }
        self.go_on(turn, job);
    }

    fn count_waiters(&self) {
        self.server.sequencer.waiting.store(self.waiters.len(), Ordering::Relaxed);
        self.server.sequencer.minds_changes.store(self.waiters.minds_changes(), Ordering::Relaxed);
        for (figure, count) in self.server.sequencer.keys.iter().zip(self.waiters.keys()) {
            figure.store(count, Ordering::Relaxed);
        }
    }

    /// Commits, publishes and replies. Returns whether the commit succeeded.
    fn finish(&mut self, turn: Turn<'_>) -> bool {
        let Turn { server, access, effects, done, early, waits, is_spoilt, .. } = turn;
        let Access::Write(transaction) = access else { return true };
        let mut committed = match is_spoilt || effects.must_not_commit {
            true => Err(Fail::from(BROKEN)),
            false => Ok(0),
        };
        if server.replication.is_replica() && !transaction.is_empty() && committed.is_ok() {
            // The server became a replica while they ran.
            committed = Err(Fail::from(READ_ONLY));
        }
        if committed.is_ok() && !transaction.is_empty() {
            server.observed.stats.commits.add(1);
            server.observed.stats.changes.add(effects.changes);
            let durability = server.config.durability().max(effects.durability.unwrap_or(Durability::None));
            let start = clock::moment();
            let outcome = match durability {
                Durability::Sync => {
                    let outcome = tokio::task::block_in_place(|| transaction.commit(durability));
                    self.crowd.note(done.len(), start.elapsed());
                    outcome
                }
                _ => transaction.commit(durability),
            };
            let took = start.elapsed();
            server.observed.commit_latency.add(took.as_micros() as u64, 1);
            server.note_latency("commit", took);
            committed = outcome.map_err(Fail::Store);
        }
        server.clients.tell_changes(*committed.as_ref().unwrap_or(&0));
        if committed.is_ok() {
            server.tell_effects(&effects);
        }
        let failed = committed.err();
        if let Some(failed) = &failed {
            trace::warn("a commit failed", None, &failed.message());
        }
        let fail_all = |out: &mut Out, count: usize| {
            if let Some(failed) = &failed {
                out.clear();
                (0..count).for_each(|_| out.error(&failed.message()));
            }
        };
        for mut replies in early {
            fail_all(&mut replies.out, replies.count);
            replies.client.answer_early(replies.out);
        }
        for client in waits {
            client.outbox.set_may_push(true);
            client.wake.notify_one();
        }
        let is_conflict = matches!(failed, Some(Fail::Store(Error::Conflict)));
        for mut job in done {
            if is_conflict && job.begin_again(|request| is_plain(server, request)) {
                server.sequencer.run_again(job);
                continue;
            }
            let count = job.done - job.answered;
            fail_all(&mut job.out, count);
            if let Some(back) = job.back.take() {
                // If the receiver is gone, so is the connection.
                drop(back.send(job));
            }
        }
        failed.is_none()
    }

    /// Sweeps and returns the time of the sweep. If more is left to remove, the next sweep comes as soon as
    /// no commands wait.
    fn sweep_at(&mut self, interval: &mut tokio::time::Interval) -> std::time::Instant {
        if self.sweep() {
            interval.reset_immediately();
        }
        clock::moment()
    }

    /// Removes expired keys, expired fields and garbage. Returns whether more may be left.
    fn sweep(&mut self) -> bool {
        let idle_ms = 1000 * self.server.config.number("transaction-timeout").max(0) as u64;
        if idle_ms > 0 {
            self.server.holdings.expire(clock::now_ms(), idle_ms);
        }
        if self.server.replication.is_replica() || self.server.clients.pause.is_on(clock::now_ms()) {
            return false;
        }
        if self.server.config.is_on("import-mode") {
            return false;
        }
        let mut is_more = false;
        for data in self.server.open_databases() {
            is_more |= self.sweep_database(&data, expire_some) == Swept::Some;
            is_more |= self.sweep_database(&data, expire_some_fields) == Swept::Some;
        }
        if !self.server.take_garbage() {
            return is_more;
        }
        for data in self.server.open_databases() {
            let swept = self.sweep_database(&data, remove_garbage);
            is_more |= swept == Swept::Some;
            if swept != Swept::All {
                self.server.has_garbage();
            }
        }
        is_more
    }

    fn sweep_database(
        &mut self,
        data: &Arc<crate::store::database::Database>,
        step: impl Fn(&mut Cx<'_>) -> Done<bool>,
    ) -> Swept {
        let server = self.server.clone();
        let mut session = Session::new(Arc::default(), data.clone(), true);
        // Commands wait meanwhile, so the rest is left to the next sweep.
        let start = clock::moment();
        while start.elapsed() < SWEEP_FOR {
            let mut turn = Self::begin(&server, 0);
            let step = step(&mut turn.cx(&mut session, &mut Out::default()));
            // Readers of a group may wait for a key that has expired.
            if step.is_ok() {
                self.serve(&mut turn);
            }
            match (step, self.finish(turn)) {
                (Ok(true), true) => {}
                (Ok(false), true) => return Swept::All,
                _ => return Swept::Failed,
            }
        }
        Swept::Some
    }
}
/// Returns whether a command only reads and writes data, so that it can run again after a conflict.
fn is_plain(server: &Server, request: &Request) -> bool {
    server.commands.find(&request[0]).is_some_and(|command| {
        command.is(flag::READ | flag::WRITE)
            && !command.is(flag::BLOCKING | flag::NO_SCRIPT | flag::SEQUENCED)
    })
}
