//! TSV: KEY <tab> VALUE, one row per line. Another delimiter may replace the tab.
//!
//! The first tab of a line ends the key, so a tab inside a key is escaped. Tabs inside a value are written as
//! they are, so a table of many columns survives import and export. Blank lines are skipped, since each row
//! contains a tab.

use std::io::{self, BufRead, Write};

use super::input::BYTE_ORDER_MARK;
use super::lines::Lines;
use super::{
    Delimiter, ReadOptions, Row, RowReader, RowWriter, Step, fill, header_line, resolve, row_bytes_max,
};
use crate::failure::{Failure, Result};
use crate::text::{ByteForm, shown};

/// Reads TSV.
pub(super) struct TsvReader {
    lines: Lines,
    form: ByteForm,
    delimiter: u8,
    key: usize,
    value: Option<usize>,
}

impl TsvReader {
    pub(super) fn new(input: Box<dyn BufRead>, options: &ReadOptions) -> Result<Self> {
        let form = options.form.unwrap_or(ByteForm::Escaped);
        let delimiter = options.delimiter.unwrap_or(TAB).0;
        let mut lines = Lines::new(input, form != ByteForm::Raw, row_bytes_max(form));
        let (key, value) = if options.header == Some(true) {
            let names = header_line(&mut lines)?;
            let names: Vec<&[u8]> = names.split(|b| *b == delimiter).collect();
            resolve(options, Some(&names))?
        } else {
            resolve(options, None)?
        };
        Ok(TsvReader { lines, form, delimiter, key, value })
    }
}

impl RowReader for TsvReader {
    fn read(&mut self, row: &mut Row) -> io::Result<Step> {
        let line = loop {
            match self.lines.next_line()? {
                None => return Ok(Step::End),
                Some(Err(reason)) => return Ok(Step::Bad(reason)),
                // A blank line is not a row.
                Some(Ok(b"")) => {}
                Some(Ok(_)) => break self.lines.line(),
            }
        };
        let delimiter = self.delimiter;
        let column = |number| line.split(|b| *b == delimiter).nth(number);
        let Some(key) = column(self.key) else { return Ok(no_column(self.key)) };
        let value = match self.value {
            Some(number) => match column(number) {
                Some(value) => value,
                None => return Ok(no_column(number)),
            },
            None if self.key > 0 => line,
            None if key.len() == line.len() => {
                let name = if delimiter == b'\t' {
                    "tab".to_owned()
                } else {
                    format!("`{}`", char::from(delimiter))
                };
                return Ok(Step::Bad(format!(
                    "no {name}: a row is KEY {name} VALUE; for plain words use --format words, for other columns --delimiter"
                )));
            }
            None => &line[key.len() + 1..],
        };
        Ok(fill(row, self.form, key, value))
    }

    fn line(&self) -> u64 {
        self.lines.number()
    }

    fn is_unended(&self) -> bool {
        self.lines.is_unended()
    }
}

/// Reports a row with too few columns.
pub(super) fn no_column(number: usize) -> Step {
    Step::Bad(format!("there is no column {}: for another separator use --delimiter", number + 1))
}

/// Writes TSV.
pub(crate) struct TsvWriter<'a> {
    output: Box<dyn Write + 'a>,
    form: ByteForm,
    delimiter: u8,
    line: Vec<u8>,
    strict: bool,
    /// Prefix of each row when output is for people and there are several keyspaces.
    keyspace: String,
    /// Whether nothing has been written.
    is_start: bool,
}

/// The default delimiter.
const TAB: Delimiter = Delimiter(b'\t');

impl<'a> TsvWriter<'a> {
    pub(crate) fn new(output: Box<dyn Write + 'a>, form: ByteForm) -> Self {
        TsvWriter {
            output,
            form,
            delimiter: TAB.0,
            line: Vec::new(),
            strict: true,
            keyspace: String::new(),
            is_start: true,
        }
    }

    pub(super) fn with_delimiter(mut self, delimiter: Option<Delimiter>) -> Self {
        self.delimiter = delimiter.unwrap_or(TAB).0;
        self
    }

    /// Writes the header line if requested.
    pub(super) fn with_header(mut self, header: Option<bool>) -> Result<Self> {
        if header == Some(true) {
            writeln!(self.output, "key{}value", char::from(self.delimiter))?;
            self.is_start = false;
        }
        Ok(self)
    }

    /// Allows raw tabs and line ends, for output that only people read.
    pub(crate) fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }
}

impl RowWriter for TsvWriter<'_> {
    fn begin_keyspace(&mut self, name: &str) {
        if !self.strict {
            self.keyspace = format!("{}\t", shown(name));
        }
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let is_delimiter = |byte: &u8| *byte == self.delimiter;
        let is_raw = self.strict && self.form == ByteForm::Raw;
        if is_raw && (key.iter().any(|b| *b == b'\n' || is_delimiter(b)) || value.contains(&b'\n')) {
            return Err(Failure::message(format!(
                "the key {} or its value holds a tab or a line end, which raw TSV cannot carry: use --bytes escaped",
                key.escape_ascii()
            )));
        }
        self.line.clear();
        self.line.extend_from_slice(self.keyspace.as_bytes());
        // The reader drops one byte order mark.
        if is_raw && self.is_start && key.starts_with(BYTE_ORDER_MARK) {
            self.line.extend_from_slice(BYTE_ORDER_MARK);
        }
        self.is_start = false;
        // Escaped text contains no tab, but may contain another delimiter. Hexadecimal text contains none.
        let to_escape = self.form == ByteForm::Escaped && self.delimiter != TAB.0;
        for (number, part) in key.split(|b| to_escape && is_delimiter(b)).enumerate() {
            if number > 0 {
                write!(self.line, "\\x{:02x}", self.delimiter)?;
            }
            self.form.encode(part, &mut self.line);
        }
        self.line.push(self.delimiter);
        for (number, column) in value.split(|b| is_delimiter(b) && self.form != ByteForm::Hex).enumerate() {
            if number > 0 {
                self.line.push(self.delimiter);
            }
            self.form.encode(column, &mut self.line);
        }
        self.line.push(b'\n');
        Ok(self.output.write_all(&self.line)?)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.output.flush()?)
    }
}
