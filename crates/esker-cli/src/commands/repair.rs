//! `esker repair`: salvages the readable part of a damaged database into a new one.

use std::io::Write;
use std::path::{Path, PathBuf};

use esker::{Db, LostKeys, RepairReport};
use serde_json::{Value, json};

use crate::Answer;
use crate::args::Repair;
use crate::database::{Session, env, when_free};
use crate::failure::{Failure, Refusal, Result};
use crate::output;
use crate::text::shown;

pub(super) fn run(session: &Session<'_>, repair: &Repair) -> Result<Answer> {
    let to_make = missing(&repair.target);
    let mut whole = None;
    let env = env(session.opening)?;
    let repaired = when_free(session.opening.wait, || {
        let tell = |report: &RepairReport| whole = Some(report.clone());
        Db::builder().env(env.clone()).repair_with_progress(&repair.source, &repair.target, tell)
    });
    let report = repaired.inspect_err(|_| remove_empty(&to_make)).map_err(|error| match error {
        // A full disk or a refusal concerns the target.
        esker::Error::NotFound(path) => Failure::message(format!("no database in {}", shown(path.display()))),
        esker::Error::Locked { ref path, .. } => {
            let is_target = path.parent() == Some(&repair.target);
            Failure::Engine(if is_target { &repair.target } else { &repair.source }.clone(), error)
        }
        // Either directory may be meant; the message names the path.
        error if Refusal::of(&error).is_some_and(|refusal| refusal != Refusal::ReadOnly) => {
            Failure::Engine(repair.target.clone(), error)
        }
        error => Failure::message(shown(error)),
    });
    let report = report.map_err(|failure| match &whole {
        Some(report) => failed_at_the_end(session, repair, report, &failure),
        None => failure,
    })?;
    let printed = print_report(session, repair, &report);
    output::printed(if report.losses.is_empty() { Answer::Yes } else { Answer::No }, printed)
}

/// Returns the directories that the repair has to create, innermost first.
fn missing(target: &Path) -> Vec<PathBuf> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && std::fs::symlink_metadata(dir).is_err();
    target.ancestors().take_while(is_missing).map(Path::to_path_buf).collect()
}

/// Removes the directories that a failed repair created. The engine has removed its own files; directories
/// that are not empty stay.
fn remove_empty(dirs: &[PathBuf]) {
    for dir in dirs {
        // The error that ended the repair matters more.
        let _ignored = std::fs::remove_dir(dir);
    }
}

/// Describes a failure after the new database was complete, while it was made openable. Its directory may
/// stay as it is, so the report is printed too.
fn failed_at_the_end(
    session: &Session<'_>,
    repair: &Repair,
    report: &RepairReport,
    failure: &Failure,
) -> Failure {
    // The failure of the repair matters more than one of printing.
    let _ignored = print_report(session, repair, report);
    Failure::message(format!(
        "{failure}\n  the report describes the new database before this failure; it is valid if {} can be opened",
        shown(repair.target.display())
    ))
}

fn print_report(session: &Session<'_>, repair: &Repair, report: &RepairReport) -> Result<()> {
    if session.common.json { output::print_json(&as_json(report)) } else { print(repair, report) }
}

fn print(repair: &Repair, report: &RepairReport) -> Result<()> {
    let mut out = output::stdout();
    writeln!(
        out,
        "{}: {}, from {} ({}) and {} of the log; checked and sound",
        shown(repair.target.display()),
        output::plural(report.live_keys(), "key"),
        output::plural(report.tables, "table"),
        output::plural(report.blocks, "block"),
        output::plural(report.commits, "commit"),
    )?;
    for keyspace in &report.keyspaces {
        writeln!(out, "  {}  {}", shown(&keyspace.name), output::plural(keyspace.keys, "key"))?;
    }
    for note in &report.notes {
        writeln!(out, "note: {}", shown(note))?;
    }
    for loss in &report.losses {
        writeln!(out, "LOST: {}", shown(loss))?;
    }
    let verdict = match report.losses.len() {
        0 => "nothing was lost".to_owned(),
        1 => "1 LOSS: the keys it names are missing or have an older value".to_owned(),
        n => format!("{n} LOSSES: the keys they name are missing or have an older value"),
    };
    writeln!(out, "{verdict}")?;
    Ok(out.flush()?)
}

fn as_json(report: &RepairReport) -> Value {
    let place = |place: &Option<(esker::KeyspaceId, Vec<u8>)>| match place {
        Some((id, key)) => json!({ "keyspace": id.get(), "key": key.escape_ascii().to_string() }),
        None => Value::Null,
    };
    let keys = |keys: &LostKeys| match keys {
        LostKeys::Between(low, high) => json!({ "from": place(low), "to": place(high) }),
        LostKeys::Any => json!("any"),
        LostKeys::Names => json!("names"),
    };
    let losses: Vec<Value> = report
        .losses
        .iter()
        .map(|loss| {
            json!({
                "path": loss.path.display().to_string(), "offset": loss.offset, "bytes": loss.bytes,
                "detail": loss.detail, "keys": keys(&loss.keys), "commits": loss.commits,
            })
        })
        .collect();
    let keyspaces: Vec<Value> = report
        .keyspaces
        .iter()
        .map(|k| json!({ "id": k.id.get(), "name": k.name, "keys": k.keys }))
        .collect();
    json!({
        "keyspaces": keyspaces, "tables": report.tables, "blocks": report.blocks, "entries": report.entries,
        "log_segments": report.log_segments, "commits": report.commits, "losses": losses, "notes": report.notes,
    })
}
