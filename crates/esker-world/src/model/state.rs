//! The model's state: keyspaces and their entries. Cloning is cheap, because maps are shared until they
//! change. Digests depend only on the contents.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use super::footprint::Footprint;
use super::keys::{self, KeyNo};
use super::map::{Map, scramble};
use super::values::ValueNo;
use crate::op::{KeyspaceNo, NAMES, NameChange, Op, Update, Write, until};

/// The identity of a keyspace, independent of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u32);

/// Name of the keyspace that always exists.
pub const DEFAULT: &str = "default";

/// One atomic change.
#[derive(Clone, Debug)]
pub enum Commit {
    /// Changes of entries.
    Writes(Vec<(Id, Write)>),
    /// Changes of keyspaces and their entries.
    Names(Vec<Named>),
}

/// A change of the keyspace that has this name at that point of the commit.
#[derive(Clone, Debug)]
pub enum Named {
    /// Creates a keyspace.
    Create(String),
    /// Drops a keyspace and its entries.
    Drop(String),
    /// Renames a keyspace.
    Rename(String, String),
    /// Writes to a keyspace.
    Write(String, Write),
}

impl Commit {
    /// Converts relative expiry times to absolute ones, for a commit at `now_ms` in `state`.
    pub fn dated(self, now_ms: u64, state: &State) -> Self {
        match self {
            Commit::Writes(writes) => {
                let dated = |(id, write): (Id, Write)| (id, write.dated(now_ms, state.lifetime_ms(id)));
                Commit::Writes(writes.into_iter().map(dated).collect())
            }
            Commit::Names(changes) => {
                let mut state = state.clone();
                let dated = |change: Named| {
                    let change = match change {
                        Named::Write(name, write) => {
                            let lifetime_ms = state.lifetime_ms(state.names[&name]);
                            Named::Write(name, write.dated(now_ms, lifetime_ms))
                        }
                        change => change,
                    };
                    state.apply_named(&change);
                    change
                };
                Commit::Names(changes.into_iter().map(dated).collect())
            }
        }
    }

    /// Returns its writes.
    pub fn writes(&self) -> impl Iterator<Item = &Write> {
        let (writes, changes): (&[_], &[_]) = match self {
            Commit::Writes(writes) => (writes, &[]),
            Commit::Names(changes) => (&[], changes),
        };
        let of_names = changes.iter().filter_map(|change| match change {
            Named::Write(_, write) => Some(write),
            _ => None,
        });
        writes.iter().map(|(_, write)| write).chain(of_names)
    }

    /// Returns whether it sets an expiry time.
    pub fn expires(&self) -> bool {
        self.writes().any(Write::expires)
    }
}

/// Why an operation must fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The default keyspace can neither be dropped nor renamed.
    Default,
    /// The name is in use.
    Exists(String),
}

/// The value is not a number, but the update requires one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotANumber;

/// The state of a database: all keyspaces.
#[derive(Clone, Debug)]
pub struct State {
    names: BTreeMap<String, Id>,
    maps: BTreeMap<Id, Arc<Map>>,
    /// Default lifetimes of keyspaces in milliseconds.
    lifetimes: BTreeMap<Id, u64>,
    /// Id of the next keyspace.
    next: Id,
}

impl State {
    /// Creates the state of a new database.
    pub fn new() -> Self {
        Self::with_names([DEFAULT.to_owned()])
    }

    /// Creates empty keyspaces with these names, oldest first.
    pub fn with_names(names: impl IntoIterator<Item = String>) -> Self {
        let mut state =
            State { names: BTreeMap::new(), maps: BTreeMap::new(), lifetimes: BTreeMap::new(), next: Id(0) };
        names.into_iter().for_each(|name| state.apply_named(&Named::Create(name)));
        state
    }

    /// Returns the keyspaces by name.
    pub fn names(&self) -> &BTreeMap<String, Id> {
        &self.names
    }

    /// Returns the default lifetime of a keyspace in milliseconds, or 0.
    pub fn lifetime_ms(&self, id: Id) -> u64 {
        self.lifetimes.get(&id).copied().unwrap_or(0)
    }

    /// Sets the default lifetime of a keyspace; 0 means none.
    pub fn set_lifetime_ms(&mut self, id: Id, ms: u64) {
        self.lifetimes.insert(id, ms);
    }

    /// Returns the entries of a keyspace; empty if it does not exist.
    pub fn map(&self, id: Id) -> Arc<Map> {
        self.maps.get(&id).cloned().unwrap_or_default()
    }

    /// Returns the entries of the keyspace with this name.
    pub fn named(&self, name: &str) -> Option<Arc<Map>> {
        self.names.get(name).map(|id| self.map(*id))
    }

    /// Applies a write.
    pub fn write(&mut self, id: Id, write: &Write) {
        Arc::make_mut(self.maps.entry(id).or_default()).write(write);
    }

    /// Returns whether any entry expires.
    pub fn expires(&self) -> bool {
        self.maps.values().any(|map| !map.until().is_empty())
    }

    /// Removes entries that have expired by `now_ms`. Returns whether there were any.
    pub fn expire(&mut self, now_ms: u64) -> bool {
        let is_due = |map: &Arc<Map>| map.until().values().any(|until| *until <= now_ms);
        let due: Vec<_> = self.maps.values_mut().filter(|map| is_due(map)).collect();
        let is_any = !due.is_empty();
        due.into_iter().for_each(|map| Arc::make_mut(map).expire(now_ms));
        is_any
    }

    /// Removes entries that expire within `time_ms` and were not found.
    pub fn lose(&mut self, time_ms: RangeInclusive<u64>, found: &Contents) {
        for (name, id) in &self.names {
            let Some(map) = self.maps.get_mut(id) else { continue };
            let is_there = |key| found.get(name).is_some_and(|found| found.entries().contains_key(key));
            let due = map.until().iter().filter(|(key, until)| time_ms.contains(until) && !is_there(key));
            let lost: Vec<_> = due.map(|(key, _)| *key).collect();
            if !lost.is_empty() {
                let map = Arc::make_mut(map);
                lost.into_iter().for_each(|key| map.remove(key));
            }
        }
    }

    /// Returns the names, ordered by the age of the keyspaces, oldest first.
    pub fn names_by_age(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.names.iter().map(|(name, id)| (*id, name.as_str())).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns the name of the keyspace that a number denotes.
    pub fn pick(&self, no: KeyspaceNo) -> &str {
        let names = self.names_by_age();
        names[usize::from(no.0) % names.len()]
    }

    /// Returns the commit of an operation, if it commits something.
    ///
    /// # Errors
    /// The operation must fail.
    pub fn commit_of(&self, op: &Op) -> Result<Option<Commit>, Refusal> {
        let id = |no: &KeyspaceNo| self.names[self.pick(*no)];
        let unless_there = |name: &str| match self.names.contains_key(name) {
            false => Ok(name.to_owned()),
            true => Err(Refusal::Exists(name.to_owned())),
        };
        let not_default = |no: &KeyspaceNo| match self.pick(*no) {
            DEFAULT => Err(Refusal::Default),
            name => Ok(name.to_owned()),
        };
        let name = |name: &u8| NAMES[usize::from(*name)];
        let named = |change: Named| Commit::Names(vec![change]);
        Ok(Some(match op {
            Op::Write(no, write) => Commit::Writes(vec![(id(no), *write)]),
            Op::Batch(writes, _) => {
                Commit::Writes(writes.iter().map(|(no, write)| (id(no), *write)).collect())
            }
            Op::Ingest(no, pairs) => {
                Commit::Writes(pairs.iter().map(|(key, value)| (id(no), Write::Put(*key, *value))).collect())
            }
            Op::Create(new) => named(Named::Create(unless_there(name(new))?)),
            Op::Drop(no) => named(Named::Drop(not_default(no)?)),
            Op::Rename(no, to) => named(Named::Rename(not_default(no)?, unless_there(name(to))?)),
            Op::Names(changes, _) => Commit::Names(self.changes_of(changes)),
            _ => return Ok(None),
        }))
    }

    /// Returns the resulting changes, without those that would fail.
    pub fn changes_of(&self, changes: &[NameChange]) -> Vec<Named> {
        let (mut state, mut all) = (self.clone(), Vec::new());
        for change in changes {
            let picked = |no: &KeyspaceNo| state.pick(*no).to_owned();
            let free = |name: &u8| {
                let name = NAMES[usize::from(*name)];
                (!state.names.contains_key(name)).then(|| name.to_owned())
            };
            let goes = |no: &KeyspaceNo| Some(picked(no)).filter(|name| name != DEFAULT);
            let written = |name: String, writes: &[Write]| {
                writes.iter().map(|write| Named::Write(name.clone(), *write)).collect::<Vec<_>>()
            };
            let made = match change {
                NameChange::Create(name, writes) => {
                    free(name).map(|name| [vec![Named::Create(name.clone())], written(name, writes)].concat())
                }
                NameChange::Drop(no) => goes(no).map(|name| vec![Named::Drop(name)]),
                NameChange::Rename(no, to) => {
                    goes(no).zip(free(to)).map(|(from, to)| vec![Named::Rename(from, to)])
                }
                NameChange::Replace(no, writes) => goes(no).map(|name| {
                    let both = vec![Named::Drop(name.clone()), Named::Create(name.clone())];
                    [both, written(name, writes)].concat()
                }),
                NameChange::Write(no, write) => Some(written(picked(no), &[*write])),
            };
            let made = made.unwrap_or_default();
            // Writes do not affect which names exist.
            let names = made.iter().filter(|change| !matches!(change, Named::Write(..)));
            names.for_each(|change| state.apply_named(change));
            all.extend(made);
        }
        all
    }

    /// Returns the write, with absolute expiry, that an update performs at this time. `None` if it changes
    /// nothing.
    ///
    /// # Errors
    /// The update must fail.
    pub fn update(
        &self,
        id: Id,
        update: Update,
        now_ms: u64,
        lifetime_ms: u64,
    ) -> Result<Option<Write>, NotANumber> {
        let map = self.map(id);
        let value = |key: KeyNo| map.entries().get(&key).copied();
        let end = |key: KeyNo| map.until().get(&key).copied();
        // A replaced entry keeps its expiry time; a new one has the default lifetime.
        let replaced = |key: KeyNo, new: ValueNo| match (value(key), end(key)) {
            (Some(_), Some(end)) => Write::PutUntil(key, new, end),
            (Some(_), None) => Write::Put(key, new),
            (None, _) => Write::Put(key, new).dated(now_ms, lifetime_ms),
        };
        let number = |key: KeyNo| value(key).map_or(Ok(0), |old| old.as_number().ok_or(NotANumber));
        Ok(match update {
            Update::Change(key, new) => Some(replaced(key, value(key).map_or(new, |old| old.merged(new)))),
            Update::Swap(key, new, is_right) => is_right.then(|| replaced(key, new)),
            Update::Add(key, sum) => {
                number(key)?;
                Some(replaced(key, ValueNo::number(sum)))
            }
            Update::Lease(key, lease) => {
                Some(Write::Put(key, ValueNo::number(number(key)?.wrapping_add(u32::from(lease)))))
            }
            Update::Take(key) => value(key).map(|_| Write::Remove(key)),
            Update::PopFirst => map.entries().first_key_value().map(|(key, _)| Write::Remove(*key)),
            Update::PopLast => map.entries().last_key_value().map(|(key, _)| Write::Remove(*key)),
            Update::Expire(key, ms) => value(key).map(|old| Write::PutUntil(key, old, until(now_ms, ms))),
            Update::Persist(key) => value(key).zip(end(key)).map(|(old, _)| Write::Put(key, old)),
        })
    }

    /// Returns the keys that a commit touches.
    pub fn footprint_of(&self, commit: &Commit) -> Footprint {
        let changes = match commit {
            Commit::Writes(writes) => return Footprint::of(writes),
            Commit::Names(changes) => changes,
        };
        let (mut state, mut footprint) = (self.clone(), Footprint::default());
        for change in changes {
            match change {
                Named::Create(name) => footprint.add_name(name),
                Named::Drop(name) => {
                    footprint.add_name(name);
                    // Transactions that have read the keyspace conflict, even if it was empty.
                    if let Some(id) = state.names.get(name) {
                        footprint.add_range(*id, (Bound::Unbounded, Bound::Unbounded));
                    }
                }
                Named::Rename(from, to) => [from, to].into_iter().for_each(|name| footprint.add_name(name)),
                Named::Write(name, write) => footprint.add(state.names[name], write),
            }
            state.apply_named(change);
        }
        footprint
    }

    /// Applies an operation if it commits something.
    pub fn perform(&mut self, op: &Op) {
        if let Ok(Some(commit)) = self.commit_of(op) {
            self.apply(&commit);
        }
    }

    /// Applies a commit.
    pub fn apply(&mut self, commit: &Commit) {
        match commit {
            Commit::Writes(writes) => writes.iter().for_each(|(id, write)| self.write(*id, write)),
            Commit::Names(changes) => changes.iter().for_each(|change| self.apply_named(change)),
        }
    }

    fn apply_named(&mut self, change: &Named) {
        match change {
            Named::Create(name) => {
                self.names.insert(name.clone(), self.next);
                self.maps.insert(self.next, Arc::default());
                self.next.0 += 1;
            }
            Named::Drop(name) => {
                let id = self.names.remove(name);
                id.map(|id| self.maps.remove(&id));
            }
            Named::Rename(from, to) => {
                let id = self.names.remove(from);
                id.map(|id| self.names.insert(to.clone(), id));
            }
            Named::Write(name, write) => self.write(self.names[name], write),
        }
    }

    /// Returns the digest of the contents; see [`contents_digest`].
    pub fn digest(&self) -> u64 {
        contents_digest(self.names.iter().map(|(name, id)| (name.as_str(), &*self.maps[id])))
    }

    /// Returns the number of keys in all keyspaces.
    pub fn live_keys(&self) -> u64 {
        self.names.values().map(|id| self.maps[id].entries().len() as u64).sum()
    }

    /// Describes the first difference from what was found.
    pub fn difference(&self, found: &Contents) -> Option<String> {
        let (names, there): (Vec<_>, Vec<_>) = (self.names.keys().collect(), found.keys().collect());
        if names != there {
            return Some(format!("keyspaces {there:?}, expected {names:?}"));
        }
        self.names.iter().find_map(|(name, id)| {
            let (found, expected) = (&found[name], &self.maps[id]);
            let (until, expected_until) = (found.until(), expected.until());
            let (found, expected) = (found.entries(), expected.entries());
            if found == expected && until != expected_until {
                return Some(format!("{name} expires {until:?}, expected {expected_until:?}"));
            }
            let mut keys = found.keys().chain(expected.keys());
            let key = keys.find(|key| found.get(key) != expected.get(key))?;
            let shown = keys::key(*key);
            let shown = shown[..shown.len().min(60)].escape_ascii();
            Some(format!("{name}/{shown}: {:?}, expected {:?}", found.get(key), expected.get(key)))
        })
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// The contents of a database, by keyspace name.
pub type Contents = BTreeMap<String, Map>;

/// Computes a digest that depends only on the contents.
pub fn contents_digest<'a>(maps: impl Iterator<Item = (&'a str, &'a Map)>) -> u64 {
    let one = |name: &str, map: &Map| {
        let name = name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| scramble(hash ^ u64::from(byte)));
        scramble(name ^ scramble(map.digest() ^ 1))
    };
    maps.fold(0, |sum, (name, map)| sum ^ one(name, map))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn digests_follow_from_what_is_there() {
        let value = |n| ValueNo::new(4, n);
        let (mut a, mut b) = (State::new(), State::new());
        a.write(Id(0), &Write::Put(KeyNo(1), value(1)));
        a.write(Id(0), &Write::Put(KeyNo(2), value(2)));
        assert_ne!(a.digest(), b.digest());
        b.write(Id(0), &Write::Put(KeyNo(2), value(3)));
        b.write(Id(0), &Write::Put(KeyNo(3), value(3)));
        b.write(Id(0), &Write::Put(KeyNo(2), value(2)));
        b.write(Id(0), &Write::RemoveRange((Bound::Excluded(KeyNo(2)), Bound::Unbounded)));
        b.write(Id(0), &Write::Put(KeyNo(1), value(1)));
        assert_eq!(a.digest(), b.digest());
        b.apply_named(&Named::Create("x".into()));
        assert_ne!(a.digest(), b.digest());
        b.apply_named(&Named::Rename("x".into(), "y".into()));
        b.apply_named(&Named::Drop("y".into()));
        assert_eq!(a.digest(), b.digest());
    }
}
