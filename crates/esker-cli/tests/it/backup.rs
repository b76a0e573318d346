//! Tests `esker checkpoint` and `esker backup` by running the program: both produce databases that can be
//! restored, and both report damaged files.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests look at files from outside")]

use std::path::PathBuf;

use serde_json::Value;

use crate::common::{Esker, Outcome};

fn put(esker: &Esker, key: &str, value: &str) {
    assert_eq!(esker.run(["put", key, value]).code, 0);
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(outcome.text()).unwrap_or_else(|e| panic!("{e}: {outcome:?}"))
}

fn get(esker: &Esker, db: &str, key: &str) -> String {
    esker.run(["-d", db, "get", key]).text().to_owned()
}

/// Returns the files of all backups.
fn stored(esker: &Esker) -> Vec<PathBuf> {
    let files = std::fs::read_dir(esker.path("backups/files")).unwrap();
    files.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_checkpoint_is_a_database_of_its_own() {
    let esker = Esker::new();
    put(&esker, "a", "1");
    let made = json(&esker.run(["checkpoint", "copy", "--json"]));
    assert_eq!((made["linked_files"].as_u64(), made["copied_files"].as_u64()), (Some(1), Some(0)), "{made}");
    put(&esker, "a", "2");
    assert_eq!((get(&esker, "copy", "a"), get(&esker, "db", "a")), ("1\n".into(), "2\n".into()));
    let again = esker.run(["checkpoint", "copy"]);
    assert!(again.code == 2 && again.err.contains("exists already"), "{again:?}");
    let text = esker.run(["checkpoint", "second"]);
    assert!(text.text().starts_with("second: commit 2, 2 files linked"), "{text:?}");
}

#[test]
fn backups_are_made_listed_restored_and_pruned() {
    let esker = Esker::new();
    for n in 1..4 {
        put(&esker, "a", &n.to_string());
        let made = esker.run(["backup", "create", "backups"]);
        assert!(made.text().starts_with(&format!("backup {n}: commit {n}, {n} file")), "{made:?}");
    }
    let listed = esker.run(["backup", "list", "backups"]);
    assert_eq!((listed.code, listed.text().lines().count()), (0, 3), "{listed:?}");
    let listed = esker.run(["backup", "list", "backups", "--json"]);
    let first: Value = serde_json::from_str(listed.text().lines().next().unwrap()).unwrap();
    assert_eq!((first["id"].as_u64(), first["new_files"].as_u64()), (Some(1), Some(1)));
    assert!(esker.run(["backup", "verify", "backups"]).text().starts_with("3 backups, sound; 3 files, "));
    for (args, expected) in [(&["newest"][..], "3\n"), (&["second", "--id", "2"], "2\n")] {
        let args = ["backup", "restore", "backups"].iter().chain(args);
        assert_eq!(esker.run(args.clone()).code, 0);
        assert_eq!(get(&esker, args.clone().nth(3).unwrap(), "a"), expected);
    }
    let refused = esker.run(["backup", "restore", "backups", "newest"]);
    assert!(refused.code == 2 && refused.err.contains("exists already"), "{refused:?}");
    let missing = esker.run(["backup", "restore", "backups", "ninth", "--id", "9"]);
    assert!(missing.code == 2 && missing.err.contains("no backup 9"), "{missing:?}");
    let pruned = json(&esker.run(["backup", "prune", "backups", "--keep", "1", "--json"]));
    assert_eq!((pruned["backups"].as_u64(), pruned["files"].as_u64()), (Some(2), Some(0)), "{pruned}");
}

#[test]
fn damage_of_a_backup_is_reported_with_its_file() {
    let esker = Esker::new();
    put(&esker, "a", "1");
    assert_eq!(esker.run(["backup", "create", "backups"]).code, 0);
    let path = stored(&esker).remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let verified = esker.run(["backup", "verify", "backups"]);
    assert!(verified.code == 1 && verified.text().contains(name), "{verified:?}");
    assert!(verified.text().contains("1 backup, 1 of them damaged"), "{verified:?}");
    let restored = esker.run(["backup", "restore", "backups", "restored"]);
    assert!(restored.code == 2 && restored.err.contains(name), "{restored:?}");
    assert!(!restored.err.contains("esker repair"), "that is for databases: {restored:?}");
    assert!(!esker.path("restored").exists());
}

#[test]
fn other_directories_are_refused() {
    let esker = Esker::new();
    put(&esker, "a", "1");
    for line in ["list nothing", "verify nothing", "prune nothing --keep 1", "restore nothing to"] {
        let refused = esker.run(format!("backup {line}").split(' '));
        assert!(refused.code == 2 && refused.err.contains("there are no backups in"), "{refused:?}");
    }
    let refused = esker.run(["backup", "create", "db"]);
    assert!(refused.code == 2 && refused.err.contains("use another directory"), "{refused:?}");
}

#[test]
fn a_database_is_unloaded_and_loaded() {
    let esker = Esker::new();
    put(&esker, "a", "1");
    assert_eq!(esker.run(["-k", "users", "put", "ann", "x"]).code, 0);
    let done = esker.run(["unload", "all.unload"]);
    assert!(done.text().starts_with("all.unload: 2 keyspaces, 2 entries"), "{done:?}");
    let loaded = json(&esker.run(["-d", "copy", "load", "all.unload", "--json"]));
    assert_eq!((loaded["keyspaces"].as_u64(), loaded["entries"].as_u64()), (Some(2), Some(2)), "{loaded}");
    assert_eq!(get(&esker, "copy", "a"), "1\n");
    let again = esker.run(["-d", "copy", "load", "all.unload"]);
    assert!(again.code == 2 && again.err.contains("default"), "{again:?}");
    assert_eq!(esker.run(["-d", "some", "-k", "users", "load", "all.unload"]).code, 0);
    assert_eq!(
        (get(&esker, "some", "a"), esker.run(["-d", "some", "-k", "users", "get", "ann"]).code),
        (String::new(), 0)
    );
    let other = esker.run(["-d", "some", "load", "db/CURRENT"]);
    assert_eq!(other.code, 2, "{other:?}");
}

/// Runs the commands shown in docs/backup.md.
#[test]
fn the_examples_of_the_document_run() {
    let text = include_str!("../../../../docs/backup.md");
    let blocks = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let esker = Esker::new();
    put(&esker, "a", "1");
    for keyspace in ["users", "mails"] {
        assert_eq!(esker.run(["-k", keyspace, "put", "ann", "1"]).code, 0);
    }
    let mut lines = 0;
    // The document's commit numbers do not exist in the test's database.
    for line in blocks.flat_map(str::lines).filter(|line| !line.contains("--to-commit")) {
        let command = line.split('#').next().unwrap().trim().strip_prefix("esker ").unwrap();
        // The time in the example lies before this test.
        let command = command.replace("/backup/data", "backups").replace("2026-11-26T", "2100-11-26T");
        let outcome = esker.run(command.split(' '));
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
        lines += 1;
    }
    assert_eq!(lines, 13);
    for db in ["data-before-upgrade", "restored", "then", "copy"] {
        assert_eq!(get(&esker, db, "a"), "1\n", "{db}");
    }
}

#[test]
fn points_between_two_backups_are_archived_and_restored() {
    let esker = Esker::new();
    put(&esker, "a", "1");
    let none = esker.run(["backup", "feed", "backups"]);
    assert!(none.code == 2 && none.err.contains("backup"), "{none:?}");
    assert_eq!(esker.run(["backup", "create", "backups"]).code, 0);
    let off = esker.run(["backup", "feed", "backups"]);
    assert!(off.code == 2 && off.err.contains("esker feed --keep"), "{off:?}");
    assert_eq!(esker.run(["feed", "--keep", "1000000000"]).code, 0);
    assert_eq!(esker.run(["backup", "create", "backups"]).code, 0);
    put(&esker, "a", "2");
    put(&esker, "a", "mistake");
    let kept = esker.run(["backup", "feed", "backups"]);
    assert!(kept.text().starts_with("commits 2 to 3, "), "{kept:?}");
    assert_eq!(esker.run(["backup", "feed", "backups"]).text(), "nothing new\n");
    let listed = esker.run(["backup", "list", "backups"]);
    assert!(listed.text().lines().last().unwrap().starts_with("feed\t20"), "{listed:?}");
    assert_eq!(esker.run(["backup", "verify", "backups"]).code, 0);
    let restored = json(&esker.run(["backup", "restore", "backups", "before", "--to-commit", "2", "--json"]));
    assert_eq!((restored["backup"].as_u64(), restored["commits"].as_u64()), (Some(2), Some(1)), "{restored}");
    assert_eq!(get(&esker, "before", "a"), "2\n");
    let late = esker.run(["backup", "restore", "backups", "late", "--to-commit", "9"]);
    assert!(late.code == 2 && late.err.contains("up to 3"), "{late:?}");
    let now = esker.run(["backup", "restore", "backups", "now", "--to-time", "2100-01-01T00:00:00Z"]);
    assert!(now.code == 0 && get(&esker, "now", "a") == "mistake\n", "{now:?}");
    assert_eq!(esker.run(["backup", "restore", "backups", "x", "--to-time", "yesterday"]).code, 2);
}

#[test]
fn pruning_reports_segments_and_a_restore_reports_the_database() {
    let esker = Esker::new();
    put(&esker, "a", "1");
    esker.run(["feed", "--keep", "100000000"]);
    for n in 2..4 {
        esker.run(["backup", "create", "backups"]);
        put(&esker, "a", &n.to_string());
        assert_eq!(esker.run(["backup", "feed", "backups"]).code, 0);
    }
    let pruned = esker.run(["backup", "prune", "backups", "--keep", "1"]);
    let text = "removed 1 backup, and 0 files and 1 segment that no other needs (";
    assert!(pruned.text().starts_with(text), "{pruned:?}");
    let listed = serde_json::from_str::<Value>(
        esker.run(["backup", "list", "backups", "--json"]).text().lines().next().unwrap(),
    )
    .unwrap();
    let database = listed["database"].as_str().unwrap().to_owned();
    for (to, more) in [("newest", &[][..]), ("exactly", &["--to-commit", "3"])] {
        let restored = esker.run(["backup", "restore", "backups", to].iter().chain(more));
        assert!(restored.text().contains(&format!("backup 2 of database {database}, ")), "{restored:?}");
    }
}

#[test]
fn cli_target_2_no_export_replaces_the_file_of_a_database() {
    let esker = Esker::new();
    put(&esker, "a", "1");
    assert_eq!(esker.run(["-d", "other", "put", "b", "2"]).code, 0);
    std::fs::create_dir(esker.path("db/mine")).unwrap();
    for to in ["db/CURRENT", "db/LOCK", "db/new", "db/mine/new", "other/CURRENT", "./db/../other/CURRENT"] {
        let refused = esker.run(["export", "--format", "tsv", to]);
        assert!(
            refused.code == 2 && refused.err.contains("lies in the directory of a database"),
            "{refused:?}"
        );
    }
    assert_eq!(esker.run(["export", "--format", "tsv", "outside"]).code, 0);
    assert_eq!((get(&esker, "db", "a"), get(&esker, "other", "b")), ("1\n".into(), "2\n".into()));
}

#[test]
fn a_database_goes_through_pipes() {
    let esker = Esker::new();
    put(&esker, "a", "1");
    let sent = esker.run(["backup", "send"]);
    assert!(sent.code == 0 && sent.err.contains("commit 1, "), "{sent:?}");
    let received = esker.run_with(&sent.out, ["backup", "receive", "copy", "--verify"]);
    assert!(received.text().starts_with("copy: database "), "{received:?}");
    let cut = esker.run_with(&sent.out[..sent.out.len() - 1], ["backup", "receive", "cut"]);
    assert!(cut.code == 2 && cut.err.contains("cut off") && !esker.path("cut").exists(), "{cut:?}");
    let unloaded = esker.run(["unload", "-"]);
    assert_eq!(unloaded.code, 0, "{unloaded:?}");
    assert_eq!(esker.run_with(&unloaded.out, ["-d", "loaded", "load", "-"]).code, 0);
    assert_eq!((get(&esker, "copy", "a"), get(&esker, "loaded", "a")), ("1\n".into(), "1\n".into()));
}
