//! Commands of `ES.` about the engine's own operations: merges, copies and backups.
//!
//! Clients name what a command creates. The operator has chosen the directory in which it is created.

use std::path::{Path, PathBuf};

use esker::Error;
use esker::backup::Backup;
use esker::env::Env;

use crate::command::spec::Group::Esker;
use crate::config::options::BackupTarget;
use crate::resp::Request;
use crate::resp::fail::{Done, Fail, SYNTAX};
use crate::run::cx::Cx;
use crate::run::registry::row::*;

/// Flags of commands that run outside the sequencer, because other commits must not wait for them.
const LONG: u32 = ADMIN | NO_SCRIPT | NO_MULTI;

/// The directory of backups in `--backup-dir`.
const BACKUPS: &str = "backups";

#[rustfmt::skip]
pub(super) const TABLE: &[Command] = &[
    command("es.backup", -1, LONG, NO_KEYS, Esker, "[feed]", "Adds an incremental backup to those in --backup-dir. With feed, it keeps later commits, to restore any moment between backups.", backup),
    command("es.checkpoint", 2, LONG, NO_KEYS, Esker, "name", "Copies the database to --backup-dir, with hard links where possible.", checkpoint),
];

fn backup_target<'c>(cx: &'c Cx<'_>) -> Done<&'c BackupTarget> {
    let target = cx.server.options.backups.as_ref();
    target.ok_or("ERR the server has no directory for backups: start it with --backup-dir PATH".into())
}

fn backup_dir<'c>(cx: &'c Cx<'_>) -> Done<&'c Path> {
    match backup_target(cx)? {
        BackupTarget::Directory(dir) => Ok(dir),
        BackupTarget::Store(_) => {
            Err("ERR copies cannot be made in object storage: use ES.BACKUP, or start the server with a directory as --backup-dir".into())
        }
    }
}

/// Returns a path in the directory of backups.
fn place(cx: &Cx<'_>, name: &[u8]) -> Done<PathBuf> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name == BACKUPS.as_bytes() {
        return Err("ERR this name is reserved for the backups".into());
    }
    if name.is_empty() || name.len() > 200 || name[0] == b'.' || !name.iter().all(is_plain) {
        return Err(
            "ERR a name consists of letters, digits, '-', '_' and '.', and does not begin with '.'".into()
        );
    }
    Ok(backup_dir(cx)?.join(&*String::from_utf8_lossy(name)))
}

fn checkpoint(cx: &mut Cx<'_>, request: &Request) -> Done {
    let dir = place(cx, &request[1])?;
    let db = cx.server.local()?;
    let made = tokio::task::block_in_place(|| db.checkpoint(&dir)).map_err(failed)?;
    cx.out.int(made.seqno.get() as i64);
    Ok(())
}

fn backup(cx: &mut Cx<'_>, request: &Request) -> Done {
    let target = backup_target(cx)?.clone();
    let db = cx.server.local()?;
    let open = || match &target {
        BackupTarget::Directory(dir) => Backup::open(dir.join(BACKUPS)),
        BackupTarget::Store(store) => Backup::open_store(Env::real(), store.clone()),
    };
    if request.len() > 1 {
        if !request.is(1, "feed") || request.len() > 2 {
            return Err(SYNTAX.into());
        }
        let made = tokio::task::block_in_place(|| open()?.archive(db)).map_err(failed)?;
        let [first, last, bytes] =
            made.map_or([0; 3], |made| [made.after.get() + 1, made.last.get(), made.bytes]);
        return reply(cx, &[("first", first), ("last", last), ("bytes", bytes)]);
    }
    let made = tokio::task::block_in_place(|| open()?.create(db)).map_err(failed)?;
    reply(
        cx,
        &[
            ("id", made.id),
            ("seqno", made.seqno.get()),
            ("files", made.files),
            ("bytes", made.bytes),
            ("new_files", made.new_files),
            ("new_bytes", made.new_bytes),
        ],
    )
}

/// Converts an error. Two simultaneous copies to the same path are not an error of the database.
fn failed(error: Error) -> Fail {
    match error {
        Error::Locked { path, .. } => {
            let dir = path.parent().unwrap_or(&path).display();
            let text =
                format!("ERR a copy or backup is being made or read in {dir}: try again when it is done");
            Fail::text(text)
        }
        other => Fail::from(other),
    }
}

fn reply(cx: &mut Cx<'_>, figures: &[(&str, u64)]) -> Done {
    cx.out.map(figures.len());
    for (name, value) in figures {
        cx.out.bulk(name.as_bytes());
        cx.out.int(*value as i64);
    }
    Ok(())
}
