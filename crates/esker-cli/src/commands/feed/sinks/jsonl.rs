//! Changes as lines of a file, or on standard output.
//!
//! ```text
//!   FILE --as large as `rotate`--> FILE.HISTORY-COMMIT, the last commit in it; then a new FILE
//! ```
//!
//! feed_jsonl.1. A confirmed change is on the disk.
//! feed_jsonl.2. Lines are whole: what a kill left of a last line is removed before more is written.
//! - A file that exists before the first run is refused. No file is replaced.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::super::change::{Batch, Position};
use super::super::source::{Tried, Trouble};
use super::{FeedSink, Settings};
use crate::failure::{Failure, Result};
use crate::output;
use crate::target::sync_directory_of;
use crate::text::shown;

/// Bytes read at a time from the end of a file, to find the end of its last line.
const TAIL: u64 = 64 << 10;

/// Standard output. It confirms what its reader can read.
pub(super) struct Standard;

impl FeedSink for Standard {
    fn deliver(&mut self, batch: &Batch) -> Tried<()> {
        let mut out = output::stdout();
        let written = out.write_all(&batch.lines()).and_then(|()| out.flush());
        written.map_err(|error| Trouble::Stop(error.into()))
    }
}

/// A file.
pub(super) struct File {
    path: PathBuf,
    /// `None` until there is something to write.
    open: Option<Open>,
    rotate: Option<u64>,
}

struct Open {
    file: fs::File,
    /// Bytes of confirmed lines.
    len: u64,
    /// The commit of the last confirmed line, if it was written by this process.
    last: Option<Position>,
}

impl File {
    pub(super) fn open(path: &Path, mut settings: Settings, is_resumed: bool) -> Result<Self> {
        let rotate = settings.take_bytes("rotate")?;
        settings.finish("jsonl", "rotate=BYTES")?;
        let name = || shown(path.display());
        let open = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::file("look at", path, &error)),
            Ok(meta) if !meta.is_file() => {
                return Err(Failure::message(format!("{} is no regular file", name())));
            }
            Ok(_) if !is_resumed => {
                return Err(Failure::message(format!(
                    "{} exists, but no position of it: move it away, or name the file of its position with --position",
                    name()
                )));
            }
            Ok(_) => Some(Open::existing(path)?),
        };
        Ok(File { path: path.to_owned(), open, rotate })
    }

    /// Renames a file that is large enough. The next batch begins a new one.
    fn rotate(&mut self) -> Tried<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let (Some(limit), Some(last)) = (self.rotate, &open.last) else { return Ok(()) };
        if open.len < limit {
            return Ok(());
        }
        let name = |n: u32| {
            let mut name = OsString::from(&self.path);
            let again = if n == 0 { String::new() } else { format!(".{n}") };
            name.push(format!(".{}-{:020}{again}", last.history, last.commit));
            PathBuf::from(name)
        };
        // Lines that a killed run had delivered may come again, and end a file with the same commit.
        let to = (0..).map(name).find(|name| fs::symlink_metadata(name).is_err()).expect("there are names");
        let failed = |error| Trouble::Retry(Failure::file("rename to", &to, &error).to_string());
        fs::rename(&self.path, &to).map_err(failed)?;
        self.open = None;
        sync_directory_of(&self.path).map_err(Trouble::Stop)
    }
}

impl Open {
    fn existing(path: &Path) -> Result<Self> {
        let failed = |error| Failure::file("open", path, &error);
        let mut file = fs::File::options().read(true).write(true).open(path).map_err(failed)?;
        let (len, end) = end_of_lines(&mut file).map_err(failed)?;
        // feed_jsonl.2
        if end < len {
            file.set_len(end).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        file.seek(SeekFrom::Start(end)).map_err(failed)?;
        Ok(Open { file, len: end, last: None })
    }

    fn create(path: &Path) -> Result<Self> {
        let mut options = fs::File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|error| Failure::file("create", path, &error))?;
        sync_directory_of(path)?;
        Ok(Open { file, len: 0, last: None })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.write_all(lines)?;
        // feed_jsonl.1
        self.file.sync_data()
    }
}

/// Returns the size of a file, and the end of its last whole line.
fn end_of_lines(file: &mut fs::File) -> io::Result<(u64, u64)> {
    let len = file.seek(SeekFrom::End(0))?;
    let mut end = len;
    while end > 0 {
        let start = end.saturating_sub(TAIL);
        let mut tail = vec![0; (end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut tail)?;
        if let Some(at) = tail.iter().rposition(|byte| *byte == b'\n') {
            return Ok((len, start + at as u64 + 1));
        }
        end = start;
    }
    Ok((len, 0))
}

impl FeedSink for File {
    fn deliver(&mut self, batch: &Batch) -> Tried<()> {
        self.rotate()?;
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                self.open.insert(Open::create(&self.path).map_err(|error| Trouble::Retry(error.to_string()))?)
            }
        };
        let lines = batch.lines();
        if let Err(error) = open.write(&lines) {
            let failure = Failure::file("write", &self.path, &error);
            // What did not arrive as a whole is removed, so that a repetition continues after whole lines.
            let restored =
                open.file.set_len(open.len).and_then(|()| open.file.seek(SeekFrom::Start(open.len)));
            return Err(match restored {
                Ok(_) if error.kind() == io::ErrorKind::StorageFull => Trouble::Retry(failure.to_string()),
                _ => Trouble::Stop(failure),
            });
        }
        open.len += lines.len() as u64;
        open.last = batch.changes.last().map(|change| change.at.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_jsonl_2_the_end_of_the_last_line_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let long = [b"a\n".as_slice(), &vec![b'x'; 3 * TAIL as usize]].concat();
        let cases: [(&[u8], usize); 5] = [(b"", 0), (b"a", 0), (b"a\n", 2), (b"a\nb", 2), (&long, 2)];
        for (content, end) in cases {
            fs::write(&path, content).unwrap();
            let open = Open::existing(&path).unwrap();
            assert_eq!((open.len, fs::metadata(&path).unwrap().len()), (end as u64, end as u64));
        }
    }
}
