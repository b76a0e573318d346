//! Small syncs of the log past the page cache: the blocks that the records end in are written, durably, by one call.
//!
//! ```text
//!   what is durable of the first block | records not written yet | zeros --one call--> the segment's blocks
//! ```
//!
//! A write and a sync of the page cache empty the device's cache; a direct write of blocks that were written before need not, where the device can
//! make single writes durable: 41 to 56 us instead of 66 to 87 (docs/design-decisions.md).
//!
//! wal_direct.1. Only where nothing of the segment is with the system and not durable, and all its blocks were written before: the call changes
//!      no length and no map of blocks.
//! wal_direct.2. A segment that anything was written to through the page cache stays with that.
//! wal_direct.3. What is durable of the first block is written again as it is, from memory: what a read gives might be damaged. So a torn write
//!      takes no record that was durable before.

use std::path::Path;
use std::sync::Arc;

use esker_env::{AlignedBuf, Env, File, OpenOptions};

use crate::types::{Error, Result};

const BLOCK: u64 = AlignedBuf::ALIGN as u64;
/// More is written through the page cache.
const BYTES_MAX: usize = 64 << 10;

/// The way past the page cache of one segment.
pub(super) struct DirectTail {
    file: Arc<dyn File>,
    /// The blocks that are written next; the first one holds what is durable, up to `synced`.
    blocks: AlignedBuf,
    synced: u64,
}

impl std::fmt::Debug for DirectTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirectTail({})", self.synced)
    }
}

impl DirectTail {
    /// For a segment that has its header alone; none where there is no direct I/O.
    pub(super) fn open(env: &Env, path: &Path, header: &[u8]) -> Option<DirectTail> {
        let file = env.fs.open(path, OpenOptions::write().direct()).ok().filter(|file| file.is_direct())?;
        let mut blocks = AlignedBuf::zeroed(BYTES_MAX);
        blocks[..header.len()].copy_from_slice(header);
        Some(DirectTail { file, blocks, synced: header.len() as u64 })
    }

    /// Whether so many bytes more can be written, in a segment of this size.
    pub(super) fn takes(&self, bytes: usize, segment_bytes: u64) -> bool {
        let end = self.synced + bytes as u64;
        (self.synced % BLOCK) as usize + bytes <= BYTES_MAX && end.next_multiple_of(BLOCK) <= segment_bytes
    }

    /// Writes bytes behind what is durable, durably.
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
