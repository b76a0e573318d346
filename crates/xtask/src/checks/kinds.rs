//! The meaning of a kind of entry is decided in three files: the kind itself, the resolver of versions, and
//! the judge of compactions.
//!
//! Anywhere else a comparison or a match with a kind is an error, because a new kind would need a change
//! there. Ask the kind (`kind.is_live()`) or the resolver.

use crate::finding::Finding;
use crate::repo::Repo;
use crate::source::is_name;

const ROOT: &str = "crates/esker/src/";
const PLACES: &[&str] = &["types/op.rs", "read/resolve.rs", "compaction/judge.rs"];
/// The constants of `Kind` in `types/op.rs`. The log has kinds of records, by other names.
const DEFINITIONS: &str = "pub const ";

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let kinds = names_of_kinds(repo);
    let mut findings = Vec::new();
    for (file, source) in repo.rust() {
        let Some(inside) = file.path.strip_prefix(ROOT).filter(|inside| !PLACES.contains(inside)) else {
            continue;
        };
        for kind in &kinds {
            for offset in source.words(kind) {
                let line = source.line_of(offset);
                let before = source.code[..offset].trim_end();
                let after = source.code[offset + kind.len()..].trim_start();
                if decides(before, after) && !source.is_test_line(line) {
                    let message = format!("{inside} compares with `{kind}`: ask the kind, or the resolver");
                    findings.push(Finding::error(&file.path, line, message));
                }
            }
        }
    }
    findings
}

/// Returns whether code between these two pieces of text compares or matches.
fn decides(before: &str, after: &str) -> bool {
    let compares = before.ends_with("==") || before.ends_with("!=");
    let matches = after.starts_with("=>") || after.starts_with('|') || before.ends_with('|');
    let is_pattern = before.ends_with("if let") || before.ends_with("while let");
    let line = before.rfind(';').map_or(before, |end| &before[end..]);
    let in_macro = line.rfind("matches!(").is_some_and(|at| !line[at..].contains(')'));
    compares || matches || is_pattern || in_macro
}

/// The names of the kinds, read from `types/op.rs`.
fn names_of_kinds(repo: &Repo) -> Vec<String> {
    let source = repo.get(&format!("{ROOT}types/op.rs")).and_then(|file| file.source.as_ref());
    let code = source.map_or("", |source| source.code.as_str());
    let behind = code.match_indices(DEFINITIONS).map(|(at, _)| &code[at + DEFINITIONS.len()..]);
    let constants = behind.filter_map(|rest| rest.split_once(": Kind ").map(|(name, _)| name));
    constants.filter(|name| name.chars().all(is_name)).map(|name| format!("Kind::{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn comparisons_outside_of_their_places_are_found() {
        let text = "fn f() {\n    a == Kind::PUT;\n    match k {\n        Kind::REMOVE => 1,\n        _ => 2,\n    }\n    \
                    push(Kind::PUT);\n    b == RecordKind::PUT;\n    matches!(k, Kind::PUT);\n    \
                    if let Kind::PUT = k {}\n}\n";
        let kinds =
            "impl Kind {\n    pub const PUT: Kind = Kind(1);\n    pub const REMOVE: Kind = Kind(2);\n}\n";
        let files = [
            ("crates/esker/src/types/op.rs", kinds),
            ("crates/esker/src/read/point.rs", text),
            ("crates/esker/src/read/resolve.rs", text),
            ("crates/esker-sim/src/op.rs", text),
        ];
        let found = [2, 9, 10, 4].map(|line| format!("crates/esker/src/read/point.rs:{line}"));
        assert_eq!(places(check, &files), found);
    }
}
