//! TSV: KEY <tab> VALUE, a row a line.
//!
//! tsv.1. The first tab of a line ends the key, so a tab inside a key is escaped. Tabs inside a value stand as they are: a
//!      table of many columns is the same table after import and export.

use std::io::{self, BufRead, Write};

use super::lines::Lines;
use super::{ReadOptions, Row, RowReader, RowWriter, Step, fill, header_line, resolve, row_bytes_max};
use crate::failure::{Failure, Result};
use crate::text::ByteForm;

/// Reads TSV.
pub(super) struct TsvReader {
    lines: Lines,
    form: ByteForm,
    key: usize,
    value: Option<usize>,
}

impl TsvReader {
    pub(super) fn new(input: Box<dyn BufRead>, options: &ReadOptions) -> Result<Self> {
        let form = options.form.unwrap_or(ByteForm::Escaped);
        let mut lines = Lines::new(input, form != ByteForm::Raw, row_bytes_max(form));
        let (key, value) = if options.header == Some(true) {
            let names = header_line(&mut lines)?;
            let names: Vec<&[u8]> = names.split(|b| *b == b'\t').collect();
            resolve(options, Some(&names))?
        } else {
            resolve(options, None)?
        };
        Ok(TsvReader { lines, form, key, value })
    }
}

impl RowReader for TsvReader {
    fn read(&mut self, row: &mut Row) -> io::Result<Step> {
        let line = match self.lines.next_line()? {
            None => return Ok(Step::End),
            Some(Err(reason)) => return Ok(Step::Bad(reason)),
            Some(Ok(line)) => line,
        };
        let column = |number| line.split(|b| *b == b'\t').nth(number);
        let Some(key) = column(self.key) else { return Ok(no_column(self.key)) };
        let value = match self.value {
            Some(number) => match column(number) {
                Some(value) => value,
                None => return Ok(no_column(number)),
            },
            None if self.key > 0 => line,
            None if key.len() == line.len() => {
                return Ok(Step::Bad(
                    "no tab: a row is KEY <tab> VALUE; for plain words say --format words".to_owned(),
                ));
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

/// A row that is too short.
pub(super) fn no_column(number: usize) -> Step {
    Step::Bad(format!("there is no column {}", number + 1))
}

/// Writes TSV.
pub(crate) struct TsvWriter<'a> {
    output: Box<dyn Write + 'a>,
    form: ByteForm,
    line: Vec<u8>,
    strict: bool,
}

impl<'a> TsvWriter<'a> {
    pub(crate) fn new(mut output: Box<dyn Write + 'a>, form: ByteForm, header: bool) -> Result<Self> {
        if header {
            output.write_all(b"key\tvalue\n")?;
        }
        Ok(TsvWriter { output, form, line: Vec::new(), strict: true })
    }

    /// For eyes, not for `import`: raw tabs and line ends are let through.
    pub(crate) fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }
}

impl RowWriter for TsvWriter<'_> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let breaks = |text: &[u8], tab: bool| text.iter().any(|b| *b == b'\n' || tab && *b == b'\t');
        if self.strict && self.form == ByteForm::Raw && (breaks(key, true) || breaks(value, false)) {
            return Err(Failure::message(format!(
                "the key {} or its value holds a tab or a line end, which raw TSV cannot carry (formats.1): use --bytes escaped",
                key.escape_ascii()
            )));
        }
        self.line.clear();
        self.form.encode(key, &mut self.line);
        self.line.push(b'\t');
        for (number, column) in value.split(|b| *b == b'\t' && self.form != ByteForm::Hex).enumerate() {
            if number > 0 {
                self.line.push(b'\t');
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
