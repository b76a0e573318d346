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
//! | 128 | added to a put: the version expires | its value begins with when (types/expiry.rs) |
//! | 128 | added to a removal: the key had expired | written by sweeps (engine/writes/sweep.rs) |
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
    /// `Remove`, of a key that had expired.
    Expired = EXPIRES,
    /// `Put`, until some time.
    ExpiringPut = EXPIRES + 1,
    /// `PutBlob`, until some time.
    ExpiringPutBlob = EXPIRES + 3,
    /// `Expired`, unresolved.
    UnresolvedExpired = EXPIRES + UNRESOLVED,
    /// `ExpiringPut`, unresolved.
    UnresolvedExpiringPut = EXPIRES + UNRESOLVED + 1,
    /// `ExpiringPutBlob`, unresolved.
    UnresolvedExpiringPutBlob = EXPIRES + UNRESOLVED + 3,
    /// `Merge`, unresolved.
    UnresolvedMerge = UNRESOLVED + 4,
}

/// Added to the number of a kind.
const UNRESOLVED: u8 = 64;
/// Added to the number of a kind.
const EXPIRES: u8 = 128;
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
            128 => Some(Kind::Expired),
            129 => Some(Kind::ExpiringPut),
            131 => Some(Kind::ExpiringPutBlob),
            192 => Some(Kind::UnresolvedExpired),
            193 => Some(Kind::UnresolvedExpiringPut),
            195 => Some(Kind::UnresolvedExpiringPutBlob),
            68 => Some(Kind::UnresolvedMerge),
            _ => None,
        }
    }

    /// Whether its commit counted it as if nothing live were below.
    #[inline(always)]
    pub const fn is_unresolved(self) -> bool {
        self as u8 & UNRESOLVED != 0
    }

    /// The same kind, unresolved.
    #[inline]
    pub(crate) const fn unresolved(self) -> Kind {
        match self {
            Kind::Remove | Kind::UnresolvedRemove => Kind::UnresolvedRemove,
            Kind::Put | Kind::UnresolvedPut => Kind::UnresolvedPut,
            Kind::PutBlob | Kind::UnresolvedPutBlob => Kind::UnresolvedPutBlob,
            Kind::Expired | Kind::UnresolvedExpired => Kind::UnresolvedExpired,
            Kind::ExpiringPut | Kind::UnresolvedExpiringPut => Kind::UnresolvedExpiringPut,
            Kind::ExpiringPutBlob | Kind::UnresolvedExpiringPutBlob => Kind::UnresolvedExpiringPutBlob,
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
            Kind::UnresolvedExpired => Kind::Expired,
            Kind::UnresolvedExpiringPut => Kind::ExpiringPut,
            Kind::UnresolvedExpiringPutBlob => Kind::ExpiringPutBlob,
            Kind::UnresolvedMerge => Kind::Merge,
            other => other,
        }
    }

    /// Whether it is a put whose key is gone from some time on.
    #[inline(always)]
    pub const fn expires(self) -> bool {
        self as u8 & (EXPIRES | 1) == EXPIRES | 1
    }

    /// Whether it removes a key that had expired.
    #[inline(always)]
    pub const fn is_sweep(self) -> bool {
        self as u8 & (EXPIRES | 1) == EXPIRES
    }

    /// The same kind of a put that expires, and of no other.
    pub(crate) const fn expiring(self) -> Kind {
        match self {
            Kind::Put => Kind::ExpiringPut,
            Kind::PutBlob => Kind::ExpiringPutBlob,
            other => other,
        }
    }

    /// Whether it is a put of a value that stands beside the key, for ever.
    #[inline(always)]
    pub const fn is_plain(self) -> bool {
        matches!(self, Kind::Put)
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
        let expiring = [
            (128, Kind::Expired),
            (129, Kind::ExpiringPut),
            (131, Kind::ExpiringPutBlob),
            (192, Kind::UnresolvedExpired),
            (193, Kind::UnresolvedExpiringPut),
            (195, Kind::UnresolvedExpiringPutBlob),
        ];
        assert_eq!(known, [&plain[..], &unresolved, &expiring].concat());
        assert!(known.iter().all(|(n, kind)| *kind as u8 == *n));
        for (n, kind) in known.iter().filter(|(_, kind)| kind.is_point()) {
            let same = (kind.is_live(), kind.has_value(), kind.needs_fetch());
            let resolved = kind.resolved();
            assert_eq!((resolved as u8, resolved.unresolved() as u8), (n & !64, n | 64));
            assert_eq!((resolved.is_live(), resolved.has_value(), resolved.needs_fetch()), same);
            assert_eq!(kind.is_unresolved(), n & 64 != 0);
            assert_eq!(kind.is_live(), matches!(n & 63, 1 | 3 | 4));
            assert_eq!(kind.is_operand(), resolved == Kind::Merge);
            assert_eq!(kind.is_plain(), *kind == Kind::Put);
            assert_eq!((kind.expires(), kind.is_sweep()), (*n >= 128 && n & 1 == 1, *n >= 128 && n & 1 == 0));
        }
    }
}
