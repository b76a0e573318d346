//! 128-bit XXH3 digests of whole files. Backups store them: the algorithm must never change.
//!
//! They detect accidental damage, not deliberate forgery.

use xxhash_rust::xxh3::Xxh3;

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 16;

/// Digest of all bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; DIGEST_BYTES]);

/// Computes a digest of bytes passed in pieces.
#[derive(Default)]
pub struct Digester(Xxh3);

impl Digester {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all bytes added.
    pub fn finish(&self) -> Digest {
        Digest(self.0.digest128().to_be_bytes())
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let mut digester = Digester::default();
        assert_eq!(digester.finish().to_string(), "99aa06d3014798d86001c324468d497f");
        digester.add(b"esker");
        let whole = digester.finish();
        let mut pieces = Digester::default();
        pieces.add(b"es");
        pieces.add(b"ker");
        assert_eq!(pieces.finish(), whole);
    }
}
