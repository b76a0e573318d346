//! Loads a file into a database.

use std::io::Read;
use std::path::{Path, PathBuf};

use esker_env::Env;

use super::format::{Entry, Head, Record};
use super::{LOADING, OnProgress, Unloaded, check_asked_for, is_left_out};
use crate::db::{Db, Keyspace, WriteBatch};
use crate::encoding::bytes::{ByteReader, DecodeError, Decoded, put_string, put_varint};
use crate::encoding::digest::{DIGEST_BYTES, Digester};
use crate::engine::state::keyspace_options::KeyspaceOptions;
use crate::recordio::{Reader, StreamReader};
use crate::txn::commit::Durability;
use crate::types::canary::{self, Canary};
use crate::types::expiry::Expiry;
use crate::types::{Error, Result};

/// Bytes of entries in a commit.
const COMMIT_BYTES: usize = 4 << 20;
/// The key of the load position in its keyspace.
const POSITION_KEY: &str = "place";

/// Loads a file into a database. See the [module documentation](super).
#[derive(Default)]
pub struct Load {
    keyspaces: Option<Vec<String>>,
    env: Option<Env>,
    on_progress: Option<OnProgress>,
}

impl Load {
    /// Loads all keyspaces in the file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restricts the load to these keyspaces.
    pub fn keyspaces<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.keyspaces = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the environment of the file; the operating system's files by default. If it has no keys, an
    /// encrypted file is read with those of the database.
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Sets a function that is called after every commit.
    pub fn on_progress(mut self, call: impl FnMut(&Unloaded) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(call));
        self
    }

    /// Loads the file into keyspaces that are missing or empty. Their options are set in the same commit as
    /// their first entries. Each entry keeps the expiry in the file, whatever the default lifetime of its
    /// keyspace. If an earlier call for the same file and keyspaces was interrupted, this call continues
    /// there; until the load ends, the keyspace `esker.load` holds its position.
    ///
    /// # Errors
    /// [`Error::KeyspaceExists`] if a keyspace is not empty, before anything is loaded;
    /// [`Error::KeyspaceNotFound`] if the file does not contain a keyspace; [`Error::UnfinishedLoad`] of
    /// another file, of other keyspaces, or into keyspaces that were dropped since;
    /// [`Error::Corrupt`] with the offset in the file, also if entries are missing; those of commits.
    pub fn read(self, db: &Db, path: impl AsRef<Path>) -> Result<Unloaded> {
        self.with_keys_of(db).open(path)?.load(db)
    }

    /// Reads the beginning of the file: that it is an unloaded one with the requested keyspaces, and that its
    /// keys are there. Then a database can be created for it.
    ///
    /// # Errors
    /// Those of [`read`](Self::read) that concern the file.
    pub fn open(self, path: impl AsRef<Path>) -> Result<OpenedLoad<'static>> {
        let path = path.as_ref();
        let env = self.file_env();
        let mut reader = Reader::options().env(&env).strict_tail(true).open(path)?;
        self.begin(path, move || {
            let record = reader.next()?.map(<[u8]>::to_vec);
            Ok((record, reader.content_offset(), reader.position()))
        })
    }

    /// Loads from a stream what [`Unload::write_to`](super::Unload::write_to) or
    /// [`write`](super::Unload::write) wrote, as [`read`](Self::read) does. An interrupted call can be
    /// continued only with the same bytes from their start, not with those of another unload.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn read_from(self, db: &Db, input: impl Read) -> Result<Unloaded> {
        self.with_keys_of(db).open_from(input)?.load(db)
    }

    /// Reads the beginning of a stream, as [`open`](Self::open) does that of a file.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_from<'i>(self, input: impl Read + 'i) -> Result<OpenedLoad<'i>> {
        let mut reader = StreamReader::new(input, &self.file_env())?;
        self.begin(Path::new("the stream"), move || {
            let record = reader.next()?;
            Ok((record, reader.content_offset(), reader.position()))
        })
    }

    fn file_env(&self) -> Env {
        self.env.clone().unwrap_or_else(Env::real)
    }

    /// Reads the file with the keys of the database if its environment has none.
    fn with_keys_of(self, db: &Db) -> Self {
        let env = self.file_env();
        Load { env: Some(Env { keys: env.keys.clone().or(db.env().keys), ..env }), ..self }
    }

    /// Reads the head.
    fn begin<'i>(
        self,
        path: &Path,
        mut next: impl FnMut() -> Result<(Option<Vec<u8>>, u64, u64)> + 'i,
    ) -> Result<OpenedLoad<'i>> {
        check_asked_for(self.keyspaces.as_ref())?;
        let first = next()?.0.map(|first| Head::decode(&first, path, 0)).transpose()?;
        let head = first.ok_or_else(|| cut(path, 0))?;
        for name in self.keyspaces.iter().flatten() {
            if head.keyspaces.iter().all(|(there, _)| there != name) {
                return Err(Error::KeyspaceNotFound(name.clone()));
            }
        }
        Ok(OpenedLoad { asked: self, path: path.to_owned(), head, next: Box::new(next) })
    }
}

/// A record, the offset of its content, and where it ends.
type NextRecord<'i> = dyn FnMut() -> Result<(Option<Vec<u8>>, u64, u64)> + 'i;

/// A file or stream whose beginning is fit to be loaded: the result of [`Load::open`].
pub struct OpenedLoad<'i> {
    asked: Load,
    path: PathBuf,
    head: Head,
    next: Box<NextRecord<'i>>,
}

impl OpenedLoad<'_> {
    /// Loads the file into a database.
    ///
    /// # Errors
    /// Those of [`Load::read`].
    pub fn load(self, db: &Db) -> Result<Unloaded> {
        let OpenedLoad { asked, path, head, mut next } = self;
        let path = &*path;
        let mut run = Run::new(db, &head, asked)?;
        let mut number = 0;
        loop {
            let (bytes, at, end) = next()?;
            let bytes = bytes.ok_or_else(|| cut(path, end))?;
            number += 1;
            let record = Record::decode(&bytes).map_err(|e: DecodeError| e.in_file("unload", path, at))?;
            run.counted
                .pass(&record, &head)
                .map_err(|detail| Error::corrupt("unload", path, at, format!("{detail}: unload again")))?;
            run.done.bytes = end;
            if run.take(&record, number)? {
                return run.finish();
            }
        }
    }
}

fn cut(path: &Path, at: u64) -> Error {
    Error::corrupt("unload", path, at, "the file is incomplete: unload again")
}

/// Counts of the records read, to be compared with the counts in the file.
#[derive(Debug, Default)]
struct Counted {
    /// Number of keyspaces started, and whether the last one has not ended.
    keyspaces: usize,
    is_inside: bool,
    /// Entries of the current keyspace, and of the file.
    entries: u64,
    all: u64,
}

impl Counted {
    /// Counts a record. Fails if it is inconsistent.
    fn pass(&mut self, record: &Record<'_>, head: &Head) -> Result<(), String> {
        match record {
            Record::Keyspace(which, _) => {
                if self.is_inside || *which != self.keyspaces || *which >= head.keyspaces.len() {
                    return Err(format!("keyspace {which} is out of order"));
                }
                (self.keyspaces, self.is_inside, self.entries) = (which + 1, true, 0);
            }
            Record::Entries(_) if !self.is_inside => {
                return Err("entries outside of a keyspace".to_owned());
            }
            Record::Entries(entries) => {
                self.entries += entries.len() as u64;
                self.all += entries.len() as u64;
            }
            Record::KeyspaceEnd(entries) => {
                if !self.is_inside || *entries != self.entries {
                    return Err(format!("a keyspace has {} of {entries} entries", self.entries));
                }
                self.is_inside = false;
            }
            Record::End(entries) => {
                let is_whole = !self.is_inside && self.keyspaces == head.keyspaces.len();
                if !is_whole || *entries != self.all {
                    let (begun, named) = (self.keyspaces, head.keyspaces.len());
                    return Err(format!(
                        "the file has {begun} of {named} keyspaces and {} of {entries} entries",
                        self.all
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The position of a load, as stored in the database (unload.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Position {
    /// Id of the file.
    file: u64,
    /// The last record loaded.
    record: u64,
    /// Digest of the requested names (unload.3).
    asked: [u8; DIGEST_BYTES],
    /// Ids of the keyspaces with entries or options from the load.
    made: Vec<u32>,
}

impl Position {
    fn encode(&self) -> Vec<u8> {
        let mut out = [self.file.to_le_bytes(), self.record.to_le_bytes()].concat();
        out.extend_from_slice(&self.asked);
        self.made.iter().for_each(|id| put_varint(&mut out, (*id).into()));
        out
    }

    fn decode(bytes: &[u8]) -> Decoded<Position> {
        let mut reader = ByteReader::new(bytes);
        let (file, record) = (reader.u64()?, reader.u64()?);
        let asked = reader.array()?;
        let mut made = Vec::new();
        while !reader.is_empty() {
            let id = reader.varint()?;
            made.push(u32::try_from(id).map_err(|_| reader.error("the keyspace id exceeds 32 bits"))?);
        }
        Ok(Position { file, record, asked, made })
    }
}

/// Returns the digest of the requested keyspaces.
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

/// A load in progress.
struct Run<'a> {
    db: &'a Db,
    head: &'a Head,
    asked: Load,
    counted: Counted,
    /// The committed position.
    position: Position,
    /// The keyspace that stores the position, once a commit has created it.
    loading: Option<Keyspace>,
    /// Records loaded by an earlier call.
    skipped: u64,
    /// The current keyspace, if it is requested.
    target: Option<Keyspace>,
    /// Options to be set after its end; used only by a canary.
    late: Option<KeyspaceOptions>,
    batch: WriteBatch,
    batch_bytes: usize,
    done: Unloaded,
}

impl<'a> Run<'a> {
    fn new(db: &'a Db, head: &'a Head, asked: Load) -> Result<Self> {
        let begun =
            Position { file: head.id, asked: digest_of(asked.keyspaces.as_ref()), ..Position::default() };
        let loading = match db.open_keyspace(LOADING) {
            Ok(keyspace) => Some(keyspace),
            Err(Error::KeyspaceNotFound(_)) => None,
            Err(error) => return Err(error),
        };
        let kept = loading.as_ref().map(|keyspace| keyspace.get(POSITION_KEY)).transpose()?.flatten();
        let position = match kept {
            Some(kept) => Position::decode(&kept)
                .ok()
                .filter(|position| position.is_of(&begun))
                .ok_or_else(other_load)?,
            None => begun,
        };
        position.check_made(db)?;
        let done = Unloaded { entries_total: head.entries(), ..Unloaded::default() };
        let (skipped, batch) = (position.record, db.batch());
        let counted = Counted::default();
        let run = Run {
            db,
            head,
            asked,
            counted,
            position,
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

    /// Fails if a keyspace is not empty.
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

    /// Processes a record. Returns whether it was the last one.
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

    /// Starts a keyspace: the batch creates it if necessary and sets its options.
    fn begin(&mut self, which: usize, options: &KeyspaceOptions, is_done: bool) -> Result<()> {
        self.target = None;
        let (name, _) = &self.head.keyspaces[which];
        if !self.is_asked_for(name) {
            return Ok(());
        }
        let keyspace = match self.db.open_keyspace(name) {
            Err(Error::KeyspaceNotFound(_)) if !is_done => self.batch.create_keyspace(name)?,
            // Entries may have been added since the load began.
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
            self.position.made.push(keyspace.id().get());
        }
        self.target = Some(keyspace);
        Ok(())
    }

    fn put(&mut self, (key, expires, value): Entry<'_>) -> Result<()> {
        let Some(keyspace) = &self.target else { return Ok(()) };
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

    /// Commits the entries up to this record, with the position (unload.2).
    fn commit(&mut self, number: u64) -> Result<()> {
        let mut batch = std::mem::replace(&mut self.batch, self.db.batch());
        let loading = match &self.loading {
            Some(loading) => loading.clone(),
            None => batch.create_keyspace(LOADING)?,
        };
        self.position.record = number;
        batch.put_until_expiry(&loading, POSITION_KEY.as_bytes(), &self.position.encode(), None)?;
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

impl Position {
    /// Returns whether the position belongs to the load that starts at `begun`.
    fn is_of(&self, begun: &Position) -> bool {
        (self.file, self.asked) == (begun.file, begun.asked)
    }

    /// Fails if a keyspace created by the load is missing (unload.3).
    fn check_made(&self, db: &Db) -> Result<()> {
        let there: Vec<u32> =
            db.keyspaces()?.iter().filter_map(|name| Some(db.open_keyspace(name).ok()?.id().get())).collect();
        match self.made.iter().find(|id| !there.contains(id)) {
            None => Ok(()),
            Some(_) => Err(Error::UnfinishedLoad(format!(
                "a keyspace created by an unfinished load was dropped: drop the keyspace `{LOADING}` and everything the load created, then load again"
            ))),
        }
    }
}

fn other_load() -> Error {
    Error::UnfinishedLoad(format!(
        "another load into this database is unfinished: finish it, or drop the keyspace `{LOADING}`"
    ))
}
