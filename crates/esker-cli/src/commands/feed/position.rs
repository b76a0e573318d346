//! The file of a position: the commit up to which a sink has confirmed all changes.
//!
//! ```text
//!   {"esker_feed":1,"position":"HISTORY:COMMIT"}      FILE.new --synced--> renamed to FILE
//! ```
//!
//! feed_position.1. After a kill or a power loss the file holds a position that was stored completely.
//! feed_position.2. One process at a time uses the file: it holds a lock on `FILE.lock`.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::change::Position;
use super::source::{Tried, Trouble};
use crate::failure::{Failure, Result};
use crate::target::sync_directory_of;
use crate::text::shown;

/// Version of the file's form.
const FORM: u64 = 1;

/// An open position file.
pub(super) struct PositionFile {
    path: PathBuf,
    _lock: File,
    stored: Option<Position>,
}

/// Appends to the name of a file.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

impl PositionFile {
    /// Locks and reads the file, which need not exist.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let lock_path = beside(path, ".lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(|error| Failure::file("create", &lock_path, &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::message(format!(
                    "another process uses the position in {}: each `esker feed --to` needs a file of its own",
                    shown(path.display())
                )));
            }
            Err(TryLockError::Error(error)) => return Err(Failure::file("lock", &lock_path, &error)),
        }
        let stored = match fs::read(path) {
            Ok(bytes) => Some(parse(&bytes).ok_or_else(|| {
                Failure::message(format!(
                    "{} is not a position of `esker feed`: nothing was sent\n  give another file, or remove it to begin \
                     without a position",
                    shown(path.display())
                ))
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::file("read", path, &error)),
        };
        Ok(PositionFile { path: path.to_owned(), _lock: lock, stored })
    }

    /// Returns the stored position.
    pub(super) fn stored(&self) -> Option<&Position> {
        self.stored.as_ref()
    }

    /// Makes a position durable. A full disk is worth another attempt, as for what a sink writes.
    pub(super) fn store(&mut self, position: &Position) -> Tried<()> {
        let new = beside(&self.path, ".new");
        let line = serde_json::json!({ "esker_feed": FORM, "position": position.to_string() });
        let written = File::create(&new).and_then(|mut file| {
            writeln!(file, "{line}")?;
            file.sync_all()
        });
        let failed = |what, path: &Path, error: io::Error| {
            let failure = Failure::file(what, path, &error);
            match error.kind() {
                io::ErrorKind::StorageFull => Trouble::Retry(failure.to_string()),
                _ => Trouble::Stop(failure),
            }
        };
        written.map_err(|error| failed("write", &new, error))?;
        fs::rename(&new, &self.path).map_err(|error| failed("rename to", &self.path, error))?;
        sync_directory_of(&self.path).map_err(Trouble::Stop)?;
        self.stored = Some(position.clone());
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<Position> {
    let line: Value = serde_json::from_slice(bytes).ok()?;
    let is_known = line.get("esker_feed")?.as_u64()? == FORM;
    line.get("position")?.as_str()?.parse().ok().filter(|_| is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let mut file = PositionFile::open(&path).unwrap();
        let at: Position = "1-9f:7".parse().unwrap();
        std::os::unix::fs::symlink("/dev/full", beside(&path, ".new")).unwrap();
        assert!(matches!(file.store(&at), Err(Trouble::Retry(_))));
        assert_eq!(file.stored(), None);
        fs::remove_file(beside(&path, ".new")).unwrap();
        assert!(file.store(&at).is_ok() && file.stored() == Some(&at));
    }

    #[test]
    fn feed_position_1_a_stored_position_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let mut file = PositionFile::open(&path).unwrap();
        assert_eq!(file.stored(), None);
        let at: Position = "1-9f:7".parse().unwrap();
        assert!(file.store(&at).is_ok());
        assert!(PositionFile::open(&path).is_err(), "feed_position.2");
        drop(file);
        // A kill can leave an incomplete new file.
        fs::write(beside(&path, ".new"), "{\"esker").unwrap();
        assert_eq!(PositionFile::open(&path).unwrap().stored(), Some(&at));
        for wrong in ["", "{}", r#"{"esker_feed":2,"position":"a:1"}"#, r#"{"esker_feed":1,"position":"1"}"#]
        {
            fs::write(&path, wrong).unwrap();
            assert!(PositionFile::open(&path).is_err(), "{wrong}");
            assert_eq!(fs::read(&path).unwrap(), wrong.as_bytes());
        }
    }
}
