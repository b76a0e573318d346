//! An open file of the operating system.

use std::fs;
use std::io;

use super::sys;
use crate::{AlignedBuf, File, FileWindow};

/// An open file.
#[derive(Debug)]
pub(super) struct RealFile {
    pub(super) file: fs::File,
    /// Whether it was opened for direct I/O.
    pub(super) direct: bool,
}

impl RealFile {
    /// Returns whether a failed call may be repeated because the file was switched from direct to buffered.
    fn is_buffered_now(&self, error: &io::Error) -> bool {
        self.direct
            && error.kind() == io::ErrorKind::InvalidInput
            && sys::make_buffered(&self.file).unwrap_or(false)
    }
}

/// Writes all of `buf` by calls of `write` that may write less, in whole blocks if `in_blocks`.
pub(super) fn write_all_by(
    buf: &[u8],
    offset: u64,
    in_blocks: bool,
    mut write: impl FnMut(&[u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    // Whether the last call wrote less than its first block.
    let (mut done, mut is_stuck) = (0, false);
    while done < buf.len() {
        match write(&buf[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) if in_blocks && done + n < buf.len() => {
                let whole = (done + n) / AlignedBuf::ALIGN * AlignedBuf::ALIGN;
                if is_stuck && whole == done {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                (is_stuck, done) = (whole == done, whole);
            }
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match sys::read_at(&self.file, buf, offset) {
            Err(e) if self.is_buffered_now(&e) => sys::read_at(&self.file, buf, offset),
            read => read,
        }
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        write_all_by(buf, offset, self.direct, |bytes, at| match sys::write_at(&self.file, bytes, at) {
            Err(e) if self.is_buffered_now(&e) => sys::write_at(&self.file, bytes, at),
            written => written,
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        // std: fdatasync on Linux, F_FULLFSYNC on Apple's systems, FlushFileBuffers on Windows.
        self.file.sync_data()
    }

    fn window(&self, offset: u64, len: usize) -> Option<FileWindow> {
        if self.direct { None } else { FileWindow::new(&self.file, offset, len) }
    }

    fn start_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::start_writeback(&self.file, offset, len)
    }

    fn wait_for_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::wait_for_writeback(&self.file, offset, len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::allocate(&self.file, offset, len)
    }

    fn will_need(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::will_need(&self.file, offset, len)
    }

    fn drop_cache(&self, offset: u64, len: u64) -> io::Result<()> {
        sys::drop_cache(&self.file, offset, len)
    }

    fn is_direct(&self) -> bool {
        self.direct
    }

    fn exposed_mode(&self) -> io::Result<Option<u32>> {
        sys::exposed_mode(&self.file)
    }

    fn as_std(&self) -> Option<&fs::File> {
        Some(&self.file)
    }
}
