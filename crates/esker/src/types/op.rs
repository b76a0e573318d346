//! The kind of a version: a base and two flags, in one byte. Ops of the log and entries of tables use the
//! same numbers.
//!
//! | number | kind | status |
//! |---|---|---|
//! | 0 | remove | |
//! | 1 | put | |
//! | 2 | remove a range | only in the log; tables store range tombstones separately |
//! | 3 | put, the value in a blob file | |
//! | 4 | merge operands into the older value | the value holds one or more operands, oldest first |
//! | 5 | earlier ops are unresolved | only in the log, not the kind of a version |
//! | 64 | flag: the version is unresolved | not for a range |
//! | 128 | flag of a put: the version expires | its value begins with the time (types/expiry.rs) |
//! | 128 | flag of a removal: the key had expired | written by sweeps (engine/writes/sweep.rs) |
//!
//! A version is unresolved if its commit counted the key as new, without looking up whether it was live
//! (txn/counts.rs).
//!
//! Each kind has features: bits of what a reader has to understand. The footer of a table stores those of its
//! entries, so a build that does not know a kind refuses the table (sstable/footer.rs).
//!
//! Code asks for a property of a kind instead of naming kinds. CONTRIBUTING.md lists the files that a new
//! kind changes.
//!
//! These numbers and the features are stored in files: they never change, and none is reused.
//!
//! Bytes: docs/formats/wal.md, docs/formats/sstable.md

/// The kind of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Kind(u8);

/// Flag: the commit did not look up the key.
const UNRESOLVED: u8 = 64;
/// Flag: the version expires, or removes an expired key.
const EXPIRY: u8 = 128;
/// Feature: versions expire.
const EXPIRES: u32 = 1;
/// Feature: values are in blob files.
const BLOBS: u32 = 2;
/// Feature: versions are unresolved.
const UNRESOLVED_VERSIONS: u32 = 4;
/// The number in the log before the list of unresolved ops of a commit.
pub(crate) const UNRESOLVED_OPS: u8 = 5;

impl Kind {
    /// Removes the key.
    pub const REMOVE: Kind = Kind(0);
    /// Sets the key to a value.
    pub const PUT: Kind = Kind(1);
    /// Removes all keys of a range.
    pub const REMOVE_RANGE: Kind = Kind(2);
    /// Sets the key to a value in a blob file. The version holds a pointer to it.
    pub const PUT_BLOB: Kind = Kind(3);
    /// Merges operands into the older value of the key (read/fold.rs).
    pub const MERGE: Kind = Kind(4);
    /// Removes an expired key, by a sweep.
    pub const EXPIRED: Kind = Kind(EXPIRY);

    /// Returns the kind with this number, if there is one.
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

    /// Returns its number.
    #[inline(always)]
    pub const fn to_u8(self) -> u8 {
        self.0
    }

    /// All features that this build understands.
    pub(crate) const KNOWN_FEATURES: u32 = EXPIRES | BLOBS | UNRESOLVED_VERSIONS;

    /// Returns what a reader of its entries has to understand. A kind added after the first release has a
    /// feature of its own.
    #[inline(always)]
    pub(crate) const fn features(self) -> u32 {
        let (expiry, unresolved) = (self.has(EXPIRY) as u32, self.has(UNRESOLVED) as u32);
        let blob = self.needs_fetch() as u32;
        (EXPIRES * expiry) | (UNRESOLVED_VERSIONS * unresolved) | (BLOBS * blob)
    }

    #[inline(always)]
    const fn base(self) -> Kind {
        Kind(self.0 & !(UNRESOLVED | EXPIRY))
    }

    #[inline(always)]
    const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    /// Returns whether its commit counted the key as new without a lookup.
    #[inline(always)]
    pub const fn is_unresolved(self) -> bool {
        self.has(UNRESOLVED)
    }

    /// Returns the same kind, unresolved.
    #[inline]
    pub(crate) const fn unresolved(self) -> Kind {
        if self.is_point() { Kind(self.0 | UNRESOLVED) } else { self }
    }

    /// Returns the same kind, resolved.
    #[inline]
    pub(crate) const fn resolved(self) -> Kind {
        Kind(self.0 & !UNRESOLVED)
    }

    /// Returns whether it is a put that expires.
    #[inline(always)]
    pub const fn expires(self) -> bool {
        self.is_put() && self.has(EXPIRY)
    }

    /// Returns whether it removes an expired key.
    #[inline(always)]
    pub const fn is_sweep(self) -> bool {
        !self.is_put() && self.has(EXPIRY)
    }

    /// Returns the same kind, expiring if it is a put.
    pub(crate) const fn expiring(self) -> Kind {
        if self.is_put() { Kind(self.0 | EXPIRY) } else { self }
    }

    #[inline(always)]
    const fn is_put(self) -> bool {
        matches!(self.base(), Kind::PUT | Kind::PUT_BLOB)
    }

    /// Returns whether it is a put with an inline value that does not expire.
    #[inline(always)]
    pub const fn is_plain(self) -> bool {
        matches!(self, Kind::PUT)
    }

    /// Returns whether it is a put that does not expire, wherever its value is.
    #[inline(always)]
    pub const fn is_lasting_put(self) -> bool {
        matches!(self, Kind::PUT | Kind::PUT_BLOB)
    }

    /// Returns whether it concerns one key, as do the entries of memtables and tables.
    #[inline(always)]
    pub const fn is_point(self) -> bool {
        !matches!(self, Kind::REMOVE_RANGE)
    }

    /// Returns whether it determines the state of its key without older versions.
    #[inline(always)]
    pub const fn ends_search(self) -> bool {
        self.is_point() && !self.is_operand()
    }

    /// Returns whether it holds operands.
    #[inline(always)]
    pub const fn is_operand(self) -> bool {
        matches!(self.base(), Kind::MERGE)
    }

    /// Returns whether the key has a value if this is its newest version.
    #[inline(always)]
    pub const fn is_live(self) -> bool {
        self.is_put() || self.is_operand()
    }

    /// Returns whether bytes are stored with the key.
    #[inline(always)]
    pub const fn has_value(self) -> bool {
        self.is_live()
    }

    /// Returns whether those bytes are a pointer to the value instead of the value.
    #[inline(always)]
    pub const fn needs_fetch(self) -> bool {
        matches!(self.base(), Kind::PUT_BLOB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_stay() {
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
            let features = u32::from(n >= 128) + 2 * u32::from(n & 63 == 3) + 4 * u32::from(n & 64 != 0);
            assert_eq!(kind.features(), features);
            assert_eq!((kind.expires(), kind.is_sweep()), (n >= 128 && n & 1 == 1, n >= 128 && n & 1 == 0));
        }
    }
}
