//! Operands of the merge operator, and lists of them as stored next to keys.
//!
//! ```text
//!   list:     operand, operand, ...      oldest first
//!   operand:  [time of the merge][lifetime][length][bytes]
//! ```
//!
//! An operand is written without reading the key. It therefore carries what readers need to apply it: the
//! time of the call, and the lifetime of a value that it creates (`read/fold.rs`).
//!
//! The concatenation of the bytes of an older list and a newer list is their joined list.
//!
//! Bytes: docs/formats/sstable.md, "Operands"

use super::bytes::{ByteReader, Decoded, put_string, put_varint};
use crate::types::canary::{self, Canary};
use crate::types::expiry::Expiry;
use crate::types::op::Kind;

/// Maximum number of bytes that a list adds to an operand: two times and a length.
pub(crate) const LIST_BYTES_MAX: usize = 10 + 10 + 5;

/// An operand of the merge operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand<'a> {
    /// When `merge` was called, in milliseconds since 1970 on the engine's clock.
    pub(crate) at_ms: u64,
    /// Lifetime in milliseconds of a value that this operand creates; 0 if it does not expire.
    pub(crate) lifetime_ms: u64,
    /// The operand as passed by the caller.
    pub(crate) bytes: &'a [u8],
}

impl<'a> Operand<'a> {
    /// Appends the operand to a list.
    pub(crate) fn append_to(&self, list: &mut Vec<u8>) {
        put_varint(list, self.at_ms);
        put_varint(list, self.lifetime_ms);
        put_string(list, self.bytes);
    }

    /// Returns a list of this operand alone.
    pub(crate) fn to_list(self) -> Vec<u8> {
        let mut list = Vec::with_capacity(self.bytes.len() + LIST_BYTES_MAX);
        self.append_to(&mut list);
        list
    }

    /// Reads the first operand of a list.
    fn read(reader: &mut ByteReader<'a>) -> Decoded<Self> {
        let (at_ms, lifetime_ms) = (reader.varint()?, reader.varint()?);
        Ok(Operand { at_ms, lifetime_ms, bytes: reader.string()? })
    }

    /// Returns when a value created by this operand expires.
    pub(crate) fn expiry(&self) -> Option<Expiry> {
        (self.lifetime_ms > 0).then(|| Expiry::at_ms(self.at_ms.saturating_add(self.lifetime_ms)))
    }

    /// Returns whether the operand applies to a value with this expiry. Otherwise it creates a new value.
    pub(crate) fn applies_to(&self, expiry: Option<Expiry>) -> bool {
        expiry.is_none_or(|expiry| expiry.ms() > self.at_ms || canary::is_set(Canary::OperandOutlivesBase))
    }
}

/// Iterates over the operands of a list, oldest first. Ends after an error.
pub(crate) struct Elements<'a>(ByteReader<'a>);

impl<'a> Elements<'a> {
    /// Creates an iterator over the operands of a list.
    pub(crate) fn of(list: &'a [u8]) -> Self {
        Elements(ByteReader::new(list))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Decoded<Operand<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let element = Operand::read(&mut self.0);
        if element.is_err() {
            self.0.rest();
        }
        Some(element)
    }
}

/// Returns the operands of a list, oldest first. An empty list is an error.
pub(crate) fn elements(list: &[u8]) -> Decoded<Vec<Operand<'_>>> {
    if list.is_empty() {
        return Err(ByteReader::new(list).error("the list of operands is empty"));
    }
    Elements::of(list).collect()
}

/// Returns the times at which a version may make its key expire: that of a put, or of each operand that may
/// create a value. Stops at damage.
pub(crate) fn expiries(kind: Kind, beside: &[u8]) -> impl Iterator<Item = Expiry> {
    let list = if kind.is_operand() { beside } else { &[] };
    let of_operands =
        Elements::of(list).map_while(|element| element.ok()).filter_map(|operand| operand.expiry());
    Expiry::of_version(kind, beside).into_iter().chain(of_operands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operand_1_lists_are_joined_as_bytes_and_damage_is_an_error() {
        let one = Operand { at_ms: 0x0102, lifetime_ms: 0, bytes: b"op" };
        let two = Operand { at_ms: u64::MAX, lifetime_ms: u64::MAX, bytes: b"" };
        assert_eq!(one.to_list(), b"\x82\x02\x00\x02op");
        assert!(two.to_list().len() <= LIST_BYTES_MAX);
        let both = [one.to_list(), two.to_list()].concat();
        assert_eq!(elements(&both).unwrap(), [one, two]);
        assert_eq!((one.expiry(), two.expiry()), (None, Some(Expiry::at_ms(u64::MAX))));
        assert!((1..both.len()).filter(|len| *len != 6).all(|len| elements(&both[..len]).is_err()));
        assert!(elements(b"").is_err());
        assert_eq!(expiries(Kind::MERGE, &both).collect::<Vec<_>>(), [Expiry::at_ms(u64::MAX)]);
        assert_eq!(expiries(Kind::PUT, &both).count(), 0);
    }
}
