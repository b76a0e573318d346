//! `esker dump`: shows the contents of a file of a database.

use std::io::Write;

use esker::{DumpItem, DumpOptions, DumpValue};
use serde_json::{Map, Value};

use crate::Answer;
use crate::args::Dump;
use crate::database::{Session, env};
use crate::failure::{Failure, Result};
use crate::output;
use crate::text::{ByteForm, json_shown, shown};

pub(super) fn run(session: &Session<'_>, dump: &Dump) -> Result<Answer> {
    let options = DumpOptions::default().env(env(session.opening)?).entries(!dump.no_entries);
    let mut out = output::stdout();
    let (mut written, mut damaged) = (Ok(()), false);
    let dumped = options.dump(&dump.path, |item| {
        damaged |= item.kind == "damage";
        if written.is_ok() {
            let line = if session.common.json {
                as_json(&item, session.common.form())
            } else {
                as_text(&item, session.common.form())
            };
            written = out.write_all(&line);
        }
    });
    let written = written.and_then(|()| out.flush()).map_err(Failure::from);
    dumped.map_err(|error| Failure::message(shown(error)))?;
    output::printed(if damaged { Answer::No } else { Answer::Yes }, written)
}

/// Formats an item as `OFFSET KIND name=value ...`, with bytes in quotes in the requested form.
fn as_text(item: &DumpItem, form: ByteForm) -> Vec<u8> {
    let mut line = format!("{:>10}  {}", item.offset, item.kind).into_bytes();
    for (name, value) in &item.fields {
        line.extend_from_slice(format!("  {name}=").as_bytes());
        match value {
            DumpValue::Number(n) => line.extend_from_slice(n.to_string().as_bytes()),
            DumpValue::Text(text) => line.extend_from_slice(shown(text).as_bytes()),
            DumpValue::Bytes(bytes) => {
                line.push(b'"');
                form.encode(bytes, &mut line);
                line.push(b'"');
            }
        }
    }
    line.push(b'\n');
    line
}

/// Formats an item as one JSON object per line. Bytes that are not UTF-8 appear in hex under NAME_hex.
fn as_json(item: &DumpItem, form: ByteForm) -> Vec<u8> {
    let mut object = Map::new();
    object.insert("offset".into(), item.offset.into());
    object.insert("kind".into(), item.kind.into());
    for (name, value) in &item.fields {
        let (name, value) = match value {
            DumpValue::Number(n) => ((*name).to_owned(), Value::from(*n)),
            DumpValue::Text(text) => ((*name).to_owned(), Value::from(text.as_str())),
            DumpValue::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if form != ByteForm::Hex => ((*name).to_owned(), Value::from(text)),
                _ => {
                    let mut hex = Vec::new();
                    ByteForm::Hex.encode(bytes, &mut hex);
                    (format!("{name}_hex"), Value::from(String::from_utf8_lossy(&hex)))
                }
            },
        };
        object.insert(name, value);
    }
    let mut line = json_shown(Value::Object(object).to_string()).into_bytes();
    line.push(b'\n');
    line
}
