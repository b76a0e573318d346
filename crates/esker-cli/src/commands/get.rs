//! `esker get`: print the value of a key.

use std::io::{IsTerminal, Write};

use crate::Answer;
use crate::args::{Args, Get};
use crate::database::Database;
use crate::failure::Result;
use crate::formats::{JsonlWriter, RowWriter};
use crate::output;
use crate::text::ByteForm;

pub(super) fn run(args: &Args, get: &Get) -> Result<Answer> {
    let key = args.decode(&get.key)?;
    let database = Database::open(args)?;
    let keyspace = database.keyspace(args)?;
    let Some(value) = keyspace.get(&key).map_err(|e| database.failure(e))? else {
        return Ok(Answer::No);
    };
    let mut out = output::stdout();
    if args.json {
        let mut writer = JsonlWriter::new(Box::new(out), args.bytes)?;
        writer.write(&key, &value)?;
        writer.finish()?;
        return Ok(Answer::Yes);
    }
    let mut text = Vec::new();
    args.form().encode(&value, &mut text);
    // Raw bytes that go to a file or a program are the value and nothing else.
    if args.form() != ByteForm::Raw || std::io::stdout().is_terminal() {
        text.push(b'\n');
    }
    out.write_all(&text)?;
    out.flush()?;
    Ok(Answer::Yes)
}
