//! An open file in memory: each call is one operation on its inode.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::inode::Inode;
use super::names::InodeRef;
use super::observer::Written;
use super::{BrokenSync, LEN_MAX, Shared};
use crate::{AlignedBuf, File};

/// Maximum size of a read of a plain file system.
const PLAIN_READ_BYTES_MAX: usize = 1_000;

pub(super) struct MemFile {
    pub(super) shared: Arc<Shared>,
    pub(super) inode: InodeRef,
    /// The name under which it was opened, if there is an observer.
    pub(super) path: Option<Box<Path>>,
    pub(super) writable: bool,
    pub(super) direct: bool,
}

impl std::fmt::Debug for MemFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemFile").field("writable", &self.writable).field("direct", &self.direct).finish()
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        let mut inode = self.inode.lock();
        inode.handles -= 1;
        self.shared.release_if_unreachable(&inode);
    }
}

impl MemFile {
    fn check_aligned(&self, buf: &[u8], offset: u64) {
        if self.direct {
            let aligned = |n: u64| n.is_multiple_of(AlignedBuf::ALIGN as u64);
            assert!(
                aligned(offset) && aligned(buf.len() as u64) && aligned(buf.as_ptr().addr() as u64),
                "direct I/O of {} bytes at offset {offset} from address {:p}",
                buf.len(),
                buf.as_ptr()
            );
        }
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    /// Runs `work` on the inode, as one operation.
    fn with<R>(&self, work: impl FnOnce(&mut Inode) -> R) -> R {
        let _state = self.shared.state.read();
        work(&mut self.inode.lock())
    }

    fn write(&self, inode: &mut Inode, bytes: &[u8], offset: u64) {
        if let (Some(observer), Some(path)) = (self.shared.observer.get(), &self.path) {
            observer(&Written { path, offset, bytes, current: inode.current() });
        }
        inode.write(bytes, offset);
    }

    fn change<R>(&self, work: impl FnOnce(&mut Inode) -> io::Result<R>) -> io::Result<R> {
        self.check_writable()?;
        self.shared.count_op();
        self.with(work)
    }
}

impl File for MemFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.check_aligned(buf, offset);
        let is_short = self.shared.plain.load(Ordering::Relaxed) && !self.direct;
        let len = if is_short { buf.len().min(PLAIN_READ_BYTES_MAX) } else { buf.len() };
        Ok(self.with(|inode| inode.current().read(&mut buf[..len], offset)))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_aligned(buf, offset);
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= LEN_MAX);
        let end = end.ok_or(io::ErrorKind::FileTooLarge)?;
        self.change(|inode| {
            if buf.is_empty() {
                return Ok(());
            }
            let old = inode.current().len();
            let fits = if end > old { self.shared.reserve(old, end) } else { end };
            if fits == end {
                self.write(inode, buf, offset);
                return Ok(());
            }
            // The disk is full: write the part that fits, in whole blocks if the file is direct.
            let mut part = fits.saturating_sub(offset);
            if self.direct {
                part -= part % AlignedBuf::ALIGN as u64;
            }
            if part > 0 {
                self.write(inode, &buf[..part as usize], offset);
            }
            self.shared.release(fits - inode.current().len());
            self.shared.refuse()
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.shared.count_op();
        if !self.shared.is_broken(BrokenSync::Data) {
            self.with(Inode::sync);
        }
        Ok(())
    }

    fn forget_unsynced(&self) {
        self.shared.count_op();
        self.with(Inode::forget_unsynced);
    }

    fn start_writeback(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|inode| inode.current().len()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|inode| self.shared.set_len(inode, len))
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.shared.plain.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let end = offset.checked_add(len).ok_or(io::ErrorKind::FileTooLarge)?;
        self.change(
            |inode| {
                if end > inode.current().len() { self.shared.set_len(inode, end) } else { Ok(()) }
            },
        )
    }

    fn drop_cache(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_direct(&self) -> bool {
        self.direct
    }
}
