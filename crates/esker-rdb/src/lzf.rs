//! Decompresses LZF: literals, and copies from at most 8 KiB back.

/// Returns the `len` bytes that `packed` stands for, or `None` if it stands for others.
pub(crate) fn decompress(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    // A byte stands for at most 88 bytes: three bytes for 264.
    if len > packed.len().saturating_mul(88) {
        return None;
    }
    let mut out = Vec::with_capacity(len);
    let mut rest = packed.iter().copied();
    while let Some(control) = rest.next() {
        let control = usize::from(control);
        if control < 32 {
            let before = out.len();
            out.extend(rest.by_ref().take(control + 1));
            (out.len() - before == control + 1).then_some(())?;
        } else {
            let mut count = control >> 5;
            if count == 7 {
                count += usize::from(rest.next()?);
            }
            let back = ((control & 31) << 8 | usize::from(rest.next()?)) + 1;
            let from = out.len().checked_sub(back)?;
            for at in from..from + count + 2 {
                out.push(out[at]);
            }
        }
        (out.len() <= len).then_some(())?;
    }
    (out.len() == len).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::decompress;

    #[test]
    fn copies_may_overlap_and_damage_is_refused() {
        // "ab", then 10 bytes from 2 back.
        let packed = [1, b'a', b'b', 0xe0, 1, 1];
        assert_eq!(decompress(&packed, 12).as_deref(), Some(&b"abababababab"[..]));
        for (packed, len) in
            [(&packed[..], 11), (&packed[..], 13), (&packed[..5], 12), (&[0x20, 5], 3), (&[2, 0], 3)]
        {
            assert_eq!(decompress(packed, len), None, "{packed:?}");
        }
        assert_eq!(decompress(&[0, 1], usize::MAX), None);
    }
}
