//! `esker export --server --redis`: copies the keys of a server to Redis.

use std::time::Instant;

use serde_json::json;

use crate::Answer;
use crate::args::Export;
use crate::database::Session;
use crate::failure::{Failure, Result};
use crate::formats;
use crate::migration::export::export;
use crate::migration::target::Target;
use crate::output;
use crate::progress::Progress;

/// Exports if a server is given; otherwise rows of a database are meant.
pub(super) fn run(session: &Session<'_>, args: &Export) -> Result<Option<Answer>> {
    let Some(esker) = args.redis.esker() else { return Ok(None) };
    let is_of_rows = args.format.is_some() || args.header.is_some() || args.delimiter.is_some();
    let Some(redis) = args.redis.other()?.filter(|_| !is_of_rows && formats::is_standard(&args.file)) else {
        return Err(Failure::message(
            "a server is exported to a Redis: --redis ADDRESS:PORT, without a file",
        ));
    };
    let (mut source, mut target) = (Target::open(&esker)?, Target::open(&redis)?);
    target.prepare(args.redis.replace)?;
    let (begun, progress) = (Instant::now(), Progress::rows(None));
    let exported = export(&mut source, &mut target, &progress);
    progress.finish();
    let exported = exported.map_err(|failure| {
        Failure::message(format!("{failure}\n  Redis has a part of the data: export again, with --replace"))
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    if session.common.json {
        output::print_json(&json!({
            "keys": exported.keys, "libraries": exported.libraries, "seconds": seconds,
        }))?;
    } else {
        let keys = output::plural(exported.keys, "key");
        output::print_line(format_args!("exported {keys} to {}, in {seconds:.2} s", redis.address))?;
    }
    Ok(Some(Answer::Yes))
}
