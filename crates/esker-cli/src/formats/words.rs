//! Word lists: each line is a key with an empty value. An empty line is the empty key. Values are not
//! written.

use std::io::{self, BufRead, Write};

use esker::KEY_BYTES_MAX;

use super::input::BYTE_ORDER_MARK;
use super::lines::Lines;
use super::{ReadOptions, Row, RowReader, RowWriter, Step, fill, header_line, text_bytes_max};
use crate::failure::{Failure, Result};
use crate::text::{ByteForm, shown};

/// Reads a word list.
pub(super) struct WordsReader {
    lines: Lines,
    form: ByteForm,
}

impl WordsReader {
    pub(super) fn new(input: Box<dyn BufRead>, options: &ReadOptions) -> Result<Self> {
        if options.key.is_some() || options.value.is_some() {
            return Err(Failure::message(
                "a word list has no columns: --key and --value are for tsv, csv and jsonl",
            ));
        }
        let form = options.form.unwrap_or(ByteForm::Escaped);
        let mut lines = Lines::new(input, form != ByteForm::Raw, text_bytes_max(form, KEY_BYTES_MAX));
        if options.header == Some(true) {
            header_line(&mut lines)?;
        }
        Ok(WordsReader { lines, form })
    }
}

impl RowReader for WordsReader {
    fn read(&mut self, row: &mut Row) -> io::Result<Step> {
        let form = self.form;
        Ok(match self.lines.next_line()? {
            None => Step::End,
            Some(Err(reason)) => Step::Bad(reason),
            Some(Ok(line)) => fill(row, form, line, b""),
        })
    }

    fn line(&self) -> u64 {
        self.lines.number()
    }

    fn is_unended(&self) -> bool {
        self.lines.is_unended()
    }
}

/// Writes a word list.
pub(crate) struct WordsWriter<'a> {
    output: Box<dyn Write + 'a>,
    form: ByteForm,
    line: Vec<u8>,
    strict: bool,
    /// Prefix of each row when output is for people and there are several keyspaces.
    keyspace: String,
    /// Whether nothing has been written.
    is_start: bool,
}

impl<'a> WordsWriter<'a> {
    pub(crate) fn new(output: Box<dyn Write + 'a>, form: ByteForm) -> Self {
        WordsWriter { output, form, line: Vec::new(), strict: true, keyspace: String::new(), is_start: true }
    }

    /// Writes the header line if requested.
    pub(super) fn with_header(mut self, header: Option<bool>) -> Result<Self> {
        if header == Some(true) {
            self.output.write_all(b"key\n")?;
            self.is_start = false;
        }
        Ok(self)
    }

    /// Allows raw line ends inside keys, for output that only people read.
    pub(crate) fn lenient(mut self) -> Self {
        self.strict = false;
        self
    }
}

impl RowWriter for WordsWriter<'_> {
    fn begin_keyspace(&mut self, name: &str) {
        if !self.strict {
            self.keyspace = format!("{}\t", shown(name));
        }
    }

    fn write(&mut self, key: &[u8], _value: &[u8]) -> Result<()> {
        if self.strict && self.form == ByteForm::Raw && key.contains(&b'\n') {
            return Err(Failure::message(format!(
                "the key {} holds a line end, which a raw word list cannot carry: use --bytes escaped",
                key.escape_ascii()
            )));
        }
        self.line.clear();
        self.line.extend_from_slice(self.keyspace.as_bytes());
        // The reader drops one byte order mark.
        if self.strict && self.form == ByteForm::Raw && self.is_start && key.starts_with(BYTE_ORDER_MARK) {
            self.line.extend_from_slice(BYTE_ORDER_MARK);
        }
        self.is_start = false;
        self.form.encode(key, &mut self.line);
        self.line.push(b'\n');
        Ok(self.output.write_all(&self.line)?)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.output.flush()?)
    }
}
