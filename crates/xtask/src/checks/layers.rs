//! Modules of the engine and of the server use only modules of lower layers.
//!
//! ```text
//!   sync < types < encoding < encryption < recordio, cache < blob < wal, sstable < memtable < manifest
//!     < read < compaction < txn < feed < engine < rescue < db < replay < backup, trace, typed, unload
//! ```
//!
//! The same inside the engine, whose layers `engine/core.rs` describes:
//!
//! ```text
//!   base < disk < state < upkeep < writes < core < life
//! ```
//!
//! The server:
//!
//! ```text
//!   base < store < resp < command < clients < observe < config < acl < holdings < replication, lua
//!     < run, sentinel < types < commands < sequencer < net
//! ```
//!
//! Read from every `crate::NAME` and `crate::engine::NAME` outside tests. A name that `lib.rs` re-exports
//! counts as its module.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::repo::Repo;
use crate::source::{Source, is_name};

const ROOT: &str = "crates/esker/src/";

/// The layers of `esker`, lowest first. Modules of one layer do not use each other.
const STEPS: &[&[&str]] = &[
    &["sync"],
    &["types"],
    &["encoding"],
    &["encryption"],
    &["recordio", "cache"],
    &["blob"],
    &["wal", "sstable"],
    &["memtable"],
    &["manifest"],
    &["read"],
    &["compaction"],
    &["txn"],
    &["feed"],
    &["engine"],
    &["rescue"],
    &["db"],
    &["replay"],
    &["backup", "trace", "typed", "unload"],
];

/// The layers of the engine, lowest first.
const ENGINE_STEPS: &[&[&str]] =
    &[&["base"], &["disk"], &["state"], &["upkeep"], &["writes"], &["core"], &["life"]];

const SERVER_ROOT: &str = "crates/esker-server/src/";

/// The layers of `esker-server`, lowest first.
const SERVER_STEPS: &[&[&str]] = &[
    &["base"],
    &["store"],
    &["resp"],
    &["command"],
    &["clients"],
    &["observe"],
    &["config"],
    &["acl"],
    &["holdings"],
    &["replication", "lua"],
    &["run", "sentinel"],
    &["types"],
    &["commands"],
    &["sequencer"],
    &["net"],
];

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let lib = repo.get(&format!("{ROOT}lib.rs")).and_then(|f| f.source.as_ref());
    let reexports = lib.map(reexports).unwrap_or_default();
    let mut findings = check_order(repo, ROOT, "lib.rs", "crate::", STEPS, &reexports);
    let engine = format!("{ROOT}engine/");
    findings.extend(check_order(repo, &engine, "mod.rs", "crate::engine::", ENGINE_STEPS, &BTreeMap::new()));
    findings.extend(check_order(repo, SERVER_ROOT, "lib.rs", "crate::", SERVER_STEPS, &BTreeMap::new()));
    findings
}

/// Checks the modules below the folder `root`, whose own file is `skipped`. `prefix` begins the path of a
/// module.
fn check_order(
    repo: &Repo,
    root: &str,
    skipped: &str,
    prefix: &str,
    steps: &[&[&str]],
    reexports: &BTreeMap<String, String>,
) -> Vec<Finding> {
    let step = |module: &str| step_in(steps, module);
    let mut findings = Vec::new();
    for (file, source) in repo.rust() {
        let Some(inside) = file.path.strip_prefix(root).filter(|inside| *inside != skipped) else {
            continue;
        };
        let user = inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs");
        if source.is_test_line(1) {
            continue;
        }
        let Some(user_step) = step(user) else {
            findings.push(Finding::error(
                &file.path,
                1,
                format!("module `{user}` has no place in the layer order"),
            ));
            continue;
        };
        for (name, offset) in names_behind(source, prefix) {
            let used = reexports.get(&name).unwrap_or(&name);
            let line = source.line_of(offset);
            let Some(used_step) = step(used).filter(|_| used != user && !source.is_test_line(line)) else {
                continue;
            };
            if used_step >= user_step {
                let message =
                    format!("layer order: `{user}` may not use `{used}`, which does not stand below it");
                findings.push(Finding::error(&file.path, line, message));
            }
        }
    }
    findings
}

fn step_in(steps: &[&[&str]], module: &str) -> Option<usize> {
    steps.iter().position(|modules| modules.contains(&module))
}

/// The first names behind each `prefix`, with its offset.
fn names_behind(source: &Source, prefix: &str) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    for offset in source.words(prefix) {
        let rest = &source.code[offset + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(group_names(group).into_iter().map(|name| (name, offset))),
            None => names.push((first_name(rest), offset)),
        }
    }
    names
}

/// The first name of each member of a brace group, whose opening brace is already gone.
fn group_names(group: &str) -> Vec<String> {
    let (mut depth, mut start, mut names) = (0usize, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(first_name(group[start..at].trim_start()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn first_name(text: &str) -> String {
    text.chars().take_while(|c| is_name(*c)).collect()
}

/// From a name that `lib.rs` re-exports to the module that it comes from.
fn reexports(lib: &Source) -> BTreeMap<String, String> {
    let mut from = BTreeMap::new();
    for offset in lib.words("use ") {
        let statement = lib.code[offset + "use ".len()..].split(';').next().unwrap_or_default();
        let path = statement.trim_start_matches("crate::").trim_start_matches("self::");
        let module = first_name(path);
        if step_in(STEPS, &module).is_none() {
            continue;
        }
        // A name with nothing but a separator behind it is public in the crate.
        for leaf in path[module.len()..].split(['{', '}', ',']) {
            let seen = leaf.rsplit([':', ' ']).find(|part| !part.is_empty()).unwrap_or_default();
            from.insert(first_name(seen), module.clone());
        }
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    #[test]
    fn upward_and_sideways_uses_are_found() {
        let files = [
            (
                "crates/esker/src/lib.rs",
                "pub use db::{Db, Keyspace};\npub use types::Error as Failure;\npub const K: u8 = 1;\n",
            ),
            (
                "crates/esker/src/sstable/reader.rs",
                "use crate::cache::Cache;\nuse crate::sstable::a;\nuse crate::K;\n",
            ),
            ("crates/esker/src/sstable/writer.rs", "use crate::memtable::X;\n"),
            (
                "crates/esker/src/wal/writer.rs",
                "// crate::db\nuse crate::{\n    types::{A, B}, Failure,\n    manifest::Edit,\n};\n",
            ),
            (
                "crates/esker/src/read/mod.rs",
                "fn f() {\n    crate::Db::open();\n}\n#[cfg(test)]\nuse crate::db;\n",
            ),
            ("crates/esker/src/db/tests.rs", "use crate::elsewhere;\n"),
        ];
        let expected = [
            "crates/esker/src/sstable/writer.rs:1",
            "crates/esker/src/wal/writer.rs:2",
            "crates/esker/src/read/mod.rs:2",
        ];
        assert_eq!(places(check, &files), expected);
    }

    #[test]
    fn a_layer_of_the_engine_that_uses_one_above_it_is_found() {
        let files = [
            (
                "crates/esker/src/engine/disk/mod.rs",
                "use crate::engine::base::Base;\nuse crate::engine::state::State;\n",
            ),
            ("crates/esker/src/engine/life/open.rs", "use crate::engine::{core, writes::Writes};\n"),
            ("crates/esker/src/engine/mod.rs", "use crate::engine::life::X;\n"),
        ];
        assert_eq!(places(check, &files), ["crates/esker/src/engine/disk/mod.rs:2"]);
    }

    #[test]
    fn a_module_without_a_step_is_found() {
        assert_eq!(places(check, &[("crates/esker/src/misc.rs", "//! x\n")]), ["crates/esker/src/misc.rs:1"]);
    }
}
