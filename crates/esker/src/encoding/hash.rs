//! The hash of keys for filters and hash tables: 64-bit XXH3. Filters store it: it must never change.

/// Returns the hash of an encoded key.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

#[cfg(test)]
mod tests {
    #[test]
    fn golden() {
        assert_eq!(super::key_hash(b""), 0x2D06_8005_38D3_94C2);
    }
}
