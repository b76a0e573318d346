//! Named locks of connections.
//!
//! ```text
//!   acquire --nobody in the way--> held
//!           `-else: queue --would it wait for itself?--> deadlock
//!                      `--given back: the first that may is told to try again
//! ```
//!
//! named_locks.1. A lock has holders that are all shared, or one that is exclusive.
//! named_locks.2. Those that wait get it in the order in which they asked. One that holds it shared and wants it exclusively comes first.
//! named_locks.3. Of each cycle of connections that wait for each other, the one that closed it is refused. So nobody waits in a cycle.
//! named_locks.4. What was locked in a transaction is given back at its end, all else by the connection, or at its end.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use parking_lot::Mutex;

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By any number at once.
    Shared,
    /// By one alone.
    Exclusive,
}

impl Mode {
    /// The word for it.
    pub fn name(self) -> &'static str {
        if self == Mode::Shared { "shared" } else { "exclusive" }
    }
}

/// For how long a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until the transaction ends.
    TransactionEnd,
    /// Until it is given back.
    Unlock,
}

/// The name of a place, and the name in it.
pub type Name = (String, Vec<u8>);
/// A lock for people: its name, and how it is held or wanted.
pub type Listed = (Vec<u8>, Mode);
/// The number of a connection.
pub type Owner = u64;

/// The error of one that would wait for itself.
const DEADLOCK: &str = "DEADLOCK others wait for locks of this connection, and it would wait for theirs: give them back, by \
     rolling back the transaction or by ES.UNLOCK, and begin again";
/// The error of one that asks for too much.
const TOO_MANY: &str = "ERR the connection holds too many locks: give some back";
/// A connection holds so many locks at the most.
const LOCKS_MAX: usize = 1000;

#[derive(Default)]
struct Lock {
    holders: Vec<(Owner, Mode)>,
    queue: VecDeque<(Owner, Mode)>,
}

impl Lock {
    fn held_by(&self, owner: Owner) -> Option<Mode> {
        self.holders.iter().find(|holder| holder.0 == owner).map(|holder| holder.1)
    }

    /// Who is in the way of an owner that wants it: holders, and those that asked before.
    fn in_the_way(&self, owner: Owner, mode: Mode) -> impl Iterator<Item = Owner> {
        let before = self.queue.iter().take_while(move |waiting| waiting.0 != owner);
        let is_upgrade = self.held_by(owner).is_some();
        let before = before.filter(move |_| !is_upgrade);
        let others = self.holders.iter().filter(move |holder| holder.0 != owner).chain(before);
        let excludes = move |other: &&(Owner, Mode)| mode == Mode::Exclusive || other.1 == Mode::Exclusive;
        others.filter(excludes).map(|other| other.0)
    }

    fn is_free_for(&self, owner: Owner, mode: Mode) -> bool {
        self.in_the_way(owner, mode).next().is_none()
    }

    fn grant(&mut self, owner: Owner, mode: Mode) {
        self.queue.retain(|waiting| waiting.0 != owner);
        self.holders.retain(|holder| holder.0 != owner);
        self.holders.push((owner, mode));
    }

    /// Those at the head of the queue that may have it now.
    fn next(&self) -> impl Iterator<Item = Owner> {
        self.queue.iter().take_while(|(owner, mode)| self.is_free_for(*owner, *mode)).map(|waiting| waiting.0)
    }
}

/// Locks, and what each connection holds and wants.
#[derive(Default)]
struct Table {
    locks: HashMap<Name, Lock>,
    held: HashMap<Owner, BTreeMap<Name, Until>>,
    wanted: BTreeMap<Owner, (Name, Mode)>,
}

/// All named locks.
#[derive(Default)]
pub struct Locks {
    table: Mutex<Table>,
}

impl Table {
    /// Whether an owner waits for itself.
    fn is_cycle(&self, start: Owner) -> bool {
        let (mut seen, mut rest) = (BTreeSet::new(), vec![start]);
        while let Some(owner) = rest.pop() {
            let Some((name, mode)) = self.wanted.get(&owner) else { continue };
            let Some(lock) = self.locks.get(name) else { continue };
            for other in lock.in_the_way(owner, *mode) {
                if other == start {
                    return true;
                }
                if seen.insert(other) {
                    rest.push(other);
                }
            }
        }
        false
    }

    /// An owner waits no more. Who may try again now.
    fn leave_queue(&mut self, owner: Owner) -> Vec<Owner> {
        let Some((name, _)) = self.wanted.remove(&owner) else { return Vec::new() };
        if let Some(lock) = self.locks.get_mut(&name) {
            lock.queue.retain(|waiting| waiting.0 != owner);
        }
        self.next_of(&name)
    }

    /// An owner holds a lock no more. Who may try again now.
    fn give_back(&mut self, owner: Owner, name: &Name) -> Vec<Owner> {
        if let Some(held) = self.held.get_mut(&owner) {
            held.remove(name);
            if held.is_empty() {
                self.held.remove(&owner);
            }
        }
        if let Some(lock) = self.locks.get_mut(name) {
            lock.holders.retain(|holder| holder.0 != owner);
        }
        self.next_of(name)
    }

    fn next_of(&mut self, name: &Name) -> Vec<Owner> {
        match self.locks.get(name) {
            Some(lock) if lock.holders.is_empty() && lock.queue.is_empty() => {
                self.locks.remove(name);
                Vec::new()
            }
            Some(lock) => lock.next().collect(),
            None => Vec::new(),
        }
    }
}

impl Locks {
    /// Takes locks, one after the other. False: it has to wait for one of them, and to ask again.
    ///
    /// # Errors
    /// A deadlock (named_locks.3), or too many locks.
    pub fn acquire(
        &self,
        owner: Owner,
        names: &[Name],
        mode: Mode,
        until: Until,
    ) -> Result<bool, &'static str> {
        let mut table = self.table.lock();
        for name in names {
            let held = table.held.get(&owner);
            if held.is_some_and(|held| !held.contains_key(name) && held.len() >= LOCKS_MAX) {
                return Err(TOO_MANY);
            }
            let lock = table.locks.entry(name.clone()).or_default();
            match lock.held_by(owner) {
                Some(held) if held == mode || held == Mode::Exclusive => continue,
                held => {
                    if lock.is_free_for(owner, mode) {
                        lock.grant(owner, mode);
                        table.held.entry(owner).or_default().entry(name.clone()).or_insert(until);
                        table.wanted.remove(&owner);
                        continue;
                    }
                    if !lock.queue.iter().any(|waiting| waiting.0 == owner) {
                        match held {
                            // named_locks.2
                            Some(_) => lock.queue.push_front((owner, mode)),
                            None => lock.queue.push_back((owner, mode)),
                        }
                    }
                }
            }
            table.wanted.insert(owner, (name.clone(), mode));
            if table.is_cycle(owner) {
                // Nobody could have been kept waiting by its place in the queue, which is as old as this call.
                table.leave_queue(owner);
                return Err(DEADLOCK);
            }
            return Ok(false);
        }
        Ok(true)
    }

    /// A connection waits no more. Who may try again now.
    pub fn stop_waiting(&self, owner: Owner) -> Vec<Owner> {
        self.table.lock().leave_queue(owner)
    }

    /// A connection gives a lock back. Who may try again now; none if it does not hold it.
    ///
    /// # Errors
    /// Its transaction holds it (named_locks.4).
    pub fn unlock(&self, owner: Owner, name: &Name) -> Result<Option<Vec<Owner>>, &'static str> {
        let mut table = self.table.lock();
        match table.held.get(&owner).and_then(|held| held.get(name)) {
            None => Ok(None),
            Some(Until::Unlock) => Ok(Some(table.give_back(owner, name))),
            Some(Until::TransactionEnd) => {
                Err("ERR the transaction has locked it, and holds it until it ends")
            }
        }
    }

    /// The transaction of a connection has ended (named_locks.4). Who may try again now.
    pub fn end_transaction(&self, owner: Owner) -> Vec<Owner> {
        self.release(owner, |until| until == Until::TransactionEnd)
    }

    /// A connection has ended. Who may try again now.
    pub fn leave(&self, owner: Owner) -> Vec<Owner> {
        self.release(owner, |_| true)
    }

    fn release(&self, owner: Owner, is_meant: impl Fn(Until) -> bool) -> Vec<Owner> {
        let mut table = self.table.lock();
        let mut next = table.leave_queue(owner);
        let held = table.held.get(&owner).into_iter().flatten();
        let names: Vec<Name> =
            held.filter(|(_, until)| is_meant(**until)).map(|(name, _)| name.clone()).collect();
        for name in &names {
            next.extend(table.give_back(owner, name));
        }
        next
    }

    /// Whether a connection waits for a lock.
    pub fn is_waiting(&self, owner: Owner) -> bool {
        self.table.lock().wanted.contains_key(&owner)
    }

    /// What a connection holds, and what it wants.
    pub fn of(&self, owner: Owner) -> (Vec<Listed>, Option<Listed>) {
        let table = self.table.lock();
        let names = table.held.get(&owner).into_iter().flat_map(BTreeMap::keys);
        let mode_of = |name: &Name| table.locks.get(name).and_then(|lock| lock.held_by(owner));
        let held = names.filter_map(|name| Some((name.1.clone(), mode_of(name)?))).collect();
        (held, table.wanted.get(&owner).map(|(name, mode)| (name.1.clone(), *mode)))
    }

    /// How many locks are held or waited for.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.table.lock().locks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Mode::{Exclusive, Shared};
    use super::*;

    fn ask(locks: &Locks, owner: Owner, name: &str, mode: Mode) -> Result<bool, String> {
        let names = [("ks".to_owned(), name.as_bytes().to_vec())];
        locks.acquire(owner, &names, mode, Until::TransactionEnd).map_err(|error| error[..8].to_owned())
    }

    #[test]
    fn named_locks_1_named_locks_2_shared_ones_share_and_the_queue_is_kept() {
        let locks = Locks::default();
        assert_eq!((ask(&locks, 1, "a", Shared), ask(&locks, 2, "a", Shared)), (Ok(true), Ok(true)));
        assert_eq!(ask(&locks, 3, "a", Exclusive), Ok(false));
        assert_eq!(ask(&locks, 4, "a", Shared), Ok(false), "named_locks.2: 3 asked before");
        assert_eq!(ask(&locks, 1, "a", Shared), Ok(true), "it has it");
        assert!(locks.is_waiting(4));
        assert_eq!(locks.end_transaction(1), [] as [Owner; 0]);
        assert_eq!(locks.end_transaction(2), [3]);
        assert_eq!((ask(&locks, 4, "a", Shared), ask(&locks, 3, "a", Exclusive)), (Ok(false), Ok(true)));
        assert_eq!(locks.of(3), (vec![(b"a".to_vec(), Exclusive)], None));
        assert_eq!(locks.of(4), (vec![], Some((b"a".to_vec(), Shared))));
        assert_eq!((locks.end_transaction(3), ask(&locks, 4, "a", Shared)), (vec![4], Ok(true)));
        assert_eq!(ask(&locks, 4, "a", Exclusive), Ok(true));
        assert_eq!((locks.end_transaction(4), locks.len()), (vec![], 0));
    }

    #[test]
    fn named_locks_3_who_closes_a_cycle_is_refused() {
        let locks = Locks::default();
        for (owner, name) in [(1, "a"), (2, "b"), (3, "c")] {
            assert_eq!(ask(&locks, owner, name, Exclusive), Ok(true));
        }
        assert_eq!((ask(&locks, 1, "b", Shared), ask(&locks, 2, "c", Exclusive)), (Ok(false), Ok(false)));
        assert_eq!(ask(&locks, 3, "a", Shared), Err("DEADLOCK".to_owned()), "named_locks.3");
        assert_eq!(locks.end_transaction(3), [2]);
        assert_eq!((ask(&locks, 2, "c", Exclusive), locks.end_transaction(2)), (Ok(true), vec![1]));
        // Both hold it shared, and each wants it alone.
        assert_eq!((ask(&locks, 4, "s", Shared), ask(&locks, 5, "s", Shared)), (Ok(true), Ok(true)));
        assert_eq!(ask(&locks, 4, "s", Exclusive), Ok(false));
        assert_eq!(ask(&locks, 5, "s", Exclusive), Err("DEADLOCK".to_owned()), "named_locks.3");
        assert_eq!((locks.end_transaction(5), ask(&locks, 4, "s", Exclusive)), (vec![4], Ok(true)));
        assert_eq!([1, 4].map(|owner| locks.end_transaction(owner)), [vec![], vec![]]);
        assert_eq!(locks.len(), 0);
    }

    #[test]
    fn who_gives_up_lets_others_pass() {
        let locks = Locks::default();
        assert_eq!((ask(&locks, 1, "a", Shared), ask(&locks, 2, "a", Exclusive)), (Ok(true), Ok(false)));
        assert_eq!(ask(&locks, 3, "a", Shared), Ok(false));
        assert_eq!(locks.stop_waiting(2), [3]);
        assert_eq!(ask(&locks, 3, "a", Shared), Ok(true));
    }
    #[test]
    fn named_locks_4_what_a_transaction_locked_goes_with_it() {
        let locks = Locks::default();
        let name = |name: &str| ("ks".to_owned(), name.as_bytes().to_vec());
        assert_eq!(locks.acquire(1, &[name("own")], Exclusive, Until::Unlock), Ok(true));
        assert_eq!(ask(&locks, 1, "of transaction", Exclusive), Ok(true));
        assert_eq!(ask(&locks, 1, "own", Exclusive), Ok(true), "and it stays its own");
        assert_eq!(
            (ask(&locks, 2, "own", Shared), ask(&locks, 3, "of transaction", Shared)),
            (Ok(false), Ok(false))
        );
        assert!(locks.unlock(1, &name("of transaction")).is_err());
        assert_eq!(locks.end_transaction(1), [3], "named_locks.4");
        assert_eq!(locks.unlock(1, &name("of transaction")), Ok(None));
        assert_eq!(locks.unlock(1, &name("own")), Ok(Some(vec![2])));
        assert_eq!(ask(&locks, 2, "own", Shared), Ok(true));
        assert_eq!([2, 3].map(|owner| locks.leave(owner)), [vec![], vec![]]);
        assert_eq!(locks.len(), 0);
    }
}
