//! A memory-mapped part of a file: stores reach the page cache without a system call.
//!
//! ```text
//!   FileWindow::write: [written][ready: pages are present and dirty][not yet]
//!                               ^ a copy                             ^ one call makes more ready
//! ```
//!
//! A store survives a crash of the process, like a write, and a sync makes it durable. The engine's example
//! `costs` shows what a commit saves.
//!
//! A store cannot report an error: if the system cannot provide the page, a signal ends the process. So
//! stores go only to pages that `MADV_POPULATE_WRITE` (Linux 5.14) prepared, including their space on disk,
//! on file systems that write in place. Pages that a sync cleaned must be prepared again
//! ([`FileWindow::renew`]).
//!
//! The window must lie inside the file, since a store after its end would be lost. While a window exists, its
//! file must not be truncated.
#![expect(unsafe_code, reason = "memory of a file")]
#![cfg_attr(not(any(unix, windows)), expect(dead_code, reason = "there are no real files"))]

use std::io;
use std::ptr::NonNull;

/// Maximum bytes prepared by one call. Never more than was written since the last sync, so that a sync writes
/// few unused pages.
const READY_BYTES_MAX: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;

/// A memory-mapped part of a file.
pub struct FileWindow {
    start: NonNull<u8>,
    len: usize,
    /// Offset of the window in the file.
    offset: u64,
    /// End of the prepared pages.
    ready: usize,
    /// Where stores began after the last sync.
    since: Option<usize>,
}

// SAFETY: it owns its mapping; stores need `&mut`.
unsafe impl Send for FileWindow {}
// SAFETY: shared access reads no memory of the mapping.
unsafe impl Sync for FileWindow {}

impl FileWindow {
    /// Maps `len` bytes from `offset`, rounded down to a page. Returns `None` if the system or the file
    /// system does not support this.
    #[expect(clippy::disallowed_types, reason = "beside the door that the rule is about")]
    pub(crate) fn new(file: &std::fs::File, offset: u64, len: usize) -> Option<Self> {
        let before = (offset % PAGE_BYTES as u64) as usize;
        let (offset, len) = (offset - before as u64, len + before);
        let is_inside = || file.metadata().is_ok_and(|meta| meta.len() >= offset + len as u64);
        if !sys::writes_in_place(file) || !is_inside() {
            return None;
        }
        let start = sys::map(file, offset, len)?;
        Some(FileWindow { start, len, offset, ready: 0, since: None })
    }

    /// Returns whether the window contains these bytes of the file.
    pub fn holds(&self, offset: u64, len: usize) -> bool {
        offset >= self.offset && offset + len as u64 <= self.offset + self.len as u64
    }

    /// Stores bytes at an offset of the file, after all earlier stores.
    ///
    /// # Errors
    /// The system cannot prepare the pages. Nothing was stored.
    ///
    /// # Panics
    /// If the window does not contain the range.
    pub fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        assert!(self.holds(offset, bytes.len()), "the store lies outside of the window");
        let at = (offset - self.offset) as usize;
        let end = at + bytes.len();
        if end > self.ready {
            let from = self.ready.max(at / PAGE_BYTES * PAGE_BYTES);
            let ahead = (end - *self.since.get_or_insert(at)).min(READY_BYTES_MAX);
            let to = (end + ahead).next_multiple_of(PAGE_BYTES).min(self.len);
            // SAFETY: the range is inside the mapping and starts at a page.
            unsafe { sys::make_ready(self.start.add(from), to - from)? };
            self.ready = to;
        }
        // SAFETY: `at..end` is inside the mapping, to which there are no references. Other processes and
        // reads of the file may see the bytes in any order.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
        Ok(())
    }

    /// Must be called after a sync of the file, which cleans its pages. They are prepared again before the
    /// next store.
    pub fn renew(&mut self) {
        (self.ready, self.since) = (0, None);
    }
}

impl Drop for FileWindow {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no longer used.
        unsafe { sys::unmap(self.start, self.len) };
    }
}

impl std::fmt::Debug for FileWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileWindow({}, {} bytes)", self.offset, self.len)
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod sys {
    //! Pages of files.

    use std::io;
    use std::ptr::{self, NonNull};

    use rustix::fs::fstatfs;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

    /// Magic numbers of ext2 to ext4, xfs and tmpfs.
    const IN_PLACE: [u64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

    #[expect(clippy::disallowed_types, reason = "beside the door that the rule is about")]
    pub(super) fn writes_in_place(file: &std::fs::File) -> bool {
        fstatfs(file).is_ok_and(|fs| IN_PLACE.contains(&(fs.f_type as u64)))
    }

    #[expect(clippy::disallowed_types, reason = "beside the door that the rule is about")]
    pub(super) fn map(file: &std::fs::File, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice overlaps no other memory.
        let mapped = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, offset) };
        NonNull::new(mapped.ok()?.cast())
    }

    /// # Safety
    /// The range is part of a mapping of `map` and starts at a page.
    pub(super) unsafe fn make_ready(start: NonNull<u8>, len: usize) -> io::Result<()> {
        // SAFETY: the caller's promise; the content stays as it is.
        Ok(unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateWrite) }?)
    }

    /// # Safety
    /// `map` returned it with this length, and nothing uses it.
    pub(super) unsafe fn unmap(start: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise. A failure leaks address space, which cannot be helped here.
        let _ = unsafe { munmap(start.as_ptr().cast(), len) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod sys {
    //! Without such pages: files are written by system calls.

    use std::io;
    use std::ptr::NonNull;

    #[expect(clippy::disallowed_types, reason = "beside the door that the rule is about")]
    pub(super) fn writes_in_place(_file: &std::fs::File) -> bool {
        false
    }

    #[expect(clippy::disallowed_types, reason = "beside the door that the rule is about")]
    pub(super) fn map(_file: &std::fs::File, _offset: u64, _len: usize) -> Option<NonNull<u8>> {
        None
    }

    /// # Safety
    /// Never called.
    pub(super) unsafe fn make_ready(_start: NonNull<u8>, _len: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// # Safety
    /// Never called.
    pub(super) unsafe fn unmap(_start: NonNull<u8>, _len: usize) {}
}

#[cfg(all(test, target_os = "linux", not(miri)))]
#[expect(clippy::disallowed_methods, reason = "real files")]
mod tests {
    use crate::{Fs, OpenOptions, RealFs};

    #[test]
    fn what_is_stored_is_in_the_file_and_nothing_else_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, [7; 40_000]).unwrap();
        let file = RealFs::new().open(&path, OpenOptions::write()).unwrap();
        let Some(mut window) = file.window(5000, 29_096) else { return };
        assert!(!window.holds(4095, 1) && window.holds(4096, 30_000) && !window.holds(4097, 30_000));
        let (mut expected, mut at) = (vec![7; 40_000], 5000);
        for n in 0..40_u8 {
            let bytes = vec![n; usize::from(n) * 30];
            window.write(&bytes, at as u64).unwrap();
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
            at += bytes.len();
            if n % 7 == 0 {
                file.sync_data().unwrap();
                window.renew();
            }
        }
        assert!(std::fs::read(&path).unwrap() == expected);
        assert!(file.window(40_960, 1).is_none());
    }
}
