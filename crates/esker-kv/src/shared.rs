//! An Esker database in a directory that several processes use. A space is the keyspace of the same name.
//!
//! Transactions are serializable: a commit depends on all that it has read, not only for update.

use std::ops::Bound;

use bytes::Bytes;
use esker::{Durability, LockMode, Value};
use esker_shared::{Shared, SharedKeyspace, SharedRange, SharedSavepoint, SharedSnapshot, SharedTransaction};

use crate::kv::{Kv, Limits, Reads, Savepoint, Snapshot, Transaction};
use crate::page::{Page, PageBuilder, Query};
use crate::{Error, Order, Result, Space, Span};

/// A [`Shared`] database as a store.
pub struct SharedKv {
    shared: Shared,
}

impl SharedKv {
    /// Creates a store on a shared database.
    pub fn new(shared: Shared) -> Self {
        SharedKv { shared }
    }
}

impl From<esker_shared::Error> for Error {
    fn from(error: esker_shared::Error) -> Self {
        use esker_shared::Error as Shared;
        match error {
            Shared::Db(error @ esker::Error::Io { .. }) => Error::OutcomeUnknown(error.to_string()),
            Shared::Db(error) => error.into(),
            // Nothing of the transaction was written: it can run again.
            Shared::HostGone => Error::SnapshotTooOld(error.to_string()),
            Shared::NoHost { .. } => Error::Unavailable(error.to_string()),
            Shared::OutcomeUnknown(_) => Error::OutcomeUnknown(error.to_string()),
            other => Error::other(other),
        }
    }
}

fn keyspace(space: &Space) -> Result<&SharedKeyspace> {
    space.handle().ok_or_else(|| Error::Invalid(format!("space {:?} is another store's", space.name())))
}

fn bytes(value: Value) -> Bytes {
    Bytes::from_owner(value)
}

fn bounds<'a>(span: &Span<'a>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (span.lower, span.upper)
}

/// Reads one page of a range.
fn page(mut range: SharedRange, query: &Query<'_>) -> Result<Page> {
    let mut page = PageBuilder::new(query);
    loop {
        let next = if query.order == Order::Up { range.next() } else { range.next_back() };
        let Some(entry) = next else { return Ok(page.finish()) };
        let (key, value) = entry?;
        if page.push(Bytes::copy_from_slice(&key), bytes(value)) {
            return Ok(page.finish());
        }
    }
}

fn count(range: SharedRange) -> Result<u64> {
    let mut keys = 0;
    for key in range.keys() {
        key?;
        keys += 1;
    }
    Ok(keys)
}

impl Reads for SharedKv {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(keyspace(space)?.get(key)?.map(bytes))
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
        let values = keyspace(space)?.multi_get(keys)?;
        Ok(values.into_iter().map(|value| value.map(bytes)).collect())
    }

    fn page(&self, space: &Space, query: Query<'_>) -> Result<Page> {
        page(keyspace(space)?.range(bounds(&query.span)), &query)
    }

    fn count(&self, space: &Space, span: Span<'_>) -> Result<u64> {
        count(keyspace(space)?.range(bounds(&span)))
    }
}

impl Kv for SharedKv {
    fn space(&self, name: &str) -> Result<Space> {
        Ok(Space::new(name, self.shared.keyspace(name)?))
    }

    fn find_space(&self, name: &str) -> Result<Option<Space>> {
        match self.shared.open_keyspace(name) {
            Ok(keyspace) => Ok(Some(Space::new(name, keyspace))),
            Err(esker_shared::Error::Db(esker::Error::KeyspaceNotFound(_))) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    fn spaces(&self) -> Result<Vec<String>> {
        let mut names = self.shared.keyspaces()?;
        names.sort();
        Ok(names)
    }

    fn drop_space(&self, name: &str) -> Result<()> {
        match self.shared.drop_keyspace(name) {
            Err(esker_shared::Error::Db(esker::Error::KeyspaceNotFound(_))) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Takes one pair: several need one commit, which a shared database does not offer.
    fn rename_spaces(&self, names: &[(&str, &str)]) -> Result<()> {
        match names {
            [] => Ok(()),
            [(from, to)] => Ok(self.shared.rename_keyspace(from, to)?),
            _ => Err(Error::Unsupported("a shared database renames one keyspace at a time".to_owned())),
        }
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(Fixed(self.shared.snapshot()?)))
    }

    fn begin(&self) -> Result<Box<dyn Transaction>> {
        let inner = self.shared.transaction().durability(Durability::Sync).begin()?;
        Ok(Box::new(Open { inner, points: Vec::new() }))
    }

    fn limits(&self) -> Limits {
        Limits {
            key_bytes: esker::KEY_BYTES_MAX,
            value_bytes: esker::VALUE_BYTES_MAX,
            transaction_bytes: u64::MAX,
        }
    }
}

macro_rules! reads {
    ($type:ty, $inner:tt) => {
        impl Reads for $type {
            fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
                Ok(self.$inner.get(keyspace(space)?, key)?.map(bytes))
            }

            fn multi_get(&self, space: &Space, keys: &[&[u8]]) -> Result<Vec<Option<Bytes>>> {
                let values = self.$inner.multi_get(keyspace(space)?, keys)?;
                Ok(values.into_iter().map(|value| value.map(bytes)).collect())
            }

            fn page(&self, space: &Space, query: Query<'_>) -> Result<Page> {
                page(self.$inner.range(keyspace(space)?, bounds(&query.span)), &query)
            }

            fn count(&self, space: &Space, span: Span<'_>) -> Result<u64> {
                count(self.$inner.range(keyspace(space)?, bounds(&span)))
            }
        }
    };
}

struct Fixed(SharedSnapshot);

reads!(Fixed, 0);

impl Snapshot for Fixed {}

struct Open {
    inner: SharedTransaction,
    points: Vec<SharedSavepoint>,
}

reads!(Open, inner);

impl Open {
    fn check(&self, point: Savepoint) -> Result<()> {
        match point.0 < self.points.len() {
            true => Ok(()),
            false => Err(Error::Invalid("the savepoint was released".to_owned())),
        }
    }
}

impl Transaction for Open {
    fn get_for_update(&mut self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
        let keyspace = keyspace(space)?;
        self.inner.lock(keyspace, key, LockMode::Exclusive)?;
        Ok(self.inner.get(keyspace, key)?.map(bytes))
    }

    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.inner.put(keyspace(space)?, key, value)?)
    }

    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()> {
        Ok(self.inner.delete(keyspace(space)?, key)?)
    }

    fn remove_range(&mut self, space: &Space, span: Span<'_>) -> Result<()> {
        Ok(self.inner.delete_range(keyspace(space)?, bounds(&span))?)
    }

    fn savepoint(&mut self) -> Result<Savepoint> {
        self.points.push(self.inner.savepoint()?);
        Ok(Savepoint(self.points.len() - 1))
    }

    fn rollback_to(&mut self, point: Savepoint) -> Result<()> {
        self.check(point)?;
        self.points.truncate(point.0 + 1);
        Ok(self.inner.rollback_to(&self.points[point.0])?)
    }

    fn release(&mut self, point: Savepoint) -> Result<()> {
        self.check(point)?;
        match self.points.drain(point.0..).next() {
            Some(inner) => Ok(self.inner.release(inner)?),
            None => Ok(()),
        }
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.inner.commit()?;
        Ok(())
    }
}
