//! When a version expires. The time precedes the value in what is stored with the key.
//!
//! ```text
//!   PUT, expiring:       [expiry, 8 bytes][value]
//!   PUT_BLOB, expiring:  [expiry, 8 bytes][pointer]
//! ```
//!
//! - A value shorter than an expiry counts as expired. Only damage produces one.
//! - In files, zero means no expiry. An expiry at the epoch or earlier is stored as 1 ms, which has
//!   passed too.

use std::time::Duration;

use super::op::Kind;

/// Size of a stored expiry.
pub(crate) const EXPIRY_BYTES: usize = 8;

/// The moment at which a version expires, in Unix milliseconds by the engine's clock (read/time.rs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expiry(u64);

impl Expiry {
    /// Expires at this time in Unix milliseconds. Zero counts as 1, because zero means no expiry in files.
    pub(crate) const fn at_ms(ms: u64) -> Self {
        Expiry(if ms == 0 { 1 } else { ms })
    }

    /// Expires this long after a moment, rounded up to milliseconds.
    pub(crate) fn after(now_ms: u64, ttl: Duration) -> Self {
        let ms = u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Expiry::at_ms(now_ms.saturating_add(ms))
    }

    /// Unix milliseconds.
    pub const fn ms(self) -> u64 {
        self.0
    }

    /// Encodes the expiry as it precedes a value.
    pub(crate) const fn to_bytes(self) -> [u8; EXPIRY_BYTES] {
        self.0.to_le_bytes()
    }

    /// Decodes the expiry that precedes a value.
    #[inline]
    pub(crate) fn of(beside: &[u8]) -> Self {
        Expiry::at_ms(beside.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes)))
    }

    /// The expiry of a version of this kind with these stored bytes, if it expires.
    #[inline]
    pub(crate) fn of_version(kind: Kind, beside: &[u8]) -> Option<Self> {
        kind.expires().then(|| Expiry::of(beside))
    }
}

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyExpiry {
    /// The key does not exist.
    Absent,
    Never,
    At(Expiry),
}

/// The lifetime of a put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// The default lifetime of its keyspace.
    #[default]
    AsKeyspace,
    /// The put does not expire.
    Unlimited,
    /// The put expires after this time.
    For(Duration),
}

/// Offset of the value, or of the pointer to it, in the stored bytes of a version of this kind.
#[inline(always)]
pub(crate) fn value_start(kind: Kind, beside_len: usize) -> usize {
    if kind.expires() { EXPIRY_BYTES.min(beside_len) } else { 0 }
}

/// The value, or the pointer to it, in the stored bytes of a version.
#[inline(always)]
pub(crate) fn value_of(kind: Kind, beside: &[u8]) -> &[u8] {
    &beside[value_start(kind, beside.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_before_the_value_and_damaged_ones_have_passed() {
        let beside = [&Expiry::at_ms(0x0102).to_bytes()[..], b"value"].concat();
        assert_eq!(beside, b"\x02\x01\0\0\0\0\0\0value");
        assert_eq!(Expiry::of_version(Kind::PUT.expiring(), &beside), Some(Expiry::at_ms(0x0102)));
        assert_eq!(Expiry::of_version(Kind::PUT, &beside), None);
        assert_eq!(
            (value_of(Kind::PUT_BLOB.expiring(), &beside), value_of(Kind::PUT, b"value")),
            (&b"value"[..], &b"value"[..])
        );
        assert_eq!(
            (Expiry::of(b"short"), value_of(Kind::PUT.expiring(), b"short")),
            (Expiry::at_ms(0), &b""[..])
        );
    }

    #[test]
    fn a_time_to_live_is_rounded_up_and_never_too_long() {
        assert_eq!(Expiry::after(5, Duration::from_nanos(1)), Expiry::at_ms(6));
        assert_eq!(Expiry::after(5, Duration::from_millis(2)), Expiry::at_ms(7));
        assert_eq!(Expiry::after(5, Duration::MAX), Expiry::at_ms(u64::MAX));
        assert_eq!(Expiry::after(0, Duration::ZERO).ms(), 1);
    }
}
