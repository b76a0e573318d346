//! A file whose changed pages are in memory, above another file that is only read.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::File;

/// Bytes that are changed together.
const PAGE_BYTES: usize = 4096;

/// A file in memory, or above another one.
#[derive(Debug, Default)]
pub(super) struct LayeredFile {
    below: Option<Arc<dyn File>>,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    len: u64,
    /// Bytes of the file below that are part of this file.
    below_len: u64,
    /// Changed pages. Bytes in neither a page nor the file below are zero.
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl LayeredFile {
    /// Returns a file with the content of `below`.
    pub(super) fn over(below: Arc<dyn File>) -> io::Result<LayeredFile> {
        let len = below.len()?;
        let state = RwLock::new(State { len, below_len: len, pages: BTreeMap::new() });
        Ok(LayeredFile { below: Some(below), state })
    }

    /// Reads unchanged bytes.
    fn read_below(&self, state: &State, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let there = state.below_len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (from_below, zeros) = buf.split_at_mut(there);
        zeros.fill(0);
        match &self.below {
            Some(below) => below.read_exact_at(from_below, offset),
            None => Ok(()),
        }
    }
}

/// Number of the page with this offset, and the position in it.
fn place(offset: u64) -> (u64, usize) {
    (offset / PAGE_BYTES as u64, (offset % PAGE_BYTES as u64) as usize)
}

impl File for LayeredFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.read();
        let len = state.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let (number, within) = place(at);
            let left = len - done;
            let part = match state.pages.range(number..).next() {
                Some((&first, page)) if first == number => {
                    let part = left.min(PAGE_BYTES - within);
                    buf[done..done + part].copy_from_slice(&page[within..within + part]);
                    part
                }
                next => {
                    let until = next.map_or(u64::MAX, |(first, _)| first * PAGE_BYTES as u64);
                    let part = (until - at).min(left as u64) as usize;
                    self.read_below(&state, &mut buf[done..done + part], at)?;
                    part
                }
            };
            done += part;
        }
        Ok(len)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.write();
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (number, within) = place(at);
            let part = &buf[done..buf.len().min(done + PAGE_BYTES - within)];
            done += part.len();
            let begin = number * PAGE_BYTES as u64;
            if !state.pages.contains_key(&number) {
                // Files that are written ahead with zeros take no memory.
                if begin >= state.below_len && part.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let mut page = vec![0; PAGE_BYTES];
                self.read_below(&state, &mut page, begin)?;
                state.pages.insert(number, page.into());
            }
            let page = state.pages.get_mut(&number).expect("inserted above");
            page[within..within + part.len()].copy_from_slice(part);
        }
        state.len = state.len.max(offset + buf.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.read().len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.write();
        (state.len, state.below_len) = (len, state.below_len.min(len));
        let (number, within) = place(len);
        let mut beyond = state.pages.split_off(&number);
        if let Some(mut page) = beyond.remove(&number).filter(|_| within > 0) {
            page[within..].fill(0);
            state.pages.insert(number, page);
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut state = self.state.write();
        state.len = state.len.max(offset.saturating_add(len));
        Ok(())
    }

    fn drop_cache(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_direct(&self) -> bool {
        false
    }
}
