//! Replays the conformance file with a C program, `tests/c/conformance.c`.
//!
//! C has no JSON: the program reads one call per line, as words, and answers each with a line. A word of
//! bytes is `=` and their hexadecimal digits, and `-` is nothing.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::Value;

use crate::{compiler, library, under};

/// Makes each call of the file, and compares the replies.
pub fn run(file: &str) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("conformance");
    let mut build = compiler("ESKER_CC", "cc");
    build.args(["-std=c99", "-D_POSIX_C_SOURCE=199309L", "-pedantic", "-g", "-o"]).arg(&program);
    build.arg("tests/c/conformance.c").arg(library());
    crate::run(build.args(["-lpthread", "-lm", "-ldl"]));
    let mut child = under(&program);
    child.arg(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap());
    for (at, line) in file.lines().enumerate() {
        let call: Value = serde_json::from_str(line).unwrap();
        writeln!(to, "{}", command(&call)).unwrap();
        let mut reply = String::new();
        from.read_line(&mut reply).unwrap();
        assert_eq!(reply.trim_end(), expected(&call), "line {}: {line}", at + 1);
    }
    drop(to);
    assert!(child.wait().unwrap().success());
}

fn bytes(value: &Value) -> String {
    value.as_str().map_or("-".to_owned(), |hex| format!("={hex}"))
}

/// A name or text as a word.
fn text(value: &Value) -> String {
    format!("={}", super::script::hex(value.as_str().unwrap().as_bytes()))
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn command(call: &Value) -> String {
    let name = call["do"].as_str().unwrap();
    let mut line = name.to_owned();
    let mut add = |word: String| write!(line, " {word}").unwrap();
    match name {
        "rename" => ["from", "to"].into_iter().for_each(|member| add(text(&call[member]))),
        "pack" => call["fields"].as_array().unwrap().iter().for_each(|field| add(field_words(field))),
        _ => {
            if !call["keyspace"].is_null() {
                add(text(&call["keyspace"]));
            }
            if !matches!(name, "keyspace" | "drop" | "operator" | "swap" | "unpack" | "sleep") {
                add(plain(&call["txn"]));
            }
            for member in ["key", "value", "operand", "start", "end", "expected"] {
                if let Some(value) = call.get(member).filter(|_| !(name == "swap" && member == "value")) {
                    add(bytes(value));
                }
            }
            if name == "swap" {
                add(bytes(&call["value"]));
            }
            if let Some(prefix) = call.get("prefix") {
                add(bytes(prefix));
                if name == "scan" {
                    add("prefix".to_owned());
                }
            }
            let keys = call["keys"].as_array().into_iter().flatten();
            keys.for_each(|key| add(bytes(key)));
            for member in ["ttl_ms", "by", "reverse", "limit", "operator", "kind", "savepoint", "ms"] {
                if let Some(value) = call.get(member) {
                    add(plain(value));
                }
            }
        }
    }
    line
}

fn field_words(field: &Value) -> String {
    let Some((kind, value)) = field.as_object().and_then(|field| field.iter().next()) else {
        return "null".to_owned();
    };
    match kind.as_str() {
        "tuple" => {
            let fields = value.as_array().unwrap().iter().map(field_words);
            let words: Vec<_> = ["(".to_owned()].into_iter().chain(fields).chain([")".to_owned()]).collect();
            words.join(" ")
        }
        "text" => format!("text {}", text(value)),
        "bytes" | "float" | "double" | "uuid" => format!("{kind} {}", bytes(value)),
        kind => format!("{kind} {}", plain(value)),
    }
}

/// The line with which the program has to answer.
fn expected(call: &Value) -> String {
    if let Some(error) = call["error"].as_str() {
        return format!("error {error}");
    }
    let is = &call["is"];
    let list = || is.as_array().unwrap().iter();
    match call["do"].as_str().unwrap() {
        "get" | "remove" | "pack" => bytes(is),
        "many" => list().map(bytes).collect::<Vec<_>>().join(" "),
        "names" => list().map(text).collect::<Vec<_>>().join(" "),
        "scan" => list().map(|e| format!("{} {}", bytes(&e[0]), bytes(&e[1]))).collect::<Vec<_>>().join(" "),
        "feed" => {
            let commits = list().map(|commit| {
                let changes = commit.as_array().unwrap().iter();
                changes.fold("commit".to_owned(), |line, change| format!("{line} {}", change_words(change)))
            });
            commits.collect::<Vec<_>>().join(" ")
        }
        _ if is.is_null() => "ok".to_owned(),
        _ => plain(is),
    }
}

fn change_words(change: &Value) -> String {
    let (key, value) = (bytes(&change["key"]), bytes(&change["value"]));
    format!("{} {} {key} {value}", plain(&change["change"]), text(&change["keyspace"]))
}
