//! The names of the files in a database directory.
//!
//! ```text
//!   LOCK  CURRENT  OPTIONS  MANIFEST-000001  000002.wal  000003.sst  000004.blob  REPAIRING
//! ```
//!
//! A file whose name this module does not know is never touched.

use std::path::{Path, PathBuf};

use crate::blob::blob_name;
pub(crate) use crate::blob::blob_path;
use crate::encryption::KEYS_TMP;
use crate::types::FileId;

/// The lock file.
pub const LOCK: &str = "LOCK";
/// Names the current manifest.
pub const CURRENT: &str = "CURRENT";
/// The next `CURRENT`, before it is renamed into place.
pub const CURRENT_TMP: &str = "CURRENT.tmp";
/// The options that shape the files, as text.
pub const OPTIONS: &str = "OPTIONS";
/// The next `OPTIONS`, before it is renamed into place.
pub const OPTIONS_TMP: &str = "OPTIONS.tmp";
/// Present while a repair fills the directory.
pub const REPAIRING: &str = "REPAIRING";

/// The largest number of a file. There is always one above it.
const FILE_ID_MAX: u64 = u64::MAX / 2;

/// Maximum distance of a file's number from the numbers that the manifest has given out.
const AHEAD_MAX: u64 = 1 << 40;

/// Returns whether a file's number is too high to have been given out by a database whose next number is
/// `next`. New files get numbers above all existing ones, so such a file would use numbers up.
pub fn is_too_far(id: FileId, next: FileId) -> bool {
    id.get() > next.get().saturating_add(AHEAD_MAX)
}

/// Returns whether so high a number leaves too few for new files. No database gets there through its own
/// files.
pub fn is_spent(next: FileId) -> bool {
    next.get() > FILE_ID_MAX / 2
}

/// The kind of a file in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// `MANIFEST-n`.
    Manifest(FileId),
    /// `n.sst`.
    Table(FileId),
    /// `n.blob`.
    Blob(FileId),
    /// Left by an interrupted replacement. Safe to remove.
    Temporary,
    /// A log file, a fixed name, or not the engine's.
    Other,
}

/// The kind of a file by its name. A number in another form than the engine's is not the engine's.
pub fn parse(name: &str) -> FileKind {
    if name == CURRENT_TMP || name == OPTIONS_TMP || name == KEYS_TMP {
        return FileKind::Temporary;
    }
    let digits = name.strip_prefix("MANIFEST-").or(name.strip_suffix(".sst")).or(name.strip_suffix(".blob"));
    let digits = digits.unwrap_or("");
    match digits.parse().map(FileId::new) {
        Ok(id) if id.get() > FILE_ID_MAX => FileKind::Other,
        Ok(id) if name == manifest_name(id) => FileKind::Manifest(id),
        Ok(id) if name == table_name(id) => FileKind::Table(id),
        Ok(id) if name == blob_name(id) => FileKind::Blob(id),
        _ => FileKind::Other,
    }
}

/// `MANIFEST-n`.
pub fn manifest_name(id: FileId) -> String {
    format!("MANIFEST-{:06}", id.get())
}

/// The path of a table.
pub fn table_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(table_name(id))
}

/// `n.sst`.
fn table_name(id: FileId) -> String {
    format!("{:06}.sst", id.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_last() {
        let too_far = |id, next| is_too_far(FileId::new(id), FileId::new(next));
        assert!(!too_far(7 + AHEAD_MAX, 7) && too_far(8 + AHEAD_MAX, 7));
        assert!(too_far(FILE_ID_MAX, 7) && !too_far(7, FILE_ID_MAX) && !too_far(FILE_ID_MAX, u64::MAX));
        assert!(is_spent(FileId::new(FILE_ID_MAX)) && !is_spent(FileId::new(AHEAD_MAX << 20)));
    }

    #[test]
    fn names_come_back_and_strangers_are_left_alone() {
        let id = FileId::new(7);
        assert_eq!(parse(&manifest_name(id)), FileKind::Manifest(id));
        let path = table_path(Path::new("d"), FileId::new(1_234_567));
        assert_eq!(path, Path::new("d/1234567.sst"));
        assert_eq!(parse("1234567.sst"), FileKind::Table(FileId::new(1_234_567)));
        assert_eq!(parse(CURRENT_TMP), FileKind::Temporary);
        for other in [
            "notes.txt",
            "x.sst",
            "+7.sst",
            "7.sst",
            "2024.sst",
            "0000007.sst",
            "MANIFEST-",
            "MANIFEST-7",
            "MANIFEST-18446744073709551615",
            "18446744073709551615.sst",
            "18446744073709551614.sst",
            "9223372036854775808.sst",
            "000001.wal",
            "LOCK",
            ".sst",
        ] {
            assert_eq!(parse(other), FileKind::Other, "{other}");
        }
    }
}
