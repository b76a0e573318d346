//! Replication: a primary sends its commits, in order and once they are durable; replicas apply them.
//!
//! ```text
//!   primary: feed --> outgoing --> sender ==frames==> follow --> following --> apply: one commit each :replica
//!               `--checkpoint--> copy_out ==========> copy_in --> a directory, exchanged for the replica's own
//!            replicas <---------- Ack ===============    replica: feed --> outgoing --> ... replicas of its own
//! ```
//!
//! replication.1. A commit is sent once it is durable here: no crash leaves a replica ahead of its primary.
//! replication.2. A replica's position is written by the commit that brings it there. It applies each number once, without a gap.
//! replication.3. Each start of a primary and each promotion begins an epoch, durable before anything of it is sent. A position that is none of this
//!      history's is refused: histories are never merged.
//! replication.4. A replica takes no writes but its primary's; it neither removes what has expired nor sweeps garbage.
//!
//! For users: docs/server.md. Bytes: docs/formats/replication.md

mod apply;
mod bytes;
mod changes;
mod copy_in;
mod copy_out;
mod disk;
mod follow;
mod following;
mod frame;
mod outgoing;
mod position;
mod records;
mod replicas;
mod sender;
#[cfg(test)]
mod simulation;
mod slots;
mod stream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esker::{Db, Error, Result, SeqNo};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

pub use self::apply::empty_database;
pub use self::changes::{Batch, KeyChange};
pub use self::disk::{exchange, finish_copy};
pub use self::follow::run as follow;
pub use self::frame::VERSION;
pub use self::position::{Epoch, Position};
pub use self::records::{KEYSPACE as RECORDS, Source, problem};
pub use self::sender::{Link, serve};
pub use self::slots::{Slot, is_name as is_slot_name};

use self::position::{History, Relation};
use self::records::{Base, Records, Role};
use self::replicas::Replicas;
use self::slots::Slots;
use crate::base::clock;
use crate::types::Database;

/// Names of keyspaces that begin with this are the server's own.
pub const OWN_PREFIX: &str = "es.";
/// See [`records`].
pub use self::records::NOTHING;

/// How the connection of a replica to its primary is.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    /// It gets commits.
    pub is_up: bool,
    /// It gets a copy.
    pub is_copying: bool,
    /// Why it is not up, if it was tried.
    pub error: Option<String>,
    /// When something came last, in milliseconds since 1970; 0: never.
    pub heard: u64,
    /// The newest commit that the primary has told of.
    pub newest: u64,
}

/// What is known of the replication of this server.
#[derive(Clone)]
struct State {
    role: Role,
    history: History,
    /// Of a replica: the newest commit that it has applied, and the engine's number of it or of one behind it.
    applied: Position,
    applied_local: u64,
    /// Of a replica: the newest commit that is on its disk.
    durable: u64,
    /// Counts changes of the role: who follows a primary stops when it changes.
    term: u64,
    /// Own data may be given up for a copy.
    may_discard: bool,
    upstream: Upstream,
}

/// The replication of a server.
pub struct Replication {
    local: Option<(Db, Records)>,
    state: Mutex<State>,
    /// Held by who applies a commit of the primary, and by who changes the role.
    turn: Mutex<()>,
    /// Relaxed: writes look at it again where they are committed, which comes one after the other with changes of the role.
    is_replica: AtomicBool,
    /// Whoever follows this server.
    pub replicas: Replicas,
    slots: Mutex<Slots>,
    /// Something has moved that somebody may wait for.
    moved: Notify,
    /// When it was last made durable for replicas.
    synced: Mutex<Option<Instant>>,
}

/// What a database numbers its commits from whose data may come from another one (`esker load`, a restore). Collections are told apart by such numbers: they have
/// to be larger than those which the other one has had. Nobody makes 2^24 commits a second, so the time is.
fn loaded_gap() -> u64 {
    ((clock::now_ms() / 1000) << 24).max(1 << 32)
}

/// What those are told who want replication where there is none.
const NO_DATABASE: &str = "ERR this store cannot be replicated";

impl Replication {
    /// Of a database, or of a store that is none. `source`: it is to be a replica of that primary.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(db: Option<&Db>, source: Option<Source>) -> Result<Self> {
        let local = match db {
            Some(db) => Some((db.clone(), Records::open(db)?)),
            None => None,
        };
        let nobody = Role::Primary(Base { local: 0, seq: 0 });
        let replication = Replication {
            state: Mutex::new(State {
                role: nobody,
                history: History::default(),
                applied: Position::default(),
                applied_local: 0,
                durable: 0,
                term: 0,
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
        let role = match records.role()? {
            // Made by a server without replication, or loaded.
            None if db.open_keyspace(&Database::names(0)[0]).is_ok() => {
                rise(records, visible() + loaded_gap())?
            }
            None => rise(records, visible())?,
            Some(Role::Rising(last)) => rise(records, last)?,
            Some(Role::Primary(base)) if !fits(records, base, visible())? => {
                let last = base.seq + loaded_gap() + visible();
                records.forget_epochs()?;
                rise(records, last)?
            }
            Some(Role::Primary(base)) if source.is_none() => {
                // replication.3: what this run commits is told from what another copy of the same files does.
                loop {
                    let last = base.seq_of(visible()).unwrap_or(base.seq);
                    let epoch = records.history()?.newest().next();
                    let local = records.begin_epoch(epoch, last, &Role::Primary(base))?;
                    if base.seq_of(local) == Some(last + 1) {
                        break Role::Primary(base);
                    }
                }
            }
            Some(role) => role,
        };
        let source = source.filter(|source| role != Role::Replica(source.clone()));
        let mut state = self.state.lock();
        state.history = records.history()?;
        state.applied_local = visible();
        state.applied = records.position()?.unwrap_or_default();
        state.durable = state.applied.seq;
        self.is_replica.store(matches!(role, Role::Replica(_)), Ordering::Relaxed);
        state.role = role;
        drop(state);
        self.read_slots(db, records)?;
        source.map_or(Ok(()), |source| self.become_replica(source, false))
    }

    fn local(&self) -> Option<&(Db, Records)> {
        self.local.as_ref()
    }

    /// Whether it takes no writes but its primary's.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Relaxed)
    }

    /// Where its primary is, if it has one.
    pub fn source(&self) -> Option<Source> {
        match &self.state.lock().role {
            Role::Replica(source) => Some(source.clone()),
            _ => None,
        }
    }

    /// How the connection to its primary is.
    pub fn upstream(&self) -> Upstream {
        self.state.lock().upstream.clone()
    }

    /// Epochs, and behind which commit each begins.
    pub fn epochs(&self) -> Vec<(Epoch, u64)> {
        self.state.lock().history.epochs().to_vec()
    }

    /// The newest commit that readers see.
    pub fn position(&self) -> Position {
        self.position_in(&self.state.lock())
    }

    fn position_in(&self, state: &State) -> Position {
        self.here_in(state).0
    }

    /// The newest commit that readers see, and the engine's number up to which this database has all up to that one.
    fn here_in(&self, state: &State) -> (Position, u64) {
        let (Role::Primary(base), Some((db, _))) = (&state.role, self.local()) else {
            return (state.applied, state.applied_local);
        };
        let local = db.snapshot().seqno().get();
        let seq = base.seq_of(local).unwrap_or_default();
        (Position { epoch: state.history.epoch_of(seq), seq }, local)
    }

    /// Of a primary: the first commit from which on a replica can go on without a copy; none if there is no log for replicas.
    pub fn first_kept(&self) -> Option<u64> {
        let role = self.state.lock().role.clone();
        let (Role::Primary(base), Some((db, _))) = (role, self.local()) else { return None };
        let first = match db.feed(SeqNo::ZERO) {
            Err(Error::FeedTruncated { oldest }) => oldest.get(),
            feed => feed.ok()?.position().get(),
        };
        // What lies before it was another's to number: it may be there, too.
        base.seq_of(first.max(base.local))
    }

    /// Whether readers see a commit.
    pub fn has(&self, at: Position) -> bool {
        let state = self.state.lock();
        state.history.relation(self.position_in(&state).seq, at) == Relation::Prefix
    }

    /// The number in the history of a commit of this primary.
    pub fn version(&self, local: u64) -> u64 {
        match self.state.lock().role {
            Role::Primary(base) => base.seq_of(local).unwrap_or(local),
            _ => local,
        }
    }

    /// Of a replica: the newest commit that is on its disk.
    pub fn durable(&self) -> u64 {
        self.state.lock().durable
    }

    /// Becomes a replica. `may_discard`: its data may be given up if it is none of the primary's history.
    ///
    /// # Errors
    /// The engine's.
    pub fn become_replica(&self, source: Source, may_discard: bool) -> Result<()> {
        let Some((db, records)) = self.local() else {
            return Err(Error::Invalid(NO_DATABASE.to_owned()));
        };
        let _turn = self.take_turn();
        self.is_replica.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        let role = Role::Replica(source);
        let written = match state.role {
            Role::Primary(base) => loop {
                let seq = base.seq_of(db.snapshot().seqno().get()).unwrap_or_default();
                let position = Position { epoch: state.history.epoch_of(seq), seq };
                let local = records.write_role(&role, Some(position));
                // Nothing but the engine itself commits by now.
                match local {
                    Ok(local) if base.seq_of(local) != Some(seq + 1) => {}
                    Ok(local) => {
                        (state.applied, state.applied_local, state.durable) = (position, local, seq);
                        break Ok(());
                    }
                    Err(error) => break Err(error),
                }
            },
            _ => records.write_role(&role, None).map(drop),
        };
        if let Err(error) = written {
            self.is_replica.store(matches!(state.role, Role::Replica(_)), Ordering::Relaxed);
            return Err(error);
        }
        state.role = role;
        state.may_discard = may_discard;
        self.has_changed(state);
        Ok(())
    }

    /// Becomes a primary; false if it is one.
    ///
    /// # Errors
    /// The engine's.
    pub fn become_primary(&self) -> Result<bool> {
        let _turn = self.take_turn();
        let mut state = self.state.lock();
        let (Role::Replica(_), Some((_, records))) = (&state.role, self.local()) else { return Ok(false) };
        state.role = rise(records, state.applied.seq)?;
        state.history = records.history()?;
        self.is_replica.store(false, Ordering::Relaxed);
        self.has_changed(state);
        Ok(true)
    }

    /// The role is another one: who follows has to ask again.
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

    /// Somebody may have waited for what has moved.
    pub fn tell(&self) {
        self.moved.notify_waiters();
    }

    /// Waits until something is so, or so many milliseconds are over (0: never).
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

    /// Whether there are commits behind this one, by the engine's numbers.
    fn has_more_than(&self, local: u64) -> bool {
        self.local().is_some_and(|(db, _)| db.snapshot().seqno().get() > local)
    }

    /// Makes everything so far durable, so that it can be sent.
    ///
    /// # Errors
    /// The engine's.
    pub fn sync(&self) -> Result<()> {
        self.local().map_or(Ok(()), |(db, _)| db.sync())
    }

    /// The same for replicas, however many there are: not more often than this.
    ///
    /// # Errors
    /// The engine's.
    fn sync_for_replicas(&self, every: Duration) -> Result<()> {
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

/// Whether the records of a primary are of this database, and were not loaded into it from another one (`esker load`).
fn fits(records: &Records, base: Base, visible: u64) -> Result<bool> {
    let start = records.history()?.epochs().last().map_or(0, |(_, start)| *start);
    Ok(base.seq_of(visible).is_some_and(|last| last >= start))
}

/// Begins an epoch behind this commit, as a primary.
fn rise(records: &Records, last: u64) -> Result<Role> {
    let epoch = records.history()?.newest().next();
    let local = records.begin_epoch(epoch, last, &Role::Rising(last))?;
    let role = Role::Primary(Base { local, seq: last + 1 });
    records.write_role(&role, None)?;
    Ok(role)
}
