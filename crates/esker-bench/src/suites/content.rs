//! The items that a database must hold, with their versions. Every check compares the database with it.

use esker_bench_api::generate::checksum::checksum;

use crate::suites::items::Items;

/// Items `from..to`, except the removed ones.
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The newest version of each item; 0 for items beyond the end.
    pub(crate) versions: Vec<u32>,
    /// One bit for each item, set if it exists. `None` if all exist.
    bits: Option<Vec<u64>>,
}

impl Content {
    /// Returns the first `to` items, as they were loaded.
    pub(crate) fn loaded(to: u64) -> Self {
        Self { to, ..Self::default() }
    }

    pub(crate) fn has(&self, i: u64) -> bool {
        let bit = |bits: &Vec<u64>| bits[i as usize / 64] >> (i % 64) & 1 == 1;
        (self.from..self.to).contains(&i) && self.bits.as_ref().is_none_or(bit)
    }

    /// Makes the range end at `to`, without any item.
    pub(crate) fn clear_to(&mut self, to: u64) {
        self.to = to;
        self.bits = Some(vec![0; to.div_ceil(64) as usize]);
    }

    pub(crate) fn set(&mut self, i: u64, is_there: bool) {
        let words = self.to.div_ceil(64) as usize;
        let word = &mut self.bits.get_or_insert_with(|| vec![u64::MAX; words])[i as usize / 64];
        *word = if is_there { *word | 1 << (i % 64) } else { *word & !(1 << (i % 64)) };
    }

    /// Returns the numbers of the existing items.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        (self.from..self.to).filter(|i| self.has(*i))
    }

    pub(crate) fn len(&self) -> u64 {
        if self.bits.is_none() { self.to - self.from } else { self.numbers().count() as u64 }
    }

    pub(crate) fn version(&self, i: u64) -> u64 {
        self.versions.get(i as usize).copied().unwrap_or_default().into()
    }

    /// Allocates the versions of all items.
    pub(crate) fn keep_versions(&mut self) {
        self.versions.resize(self.to as usize, 0);
    }

    /// Returns the sum of `of_item` over the first `limit` items by number. The order does not matter,
    /// because addition commutes.
    pub(crate) fn sum(&self, items: &Items, limit: u64, of_item: impl Fn(&[u8], &[u8]) -> u64) -> u64 {
        let (mut key, mut buffer, mut sum) = (Vec::new(), Vec::new(), 0_u64);
        for i in self.numbers().take(usize::try_from(limit).unwrap_or(usize::MAX)) {
            items.key(i, &mut key);
            sum = sum.wrapping_add(of_item(&key, items.value(i, self.version(i), &mut buffer)));
        }
        sum
    }

    /// Returns the sum that a full scan must have.
    pub(crate) fn checksum(&self, items: &Items) -> u64 {
        self.sum(items, u64::MAX, checksum)
    }
}
