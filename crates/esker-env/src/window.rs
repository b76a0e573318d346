//! A part of a file as memory: what is stored there is with the operating system, without a call of it.
//!
//! ```text
//!   FileWindow::write: [written][ready: its pages are there, and dirty][not yet]
//!                               ^ a copy                               ^ one call of the system makes more of it ready
//! ```
//!
//! A store to a file's pages outlives the process as a write does, and a sync makes it durable as it does a write. Example
//! `costs` of the engine shows what a commit saves by that.
//!
//! env_window.1. A store cannot report an error: where the system cannot do its part it ends the process by a signal. So stores go only to pages that a
//!      call which can (`MADV_POPULATE_WRITE`, Linux 5.14) has made ready, which includes their place on the disk, on file systems that write in
//!      place. What is left: the page is cleaned between that call and the store, and the file system shuts down between the same two. Whoever
//!      syncs says so ([`FileWindow::renew`]).
//! env_window.2. A window has no more than the file: a store behind the end would be one into nothing. Whoever has a window cuts no file.
#![expect(unsafe_code, reason = "memory of a file")]
#![cfg_attr(not(any(unix, windows)), expect(dead_code, reason = "there are no real files"))]

use std::io;
use std::ptr::NonNull;

/// Made ready by one call: at most so much, and no more than was written since the last sync, so that a sync writes little that nobody wrote.
const READY_BYTES_MAX: usize = 64 << 10;
const PAGE_BYTES: usize = 4096;

/// See the module's text.
pub struct FileWindow {
    start: NonNull<u8>,
    len: usize,
    /// Of the file.
    offset: u64,
    /// Up to here its pages are ready.
    ready: usize,
    /// Where stores began after the last sync.
    since: Option<usize>,
}

// SAFETY: it owns its mapping; stores need `&mut`.
unsafe impl Send for FileWindow {}
// SAFETY: shared access reads no memory of the mapping.
unsafe impl Sync for FileWindow {}

impl FileWindow {
    /// The part of the file from the page of `offset` on, `len` bytes from there on; none where the system or the file system is not one for that
    /// (env_window.1).
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

    /// Whether these bytes of the file are in it.
    pub fn holds(&self, offset: u64, len: usize) -> bool {
        offset >= self.offset && offset + len as u64 <= self.offset + self.len as u64
    }

    /// Stores the bytes at this offset of the file, behind all that was stored before.
    ///
    /// # Errors
    /// The system cannot make the pages ready: nothing was stored.
    ///
    /// # Panics
    /// If the window does not hold them.
    pub fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        assert!(self.holds(offset, bytes.len()), "env_window.2");
        let at = (offset - self.offset) as usize;
        let end = at + bytes.len();
        if end > self.ready {
            let from = self.ready.max(at / PAGE_BYTES * PAGE_BYTES);
            let ahead = (end - *self.since.get_or_insert(at)).min(READY_BYTES_MAX);
            let to = (end + ahead).next_multiple_of(PAGE_BYTES).min(self.len);
            // SAFETY: the range is inside of the mapping, and starts at a page.
            unsafe { sys::make_ready(self.start.add(from), to - from)? };
            self.ready = to;
        }
        // SAFETY: `at..end` is inside of the mapping, which nobody has a reference to. Other processes and reads of the file see bytes, in any order.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
        Ok(())
    }

    /// The file was synced, which cleans its pages: they are made ready again before the next store.
    pub fn renew(&mut self) {
        (self.ready, self.since) = (0, None);
    }
}

impl Drop for FileWindow {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and in nobody's hands any more.
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

    /// ext2 to ext4, xfs, and memory.
    const IN_PLACE: [u64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

    #[expect(clippy::disallowed_types, reason = "beside the door that the rule is about")]
    pub(super) fn writes_in_place(file: &std::fs::File) -> bool {
        fstatfs(file).is_ok_and(|fs| IN_PLACE.contains(&(fs.f_type as u64)))
    }

    #[expect(clippy::disallowed_types, reason = "beside the door that the rule is about")]
    pub(super) fn map(file: &std::fs::File, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice touches nobody's memory.
        let mapped = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, offset) };
        NonNull::new(mapped.ok()?.cast())
    }

    /// # Safety
    /// The range is part of what `map` gave, and starts at a page.
    pub(super) unsafe fn make_ready(start: NonNull<u8>, len: usize) -> io::Result<()> {
        // SAFETY: the caller's promise; the content stays as it is.
        Ok(unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateWrite) }?)
    }

    /// # Safety
    /// `map` gave it with this length, and nobody uses it.
    pub(super) unsafe fn unmap(start: NonNull<u8>, len: usize) {
        // SAFETY: the caller's promise. A failure leaves address space in use, which nothing here could mend.
        let _ = unsafe { munmap(start.as_ptr().cast(), len) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod sys {
    //! No such pages: files are written by calls.

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
        assert!(file.window(40_960, 1).is_none(), "env_window.2");
    }
}
