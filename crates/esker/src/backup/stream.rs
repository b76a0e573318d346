//! Writes one state of an open database to a stream, and restores it from one.
//!
//! ```text
//!   Db --capture--> manifest state, files --records--> io::Write
//!   io::Read --records, verified--> workplace --renamed--> database
//! ```
//!
//! stream.1. A stream that is cut off or damaged anywhere restores nothing: each record has checksums that
//!     cover its place, the last record says how much came before it, and the workplace gets the target's
//!     name after that.
//!
//! Bytes: docs/formats/backup.md

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use esker_env::{Env, OpenOptions};

use super::record::{decode_info, encode_info};
use super::restore::finish;
use super::{BackupInfo, OnProgress, Progress, Reporter};
use crate::db::Db;
use crate::encoding::Compression;
use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::encryption;
use crate::engine::life::copies::capture::DataKind;
use crate::engine::life::copies::checkpoint::{data_path, write_manifest};
use crate::engine::life::copies::transfer;
use crate::engine::life::copies::workplace::Workplace;
use crate::manifest::edit::VersionEdit;
use crate::recordio::{StreamReader, StreamWriter};
use crate::types::{Error, FileId, Result};

/// The first bytes of the first record.
const MAGIC: &[u8] = b"esker stream";
const FORMAT_VERSION: u32 = 1;

const FILE: u8 = 1;
const PIECE: u8 = 2;
const END: u8 = 3;

/// Writes a database to a stream: see [`Restore`].
#[derive(Default)]
pub struct Stream {
    on_progress: Option<OnProgress>,
}

impl Stream {
    /// Writes without reports of progress.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a function that is called at the start, for each MiB, and for each file.
    pub fn on_progress(mut self, call: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(call));
        self
    }

    /// Writes everything visible when the call started, history included, while reads and writes continue.
    /// Nothing is copied to disk first, but the files of that state stay on disk until the call returns.
    ///
    /// # Errors
    /// Those of [`Db::flush`]; [`Error::Io`] of the stream and of the database's files.
    pub fn write(mut self, db: &Db, out: impl Write) -> Result<BackupInfo> {
        let core = &db.handle.core;
        let capture = core.capture()?;
        let (files, bytes) = (capture.files.len() as u64, capture.files.iter().map(|file| file.len).sum());
        let info = BackupInfo {
            created: core.env.clock.unix_time().as_secs(),
            database: capture.database_id,
            seqno: capture.seq,
            files,
            bytes,
            new_files: files,
            new_bytes: bytes,
            ..BackupInfo::default()
        };
        let env = encryption::for_one_file(&core.env, &core.env, Path::new("the stream"))?;
        let mut writer = StreamWriter::new(out, Compression::None, &env)?;
        let mut head = MAGIC.to_vec();
        put_varint(&mut head, FORMAT_VERSION.into());
        writer.append(&head)?;
        writer.append(&encode_info(&info, None, None))?;
        writer.append(&capture.state.encode())?;
        writer.append(&encryption::wrapped_keys(&core.env))?;
        let mut reporter = Reporter::new(&mut self.on_progress, files, bytes);
        for file in &capture.files {
            let mut head = vec![FILE, u8::from(file.kind == DataKind::Blobs)];
            put_varint(&mut head, file.id.get());
            put_varint(&mut head, file.len);
            writer.append(&head)?;
            transfer::read((&core.env, &file.path), file.len, |piece| {
                writer.append(&[&[PIECE], piece].concat())?;
                reporter.bytes(piece.len());
                Ok(())
            })?;
            reporter.file();
        }
        core.check_ours()?;
        let mut end = vec![END];
        put_varint(&mut end, files);
        put_varint(&mut end, bytes);
        writer.append(&end)?;
        writer.flush()?;
        Ok(info)
    }
}

/// Restores a database into a new directory.
///
/// ```
/// use esker::backup::{Restore, Stream};
/// # let temp = tempfile::tempdir().unwrap();
/// # let restored = temp.path().join("restored");
/// let db = esker::Db::in_memory()?;
/// db.default_keyspace().put("a", "1")?;
/// let mut stream = Vec::new(); // a socket, a pipe, a compressor
/// let sent = Stream::new().write(&db, &mut stream)?;
///
/// assert!(Restore::new(&restored).read(&stream[..stream.len() - 1]).is_err());
/// assert!(!restored.exists());
/// Restore::new(&restored).verify(true).read(&stream[..])?;
/// let copy = esker::Db::open(&restored)?;
/// assert_eq!(copy.default_keyspace().get("a")?.as_deref(), Some(&b"1"[..]));
/// assert_eq!(copy.snapshot().seqno(), sent.seqno);
/// # Ok::<(), esker::Error>(())
/// ```
pub struct Restore {
    dir: PathBuf,
    env: Env,
    on_progress: Option<OnProgress>,
    verify: bool,
}

impl Restore {
    /// Restores into `dir`, which must not exist.
    pub fn new(dir: impl AsRef<Path>) -> Restore {
        Restore { dir: dir.as_ref().to_owned(), env: Env::real(), on_progress: None, verify: false }
    }

    /// Sets the environment of the directory, with the [keys](crate::Db::env) of an encrypted database; the
    /// operating system's files by default.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Sets a function that is called at the start, for each MiB, and for each file.
    pub fn on_progress(mut self, call: impl FnMut(&Progress) + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(call));
        self
    }

    /// Also reads the whole restored database as [`Db::check`] does, before it gets its name. Off by default:
    /// the checksums of the stream prove that the files are those that were sent.
    pub fn verify(mut self, on: bool) -> Self {
        self.verify = on;
        self
    }

    /// Restores what [`Stream::write`] wrote. The database is created completely or not at all. Reads no more
    /// than the stream's last record.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`]; [`Error::Corrupt`] with the offset in the stream, also if it is cut off;
    /// [`Error::UnsupportedVersion`]; [`Error::Io`], [`Error::NoSpace`].
    pub fn read(mut self, input: impl Read) -> Result<BackupInfo> {
        let mut stream = Incoming { reader: StreamReader::new(input, &self.env)? };
        let version = stream.part(decode_head)?;
        if version != FORMAT_VERSION {
            let path = PathBuf::from("the stream");
            let supported = FORMAT_VERSION;
            return Err(Error::UnsupportedVersion { what: "backup stream", path, found: version, supported });
        }
        let (info, ..) = stream.part(|bytes| decode_info(bytes, FORMAT_VERSION))?;
        let state = stream.part(VersionEdit::decode)?;
        // The manifest takes the next number.
        if state.next_file.is_some_and(|next| next.get() > u64::MAX / 2) {
            return Err(stream.damaged("the manifest has no numbers for new files"));
        }
        let keys = stream.record()?;
        let is_sealed = stream.reader.is_sealed();
        let env = encryption::with_wrapped_keys(&self.env, Path::new("the stream"), &keys, is_sealed)?;
        let workplace = Workplace::take(&env, &self.dir, None)?;
        let tables = state.added.iter().map(|added| (DataKind::Table, added.file));
        let blobs = state.blobs.added.iter().map(|&(_, file)| (DataKind::Blobs, file));
        let mut missing: BTreeSet<_> = tables.chain(blobs).collect();
        let mut reporter = Reporter::new(&mut self.on_progress, info.files, info.bytes);
        let mut bytes = 0_u64;
        let ended = loop {
            match stream.part(decode_item)? {
                Item::File { kind, id, len } => {
                    if !missing.remove(&(kind, id)) {
                        return Err(stream.damaged("a file that the manifest does not name"));
                    }
                    stream.file(&workplace, &data_path(workplace.dir(), kind, id), len, &mut reporter)?;
                    bytes = bytes.saturating_add(len);
                    reporter.file();
                }
                Item::End { files, bytes } => break (files, bytes),
            }
        };
        if !missing.is_empty() || ended != (info.files, info.bytes) || bytes != info.bytes {
            return Err(stream.damaged("the stream does not have the files that it announced"));
        }
        write_manifest(&workplace, state)?;
        finish(workplace, self.verify)?;
        Ok(info)
    }
}

/// A record after the first three.
enum Item {
    File { kind: DataKind, id: FileId, len: u64 },
    End { files: u64, bytes: u64 },
}

fn decode_head(bytes: &[u8]) -> Decoded<u32> {
    let mut reader = ByteReader::new(bytes);
    if reader.take(MAGIC.len() as u64)? != MAGIC {
        return Err(reader.error("this is not the stream of a backup"));
    }
    Ok(u32::try_from(reader.varint()?).unwrap_or(u32::MAX))
}

fn decode_item(bytes: &[u8]) -> Decoded<Item> {
    let mut reader = ByteReader::new(bytes);
    let item = match reader.u8()? {
        FILE => {
            let kind = match reader.u8()? {
                0 => DataKind::Table,
                1 => DataKind::Blobs,
                other => return Err(reader.error(format!("kind of file {other}"))),
            };
            Item::File { kind, id: FileId::new(reader.varint()?), len: reader.varint()? }
        }
        END => Item::End { files: reader.varint()?, bytes: reader.varint()? },
        other => return Err(reader.error(format!("record of kind {other}, not a file or the end"))),
    };
    if reader.is_empty() { Ok(item) } else { Err(reader.error("excess bytes after a record")) }
}

/// A stream that is read.
struct Incoming<R> {
    reader: StreamReader<R>,
}

impl<R: Read> Incoming<R> {
    fn record(&mut self) -> Result<Vec<u8>> {
        let record = self.reader.next()?;
        record.ok_or_else(|| self.damaged("the stream is cut off"))
    }

    fn part<T>(&mut self, decode: impl FnOnce(&[u8]) -> Decoded<T>) -> Result<T> {
        let record = self.record()?;
        let at = self.reader.content_offset();
        decode(&record).map_err(|e| e.in_file("backup stream", Path::new("the stream"), at))
    }

    fn damaged(&self, detail: &str) -> Error {
        self.reader.corrupt(self.reader.position(), format!("{detail}: send the database again"))
    }

    /// Writes the pieces of a file durably.
    fn file(
        &mut self,
        workplace: &Workplace,
        path: &Path,
        len: u64,
        reporter: &mut Reporter<'_>,
    ) -> Result<()> {
        let fs = &workplace.held().fs;
        let file = fs.open(path, OpenOptions::create_new()).map_err(|e| Error::io("create", path, e))?;
        let mut at = 0;
        while at < len {
            let record = self.record()?;
            let piece = match record.split_first() {
                Some((&PIECE, piece)) if !piece.is_empty() && piece.len() as u64 <= len - at => piece,
                _ => return Err(self.damaged("a piece of a file is missing or too long")),
            };
            file.write_all_at(piece, at).map_err(|e| Error::io("write", path, e))?;
            at += piece.len() as u64;
            reporter.bytes(piece.len());
        }
        file.sync_data().map_err(|e| Error::io("sync", path, e))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_env::MemFs;

    use super::*;

    /// Pins version 1: a change of these bytes needs a new version.
    #[test]
    fn golden_bytes_of_an_empty_database() {
        const STREAM: &str = "8945534b5245430a0100000086461af3930eceefe51cf7000d0000000d000000c463c2469b7ce4c765736b6572207374\
            7265616d01e51cf7001000000010000000ed94ce6c9e7531730080e2cfaa06b1fdc6b60b0000000000e51cf7000a0000\
            000a000000ac7bbf08da12457e01020201030105000800e51cf700000000000000000000000000328db845e51cf70003\
            0000000300000009634a8a08027a08030000";
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let db = Db::builder().stepped().env(env).open("db").unwrap();
        let mut stream = Vec::new();
        Stream::new().write(&db, &mut stream).unwrap();
        assert_eq!(stream.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), STREAM);
    }

    #[test]
    fn golden_bytes_of_a_file() {
        let file = decode_item(&[1, 1, 7, 0x80, 1]).unwrap();
        assert!(matches!(file, Item::File { kind: DataKind::Blobs, id, len: 128 } if id.get() == 7));
        assert!(matches!(decode_item(&[3, 2, 9]).unwrap(), Item::End { files: 2, bytes: 9 }));
    }

    /// Anyone can write a stream in plain text with the KEYS of another one.
    #[test]
    #[cfg(feature = "encryption")]
    fn a_plain_stream_that_carries_keys_is_refused() {
        use crate::encryption::{MasterKeys, with_keys};
        use crate::types::EncryptionProblem::{KeyMissing, NotEncrypted};
        let bare = Env::simulated(Arc::new(MemFs::new()), 1);
        let keyed = with_keys(&bare, Arc::new(MasterKeys::new("m", &[1; 32]).unwrap()));
        let db = Db::builder().stepped().env(keyed.clone()).open("db").unwrap();
        db.default_keyspace().put("a", "1").unwrap();
        let (mut sealed, mut plain) = (Vec::new(), Vec::new());
        Stream::new().write(&db, &mut sealed).unwrap();
        let mut reader = StreamReader::new(&sealed[..], &keyed).unwrap();
        let mut writer = StreamWriter::new(&mut plain, Compression::None, &bare).unwrap();
        while let Some(record) = reader.next().unwrap() {
            writer.append(&record).unwrap();
        }
        let refusal =
            |env: &Env, stream: &[u8]| match Restore::new("no").env(env.clone()).read(stream).unwrap_err() {
                Error::Encryption { problem, .. } => problem,
                error => panic!("{error}"),
            };
        assert!(matches!(refusal(&keyed, &plain), NotEncrypted));
        assert!(matches!(refusal(&bare, &plain), KeyMissing));
        assert!(matches!(refusal(&bare, &sealed), KeyMissing));
        assert!(!bare.fs.exists(Path::new("no")).unwrap());
        Restore::new("yes").env(keyed).read(&sealed[..]).unwrap();
    }
}
