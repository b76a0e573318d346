//! The shell's transaction.

use super::Database;
use crate::failure::{Failure, Result};
use crate::text::shown;

/// The failure of a command that needs a transaction.
pub(crate) fn no_transaction() -> Failure {
    Failure::message("there is no transaction: `begin` begins one")
}

impl Database {
    /// Begins a transaction, which subsequent reads and writes go through.
    pub(crate) fn begin(&self) -> Result<()> {
        if self.in_transaction() {
            return Err(Failure::message("a transaction is open: `commit` or `rollback` ends it"));
        }
        self.transaction.replace(Some(self.db.begin()));
        self.savepoints.take();
        self.given.take();
        Ok(())
    }

    /// Commits the transaction, which ends in any case.
    pub(crate) fn commit(&self) -> Result<()> {
        let transaction = self.transaction.take().ok_or_else(no_transaction)?;
        let commit = || -> esker::Result<()> {
            transaction.commit()?;
            Ok(())
        };
        commit().map_err(|error| self.failure(error))
    }

    /// Rolls back the transaction. Returns false if there is none.
    pub(crate) fn rollback(&self) -> bool {
        self.transaction.take().is_some()
    }

    /// Sets a savepoint of the transaction. It hides an older one of the same name.
    pub(crate) fn set_savepoint(&self, name: &str) -> Result<()> {
        let mut transaction = self.transaction.borrow_mut();
        let point = transaction.as_mut().ok_or_else(no_transaction)?.savepoint();
        self.savepoints.borrow_mut().push((name.to_owned(), point));
        Ok(())
    }

    /// Undoes what the transaction has written since a savepoint, which stays.
    pub(crate) fn rollback_to(&self, name: &str) -> Result<()> {
        let mut transaction = self.transaction.borrow_mut();
        let transaction = transaction.as_mut().ok_or_else(no_transaction)?;
        let mut savepoints = self.savepoints.borrow_mut();
        let Some(at) = savepoints.iter().rposition(|(of, _)| of == name) else {
            return Err(Failure::message(format!("the transaction has no savepoint `{}`", shown(name))));
        };
        savepoints.truncate(at + 1);
        transaction.rollback_to(&savepoints[at].1).map_err(|error| self.failure(error))
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.transaction.borrow().is_some()
    }
}
