//! A disk: what it surely holds, what it may hold, and what the running system shows.
//!
//! ```text
//!   Step --apply--> pending changes of files and names --sync--> durable
//!                       |--current: what a process sees, and what the next one sees after a kill
//!                       `--power_loss(rng): what the next one may see after the power comes back
//! ```
//!
//! D1. A sync makes durable what was written before the sync began; nothing else does.
//! D2. After a power loss each sector (of 512 or 4096 bytes) that has unsynced writes is as after the first n of them, for
//!     some n of its own: the page cache holds all writes so far and may be written back at any time.
//! D3. Lengths survive as a prefix of their changes. Bytes that a surviving length covers and no write reached are zero.
//! D4. Changes of names survive as a prefix, or as a subset that keeps the order on each name; a rename as a whole.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fastrand::Rng;

use super::trace::{FileNo, Step};

/// The units that disks write whole.
const SECTORS: [usize; 2] = [512, 4096];

/// Files with their bytes, by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// One directory on a disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    files: BTreeMap<FileNo, Content>,
    names: BTreeMap<String, FileNo>,
    durable_names: BTreeMap<String, FileNo>,
    pending: Vec<(usize, NameChange)>,
    /// Steps applied so far: the position of the next one.
    at: usize,
}

#[derive(Clone, Debug, Default)]
struct Content {
    durable: Vec<u8>,
    pending: Vec<(usize, ByteChange)>,
}

#[derive(Clone, Debug)]
enum ByteChange {
    Write(usize, Vec<u8>),
    SetLen(usize),
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
                let file = names.remove(from).expect("D4: the order on a name is kept");
                names.insert(to.clone(), file);
            }
            NameChange::Remove(name) => drop(names.remove(name)),
        }
    }
}

impl Disk {
    /// A disk that surely holds these files; its first step is at position `at`.
    pub(crate) fn durable(files: Files, at: usize) -> Self {
        let mut disk = Disk { at, ..Disk::default() };
        for (file, (name, durable)) in files.into_iter().enumerate() {
            disk.files.insert(file, Content { durable, pending: Vec::new() });
            disk.names.insert(name, file);
        }
        disk.durable_names = disk.names.clone();
        disk
    }

    /// The position of the next step.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The names that a process sees.
    pub(crate) fn names(&self) -> &BTreeMap<String, FileNo> {
        &self.names
    }

    /// A number that no file has.
    pub(crate) fn next_file(&self) -> FileNo {
        self.files.last_key_value().map_or(0, |(file, _)| file + 1)
    }

    /// Takes the next step.
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
                let change = ByteChange::Write(*offset as usize, bytes.clone());
                self.content(*file).pending.push((at, change));
            }
            Step::SetLen { file, len } => {
                self.content(*file).pending.push((at, ByteChange::SetLen(*len as usize)));
            }
            Step::SyncFile { file, began } => self.content(*file).sync(*began),
            Step::Said(_) => {}
        }
    }

    fn content(&mut self, file: FileNo) -> &mut Content {
        self.files.get_mut(&file).expect("a file is created before it is used")
    }

    fn change_names(&mut self, at: usize, change: NameChange) {
        change.apply(&mut self.names);
        self.pending.push((at, change));
    }

    /// What a process sees.
    pub(crate) fn current(&self) -> Files {
        self.names.iter().map(|(name, file)| (name.clone(), self.files[file].current())).collect()
    }

    /// What may be left when the power goes now (D2 to D4).
    pub(crate) fn power_loss(&self, rng: &mut Rng) -> Files {
        let names = self.names_after_power_loss(rng);
        names.into_iter().map(|(name, file)| (name, self.files[&file].power_loss(rng))).collect()
    }

    fn names_after_power_loss(&self, rng: &mut Rng) -> BTreeMap<String, FileNo> {
        // None, all, a prefix as a journal keeps it, or a subset.
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

    /// Forgets files that no name can bring back.
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

/// Which of a file's pending changes reach the disk.
enum Mood {
    None,
    All,
    /// Those before this one; this one in part.
    Prefix(usize),
    /// For each sector its own number.
    Sectors,
}

impl Content {
    fn current(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        for (_, change) in &self.pending {
            change.apply(&mut bytes);
        }
        bytes
    }

    fn sync(&mut self, began: usize) {
        let count = self.pending.partition_point(|(position, _)| *position < began);
        for (_, change) in self.pending.drain(..count) {
            change.apply(&mut self.durable);
        }
    }

    fn power_loss(&self, rng: &mut Rng) -> Vec<u8> {
        if self.pending.is_empty() {
            return self.durable.clone();
        }
        let changes = self.pending.len();
        let mood = match rng.u8(0..8) {
            0 => Mood::None,
            1 => Mood::All,
            2 | 3 => Mood::Prefix(rng.usize(0..changes)),
            _ => Mood::Sectors,
        };
        let lengths_kept = match mood {
            Mood::None => 0,
            Mood::All => changes,
            Mood::Prefix(whole) => whole + rng.usize(0..2),
            Mood::Sectors => [0, changes, rng.usize(0..=changes)][rng.usize(0..3)],
        };
        let sector = SECTORS[rng.usize(0..2)];
        let mut keeps = SectorChoice::new(&self.pending, sector);
        let (mut image, mut len) = (self.durable.clone(), self.durable.len());
        for (i, (_, change)) in self.pending.iter().enumerate() {
            let keep_length = i < lengths_kept;
            match change {
                ByteChange::SetLen(to) if keep_length => {
                    image.truncate(*to);
                    len = *to;
                }
                ByteChange::SetLen(_) => {}
                ByteChange::Write(offset, bytes) => {
                    let end = offset + bytes.len();
                    if keep_length {
                        len = len.max(end);
                    }
                    image.resize(image.len().max(end), 0);
                    for (number, piece) in pieces(*offset, bytes.len(), sector) {
                        let keep = match mood {
                            Mood::None => false,
                            Mood::All => true,
                            Mood::Prefix(whole) => i < whole || (i == whole && rng.bool()),
                            Mood::Sectors => keeps.next(number, rng),
                        };
                        if keep {
                            let (from, to) = (piece.start - offset, piece.end - offset);
                            image[piece].copy_from_slice(&bytes[from..to]);
                        }
                    }
                }
            }
        }
        image.resize(len, 0);
        image
    }
}

impl ByteChange {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            ByteChange::Write(offset, written) => {
                let end = offset + written.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(written);
            }
            ByteChange::SetLen(len) => bytes.resize(*len, 0),
        }
    }
}

/// For each sector: how many writes to it there are, and how many of them reach the disk (D2).
struct SectorChoice {
    writes: HashMap<usize, usize>,
    left: HashMap<usize, usize>,
}

impl SectorChoice {
    fn new(pending: &[(usize, ByteChange)], sector: usize) -> Self {
        let mut writes = HashMap::new();
        for (_, change) in pending {
            if let ByteChange::Write(offset, bytes) = change {
                for (number, _) in pieces(*offset, bytes.len(), sector) {
                    *writes.entry(number).or_default() += 1;
                }
            }
        }
        SectorChoice { writes, left: HashMap::new() }
    }

    /// Whether the next write to this sector is among those that reach the disk.
    fn next(&mut self, number: usize, rng: &mut Rng) -> bool {
        let left = self.left.entry(number).or_insert_with(|| rng.usize(0..=self.writes[&number]));
        let keep = *left > 0;
        *left = left.saturating_sub(1);
        keep
    }
}

/// The parts of a range that lie in one sector each, with the sector's number.
fn pieces(offset: usize, len: usize, sector: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let mut at = offset;
    let end = offset + len;
    std::iter::from_fn(move || {
        let start = at;
        at = ((start / sector + 1) * sector).min(end);
        (start < end).then(|| (start / sector, start..at))
    })
}

#[cfg(test)]
mod tests;
