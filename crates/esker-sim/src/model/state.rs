//! The model's state: keyspaces and what is in them. Cloning is cheap: maps are shared until they change.
//!
//! ST1. A map's digest follows from its entries alone, and so does a state's from its names and maps.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::keys::{self, KeyNo};
use super::values::ValueNo;
use crate::op::Write;

/// A keyspace's identity, which outlives its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u32);

/// The keyspace that is always there.
pub const DEFAULT: &str = "default";

/// The entries of a keyspace.
#[derive(Clone, Debug, Default)]
pub struct Map {
    entries: BTreeMap<KeyNo, ValueNo>,
    digest: u64,
}

/// Scrambles a number, so that sums of such numbers tell sets apart (the finaliser of SplitMix64).
fn scramble(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}

fn entry_digest(key: KeyNo, value: ValueNo) -> u64 {
    scramble(scramble(u64::from(key.0) + 1) ^ value.digest())
}

impl Map {
    /// The entries.
    pub fn entries(&self) -> &BTreeMap<KeyNo, ValueNo> {
        &self.entries
    }

    /// Sets a key.
    pub fn put(&mut self, key: KeyNo, value: ValueNo) {
        self.remove(key);
        self.entries.insert(key, value);
        self.digest = self.digest.wrapping_add(entry_digest(key, value));
    }

    fn remove(&mut self, key: KeyNo) {
        if let Some(old) = self.entries.remove(&key) {
            self.digest = self.digest.wrapping_sub(entry_digest(key, old));
        }
    }

    fn write(&mut self, write: &Write) {
        match write {
            Write::Put(key, value) => self.put(*key, *value),
            Write::Remove(key) => self.remove(*key),
            Write::RemoveRange(bounds) => {
                let Some(range) = keys::range(*bounds) else { return };
                let gone: Vec<_> = self.entries.range(range).map(|(key, _)| *key).collect();
                gone.into_iter().for_each(|key| self.remove(key));
            }
            Write::Clear => *self = Map::default(),
        }
    }
}

/// One atomic change.
#[derive(Clone, Debug)]
pub enum Commit {
    /// Of what keyspaces hold.
    Writes(Vec<(Id, Write)>),
    /// A new keyspace.
    Create(String, Id),
    /// A keyspace goes, with what it holds.
    Drop(String),
    /// A keyspace gets another name.
    Rename(String, String),
}

/// All keyspaces.
#[derive(Clone, Debug)]
pub struct State {
    names: BTreeMap<String, Id>,
    maps: BTreeMap<Id, Rc<Map>>,
}

impl State {
    /// A new database.
    pub fn new() -> Self {
        State {
            names: BTreeMap::from([(DEFAULT.to_owned(), Id(0))]),
            maps: BTreeMap::from([(Id(0), Rc::default())]),
        }
    }

    /// The keyspaces by name.
    pub fn names(&self) -> &BTreeMap<String, Id> {
        &self.names
    }

    /// A keyspace's entries; none for one that is not there.
    pub fn map(&self, id: Id) -> Rc<Map> {
        self.maps.get(&id).cloned().unwrap_or_default()
    }

    /// The entries of the keyspace of this name.
    pub fn named(&self, name: &str) -> Option<Rc<Map>> {
        self.names.get(name).map(|id| self.map(*id))
    }

    /// Does a write.
    pub fn write(&mut self, id: Id, write: &Write) {
        Rc::make_mut(self.maps.entry(id).or_default()).write(write);
    }

    /// Does a commit.
    pub fn apply(&mut self, commit: &Commit) {
        match commit {
            Commit::Writes(writes) => writes.iter().for_each(|(id, write)| self.write(*id, write)),
            Commit::Create(name, id) => {
                self.names.insert(name.clone(), *id);
                self.maps.insert(*id, Rc::default());
            }
            Commit::Drop(name) => {
                let id = self.names.remove(name);
                id.map(|id| self.maps.remove(&id));
            }
            Commit::Rename(from, to) => {
                let id = self.names.remove(from);
                id.map(|id| self.names.insert(to.clone(), id));
            }
        }
    }

    /// See [`contents_digest`].
    pub fn digest(&self) -> u64 {
        contents_digest(self.names.iter().map(|(name, id)| (name.as_str(), &*self.maps[id])))
    }

    /// The keys of all keyspaces.
    pub fn live_keys(&self) -> u64 {
        self.names.values().map(|id| self.maps[id].entries.len() as u64).sum()
    }

    /// The first difference from what was found, for people.
    pub fn difference(&self, found: &Contents) -> Option<String> {
        let (names, there): (Vec<_>, Vec<_>) = (self.names.keys().collect(), found.keys().collect());
        if names != there {
            return Some(format!("keyspaces {there:?}, expected {names:?}"));
        }
        self.names.iter().find_map(|(name, id)| {
            let (found, expected) = (found[name].entries(), self.maps[id].entries());
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

/// What a database holds, by name.
pub type Contents = BTreeMap<String, Map>;

/// A number that tells contents apart (ST1).
pub fn contents_digest<'a>(maps: impl Iterator<Item = (&'a str, &'a Map)>) -> u64 {
    let one = |name: &str, map: &Map| {
        let name = name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| scramble(hash ^ u64::from(byte)));
        scramble(name ^ scramble(map.digest ^ 1))
    };
    maps.fold(0, |sum, (name, map)| sum ^ one(name, map))
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;

    #[test]
    fn st1_digests_follow_from_what_is_there() {
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
        b.apply(&Commit::Create("x".into(), Id(1)));
        assert_ne!(a.digest(), b.digest());
        b.apply(&Commit::Rename("x".into(), "y".into()));
        b.apply(&Commit::Drop("y".into()));
        assert_eq!(a.digest(), b.digest());
    }
}
