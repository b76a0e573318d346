//! The record of a backup: the list of its contents.
//!
//! Bytes: docs/formats/backup.md
//!
//! A record lists each file of its manifest state once, with its length and digest; otherwise it is damaged.
//! Decoding uses no more memory than the size of the input justifies.

use std::collections::BTreeSet;
use std::path::Path;

use esker_env::Env;

use super::BackupInfo;
use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::encoding::digest::{DIGEST_BYTES, Digest};
use crate::engine::life::copies::capture::DataKind;
use crate::manifest::edit::VersionEdit;
use crate::recordio;
use crate::types::{Error, FileId, Result, SeqNo};

/// The first bytes of the first record.
const MAGIC: &[u8] = b"esker backup";
/// The version of the directory, and of a record without the digest of its last commit.
pub(super) const FORMAT_VERSION: u32 = 1;
/// The version of a record with the digest of its last commit.
const VERSION_WITH_TIP: u32 = 2;

/// The record of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) info: BackupInfo,
    /// The preceding backup of the same database, if any. It reveals lost records.
    pub(super) previous: Option<u64>,
    /// The digest of the last commit, as in segments. `None` if the change feed did not contain that commit.
    /// It proves which commits follow.
    pub(super) tip: Option<Digest>,
    /// The manifest of the restored database.
    pub(super) state: VersionEdit,
    pub(super) files: Vec<StoredFile>,
}

/// A file of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredFile {
    pub(super) kind: DataKind,
    /// Number of the file in the database.
    pub(super) id: FileId,
    pub(super) len: u64,
    /// Distinguishes the file from others with the same number.
    pub(super) mark: u32,
    pub(super) digest: Digest,
}

impl StoredFile {
    /// Returns the name of the stored file.
    pub(super) fn name(&self, database: u32) -> String {
        stored_name(database, self.kind, self.id, self.len, self.mark)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.kind == DataKind::Blobs)];
        put_varint(&mut out, self.id.get());
        put_varint(&mut out, self.len);
        out.extend_from_slice(&self.mark.to_le_bytes());
        out.extend_from_slice(&self.digest.0);
        out
    }

    fn decode(bytes: &[u8]) -> Decoded<StoredFile> {
        let mut reader = ByteReader::new(bytes);
        let kind = match reader.u8()? {
            0 => DataKind::Table,
            1 => DataKind::Blobs,
            other => return Err(reader.error(format!("kind of file {other}"))),
        };
        let (id, len, mark) = (FileId::new(reader.varint()?), reader.varint()?, reader.u32()?);
        let rest = reader.rest();
        match <[u8; DIGEST_BYTES]>::try_from(rest) {
            Ok(digest) => Ok(StoredFile { kind, id, len, mark, digest: Digest(digest) }),
            Err(_) => Err(reader.error(format!("a digest of {} bytes", rest.len()))),
        }
    }
}

/// Returns the name of a stored file.
pub(super) fn stored_name(database: u32, kind: DataKind, id: FileId, len: u64, mark: u32) -> String {
    let ending = if kind == DataKind::Table { "sst" } else { "blob" };
    format!("{database:08x}-{:06}-{len}-{mark:08x}.{ending}", id.get())
}

/// Returns whether reading a record failed because it is damaged or of a newer version.
pub(super) fn is_unusable(error: &Error) -> bool {
    matches!(error, Error::Corrupt { .. } | Error::UnsupportedVersion { .. })
}

/// Returns the database and the length in a name produced by [`stored_name`]. `None` for other names.
pub(super) fn stored(name: &str) -> Option<(u32, u64)> {
    let (stem, ending) = name.rsplit_once('.')?;
    let kind = match ending {
        "sst" => DataKind::Table,
        "blob" => DataKind::Blobs,
        _ => return None,
    };
    let mut parts = stem.split('-');
    let mut next = || parts.next();
    let (database, id, len, mark) = (next()?, next()?, next()?, next()?);
    let hex = |text| u32::from_str_radix(text, 16).ok();
    let len = len.parse().ok()?;
    let database = hex(database)?;
    let given = stored_name(database, kind, FileId::new(id.parse().ok()?), len, hex(mark)?);
    (given == name).then_some((database, len))
}

pub(super) fn encode_info(info: &BackupInfo, previous: Option<u64>, tip: Option<Digest>) -> Vec<u8> {
    let BackupInfo { id, created, database, seqno, files, bytes, new_files, new_bytes, damage: _ } = info;
    let mut out = Vec::new();
    for n in [*id, *created, (*database).into(), seqno.get(), *files, *bytes, *new_files, *new_bytes] {
        put_varint(&mut out, n);
    }
    match tip {
        Some(tip) => {
            put_varint(&mut out, previous.unwrap_or(0));
            out.extend_from_slice(&tip.0);
        }
        None => previous.into_iter().for_each(|previous| put_varint(&mut out, previous)),
    }
    out
}

pub(super) fn decode_info(bytes: &[u8], version: u32) -> Decoded<(BackupInfo, Option<u64>, Option<Digest>)> {
    let mut reader = ByteReader::new(bytes);
    let (id, created, database, seqno) =
        (reader.varint()?, reader.varint()?, reader.varint()?, reader.varint()?);
    let database = u32::try_from(database).map_err(|_| reader.error("the database id exceeds 32 bits"))?;
    let seqno = SeqNo::try_new(seqno).ok_or_else(|| reader.error("the sequence number exceeds 56 bits"))?;
    let (files, bytes) = (reader.varint()?, reader.varint()?);
    let (new_files, new_bytes) = (reader.varint()?, reader.varint()?);
    let has_tip = version == VERSION_WITH_TIP;
    let previous = if reader.is_empty() && !has_tip { None } else { Some(reader.varint()?) };
    let previous = previous.filter(|previous| !has_tip || *previous > 0);
    let tip = match reader.rest() {
        [] if !has_tip => None,
        digest => match <[u8; DIGEST_BYTES]>::try_from(digest) {
            Ok(digest) if has_tip => Some(Digest(digest)),
            _ => return Err(reader.error("the record has the wrong length")),
        },
    };
    if previous.is_some_and(|previous| previous >= id) {
        return Err(reader.error("the preceding backup has a larger id"));
    }
    let info = BackupInfo { id, created, database, seqno, files, bytes, new_files, new_bytes, damage: None };
    Ok((info, previous, tip))
}

/// Writes a record durably to a file that has no final name yet.
pub(super) fn write(env: &Env, path: &Path, record: &Record) -> Result<()> {
    let mut writer = recordio::Writer::options().env(env).create(path)?;
    let mut header = MAGIC.to_vec();
    let version = if record.tip.is_some() { VERSION_WITH_TIP } else { FORMAT_VERSION };
    put_varint(&mut header, version.into());
    writer.append(&header)?;
    writer.append(&encode_info(&record.info, record.previous, record.tip))?;
    writer.append(&record.state.encode())?;
    for file in &record.files {
        writer.append(&file.encode())?;
    }
    writer.sync()
}

/// Reads a record.
pub(super) fn read(env: &Env, path: &Path) -> Result<Record> {
    const WHAT: &str = "backup record";
    let mut reader = recordio::Reader::options().env(env).uncompressed().open(path)?;
    let cut = |at| Error::corrupt(WHAT, path, at, "the record is incomplete: restore another backup");
    let mut next = || -> Result<Option<(Vec<u8>, u64)>> {
        let record = reader.next()?.map(<[u8]>::to_vec);
        Ok(record.map(|record| (record, reader.content_offset())))
    };
    let (header, at) = next()?.ok_or_else(|| cut(0))?;
    let version = version_of(&header, path, at)?;
    let (head, at) = next()?.ok_or_else(|| cut(at))?;
    let (info, previous, tip) = decode_info(&head, version).map_err(|e| e.in_file(WHAT, path, at))?;
    let (state, at) = next()?.ok_or_else(|| cut(at))?;
    let state = VersionEdit::decode(&state).map_err(|e| e.in_file(WHAT, path, at))?;
    let mut files = Vec::new();
    let mut last = at;
    while let Some((file, at)) = next()? {
        files.push(StoredFile::decode(&file).map_err(|e| e.in_file(WHAT, path, at))?);
        last = at;
    }
    let record = Record { info, previous, tip, state, files };
    match record.problem() {
        None => Ok(record),
        Some(detail) => Err(Error::corrupt(WHAT, path, last, format!("{detail}: restore another backup"))),
    }
}

fn version_of(header: &[u8], path: &Path, offset: u64) -> Result<u32> {
    let Some(rest) = header.strip_prefix(MAGIC) else {
        return Err(Error::corrupt(
            "backup record",
            path,
            offset,
            "the first record is not that of a backup",
        ));
    };
    let at = offset + MAGIC.len() as u64;
    let found = ByteReader::new(rest).varint().map_err(|e| e.in_file("backup record", path, at))?;
    let found = u32::try_from(found).unwrap_or(u32::MAX);
    if matches!(found, FORMAT_VERSION | VERSION_WITH_TIP) {
        return Ok(found);
    }
    let path = path.to_path_buf();
    Err(Error::UnsupportedVersion { what: "backup record", path, found, supported: VERSION_WITH_TIP })
}

impl Record {
    /// Returns what is inconsistent about the record.
    fn problem(&self) -> Option<String> {
        let tables = self.state.added.iter().map(|added| (DataKind::Table, added.file.get()));
        let blobs = self.state.blobs.added.iter().map(|(_, file)| (DataKind::Blobs, file.get()));
        let needed: BTreeSet<_> = tables.chain(blobs).collect();
        let named: BTreeSet<_> = self.files.iter().map(|file| (file.kind, file.id.get())).collect();
        let bytes = self.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.len));
        if self.files.len() as u64 != self.info.files || named.len() != self.files.len() {
            return Some(format!("the record lists {} of {} files", named.len(), self.info.files));
        }
        (named != needed || bytes != Some(self.info.bytes))
            .then(|| "the listed files are not those of the manifest state".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_env::{MemFs, OpenOptions};

    use super::*;
    use crate::manifest::edit::BlobEdit;

    fn sample() -> Record {
        let info = BackupInfo {
            id: 7,
            created: 1_000_000,
            database: 0xAB,
            seqno: SeqNo::new(300),
            files: 1,
            bytes: 500,
            new_files: 1,
            new_bytes: 500,
            damage: None,
        };
        let state = VersionEdit {
            blobs: BlobEdit { added: vec![(FileId::new(4), FileId::new(5))], ..BlobEdit::default() },
            ..VersionEdit::default()
        };
        let digest = Digest([9; DIGEST_BYTES]);
        let files = vec![StoredFile { kind: DataKind::Blobs, id: FileId::new(5), len: 500, mark: 3, digest }];
        Record { info, previous: Some(6), tip: None, state, files }
    }

    /// Encodes the info of a record without the digest of its last commit.
    fn encode_info(info: &BackupInfo, previous: Option<u64>) -> Vec<u8> {
        super::encode_info(info, previous, None)
    }

    #[test]
    fn golden_bytes_of_a_record_with_the_digest_of_its_last_commit() {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let record = sample();
        let tip = Digest([5; DIGEST_BYTES]);
        let of = |previous| hex(super::encode_info(&record.info, previous, Some(tip)));
        let info = "07c0843dab01ac0201f40301f403";
        assert_eq!(of(record.previous), format!("{info}06{}", "05".repeat(16)));
        assert_eq!(of(None), format!("{info}00{}", "05".repeat(16)));
    }

    #[test]
    fn golden_bytes() {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let record = sample();
        assert_eq!(hex(encode_info(&record.info, None)), "07c0843dab01ac0201f40301f403");
        assert_eq!(hex(record.files[0].encode()), format!("0105f40303000000{}", "09".repeat(16)));
        assert_eq!(record.files[0].name(0xAB), "000000ab-000005-500-00000003.blob");
    }

    #[test]
    fn golden_bytes_of_a_record_that_follows_another() {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let record = sample();
        assert_eq!(hex(encode_info(&record.info, record.previous)), "07c0843dab01ac0201f40301f40306");
    }

    #[test]
    fn backup_record_1_a_record_comes_back_and_what_is_missing_or_too_much_is_damage() {
        let env = Env::simulated(Arc::new(MemFs::new()), 1);
        let path = Path::new("r");
        let back = |record: &Record| {
            write(&env, path, record).unwrap();
            read(&env, path)
        };
        let with_tip = |previous| Record { tip: Some(Digest([5; DIGEST_BYTES])), previous, ..sample() };
        for whole in [with_tip(None), with_tip(Some(6)), sample()] {
            assert_eq!(back(&whole).unwrap(), whole);
        }
        let mut fewer = sample();
        fewer.files.clear();
        let mut twice = sample();
        twice.files.extend(sample().files);
        let mut other = sample();
        other.files[0].id = FileId::new(6);
        let mut longer = sample();
        longer.files[0].len = 501;
        for damaged in [fewer, twice, other, longer] {
            assert!(back(&damaged).is_err_and(|e| e.is_corrupt()), "{damaged:?}");
        }
        back(&sample()).unwrap();
        let file = env.fs.open(path, OpenOptions::write()).unwrap();
        for len in (0..file.len().unwrap()).rev() {
            file.set_len(len).unwrap();
            assert!(read(&env, path).is_err(), "cut to {len} bytes");
        }
    }
}
