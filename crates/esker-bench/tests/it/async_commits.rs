//! Kills processes to test what adapters of the default build say of their async commits. Adapters with a
//! wrong claim are found.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "helpers of a test")]

use std::process::{Command, Output};

use crate::listed;

fn async_commits(engines: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker-bench"));
    command.args(["async-commits", "--dir"]).arg(dir.path());
    command.args(engines.iter().flat_map(|engine| ["--engine", engine]));
    let output = command.output().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "databases are removed");
    output
}

#[test]
fn what_adapters_say_of_async_commits_is_so() {
    let output = async_commits(&[]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for (engine, there) in [
        ("esker", "1500 of 1500 there after a kill, as its adapter says: handed to"),
        ("redb", "1000 of 1500 there after a kill, as its adapter says: in the process"),
        ("bf-tree", "no such mode: "),
    ] {
        assert!(text.contains(&format!("{engine}: {there}")), "{text}");
    }
    for (engine, lacks) in listed::engines() {
        let is_lacking = lacks.contains("async commits");
        let expected = if is_lacking { "no such mode: " } else { "there after a kill, as its adapter says" };
        let line = text.lines().find(|line| line.starts_with(&format!("{engine}: ")));
        assert!(line.is_some_and(|line| line.contains(expected)), "{engine}: {text}");
    }
}

#[test]
fn canary_an_adapter_that_says_too_much_or_too_little_is_found_out() {
    let output = async_commits(&["canary-boast", "esker", "canary-modest"]);
    assert!(!output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("are not what their adapters say: canary-boast, canary-modest"), "{text}");
}
