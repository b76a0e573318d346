//! Writes a database to a file.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use esker_env::{Entry as FileEntry, Env, OpenOptions, read_range};

use super::format::{Entry, Head, Record, begin_entries, put_entry};
use super::{OnProgress, Unloaded, check_asked_for, is_left_out};
use crate::db::{Db, Keyspace, Range, Snapshot};
use crate::encoding::Compression;
use crate::encryption::{self, without_keys};
use crate::engine::life::copies::names::refuse_in_database;
use crate::engine::state::keyspace_options::KeyspaceOptions;
use crate::recordio::{Reader, StreamWriter, Writer};
use crate::types::expiry::KeyExpiry;
use crate::types::{Error, Result};

/// The codec of the file.
const CODEC: Compression = Compression::Lz4;
/// Bytes of entries in a record.
const RECORD_BYTES: usize = 256 << 10;
/// Bytes after which the file is synced, so that an interrupted unload can continue.
const SYNC_BYTES: u64 = 64 << 20;

/// A file of at most this size may hold nothing but an incomplete head.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// Writes a database to a file. See the [module documentation](super).
#[derive(Default)]
pub struct Unload {
    keyspaces: Option<Vec<String>>,
    env: Option<Env>,
    plain: bool,
    on_progress: Option<OnProgress>,
}

/// The position at which an earlier call stopped.
#[derive(Debug, Default)]
struct Position {
    /// The current keyspace, and whether it has ended.
    keyspace: Option<(usize, bool)>,
    last_key: Option<Vec<u8>>,
    /// Entries of that keyspace.
    entries: u64,
    /// Entries of all keyspaces.
    all: u64,
}

impl Unload {
    /// Unloads all keyspaces.
    pub fn new() -> Self {
        Self::default()
    }

    /// Restricts the unload to these keyspaces.
    pub fn keyspaces<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.keyspaces = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the environment of the file; the operating system's files by default.
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Whether to write the file of an encrypted database without encryption. Default no: the file has a key
    /// of its own, which it contains wrapped by the current master key.
    pub fn plain(mut self, yes: bool) -> Self {
        self.plain = yes;
        self
    }

    /// Sets a function that is called for every record of a few hundred KiB.
    pub fn on_progress(mut self, call: impl FnMut(&Unloaded) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(call));
        self
    }

    /// Writes the file, which must not exist, while reads and writes continue. It is written under the name
    /// `FILE.partial`. If that exists for the same keyspaces and the same commit, the call continues it,
    /// unless it is encrypted; otherwise it starts over.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] if the file does; [`Error::KeyspaceNotFound`]; [`Error::Invalid`] if a
    /// requested keyspace cannot be unloaded; those of reads; [`Error::Io`] and [`Error::NoSpace`] of the
    /// file.
    pub fn write(mut self, db: &Db, path: impl AsRef<Path>) -> Result<Unloaded> {
        let path = path.as_ref();
        let env = self.env.clone().unwrap_or_else(Env::real);
        let env = match self.plain {
            true => without_keys(&env),
            false => encryption::for_one_file(&env, &db.handle.core.env, path)?,
        };
        let is_there = || Error::AlreadyExists(path.to_owned());
        if env.fs.entry(path).map_err(|e| Error::io("look for", path, e))?.is_some() {
            return Err(is_there());
        }
        refuse_in_database(&env, &env.fs.absolute(path).map_err(|e| Error::io("find", path, e))?)?;
        // Links in the path of the directory are allowed; links inside the directory are not followed (fs.5).
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let path = &dir.join(path.file_name().ok_or_else(is_there)?);
        let env = env.hold(dir, None).map_err(|e| Error::io("open", dir, e))?;
        let (source, head) = self.begin(db, &env)?;
        let partial = partial_of(path);
        let (writer, position) = begin(&env, &partial, &head, &source)?;
        let done = self.run(source, &head, Out::File { writer, synced: 0 }, position)?;
        env.fs.rename_new(&partial, path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => is_there(),
            _ => Error::io("rename", &partial, e),
        })?;
        env.fs.sync_dir_if_readable(dir).map_err(|e| Error::io("sync directory", dir, e))?;
        Ok(done)
    }

    /// Writes the bytes of the file to a stream instead. A call that fails is not continued by another.
    ///
    /// # Errors
    /// [`Error::KeyspaceNotFound`]; [`Error::Invalid`] if a requested keyspace cannot be unloaded; those of
    /// reads; [`Error::Io`] of the stream.
    pub fn write_to(mut self, db: &Db, mut out: impl Write) -> Result<Unloaded> {
        let env = self.env.clone().unwrap_or_else(Env::real);
        let env = match self.plain {
            true => without_keys(&env),
            false => encryption::for_one_file(&env, &db.handle.core.env, Path::new("the stream"))?,
        };
        let (source, head) = self.begin(db, &env)?;
        let mut writer = StreamWriter::new(&mut out as &mut dyn Write, CODEC, &env)?;
        writer.append(&head.encode())?;
        self.run(source, &head, Out::Stream(writer), Position::default())
    }

    /// Determines what to unload.
    fn begin(&mut self, db: &Db, env: &Env) -> Result<(Source, Head)> {
        check_asked_for(self.keyspaces.as_ref())?;
        // Names and options do not change while the catalog is locked, so they match the snapshot (unload.1).
        let catalog = db.handle.core.catalog.lock();
        let snapshot = db.snapshot();
        let names = match self.keyspaces.take() {
            Some(names) => names,
            None => db.keyspaces()?.into_iter().filter(|name| !is_left_out(name)).collect(),
        };
        let keyspaces: Vec<_> = names.iter().map(|name| db.open_keyspace(name)).collect::<Result<_>>()?;
        let options = keyspaces.iter().map(Keyspace::options).collect();
        drop(catalog);
        let lens = keyspaces.iter().map(|keyspace| snapshot.len(keyspace)).collect::<Result<Vec<_>>>()?;
        let head = Head {
            id: env.random.next_u64(),
            seqno: snapshot.seqno().get(),
            keyspaces: names.into_iter().zip(lens).collect(),
        };
        let has_ttls = db.handle.core.view.get().expiring() > 0;
        Ok((Source { snapshot, keyspaces, options, has_ttls }, head))
    }

    fn run(self, source: Source, head: &Head, out: Out<'_>, position: Position) -> Result<Unloaded> {
        let done = Unloaded {
            entries: position.all,
            resumed_entries: position.all,
            entries_total: head.entries(),
            ..Unloaded::default()
        };
        let mut run = Run { source, out, done, call: self.on_progress };
        run.all(position)?;
        Ok(run.done)
    }
}

fn partial_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

/// Continues a file of the same keyspaces and commit whose contents match the database, or starts one.
fn begin(env: &Env, path: &Path, head: &Head, source: &Source) -> Result<(Writer, Position)> {
    let options = Writer::options().env(env).compression(CODEC);
    if let Some(found) = env.fs.entry(path).map_err(|e| Error::io("look for", path, e))? {
        if !is_unfinished(env, path, found)? {
            return Err(Error::Invalid(format!(
                "{} exists and is not an unfinished unload: move it away, or use another file",
                path.display()
            )));
        }
        // An encrypted file is not continued (seal.1). A file with a second name may belong to another
        // program, so it is not written to.
        if !encryption::is_on(env)
            && matches!(found, FileEntry::File { names: 1, .. })
            && let Some(position) = look(env, path, head, source)?
        {
            return Ok((options.open_append(path)?, position));
        }
        env.fs.remove_file(path).map_err(|e| Error::io("remove", path, e))?;
    }
    let mut writer = options.create_new(path)?;
    writer.append(&head.encode())?;
    // From here on the file is recognizable as an unload.
    writer.sync()?;
    Ok((writer, Position::default()))
}

/// Returns whether a file was started by an unload: it has the head of one, or is a record file without
/// records.
fn is_unfinished(env: &Env, path: &Path, found: FileEntry) -> Result<bool> {
    let FileEntry::File { len, .. } = found else { return Ok(false) };
    let begun =
        Reader::options().env(&encryption::locked(env)).open(path).and_then(|mut reader| {
            match reader.next()? {
                Some(head) => Head::decode(head, path, 0).map(|_| true),
                None => Ok(false),
            }
        });
    match begun {
        Ok(true) => return Ok(true),
        Ok(false) if len <= HEAD_BYTES_MAX => {}
        _ => return Ok(false),
    }
    // A crash may leave only the header of a record file, or only zeros.
    let read = || read_range(&*env.fs.open(path, OpenOptions::read())?, 0, len as usize);
    let bytes = read().map_err(|e| Error::io("read", path, e))?;
    Ok(bytes.first() != Some(&0) || bytes.iter().all(|byte| *byte == 0))
}

/// Returns the position of an unfinished file. `None` if it is damaged or belongs to something else. Another
/// database may have the same names and numbers, so the contents are compared with the database (unload.3).
fn look(env: &Env, path: &Path, head: &Head, source: &Source) -> Result<Option<Position>> {
    let Ok(mut reader) = Reader::options().env(env).open(path) else { return Ok(None) };
    let first = match reader.next() {
        Ok(Some(first)) => Head::decode(first, path, 0),
        _ => return Ok(None),
    };
    let is_same = |found: &Head| (found.seqno, &found.keyspaces) == (head.seqno, &head.keyspaces);
    if !first.as_ref().is_ok_and(is_same) {
        return Ok(None);
    }
    let (mut position, mut walk) = (Position::default(), None);
    loop {
        let record = match reader.next().map(|record| record.map(Record::decode)) {
            Ok(None) => return Ok(Some(position)),
            Ok(Some(Ok(record))) => record,
            _ => return Ok(None),
        };
        let is_same = match &record {
            Record::Keyspace(which, options) => match source.keyspaces.get(*which) {
                Some(keyspace) => {
                    walk = Some((keyspace, source.snapshot.iter(keyspace)));
                    source.options[*which] == *options
                }
                None => false,
            },
            Record::Entries(entries) => match &mut walk {
                Some((keyspace, walk)) => source.holds_next(keyspace, walk, entries)?,
                None => false,
            },
            Record::KeyspaceEnd(_) | Record::End(_) => true,
        };
        if !is_same {
            return Ok(None);
        }
        position.pass(&record);
    }
}

/// What is unloaded.
struct Source {
    snapshot: Snapshot,
    keyspaces: Vec<Keyspace>,
    /// Options of each keyspace at the commit of the snapshot.
    options: Vec<KeyspaceOptions>,
    /// Whether anything in the database expires.
    has_ttls: bool,
}

impl Source {
    /// Returns when an entry expires, in milliseconds since 1970; 0 for never.
    fn expires(&self, keyspace: &Keyspace, key: &[u8]) -> Result<u64> {
        if !self.has_ttls {
            return Ok(0);
        }
        Ok(match self.snapshot.expiry(keyspace, key)? {
            KeyExpiry::At(expiry) => expiry.ms(),
            KeyExpiry::Never => 0,
            // It has expired since the iterator returned it.
            KeyExpiry::Absent => 1,
        })
    }

    /// Returns whether these entries come next in a keyspace.
    fn holds_next(&self, keyspace: &Keyspace, walk: &mut Range, entries: &[Entry<'_>]) -> Result<bool> {
        for (key, expires, value) in entries {
            match walk.next().transpose()? {
                Some((found, held)) if *found == **key && held[..] == **value => {
                    if self.expires(keyspace, key)? != *expires {
                        return Ok(false);
                    }
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl Position {
    fn pass(&mut self, record: &Record<'_>) {
        match record {
            Record::Keyspace(which, _) => {
                self.keyspace = Some((*which, false));
                (self.last_key, self.entries) = (None, 0);
            }
            Record::Entries(entries) => {
                self.last_key = entries.last().map(|(key, ..)| key.to_vec());
                self.entries += entries.len() as u64;
                self.all += entries.len() as u64;
            }
            Record::KeyspaceEnd(_) => self.keyspace = self.keyspace.map(|(which, _)| (which, true)),
            Record::End(_) => {}
        }
    }
}

/// Where the records go.
enum Out<'a> {
    /// A file, and its size at the last sync.
    File {
        writer: Writer,
        synced: u64,
    },
    Stream(StreamWriter<&'a mut dyn Write>),
}

impl Out<'_> {
    /// Returns the bytes written.
    fn append(&mut self, record: &[u8]) -> Result<u64> {
        match self {
            Out::File { writer, synced } => {
                writer.append(record)?;
                if writer.size() - *synced > SYNC_BYTES {
                    writer.sync()?;
                    *synced = writer.size();
                }
                Ok(writer.size())
            }
            Out::Stream(writer) => writer.append(record).map(|()| writer.size()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        match self {
            Out::File { writer, .. } => writer.sync(),
            Out::Stream(writer) => writer.flush(),
        }
    }
}

/// An unload in progress.
struct Run<'a> {
    source: Source,
    out: Out<'a>,
    done: Unloaded,
    call: Option<OnProgress>,
}

impl Run<'_> {
    fn all(&mut self, position: Position) -> Result<()> {
        for which in 0..self.source.keyspaces.len() {
            match position.keyspace {
                Some((reached, ended)) if which < reached || (which == reached && ended) => {}
                Some((reached, _)) if which == reached => {
                    self.entries(which, position.last_key.as_deref(), position.entries)?;
                }
                _ => {
                    let options = self.source.options[which].clone();
                    self.append(&Record::Keyspace(which, options).encode())?;
                    self.entries(which, None, 0)?;
                }
            }
            self.done.keyspaces += 1;
        }
        let end = Record::End(self.done.entries).encode();
        self.append(&end)?;
        self.out.finish()
    }

    /// Writes the entries of a keyspace after a key, and its end.
    fn entries(&mut self, which: usize, behind: Option<&[u8]>, before: u64) -> Result<()> {
        let keyspace = self.source.keyspaces[which].clone();
        let mut record = Vec::new();
        begin_entries(&mut record);
        let mut in_record = 0;
        let mut entries = before;
        let lower = behind.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let range: (std::ops::Bound<&[u8]>, std::ops::Bound<&[u8]>) = (lower, std::ops::Bound::Unbounded);
        for entry in self.source.snapshot.range(&keyspace, range) {
            let (key, value) = entry?;
            put_entry(&mut record, (&key, self.source.expires(&keyspace, &key)?, &value));
            in_record += 1;
            if record.len() >= RECORD_BYTES {
                self.append_entries(&record, in_record)?;
                begin_entries(&mut record);
                entries += std::mem::take(&mut in_record);
            }
        }
        if in_record > 0 {
            self.append_entries(&record, in_record)?;
            entries += in_record;
        }
        self.append(&Record::KeyspaceEnd(entries).encode())
    }

    fn append_entries(&mut self, record: &[u8], entries: u64) -> Result<()> {
        self.done.entries += entries;
        self.append(record)
    }

    fn append(&mut self, record: &[u8]) -> Result<()> {
        self.done.bytes = self.out.append(record)?;
        if let Some(call) = &mut self.call {
            call(&self.done);
        }
        Ok(())
    }
}
