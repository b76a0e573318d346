//! Makes the file of the next segment ready before the active one ends, so that no commit waits for it.

use super::WalWriter;
use crate::wal::active::Active;
use crate::wal::purpose::FilePurpose;

impl WalWriter {
    /// Returns work that makes the next file ready if none is. It does not need the writer, to which records
    /// can be added meanwhile. If it fails, the record that needs the file tries again and reports the error.
    pub(crate) fn next_file(&self) -> impl FnOnce() + use<> {
        let (pool, purpose) = (self.pool.clone(), self.next_purpose());
        move || {
            pool.want_spare(purpose);
            let _ = pool.prepare_step();
        }
    }

    /// Returns what the file after the active segment is for.
    pub(super) fn next_purpose(&self) -> FilePurpose {
        self.active.as_ref().map_or(FilePurpose::Ordinary, Active::next_purpose)
    }
}
