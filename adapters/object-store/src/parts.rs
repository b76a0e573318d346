//! `Parts`: the keyspaces of a store, and the numbers of its content.

use chrono::{DateTime, Utc};
use esker::{Db, Keyspace, Sequence};
use object_store::MultipartId;
use object_store::path::Path;

use crate::error::{Result, generic};

/// What clones of a store share.
pub(crate) struct Parts {
    pub(crate) db: Db,
    pub(crate) name: String,
    pub(crate) objects: Keyspace,
    pub(crate) content: Keyspace,
    pub(crate) uploads: Keyspace,
    numbers: Sequence,
}

/// An upload that was neither completed nor aborted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unfinished {
    /// Its id, for [`abort_multipart`](object_store::multipart::MultipartStore::abort_multipart).
    pub id: MultipartId,
    /// The object it is for.
    pub location: Path,
    /// When it began.
    pub begun: DateTime<Utc>,
}

impl Parts {
    pub(crate) fn open(db: &Db, name: &str) -> Result<Self> {
        let keyspace = |of: &str| db.keyspace(&format!("{name}/{of}")).map_err(generic);
        let numbers = keyspace("numbers")?.sequence("content", 256).map_err(generic)?;
        Ok(Parts {
            db: db.clone(),
            name: name.to_owned(),
            objects: keyspace("objects")?,
            content: keyspace("content")?,
            uploads: keyspace("uploads")?,
            numbers,
        })
    }

    /// Returns a number that no content has. Not called within a transaction: it may commit one.
    pub(crate) fn new_content(&self) -> Result<u64> {
        self.numbers.next().map_err(generic)
    }
}
