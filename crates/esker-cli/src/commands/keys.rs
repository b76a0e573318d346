//! `esker keys`: the keys of encrypted databases and backups.

use serde_json::json;

use crate::Answer;
use crate::args::Keys;
use crate::database::Session;
use crate::failure::{Failure, Result};
use crate::output;
use crate::text::shown;

pub(super) fn run(session: &Session<'_>, what: &Keys) -> Result<Answer> {
    let Keys::Rotate { data, backups } = what;
    if session.opening.key_file.is_none() {
        return Err(Failure::message(
            "name the file of master keys with --key-file FILE, or set ESKER_KEY_FILE",
        ));
    }
    let directory = match backups {
        Some(directory) => {
            let mut backup = super::backup::open(session, directory)?;
            backup.rotate_master_key().map_err(|error| Failure::message(shown(error)))?;
            directory.clone()
        }
        None => {
            // Opening the database to write rotates the master key.
            let database = session.open()?;
            if *data {
                database.db.compact().map_err(|error| database.failure(error))?;
            }
            let directory = database.directory().to_owned();
            database.close()?;
            directory
        }
    };
    if session.common.json {
        output::print_json(&json!({ "directory": directory.display().to_string(), "data": data }))?;
    } else {
        let directory = shown(directory.display());
        output::print_line(format_args!("the first master key wraps the keys of {directory}"))?;
    }
    Ok(Answer::Yes)
}
