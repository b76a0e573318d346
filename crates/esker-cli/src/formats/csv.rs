//! CSV according to RFC 4180. Fields hold raw bytes, quoted where necessary.
//!
//! A row uses no more memory than a valid key and value need. An unclosed quote ends the import, since the
//! start of the next row is then unknown; so does a file that ends inside of quotes. With a header, a row
//! with more fields than names is bad. Without --value, so is a row with fewer, since its value is everything
//! after the key.

use std::io::{self, BufRead, Read, Write};

use csv::{ByteRecord, QuoteStyle, Reader, ReaderBuilder, Writer, WriterBuilder};

use super::lines::too_long;
use super::tsv::no_column;
use super::{
    Delimiter, ReadOptions, Row, RowReader, RowWriter, Step, WriteOptions, fill, header_failure, resolve,
    row_bytes_max,
};
use crate::failure::{Failure, Result};
use crate::output::plural;
use crate::text::ByteForm;

/// The default delimiter.
const COMMA: Delimiter = Delimiter(b',');
/// Column names in exported files.
const OUR_NAMES: [&str; 2] = ["key", "value"];

/// Reads CSV.
pub(super) struct CsvReader {
    reader: Reader<Lines>,
    row_bytes_max: u64,
    record: ByteRecord,
    form: ByteForm,
    key: usize,
    value: Option<usize>,
    delimiter: u8,
    assumed_names: Option<String>,
    /// Number of columns in the header.
    names: Option<usize>,
    /// The fields after the key, as CSV.
    rest: Vec<u8>,
}

impl CsvReader {
    pub(super) fn new(input: Box<dyn BufRead>, options: &ReadOptions) -> Result<Self> {
        let form = options.form.unwrap_or(ByteForm::Raw);
        // Quotes inside of quoted fields are doubled.
        Self::with_limit(input, options, form, 2 * row_bytes_max(form))
    }

    fn with_limit(
        input: Box<dyn BufRead>,
        options: &ReadOptions,
        form: ByteForm,
        row_bytes_max: u64,
    ) -> Result<Self> {
        let header = options.header.unwrap_or(true);
        let input = Lines::new(input, row_bytes_max);
        let delimiter = options.delimiter.unwrap_or(COMMA).0;
        let mut builder = ReaderBuilder::new();
        let mut reader = builder.delimiter(delimiter).has_headers(header).flexible(true).from_reader(input);
        let mut assumed_names = None;
        let mut names_len = None;
        let (key, value) = if header {
            let names = reader.byte_headers().map_err(header_failure)?.clone();
            if !names.is_empty() && reader.get_ref().ended {
                return Err(header_failure(open_quote(reader.get_ref().row_line)));
            }
            let names: Vec<&[u8]> = names.iter().collect();
            names_len = Some(names.len());
            if options.header.is_none() && !names.is_empty() && names != OUR_NAMES.map(str::as_bytes) {
                let names = names.iter().map(|name| String::from_utf8_lossy(name));
                assumed_names = Some(names.collect::<Vec<_>>().join(", "));
            }
            resolve(options, Some(&names))?
        } else {
            resolve(options, None)?
        };
        let record = ByteRecord::new();
        Ok(CsvReader {
            reader,
            row_bytes_max,
            record,
            form,
            key,
            value,
            delimiter,
            assumed_names,
            names: names_len,
            rest: Vec::new(),
        })
    }
}

impl RowReader for CsvReader {
    fn read(&mut self, row: &mut Row) -> io::Result<Step> {
        self.reader.get_mut().begin_row(self.row_bytes_max);
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) if self.reader.get_ref().ended => return Err(open_quote(self.line())),
            Ok(true) => {}
            Ok(false) => return Ok(Step::End),
            Err(_) if self.reader.get_ref().left == 0 => {
                let reason = too_long("row", self.row_bytes_max);
                return Err(io::Error::other(format!("line {}: {reason}", self.line())));
            }
            Err(error) => return Err(error.into()),
        }
        let record = &self.record;
        if let Some(names) = self.names
            && (record.len() > names || record.len() < names && self.value.is_none())
        {
            return Ok(wrong_width(record.len(), names));
        }
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
                join(record.iter().skip(first), self.delimiter, &mut self.rest);
                let step = fill(row, self.form, key, b"");
                row.value.extend_from_slice(&self.rest);
                return Ok(step);
            }
        };
        Ok(fill(row, self.form, key, value))
    }

    fn line(&self) -> u64 {
        self.reader.get_ref().row_line
    }

    fn is_unended(&self) -> bool {
        self.reader.get_ref().unended
    }

    fn assumed_names(&self) -> Option<String> {
        self.assumed_names.clone()
    }
}

/// Reports a row whose number of fields does not match the header.
fn wrong_width(fields: usize, names: usize) -> Step {
    Step::Bad(format!(
        "the row has {}, and the header names {}: is a quote missing? If the first line is not a header, use --header no",
        plural(fields as u64, "field"),
        plural(names as u64, "column")
    ))
}

/// Reports a file that ends inside of quotes.
fn open_quote(line: u64) -> io::Error {
    io::Error::other(format!(
        "line {line}: the file ends inside of quotes: is a quote missing, or is the file truncated?"
    ))
}

/// Gives input to the CSV parser line by line, adding a line end to the last line. This reveals the line on
/// which each row starts and rows with unclosed quotes. Reading fails once a row exceeds its limit.
struct Lines {
    input: Box<dyn BufRead>,
    /// Bytes that may still be read for this row.
    left: u64,
    /// Number of line ends given to the parser.
    line_ends: u64,
    /// The last byte given to the parser.
    last: u8,
    /// Whether the row has begun; blank lines before it do not count.
    row_begun: bool,
    /// The line, from 1, on which the last row started.
    row_line: u64,
    /// Whether the parser was given the end of the file.
    ended: bool,
    /// The last line lacked a line end.
    unended: bool,
}

impl Lines {
    fn new(input: Box<dyn BufRead>, row_bytes_max: u64) -> Self {
        let left = row_bytes_max;
        Lines {
            input,
            left,
            line_ends: 0,
            last: b'\n',
            row_begun: false,
            row_line: 0,
            ended: false,
            unended: false,
        }
    }

    /// Must be called before each row.
    fn begin_row(&mut self, row_bytes_max: u64) {
        (self.left, self.row_begun) = (row_bytes_max, false);
    }

    /// Records bytes that are given to the parser.
    fn give(&mut self, bytes: &[u8]) {
        if !self.row_begun && bytes.iter().any(|byte| !b"\r\n".contains(byte)) {
            (self.row_begun, self.row_line) = (true, self.line_ends + 1);
        }
        self.last = bytes.last().copied().unwrap_or(self.last);
        self.line_ends += u64::from(self.last == b'\n');
    }
}

impl Read for Lines {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if wanted == 0 && !buffer.is_empty() {
            return Err(io::Error::other("the row is too long"));
        }
        let bytes = self.input.fill_buf()?;
        let bytes = &bytes[..bytes.len().min(wanted)];
        let length = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
        buffer[..length].copy_from_slice(&bytes[..length]);
        self.input.consume(length);
        if length > 0 {
            self.left -= length as u64;
            self.give(&buffer[..length]);
            return Ok(length);
        }
        let Some(first) = buffer.first_mut().filter(|_| self.last != b'\n') else {
            self.ended = !buffer.is_empty();
            return Ok(0);
        };
        *first = b'\n';
        self.unended = true;
        self.give(b"\n");
        Ok(1)
    }
}

/// Appends fields as one line of CSV, without a line end.
fn join<'a>(fields: impl Iterator<Item = &'a [u8]>, delimiter: u8, into: &mut Vec<u8>) {
    for (number, field) in fields.enumerate() {
        if number > 0 {
            into.push(delimiter);
        }
        if !field.iter().any(|b| *b == delimiter || b"\"\r\n".contains(b)) {
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
        // Readers drop a byte order mark at the start of a file. Quotes protect a first key that looks like
        // one.
        let style = if header { QuoteStyle::Necessary } else { QuoteStyle::Always };
        let mut writer = WriterBuilder::new()
            .delimiter(options.delimiter.unwrap_or(COMMA).0)
            .quote_style(style)
            .from_writer(output);
        if header {
            writer.write_record(OUR_NAMES).map_err(failure)?;
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

/// Unwraps an I/O error, to preserve its kind and file.
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
    fn an_unclosed_quote_ends_the_import() {
        let head = b"k,v\na,1\nb,\"2\n3\"\nc,\"4";
        let input = io::BufReader::new(head.chain(io::repeat(b'x')));
        let options = ReadOptions::default();
        let mut reader =
            CsvReader::with_limit(Box::new(input), &options, ByteForm::Raw, 100_000).expect("a header");
        let mut row = Row::default();
        assert_eq!(reader.read(&mut row).unwrap(), Step::Row);
        assert_eq!(reader.read(&mut row).unwrap(), Step::Row);
        assert_eq!((&row.key[..], &row.value[..]), (&b"b"[..], &b"2\n3"[..]));
        let error = reader.read(&mut row).unwrap_err().to_string();
        assert!(error.contains("line 5: the row is longer than 100000 bytes"), "{error}");
    }

    /// Returns the rows of a file without a header, or the error that ended it.
    fn rows(text: &[u8]) -> std::result::Result<Vec<(u64, String)>, String> {
        let options = ReadOptions { header: Some(false), ..ReadOptions::default() };
        let mut reader =
            CsvReader::new(Box::new(io::Cursor::new(text.to_vec())), &options).expect("no header");
        let (mut row, mut found) = (Row::default(), Vec::new());
        loop {
            match reader.read(&mut row).map_err(|error| error.to_string())? {
                Step::Row => found.push((reader.line(), row.value.escape_ascii().to_string())),
                Step::Bad(reason) => found.push((reader.line(), reason)),
                Step::End => return Ok(found),
            }
        }
    }

    #[test]
    fn a_file_that_ends_inside_of_quotes_is_refused() {
        let values = |text: &str| {
            rows(text.as_bytes()).map(|rows| rows.into_iter().map(|row| row.1).collect::<Vec<_>>())
        };
        for open in
            ["a,1\nb,\"2\nc,3\nd,4\n", "a,1\nb,\"2\nc,3", "a,1\nb,\"", "a,1\nb,\"2\r\n", "a,1\nb,\"2\"\"\n"]
        {
            let error = values(open).unwrap_err();
            assert!(error.starts_with("line 2: the file ends inside of quotes"), "{open:?}: {error}");
        }
        for closed in ["a,\"1\n\"", "a,\"1\n\"\r", "a,\"1\n\"\r\n", "a,\"1\n\"\n\n\r\n"] {
            assert_eq!(values(closed), Ok(vec!["1\\n".to_owned()]), "{closed:?}");
        }
        assert_eq!(values(""), Ok(vec![]));
        assert_eq!(values("\n\r\n"), Ok(vec![]));
        let header = ReadOptions::default();
        let refused = CsvReader::new(Box::new(io::Cursor::new(b"\"k,v\na,1\n".to_vec())), &header);
        let error = refused.err().expect("an open header").to_string();
        assert!(error.contains("line 1: the file ends inside of quotes"), "{error}");
    }

    #[test]
    fn rows_have_as_many_fields_as_the_header_names() {
        let read = |text: &str, value: Option<&str>| {
            let value = value.map(|name| name.parse().unwrap());
            let options = ReadOptions { value, ..ReadOptions::default() };
            let input = Box::new(io::Cursor::new(text.to_owned()));
            let mut row = Row::default();
            CsvReader::new(input, &options).unwrap().read(&mut row).unwrap()
        };
        assert_eq!(read("a,b\n1,2,3\n", None), wrong_width(3, 2));
        assert_eq!(read("a,b\n1,2,3\n", Some("b")), wrong_width(3, 2));
        assert_eq!(read("a,b,c\n1,2\n", None), wrong_width(2, 3));
        assert_eq!(read("a,b,c\n1,2\n", Some("b")), Step::Row);
        assert_eq!(read("a,b,c\n1,2,3\n", None), Step::Row);
    }

    #[test]
    fn rows_have_the_number_of_the_line_on_which_they_start() {
        let lines =
            |text: &str| rows(text.as_bytes()).unwrap().into_iter().map(|row| row.0).collect::<Vec<_>>();
        for end in ["\n", "\r\n"] {
            let text = format!("a,1{end}{end}{end}bad{end}\"c{end}{end}\",\"{end}3\"{end}d,4");
            assert_eq!(lines(&text), [1, 4, 5, 9], "{text:?}");
        }
        // Longer than the buffer of a reader.
        let long = "x".repeat(100_000);
        assert_eq!(lines(&format!("\n\na,{long}\r\n\r\nb,\"{long}\r\n\"\nc,1\n")), [3, 5, 7]);
    }
}
