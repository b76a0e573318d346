//! Tables that the manifest does not name: leftovers of a crash, or proof that the end of the manifest is
//! lost.
//!
//! unnamed.1. The log is durable up to a table's newest commit before the table is written. It is released
//!     only after a durable edit names the table. So a crash leaves no commit that only a table knows. The
//!     newest commit is the number that the table states (compaction_output.4), which compactions preserve.
//! - Nothing is known of a table that has a newer format or cannot be read. It is not removed.

use std::collections::BTreeSet;
use std::path::Path;

use esker_env::Env;

use crate::manifest::edit::VersionEdit;
use crate::manifest::file_name::{FileKind, parse, table_path};
use crate::sstable::stated_newest_commit;
use crate::types::{Error, FileId, Result, SeqNo};

/// Returns the unnamed tables that are not leftovers, each with the reason: it holds commits newer than
/// `known` (unnamed.1), or nothing is known of it. A table without a statement of its commits was
/// never finished and is a leftover. `names` lists the directory.
pub(crate) fn needed(
    env: &Env,
    dir: &Path,
    names: &[String],
    state: &VersionEdit,
    known: SeqNo,
) -> Result<Vec<(FileId, Error)>> {
    let added = state.added.iter().map(|table| table.file);
    let named: BTreeSet<FileId> = added.chain(state.feed.tables()).collect();
    let mut found = Vec::new();
    for name in names {
        let FileKind::Table(id) = parse(name) else { continue };
        if named.contains(&id) {
            continue;
        }
        let path = table_path(dir, id);
        match stated_newest_commit(env, &path) {
            Ok(Some(newest)) if newest > known => {
                found.push((id, Error::corrupt("table", &path, 0, detail(newest, known))));
            }
            Ok(_) => {}
            Err(error) => found.push((id, error)),
        }
    }
    Ok(found)
}

/// Refuses a database with a table that is not a leftover (see [`needed`]).
pub(crate) fn refuse_needed(
    env: &Env,
    dir: &Path,
    names: &[String],
    state: &VersionEdit,
    known: SeqNo,
) -> Result<()> {
    needed(env, dir, names, state, known)?.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}

/// Describes a table whose commits neither manifest nor log know.
pub(crate) fn detail(newest: SeqNo, known: SeqNo) -> String {
    format!(
        "it holds commit {newest}, but the manifest does not name it, and manifest and log end at commit {known}. \
         The end of the manifest is lost, or the file belongs to another database: restore a backup or run `esker repair`"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_env::{Fs, MemFs, OpenOptions, read_range};

    use super::*;
    use crate::Db;

    /// A table made by a later compaction is added to the manifest and log of an earlier moment: opening
    /// refuses it.
    #[test]
    fn unnamed_1_a_table_whose_commits_are_in_neither_manifest_nor_log_is_no_leftover() {
        let dir = Path::new("db");
        let open = |fs: &MemFs| {
            let env = Env::simulated(Arc::new(fs.clone()), 1);
            Db::builder().background(false).env(env).open(dir)
        };
        let later = MemFs::new();
        let db = open(&later).unwrap();
        db.default_keyspace().put("a", "old").unwrap();
        let earlier = later.kill();
        db.default_keyspace().put("a", "new").unwrap();
        db.compact().unwrap();
        let names = later.list_dir(dir).unwrap();
        let tables: Vec<_> = names.iter().filter(|name| matches!(parse(name), FileKind::Table(_))).collect();
        assert_eq!(tables.len(), 1, "{names:?}");
        let path = dir.join(tables[0]);
        let file = later.open(&path, OpenOptions::read()).unwrap();
        let bytes = read_range(&*file, 0, file.len().unwrap() as usize).unwrap();
        earlier.open(&path, OpenOptions::create()).unwrap().write_all_at(&bytes, 0).unwrap();
        let refused = open(&earlier).map(drop).unwrap_err();
        assert!(
            matches!(&refused, Error::Corrupt { path: named, .. } if *named == path),
            "unnamed.1: {refused}"
        );
    }
}
