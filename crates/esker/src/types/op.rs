//! What a version says about its key. One numbering, for the log's ops and the entries of tables.
//!
//! | number | kind | status |
//! |---|---|---|
//! | 0 | remove | |
//! | 1 | put | |
//! | 2 | remove a range | in the log; tables store these apart, as range tombstones |
//! | 3 | put, the value in a blob file | |
//! | 4 | merge operand | reserved |
//! | 128 | added to another: the version expires | reserved |
//!
//! op.1. The numbers stand in files: they never change, and none is used twice.
//! op.2. Code asks for a property of a kind instead of naming kinds, so that a new one answers in this file alone.
//!
//! Bytes: docs/formats/wal.md, docs/formats/sstable.md

/// What a version says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key is gone.
    Remove = 0,
    /// The key has this value.
    Put = 1,
    /// All keys of a range are gone.
    RemoveRange = 2,
    /// The key has a value that is in a blob file. Beside the key stands where.
    PutBlob = 3,
}

impl Kind {
    /// The kind of this number, if there is one.
    #[inline(always)]
    pub const fn from_u8(n: u8) -> Option<Kind> {
        match n {
            0 => Some(Kind::Remove),
            1 => Some(Kind::Put),
            2 => Some(Kind::RemoveRange),
            3 => Some(Kind::PutBlob),
            _ => None,
        }
    }

    /// Whether it is about one key, as the entries of memtables and tables are.
    #[inline(always)]
    pub const fn is_point(self) -> bool {
        !matches!(self, Kind::RemoveRange)
    }

    /// Whether it answers for its key alone, whatever older versions say.
    #[inline(always)]
    pub const fn ends_search(self) -> bool {
        !matches!(self, Kind::RemoveRange)
    }

    /// Whether the key has a value once this version answers.
    #[inline(always)]
    pub const fn is_live(self) -> bool {
        matches!(self, Kind::Put | Kind::PutBlob)
    }

    /// Whether bytes of a value stand beside the key.
    #[inline(always)]
    pub const fn has_value(self) -> bool {
        matches!(self, Kind::Put | Kind::PutBlob)
    }

    /// Whether those bytes say where the value is, instead of being it.
    #[inline(always)]
    pub const fn needs_fetch(self) -> bool {
        matches!(self, Kind::PutBlob)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_1_the_numbers_stay() {
        let known: Vec<_> = (0..=u8::MAX).filter_map(|n| Some((n, Kind::from_u8(n)?))).collect();
        assert_eq!(known, [(0, Kind::Remove), (1, Kind::Put), (2, Kind::RemoveRange), (3, Kind::PutBlob)]);
        assert!(known.iter().all(|(n, kind)| *kind as u8 == *n));
    }
}
