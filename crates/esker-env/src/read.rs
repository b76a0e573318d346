//! Reads arbitrary ranges of buffered and direct files. Direct files require aligned offsets, lengths and
//! buffers.
//!
//! ```text
//!   offset, len --> aligned window around them --File::read_at--> AlignedBuf --copy--> the caller's bytes
//! ```

use std::io;

use crate::{AlignedBuf, File};

/// Reads `len` bytes at `offset`. Fails with `UnexpectedEof` if the file ends before.
///
/// Allocates `len` bytes before reading, so the caller must have checked a length that came from disk.
pub fn read_range(file: &dyn File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    read_range_into(file, offset, &mut bytes)?;
    Ok(bytes)
}

/// Fills `bytes` from `offset`, like [`read_range`].
pub fn read_range_into(file: &dyn File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    if !file.is_direct() {
        return file.read_exact_at(bytes, offset);
    }
    let start = offset / AlignedBuf::ALIGN as u64 * AlignedBuf::ALIGN as u64;
    let lead = (offset - start) as usize;
    let end = lead.checked_add(bytes.len()).ok_or(io::ErrorKind::InvalidInput)?;
    let mut window = AlignedBuf::zeroed(end);
    let mut have = 0;
    while have < end {
        match file.read_at(&mut window[have..], start + have as u64) {
            Ok(n) if have + n >= end => break,
            // A direct read ends inside a block only at the end of the file.
            Ok(n) if n == 0 || n % AlignedBuf::ALIGN != 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.copy_from_slice(&window[lead..end]);
    Ok(())
}
