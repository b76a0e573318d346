//! The keys and prefixes that clients track.
//!
//! Without `BCAST`, a client is notified once of a change of a key that it has read, and is then forgotten
//! for that key. With `BCAST`, it is notified of each change of a key with one of its prefixes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A key with the numbers of the clients that may have cached it, in order.
struct Entry {
    clients: Vec<u64>,
    /// Its index in `Table::list`.
    at: usize,
}

/// Tracked keys and prefixes. Keys of all databases share the table, as in Redis: an invalidation names no
/// database.
#[derive(Default)]
pub struct Table {
    keys: HashMap<Arc<[u8]>, Entry>,
    /// The same keys, to choose a random one.
    list: Vec<Arc<[u8]>>,
    /// Number of pairs of a key and a client.
    items: usize,
    prefixes: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// Number of prefixes by their length.
    lengths: BTreeMap<usize, usize>,
}

/// Whether a key lies in a range of keys. `to` is excluded; `None`: to the end.
pub fn is_between(key: &[u8], from: &[u8], to: Option<&[u8]>) -> bool {
    key >= from && to.is_none_or(|to| key < to)
}

impl Table {
    /// Adds a key that a client reads.
    pub fn remember(&mut self, key: &[u8], client: u64) {
        if let Some(entry) = self.keys.get_mut(key) {
            if let Err(at) = entry.clients.binary_search(&client) {
                entry.clients.insert(at, client);
                self.items += 1;
            }
            return;
        }
        let key: Arc<[u8]> = key.into();
        let entry = Entry { clients: vec![client], at: self.list.len() };
        self.list.push(key.clone());
        self.keys.insert(key, entry);
        self.items += 1;
    }

    /// Removes a key. Returns the clients that may have cached it.
    pub fn take(&mut self, key: &[u8]) -> Vec<u64> {
        let Some(entry) = self.keys.remove(key) else { return Vec::new() };
        self.list.swap_remove(entry.at);
        if let Some(moved) = self.list.get(entry.at).and_then(|key| self.keys.get_mut(key)) {
            moved.at = entry.at;
        }
        self.items -= entry.clients.len();
        entry.clients
    }

    /// Returns a random key.
    pub fn any(&self) -> Option<Arc<[u8]>> {
        (!self.list.is_empty()).then(|| self.list[fastrand::usize(..self.list.len())].clone())
    }

    /// Returns the tracked keys of a range.
    pub fn between(&self, from: &[u8], to: Option<&[u8]>) -> Vec<Arc<[u8]>> {
        self.list.iter().filter(|key| is_between(key, from, to)).cloned().collect()
    }

    /// Removes all keys. Prefixes stay.
    pub fn clear_keys(&mut self) {
        (self.keys, self.list, self.items) = (HashMap::new(), Vec::new(), 0);
    }

    /// Adds a prefix of a client.
    pub fn add_prefix(&mut self, prefix: &[u8], client: u64) {
        let clients = self.prefixes.entry(prefix.to_vec()).or_default();
        if clients.is_empty() {
            *self.lengths.entry(prefix.len()).or_default() += 1;
        }
        clients.insert(client);
    }

    /// Removes all prefixes of a client.
    pub fn remove_prefixes(&mut self, client: u64) {
        let lengths = &mut self.lengths;
        self.prefixes.retain(|prefix, clients| {
            clients.remove(&client);
            if clients.is_empty()
                && let Some(count) = lengths.get_mut(&prefix.len())
            {
                *count -= 1;
            }
            !clients.is_empty()
        });
        lengths.retain(|_, count| *count > 0);
    }

    /// Returns the prefixes of a client.
    pub fn prefixes_of(&self, client: u64) -> Vec<Vec<u8>> {
        let of_client = self.prefixes.iter().filter(|(_, clients)| clients.contains(&client));
        of_client.map(|(prefix, _)| prefix.clone()).collect()
    }

    /// Returns the clients with a prefix of this key.
    pub fn hearers(&self, key: &[u8]) -> impl Iterator<Item = u64> {
        let prefixes = self.lengths.range(..=key.len()).map(|(len, _)| &key[..*len]);
        prefixes.filter_map(|prefix| self.prefixes.get(prefix)).flatten().copied()
    }

    /// Returns the clients with a prefix of some key of a range.
    pub fn hearers_between(&self, from: &[u8], to: Option<&[u8]>) -> impl Iterator<Item = u64> {
        let meets = move |prefix: &[u8]| is_between(prefix, from, to) || from.starts_with(prefix);
        self.prefixes.iter().filter(move |(prefix, _)| meets(prefix)).flat_map(|(_, of)| of).copied()
    }

    /// Returns the numbers of keys, of pairs of a key and a client, and of prefixes.
    pub fn sizes(&self) -> [usize; 3] {
        [self.list.len(), self.items, self.prefixes.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_reported_once_and_found_after_others_are_removed() {
        let mut table = Table::default();
        for (key, client) in [("a", 2), ("b", 1), ("a", 1), ("c", 1), ("a", 2)] {
            table.remember(key.as_bytes(), client);
        }
        assert_eq!(table.sizes(), [3, 4, 0]);
        assert_eq!((table.take(b"a"), table.take(b"a"), table.take(b"c")), (vec![1, 2], vec![], vec![1]));
        assert_eq!(table.any().as_deref(), Some(&b"b"[..]));
        assert_eq!(table.take(b"b"), [1]);
        assert_eq!((table.sizes(), table.any()), ([0, 0, 0], None));
    }

    #[test]
    fn ranges_meet_keys_and_prefixes() {
        let mut table = Table::default();
        ["a", "b", "ba", "c"].iter().for_each(|key| table.remember(key.as_bytes(), 1));
        assert_eq!(table.between(b"b", Some(b"c")).len(), 2);
        assert_eq!(table.between(b"b", None).len(), 3);
        for (prefix, client) in [("", 1), ("us", 2), ("user:", 3), ("v", 4)] {
            table.add_prefix(prefix.as_bytes(), client);
        }
        assert_eq!(table.hearers(b"user:7").collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(table.hearers(b"u").collect::<Vec<_>>(), [1]);
        assert_eq!(table.hearers_between(b"user:1", Some(b"user:2")).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(table.hearers_between(b"t", Some(b"v")).collect::<Vec<_>>(), [1, 2, 3]);
        table.remove_prefixes(2);
        assert_eq!((table.hearers(b"user:7").collect::<Vec<_>>(), table.sizes()[2]), (vec![1, 3], 3));
        assert_eq!(table.prefixes_of(3), [b"user:".to_vec()]);
    }
}
