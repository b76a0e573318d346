//! Points in a transaction to which it can go back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::transaction::Transaction;
use super::writes::Writes;
use crate::encoding::catalog_key::name_key;
use crate::engine::writes::catalog_changes::Changes;
use crate::txn::commit::KeyspaceLife;
use crate::txn::layers::Layers;
use crate::txn::read_set::ReadSet;
use crate::txn::write_set::{Mark, WriteSet};
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result};

/// A point in a [`Transaction`]: made by [`Transaction::savepoint`].
#[derive(Clone, Debug)]
pub struct Savepoint {
    number: u64,
}

impl Transaction {
    /// Notes this point: [`rollback_to`](Self::rollback_to) comes back to it. There may be any number of
    /// them, also where the transaction has become larger than its memory.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let map = db.keyspace("map")?;
    /// let mut transaction = db.begin();
    /// transaction.put(&map, "kept", "1")?;
    /// let point = transaction.savepoint();
    /// transaction.put(&map, "undone", "2")?;
    /// transaction.rollback_to(&point)?;
    /// transaction.commit()?;
    /// assert_eq!((map.contains("kept")?, map.contains("undone")?), (true, false));
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&mut self) -> Savepoint {
        self.last_point += 1;
        self.writes.set_point(self.last_point);
        Savepoint { number: self.last_point }
    }

    /// Undoes what was written since a savepoint. The savepoint stays, those after it are forgotten. Takes
    /// time for what it undoes. Reads, locks and [notices](Self::notify) of that part stay: what the
    /// transaction does afterwards may depend on them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the savepoint was released, rolled back, or is another transaction's.
    pub fn rollback_to(&mut self, point: &Savepoint) -> Result<()> {
        if self.writes.go_back(point.number, self.reads.as_deref()) {
            Ok(())
        } else {
            Err(Self::no_such_point())
        }
    }

    /// Forgets a savepoint and those after it. What was written since stays.
    ///
    /// # Errors
    /// Those of [`rollback_to`](Self::rollback_to).
    pub fn release(&mut self, point: Savepoint) -> Result<()> {
        if self.writes.forget_point(point.number) { Ok(()) } else { Err(Self::no_such_point()) }
    }

    /// Runs a part of the transaction as one of its own inside: if it fails, what it wrote is undone, and the
    /// transaction may go on. They may be nested.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let db = esker::Db::in_memory()?;
    /// let map = db.keyspace("map")?;
    /// let mut transaction = db.begin();
    /// let failed = transaction.nested(|inner| -> esker::Result<()> {
    ///     inner.put(&map, "a", "1")?;
    ///     Err(esker::Error::Invalid("no".to_owned()))
    /// });
    /// assert!(failed.is_err());
    /// transaction.nested(|inner| inner.put(&map, "b", "2"))?;
    /// transaction.commit()?;
    /// assert_eq!((map.contains("a")?, map.contains("b")?), (false, true));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// That of the part.
    pub fn nested<T, E>(
        &mut self,
        part: impl FnOnce(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let Savepoint { number } = self.savepoint();
        let done = part(self);
        if done.is_err() {
            self.writes.go_back(number, self.reads.as_deref());
        }
        self.writes.forget_point(number);
        done
    }

    /// Notes that the transaction depends on what a name of a keyspace stands for.
    pub(super) fn note_name(&self, name: &str) {
        if let Some(reads) = self.reads.as_ref().filter(|_| !canary::is_set(Canary::NameReadForgotten)) {
            self.has_read.store(true, Ordering::Relaxed);
            reads.note_key(&name_key(name));
        }
    }

    fn no_such_point() -> Error {
        Error::Invalid("the savepoint is not there any more, or is another transaction's".to_owned())
    }
}

/// The writes as they were.
#[derive(Clone)]
pub(super) struct Point {
    number: u64,
    pub(super) mark: Mark,
    /// The set, if it has become a layer since.
    pub(super) set: Option<Arc<WriteSet>>,
    layers: Layers,
    keyspaces: Vec<KeyspaceLife>,
    changes: Changes,
    large_bytes: usize,
}

impl Writes {
    /// Notes this point, under a number larger than that of all before.
    pub(super) fn set_point(&mut self, number: u64) {
        self.points.push(Point {
            number,
            mark: self.set.mark(),
            set: None,
            layers: self.layers.clone(),
            keyspaces: self.keyspaces.clone(),
            changes: self.changes.clone(),
            large_bytes: self.large_bytes,
        });
    }

    /// Forgets a point and those after it; false if it is not there.
    pub(super) fn forget_point(&mut self, number: u64) -> bool {
        let at = self.points.iter().position(|point| point.number == number);
        at.inspect(|at| self.points.truncate(*at)).is_some()
    }

    /// Forgets the writes, and the points, since a point; false if it is not there. `reads`: what a
    /// serializable transaction has read.
    pub(super) fn go_back(&mut self, number: u64, reads: Option<&ReadSet>) -> bool {
        let Some(at) = self.points.iter().position(|point| point.number == number) else { return false };
        self.points.truncate(at + 1);
        if let Some(reads) = reads.filter(|_| !canary::is_set(Canary::UndoneReadForgotten)) {
            // read_set.4
            match &self.points[at] {
                Point { set: Some(_), .. } => reads.note_counted(),
                Point { mark, .. } => {
                    reads.note_undone(self.set.keys_since(mark), self.set.ranges_since(mark))
                }
            }
        }
        let point = &mut self.points[at];
        if let Some(set) = point.set.take() {
            self.set = set;
        }
        let point = self.points[at].clone();
        Arc::make_mut(&mut self.set).go_back(&point.mark);
        (self.layers, self.changes) = (point.layers, point.changes);
        (self.keyspaces, self.large_bytes) = (point.keyspaces, point.large_bytes);
        self.ids.clear();
        self.last = None;
        true
    }
}
