//! The names of files and directories, and which of them a power loss may lose.
//!
//! ```text
//!   create, link, rename, remove --> current --sync_dir--> synced
//!                            `-> pending, in order --crash--> some kept, over `synced`
//! ```
//!
//! `current` equals `synced` with all of `pending` applied in order. `sync_dir` makes the pending operations
//! on the directory durable, and those that they need. Directories of `create_dir_all` are durable
//! in their parent; one of `make_dir` is durable after a sync of its parent. A crash that loses a directory
//! loses everything below it.
//!
//! - A crash keeps a pending operation only together with the earlier ones it needs: those on the same names,
//!   and on directories in their paths. So renames are atomic, and a file has two names only if it was
//!   linked.
//! - Renaming a directory does not make the names in it durable: a crash may keep the new name and lose
//!   unsynced files of the directory.

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
    /// Directories that a crash may lose.
    unsynced_dirs: BTreeSet<PathBuf>,
    current: Tree,
    synced: Tree,
    pending: Vec<Op>,
}

/// All names.
#[derive(Clone, Default)]
struct Tree {
    files: Table,
    dirs: BTreeSet<PathBuf>,
}

#[derive(Clone)]
enum Op {
    /// Gives a file its first or another name.
    Create(PathBuf, InodeRef),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    RenameDir(PathBuf, PathBuf),
    RemoveDir(PathBuf),
}

/// Returns the path after a directory was renamed.
fn moved(path: &Path, from: &Path, to: &Path) -> PathBuf {
    match path.strip_prefix(from) {
        Ok(rest) if rest.as_os_str().is_empty() => to.to_owned(),
        Ok(rest) => to.join(rest),
        Err(_) => path.to_owned(),
    }
}

impl Op {
    fn names(&self) -> impl Iterator<Item = &Path> {
        let (first, second) = match self {
            Op::Create(path, _) | Op::Remove(path) | Op::RemoveDir(path) => (path, None),
            Op::Rename(from, to) | Op::RenameDir(from, to) => (from, Some(to)),
        };
        std::iter::once(first).chain(second).map(PathBuf::as_path)
    }

    fn is_of_dirs(&self) -> bool {
        matches!(self, Op::RenameDir(..) | Op::RemoveDir(_))
    }

    /// Returns whether it depends on an earlier operation.
    fn needs(&self, earlier: &Op) -> bool {
        let within =
            |inner: &Op, outer: &Op| inner.names().any(|name| outer.names().any(|dir| name.starts_with(dir)));
        match (self, earlier) {
            (Op::RenameDir(..), Op::Create(..) | Op::Rename(..) | Op::Remove(_)) => false,
            (Op::RemoveDir(_), _) => within(self, earlier) || within(earlier, self),
            (_, earlier) if earlier.is_of_dirs() => within(self, earlier) || within(earlier, self),
            _ => self.names().any(|name| earlier.names().any(|other| other == name)),
        }
    }

    /// Returns the operation in terms of the directory's new name.
    fn moved(&self, from: &Path, to: &Path) -> Op {
        let moved = |path: &Path| moved(path, from, to);
        match self {
            Op::Create(path, inode) => Op::Create(moved(path), inode.clone()),
            Op::Remove(path) => Op::Remove(moved(path)),
            Op::RemoveDir(path) => Op::RemoveDir(moved(path)),
            Op::Rename(from, to) => Op::Rename(moved(from), moved(to)),
            Op::RenameDir(from, to) => Op::RenameDir(moved(from), moved(to)),
        }
    }

    fn apply(&self, tree: &mut Tree) -> Option<InodeRef> {
        match self {
            Op::Create(path, inode) => tree.files.insert(path.clone(), inode.clone()),
            Op::Rename(from, to) => {
                let inode =
                    tree.files.remove(from).expect("the name was there when the operation was accepted");
                tree.files.insert(to.clone(), inode)
            }
            Op::Remove(path) => tree.files.remove(path),
            Op::RenameDir(from, to) => {
                let files = std::mem::take(&mut tree.files);
                tree.files = files.into_iter().map(|(path, inode)| (moved(&path, from, to), inode)).collect();
                tree.dirs = tree.dirs.iter().map(|path| moved(path, from, to)).collect();
                None
            }
            Op::RemoveDir(path) => {
                tree.dirs.remove(path);
                None
            }
        }
    }
}

/// Splits an ordered list of operations into kept and lost ones. An operation is kept if `wanted` accepts it
/// and everything it needs is kept. Lost operations are rewritten to apply after the kept ones.
fn split(ops: Vec<Op>, mut wanted: impl FnMut(usize, &Op) -> bool) -> (Vec<Op>, Vec<Op>) {
    let (mut kept, mut others): (Vec<Op>, Vec<Op>) = Default::default();
    for (i, op) in ops.into_iter().enumerate() {
        // Always called, because it may draw a random number.
        if !wanted(i, &op) || others.iter().any(|other| op.needs(other)) {
            others.push(op);
            continue;
        }
        if let Op::RenameDir(from, to) = &op {
            others.iter_mut().for_each(|other| *other = other.moved(from, to));
        }
        kept.push(op);
    }
    (kept, others)
}

impl Names {
    /// Creates durable names.
    pub(super) fn durable(dirs: BTreeSet<PathBuf>, files: Table) -> Names {
        let tree = Tree { files, dirs };
        Names { current: tree.clone(), synced: tree, ..Names::default() }
    }

    /// Copies the names, synced and pending, copying each file by `file`.
    pub(super) fn copy(&self, mut file: impl FnMut(&InodeRef) -> InodeRef) -> Names {
        let mut tree = |tree: &Tree| {
            let files = tree.files.iter().map(|(path, inode)| (path.clone(), file(inode))).collect();
            Tree { files, dirs: tree.dirs.clone() }
        };
        let (current, synced) = (tree(&self.current), tree(&self.synced));
        let pending = self.pending.iter().map(|op| match op {
            Op::Create(path, inode) => Op::Create(path.clone(), file(inode)),
            other => other.clone(),
        });
        let pending = pending.collect();
        Names { unsynced_dirs: self.unsynced_dirs.clone(), current, synced, pending }
    }

    /// Returns the files in the running program's view, each once.
    pub(super) fn files(&self) -> impl Iterator<Item = &InodeRef> {
        let mut seen = BTreeSet::new();
        self.current.files.values().filter(move |inode| seen.insert(Arc::as_ptr(inode).addr()))
    }

    pub(super) fn get(&self, path: &Path) -> Option<&InodeRef> {
        self.current.files.get(path)
    }

    pub(super) fn is_dir(&self, path: &Path) -> bool {
        path.parent().is_none() || self.current.dirs.contains(path)
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        for dir in path.ancestors().take_while(|dir| dir.parent().is_some()) {
            if self.current.files.contains_key(dir) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
        }
        let missing: Vec<&Path> = path.ancestors().take_while(|dir| !self.is_dir(dir)).collect();
        for dir in missing {
            // Pending operations of an earlier directory of this name become durable with the new one.
            self.make_durable(|op| op.is_of_dirs() && op.names().any(|name| name == dir));
        }
        for dirs in [&mut self.current.dirs, &mut self.synced.dirs] {
            dirs.extend(path.ancestors().filter(|dir| dir.parent().is_some()).map(Path::to_owned));
        }
        Ok(())
    }

    /// Creates a directory whose name is not durable.
    pub(super) fn make_dir(&mut self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.create_dir_all(path)?;
        self.unsynced_dirs.insert(path.to_owned());
        Ok(())
    }

    /// Gives a new file a free name in an existing directory.
    pub(super) fn create(&mut self, path: &Path, inode: InodeRef) -> io::Result<()> {
        assert!(!self.current.files.contains_key(path), "the caller looked for the name");
        self.check_parent(path)?;
        self.run(Op::Create(path.to_owned(), inode));
        Ok(())
    }

    /// Gives a file another, free name.
    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<InodeRef> {
        self.check_file(from)?;
        self.check_free(to)?;
        let inode = self.current.files[from].clone();
        self.run(Op::Create(to.to_owned(), inode.clone()));
        Ok(inode)
    }

    /// Gives a directory another, free name.
    pub(super) fn rename_dir(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_dir(from)?;
        self.check_free(to)?;
        if to.starts_with(from) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.run(Op::RenameDir(from.to_owned(), to.to_owned()));
        Ok(())
    }

    /// Removes an empty directory.
    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        self.check_dir(path)?;
        if !self.list(path)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.run(Op::RemoveDir(path.to_owned()));
        Ok(())
    }

    /// Renames a file. Returns the file that the new name replaced.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<Option<InodeRef>> {
        self.check_file(from)?;
        self.check_parent(to)?;
        if from == to {
            return Ok(None);
        }
        Ok(self.run(Op::Rename(from.to_owned(), to.to_owned())))
    }

    /// Removes a name. Returns its file.
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
            self.current.files.range(dir.to_owned()..).map(|(path, _)| path).take_while(below).filter(inside);
        let dirs = self.current.dirs.range(dir.to_owned()..).take_while(below).filter(inside);
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(files.chain(dirs).filter_map(name).collect())
    }

    /// Makes the directory's operations and the names of its subdirectories durable.
    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        if !self.is_dir(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.unsynced_dirs.retain(|made| made.parent() != Some(dir));
        let dir = dir.to_owned();
        self.make_durable(|op| op.names().any(|name| name.parent() == Some(&dir)));
        Ok(())
    }

    /// Makes pending operations durable, and those that they need.
    fn make_durable(&mut self, is_meant: impl Fn(&Op) -> bool) {
        let ops = std::mem::take(&mut self.pending);
        let mut durable: Vec<bool> = ops.iter().map(is_meant).collect();
        // Rewritten in terms of the names before each later rename of a directory.
        let mut needing: Vec<Op> = Vec::new();
        for (i, op) in ops.iter().enumerate().rev() {
            durable[i] |= needing.iter().any(|later| later.needs(op));
            if durable[i] {
                needing.push(op.clone());
            }
            if let Op::RenameDir(from, to) = op {
                let before: Vec<_> = needing.iter().map(|later| later.moved(to, from)).collect();
                needing.extend(before);
            }
        }
        let (kept, others) = split(ops, |i, _| durable[i]);
        kept.iter().for_each(|op| drop(op.apply(&mut self.synced)));
        self.pending = others;
    }

    /// Returns the directories and names that a power loss may leave.
    pub(super) fn crash(&self, crash: &mut Crash) -> (BTreeSet<PathBuf>, Table) {
        let Tree { mut dirs, mut files } = self.crash_tree(crash);
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

    fn crash_tree(&self, crash: &mut Crash) -> Tree {
        let rng = match crash {
            Crash::Strict => return self.synced.clone(),
            Crash::KeepAll => return self.current.clone(),
            Crash::Random { rng, .. } => rng,
        };
        // First draws a pattern: all lost, all kept, a prefix, or a valid subset.
        let prefix = match rng.u8(0..4) {
            0 => Some(0),
            1 => Some(self.pending.len()),
            2 => Some(rng.usize(0..=self.pending.len())),
            _ => None,
        };
        let mut left = self.synced.clone();
        let is_wanted = |i, _: &Op| prefix.map_or_else(|| rng.bool(), |kept| i < kept);
        let (kept, _) = split(self.pending.clone(), is_wanted);
        kept.iter().for_each(|op| drop(op.apply(&mut left)));
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
        if self.current.files.contains_key(path) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    /// Checks that a directory can be renamed or removed.
    fn check_dir(&self, path: &Path) -> io::Result<()> {
        match () {
            () if path.parent().is_none() => Err(io::ErrorKind::PermissionDenied.into()),
            () if self.current.files.contains_key(path) => Err(io::ErrorKind::NotADirectory.into()),
            () if self.is_dir(path) => Ok(()),
            () => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Checks that a new name is free.
    pub(super) fn check_free(&self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) || self.current.files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.check_parent(path)
    }

    /// Checks that the parent of a new name exists, and that the name is not a directory.
    fn check_parent(&self, path: &Path) -> io::Result<()> {
        if self.is_dir(path) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let parent = path.parent().expect("a path that is no directory has a parent");
        if self.is_dir(parent) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}
