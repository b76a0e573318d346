//! Small durable writes with direct I/O: one call writes the blocks that hold the new records and makes them
//! durable.
//!
//! ```text
//!   durable bytes of the first block | new records | zeros --one call--> the segment's blocks
//! ```
//!
//! A write followed by a sync flushes the device's cache. A direct write of blocks that were written before
//! need not, if the device can make single writes durable: 41 to 56 us instead of 66 to 87
//! (docs/design-decisions.md).
//!
//! wal_direct.1. Direct I/O is used only if all written bytes of the segment are durable and all its blocks
//!     have been written before. So the call changes neither the file's length nor its block map.
//! wal_direct.2. Once a segment was written through the page cache, it is never written with direct I/O.
//!
//! The durable bytes of the first block are written again from memory, because a read could return damaged
//! bytes. A torn write therefore loses no durable record.

use std::path::Path;
use std::sync::Arc;

use esker_env::{AlignedBuf, Env, File, OpenOptions};

use crate::types::{Error, Result};

const BLOCK: u64 = AlignedBuf::ALIGN as u64;
/// Larger writes go through the page cache.
const BYTES_MAX: usize = 64 << 10;

/// Writes the end of one segment with direct I/O.
pub(super) struct DirectTail {
    file: Arc<dyn File>,
    /// The next blocks to write; the first one starts with durable bytes, up to `synced`.
    blocks: AlignedBuf,
    synced: u64,
}

impl std::fmt::Debug for DirectTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectTail({})", self.synced)
    }
}

impl DirectTail {
    /// Opens a segment that contains only its header; `None` if direct I/O is not available.
    pub(super) fn open(env: &Env, path: &Path, header: &[u8]) -> Option<DirectTail> {
        let file = env.fs.open(path, OpenOptions::write().direct()).ok().filter(|file| file.is_direct())?;
        let mut blocks = AlignedBuf::zeroed(BYTES_MAX);
        blocks[..header.len()].copy_from_slice(header);
        Some(DirectTail { file, blocks, synced: header.len() as u64 })
    }

    /// Returns whether `bytes` more can be written to a segment of `segment_bytes`.
    pub(super) fn takes(&self, bytes: usize, segment_bytes: u64) -> bool {
        let end = self.synced + bytes as u64;
        (self.synced % BLOCK) as usize + bytes <= BYTES_MAX && end.next_multiple_of(BLOCK) <= segment_bytes
    }

    /// Writes `bytes` after the durable end and makes them durable.
    pub(super) fn write(&mut self, bytes: &[u8], path: &Path) -> Result<()> {
        let begun = (self.synced % BLOCK) as usize;
        let end = begun + bytes.len();
        let padded = end.next_multiple_of(BLOCK as usize);
        self.blocks[begun..end].copy_from_slice(bytes);
        self.blocks[end..padded].fill(0);
        let written = self.file.write_durably_at(&self.blocks[..padded], self.synced - begun as u64);
        written.map_err(|e| Error::io("write", path, e))?;
        self.synced += bytes.len() as u64;
        let last = end / BLOCK as usize * BLOCK as usize;
        self.blocks.copy_within(last..end, 0);
        Ok(())
    }
}
