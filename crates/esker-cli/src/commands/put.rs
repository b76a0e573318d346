//! `esker put`: set a key.

use std::io::Read;

use crate::Answer;
use crate::args::{Args, Put};
use crate::database::Database;
use crate::failure::{Failure, Result};

pub(super) fn run(args: &Args, put: &Put) -> Result<Answer> {
    let key = args.decode(&put.key)?;
    let value = match &put.value {
        Some(text) => args.decode(text)?,
        None => {
            let mut bytes = Vec::new();
            // One byte too many tells that there are too many.
            std::io::stdin()
                .take(esker::VALUE_BYTES_MAX as u64 + 1)
                .read_to_end(&mut bytes)
                .map_err(|e| Failure::message(format!("read the value from standard input: {e}")))?;
            bytes
        }
    };
    let database = Database::open_or_create(args)?;
    let keyspace = database.keyspace_or_create(args)?;
    keyspace.put(key, value).map_err(|e| database.failure(e))?;
    database.close()?;
    Ok(Answer::Yes)
}
