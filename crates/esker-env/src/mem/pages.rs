//! The bytes of one file, in pages that copies share until one of them writes.
//!
//! There is exactly one slot for each page that the length covers. An empty slot is a page of zeros, and
//! bytes of the last page after the length are zero.

use std::sync::Arc;

const PAGE: usize = 4096;

/// File content. Cloning costs one reference count per page.
#[derive(Clone, Default)]
pub(super) struct Pages {
    slots: Vec<Option<Arc<[u8; PAGE]>>>,
    len: u64,
}

impl Pages {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Copies bytes from `offset` into `buf`. Returns their number.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let n = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (at, page, within) in pieces(offset, n) {
            let to = &mut buf[at..at + within.len()];
            match &self.slots[page] {
                Some(bytes) => to.copy_from_slice(&bytes[within]),
                None => to.fill(0),
            }
        }
        n
    }

    /// Writes `buf` at `offset`, growing the file as needed.
    pub(super) fn write(&mut self, buf: &[u8], offset: u64) {
        self.set_len(self.len.max(offset + buf.len() as u64));
        self.write_within(buf, offset);
    }

    /// Writes the part of `buf` that lies before the end of the file.
    pub(super) fn write_within(&mut self, buf: &[u8], offset: u64) {
        let n = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        for (at, page, within) in pieces(offset, n) {
            let slot = self.slots[page].get_or_insert_with(|| Arc::new([0; PAGE]));
            let from = &buf[at..at + within.len()];
            Arc::make_mut(slot)[within].copy_from_slice(from);
        }
    }

    /// Truncates or extends with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        let shrinks = len < self.len;
        self.len = len;
        self.slots.resize(len.div_ceil(PAGE as u64) as usize, None);
        let tail = (len % PAGE as u64) as usize;
        if shrinks
            && tail > 0
            && let Some(Some(last)) = self.slots.last_mut()
        {
            Arc::make_mut(last)[tail..].fill(0);
        }
    }

    /// Shares `other`'s pages in the range, which both files must cover.
    pub(super) fn share(&mut self, other: &Pages, offset: u64, len: usize) {
        for (_, page, _) in pieces(offset, len) {
            self.slots[page].clone_from(&other.slots[page]);
        }
    }
}

/// Splits a range into pages: position in the range, page number, part of the page.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let position = offset + at as u64;
        let start = (position % PAGE as u64) as usize;
        let n = (PAGE - start).min(len - at);
        let piece = (at, (position / PAGE as u64) as usize, start..start + n);
        at += n;
        (n > 0).then_some(piece)
    })
}
