//! Savepoints: points in a transaction to which it can roll back.

use std::sync::atomic::Ordering;

use super::transaction::Transaction;
use crate::encoding::catalog_key::name_key;
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result};

/// A point in a [`Transaction`]: made by [`Transaction::savepoint`].
#[derive(Clone, Debug)]
pub struct Savepoint {
    number: u64,
}

impl Transaction {
    /// Sets a savepoint, to which [`rollback_to`](Self::rollback_to) can return. A transaction can have any
    /// number of savepoints, even if it is larger than its memory.
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

    /// Undoes the writes since a savepoint. The savepoint stays; later ones are released. The time depends on
    /// the amount of undone writes. Reads, locks and [notices](Self::notify) since the savepoint stay,
    /// because later operations may depend on them.
    ///
    /// # Errors
    /// [`Error::SavepointGone`] if it was released or rolled back, or belongs to another transaction.
    pub fn rollback_to(&mut self, point: &Savepoint) -> Result<()> {
        if self.writes.go_back(point.number, self.reads.iter().chain(&self.parts)) {
            Ok(())
        } else {
            Err(Self::no_such_point())
        }
    }

    /// Releases a savepoint and later ones. The writes since then stay.
    ///
    /// # Errors
    /// Those of [`rollback_to`](Self::rollback_to).
    pub fn release(&mut self, point: Savepoint) -> Result<()> {
        if self.writes.forget_point(point.number) { Ok(()) } else { Err(Self::no_such_point()) }
    }

    /// Runs a part of the transaction as a nested transaction: if the part fails, its writes are undone, and
    /// the transaction can continue. Calls can be nested.
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
    /// The error of the part.
    pub fn nested<T, E>(
        &mut self,
        part: impl FnOnce(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let Savepoint { number } = self.savepoint();
        let done = part(self);
        if done.is_err() {
            self.writes.go_back(number, self.reads.iter().chain(&self.parts));
        }
        self.writes.forget_point(number);
        done
    }

    /// Records that the transaction depends on which keyspace a name refers to.
    pub(super) fn note_name(&self, name: &str) {
        if let Some(reads) = self.reads.as_ref().filter(|_| !canary::is_set(Canary::NameReadForgotten)) {
            self.has_read.store(true, Ordering::Relaxed);
            reads.note_key(&name_key(name));
        }
    }

    fn no_such_point() -> Error {
        Error::SavepointGone
    }
}
