//! Locks on keys and names. A transaction that locks a key waits here instead of conflicting at its commit.
//!
//! ```text
//!   owner --acquire--> no other in the way? granted
//!                      else into the lock's queue --is there a cycle of waits?--> its youngest owner fails
//!                                                 `--released, or the patience ends
//! ```
//!
//! locks.1. A lock has any number of shared holders, or a single exclusive one. Waiting owners get it in
//!     order. An owner that holds it shared and wants it exclusively comes first.
//! locks.2. In each cycle of owners that wait for each other, the youngest that waits for a lock fails with
//!     [`Error::Deadlock`]. An owner also waits while its thread waits for another's exclusive turn
//!     (`locks/cycles.rs`).
//! locks.3. Locks are advisory: they block only other lock requests. Commits do not check them.
//! locks.4. While the first waiting thread wakes up, running threads may take the lock, but at most
//!     [`BARGES_MAX`] of them.
//! locks.5. When the database closes, all waits end with [`Error::Closed`].

mod cycles;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use self::cycles::LetPass;
use crate::engine::writes::exclusive_turn::{ExclusiveTurn, HeldAs};
use crate::types::{Error, Result};

/// The mode of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Any number of holders at a time.
    Shared,
    /// A single holder.
    Exclusive,
}

/// The object of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LockName {
    /// An encoded key, and the name of its keyspace.
    Key(String, Vec<u8>),
    /// A name chosen by the user.
    Name(String),
}

impl LockName {
    fn shown(&self) -> String {
        match self {
            LockName::Key(keyspace, key) => {
                let user_key = crate::types::key::decode_key(key).map_or(&key[..], |(_, user_key)| user_key);
                format!("\"{}\" in keyspace {keyspace:?}", user_key.escape_ascii())
            }
            LockName::Name(name) => format!("{name:?}"),
        }
    }
}

/// Identifies a holder of locks: a transaction or a guard. Later ones have larger numbers.
pub(crate) type OwnerId = u64;

/// Number of owners that may take a lock before the first in its queue (locks.4). Waking a thread takes as
/// long as some short transactions.
const BARGES_MAX: u32 = 16;

struct Waiting {
    owner: OwnerId,
    mode: LockMode,
    /// The cycle, if this owner was chosen to fail in it (locks.2).
    deadlock: Option<String>,
    /// Wakes only the thread of this owner.
    wake: Arc<Condvar>,
}

#[derive(Default)]
struct Lock {
    holders: Vec<(OwnerId, LockMode)>,
    queue: VecDeque<Waiting>,
    /// Number of owners that took it ahead of the queue since the queue last got it (locks.4).
    barges: u32,
}

impl Lock {
    /// Returns whether the current holders allow an owner to take it.
    fn admits(&self, owner: OwnerId, mode: LockMode) -> bool {
        let mut others = self.holders.iter().filter(|holder| holder.0 != owner);
        others.all(|holder| mode == LockMode::Shared && holder.1 == LockMode::Shared)
    }

    fn holds(&self, owner: OwnerId) -> Option<LockMode> {
        self.holders.iter().find(|holder| holder.0 == owner).map(|holder| holder.1)
    }

    fn grant(&mut self, owner: OwnerId, mode: LockMode) {
        self.holders.retain(|holder| holder.0 != owner);
        self.holders.push((owner, mode));
    }

    /// Grants the lock to the owners at the head of the queue that may hold it (locks.1).
    fn grant_queue(&mut self) {
        while let Some(first) = self.queue.front()
            && self.admits(first.owner, first.mode)
        {
            let first = self.queue.pop_front().expect("it was just seen");
            self.barges = 0;
            self.grant(first.owner, first.mode);
            first.wake.notify_one();
        }
    }

    /// Handles a release: grants the lock to the first in the queue, or wakes it to take the lock (locks.4).
    fn pass_on(&mut self) {
        if self.barges >= BARGES_MAX {
            self.grant_queue();
        } else if let Some(first) = self.queue.front() {
            first.wake.notify_one();
        }
    }

    /// Returns the owners for which the one at this position of the queue waits.
    fn blockers(&self, at: usize) -> impl Iterator<Item = OwnerId> {
        let Waiting { owner, mode, .. } = self.queue[at];
        let is_in_the_way = move |other: OwnerId, held: LockMode| {
            other != owner && (mode == LockMode::Exclusive || held == LockMode::Exclusive)
        };
        let holders = self.holders.iter().map(|holder| (holder.0, holder.1));
        let before = self.queue.iter().take(at).map(|waiting| (waiting.owner, waiting.mode));
        holders.chain(before).filter(move |other| is_in_the_way(other.0, other.1)).map(|other| other.0)
    }
}

/// A wait for a lock.
struct LockWait {
    name: LockName,
    /// How the waiting thread holds the exclusive turn, if it does.
    turn: Option<HeldAs>,
}

#[derive(Default)]
struct Table {
    locks: HashMap<LockName, Lock>,
    /// The lock for which each owner waits. The owner's thread is blocked, so there is only one.
    waits: HashMap<OwnerId, LockWait>,
    /// The thread that last took a lock or began a commit for each owner.
    threads: HashMap<OwnerId, ThreadId>,
    /// The threads that wait for the exclusive turn to end, and how to let them pass without it, if possible.
    turn_waits: HashMap<ThreadId, Option<LetPass>>,
    next_owner: OwnerId,
    /// Whether the database was closed (locks.5).
    is_ended: bool,
}

/// All locks of a database.
#[derive(Default)]
pub(crate) struct Locks {
    table: Mutex<Table>,
}

impl Table {
    /// Ends a wait. Returns its queue entry if the owner did not get the lock.
    fn leave(&mut self, owner: OwnerId, name: &LockName) -> Option<Waiting> {
        self.waits.remove(&owner);
        let lock = self.locks.get_mut(name)?;
        let position = lock.queue.iter().position(|waiting| waiting.owner == owner)?;
        let left = lock.queue.remove(position);
        lock.grant_queue();
        self.drop_unused(name);
        left
    }

    fn drop_unused(&mut self, name: &LockName) {
        if self.locks.get(name).is_some_and(|lock| lock.holders.is_empty() && lock.queue.is_empty()) {
            self.locks.remove(name);
        }
    }
}

impl Locks {
    /// Takes a lock for an owner. Returns false if the owner has it already.
    pub(in crate::engine) fn acquire(
        &self,
        owner: OwnerId,
        name: &LockName,
        mode: LockMode,
        patience: Duration,
        exclusive_turn: &ExclusiveTurn,
    ) -> Result<bool> {
        let mut table = self.table.lock();
        if table.is_ended {
            return Err(Error::Closed);
        }
        table.threads.insert(owner, std::thread::current().id());
        let lock = table.locks.entry(name.clone()).or_default();
        let held = lock.holds(owner);
        if held == Some(LockMode::Exclusive) || held == Some(mode) {
            return Ok(false);
        }
        let is_first = lock.queue.is_empty() || held.is_some();
        if (is_first || lock.barges < BARGES_MAX) && lock.admits(owner, mode) {
            lock.barges += u32::from(!is_first);
            lock.grant(owner, mode);
            return Ok(held.is_none());
        }
        let wake = Arc::new(Condvar::new());
        let waiting = Waiting { owner, mode, deadlock: None, wake: wake.clone() };
        // locks.1
        if held.is_some() {
            lock.queue.push_front(waiting)
        } else {
            lock.queue.push_back(waiting)
        }
        table
            .waits
            .insert(owner, LockWait { name: name.clone(), turn: exclusive_turn.held_by_this_thread() });
        table.break_cycles(owner, exclusive_turn);
        let is_waiting = |table: &mut Table| {
            let is_ended = table.is_ended;
            let Some(lock) = table.locks.get_mut(name) else { return false };
            let position = lock.queue.iter().position(|waiting| waiting.owner == owner);
            let Some(position) =
                position.filter(|position| lock.queue[*position].deadlock.is_none() && !is_ended)
            else {
                return false;
            };
            if position > 0 || !lock.admits(owner, mode) {
                return true;
            }
            lock.grant_queue();
            false
        };
        let waited = wake.wait_while_for(&mut table, is_waiting, patience);
        let is_over = waited.timed_out() && is_waiting(&mut table);
        match table.leave(owner, name) {
            None => Ok(held.is_none()),
            Some(Waiting { deadlock: Some(cycle), .. }) => Err(Error::Deadlock(cycle)),
            Some(_) if is_over => Err(Error::LockTimeout { lock: name.shown(), waited: patience }),
            Some(_) => Err(Error::Closed),
        }
    }

    /// Ends all waits, and refuses later ones (locks.5).
    pub(in crate::engine) fn end(&self) {
        let mut table = self.table.lock();
        table.is_ended = true;
        for waiting in table.locks.values().flat_map(|lock| &lock.queue) {
            waiting.wake.notify_one();
        }
    }

    /// Releases those of these locks that an owner holds. The owner takes no further lock.
    pub(in crate::engine) fn give_back(&self, owner: OwnerId, names: &[LockName]) {
        let mut table = self.table.lock();
        table.threads.remove(&owner);
        for name in names {
            if let Some(lock) = table.locks.get_mut(name) {
                lock.holders.retain(|holder| holder.0 != owner);
                lock.pass_on();
                table.drop_unused(name);
            }
        }
    }

    pub(in crate::engine) fn new_owner(&self) -> OwnerId {
        let mut table = self.table.lock();
        table.next_owner += 1;
        table.next_owner
    }

    /// Records that this thread commits for an owner.
    pub(in crate::engine) fn note_thread(&self, owner: OwnerId) {
        self.table.lock().threads.insert(owner, std::thread::current().id());
    }

    /// Number of locks that are held or waited for.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.table.lock().locks.len()
    }
}

#[cfg(test)]
mod tests;
