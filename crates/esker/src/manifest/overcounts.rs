//! Overcounts: keys that commits counted as new without a lookup, and that compactions found to exist
//! already.
//!
//! ```text
//!   commit: "k" may exist --> unresolved version, counted as a new key
//!   compaction: the unresolved version meets a live older one --> overcount 1; it meets none --> 0
//!   len() = count - overcounts - unresolved versions above a live one
//! ```
//!
//! Each overcount has a first sequence number; readers from there on subtract it. It is that of its version,
//! or another number if no reader exists between the two.

use std::collections::BTreeMap;

use super::field::{Field, Item, Rows, list};
use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::types::{KeyspaceId, SeqNo};

/// Number of overcounted keys, by keyspace and by the first sequence number to which they apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overcounts(BTreeMap<(KeyspaceId, SeqNo), u64>);

impl Overcounts {
    /// Returns whether there are no overcounts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds overcounted keys that apply from `from` on.
    pub fn add(&mut self, keyspace: KeyspaceId, from: SeqNo, keys: u64) {
        if keys > 0 {
            *self.0.entry((keyspace, from)).or_default() += keys;
        }
    }

    /// Adds other overcounts.
    pub fn extend(&mut self, others: &Overcounts) {
        others.iter().for_each(|(keyspace, from, keys)| self.add(keyspace, from, keys));
    }

    /// Iterates over keyspace, first sequence number, and number of keys.
    pub fn iter(&self) -> impl Iterator<Item = (KeyspaceId, SeqNo, u64)> {
        self.0.iter().map(|(&(keyspace, from), &keys)| (keyspace, from, keys))
    }

    /// Returns the number of overcounted keys of a keyspace for a reader at this number.
    pub fn at(&self, keyspace: KeyspaceId, at: SeqNo) -> u64 {
        self.0.range((keyspace, SeqNo::ZERO)..=(keyspace, at)).map(|(_, keys)| keys).sum()
    }
}

list!(Overcounts, |overcounts| overcounts.iter(), |overcount: (KeyspaceId, SeqNo, u64)| overcounts.add(
    overcount.0,
    overcount.1,
    overcount.2
));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apply_to_readers_from_their_number_on() {
        let (a, b, seq) = (KeyspaceId::new(1), KeyspaceId::new(2), SeqNo::new);
        let mut overcounts = Overcounts::default();
        for (keyspace, from, keys) in [(a, 0, 5), (a, 7, 1), (a, 7, 2), (b, 3, 9), (b, 3, 0)] {
            overcounts.add(keyspace, seq(from), keys);
        }
        assert_eq!([6, 7, 8].map(|at| overcounts.at(a, seq(at))), [5, 8, 8]);
        assert_eq!((overcounts.at(b, seq(2)), overcounts.at(b, SeqNo::MAX)), (0, 9));
        let mut bytes = Vec::new();
        Field::encode(&overcounts, 24, &mut bytes);
        let mut again = Overcounts::default();
        Field::decode(&mut again, 24, &mut ByteReader::new(&bytes[1..])).unwrap();
        assert_eq!(again, overcounts);
        again.extend(&overcounts);
        assert_eq!(again.at(a, seq(7)), 16);
    }
}
