//! Encoded keys: one ordered space of byte strings for all keyspaces.
//!
//! ```text
//!   (KeyspaceId, user key) --encode--> [id, 1 to 5 bytes, order-preserving][user key]
//! ```
//!
//! - Encoded keys compare as bytes like (keyspace id, user key). No encoded prefix is a prefix of another.
//! - Memtables, tables, range tombstones and the WAL hold encoded keys only. User keys appear only in the
//!   API.
//! - The bounds of a range removal are the ends of a keyspace, or not longer than keys may be. So another
//!   database accepts the bounds that the feed shows.
//!
//! An id below 240 takes one byte, so that the 8-byte heads of the index hold 7 bytes of the user key. A
//! larger id is the byte 0xF0 + n, then the id in n big-endian bytes without leading zeros, n in 1..=4.

use super::KeyspaceId;
use super::limits::KEY_BYTES_MAX;

/// Maximum size of an encoded keyspace id.
pub const PREFIX_BYTES_MAX: usize = 5;
const ONE_BYTE_IDS: u32 = 0xF0;

/// The first 8 bytes of a key as a number that compares like them. Short keys are padded with zeros, so equal
/// heads prove nothing.
#[inline(always)]
pub fn head8(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0; 8];
    padded[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(padded)
}

/// The first 4 bytes of a key, like [`head8`].
#[inline(always)]
pub fn head4(key: &[u8]) -> u32 {
    if let Some(first) = key.first_chunk::<4>() {
        return u32::from_be_bytes(*first);
    }
    let mut padded = [0; 4];
    padded[..key.len()].copy_from_slice(key);
    u32::from_be_bytes(padded)
}

/// The number of leading bytes that two keys share.
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let (words_a, words_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let words = 8 * words_a.iter().zip(words_b).take_while(|(x, y)| x == y).count();
    words + a[words..].iter().zip(&b[words..]).take_while(|(x, y)| x == y).count()
}

/// Appends the prefix of a keyspace.
pub fn push_keyspace_prefix(out: &mut Vec<u8>, id: KeyspaceId) {
    let (bytes, len) = prefix_bytes(id);
    out.extend_from_slice(&bytes[..len]);
}

#[inline]
fn prefix_bytes(id: KeyspaceId) -> ([u8; PREFIX_BYTES_MAX], usize) {
    let n = id.get();
    if n < ONE_BYTE_IDS {
        return ([n as u8, 0, 0, 0, 0], 1);
    }
    let width = 4 - n.leading_zeros() as usize / 8;
    let mut out = [0; PREFIX_BYTES_MAX];
    out[0] = 0xF0 + width as u8;
    out[1..=width].copy_from_slice(&n.to_be_bytes()[4 - width..]);
    (out, width + 1)
}

/// Encodes a user key.
pub fn encode_key(id: KeyspaceId, user_key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX_BYTES_MAX + user_key.len());
    push_keyspace_prefix(&mut out, id);
    out.extend_from_slice(user_key);
    out
}

/// Splits an encoded key into keyspace id and user key. Returns `None` if it is not an encoded key.
pub fn decode_key(encoded: &[u8]) -> Option<(KeyspaceId, &[u8])> {
    let (&first, rest) = encoded.split_first()?;
    if u32::from(first) < ONE_BYTE_IDS {
        return Some((KeyspaceId::new(u32::from(first)), rest));
    }
    let width = usize::from(first - 0xF0);
    if !(1..=4).contains(&width) || rest.len() < width {
        return None;
    }
    let (id, user_key) = rest.split_at(width);
    let id = id.iter().fold(0, |n, &b| n << 8 | u32::from(b));
    (prefix_bytes(KeyspaceId::new(id)).1 == width + 1).then_some((KeyspaceId::new(id), user_key))
}

/// Size of the keyspace's prefix of an encoded key.
pub fn prefix_len(encoded: &[u8]) -> usize {
    encoded.len() - decode_key(encoded).map_or(encoded.len(), |(_, user_key)| user_key.len())
}

/// The smallest bound above this key: the key and a zero byte, or the next prefix if no key may be longer. A
/// user may pass it as a bound.
pub fn key_after(key: &[u8]) -> Vec<u8> {
    if decode_key(key).is_none_or(|(_, user_key)| user_key.len() < KEY_BYTES_MAX) {
        return [key, &[0]].concat();
    }
    after_prefix(key.to_vec())
}

/// The first encoded key after all keys of a keyspace.
pub fn keyspace_end(id: KeyspaceId) -> Vec<u8> {
    // The last byte of a prefix may be 0xFF for ids above 240. Then the carry moves to the byte before.
    after_prefix(encode_key(id, &[]))
}

/// The first byte string after all that start with this one.
fn after_prefix(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if last < 0xFF {
            prefix.push(last + 1);
            break;
        }
    }
    prefix
}

/// An encoded key for a lookup. Short keys are on the stack.
pub struct KeyBuf {
    inline: [u8; KeyBuf::INLINE],
    len: usize,
    heap: Vec<u8>,
}

impl KeyBuf {
    const INLINE: usize = 64;

    /// Encodes a user key.
    #[inline]
    pub fn new(id: KeyspaceId, user_key: &[u8]) -> Self {
        let (prefix, prefix_len) = prefix_bytes(id);
        let len = prefix_len + user_key.len();
        let mut inline = [0; Self::INLINE];
        if len <= Self::INLINE {
            inline[..prefix_len].copy_from_slice(&prefix[..prefix_len]);
            inline[prefix_len..len].copy_from_slice(user_key);
            return KeyBuf { inline, len, heap: Vec::new() };
        }
        KeyBuf { inline, len, heap: encode_key(id, user_key) }
    }
}

impl std::ops::Deref for KeyBuf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        if self.len <= Self::INLINE { &self.inline[..self.len] } else { &self.heap }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [u32; 13] =
        [0, 1, 2, 239, 240, 241, 255, 256, 65_535, 65_536, 0xFF_FFFF, 0x100_0000, u32::MAX];

    #[test]
    fn encoded_keys_order_like_id_and_key() {
        let keys: [&[u8]; 5] = [b"", b"\0", b"a", b"\xff", b"\xff\xff\xff\xff\xff"];
        let all: Vec<_> = IDS.iter().flat_map(|&id| keys.map(|k| (KeyspaceId::new(id), k))).collect();
        for a in &all {
            for b in &all {
                assert_eq!(encode_key(a.0, a.1).cmp(&encode_key(b.0, b.1)), a.cmp(b), "{a:?} {b:?}");
            }
            assert_eq!(decode_key(&encode_key(a.0, a.1)), Some(*a));
            assert_eq!(&KeyBuf::new(a.0, a.1)[..], encode_key(a.0, a.1));
            let end = keyspace_end(a.0);
            assert!(encode_key(a.0, a.1) < end, "{a:?}");
            for b in &all {
                assert_eq!(encode_key(b.0, b.1) < end, b.0 <= a.0, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn decode_refuses_what_encode_never_makes() {
        for bad in [&b""[..], b"\xf0", b"\xf5aaaaa", b"\xf1", b"\xf1\x01", b"\xf4\0\0\x01\0", b"\xff"] {
            assert_eq!(decode_key(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn heads_order_like_their_bytes() {
        assert!(head8(b"a") < head8(b"b") && head4(b"ab") < head4(b"b"));
        assert_eq!((head8(b"a"), head4(b"a")), (head8(b"a\0"), head4(b"a\0")));
        let long = vec![7; 200];
        assert_eq!(&KeyBuf::new(KeyspaceId::DEFAULT, &long)[1..], &long[..]);
    }
}
