//! `esker put`: sets a key.

use std::io::Read;

use crate::Answer;
use crate::args::Put;
use crate::database::Session;
use crate::failure::{Failure, Result};

pub(super) fn run(session: &Session<'_>, put: &Put) -> Result<Answer> {
    let name = session.common.keyspace()?;
    let key = session.common.decode(&put.key)?;
    let value = match &put.value {
        Some(text) => session.common.decode(text)?,
        None => {
            let mut bytes = Vec::new();
            // Reading one byte more than allowed reveals a value that is too long.
            std::io::stdin()
                .take(esker::VALUE_BYTES_MAX as u64 + 1)
                .read_to_end(&mut bytes)
                .map_err(|e| Failure::message(format!("read the value from standard input: {e}")))?;
            bytes
        }
    };
    let value = match put.number {
        Some(form) => form.encode(&value)?,
        None => value,
    };
    let database = session.open_or_create()?;
    let keyspace = database.keyspace_or_create(name)?;
    database.write(|writes| match put.ttl {
        Some(ttl) => writes.put_with_ttl(&keyspace, &key, &value, ttl),
        None => writes.put(&keyspace, &key, &value),
    })?;
    database.close()?;
    Ok(Answer::Yes)
}
