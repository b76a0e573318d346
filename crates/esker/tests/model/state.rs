//! The model: what the database must hold. Cloning a state is cheap: maps are shared until they change.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::rc::Rc;

use super::keys::{bounds, key, value};
use super::op::Write;

/// A keyspace's identity, which outlives its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u32);

/// The entries of a keyspace.
pub type Map = BTreeMap<Vec<u8>, Rc<[u8]>>;
/// Two ends of a range of keys.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// All keyspaces.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub names: BTreeMap<String, Id>,
    pub maps: BTreeMap<Id, Rc<Map>>,
}

/// What a commit touched: decides conflicts.
#[derive(Clone, Debug, Default)]
pub struct Footprint(Vec<(Id, Vec<u8>, Option<Vec<u8>>)>);

/// A range as removals are stored: from a key to before a key, or to the end.
fn half_open((lower, upper): Bounds) -> (Vec<u8>, Option<Vec<u8>>) {
    let after = |mut key: Vec<u8>| {
        key.push(0);
        key
    };
    let start = match lower {
        Bound::Included(key) => key,
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => Vec::new(),
    };
    let end = match upper {
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    };
    (start, end)
}

fn before(start: &[u8], end: &Option<Vec<u8>>) -> bool {
    end.as_ref().is_none_or(|end| start < &end[..])
}

impl Footprint {
    /// Adds what a write touches.
    pub fn add(&mut self, id: Id, write: &Write) {
        let touched = match write {
            Write::Put(k, _) | Write::Remove(k) => (Bound::Included(key(*k)), Bound::Included(key(*k))),
            Write::RemoveRange(range) => bounds(*range),
            Write::Clear => (Bound::Unbounded, Bound::Unbounded),
        };
        let (start, end) = half_open(touched);
        if before(&start, &end) {
            self.0.push((id, start, end));
        }
    }

    /// Whether nothing is touched.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether two commits touch the same key.
    pub fn conflicts(&self, other: &Footprint) -> bool {
        let overlap = |(id, start, end): &(Id, Vec<u8>, Option<Vec<u8>>)| {
            other.0.iter().any(|(id2, start2, end2)| id == id2 && before(start, end2) && before(start2, end))
        };
        self.0.iter().any(overlap)
    }
}

impl State {
    /// A keyspace's entries; none for one that did not exist.
    pub fn map(&self, id: Id) -> Rc<Map> {
        self.maps.get(&id).cloned().unwrap_or_default()
    }

    /// Adds an empty keyspace.
    pub fn add(&mut self, name: &str, id: Id) {
        self.names.insert(name.to_owned(), id);
        self.maps.insert(id, Rc::default());
    }

    /// Does a write.
    pub fn write(&mut self, id: Id, write: &Write) {
        let map = Rc::make_mut(self.maps.entry(id).or_default());
        match write {
            Write::Put(k, v) => drop(map.insert(key(*k), value(*v))),
            Write::Remove(k) => drop(map.remove(&key(*k))),
            Write::RemoveRange(range) => {
                let range = bounds(*range);
                map.retain(|k, _| !range.contains(k));
            }
            Write::Clear => map.clear(),
        }
    }

    /// The entries by keyspace name.
    pub fn named(&self) -> BTreeMap<&str, Rc<Map>> {
        self.names.iter().map(|(name, id)| (name.as_str(), self.map(*id))).collect()
    }
}

/// The entries between bounds.
pub fn slice<'a>(map: &'a Map, bounds: &Bounds) -> Vec<(&'a [u8], &'a [u8])> {
    map.iter().filter(|(k, _)| bounds.contains(*k)).map(|(k, v)| (&k[..], &v[..])).collect()
}
