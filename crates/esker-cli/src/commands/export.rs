//! `esker export`: write entries to a file, in a form that `import` reads back exactly.
//!
//! ```text
//!   snapshot --rows--> RowWriter --> FILE.partial --complete, synced--> FILE
//! ```
//!
//! E1. All rows are of one moment. A file appears under its name only when it is complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::Answer;
use crate::args::{Args, Export, FileFormat, YesNo};
use crate::bounds::Bounds;
use crate::database::Database;
use crate::failure::{Failure, Result};
use crate::formats::{self, RowWriter, WriteOptions};
use crate::output;
use crate::progress::Progress;

/// The progress bar moves after so many rows.
const ROWS_PER_TICK: u64 = 1_024;

pub(super) fn run(args: &Args, export: &Export) -> Result<Answer> {
    let format = formats::choose(export.format, &export.file)?;
    let bounds = export.range.bounds(args)?;
    let options = WriteOptions { form: args.bytes, header: export.header.map(|header| header == YesNo::Yes) };
    let database = Database::open(args)?;
    if formats::is_standard(&export.file) {
        let mut writer = formats::writer(format, Box::new(output::stdout()), options)?;
        write_rows(args, &database, &bounds, format, &mut *writer)?;
        return Ok(Answer::Yes);
    }
    let partial = Partial::create(&export.file)?;
    let output = Box::new(BufWriter::with_capacity(256 << 10, &partial.output));
    let mut writer = formats::writer(format, output, options)?;
    let (rows, seconds) = write_rows(args, &database, &bounds, format, &mut *writer)?;
    drop(writer);
    let bytes = partial.complete(&export.file)?;
    if args.json {
        output::print_json(&json!({ "rows": rows, "bytes": bytes, "seconds": seconds }))?;
    } else {
        let (rows, bytes) = (output::count(rows), output::size(bytes));
        output::print_line(format_args!("exported {rows} rows, {bytes}, in {seconds:.2} s"))?;
    }
    Ok(Answer::Yes)
}

/// Writes the rows; their number, and the seconds it took.
fn write_rows(
    args: &Args,
    database: &Database,
    bounds: &Bounds,
    format: FileFormat,
    writer: &mut dyn RowWriter,
) -> Result<(u64, f64)> {
    let keyspace = database.keyspace(args)?;
    let total = if bounds.is_all() { Some(keyspace.len().map_err(|e| database.failure(e))?) } else { None };
    let progress = Progress::rows(total);
    let mut rows = 0;
    let mut count = || {
        rows += 1;
        if rows % ROWS_PER_TICK == 0 {
            progress.set(rows, String::new);
        }
    };
    if let Some(range) = bounds.range() {
        if format == FileFormat::Words {
            for key in keyspace.range(range).keys() {
                writer.write(&key.map_err(|e| database.failure(e))?, b"")?;
                count();
            }
        } else {
            for entry in keyspace.range(range) {
                let (key, value) = entry.map_err(|e| database.failure(e))?;
                writer.write(&key, &value)?;
                count();
            }
        }
    }
    writer.finish()?;
    Ok((rows, progress.finish().as_secs_f64()))
}

/// A file that is not complete yet; removed if it never is.
struct Partial {
    path: PathBuf,
    output: File,
}

impl Partial {
    fn create(target: &Path) -> Result<Self> {
        let mut name = OsString::from(target);
        name.push(".partial");
        let path = PathBuf::from(name);
        let output = File::create(&path).map_err(|e| Failure::file("create", &path, &e))?;
        Ok(Partial { path, output })
    }

    /// Gives the file its name; its size in bytes.
    fn complete(self, target: &Path) -> Result<u64> {
        (&self.output).flush().map_err(|e| Failure::file("write", &self.path, &e))?;
        self.output.sync_all().map_err(|e| Failure::file("sync", &self.path, &e))?;
        let bytes = self.output.metadata().map_err(|e| Failure::file("read", &self.path, &e))?.len();
        fs::rename(&self.path, target).map_err(|e| Failure::file("rename to", target, &e))?;
        Ok(bytes)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After `complete` there is nothing of this name; after a failure the name of the failure matters more.
        let _leftover = fs::remove_file(&self.path);
    }
}
