//! An Esker database of this process as a store. A space is the keyspace of the same name.
//!
//! Values of look-ups are lent from the engine, not copied.

use std::ops::{Bound, ControlFlow};

use bytes::Bytes;
use esker::{Db, Durability, Keyspace, Value};

use crate::kv::{Kv, Limits, Reads, Savepoint, Snapshot, Transaction};
use crate::page::{Page, PageBuilder, Query};
use crate::{Error, Order, Result, Space, Span};

/// A [`Db`] as a store.
pub struct Local {
    db: Db,
}

impl Local {
    /// Creates a store on a database.
    pub fn new(db: Db) -> Self {
        Local { db }
    }

    /// Returns the database.
    pub fn db(&self) -> &Db {
        &self.db
    }
}

impl From<esker::Error> for Error {
    fn from(error: esker::Error) -> Self {
        use esker::Error as Engine;
        match error {
            Engine::Conflict { .. } | Engine::Deadlock(_) | Engine::LockTimeout { .. } => Error::Conflict,
            error @ (Engine::Poisoned(..) | Engine::Closed) => Error::Unavailable(error.to_string()),
            error @ (Engine::KeyTooLong { .. } | Engine::ValueTooLong { .. }) => {
                Error::TooLarge(error.to_string())
            }
            error @ (Engine::Invalid(_)
            | Engine::KeyspaceNotFound(_)
            | Engine::KeyspaceExists(_)
            | Engine::ForeignHandle { .. }
            | Engine::SavepointGone) => Error::Invalid(error.to_string()),
            other => Error::other(other),
        }
    }
}

fn keyspace(space: &Space) -> Result<&Keyspace> {
    space.handle().ok_or_else(|| Error::Invalid(format!("space {:?} is another store's", space.name())))
}

fn bytes(value: Value) -> Bytes {
    Bytes::from_owner(value)
}

fn bounds<'a>(span: &Span<'a>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (span.lower, span.upper)
}

/// Reads one page of a range.
fn page(mut range: esker::Range, query: &Query<'_>) -> Result<Page> {
    let mut page = PageBuilder::new(query);
    if query.order == Order::Down {
        for entry in range.rev() {
            let (key, value) = entry?;
            if page.push(Bytes::copy_from_slice(&key), bytes(value)) {
                break;
            }
        }
        return Ok(page.finish());
    }
    range.visit(|key, value| {
        match page.push(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    Ok(page.finish())
}

/// Counts the keys of a range. `all` returns the number of all keys, which the engine knows.
fn count(range: esker::Range, span: &Span<'_>, all: impl FnOnce() -> esker::Result<u64>) -> Result<u64> {
    if matches!((span.lower, span.upper), (Bound::Unbounded, Bound::Unbounded)) {
        return Ok(all()?);
    }
    let mut keys = 0;
    for key in range.keys() {
        key?;
        keys += 1;
    }
    Ok(keys)
}

impl Reads for Local {
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
        let keyspace = keyspace(space)?;
        count(keyspace.range(bounds(&span)), &span, || keyspace.len())
    }
}

impl Kv for Local {
    fn space(&self, name: &str) -> Result<Space> {
        Ok(Space::new(name, self.db.keyspace(name)?))
    }

    fn find_space(&self, name: &str) -> Result<Option<Space>> {
        match self.db.open_keyspace(name) {
            Ok(keyspace) => Ok(Some(Space::new(name, keyspace))),
            Err(esker::Error::KeyspaceNotFound(_)) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    fn spaces(&self) -> Result<Vec<String>> {
        let mut names = self.db.keyspaces()?;
        names.sort();
        Ok(names)
    }

    fn drop_space(&self, name: &str) -> Result<()> {
        match self.db.drop_keyspace(name) {
            Err(esker::Error::KeyspaceNotFound(_)) => Ok(()),
            done => Ok(done?),
        }
    }

    fn rename_spaces(&self, names: &[(&str, &str)]) -> Result<()> {
        let mut batch = self.db.batch();
        for (from, to) in names {
            batch.rename_keyspace(from, to)?;
        }
        batch.commit().map_err(esker::Error::from)?;
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        Ok(Box::new(LocalSnapshot(self.db.snapshot())))
    }

    fn begin(&self) -> Result<Box<dyn Transaction>> {
        let mut inner = self.db.transaction().isolation(esker::Isolation::Serializable).begin();
        // The commit depends only on what is read for update (kv.3).
        inner.note_reads(false);
        Ok(Box::new(LocalTransaction { inner, points: Vec::new() }))
    }

    fn limits(&self) -> Limits {
        Limits {
            key_bytes: esker::KEY_BYTES_MAX,
            value_bytes: esker::VALUE_BYTES_MAX,
            transaction_bytes: u64::MAX,
        }
    }
}

/// Implements reads for a handle whose methods take the keyspace.
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
                let keyspace = keyspace(space)?;
                let range = self.$inner.range(keyspace, bounds(&span));
                count(range, &span, || self.$inner.len(keyspace))
            }
        }
    };
}

struct LocalSnapshot(esker::Snapshot);

reads!(LocalSnapshot, 0);

impl Snapshot for LocalSnapshot {}

struct LocalTransaction {
    inner: esker::Transaction,
    points: Vec<esker::Savepoint>,
}

reads!(LocalTransaction, inner);

impl LocalTransaction {
    fn point(&self, point: Savepoint) -> Result<&esker::Savepoint> {
        self.points.get(point.0).ok_or_else(|| Error::Invalid("the savepoint was released".to_owned()))
    }
}

impl Transaction for LocalTransaction {
    fn get_for_update(&mut self, space: &Space, key: &[u8]) -> Result<Option<Bytes>> {
        let keyspace = keyspace(space)?;
        // The lock makes others wait that read for update; the dependence finds those that only write.
        let value = self.inner.get_for_update(keyspace, key)?;
        self.inner.depend_on(keyspace, (Bound::Included(key), Bound::Included(key)))?;
        Ok(value.map(bytes))
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
        self.points.push(self.inner.savepoint());
        Ok(Savepoint(self.points.len() - 1))
    }

    fn rollback_to(&mut self, point: Savepoint) -> Result<()> {
        self.point(point)?;
        self.points.truncate(point.0 + 1);
        Ok(self.inner.rollback_to(&self.points[point.0])?)
    }

    fn release(&mut self, point: Savepoint) -> Result<()> {
        self.point(point)?;
        match self.points.drain(point.0..).next() {
            Some(inner) => Ok(self.inner.release(inner)?),
            None => Ok(()),
        }
    }

    fn commit(self: Box<Self>) -> Result<()> {
        match self.inner.commit_with(Durability::Sync).map_err(esker::Error::from) {
            Ok(_) => Ok(()),
            // A write or a sync of the log failed. Whether the commit is durable shows at the next opening.
            Err(error @ esker::Error::Io { .. }) => Err(Error::OutcomeUnknown(error.to_string())),
            Err(other) => Err(other.into()),
        }
    }
}
