//! Tests the book and builds its site.
//!
//! ```text
//!   docs/book/*.md --blocks--> cargo test -p esker-book --doc     Rust
//!                         `--> console: bash, output compared     console
//!   SUMMARY.md, the pages that it names --site--> target/book/src --mdbook--> target/book/book --> links
//! ```
//!
//! book.1. Each code block of a chapter is of a language that is run, or is marked as text. Pages outside of
//!     docs/book are the reference: the tests of their subjects are elsewhere.
//! book.2. The chapter on errors has each variant of `esker::Error`.

mod blocks;
mod console;
mod site;

use std::fs;
use std::path::PathBuf;

use crate::cargo::{program, root, target_dir};

const MDBOOK: &str = "0.5.4";
/// Languages of blocks that are run, and those of data.
const LANGUAGES: &[&str] = &["rust", "console", "text", "toml"];

/// Tests the blocks, builds the site and checks its links. Returns whether all is well.
pub(crate) fn run() -> Result<bool, String> {
    let mut is_well = programs()?;
    let listed = read("docs/book/lib.rs")?;
    for path in chapters()? {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let blocks = blocks::all(&text);
        for block in blocks.iter().filter(|block| !LANGUAGES.contains(&block.language)) {
            println!(
                "{}:{}: blocks in {:?} are not run (book.1)",
                path.display(),
                block.line,
                block.language
            );
            is_well = false;
        }
        let name = path.strip_prefix(root().join("docs/book")).unwrap_or(&path).display().to_string();
        if blocks.iter().any(|block| block.language == "rust") && !listed.contains(&format!("\"{name}\"")) {
            println!("docs/book/lib.rs does not list {name}: its Rust blocks are not run (book.1)");
            is_well = false;
        }
        is_well &= console::run(&path, &blocks)?;
    }
    let errors = read("crates/esker/src/types/error.rs")?;
    let page = read("docs/book/errors.md")?;
    for name in variants(&errors).filter(|name| !page.contains(&format!("`{name}`"))) {
        println!("docs/book/errors.md does not say what to do about {name} (book.2)");
        is_well = false;
    }
    Ok(site::build(MDBOOK)? && is_well)
}

/// Returns the names of the variants of `Error`, from its source.
fn variants(source: &str) -> impl Iterator<Item = &str> {
    let body = source.split("pub enum Error {").nth(1).and_then(|rest| rest.split("\n}\n").next());
    let lines = body.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("    "));
    lines
        .filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
        .filter_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric()).next())
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(root().join(path)).map_err(|e| format!("{path}: {e}"))
}

/// Builds the tool and runs the Rust blocks.
fn programs() -> Result<bool, String> {
    let mut is_well = true;
    for args in [["build", "-p", "esker-cli", "--quiet"], ["test", "-p", "esker-book", "--doc"]] {
        let status = program("cargo").args(args).status().map_err(|e| format!("cargo: {e}"))?;
        is_well &= status.success();
    }
    Ok(is_well)
}

/// Returns the chapters, sorted by path.
fn chapters() -> Result<Vec<PathBuf>, String> {
    let mut folders = vec![root().join("docs/book")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
            let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the directory of the built tool.
fn tool_dir() -> PathBuf {
    root().join(target_dir()).join("debug")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_found_in_their_enum_only() {
        let source = "enum A {\n    B,\n}\npub enum Error {\n    /// Doc.\n    Io {\n        /// A field.\n        \
                      Op: u8,\n    },\n    Closed,\n    Other(String),\n}\nenum C {\n    D,\n}\n";
        assert_eq!(variants(source).collect::<Vec<_>>(), ["Io", "Closed", "Other"]);
    }
}
