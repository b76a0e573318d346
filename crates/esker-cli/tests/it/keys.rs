//! Tests `--key-file` and `esker keys`: every command that opens a database or backups knows the keys.
#![expect(clippy::disallowed_methods, reason = "tests look at files from outside")]

use std::path::Path;
use std::time::Duration;

use crate::common::Esker;
#[cfg(feature = "server")]
use crate::shell_server::Server;

const SECRET: &str = "sEcReTtExT";

/// Writes a file of master keys, each a repeated digit.
fn keys(esker: &Esker, name: &str, digits: &[&str]) {
    write_private(esker, name, &digits.iter().map(|digit| digit.repeat(64) + "\n").collect::<String>());
}

/// Writes a file that only its owner can read.
fn write_private(esker: &Esker, name: &str, text: &str) {
    esker.write(name, text);
    #[cfg(unix)]
    set_mode(esker, name, 0o600);
}

#[cfg(unix)]
fn set_mode(esker: &Esker, name: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(esker.path(name), mode).expect("a file of its own");
}

fn refused(esker: &Esker, line: &str, text: &str) {
    let outcome = esker.run(line.split(' '));
    assert!(outcome.code == 2 && outcome.err.contains(text), "{line}: {outcome:?}");
}

fn has_plain_text(path: &Path) -> bool {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().any(|entry| has_plain_text(&entry.path())),
        Err(_) => {
            let bytes = std::fs::read(path).expect("a file");
            bytes.windows(6).any(|window| window == &SECRET.as_bytes()[2..8])
        }
    }
}

#[test]
fn every_command_opens_with_the_keys_and_none_without() {
    let esker = Esker::new();
    keys(&esker, "a", &["1"]);
    keys(&esker, "b", &["2"]);
    keys(&esker, "ba", &["2", "1"]);
    esker.ok(&format!("--key-file a put -k {SECRET} {SECRET} {SECRET}"));
    let get = |options: &str| esker.ok(&format!("{options} get -k {SECRET} {SECRET}"));
    assert_eq!(get("--key-file a"), format!("{SECRET}\n"));
    esker.ok("--key-file a feed --keep 1000000");
    let lines = [
        "backup create backups",
        "backup feed backups",
        "backup list backups",
        "backup verify backups",
        "backup restore backups restored",
        "backup prune backups --keep 3",
        "checkpoint copy",
        "unload file",
        "check",
        "check --offline",
        "dump db",
        "stats",
        "info",
        "compact",
        "keyspaces list",
        "repair db repaired",
    ];
    for line in lines {
        refused(&esker, line, "it is encrypted");
        esker.ok(&format!("--key-file a {line}"));
    }
    for name in ["db", "backups", "restored", "copy", "file", "repaired"] {
        assert!(!has_plain_text(&esker.path(name)), "{name}");
    }
    for db in ["restored", "copy", "repaired"] {
        assert_eq!(get(&format!("--key-file a -d {db}")), format!("{SECRET}\n"));
    }
    esker.ok("--key-file ba -d loaded load file");
    assert_eq!(get("--key-file b -d loaded"), format!("{SECRET}\n"));
    esker.ok("--key-file a unload --plain plain");
    assert!(has_plain_text(&esker.path("plain")));
    esker.ok("-d unencrypted load plain");
    refused(&esker, "-d unencrypted --key-file a get x", "it is not encrypted");
    refused(&esker, "--key-file b info", "which the key provider does not have");
    write_private(&esker, "text", "no key");
    refused(&esker, "--key-file text info", "is not a file of master keys");
    refused(&esker, "keys rotate", "--key-file");

    esker.ok("--key-file ba keys rotate --data");
    assert_eq!(get("--key-file b"), format!("{SECRET}\n"));
    refused(&esker, "--key-file a info", "which the key provider does not have");
    refused(&esker, "--key-file b backup list backups", "which the key provider does not have");
    esker.ok("--key-file ba keys rotate --backups backups");
    esker.ok("--key-file b backup restore backups again");
    assert_eq!(get("--key-file b -d again"), format!("{SECRET}\n"));
}

#[test]
#[cfg(unix)]
fn a_key_file_that_others_can_read_is_refused() {
    let esker = Esker::new();
    keys(&esker, "a", &["1"]);
    set_mode(&esker, "a", 0o640);
    refused(&esker, "--key-file a put x y", "chmod 600");
    #[cfg(feature = "server")]
    refused(&esker, "--key-file a serve", "chmod 600");
    assert!(!esker.path("db").exists());
}

#[test]
fn a_refused_load_leaves_no_database() {
    let esker = Esker::new();
    keys(&esker, "a", &["1"]);
    esker.ok("--key-file a put x y");
    esker.ok("--key-file a unload file");
    let whole = esker.read("file");
    esker.write("cut", &whole[..100]);
    for (options, file, why) in [
        ("", "file", "it is encrypted"),
        ("--key-file a", "cut", "cut"),
        ("--key-file a", "a", "not a record file"),
        ("--key-file a -k other", "file", "no keyspace `other`"),
        ("--key-file a", "missing", "missing"),
    ] {
        for name in [file, "-"] {
            if name == "-" && file == "missing" {
                continue;
            }
            let line = format!("-d new {options} load {name}");
            let input = if name == "-" { esker.read(file) } else { Vec::new() };
            let outcome = esker.run_with(&input, line.split_whitespace());
            assert!(outcome.code == 2 && !esker.path("new").exists(), "{line} < {file}, {why}: {outcome:?}");
        }
    }
    let outcome = esker.run_with(&whole, "-d new --key-file a load -".split(' '));
    assert!(outcome.code == 0, "{outcome:?}");
    assert_eq!(esker.ok("-d new --key-file a get x"), "y\n");
}

#[test]
#[cfg(feature = "server")]
fn a_replica_has_a_key_of_its_own() {
    let esker = Esker::new();
    keys(&esker, "a", &["1"]);
    keys(&esker, "ba", &["2", "1"]);
    keys(&esker, "b", &["2"]);
    let primary = Server::run(&esker, "--key-file a serve");
    assert_eq!(primary.shell(&esker, "", &format!("put {SECRET} {SECRET}")).code, 0);
    let source = format!("--replica-of {} --masterauth secret", primary.address);
    let replica = Server::run(&esker, &format!("-d replica --key-file ba serve {source}"));
    let wait_for = |key: &str| {
        let has_it = || replica.shell(&esker, "", &format!("get {key}")).text() == format!("{SECRET}\n");
        let came = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            has_it()
        });
        assert!(came, "{key}");
    };
    wait_for(SECRET);
    assert_eq!(primary.shell(&esker, "", &format!("put {SECRET}2 {SECRET}")).code, 0);
    wait_for(&format!("{SECRET}2"));
    drop((primary, replica));
    for name in ["db", "replica"] {
        assert!(!has_plain_text(&esker.path(name)), "{name}");
    }
    refused(&esker, "-d replica --key-file a info", "which the key provider does not have");
    assert!(esker.run("-d replica --key-file b check".split(' ')).code == 0);
}
