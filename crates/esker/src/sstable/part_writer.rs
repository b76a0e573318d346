//! Appends the parts of a table to its file, each compressed if that helps and with a checksum.

use std::ops::Range;
use std::path::{Path, PathBuf};

use esker_env::{AppendWriter, Env, OpenOptions};

use super::footer::Footer;
use super::stored::{Fingerprint, Salt, pack, trailer};
use crate::encoding::Compression;
use crate::encryption::{FileKind, Seal};
use crate::types::canary::{self, Canary};
use crate::types::{Error, Result, SeqNo};

const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// Writes the file of one table.
pub(super) struct PartWriter {
    pub(super) env: Env,
    pub(super) path: PathBuf,
    file: AppendWriter,
    pub(super) salt: Salt,
    /// Fingerprint of the parts written so far.
    pub(super) fingerprint: Fingerprint,
    pub(super) seal: Seal,
    /// Memory for compressed payloads, and for encrypted ones.
    scratch: Vec<u8>,
    sealed: Vec<u8>,
}

impl PartWriter {
    /// Creates the file, which must not exist.
    pub(super) fn create(env: &Env, path: &Path, direct: bool) -> Result<Self> {
        let seal = Seal::create(env, FileKind::Table)?;
        let open = OpenOptions { direct, ..OpenOptions::create_new() };
        let file = AppendWriter::create(&*env.fs, path, open, WRITE_BUFFER_BYTES)
            .map_err(|e| Error::io("create", path, e))?
            .steady();
        Ok(PartWriter {
            env: env.clone(),
            path: path.to_owned(),
            file,
            salt: Salt::of_file(path),
            fingerprint: Fingerprint::default(),
            seal,
            scratch: Vec::new(),
            sealed: Vec::new(),
        })
    }

    /// Number of bytes written.
    pub(super) fn position(&self) -> u64 {
        self.file.position()
    }

    /// Writes a part and returns its position in the file.
    pub(super) fn write(&mut self, payload: &[u8], codec: Compression) -> Result<Range<u64>> {
        let start = self.position();
        let packed = pack(payload, codec, &mut self.scratch);
        let (mut stored, used) = packed.map_err(|e| Error::io("compress", &self.path, e))?;
        if self.seal.is_on() {
            self.sealed.clear();
            self.sealed.extend_from_slice(stored);
            self.seal.seal(start, &[used.id()], &mut self.sealed);
            stored = &self.sealed;
        }
        let trailer = trailer(stored, used, self.salt, start);
        let written = self.file.write(stored).and_then(|()| self.file.write(&trailer));
        written.map_err(|e| Error::io("write", &self.path, e))?;
        self.fingerprint = self.fingerprint.with_part(&trailer);
        Ok(start..self.position())
    }

    /// Returns the stored size of a payload, without writing it.
    pub(super) fn packed_bytes(&mut self, payload: &[u8], codec: Compression) -> Result<usize> {
        let packed = pack(payload, codec, &mut self.scratch);
        Ok(packed.map_err(|e| Error::io("compress", &self.path, e))?.0.len())
    }

    /// Writes the footer and makes the file durable. Returns the size of the file.
    pub(super) fn finish(mut self, footer: &Footer) -> Result<u64> {
        let footer_bytes = footer.encode();
        let written =
            self.file.write(&self.seal.header(&footer_bytes)).and_then(|()| self.file.write(&footer_bytes));
        written.map_err(|e| Error::io("write", &self.path, e))?;
        let is_private = footer.newest_commit == SeqNo::ZERO;
        let is_unsynced = canary::is_set(Canary::TableNotSynced)
            || (is_private && canary::is_set(Canary::AdoptedTableNotSynced));
        let finished = match is_unsynced {
            true => hand_over(&self.env, &self.path, self.file),
            false => self.file.finish().map(|(_, bytes)| bytes),
        };
        let file_bytes = finished.map_err(|e| Error::io("finish", &self.path, e))?;
        assert!(file_bytes == footer.end());
        Ok(file_bytes)
    }

    /// Removes the unfinished file.
    pub(super) fn abandon(self) -> Result<()> {
        let PartWriter { env, path, file, .. } = self;
        drop(file);
        env.fs.remove_file(&path).map_err(|e| Error::io("remove", &path, e))
    }
}

/// Writes the whole file to the page cache with its final length, without making it durable. Used only by a
/// canary.
fn hand_over(env: &Env, path: &Path, mut file: AppendWriter) -> std::io::Result<u64> {
    file.flush()?;
    let bytes = file.position();
    env.fs.open(path, OpenOptions::write())?.set_len(bytes)?;
    Ok(bytes)
}
