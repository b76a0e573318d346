//! Checkpoints: a copy of the open database in a separate directory, mostly by links.
//!
//! ```text
//!   capture --finished files linked, others copied--> workplace --CURRENT, MANIFEST--> renamed
//! ```
//!
//! - The copy is an independent database with a number of its own. Neither changes what they share: files
//!   with two names are never written to again.
//! - The copy exists entirely and durably, or not at all (workplace.1).

use std::path::Path;

use super::transfer;
use super::workplace::Workplace;
use crate::encryption;
use crate::engine::base::event::Event;
use crate::engine::core::Core;
use crate::engine::life::open::draw_database_id;
use crate::manifest::edit::VersionEdit;
use crate::manifest::file_name::{blob_path, table_path};
use crate::manifest::log::ManifestLog;
use crate::types::{FileId, Result, SeqNo};

use super::capture::DataKind;

/// Result of a [checkpoint](crate::Db::checkpoint).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The last commit of the copy. It holds all commits up to this one and none after it.
    pub seqno: SeqNo,
    /// Files shared with the database.
    pub linked_files: u64,
    /// Their bytes.
    pub linked_bytes: u64,
    /// Files that were copied.
    pub copied_files: u64,
    /// Their bytes.
    pub copied_bytes: u64,
}

impl Core {
    /// Makes a copy of the database in `dir`.
    pub(crate) fn checkpoint(&self, dir: &Path) -> Result<Checkpoint> {
        let path = || dir.to_path_buf();
        let ended = |time, made: &Result<Checkpoint>| {
            let (made, error) = (made.clone().unwrap_or_default(), made.as_ref().err().cloned());
            let Checkpoint { seqno, linked_bytes, copied_bytes, .. } = made;
            Event::CheckpointEnded { path: path(), seqno, linked_bytes, copied_bytes, time, error }
        };
        self.between(|| Event::CheckpointBegun { path: path() }, || self.copy_to(dir), ended)
    }

    fn copy_to(&self, dir: &Path) -> Result<Checkpoint> {
        self.check_writable()?;
        let workplace = Workplace::take(&self.env, dir, self.options.modes())?;
        let capture = self.capture()?;
        let mut made = Checkpoint { seqno: capture.seq, ..Checkpoint::default() };
        for file in &capture.files {
            let to = data_path(workplace.dir(), file.kind, file.id);
            if transfer::link(&self.env, file, &to)? {
                (made.linked_files, made.linked_bytes) =
                    (made.linked_files + 1, made.linked_bytes + file.len);
            } else {
                let (from, to) = ((&self.env, &*file.path), (workplace.held(), &*to));
                transfer::copy(from, to, file.len, |_| Ok(()))?;
                (made.copied_files, made.copied_bytes) =
                    (made.copied_files + 1, made.copied_bytes + file.len);
            }
        }
        self.options.save(workplace.held(), workplace.dir())?;
        write_manifest(&workplace, capture.state)?;
        // Another process that has opened the directory meanwhile may have removed linked files.
        self.check_writable()?;
        workplace.finish()?;
        Ok(made)
    }
}

/// The path of a file in a database's directory.
pub(crate) fn data_path(dir: &Path, kind: DataKind, id: FileId) -> std::path::PathBuf {
    match kind {
        DataKind::Table => table_path(dir, id),
        DataKind::Blobs => blob_path(dir, id),
    }
}

/// Writes the keys and the manifest of a database with this state and a number of its own.
pub(crate) fn write_manifest(workplace: &Workplace, mut state: VersionEdit) -> Result<()> {
    encryption::share(workplace.held(), workplace.held(), workplace.dir())?;
    let id = state.next_file.unwrap_or(FileId::new(1));
    state.next_file = Some(id.next());
    state.database_id = Some(draw_database_id(workplace.held()));
    ManifestLog::create(workplace.held(), workplace.dir(), id, state).map(drop)
}
