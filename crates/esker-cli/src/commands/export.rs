//! `esker export`: writes entries to a file, in a format that `import` reads back exactly.
//!
//! ```text
//!   snapshot --rows--> RowWriter --> Target: standard output, a file, a pipe, a device
//! ```
//!
//! All rows come from one snapshot. If the format cannot represent expiry times, the export says how many
//! rows expire. Keyspace options are not exported; `esker unload` includes them.

#[cfg(feature = "server")]
mod redis;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::SystemTime;

use esker::env::Env;
use serde_json::json;

use crate::Answer;
use crate::args::{Export, FileFormat, YesNo};
use crate::bounds::Bounds;
use crate::database::{Database, Session};
use crate::expiry::{Expiries, Expiry};
use crate::failure::{Failure, Result};
use crate::formats::{self, RowWriter, WriteOptions};
use crate::output;
use crate::progress::Progress;
use crate::target::{Partial, Special, Target};
use crate::text::shown;

/// Bytes buffered before each write to a file.
const BUFFER_BYTES: usize = 256 << 10;
/// Rows between two updates of the progress bar.
const ROWS_PER_TICK: u64 = 1_024;

pub(super) fn run(session: &Session<'_>, export: &Export) -> Result<Answer> {
    #[cfg(feature = "server")]
    if let Some(answer) = redis::run(session, export)? {
        return Ok(answer);
    }
    let is_standard = formats::is_standard(&export.file);
    if let Some(compressor) = formats::compressor(&export.file) {
        return Err(Failure::message(format!(
            "export does not compress; use `esker export --format FORMAT | {compressor} > {}`",
            shown(export.file.display())
        )));
    }
    // On standard output the rows are the answer, so --json selects their format.
    let format = match export.format {
        None if session.common.json && is_standard => FileFormat::Jsonl,
        asked => formats::choose(asked, &export.file)?,
    };
    if session.common.has_several() && format != FileFormat::Jsonl {
        return Err(Failure::message(
            "only JSON lines can name several keyspaces: use JSON lines (--format jsonl), or give -k once",
        ));
    }
    let bounds = export.range.bounds(&session.common)?;
    let options = WriteOptions {
        form: session.common.bytes,
        header: export.header.map(|header| header == YesNo::Yes),
        delimiter: export.delimiter,
    };
    // A target that cannot be written is refused before reading rows.
    let target = Target::look(&export.file)?;
    let database = session.open_to_read()?;
    let write = |output: Box<dyn Write + '_>| {
        let mut writer = formats::writer(format, output, options)?;
        write_rows(session, &database, &bounds, format, &mut *writer)
    };
    let ((rows, seconds), bytes) = match target {
        Target::Standard => {
            write(Box::new(output::stdout()))?;
            return Ok(Answer::Yes);
        }
        Target::Special(path) => {
            let mut special = Special::open(&path)?;
            let written = write(Box::new(BufWriter::with_capacity(BUFFER_BYTES, &mut special)))?;
            (written, special.complete()?)
        }
        Target::Regular(path, existing) => {
            refuse_in_database(&path)?;
            let mut partial = Partial::create(&path, existing.as_ref(), database.db.path())?;
            let written = write(Box::new(BufWriter::with_capacity(BUFFER_BYTES, &mut partial)))?;
            (written, partial.complete()?)
        }
    };
    if session.common.json {
        output::print_json(&json!({ "rows": rows, "bytes": bytes, "seconds": seconds }))?;
    } else {
        let (rows, bytes) = (output::plural(rows, "row"), output::size(bytes));
        output::print_line(format_args!("exported {rows}, {bytes}, in {seconds:.2} s"))?;
    }
    Ok(Answer::Yes)
}

/// Refuses a file in the directory of any database (cli_target.2).
fn refuse_in_database(path: &Path) -> Result<()> {
    let found = std::path::absolute(path).map_err(|e| Failure::file("find", path, &e))?;
    esker::refuse_in_database(&Env::real(), &found).map_err(|e| Failure::message(shown(e)))
}

/// Writes the rows. Returns their number and the seconds it took.
fn write_rows(
    session: &Session<'_>,
    database: &Database,
    bounds: &Bounds,
    format: FileFormat,
    writer: &mut dyn RowWriter,
) -> Result<(u64, f64)> {
    let failure = |error| database.failure(error);
    let keyspaces = database.keyspaces(&session.common)?;
    let mut total = if bounds.is_all() { Some(0) } else { None };
    for (_, keyspace) in &keyspaces {
        if let Some(total) = &mut total {
            *total += database.count(keyspace, bounds)?;
        }
    }
    let progress = Progress::rows(total);
    let snapshot = database.db.snapshot();
    let expiries = Expiries::of(&snapshot, &database.db);
    let (mut rows, mut lost) = (0, 0);
    let mut count = || {
        rows += 1;
        if rows % ROWS_PER_TICK == 0 {
            progress.set(rows, String::new);
        }
    };
    for ((name, keyspace), range) in keyspaces.iter().zip(std::iter::repeat_with(|| bounds.range())) {
        let Some(range) = range else { break };
        if session.common.has_several() {
            writer.begin_keyspace(name);
        }
        if format == FileFormat::Words {
            for key in snapshot.keys(keyspace, range) {
                let key = key.map_err(failure)?;
                match expiries.get(keyspace, &key).map_err(failure)? {
                    Expiry::Never => {}
                    Expiry::At(_) => lost += 1,
                    Expiry::Passed => continue,
                }
                writer.write(&key, b"")?;
                count();
            }
        } else {
            for entry in snapshot.range(keyspace, range) {
                let (key, value) = entry.map_err(failure)?;
                match expiries.get(keyspace, &key).map_err(failure)? {
                    Expiry::Never => writer.write(&key, &value)?,
                    Expiry::Passed => continue,
                    Expiry::At(end) => {
                        // Expiry times before 1970 do not exist.
                        let since = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                        let is_kept = writer.write_expiring(&key, &value, since.as_millis() as u64)?;
                        lost += u64::from(!is_kept);
                    }
                }
                count();
            }
        }
    }
    writer.finish()?;
    if lost > 0 {
        progress.note(&format!(
            "{} of the rows expire, which this format cannot represent; JSON lines can (--format jsonl)",
            output::count(lost)
        ));
    }
    Ok((rows, progress.finish().as_secs_f64()))
}
