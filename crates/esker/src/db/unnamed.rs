//! Tables that the manifest does not name: what a crash left of a flush or a merge, or proof that the manifest has lost its end.
//!
//! UT1. The log is durable up to a table's newest commit before the table is written, and is released only once a durable edit names
//!      the table: what an honest crash leaves holds no commit that neither manifest nor log knows.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use esker_env::Env;

use crate::manifest::edit::AddedTable;
use crate::manifest::file_name::{FileKind, parse, table_path};
use crate::sstable::stated_max_seq;
use crate::types::{Error, FileId, Result, SeqNo};

/// The unnamed tables that hold commits newer than `known`, each with its newest one. A table that does not say what it holds is not
/// among them: it was never finished.
pub(super) fn newer(
    env: &Env,
    dir: &Path,
    named: &[AddedTable],
    known: SeqNo,
) -> Result<Vec<(PathBuf, SeqNo)>> {
    let names = env.fs.list_dir(dir).map_err(|e| Error::io("list", dir, e))?;
    let named: BTreeSet<FileId> = named.iter().map(|table| table.file).collect();
    let mut found = Vec::new();
    for name in names {
        let FileKind::Table(id) = parse(&name) else { continue };
        if named.contains(&id) {
            continue;
        }
        let path = table_path(dir, id);
        if let Some(newest) = stated_max_seq(env, &path)?.filter(|newest| *newest > known) {
            found.push((path, newest));
        }
    }
    Ok(found)
}

/// Refuses a database whose manifest and log end before a table does (UT1).
pub(super) fn refuse_newer(env: &Env, dir: &Path, named: &[AddedTable], known: SeqNo) -> Result<()> {
    match newer(env, dir, named, known)?.first() {
        None => Ok(()),
        Some((path, newest)) => Err(Error::corrupt("table", path, 0, detail(*newest, known))),
    }
}

/// What such a table proves.
pub(super) fn detail(newest: SeqNo, known: SeqNo) -> String {
    format!(
        "it holds commit {newest}, and is not named by the manifest, which ends, like the log, at commit {known}: the manifest has lost \
         its end, or the file is of another database: restore a backup or run `esker repair`"
    )
}
