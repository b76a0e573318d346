//! The keyspaces into which an import brings its rows.
//!
//! ```text
//!   row --> of the keyspace that it names | of that of the command --> Sink
//! ```
//!
//! import_destination.1. Without -k a row goes into the keyspace that it names, or into the default one; with -k a row of another one is a bad line.
//! import_destination.2. A keyspace that a row names is created in the commit of its first rows: a failed import leaves none without rows.
//! import_destination.3. Sorted rows are one commit, of one keyspace. A row that is out of order ends the import: left out, it might be one of many.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use esker::{Error, Ingest, Keyspace};

use crate::args::Import;
use crate::commands::sink::Sink;
use crate::database::Database;
use crate::failure::Result;
use crate::formats::Row;

/// Where rows go.
pub(super) struct Destination<'a> {
    sink: Sink<'a>,
    /// In the place of the sink, for sorted rows.
    sorted: Option<Ingest>,
    /// Sorted rows that are committed.
    committed: u64,
    database: &'a Database,
    /// Name and handle of the keyspace of rows that name none.
    keyspace: (&'a str, &'a Keyspace),
    /// Whether the user named that keyspace.
    is_asked: bool,
    /// Those that rows name.
    others: BTreeMap<String, Other>,
}

/// Why a row is not taken.
pub(super) enum Refusal {
    /// It can be left out.
    Bad(String),
    /// import_destination.3
    Unsorted(String),
}

struct Other {
    keyspace: Keyspace,
    /// Its number of keys before.
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

    /// Rows so far.
    pub(super) fn rows(&self) -> u64 {
        self.sink.rows() + self.committed + self.sorted.as_ref().map_or(0, Ingest::len)
    }

    /// Rows that are committed.
    pub(super) fn committed(&self) -> u64 {
        self.sink.committed + self.committed
    }

    /// Commits the last rows.
    pub(super) fn commit(&mut self) -> Result<()> {
        if let Some(sorted) = self.sorted.take() {
            let rows = sorted.len();
            sorted.commit().map_err(|failed| self.database.failure(failed.error))?;
            self.committed = rows;
        }
        self.sink.commit()
    }

    /// Adds a row of the keyspace of this name, if it has one; the reason if it is a bad one.
    pub(super) fn add(&mut self, keyspace: Option<&str>, row: &Row) -> Result<Option<Refusal>> {
        let (own, handle) = self.keyspace;
        match (keyspace.filter(|name| *name != own), &mut self.sorted) {
            (None, None) => Ok(add_row(&mut self.sink, handle, row)?.map(Refusal::Bad)),
            (None, Some(_)) if row.expires_ms.is_some() => Ok(Some(Refusal::Bad(
                "the row expires, and with --sorted rows cannot: leave out --sorted".to_owned(),
            ))),
            (None, Some(sorted)) => match sorted.put(&row.key, &row.value) {
                Ok(()) => Ok(None),
                Err(error @ (Error::KeyTooLong { .. } | Error::ValueTooLong { .. })) => {
                    Ok(Some(Refusal::Bad(error.to_string())))
                }
                // import_destination.3
                Err(Error::Invalid(reason)) => Ok(Some(Refusal::Unsorted(reason))),
                Err(error) => Err(self.database.failure(error)),
            },
            (Some(name), Some(_)) => Ok(Some(Refusal::Bad(format!(
                "the row is of the keyspace `{name}`, and with --sorted all rows go into `{own}`: leave out --sorted, or say \
                 --key key, which makes `keyspace` a field as any other"
            )))),
            (Some(name), None) => Ok(self.add_to_other(name, row)?.map(Refusal::Bad)),
        }
    }

    fn add_to_other(&mut self, name: &str, row: &Row) -> Result<Option<String>> {
        let (database, own) = (self.database, self.keyspace.0);
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
        add_row(&mut self.sink, &self.others[name].keyspace, row)
    }

    /// How many keys there are now and were not before, in the keyspaces that rows named.
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
        None => Ok(Some("it expires later than the system can tell".to_owned())),
    }
}
