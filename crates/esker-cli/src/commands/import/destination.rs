//! Distributes imported rows to keyspaces.
//!
//! ```text
//!   row --> the keyspace that it names, else that of the command --> Sink
//! ```
//!
//! With -k, a row that names another keyspace is a bad line. A keyspace that a row names is created in the
//! commit of its first rows, so a failed import leaves no empty ones. Sorted rows form one commit in one
//! keyspace; a row out of order ends the import, because skipping it might be followed by many more.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use esker::{Error, Ingest, Keyspace};

use crate::args::Import;
use crate::commands::sink::Sink;
use crate::database::Database;
use crate::failure::Result;
use crate::formats::Row;

/// Destination of the imported rows.
pub(super) struct Destination<'a> {
    sink: Sink<'a>,
    /// Used instead of the sink for sorted rows.
    sorted: Option<Ingest>,
    /// Number of committed sorted rows.
    committed: u64,
    database: &'a Database,
    /// Name and handle of the keyspace for rows that name none.
    keyspace: (&'a str, &'a Keyspace),
    /// Whether the user selected that keyspace.
    is_asked: bool,
    /// Keyspaces named by rows.
    others: BTreeMap<String, Other>,
}

/// Why a row was refused.
pub(super) enum Refusal {
    /// The row can be skipped.
    Bad(String),
    /// The row is out of order, which ends the import.
    Unsorted(String),
}

struct Other {
    keyspace: Keyspace,
    /// Its number of keys before the import.
    before: u64,
}

impl<'a> Destination<'a> {
    pub(super) fn new(
        database: &'a Database,
        import: &Import,
        keyspace: (&'a str, &'a Keyspace),
        is_asked: bool,
    ) -> Self {
        let sink = Sink::new(database, import.batch);
        let sorted = import.sorted.then(|| keyspace.1.ingest());
        Destination { sink, sorted, committed: 0, database, keyspace, is_asked, others: BTreeMap::new() }
    }

    /// Returns the number of rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.sink.rows() + self.committed + self.sorted.as_ref().map_or(0, Ingest::len)
    }

    /// Returns the number of committed rows.
    pub(super) fn committed(&self) -> u64 {
        self.sink.committed + self.committed
    }

    /// Commits the remaining rows.
    pub(super) fn commit(&mut self) -> Result<()> {
        if let Some(sorted) = self.sorted.take() {
            let rows = sorted.len();
            sorted.commit().map_err(|failed| self.database.failure(failed.error))?;
            self.committed = rows;
        }
        self.sink.commit()
    }

    /// Adds a row to the named keyspace, or to that of the command. Returns the reason if the row is refused.
    pub(super) fn add(&mut self, keyspace: Option<&str>, row: &Row) -> Result<Option<Refusal>> {
        let (own, handle) = self.keyspace;
        match (keyspace.filter(|name| *name != own), &mut self.sorted) {
            (None, None) => Ok(add_row(&mut self.sink, handle, row)?.map(Refusal::Bad)),
            (None, Some(_)) if row.expires_ms.is_some() => Ok(Some(Refusal::Bad(
                "the row expires, which --sorted does not support: omit --sorted".to_owned(),
            ))),
            (None, Some(sorted)) => match sorted.put(&row.key, &row.value) {
                Ok(()) => Ok(None),
                Err(error @ (Error::KeyTooLong { .. } | Error::ValueTooLong { .. })) => {
                    Ok(Some(Refusal::Bad(error.to_string())))
                }
                // The ingest reports a row that is out of order.
                Err(Error::OutOfOrder(reason)) => Ok(Some(Refusal::Unsorted(reason))),
                Err(error) => Err(self.database.failure(error)),
            },
            (Some(name), Some(_)) => Ok(Some(Refusal::Bad(format!(
                "the row belongs to the keyspace `{name}`, but --sorted imports all rows into `{own}`: omit --sorted, or use \
                 --key key, which makes `keyspace` a field as any other"
            )))),
            (Some(name), None) => Ok(self.add_to_other(name, row)?.map(Refusal::Bad)),
        }
    }

    fn add_to_other(&mut self, name: &str, row: &Row) -> Result<Option<String>> {
        let (database, own) = (self.database, self.keyspace.0);
        // An explicit -k excludes other keyspaces.
        if self.is_asked {
            return Ok(Some(format!(
                "the row belongs to the keyspace `{name}`, but -k selects `{own}`: omit -k, or use --key key, which makes \
                 `keyspace` an ordinary field"
            )));
        }
        if !self.others.contains_key(name) {
            let other = match database.has_keyspace(name) {
                true => {
                    let keyspace = database.keyspace(name)?;
                    let before = keyspace.len().map_err(|e| database.failure(e))?;
                    Other { keyspace, before }
                }
                // The keyspace is created in the commit of its first rows.
                false => match self.sink.create_keyspace(name) {
                    Ok(keyspace) => Other { keyspace, before: 0 },
                    Err(Error::Invalid(reason)) => return Ok(Some(format!("keyspace: {reason}"))),
                    Err(error) => return Err(database.failure(error)),
                },
            };
            self.others.insert(name.to_owned(), other);
        }
        add_row(&mut self.sink, &self.others[name].keyspace, row)
    }

    /// Returns how many new keys the keyspaces named by rows have.
    pub(super) fn other_new_keys(&self) -> Result<u64> {
        let new_keys = |other: &Other| Ok(other.keyspace.len()?.saturating_sub(other.before));
        let sum = self.others.values().map(new_keys).sum::<esker::Result<u64>>();
        sum.map_err(|error| self.database.failure(error))
    }
}

fn add_row(sink: &mut Sink<'_>, keyspace: &Keyspace, row: &Row) -> Result<Option<String>> {
    let Some(ms) = row.expires_ms else { return sink.add(keyspace, &row.key, &row.value) };
    match SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)) {
        Some(end) => sink.add_until(keyspace, &row.key, &row.value, Some(end)),
        None => Ok(Some("its expiry time is out of range".to_owned())),
    }
}
