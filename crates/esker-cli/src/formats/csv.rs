//! CSV as RFC 4180 describes it. Fields hold bytes as they are, quoted where they need it.
//!
//! CS1. A row takes no more memory than a legal key and value can need: a quote that nobody closes ends the import, since
//!      where the next row starts is not known then.

use std::cell::Cell;
use std::io::{self, BufRead, Read, Write};
use std::rc::Rc;

use csv::{ByteRecord, QuoteStyle, Reader, ReaderBuilder, Writer, WriterBuilder};

use super::lines::too_long;
use super::tsv::no_column;
use super::{
    ReadOptions, Row, RowReader, RowWriter, Step, WriteOptions, fill, header_failure, resolve, row_bytes_max,
};
use crate::failure::{Failure, Result};
use crate::text::ByteForm;

/// Reads CSV.
pub(super) struct CsvReader {
    reader: Reader<Limited>,
    /// What may still be read for a row.
    left: Rc<Cell<u64>>,
    row_bytes_max: u64,
    record: ByteRecord,
    form: ByteForm,
    key: usize,
    value: Option<usize>,
    /// The rest of a row, as CSV.
    rest: Vec<u8>,
}

impl CsvReader {
    pub(super) fn new(input: Box<dyn BufRead>, options: &ReadOptions) -> Result<Self> {
        let form = options.form.unwrap_or(ByteForm::Raw);
        // Quotes are doubled.
        Self::with_limit(input, options, form, 2 * row_bytes_max(form))
    }

    fn with_limit(
        input: Box<dyn BufRead>,
        options: &ReadOptions,
        form: ByteForm,
        row_bytes_max: u64,
    ) -> Result<Self> {
        let header = options.header.unwrap_or(true);
        let left = Rc::new(Cell::new(row_bytes_max));
        let input = Limited { input, left: left.clone() };
        let mut reader = ReaderBuilder::new().has_headers(header).flexible(true).from_reader(input);
        let (key, value) = if header {
            let names = reader.byte_headers().map_err(header_failure)?;
            resolve(options, Some(&names.iter().collect::<Vec<_>>()))?
        } else {
            resolve(options, None)?
        };
        let record = ByteRecord::new();
        Ok(CsvReader { reader, left, row_bytes_max, record, form, key, value, rest: Vec::new() })
    }
}

impl RowReader for CsvReader {
    fn read(&mut self, row: &mut Row) -> io::Result<Step> {
        self.left.set(self.row_bytes_max);
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => {}
            Ok(false) => return Ok(Step::End),
            Err(_) if self.left.get() == 0 => {
                let reason = too_long("row", self.row_bytes_max);
                return Err(io::Error::other(format!("line {}: {reason}", self.line())));
            }
            Err(error) => return Err(error.into()),
        }
        let record = &self.record;
        let Some(key) = record.get(self.key) else { return Ok(no_column(self.key)) };
        let value = match self.value {
            Some(number) => match record.get(number) {
                Some(value) => value,
                None => return Ok(no_column(number)),
            },
            None if self.key == 0 && record.len() == 2 => &record[1],
            None if self.key == 0 && record.len() == 1 => return Ok(no_column(1)),
            None => {
                self.rest.clear();
                let first = usize::from(self.key == 0);
                join(record.iter().skip(first), &mut self.rest);
                let step = fill(row, self.form, key, b"");
                row.value.extend_from_slice(&self.rest);
                return Ok(step);
            }
        };
        Ok(fill(row, self.form, key, value))
    }

    fn line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }
}

/// Input that ends in an error where too much is read for one row (CS1).
struct Limited {
    input: Box<dyn BufRead>,
    left: Rc<Cell<u64>>,
}

impl Read for Limited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        let wanted = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if wanted == 0 && !buffer.is_empty() {
            return Err(io::Error::other("the row is too long"));
        }
        let length = self.input.read(&mut buffer[..wanted])?;
        self.left.set(left - length as u64);
        Ok(length)
    }
}

/// Fields as one line of CSV, without its end.
fn join<'a>(fields: impl Iterator<Item = &'a [u8]>, into: &mut Vec<u8>) {
    for (number, field) in fields.enumerate() {
        if number > 0 {
            into.push(b',');
        }
        if !field.iter().any(|b| b",\"\r\n".contains(b)) {
            into.extend_from_slice(field);
            continue;
        }
        into.push(b'"');
        for byte in field {
            into.extend_from_slice(if *byte == b'"' { b"\"\"" } else { std::slice::from_ref(byte) });
        }
        into.push(b'"');
    }
}

/// Writes CSV.
pub(super) struct CsvWriter<'a> {
    writer: Writer<Box<dyn Write + 'a>>,
    form: ByteForm,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> CsvWriter<'a> {
    pub(super) fn new(output: Box<dyn Write + 'a>, options: WriteOptions) -> Result<Self> {
        let header = options.header.unwrap_or(true);
        // Readers drop a byte order mark at the start of a file: a first key that looks like one is safe in quotes.
        let style = if header { QuoteStyle::Necessary } else { QuoteStyle::Always };
        let mut writer = WriterBuilder::new().quote_style(style).from_writer(output);
        if header {
            writer.write_record(["key", "value"]).map_err(failure)?;
        }
        let form = options.form.unwrap_or(ByteForm::Raw);
        Ok(CsvWriter { writer, form, key: Vec::new(), value: Vec::new() })
    }
}

impl RowWriter for CsvWriter<'_> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.key.clear();
        self.value.clear();
        self.form.encode(key, &mut self.key);
        self.form.encode(value, &mut self.value);
        self.writer.write_record([&self.key, &self.value]).map_err(failure)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.writer.flush()?)
    }
}

/// The I/O error itself, not wrapped: its kind and its file tell what it means.
fn failure(error: csv::Error) -> Failure {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error.into(),
        kind => Failure::message(format!("write CSV: {kind:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cs1_a_quote_that_nobody_closes_ends_the_import() {
        let head = b"k,v\na,1\nb,\"2\n3\"\nc,\"4";
        let input = io::BufReader::new(head.chain(io::repeat(b'x')));
        let options = ReadOptions { form: None, key: None, value: None, header: None };
        let mut reader =
            CsvReader::with_limit(Box::new(input), &options, ByteForm::Raw, 100_000).expect("a header");
        let mut row = Row::default();
        assert_eq!(reader.read(&mut row).unwrap(), Step::Row);
        assert_eq!(reader.read(&mut row).unwrap(), Step::Row);
        assert_eq!((&row.key[..], &row.value[..]), (&b"b"[..], &b"2\n3"[..]));
        let error = reader.read(&mut row).unwrap_err().to_string();
        assert!(error.contains("line 5: the row is longer than 100000 bytes"), "CS1: {error}");
    }
}
