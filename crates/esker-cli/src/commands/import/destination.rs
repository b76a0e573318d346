//! The keyspaces into which an import brings its rows.
//!
//! ```text
//!   row --> of the keyspace that it names | of that of the command --> Sink
//! ```
//!
//! import_destination.1. Without -k a row goes into the keyspace that it names, or into the default one; with -k a row of another one is a bad line.
//! import_destination.2. A keyspace that a row names is created in the commit of its first rows: a failed import leaves none without rows.

use std::collections::BTreeMap;

use esker::{Error, Keyspace};

use crate::commands::sink::Sink;
use crate::database::Database;
use crate::failure::Result;
use crate::formats::Row;

/// Where rows go.
pub(super) struct Destination<'a> {
    pub(super) sink: Sink<'a>,
    database: &'a Database,
    /// Name and handle of the keyspace of rows that name none.
    keyspace: (&'a str, &'a Keyspace),
    /// Whether the user named that keyspace.
    is_asked: bool,
    /// Those that rows name.
    others: BTreeMap<String, Other>,
}

struct Other {
    keyspace: Keyspace,
    /// Its number of keys before.
    before: u64,
}

impl<'a> Destination<'a> {
    pub(super) fn new(
        database: &'a Database,
        batch_rows_max: usize,
        keyspace: (&'a str, &'a Keyspace),
        is_asked: bool,
    ) -> Self {
        let sink = Sink::new(database, batch_rows_max);
        Destination { sink, database, keyspace, is_asked, others: BTreeMap::new() }
    }

    /// Adds a row of the keyspace of this name, if it has one; the reason if it is a bad one.
    pub(super) fn add(&mut self, keyspace: Option<&str>, row: &Row) -> Result<Option<String>> {
        let database = self.database;
        let (own, handle) = self.keyspace;
        let Some(name) = keyspace.filter(|name| *name != own) else {
            return self.sink.add(handle, &row.key, &row.value);
        };
        // import_destination.1
        if self.is_asked {
            return Ok(Some(format!(
                "the row is of the keyspace `{name}`, and -k says `{own}`: leave out -k, or say --key key, which makes \
                 `keyspace` a field as any other"
            )));
        }
        if !self.others.contains_key(name) {
            let other = match database.has_keyspace(name) {
                true => {
                    let keyspace = database.keyspace(name)?;
                    let before = keyspace.len().map_err(|e| database.failure(e))?;
                    Other { keyspace, before }
                }
                // import_destination.2
                false => match self.sink.create_keyspace(name) {
                    Ok(keyspace) => Other { keyspace, before: 0 },
                    Err(Error::Invalid(reason)) => return Ok(Some(format!("keyspace: {reason}"))),
                    Err(error) => return Err(database.failure(error)),
                },
            };
            self.others.insert(name.to_owned(), other);
        }
        self.sink.add(&self.others[name].keyspace, &row.key, &row.value)
    }

    /// How many keys there are now and were not before, in the keyspaces that rows named.
    pub(super) fn other_new_keys(&self) -> Result<u64> {
        let new_keys = |other: &Other| Ok(other.keyspace.len()?.saturating_sub(other.before));
        let sum = self.others.values().map(new_keys).sum::<esker::Result<u64>>();
        sum.map_err(|error| self.database.failure(error))
    }
}
