//! A `Db` of this process as a store. A space is the keyspace of the same name.

use std::any::Any;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::task::{Poll, Waker};

use esker::{
    Change, Counting, Db, Durability, Figure, Health, Keyspace, KeyspaceOptions, LockMode, LockOwner,
    Savepoint, Value, Watch,
};

use super::{
    Changed, Changes, Error, Isolation, Locks, Order, Reads, Result, Snapshot, Space, Span, Store,
    Transaction, Visit, Write,
};

/// A `Db` as a [`Store`].
pub struct LocalStore {
    db: Db,
    memory: u64,
}

impl LocalStore {
    /// Creates a store on a database that may use `memory` bytes of memory.
    pub fn new(db: Db, memory: u64) -> Self {
        LocalStore { db, memory }
    }
}

fn keyspace(space: &Space) -> Result<&Keyspace> {
    space.handle().ok_or_else(|| others(space.name()))
}

fn others(what: &str) -> Error {
    Error::Invalid(format!("{what:?} is another store's"))
}

fn bounds<'a>(span: &Span<'a>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (span.lower, span.upper)
}

/// Visits the entries of an iterator.
fn walk(mut range: esker::Range, order: Order, visit: &mut Visit<'_>) -> Result<()> {
    match order {
        Order::Up => Ok(range.visit(visit)?),
        Order::Down => {
            for entry in range.rev() {
                let (key, value) = entry?;
                if visit(&key, &value) == ControlFlow::Break(()) {
                    break;
                }
            }
            Ok(())
        }
    }
}

impl Reads for LocalStore {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        Ok(keyspace(space)?.get(key)?)
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>> {
        Ok(keyspace(space)?.multi_get_within(keys, bytes_max)?)
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        walk(keyspace(space)?.range(bounds(&span)), order, visit)
    }

    fn len(&self, space: &Space) -> Result<u64> {
        Ok(keyspace(space)?.len()?)
    }
}

impl Store for LocalStore {
    fn prefetch(&self, space: &Space, keys: &[&[u8]]) {
        if let Ok(keyspace) = keyspace(space) {
            keyspace.prefetch(keys);
        }
    }

    fn space(&self, name: &str, counted: bool) -> Result<Space> {
        let counting = if counted { Counting::Exact } else { Counting::Lazy };
        loop {
            if let Some(found) = self.find_space(name)? {
                return Ok(found);
            }
            // One commit, so that replicas never see the keyspace with another way of counting.
            let mut batch = self.db.batch();
            batch.create_keyspace_with(name, KeyspaceOptions::new().counting(counting))?;
            match batch.commit().map_err(esker::Error::from) {
                Ok(_) | Err(esker::Error::KeyspaceExists(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
    }

    fn find_space(&self, name: &str) -> Result<Option<Space>> {
        match self.db.open_keyspace(name) {
            Ok(space) => Ok(Some(Space::new(name, space))),
            Err(esker::Error::KeyspaceNotFound(_)) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    fn spaces(&self) -> Result<Vec<String>> {
        Ok(self.db.keyspaces()?)
    }

    fn drop_space(&self, name: &str) -> Result<()> {
        Ok(self.db.drop_keyspace(name)?)
    }

    fn rename_spaces(&self, names: &[(&str, &str)]) -> Result<()> {
        let mut batch = self.db.batch();
        for (from, to) in names {
            batch.rename_keyspace(from, to)?;
        }
        batch.commit().map_err(esker::Error::from)?;
        Ok(())
    }

    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Arc::new(LocalSnapshot(self.db.snapshot()))
    }

    fn begin(&self) -> Box<dyn Transaction> {
        Box::new(LocalTransaction::new(
            self.db.transaction().isolation(esker::Isolation::Snapshot).begin(),
            Isolation::Snapshot,
        ))
    }

    fn begin_part(&self, isolation: Isolation) -> Box<dyn Transaction> {
        let inner = match isolation {
            Isolation::Serializable => esker::Isolation::Serializable,
            _ => esker::Isolation::Snapshot,
        };
        Box::new(LocalTransaction::new(self.db.begin_part(inner), isolation))
    }

    fn changes(&self, space: &Space) -> Result<Option<Box<dyn Changes>>> {
        Ok(Some(Box::new(LocalChanges(keyspace(space)?.watch(..)?))))
    }

    fn locks(&self) -> Box<dyn Locks> {
        Box::new(LocalLocks(self.db.lock_owner()))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.sync()?)
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        self.db.stats().each(|figure| figures.push(figure));
        figures
    }

    fn set_merge_operator(&self, space: &Space, operator: &str) -> Result<()> {
        Ok(keyspace(space)?.set_merge_operator(operator)?)
    }

    fn health_problem(&self) -> Option<String> {
        match self.db.health() {
            Health::Ok => None,
            health => Some(health.to_string()),
        }
    }

    fn is_in_memory(&self) -> bool {
        let stats = self.db.stats();
        stats.table_bytes + stats.blob_bytes < self.memory / 2
    }

    fn compact(&self) -> Result<()> {
        Ok(self.db.compact()?)
    }

    fn check(&self) -> Result<Vec<String>> {
        Ok(self.db.check()?.problems)
    }
}

struct LocalChanges(Watch);

impl Changes for LocalChanges {
    fn next(&mut self, waker: &Waker) -> Option<(u64, Changed)> {
        let Poll::Ready(Some((seqno, change))) = self.0.poll_next(waker) else { return None };
        let changed = match change {
            Change::Put { key, .. } | Change::Delete { key } | Change::Expire { key } => {
                Changed::Key(key.to_vec())
            }
            Change::DeleteRange { start, end } => Changed::Range(start.to_vec(), end.map(|end| end.to_vec())),
            _ => Changed::Any,
        };
        Some((seqno.get(), changed))
    }
}

pub(super) struct LocalLocks(pub(super) LockOwner);

impl Locks for LocalLocks {
    fn try_lock(&mut self, space: &str, name: &[u8], mode: LockMode, waker: Option<&Waker>) -> Result<bool> {
        Ok(self.0.try_lock(space, name, mode, waker)?)
    }

    fn stop_waiting(&mut self) {
        self.0.stop_waiting();
    }

    fn unlock(&mut self, space: &str, name: &[u8]) {
        self.0.unlock(space, name);
    }
}

struct LocalSnapshot(esker::Snapshot);

impl Snapshot for LocalSnapshot {}

impl Reads for LocalSnapshot {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.0.get(keyspace(space)?, key)?)
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>> {
        Ok(self.0.multi_get_within(keyspace(space)?, keys, bytes_max)?)
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        walk(self.0.range(keyspace(space)?, bounds(&span)), order, visit)
    }

    fn len(&self, space: &Space) -> Result<u64> {
        Ok(self.0.len(keyspace(space)?)?)
    }
}

struct LocalTransaction {
    inner: esker::Transaction,
    /// The isolation as part of another transaction.
    isolation: Isolation,
    writes: u64,
    points: Vec<Point>,
}

/// A savepoint of a [`LocalTransaction`].
struct Point {
    /// The number of writes before the savepoint.
    writes: u64,
    /// The engine's savepoint. Set by the first write after this point, since most points see no write.
    inner: Option<Savepoint>,
}

impl LocalTransaction {
    fn new(inner: esker::Transaction, isolation: Isolation) -> Self {
        LocalTransaction { inner, isolation, writes: 0, points: Vec::new() }
    }

    /// Counts a write that is about to happen.
    fn note_write(&mut self) {
        // Older points come first in the engine, too.
        let first = self.points.iter().rposition(|point| point.inner.is_some()).map_or(0, |last| last + 1);
        for point in &mut self.points[first..] {
            point.inner = Some(self.inner.savepoint());
        }
        self.writes += 1;
    }
}

impl Reads for LocalTransaction {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.inner.get(keyspace(space)?, key)?)
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>> {
        Ok(self.inner.multi_get_within(keyspace(space)?, keys, bytes_max)?)
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        walk(self.inner.range(keyspace(space)?, bounds(&span)), order, visit)
    }

    fn len(&self, space: &Space) -> Result<u64> {
        Ok(self.inner.len(keyspace(space)?)?)
    }
}

impl Transaction for LocalTransaction {
    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()> {
        self.note_write();
        Ok(self.inner.put(keyspace(space)?, key, value)?)
    }

    fn merge(&mut self, space: &Space, key: &[u8], operand: &[u8]) -> Result<()> {
        self.note_write();
        Ok(self.inner.merge(keyspace(space)?, key, operand)?)
    }

    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()> {
        self.note_write();
        Ok(self.inner.delete(keyspace(space)?, key)?)
    }

    fn delete_range(&mut self, space: &Space, span: Span<'_>) -> Result<()> {
        self.note_write();
        Ok(self.inner.delete_range(keyspace(space)?, bounds(&span))?)
    }

    fn version(&self) -> u64 {
        // A transaction that sees this commit has a snapshot with a larger sequence number (store.2).
        self.inner.snapshot().seqno().get() + 1
    }

    fn writes(&self) -> u64 {
        self.writes
    }

    fn savepoint(&mut self) -> usize {
        self.points.push(Point { writes: self.writes, inner: None });
        self.points.len() - 1
    }

    fn rollback_to(&mut self, point: usize) -> Result<()> {
        self.points.truncate(point + 1);
        let point = self.points.last_mut().ok_or_else(|| Error::Invalid("no such savepoint".to_owned()))?;
        self.writes = point.writes;
        if let Some(inner) = point.inner.take() {
            self.inner.rollback_to(&inner)?;
            self.inner.release(inner)?;
        }
        Ok(())
    }

    fn release(&mut self, point: usize) {
        if let Some(inner) = self.points.drain(point..).find_map(|point| point.inner) {
            // The only error is that the savepoint is gone. Then there is nothing to release.
            let _ = self.inner.release(inner);
        }
    }

    fn refresh(&mut self) {
        self.inner.refresh();
    }

    fn note_reads(&mut self, notes: bool) {
        self.inner.note_reads(notes);
    }

    fn depend_on(&self, space: &Space, span: Span<'_>) -> Result<()> {
        Ok(self.inner.depend_on(keyspace(space)?, bounds(&span))?)
    }

    fn admit(&mut self, part: &dyn Transaction) -> Result<()> {
        let part: &LocalTransaction = part.as_any().downcast_ref().ok_or_else(|| others("part"))?;
        Ok(self.inner.admit(&part.inner, part.isolation >= Isolation::Snapshot)?)
    }

    fn visit_writes(&self, space: &Space, visit: &mut dyn FnMut(Write<'_>)) -> Result<()> {
        Ok(self.inner.visit_writes(keyspace(space)?, visit)?)
    }

    fn repeat(&mut self, space: &Space, write: Write<'_>) -> Result<()> {
        self.note_write();
        Ok(self.inner.repeat(keyspace(space)?, write)?)
    }

    fn write_count(&self) -> usize {
        self.inner.write_count()
    }

    fn bytes(&self) -> usize {
        self.inner.written_bytes()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<u64> {
        if self.writes == 0 {
            return Ok(0);
        }
        match self.inner.commit_with(durability).map_err(esker::Error::from) {
            Ok(seqno) => Ok(seqno.get()),
            // A write or a sync of the log failed. Whether the commit is durable shows at the next opening.
            Err(error @ esker::Error::Io { .. }) => Err(Error::OutcomeUnknown(error.to_string())),
            Err(other) => Err(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(reads: &dyn Reads, space: &Space, span: Span<'_>, order: Order) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut visit = |key: &[u8], _: &[u8]| {
            keys.push(key.to_vec());
            if keys.len() < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        reads.range(space, span, order, &mut visit).unwrap();
        keys
    }

    #[test]
    fn store_1_store_2_what_the_traits_promise() {
        let store = LocalStore::new(Db::in_memory().unwrap(), 1 << 30);
        let space = store.space("s", false).unwrap();
        let mut first = store.begin();
        let before = store.snapshot();
        for key in ["a", "b", "c"] {
            first.put(&space, key.as_bytes(), b"1").unwrap();
        }
        first.remove(&space, b"a").unwrap();
        assert_eq!(keys(&*first, &space, Span::ALL, Order::Up), [b"b", b"c"], "store.1");
        assert_eq!((first.len(&space).unwrap(), store.len(&space).unwrap()), (2, 0));
        let version = first.version();
        first.commit(Durability::Sync).unwrap();
        assert!(store.begin().version() > version, "store.2");
        assert_eq!(keys(&store, &space, Span::from(b"a"), Order::Down), [b"c", b"b"]);
        assert_eq!(before.get(&space, b"b").unwrap(), None);
        assert_eq!(store.multi_get(&space, &[b"b", b"x"], 100).unwrap(), [Some(Value::from("1")), None]);
        let mut third = store.begin();
        third.put(&space, b"kept", b"1").unwrap();
        let outer = third.savepoint();
        third.rollback_to(outer).unwrap();
        let inner = third.savepoint();
        third.remove(&space, b"b").unwrap();
        third.put(&space, b"kept", b"2").unwrap();
        third.rollback_to(inner).unwrap();
        third.put(&space, b"b", b"0").unwrap();
        third.release(inner);
        third.rollback_to(outer).unwrap();
        third.release(outer);
        third.put(&space, b"later", b"3").unwrap();
        assert_eq!(third.get(&space, b"kept").unwrap(), Some(Value::from("1")));
        assert_eq!((third.len(&space).unwrap(), third.is_empty()), (4, false));
        let mut fourth = store.begin();
        let point = fourth.savepoint();
        fourth.put(&space, b"x", b"1").unwrap();
        fourth.rollback_to(point).unwrap();
        assert!(fourth.is_empty());
        store.rename_spaces(&[("s", "t")]).unwrap();
        assert!(store.find_space("s").unwrap().is_none() && store.find_space("t").unwrap().is_some());
        store.drop_space("t").unwrap();
        assert_eq!(store.spaces().unwrap(), ["default"]);
        assert!(store.begin().is_empty() && store.check().unwrap().is_empty());
    }
}
