//! Values: bytes that are generated from a length and a stamp, and identify both.
//!
//! ```text
//!   stamp (4 bytes) | lowest byte of the stamp + position / 7 ...   shorter values: first bytes of the stamp
//! ```
//!
//! A quarter of the values continue with noise, which does not compress, so that compressed tables have both
//! kinds of blocks. A value of eight bytes continues with zeros: it is the stamp as a number that can be
//! added to.
//!
//! The loops over bytes have no iterators: test builds inline none, and a simulation reads each value often.

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueNo {
    /// Length in bytes.
    pub len: u32,
    /// Identifies the value; truncated to `len` bytes.
    stamp: u32,
}

const STAMP_BYTES: usize = 4;
/// The length of numbers.
const NUMBER_BYTES: usize = 8;

#[inline(always)]
fn filling(stamp: u32, len: usize, i: usize) -> u8 {
    if len == NUMBER_BYTES {
        0
    } else if stamp % 4 == 3 {
        noise(stamp, i as u32)
    } else {
        (stamp as u8).wrapping_add((i / 7) as u8)
    }
}

/// Returns a noise byte: the finalizer of MurmurHash3, of stamp and position.
#[inline(always)]
fn noise(stamp: u32, i: u32) -> u8 {
    let mut bits = stamp.wrapping_mul(0x9E37_79B1) ^ i;
    bits = (bits ^ bits >> 16).wrapping_mul(0x85EB_CA6B);
    bits = (bits ^ bits >> 13).wrapping_mul(0xC2B2_AE35);
    (bits ^ bits >> 16) as u8
}

impl ValueNo {
    /// Creates a value of this length.
    pub fn new(len: u32, stamp: u32) -> Self {
        let kept = match len {
            0 => 0,
            1..4 => stamp & ((1 << (8 * len)) - 1),
            _ => stamp,
        };
        ValueNo { len, stamp: kept }
    }

    /// Creates the value of a number.
    pub fn number(n: u32) -> Self {
        ValueNo::new(NUMBER_BYTES as u32, n)
    }

    /// Returns the number, if the value is one.
    pub fn as_number(self) -> Option<u32> {
        (self.len as usize == NUMBER_BYTES).then_some(self.stamp)
    }

    /// Returns the stamp, which distinguishes values of equal length.
    pub fn stamp(self) -> u32 {
        self.stamp
    }

    /// Returns its bytes.
    pub fn bytes(self) -> Vec<u8> {
        let len = self.len as usize;
        let mut bytes = vec![0; len];
        let kept = len.min(STAMP_BYTES);
        bytes[..kept].copy_from_slice(&self.stamp.to_le_bytes()[..kept]);
        let mut i = STAMP_BYTES;
        while i < len {
            bytes[i] = filling(self.stamp, len, i);
            i += 1;
        }
        bytes
    }

    /// Returns the value with these bytes, if there is one.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut stamp = [0; STAMP_BYTES];
        let kept = bytes.len().min(STAMP_BYTES);
        stamp[..kept].copy_from_slice(&bytes[..kept]);
        let value = ValueNo { len: bytes.len() as u32, stamp: u32::from_le_bytes(stamp) };
        value.is_filled(bytes).then_some(value)
    }

    /// Returns the result of a merge. It depends on the order of operands.
    pub fn merged(self, operand: ValueNo) -> ValueNo {
        let len = self.len.max(operand.len).max(STAMP_BYTES as u32);
        let stamp = self.stamp.wrapping_mul(0x9E37_79B1).rotate_left(5);
        ValueNo::new(len, stamp.wrapping_add(operand.stamp).wrapping_add(operand.len))
    }

    /// Returns whether these are its bytes.
    pub fn is(self, bytes: &[u8]) -> bool {
        let kept = bytes.len().min(STAMP_BYTES);
        bytes.len() == self.len as usize
            && bytes[..kept] == self.stamp.to_le_bytes()[..kept]
            && self.is_filled(bytes)
    }

    fn is_filled(self, bytes: &[u8]) -> bool {
        let mut i = STAMP_BYTES;
        while i < bytes.len() && bytes[i] == filling(self.stamp, bytes.len(), i) {
            i += 1;
        }
        i >= bytes.len()
    }

    /// Returns a number unique to the value.
    pub(super) fn digest(self) -> u64 {
        u64::from(self.len) << 32 | u64::from(self.stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_damage_shows() {
        assert_eq!(ValueNo::number(258).bytes(), 258_i64.to_le_bytes());
        for len in [0, 1, 2, 3, 4, 5, 8, 100, 5000] {
            for stamp in [0xDEAD_BEEF, 0xDEAD_BEEC] {
                let value = ValueNo::new(len, stamp);
                let mut bytes = value.bytes();
                assert_eq!((bytes.len(), ValueNo::parse(&bytes)), (len as usize, Some(value)));
                assert!(value.is(&bytes));
                if len > 4 {
                    bytes[len as usize - 1] ^= 1;
                    assert_eq!(ValueNo::parse(&bytes), None);
                    assert!(!value.is(&bytes));
                }
            }
        }
    }
}
