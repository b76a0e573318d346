//! A disk: its durable state, its possible states after a power loss, and its state in the running system.
//!
//! ```text
//!   Step --apply--> pending changes of files and names --sync--> durable
//!                       |--current: the view of this process, and of the next one after a kill
//!                       `--power_loss(rng): a possible view of the next process after a power loss
//! ```
//!
//! A sync makes durable what was written before the sync started. `content.rs` says which bytes and lengths
//! of files survive. Changes of names survive as a prefix, or as a subset that keeps the order on each name;
//! renames are atomic.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use super::trace::{FileNo, Step};
use crate::content::Content;

/// Files by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// One directory on a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    files: BTreeMap<FileNo, Content>,
    names: BTreeMap<String, FileNo>,
    durable_names: BTreeMap<String, FileNo>,
    pending: Vec<(usize, NameChange)>,
    /// Number of applied steps: the position of the next one.
    at: usize,
}

#[derive(Clone, Debug)]
enum NameChange {
    Create(String, FileNo),
    Rename(String, String),
    Remove(String),
}

impl NameChange {
    fn names(&self) -> impl Iterator<Item = &String> {
        let (first, second) = match self {
            NameChange::Create(name, _) | NameChange::Remove(name) => (name, None),
            NameChange::Rename(from, to) => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    fn apply(&self, names: &mut BTreeMap<String, FileNo>) {
        match self {
            NameChange::Create(name, file) => drop(names.insert(name.clone(), *file)),
            NameChange::Rename(from, to) => {
                let file = names.remove(from).expect("the order on a name is kept");
                names.insert(to.clone(), file);
            }
            NameChange::Remove(name) => drop(names.remove(name)),
        }
    }
}

impl Disk {
    /// Creates a disk with durable files. Its first step has position `at`.
    pub(crate) fn durable(files: Files, at: usize) -> Self {
        let mut disk = Disk { at, ..Disk::default() };
        for (file, (name, durable)) in files.into_iter().enumerate() {
            disk.files.insert(file, Content::durable(durable));
            disk.names.insert(name, file);
        }
        disk.durable_names = disk.names.clone();
        disk
    }

    /// Returns the position of the next step.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Returns the names visible to a process.
    pub(crate) fn names(&self) -> &BTreeMap<String, FileNo> {
        &self.names
    }

    /// Returns an unused file number.
    pub(crate) fn next_file(&self) -> FileNo {
        self.files.last_key_value().map_or(0, |(file, _)| file + 1)
    }

    /// Applies the next step.
    pub(crate) fn apply(&mut self, step: &Step) {
        let at = self.at;
        self.at += 1;
        match step {
            Step::Create { file, name } => {
                self.files.insert(*file, Content::default());
                self.change_names(at, NameChange::Create(name.clone(), *file));
            }
            Step::Rename { from, to } => self.change_names(at, NameChange::Rename(from.clone(), to.clone())),
            Step::Remove { name } => self.change_names(at, NameChange::Remove(name.clone())),
            Step::SyncDir { began } => {
                let count = self.pending.partition_point(|(position, _)| position < began);
                for (_, change) in self.pending.drain(..count) {
                    change.apply(&mut self.durable_names);
                }
            }
            Step::Write { file, offset, bytes } => {
                self.content(*file).write(at, *offset as usize, bytes.clone());
            }
            Step::SetLen { file, len } => self.content(*file).set_len(at, *len as usize),
            Step::SyncFile { file, began } => self.content(*file).sync(*began),
            Step::WriterEvent(_) => {}
        }
    }

    fn content(&mut self, file: FileNo) -> &mut Content {
        self.files.get_mut(&file).expect("a file is created before it is used")
    }

    fn change_names(&mut self, at: usize, change: NameChange) {
        change.apply(&mut self.names);
        self.pending.push((at, change));
    }

    /// Returns the files visible to a process.
    pub(crate) fn current(&self) -> Files {
        self.names.iter().map(|(name, file)| (name.clone(), self.files[file].current())).collect()
    }

    /// Returns a possible state after a power loss.
    pub(crate) fn power_loss(&self, rng: &mut Rng) -> Files {
        let names = self.names_after_power_loss(rng);
        names.into_iter().map(|(name, file)| (name, self.files[&file].power_loss(rng))).collect()
    }

    fn names_after_power_loss(&self, rng: &mut Rng) -> BTreeMap<String, FileNo> {
        // None, all, a prefix as in a journal, or a subset.
        let prefix = match rng.u8(0..4) {
            0 => Some(0),
            1 => Some(self.pending.len()),
            2 => Some(rng.usize(0..=self.pending.len())),
            _ => None,
        };
        let mut names = self.durable_names.clone();
        let mut lost = BTreeSet::new();
        for (i, (_, change)) in self.pending.iter().enumerate() {
            let wanted = prefix.map_or_else(|| rng.bool(), |kept| i < kept);
            if wanted && !change.names().any(|name| lost.contains(name)) {
                change.apply(&mut names);
            } else {
                lost.extend(change.names());
            }
        }
        names
    }

    /// Forgets files that no surviving name can refer to.
    pub(crate) fn prune(&mut self) {
        let mut needed: BTreeSet<FileNo> =
            self.names.values().chain(self.durable_names.values()).copied().collect();
        needed.extend(self.pending.iter().filter_map(|(_, change)| match change {
            NameChange::Create(_, file) => Some(*file),
            _ => None,
        }));
        self.files.retain(|file, _| needed.contains(file));
    }
}

#[cfg(test)]
mod tests;
