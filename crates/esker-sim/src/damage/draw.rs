//! Generates the harms of a seed: their files, positions, sizes and bytes.
//!
//! ```text
//!   seed --> 1 to 6 x (kind by weight, file by weight, position, bytes) --> Harm
//!            current files | files before an earlier operation | files of another database
//! ```

use std::collections::BTreeSet;

use esker::DumpOptions;
use fastrand::Rng;

use super::files::{Files, Role, disk, env, path};
use super::harm::{Edit, Harm, Kind};
use super::subject::{Donor, Subject};

/// Numbers of harms; most databases have few.
const COUNTS: [usize; 9] = [1, 1, 1, 2, 2, 3, 4, 5, 6];
/// Kinds of files, weighted by their frequency in the list.
const ROLES: [Role; 18] = {
    use Role::{Blob, Current, Manifest, Other, Prepared, Segment, Table};
    [
        Table, Table, Table, Table, Table, Table, Segment, Segment, Segment, Segment, Manifest, Manifest,
        Manifest, Current, Prepared, Other, Blob, Blob,
    ]
};
/// Files that consist of pieces at known positions.
const PIECED: [Role; 3] = [Role::Table, Role::Segment, Role::Manifest];
/// Maximum size of a range.
const RANGE_BYTES_MAX: usize = 8 << 10;
/// The unit that disks write atomically.
const SECTOR_BYTES: usize = 512;

/// A generator of harms.
pub(super) struct Drawing<'a> {
    rng: Rng,
    before: &'a Files,
    moments: &'a [(usize, Files)],
    donor: &'a Donor,
}

impl<'a> Drawing<'a> {
    pub(super) fn new(rng: Rng, subject: &'a Subject, donor: &'a Donor) -> Self {
        Drawing { rng, before: &subject.files, moments: &subject.moments, donor }
    }

    /// Returns the harms, at least one.
    pub(super) fn harms(mut self) -> Vec<Harm> {
        let n = COUNTS[self.rng.usize(0..COUNTS.len())];
        (0..n).map(|_| self.harm()).collect()
    }

    fn harm(&mut self) -> Harm {
        loop {
            // Not every kind suits every file, but most suit CURRENT, which always exists.
            let kind = self.kind();
            if let Some(harm) = self.draw(kind) {
                return harm;
            }
        }
    }

    fn kind(&mut self) -> Kind {
        match self.rng.u8(0..100) {
            0..12 => Kind::Flip,
            12..23 => Kind::Overwrite,
            23..27 => Kind::Copy,
            27..31 => Kind::Stale,
            31..40 => Kind::Cut,
            40..46 => Kind::Extend,
            46..53 => Kind::Swap,
            53..58 => Kind::Replace,
            58..66 => Kind::Restore,
            66..71 => Kind::Foreign,
            71..78 => Kind::Delete,
            78..83 => Kind::Rename,
            83..86 => Kind::Duplicate,
            86..90 => Kind::Add,
            90..93 => Kind::Empty,
            _ => Kind::Unreadable,
        }
    }

    fn draw(&mut self, kind: Kind) -> Option<Harm> {
        match kind {
            Kind::Flip => self.flip(),
            Kind::Overwrite => self.overwrite(),
            Kind::Copy => self.copy(),
            Kind::Stale => self.stale(),
            Kind::Cut => self.cut(),
            Kind::Extend => self.extend(),
            Kind::Swap => self.swap(),
            Kind::Replace => self.replace(),
            Kind::Restore => self.restore(),
            Kind::Foreign => self.foreign(),
            Kind::Delete => self.delete(),
            Kind::Rename => self.rename(),
            Kind::Duplicate => self.duplicate(),
            Kind::Add => self.add(),
            Kind::Empty => self.empty(),
            Kind::Unreadable => self.unreadable(),
        }
    }

    /// Picks a file; for log segments mostly the last one.
    fn pick(&mut self, files: &Files) -> Option<String> {
        let role = ROLES[self.rng.usize(0..ROLES.len())];
        let names: Vec<&String> = files.keys().filter(|name| Role::of(name) == role).collect();
        let last = *names.last()?;
        let prefers_last = role == Role::Segment && self.rng.bool();
        Some(if prefers_last { last.clone() } else { names[self.rng.usize(0..names.len())].clone() })
    }

    /// Picks a file that is not empty.
    fn target(&mut self) -> Option<(String, &'a [u8])> {
        let before = self.before;
        let file = self.pick(before)?;
        let bytes = before.get(&file)?.as_slice();
        (!bytes.is_empty()).then_some((file, bytes))
    }

    /// Picks another file of the same kind.
    fn another(&mut self, file: &str, files: &Files) -> Option<String> {
        let others = files.keys().filter(|name| Role::of(name) == Role::of(file) && *name != file);
        self.rng.choice(others.collect::<Vec<_>>()).cloned()
    }

    /// Picks an offset in a non-empty file: near an end, at a sector boundary, anywhere, or before its
    /// trailing zeros.
    fn place(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len();
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        match self.rng.u8(0..8) {
            0 => self.rng.usize(0..len.min(64)),
            1 => len - 1 - self.rng.usize(0..len.min(64)),
            2 => self.rng.usize(0..len) / SECTOR_BYTES * SECTOR_BYTES,
            3 => self.rng.usize(0..len),
            4 => used - 1 - self.rng.usize(0..used.min(64)),
            _ => self.rng.usize(0..used),
        }
    }

    /// Picks the length of a range, between 1 and `most`.
    fn length(&mut self, most: usize) -> usize {
        let len = match self.rng.u8(0..3) {
            0 => self.rng.usize(1..33),
            1 => 1 << self.rng.usize(0..14),
            _ => self.rng.usize(1..RANGE_BYTES_MAX + 1),
        };
        len.min(most)
    }

    /// Returns zeros, ones or noise.
    fn filling(&mut self, len: usize) -> (&'static str, Vec<u8>) {
        match self.rng.u8(0..4) {
            0 | 1 => ("zeros", vec![0; len]),
            2 => ("ones", vec![0xFF; len]),
            _ => ("noise", (0..len).map(|_| self.rng.u8(..)).collect()),
        }
    }

    fn flip(&mut self) -> Option<Harm> {
        let (file, bytes) = self.target()?;
        let (at, bit) = (self.place(bytes), self.rng.u8(0..8));
        let text = format!("bit {bit} of byte {at} of {file}, which has {}", bytes.len());
        Some(Harm::new(Kind::Flip, text, Edit::Flip(file, at, bit)))
    }

    fn overwrite(&mut self) -> Option<Harm> {
        let (file, bytes) = self.target()?;
        let at = self.place(bytes);
        let len = self.length(bytes.len() - at);
        let (what, filling) = self.filling(len);
        let text = format!("{len} bytes at {at} of {file}, which has {}, with {what}", bytes.len());
        Some(Harm::new(Kind::Overwrite, text, Edit::Write(file, at, filling)))
    }

    fn copy(&mut self) -> Option<Harm> {
        let (file, bytes) = self.target()?;
        let (from, source) = if self.rng.bool() { (file.clone(), bytes) } else { self.target()? };
        let at = self.place(bytes);
        let start = if self.rng.u8(0..4) == 0 { at } else { self.place(source) };
        let room = (bytes.len() - at).min(source.len().checked_sub(start).filter(|rest| *rest > 0)?);
        let len = self.length(room);
        let size = bytes.len();
        let text = format!("{len} bytes at {at} of {file}, which has {size}, from {start} of {from}");
        let copied = source[start..start + len].to_vec();
        Some(Harm::new(Kind::Copy, text, Edit::Write(file, at, copied)))
    }

    fn stale(&mut self) -> Option<Harm> {
        let role = PIECED[self.rng.usize(0..PIECED.len())];
        let (before, moments) = (self.before, self.moments);
        let all = before.iter().chain(moments.iter().flat_map(|(_, files)| files));
        let alike: BTreeSet<(&String, &Vec<u8>)> = all.filter(|(name, _)| Role::of(name) == role).collect();
        let alike: Vec<_> =
            alike.into_iter().map(|(name, bytes)| (name, bytes, places(name, bytes))).collect();
        // Few positions are starts of pieces in both files.
        let mut found = Vec::new();
        for (name, bytes, own) in alike.iter().filter(|(name, bytes, _)| before.get(*name) == Some(*bytes)) {
            for (other, stale, theirs) in alike.iter().filter(|(other, ..)| other != name) {
                let common: Vec<usize> = own.intersection(theirs).copied().collect();
                if common.len() < 2 {
                    continue;
                }
                let first = self.rng.usize(0..common.len() - 1);
                let last = self.rng.usize(first + 1..common.len());
                let stretch = common[first]..common[last];
                if bytes[stretch.clone()] != stale[stretch.clone()] {
                    found.push((*name, bytes.len(), *other, *stale, stretch));
                }
            }
        }
        let (file, size, other, stale, stretch) = self.rng.choice(found)?;
        let (len, at) = (stretch.len(), stretch.start);
        let text = format!("{len} bytes at {at} of {file}, which has {size}, as {other} has or had them");
        Some(Harm::new(Kind::Stale, text, Edit::Write(file.clone(), at, stale[stretch].to_vec())))
    }

    fn cut(&mut self) -> Option<Harm> {
        let (file, bytes) = self.target()?;
        let len = self.place(bytes);
        let text = format!("{file} to {len} of {} bytes", bytes.len());
        Some(Harm::new(Kind::Cut, text, Edit::Cut(file, len)))
    }

    fn extend(&mut self) -> Option<Harm> {
        let (file, bytes) = self.target()?;
        let len = self.length(RANGE_BYTES_MAX);
        let (what, more) = match self.rng.bool() {
            true => self.filling(len),
            false => ("its own end", bytes[bytes.len().saturating_sub(len)..].to_vec()),
        };
        let text = format!("{file}, which has {} bytes, with {} bytes of {what}", bytes.len(), more.len());
        Some(Harm::new(Kind::Extend, text, Edit::Write(file, bytes.len(), more)))
    }

    fn unreadable(&mut self) -> Option<Harm> {
        let (file, bytes) = self.target()?;
        let sectors = [1, 1, 8][self.rng.usize(0..3)];
        let unit = sectors * SECTOR_BYTES;
        let start = self.place(bytes) / unit * unit;
        let text = format!("{unit} bytes at {start} of {file}, which has {}", bytes.len());
        Some(Harm::new(Kind::Unreadable, text, Edit::Lose(file, start as u64..(start + unit) as u64)))
    }

    fn swap(&mut self) -> Option<Harm> {
        let file = self.pick(self.before)?;
        let other = self.another(&file, self.before)?;
        Some(Harm::new(Kind::Swap, format!("{file} and {other}"), Edit::Swap(file, other)))
    }

    fn replace(&mut self) -> Option<Harm> {
        let file = self.pick(self.before)?;
        let other = self.another(&file, self.before)?;
        let bytes = self.before.get(&other)?.clone();
        Some(Harm::new(Kind::Replace, format!("{file} by a copy of {other}"), Edit::Put(file, bytes)))
    }

    fn restore(&mut self) -> Option<Harm> {
        let (ops, files) = self.rng.choice(self.moments)?;
        let file = self.pick(files)?;
        let bytes = files.get(&file).filter(|bytes| self.before.get(&file) != Some(*bytes))?.clone();
        let text = format!("{file} as it was before operation {ops}, {} bytes", bytes.len());
        Some(Harm::new(Kind::Restore, text, Edit::Put(file, bytes)))
    }

    fn foreign(&mut self) -> Option<Harm> {
        let file = self.pick(self.before)?;
        let theirs = &self.donor.get().files;
        let namesake = theirs.contains_key(&file) && self.rng.bool();
        let other = if namesake { file.clone() } else { self.another(&file, theirs)? };
        let bytes = theirs.get(&other)?.clone();
        let text = format!("{file} by {other} of another database, {} bytes", bytes.len());
        Some(Harm::new(Kind::Foreign, text, Edit::Put(file, bytes)))
    }

    fn delete(&mut self) -> Option<Harm> {
        let file = self.pick(self.before)?;
        Some(Harm::new(Kind::Delete, file.clone(), Edit::Delete(file)))
    }

    fn rename(&mut self) -> Option<Harm> {
        let file = self.pick(self.before)?;
        let to = self.name(Role::of(&file))?;
        let text = format!("{file} to {to}");
        (to != file).then(|| Harm::new(Kind::Rename, text, Edit::Rename(file, to)))
    }

    fn duplicate(&mut self) -> Option<Harm> {
        let file = self.pick(self.before)?;
        let name = self.name(Role::of(&file))?;
        let bytes = self.before.get(&file)?.clone();
        let text = format!("{file} as {name}");
        (name != file).then(|| Harm::new(Kind::Duplicate, text, Edit::Put(name, bytes)))
    }

    fn add(&mut self) -> Option<Harm> {
        let role = ROLES[self.rng.usize(0..ROLES.len())];
        let name = self.name(role)?;
        let len = self.length(RANGE_BYTES_MAX);
        let (what, bytes) = self.filling(len);
        let text = format!("{name}, {len} bytes of {what}");
        (!self.before.contains_key(&name)).then(|| Harm::new(Kind::Add, text, Edit::Put(name, bytes)))
    }

    fn empty(&mut self) -> Option<Harm> {
        let (file, bytes) = self.target()?;
        let text = format!("{file}, which has {} bytes", bytes.len());
        Some(Harm::new(Kind::Empty, text, Edit::Put(file, Vec::new())))
    }

    /// Generates a valid name for a file of this kind.
    fn name(&mut self, role: Role) -> Option<String> {
        let number = self.number()?;
        Some(match role {
            Role::Table => format!("{number:06}.sst"),
            Role::Blob => format!("{number:06}.blob"),
            Role::Segment | Role::Prepared if self.rng.bool() => format!("{number:06}.wal"),
            Role::Segment | Role::Prepared => format!("{number:06}.wal-next"),
            Role::Manifest => format!("MANIFEST-{number:06}"),
            Role::Current => "CURRENT.tmp".to_owned(),
            Role::Other => ["OPTIONS.tmp", "OPTIONS", "wal-spare-7.tmp"][self.rng.usize(0..3)].to_owned(),
        })
    }

    /// Generates a file number: near an existing one, small, or large.
    fn number(&mut self) -> Option<u64> {
        let near = self.rng.choice(self.before.keys())?;
        let digits: String = near.chars().filter(char::is_ascii_digit).collect();
        let near: u64 = digits.parse().unwrap_or(0);
        Some(match self.rng.u8(0..8) {
            0 => self.rng.u64(0..20),
            1 => self.rng.u64(0..2_000_000_000),
            _ => (near + self.rng.u64(0..4)).saturating_sub(1),
        })
    }
}

/// Returns the starts of the pieces of a file, and its end.
fn places(name: &str, bytes: &[u8]) -> BTreeSet<usize> {
    let one = Files::from([(name.to_owned(), bytes.to_vec())]);
    let mut places = BTreeSet::from([bytes.len()]);
    let options = DumpOptions::default().env(env(&disk(&one), 0)).entries(false);
    let shown = options.dump(path(name), |item| {
        places.insert(item.offset as usize);
    });
    // Damaged pieces may be reported anywhere.
    places.retain(|at| shown.is_ok() && *at <= bytes.len());
    places
}
