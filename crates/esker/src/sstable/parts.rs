//! Reads the footer of a table and the parts that it names.

use std::ops::Range;
use std::path::Path;

use esker_env::{Env, File, OpenOptions, PageBuf, read_range, read_range_into};

use super::block::Block;
use super::footer::{FOOTER_BYTES, FORMAT_VERSION, Footer};
use super::stored::PartOpener;
use crate::encoding::bytes::{DecodeError, Decoded};
use crate::encryption::{FileKind, Seal};
use crate::types::parts::{Part, timed};
use crate::types::{Error, Result, SeqNo};

/// Returns the newest commit recorded in a table file. `None` if the table is unfinished, damaged or missing.
/// Fails if it has a newer format or cannot be read.
pub(crate) fn stated_newest_commit(env: &Env, path: &Path) -> Result<Option<SeqNo>> {
    let stated = || {
        let file = env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
        let file_bytes = file.len().map_err(|e| Error::io("measure", path, e))?;
        Ok(read_footer(env, (&*file, path), file_bytes)?.0.newest_commit)
    };
    match stated() {
        Ok(newest) => Ok(Some(newest)),
        Err(Error::Corrupt { .. }) => Ok(None),
        // A reader of an earlier, closed handle has just removed the file.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the footer of a table. Returns also what opens its parts.
pub(super) fn read_footer(
    env: &Env,
    (file, path): (&dyn File, &Path),
    file_bytes: u64,
) -> Result<(Footer, PartOpener)> {
    let Some(offset) = file_bytes.checked_sub(FOOTER_BYTES as u64) else {
        return Err(Error::corrupt(
            "footer",
            path,
            0,
            format!("a file of {file_bytes} bytes is too short for a table"),
        ));
    };
    let bytes = read_stored(file, path, offset..file_bytes)?;
    let bytes = bytes[..].try_into().expect("the footer's length was asked for");
    let footer = Footer::decode(&bytes, file_bytes).map_err(|e| match e.unread() {
        Err(e) => e.in_file("footer", path, offset),
        Ok((what, found)) => {
            Error::UnsupportedVersion { what, path: path.to_owned(), found, supported: FORMAT_VERSION }
        }
    })?;
    let header_at = footer.properties.end;
    let header = footer.is_sealed.then(|| read_stored(file, path, header_at..offset)).transpose()?;
    let seal = Seal::find(env, (path, header_at), FileKind::Table, header.as_deref(), &bytes)?;
    let opener = PartOpener { salt: footer.salt, seal };
    Ok((footer, opener))
}

/// Parses the payload of a block. Errors in a compressed block are reported at its start.
pub(super) fn parse_block(payload: Decoded<PageBuf>, packed: bool) -> Decoded<Block> {
    let in_file = |error: DecodeError| if packed { DecodeError { offset: 0, ..error } } else { error };
    Block::parse(payload?).map_err(in_file)
}

/// Reads the parts of a table other than its blocks.
pub(super) struct Parts<'a> {
    pub(super) file: &'a dyn File,
    pub(super) path: &'a Path,
    pub(super) opener: &'a PartOpener,
}

impl Parts<'_> {
    /// Reads, verifies and decodes a part.
    pub(super) fn read<T>(
        &self,
        what: &'static str,
        extent: &Range<u64>,
        decode: impl FnOnce(&[u8]) -> Decoded<T>,
    ) -> Result<T> {
        let stored = read_stored(self.file, self.path, extent.clone())?;
        let decoded = self.opener.open(&stored, extent.start).and_then(|payload| decode(&payload));
        decoded.map_err(|e| e.in_file(what, self.path, extent.start))
    }
}

/// Returns a check that a file ends with these bytes.
pub(super) fn has_end(path: &Path, start: u64, end: Vec<u8>) -> impl Fn(&dyn File) -> Result<()> + use<> {
    let path = path.to_owned();
    move |file| {
        let len = file.len().map_err(|e| Error::io("measure", &path, e))?;
        let is_as_long = len == start + end.len() as u64;
        let found = read_range(file, start, if is_as_long { end.len() } else { 0 });
        if found.map_err(|e| Error::read(&path, start, end.len(), &e))? != end {
            let detail = "the open file was replaced by another one: restore a backup or run `esker repair`";
            return Err(Error::corrupt("table", &path, start, detail));
        }
        Ok(())
    }
}

/// Reads the stored form of a part or block.
pub(super) fn read_stored(file: &dyn File, path: &Path, extent: Range<u64>) -> Result<PageBuf> {
    let Ok(len) = usize::try_from(extent.end - extent.start) else {
        return Err(Error::corrupt("table", path, extent.start, "a part exceeds the address space"));
    };
    let mut bytes = PageBuf::new(len);
    timed(Part::TableRead, || read_range_into(file, extent.start, &mut bytes)).map_err(|e| {
        match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::corrupt("table", path, extent.start, "the file ends inside this part")
            }
            _ => Error::read(path, extent.start, len, &e),
        }
    })?;
    Ok(bytes)
}
