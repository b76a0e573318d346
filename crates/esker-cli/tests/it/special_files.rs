//! Tests pipes and directories in place of a database's files: each command ends in time and names the file.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests look at files from outside, and wait"
)]

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Esker;

/// More time than any of these commands takes on a slow machine.
const TIME_MAX: Duration = Duration::from_secs(300);

/// Creates a special file.
type Make = fn(&std::path::Path);

fn pipe(path: &std::path::Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn directory(path: &std::path::Path) {
    fs::create_dir(path).unwrap();
}

/// Creates a database with a table and a log.
fn filled() -> Esker {
    let esker = Esker::new();
    esker.ok("put a 1");
    esker.ok("compact");
    esker.ok("put b 2");
    esker
}

/// Returns the name of the newest file with this extension.
fn named(esker: &Esker, ending: &str) -> String {
    let entries = fs::read_dir(esker.path("db")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(ending)).max().unwrap()
}

/// Runs a command that might block forever. Returns its exit code and output.
fn in_time(esker: &Esker, line: &str) -> (i32, String) {
    let said = esker.path("said");
    let output = File::create(&said).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_esker"))
        .args(line.split(' '))
        .env("ESKER_DB", "db")
        .current_dir(esker.path("."))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() < TIME_MAX => std::thread::sleep(Duration::from_millis(5)),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("{line}: it does not end");
            }
        }
    };
    (status.code().unwrap(), fs::read_to_string(said).unwrap())
}

/// Any exit code is accepted.
const ANY: i32 = -1;

/// Checks the exit codes of `get`, `check`, `check --offline`, `repair` and `dump` when `role` is a special
/// file.
fn judge(role: &str, make: Make, codes: [i32; 5]) {
    let commands = ["get a", "check", "check --offline", "repair db new", "dump db"];
    for (line, expected) in commands.into_iter().zip(codes) {
        let esker = filled();
        let name = if role.starts_with('.') { named(&esker, role) } else { role.to_owned() };
        let path = esker.path("db").join(&name);
        if path.exists() {
            fs::remove_file(&path).unwrap();
        }
        make(&path);
        let (code, said) = in_time(&esker, line);
        assert!(code == expected || expected == ANY, "{line}, {name}: {code}: {said}");
        assert!(code == 0 || said.contains(&format!("db/{name}")), "{line}, {name}: {said}");
        assert!(!said.contains("panicked"), "{line}, {name}: {said}");
    }
}

#[test]
fn a_pipe_in_the_place_of_each_file() {
    // Without CURRENT, repair uses the existing manifest and loses nothing.
    judge("CURRENT", pipe, [2, 1, 1, 0, 1]);
    judge(".sst", pipe, [2, 1, 1, 1, 1]);
    judge(".wal", pipe, [2, 1, 1, 1, 1]);
    judge("LOCK", pipe, [2, 2, 2, 2, 1]);
    // Opening replaces OPTIONS without reading it.
    judge("OPTIONS", pipe, [0, 0, 0, 0, 1]);
    // The manifest does not name this file.
    judge("000099.sst", pipe, [ANY, ANY, ANY, ANY, 1]);
    judge("strange", pipe, [0, 0, 0, 0, 1]);
    // Dumping only this file is an error, not a partial answer.
    let esker = Esker::new();
    pipe(&esker.path("alone"));
    let (code, said) = in_time(&esker, "dump alone");
    assert!(code == 2 && said.starts_with("esker: open alone: it is a pipe"), "{code}: {said}");
}

#[test]
fn a_directory_in_the_place_of_a_file() {
    judge("CURRENT", directory, [2, 1, 1, 0, 1]);
    judge(".sst", directory, [2, 1, 1, 1, 1]);
    judge(".wal", directory, [2, 1, 1, 1, 1]);
    // A directory of the user, not a file of the database.
    judge("strange", directory, [0, 0, 0, 0, 0]);
}

#[test]
fn a_table_that_cannot_be_read_is_refused_with_advice() {
    let esker = filled();
    let table = esker.path("db").join(named(&esker, ".sst"));
    fs::remove_file(&table).unwrap();
    directory(&table);
    assert!(esker.fails("get a").contains("`esker repair db NEW`"));
    let repair = esker.run(["repair", "db", "new"]);
    assert!(repair.code == 1 && repair.text().contains("LOST"), "{repair:?}");
    assert_eq!(esker.ok("--db new get b"), "2\n");
}
