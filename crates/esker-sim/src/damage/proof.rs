//! The newest commit that the files which are left prove.
//!
//! ```text
//!   undamaged files --which are as they were?--> tables, log segments --dump--> their newest commit
//! ```
//!
//! A manifest that was cut behind a record, or is an earlier one, says nothing of what came after it (allowed.2). Other files do:
//!
//! proof.1. A table tells of the newest commit that went into it. The log was durable up to there before the table was written (unnamed.1 of
//!      unnamed.rs), so no state without that commit can be all that there was: an opening refuses, a repair tells of a loss (sources.3).
//! proof.2. A log segment holds its commits. Where the log is said to begin before it or with it, it is read, or something before it is lost,
//!      which is told; where it is said to begin behind it, tables that are named hold them.
//! proof.3. A file that is another, is gone, or cannot be read in full proves nothing.

use std::collections::BTreeSet;

use esker::{DumpItem, DumpOptions, DumpValue};
use esker_env::Env;

use super::files::{Files, Role, disk, env, path};

/// The newest commit that these files prove which are left of an undamaged database; 0 if none does.
pub(super) fn newest_commit_left(before: &Files, after: &Files, unreadable: &BTreeSet<String>) -> u64 {
    let env = env(&disk(before), 0);
    let is_left = |name: &&String| before.get(*name) == after.get(*name) && !unreadable.contains(*name);
    let holds_commits = |name: &&String| matches!(Role::of(name), Role::Table | Role::Segment);
    let proofs = before.keys().filter(holds_commits).filter(is_left);
    proofs.map(|name| newest_commit(&env, name)).max().unwrap_or(0)
}

/// The newest commit of an undamaged file; 0 if it tells of none, as a table does that was never finished.
fn newest_commit(env: &Env, name: &str) -> u64 {
    let mut newest = 0;
    let options = DumpOptions::default().env(env.clone()).entries(false);
    let shown = options.dump(path(name), |item| newest = newest.max(commit_of(&item).unwrap_or(0)));
    shown.map_or(0, |()| newest)
}

/// The commit that ends in this record, or that the table tells of.
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
    fn proof_1_proof_2_proof_3_tables_and_segments_that_are_left_prove_their_commits() {
        let made = MemFs::new();
        let db = Db::builder().env(env(&made, 1)).background(false).memory(1 << 20).open(DIR).unwrap();
        db.default_keyspace().put("a", "flushed").unwrap();
        let flushed = db.stats().seqno;
        db.flush().unwrap();
        db.default_keyspace().put("b", "in the log").unwrap();
        let newest = db.stats().seqno;
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
        assert_eq!(proven(|_, _| true, &[]), newest, "proof.2");
        assert_eq!(proven(|name, _| !name.starts_with("MANIFEST-"), &[]), newest, "proof.2");
        assert_eq!(proven(|name, _| !name.ends_with(".wal"), &[]), flushed, "proof.1");
        assert_eq!(proven(|name, _| !name.ends_with(".wal"), &[table.as_str()]), 0, "proof.3");
        let spoils_tables = |name: &str, bytes: &mut Vec<u8>| {
            if name.ends_with(".sst") {
                bytes[0] ^= 1;
            }
            !name.ends_with(".wal")
        };
        assert_eq!(proven(spoils_tables, &[]), 0, "proof.3");
    }
}
