//! Values: a length and a stamp that make their bytes, and can be read back from them.
//!
//! ```text
//!   stamp (4 bytes) | stamp's lowest byte + position / 7 ...        shorter ones keep the stamp's first bytes
//! ```
//!
//! Of one value in four the rest is noise, which no codec makes smaller: compressed tables have blocks of both kinds. The rest of eight bytes is
//! zeros: they are the stamp as a number, which can be added to.

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueNo {
    /// Bytes.
    pub len: u32,
    /// What tells it from others; not more than fits into `len` bytes.
    stamp: u32,
}

const STAMP_BYTES: usize = 4;
/// The length of numbers.
const NUMBER_BYTES: usize = 8;

fn filling(stamp: u32, len: usize, i: usize) -> u8 {
    if len == NUMBER_BYTES {
        0
    } else if stamp % 4 == 3 {
        noise(stamp, i as u32)
    } else {
        (stamp as u8).wrapping_add((i / 7) as u8)
    }
}

/// The finalizer of MurmurHash3, of stamp and position.
fn noise(stamp: u32, i: u32) -> u8 {
    let mut bits = stamp.wrapping_mul(0x9E37_79B1) ^ i;
    bits = (bits ^ bits >> 16).wrapping_mul(0x85EB_CA6B);
    bits = (bits ^ bits >> 13).wrapping_mul(0xC2B2_AE35);
    (bits ^ bits >> 16) as u8
}

impl ValueNo {
    /// A value of this length.
    pub fn new(len: u32, stamp: u32) -> Self {
        let kept = match len {
            0 => 0,
            1..4 => stamp & ((1 << (8 * len)) - 1),
            _ => stamp,
        };
        ValueNo { len, stamp: kept }
    }

    /// The value that is this number.
    pub fn number(n: u32) -> Self {
        ValueNo::new(NUMBER_BYTES as u32, n)
    }

    /// The number that it is, if it is one.
    pub fn as_number(self) -> Option<u32> {
        (self.len as usize == NUMBER_BYTES).then_some(self.stamp)
    }

    /// What tells it from others of its length.
    pub fn stamp(self) -> u32 {
        self.stamp
    }

    /// Its bytes.
    pub fn bytes(self) -> Vec<u8> {
        let len = self.len as usize;
        let mut bytes = self.stamp.to_le_bytes()[..len.min(STAMP_BYTES)].to_vec();
        bytes.extend((STAMP_BYTES..len).map(|i| filling(self.stamp, len, i)));
        bytes
    }

    /// The value of these bytes; `None` if no value has them.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut stamp = [0; STAMP_BYTES];
        let kept = bytes.len().min(STAMP_BYTES);
        stamp[..kept].copy_from_slice(&bytes[..kept]);
        let value = ValueNo { len: bytes.len() as u32, stamp: u32::from_le_bytes(stamp) };
        value.is_filled(bytes).then_some(value)
    }

    /// The value that an operand makes of this one. The order of operands tells.
    pub fn merged(self, operand: ValueNo) -> ValueNo {
        let len = self.len.max(operand.len).max(STAMP_BYTES as u32);
        let stamp = self.stamp.wrapping_mul(0x9E37_79B1).rotate_left(5);
        ValueNo::new(len, stamp.wrapping_add(operand.stamp).wrapping_add(operand.len))
    }

    /// Whether these are its bytes.
    pub fn is(self, bytes: &[u8]) -> bool {
        let kept = bytes.len().min(STAMP_BYTES);
        bytes.len() == self.len as usize
            && bytes[..kept] == self.stamp.to_le_bytes()[..kept]
            && self.is_filled(bytes)
    }

    fn is_filled(self, bytes: &[u8]) -> bool {
        (STAMP_BYTES..bytes.len()).all(|i| bytes[i] == filling(self.stamp, bytes.len(), i))
    }

    /// A number that other values do not share.
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
