//! The source of the generator's choices: a seed, or the bytes of a fuzzer.
//!
//! ```text
//!   seed --------> fastrand --+
//!   byte string, in order ----+--> a number of a range
//! ```
//!
//! Equal seeds and equal bytes give equal choices. After the last byte, each choice is the first of its
//! range, so that the current operation is completed. A choice uses as few bytes as its range needs, so that
//! a changed byte changes one choice.

use std::ops::Range;

use fastrand::Rng;

/// A source of choices.
pub(crate) enum Choices<'a> {
    /// Unlimited choices from a seed.
    Seed(Rng),
    /// Choices limited by the number of bytes.
    Bytes(&'a [u8]),
}

macro_rules! choose {
    ($($name:ident),*) => {
        $(pub(crate) fn $name(&mut self, range: Range<$name>) -> $name {
            match self {
                Choices::Seed(rng) => rng.$name(range),
                Choices::Bytes(bytes) => {
                    let span = (range.end - range.start) as u64;
                    range.start + (take(bytes, width(span)) % span) as $name
                }
            }
        })*
    };
}

impl Choices<'_> {
    choose!(u8, u16, u32, usize);

    pub(crate) fn any_u8(&mut self) -> u8 {
        match self {
            Choices::Seed(rng) => rng.u8(..),
            Choices::Bytes(bytes) => take(bytes, 1) as u8,
        }
    }

    pub(crate) fn any_u64(&mut self) -> u64 {
        match self {
            Choices::Seed(rng) => rng.u64(..),
            Choices::Bytes(bytes) => take(bytes, 8),
        }
    }

    pub(crate) fn bool(&mut self) -> bool {
        match self {
            Choices::Seed(rng) => rng.bool(),
            Choices::Bytes(bytes) => take(bytes, 1) & 1 == 1,
        }
    }

    /// Shuffles the items. From bytes it uses one byte, which gives 256 orders.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        match self {
            Choices::Seed(rng) => rng.shuffle(items),
            Choices::Bytes(bytes) => Rng::with_seed(take(bytes, 1)).shuffle(items),
        }
    }

    /// Returns whether no bytes are left.
    pub(crate) fn are_used_up(&self) -> bool {
        matches!(self, Choices::Bytes([]))
    }
}

/// Returns the number of bytes for a choice among `span` values.
fn width(span: u64) -> usize {
    match span {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

/// Reads the next bytes as a number. Missing bytes are zero.
fn take(bytes: &mut &[u8], width: usize) -> u64 {
    let (taken, rest) = bytes.split_at(width.min(bytes.len()));
    *bytes = rest;
    taken.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_in_order_and_as_few_as_needed() {
        let mut choices = Choices::Bytes(&[7, 0x34, 0x12, 1, 2, 3, 4, 0, 9, 8]);
        assert_eq!(choices.u8(0..5), 2);
        assert_eq!(choices.u16(0..1000), 0x1234 % 1000);
        assert_eq!(choices.u32(10..2_000_010), 10 + 0x0403_0201 % 2_000_000);
        assert!(!choices.bool());
        assert_eq!(choices.usize(3..259), 12);
        assert!(!choices.are_used_up());
        assert_eq!(choices.any_u8(), 8);
        assert!(choices.are_used_up());
    }

    #[test]
    fn bytes_that_are_used_up_give_the_first_of_a_range() {
        let mut choices = Choices::Bytes(&[1]);
        assert_eq!(choices.any_u64(), 1);
        assert_eq!((choices.u32(4..90_000), choices.usize(3..9), choices.any_u8()), (4, 3, 0));
        let mut items = [1, 2, 3];
        choices.shuffle(&mut items);
        items.sort();
        assert_eq!(items, [1, 2, 3]);
    }
}
