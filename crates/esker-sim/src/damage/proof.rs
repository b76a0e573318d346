//! The newest commit that the remaining files prove.
//!
//! ```text
//!   undamaged files --which are unchanged?--> tables, log segments --dump--> their newest commit
//! ```
//!
//! A manifest that is truncated after a record, or an earlier one, says nothing of later commits (allowed.2),
//! but other files do. A table records its newest commit, up to which the log was durable before the table
//! was written (unnamed.1 of unnamed.rs). So a state without that commit is incomplete: an opening refuses it
//! and a repair reports a loss. A log segment contains its commits. If the log, as the
//! manifest says, starts at or before the segment, an opening reads it or reports a loss. Otherwise named
//! tables contain its commits. A changed, missing or unreadable file proves nothing.

use std::collections::BTreeSet;

use esker::{DumpItem, DumpOptions, DumpValue};
use esker_env::Env;

use super::files::{Files, Role, disk, env, path};

/// Returns the newest commit that the remaining files of an undamaged database prove, or 0.
pub(super) fn newest_commit_left(before: &Files, after: &Files, unreadable: &BTreeSet<String>) -> u64 {
    let env = env(&disk(before), 0);
    let is_left = |name: &&String| before.get(*name) == after.get(*name) && !unreadable.contains(*name);
    let holds_commits = |name: &&String| matches!(Role::of(name), Role::Table | Role::Segment);
    let proofs = before.keys().filter(holds_commits).filter(is_left);
    proofs.map(|name| newest_commit(&env, name)).max().unwrap_or(0)
}

/// Returns the newest commit of an undamaged file, or 0 if it records none, like an unfinished table.
fn newest_commit(env: &Env, name: &str) -> u64 {
    let mut newest = 0;
    let options = DumpOptions::default().env(env.clone()).entries(false);
    let shown = options.dump(path(name), |item| newest = newest.max(commit_of(&item).unwrap_or(0)));
    shown.map_or(0, |()| newest)
}

/// Returns the commit that ends in this record, or that the table records.
fn commit_of(item: &DumpItem) -> Option<u64> {
    use DumpValue::{Number, Text};
    let field = |name: &str| item.fields.iter().find(|field| field.0 == name).map(|field| &field.1);
    match (item.kind, field("kind"), field("seq"), field("newest_commit")) {
        ("record", Some(Text(kind)), Some(Number(seq)), _) if kind == "full" || kind == "last" => Some(*seq),
        ("properties", _, _, Some(Number(newest))) => Some(*newest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use esker::Db;
    use esker_env::MemFs;

    use super::super::files::read;
    use super::*;
    use esker_world::world::DIR;

    #[test]
    fn tables_and_segments_that_are_left_prove_their_commits() {
        let made = MemFs::new();
        let db = Db::builder().env(env(&made, 1)).background(false).memory(1 << 20).open(DIR).unwrap();
        db.default_keyspace().put("a", "flushed").unwrap();
        let flushed = db.stats().seqno.get();
        db.flush().unwrap();
        db.default_keyspace().put("b", "in the log").unwrap();
        let newest = db.stats().seqno.get();
        db.close().unwrap();
        assert!(0 < flushed && flushed < newest);
        let before = read(&made);
        let proven = |spoil: fn(&str, &mut Vec<u8>) -> bool, unreadable: &[&str]| {
            let mut after = before.clone();
            after.retain(|name, bytes| spoil(name, bytes));
            let unreadable: BTreeSet<String> = unreadable.iter().map(|name| (*name).to_owned()).collect();
            newest_commit_left(&before, &after, &unreadable)
        };
        let table = before.keys().find(|name| name.ends_with(".sst")).unwrap();
        assert_eq!(proven(|_, _| true, &[]), newest);
        assert_eq!(proven(|name, _| !name.starts_with("MANIFEST-"), &[]), newest);
        assert_eq!(proven(|name, _| !name.ends_with(".wal"), &[]), flushed);
        assert_eq!(proven(|name, _| !name.ends_with(".wal"), &[table.as_str()]), 0);
        let spoils_tables = |name: &str, bytes: &mut Vec<u8>| {
            if name.ends_with(".sst") {
                bytes[0] ^= 1;
            }
            !name.ends_with(".wal")
        };
        assert_eq!(proven(spoils_tables, &[]), 0);
    }
}
