//! CSV as RFC 4180 describes it. Fields hold bytes as they are, quoted where they need it.

use std::io::{self, BufRead, Write};

use csv::{ByteRecord, QuoteStyle, Reader, ReaderBuilder, Writer, WriterBuilder};

use super::tsv::no_column;
use super::{ReadOptions, Row, RowReader, RowWriter, Step, WriteOptions, fill, header_failure, resolve};
use crate::failure::{Failure, Result};
use crate::text::ByteForm;

/// Reads CSV.
pub(super) struct CsvReader {
    reader: Reader<Box<dyn BufRead>>,
    record: ByteRecord,
    form: ByteForm,
    key: usize,
    value: Option<usize>,
    /// The rest of a row, as CSV.
    rest: Vec<u8>,
}

impl CsvReader {
    pub(super) fn new(input: Box<dyn BufRead>, options: &ReadOptions) -> Result<Self> {
        let header = options.header.unwrap_or(true);
        let mut reader = ReaderBuilder::new().has_headers(header).flexible(true).from_reader(input);
        let (key, value) = if header {
            let names = reader.byte_headers().map_err(header_failure)?;
            resolve(options, Some(&names.iter().collect::<Vec<_>>()))?
        } else {
            resolve(options, None)?
        };
        let form = options.form.unwrap_or(ByteForm::Raw);
        Ok(CsvReader { reader, record: ByteRecord::new(), form, key, value, rest: Vec::new() })
    }
}

impl RowReader for CsvReader {
    fn read(&mut self, row: &mut Row) -> io::Result<Step> {
        if !self.reader.read_byte_record(&mut self.record)? {
            return Ok(Step::End);
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

fn failure(error: csv::Error) -> Failure {
    Failure::from(io::Error::from(error))
}
