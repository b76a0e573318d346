//! Tests `check`, `repair` and `dump` on sound and damaged databases.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests look at files from outside"
)]

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::common::Esker;
use serde_json::Value;

/// Returns names, contents and times of all files of a directory.
fn state(dir: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            (
                path.clone(),
                std::fs::read(&path).unwrap(),
                std::fs::metadata(&path).unwrap().modified().unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

/// Creates a database with two keyspaces, a table and a log.
fn filled() -> Esker {
    let esker = Esker::new();
    let rows: String = (0..500).map(|number| format!("key{number:03}\tvalue {number}\n")).collect();
    assert_eq!(esker.run_with(rows.as_bytes(), ["import"]).code, 0);
    assert_eq!(esker.run_with(b"ann\tsmith\n", ["-k", "users", "import"]).code, 0);
    esker.ok("compact");
    // One process with one commit per row writes one log segment.
    let late: String = (0..5).map(|number| format!("late{number}\t{number}\n")).collect();
    assert_eq!(esker.run_with(late.as_bytes(), ["import", "--batch", "1"]).code, 0);
    esker
}

fn file_with(esker: &Esker, extension: &str) -> PathBuf {
    let mut files: Vec<_> = state(&esker.path("db")).into_iter().map(|file| file.0).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == extension));
    files.pop().expect("there is one")
}

/// Inverts a byte of a file.
fn damage(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0xFF;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_sound_database_is_repaired_without_loss_and_not_touched() {
    let esker = filled();
    assert!(esker.ok("check --offline").contains("sound: 506 live keys"), "{}", esker.ok("check --offline"));
    let before = state(&esker.path("db"));
    let said = esker.ok("repair db new");
    assert!(said.contains("506 keys") && said.ends_with("nothing was lost\n"), "{said}");
    esker.ok("check --offline");
    esker.ok("dump db");
    assert!(state(&esker.path("db")) == before, "names, bytes or times of the original have changed");
    assert_eq!(esker.ok("--db new export"), esker.ok("export"));
    assert_eq!(esker.ok("--db new -k users get ann"), "smith\n");
    assert!(esker.fails("repair db new").contains("not empty"));
    assert!(esker.fails("repair nothing newer").contains("no database in nothing"));
}

#[test]
fn a_target_in_the_damaged_database_is_refused_by_whatever_name() {
    let esker = filled();
    std::fs::create_dir(esker.path("other")).unwrap();
    let mut targets = vec!["db", "db/new", "./db/new", "other/../db/a/b"];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("db", esker.path("link")).unwrap();
        targets.extend(["link/new", "link"]);
    }
    let full = esker.path("db/new").display().to_string();
    targets.push(&full);
    let before = state(&esker.path("db"));
    for target in targets {
        let said = esker.fails(&format!("repair db {target}"));
        assert!(
            said.contains("lies in the damaged database") && said.contains("outside"),
            "{target}: {said}"
        );
        assert!(state(&esker.path("db")) == before, "{target}");
    }
    // Paths relative to the database itself.
    let inside = esker.run_in("db", ["repair", ".", "new"]);
    assert!(inside.code == 2 && inside.err.contains("lies in the damaged database"), "{inside:?}");
    assert!(state(&esker.path("db")) == before);
    let beside = esker.run_in("db", ["repair", ".", "../new"]);
    assert_eq!(beside.code, 0, "{beside:?}");
    assert!(state(&esker.path("db")) == before);
}

/// Computes CRC-32C bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let byte = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 })
    };
    !bytes.iter().fold(!0, byte)
}

#[test]
fn a_repair_that_fails_leaves_no_directory() {
    let esker = filled();
    // The repair discovers the newer log format only after filling the target from the tables.
    let log = file_with(&esker, "wal");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[8] = 99;
    let crc = crc32c(&bytes[..28]).to_le_bytes();
    bytes[28..32].copy_from_slice(&crc);
    std::fs::write(&log, bytes).unwrap();
    assert!(esker.fails("repair db new").contains("format version 99"));
    assert!(!esker.path("new").exists());
    esker.fails("repair db deep/er/new");
    assert!(!esker.path("deep").exists());
    // Existing directories stay.
    std::fs::create_dir_all(esker.path("mine/empty")).unwrap();
    esker.fails("repair db mine/empty");
    esker.fails("repair db mine/new");
    assert!(esker.path("mine/empty").exists() && !esker.path("mine/new").exists());
}

#[test]
fn an_unfinished_repair_is_reported() {
    let esker = filled();
    std::fs::create_dir(esker.path("new")).unwrap();
    esker.write("new/REPAIRING", "");
    let lock = std::fs::File::create(esker.path("new/LOCK")).unwrap();
    lock.lock().unwrap();
    let running = esker.fails("repair db new");
    assert!(running.contains("the database in new is in use") && !running.contains("remove"), "{running}");
    lock.unlock().unwrap();
    for line in ["repair db new", "repair new newer", "-d new get a", "-d new put a 1", "-d new compact"] {
        let said = esker.fails(line);
        assert!(said.contains("a repair into new did not finish: remove the directory"), "{line}: {said}");
    }
    for line in ["-d new check", "-d new check --offline"] {
        let check = esker.run(line.split(' '));
        let once = check.text().matches("a repair into new did not finish").count() == 1;
        assert!(check.code == 1 && once && check.text().contains("1 problem: "), "{line}: {check:?}");
    }
    assert!(esker.ok("dump new").contains("what=marker of an unfinished repair"));
    std::fs::remove_dir_all(esker.path("new")).unwrap();
    assert!(esker.ok("repair db new").contains("nothing was lost"));
    let held = std::fs::File::open(esker.path("db/LOCK")).unwrap();
    held.lock().unwrap();
    assert!(esker.fails("repair db newer").contains("the database in db is in use"));
}

#[test]
fn damage_is_listed_and_repaired_around() {
    let esker = filled();
    damage(&file_with(&esker, "sst"), 40);
    let check = esker.run(["check", "--offline"]);
    assert!(check.code == 1 && check.text().contains("corrupt block in db/"), "{check:?}");
    let before = state(&esker.path("db"));
    let repair = esker.run(["repair", "db", "new", "--json"]);
    assert_eq!(repair.code, 1, "{repair:?}");
    assert!(state(&esker.path("db")) == before);
    let report: Value = serde_json::from_slice(&repair.out).unwrap();
    assert_eq!(report["losses"][0]["offset"], 0);
    assert_eq!(report["losses"][0]["keys"]["from"]["keyspace"], 0);
    assert!(esker.ok("--db new check").contains("sound"));
    assert_eq!(esker.ok("--db new get late4"), "4\n");
}

#[test]
fn a_verdict_does_not_depend_on_its_reader() {
    let esker = filled();
    let lines = ["del nina --json", "check", "check --offline", "check --json", "repair db new"];
    for line in lines.into_iter().chain(["repair db new --json", "dump db", "dump db --json"]) {
        if line == "check" {
            damage(&file_with(&esker, "sst"), 40);
        }
        let _missing = std::fs::remove_dir_all(esker.path("new"));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let closed = esker.run_into(writer, line.split(' '));
        assert!(closed.code == 1 && closed.err.is_empty(), "{line}: {closed:?}");
    }
    // A closed output does not hide an error.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(esker.run_into(writer, ["dump", "nothing"]).code, 2);
}

#[test]
fn a_damaged_log_is_refused_by_all_but_repair() {
    let esker = filled();
    let log = file_with(&esker, "wal");
    let at = std::fs::read(&log).unwrap().windows(5).position(|w| w == b"late1").unwrap();
    damage(&log, at);
    let refused = esker.fails("get late0");
    assert!(refused.contains("esker repair"), "{refused}");
    let check = esker.run(["check"]);
    assert!(check.code == 1 && check.text().contains(".wal"), "{check:?}");
    let dump = esker.run(["dump", &log.display().to_string()]);
    assert!(dump.code == 1 && dump.text().contains("damage") && dump.text().contains("late4"), "{dump:?}");
    let repair = esker.run(["repair", "db", "new"]);
    assert!(repair.code == 1 && repair.text().contains("LOST"), "{repair:?}");
    assert_eq!(esker.run(["--db", "new", "get", "late1"]).code, 1);
    assert_eq!(esker.ok("--db new get late4"), "4\n");
}

#[test]
fn a_database_without_current_is_damaged_and_not_missing() {
    let esker = filled();
    std::fs::remove_file(esker.path("db/CURRENT")).unwrap();
    let refused = esker.fails("get late0");
    assert!(refused.contains("CURRENT") && refused.contains("esker repair"), "{refused}");
    let check = esker.run(["check"]);
    assert!(check.code == 1 && check.text().contains("CURRENT"), "{check:?}");
}

#[test]
fn dump_shows_every_kind_of_file() {
    let esker = filled();
    let all = esker.ok("dump db");
    for part in
        ["what=current", "what=options", "what=lock", "what=manifest", "what=log segment", "what=table"]
    {
        assert!(all.contains(part), "{part}");
    }
    for part in
        ["edit  ", "added  file=", "put  key=\"\\x01late3\"  value=\"3\"", "key=\"\\x01key007\"", "footer"]
    {
        assert!(all.contains(part), "{part}");
    }
    assert!(!esker.ok("dump db --no-entries").contains("key007"));
    for line in esker.ok("dump db --json").lines() {
        let item: Value = serde_json::from_str(line).unwrap();
        assert!(item["offset"].is_u64() && item["kind"].is_string(), "{line}");
    }
    esker.write("strange", b"not ours");
    assert!(esker.ok("dump strange").contains("what=unknown"));
    assert!(esker.fails("dump nothing").contains("nothing"));
    for name in ["CURRENT", "OPTIONS"] {
        let file = esker.path("db").join(name);
        damage(&file, 9);
        let dump = esker.run(["dump", "db", "--no-entries"]);
        assert!(dump.code == 1 && dump.text().contains(&format!("damage  what={name}")), "{dump:?}");
        damage(&file, 9);
    }
    esker.ok("dump db");
}

/// Control characters in names, paths and files are escaped.
#[cfg(unix)]
#[test]
fn names_paths_and_keys_do_not_control_the_terminal() {
    const EVIL: &str = "a\u{1b}[2J\u{9b}\n\u{202e}\u{2066}\u{200f}\u{61c}b";
    let is_plain = |text: &str| {
        let hidden = |c: char| {
            (c.is_control() && !"\n\t".contains(c)) || "\u{202e}\u{2066}\u{200f}\u{61c}".contains(c)
        };
        assert!(!text.contains(hidden), "{text:?}");
    };
    let esker = Esker::new();
    let directory = esker.path(EVIL);
    std::fs::create_dir(&directory).unwrap();
    for command in [
        &["put", "a", "1"][..],
        &["-k", EVIL, "put", EVIL, EVIL],
        &["-k", EVIL, "scan"],
        &["-k", &format!("{EVIL}2"), "get", "a"],
        &["info"],
        &["stats"],
        &["check"],
        &["check", "--offline"],
        &["repair", EVIL, "new"],
        &["repair", EVIL, EVIL],
        &["dump", EVIL],
        &["dump", "missing"],
        &["import", &format!("{EVIL}.tsv")],
        &["import", "--key", EVIL, "bad.csv"],
        &["import", "bad.tsv"],
        &["export", &format!("{EVIL}.tsv")],
        &["export", &format!("{EVIL}.unknown")],
        &["export", "--format", "tsv", EVIL],
        &["get", &format!("\\q{EVIL}")],
    ] {
        esker.write("bad.tsv", format!("\\q{}\t1\n", EVIL.replace('\n', "")));
        esker.write("bad.csv", format!("{},value\n1,2\n", EVIL.replace('\n', "")));
        let outcome = esker.run(["--db", EVIL].iter().chain(command));
        is_plain(outcome.text());
        is_plain(&outcome.err);
    }
    // Damage is reported with the path of the file.
    let table = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let current = table.into_iter().find(|path| path.ends_with("CURRENT")).unwrap();
    std::fs::write(current, "").unwrap();
    for command in [&["get", "a"][..], &["check"], &["check", "--offline"], &["repair", EVIL, "newer"]] {
        let outcome = esker.run(["--db", EVIL].iter().chain(command));
        assert_ne!(outcome.text().len() + outcome.err.len(), 0);
        is_plain(outcome.text());
        is_plain(&outcome.err);
    }
}
