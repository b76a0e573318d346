//! `esker import`: reads entries from a file.
//!
//! ```text
//!   file --count bytes--> gunzip --> RowReader --rows--> batch --full--> commit     (--sorted: one ingest)
//!              `-> progress bar       `-bad line--> stop, or report and go on
//! ```
//!
//! The input is opened before the database, so that a mistyped name creates nothing. A last line without a
//! line end is imported with a note: many programs write such files, but it may also be a cut line. A
//! keyspace created by an import that fails before its first commit is dropped. The database directory is
//! never removed, because another process may have opened or filled it.
//!
//! - A batch is committed atomically. Nothing after a bad line is in the database unless bad lines are
//!   skipped.
//! - However an import ends, it closes the database and reports how many rows are in it, and also a failure
//!   to close. If commits did not wait for the disk and the import fails, it says that the last of them may
//!   be lost.

mod destination;
#[cfg(feature = "server")]
mod redis;

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use serde_json::json;

use self::destination::{Destination, Refusal};
use crate::Answer;
use crate::args::{Durability, Import, YesNo};
use crate::database::{Session, directory};
use crate::failure::{Failure, Result};
use crate::formats::{self, ReadOptions, Row, RowReader, Step};
use crate::output;
use crate::progress::Progress;
use crate::text::shown;

/// Number of bad lines printed; further ones are only counted.
const BAD_LINES_PRINTED: u64 = 20;
/// Appended if the log or closing failed and commits did not wait for the disk.
const LAST_UNKNOWN: &str = "; how many of the last ones are on disk is not known";
/// Note about a last line without a line end.
const UNENDED: &str = "the last line has no end: the input may have been cut in the middle of it";
/// Bytes read at a time.
const BUFFER_BYTES: usize = 256 << 10;
/// Rows between two updates of the progress bar.
const ROWS_PER_TICK: u64 = 1_024;

pub(super) fn run(session: &Session<'_>, import: &Import) -> Result<Answer> {
    #[cfg(feature = "server")]
    if let Some(answer) = redis::run(session, import)? {
        return Ok(answer);
    }
    rows(session, import)
}

fn rows(session: &Session<'_>, import: &Import) -> Result<Answer> {
    let keyspace_name = session.common.keyspace()?;
    if import.format.is_none() {
        formats::check_compression(&import.file)?;
    }
    let format = formats::choose(import.format, &import.file)?;
    let read = Rc::new(Cell::new(0));
    let (input, total) = open(&import.file, &read)?;
    let options = ReadOptions {
        form: session.common.bytes,
        key: import.key.clone(),
        value: import.value.clone(),
        header: import.header.map(|header| header == YesNo::Yes),
        delimiter: import.delimiter,
    };
    let mut reader = formats::reader(format, input, &options)
        .map_err(|failure| Failure::message(format!("{}: {failure}", shown(name(&import.file).display()))))?;
    let was_there = is_there(&directory(session.opening)?);
    let database = session.open_or_create()?;
    let progress = Progress::bytes(total);
    if let Some(names) = reader.assumed_names() {
        progress.note(&format!(
            "{}:1: taken as a header, not as a row: {}; use --header to say which it is",
            shown(name(&import.file).display()),
            shown(names)
        ));
    }
    let is_new = !database.has_keyspace(keyspace_name);
    let (mut rows, mut new_keys) = (0, 0);
    let ended = database.keyspace_or_create(keyspace_name).and_then(|keyspace| {
        let len = || keyspace.len().map_err(|e| database.failure(e));
        let before = len()?;
        let is_asked = session.common.names_keyspace();
        let mut into = Destination::new(&database, import, (keyspace_name, &keyspace), is_asked);
        let ended = read_rows(import, &mut *reader, &mut into, &progress, &read);
        rows = into.committed();
        if ended.is_err() && is_new && rows == 0 {
            // The reason for the failed import matters more than a failed cleanup.
            let _leftover = database.db.drop_keyspace(keyspace_name);
            return ended;
        }
        if ended.is_ok() {
            new_keys = len()?.saturating_sub(before) + into.other_new_keys()?;
        }
        ended
    });
    let closed = database.close();
    let seconds = progress.finish().as_secs_f64();
    // Commits that did not wait for the disk are durable once closing succeeded.
    let is_known = closed.is_ok() || session.opening.durability == Durability::Sync;
    match (ended, closed) {
        (Ok(bad), Ok(())) => report(session, rows, new_keys, bad, seconds),
        (Err(failure), Ok(())) if !was_there && rows == 0 => Err(Failure::message(format!(
            "{}\n  the import has created the database in {}, which is empty: import again, or remove the directory",
            stopped(&failure, rows, is_known),
            shown(directory(session.opening)?.display())
        ))),
        (Err(failure), Ok(())) => Err(stopped(&failure, rows, is_known)),
        (Err(failure), Err(close)) => Err(Failure::message(format!(
            "{}\n  closing the database: {close}",
            stopped(&failure, rows, is_known)
        ))),
        (Ok(_), Err(close)) => Err(Failure::message(format!(
            "closing the database: {close}\n  all {} rows had been committed{}",
            output::count(rows),
            if is_known { "" } else { LAST_UNKNOWN },
        ))),
    }
}

/// Imports all rows. Returns the number of bad lines.
fn read_rows(
    import: &Import,
    reader: &mut dyn RowReader,
    into: &mut Destination<'_>,
    progress: &Progress,
    read: &Cell<u64>,
) -> Result<u64> {
    let file = name(&import.file);
    let mut bad = 0;
    let mut row = Row::default();
    loop {
        let step = reader.read(&mut row).map_err(|e| Failure::file("read", file, &e))?;
        let problem = match step {
            Step::Row => into.add(reader.keyspace(), &row)?,
            Step::Bad(reason) => Some(Refusal::Bad(reason)),
            Step::End => break,
        };
        let place = || format!("{}:{}", shown(file.display()), reader.line());
        if let Some(Refusal::Unsorted(reason)) = &problem {
            return Err(Failure::message(format!(
                "{}: {}\n  sort the file by key (`LC_ALL=C sort` for lines that begin with the key), or omit --sorted",
                place(),
                shown(reason)
            )));
        }
        if let Some(Refusal::Bad(reason)) = problem {
            let line = format!("{}: {}", place(), shown(reason));
            if !import.skip_bad {
                return Err(Failure::message(format!(
                    "{line}\n  correct the line and import again, or skip bad lines with --skip-bad"
                )));
            }
            bad += 1;
            match bad {
                ..=BAD_LINES_PRINTED => progress.note(&format!("{line}; skipped")),
                n if n == BAD_LINES_PRINTED + 1 => progress.note("further bad lines are not printed"),
                _ => {}
            }
        }
        if into.rows().is_multiple_of(ROWS_PER_TICK) {
            progress.set(read.get(), || format!("{} rows", output::count(into.rows())));
        }
    }
    into.commit()?;
    if reader.is_unended() {
        progress.note(&format!("{}:{}: {UNENDED}; it was imported", shown(file.display()), reader.line()));
    }
    Ok(bad)
}

/// Describes why an import stopped and which rows are in the database. Importing the file again is
/// safe.
fn stopped(failure: &Failure, rows: u64, is_known: bool) -> Failure {
    let rows = output::plural(rows, "row");
    Failure::message(if is_known {
        format!("{failure}\n  import stopped; {rows} of earlier batches are in the database")
    } else {
        format!("{failure}\n  import stopped; {rows} had been committed{LAST_UNKNOWN}")
    })
}

fn report(session: &Session<'_>, rows: u64, new_keys: u64, bad: u64, seconds: f64) -> Result<Answer> {
    let rows_per_s = (rows as f64 / seconds.max(1e-9)) as u64;
    if session.common.json {
        output::print_json(&json!({
            "rows": rows, "new_keys": new_keys, "bad_lines": bad, "seconds": seconds, "rows_per_s": rows_per_s,
        }))?;
        return Ok(Answer::Yes);
    }
    let skipped =
        if bad > 0 { format!(", {} skipped", output::plural(bad, "bad line")) } else { String::new() };
    let (rows, rows_per_s) = (output::plural(rows, "row"), output::count(rows_per_s));
    let new_keys = output::plural(new_keys, "new key");
    output::print_line(format_args!(
        "imported {rows}, {new_keys}, in {seconds:.2} s, {rows_per_s} rows/s{skipped}"
    ))?;
    Ok(Answer::Yes)
}

/// Opens the input, counting the bytes read. Returns its size if known.
fn open(file: &Path, read: &Rc<Cell<u64>>) -> Result<(Box<dyn BufRead>, Option<u64>)> {
    let buffered = |input: Box<dyn Read>| -> Box<dyn BufRead> {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, Counted { input, read: read.clone() }))
    };
    if formats::is_standard(file) {
        return Ok((buffered(Box::new(io::stdin())), None));
    }
    let input = File::open(file).map_err(|e| Failure::file("open", file, &e))?;
    let meta = input.metadata().map_err(|e| Failure::file("open", file, &e))?;
    if meta.is_dir() {
        return Err(Failure::message(format!(
            "{} is a directory: import takes a file",
            shown(file.display())
        )));
    }
    let total = meta.is_file().then_some(meta.len());
    let input = buffered(Box::new(input));
    if formats::is_compressed(file) {
        return Ok((Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input))), total));
    }
    Ok((input, total))
}

/// Returns whether the directory of the database contains anything.
fn is_there(directory: &Path) -> bool {
    directory.read_dir().is_ok_and(|mut entries| entries.next().is_some())
}

fn name(file: &Path) -> &Path {
    if formats::is_standard(file) { Path::new("standard input") } else { file }
}

struct Counted {
    input: Box<dyn Read>,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(buffer)?;
        self.read.set(self.read.get() + length as u64);
        Ok(length)
    }
}
