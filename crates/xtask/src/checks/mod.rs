//! The checks of `cargo xtask tidy`, one per file.

mod ascii;
mod circles;
mod codes;
mod dependencies;
pub(crate) mod goldens;
mod kinds;
mod layers;
mod limit;
mod links;
mod machine_paths;
mod module_docs;
mod prose;
pub(crate) mod ratchet;
mod sizes;
mod unfinished;
mod unsafe_code;

use crate::finding::Finding;
use crate::repo::Repo;

/// A check: from the repository to what is wrong with it.
pub(crate) type Check = fn(&Repo) -> Vec<Finding>;

/// All of them, by name, in the order in which they report.
pub(crate) const ALL: &[(&str, Check)] = &[
    ("module_docs", module_docs::check),
    ("layers", layers::check),
    ("kinds", kinds::check),
    ("codes", codes::check),
    ("unfinished", unfinished::check),
    ("unsafe_code", unsafe_code::check),
    ("ascii", ascii::check),
    ("links", links::check),
    ("dependencies", dependencies::check),
    ("machine_paths", machine_paths::check),
    ("goldens", goldens::check),
    ("ratchet", ratchet::check),
];

/// Runs a check on a repository in memory; the findings as `file:line`.
#[cfg(test)]
fn places(check: Check, files: &[(&str, &str)]) -> Vec<String> {
    check(&Repo::of(files)).iter().map(|f| format!("{}:{}", f.file, f.line)).collect()
}
