//! The representation of the clients' lists in three keyspaces.
//!
//! ```text
//!   list of a key = its elements when last emptied ("emptied") + its elements since then ("even" or "odd")
//! ```
//!
//! Emptying a list also appends an element, so that the checker can order its versions. It removes the range
//! of its keys, which conflicts with appends by others although they write no common key. Without conflict
//! detection for ranges, or with half a transaction, elements are lost or duplicated.

use std::collections::BTreeMap;
use std::ops::Range;

use esker::{Db, Keyspace};

use super::lists::Element;
use super::transaction::Tx;
use esker_world::failure::Result;

/// The keyspaces of the lists.
pub(super) struct ListStore {
    /// Elements of the lists with even and odd keys.
    halves: [Keyspace; 2],
    /// Elements of lists when they were last emptied.
    emptied: Keyspace,
}

impl ListStore {
    pub(super) fn new(db: &Db) -> Result<Self> {
        let halves = [db.keyspace("lists")?, db.keyspace("odd lists")?];
        Ok(ListStore { halves, emptied: db.keyspace("emptied lists")? })
    }

    /// Returns the keyspace of a key's elements.
    fn half(&self, key: u64) -> &Keyspace {
        &self.halves[usize::from(key % 2 == 1)]
    }

    /// Reads a list by point reads.
    pub(super) fn get(
        &self,
        key: u64,
        mut get: impl FnMut(&Keyspace, &[u8]) -> Result<Option<Vec<u8>>>,
    ) -> Result<Vec<Element>> {
        let mut list = get(&self.emptied, &key.to_be_bytes())?.unwrap_or_default();
        list.extend(get(self.half(key), &key.to_be_bytes())?.unwrap_or_default());
        Ok(elements(&list))
    }

    /// Reads the existing lists of some keys by scans.
    pub(super) fn walk(
        &self,
        mut walk: impl FnMut(&Keyspace) -> Result<BTreeMap<u64, Vec<u8>>>,
    ) -> Result<BTreeMap<u64, Vec<Element>>> {
        let mut lists: BTreeMap<u64, Vec<Element>> = BTreeMap::new();
        for keyspace in [&self.emptied, &self.halves[0], &self.halves[1]] {
            for (key, list) in walk(keyspace)? {
                lists.entry(key).or_default().extend(elements(&list));
            }
        }
        Ok(lists)
    }

    /// Appends an element.
    pub(super) fn append(&self, tx: &mut Tx<'_>, key: u64, element: Element) -> Result<()> {
        let half = self.half(key);
        let mut list = tx.get(half, &key.to_be_bytes())?.unwrap_or_default();
        list.extend(element.to_le_bytes());
        tx.put(half, &key.to_be_bytes(), list)
    }

    /// Empties lists and appends an element to each.
    pub(super) fn empty(
        &self,
        tx: &mut Tx<'_>,
        keys: Range<u64>,
        mut mark: impl FnMut(u64) -> Element,
    ) -> Result<()> {
        for key in keys.clone() {
            let mut list = self.get(key, |keyspace, key| tx.get(keyspace, key))?;
            list.push(mark(key));
            let list = list.iter().flat_map(|element| element.to_le_bytes()).collect();
            tx.put(&self.emptied, &key.to_be_bytes(), list)?;
        }
        self.halves.iter().try_for_each(|half| tx.delete_range(half, keys.clone()))
    }
}

fn elements(bytes: &[u8]) -> Vec<Element> {
    bytes.chunks(4).map(|chunk| chunk.try_into().map_or(Element::MAX, Element::from_le_bytes)).collect()
}
