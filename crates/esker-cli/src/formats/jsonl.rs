//! JSON lines: `{"key":"...","value":"..."}`, a row a line.
//!
//! J1. Bytes that are not UTF-8 stand in hex, under `key_hex` and `value_hex`.

use std::io::{self, BufRead, Write};

use serde_json::{Map, Value};

use super::lines::Lines;
use super::{Column, ReadOptions, Row, RowReader, RowWriter, Step};
use crate::failure::{Failure, Result};
use crate::text::{ByteForm, hex, unhex};

/// Reads JSON lines.
pub(super) struct JsonlReader {
    lines: Lines,
    key: String,
    /// The field of the value, and whether the user asked for it.
    value: (String, bool),
}

impl JsonlReader {
    pub(super) fn new(input: Box<dyn BufRead>, options: &ReadOptions) -> Result<Self> {
        check_form(options.form)?;
        if options.header == Some(true) {
            return Err(Failure::message("JSON lines have no header: each object names its fields"));
        }
        let name = |column: &Option<Column>, default: &str| {
            column.as_ref().map_or_else(|| default.to_owned(), |column| column.0.clone())
        };
        Ok(JsonlReader {
            lines: Lines::new(input, true),
            key: name(&options.key, "key"),
            value: (name(&options.value, "value"), options.value.is_some()),
        })
    }
}

impl RowReader for JsonlReader {
    fn read(&mut self, row: &mut Row) -> io::Result<Step> {
        let line = loop {
            match self.lines.next_line()? {
                None => return Ok(Step::End),
                // A blank line between objects is JSON's own white space.
                Some(line) if line.trim_ascii().is_empty() => {}
                Some(line) => break line.to_vec(),
            }
        };
        Ok(match parse(&line, &self.key, &self.value, row) {
            Ok(()) => Step::Row,
            Err(reason) => Step::Bad(reason),
        })
    }

    fn line(&self) -> u64 {
        self.lines.number()
    }
}

fn parse(line: &[u8], key: &str, value: &(String, bool), row: &mut Row) -> std::result::Result<(), String> {
    row.key.clear();
    row.value.clear();
    let object: Map<String, Value> =
        serde_json::from_slice(line).map_err(|e| format!("no JSON object: {e}"))?;
    if !take(&object, key, &mut row.key)? {
        return Err(format!("the object has no field `{key}`"));
    }
    let (value, asked) = value;
    if !take(&object, value, &mut row.value)? {
        if *asked {
            return Err(format!("the object has no field `{value}`"));
        }
        row.value.extend_from_slice(line.trim_ascii());
    }
    Ok(())
}

/// Appends the bytes of a field, or of its `_hex` form; false if there is neither. What is no string counts as its JSON text.
fn take(object: &Map<String, Value>, name: &str, into: &mut Vec<u8>) -> std::result::Result<bool, String> {
    match (object.get(name), object.get(&format!("{name}_hex"))) {
        (Some(_), Some(_)) => return Err(format!("both `{name}` and `{name}_hex`: which one?")),
        (Some(Value::String(text)), None) => into.extend_from_slice(text.as_bytes()),
        (Some(other), None) => into.extend_from_slice(other.to_string().as_bytes()),
        (None, Some(Value::String(digits))) => {
            unhex(digits.as_bytes(), into).map_err(|reason| format!("{name}_hex: {reason}"))?;
        }
        (None, Some(_)) => return Err(format!("{name}_hex: a string of hexadecimal digits is needed")),
        (None, None) => return Ok(false),
    }
    Ok(true)
}

/// Writes JSON lines.
pub(crate) struct JsonlWriter<'a> {
    output: Box<dyn Write + 'a>,
    line: Vec<u8>,
    all_hex: bool,
    keys_only: bool,
}

impl<'a> JsonlWriter<'a> {
    pub(crate) fn new(output: Box<dyn Write + 'a>, form: Option<ByteForm>) -> Result<Self> {
        check_form(form)?;
        Ok(JsonlWriter { output, line: Vec::new(), all_hex: form == Some(ByteForm::Hex), keys_only: false })
    }

    /// Leaves out the values.
    pub(crate) fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Adds `"name":"text"` or `"name_hex":"digits"` to the line.
    fn push(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match std::str::from_utf8(bytes) {
            Ok(text) if !self.all_hex => {
                write!(self.line, "\"{name}\":")?;
                Ok(serde_json::to_writer(&mut self.line, text)?)
            }
            _ => write!(self.line, "\"{name}_hex\":\"{}\"", hex(bytes)),
        }
    }
}

impl RowWriter for JsonlWriter<'_> {
    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.line.clear();
        self.line.push(b'{');
        self.push("key", key)?;
        if !self.keys_only {
            self.line.push(b',');
            self.push("value", value)?;
        }
        self.line.extend_from_slice(b"}\n");
        Ok(self.output.write_all(&self.line)?)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.output.flush()?)
    }
}

fn check_form(form: Option<ByteForm>) -> Result<()> {
    match form {
        Some(ByteForm::Raw) => {
            Err(Failure::message("JSON cannot hold raw bytes: leave out --bytes, or use --bytes hex"))
        }
        _ => Ok(()),
    }
}
