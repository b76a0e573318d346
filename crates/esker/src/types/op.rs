//! What a version says about its key. One numbering, for the log's ops and the entries of tables.
//!
//! | number | kind | status |
//! |---|---|---|
//! | 0 | remove | |
//! | 1 | put | |
//! | 2 | remove a range | in the log; tables store these apart, as range tombstones |
//! | 3 | put, the value in a blob file | |
//! | 4 | operands, to be merged into what the key has | beside the key stand one or more, oldest first |
//! | 5 | ops before this one are unresolved | in the log alone: no kind of a version |
//! | 64 | added to another: the version is unresolved | not to a range |
//! | 128 | added to another: the version expires | reserved |
//!
//! A version is unresolved if its commit did not look up whether the key was live before, and counted as if it was not (txn/counts.rs).
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
    /// Operands are merged into what the key has (read/fold.rs).
    Merge = 4,
    /// `Remove`, unresolved.
    UnresolvedRemove = UNRESOLVED,
    /// `Put`, unresolved.
    UnresolvedPut = UNRESOLVED + 1,
    /// `PutBlob`, unresolved.
    UnresolvedPutBlob = UNRESOLVED + 3,
    /// `Merge`, unresolved.
    UnresolvedMerge = UNRESOLVED + 4,
}

/// Added to the number of a kind.
const UNRESOLVED: u8 = 64;
/// The number in the log before the list of the ops of a commit that are unresolved.
pub(crate) const UNRESOLVED_OPS: u8 = 5;

impl Kind {
    /// The kind of this number, if there is one.
    #[inline(always)]
    pub const fn from_u8(n: u8) -> Option<Kind> {
        match n {
            0 => Some(Kind::Remove),
            1 => Some(Kind::Put),
            2 => Some(Kind::RemoveRange),
            3 => Some(Kind::PutBlob),
            4 => Some(Kind::Merge),
            64 => Some(Kind::UnresolvedRemove),
            65 => Some(Kind::UnresolvedPut),
            67 => Some(Kind::UnresolvedPutBlob),
            68 => Some(Kind::UnresolvedMerge),
            _ => None,
        }
    }

    /// Whether its commit counted it as if nothing live were below.
    #[inline(always)]
    pub const fn is_unresolved(self) -> bool {
        self as u8 >= UNRESOLVED
    }

    /// The same kind, unresolved.
    #[inline]
    pub(crate) const fn unresolved(self) -> Kind {
        match self {
            Kind::Remove | Kind::UnresolvedRemove => Kind::UnresolvedRemove,
            Kind::Put | Kind::UnresolvedPut => Kind::UnresolvedPut,
            Kind::PutBlob | Kind::UnresolvedPutBlob => Kind::UnresolvedPutBlob,
            Kind::Merge | Kind::UnresolvedMerge => Kind::UnresolvedMerge,
            Kind::RemoveRange => Kind::RemoveRange,
        }
    }

    /// The same kind, resolved.
    #[inline]
    pub(crate) const fn resolved(self) -> Kind {
        match self {
            Kind::UnresolvedRemove => Kind::Remove,
            Kind::UnresolvedPut => Kind::Put,
            Kind::UnresolvedPutBlob => Kind::PutBlob,
            Kind::UnresolvedMerge => Kind::Merge,
            other => other,
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
        self.is_point() && !self.is_operand()
    }

    /// Whether operands stand beside the key.
    #[inline(always)]
    pub const fn is_operand(self) -> bool {
        self as u8 & 7 == 4
    }

    /// Whether what stands beside the key is its value.
    #[inline(always)]
    pub const fn is_plain(self) -> bool {
        self as u8 & 7 == 1
    }

    /// Whether the key has a value once this version answers.
    #[inline(always)]
    pub const fn is_live(self) -> bool {
        self as u8 & 5 != 0
    }

    /// Whether bytes stand beside the key.
    #[inline(always)]
    pub const fn has_value(self) -> bool {
        self as u8 & 5 != 0
    }

    /// Whether those bytes say where the value is, instead of being it.
    #[inline(always)]
    pub const fn needs_fetch(self) -> bool {
        self as u8 & 3 == 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_1_the_numbers_stay() {
        let known: Vec<_> = (0..=u8::MAX).filter_map(|n| Some((n, Kind::from_u8(n)?))).collect();
        let plain =
            [(0, Kind::Remove), (1, Kind::Put), (2, Kind::RemoveRange), (3, Kind::PutBlob), (4, Kind::Merge)];
        let unresolved = [
            (64, Kind::UnresolvedRemove),
            (65, Kind::UnresolvedPut),
            (67, Kind::UnresolvedPutBlob),
            (68, Kind::UnresolvedMerge),
        ];
        assert_eq!(known, [&plain[..], &unresolved].concat());
        assert!(known.iter().all(|(n, kind)| *kind as u8 == *n));
        for (n, kind) in known.iter().filter(|(_, kind)| kind.is_point()) {
            let same = (kind.is_live(), kind.has_value(), kind.needs_fetch());
            let resolved = kind.resolved();
            assert_eq!((resolved as u8, resolved.unresolved() as u8), (n & 63, n | 64));
            assert_eq!((resolved.is_live(), resolved.has_value(), resolved.needs_fetch()), same);
            assert_eq!(kind.is_unresolved(), *n >= 64);
            assert_eq!(kind.is_live(), matches!(resolved, Kind::Put | Kind::PutBlob | Kind::Merge));
            assert_eq!(kind.is_operand(), resolved == Kind::Merge);
            assert_eq!(kind.is_plain(), resolved == Kind::Put);
        }
    }
}
