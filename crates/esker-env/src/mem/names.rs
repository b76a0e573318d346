//! Names of files, and which of them a power loss would take.
//!
//! ```text
//!   create, rename, remove --> current --sync_dir--> synced
//!                      `-> pending, in order --crash--> some kept, over `synced`
//! ```
//!
//! names.1. `current` is `synced` with all of `pending` applied in order.
//! names.2. A crash keeps a pending operation only together with all earlier ones on the same names. So a rename is kept
//!     or lost as a whole, and a file never has two names.
//! names.3. `sync_dir` makes durable the pending operations on the directory, and what names.2 makes them need.
//! names.4. Directories are never removed. One that `create_dir_all` makes is durable in its parent; one that `make_dir` makes once
//!     its parent is synced. A crash that takes a directory takes all below it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Crash;
use super::inode::Inode;

pub(super) type InodeRef = Arc<Mutex<Inode>>;
pub(super) type Table = BTreeMap<PathBuf, InodeRef>;

#[derive(Default)]
pub(super) struct Names {
    dirs: BTreeSet<PathBuf>,
    /// Those that a crash may take (names.4).
    unsynced_dirs: BTreeSet<PathBuf>,
    current: Table,
    synced: Table,
    pending: Vec<Op>,
}

enum Op {
    Create(PathBuf, InodeRef),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Op {
    fn names(&self) -> impl Iterator<Item = &Path> {
        let (first, second) = match self {
            Op::Create(path, _) | Op::Remove(path) => (path, None),
            Op::Rename(from, to) => (from, Some(to)),
        };
        std::iter::once(first).chain(second).map(PathBuf::as_path)
    }

    fn apply(&self, table: &mut Table) -> Option<InodeRef> {
        match self {
            Op::Create(path, inode) => table.insert(path.clone(), inode.clone()),
            Op::Rename(from, to) => {
                let inode =
                    table.remove(from).expect("names.2: the name was there when the operation was accepted");
                table.insert(to.clone(), inode)
            }
            Op::Remove(path) => table.remove(path),
        }
    }
}

impl Names {
    /// Names that are all durable.
    pub(super) fn durable(dirs: BTreeSet<PathBuf>, files: Table) -> Names {
        Names { dirs, current: files.clone(), synced: files, ..Names::default() }
    }

    /// The same names, synced and pending apart, for files that are copied one by one.
    pub(super) fn copy(&self, mut file: impl FnMut(&InodeRef) -> InodeRef) -> Names {
        let mut table =
            |table: &Table| table.iter().map(|(path, inode)| (path.clone(), file(inode))).collect::<Table>();
        let (current, synced) = (table(&self.current), table(&self.synced));
        let pending = self.pending.iter().map(|op| match op {
            Op::Create(path, inode) => Op::Create(path.clone(), file(inode)),
            Op::Rename(from, to) => Op::Rename(from.clone(), to.clone()),
            Op::Remove(path) => Op::Remove(path.clone()),
        });
        let pending = pending.collect();
        let (dirs, unsynced_dirs) = (self.dirs.clone(), self.unsynced_dirs.clone());
        Names { dirs, unsynced_dirs, current, synced, pending }
    }

    /// The files that the running program finds.
    pub(super) fn files(&self) -> impl Iterator<Item = &InodeRef> {
        self.current.values()
    }

    pub(super) fn get(&self, path: &Path) -> Option<&InodeRef> {
        self.current.get(path)
    }

    pub(super) fn is_dir(&self, path: &Path) -> bool {
        path.parent().is_none() || self.dirs.contains(path)
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        for dir in path.ancestors().take_while(|dir| dir.parent().is_some()) {
            if self.current.contains_key(dir) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
        }
        self.dirs.extend(path.ancestors().filter(|dir| dir.parent().is_some()).map(Path::to_owned));
        Ok(())
    }

    /// A new directory whose name is not durable (names.4).
    pub(super) fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.create_dir_all(path)?;
        self.unsynced_dirs.insert(path.to_owned());
        Ok(())
    }

    /// Gives a new file a name that is free, in a directory that exists.
    pub(super) fn create(&mut self, path: &Path, inode: InodeRef) -> io::Result<()> {
        assert!(!self.current.contains_key(path), "the caller looked for the name");
        self.check_parent(path)?;
        self.run(Op::Create(path.to_owned(), inode));
        Ok(())
    }

    /// Returns the file that lost its name to the renamed one.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<Option<InodeRef>> {
        self.check_file(from)?;
        self.check_parent(to)?;
        if from == to {
            return Ok(None);
        }
        Ok(self.run(Op::Rename(from.to_owned(), to.to_owned())))
    }

    /// Returns the file that lost its name.
    pub(super) fn remove(&mut self, path: &Path) -> io::Result<Option<InodeRef>> {
        self.check_file(path)?;
        Ok(self.run(Op::Remove(path.to_owned())))
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        if !self.is_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = |path: &&PathBuf| path.parent() == Some(dir);
        let below = |path: &&PathBuf| path.starts_with(dir);
        let files =
            self.current.range(dir.to_owned()..).map(|(path, _)| path).take_while(below).filter(inside);
        let dirs = self.dirs.range(dir.to_owned()..).take_while(below).filter(inside);
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(files.chain(dirs).filter_map(name).collect())
    }

    /// Makes the directory's operations durable (names.3), and the names of directories in it (names.4).
    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        if !self.is_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.unsynced_dirs.retain(|made| made.parent() != Some(dir));
        let mut needed: BTreeSet<&Path> = BTreeSet::new();
        let mut durable = vec![false; self.pending.len()];
        for (op, durable) in self.pending.iter().zip(&mut durable).rev() {
            *durable = op.names().any(|name| name.parent() == Some(dir) || needed.contains(name));
            if *durable {
                needed.extend(op.names());
            }
        }
        let mut durable = durable.into_iter();
        let synced = &mut self.synced;
        self.pending.retain(|op| {
            let durable = durable.next().expect("one flag per operation");
            if durable {
                op.apply(synced);
            }
            !durable
        });
        Ok(())
    }

    /// The directories and the names of files that a power loss may leave (names.2, names.4).
    pub(super) fn crash(&self, crash: &mut Crash) -> (BTreeSet<PathBuf>, Table) {
        let (mut dirs, mut files) = (self.dirs.clone(), self.crash_files(crash));
        for dir in &self.unsynced_dirs {
            let kept = match crash {
                Crash::Strict => false,
                Crash::KeepAll => true,
                Crash::Random { rng, .. } => rng.bool(),
            };
            if !kept {
                dirs.retain(|path| !path.starts_with(dir));
                files.retain(|path, _| !path.starts_with(dir));
            }
        }
        (dirs, files)
    }

    fn crash_files(&self, crash: &mut Crash) -> Table {
        let rng = match crash {
            Crash::Strict => return self.synced.clone(),
            Crash::KeepAll => return self.current.clone(),
            Crash::Random { rng, .. } => rng,
        };
        // As with bytes, a mood first: all lost, all kept, a prefix, or a legal subset.
        let prefix = match rng.u8(0..4) {
            0 => Some(0),
            1 => Some(self.pending.len()),
            2 => Some(rng.usize(0..=self.pending.len())),
            _ => None,
        };
        let mut left = self.synced.clone();
        let mut lost: BTreeSet<&Path> = BTreeSet::new();
        for (i, op) in self.pending.iter().enumerate() {
            let wanted = prefix.map_or_else(|| rng.bool(), |kept| i < kept);
            if wanted && !op.names().any(|name| lost.contains(name)) {
                op.apply(&mut left);
            } else {
                lost.extend(op.names());
            }
        }
        left
    }

    fn run(&mut self, op: Op) -> Option<InodeRef> {
        let displaced = op.apply(&mut self.current);
        self.pending.push(op);
        displaced
    }

    fn check_file(&self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if self.current.contains_key(path) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// A new name needs a directory to stand in, and must not be one itself.
    fn check_parent(&self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let parent = path.parent().expect("a path that is no directory has a parent");
        if self.is_dir(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}
