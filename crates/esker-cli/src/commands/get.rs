//! `esker get`: prints the value of a key.

use std::io::{IsTerminal, Write};

use crate::Answer;
use crate::args::{Common, Get};
use crate::database::Session;
use crate::failure::Result;
use crate::formats::{JsonlWriter, RowWriter};
use crate::numbers::NumberForm;
use crate::output;
use crate::text::{ByteForm, shown};

pub(super) fn run(session: &Session<'_>, get: &Get) -> Result<Answer> {
    let common = &session.common;
    let key = common.decode(&get.key)?;
    let database = session.open_to_read()?;
    let mut answer = Answer::No;
    let mut out = output::stdout();
    for (name, keyspace) in database.keyspaces(common)? {
        let found = match get.at {
            Some(at) => keyspace.get_at(&key, at.0).map_err(|error| database.failure(error))?,
            None => database.get(&keyspace, &key)?,
        };
        let Some(value) = found else { continue };
        answer = Answer::Yes;
        print(&mut out, common, get.number, &name, &key, &value)?;
    }
    out.flush()?;
    Ok(answer)
}

/// Prints a value.
pub(super) fn print(
    out: &mut impl Write,
    common: &Common,
    number: Option<NumberForm>,
    keyspace: &str,
    key: &[u8],
    value: &[u8],
) -> Result<()> {
    if common.json {
        let mut writer = JsonlWriter::new(Box::new(out), common.bytes)?;
        if common.has_several() {
            writer.begin_keyspace(keyspace);
        }
        return writer.write(key, value);
    }
    let mut text =
        if common.has_several() { format!("{}\t", shown(keyspace)).into_bytes() } else { Vec::new() };
    match number {
        Some(form) => text.extend_from_slice(form.decode(value)?.as_bytes()),
        None => common.form().encode(value, &mut text),
    }
    // Raw output to a file or a pipe is exactly the value, without a line end.
    if common.form() != ByteForm::Raw || common.has_several() || std::io::stdout().is_terminal() {
        text.push(b'\n');
    }
    Ok(out.write_all(&text)?)
}
