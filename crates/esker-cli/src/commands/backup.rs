//! `esker backup`: incremental copies in a directory, or in object storage, that holds each file once.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use esker::backup::{Backup, BackupInfo, Point, Progress as Done, Restore, Restored, Segment, Stream};
use esker::{Db, SeqNo};
use serde_json::{Value, json};

use crate::Answer;
use crate::args::Backups;
use crate::backup_target::BackupTarget;
use crate::database::{Database, Session, env, when_free};
use crate::failure::{Failure, Result};
use crate::moment;
use crate::output;
use crate::progress::Progress;
use crate::text::shown;

pub(super) fn run(session: &Session<'_>, what: &Backups) -> Result<Answer> {
    match what {
        Backups::Create { directory } => create(session, directory),
        Backups::List { directory } => list(session, directory),
        Backups::Verify { directory } => verify(session, directory),
        Backups::Prune { directory, keep } => prune(session, directory, *keep),
        Backups::Feed { directory } => feed(session, directory),
        Backups::Send => send(session),
        Backups::Receive { target, verify } => receive(session, target, *verify),
        Backups::Restore { directory, target, id, to_commit, to_time, verify } => {
            let point = match (to_commit, to_time) {
                (Some(commit), _) => Some(Point::Commit(commit_of(*commit)?)),
                (None, time) => time.map(Point::Time),
            };
            let call = |backup: &mut Backup| {
                let restore = backup.restore(target).backup(*id).point(point).verify(*verify);
                restore.builder(Db::builder().allow_missing_merge_operators(true)).run()
            };
            let (done, seconds) = with_bar(session, directory, call, |e| of_backups(&e))?;
            match point {
                Some(_) => print_moment(session, target, &done, seconds),
                None => print_restored(session, target, &done.backup, seconds),
            }
        }
    }
}

/// Describes a failed copy in terms of the database or of its destination, whichever failed.
pub(super) fn failed(database: &Database, error: esker::Error) -> Failure {
    let is_of_database = match &error {
        esker::Error::Io { path, .. } | esker::Error::Corrupt { path, .. } => {
            path.starts_with(database.db.path())
        }
        esker::Error::Poisoned(_) | esker::Error::Closed => true,
        _ => false,
    };
    if is_of_database { database.failure(error) } else { of_backups(&error) }
}

/// Describes an error of the backup directory. The engine's message names the file and the remedy.
fn of_backups(error: &esker::Error) -> Failure {
    Failure::message(match error {
        esker::Error::Locked { path, .. } => {
            let directory = path.parent().unwrap_or(path);
            format!(
                "{} is in use by another process\n  wait until it is done, or use --wait",
                shown(directory.display())
            )
        }
        error => shown(error),
    })
}

/// Opens the backups in a directory or object storage, with the keys that the command line selects.
pub(super) fn open(session: &Session<'_>, place: &Path) -> Result<Backup> {
    let opened = BackupTarget::of(place)?.open(env(session.opening)?)?;
    opened.map_err(|e| of_backups(&e))
}

/// Runs `call` with a progress bar, retrying while another process uses the directory.
fn with_bar<T>(
    session: &Session<'_>,
    directory: &Path,
    mut call: impl FnMut(&mut Backup) -> esker::Result<T>,
    failed: impl FnOnce(esker::Error) -> Failure,
) -> Result<(T, f64)> {
    let backup = open(session, directory)?;
    let bar = Bar::default();
    let mut backup = backup.on_progress(bar.call());
    let start = std::time::Instant::now();
    let called = when_free(session.opening.wait, || call(&mut backup));
    bar.finish();
    Ok((called.map_err(failed)?, start.elapsed().as_secs_f64()))
}

/// A progress bar that the first report creates, because it contains the total.
#[derive(Clone, Default)]
struct Bar(Arc<Mutex<Option<Progress>>>);

impl Bar {
    fn call(&self) -> impl FnMut(&Done) + Send + 'static {
        let bar = self.clone();
        move |done| {
            let mut bar = bar.0.lock().unwrap_or_else(PoisonError::into_inner);
            let bar = bar.get_or_insert_with(|| Progress::bytes(Some(done.bytes)));
            bar.set(done.bytes_done, || format!("{}/{} files", done.files_done, done.files));
        }
    }

    fn finish(&self) {
        if let Some(bar) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            bar.finish();
        }
    }
}

/// Refuses to write bytes to a terminal.
pub(super) fn check_redirected() -> Result<()> {
    if std::io::stdout().is_terminal() {
        let text = "standard output is a terminal\n  redirect it to a file, or pipe it to another program";
        return Err(Failure::message(text.to_owned()));
    }
    Ok(())
}

fn send(session: &Session<'_>) -> Result<Answer> {
    check_redirected()?;
    let database = session.open_alone(super::COPY_BESIDE)?;
    let (bar, start) = (Bar::default(), std::time::Instant::now());
    let sent = Stream::new().on_progress(bar.call()).write(&database.db, output::stdout());
    bar.finish();
    let sent = sent.map_err(|error| failed(&database, error))?;
    database.close()?;
    // Standard output has the stream.
    output::print_message(format_args!("{}", described(&sent, start.elapsed().as_secs_f64())));
    Ok(Answer::Yes)
}

fn receive(session: &Session<'_>, target: &Path, verify: bool) -> Result<Answer> {
    let (bar, start) = (Bar::default(), std::time::Instant::now());
    let restore = Restore::new(target).env(env(session.opening)?).verify(verify).on_progress(bar.call());
    let received = restore.read(std::io::stdin().lock());
    bar.finish();
    let info = received.map_err(|e| of_backups(&e))?;
    if session.common.json {
        output::print_json(&as_json(&info))?;
    } else {
        let described = described(&info, start.elapsed().as_secs_f64());
        output::print_line(format_args!("{}: {described}", shown(target.display())))?;
    }
    Ok(Answer::Yes)
}

fn described(info: &BackupInfo, seconds: f64) -> String {
    format!(
        "database {:08x}, commit {}, {} in {}, {seconds:.2} s",
        info.database,
        output::count(info.seqno.get()),
        output::size(info.bytes),
        output::plural(info.files, "file"),
    )
}

fn create(session: &Session<'_>, directory: &Path) -> Result<Answer> {
    let database = session.open_alone(super::COPY_BESIDE)?;
    let call = |backup: &mut Backup| backup.create(&database.db);
    let (made, seconds) = with_bar(session, directory, call, |e| failed(&database, e))?;
    database.close()?;
    if session.common.json {
        output::print_json(&as_json(&made))?;
    } else {
        output::print_line(format_args!(
            "backup {}: commit {}, {} ({}), of these {} new ({}), {seconds:.2} s",
            made.id,
            output::count(made.seqno.get()),
            output::plural(made.files, "file"),
            output::size(made.bytes),
            output::count(made.new_files),
            output::size(made.new_bytes),
        ))?;
    }
    Ok(Answer::Yes)
}

fn list(session: &Session<'_>, directory: &Path) -> Result<Answer> {
    let look = |backup: Backup| esker::Result::Ok((backup.list()?, backup.segments()?));
    let (backups, segments) = look(open(session, directory)?).map_err(|e| of_backups(&e))?;
    let is_sound = backups.iter().all(|backup| backup.damage.is_none());
    let mut out = output::stdout();
    let mut write = || -> Result<()> {
        for backup in &backups {
            match &backup.damage {
                _ if session.common.json => writeln!(out, "{}", as_json(backup))?,
                Some(damage) => writeln!(out, "{}\tDAMAGED: {}", backup.id, shown(damage))?,
                None => writeln!(
                    out,
                    "{}\t{}\tcommit {}\t{} in {}\t{} new\tdatabase {:08x}",
                    backup.id,
                    moment::text_of(backup.created),
                    backup.seqno,
                    output::size(backup.bytes),
                    output::plural(backup.files, "file"),
                    output::size(backup.new_bytes),
                    backup.database,
                )?,
            }
        }
        for segment in &segments {
            match session.common.json {
                true => writeln!(out, "{}", segment_json(segment))?,
                false => writeln!(
                    out,
                    "feed\t{}\tcommits {} to {}\t{}\tdatabase {:08x}",
                    moment::text_of(segment.created),
                    segment.after.next(),
                    segment.last,
                    output::size(segment.bytes),
                    segment.database,
                )?,
            }
        }
        Ok(out.flush()?)
    };
    output::printed(if is_sound { Answer::Yes } else { Answer::No }, write())
}

fn commit_of(number: u64) -> Result<SeqNo> {
    SeqNo::try_new(number)
        .ok_or_else(|| Failure::message(format!("there is no commit {number}: the number is too large")))
}

fn feed(session: &Session<'_>, directory: &Path) -> Result<Answer> {
    let database = session.open_alone(super::FEED_BESIDE)?;
    let call = |backup: &mut Backup| backup.archive(&database.db);
    let (made, seconds) = with_bar(session, directory, call, |error| match error {
        esker::Error::FeedTruncated { oldest } => Failure::message(format!(
            "commits before {oldest} are no longer retained, and some of them were not archived\n  make a backup first, or retain more: esker feed --keep BYTES"
        )),
        esker::Error::NoFeed => Failure::message(
            "the database retains no commits\n  turn the feed on with `esker feed --keep BYTES`, then make a backup",
        ),
        error => failed(&database, error),
    })?;
    database.close()?;
    match made {
        _ if session.common.json => {
            output::print_json(&made.as_ref().map_or(json!({ "commits": 0 }), segment_json))?
        }
        None => output::print_line(format_args!("nothing new"))?,
        Some(made) => output::print_line(format_args!(
            "commits {} to {}, {}, {seconds:.2} s",
            made.after.next(),
            made.last,
            output::size(made.bytes),
        ))?,
    }
    Ok(Answer::Yes)
}

fn segment_json(segment: &Segment) -> Value {
    json!({
        "database": format!("{:08x}", segment.database), "first": segment.after.get() + 1, "last": segment.last.get(),
        "commits": segment.last.get() - segment.after.get(), "created": segment.created, "bytes": segment.bytes,
    })
}

fn print_moment(session: &Session<'_>, target: &Path, done: &Restored, seconds: f64) -> Result<Answer> {
    let Restored { backup: BackupInfo { id, database, .. }, seqno, commits, made, .. } = done;
    if session.common.json {
        output::print_json(&json!({
            "backup": id, "database": format!("{database:08x}"), "commit": seqno.get(), "commits": commits, "made": made,
        }))?;
    } else {
        output::print_line(format_args!(
            "{}: backup {id} of database {database:08x}, and {} after it, up to commit {seqno}, archived {}, {seconds:.2} s",
            shown(target.display()),
            output::plural(*commits, "commit"),
            moment::text_of(*made),
        ))?;
    }
    Ok(Answer::Yes)
}

fn verify(session: &Session<'_>, directory: &Path) -> Result<Answer> {
    let (found, seconds) = with_bar(session, directory, Backup::verify, |e| of_backups(&e))?;
    let problems: Vec<String> = found.problems.iter().map(shown).collect();
    let printed = if session.common.json {
        output::print_json(&json!({
            "backups": found.backups, "files": found.files, "segments": found.segments, "bytes": found.bytes,
            "seconds": seconds,
            "problems": problems, "damaged": found.damaged,
        }))
    } else {
        let mut out = output::stdout();
        let mut write = || -> Result<()> {
            for problem in &problems {
                writeln!(out, "{problem}")?;
            }
            let verdict = match found.damaged.len() {
                0 if problems.is_empty() => "sound".to_owned(),
                0 => "sound; archived commits are damaged".to_owned(),
                n => format!("{} of them damaged", output::count(n as u64)),
            };
            let (backups, files) =
                (output::plural(found.backups, "backup"), output::plural(found.files, "file"));
            writeln!(
                out,
                "{backups}, {verdict}; {files}, {} read, {seconds:.2} s",
                output::size(found.bytes)
            )?;
            Ok(out.flush()?)
        };
        write()
    };
    output::printed(if found.is_sound() { Answer::Yes } else { Answer::No }, printed)
}

fn prune(session: &Session<'_>, directory: &Path, keep: usize) -> Result<Answer> {
    let (pruned, _) = with_bar(session, directory, |backup| backup.prune(keep), |e| of_backups(&e))?;
    if session.common.json {
        output::print_json(&json!({
            "backups": pruned.backups, "files": pruned.files, "segments": pruned.segments, "bytes": pruned.bytes,
        }))?;
    } else {
        output::print_line(format_args!(
            "removed {}, and {} and {} that no other needs ({})",
            output::plural(pruned.backups, "backup"),
            output::plural(pruned.files, "file"),
            output::plural(pruned.segments, "segment"),
            output::size(pruned.bytes),
        ))?;
    }
    Ok(Answer::Yes)
}

fn print_restored(session: &Session<'_>, target: &Path, info: &BackupInfo, seconds: f64) -> Result<Answer> {
    if session.common.json {
        output::print_json(&as_json(info))?;
    } else {
        let described = described(info, seconds);
        output::print_line(format_args!("{}: backup {} of {described}", shown(target.display()), info.id))?;
    }
    Ok(Answer::Yes)
}

fn as_json(info: &BackupInfo) -> Value {
    json!({
        "id": info.id, "created": info.created, "database": format!("{:08x}", info.database),
        "commit": info.seqno.get(), "files": info.files, "bytes": info.bytes, "new_files": info.new_files,
        "new_bytes": info.new_bytes, "damage": info.damage,
    })
}
