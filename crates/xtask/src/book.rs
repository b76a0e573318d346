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
    Ok(site::build(MDBOOK)? && is_well)
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
