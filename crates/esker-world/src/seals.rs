//! Watches what an encrypted disk is given to keep: no plain text, and no key stream twice.
//!
//! ```text
//!   MemFs --each write--> Seals --what repeats or can be read--> problem
//! ```
//!
//! - Within one use of a file (one salt), each offset has one byte, in all files of this salt: restarts and
//!   second attempts included. A nonce is a position in a file, so two plain texts under one key and nonce
//!   would differ somewhere. Zeros are space, not content. A copy seals nothing. It may differ, since it
//!   repeats what was read: a misread bit, or the noise that a power loss left where nothing refers to.
//! - No write has a byte for which the caller's test finds plain text. This includes writes that are
//!   overwritten, cut or removed later.
//! - Each file has a key header before anything else, a table at its end. Other files hold numbers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_env::{MemFs, Written};

/// The first bytes of a key header, up to the kind.
const MAGIC: &[u8] = b"eKEY\x01\x01";
/// Where the formats have their key header: record files; the log and blob files.
const HEADERS_AT: [usize; 2] = [20, 32];
const SALT_AT: usize = 16;
const SALT_BYTES: usize = 32;
/// Where the last salt of a key header ends.
const HEADERS_END: usize = HEADERS_AT[1] + SALT_AT + SALT_BYTES;
/// Bytes at the end of a table that contain its key header.
const TABLE_END_BYTES: usize = 160;
/// The header of a record of the log: the length of the payload at 8, the kind at the end.
const LOG_RECORD_HEADER_BYTES: usize = 24;
/// Files that hold numbers.
const NUMBERS: [&str; 6] = ["CURRENT", "ESKER-JOB", "KEYS", "LOCK", "REPAIRING", "spare"];

/// Begins the name of a file that is copied to a directory of backups: a table or another file.
const COPY: &str = "incoming-";
/// Ends the name of a directory in which copies are made.
const UNFINISHED: &str = ".esker-new";

type Salt = [u8; SALT_BYTES];

/// What was written to a disk.
pub struct Seals {
    state: Mutex<State>,
    is_plain: fn(&[u8]) -> bool,
}

#[derive(Default)]
struct State {
    /// The content of each use of a file; 0 where none is known.
    uses: HashMap<Salt, Vec<u8>>,
    problem: Option<String>,
}

impl Seals {
    /// Watches a disk, and the disks that kills and crashes make of it. `is_plain` finds plain text.
    pub fn watch(disk: &MemFs, is_plain: fn(&[u8]) -> bool) -> Arc<Seals> {
        let seals = Arc::new(Seals { state: Mutex::default(), is_plain });
        let own = seals.clone();
        disk.observe(Arc::new(move |written| {
            if let Err(text) = own.note(written) {
                let bytes = written.bytes.len();
                let (path, offset) = (written.path.display(), written.offset);
                let text = format!("{text}: {bytes} bytes at {offset} of {path}");
                own.state().problem.get_or_insert(text);
            }
        }));
        seals
    }

    /// Asserts that nothing was wrong so far. Returns the number of uses of files.
    pub fn assert_sound(&self) -> usize {
        let state = self.state();
        assert_eq!(state.problem, None);
        state.uses.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, written: &Written<'_>) -> Result<(), String> {
        let name = written.path.file_name().unwrap_or_default().to_string_lossy();
        if (self.is_plain)(written.bytes) {
            return Err("sealed bytes: plain text".to_owned());
        }
        if written.bytes.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        if is_end_of_log(written) {
            return Ok(());
        }
        let is_table = Path::new(&*name).extension() == Some("sst".as_ref()) || name.starts_with(COPY);
        match salt_of(&start_after(written)) {
            Some(salt) => self.put(written, salt, written.offset as usize, written.bytes),
            None if NUMBERS.iter().any(|known| name.contains(known)) => Ok(()),
            None if is_table => self.note_table(written),
            // A torn write of the header: nothing is sealed before its end.
            None if written.offset as usize + written.bytes.len() <= HEADERS_END => Ok(()),
            None => Err("sealed bytes: no key header".to_owned()),
        }
    }

    /// A table has its key header at the end, and no byte is written twice before.
    fn note_table(&self, written: &Written<'_>) -> Result<(), String> {
        let before = written.before(written.offset, written.bytes.len());
        if before.iter().zip(written.bytes).any(|(old, new)| *old != 0 && old != new) {
            return Err("sealed bytes: a part of a table is written again".to_owned());
        }
        let mut whole = written.before(0, written.offset as usize);
        whole.resize(written.offset as usize, 0);
        whole.extend_from_slice(written.bytes);
        let used = whole.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let from = used.saturating_sub(TABLE_END_BYTES);
        let found = whole[from..].windows(MAGIC.len()).position(|window| window == MAGIC);
        let salt = found.and_then(|at| salt_at(&whole, from + at));
        salt.map_or(Ok(()), |salt| self.put(written, salt, 0, &whole))
    }

    /// Adds what a write makes of a use of a file. What differs is a problem, unless it is a copy.
    fn put(&self, written: &Written<'_>, salt: Salt, offset: usize, bytes: &[u8]) -> Result<(), String> {
        let differs = self.state().put(salt, offset, bytes);
        differs
            .filter(|_| !is_copy(written.path))
            .map_or(Ok(()), |at| Err(format!("sealed bytes: offset {at} is written differently")))
    }
}

impl State {
    /// Adds bytes of a use of a file. Returns the first offset with another byte than before.
    fn put(&mut self, salt: Salt, offset: usize, bytes: &[u8]) -> Option<usize> {
        let image = self.uses.entry(salt).or_default();
        image.resize(image.len().max(offset + bytes.len()), 0);
        for (at, (known, new)) in image[offset..].iter_mut().zip(bytes).enumerate() {
            match (*known, *new) {
                (_, 0) => {}
                (0, new) => *known = new,
                (known, new) if known == new => {}
                _ => return Some(offset + at),
            }
        }
        None
    }
}

/// Returns whether a file is written as a copy of another: for a backup or a checkpoint.
fn is_copy(path: &Path) -> bool {
    let is_part = |name: &str| name.starts_with(COPY) || name.ends_with(UNFINISHED);
    path.components().any(|part| is_part(&part.as_os_str().to_string_lossy()))
}

/// Returns whether this is the record that ends a segment of the log, or a part of a record's header.
/// Recovery writes the end over a torn record, and may be interrupted. Neither has content, so neither has a
/// nonce.
fn is_end_of_log(written: &Written<'_>) -> bool {
    let (is_log, bytes) = (written.path.extension() == Some("wal".as_ref()), written.bytes);
    let is_end = || bytes.len() == LOG_RECORD_HEADER_BYTES && bytes[8..12] == [0; 4] && bytes[23] == 5;
    is_log && (bytes.len() < LOG_RECORD_HEADER_BYTES || is_end())
}

/// Returns the start of the file after the write.
fn start_after(written: &Written<'_>) -> Vec<u8> {
    let len = HEADERS_END;
    let mut start = written.before(0, len);
    if (written.offset as usize) < len {
        let end = len.min(written.offset as usize + written.bytes.len());
        start.resize(start.len().max(end), 0);
        start[written.offset as usize..end].copy_from_slice(&written.bytes[..end - written.offset as usize]);
    }
    start
}

fn salt_of(start: &[u8]) -> Option<Salt> {
    HEADERS_AT.into_iter().find_map(|at| salt_at(start, at))
}

/// Returns the salt in the key header at this offset.
fn salt_at(bytes: &[u8], at: usize) -> Option<Salt> {
    let header = bytes.get(at..)?;
    let salt = || header.get(SALT_AT..)?.first_chunk().copied();
    header.starts_with(MAGIC).then(salt)?
}

/// Returns whether bytes contain a key or a value of a world: `w/00` and three digits, `w/00` twice, or seven
/// equal bytes that are neither zeros nor digits. Random bytes have `w/00` once in 4 GiB.
pub fn has_plain_text(bytes: &[u8]) -> bool {
    let mut prefixes = 0;
    bytes.windows(7).filter(|window| !window[0].is_ascii_digit()).any(|window| {
        let has_prefix = window.starts_with(b"w/00");
        prefixes += usize::from(has_prefix);
        let is_key = has_prefix && (prefixes == 2 || window[4..].iter().all(u8::is_ascii_digit));
        is_key || window[0] != 0 && window.iter().all(|byte| *byte == window[0])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_found_and_chance_is_not() {
        for plain in [&b"..w/00123.."[..], b"..w/00\x01\x02\x03w/00\x04\x05\x06", b".xxxxxxx."] {
            assert!(has_plain_text(plain), "{plain:?}");
        }
        for other in [&b"..w/00\x01\x02\x03.."[..], b".xxxxxx.", b"\0\0\0\0\0\0\0\0", b"77777777"] {
            assert!(!has_plain_text(other), "{other:?}");
        }
    }
}
