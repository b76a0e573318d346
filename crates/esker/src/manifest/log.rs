//! The manifest: a log of version edits, and `CURRENT`, which names the current manifest.
//!
//! ```text
//!   create:  state --> MANIFEST-n, CURRENT.tmp (synced) --> directory synced --rename--> CURRENT --> synced
//!   append:  edit  --> MANIFEST-n (synced)
//!   find:    CURRENT --> MANIFEST-n --> all edits merged into one --go_on--> append
//! ```
//!
//! Bytes: docs/formats/manifest.md
//!
//! manifest_log.1. An edit takes effect once its record is synced. A record torn by a crash never took
//!     effect.
//! manifest_log.2. `CURRENT` always names a manifest that was complete and synced before `CURRENT` named it.
//! manifest_log.3. After a failed append or a panic in one, nothing more is written to that file: what
//!     reached the disk is unknown. The next append starts a new manifest, which settles it.
//! - Files that a failed edit added stay until a new manifest is current: the old one may name them.
//!
//! manifest_log.5. Every durable edit is followed by an empty record, the marker. It is written after the
//!     edit, and is durable before the next edit is written. So a damaged edit that took effect is followed
//!     by a valid record, which distinguishes it from a torn tail.
//! - Records are not compressed: reading a manifest takes no more memory than its size accounts for.
//! - An existing manifest is continued if it ends in a marker, because then all of its edits
//!   are durable. The marker itself may not be; it is written again with the first edit. Of a manifest that
//!   ends otherwise it is unknown what is durable: a new one replaces it. It also replaces an encrypted
//!   one, which only its creator appends to (seal.1).

use std::path::{Path, PathBuf};

use esker_env::{Env, OpenOptions};

use super::edit::VersionEdit;
use super::file_name::{CURRENT, CURRENT_TMP, manifest_name};
use crate::encoding::bytes::{ByteReader, put_varint};
use crate::encoding::checksum::crc32c;
use crate::recordio::{self, LastRecord};
use crate::types::canary::{self, Canary};
use crate::types::{Error, FileId, NewFile, Result};

/// The manifest format that this build writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// The first bytes of a manifest's first record.
const MAGIC: &[u8] = b"esker manifest";
/// A manifest this many times larger than the state it describes is rewritten.
const REWRITE_FACTOR: u64 = 4;
/// A manifest below this size is not rewritten, unless configured otherwise.
pub(crate) const REWRITE_BYTES_MIN: u64 = 64 << 10;
/// Size of a marker.
const MARKER_BYTES: u64 = 20;
/// Size of the buffer for writing an edit.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum size of `CURRENT`. A larger file is not the engine's.
const CURRENT_BYTES_MAX: u64 = 256;

/// An open manifest.
pub struct ManifestLog {
    env: Env,
    dir: PathBuf,
    id: FileId,
    writer: Option<recordio::Writer>,
    /// All edits so far, merged.
    state: VersionEdit,
    /// Size of the file when it held only the state.
    state_bytes: u64,
    /// Size below which it is not rewritten.
    rewrite_bytes_min: u64,
}

/// A manifest that was read.
#[derive(Debug)]
pub struct FoundManifest {
    /// Its number.
    pub id: FileId,
    /// All of its edits, merged.
    pub state: VersionEdit,
    /// Its size when it held only a state.
    state_bytes: u64,
    bytes: u64,
    /// Its last record, if that is a marker at the end of the file.
    last: Option<LastRecord>,
}

impl FoundManifest {
    /// Continues the manifest. Returns `None` if it is not settled, or encrypted. Writes nothing.
    pub fn go_on(&self, env: &Env, dir: &Path) -> Result<Option<ManifestLog>> {
        let Some(last) = self.last.filter(LastRecord::may_be_followed) else { return Ok(None) };
        if self.bytes <= self.state_bytes + MARKER_BYTES {
            // No edit proves that CURRENT was durable when it named this manifest (manifest_log.2).
            sync_dir(env, dir)?;
        }
        let path = dir.join(manifest_name(self.id));
        let options = recordio::Writer::options().env(env).buffer_bytes(BUFFER_BYTES);
        let mut writer = options.go_on_at(&path, last)?;
        writer.append(&VersionEdit::default().encode())?;
        // The current state is usually larger than the first one.
        let is_long = self.bytes > REWRITE_BYTES_MIN;
        let now = if is_long { self.state.encode().len() as u64 } else { 0 };
        Ok(Some(ManifestLog {
            env: env.clone(),
            dir: dir.to_path_buf(),
            id: self.id,
            writer: Some(writer),
            state: self.state.clone(),
            state_bytes: self.state_bytes.max(now),
            rewrite_bytes_min: REWRITE_BYTES_MIN,
        }))
    }
}

impl ManifestLog {
    /// Creates a manifest that holds `state`, and makes it current.
    pub fn create(env: &Env, dir: &Path, id: FileId, state: VersionEdit) -> Result<Self> {
        Self::create_beside(env, dir, id, state, || Ok(()))
    }

    /// Same as `create`, for a state that names a new file of the directory. `sync_named` makes its content
    /// durable.
    pub(crate) fn create_beside(
        env: &Env,
        dir: &Path,
        id: FileId,
        state: VersionEdit,
        sync_named: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let path = dir.join(manifest_name(id));
        let written = write_files(env, dir, (id, &path), &state, sync_named).inspect_err(|_| {
            // Nothing names the file. After many attempts such files would fill the disk.
            let _ = env.fs.remove_file(&path);
        });
        let (writer, current) = written?;
        // From here on CURRENT may name it, even if this fails.
        current.put_in_place(env, dir, CURRENT)?;
        sync_dir(env, dir)?;
        let state_bytes = writer.size();
        Ok(ManifestLog {
            env: env.clone(),
            dir: dir.to_path_buf(),
            id,
            writer: Some(writer),
            state,
            state_bytes,
            rewrite_bytes_min: REWRITE_BYTES_MIN,
        })
    }

    /// Sets the size below which it is not rewritten.
    pub fn replaced_from(self, rewrite_bytes_min: u64) -> Self {
        ManifestLog { rewrite_bytes_min, ..self }
    }

    /// Reads the manifest that `CURRENT` names. Returns its number and all its edits merged, or `None`
    /// without `CURRENT`.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn recover(env: &Env, dir: &Path) -> Result<Option<(FileId, VersionEdit)>> {
        Ok(Self::find(env, dir)?.map(|found| (found.id, found.state)))
    }

    /// Same as `recover`, but the result can be continued.
    pub fn find(env: &Env, dir: &Path) -> Result<Option<FoundManifest>> {
        let Some(id) = read_current(env, dir)? else { return Ok(None) };
        let path = dir.join(manifest_name(id));
        if !env.fs.exists(&path).map_err(|e| Error::io("look for", &path, e))? {
            let detail = format!("it names {}, which is missing", manifest_name(id));
            return Err(Error::corrupt("CURRENT", dir.join(CURRENT), 0, detail));
        }
        let mut reader = recordio::Reader::options().env(env).uncompressed().open(&path)?;
        let Some(header) = reader.next()?.map(<[u8]>::to_vec) else {
            return Err(Error::corrupt("manifest", &path, 0, "it has no records"));
        };
        check_header(&header, &path, reader.content_offset())?;
        let mut state: Option<VersionEdit> = None;
        let (mut state_bytes, mut is_marker) = (0, false);
        while let Some(record) = reader.next()? {
            // A marker (manifest_log.5) is empty, and cannot be the state that must come first.
            is_marker = record.is_empty();
            if is_marker {
                continue;
            }
            let decoded = VersionEdit::decode(record);
            let edit = decoded.map_err(|e| e.in_file("version edit", &path, reader.content_offset()))?;
            match &mut state {
                Some(state) => state.merge(edit),
                None => {
                    state = Some(edit);
                    state_bytes = reader.position();
                }
            }
        }
        let Some(state) = state else {
            // manifest_log.2: the state was synced before CURRENT named the file.
            return Err(Error::corrupt("manifest", &path, reader.position(), "its first edit is missing"));
        };
        let bytes = reader.position();
        let last = reader.last_record().filter(|_| is_marker);
        Ok(Some(FoundManifest { id, state, state_bytes, bytes, last }))
    }

    /// Appends an edit durably. `fresh` returns a number for a new manifest file, if one is started.
    pub fn append(&mut self, edit: VersionEdit, fresh: impl FnOnce() -> FileId) -> Result<()> {
        let oversize = self.writer.as_ref().is_some_and(|writer| {
            writer.size() > self.rewrite_bytes_min && writer.size() > REWRITE_FACTOR * self.state_bytes
        });
        if self.is_broken() || oversize {
            let mut state = self.state.clone();
            state.merge(edit);
            return self.replace(fresh(), state);
        }
        let bytes = edit.encode();
        // manifest_log.3
        let mut writer = self.writer.take().expect("not broken");
        // manifest_log.5: sync the last marker, append the edit, write the next marker.
        let appended = settle_mark(&mut writer)
            .and_then(|()| append_durably(&mut writer, &bytes))
            .and_then(|()| mark(&mut writer));
        if appended.is_ok() {
            self.writer = Some(writer);
        }
        appended.map(|()| self.state.merge(edit))
    }

    /// Returns whether an append failed and no new manifest has settled it yet (manifest_log.3).
    pub fn is_broken(&self) -> bool {
        self.writer.is_none()
    }

    /// Settles a failed append by starting a new manifest without the failed edit.
    pub fn heal(&mut self, fresh: impl FnOnce() -> FileId) -> Result<()> {
        if self.is_broken() { self.replace(fresh(), self.state.clone()) } else { Ok(()) }
    }

    fn replace(&mut self, id: FileId, mut state: VersionEdit) -> Result<()> {
        state.next_file = state.next_file.max(Some(id.next()));
        // Until CURRENT names the new file the outcome is unknown, so the old file is not appended to.
        self.writer = None;
        let old = self.dir.join(manifest_name(self.id));
        let new = ManifestLog::create(&self.env, &self.dir, id, state)?;
        // The old file is garbage. If its removal fails, the next opening removes it. If the removal panics,
        // the caller does not learn of the edit, and the next append starts a manifest without it
        // (manifest_log.3).
        let _ = self.env.fs.remove_file(&old);
        *self = new.replaced_from(self.rewrite_bytes_min);
        Ok(())
    }

    /// The number of the manifest file.
    #[cfg(test)]
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The manifest file.
    pub fn path(&self) -> PathBuf {
        self.dir.join(manifest_name(self.id))
    }

    /// All durable edits, merged.
    pub fn state(&self) -> &VersionEdit {
        &self.state
    }
}

/// Makes the last marker durable (manifest_log.5).
fn settle_mark(writer: &mut recordio::Writer) -> Result<()> {
    writer.sync()
}

fn append_durably(writer: &mut recordio::Writer, edit: &[u8]) -> Result<()> {
    if canary::is_set(Canary::ManifestNotSynced) {
        return writer.append(edit).and_then(|_| writer.flush());
    }
    writer.append_sync(edit).map(drop)
}

/// Makes the files durable that `CURRENT` will rely on, and the next `CURRENT`, with their names. All are
/// written before the first sync: then one commit of a journal takes most of it.
fn write_files(
    env: &Env,
    dir: &Path,
    (id, path): (FileId, &Path),
    state: &VersionEdit,
    sync_named: impl FnOnce() -> Result<()>,
) -> Result<(recordio::Writer, NewFile)> {
    let mut writer = write_state(env, path, state)?;
    let current = NewFile::write(env, dir, CURRENT_TMP, current_text(id).as_bytes())?;
    sync_named()?;
    writer.sync()?;
    mark(&mut writer)?;
    current.sync()?;
    sync_dir(env, dir)?;
    Ok((writer, current))
}

/// Creates the file of a manifest that holds `state`. It is not durable.
fn write_state(env: &Env, path: &Path, state: &VersionEdit) -> Result<recordio::Writer> {
    let mut writer = recordio::Writer::options().env(env).named_later().create(path)?;
    let mut header = MAGIC.to_vec();
    put_varint(&mut header, u64::from(FORMAT_VERSION));
    writer.append(&header)?;
    writer.append(&state.encode())?;
    writer.begin_sync()?;
    Ok(writer)
}

/// Writes the marker after an edit (manifest_log.5). It need not be durable yet.
fn mark(writer: &mut recordio::Writer) -> Result<()> {
    writer.append(&VersionEdit::default().encode())?;
    writer.flush()
}

/// Checks the content of the first record, at `offset` of the file.
pub(super) fn check_header(header: &[u8], path: &Path, offset: u64) -> Result<()> {
    let Some(rest) = header.strip_prefix(MAGIC) else {
        return Err(Error::corrupt("manifest", path, offset, "the first record is not a manifest's"));
    };
    let version_at = offset + MAGIC.len() as u64;
    let found = ByteReader::new(rest).varint().map_err(|e| e.in_file("manifest", path, version_at))?;
    if found != u64::from(FORMAT_VERSION) {
        return Err(Error::UnsupportedVersion {
            what: "manifest",
            path: path.to_path_buf(),
            found: u32::try_from(found).unwrap_or(u32::MAX),
            supported: FORMAT_VERSION,
        });
    }
    Ok(())
}

fn sync_dir(env: &Env, dir: &Path) -> Result<()> {
    env.fs.sync_dir(dir).map_err(|e| Error::io("sync", dir, e))
}

/// The text of `CURRENT`: the manifest's name and its CRC-32C in hexadecimal.
pub(super) fn current_text(id: FileId) -> String {
    let name = manifest_name(id);
    format!("{name} {:08x}\n", crc32c(name.as_bytes()))
}

/// The number of the manifest that `CURRENT` names. `None` without `CURRENT`.
pub(crate) fn read_current(env: &Env, dir: &Path) -> Result<Option<FileId>> {
    let path = dir.join(CURRENT);
    let io = |e| Error::io("read", &path, e);
    if !env.fs.exists(&path).map_err(io)? {
        return Ok(None);
    }
    let file = env.fs.open(&path, OpenOptions::read()).map_err(io)?;
    let len = file.len().map_err(io)?;
    let mut text = vec![0; len.min(CURRENT_BYTES_MAX) as usize];
    file.read_exact_at(&mut text, 0).map_err(io)?;
    let id = std::str::from_utf8(&text).ok().and_then(|text| {
        let number = text.strip_prefix("MANIFEST-")?.split(' ').next()?;
        let id = FileId::new(number.parse().ok()?);
        (text == current_text(id)).then_some(id)
    });
    match id {
        Some(id) => Ok(Some(id)),
        None => Err(Error::corrupt("CURRENT", &path, 0, "not the name of a manifest with its checksum")),
    }
}

#[cfg(test)]
mod tests;
