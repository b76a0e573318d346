//! What a kind of entry means is decided in three places: the kind itself, the resolver of versions, the judge of compactions.
//!
//! Anywhere else a comparison with a kind is an error: a new kind would have to be thought of there, too. Ask the kind
//! (`kind.is_live()`) or the resolver.

use crate::finding::Finding;
use crate::repo::Repo;

const ROOT: &str = "crates/esker/src/";
const PLACES: &[&str] = &["types/op.rs", "read/resolve.rs", "compaction/judge.rs"];
/// The kinds of `types/op.rs`. The log has kinds of records, by other names.
const KINDS: &[&str] = &["Kind::PUT", "Kind::PUT_BLOB", "Kind::REMOVE", "Kind::REMOVE_RANGE", "Kind::MERGE"];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in repo.rust() {
        let Some(inside) = file.path.strip_prefix(ROOT).filter(|inside| !PLACES.contains(inside)) else {
            continue;
        };
        for kind in KINDS {
            for offset in source.words(kind) {
                let line = source.line_of(offset);
                let before = source.code[..offset].trim_end();
                let after = source.code[offset + kind.len()..].trim_start();
                let compares = before.ends_with("==") || before.ends_with("!=");
                let matches = after.starts_with("=>") || after.starts_with('|') || before.ends_with('|');
                if (compares || matches) && !source.is_test_line(line) {
                    let message = format!("{inside} compares with `{kind}`: ask the kind, or the resolver");
                    findings.push(Finding::error(&file.path, line, message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn comparisons_outside_of_their_places_are_found() {
        let text = "fn f() {\n    a == Kind::PUT;\n    match k {\n        Kind::REMOVE => 1,\n        _ => 2,\n    }\n    \
                    push(Kind::PUT);\n    b == RecordKind::PUT;\n}\n";
        let files = [
            ("crates/esker/src/read/point.rs", text),
            ("crates/esker/src/read/resolve.rs", text),
            ("crates/esker-sim/src/op.rs", text),
        ];
        let found = ["crates/esker/src/read/point.rs:2", "crates/esker/src/read/point.rs:4"];
        assert_eq!(places(check, &files), found);
    }
}
