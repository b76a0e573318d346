//! A window of a table's file that a walk reads at once, instead of one block at a time.
//!
//! ```text
//!   blocks of a walk:   1st: read alone | 2nd: a window of 16 KiB | then 32 KiB | then 64 KiB each
//!   a jump:             begins with one block again
//! ```
//!
//! - A block of a window is verified when the walk reaches it. Damage that the walk does not reach is no
//!   error, and after a failed read of a window the block is read alone.
//! - Windows are reserved memory. Those of all walks together take at most a 16th of the budget; beyond it,
//!   walks read single blocks.

use std::ops::Range;

use esker_env::PageBuf;

use super::caches::BlockIndex;
use crate::cache::{Guard, Reservation};
use crate::types::Result;

const WINDOW_BYTES_MIN: u64 = 16 << 10;
const WINDOW_BYTES_MAX: u64 = 64 << 10;
/// A walk that has read more than this in sequence is a scan of much data, rather than a range that may be
/// read again soon.
const LONG_BYTES: u64 = 1 << 20;

/// The window of a walk, and how the walk moves.
pub(crate) struct WalkWindow {
    /// Whether blocks that are read are cached.
    pub(super) fills_cache: bool,
    /// Address of the table and number of the block that the walk entered last. The walk keeps its tables
    /// alive, so an address identifies one.
    last: Option<(usize, usize)>,
    is_backward: bool,
    /// Bytes of the next window. Zero after a jump.
    next_bytes: u64,
    /// Bytes of all windows since the last jump.
    read_bytes: u64,
    window: Option<Box<Window>>,
}

struct Window {
    table: usize,
    extent: Range<u64>,
    stored: PageBuf,
    _memory: Reservation,
}

impl WalkWindow {
    pub(crate) fn new(fills_cache: bool) -> Self {
        WalkWindow { fills_cache, last: None, is_backward: false, next_bytes: 0, read_bytes: 0, window: None }
    }

    /// Notes that the walk enters a block of a table, which has `blocks` of them.
    #[inline]
    pub(super) fn enter(&mut self, table: usize, blocks: usize, number: usize) {
        let entered = (table, number);
        let Some(last) = self.last.replace(entered).filter(|last| *last != entered) else { return };
        let is_same_table = last.0 == entered.0;
        let is_backward = if is_same_table { number < last.1 } else { number > 0 };
        let is_adjacent = match is_same_table {
            true => number.abs_diff(last.1) == 1,
            false => number == 0 || number + 1 == blocks,
        };
        if is_adjacent && (self.next_bytes == 0 || is_backward == self.is_backward) {
            self.next_bytes = self.next_bytes.max(WINDOW_BYTES_MIN);
        } else {
            (self.next_bytes, self.read_bytes, self.window) = (0, 0, None);
        }
        self.is_backward = is_backward;
    }

    /// Returns whether much was read in sequence.
    pub(super) fn is_long(&self) -> bool {
        self.read_bytes > LONG_BYTES
    }

    /// Returns the stored form of a block, if it is in the window.
    pub(super) fn stored(&self, table: usize, extent: &Range<u64>) -> Option<&[u8]> {
        let window = self.window.as_ref().filter(|window| {
            window.table == table && window.extent.start <= extent.start && extent.end <= window.extent.end
        })?;
        let start = (extent.start - window.extent.start) as usize;
        Some(&window.stored[start..start + (extent.end - extent.start) as usize])
    }

    /// Reads a window of a table that begins with a block, or ends with it if the walk moves backward. Does
    /// nothing unless the walk has entered adjacent blocks.
    pub(super) fn read(
        &mut self,
        table: usize,
        index: &BlockIndex,
        number: usize,
        pin: &Guard,
        read_extent: impl FnOnce(Range<u64>) -> Result<PageBuf>,
    ) {
        self.window = None;
        let bytes = self.next_bytes;
        self.next_bytes = (2 * bytes).min(WINDOW_BYTES_MAX);
        let extent = self.extent(index, number, bytes.min(index.blocks.window_bytes_max()), pin);
        if extent == index.extent(number) {
            return;
        }
        let memory = index.blocks.reserve_window(extent.end - extent.start);
        let Ok(stored) = read_extent(extent.clone()) else { return };
        self.read_bytes += extent.end - extent.start;
        self.window = Some(Box::new(Window { table, extent, stored, _memory: memory }));
    }

    /// Returns the extent of a window of at most `bytes`, or of a single larger block. Its blocks are in one
    /// page of the index, and the block at its other end is not cached.
    fn extent(&self, index: &BlockIndex, number: usize, bytes: u64, pin: &Guard) -> Range<u64> {
        let first = index.extent(number);
        let mut found = first.clone();
        let numbers = index.range();
        let mut widen = |other: usize| {
            let extent = index.extent(other);
            let all = found.start.min(extent.start).min(first.start)..found.end.max(extent.end);
            let fits = all.end - all.start <= bytes;
            if fits && index.peek(other, pin).is_none() {
                found = all;
            }
            fits
        };
        if self.is_backward {
            (numbers.start..number).rev().all(&mut widen);
        } else {
            (number + 1..numbers.end).all(&mut widen);
        }
        found
    }
}
