//! `unsafe` stands only in the files listed here, and each use says why it is sound.
//!
//! - The list and the files agree: an entry without `unsafe` is removed.
//! - A listed file says `#![expect(unsafe_code, reason = "...")]` at its head, as the workspace denies it.
//!
//! That the comment stands directly above its block is clippy's to check (`undocumented_unsafe_blocks`).

use crate::finding::Finding;
use crate::repo::Repo;
use crate::source::Source;

/// The files that may use `unsafe`, and for what.
const ALLOWED: &[(&str, &str)] = &[
    ("bindings/python/src/block.rs", "a class with a buffer needs the C interface of Python"),
    ("crates/esker-bench/src/engines/canopydb.rs", "a reader owns a transaction and a tree that borrows it"),
    ("crates/esker-bench/src/engines/libmdbx.rs", "compaction is mdbx's own"),
    ("crates/esker-bench/src/engines/libmdbx/keyspaces.rs", "the binding makes removing a table unsafe"),
    ("crates/esker-bench/src/engines/libmdbx/parked.rs", "so are kept transactions and key-only walks"),
    ("crates/esker-bench/src/engines/lmdb.rs", "heed makes opening an environment unsafe"),
    ("crates/esker-bench/src/engines/lmdb/keyspaces.rs", "heed makes removing a database unsafe"),
    ("crates/esker-bench/src/engines/sanakirja.rs", "making a tree of slices is unsafe in sanakirja"),
    ("crates/esker-c/src/slice.rs", "reads and writes memory that a C program describes"),
    ("crates/esker-cli/src/closed.rs", "runs before main"),
    ("crates/esker-env/src/aligned.rs", "buffers aligned for direct I/O"),
    ("crates/esker-env/src/pages.rs", "memory by the page"),
    ("crates/esker-env/src/process.rs", "pthread_atfork has no safe wrapper"),
    ("crates/esker-env/src/real/unix.rs", "sync_file_range has no safe wrapper"),
    ("crates/esker-env/src/time_slice.rs", "rustix has no sched_setattr"),
    ("crates/esker-env/src/window.rs", "memory of a file"),
    ("crates/esker-shared/tests/it/fork.rs", "a fork has no safe wrapper"),
    ("crates/esker/src/cache/block_cache.rs", "a directory that goes takes its blocks out at once"),
    ("crates/esker/src/cache/models.rs", "models of what slot.rs does"),
    ("crates/esker/src/cache/slot.rs", "reference counts held by atomic pointers"),
    ("crates/esker/src/memtable/arena.rs", "hands out raw memory"),
    ("crates/esker/src/memtable/node.rs", "follows pointers between nodes in the arena"),
    ("crates/esker/src/memtable/position.rs", "keeps pointers to nodes from one step to the next"),
    ("crates/esker/src/memtable/record.rs", "reads and writes records in arena memory"),
    ("crates/esker/src/memtable/tree.rs", "follows pointers to nodes in the arena"),
    ("crates/esker/src/memtable/writer.rs", "keeps pointers to nodes from one insert to the next"),
    ("crates/esker/src/read/models.rs", "models of what view_cell.rs does"),
    ("crates/esker/src/read/view_cell.rs", "an atomic pointer reclaimed by epochs"),
    ("crates/esker/src/recordio/fuzzing.rs", "maps files that are not truncated"),
    ("crates/esker/src/recordio/mmap.rs", "mapping a file"),
    ("crates/esker/src/recordio/tests.rs", "maps files that are not truncated"),
    ("crates/esker/src/sstable/block.rs", "values point into blocks"),
    ("crates/esker/src/sstable/block_search.rs", "functions compiled for instruction sets found at run time"),
    ("crates/esker/src/sync/pin.rs", "what is deferred outlives what it borrows"),
    ("crates/esker/src/txn/models.rs", "cells that loom watches"),
    ("crates/esker/src/types/prefetch.rs", "the processor's hint"),
    ("crates/esker/src/types/value.rs", "values point into bytes that a shared owner keeps alive"),
    ("crates/esker/tests/common/memory.rs", "a global allocator that counts"),
];

/// How far above its use a safety comment may stand, in lines.
const SAFETY_DISTANCE: usize = 12;

pub(super) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, source) in repo.rust() {
        let uses: Vec<usize> = source
            .words("unsafe")
            .filter(|at| !is_import(source, *at) && !is_export(source, *at))
            .map(|at| source.line_of(at))
            .collect();
        let allowed = ALLOWED.iter().any(|(path, _)| *path == file.path);
        match uses.first() {
            None if allowed => {
                findings.push(Finding::error(&file.path, 1, "listed for `unsafe`, but has none: unlist it"));
            }
            Some(line) if !allowed => {
                let message = "`unsafe` in a file that is not listed for it in xtask's unsafe_code.rs";
                findings.push(Finding::error(&file.path, *line, message));
            }
            Some(_) if !source.code.contains("expect(unsafe_code") => {
                let message = "say `#![expect(unsafe_code, reason = \"...\")]` at the head";
                findings.push(Finding::error(&file.path, 1, message));
            }
            _ => {}
        }
        findings.extend(
            uses.into_iter()
                .filter(|line| !is_explained(source, *line))
                .map(|line| Finding::error(&file.path, line, "`unsafe` without a SAFETY comment above it")),
        );
    }
    findings
}

/// Whether this is `unsafe extern`: it declares foreign functions, and calling them takes an `unsafe` of its
/// own.
fn is_import(source: &Source, at: usize) -> bool {
    source.code[at..].trim_start_matches("unsafe").trim_start().starts_with("extern")
}

/// Whether this is the attribute of a function of the C API: its name has to be unique.
fn is_export(source: &Source, at: usize) -> bool {
    source.code[..at].ends_with("#[") && source.code[at..].starts_with("unsafe(no_mangle)]\npub extern ")
}

/// Whether the lines above (or the line itself) say why; `unsafe fn` says it in its docs (`# Safety`).
fn is_explained(source: &Source, line: usize) -> bool {
    let from = line.saturating_sub(SAFETY_DISTANCE);
    let lines = source.text.lines().skip(from).take(line - from);
    lines.filter_map(|l| l.split_once("//")).any(|(_, c)| c.contains("SAFETY:") || c.contains("# Safety"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::places;

    const LISTED: &str = "crates/esker/src/recordio/mmap.rs";

    #[test]
    fn unlisted_files_are_found() {
        let text = "//! unsafe\n// SAFETY: x\nfn f() { unsafe { g() } }\n";
        assert_eq!(places(check, &[("a.rs", text)]), ["a.rs:3"]);
    }

    #[test]
    fn names_of_the_c_api_are_no_blocks() {
        let text = "//! C\n#[unsafe(no_mangle)]\npub extern \"C\" fn f() {}\n#[unsafe(no_mangle)]\nstatic X: u8 = 0;\n";
        assert_eq!(places(check, &[("a.rs", text)]), ["a.rs:4", "a.rs:4"]);
    }

    #[test]
    fn and_2_are_enforced() {
        let head = "#![expect(unsafe_code, reason = \"x\")]\n// SAFETY: x\n";
        let with = format!("{head}unsafe {{}}\n");
        assert_eq!(places(check, &[(LISTED, &with)]), [""; 0]);
        assert_eq!(places(check, &[(LISTED, head)]), [format!("{LISTED}:1")]);
        assert_eq!(places(check, &[(LISTED, "// SAFETY: x\nunsafe {}\n")]), [format!("{LISTED}:1")]);
    }

    #[test]
    fn a_missing_reason_is_found() {
        let text = format!("#![expect(unsafe_code)]\n// SAFETY: far\n{}unsafe {{}}\n", "\n".repeat(20));
        assert_eq!(places(check, &[(LISTED, &text)]), [format!("{LISTED}:23")]);
    }
}
