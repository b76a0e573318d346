//! `esker unload` and `esker load`: a database as one file, and back.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use esker::unload::{Load, Unload, Unloaded};
use serde_json::json;

use crate::Answer;
use crate::database::{self, Database, Session};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::text::shown;

/// A progress bar that the first report creates, because it contains the total.
#[derive(Clone, Default)]
struct Bar(Arc<Mutex<Option<Progress>>>);

impl Bar {
    fn call(&self) -> impl FnMut(&Unloaded) + Send + 'static {
        let bar = self.clone();
        move |done| {
            let mut bar = bar.0.lock().unwrap_or_else(PoisonError::into_inner);
            let bar = bar.get_or_insert_with(|| Progress::rows(Some(done.entries_total)));
            bar.set(done.entries, String::new);
        }
    }

    fn finish(&self) {
        if let Some(bar) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish();
        }
    }
}

/// Returns whether the file is `-`: standard output or input.
fn is_stream(file: &Path) -> bool {
    file == Path::new("-")
}

pub(super) fn unload(session: &Session<'_>, file: &Path, plain: bool) -> Result<Answer> {
    if is_stream(file) {
        super::backup::check_redirected()?;
    }
    let database = session.open_to_read()?;
    let bar = Bar::default();
    let mut unload = Unload::new().plain(plain).on_progress(bar.call());
    if session.common.names_keyspace() {
        let names = database.keyspaces(&session.common)?.into_iter().map(|(name, _)| name);
        unload = unload.keyspaces(names);
    }
    let start = std::time::Instant::now();
    let done = match is_stream(file) {
        true => unload.write_to(&database.db, output::stdout()),
        false => unload.write(&database.db, file),
    };
    bar.finish();
    let done = done.map_err(|error| failed(&database, error))?;
    database.close()?;
    // Standard output has the stream.
    if is_stream(file) { Ok(Answer::Yes) } else { report(session, file, done, start.elapsed().as_secs_f64()) }
}

pub(super) fn load(session: &Session<'_>, file: &Path) -> Result<Answer> {
    let bar = Bar::default();
    let mut load = Load::new().env(database::env(session.opening)?).on_progress(bar.call());
    if session.common.names_keyspace() {
        load = load.keyspaces(session.common.keyspaces());
    }
    // Before the database is created, so that a mistyped name or a wrong file leaves none.
    let opened = match is_stream(file) {
        true => load.open_from(std::io::stdin().lock()),
        false => load.open(file),
    };
    let opened = opened.map_err(|error| refused(file, None, error))?;
    let database = session.open_or_create()?;
    let start = std::time::Instant::now();
    let done = opened.load(&database.db);
    bar.finish();
    let done = done.map_err(|error| refused(file, Some(&database), error))?;
    database.close()?;
    report(session, file, done, start.elapsed().as_secs_f64())
}

/// Describes why a file is not loaded.
fn refused(file: &Path, database: Option<&Database>, error: esker::Error) -> Failure {
    match (error, database) {
        (esker::Error::KeyspaceExists(name), _) => Failure::message(format!(
            "keyspace `{}` is not empty\n  load into another database, or clear it with `esker keyspaces clear`",
            shown(name)
        )),
        (esker::Error::KeyspaceNotFound(name), _) => {
            Failure::message(format!("{} has no keyspace `{}`", shown(file.display()), shown(name)))
        }
        (error, Some(database)) => failed(database, error),
        (error, None) => Failure::message(shown(error)),
    }
}

/// Describes an error. The engine's message names the file, which is rarely one of the database.
fn failed(database: &Database, error: esker::Error) -> Failure {
    super::backup::failed(database, error)
}

fn report(session: &Session<'_>, file: &Path, done: Unloaded, seconds: f64) -> Result<Answer> {
    if session.common.json {
        output::print_json(&json!({
            "keyspaces": done.keyspaces, "entries": done.entries, "bytes": done.bytes,
            "resumed_entries": done.resumed_entries, "seconds": seconds,
        }))?;
        return Ok(Answer::Yes);
    }
    let resumed = match done.resumed_entries {
        0 => String::new(),
        entries => format!(", {} of them before", output::count(entries)),
    };
    output::print_line(format_args!(
        "{}: {}, {}{resumed}, {}, {seconds:.2} s",
        shown(file.display()),
        output::plural(done.keyspaces, "keyspace"),
        output::plural_as(done.entries, "entry", "entries"),
        output::size(done.bytes),
    ))?;
    Ok(Answer::Yes)
}
