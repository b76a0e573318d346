//! A record's payload as a list of slices.

use crate::types::Result;

/// The part of a payload that has not been taken yet.
#[derive(Clone)]
pub(super) struct Parts<'a> {
    pub(super) parts: &'a [&'a [u8]],
    /// Bytes of the first slice that have been taken.
    pub(super) skip: usize,
}

impl Parts<'_> {
    /// Takes the next `n` bytes and passes them to `each`, slice by slice.
    pub(super) fn take(&mut self, mut n: usize, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while n > 0 {
            let (first, rest) = self.parts.split_first().expect("the length is the sum of the parts");
            let piece = &first[self.skip..];
            if piece.len() > n {
                each(&piece[..n])?;
                self.skip += n;
                return Ok(());
            }
            each(piece)?;
            n -= piece.len();
            (self.parts, self.skip) = (rest, 0);
        }
        Ok(())
    }
}
