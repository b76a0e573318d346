//! The names of the files in a database directory.
//!
//! ```text
//!   LOCK  CURRENT  OPTIONS  MANIFEST-000001  000002.wal  000003.sst  000004.blob  REPAIRING
//! ```
//!
//! file_name.1. A name that this module does not know is never touched.

use std::path::{Path, PathBuf};

use crate::types::FileId;

/// The lock file.
pub const LOCK: &str = "LOCK";
/// Names the manifest in force.
pub const CURRENT: &str = "CURRENT";
/// The next `CURRENT`, before it is renamed into place.
pub const CURRENT_TMP: &str = "CURRENT.tmp";
/// The options that shape the files, in text.
pub const OPTIONS: &str = "OPTIONS";
/// The next `OPTIONS`, before it is renamed into place.
pub const OPTIONS_TMP: &str = "OPTIONS.tmp";
/// Says that a repair has not finished filling the directory.
pub const REPAIRING: &str = "REPAIRING";

/// No file is ever given a larger number: there is always one behind it.
const FILE_ID_MAX: u64 = u64::MAX / 2;

/// No file is so far ahead of the manifest, which each edit tells what numbers were given out.
const AHEAD_MAX: u64 = 1 << 40;

/// Whether a database whose next file was to get number `next` has not made the file of this number. New files get larger numbers than
/// all that are there, and those are to last.
pub fn is_too_far(id: FileId, next: FileId) -> bool {
    id.get() > next.get().saturating_add(AHEAD_MAX)
}

/// Whether so large a number leaves too few for new files. No database comes here by itself, nor by files that are not too far ahead.
pub fn is_spent(next: FileId) -> bool {
    next.get() > FILE_ID_MAX / 2
}

/// What a file in the directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// `MANIFEST-n`.
    Manifest(FileId),
    /// `n.sst`.
    Table(FileId),
    /// `n.blob`.
    Blob(FileId),
    /// Left behind by an interrupted replacement; safe to remove.
    Temporary,
    /// The log's, a fixed name, or not ours.
    Other,
}

/// The kind of a name. A number that is written in another way than ours is not ours (file_name.1).
pub fn parse(name: &str) -> FileKind {
    if name == CURRENT_TMP || name == OPTIONS_TMP {
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

/// The path of a blob file.
pub fn blob_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(blob_name(id))
}

/// `n.blob`.
fn blob_name(id: FileId) -> String {
    format!("{:06}.blob", id.get())
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
