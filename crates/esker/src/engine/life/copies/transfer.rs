//! Transfers one file of a copy: by a link or by copying, durable either way.
//!
//! - If linking failed, a link that may still exist is removed before the copy is written. Writing through it
//!   would change the original.
//! - A copy has the stated length, or an error names the file.

use std::path::Path;

use esker_env::{Env, OpenOptions, read_range_into};

use super::capture::CapturedFile;
use crate::types::{Error, Result};

/// Bytes copied at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Gives a file that no longer changes a second name. Returns false if the file system cannot, or not between
/// these paths.
pub(crate) fn link(env: &Env, file: &CapturedFile, to: &Path) -> Result<bool> {
    if !file.is_final {
        return Ok(false);
    }
    if env.fs.hard_link(&file.path, to).is_ok() {
        return Ok(true);
    }
    match env.fs.remove_file(to) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", to, e)),
        _ => Ok(false),
    }
}

/// Copies the first `len` bytes of a file to a new one, durably. Passes each piece to `each`.
pub(crate) fn copy(
    (from_env, from): (&Env, &Path),
    (to_env, to): (&Env, &Path),
    len: u64,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let target = to_env.fs.open(to, OpenOptions::create_new()).map_err(|e| Error::io("create", to, e))?;
    let mut at = 0;
    read((from_env, from), len, |piece| {
        each(piece)?;
        target.write_all_at(piece, at).map_err(|e| Error::io("write", to, e))?;
        // A hint. The sync reports errors.
        let _ = target.start_writeback(at, piece.len() as u64);
        at += piece.len() as u64;
        Ok(())
    })?;
    target.sync_data().map_err(|e| Error::io("sync", to, e))
}

/// Passes the first `len` bytes of a file to `each`, piece by piece.
pub(crate) fn read(
    (env, from): (&Env, &Path),
    len: u64,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let source = env.fs.open(from, OpenOptions::read()).map_err(|e| Error::io("open", from, e))?;
    let mut buffer = vec![0; PIECE_BYTES.min(usize::try_from(len).unwrap_or(PIECE_BYTES))];
    let mut at = 0;
    while at < len {
        let piece = &mut buffer[..(len - at).min(PIECE_BYTES as u64) as usize];
        read_range_into(&*source, at, piece).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::corrupt("file", from, at, format!("it ends before its {len} bytes do"))
            }
            _ => Error::io("read", from, e),
        })?;
        each(piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}
