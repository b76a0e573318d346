//! From a file to a database.

use std::path::Path;

use esker_env::Env;

use super::format::{Entry, Head, Record};
use super::{LOADING, OnProgress, Unloaded, check_asked_for, is_left_out};
use crate::db::{Db, Keyspace, WriteBatch};
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded, put_string, put_varint};
use crate::encoding::digest::{DIGEST_BYTES, Digester};
use crate::engine::state::keyspace_options::KeyspaceOptions;
use crate::recordio::Reader;
use crate::txn::commit::Durability;
use crate::types::canary::{self, Canary};
use crate::types::expiry::Expiry;
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

    /// Loads the file into keyspaces that are missing or empty. They get the options that the file says, in the same commit as their
    /// first entries, and each entry lasts as long as the file says, whatever default lifetime its keyspace has. If an earlier call for
    /// the same file and the same keyspaces was stopped, this goes on where that one was: until it has ended, the keyspace `esker.load`
    /// keeps the place.
    ///
    /// # Errors
    /// [`Error::KeyspaceExists`] if a keyspace holds something already, before anything is loaded; [`Error::KeyspaceNotFound`] if the file
    /// has no such one; [`Error::Invalid`] if another load has not ended: of another file, of other keyspaces, or into keyspaces that were
    /// dropped since; [`Error::Corrupt`] with the place in the file, also if it lacks entries; those of commits.
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
            let in_file = |e: DecodeError| e.in_file("unload", path, reader.content_offset());
            let record = Record::decode(&bytes).map_err(in_file)?;
            run.counted.pass(&record, &head).map_err(|detail| {
                Error::corrupt("unload", path, reader.content_offset(), format!("{detail}: write it again"))
            })?;
            run.done.bytes = reader.position();
            if run.take(&record, number)? {
                return run.finish();
            }
        }
        Err(cut(path, reader.position()))
    }
}

fn cut(path: &Path, at: u64) -> Error {
    Error::corrupt("unload", path, at, "the file has no end: write it again")
}

/// What has come of a file, beside what it says of itself.
#[derive(Debug, Default)]
struct Counted {
    /// Keyspaces that have begun, and whether the last of them has not ended.
    keyspaces: usize,
    is_inside: bool,
    /// Entries of the keyspace at hand, and of the file.
    entries: u64,
    all: u64,
}

impl Counted {
    /// Takes notice of a record, or says what is wrong with it.
    fn pass(&mut self, record: &Record<'_>, head: &Head) -> Result<(), String> {
        match record {
            Record::Keyspace(which, _) => {
                if self.is_inside || *which != self.keyspaces || *which >= head.keyspaces.len() {
                    return Err(format!("keyspace {which} does not come here"));
                }
                (self.keyspaces, self.is_inside, self.entries) = (which + 1, true, 0);
            }
            Record::Entries(_) if !self.is_inside => {
                return Err("entries that belong to no keyspace".to_owned());
            }
            Record::Entries(entries) => {
                self.entries += entries.len() as u64;
                self.all += entries.len() as u64;
            }
            Record::KeyspaceEnd(entries) => {
                if !self.is_inside || *entries != self.entries {
                    return Err(format!("a keyspace with {} of {entries} entries", self.entries));
                }
                self.is_inside = false;
            }
            Record::End(entries) => {
                let is_whole = !self.is_inside && self.keyspaces == head.keyspaces.len();
                if !is_whole || *entries != self.all {
                    let (begun, named) = (self.keyspaces, head.keyspaces.len());
                    return Err(format!(
                        "{begun} of {named} keyspaces, and {} of {entries} entries",
                        self.all
                    ));
                }
            }
        }
        Ok(())
    }
}

/// How far a load is, as the database keeps it (unload.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    /// The file.
    file: u64,
    /// The last record that is loaded.
    record: u64,
    /// The digest of the names that were asked for (unload.3).
    asked: [u8; DIGEST_BYTES],
    /// The numbers of the keyspaces that have entries or options of the load.
    made: Vec<u32>,
}

impl Place {
    fn encode(&self) -> Vec<u8> {
        let mut out = [self.file.to_le_bytes(), self.record.to_le_bytes()].concat();
        out.extend_from_slice(&self.asked);
        self.made.iter().for_each(|id| put_varint(&mut out, (*id).into()));
        out
    }

    fn decode(bytes: &[u8]) -> Decoded<Place> {
        let mut reader = ByteReader::new(bytes);
        let (file, record) = (reader.u64()?, reader.u64()?);
        let asked = reader.array()?;
        let mut made = Vec::new();
        while !reader.is_empty() {
            let id = reader.varint()?;
            made.push(u32::try_from(id).map_err(|_| reader.error("a keyspace's number of 64 bits"))?);
        }
        Ok(Place { file, record, asked, made })
    }
}

/// The digest of the keyspaces that are asked for.
fn digest_of(asked: Option<&Vec<String>>) -> [u8; DIGEST_BYTES] {
    let mut digester = Digester::default();
    let mut names: Vec<_> = asked.into_iter().flatten().collect();
    names.sort();
    names.dedup();
    digester.add(&[u8::from(asked.is_some())]);
    for name in names {
        let mut bytes = Vec::new();
        put_string(&mut bytes, name.as_bytes());
        digester.add(&bytes);
    }
    digester.finish().0
}

/// A load that goes on.
struct Run<'a> {
    db: &'a Db,
    head: &'a Head,
    asked: Load,
    counted: Counted,
    /// What is committed.
    place: Place,
    /// Where the place is kept, once a commit has made it.
    loading: Option<Keyspace>,
    /// Records that an earlier call has done.
    skipped: u64,
    /// The keyspace at hand, if it is asked for.
    target: Option<Keyspace>,
    /// Options that it gets behind its end: by a canary alone.
    late: Option<KeyspaceOptions>,
    batch: WriteBatch,
    batch_bytes: usize,
    done: Unloaded,
}

impl<'a> Run<'a> {
    fn new(db: &'a Db, head: &'a Head, asked: Load) -> Result<Self> {
        let begun = Place { file: head.id, asked: digest_of(asked.keyspaces.as_ref()), ..Place::default() };
        let loading = match db.open_keyspace(LOADING) {
            Ok(keyspace) => Some(keyspace),
            Err(Error::KeyspaceNotFound(_)) => None,
            Err(error) => return Err(error),
        };
        let kept = loading.as_ref().map(|keyspace| keyspace.get(PLACE)).transpose()?.flatten();
        let place = match kept {
            Some(kept) => {
                Place::decode(&kept).ok().filter(|place| place.is_of(&begun)).ok_or_else(other_load)?
            }
            None => begun,
        };
        place.check_made(db)?;
        let done = Unloaded { entries_total: head.entries(), ..Unloaded::default() };
        let (skipped, batch) = (place.record, db.batch());
        let counted = Counted::default();
        let run = Run {
            db,
            head,
            asked,
            counted,
            place,
            loading,
            skipped,
            target: None,
            late: None,
            batch,
            batch_bytes: 0,
            done,
        };
        if skipped == 0 {
            run.check_empty()?;
        }
        Ok(run)
    }

    fn is_asked_for(&self, name: &String) -> bool {
        !is_left_out(name) && self.asked.keyspaces.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Refuses to load into keyspaces that hold something.
    fn check_empty(&self) -> Result<()> {
        for (name, _) in self.head.keyspaces.iter().filter(|(name, _)| self.is_asked_for(name)) {
            match self.db.open_keyspace(name) {
                Ok(keyspace) if keyspace.first()?.is_some() => {
                    return Err(Error::KeyspaceExists(name.clone()));
                }
                Ok(_) | Err(Error::KeyspaceNotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes a record; whether it was the last.
    fn take(&mut self, record: &Record<'_>, number: u64) -> Result<bool> {
        let is_done = number <= self.skipped;
        match record {
            Record::Keyspace(which, options) => self.begin(*which, options, is_done)?,
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
                let target = self.target.take();
                if target.is_some() && !is_done {
                    self.commit(number)?;
                }
                if let (Some(keyspace), Some(options)) = (target, self.late.take()) {
                    self.batch.set_options(&keyspace, options)?;
                    std::mem::replace(&mut self.batch, self.db.batch()).commit()?;
                }
            }
            Record::End(_) => return Ok(true),
        }
        if self.batch_bytes >= COMMIT_BYTES {
            self.commit(number)?;
        }
        Ok(false)
    }

    /// Begins a keyspace: the batch makes it if need be, and gives it its options.
    fn begin(&mut self, which: usize, options: &KeyspaceOptions, is_done: bool) -> Result<()> {
        self.target = None;
        let (name, _) = &self.head.keyspaces[which];
        if !self.is_asked_for(name) {
            return Ok(());
        }
        let keyspace = match self.db.open_keyspace(name) {
            Err(Error::KeyspaceNotFound(_)) if !is_done => self.batch.create_keyspace(name)?,
            // Others may have put something since the load began.
            Ok(found) if !is_done && found.first()?.is_some() => {
                return Err(Error::KeyspaceExists(name.clone()));
            }
            found => found?,
        };
        if !is_done {
            if canary::is_set(Canary::LoadOptionsLate) {
                self.late = Some(options.clone());
            } else if keyspace.options() != *options {
                self.batch.set_options(&keyspace, options.clone())?;
            }
            self.place.made.push(keyspace.id().get());
        }
        self.target = Some(keyspace);
        Ok(())
    }

    fn put(&mut self, (key, expires, value): Entry<'_>) -> Result<()> {
        let Some(keyspace) = &self.target else { return Ok(()) };
        // expiry.2
        let expiry = (expires > 0).then(|| Expiry::at_ms(expires));
        if expires > 0 && expires <= self.db.time_ms() {
            return Ok(());
        }
        if expiry.is_none() && canary::is_set(Canary::LoadTakesDefault) {
            self.batch.put(keyspace, key, value)?;
        } else {
            self.batch.put_until_expiry(keyspace, key, value, expiry)?;
        }
        self.batch_bytes += key.len() + value.len();
        Ok(())
    }

    /// Commits what was taken up to this record, with the place (unload.2).
    fn commit(&mut self, number: u64) -> Result<()> {
        let mut batch = std::mem::replace(&mut self.batch, self.db.batch());
        let loading = match &self.loading {
            Some(loading) => loading.clone(),
            None => batch.create_keyspace(LOADING)?,
        };
        self.place.record = number;
        batch.put_until_expiry(&loading, PLACE.as_bytes(), &self.place.encode(), None)?;
        batch.commit_with(Durability::Buffered)?;
        (self.loading, self.batch_bytes) = (Some(loading), 0);
        if let Some(call) = &mut self.asked.on_progress {
            call(&self.done);
        }
        Ok(())
    }

    fn finish(self) -> Result<Unloaded> {
        let mut batch = self.batch;
        if self.loading.is_some() {
            batch.drop_keyspace(LOADING)?;
        }
        batch.commit_with(Durability::Sync)?;
        Ok(self.done)
    }
}

impl Place {
    /// Whether it is a place in the load that begins so.
    fn is_of(&self, begun: &Place) -> bool {
        (self.file, self.asked) == (begun.file, begun.asked)
    }

    /// Refuses to go on if a keyspace is gone that the load has made (unload.3).
    fn check_made(&self, db: &Db) -> Result<()> {
        let there: Vec<u32> =
            db.keyspaces()?.iter().filter_map(|name| Some(db.open_keyspace(name).ok()?.id().get())).collect();
        match self.made.iter().find(|id| !there.contains(id)) {
            None => Ok(()),
            Some(_) => Err(Error::Invalid(format!(
                "a keyspace was dropped that a load which has not ended had made: drop the keyspace `{LOADING}` and all that the load has made, and load again"
            ))),
        }
    }
}

fn other_load() -> Error {
    Error::Invalid(format!(
        "the load of another file, or of other keyspaces of it, into this database has not ended: call that one again, or drop the keyspace `{LOADING}`"
    ))
}
