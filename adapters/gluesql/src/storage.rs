//! `EskerStorage`: a connection, and its transaction.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use esker::{Db, Durability, Keyspace, Range, Sequence, Transaction};
use gluesql_core::error::Error;
use gluesql_core::store;

use crate::error::{Failed, Result, storage};

/// A connection to the tables `name` of a database.
pub struct EskerStorage {
    pub(crate) parts: Arc<Parts>,
    current: Option<Current>,
}

pub(crate) struct Parts {
    pub(crate) db: Db,
    pub(crate) schemas: Keyspace,
    pub(crate) rows: Keyspace,
    pub(crate) indexes: Keyspace,
    ids: Sequence,
}

struct Current {
    transaction: Transaction,
    /// Whether GlueSQL began it for one statement.
    autocommit: bool,
}

impl EskerStorage {
    /// Opens the tables `name`, or makes a place for them. A database can have several.
    ///
    /// # Errors
    /// Those of [`Db::keyspace`], as text.
    pub fn open(db: &Db, name: &str) -> Result<Self> {
        let keyspace = |of: &str| db.keyspace(&format!("{name}/{of}")).map_err(storage);
        let parts = Parts {
            db: db.clone(),
            schemas: keyspace("schemas")?,
            rows: keyspace("rows")?,
            indexes: keyspace("indexes")?,
            ids: keyspace("ids")?.sequence("row", 1000).map_err(storage)?,
        };
        Ok(EskerStorage { parts: Arc::new(parts), current: None })
    }

    /// Returns another connection to the same tables.
    pub fn connect(&self) -> Self {
        EskerStorage { parts: self.parts.clone(), current: None }
    }

    pub(crate) fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<esker::Value>> {
        let found = match &self.current {
            Some(current) => current.transaction.get(keyspace, key),
            None => keyspace.get(key),
        };
        found.map_err(storage)
    }

    pub(crate) fn range(&self, keyspace: &Keyspace, start: Vec<u8>, end: Vec<u8>) -> Range {
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        match &self.current {
            Some(current) => current.transaction.range(keyspace, bounds),
            None => keyspace.range(bounds),
        }
    }

    pub(crate) fn prefix(&self, keyspace: &Keyspace, prefix: &[u8]) -> Range {
        match &self.current {
            Some(current) => current.transaction.prefix(keyspace, prefix),
            None => keyspace.prefix(prefix),
        }
    }

    /// Writes in the transaction, or in one of its own. In the transaction, an error undoes the writes.
    pub(crate) fn write<T>(
        &mut self,
        mut write: impl FnMut(&Parts, &mut Transaction) -> Result<T, Failed>,
    ) -> Result<T> {
        let parts = &self.parts;
        let done = match &mut self.current {
            Some(current) => current.transaction.nested(|t| write(parts, t)),
            None => {
                let transaction = parts.db.transaction().durability(Durability::Sync);
                transaction.run(|t| write(parts, t)).map(|done| done.value)
            }
        };
        done.map_err(|failed| failed.0)
    }
}

impl Parts {
    /// Returns a number for a row without a primary key.
    pub(crate) fn new_id(&self) -> Result<i64> {
        let id = self.ids.next().map_err(storage)?;
        i64::try_from(id).map_err(storage)
    }
}

impl fmt::Debug for EskerStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EskerStorage")
            .field("path", &self.parts.db.path())
            .field("in_transaction", &self.current.is_some())
            .finish_non_exhaustive()
    }
}

impl store::Transaction for EskerStorage {
    fn begin(&mut self, autocommit: bool) -> Result<bool> {
        match (&self.current, autocommit) {
            (Some(_), false) => Err(Error::StorageMsg("a transaction has begun already".to_owned())),
            (Some(current), true) => Ok(current.autocommit),
            (None, _) => {
                let transaction = self.parts.db.begin();
                self.current = Some(Current { transaction, autocommit });
                Ok(autocommit)
            }
        }
    }

    fn rollback(&mut self) -> Result<()> {
        self.current.take().map(drop).ok_or_else(nothing_begun)
    }

    /// sql.1
    fn commit(&mut self) -> Result<()> {
        let current = self.current.take().ok_or_else(nothing_begun)?;
        current.transaction.commit_with(Durability::Sync).map_err(|failed| storage(failed.error))?;
        Ok(())
    }
}

fn nothing_begun() -> Error {
    Error::StorageMsg("no transaction has begun".to_owned())
}
