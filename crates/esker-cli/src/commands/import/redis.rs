//! `esker import --server`: imports a snapshot of Redis, or a running Redis, into a server.

use std::io::{BufReader, Read};
use std::time::Instant;

use serde_json::json;

use crate::Answer;
use crate::args::Import;
use crate::database::Session;
use crate::failure::{Failure, Result};
use crate::formats;
use crate::migration::Server;
use crate::migration::follow::{Followed, Until, follow};
use crate::migration::load::load;
use crate::migration::target::Target;
use crate::output;
use crate::progress::Progress;
use crate::text::shown;

const BUFFER_BYTES: usize = 256 << 10;
/// What to do about a target that has a part of the data.
const AGAIN: &str = "the target has a part of the data: import again, with --replace";

/// Imports if a server is given; otherwise the rows of a file are meant.
pub(super) fn run(session: &Session<'_>, import: &Import) -> Result<Option<Answer>> {
    let is_snapshot = import.file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("rdb"));
    let Some(esker) = import.redis.esker() else {
        return match is_snapshot && import.format.is_none() {
            true => Err(Failure::message(
                "a snapshot of Redis goes into a running server: name it with --server ADDRESS:PORT",
            )),
            false => Ok(None),
        };
    };
    refuse_options_of_rows(import)?;
    let source = import.redis.other()?;
    if source.is_some() && !formats::is_standard(&import.file) {
        return Err(Failure::message("import takes a file or --redis, not both"));
    }
    let mut target = Target::open(&esker)?;
    target.prepare(import.redis.replace)?;
    let mode = ImportMode::begin(&mut target);
    let begun = Instant::now();
    let done = match &source {
        Some(source) => from_redis(source, import, &mut target),
        None => from_file(import, &mut target),
    };
    let ended = mode.end(&esker);
    let followed = done.map_err(|failure| Failure::message(format!("{failure}\n  {AGAIN}")))?;
    ended?;
    report(session, &followed, source.is_some(), begun.elapsed().as_secs_f64())?;
    Ok(Some(if followed.is_caught_up { Answer::Yes } else { Answer::No }))
}

fn refuse_options_of_rows(import: &Import) -> Result<()> {
    let is_of_rows = import.format.is_some()
        || import.key.is_some()
        || import.value.is_some()
        || import.header.is_some()
        || import.delimiter.is_some()
        || import.skip_bad
        || import.sorted;
    match is_of_rows {
        true => {
            Err(Failure::message("--server takes snapshots of Redis: options of rows mean nothing there"))
        }
        false => Ok(()),
    }
}

fn from_file(import: &Import, target: &mut Target) -> Result<Followed> {
    let is_standard = formats::is_standard(&import.file);
    let name = if is_standard { "standard input".into() } else { import.file.display().to_string() };
    let (input, total): (Box<dyn Read>, _) = if is_standard {
        (Box::new(std::io::stdin()), None)
    } else {
        let file = std::fs::File::open(&import.file).map_err(|e| Failure::file("open", &import.file, &e))?;
        let total = file.metadata().ok().map(|meta| meta.len());
        (Box::new(file), total)
    };
    let progress = Progress::bytes(total);
    let input = BufReader::with_capacity(BUFFER_BYTES, input);
    let loaded = load(&name, input, target, &progress, &|| false)?;
    progress.finish();
    Ok(Followed { loaded, is_caught_up: true, ..Followed::default() })
}

fn from_redis(source: &Server, import: &Import, target: &mut Target) -> Result<Followed> {
    let follow_args = &import.follow;
    let until = match (follow_args.until_caught_up, follow_args.until_idle) {
        (true, _) => Until::CaughtUp,
        (false, Some(time)) => Until::Idle(time),
        (false, None) => Until::Stopped,
    };
    let directory = follow_args.spool.clone().unwrap_or_else(std::env::temp_dir);
    follow(source, target, directory, until)
}

fn report(session: &Session<'_>, followed: &Followed, is_live: bool, seconds: f64) -> Result<()> {
    let Followed { loaded, commands, offset, is_caught_up } = followed;
    if session.common.json {
        return output::print_json(&json!({
            "keys": loaded.keys, "libraries": loaded.libraries, "commands": commands, "offset": offset,
            "caught_up": is_caught_up, "seconds": seconds,
        }));
    }
    let mut line = format!("imported {}", output::plural(loaded.keys, "key"));
    if loaded.libraries > 0 {
        line += &format!(", {}", output::plural(loaded.libraries, "library of functions"));
    }
    if is_live {
        line += &format!(", then {} up to offset {offset}", output::plural(*commands, "command"));
    }
    output::print_line(format_args!("{line}, in {seconds:.2} s"))?;
    if !is_caught_up {
        output::print_message("not all that the source has sent was applied");
    }
    Ok(())
}

/// The target's import mode: nothing expires there but what the source says, which may prolong a lifetime
/// after its end.
struct ImportMode {
    is_on: bool,
}

impl ImportMode {
    fn begin(target: &mut Target) -> Self {
        let set = target.ask(&["CONFIG", "SET", "import-mode", "yes"]);
        let is_on = set.is_ok();
        let begun = set.and_then(|_| target.ask(&["CLIENT", "IMPORT-SOURCE", "ON"]));
        if let Err(failure) = begun {
            output::print_message(format_args!(
                "esker: {failure}\n  without the import mode, a key is lost whose lifetime the source prolongs when less \
                 than the lag is left of it"
            ));
        }
        ImportMode { is_on }
    }

    /// Ends it, by a connection of its own: that of the import may be broken.
    fn end(self, esker: &Server) -> Result<()> {
        if !self.is_on {
            return Ok(());
        }
        let ended =
            Target::open(esker).and_then(|mut target| target.ask(&["CONFIG", "SET", "import-mode", "no"]));
        ended.map(drop).map_err(|failure| {
            Failure::message(format!(
                "{}\n  expired keys are kept until `CONFIG SET import-mode no`",
                shown(failure.to_string())
            ))
        })
    }
}
