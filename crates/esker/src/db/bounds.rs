//! Converts ranges of user keys to ranges of encoded keys.

use std::ops::Bound;

use crate::types::bounds::{BoundKey, Bounds};
use crate::types::key::{KeyBuf, encode_key, key_after, keyspace_end};
use crate::types::key_range::{End, KeyRange};
use crate::types::{KeyBounds, KeyspaceId};

/// Returns the encoded bounds of a range of user keys.
pub(super) fn encode_bounds(id: KeyspaceId, range: &impl KeyBounds) -> Bounds {
    let encode = |key: &[u8]| BoundKey::copy_of(&KeyBuf::new(id, key));
    let lower = match range.lower() {
        Bound::Included(key) => Bound::Included(encode(key)),
        Bound::Excluded(key) => Bound::Excluded(encode(key)),
        Bound::Unbounded => Bound::Included(encode(&[])),
    };
    let upper = match range.upper() {
        Bound::Included(key) => Bound::Included(encode(key)),
        Bound::Excluded(key) => Bound::Excluded(encode(key)),
        Bound::Unbounded => Bound::Excluded(keyspace_end(id).into()),
    };
    Bounds { lower, upper }
}

/// Returns the encoded bounds of all keys with this prefix.
pub(super) fn prefix_bounds(id: KeyspaceId, prefix: &[u8]) -> Bounds {
    let lower = encode_key(id, prefix);
    let mut upper = prefix.to_vec();
    while upper.last() == Some(&0xFF) {
        upper.pop();
    }
    let upper = match upper.last_mut() {
        Some(last) => {
            *last += 1;
            encode_key(id, &upper)
        }
        None => keyspace_end(id),
    };
    Bounds {
        lower: Bound::Included(BoundKey::copy_of(&lower)),
        upper: Bound::Excluded(BoundKey::copy_of(&upper)),
    }
}

/// Returns the first key within bounds of `encode_bounds`, and the first key after them.
pub(super) fn half_open(bounds: &Bounds) -> (Vec<u8>, Vec<u8>) {
    let start = match &bounds.lower {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => key_after(key),
        Bound::Unbounded => Vec::new(),
    };
    let end = match &bounds.upper {
        Bound::Excluded(key) => key.to_vec(),
        Bound::Included(key) => key_after(key),
        Bound::Unbounded => unreachable!("encode_bounds closes the upper end"),
    };
    (start, end)
}

/// Returns a range of user keys as encoded keys; `None` if it is empty.
pub(super) fn encoded_range(id: KeyspaceId, range: &impl KeyBounds) -> Option<KeyRange> {
    let (start, end) = half_open(&encode_bounds(id, range));
    (start < end).then_some(KeyRange { start, end: End::Excluded(end) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_bounds_hold_the_prefix_and_nothing_else() {
        let id = KeyspaceId::new(3);
        for (prefix, upper) in
            [(&b"ab"[..], &b"\x03ac"[..]), (b"a\xff", b"\x03b"), (b"\xff\xff", b"\x04"), (b"", b"\x04")]
        {
            let bounds = prefix_bounds(id, prefix);
            assert_eq!(bounds.upper, Bound::Excluded(BoundKey::copy_of(upper)));
            assert!(
                bounds.above_lower(&encode_key(id, prefix)) && bounds.below_upper(&encode_key(id, prefix))
            );
        }
    }

    #[test]
    fn bounds_become_half_open() {
        let id = KeyspaceId::new(3);
        let ends = |range: (Bound<&str>, Bound<&str>)| half_open(&encode_bounds(id, &range));
        let text = |start: &[u8], end: &[u8]| (start.to_vec(), end.to_vec());
        assert_eq!(ends((Bound::Included("a"), Bound::Excluded("b"))), text(b"\x03a", b"\x03b"));
        assert_eq!(ends((Bound::Excluded("a"), Bound::Included("b"))), text(b"\x03a\0", b"\x03b\0"));
        assert_eq!(ends((Bound::Unbounded, Bound::Unbounded)), text(b"\x03", b"\x04"));
    }
}
