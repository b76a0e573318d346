//! The files of a database directory as names and bytes, which harms modify. Each step of the judge gets a
//! disk of its own with these files.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_env::{Env, FaultAction, FaultFs, FaultRule, Fs, MemFs, OpKind, OpenOptions, read_range};

use esker_world::world::DIR;

/// The files of a directory, by name.
pub type Files = BTreeMap<String, Vec<u8>>;

const MEMORY: &str = "a file system in memory does not fail";

/// The purpose of a file according to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Table,
    /// A file of values.
    Blob,
    Segment,
    /// A preallocated file that will become a segment.
    Prepared,
    Manifest,
    Current,
    /// Without data: the lock, the options, temporary files.
    Other,
}

impl Role {
    /// Returns the role of a file name.
    pub(super) fn of(name: &str) -> Role {
        match name {
            "CURRENT" => Role::Current,
            _ if name.ends_with(".sst") => Role::Table,
            _ if name.ends_with(".blob") => Role::Blob,
            _ if name.ends_with(".wal") => Role::Segment,
            _ if name.ends_with(".wal-next") => Role::Prepared,
            _ if name.starts_with("MANIFEST-") => Role::Manifest,
            _ => Role::Other,
        }
    }
}

/// Returns the last segment of the log. Numbers have leading zeros.
pub(super) fn last_segment(files: &Files) -> Option<&str> {
    files.keys().map(String::as_str).filter(|name| Role::of(name) == Role::Segment).max()
}

/// Returns the path of a file of the database.
pub(super) fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

/// Reads the files of the database on this disk.
pub(super) fn read(disk: &MemFs) -> Files {
    let bytes = |name: &str| {
        let file = disk.open(&path(name), OpenOptions::read()).expect(MEMORY);
        let len = file.len().expect(MEMORY);
        read_range(&*file, 0, len as usize).expect(MEMORY)
    };
    let names = disk.list_dir(DIR.as_ref()).expect(MEMORY);
    names.into_iter().map(|name| (name.clone(), bytes(&name))).collect()
}

/// Creates a disk with these files, all of them durable.
pub(super) fn disk(files: &Files) -> MemFs {
    let disk = MemFs::new();
    disk.create_dir_all(DIR.as_ref()).expect(MEMORY);
    for (name, bytes) in files {
        let file = disk.open(&path(name), OpenOptions::create()).expect(MEMORY);
        file.write_all_at(bytes, 0).expect(MEMORY);
    }
    disk.crash_keep_all()
}

/// Returns the environment of a disk on which these bytes cannot be read.
pub(super) fn env_with_holes(disk: &MemFs, seed: u64, holes: &[(String, Range<u64>)]) -> Env {
    let faulty = FaultFs::new(Arc::new(disk.clone()));
    for (name, bytes) in holes {
        let rule = FaultRule::new(&[OpKind::Read], FaultAction::Fail(ErrorKind::Other));
        faulty.add(rule.on_file(&path(name)).on_bytes(bytes.clone()).forever());
    }
    Env::simulated(Arc::new(faulty), !seed)
}

/// Returns the environment of a disk, with random numbers other than those that created the database.
pub(super) fn env(disk: &MemFs, seed: u64) -> Env {
    Env::simulated(Arc::new(disk.clone()), !seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_in_the_file_of_just_this_name() {
        let names = ["CURRENT", "CURRENT-1", "000010.wal", "000010.wal-next"];
        let files: Files = names.iter().map(|name| ((*name).to_owned(), name.repeat(50).into())).collect();
        let holes = ["CURRENT", "000010.wal"].map(|name| (name.to_owned(), 0..100));
        let env = env_with_holes(&disk(&files), 0, &holes);
        let is_read = |name: &&&str| {
            let file = env.fs.open(&path(name), OpenOptions::read()).unwrap();
            read_range(&*file, 0, 10).is_ok()
        };
        assert_eq!(names.iter().filter(is_read).collect::<Vec<_>>(), [&"CURRENT-1", &"000010.wal-next"]);
    }

    #[test]
    fn files_come_back() {
        let names = ["CURRENT", "000007.sst", "000010.wal", "000009.wal", "000011.wal-next", "LOCK"];
        let files: Files = names.iter().map(|name| ((*name).to_owned(), name.repeat(50).into())).collect();
        let disk = disk(&files);
        assert_eq!((read(&disk), read(&disk.kill()), disk.ops()), (files.clone(), files.clone(), 0));
        assert_eq!(last_segment(&files), Some("000010.wal"));
        let roles = files.keys().map(|name| Role::of(name)).collect::<Vec<_>>();
        use Role::{Current, Other, Prepared, Segment, Table};
        assert_eq!(roles, [Table, Segment, Segment, Prepared, Current, Other]);
    }
}
