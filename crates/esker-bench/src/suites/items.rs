//! The items of all suites behind one interface: key and value of item `i`, made by
//! `esker_bench_api::generate`.

use esker_bench_api::generate::accounts;
use esker_bench_api::generate::badger::BadgerItems;
use esker_bench_api::generate::int::Ints;
use esker_bench_api::generate::items::Items as RandomItems;
use esker_bench_api::generate::obigstore::{self, random_key, sequential_key};
use esker_bench_api::generate::pool::Pool;
use esker_bench_api::generate::shapes::Shape;
use esker_bench_api::generate::storage::StorageItems;
use esker_bench_api::generate::ycsb::{self, YcsbRecords};
use serde::Serialize;

/// Which generator makes the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// `items::Items`.
    Items,
    /// `int::Ints`.
    Ints,
    /// First `number` large values, then small items whose seed is one less.
    Large,
    /// `storage::StorageItems` in random order.
    Storage,
    /// The same with keys in order.
    StorageInOrder,
    /// `ycsb::YcsbRecords`.
    Ycsb,
    /// `badger::BadgerItems`.
    Badger,
    /// The shape with number `number`.
    Shape,
    /// `obigstore::sequential_key`.
    Sequential,
    /// `obigstore::random_key`.
    Random,
    /// `obigstore::Hotspots`.
    Hotspots,
    /// `keyspaces::KeyspaceItems` over `number` keyspaces.
    Keyspaces,
    /// `accounts::Accounts`.
    Accounts,
    /// `entries::Entries`.
    Entries,
}

/// A generator with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Source {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
    pub(crate) value_bytes: usize,
    /// A parameter whose meaning depends on the kind.
    pub(crate) number: u64,
}

impl Source {
    pub(crate) fn new(kind: Kind, seed: u64, value_bytes: usize) -> Self {
        Self { kind, seed, value_bytes, number: 0 }
    }

    /// Size of a key in bytes; for URLs the mean.
    pub(crate) fn key_bytes(self) -> usize {
        match self.kind {
            Kind::Items | Kind::Large | Kind::Ycsb => ycsb::KEY_BYTES,
            Kind::Ints => size_of::<u32>(),
            Kind::Storage | Kind::StorageInOrder | Kind::Keyspaces => 8,
            Kind::Badger => esker_bench_api::generate::badger::KEY_BYTES,
            Kind::Shape => Shape::ALL[self.number as usize].key_bytes(),
            _ => size_of::<obigstore::Key>(),
        }
    }

    /// Size of key and value of an item in bytes.
    pub(crate) fn item_bytes(self) -> u64 {
        (self.key_bytes() + self.value_bytes) as u64
    }
}

/// The items of a source.
pub(crate) struct Items {
    pub(crate) source: Source,
    badger: Option<BadgerItems>,
    pool: Option<Pool>,
}

impl Items {
    pub(crate) fn new(source: Source) -> Self {
        let is = |kind| source.kind == kind;
        Self {
            source,
            badger: is(Kind::Badger).then(|| BadgerItems::new(source.seed, source.value_bytes)),
            pool: is(Kind::Large).then(|| Pool::new(source.seed)),
        }
    }

    /// Writes the key of item `i` into `key`.
    pub(crate) fn key(&self, i: u64, key: &mut Vec<u8>) {
        let Source { seed, number, .. } = self.source;
        let mut set = |bytes: &[u8]| {
            key.clear();
            key.extend_from_slice(bytes);
        };
        match self.source.kind {
            Kind::Items => set(&RandomItems::new(seed).key(i)),
            Kind::Ints => set(&Ints::new(seed).key(i as u32)),
            Kind::Large if i < number => set(&RandomItems::new(seed).key(i)),
            Kind::Large => set(&RandomItems::new(seed - 1).key(i - number)),
            Kind::Storage | Kind::Keyspaces => set(&StorageItems::new(seed, false).key(i)),
            Kind::StorageInOrder => set(&StorageItems::new(seed, true).key(i)),
            Kind::Ycsb => set(&YcsbRecords::new(seed).key(i)),
            Kind::Badger => set(&self.badger.as_ref().expect("made with the items").key(i)),
            Kind::Shape => Shape::ALL[number as usize].key(seed, i, key),
            Kind::Sequential => set(&sequential_key(i)),
            Kind::Random | Kind::Hotspots | Kind::Accounts | Kind::Entries => set(&random_key(seed, i)),
        }
    }

    /// Returns the key of item `i`.
    pub(crate) fn key_of(&self, i: u64) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.source.key_bytes());
        self.key(i, &mut key);
        key
    }

    /// Returns the value of item `i` in a version. It is made in `buffer` or borrowed from a pool.
    pub(crate) fn value<'a>(&'a self, i: u64, version: u64, buffer: &'a mut Vec<u8>) -> &'a [u8] {
        let Source { seed, number, value_bytes, .. } = self.source;
        if let Some(badger) = &self.badger {
            return badger.value(i);
        }
        if let Some(pool) = self.pool.as_ref().filter(|_| i < number) {
            return pool.value(i, value_bytes);
        }
        buffer.resize(value_bytes, 0);
        match self.source.kind {
            Kind::Items => buffer.copy_from_slice(&RandomItems::new(seed).value(i)),
            Kind::Large => {
                let value = RandomItems::new(seed - 1).value(i - number);
                buffer.truncate(value.len());
                buffer.copy_from_slice(&value);
            }
            Kind::Ints => buffer.copy_from_slice(&Ints::new(seed).value(i as u32)),
            Kind::Ycsb => YcsbRecords::new(seed).value(i, version, buffer),
            Kind::Shape => Shape::ALL[number as usize].value(seed, i, buffer),
            Kind::Sequential => obigstore::value(&sequential_key(i), buffer),
            Kind::Random | Kind::Hotspots | Kind::Entries => obigstore::value(&random_key(seed, i), buffer),
            Kind::Accounts => {
                let value: &mut [u8; accounts::VALUE_BYTES] =
                    buffer.as_mut_slice().try_into().expect("accounts have one length");
                accounts::Accounts::new(seed).value(i, accounts::Account::NEW, value);
            }
            _ => StorageItems::new(seed, false).value(i, version, buffer),
        }
        buffer
    }

    /// Returns the number of the item with this key, or `None` if no item that a scan may show has it.
    pub(crate) fn item(&self, key: &[u8]) -> Option<u64> {
        let seed = self.source.seed;
        match self.source.kind {
            Kind::Ycsb => YcsbRecords::new(seed).item(key),
            Kind::Storage => Some(StorageItems::new(seed, false).item(key.try_into().ok()?)),
            Kind::StorageInOrder => Some(StorageItems::new(seed, true).item(key.try_into().ok()?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_as_long_as_their_source_says() {
        for (kind, value_bytes) in [
            (Kind::Items, 150),
            (Kind::Ints, 8),
            (Kind::Storage, 512),
            (Kind::StorageInOrder, 500),
            (Kind::Ycsb, 1000),
            (Kind::Badger, 128),
            (Kind::Sequential, 32),
            (Kind::Random, 32),
            (Kind::Keyspaces, 128),
            (Kind::Accounts, 100),
            (Kind::Entries, 100),
        ] {
            let items = Items::new(Source::new(kind, 3, value_bytes));
            let mut buffer = Vec::new();
            assert_eq!(items.key_of(7).len(), items.source.key_bytes(), "{kind:?}");
            assert_eq!(items.value(7, 0, &mut buffer).len(), value_bytes, "{kind:?}");
        }
        let large = Items::new(Source { number: 2, ..Source::new(Kind::Large, 4, 2_000_000) });
        let mut buffer = Vec::new();
        assert_eq!(large.value(1, 0, &mut buffer).len(), 2_000_000);
        assert_eq!(large.value(2, 0, &mut buffer).len(), 150);
        assert_ne!(large.key_of(0), large.key_of(2));
    }
}
