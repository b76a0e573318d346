//! What a version says about its key: a base and two flags, in one byte. The log's ops and the entries of
//! tables share the numbers.
//!
//! | number | kind | status |
//! |---|---|---|
//! | 0 | remove | |
//! | 1 | put | |
//! | 2 | remove a range | in the log; tables store these apart, as range tombstones |
//! | 3 | put, the value in a blob file | |
//! | 4 | operands, to be merged into what the key has | beside the key stand one or more, oldest first |
//! | 5 | ops before this one are unresolved | in the log alone: no kind of a version |
//! | 64 | flag: the version is unresolved | not of a range |
//! | 128 | flag of a put: the version expires | its value begins with when (types/expiry.rs) |
//! | 128 | flag of a removal: the key had expired | written by sweeps (engine/writes/sweep.rs) |
//!
//! A version is unresolved if its commit did not look up whether the key was live before, and counted as if
//! it was not (txn/counts.rs).
//!
//! op.1. The numbers stand in files: they never change, and none is used twice.
//! op.2. Code asks for a property of a kind instead of naming kinds, so that a new one answers in this file
//!     alone.
//!
//! Bytes: docs/formats/wal.md, docs/formats/sstable.md

/// What a version says about its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Kind(u8);

/// The commit did not look up the key.
const UNRESOLVED: u8 = 64;
/// The version has to do with an expiry.
const EXPIRY: u8 = 128;
/// The number in the log before the list of the ops of a commit that are unresolved.
pub(crate) const UNRESOLVED_OPS: u8 = 5;

impl Kind {
    /// The key is gone.
    pub const REMOVE: Kind = Kind(0);
    /// The key has this value.
    pub const PUT: Kind = Kind(1);
    /// All keys of a range are gone.
    pub const REMOVE_RANGE: Kind = Kind(2);
    /// The key has a value in a blob file. A pointer to it stands beside the key.
    pub const PUT_BLOB: Kind = Kind(3);
    /// Operands are merged into what the key has (read/fold.rs).
    pub const MERGE: Kind = Kind(4);
    /// The key had expired, and a sweep removed it.
    pub const EXPIRED: Kind = Kind(EXPIRY);

    /// The kind of this number, if there is one.
    #[inline(always)]
    pub const fn from_u8(n: u8) -> Option<Kind> {
        let kind = Kind(n);
        let flags = match kind.base() {
            Kind::REMOVE | Kind::PUT | Kind::PUT_BLOB => UNRESOLVED | EXPIRY,
            Kind::MERGE => UNRESOLVED,
            Kind::REMOVE_RANGE => 0,
            _ => return None,
        };
        if kind.base().0 | n & flags == n { Some(kind) } else { None }
    }

    /// Its number.
    #[inline(always)]
    pub const fn to_u8(self) -> u8 {
        self.0
    }

    #[inline(always)]
    const fn base(self) -> Kind {
        Kind(self.0 & !(UNRESOLVED | EXPIRY))
    }

    #[inline(always)]
    const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    /// Whether its commit counted it as if nothing live were below.
    #[inline(always)]
    pub const fn is_unresolved(self) -> bool {
        self.has(UNRESOLVED)
    }

    /// The same kind, unresolved.
    #[inline]
    pub(crate) const fn unresolved(self) -> Kind {
        if self.is_point() { Kind(self.0 | UNRESOLVED) } else { self }
    }

    /// The same kind, resolved.
    #[inline]
    pub(crate) const fn resolved(self) -> Kind {
        Kind(self.0 & !UNRESOLVED)
    }

    /// Whether it is a put whose key is gone from some time on.
    #[inline(always)]
    pub const fn expires(self) -> bool {
        self.is_put() && self.has(EXPIRY)
    }

    /// Whether it removes a key that had expired.
    #[inline(always)]
    pub const fn is_sweep(self) -> bool {
        !self.is_put() && self.has(EXPIRY)
    }

    /// The same kind of a put that expires, and of no other.
    pub(crate) const fn expiring(self) -> Kind {
        if self.is_put() { Kind(self.0 | EXPIRY) } else { self }
    }

    #[inline(always)]
    const fn is_put(self) -> bool {
        matches!(self.base(), Kind::PUT | Kind::PUT_BLOB)
    }

    /// Whether it is a put of a value that stands beside the key, for ever.
    #[inline(always)]
    pub const fn is_plain(self) -> bool {
        matches!(self, Kind::PUT)
    }

    /// Whether it is about one key, as the entries of memtables and tables are.
    #[inline(always)]
    pub const fn is_point(self) -> bool {
        !matches!(self, Kind::REMOVE_RANGE)
    }

    /// Whether it answers for its key alone, whatever older versions say.
    #[inline(always)]
    pub const fn ends_search(self) -> bool {
        self.is_point() && !self.is_operand()
    }

    /// Whether operands stand beside the key.
    #[inline(always)]
    pub const fn is_operand(self) -> bool {
        matches!(self.base(), Kind::MERGE)
    }

    /// Whether the key has a value once this version answers.
    #[inline(always)]
    pub const fn is_live(self) -> bool {
        self.is_put() || self.is_operand()
    }

    /// Whether bytes stand beside the key.
    #[inline(always)]
    pub const fn has_value(self) -> bool {
        self.is_live()
    }

    /// Whether those bytes say where the value is, instead of being it.
    #[inline(always)]
    pub const fn needs_fetch(self) -> bool {
        matches!(self.base(), Kind::PUT_BLOB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_1_the_numbers_stay() {
        let known: Vec<_> = (0..=u8::MAX).filter_map(Kind::from_u8).collect();
        let numbers = [0, 1, 2, 3, 4, 64, 65, 67, 68, 128, 129, 131, 192, 193, 195];
        assert_eq!(known, numbers.map(Kind));
        let bases = [Kind::REMOVE, Kind::PUT, Kind::REMOVE_RANGE, Kind::PUT_BLOB, Kind::MERGE];
        assert_eq!((bases, Kind::EXPIRED), ([0, 1, 2, 3, 4].map(Kind), Kind(128)));
        for kind in known.iter().filter(|kind| kind.is_point()) {
            let (n, resolved) = (kind.to_u8(), kind.resolved());
            let same = (kind.is_live(), kind.has_value(), kind.needs_fetch());
            assert_eq!((resolved.to_u8(), resolved.unresolved().to_u8()), (n & !64, n | 64));
            assert_eq!((resolved.is_live(), resolved.has_value(), resolved.needs_fetch()), same);
            assert_eq!(kind.is_unresolved(), n & 64 != 0);
            assert_eq!(kind.is_live(), matches!(n & 63, 1 | 3 | 4));
            assert_eq!(kind.is_operand(), resolved == Kind::MERGE);
            assert_eq!(kind.is_plain(), *kind == Kind::PUT);
            assert_eq!((kind.expires(), kind.is_sweep()), (n >= 128 && n & 1 == 1, n >= 128 && n & 1 == 0));
        }
    }
}
