//! `esker keyspaces`: lists, creates, drops, renames, clears and copies keyspaces, and sets their history
//! and limits.
//!
//! A copy has the options and expiry times of its source, but not its history. If it fails, it is removed
//! again, provided that the database can still be written. A kill leaves the batches committed so far.

use std::io::{self, IsTerminal, Write};

use esker::{History, Keyspace};
use serde_json::json;

use super::past::Span;
use super::sink::{BATCH_ROWS, Sink};
use super::{merge, past};
use crate::Answer;
use crate::args::{Common, Keyspaces, LimitArgs};
use crate::bounds::Bounds;
use crate::database::{Database, Session};
use crate::expiry::{Expiries, Expiry};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use crate::text::{json_shown, shown};

/// Rows between two updates of the progress bar.
const ROWS_PER_TICK: u64 = 1_024;

pub(super) fn run(session: &Session<'_>, keyspaces: &Keyspaces) -> Result<Answer> {
    let database = match keyspaces {
        read if read.only_prints() => session.open_to_read()?,
        _ => session.open()?,
    };
    let count = |keyspace: &Keyspace| database.count(keyspace, &Bounds::default());
    match keyspaces {
        Keyspaces::List => return list(session, &database),
        Keyspaces::Create { name } => drop(database.create_keyspace(name)?),
        Keyspaces::Drop { name, yes } => {
            let keys = count(&database.keyspace(name)?)?;
            if !yes && !is_sure("drop", name, keys) {
                return Ok(Answer::No);
            }
            database.drop_keyspace(name)?;
        }
        Keyspaces::Rename { from, to } => {
            database.keyspace(from)?;
            database.rename_keyspace(from, to)?;
        }
        Keyspaces::Clear { name, yes } => {
            let keyspace = database.keyspace(name)?;
            if !yes && !is_sure("clear", name, count(&keyspace)?) {
                return Ok(Answer::No);
            }
            database.clear_keyspace(&keyspace)?;
        }
        Keyspaces::History(args) => past::history(session, &database, args)?,
        Keyspaces::Limit(args) => limit(session, &database, args)?,
        Keyspaces::Operator { name, operator } => {
            merge::operator(session, &database, name, operator.as_deref())?;
        }
        Keyspaces::Copy { .. } if database.in_transaction() => {
            return Err(Failure::message(
                "a transaction cannot copy a keyspace: `commit` or `rollback` first",
            ));
        }
        Keyspaces::Copy { from, to } => {
            let (rows, seconds) = copy(&database, from, to)?;
            let has_past = database.keyspace(from)?.history() != History::None;
            database.close()?;
            let printed = if session.common.json {
                output::print_json(&json!({ "rows": rows, "seconds": seconds }))
            } else {
                let stays = if has_past { "; its history is not copied" } else { "" };
                output::print_line(format_args!(
                    "copied {} in {seconds:.2} s{stays}",
                    output::plural(rows, "row")
                ))
            };
            return output::printed(Answer::Yes, printed);
        }
    }
    database.close()?;
    Ok(Answer::Yes)
}

fn list(session: &Session<'_>, database: &Database) -> Result<Answer> {
    let mut out = output::stdout();
    for name in database.names()? {
        let entries = database.count(&database.keyspace(&name)?, &Bounds::default())?;
        print(&mut out, &session.common, &name, entries)?;
    }
    out.flush()?;
    Ok(Answer::Yes)
}

/// Prints a keyspace and its number of entries.
pub(super) fn print(out: &mut impl Write, common: &Common, name: &str, entries: u64) -> Result<()> {
    if common.json {
        let object = json!({ "keyspace": name, "entries": entries });
        writeln!(out, "{}", json_shown(object.to_string()))?;
    } else {
        writeln!(out, "{}\t{entries}", shown(name))?;
    }
    Ok(())
}

/// Prints or sets the limits of a keyspace.
fn limit(session: &Session<'_>, database: &Database, args: &LimitArgs) -> Result<()> {
    let keyspace = database.keyspace(&args.name)?;
    let failure = |error| database.failure(error);
    if args.none || args.size.is_some() || args.age.is_some() {
        if database.in_transaction() {
            let text = "a transaction cannot set a limit: `commit` or `rollback` first";
            return Err(Failure::message(text));
        }
        if args.none || args.size.is_some() {
            keyspace.set_bytes_max(args.size).map_err(failure)?;
        }
        if args.none || args.age.is_some() {
            keyspace.set_default_ttl(args.age.map(|Span(age)| age)).map_err(failure)?;
        }
        return Ok(());
    }
    let (bytes, age) = (keyspace.bytes_max(), keyspace.default_ttl());
    if session.common.json {
        let seconds = age.map(|age| age.as_secs());
        return output::print_json(&json!({ "keyspace": args.name, "bytes": bytes, "age_seconds": seconds }));
    }
    let limits = [bytes.map(|bytes| format!("bytes {bytes}")), age.map(|age| format!("age {}", Span(age)))];
    let limits: Vec<_> = limits.into_iter().flatten().collect();
    output::print_line(if limits.is_empty() { "none".to_owned() } else { limits.join("\n") })
}

/// Asks for confirmation if standard input is a terminal.
pub(super) fn is_sure(what: &str, name: &str, keys: u64) -> bool {
    if !io::stdin().is_terminal() {
        return true;
    }
    let keys = output::plural(keys, "key");
    // If the question cannot be shown, the user cannot confirm it.
    let _ignored = write!(io::stderr(), "{what} keyspace `{}` with {keys}? [y/N] ", shown(name));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).is_ok() && matches!(answer.trim(), "y" | "Y" | "yes" | "Yes")
}

/// Copies all entries. Returns their number and the seconds it took.
fn copy(database: &Database, from: &str, to: &str) -> Result<(u64, f64)> {
    let failure = |error| database.failure(error);
    let source = database.keyspace(from)?;
    let is_new = !database.has_keyspace(to);
    let target = database.db.keyspace(to).map_err(failure)?;
    if from == to || !target.is_empty().map_err(failure)? {
        return Err(Failure::message(format!(
            "the keyspace `{}` exists and is not empty: copy to another name, or clear it with `esker keyspaces clear`",
            shown(to)
        )));
    }
    let progress = Progress::rows(Some(source.len().map_err(failure)?));
    let mut sink = Sink::new(database, BATCH_ROWS);
    // The options come first, so that entries are written under them.
    sink.set_options(&target, source.options()).map_err(failure)?;
    let snapshot = database.db.snapshot();
    let expiries = Expiries::of(&snapshot, &database.db);
    let mut copy_rows = || {
        for entry in snapshot.iter(&source) {
            let (key, value) = entry.map_err(failure)?;
            let end = match expiries.get(&source, &key).map_err(failure)? {
                Expiry::Never => None,
                Expiry::At(end) => Some(end),
                Expiry::Passed => continue,
            };
            // An entry of one keyspace fits any other; other errors end the copy.
            if let Some(reason) = sink.add_until(&target, &key, &value, end)? {
                return Err(Failure::message(reason));
            }
            if sink.rows().is_multiple_of(ROWS_PER_TICK) {
                progress.set(sink.rows(), String::new);
            }
        }
        sink.commit()
    };
    if let Err(failure) = copy_rows() {
        // Remove the partial copy.
        let removed = if is_new { database.db.drop_keyspace(to).map(drop) } else { target.clear().map(drop) };
        if removed.is_err() {
            return Err(Failure::message(format!(
                "{failure}\n  `{}` may hold a part of the copy: clear it before copying again",
                shown(to)
            )));
        }
        return Err(failure);
    }
    Ok((sink.committed, progress.finish().as_secs_f64()))
}
