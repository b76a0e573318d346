//! `esker ttl`: prints the remaining time to live of a key.

use std::ffi::OsString;

use esker::Ttl;
use serde_json::json;

use crate::Answer;
use crate::args::Common;
use crate::database::Session;
use crate::failure::Result;
use crate::output;
use crate::text::shown;

#[derive(Debug, clap::Args)]
pub(crate) struct TtlArgs {
    /// The key
    #[arg(allow_negative_numbers = true)]
    pub(super) key: OsString,
}

pub(super) fn run(session: &Session<'_>, args: &TtlArgs) -> Result<Answer> {
    let common = &session.common;
    let key = common.decode(&args.key)?;
    let database = session.open_to_read()?;
    let mut answer = Answer::No;
    for (name, keyspace) in database.keyspaces(common)? {
        let Some(ttl) = database.ttl(&keyspace, &key)? else { continue };
        answer = Answer::Yes;
        let seconds = match ttl {
            Ttl::Unlimited => None,
            Ttl::Left(left) => Some((left.as_secs_f64() * 1000.0).round() / 1000.0),
        };
        print(common, &name, seconds)?;
    }
    Ok(answer)
}

/// Prints the remaining seconds of a key. `None`: it does not expire.
pub(super) fn print(common: &Common, keyspace: &str, seconds: Option<f64>) -> Result<()> {
    match (common.json, common.has_several()) {
        (true, true) => output::print_json(&json!({ "keyspace": keyspace, "seconds": seconds }))?,
        (true, false) => output::print_json(&json!({ "seconds": seconds }))?,
        (false, several) => {
            let name = if several { format!("{}\t", shown(keyspace)) } else { String::new() };
            let text = seconds.map_or("unlimited".to_owned(), |seconds| format!("{seconds:.3}"));
            output::print_line(format_args!("{name}{text}"))?;
        }
    }
    Ok(())
}
