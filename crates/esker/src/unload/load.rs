//! From a file to a database.

use std::path::Path;
use std::time::Duration;

use esker_env::Env;

use super::format::{Entry, Head, Record};
use super::{LOADING, OnProgress, Unloaded, check_asked_for, is_left_out};
use crate::db::{Db, Keyspace, WriteBatch};
use crate::engine::keyspace_options::{Counting, KeyspaceOptions};
use crate::recordio::Reader;
use crate::txn::commit::Durability;
use crate::types::{Error, Result};

/// So much of entries makes a commit.
const COMMIT_BYTES: usize = 4 << 20;
/// The key of the place, in its keyspace.
const PLACE: &str = "place";

/// Reads a file into a database. See the [module](super).
#[derive(Default)]
pub struct Load {
    keyspaces: Option<Vec<String>>,
    env: Option<Env>,
    on_progress: Option<OnProgress>,
}

impl Load {
    /// Of all keyspaces that are in the file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Of these keyspaces alone.
    pub fn keyspaces<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.keyspaces = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// From a file of this world, in place of the operating system's.
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Calls this for every commit.
    pub fn on_progress(mut self, call: impl FnMut(&Unloaded) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(call));
        self
    }

    /// Loads the file into keyspaces that are missing or empty. If an earlier call for the same file was stopped, this goes on where that one was: until it has
    /// ended, the keyspace `esker.load` keeps the place.
    ///
    /// # Errors
    /// [`Error::KeyspaceExists`] if a keyspace holds something already; [`Error::KeyspaceNotFound`] if the file has no such one; [`Error::Invalid`] if the load of another
    /// file has not ended, or the file is another one; [`Error::Corrupt`] with the place in the file; those of commits.
    pub fn read(self, db: &Db, path: impl AsRef<Path>) -> Result<Unloaded> {
        check_asked_for(self.keyspaces.as_ref())?;
        let path = path.as_ref();
        let env = self.env.clone().unwrap_or_else(Env::real);
        let mut reader = Reader::options().env(&env).strict_tail(true).open(path)?;
        let first = reader.next()?.map(|first| Head::decode(first, path, 0)).transpose()?;
        let head = first.ok_or_else(|| cut(path, 0))?;
        for name in self.keyspaces.iter().flatten() {
            if head.keyspaces.iter().all(|(there, _)| there != name) {
                return Err(Error::KeyspaceNotFound(name.clone()));
            }
        }
        let mut run = Run::new(db, &head, self)?;
        let mut number = 0;
        while let Some(bytes) = reader.next()?.map(<[u8]>::to_vec) {
            number += 1;
            let record = Record::decode(&bytes);
            let record = record.map_err(|e| e.in_file("unload", path, reader.content_offset()))?;
            run.done.bytes = reader.position();
            if run.take(&record, number, path)? {
                return run.finish();
            }
        }
        Err(cut(path, reader.position()))
    }
}

fn cut(path: &Path, at: u64) -> Error {
    Error::corrupt("unload", path, at, "the file has no end: write it again")
}

/// A load that goes on.
struct Run<'a> {
    db: &'a Db,
    head: &'a Head,
    asked: Load,
    /// The place (unload.2).
    loading: Keyspace,
    /// Records that an earlier call has done.
    skipped: u64,
    /// The keyspace at hand, if it is asked for.
    target: Option<(Keyspace, KeyspaceOptions)>,
    batch: WriteBatch,
    batch_bytes: usize,
    done: Unloaded,
}

impl<'a> Run<'a> {
    fn new(db: &'a Db, head: &'a Head, asked: Load) -> Result<Self> {
        let loading = db.keyspace(LOADING)?;
        let skipped = match loading.get(PLACE)? {
            None => 0,
            Some(place) if place.len() == 16 && place[..8] == head.id.to_le_bytes() => {
                u64::from_le_bytes(place[8..].try_into().expect("eight of sixteen bytes"))
            }
            Some(_) => {
                let text = format!(
                    "the load of another file into this database has not ended: load that one again, or drop the keyspace `{LOADING}`"
                );
                return Err(Error::Invalid(text));
            }
        };
        let done = Unloaded { entries_total: head.entries(), ..Unloaded::default() };
        let batch = db.batch();
        Ok(Run { db, head, asked, loading, skipped, target: None, batch, batch_bytes: 0, done })
    }

    /// Takes a record; whether it was the last.
    fn take(&mut self, record: &Record<'_>, number: u64, path: &Path) -> Result<bool> {
        let is_done = number <= self.skipped;
        match record {
            Record::Keyspace(which, options) => self.begin(*which, options.clone(), is_done, path)?,
            Record::Entries(entries) => {
                self.done.entries += entries.len() as u64;
                if is_done {
                    self.done.resumed_entries = self.done.entries;
                } else {
                    entries.iter().try_for_each(|entry| self.put(*entry))?;
                }
            }
            Record::KeyspaceEnd(_) => {
                self.done.keyspaces += u64::from(self.target.is_some());
                if let Some((keyspace, options)) = self.target.take().filter(|_| !is_done) {
                    self.commit(number)?;
                    // Behind the entries, which have lives of their own.
                    if options.default_ttl.is_some() {
                        keyspace.set_default_ttl(options.default_ttl)?;
                    }
                    if options.history != Default::default() {
                        keyspace.set_history(options.history)?;
                    }
                }
            }
            Record::End(_) => return Ok(true),
        }
        if self.batch_bytes >= COMMIT_BYTES {
            self.commit(number)?;
        }
        Ok(false)
    }

    fn begin(&mut self, which: usize, options: KeyspaceOptions, is_done: bool, path: &Path) -> Result<()> {
        let Some((name, _)) = self.head.keyspaces.get(which) else {
            return Err(Error::corrupt(
                "unload",
                path,
                self.done.bytes,
                format!("it has no keyspace {which}"),
            ));
        };
        self.target = None;
        if is_left_out(name) || self.asked.keyspaces.as_ref().is_some_and(|names| !names.contains(name)) {
            return Ok(());
        }
        let keyspace = self.db.keyspace(name)?;
        if !is_done {
            if keyspace.first()?.is_some() {
                return Err(Error::KeyspaceExists(name.clone()));
            }
            if let Some(over) = options.blobs_over {
                keyspace.set_blobs_over(over)?;
            }
            if options.counting == Counting::Lazy {
                keyspace.set_counting(Counting::Lazy)?;
            }
            if let Some(name) = &options.merge_operator {
                keyspace.set_merge_operator(name)?;
            }
        }
        self.target = Some((keyspace, options));
        Ok(())
    }

    fn put(&mut self, (key, expires, value): Entry<'_>) -> Result<()> {
        let Some((keyspace, _)) = &self.target else { return Ok(()) };
        let now = self.db.time_ms();
        match expires {
            0 => self.batch.put(keyspace, key, value)?,
            past if past <= now => return Ok(()),
            expires => {
                let left = Duration::from_millis(expires - now);
                self.batch.put_with_ttl(keyspace, key, value, left)?;
            }
        }
        self.batch_bytes += key.len() + value.len();
        Ok(())
    }

    /// Commits what was taken up to this record, with the place (unload.2).
    fn commit(&mut self, number: u64) -> Result<()> {
        let mut batch = std::mem::replace(&mut self.batch, self.db.batch());
        let place = [self.head.id.to_le_bytes(), number.to_le_bytes()].concat();
        batch.put(&self.loading, PLACE, place)?;
        batch.commit_with(Durability::Buffered)?;
        self.batch_bytes = 0;
        if let Some(call) = &mut self.asked.on_progress {
            call(&self.done);
        }
        Ok(())
    }

    fn finish(self) -> Result<Unloaded> {
        let mut batch = self.batch;
        batch.drop_keyspace(LOADING)?;
        batch.commit_with(Durability::Sync)?;
        Ok(self.done)
    }
}
