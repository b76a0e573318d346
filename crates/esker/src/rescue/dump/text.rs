//! Dumps the small text files, and record files of users.

use std::path::Path;

use esker_env::{OpenOptions, read_range};

use super::Output;
use crate::engine::base::options;
use crate::manifest::file_name::{CURRENT, OPTIONS};
use crate::manifest::log::read_current;
use crate::recordio::{self, Tail};
use crate::types::{Error, Result};

/// Longer texts are cut. No text file of the engine is longer.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// Dumps the lines of `CURRENT`, `OPTIONS`, `LOCK` and `REPAIRING`, and reports checksum mismatches.
pub(super) fn dump(out: &mut Output<'_>, path: &Path) -> Result<()> {
    let file = out.env.fs.open(path, OpenOptions::read()).map_err(|e| Error::io("open", path, e))?;
    let len = file.len().map_err(|e| Error::io("measure", path, e))?.min(TEXT_BYTES_MAX);
    let bytes = read_range(&*file, 0, len as usize).map_err(|e| Error::io("read", path, e))?;
    let mut offset = 0;
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        out.item(offset, "line", vec![("text", text.into())]);
        offset += line.len() as u64;
    }
    // A temporary file after a crash may hold anything.
    match path.file_name() {
        Some(name) if name == CURRENT => {
            read_current(out.env, path.parent().unwrap_or(Path::new(""))).map(drop)
        }
        Some(name) if name == OPTIONS && !options::is_whole(&bytes) => {
            Err(Error::corrupt("OPTIONS", path, 0, "it does not end in the checksum of its text"))
        }
        _ => Ok(()),
    }
}

/// Dumps the records of a record file.
pub(super) fn dump_records(out: &mut Output<'_>, path: &Path) -> Result<()> {
    let mut reader = recordio::Reader::options().env(out.env).salvage().open(path)?;
    if let Some(error) = reader.header_damage() {
        out.damage(&error);
    }
    let mut end = reader.position();
    loop {
        let skipped = reader.skipped_bytes();
        let record = reader.next()?.map(<[u8]>::to_vec);
        let skipped = reader.skipped_bytes() - skipped;
        // Also after the last record: bytes may have valid checksums without being a record.
        if skipped > 0 {
            out.damage(&reader.skipped_damage("record", end, skipped));
        }
        end = reader.position();
        let Some(record) = record else { break };
        let content = if out.entries { vec![("content", record.as_slice().into())] } else { Vec::new() };
        let fields = [vec![("bytes", (record.len() as u64).into())], content].concat();
        out.item(reader.record_offset(), "record", fields);
    }
    tail(out, end, reader.tail());
    Ok(())
}

/// Dumps the bytes after the last record.
pub(super) fn tail(out: &mut Output<'_>, end: u64, tail: Option<Tail>) {
    match tail {
        Some(Tail::Torn { offset, bytes }) => out.item(offset, "torn tail", vec![("bytes", bytes.into())]),
        Some(Tail::Zeros { offset, bytes }) => out.item(offset, "zeros", vec![("bytes", bytes.into())]),
        Some(Tail::Clean) | None => out.item(end, "end", Vec::new()),
    }
}
