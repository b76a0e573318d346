//! The kinds of harm, and their effect on files. Harms are independent: each is generated from the undamaged
//! files, and has no effect if its file is gone. So any of them can be omitted.

use std::fmt;
use std::ops::Range;

use super::files::Files;

/// A kind of harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Flips one bit.
    Flip,
    /// Overwrites a range with zeros, ones or noise.
    Overwrite,
    /// Copies a range to another position: a misdirected write.
    Copy,
    /// Replaces pieces by those of another file of the same kind at the same position: reused blocks that
    /// were never written.
    Stale,
    /// Truncates a file.
    Cut,
    /// Extends a file.
    Extend,
    /// Swaps the names of two files of the same kind.
    Swap,
    /// Replaces a file by a copy of another one of the same kind.
    Replace,
    /// Restores an earlier version of a file: lost writes.
    Restore,
    /// Replaces a file by one of another database.
    Foreign,
    /// Deletes a file.
    Delete,
    /// Renames a file.
    Rename,
    /// Copies a file to another name.
    Duplicate,
    /// Adds a new file.
    Add,
    /// Truncates a file to zero bytes.
    Empty,
    /// Makes sectors of a file unreadable.
    Unreadable,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 16] = [
        Kind::Flip,
        Kind::Overwrite,
        Kind::Copy,
        Kind::Stale,
        Kind::Cut,
        Kind::Extend,
        Kind::Swap,
        Kind::Replace,
        Kind::Restore,
        Kind::Foreign,
        Kind::Delete,
        Kind::Rename,
        Kind::Duplicate,
        Kind::Add,
        Kind::Empty,
        Kind::Unreadable,
    ];

    /// Returns the name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Flip => "flip",
            Kind::Overwrite => "overwrite",
            Kind::Copy => "copy",
            Kind::Stale => "stale",
            Kind::Cut => "cut",
            Kind::Extend => "extend",
            Kind::Swap => "swap",
            Kind::Replace => "replace",
            Kind::Restore => "restore",
            Kind::Foreign => "foreign",
            Kind::Delete => "delete",
            Kind::Rename => "rename",
            Kind::Duplicate => "duplicate",
            Kind::Add => "add",
            Kind::Empty => "empty",
            Kind::Unreadable => "unreadable",
        }
    }
}

/// A change of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Flips a bit of the byte at an offset.
    Flip(String, usize, u8),
    /// Writes bytes at an offset.
    Write(String, usize, Vec<u8>),
    /// Truncates a file.
    Cut(String, usize),
    /// Swaps two files.
    Swap(String, String),
    /// Writes a file, new or existing.
    Put(String, Vec<u8>),
    /// Deletes a file.
    Delete(String),
    /// Makes reads of these bytes fail.
    Lose(String, Range<u64>),
    /// Renames a file, replacing an existing one.
    Rename(String, String),
}

impl Edit {
    fn apply(&self, files: &mut Files) {
        match self {
            Edit::Flip(name, at, bit) => {
                if let Some(byte) = files.get_mut(name).and_then(|file| file.get_mut(*at)) {
                    *byte ^= 1 << bit;
                }
            }
            Edit::Write(name, at, bytes) => {
                if let Some(file) = files.get_mut(name) {
                    let end = at + bytes.len();
                    file.resize(file.len().max(end), 0);
                    file[*at..end].copy_from_slice(bytes);
                }
            }
            Edit::Cut(name, len) => {
                if let Some(file) = files.get_mut(name) {
                    file.truncate(*len);
                }
            }
            Edit::Swap(one, other) => {
                if let (Some(a), Some(b)) = (files.get(one).cloned(), files.get(other).cloned()) {
                    files.extend([(one.clone(), b), (other.clone(), a)]);
                }
            }
            Edit::Put(name, bytes) => drop(files.insert(name.clone(), bytes.clone())),
            Edit::Delete(name) => drop(files.remove(name)),
            Edit::Lose(..) => {}
            Edit::Rename(from, to) => {
                if let Some(bytes) = files.remove(from) {
                    files.insert(to.clone(), bytes);
                }
            }
        }
    }
}

/// One harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Harm {
    kind: Kind,
    text: String,
    edit: Edit,
}

impl Harm {
    /// Creates a harm with its description.
    pub fn new(kind: Kind, text: impl Into<String>, edit: Edit) -> Harm {
        Harm { kind, text: text.into(), edit }
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.text)
    }
}

/// Returns the unreadable ranges after all harms, with the names of their files.
pub(super) fn unreadable(harms: &[Harm], after: &Files) -> Vec<(String, Range<u64>)> {
    let place = |harm: &Harm| match &harm.edit {
        Edit::Lose(name, bytes) => Some((name.clone(), bytes.clone())),
        _ => None,
    };
    let is_there = |(name, bytes): &(String, Range<u64>)| {
        after.get(name).is_some_and(|file| bytes.start < file.len() as u64)
    };
    harms.iter().filter_map(place).filter(is_there).collect()
}

/// Applies all harms in order.
pub(super) fn harmed(files: &Files, harms: &[Harm]) -> Files {
    let mut files = files.clone();
    harms.iter().for_each(|harm| harm.edit.apply(&mut files));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_do_what_they_say_and_nothing_to_files_that_are_gone() {
        let files = |list: &[(&str, &str)]| -> Files {
            list.iter().map(|(name, text)| ((*name).to_owned(), (*text).into())).collect()
        };
        let before = files(&[("a", "one"), ("b", "three")]);
        let (a, b, c) = ("a".to_owned(), "b".to_owned(), "c".to_owned());
        let edits = [
            (Edit::Flip(a.clone(), 1, 0), vec![("a", "ooe"), ("b", "three")]),
            (Edit::Write(a.clone(), 2, b"xyz".to_vec()), vec![("a", "onxyz"), ("b", "three")]),
            (Edit::Cut(b.clone(), 2), vec![("a", "one"), ("b", "th")]),
            (Edit::Swap(a.clone(), b.clone()), vec![("a", "three"), ("b", "one")]),
            (Edit::Put(c.clone(), b"new".to_vec()), vec![("a", "one"), ("b", "three"), ("c", "new")]),
            (Edit::Delete(a.clone()), vec![("b", "three")]),
            (Edit::Lose(a.clone(), 0..2), vec![("a", "one"), ("b", "three")]),
            (Edit::Rename(a.clone(), b.clone()), vec![("b", "one")]),
            (Edit::Flip(a.clone(), 9, 0), vec![("a", "one"), ("b", "three")]),
            (Edit::Flip(c.clone(), 0, 0), vec![("a", "one"), ("b", "three")]),
            (Edit::Write(c.clone(), 0, b"xyz".to_vec()), vec![("a", "one"), ("b", "three")]),
            (Edit::Cut(c.clone(), 0), vec![("a", "one"), ("b", "three")]),
            (Edit::Swap(a.clone(), c.clone()), vec![("a", "one"), ("b", "three")]),
            (Edit::Delete(c.clone()), vec![("a", "one"), ("b", "three")]),
            (Edit::Rename(c.clone(), a.clone()), vec![("a", "one"), ("b", "three")]),
        ];
        for (edit, after) in edits {
            let harm = Harm::new(Kind::Flip, "", edit.clone());
            assert_eq!(harmed(&before, &[harm]), files(&after), "{edit:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_lies_in_a_file_that_is_there() {
        let lose = |name: &str, bytes| Harm::new(Kind::Unreadable, "", Edit::Lose(name.to_owned(), bytes));
        let harms = [lose("a", 0..512), lose("a", 512..1024), lose("b", 0..512)];
        let after = Files::from([("a".to_owned(), vec![1; 512])]);
        assert_eq!(unreadable(&harms, &after), [("a".to_owned(), 0..512)]);
    }
}
