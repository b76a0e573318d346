//! Reads and writes files of rows: TSV, CSV, JSON and word lists.
//!
//! ```text
//!   file --input--> text --RowReader--> Row or bad line --> import
//!   export, scan --> key, value --RowWriter--> file
//! ```
//!
//! formats.1. A reader restores exactly the bytes that its writer wrote. What a format cannot represent is an
//!     error. Only JSON lines represent rows of several keyspaces.
//!
//! - A bad line is reported with its number and a reason, and reading continues after it.

mod compressed;
mod csv;
mod elements;
mod input;
mod jsonl;
mod lines;
#[cfg(test)]
mod tests;
mod tsv;
mod words;

use std::convert::Infallible;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::str::FromStr;

use esker::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use self::compressed::Compression;
use self::lines::Lines;
use crate::args::FileFormat;
use crate::failure::{Failure, Result};
use crate::text::{ByteForm, shown};

pub(crate) use self::jsonl::JsonlWriter;
pub(crate) use self::tsv::TsvWriter;
pub(crate) use self::words::WordsWriter;

/// Limit of the bytes of a row outside its key and value: separators, names, other columns.
const AROUND_BYTES_MAX: u64 = 1 << 20;

/// A key and its value. Reused from row to row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
    /// When the row expires, in milliseconds since 1970, if the format represents that.
    pub(crate) expires_ms: Option<u64>,
}

/// The result of reading a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The row was filled.
    Row,
    /// The line is bad, for this reason.
    Bad(String),
    /// The end of the file.
    End,
}

/// Reads rows from a file.
pub(crate) trait RowReader {
    /// Reads the next row into `row`.
    fn read(&mut self, row: &mut Row) -> io::Result<Step>;

    /// Returns the line, from 1, on which the last row or bad line started.
    fn line(&self) -> u64;

    /// Returns the keyspace that the last row names, if the format represents that.
    fn keyspace(&self) -> Option<&str> {
        None
    }

    /// Returns whether the last row ended with the file instead of a line end, so that it may be truncated.
    fn is_unended(&self) -> bool;

    /// Returns the column names in the first line, if it was taken as a header without `--header`.
    fn assumed_names(&self) -> Option<String> {
        None
    }
}

/// Writes rows to a file.
pub(crate) trait RowWriter {
    /// Announces the keyspace of the following rows. Called only if there are several.
    fn begin_keyspace(&mut self, _name: &str) {}

    /// Writes one row.
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes a row that expires at `expires_ms`. Returns whether the format represents the expiry time.
    fn write_expiring(&mut self, key: &[u8], value: &[u8], _expires_ms: u64) -> Result<bool> {
        self.write(key, value)?;
        Ok(false)
    }

    /// Writes buffered output.
    fn finish(&mut self) -> Result<()>;
}

/// A column as the user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column(String);

impl FromStr for Column {
    type Err = Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Infallible> {
        Ok(Column(text.to_owned()))
    }
}

/// Options for reading a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadOptions {
    /// `None` selects the default of the format.
    pub(crate) form: Option<ByteForm>,
    pub(crate) key: Option<Column>,
    pub(crate) value: Option<Column>,
    /// Whether the first line names the columns. `None` selects the default of the format.
    pub(crate) header: Option<bool>,
    /// Separator of TSV and CSV columns. `None` selects the default of the format.
    pub(crate) delimiter: Option<Delimiter>,
}

/// Options for writing a file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WriteOptions {
    pub(crate) form: Option<ByteForm>,
    pub(crate) header: Option<bool>,
    pub(crate) delimiter: Option<Delimiter>,
}

/// The separator between columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Delimiter(u8);

impl FromStr for Delimiter {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.as_bytes() {
            b"\\t" | b"tab" => Ok(Delimiter(b'\t')),
            // Excludes characters of escapes, digits and line ends.
            [byte]
                if *byte == b'\t'
                    || *byte == b' '
                    || byte.is_ascii_punctuation() && !b"\\\"".contains(byte) =>
            {
                Ok(Delimiter(*byte))
            }
            _ => Err("one character such as ; : | or tab".to_owned()),
        }
    }
}

/// Returns the requested format, or that of the file name; TSV for standard input and output.
pub(crate) fn choose(asked: Option<FileFormat>, file: &Path) -> Result<FileFormat> {
    let extension = extension(&if is_compressed(file) { file.with_extension("") } else { file.to_owned() });
    match (asked, extension.as_deref()) {
        (Some(format), _) => Ok(format),
        (None, Some("tsv" | "tab")) => Ok(FileFormat::Tsv),
        (None, Some("csv")) => Ok(FileFormat::Csv),
        (None, Some("jsonl" | "ndjson" | "json")) => Ok(FileFormat::Jsonl),
        (None, Some("txt" | "words")) => Ok(FileFormat::Words),
        (None, None) if is_standard(file) => Ok(FileFormat::Tsv),
        (None, _) => Err(Failure::message(format!(
            "the name {} does not imply a format: use --format tsv, csv, jsonl or words",
            shown(file.display())
        ))),
    }
}

/// Refuses a file whose compression import does not unpack.
pub(crate) fn check_compression(file: &Path) -> Result<()> {
    match Compression::of_name(file) {
        Some(compression) if !compression.is_read() => {
            Err(Failure::message(format!("{}: {}", shown(file.display()), compression.refusal())))
        }
        _ => Ok(()),
    }
}

/// Returns the program for the compression that the file name implies.
pub(crate) fn compressor(file: &Path) -> Option<&'static str> {
    Compression::of_name(file).map(Compression::compressor)
}

fn extension(file: &Path) -> Option<String> {
    file.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase)
}

/// Returns whether the file name implies a compression that import unpacks.
pub(crate) fn is_compressed(file: &Path) -> bool {
    Compression::of_name(file).is_some_and(Compression::is_read)
}

/// Returns whether `file` means standard input or output.
pub(crate) fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Returns a reader of `input`.
pub(crate) fn reader(
    format: FileFormat,
    input: Box<dyn BufRead>,
    options: &ReadOptions,
) -> Result<Box<dyn RowReader>> {
    let input = input::text(input, format, options.form)?;
    check_delimiter(format, options.delimiter)?;
    Ok(match format {
        FileFormat::Tsv => Box::new(tsv::TsvReader::new(input, options)?),
        FileFormat::Csv => Box::new(csv::CsvReader::new(input, options)?),
        FileFormat::Jsonl => Box::new(jsonl::JsonlReader::new(input, options)?),
        FileFormat::Words => Box::new(words::WordsReader::new(input, options)?),
    })
}

/// Returns a writer to `output`.
pub(crate) fn writer<'a>(
    format: FileFormat,
    output: Box<dyn Write + 'a>,
    options: WriteOptions,
) -> Result<Box<dyn RowWriter + 'a>> {
    let escaped = options.form.unwrap_or(ByteForm::Escaped);
    check_delimiter(format, options.delimiter)?;
    Ok(match format {
        FileFormat::Tsv => {
            let writer = TsvWriter::new(output, escaped).with_delimiter(options.delimiter);
            Box::new(writer.with_header(options.header)?)
        }
        FileFormat::Csv => Box::new(csv::CsvWriter::new(output, options)?),
        FileFormat::Jsonl if options.header == Some(true) => return Err(jsonl::no_header()),
        FileFormat::Jsonl => Box::new(JsonlWriter::new(output, options.form)?),
        FileFormat::Words => Box::new(WordsWriter::new(output, escaped).with_header(options.header)?),
    })
}

fn check_delimiter(format: FileFormat, delimiter: Option<Delimiter>) -> Result<()> {
    match (format, delimiter) {
        (FileFormat::Jsonl | FileFormat::Words, Some(_)) => {
            Err(Failure::message("--delimiter is for tsv and csv: JSON and word lists have no columns"))
        }
        _ => Ok(()),
    }
}

/// Returns the columns, from 0, of key and value. Without a value column, the rest of the line is the value.
fn resolve(options: &ReadOptions, header: Option<&[&[u8]]>) -> Result<(usize, Option<usize>)> {
    let number = |column: &Column| match column.0.parse::<usize>() {
        Ok(0) => Err(Failure::message("columns are counted from 1")),
        Ok(number) => Ok(number - 1),
        Err(_) => match header {
            Some(names) => names.iter().position(|name| *name == column.0.as_bytes()).ok_or_else(|| {
                let names: Vec<_> = names.iter().map(|name| shown(String::from_utf8_lossy(name))).collect();
                Failure::message(format!(
                    "no column `{}`; the header names: {}",
                    shown(&column.0),
                    names.join(", ")
                ))
            }),
            None => Err(Failure::message(format!(
                "column `{}`: without a header, columns are numbers; if the first line is a header, use --header yes",
                column.0
            ))),
        },
    };
    let key = options.key.as_ref().map_or(Ok(0), number)?;
    Ok((key, options.value.as_ref().map(number).transpose()?))
}

/// Returns the longest text of `bytes` bytes in a form.
fn text_bytes_max(form: ByteForm, bytes: usize) -> u64 {
    let per_byte = match form {
        // \xHH
        ByteForm::Escaped => 4,
        ByteForm::Raw => 1,
        ByteForm::Hex => 2,
    };
    bytes as u64 * per_byte
}

/// Returns the longest text of a row in a form.
fn row_bytes_max(form: ByteForm) -> u64 {
    text_bytes_max(form, KEY_BYTES_MAX) + text_bytes_max(form, VALUE_BYTES_MAX) + AROUND_BYTES_MAX
}

/// Returns the header line, or an empty line if the file is empty.
fn header_line(lines: &mut Lines) -> Result<Vec<u8>> {
    match lines.next_line().map_err(header_failure)? {
        None => Ok(Vec::new()),
        Some(Ok(line)) => Ok(line.to_vec()),
        Some(Err(reason)) => Err(Failure::message(format!("read the header: {}", shown(reason)))),
    }
}

/// Describes an error while reading the header.
fn header_failure(error: impl Into<io::Error>) -> Failure {
    Failure::message(format!("read the header: {}", error.into()))
}

/// Fills the row from encoded text, or reports which part is invalid.
fn fill(row: &mut Row, form: ByteForm, key: &[u8], value: &[u8]) -> Step {
    row.key.clear();
    row.value.clear();
    let decoded = form
        .decode(key, &mut row.key)
        .map_err(|reason| format!("key: {reason}"))
        .and_then(|()| form.decode(value, &mut row.value).map_err(|reason| format!("value: {reason}")));
    match decoded {
        Ok(()) => Step::Row,
        Err(reason) => Step::Bad(reason),
    }
}
