//! Locks on keys and names: who wants to be sure before it writes, waits here instead of conflicting at its commit.
//!
//! ```text
//!   owner --acquire--> nobody in the way? granted
//!                      else into the lock's queue --is there a cycle of waits?--> its youngest owner fails
//!                                                 `--given back, or the time is over
//! ```
//!
//! locks.1. A lock has holders that are all shared, or a single exclusive one. Those that wait get it in the order in which they asked; one that
//!      holds it shared and wants it exclusively comes first.
//! locks.2. Of each cycle of owners that wait for each other the one that began last fails, and is told the cycle.
//! locks.3. Locks are advice: they keep off who asks for them. Commits do not ask.
//! locks.4. While the first that waits wakes up, others that do not have to wait for a thread to run may take the lock, but at most
//!      [`BARGES_MAX`] of them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::handle::Handle;
use crate::types::{Error, Result};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// By any number at once.
    Shared,
    /// By one alone.
    Exclusive,
}

/// What can be locked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LockName {
    /// A key, as it is stored, and the name of its keyspace.
    Key(String, Vec<u8>),
    /// A name of the user's.
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

/// Who holds or wants locks: a transaction, or a guard. Later ones have larger numbers.
pub(crate) type OwnerId = u64;

/// So many others take a lock at most before the first that waits for it (locks.4). Waking a thread takes as long as some short transactions.
const BARGES_MAX: u32 = 16;

struct Waiting {
    owner: OwnerId,
    mode: LockMode,
    /// It is the youngest of this cycle (locks.2).
    deadlock: Option<String>,
    /// Its thread waits here: nobody else is woken when it gets the lock.
    wake: Arc<Condvar>,
}

#[derive(Default)]
struct Lock {
    holders: Vec<(OwnerId, LockMode)>,
    queue: VecDeque<Waiting>,
    /// How many have taken it since the queue has been given it.
    barges: u32,
}

impl Lock {
    /// Whether an owner may have it, as far as the holders go.
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

    /// Gives it to those at the head of the queue that may have it (locks.1).
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

    /// A holder has given it back: the first that waits gets it, or is woken to take it (locks.4).
    fn pass_on(&mut self) {
        if self.barges >= BARGES_MAX {
            self.grant_queue();
        } else if let Some(first) = self.queue.front() {
            first.wake.notify_one();
        }
    }

    /// For whom the one at this place of the queue waits.
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

#[derive(Default)]
struct Table {
    locks: HashMap<LockName, Lock>,
    /// What each owner waits for. A thread of it waits, so it is one thing.
    waits: HashMap<OwnerId, LockName>,
    next_owner: OwnerId,
}

/// All locks of a database.
#[derive(Default)]
pub(crate) struct Locks {
    table: Mutex<Table>,
}

impl Table {
    /// The owners and locks on the way from an owner back to itself, if there is one.
    fn cycle(&self, start: OwnerId) -> Option<Vec<(OwnerId, LockName)>> {
        let mut seen = BTreeSet::new();
        let mut way: Vec<(OwnerId, LockName)> = Vec::new();
        self.search(start, start, &mut seen, &mut way).then_some(way)
    }

    fn search(
        &self,
        at: OwnerId,
        start: OwnerId,
        seen: &mut BTreeSet<OwnerId>,
        way: &mut Vec<(OwnerId, LockName)>,
    ) -> bool {
        let Some(name) = self.waits.get(&at) else { return false };
        let lock = &self.locks[name];
        let Some(place) = lock.queue.iter().position(|waiting| waiting.owner == at) else { return false };
        way.push((at, name.clone()));
        for blocker in lock.blockers(place) {
            if blocker == start || seen.insert(blocker) && self.search(blocker, start, seen, way) {
                return true;
            }
        }
        way.pop();
        false
    }

    /// Has the youngest owner of a cycle that goes through this one fail; false if there is none.
    fn break_cycle(&mut self, owner: OwnerId) -> bool {
        let Some(way) = self.cycle(owner) else { return false };
        let shown = |(owner, name): &(OwnerId, LockName)| format!("owner {owner} waits for {}", name.shown());
        let text = way.iter().map(shown).collect::<Vec<_>>().join(", ");
        let (youngest, name) = way.iter().max_by_key(|step| step.0).expect("a cycle has owners");
        let lock = self.locks.get_mut(name).expect("somebody waits for it");
        if let Some(waiting) = lock.queue.iter_mut().find(|waiting| waiting.owner == *youngest) {
            waiting.deadlock = Some(text);
            waiting.wake.notify_one();
        }
        self.waits.remove(youngest);
        true
    }

    /// Takes an owner out of a queue; the cycle that it was the youngest of, if it was.
    fn leave(&mut self, owner: OwnerId, name: &LockName) -> Option<String> {
        self.waits.remove(&owner);
        let lock = self.locks.get_mut(name)?;
        let place = lock.queue.iter().position(|waiting| waiting.owner == owner)?;
        let left = lock.queue.remove(place);
        lock.grant_queue();
        self.drop_unused(name);
        left.and_then(|waiting| waiting.deadlock)
    }

    fn drop_unused(&mut self, name: &LockName) {
        if self.locks.get(name).is_some_and(|lock| lock.holders.is_empty() && lock.queue.is_empty()) {
            self.locks.remove(name);
        }
    }
}

impl Locks {
    fn acquire(&self, owner: OwnerId, name: &LockName, mode: LockMode, patience: Duration) -> Result<()> {
        let mut table = self.table.lock();
        let lock = table.locks.entry(name.clone()).or_default();
        let held = lock.holds(owner);
        if held == Some(LockMode::Exclusive) || held == Some(mode) {
            return Ok(());
        }
        let is_first = lock.queue.is_empty() || held.is_some();
        if (is_first || lock.barges < BARGES_MAX) && lock.admits(owner, mode) {
            lock.barges += u32::from(!is_first);
            lock.grant(owner, mode);
            return Ok(());
        }
        let wake = Arc::new(Condvar::new());
        let waiting = Waiting { owner, mode, deadlock: None, wake: wake.clone() };
        // locks.1
        if held.is_some() {
            lock.queue.push_front(waiting)
        } else {
            lock.queue.push_back(waiting)
        }
        table.waits.insert(owner, name.clone());
        while table.break_cycle(owner) {}
        let is_waiting = |table: &mut Table| {
            let Some(lock) = table.locks.get_mut(name) else { return false };
            let place = lock.queue.iter().position(|waiting| waiting.owner == owner);
            let Some(place) = place.filter(|place| lock.queue[*place].deadlock.is_none()) else {
                return false;
            };
            if place > 0 || !lock.admits(owner, mode) {
                return true;
            }
            lock.grant_queue();
            false
        };
        let waited = wake.wait_while_for(&mut table, is_waiting, patience);
        let is_over = waited.timed_out() && is_waiting(&mut table);
        let cycle = table.leave(owner, name);
        match cycle {
            Some(cycle) => Err(Error::Deadlock(cycle)),
            None if is_over => Err(Error::LockTimeout { lock: name.shown(), waited: patience }),
            None => Ok(()),
        }
    }

    /// Gives back what an owner holds of these.
    fn give_back(&self, owner: OwnerId, names: &[LockName]) {
        let mut table = self.table.lock();
        for name in names {
            if let Some(lock) = table.locks.get_mut(name) {
                lock.holders.retain(|holder| holder.0 != owner);
                lock.pass_on();
                table.drop_unused(name);
            }
        }
    }

    fn new_owner(&self) -> OwnerId {
        let mut table = self.table.lock();
        table.next_owner += 1;
        table.next_owner
    }

    /// How many are held or waited for.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.table.lock().locks.len()
    }
}

/// The locks of one owner; given back when it drops.
pub(crate) struct Owner {
    handle: Arc<Handle>,
    id: OwnerId,
    held: Vec<LockName>,
}

impl Owner {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        let id = handle.core.locks.new_owner();
        Owner { handle, id, held: Vec::new() }
    }

    /// Takes a lock, or one that it has in another way, and waits no longer than this.
    pub(crate) fn acquire(&mut self, name: LockName, mode: LockMode, patience: Duration) -> Result<()> {
        self.handle.core.check_open()?;
        self.handle.core.locks.acquire(self.id, &name, mode, patience)?;
        if !self.held.contains(&name) {
            self.held.push(name);
        }
        Ok(())
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.handle.core.locks.give_back(self.id, &self.held);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn name(name: &str) -> LockName {
        LockName::Name(name.to_owned())
    }

    fn waiters(locks: &Locks) -> usize {
        locks.table.lock().waits.len()
    }

    fn until(condition: impl Fn() -> bool) {
        while !condition() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn locks_1_shared_holders_share_and_exclusive_ones_do_not() {
        let locks = Locks::default();
        let [a, b, c] = [1, 2, 3];
        let lock = name("x");
        let try_now = |owner, mode| locks.acquire(owner, &lock, mode, Duration::ZERO).is_ok();
        assert!(try_now(a, LockMode::Shared) && try_now(b, LockMode::Shared));
        assert!(!try_now(c, LockMode::Exclusive) && !try_now(a, LockMode::Exclusive));
        locks.give_back(b, std::slice::from_ref(&lock));
        assert!(try_now(a, LockMode::Exclusive), "the only one that shares it");
        assert!(try_now(a, LockMode::Shared) && !try_now(c, LockMode::Shared));
        locks.give_back(a, std::slice::from_ref(&lock));
        assert!(try_now(c, LockMode::Exclusive));
        locks.give_back(c, std::slice::from_ref(&lock));
        assert_eq!((locks.len(), waiters(&locks)), (0, 0), "nothing is left behind");
    }

    #[test]
    fn locks_1_they_come_in_the_order_in_which_they_asked() {
        let locks = Locks::default();
        let (lock, order) = (name("x"), Mutex::new(Vec::new()));
        locks.acquire(100, &lock, LockMode::Exclusive, LONG).unwrap();
        std::thread::scope(|scope| {
            for owner in 1..6 {
                let (locks, lock, order) = (&locks, &lock, &order);
                scope.spawn(move || {
                    locks.acquire(owner, lock, LockMode::Exclusive, LONG).unwrap();
                    order.lock().push(owner);
                    locks.give_back(owner, std::slice::from_ref(lock));
                });
                until(|| waiters(locks) == owner as usize);
            }
            locks.give_back(100, std::slice::from_ref(&lock));
        });
        assert_eq!(*order.lock(), [1, 2, 3, 4, 5], "locks.1");
    }

    #[test]
    fn locks_2_the_youngest_of_a_cycle_fails_and_the_others_go_on() {
        for first in 0..3 {
            let locks = Locks::default();
            let (names, failed) = (["x", "y", "z"].map(name), AtomicU32::new(0));
            for owner in 0..3 {
                locks.acquire(owner + 1, &names[owner as usize], LockMode::Exclusive, LONG).unwrap();
            }
            std::thread::scope(|scope| {
                // Whoever closes the cycle, the youngest is found.
                for n in 0..3 {
                    let (locks, names, failed) = (&locks, &names, &failed);
                    let owner = (first + n) % 3;
                    scope.spawn(move || {
                        let next = &names[(owner + 1) % 3];
                        match locks.acquire(owner as u64 + 1, next, LockMode::Exclusive, LONG) {
                            Ok(()) => locks.give_back(owner as u64 + 1, std::slice::from_ref(next)),
                            Err(Error::Deadlock(cycle)) => {
                                assert_eq!(owner, 2, "locks.2: {cycle}");
                                assert_eq!(cycle.matches("waits for").count(), 3, "{cycle}");
                                failed.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(other) => panic!("{other}"),
                        }
                        locks.give_back(owner as u64 + 1, &names[owner..=owner]);
                    });
                    until(|| n == 2 || waiters(locks) == n + 1);
                }
            });
            assert_eq!((failed.load(Ordering::Relaxed), locks.len(), waiters(&locks)), (1, 0, 0), "locks.2");
        }
    }

    #[test]
    fn locks_2_two_that_share_a_lock_and_both_want_it_alone_are_a_cycle() {
        let locks = Locks::default();
        let lock = name("x");
        locks.acquire(1, &lock, LockMode::Shared, LONG).unwrap();
        locks.acquire(2, &lock, LockMode::Shared, LONG).unwrap();
        std::thread::scope(|scope| {
            let older = scope.spawn(|| locks.acquire(1, &lock, LockMode::Exclusive, LONG));
            until(|| waiters(&locks) == 1);
            let younger = locks.acquire(2, &lock, LockMode::Exclusive, LONG);
            assert!(matches!(younger, Err(Error::Deadlock(_))), "locks.2: {younger:?}");
            locks.give_back(2, std::slice::from_ref(&lock));
            older.join().unwrap().unwrap();
        });
    }

    #[test]
    fn locks_4_who_waits_gets_it_after_a_few_others_at_the_most() {
        let locks = Locks::default();
        let lock = name("x");
        let mut longest = 0;
        for round in 0..50 {
            let first = round * 1000;
            locks.acquire(first, &lock, LockMode::Exclusive, LONG).unwrap();
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| locks.acquire(first + 999, &lock, LockMode::Exclusive, LONG));
                until(|| waiters(&locks) == 1);
                let (mut owner, mut barged) = (first, 0);
                loop {
                    locks.give_back(owner, std::slice::from_ref(&lock));
                    owner += 1;
                    if locks.acquire(owner, &lock, LockMode::Exclusive, Duration::ZERO).is_err() {
                        break;
                    }
                    barged += 1;
                }
                waiter.join().unwrap().unwrap();
                longest = longest.max(barged);
            });
            locks.give_back(first + 999, std::slice::from_ref(&lock));
        }
        assert!(longest <= BARGES_MAX, "locks.4: {longest}");
        assert_eq!(locks.len(), 0);
    }

    #[test]
    fn who_has_waited_long_enough_is_told_and_leaves_the_queue() {
        let locks = Locks::default();
        let lock = name("x");
        locks.acquire(1, &lock, LockMode::Exclusive, LONG).unwrap();
        let short = Duration::from_millis(5);
        let failed = locks.acquire(2, &lock, LockMode::Shared, short);
        assert!(matches!(failed, Err(Error::LockTimeout { waited, .. }) if waited == short));
        locks.give_back(1, &[lock]);
        assert_eq!((locks.len(), waiters(&locks)), (0, 0));
    }
}
