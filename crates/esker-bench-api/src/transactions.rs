//! Transactions that read what they write: the interface for suite `transactions`.
//!
//! ```text
//! Engine --open_transactions--> Transactions --transact(keys, work)--> Transaction   get, put
//!                               |            `--scan-----------------> all items of the newest state
//!                               `-- OneWriter: Store::write of an engine with one writer at a time
//! ```
//!
//! - `transact` is one atomic transaction. It commits only if what it has read has not changed since. The
//!   commit has the durability given at the opening.
//! - An attempt that ends in a conflict has no effect. The adapter tries again, in the way that the engine's
//!   authors advise, and counts the conflicts.

use std::time::Instant;

use serde::Deserialize;

use crate::store::{Result, Store, VisitItem, Writer};

/// How an engine keeps writers that run at the same time apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TransactionKind {
    /// All writers go on at once. A commit conflicts if what it has read was changed since; then it is tried
    /// again.
    #[serde(rename = "optimistic")]
    Optimistic,
    /// Each writer locks the keys that it is about to change. If another holds a lock, it waits.
    #[serde(rename = "locks keys")]
    Locks,
    /// There is one write transaction at a time. The others wait for it to end.
    #[serde(rename = "one writer at a time")]
    OneWriter,
}

impl TransactionKind {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Optimistic => "optimistic",
            Self::Locks => "locks keys",
            Self::OneWriter => "one writer at a time",
        }
    }

    /// Returns the kind in `kinds` that stands in for this one: the same kind, or the most similar one.
    /// Returns `None` if `kinds` is empty.
    pub fn nearest(self, kinds: &[Self]) -> Option<Self> {
        let order = match self {
            Self::Optimistic => [Self::Optimistic, Self::Locks, Self::OneWriter],
            Self::Locks => [Self::Locks, Self::OneWriter, Self::Optimistic],
            Self::OneWriter => [Self::OneWriter, Self::Locks, Self::Optimistic],
        };
        order.into_iter().find(|kind| kinds.contains(kind))
    }
}

/// The work of one transaction. It may run several times.
pub type TransactionWork<'a> = &'a mut dyn FnMut(&mut dyn Transaction) -> Result<()>;

/// An open database with one ordered map, for transactions that read what they write.
pub trait Transactions: Send + Sync {
    /// Runs `work` in transactions until one commits, and returns the number of conflicts. `keys` are the
    /// keys that `work` reads and writes, in order. An engine that locks may lock them first.
    fn transact(&self, keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64>;

    /// Passes all items of the newest state to `visit`, in key order. Returns their number.
    fn scan(&self, visit: VisitItem<'_>) -> Result<u64>;

    /// As [`Store::drain`].
    fn drain(&self, _deadline: Instant) -> Result<()> {
        Ok(())
    }
}

/// The open transaction of a [`Transactions::transact`].
pub trait Transaction {
    /// Passes the value of a key, as the transaction sees it, to `visit`. Returns false if there is none. The
    /// transaction will write the key.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Inserts or replaces an item.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;
}

/// Transactions of an engine whose [`Store::write`] runs alone, on the newest state, with a [`Writer`] that
/// can read.
pub struct OneWriter(pub Box<dyn Store>);

impl Transactions for OneWriter {
    fn transact(&self, _keys: &[&[u8]], work: TransactionWork<'_>) -> Result<u64> {
        self.0.write(&mut |writer| work(&mut ByWriter(writer))).map(|()| 0)
    }

    fn scan(&self, visit: VisitItem<'_>) -> Result<u64> {
        self.0.reader()?.range(&[], u64::MAX, visit)
    }

    fn drain(&self, deadline: Instant) -> Result<()> {
        self.0.drain(deadline)
    }
}

/// A transaction that uses the adapter's [`Writer`].
pub struct ByWriter<'a>(pub &'a mut dyn Writer);

impl Transaction for ByWriter<'_> {
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.0.get(key, visit)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }
}

/// Calls `once` until it returns true for a commit. Returns the number of conflicts before.
pub fn until_no_conflict(mut once: impl FnMut() -> Result<bool>) -> Result<u64> {
    let mut conflicts = 0;
    while !once()? {
        conflicts += 1;
    }
    Ok(conflicts)
}

#[cfg(test)]
mod tests {
    use super::TransactionKind::{Locks, OneWriter, Optimistic};

    #[test]
    fn an_engine_takes_part_with_the_kind_that_is_nearest() {
        for (asked, kinds, taken) in [
            (Optimistic, &[OneWriter, Optimistic][..], Some(Optimistic)),
            (Optimistic, &[OneWriter], Some(OneWriter)),
            (Locks, &[OneWriter, Optimistic], Some(OneWriter)),
            (Locks, &[Optimistic], Some(Optimistic)),
            (OneWriter, &[Optimistic, Locks], Some(Locks)),
            (Locks, &[], None),
        ] {
            assert_eq!(asked.nearest(kinds), taken, "{asked:?} of {kinds:?}");
        }
    }
}
