//! A segment: a part of the change feed in a file.
//!
//! ```text
//!   Head --commit: changes, changes, ..., end--> ... --> End
//! ```
//!
//! A file without its last record is damaged. So is one whose commits are not consecutive or have wrong
//! digests.
//!
//! Bytes: docs/formats/backup.md

use std::path::Path;

use esker_env::Env;

use crate::encoding::Compression;
use crate::encoding::bytes::{ByteReader, Decoded, put_varint};
use crate::encoding::digest::{DIGEST_BYTES, Digest, Digester};
use crate::recordio;
use crate::types::{Error, Result, SeqNo};

/// The first bytes of the first record.
const MAGIC: &[u8] = b"esker feed";
/// The version that this build writes, and the newest that it reads.
const FORMAT_VERSION: u32 = 1;
const WHAT: &str = "segment of the feed";
const CHANGES: u8 = 1;
const COMMIT_END: u8 = 2;
const END: u8 = 3;
/// Changes are written in pieces of this size.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// The first record of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Id of the database.
    pub(super) database: u32,
    /// The newest backup of the database when the segment was started.
    pub(super) backup: u64,
    /// Start time, in seconds since 1970 on the wall clock. Informational; it never determines an order.
    pub(super) created: u64,
    /// The commit before the first one, and its digest if known.
    pub(super) before: SeqNo,
    pub(super) digest_before: Option<Digest>,
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_varint(&mut out, FORMAT_VERSION.into());
        for n in [self.database.into(), self.backup, self.created, self.before.get()] {
            put_varint(&mut out, n);
        }
        out.extend(self.digest_before.iter().flat_map(|digest| digest.0));
        out
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Head> {
        let damaged = |detail: &str| Error::corrupt(WHAT, path, 0, detail.to_owned());
        let rest =
            bytes.strip_prefix(MAGIC).ok_or_else(|| damaged("the first record is not that of a segment"))?;
        let mut reader = ByteReader::new(rest);
        let found = reader.varint().map_err(|e| e.in_file(WHAT, path, 0))?;
        if found != u64::from(FORMAT_VERSION) {
            let (found, path) = (u32::try_from(found).unwrap_or(u32::MAX), path.to_path_buf());
            return Err(Error::UnsupportedVersion { what: WHAT, path, found, supported: FORMAT_VERSION });
        }
        let fields = |reader: &mut ByteReader<'_>| -> Decoded<[u64; 4]> {
            Ok([reader.varint()?, reader.varint()?, reader.varint()?, reader.varint()?])
        };
        let [database, backup, created, before] =
            fields(&mut reader).map_err(|e| e.in_file(WHAT, path, 0))?;
        let database = u32::try_from(database).map_err(|_| damaged("the database id exceeds 32 bits"))?;
        let before = SeqNo::try_new(before).ok_or_else(|| damaged("the sequence number exceeds 56 bits"))?;
        let digest_before = match reader.rest() {
            [] => None,
            digest => {
                let digest = <[u8; DIGEST_BYTES]>::try_from(digest);
                Some(Digest(digest.map_err(|_| damaged("the digest has the wrong length"))?))
            }
        };
        Ok(Head { database, backup, created, before, digest_before })
    }
}

/// Writes a segment.
pub(super) struct Writer {
    writer: recordio::Writer,
    pub(super) last: SeqNo,
    pub(super) digest: Option<Digest>,
    digester: Digester,
}

impl Writer {
    pub(super) fn create(env: &Env, path: &Path, head: &Head) -> Result<Writer> {
        let mut writer = recordio::Writer::options().env(env).compression(Compression::Lz4).create(path)?;
        writer.append(&head.encode())?;
        Ok(Writer { writer, last: head.before, digest: head.digest_before, digester: Digester::default() })
    }

    /// Appends changes of the current commit.
    pub(super) fn changes(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.digester.add(bytes);
        self.writer.append(&[&[CHANGES], bytes].concat()).map(drop)
    }

    /// Ends the current commit.
    pub(super) fn commit(&mut self, seq: SeqNo) -> Result<()> {
        let digest = std::mem::take(&mut self.digester).finish();
        let mut record = vec![COMMIT_END];
        put_varint(&mut record, seq.get());
        record.extend_from_slice(&digest.0);
        self.writer.append(&record)?;
        (self.last, self.digest) = (seq, Some(digest));
        Ok(())
    }

    /// Ends the segment and makes it durable. Returns its size.
    pub(super) fn finish(mut self) -> Result<u64> {
        let mut record = vec![END];
        put_varint(&mut record, self.last.get());
        self.writer.append(&record)?;
        self.writer.finish()
    }
}

/// An item of a segment.
pub(super) enum Item<'a> {
    Changes(&'a [u8]),
    /// The end of a commit, whose changes precede it.
    Commit(SeqNo),
    /// The end of the segment.
    End,
}

/// Reads and verifies a segment.
pub(super) struct Reader {
    reader: recordio::Reader,
    path: std::path::PathBuf,
    pub(super) head: Head,
    /// The last commit read, and its digest.
    pub(super) last: SeqNo,
    pub(super) digest: Option<Digest>,
    digester: Digester,
}

impl Reader {
    pub(super) fn open(env: &Env, path: &Path) -> Result<Reader> {
        let mut reader = recordio::Reader::options().env(env).strict_tail(true).open(path)?;
        let head = reader.next()?.map(|first| Head::decode(first, path)).transpose()?;
        let head = head.ok_or_else(|| Error::corrupt(WHAT, path, 0, "the segment is empty"))?;
        let (last, digest, digester) = (head.before, head.digest_before, Digester::default());
        Ok(Reader { reader, path: path.to_path_buf(), head, last, digest, digester })
    }

    pub(super) fn next(&mut self) -> Result<Item<'_>> {
        let at = self.reader.position();
        let damaged = |detail: &str| Error::corrupt(WHAT, &self.path, at, detail.to_owned());
        let Some(record) = self.reader.next()? else { return Err(damaged("the segment is incomplete")) };
        let (kind, rest) = record.split_first().ok_or_else(|| damaged("a record is empty"))?;
        let mut reader = ByteReader::new(rest);
        let number = |reader: &mut ByteReader<'_>| reader.varint().ok().and_then(SeqNo::try_new);
        match *kind {
            CHANGES => {
                self.digester.add(rest);
                Ok(Item::Changes(rest))
            }
            COMMIT_END => {
                let seq = number(&mut reader).filter(|seq| *seq == self.last.next());
                let seq = seq.ok_or_else(|| damaged("a commit is out of order"))?;
                let digest = std::mem::take(&mut self.digester).finish();
                if reader.rest() != digest.0 {
                    return Err(damaged("the digest of a commit does not match"));
                }
                (self.last, self.digest) = (seq, Some(digest));
                Ok(Item::Commit(seq))
            }
            END if number(&mut reader) == Some(self.last) => Ok(Item::End),
            _ => Err(damaged("a record is invalid")),
        }
    }

    /// Reads to the end.
    pub(super) fn check(&mut self) -> Result<()> {
        while !matches!(self.next()?, Item::End) {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_env::{Fs, MemFs, OpenOptions, read_range};

    use super::*;

    #[test]
    fn golden_bytes() {
        let hex = |bytes: Vec<u8>| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let head =
            Head { database: 0xAB, backup: 7, created: 1_000, before: SeqNo::new(300), digest_before: None };
        assert_eq!(hex(head.encode()), "65736b657220666565640 1ab0107e807ac02".replace(' ', ""));
        let known = Head { digest_before: Some(Digest([9; DIGEST_BYTES])), ..head };
        for head in [head, known] {
            assert_eq!(Head::decode(&head.encode(), Path::new("")).unwrap(), head);
        }
        assert!(Head::decode(b"something else", Path::new("")).is_err());
        assert!(Head::decode(b"esker feed\x02", Path::new("")).is_err());
    }

    #[test]
    fn segment_1_damage_is_found_wherever_it_is() {
        let fs = MemFs::new();
        let env = Env::simulated(Arc::new(fs.clone()), 1);
        let path = Path::new("s");
        let head = Head { database: 1, backup: 1, created: 2, before: SeqNo::new(7), digest_before: None };
        let mut writer = Writer::create(&env, path, &head).unwrap();
        for seq in 8..12 {
            writer.changes(b"one").unwrap();
            writer.changes(&vec![seq as u8; 300]).unwrap();
            writer.commit(SeqNo::new(seq)).unwrap();
        }
        writer.finish().unwrap();
        let mut reader = Reader::open(&env, path).unwrap();
        reader.check().unwrap();
        assert_eq!((reader.last, reader.digest.is_some()), (SeqNo::new(11), true));
        let file = fs.open(path, OpenOptions::write()).unwrap();
        let len = file.len().unwrap();
        let is_whole = || Reader::open(&env, path).and_then(|mut reader| reader.check()).is_ok();
        for at in 0..len {
            let byte = read_range(&*file, at, 1).unwrap()[0];
            file.write_all_at(&[byte ^ 1], at).unwrap();
            assert!(!is_whole(), "byte {at}");
            file.write_all_at(&[byte], at).unwrap();
        }
        assert!(is_whole());
        for cut in (0..len).rev() {
            file.set_len(cut).unwrap();
            assert!(!is_whole(), "cut to {cut}");
        }
    }
}
