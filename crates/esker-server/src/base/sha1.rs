//! SHA-1, by which scripts are known. Not for secrets.

use sha1::{Digest, Sha1};

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// The digest of some bytes, in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let Ok(digest) = hex_by_pieces::<std::convert::Infallible>(bytes, || Ok(()));
    digest
}

/// The same of bytes that may be many.
///
/// # Errors
/// Those of `step`, which is called before each piece.
pub fn hex_by_pieces<E>(bytes: &[u8], mut step: impl FnMut() -> Result<(), E>) -> Result<String, E> {
    let mut hasher = Sha1::new();
    for piece in bytes.chunks(PIECE_BYTES) {
        step()?;
        hasher.update(piece);
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard() {
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(long), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        let (mut steps, long) = (0, vec![b'a'; 1 << 20]);
        let step = || {
            steps += 1;
            if steps < 5 { Ok(()) } else { Err("ended") }
        };
        assert_eq!((hex_by_pieces(&long, step), steps), (Err("ended"), 5));
        assert_eq!(hex(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
