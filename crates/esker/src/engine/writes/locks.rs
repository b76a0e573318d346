//! Locks on keys and names. A transaction that locks a key waits here instead of conflicting at its commit.
//!
//! ```text
//!   owner --acquire--> no other in the way? granted
//!                      else into the lock's queue --is there a cycle of waits?--> its youngest owner fails
//!                                                 `--released, or the patience ends
//! ```
//!
//! - A lock has any number of shared holders, or a single exclusive one. Waiting owners get it in
//!   order. An owner that holds it shared and wants it exclusively comes first.
//!
//! locks.2. In each cycle of owners that wait for each other, the youngest that waits for a lock fails with
//!     [`Error::Deadlock`]. An owner also waits while its thread waits for another's exclusive turn
//!     (`locks/cycles.rs`).
//! - Locks are advisory: they block only other lock requests. Commits do not check them.
//! - While the first waiting thread wakes up, running threads may take the lock, but at most [`BARGES_MAX`]
//!   of them. No owner passes a waiting task, which may take much longer to ask again.
//! - When the database closes, all waits end with [`Error::Closed`].
//! - A task does not block: it asks, and is woken to ask again. It stays in the queue until it gets
//!   the lock, fails or gives up.

mod cycles;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
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
    /// A name chosen by the user, in a namespace chosen by the user.
    Name(String, Vec<u8>),
}

impl LockName {
    /// Returns the lock name for a name that a caller of [`Db::lock`](crate::Db::lock) chose.
    pub(crate) fn of_user(name: &str) -> Self {
        LockName::Name(String::new(), name.into())
    }

    fn shown(&self) -> String {
        match self {
            LockName::Key(keyspace, key) => {
                let user_key = crate::types::key::decode_key(key).map_or(&key[..], |(_, user_key)| user_key);
                format!("\"{}\" in keyspace {keyspace:?}", user_key.escape_ascii())
            }
            LockName::Name(space, name) if space.is_empty() => format!("\"{}\"", name.escape_ascii()),
            LockName::Name(space, name) => format!("\"{}\" in {space:?}", name.escape_ascii()),
        }
    }
}

/// Identifies a holder of locks: a transaction or a guard. Later ones have larger numbers.
pub(crate) type OwnerId = u64;

/// The answer to a task that asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The task got the lock.
    Granted,
    /// The task had the lock already, perhaps in another mode.
    Held,
    /// The task does not have the lock. With a waker, it is in the queue.
    Waits,
}

/// Number of owners that may take a lock before the first in its queue. Waking a thread takes as
/// long as some short transactions.
const BARGES_MAX: u32 = 16;

struct Waiting {
    owner: OwnerId,
    mode: LockMode,
    /// The cycle, if this owner was chosen to fail in it (locks.2).
    deadlock: Option<String>,
    wake: Wake,
}

/// How an owner learns that it may have the lock.
enum Wake {
    /// Wakes only the thread of this owner.
    Thread(Arc<Condvar>),
    /// Wakes the task, which asks again.
    Task(Waker),
}

impl Wake {
    fn wake(&self) {
        match self {
            Wake::Thread(condvar) => drop(condvar.notify_one()),
            Wake::Task(waker) => waker.wake_by_ref(),
        }
    }
}

#[derive(Default)]
struct Lock {
    holders: Vec<(OwnerId, LockMode)>,
    queue: VecDeque<Waiting>,
    /// Number of owners that took it ahead of the queue since the queue last got it.
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

    fn position_of(&self, owner: OwnerId) -> Option<usize> {
        self.queue.iter().position(|waiting| waiting.owner == owner)
    }

    fn grant(&mut self, owner: OwnerId, mode: LockMode) {
        self.holders.retain(|holder| holder.0 != owner);
        self.holders.push((owner, mode));
    }

    /// Grants the lock to the owners at the head of the queue that may hold it. Stops at a task,
    /// and wakes it to take the lock.
    fn grant_queue(&mut self) {
        while let Some(first) = self.queue.front()
            && self.admits(first.owner, first.mode)
        {
            first.wake.wake();
            if matches!(first.wake, Wake::Task(_)) {
                return;
            }
            let first = self.queue.pop_front().expect("it was just seen");
            self.barges = 0;
            self.grant(first.owner, first.mode);
        }
    }

    /// Handles a release: grants the lock to the first in the queue, or wakes it to take the lock.
    fn pass_on(&mut self) {
        match self.queue.front() {
            Some(Waiting { wake: Wake::Thread(thread), .. }) if self.barges < BARGES_MAX => {
                thread.notify_one();
            }
            _ => self.grant_queue(),
        }
    }

    /// Returns whether an owner outside the queue may take the lock.
    fn is_free_for(&self, owner: OwnerId, mode: LockMode) -> bool {
        let may_pass = match self.queue.front() {
            None => true,
            Some(Waiting { wake: Wake::Thread(_), .. }) => self.barges < BARGES_MAX,
            Some(Waiting { wake: Wake::Task(_), .. }) => false,
        };
        (may_pass || self.holds(owner).is_some()) && self.admits(owner, mode)
    }

    /// Adds an owner to the queue.
    fn enqueue(&mut self, owner: OwnerId, mode: LockMode, wake: Wake) {
        let waiting = Waiting { owner, mode, deadlock: None, wake };
        match self.holds(owner) {
            Some(_) => self.queue.push_front(waiting),
            None => self.queue.push_back(waiting),
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
    /// The lock for which each owner waits. There is only one: a thread is blocked, and a task leaves the
    /// queue when it asks for another lock.
    waits: HashMap<OwnerId, LockWait>,
    /// The thread that last took a lock or began a commit for each owner.
    threads: HashMap<OwnerId, ThreadId>,
    /// The threads that wait for the exclusive turn to end, and how to let them pass without it, if possible.
    turn_waits: HashMap<ThreadId, Option<LetPass>>,
    next_owner: OwnerId,
    /// Whether the database was closed.
    is_ended: bool,
}

/// All locks of a database.
#[derive(Default)]
pub(crate) struct Locks {
    table: Mutex<Table>,
}

impl Table {
    /// Returns the lock and the mode in which the owner holds it. Returns `None` if the owner holds it in
    /// this mode or exclusively.
    fn wanted(
        &mut self,
        owner: OwnerId,
        name: &LockName,
        mode: LockMode,
    ) -> Result<Option<(&mut Lock, Option<LockMode>)>> {
        if self.is_ended {
            return Err(Error::Closed);
        }
        let lock = self.locks.entry(name.clone()).or_default();
        let held = lock.holds(owner);
        Ok((held != Some(LockMode::Exclusive) && held != Some(mode)).then_some((lock, held)))
    }

    /// Ends a wait. Returns its queue entry if the owner did not get the lock.
    fn leave(&mut self, owner: OwnerId, name: &LockName) -> Option<Waiting> {
        self.waits.remove(&owner);
        let lock = self.locks.get_mut(name)?;
        let position = lock.position_of(owner)?;
        let left = lock.queue.remove(position);
        lock.grant_queue();
        self.drop_unused(name);
        left
    }

    fn stop_asking(&mut self, owner: OwnerId) {
        if let Some(wait) = self.waits.remove(&owner) {
            self.leave(owner, &wait.name);
        }
    }

    fn give_back(&mut self, owner: OwnerId, names: &[LockName]) {
        self.threads.remove(&owner);
        for name in names {
            if let Some(lock) = self.locks.get_mut(name) {
                lock.holders.retain(|holder| holder.0 != owner);
                lock.pass_on();
                self.drop_unused(name);
            }
        }
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
        table.threads.insert(owner, std::thread::current().id());
        let Some((lock, held)) = table.wanted(owner, name, mode)? else { return Ok(false) };
        if lock.is_free_for(owner, mode) {
            lock.barges += u32::from(!lock.queue.is_empty() && held.is_none());
            lock.grant(owner, mode);
            return Ok(held.is_none());
        }
        let wake = Arc::new(Condvar::new());
        lock.enqueue(owner, mode, Wake::Thread(wake.clone()));
        table
            .waits
            .insert(owner, LockWait { name: name.clone(), turn: exclusive_turn.held_by_this_thread() });
        table.break_cycles(owner, exclusive_turn);
        let is_waiting = |table: &mut Table| {
            let is_ended = table.is_ended;
            let Some(lock) = table.locks.get_mut(name) else { return false };
            let position = lock.position_of(owner);
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
            Some(_) if is_over => {
                Err(Error::LockTimeout { lock: format!("the lock on {}", name.shown()), waited: patience })
            }
            Some(_) => Err(Error::Closed),
        }
    }

    /// Takes a lock for a task, or puts the task into the queue and wakes it once it is worth asking again.
    /// Without a waker, the task does not wait.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Deadlock`]: the task has left the queue.
    pub(in crate::engine) fn ask(
        &self,
        owner: OwnerId,
        name: &LockName,
        mode: LockMode,
        waker: Option<&Waker>,
        exclusive_turn: &ExclusiveTurn,
    ) -> Result<Asked> {
        let mut table = self.table.lock();
        let asked =
            |lock: &Lock| lock.queue.iter().any(|waiting| (waiting.owner, waiting.mode) == (owner, mode));
        if table.waits.contains_key(&owner) && !table.locks.get(name).is_some_and(asked) {
            // It asks for another lock, or for another mode.
            table.stop_asking(owner);
        }
        let Some((lock, held)) = table.wanted(owner, name, mode)? else { return Ok(Asked::Held) };
        let position = lock.position_of(owner);
        let is_free = match position {
            Some(position) => {
                lock.queue[position].deadlock.is_none() && lock.blockers(position).next().is_none()
            }
            None => lock.is_free_for(owner, mode),
        };
        if is_free {
            lock.barges += u32::from(position.is_none() && !lock.queue.is_empty() && held.is_none());
            lock.grant(owner, mode);
            table.leave(owner, name);
            return Ok(if held.is_some() { Asked::Held } else { Asked::Granted });
        }
        match (position, waker) {
            (None, None) => {
                table.drop_unused(name);
                return Ok(Asked::Waits);
            }
            (None, Some(waker)) => {
                lock.enqueue(owner, mode, Wake::Task(waker.clone()));
                table.waits.insert(owner, LockWait { name: name.clone(), turn: None });
                table.break_cycles(owner, exclusive_turn);
            }
            (Some(position), Some(waker)) => lock.queue[position].wake = Wake::Task(waker.clone()),
            (Some(_), None) => (),
        }
        let lock = table.locks.get(name);
        let cycle = lock.and_then(|lock| lock.queue[lock.position_of(owner)?].deadlock.clone());
        if let Some(cycle) = cycle {
            table.leave(owner, name);
            return Err(Error::Deadlock(cycle));
        }
        Ok(Asked::Waits)
    }

    /// Ends the wait of a task.
    pub(in crate::engine) fn stop_asking(&self, owner: OwnerId) {
        self.table.lock().stop_asking(owner);
    }

    /// Ends all waits, and refuses later ones.
    pub(in crate::engine) fn end(&self) {
        let mut table = self.table.lock();
        table.is_ended = true;
        for waiting in table.locks.values().flat_map(|lock| &lock.queue) {
            waiting.wake.wake();
        }
    }

    /// Releases those of these locks that an owner holds.
    pub(in crate::engine) fn give_back(&self, owner: OwnerId, names: &[LockName]) {
        self.table.lock().give_back(owner, names);
    }

    /// Releases these locks of an owner that drops, and ends its wait.
    pub(in crate::engine) fn leave(&self, owner: OwnerId, names: &[LockName]) {
        let mut table = self.table.lock();
        table.stop_asking(owner);
        table.give_back(owner, names);
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
