//! Replication: a primary sends its commits in order once they are durable. Replicas apply them.
//!
//! ```text
//!   primary: feed --> outgoing --> sender ==frames==> follow --> following --> apply: a commit each :replica
//!               `--checkpoint--> copy_out ==========> copy_in --> a directory, exchanged for the own
//!            replicas <---------- Ack ===============    replica: feed --> outgoing --> ... its replicas
//! ```
//!
//! replication.1. A commit is sent only once it is durable. So no crash leaves a replica ahead of its
//!     primary.
//! replication.2. The commit that advances a replica also writes the replica's position. A replica applies
//!     each number once, without a gap.
//! replication.3. Each start of a primary and each promotion begins an epoch, which is durable before
//!     anything of it is sent. A position outside the primary's history is refused: histories are never
//!     merged.
//! - A replica takes writes only from its primary. It neither removes expired keys nor sweeps garbage.
//!
//! The connections are in net/replica/. For users: docs/server.md. Bytes: docs/formats/replication.md

pub mod apply;
pub mod ballot;
mod bytes;
mod changes;
pub mod disk;
pub mod following;
pub mod frame;
pub mod outgoing;
pub mod position;
pub mod prepare;
pub mod records;
pub mod replicas;
#[cfg(test)]
mod simulation;
mod slots;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esker::{Db, Error, Result, SeqNo};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

pub use self::apply::empty_database;
pub use self::ballot::{Ballot, Refused};
pub use self::changes::{Batch, KeyChange};
pub use self::disk::{exchange, finish_copy};
pub use self::frame::VERSION;
pub use self::position::{Epoch, Position};
pub use self::records::{KEYSPACE as RECORDS, problem};
pub use self::replicas::Link;
use self::replicas::Replicas;
pub use self::slots::{Slot, is_name as is_slot_name};

use self::position::{History, Relation};
use self::records::{Base, Records, Role};
use self::slots::Slots;
use crate::base::clock;
use crate::config::source::Source;
use crate::store::database::Database;

/// Prefix of the names of the server's own keyspaces.
pub const OWN_PREFIX: &str = "es.";
/// See [`records`].
pub use self::records::NOTHING;

/// State of a replica's connection to its primary.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// It receives commits.
    pub is_up: bool,
    /// It receives a copy.
    pub is_copying: bool,
    /// Why it is not up, after an attempt.
    pub error: Option<String>,
    /// Unix milliseconds when something last arrived; 0: never.
    pub heard: u64,
    /// The newest commit that the primary has announced.
    pub newest: u64,
}

/// State of this server's replication.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) role: Role,
    pub(crate) history: History,
    /// On a replica: the newest applied commit, and the engine's number of it or of a later commit.
    pub(crate) applied: Position,
    pub(crate) applied_local: u64,
    /// On a replica: the newest durable commit.
    pub(crate) durable: u64,
    /// Counts changes of the role. A thread that follows a primary stops when it changes.
    pub(crate) term: u64,
    /// The newest election that it took part in.
    pub(crate) ballot: Ballot,
    /// A received copy replaces the data as soon as the server restarts (ballot.4).
    pub(crate) is_over: bool,
    /// Whether own data may be discarded for a copy.
    pub(crate) may_discard: bool,
    pub(crate) upstream: Upstream,
}

/// The replication of a server.
pub struct Replication {
    local: Option<(Db, Records)>,
    pub(crate) state: Mutex<State>,
    /// Held while a commit of the primary is applied, and while the role changes.
    turn: Mutex<()>,
    /// Relaxed: writes check again at their commit, which is ordered with changes of the role.
    is_replica: AtomicBool,
    /// The servers that follow this one.
    pub replicas: Replicas,
    slots: Mutex<Slots>,
    /// Signals progress to waiting tasks.
    moved: Notify,
    /// When it was last synced for replicas.
    synced: Mutex<Option<Instant>>,
}

/// Returns the first commit number for a database whose data may come from another one (`esker load`, a
/// restore). Commit numbers tell collections apart, so they must exceed all numbers that the other database
/// has given out. No server makes 2^24 commits a second, so the time in seconds times 2^24 does.
fn loaded_gap() -> u64 {
    ((clock::now_ms() / 1000) << 24).max(1 << 32)
}

/// Error of replication commands on a store without a database.
pub(crate) const NO_DATABASE: &str = "ERR this store cannot be replicated";

impl Replication {
    /// Opens the replication of a database, or of a store without one. `source`: the primary to follow.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn open(db: Option<&Db>, source: Option<Source>) -> Result<Self> {
        let local = match db {
            Some(db) => Some((db.clone(), Records::open(db)?)),
            None => None,
        };
        let unset = Role::Primary(Base { local: 0, seq: 0 });
        let replication = Replication {
            state: Mutex::new(State {
                role: unset,
                history: History::default(),
                applied: Position::default(),
                applied_local: 0,
                durable: 0,
                term: 0,
                ballot: Ballot::default(),
                is_over: false,
                may_discard: false,
                upstream: Upstream::default(),
            }),
            local,
            turn: Mutex::default(),
            is_replica: AtomicBool::new(false),
            replicas: Replicas::default(),
            slots: Mutex::default(),
            moved: Notify::new(),
            synced: Mutex::default(),
        };
        if let Some((db, records)) = &replication.local {
            replication.begin(db, records, source)?;
        }
        Ok(replication)
    }

    fn begin(&self, db: &Db, records: &Records, source: Option<Source>) -> Result<()> {
        let visible = || db.snapshot().seqno().get();
        let ballot = records.ballot()?;
        // An election has given it its primary, or will.
        let source = source.filter(|_| ballot.number == 0);
        let next = records.history()?.newest().next();
        // It has used up the epochs of its ballot.
        let has_to_wait = ballot.number > 0 && !ballot.has(next);
        let role = match records.role()? {
            // Made by a server without replication, or loaded.
            None if db.open_keyspace(&Database::names(0)[0]).is_ok() => {
                rise(records, visible() + loaded_gap(), next)?
            }
            None => rise(records, visible(), next)?,
            Some(Role::Rising(last)) => rise(records, last, next)?,
            Some(Role::Primary(base)) if !fits(records, base, visible())? => {
                let last = base.seq + loaded_gap() + visible();
                records.forget_epochs()?;
                rise(records, last, Epoch::default().next())?
            }
            Some(Role::Primary(base)) if source.is_none() && !has_to_wait => {
                // replication.3: distinguishes the commits of this run from those of another copy of the same
                // files. Other commits may be made at the same time, by the program that embeds the server.
                let last = |visible| base.seq_of(visible).unwrap_or(base.seq);
                records.begin_epoch(next, last, &Role::Primary(base))?;
                Role::Primary(base)
            }
            Some(role) => role,
        };
        let is_older = |source: &Source| source.is_unset() && matches!(role, Role::Replica(_));
        let source = source.filter(|source| role != Role::Replica(source.clone()) && !is_older(source));
        let mut state = self.state.lock();
        state.history = records.history()?;
        state.applied_local = visible();
        state.applied = records.position()?.unwrap_or_default();
        state.durable = state.applied.seq;
        self.is_replica.store(matches!(role, Role::Replica(_)), Ordering::Relaxed);
        state.ballot = records.ballot()?;
        let has_to_wait = has_to_wait && matches!(role, Role::Primary(_)) && state.ballot == ballot;
        state.role = role;
        drop(state);
        self.read_slots(db, records)?;
        let source = source.or(has_to_wait.then(Source::unset));
        source.map_or(Ok(()), |source| self.become_replica(source, false))
    }

    pub(crate) fn local(&self) -> Option<&(Db, Records)> {
        self.local.as_ref()
    }

    /// Returns whether it takes writes only from its primary.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Relaxed)
    }

    /// Returns the address of its primary, if it has one.
    pub fn source(&self) -> Option<Source> {
        self.state.lock().role.source().cloned()
    }

    /// Returns the state of the connection to its primary.
    pub fn upstream(&self) -> Upstream {
        self.state.lock().upstream.clone()
    }

    /// Returns the epochs, each with the last commit before it.
    pub fn epochs(&self) -> Vec<(Epoch, u64)> {
        self.state.lock().history.epochs().to_vec()
    }

    /// Returns the number of changes of the role, and the newest visible commit. Numbers of commits from
    /// before such a change may belong to another history.
    pub fn moment(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.term, self.position_in(&state).seq)
    }

    /// Returns whether it is a primary, and has been one since this change of its role.
    pub fn is_primary_since(&self, term: u64) -> bool {
        let state = self.state.lock();
        state.term == term && matches!(state.role, Role::Primary(_))
    }

    /// Returns the newest visible commit.
    pub fn position(&self) -> Position {
        self.position_in(&self.state.lock())
    }

    fn position_in(&self, state: &State) -> Position {
        self.here_in(state).0
    }

    /// Returns the newest visible commit, and the engine's number up to which this database has everything up
    /// to that commit.
    fn here_in(&self, state: &State) -> (Position, u64) {
        let (Role::Primary(base), Some((db, _))) = (&state.role, self.local()) else {
            return (state.applied, state.applied_local);
        };
        let local = db.snapshot().seqno().get();
        let seq = base.seq_of(local).unwrap_or_default();
        (Position { epoch: state.history.epoch_of(seq), seq }, local)
    }

    /// Returns the first commit from which a replica of this primary can continue without a copy. `None`:
    /// there is no log for replicas.
    pub fn first_kept(&self) -> Option<u64> {
        let role = self.state.lock().role.clone();
        let (Role::Primary(base), Some((db, _))) = (role, self.local()) else { return None };
        let first = match db.feed_after(SeqNo::ZERO) {
            Err(Error::FeedTruncated { oldest }) => oldest.get(),
            feed => feed.ok()?.position().get(),
        };
        // Another server numbered the commits before the base. They may exist here as well.
        base.seq_of(first.max(base.local))
    }

    /// Returns whether a commit is visible.
    pub fn has(&self, at: Position) -> bool {
        let state = self.state.lock();
        state.history.relation(self.position_in(&state).seq, at) == Relation::Prefix
    }

    /// Returns the number in the history of a commit of this primary.
    pub fn version(&self, local: u64) -> u64 {
        match self.state.lock().role {
            Role::Primary(base) => base.seq_of(local).unwrap_or(local),
            _ => local,
        }
    }

    /// Returns the number of replicas that have applied a commit, or have it durably, and whose word counts
    /// (ballot.3).
    pub fn confirmed(&self, seq: u64, is_durable: bool) -> usize {
        self.replicas.count(self.ballot().number, seq, is_durable)
    }

    /// Returns the newest durable commit of a replica.
    pub fn durable(&self) -> u64 {
        self.state.lock().durable
    }

    /// Becomes a replica. `may_discard`: its data may be discarded if it is not part of the primary's
    /// history.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn become_replica(&self, source: Source, may_discard: bool) -> Result<()> {
        let _turn = self.take_turn();
        self.step_down(source, may_discard, None)
    }

    /// The same in the turn, and records an election.
    fn step_down(&self, source: Source, may_discard: bool, elected: Option<Ballot>) -> Result<()> {
        let Some((db, records)) = self.local() else {
            return Err(Error::Invalid(NO_DATABASE.to_owned()));
        };
        self.is_replica.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        let role = Role::Replica(source);
        let ballot = elected.unwrap_or(state.ballot);
        let written = match state.role {
            Role::Primary(base) => loop {
                let seq = base.seq_of(db.snapshot().seqno().get()).unwrap_or_default();
                let position = Position { epoch: state.history.epoch_of(seq), seq };
                let local = records.write_elected(&role, Some(position), ballot);
                // Only the engine itself commits by now.
                match local {
                    Ok(local) if base.seq_of(local) != Some(seq + 1) => {}
                    Ok(local) => {
                        (state.applied, state.applied_local, state.durable) = (position, local, seq);
                        break Ok(());
                    }
                    Err(error) => break Err(error),
                }
            },
            _ => records.write_elected(&role, None, ballot).map(drop),
        };
        if let Err(error) = written {
            self.is_replica.store(matches!(state.role, Role::Replica(_)), Ordering::Relaxed);
            return Err(error);
        }
        (state.role, state.ballot, state.may_discard) = (role, ballot, may_discard);
        state.durable = state.applied.seq;
        self.has_changed(state);
        Ok(())
    }

    /// Becomes a primary. Returns false if it is one already.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn become_primary(&self) -> Result<bool> {
        let _turn = self.take_turn();
        let state = self.state.lock();
        let epoch = state.history.newest().next();
        self.rise_to(state, epoch)
    }

    /// Becomes a primary with this epoch, in the turn. Returns false if it is one already.
    fn rise_to(&self, mut state: MutexGuard<'_, State>, epoch: Epoch) -> Result<bool> {
        let (Role::Replica(_), Some((_, records))) = (&state.role, self.local()) else { return Ok(false) };
        state.role = rise(records, state.applied.seq, epoch)?;
        state.history = records.history()?;
        self.is_replica.store(false, Ordering::Relaxed);
        self.has_changed(state);
        Ok(true)
    }

    /// Does `work`, after which a received copy replaces the data, unless the role has changed since `term`.
    /// No promise comes between (ballot.4).
    pub(crate) fn replace(
        &self,
        term: u64,
        work: impl FnOnce(Ballot) -> std::result::Result<(), String>,
    ) -> std::result::Result<(), String> {
        let _turn = self.take_turn();
        let (now, ballot) = {
            let state = self.state.lock();
            (state.term, state.ballot)
        };
        if now != term {
            return Err("the role of this server has changed".to_owned());
        }
        work(ballot)?;
        self.state.lock().is_over = true;
        Ok(())
    }

    /// Ends the connections of followers after a change of the role. They have to ask again.
    fn has_changed(&self, mut state: MutexGuard<'_, State>) {
        state.term += 1;
        state.upstream = Upstream::default();
        drop(state);
        self.replicas.end_all();
        self.tell();
    }

    fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Wakes tasks that wait for progress.
    pub fn tell(&self) {
        self.moved.notify_waiters();
    }

    /// Waits until `is_so` holds, for at most this many milliseconds (0: no limit).
    pub async fn wait(&self, ms: u64, is_so: impl Fn() -> bool) {
        let deadline = (ms > 0).then(|| clock::moment() + Duration::from_millis(ms));
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if is_so() {
                return;
            }
            match deadline {
                None => moved.await,
                Some(at) => {
                    if tokio::time::timeout_at(at.into(), moved).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Returns whether there are commits after this one, by the engine's numbers.
    pub(crate) fn has_more_than(&self, local: u64) -> bool {
        self.local().is_some_and(|(db, _)| db.snapshot().seqno().get() > local)
    }

    /// Makes all commits so far durable, so that they can be sent.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn sync(&self) -> Result<()> {
        self.local().map_or(Ok(()), |(db, _)| db.sync())
    }

    /// Makes commits durable for replicas, at most once in this time however many replicas there are.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub(crate) fn sync_for_replicas(&self, every: Duration) -> Result<()> {
        let now = clock::moment();
        let mut synced = self.synced.lock();
        if synced.is_some_and(|at| now.saturating_duration_since(at) < every) {
            return Ok(());
        }
        *synced = Some(now);
        drop(synced);
        self.sync()
    }
}

/// Returns whether a primary's records belong to this database, and were not loaded from another one (`esker
/// load`).
fn fits(records: &Records, base: Base, visible: u64) -> Result<bool> {
    let start = records.history()?.epochs().last().map_or(0, |(_, start)| *start);
    Ok(base.seq_of(visible).is_some_and(|last| last >= start))
}

/// Begins an epoch after this commit, as a primary.
fn rise(records: &Records, last: u64, epoch: Epoch) -> Result<Role> {
    let local = records.begin_epoch(epoch, |_| last, &Role::Rising(last))?;
    let role = Role::Primary(Base { local, seq: last + 1 });
    records.write_role(&role, None)?;
    Ok(role)
}
