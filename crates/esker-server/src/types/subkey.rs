//! Keys of the parts of collections, and scores as ordered bytes.

/// Prefix of the keys of all parts of a collection. Versions are unique, so a renamed key keeps its parts.
pub(super) fn parts_prefix(version: u64) -> [u8; 8] {
    version.to_be_bytes()
}

/// Key of an expiry entry: sorted by time.
pub(super) fn ttl_key(expires: u64, key: &[u8]) -> Vec<u8> {
    [&expires.to_be_bytes(), key].concat()
}

/// The inverse of `ttl_key`.
pub(super) fn split_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, key) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), key))
}

/// The version of what belongs to no collection: in `r<n>.s`, the hashes whose fields expire.
pub(super) const NO_VERSION: u64 = 0;

/// Key of the entry of a hash whose fields expire: sorted by the first deadline.
pub(super) fn due_key(first: u64, key: &[u8]) -> Vec<u8> {
    [&NO_VERSION.to_be_bytes(), &first.to_be_bytes(), key].concat()
}

/// The inverse of `due_key`.
pub(super) fn split_due(bytes: &[u8]) -> Option<(u64, &[u8])> {
    split_number(bytes).filter(|(version, _)| *version == NO_VERSION).and_then(|(_, rest)| split_number(rest))
}

/// First byte of the record of a field's deadline, and of its entry in the order of deadlines.
pub(super) const BY_FIELD: u8 = 0;
pub(super) const BY_DEADLINE: u8 = 1;

/// Key of the record of a field's deadline.
pub(super) fn field_key(version: u64, field: &[u8]) -> Vec<u8> {
    [&parts_prefix(version)[..], &[BY_FIELD], field].concat()
}

/// Key of the entry of a field in the order of deadlines.
pub(super) fn deadline_key(version: u64, deadline: u64, field: &[u8]) -> Vec<u8> {
    [&parts_prefix(version)[..], &[BY_DEADLINE], &deadline.to_be_bytes(), field].concat()
}

/// A score as bytes in the order of scores.
pub fn ordered_score(score: f64) -> [u8; 8] {
    // -0 and 0 are equal.
    let bits = (score + 0.0).to_bits();
    let is_negative = bits >> 63 == 1;
    (if is_negative { !bits } else { bits | 1 << 63 }).to_be_bytes()
}

/// The inverse of `ordered_score`.
pub fn score_of(bytes: [u8; 8]) -> f64 {
    let bits = u64::from_be_bytes(bytes);
    f64::from_bits(if bits >> 63 == 1 { bits & !(1 << 63) } else { !bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_in_the_order_of_their_bytes() {
        let scores =
            [f64::NEG_INFINITY, -1e300, -1.5, -1.0, -1e-300, 0.0, 1e-300, 1.0, 1.5, 1e300, f64::INFINITY];
        let bytes = scores.map(ordered_score);
        assert!(bytes.is_sorted() && bytes.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(bytes.map(score_of), scores);
        assert_eq!(ordered_score(-0.0), ordered_score(0.0));
    }

    #[test]
    fn golden_keys() {
        assert_eq!(parts_prefix(258), *b"\0\0\0\0\0\0\x01\x02");
        assert_eq!(ttl_key(1, b"k"), b"\0\0\0\0\0\0\0\x01k");
        assert_eq!(split_number(&ttl_key(9, b"k")), Some((9, &b"k"[..])));
        assert_eq!(split_number(b"short"), None);
    }

    #[test]
    fn golden_keys_of_deadlines() {
        assert_eq!(due_key(1, b"k"), b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01k");
        assert_eq!(split_due(&due_key(9, b"k")), Some((9, &b"k"[..])));
        assert_eq!(split_due(&deadline_key(1, 9, b"f")), None);
        assert_eq!(field_key(258, b"f"), b"\0\0\0\0\0\0\x01\x02\0f");
        assert_eq!(deadline_key(2, 3, b"f"), b"\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0\0\x03f");
    }
}
