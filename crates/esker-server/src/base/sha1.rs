//! SHA-1, by which scripts are known. Not for secrets. FIPS 180-4.

/// Blocks of a piece: 64 KiB.
const PIECE_BLOCKS: usize = 1024;

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
    let mut state = [0x6745_2301u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for piece in blocks.chunks(PIECE_BLOCKS) {
        step()?;
        piece.iter().for_each(|block| take(&mut state, block));
    }
    // What is left, a one, zeros, and the length in bits.
    let mut padded = rest.to_vec();
    padded.push(0x80);
    let len = (padded.len() + 8).next_multiple_of(64);
    padded.resize(len - 8, 0);
    padded.extend_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    padded.chunks_exact(64).for_each(|block| take(&mut state, block));
    Ok(state.iter().map(|word| format!("{word:08x}")).collect())
}

fn take(state: &mut [u32; 5], block: &[u8]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for at in 16..80 {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (at, word) in words.iter().enumerate() {
        let (mixed, constant) = match at / 20 {
            0 => (b & c | !b & d, 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6u32),
        };
        let next =
            a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (sum, part) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(part);
    }
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
        // All lengths of what is left over.
        let lens = [55, 56, 63, 64, 119, 120];
        let digests = lens.map(|len| hex(&vec![b'a'; len])[..8].to_owned());
        assert_eq!(digests, ["c1c8bbdc", "c2db330f", "03f09f5b", "0098ba82", "ee971065", "f34c1488"]);
        assert_eq!(hex(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
