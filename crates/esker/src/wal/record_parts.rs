//! The payload of a record, in the parts in which a commit has it.

use crate::types::Result;

/// A payload in parts, and how much of it was taken.
#[derive(Clone)]
pub(super) struct Parts<'a> {
    pub(super) parts: &'a [&'a [u8]],
    /// Bytes of the first part that are taken.
    pub(super) skip: usize,
}

impl Parts<'_> {
    /// Gives the next `n` bytes to `each`, piece by piece.
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
