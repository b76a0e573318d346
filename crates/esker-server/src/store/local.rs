//! A `Db` of this process as a store. Spaces are keyspaces, by the same names.

use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use esker::backup::{Backup, BackupInfo, Segment};
use esker::{Counting, Db, Durability, Error, Health, Isolation, Keyspace, Result, Savepoint, Value};

use super::{Order, Reads, Snapshot, Space, Span, Store, Transaction, Visit};

/// A `Db` as a [`Store`].
pub struct LocalStore {
    db: Db,
    memory: u64,
}

impl LocalStore {
    /// `memory`: the bytes of memory that the database may use.
    pub fn new(db: Db, memory: u64) -> Self {
        LocalStore { db, memory }
    }
}

fn keyspace(space: &Space) -> Result<&Keyspace> {
    space.handle().ok_or_else(|| Error::Invalid(format!("the space {:?} is another store's", space.name())))
}

fn bounds<'a>(span: &Span<'a>) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (span.lower, span.upper)
}

/// Shows what an iterator gives.
fn walk(range: esker::Range, order: Order, visit: &mut Visit<'_>) -> Result<()> {
    match order {
        Order::Up => range.visit(visit),
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
        keyspace(space)?.get(key)
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>> {
        keyspace(space)?.multi_get_within(keys, bytes_max)
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        walk(keyspace(space)?.range(bounds(&span)), order, visit)
    }

    fn len(&self, space: &Space) -> Result<u64> {
        keyspace(space)?.len()
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
            // One commit: whoever follows this database finds it counted as it is to be.
            let mut batch = self.db.batch();
            batch.create_keyspace_counting(name, counting)?;
            match batch.commit().map_err(Error::from) {
                Ok(_) | Err(Error::KeyspaceExists(_)) => {}
                Err(other) => return Err(other),
            }
        }
    }

    fn find_space(&self, name: &str) -> Result<Option<Space>> {
        match self.db.open_keyspace(name) {
            Ok(space) => Ok(Some(Space::new(name, space))),
            Err(Error::KeyspaceNotFound(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    fn spaces(&self) -> Result<Vec<String>> {
        self.db.keyspaces()
    }

    fn drop_space(&self, name: &str) -> Result<()> {
        self.db.drop_keyspace(name)
    }

    fn rename_spaces(&self, names: &[(&str, &str)]) -> Result<()> {
        let mut batch = self.db.batch();
        for (from, to) in names {
            batch.rename_keyspace(from, to)?;
        }
        batch.commit().map_err(Error::from).map(drop)
    }

    fn get_if_cached(&self, space: &Space, key: &[u8]) -> Result<Option<Option<Value>>> {
        keyspace(space)?.get_if_cached(key)
    }

    fn snapshot(&self) -> Arc<dyn Snapshot> {
        Arc::new(LocalSnapshot(self.db.snapshot()))
    }

    fn begin(&self) -> Box<dyn Transaction> {
        Box::new(LocalTransaction::new(self.db.begin_with(Isolation::Snapshot)))
    }

    fn sync(&self) -> Result<()> {
        self.db.sync()
    }

    fn figures(&self) -> Vec<(String, String)> {
        let stats = self.db.stats();
        let figures = [
            ("engine_items", stats.items),
            ("engine_seqno", stats.seqno),
            ("engine_memtable_bytes", stats.memtable_bytes),
            ("engine_tables", stats.tables),
            ("engine_table_bytes", stats.table_bytes),
            ("engine_blob_bytes", stats.blob_bytes),
            ("engine_cache_bytes", stats.cache_bytes),
            ("engine_cache_hits", stats.cache_hits),
            ("engine_cache_misses", stats.cache_misses),
            ("engine_log_bytes", stats.log_bytes),
            ("engine_commits", stats.commits),
            ("engine_stalls", stats.stalls),
            ("engine_pending_compaction_bytes", stats.pending_compaction_bytes),
        ];
        figures.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect()
    }

    fn set_merge_operator(&self, space: &Space, operator: &str) -> Result<()> {
        keyspace(space)?.set_merge_operator(operator)
    }

    fn checkpoint(&self, dir: &Path) -> Result<u64> {
        self.db.checkpoint(dir).map(|made| made.seqno.get())
    }

    fn backup(&self, dir: &Path) -> Result<BackupInfo> {
        Backup::open(dir)?.create(&self.db)
    }

    fn archive(&self, dir: &Path) -> Result<Option<Segment>> {
        Backup::open(dir)?.archive(&self.db)
    }

    fn trouble(&self) -> Option<String> {
        match self.db.health() {
            Health::Ok => None,
            health => Some(health.to_string()),
        }
    }

    fn is_in_memory(&self) -> bool {
        let stats = self.db.stats();
        stats.table_bytes + stats.blob_bytes < self.memory / 2
    }

    fn local(&self) -> Option<&Db> {
        Some(&self.db)
    }

    fn compact(&self) -> Result<()> {
        self.db.compact()
    }

    fn check(&self) -> Result<Vec<String>> {
        Ok(self.db.check()?.problems)
    }
}

struct LocalSnapshot(esker::Snapshot);

impl Snapshot for LocalSnapshot {}

impl Reads for LocalSnapshot {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        self.0.get(keyspace(space)?, key)
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>> {
        self.0.multi_get_within(keyspace(space)?, keys, bytes_max)
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        walk(self.0.range(keyspace(space)?, bounds(&span)), order, visit)
    }

    fn len(&self, space: &Space) -> Result<u64> {
        self.0.len(keyspace(space)?)
    }
}

struct LocalTransaction {
    inner: esker::Transaction,
    writes: u64,
    /// `writes` at the last mark.
    marked: u64,
    /// The engine's savepoint of the last mark. The first write after the mark makes it: most marks see no write.
    point: Option<Savepoint>,
    part: Option<Part>,
}

/// Where a part of a transaction began.
struct Part {
    /// `writes` at that moment.
    writes: u64,
    /// The engine's savepoint. The first write of the part makes it.
    point: Option<Savepoint>,
}

impl LocalTransaction {
    fn new(inner: esker::Transaction) -> Self {
        LocalTransaction { inner, writes: 0, marked: 0, point: None, part: None }
    }

    /// Counts a write that is about to happen.
    fn note_write(&mut self) {
        if let Some(part) = self.part.as_mut().filter(|part| part.point.is_none()) {
            // It lies before the savepoint of the mark, which comes and goes within the part.
            part.point = Some(self.inner.savepoint());
        }
        if self.point.is_none() {
            self.point = Some(self.inner.savepoint());
        }
        self.writes += 1;
    }
}

impl Reads for LocalTransaction {
    fn get(&self, space: &Space, key: &[u8]) -> Result<Option<Value>> {
        self.inner.get(keyspace(space)?, key)
    }

    fn multi_get(&self, space: &Space, keys: &[&[u8]], bytes_max: usize) -> Result<Vec<Option<Value>>> {
        self.inner.multi_get_within(keyspace(space)?, keys, bytes_max)
    }

    fn range(&self, space: &Space, span: Span<'_>, order: Order, visit: &mut Visit<'_>) -> Result<()> {
        walk(self.inner.range(keyspace(space)?, bounds(&span)), order, visit)
    }

    fn len(&self, space: &Space) -> Result<u64> {
        self.inner.len(keyspace(space)?)
    }
}

impl Transaction for LocalTransaction {
    fn put(&mut self, space: &Space, key: &[u8], value: &[u8]) -> Result<()> {
        self.note_write();
        self.inner.put(keyspace(space)?, key, value)
    }

    fn merge(&mut self, space: &Space, key: &[u8], operand: &[u8]) -> Result<()> {
        self.note_write();
        self.inner.merge(keyspace(space)?, key, operand)
    }

    fn remove(&mut self, space: &Space, key: &[u8]) -> Result<()> {
        self.note_write();
        self.inner.remove(keyspace(space)?, key)
    }

    fn remove_range(&mut self, space: &Space, span: Span<'_>) -> Result<()> {
        self.note_write();
        self.inner.remove_range(keyspace(space)?, bounds(&span))
    }

    fn version(&self) -> u64 {
        // Whoever sees this commit has a larger number of the newest commit (store.2).
        self.inner.snapshot().seqno().get() + 1
    }

    fn is_empty(&self) -> bool {
        self.writes == 0
    }

    fn mark(&mut self) {
        self.marked = self.writes;
        if let Some(point) = self.point.take() {
            // It fails only for a savepoint that is gone, and then there is nothing to release.
            let _ = self.inner.release(point);
        }
    }

    fn undo(&mut self) -> Result<()> {
        if let Some(point) = self.point.take() {
            self.inner.rollback_to(&point)?;
            self.inner.release(point)?;
        }
        self.writes = self.marked;
        Ok(())
    }

    fn begin_part(&mut self) {
        self.mark();
        self.part = Some(Part { writes: self.writes, point: None });
    }

    fn end_part(&mut self) {
        self.mark();
        if let Some(point) = self.part.take().and_then(|part| part.point) {
            // See `mark`.
            let _ = self.inner.release(point);
        }
    }

    fn undo_part(&mut self) -> Result<()> {
        let Some(part) = self.part.take() else { return Ok(()) };
        // The engine forgets the savepoint of the mark with what is undone.
        self.point = None;
        (self.writes, self.marked) = (part.writes, part.writes);
        if let Some(point) = part.point {
            self.inner.rollback_to(&point)?;
            self.inner.release(point)?;
        }
        Ok(())
    }

    fn commit(self: Box<Self>, durability: Durability) -> Result<()> {
        if self.writes == 0 {
            return Ok(());
        }
        self.inner.commit_with(durability).map(drop).map_err(Error::from)
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
        assert_eq!(store.get_if_cached(&space, b"b").unwrap(), Some(Some(Value::from("1"))));
        assert_eq!(store.multi_get(&space, &[b"b", b"x"], 100).unwrap(), [Some(Value::from("1")), None]);
        let mut third = store.begin();
        third.put(&space, b"kept", b"1").unwrap();
        third.mark();
        third.undo().unwrap();
        third.mark();
        third.remove(&space, b"b").unwrap();
        third.put(&space, b"kept", b"2").unwrap();
        third.undo().unwrap();
        third.put(&space, b"later", b"3").unwrap();
        assert_eq!(third.get(&space, b"kept").unwrap(), Some(Value::from("1")));
        assert_eq!((third.len(&space).unwrap(), third.is_empty()), (4, false));
        let mut fourth = store.begin();
        fourth.mark();
        fourth.put(&space, b"x", b"1").unwrap();
        fourth.undo().unwrap();
        assert!(fourth.is_empty());
        store.rename_spaces(&[("s", "t")]).unwrap();
        assert!(store.find_space("s").unwrap().is_none() && store.find_space("t").unwrap().is_some());
        store.drop_space("t").unwrap();
        assert_eq!(store.spaces().unwrap(), ["default"]);
        assert!(store.begin().is_empty() && store.check().unwrap().is_empty());
    }
}
