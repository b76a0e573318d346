//! JSON: `{"key":"...","value":"..."}`, one row per line. An array of such objects can be read, too.
//!
//! ```text
//!   key, value            strings; any other JSON value counts as its JSON text, byte by byte
//!   key_hex, value_hex    bytes that are not UTF-8
//!   keyspace              the keyspace of the row
//!   expires_ms            when the row expires, in milliseconds since 1970
//! ```
//!
//! A null field counts as missing. An object without the value field is a bad line, except that with --key
//! and without --value the whole object is the value. With --key or --value, `keyspace` and `expires_ms` are
//! ordinary fields, because the file is then not an export.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use esker::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use serde_json::value::RawValue;

use super::elements::Elements;
use super::lines::Lines;
use super::{AROUND_BYTES_MAX, Column, ReadOptions, Row, RowReader, RowWriter, Step};
use crate::failure::{Failure, Result};
use crate::text::{ByteForm, json_shown, push_json_bytes, unhex};

/// A byte of a string takes up to six bytes of JSON, as in `\u0000`.
const LINE_BYTES_MAX: u64 = 6 * (KEY_BYTES_MAX as u64 + VALUE_BYTES_MAX as u64) + AROUND_BYTES_MAX;

/// Field with the name of the keyspace.
const KEYSPACE: &str = "keyspace";
/// Field with the expiry time.
const EXPIRES: &str = "expires_ms";

/// The fields of an object, each as its JSON text.
type Object<'a> = BTreeMap<String, &'a RawValue>;

/// Reads JSON lines.
pub(super) struct JsonlReader {
    source: Source,
    fields: Fields,
    /// The keyspace that the last row names.
    keyspace: Option<String>,
}

/// The names of the fields of an object.
struct Fields {
    key: String,
    value: String,
    /// Whether an object without a value field is itself the value.
    is_whole: bool,
    /// Whether `keyspace` and `expires_ms` are special fields.
    has_keyspace: bool,
}

/// The layout of the file, determined by its first byte.
enum Source {
    Unknown(Option<Box<dyn BufRead>>),
    Lines(Lines),
    Array(Elements),
}

impl JsonlReader {
    pub(super) fn new(input: Box<dyn BufRead>, options: &ReadOptions) -> Result<Self> {
        check_form(options.form)?;
        if options.header == Some(true) {
            return Err(no_header());
        }
        let name = |column: &Option<Column>, default: &str| {
            column.as_ref().map_or_else(|| default.to_owned(), |column| column.0.clone())
        };
        Ok(JsonlReader {
            source: Source::Unknown(Some(input)),
            fields: Fields {
                key: name(&options.key, "key"),
                value: name(&options.value, "value"),
                is_whole: options.key.is_some() && options.value.is_none(),
                has_keyspace: options.key.is_none() && options.value.is_none(),
            },
            keyspace: None,
        })
    }
}

/// Skips white space. Returns the line, from 1, of the next byte, and whether it opens an array.
fn look(input: &mut dyn BufRead) -> io::Result<(u64, bool)> {
    let mut line = 1;
    loop {
        let bytes = input.fill_buf()?;
        let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        line += bytes[..blank].iter().filter(|byte| **byte == b'\n').count() as u64;
        let found = bytes.get(blank).copied();
        let is_end = bytes.is_empty();
        input.consume(blank);
        if is_end || found.is_some() {
            return Ok((line, found == Some(b'[')));
        }
    }
}

impl RowReader for JsonlReader {
    fn read(&mut self, row: &mut Row) -> io::Result<Step> {
        if let Source::Unknown(input) = &mut self.source
            && let Some(mut input) = input.take()
        {
            let (line, is_array) = look(&mut *input)?;
            self.source = match is_array {
                true => Source::Array(Elements::new(input, line, LINE_BYTES_MAX)),
                false => Source::Lines(Lines::new(input, true, LINE_BYTES_MAX).starting_at(line)),
            };
        }
        loop {
            let object = match &mut self.source {
                Source::Lines(lines) => match lines.next_line()? {
                    None => return Ok(Step::End),
                    Some(Err(reason)) => return Ok(Step::Bad(reason)),
                    // JSON allows white space between objects.
                    Some(Ok(line)) if line.trim_ascii().is_empty() => continue,
                    Some(Ok(line)) => line,
                },
                Source::Array(elements) => match elements.next_element()? {
                    None => return Ok(Step::End),
                    Some(element) => element,
                },
                // Reading the start of the file failed.
                Source::Unknown(_) => return Ok(Step::End),
            };
            return Ok(match parse(object, &self.fields, row) {
                Ok(keyspace) => {
                    self.keyspace = keyspace;
                    Step::Row
                }
                Err(reason) => Step::Bad(reason),
            });
        }
    }

    fn line(&self) -> u64 {
        match &self.source {
            Source::Lines(lines) => lines.number(),
            Source::Array(elements) => elements.line(),
            Source::Unknown(_) => 1,
        }
    }

    fn keyspace(&self) -> Option<&str> {
        self.keyspace.as_deref()
    }

    /// A truncated object is a bad line, so a row never ends early.
    fn is_unended(&self) -> bool {
        false
    }
}

/// Fills the row. Returns the keyspace that the object names.
fn parse(line: &[u8], fields: &Fields, row: &mut Row) -> std::result::Result<Option<String>, String> {
    row.key.clear();
    row.value.clear();
    row.expires_ms = None;
    let object: Object<'_> = serde_json::from_slice(line).map_err(|e| no_object(line, &e))?;
    if !take(&object, &fields.key, &mut row.key)? {
        return Err(no_field(&fields.key, "--key FIELD names another"));
    }
    if !take(&object, &fields.value, &mut row.value)? {
        // The whole object is the value if the user gave --key alone.
        if !fields.is_whole {
            let help = "--value FIELD names another; with --key FIELD alone the whole object is the value";
            return Err(no_field(&fields.value, help));
        }
        row.value.extend_from_slice(line.trim_ascii());
    }
    // The expiry time, unless it is an ordinary field.
    if let Some(at) = field(&object, EXPIRES).filter(|_| fields.has_keyspace) {
        let at = at.get().parse().map_err(|_| format!("{EXPIRES}: milliseconds since 1970 are needed"))?;
        row.expires_ms = Some(at);
    }
    match field(&object, KEYSPACE).filter(|_| fields.has_keyspace) {
        Some(name) => serde_json::from_str(name.get()).map(Some).map_err(|e| format!("{KEYSPACE}: {e}")),
        None => Ok(None),
    }
}

/// Array elements are balanced, so an unbalanced object was cut by the end of its line.
fn no_object(line: &[u8], error: &serde_json::Error) -> String {
    match line.trim_ascii_start().first() {
        Some(b'{') if error.is_eof() => {
            "no JSON object: the line ends within it; give one object per line, or an array of objects \
             (`jq -c . FILE` writes each on a line of its own)"
                .to_owned()
        }
        _ => format!("no JSON object: {error}"),
    }
}

fn no_field(name: &str, help: &str) -> String {
    format!("the object has no field `{name}`, or it is null: {help}")
}

/// Returns a field that is present and not null.
fn field<'a>(object: &Object<'a>, name: &str) -> Option<&'a RawValue> {
    object.get(name).copied().filter(|field| field.get() != "null")
}

/// Appends the bytes of a field or of its `_hex` form. Returns false if neither is present.
fn take(object: &Object<'_>, name: &str, into: &mut Vec<u8>) -> std::result::Result<bool, String> {
    let string = |name: &str, field: &RawValue| match field.get().starts_with('"') {
        true => serde_json::from_str(field.get()).map(Some).map_err(|e| format!("{name}: {e}")),
        false => Ok(None::<String>),
    };
    let name_hex = format!("{name}_hex");
    match (field(object, name), field(object, &name_hex)) {
        (Some(_), Some(_)) => return Err(format!("both `{name}` and `{name_hex}`: which one?")),
        (Some(field), None) => match string(name, field)? {
            Some(text) => into.extend_from_slice(text.as_bytes()),
            // Any other JSON value counts as its text.
            None => into.extend_from_slice(field.get().as_bytes()),
        },
        (None, Some(field)) => match string(&name_hex, field)? {
            Some(digits) => {
                unhex(digits.as_bytes(), into).map_err(|reason| format!("{name_hex}: {reason}"))?
            }
            None => return Err(format!("{name_hex}: a string of hexadecimal digits is needed")),
        },
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
    /// `"keyspace":NAME,` or empty.
    keyspace: String,
}

impl<'a> JsonlWriter<'a> {
    pub(crate) fn new(output: Box<dyn Write + 'a>, form: Option<ByteForm>) -> Result<Self> {
        check_form(form)?;
        let all_hex = form == Some(ByteForm::Hex);
        Ok(JsonlWriter { output, line: Vec::new(), all_hex, keys_only: false, keyspace: String::new() })
    }

    /// Omits the values.
    pub(crate) fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    fn write_row(&mut self, key: &[u8], value: &[u8], expires_ms: Option<u64>) -> Result<()> {
        self.line.clear();
        self.line.push(b'{');
        self.line.extend_from_slice(self.keyspace.as_bytes());
        push_json_bytes("key", key, self.all_hex, &mut self.line)?;
        if !self.keys_only {
            self.line.push(b',');
            push_json_bytes("value", value, self.all_hex, &mut self.line)?;
        }
        if let Some(expires_ms) = expires_ms {
            write!(self.line, ",\"{EXPIRES}\":{expires_ms}")?;
        }
        self.line.extend_from_slice(b"}\n");
        Ok(self.output.write_all(&self.line)?)
    }
}

impl RowWriter for JsonlWriter<'_> {
    fn begin_keyspace(&mut self, name: &str) {
        let value = serde_json::Value::from(name).to_string();
        self.keyspace = format!("\"{KEYSPACE}\":{},", json_shown(value));
    }

    fn write(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_row(key, value, None)
    }

    fn write_expiring(&mut self, key: &[u8], value: &[u8], expires_ms: u64) -> Result<bool> {
        self.write_row(key, value, Some(expires_ms))?;
        Ok(true)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.output.flush()?)
    }
}

/// The error for `--header yes`, when reading or writing.
pub(super) fn no_header() -> Failure {
    Failure::message("JSON lines have no header: each object names its fields")
}

fn check_form(form: Option<ByteForm>) -> Result<()> {
    match form {
        Some(ByteForm::Raw) => {
            Err(Failure::message("JSON cannot hold raw bytes: leave out --bytes, or use --bytes hex"))
        }
        _ => Ok(()),
    }
}
